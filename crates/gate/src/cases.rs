//! Module calls and ops at fault as cases: the status of each, with evidence.

use super::outcome::{Case, Kind, Status};
use probe_compare::PartReport;
use probe_dump::{Exact, OpKind, OpName};
use probe_judge::{OpJudgement, Role};
use probe_pair::OpPair;

/// Returns the cases of one step of one rank: module calls, values saved by name, and everything at fault.
pub fn of_part(part: &PartReport<'_>) -> Vec<Case> {
    let ops = part.pair.ops.iter().zip(&part.judged.ops).enumerate();
    ops.filter_map(|(position, (op, judged))| of_op(part, position, op, judged)).collect()
}

/// Returns the case of one op; `None` for a function that is not at fault, and for an op that only the candidate has.
pub(super) fn of_op(
    part: &PartReport<'_>,
    position: usize,
    op: &OpPair,
    judged: &OpJudgement,
) -> Option<Case> {
    let name = part.pair.name(op);
    let finding = part.judged.findings.iter().find(|finding| finding.order == position);
    if !(is_boundary(name) || finding.is_some()) {
        return None;
    }
    if let Some(finding) = finding {
        return Some(Case {
            error: judged.output_error.get().map(Exact),
            ..Case::of_finding(finding, Kind::of(name))
        });
    }
    let mut case = Case::passed(Kind::of(name), name, Some(part.pair.step), Some(part.pair.rank));
    case.error = judged.output_error.get().map(Exact);
    match judged.role {
        Role::Unpaired => {
            op.ops.baseline()?;
            case.status = Status::Unverified;
            case.message = "the candidate has no such op".into();
        }
        Role::Propagates | Role::Amplifies => {
            let source = judged.follows.and_then(|order| part.pair.ops.get(order.place()));
            case.status = Status::Follows;
            case.message = source.map_or_else(
                || "differs because its inputs differ".to_owned(),
                |source| format!("differs because of {}", part.pair.name(source)),
            );
        }
        Role::Unknown => {
            case.status = Status::Unverified;
            case.message = "its results could not be compared".into();
        }
        Role::Clean | Role::Recovers | Role::Introduces => {}
    }
    Some(case)
}

/// Returns true if an op is a module call or a value saved by name.
pub(super) fn is_boundary(name: &str) -> bool {
    OpName::parse(name).kind() != OpKind::Api
}
