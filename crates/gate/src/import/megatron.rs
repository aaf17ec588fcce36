//! Golden values of Megatron-LM: one object per metric, with `start_step`, `end_step`, `step_interval` and `values`.
//!
//! Newer files have an object of values by step; older ones have a list whose items are `step_interval` apart. The files write `"nan"` both
//! for a missing value and for an actual NaN: it stays NaN, which never passes.

use serde_json::Value;

use super::json::{as_number, value};
use super::{ReadScalars, step};

pub(super) fn scalars(text: &str) -> Result<ReadScalars, String> {
    let Value::Object(metrics) = value(text.as_bytes())? else {
        return Err("expected an object with one key per metric".into());
    };
    let mut found = ReadScalars::default();
    for (name, metric) in &metrics {
        let wrong = |what: &str| format!("metric {name:?}: {what}");
        let number = |key: &str| metric.get(key).and_then(Value::as_u64);
        match metric.get("values") {
            Some(Value::Object(values)) => {
                for (at, value) in values {
                    let place = step(at).ok_or_else(|| wrong(&format!("{at:?} is not a step")))?;
                    add(&mut found, name, place, value)?;
                }
            }
            Some(Value::Array(values)) => {
                let start = number("start_step").ok_or_else(|| wrong("no whole number \"start_step\""))?;
                let interval = number("step_interval").filter(|interval| *interval > 0).ok_or_else(|| {
                    wrong("no \"step_interval\" above 0, the distance between the values of a list")
                })?;
                for (index, value) in values.iter().enumerate() {
                    let place =
                        (index as u64).checked_mul(interval).and_then(|steps| steps.checked_add(start));
                    add(&mut found, name, place.ok_or_else(|| wrong("its steps pass 2^64"))?, value)?;
                }
            }
            Some(_) => return Err(wrong("\"values\" is neither an object by step nor a list")),
            None => found.notes.push(format!("{name:?} has no \"values\" and was left out")),
        }
    }
    Ok(found)
}

fn add(found: &mut ReadScalars, name: &str, step: u64, value: &Value) -> Result<(), String> {
    match value {
        // Explicitly no value at this step.
        Value::Null => Ok(()),
        value => {
            let number = as_number(value)
                .ok_or_else(|| format!("metric {name:?}, step {step}: {value} is not a number"))?;
            found.add(name, step, number);
            Ok(())
        }
    }
}
