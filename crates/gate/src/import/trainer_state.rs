//! `trainer_state.json` of Hugging Face's trainer: a list `log_history` of entries with a step.

use serde_json::Value;

use super::ReadScalars;
use super::json::{spread, value};

pub(super) fn scalars(text: &str) -> Result<ReadScalars, String> {
    let state = value(text.as_bytes())?;
    let Some(Value::Array(entries)) = state.get("log_history") else {
        return Err("no list \"log_history\" in it".into());
    };
    let mut found = ReadScalars::default();
    for (index, entry) in entries.iter().enumerate() {
        let Value::Object(entry) = entry else {
            return Err(format!("log_history {index}: expected an object"));
        };
        // The trainer's final summary of the whole run is not a value of a step.
        if entry.contains_key("train_runtime") {
            found.notes.push("the summary of the whole run was left out".into());
            continue;
        }
        let step = entry
            .get("step")
            .and_then(Value::as_u64)
            .ok_or_else(|| format!("log_history {index}: no whole number \"step\""))?;
        spread("", entry, 0, &mut |name, value| found.add(name, step, value))
            .map_err(|error| format!("log_history {index}: {error}"))?;
    }
    Ok(found)
}
