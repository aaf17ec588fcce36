//! Compares two dumps of different tools: ops that only one tool can record are not a difference between the
//! runs.

use std::collections::BTreeMap;

use super::{OpPair, Paired};
use probe_dump::{Op, OpKind, OpName, Phase, Rank};

/// Operators that the older tool names by the side of the number (`1 + x`), and probe's names for them: torch
/// shows both as one function.
const REFLECTED: [(&str, &str); 2] =
    [("Tensor.__radd__", "Tensor.__add__"), ("Tensor.__rmul__", "Tensor.__mul__")];

/// Number of function names listed in the note on omissions.
const LISTED: usize = 8;

/// Removes from both sides what the other tool does not record, or records with a different meaning:
///
/// * functions and modules that only one side names at all: each tool intercepts a list of its own;
/// * the backward pass of functions: the older tool shows the last node of the autograd graph there, probe the
///   gradients of the function's own inputs (docs/compare.md, "Dumps of two tools").
///
/// A note on the baseline's side states each. `1 + x`, which the older tool counts separately, is counted as
/// `x + 1`.
pub fn keep_common(baseline: &mut Rank, candidate: &mut Rank) {
    for side in [&mut *baseline, &mut *candidate] {
        side.notes.extend(count_reflected(&mut side.ops));
    }
    let gradients = |op: &Op| op.name.kind() == OpKind::Api && op.name.phase() == Phase::Backward;
    let before = baseline.ops.len() + candidate.ops.len();
    baseline.ops.retain(|op| !gradients(op));
    candidate.ops.retain(|op| !gradients(op));
    if baseline.ops.len() + candidate.ops.len() < before {
        baseline.notes.push(
            "gradients of functions are not compared: the two tools record different ones; compare those of modules instead"
                .into(),
        );
    }
    let mut stems: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for op in &baseline.ops {
        stems.entry(stem(op)).or_default().0 += 1;
    }
    for op in &candidate.ops {
        stems.entry(stem(op)).or_default().1 += 1;
    }
    let alone: Vec<&str> = stems
        .iter()
        .filter(|(_, (b, c))| *b == 0 || *c == 0)
        .filter_map(|(stem, _)| stem.strip_suffix(" Forward"))
        .collect();
    if !alone.is_empty() {
        let more = if alone.len() > LISTED { ", …" } else { "" };
        baseline.notes.push(format!(
            "{} functions or modules that only one of the two tools recorded are left out: {}{more}",
            alone.len(),
            alone[..alone.len().min(LISTED)].join(", ")
        ));
    }
    let common = |op: &Op| stems.get(&stem(op)).is_some_and(|(b, c)| *b > 0 && *c > 0);
    baseline.ops.retain(common);
    candidate.ops.retain(common);
}

/// Removes slots that only one side has: one tool lists an argument by position, the other by keyword, and
/// only one lists defaults that were not written.
pub fn keep_common_slots(pairs: &mut [OpPair]) {
    for pair in pairs {
        if matches!(pair.ops, Paired::Both(..)) {
            pair.slots = pair.slots.iter().filter(|slots| matches!(slots, Paired::Both(..))).collect();
        }
    }
}

/// Renames `1 + x` to `x + 1` and numbers both in call order. Returns a note on each operator that occurs.
fn count_reflected(ops: &mut [Op]) -> Vec<String> {
    let mut notes = Vec::new();
    for (reflected, plain) in REFLECTED {
        if !ops.iter().any(|op| op.name.stem() == reflected) {
            continue;
        }
        let calls = ops
            .iter_mut()
            .filter(|op| op.name.phase() == Phase::Forward && [reflected, plain].contains(&op.name.stem()));
        for (call, op) in calls.enumerate() {
            op.name = OpName::parse(&format!("{plain}.{call}.forward"));
        }
        notes.push(format!("calls of {reflected} are named and counted as {plain}"));
    }
    notes
}

fn stem(op: &Op) -> String {
    format!("{} {:?}", op.name.stem(), op.name.phase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_front_of_an_operator_are_counted_with_the_others() {
        let calls = ["Tensor.__add__.0", "Tensor.__radd__.0", "Torch.exp.0", "Tensor.__add__.1"];
        let mut ops = calls.map(|call| Op::new(OpName::parse(&format!("{call}.forward"))));
        assert_eq!(
            count_reflected(&mut ops),
            ["calls of Tensor.__radd__ are named and counted as Tensor.__add__"]
        );
        let names = ops.each_ref().map(|op| op.name.as_str().trim_end_matches(".forward"));
        assert_eq!(names, ["Tensor.__add__.0", "Tensor.__add__.1", "Torch.exp.0", "Tensor.__add__.2"]);
    }
}
