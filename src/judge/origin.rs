//! Of several ops that look at fault, keeps those where the fault is.
//!
//! A module whose inner op is at fault looks at fault too; an inner op may only have been reached by the fault of an op
//! of the same module that was not recorded; and an error may be born below tolerance and grow.

use super::candidate::Candidate;
use super::nesting::Nesting;
use super::{Cause, OpJudgement, Role, Verdict};
use crate::dump::OpKind;
use crate::pair::{Paired, PartPair};

/// Output error over input error below which an error may have grown rather than jumped.
const JUMP: f64 = 100.0;

/// Drops candidates whose fault is told by another one, and gives those ops the role they really have.
pub(super) fn of_candidates(
    pair: &PartPair,
    nesting: &Nesting<'_>,
    candidates: &[Candidate],
    ops: &mut [OpJudgement],
) -> Vec<Candidate> {
    let op = |candidate: &Candidate| {
        let (b, c) = pair.op(&pair.ops[candidate.op]);
        b.or(c)
    };
    // Only modules enclose anything; a checkpoint with 100,000 differing tensors has none.
    let is_module = |candidate: &Candidate| op(candidate).is_some_and(|op| op.name.kind() == OpKind::Module);
    let modules: Vec<&Candidate> = candidates.iter().filter(|candidate| is_module(candidate)).collect();
    if modules.is_empty() && !candidates.iter().any(|candidate| candidate.arrived) {
        return candidates.to_vec();
    }
    let encloses = |outer: &Candidate, inner: &Candidate| match (op(outer), op(inner)) {
        (Some(outer), Some(inner)) => nesting.encloses(outer, inner),
        _ => false,
    };
    // A difference that arrives inside a module which was given equal inputs was made inside that module.
    let kept: Vec<Candidate> = candidates
        .iter()
        .filter(|inner| {
            !(inner.arrived
                && modules.iter().any(|outer| {
                    outer.cause != Cause::Input && outer.op > inner.op && encloses(outer, inner)
                }))
        })
        .map(|candidate| made_inside(pair, nesting, candidate, ops).unwrap_or_else(|| candidate.clone()))
        .collect();
    let (told, own): (Vec<Candidate>, Vec<Candidate>) = kept.iter().cloned().partition(|outer| {
        is_module(outer) && kept.iter().any(|inner| inner.op != outer.op && encloses(outer, inner))
    });
    for candidate in told {
        if let Some(judged) = ops.get_mut(candidate.op) {
            judged.role = Role::Propagates;
            judged.cause = None;
        }
    }
    own
}

/// The module call that was given equal inputs and hands on something that differs, where its own results hide it: made by
/// what it calls between its parts, which was not recorded.
fn made_inside(
    pair: &PartPair,
    nesting: &Nesting<'_>,
    inner: &Candidate,
    ops: &mut [OpJudgement],
) -> Option<Candidate> {
    let slot = inner.slot.filter(|_| inner.arrived && inner.cause == Cause::Input)?;
    let inner_op = pair.op(&pair.ops[inner.op]).0?;
    // Modules come after what is inside them: the innermost ends first.
    let outer = (inner.op + 1..pair.ops.len()).find(|&outer| {
        matches!(pair.ops[outer].ops, Paired::Both(..))
            && pair.op(&pair.ops[outer]).0.is_some_and(|outer| nesting.encloses(outer, inner_op))
    })?;
    let sides: Vec<bool> = (pair.ops[outer].slots.iter())
        .map(|&slots| pair.slot(&pair.ops[outer], slots).0.is_some_and(|slot| slot.side.is_result()))
        .collect();
    let judged = ops.get_mut(outer)?;
    let mut given = judged.slots.iter().zip(&sides).filter(|(_, result)| !**result);
    if judged.input_error.is_none() || given.any(|(slot, _)| slot.verdict > Verdict::Unknown) {
        return None;
    }
    judged.role = Role::Introduces;
    let shown = sides.iter().position(|&result| result);
    Some(Candidate {
        op: outer,
        slot: shown,
        cause: Cause::Numerics,
        arrived: false,
        seen: Some((inner.op, slot)),
    })
}

/// Names the op where an error was born below tolerance, when a reproducible pair of runs shows it: everything before it is
/// equal to the bit, and the op that passes tolerance only multiplied an error that was already there.
pub(super) fn walk_back(
    candidates: &mut Vec<Candidate>,
    first_inexact: usize,
    exact_before: usize,
    ops: &[OpJudgement],
) {
    let Some(first) = candidates.iter().min_by_key(|candidate| candidate.op) else { return };
    let Some(judged) = ops.get(first.op) else { return };
    let (Some(input), Some(output)) = (judged.input_error, judged.output_error) else { return };
    let numeric = matches!(first.cause, Cause::Numerics | Cause::Gradient);
    let grew = input > 0.0 && output < JUMP * input;
    if numeric && grew && first_inexact < first.op && exact_before >= 3 {
        let slot =
            ops[first_inexact].slots.iter().position(|slot| slot.error.is_some_and(|error| error > 0.0));
        candidates.push(Candidate {
            op: first_inexact,
            slot,
            cause: first.cause,
            arrived: false,
            seen: None,
        });
    }
}
