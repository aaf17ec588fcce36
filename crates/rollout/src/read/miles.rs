//! Entries of miles: a document per rank, `logprob_entries[sequence][token]`. Ranks of one context hold different positions of
//! one sequence, ranks of one data-parallel group different sequences.

use std::collections::HashSet;

use serde::Deserialize;

use super::fields::{Real, narrow};
use super::{Collected, EXPECTED, Origin, content, step_of};
use crate::table::{Sample, Side, Token};
use probe_read::ReadError;
use probe_read::msprobe::with_quoted_numbers;

#[derive(Deserialize)]
struct Document {
    #[serde(alias = "rollout_id", alias = "iteration")]
    step: Option<u64>,
    logprob_entries: Option<Vec<Vec<Entry>>>,
}

#[derive(Deserialize)]
struct Entry {
    global_position: u32,
    token_id: u32,
    logprob: Real,
    #[serde(default = "yes")]
    is_valid: bool,
}

const fn yes() -> bool {
    true
}

/// Reads the file.
pub(super) fn read(origin: Origin<'_>, into: &mut Collected) -> Result<(), ReadError> {
    let bytes = content(origin.path)?;
    let bytes = bytes.in_memory().unwrap_or_default();
    let document: Document = serde_json::from_slice(&with_quoted_numbers(bytes)).map_err(|error| {
        ReadError::format(origin.path, format!("is not complete JSON: {error}; record it again"))
    })?;
    let sequences = document.logprob_entries.ok_or_else(|| {
        ReadError::format(origin.path, format!("holds no log-probabilities that are known here; {EXPECTED}"))
    })?;
    let step = document.step.unwrap_or_else(|| step_of(origin.path));
    for (place, entries) in sequences.iter().enumerate() {
        let mut seen = HashSet::new();
        if let Some(twice) = entries.iter().find(|entry| !seen.insert(entry.global_position)) {
            return Err(ReadError::format(
                origin.path,
                format!("logprob_entries[{place}] has position {} twice", twice.global_position),
            ));
        }
        // A rank that has other positions of the sequence holds another part of its context.
        let shared = place.to_string();
        let other = into.builder.overlaps(step, &shared, &seen);
        let name: Box<str> = if other { origin.name(place) } else { shared.into() };
        into.builder.begin(Sample { step, name, named: !other, range: 0..0, padding: None, version: None });
        for entry in entries {
            let value = Some(narrow(entry.logprob.0));
            let (rollout, trainer) = match into.side {
                Side::Rollout => (value, None),
                Side::Trainer => (None, value),
            };
            into.builder.token(Token {
                id: entry.token_id,
                position: entry.global_position,
                rollout,
                trainer,
                counted: entry.is_valid,
            });
        }
    }
    Ok(())
}
