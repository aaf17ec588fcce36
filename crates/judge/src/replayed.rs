//! Results of replaying calls in float64 on the inputs that each side recorded. They need no model of how errors spread, so they
//! have the last word on the numbers of an op; what arrived, arguments, types and structure are not theirs to judge.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;

use super::Cause;
use super::candidate::Candidate;
use super::flow::Flow;
use super::hard_faults::numeric;
use super::value::{Excess, ExpectedError};
use probe_dump::SlotSide;

/// Version of the text.
const VERSION: u32 = 1;

/// The text as the package prints it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    replay_version: u32,
    #[serde(default)]
    op: Vec<Outcome>,
    /// Calls that compute something and could not be replayed.
    #[serde(default)]
    gap: Vec<Gap>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gap {
    step: u64,
    rank: u32,
    name: Box<str>,
}

/// Result of replaying one call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    step: u64,
    rank: u32,
    /// Name of the candidate's op.
    name: Box<str>,
    /// Path of the worst result, without `output.`.
    output: Box<str>,
    /// True if a result of the candidate is further from float64 than it may be, by the bounds of the package's `probe.replay.fault`.
    wrong: bool,
    /// The same of the baseline.
    baseline_wrong: bool,
    /// Both in words.
    text: Box<str>,
}

impl Outcome {
    /// Returns true if both sides are as right as they can be.
    const fn is_right(&self) -> bool {
        !self.wrong && !self.baseline_wrong
    }
}

/// Replayed calls of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Replayed {
    parts: HashMap<(u64, u32), Part>,
}

#[derive(Debug, Clone, Default)]
struct Part {
    /// By the name of the candidate's op; `None` for one that could not be replayed.
    ops: HashMap<Box<str>, Option<Outcome>>,
}

impl Replayed {
    /// Reads the text that the package prints.
    ///
    /// # Errors
    /// The problem with its line, on one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            format!("line {line}: {}", error.message().replace('\n', " "))
        })?;
        if file.replay_version != VERSION {
            let found = file.replay_version;
            return Err(format!(
                "replay_version {found}, expected {VERSION}; write it again with this version of `probe`"
            ));
        }
        let mut parts: HashMap<(u64, u32), Part> = HashMap::new();
        for Gap { step, rank, name } in file.gap {
            parts.entry((step, rank)).or_default().ops.insert(name, None);
        }
        for outcome in file.op {
            let part = parts.entry((outcome.step, outcome.rank)).or_default();
            part.ops.insert(outcome.name.clone(), Some(outcome));
        }
        Ok(Self { parts })
    }

    /// Returns what replaying an op showed, in words; `None` if it was not replayed.
    pub fn said(&self, step: u64, rank: u32, op: &str) -> Option<&str> {
        Some(&self.of_part(step, rank)?.outcome(op)?.text)
    }

    /// Returns true if an op was replayed and a side of it is wrong.
    pub fn convicts(&self, step: u64, rank: u32, op: &str) -> bool {
        let outcome = self.of_part(step, rank).and_then(|part| part.outcome(op));
        outcome.is_some_and(|outcome| !outcome.is_right())
    }

    /// Returns what was replayed of a part; `None` if nothing was.
    pub(super) fn of_part(&self, step: u64, rank: u32) -> Option<OfPart<'_>> {
        self.parts.get(&(step, rank)).map(OfPart)
    }
}

/// Replayed calls of one part.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfPart<'a>(&'a Part);

impl<'a> OfPart<'a> {
    /// Clears what replaying exculpates, adds what it convicts, and returns a statement about each suspect that was dropped.
    pub(super) fn apply(
        self,
        flow: &Flow<'_>,
        values: &[ExpectedError],
        excess: &mut [Excess],
        candidates: &mut Vec<Candidate>,
    ) -> Vec<String> {
        for (value, excess) in values.iter().zip(excess) {
            if excess.is_fault && flow.side(value.place).is_result() && self.clears(flow, value.place.0) {
                excess.is_fault = false;
                // What the closing check adds up: the op may be off by this.
                excess.floor = excess.floor.max(value.error);
            }
        }
        let mut cleared = BTreeSet::new();
        candidates.retain(|candidate| {
            let is_number = matches!(
                candidate.cause,
                Cause::Numerics | Cause::Gradient | Cause::Optimizer | Cause::NonFinite
            );
            let dropped = is_number && !candidate.arrived && self.clears(flow, candidate.op);
            if dropped {
                cleared.insert(candidate.op);
            }
            !dropped
        });
        // An op that is named for its arguments is still suspected.
        cleared.retain(|op| candidates.iter().all(|candidate| candidate.op != *op));
        let notes = cleared.into_iter().map(|op| self.dropped(flow, op)).collect();
        for (op, node) in flow.nodes.iter().enumerate() {
            let Some(outcome) = self.outcome(node.op.name.as_str()).filter(|_| node.is_paired) else {
                continue;
            };
            if outcome.is_right() {
                continue;
            }
            let known = candidates.iter_mut().find(|candidate| candidate.op == op);
            if let Some(known) = known {
                let separator = if known.said.is_empty() { "" } else { ", " };
                known.said = format!("{}{separator}{}", known.said, outcome.text);
                continue;
            }
            let mut found = Candidate::at(op, worst_slot(flow, op, outcome), numeric(node));
            found.said = outcome.text.to_string();
            candidates.push(found);
        }
        notes
    }

