//! Roles of ops whose findings the layouts moved: the op at fault is the one that is named.

use probe_dump::Ordinal;
use probe_judge::{PartJudgement, Role};
use probe_pair::PartPair;

/// Marks the ops that findings name as those at fault. `moved` holds where findings were, and where they are.
pub(super) fn tell(pair: &PartPair, judged: &mut PartJudgement, moved: &[(usize, usize)]) {
    for &(from, to) in moved {
        if judged.findings.iter().any(|finding| finding.order == from) {
            continue;
        }
        if judged.ops[from].role == Role::Introduces {
            set(judged, from, Role::Propagates);
            judged.ops[from].cause = None;
        }
        let at = Some(Ordinal::of(to));
        judged.ops[from].follows = at;
        let before = Some(Ordinal::of(from));
        judged.ops.iter_mut().filter(|op| op.follows == before).for_each(|op| op.follows = at);
    }
    for place in 0..judged.findings.len() {
        let finding = &judged.findings[place];
        let (order, role, cause) = (finding.order, finding.role, finding.cause);
        if judged.ops[order].role == Role::Unpaired {
            continue;
        }
        let shows = pair.ops[order].slots.iter().position(|slots| {
            let (b, c) = pair.slot(&pair.ops[order], slots);
            b.or(c).is_some_and(|slot| *slot.path == *finding.slot)
        });
        let reason = finding.reason.as_str().into();
        let op = &mut judged.ops[order];
        (op.cause, op.reason, op.follows) = (Some(cause), reason, None);
        op.worst = shows.map(Ordinal::of).or(op.worst);
        set(judged, order, role);
    }
}

/// Gives an op another role.
pub(super) fn set(judged: &mut PartJudgement, place: usize, role: Role) {
    let before = std::mem::replace(&mut judged.ops[place].role, role);
    judged.counts.roles[before as usize] -= 1;
    judged.counts.roles[role as usize] += 1;
}

#[cfg(test)]
mod tests {
    use probe_judge::{Cause, Finding, OpJudgement, Verdict};
    use probe_pair::{OpPair, Paired, SlotPairs};

    use super::super::partial;
    use super::super::strangers::tests::part;
    use super::*;

    #[test]
    fn the_op_that_is_named_is_the_one_at_fault() {
        let mut pair = part("Tensor.max.0.forward", [1.0, 2.0]);
        for rank in [&mut pair.baseline, &mut pair.candidate] {
            rank.ops = vec![rank.ops[0].clone(); 3];
        }
        let paired = |place| OpPair { ops: Paired::Both(place, place), slots: SlotPairs::in_order(2) };
        pair.ops = (0..3).map(paired).collect();
        let op = |role, cause, follows: Option<usize>| OpJudgement {
            role,
            cause,
            verdict: Verdict::Close,
            input_error: None.into(),
            output_error: None.into(),
            worst: Some(Ordinal::of(0)),
            reason: "".into(),
            follows: follows.map(Ordinal::of),
        };
        let ops = vec![
            op(Role::Clean, None, None),
            op(Role::Introduces, Some(Cause::Numerics), None),
            op(Role::Propagates, None, Some(1)),
        ];
        let slot = pair.candidate.ops[0].slots[1].clone();
        let reason = "the all-reduce is missing".to_owned();
        let findings = vec![Finding { reason, ..partial::finding(&pair, 0, &slot, Cause::Numerics) }];
        let mut judged = PartJudgement { ops, findings, ..PartJudgement::default() };
        for role in [Role::Clean, Role::Introduces, Role::Propagates] {
            judged.counts.roles[role as usize] = 1;
        }
        tell(&pair, &mut judged, &[(1, 0)]);
        let told = |op: &OpJudgement| (op.role, op.cause, op.follows.map(Ordinal::place));
        let told: Vec<_> = judged.ops.iter().map(told).collect();
        let follows = (Role::Propagates, None, Some(0));
        assert_eq!(told, [(Role::Introduces, Some(Cause::Numerics), None), follows, follows]);
        assert_eq!(judged.ops[0].worst, Some(Ordinal::of(1)), "the slot that is named");
        assert_eq!(judged.counts.roles[Role::Clean as usize], 0);
        assert_eq!(judged.counts.roles[Role::Propagates as usize], 2);
    }
}
