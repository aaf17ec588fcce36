//! Checkpoints of slime. Either a list of samples, each with `tokens`, `response_length`, `rollout_log_probs` or `log_probs`, or one
//! list for each of these fields (`rollout_data.tokens.0`). Log-probabilities and masks are of the response alone.

use std::collections::{BTreeSet, HashMap};

use super::fields::{id, narrow, place};
use super::verl::numbers;
use super::{Collected, Origin, step_of};
use crate::table::{NO_ID, Sample, Side, Token};
use probe_dump::{Number, Scalar, Value};
use probe_read::ReadError;
use probe_read::tensor_file::{Entry, TensorFile};

/// Fields that are read, with their names.
const FIELDS: [(Field, &str); 12] = [
    (Field::Tokens, "tokens"),
    (Field::Rollout, "rollout_log_probs"),
    (Field::Trainer, "log_probs"),
    (Field::Mask, "loss_masks"),
    (Field::Mask, "loss_mask"),
    (Field::Length, "response_lengths"),
    (Field::Length, "response_length"),
    (Field::Name, "sample_indices"),
    (Field::Name, "sample_index"),
    (Field::Name, "index"),
    (Field::Version, "weight_versions"),
    (Field::Step, "rollout_id"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Field {
    Tokens,
    Rollout,
    Trainer,
    Mask,
    Length,
    Name,
    Version,
    Step,
}

/// Values of one sample, by field.
type Values = HashMap<Field, Vec<f64>>;

/// Returns true if the file holds samples of slime.
pub(super) fn recognises(file: &dyn TensorFile) -> bool {
    file.entries().iter().filter_map(|entry| field(&entry.name)).any(|(_, field)| field == Field::Tokens)
}

/// Reads the file.
pub(super) fn read(origin: Origin<'_>, file: &dyn TensorFile, into: &mut Collected) -> Result<(), ReadError> {
    let mut step = step_of(origin.path);
    // In the order in which samples appear.
    let mut order: Vec<Box<str>> = Vec::new();
    let mut samples: HashMap<Box<str>, Values> = HashMap::new();
    for (at, entry) in file.entries().iter().enumerate() {
        let Some((key, field)) = field(&entry.name) else { continue };
        let Some(values) = values(file, at, entry, origin)? else { continue };
        if field == Field::Step {
            step = values.first().and_then(|value| id(*value).ok()).map_or(step, u64::from);
            continue;
        }
        let sample = samples.entry(key).or_insert_with_key(|key| {
            order.push(key.clone());
            Values::new()
        });
        sample.entry(field).or_default().extend(values);
    }
    for (place, key) in order.iter().enumerate() {
        let Some(values) = samples.get(key).filter(|values| values.contains_key(&Field::Tokens)) else {
            continue;
        };
        add(place, values, step, origin, into).map_err(|message| {
            ReadError::format(
                origin.path,
                format!("sample {}: {message}", probe_read::tensor_file::printable(key)),
            )
        })?;
    }
    Ok(())
}

/// Returns the sample and the field of an entry's name: `samples.3.tokens.17` and `rollout_data.tokens.3.17` are tokens of
/// sample 3.
fn field(name: &str) -> Option<(Box<str>, Field)> {
    let parts: Vec<&str> = name.split('.').collect();
    let (at, field) = parts.iter().enumerate().find_map(|(at, part)| {
        FIELDS.iter().find(|(_, known)| known == part).map(|(field, _)| (at, *field))
    })?;
    let before = parts.get(..at)?.join(".");
    let number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    if field == Field::Step || parts.get(at.checked_sub(1)?).is_some_and(number) {
        return Some((before.into(), field));
    }
    Some((format!("{before}.{}", parts.get(at + 1)?).into(), field))
}

/// Returns the numbers of an entry; `None` for one that has none.
fn values(
    file: &dyn TensorFile,
    at: usize,
    entry: &Entry,
    origin: Origin<'_>,
) -> Result<Option<Vec<f64>>, ReadError> {
    Ok(match &entry.value {
        Value::Tensor(_) => Some(numbers(&file.load(at)?, origin.path)?),
        Value::Scalar(Scalar::Number(number)) => Some(vec![Number::as_f64(*number)]),
        Value::Scalar(Scalar::Text(text)) => text.parse().ok().map(|number| vec![number]),
        _ => None,
    })
}

fn add(
    place: usize,
    values: &Values,
    step: u64,
    origin: Origin<'_>,
    into: &mut Collected,
) -> Result<(), String> {
    let of = |field: Field| values.get(&field).map(Vec::as_slice);
    let one = |field: Field| of(field).and_then(<[f64]>::first).copied();
    let ids = of(Field::Tokens).unwrap_or_default();
    let lists = [Field::Rollout, Field::Trainer, Field::Mask].map(of);
    let lengths: BTreeSet<usize> = lists.iter().flatten().map(|list| list.len()).collect();
    let stated = one(Field::Length).map(id).transpose()?.map(|length| length as usize);
    let response = match (lengths.len(), stated.or(lengths.first().copied())) {
        (0 | 1, Some(length)) if length <= ids.len() && lengths.iter().all(|has| *has == length) => length,
        (0, None) => return Err("has no response_length and no log-probabilities".into()),
        _ => {
            return Err(format!(
                "has {} tokens, response_length {stated:?} and lists of {lengths:?} entries, which do not fit",
                ids.len()
            ));
        }
    };
    let name = one(Field::Name).map(|name| name.to_string());
    into.builder.begin(Sample {
        step,
        named: name.is_some(),
        name: name.map_or_else(|| origin.name(place), Into::into),
        range: 0..0,
        padding: None,
        #[expect(clippy::cast_possible_truncation, reason = "a version is a small count")]
        version: of(Field::Version).and_then(<[f64]>::last).map(|version| *version as i64),
    });
    let prompt = ids.len() - response;
    for (at, id) in ids.iter().enumerate() {
        let inside = at.checked_sub(prompt);
        let value = |list: Option<&[f64]>| inside.and_then(|t| list?.get(t).copied());
        let [rollout, trainer, mask] = lists.map(value);
        let counted = inside.is_some() && mask.is_none_or(|mask| mask > 0.0);
        let (rollout, trainer) = match (lists, into.side) {
            ([Some(_), None, _], Side::Trainer) => (None, rollout),
            ([None, Some(_), _], Side::Rollout) => (trainer, None),
            _ => (rollout, trainer),
        };
        let recorded = |value: Option<f64>| value.filter(|value| counted || *value != 0.0).map(narrow);
        let id = if *id < 0.0 { NO_ID } else { self::id(*id)? };
        into.builder.token(Token {
            id,
            position: self::place(at),
            rollout: recorded(rollout),
            trainer: recorded(trainer),
            counted,
        });
    }
    Ok(())
}
