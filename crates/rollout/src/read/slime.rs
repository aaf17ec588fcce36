//! Checkpoints of slime. Either a list of samples, each with `tokens`, `response_length`, `rollout_log_probs` or `log_probs`, or one
//! list for each of these fields (`rollout_data.tokens.0`). Log-probabilities and masks are of the response alone.
//!
//! `rollout_routed_experts`, and `routed_experts` of the trainer, are of all tokens but the last: token, layer, choice.

use std::collections::{BTreeSet, HashMap};

use super::fields::{expert, id, narrow, place};
use super::verl::numbers;
use super::{Collected, Origin, step_of};
use crate::routes::Route;
use crate::table::{NO_ID, Sample, Side, Token};
use probe_dump::{Number, Scalar, Value};
use probe_read::ReadError;
use probe_read::tensor_file::{Entry, TensorFile, printable};

/// Fields that are read, with their names.
const FIELDS: [(Field, &str); 15] = [
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
    (Field::RolloutExperts, "rollout_routed_experts"),
    (Field::TrainerExperts, "routed_experts"),
    (Field::TrainerExperts, "train_routed_experts"),
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
    RolloutExperts,
    TrainerExperts,
}

/// One sample, as it is put together from the entries of the file.
#[derive(Default)]
struct Record {
    values: HashMap<Field, Vec<f64>>,
    rollout_experts: Option<Experts>,
    trainer_experts: Option<Experts>,
}

impl Record {
    /// Returns true for what has tokens, or should have.
    fn is_sample(&self) -> bool {
        [Field::Tokens, Field::Rollout, Field::Trainer].iter().any(|field| self.values.contains_key(field))
    }
}

/// Experts of one sample on one side: `values` has those of each token, layer after layer.
#[derive(Debug, Default)]
struct Experts {
    layers: usize,
    values: Vec<u16>,
}

/// Returns true if the file holds samples of slime.
pub(super) fn recognises(file: &dyn TensorFile) -> bool {
    file.entries().iter().filter_map(|entry| field(&entry.name)).any(|(_, field)| field == Field::Tokens)
}

