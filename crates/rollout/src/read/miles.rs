//! Entries of miles: a document per rank, `logprob_entries[sequence][token]`. Ranks of one context hold different positions of
//! one sequence, ranks of one data-parallel group different sequences.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;

use super::fields::{Real, Whole, id, narrow};
use super::{Collected, EXPECTED, Origin, content, step_of};
use crate::table::{Sample, Side, Token};
use probe_read::ReadError;
use probe_read::msprobe::with_quoted_numbers;

#[derive(Deserialize)]
struct Document {
    #[serde(alias = "rollout_id", alias = "iteration")]
    step: Option<Whole>,
    logprob_entries: Option<Vec<Vec<Entry>>>,
}

#[derive(Deserialize)]
struct Entry {
    global_position: Whole,
    token_id: Whole,
    logprob: Real,
    #[serde(default = "yes")]
    is_valid: bool,
}

/// What to do about an entry that is wrong.
const REPAIR: &str = "each has global_position, token_id and logprob; record them again";

const fn yes() -> bool {
    true
}

/// Reads the file.
pub(super) fn read(origin: Origin<'_>, into: &mut Collected) -> Result<(), ReadError> {
    let bytes = content(origin.path)?;
    let bytes = bytes.in_memory().unwrap_or_default();
    let bytes = with_quoted_numbers(bytes);
    let document: Document = serde_json::from_slice(&bytes)
        .map_err(|error| ReadError::format(origin.path, refused(&bytes, &error)))?;
    let sequences = document.logprob_entries.ok_or_else(|| {
        ReadError::format(origin.path, format!("holds no log-probabilities that are known here; {EXPECTED}"))
    })?;
    let step = document.step.map_or_else(|| step_of(origin.path), |step| step.0);
    for (place, entries) in sequences.iter().enumerate() {
        let mut seen = HashSet::new();
        let mut tokens = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            let wrong = |message: String| {
                ReadError::format(origin.path, format!("logprob_entries[{place}][{at}]: {message}; {REPAIR}"))
            };
            let Whole(position) = entry.global_position;
            let position = u32::try_from(position)
                .map_err(|_| wrong(format!("position {position} is not a place in a sequence")))?;
            if !seen.insert(position) {
                return Err(wrong(format!("position {position} was there before")));
            }
            tokens.push((position, id(entry.token_id.0 as f64).map_err(wrong)?));
        }
        // A rank that has other positions of the sequence holds another part of its context.
        let shared = place.to_string();
        let other = into.builder.overlaps(step, &shared, &seen);
        let name: Box<str> = if other { origin.name(place) } else { shared.into() };
        into.builder.begin(Sample { step, name, named: !other, range: 0..0, padding: None, version: None });
        for (entry, (position, id)) in entries.iter().zip(tokens) {
            let value = Some(narrow(entry.logprob.0));
            let (rollout, trainer) = match into.side {
                Side::Rollout => (value, None),
                Side::Trainer => (None, value),
            };
            into.builder.token(Token { id, position, rollout, trainer, counted: entry.is_valid });
        }
    }
    Ok(())
}

/// Says what is wrong with a document, and in which entry.
fn refused(bytes: &[u8], error: &serde_json::Error) -> String {
    let Some(document) = error.is_data().then(|| serde_json::from_slice::<Value>(bytes).ok()).flatten()
    else {
        return format!("is not complete JSON: {error}; record it again");
    };
    let of = |name: &str| document.get(name).unwrap_or(&Value::Null);
    let sequences = of("logprob_entries").as_array().map(Vec::as_slice).unwrap_or_default();
    for (place, entries) in sequences.iter().enumerate() {
        let Some(entries) = entries.as_array() else {
            return format!("logprob_entries[{place}] is not a list of entries; {REPAIR}");
        };
        for (at, entry) in entries.iter().enumerate() {
            if let Err(error) = Entry::deserialize(entry) {
                return format!("logprob_entries[{place}][{at}]: {error}; {REPAIR}");
            }
        }
    }
    format!("{error}; expected an object with logprob_entries, a list of entries for each sequence")
}
