//! Objects with a step and scalars, one per line or as a list. Nested objects are flattened, their names joined by `/`.

use serde_json::{Map, Value};

use super::{COUNTERS, ReadScalars, STEP_NAMES, number, step, whole};
use probe_files::limits;
use probe_read::msprobe::with_quoted_numbers;

/// Parses a whole document; bare `NaN` and `Infinity` become strings.
pub(super) fn value(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(&with_quoted_numbers(bytes)).map_err(|error| error.to_string())
}

/// Returns the number that a value represents: a number, or a word such as `"nan"`.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => {
            let word = number(text)?;
            (!word.is_finite()).then_some(word)
        }
        _ => None,
    }
}

pub(super) fn lines(text: &str) -> Result<ReadScalars, String> {
    let mut found = ReadScalars::default();
    let mut without = 0_u64;
    let mut add = |place: String, object: &Map<String, Value>| -> Result<(), String> {
        let Some(at) = step_of(object) else {
            without += 1;
            return Ok(());
        };
        let at = at.ok_or_else(|| format!("{place}: its step is not a whole number"))?;
        spread("", object, 0, &mut |name, value| found.add(name, at, value))
            .map_err(|error| format!("{place}: {error}"))
    };
    if text.trim_start().starts_with('[') {
        let Value::Array(items) = value(text.as_bytes())? else { return Err("not a list".into()) };
        for (index, item) in items.iter().enumerate() {
            if let Value::Object(object) = item {
                add(format!("item {index}"), object)?;
            }
        }
    } else {
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let place = format!("line {}", index + 1);
            match value(line.as_bytes()) {
                Ok(Value::Object(object)) => add(place, &object)?,
                Ok(_) => return Err(format!("{place}: expected an object")),
                Err(error) => return Err(format!("{place}: {error}")),
            }
        }
    }
    if without > 0 {
        found.notes.push(format!(
            "{without} entries have no step ({}) and were left out",
            STEP_NAMES[..4].join(", ")
        ));
    }
    Ok(found)
}

/// Returns the step of an entry; the inner value is `None` if it is not a whole number.
#[expect(clippy::option_option, reason = "none, one that is wrong, and one")]
fn step_of(object: &Map<String, Value>) -> Option<Option<u64>> {
    let value = STEP_NAMES.iter().find_map(|name| object.get(*name))?;
    Some(match value {
        Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => step(text),
        _ => None,
    })
}

/// Adds every number of an object under its full name.
pub(super) fn spread(
    prefix: &str,
    object: &Map<String, Value>,
    depth: usize,
    add: &mut dyn FnMut(&str, f64),
) -> Result<(), String> {
    if depth > limits::MAX_DEPTH {
        return Err(format!("nested more than {} deep", limits::MAX_DEPTH));
    }
    for (name, value) in object {
        if depth == 0 && (STEP_NAMES.contains(&&**name) || COUNTERS.contains(&&**name)) {
            continue;
        }
        let full = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        match value {
            Value::Object(inner) => spread(&full, inner, depth + 1, add)?,
            value => {
                if let Some(value) = as_number(value) {
                    add(&full, value);
                }
            }
        }
    }
    Ok(())
}