/// Reads the file.
pub(super) fn read(origin: Origin<'_>, file: &dyn TensorFile, into: &mut Collected) -> Result<(), ReadError> {
    let mut step = step_of(origin.path);
    // In the order in which samples appear.
    let mut records: Vec<(Box<str>, Record)> = Vec::new();
    let mut places: HashMap<Box<str>, usize> = HashMap::new();
    for (at, entry) in file.entries().iter().enumerate() {
        let Some((key, field)) = field(&entry.name) else { continue };
        if field == Field::Step {
            let stated = values(file, at, entry, origin)?.unwrap_or_default();
            step = stated.first().and_then(|value| id(*value).ok()).map_or(step, u64::from);
            continue;
        }
        let place = *places.entry(key).or_insert_with_key(|key| {
            records.push((key.clone(), Record::default()));
            records.len() - 1
        });
        let record = &mut records[place].1;
        match field {
            Field::RolloutExperts => {
                record.rollout_experts.get_or_insert_default().add(file, at, entry, origin)?;
            }
            Field::TrainerExperts => {
                record.trainer_experts.get_or_insert_default().add(file, at, entry, origin)?;
            }
            _ => {
                if let Some(values) = values(file, at, entry, origin)? {
                    record.values.entry(field).or_default().extend(values);
                }
            }
        }
    }
    let has = |field: Field| records.iter().any(|(_, record)| record.values.contains_key(&field));
    let held = [has(Field::Rollout), has(Field::Trainer)];
    let samples = records.iter().filter(|(_, record)| record.is_sample());
    for (place, (key, record)) in samples.enumerate() {
        add(place, record, held, step, origin, into).map_err(|message| {
            ReadError::format(origin.path, format!("sample {}: {message}", printable(key)))
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

impl Experts {
    /// Adds an entry: all tokens as one array `[tokens, layers, chosen]`, or one number of a list of lists of lists.
    fn add(
        &mut self,
        file: &dyn TensorFile,
        at: usize,
        entry: &Entry,
        origin: Origin<'_>,
    ) -> Result<(), ReadError> {
        let refused = |message: String| {
            ReadError::format(origin.path, format!("{}: {message}", printable(&entry.name)))
        };
        match &entry.value {
            Value::Tensor(record) => {
                let &[_, layers, _] = &record.shape[..] else {
                    return Err(refused(format!(
                        "has shape {:?}, expected [tokens, layers, chosen]",
                        record.shape
                    )));
                };
                self.layers = usize::try_from(layers).map_err(|error| refused(error.to_string()))?;
                let values = numbers(&file.load(at)?, origin.path)?;
                self.values = values.into_iter().map(expert).collect::<Result<_, _>>().map_err(refused)?;
            }
            Value::Scalar(Scalar::Number(number)) => {
                // The last two numbers of the name are layer and choice.
                let layer = entry.name.rsplit('.').nth(1).and_then(|layer| layer.parse::<usize>().ok());
                self.layers = self.layers.max(layer.map_or(0, |layer| layer.saturating_add(1)));
                self.values.push(expert(Number::as_f64(*number)).map_err(refused)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the experts of each of `tokens`, or of all but the last, which nothing was sampled after.
    fn of(&self, tokens: usize) -> Result<std::slice::Chunks<'_, u16>, String> {
        let (layers, count) = (self.layers.max(1), self.values.len());
        let width = |rows: usize| count.checked_div(rows).filter(|width| *width > 0 && width * rows == count);
        let fits = |rows: usize| width(rows).filter(|width| width.is_multiple_of(layers));
        let width = fits(tokens.saturating_sub(1)).or_else(|| fits(tokens));
        width.map(|width| self.values.chunks(width)).ok_or_else(|| {
            format!("has {count} experts in {} layers, which {tokens} tokens cannot have", self.layers)
        })
    }
}

/// Returns the number of tokens of a response: the length that the file states, or that of its lists.
fn response(tokens: usize, lists: &[Option<&[f64]>], stated: Option<f64>) -> Result<usize, String> {
    let lengths: BTreeSet<usize> = lists.iter().flatten().map(|list| list.len()).collect();
    let length = |stated: f64| id(stated).map_err(|_| format!("response_length is {stated}"));
    let stated = stated.map(length).transpose()?.map(|length| length as usize);
    match (lengths.len(), stated.or(lengths.first().copied())) {
        (0 | 1, Some(length)) if length <= tokens && lengths.iter().all(|has| *has == length) => Ok(length),
        (0, None) => Err("has no response_length and no log-probabilities".into()),
        _ => {
            let stated = stated.map_or_else(|| "none".to_owned(), |length| length.to_string());
            let lists: Vec<String> = lengths.iter().map(ToString::to_string).collect();
            Err(format!(
                "has {tokens} tokens, a response_length of {stated}, and lists of {} entries; save them of equal length, one entry for each token of the response",
                lists.join(" and ")
            ))
        }
    }
}

fn add(
    place: usize,
    record: &Record,
    held: [bool; 2],
    step: u64,
    origin: Origin<'_>,
    into: &mut Collected,
) -> Result<(), String> {
    let of = |field: Field| record.values.get(&field).map(Vec::as_slice);
    let one = |field: Field| of(field).and_then(<[f64]>::first).copied();
    let ids = of(Field::Tokens).ok_or("has log-probabilities, but no tokens; save them as well")?;
    let lists = [Field::Rollout, Field::Trainer, Field::Mask].map(of);
    let response = response(ids.len(), &lists, one(Field::Length))?;
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
    let mut routes = Vec::new();
    for (side, experts) in
        [(Side::Rollout, &record.rollout_experts), (Side::Trainer, &record.trainer_experts)]
    {
        if let Some(experts) = experts {
            routes.push((side, experts.of(ids.len())?, experts.layers));
        }
    }
    let prompt = ids.len() - response;
    for (at, id) in ids.iter().enumerate() {
        let inside = at.checked_sub(prompt);
        let value = |list: Option<&[f64]>| inside.and_then(|t| list?.get(t).copied());
        let [rollout, trainer, mask] = lists.map(value);
        let counted = inside.is_some() && mask.is_none_or(|mask| mask > 0.0);
        let recorded = |value: Option<f64>| value.filter(|value| counted || *value != 0.0).map(narrow);
        let [rollout, trainer] = into.side.of_file(held, [rollout, trainer].map(recorded));
        let id = if *id < 0.0 { NO_ID } else { self::id(*id)? };
        into.builder.token(Token { id, position: self::place(at), rollout, trainer, counted });
        for (side, chunks, layers) in &mut routes {
            if let Some(experts) = chunks.next() {
                into.builder.route(*side, &Route { layers: *layers, experts, margins: &[] })?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_do_not_fit_are_told_in_words() {
        let lists: [Option<&[f64]>; 2] = [Some(&[-1.0]), Some(&[1.0, 1.0])];
        let said = response(3, &lists, Some(2.0)).unwrap_err();
        assert!(
            said.starts_with("has 3 tokens, a response_length of 2, and lists of 1 and 2 entries; save them"),
            "{said}"
        );
        assert!(response(3, &lists, None).unwrap_err().contains("a response_length of none"));
        assert_eq!(response(3, &[None, Some(&[1.0, 1.0])], None), Ok(2));
    }
}
