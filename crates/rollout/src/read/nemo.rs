//! Lines of `NeMo-RL`: a sample, or a batch of samples, each with tokens, masks and the log-probabilities of both sides.
//!
//! Entry t of a list belongs to token t; entry 0 and those of the prompt are 0 in the rollout's list. All lists are padded to one
//! length.

use serde::Deserialize;

use super::fields::{Rows, id, narrow, place};
use super::{Collected, Origin, step_of, text};
use crate::table::{Sample, Token};
use probe_read::ReadError;

#[derive(Deserialize)]
struct Line {
    token_ids: Rows,
    input_lengths: Rows,
    token_loss_mask: Rows,
    #[serde(default)]
    sample_loss_mask: Rows,
    generation_logprobs: Rows,
    prev_logprobs: Rows,
}

/// Reads the file.
pub(super) fn read(origin: Origin<'_>, into: &mut Collected) -> Result<(), ReadError> {
    let step = step_of(origin.path);
    let mut count = 0;
    text::each_line(origin.path, |line| {
        let line: Line = text::parsed(line)?;
        for row in 0..line.token_ids.0.len() {
            sample(&line, row, step, origin.name(count), into)?;
            count += 1;
        }
        Ok(())
    })
}

fn sample(line: &Line, row: usize, step: u64, name: Box<str>, into: &mut Collected) -> Result<(), String> {
    let of = |rows: &Rows, what: &str| {
        rows.0.get(row).cloned().ok_or_else(|| format!("{what} has no entry for sample {row} of the line"))
    };
    let ids = of(&line.token_ids, "token_ids")?;
    // Lengths of a batch are one flat list.
    let flat = |rows: &Rows| {
        rows.0.get(row).or(rows.0.first()).and_then(|all| all.get(row).or(all.first())).copied()
    };
    let length = flat(&line.input_lengths).ok_or("input_lengths is empty")?;
    let length = id(length).map_err(|_| format!("input_lengths holds {length}"))? as usize;
    if length > ids.len() {
        return Err(format!("input_lengths says {length}, but token_ids has {}", ids.len()));
    }
    let weight = flat(&line.sample_loss_mask).unwrap_or(1.0);
    let lists = [
        ("token_loss_mask", of(&line.token_loss_mask, "token_loss_mask")?),
        ("generation_logprobs", of(&line.generation_logprobs, "generation_logprobs")?),
        ("prev_logprobs", of(&line.prev_logprobs, "prev_logprobs")?),
    ];
    if let Some((what, list)) = lists.iter().find(|(_, list)| list.len() < ids.len()) {
        return Err(format!("{what} has {} entries, but token_ids has {}", list.len(), ids.len()));
    }
    let [(_, mask), (_, rollout), (_, trainer)] = lists;
    // Tokens behind the end of the trainer's sequence are padding, unless the engine has a value there: a dropped end token.
    let end = (length..ids.len()).rev().find(|&t| rollout[t].abs() > 0.0).map_or(length, |t| t + 1);
    into.builder.begin(Sample { step, name, named: false, range: 0..0, padding: None, version: None });
    for t in 0..end {
        let counted = mask[t] > 0.0 && weight > 0.0;
        let recorded = |value: f64| (counted || value != 0.0).then(|| narrow(value));
        into.builder.token(Token {
            id: id(ids[t])?,
            position: place(t),
            rollout: recorded(rollout[t]),
            trainer: if t < length { recorded(trainer[t]) } else { None },
            counted,
        });
    }
    Ok(())
}