    fn outcome(self, name: &str) -> Option<&'a Outcome> {
        self.0.ops.get(name)?.as_ref()
    }

    /// Returns true if an op was replayed and both sides are as right as they can be; of a module, if all ops inside it are.
    fn clears(self, flow: &Flow<'_>, op: usize) -> bool {
        let outcome = |op: usize| self.0.ops.get(flow.nodes[op].op.name.as_str());
        if let Some(Some(own)) = outcome(op) {
            return own.is_right();
        }
        if !flow.nodes[op].is_module() {
            return false;
        }
        let inside = (0..flow.nodes.len())
            .filter(|&inner| !flow.nodes[inner].is_module() && flow.around(inner).any(|outer| outer == op));
        let known: Vec<_> = inside.filter_map(outcome).collect();
        !known.is_empty() && known.iter().all(|outcome| outcome.as_ref().is_some_and(Outcome::is_right))
    }

    fn dropped(self, flow: &Flow<'_>, op: usize) -> String {
        let name = &flow.nodes[op].op.name;
        let words = self.outcome(name.as_str()).map_or_else(
            || "the ops inside it are as right as the baseline's".to_owned(),
            |outcome| outcome.text.to_string(),
        );
        format!("{name} was suspected and is cleared by replay: {words}")
    }
}

/// Returns the slot of the worst result of an op.
fn worst_slot(flow: &Flow<'_>, op: usize, outcome: &Outcome) -> Option<usize> {
    let is_worst = |slot: &usize| {
        flow.slot((op, *slot)).is_some_and(|slot| {
            slot.side == SlotSide::Output && slot.path.strip_prefix("output.") == Some(&*outcome.output)
        })
    };
    flow.nodes[op].results().find(is_worst)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::{Drawn, Part as DrawnPart};

    #[test]
    fn a_text_is_read_and_a_bad_one_names_the_line() {
        let text = "replay_version = 1\n[[op]]\nstep = 2\nrank = 1\nname = \"Torch.mm.0.forward\"\noutput = \"0\"\nwrong = true\nbaseline_wrong = false\ntext = \"x\"\n[[gap]]\nstep = 2\nrank = 1\nname = \"Torch.f.0.forward\"\n";
        let replayed = Replayed::parse(text).unwrap();
        let part = replayed.of_part(2, 1).unwrap();
        assert!(part.outcome("Torch.mm.0.forward").is_some_and(|outcome| outcome.wrong));
        assert!(part.outcome("Torch.f.0.forward").is_none());
        assert!(replayed.of_part(2, 0).is_none());
        for (text, message) in [
            ("replay_version = 2", "replay_version 2, expected 1"),
            ("replay_version = 1\n[[op]]\nstep = 0", "line "),
            ("replay_version = 1\nmore = 1", "line 2: unknown field"),
        ] {
            let error = Replayed::parse(text).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn an_op_that_is_named_for_its_arguments_is_not_called_cleared() {
        let text = "replay_version = 1\n[[op]]\nstep = 0\nrank = 0\nname = \"Torch.mm.0.forward\"\noutput = \"0\"\nwrong = false\nbaseline_wrong = false\ntext = \"right\"\n";
        let (replayed, x) = (Replayed::parse(text).unwrap(), Drawn::normal(1, &[4, 4]));
        let left = |causes: &[Cause]| {
            let mut candidates: Vec<Candidate> =
                causes.iter().map(|cause| Candidate::at(0, Some(1), *cause)).collect();
            let mut part = DrawnPart::default();
            part.op("Torch.mm.0.forward").tensor("input.0", &x, &x).tensor("output.0", &x, &x);
            let notes =
                part.flow(|flow| replayed.of_part(0, 0).unwrap().apply(flow, &[], &mut [], &mut candidates));
            (notes.len(), candidates.len())
        };
        assert_eq!(left(&[Cause::Numerics]), (1, 0));
        assert_eq!(left(&[Cause::Numerics, Cause::Argument]), (0, 1));
    }
}
