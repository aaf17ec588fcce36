//! Compares two dumps of different levels: ops that only one level can record are not a difference between the
//! runs.

use std::collections::{BTreeMap, BTreeSet};

use probe_dump::{Op, OpKind, Phase, Rank};

/// Removes kinds of op that only one side holds, and says so in a note on the baseline's side.
pub fn keep_shared_kinds(baseline: &mut Rank, candidate: &mut Rank) {
    let [b, c] = [&baseline.ops, &candidate.ops].map(|ops| ops.iter().map(kind).collect::<BTreeSet<_>>());
    let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
    for rank in [&mut *baseline, &mut *candidate] {
        rank.ops.retain(|op| {
            let shared = b.contains(kind(op)) && c.contains(kind(op));
            if !shared {
                *left_out.entry(kind(op)).or_default() += 1;
            }
            shared
        });
    }
    let list: Vec<String> = left_out.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    baseline.notes.push(format!(
        "the baseline recorded level {}, the candidate level {}; the kinds of op that both hold were compared, left out: {}",
        baseline.level,
        candidate.level,
        if list.is_empty() { "none".to_owned() } else { list.join(", ") }
    ));
}

/// Returns the group of ops that a level records, or omits, as a whole.
fn kind(op: &Op) -> &'static str {
    match op.name.kind() {
        OpKind::Module if op.name.phase() == Phase::ParameterGradient => "parameter gradients",
        OpKind::Module => "module calls",
        OpKind::Api if op.name.stem().starts_with("Aten.") => "dispatcher ops",
        OpKind::Api if op.name.stem().starts_with("Optimizer.") => "optimizer steps",
        OpKind::Api => "calls of functions",
        OpKind::Saved => "saved variables",
        OpKind::Tensor => "tensors",
    }
}
