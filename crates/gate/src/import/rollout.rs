//! `rollout.json` of `probe rollout`: the numbers of each step that a gate bounds, under the names that `scalars.jsonl` gives them.

use serde_json::Value;

use super::ReadScalars;
use super::json::value;

/// Numbers of a step that are gated.
const NAMES: [&str; 5] = ["mean_abs", "mean_exp_abs", "k3", "effective", "clipped"];

/// Returns true for such a document.
pub(super) fn is_one(document: &Value) -> bool {
    let has = |name: &str| document.get(name).is_some_and(Value::is_array);
    has("steps") && has("causes") && has("probabilities")
}

pub(super) fn scalars(text: &str) -> Result<ReadScalars, String> {
    let document = value(text.as_bytes())?;
    let list =
        |name: &str| document.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut found = ReadScalars::default();
    let at = |entry: &Value, name: &str, index: usize| {
        entry
            .get("step")
            .and_then(Value::as_u64)
            .ok_or_else(|| format!("{name} {index}: no whole number \"step\""))
    };
    for (index, entry) in list("steps").iter().enumerate() {
        let step = at(entry, "steps", index)?;
        for name in NAMES {
            if let Some(number) = entry.get("all").and_then(|all| all.get(name)).and_then(Value::as_f64) {
                found.add(&format!("rollout/{name}"), step, number);
            }
        }
        let causes = entry.get("findings").and_then(Value::as_array).map_or(0, Vec::len);
        found.add("rollout/causes", step, causes as f64);
    }
    for (index, entry) in list("probabilities").iter().enumerate() {
        if let Some(mean) = entry.get("mean").and_then(Value::as_f64) {
            found.add("rollout/mean_probability", at(entry, "probabilities", index)?, mean);
        }
    }
    Ok(found)
}
