//! Chooses the op of an unpaired group that is named.

use std::collections::{BTreeSet, HashSet};

use super::unpaired::{ALONE, computes, computing, tensors};
use crate::Cause;
use crate::candidate::Candidate;
use crate::difference::Difference;
use crate::flow::{Flow, Node};
use crate::precision::Precision;
use probe_dump::{Phase, TensorRecord};
use probe_pair::{Substitution, apart, value_key};

/// Maximum number of a group's ops that are compared to find it.
const LOOKED_AT: usize = 256;

/// Returns the op of a group that is named. If the group replaces others: the candidate's first op that
/// computes from data and whose result no baseline op has there. If only one side has ops: the first, or its
/// forward call if it is a backward op.
pub(super) fn named(flow: &Flow<'_>, place: usize, first: usize, shown: Option<&Candidate>) -> usize {
    let group = &flow.pair.substitutions[place];
    let alone = match computing(flow, group) {
        _ if group.baseline.is_empty() || group.candidate.is_empty() => Some(first),
        [Some(_), Some(_)] => None,
        // The other side only copies.
        [b, c] => Some(b.or(c).or_else(|| of_one_side(flow, group)).unwrap_or(first)),
    };
    if let Some(alone) = alone {
        return cut_off(flow, group, alone).unwrap_or_else(|| forward_of(flow, alone));
    }
    let region = region(flow, place);
    let expected = shown.and_then(|candidate| candidate.beyond).map(|beyond| beyond.expected);
    let made = region.iter().flat_map(|group| &group.baseline).flat_map(|&op| tensors(&flow.nodes[op], true));
    let results: Vec<&TensorRecord> = made.take(LOOKED_AT).collect();
    // Attention layouts differ in the order of their dimensions.
    let dimensions = |record: &TensorRecord| {
        let mut sizes = record.squeezed_shape();
        sizes.sort_unstable();
        sizes
    };
    let allowed = |made: &TensorRecord| {
        let unknown = made.dtype.known().and_then(Precision::of).map_or(0.0, |precision| precision.unknown);
        ALONE * expected.unwrap_or(unknown)
    };
    let about = |made: &TensorRecord, other: &TensorRecord| {
        let close = apart(other, made).is_some_and(|off| off <= allowed(made));
        close && dimensions(made) == dimensions(other)
    };
    // Covers one product with several weights side by side.
    let together = |node: &Node<'_>, made: &TensorRecord| {
        let several = region.iter().flat_map(|group| &group.baseline).map(|&op| &flow.nodes[op]);
        let several = several.filter(|other| other.op.name.stem() == node.op.name.stem());
        let parts: Vec<&TensorRecord> =
            several.flat_map(|node| tensors(node, true)).take(LOOKED_AT).collect();
        apart_from_parts(made, &parts).is_some_and(|off| off <= allowed(made))
    };
    let has_counterpart = |node: &Node<'_>| {
        // Forward results after the first are for the backward pass.
        let results_of_it = if node.is_backward() { usize::MAX } else { 1 };
        let mut made = tensors(node, true).take(results_of_it);
        made.all(|made| results.iter().any(|other| about(made, other)) || together(node, made))
    };
    // Values that do not depend on data, such as a mask, are no results.
    let mut constants: HashSet<u64> = HashSet::new();
    let mut suspects = Vec::new();
    for &op in region.iter().flat_map(|group| &group.candidate).filter(|&&op| !flow.nodes[op].is_module()) {
        let node = &flow.nodes[op];
        if tensors(node, false).filter_map(value_key).all(|key| constants.contains(&key)) {
            constants.extend(tensors(node, true).filter_map(value_key));
        } else if computes(node) && makes_floats(node) && suspects.len() < LOOKED_AT {
            suspects.push(op);
        }
    }
    let suspect = suspects.iter().find(|&&op| !has_counterpart(&flow.nodes[op])).or(suspects.last());
    suspect.copied().or(group.candidate.first().copied()).unwrap_or(first)
}

/// Returns the first op of a group whose function the other side has not in it.
fn of_one_side(flow: &Flow<'_>, group: &Substitution) -> Option<usize> {
    let sides = [(&group.baseline, &group.candidate), (&group.candidate, &group.baseline)];
    let lacks =
        |other: &[usize], op: usize| other.iter().all(|&other| flow.nodes[other].base != flow.nodes[op].base);
    let alone = sides.into_iter().flat_map(|(own, other)| own.iter().filter(|&&op| lacks(other, op)));
    alone.copied().min()
}

/// Returns the call of the forward pass that an op of the backward pass comes from: the first of those that one side alone
/// has, where there are some of one kind. Their values agree, so that they are told by their gradients alone.
pub(super) fn called_otherwise(flow: &Flow<'_>, op: usize) -> Option<usize> {
    if !flow.nodes[op].is_backward() {
        return None;
    }
    let names = |ops: &[usize]| ops.iter().map(|&op| flow.nodes[op].base).collect::<BTreeSet<&str>>();
    let makes =
        |ops: &[usize]| ops.iter().any(|&op| computes(&flow.nodes[op]) || flow.nodes[op].base == "detach");
    let groups = flow.pair.substitutions.iter().filter(|group| {
        let mut ops = group.baseline.iter().chain(&group.candidate);
        ops.all(|&of| of < op && flow.nodes[of].op.name.phase() == Phase::Forward)
            && (makes(&group.baseline) || makes(&group.candidate))
    });
    let mut kinds = HashSet::new();
    let mut first = None;
    for group in groups {
        kinds.insert([names(&group.baseline), names(&group.candidate)]);
        first = first.or_else(|| group.baseline.iter().chain(&group.candidate).copied().min());
    }
    first.filter(|_| kinds.len() == 1)
}

/// Returns the distance between the extremes and norm of a tensor and those of several tensors combined,
/// relative to its own; `None` if the element counts differ.
fn apart_from_parts(whole: &TensorRecord, parts: &[&TensorRecord]) -> Option<f64> {
    if parts.len() < 2 || parts.iter().map(|part| part.len()).sum::<u64>() != whole.len() {
        return None;
    }
    let numbers = |record: &TensorRecord| {
        let found = &record.statistics;
        Some([found.min()?.as_f64(), found.max()?.as_f64(), found.norm()?])
    };
    let [least, greatest, norm] = numbers(whole)?;
    let mut of_parts = [f64::INFINITY, f64::NEG_INFINITY, 0.0];
    for part in parts {
        let [least, greatest, norm] = numbers(part)?;
        of_parts = [of_parts[0].min(least), of_parts[1].max(greatest), of_parts[2].hypot(norm)];
    }
    let extent = least.abs().max(greatest.abs()).max(f64::MIN_POSITIVE);
    let off = [(least, of_parts[0], extent), (greatest, of_parts[1], extent), (norm, of_parts[2], norm)];
    Some(off.into_iter().map(|(whole, parts, size)| (whole - parts).abs() / size).fold(0.0, f64::max))
}

/// Returns a group, preceded by the groups it reads and those that only these read: no paired op shows what
/// they pass on.
fn region<'a>(flow: &Flow<'a>, place: usize) -> Vec<&'a Substitution> {
    let groups = &flow.pair.substitutions;
    let mut within = vec![place];
    for earlier in (0..place).rev() {
        let group = &groups[earlier];
        let is_read = |next: &usize| *next == place || (group.boundary.is_empty() && within.contains(next));
        if within.len() < LOOKED_AT && group.feeds.iter().any(is_read) {
            within.push(earlier);
        }
    }
    within.iter().rev().map(|&place| &groups[place]).collect()
}

/// Returns the forward call of a backward op, which is unpaired too; the op itself if there is none.
fn forward_of(flow: &Flow<'_>, op: usize) -> usize {
    let name = flow.nodes[op].op.name.in_phase(Phase::Forward);
    let members =
        flow.pair.substitutions.iter().flat_map(|group| group.baseline.iter().chain(&group.candidate));
    let mut members = members.copied().filter(|&member| member < op);
    members.find(|&member| name.as_deref() == Some(flow.nodes[member].op.name.as_str())).unwrap_or(op)
}

/// Returns the call that keeps gradients from the side that lacks an op of the backward pass, if that side alone has it.
fn cut_off(flow: &Flow<'_>, group: &Substitution, op: usize) -> Option<usize> {
    let lacks = usize::from(!group.baseline.is_empty());
    cut(flow, lacks, op).filter(|_| flow.nodes[op].is_backward())
}

/// Returns the first call before `op` that keeps gradients from a side and that this side alone has.
fn cut(flow: &Flow<'_>, side: usize, op: usize) -> Option<usize> {
    let cuts = flow.pair.substitutions.iter().filter_map(|group| {
        let sides = [&group.baseline, &group.candidate];
        let is_cut = sides[side].iter().all(|&op| flow.nodes[op].base == "detach");
        sides[side].iter().copied().min().filter(|_| is_cut && sides[1 - side].is_empty())
    });
    cuts.min().filter(|cut| *cut < op)
}

/// Returns the call that keeps a gradient from one side, if the first candidate is about an op that passes one on to the
/// other side alone, and removes that candidate.
pub(super) fn cut_before(flow: &Flow<'_>, candidates: &mut Vec<Candidate>) -> Option<Candidate> {
    let shown = candidates.iter().min_by_key(|candidate| candidate.op)?;
    let (op, slot) = (shown.op, shown.slot?);
    let is_missing = flow.fact((op, slot)).difference == Difference::Missing;
    let lacks = usize::from(flow.pair.slot_at(op, slot).0.is_some());
    let cut = cut(flow, lacks, op).filter(|_| is_missing && flow.nodes[op].is_backward())?;
    let said = format!("and {} passes no gradient on there", flow.nodes[op].op.name.as_str());
    candidates.retain(|candidate| (candidate.op, candidate.slot) != (op, Some(slot)));
    Some(Candidate { said, ..Candidate::at(cut, None, Cause::Structure) })
}

/// Returns true if an op makes more than indices, lengths and masks.
fn makes_floats(node: &Node<'_>) -> bool {
    tensors(node, true).any(|record| record.dtype.known().is_some_and(|dtype| Precision::of(dtype).is_some()))
}

#[cfg(test)]
mod tests {
    use super::of_one_side;
    use crate::drawn::{Drawn, Part};
    use probe_pair::Substitution;

    #[test]
    fn of_two_runs_that_only_rearrange_the_function_of_one_side_is_told() {
        let (x, turned) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[30, 40]));
        let mut part = Part::default();
        part.op_of(0, "Tensor.flatten.0.forward", &x, &x);
        part.op_of(1, "Tensor.transpose.0.forward", &x, &turned);
        part.op_of(1, "Tensor.flatten.0.forward", &turned, &turned);
        let named = part.flow(|flow| {
            let at = |name: &str, candidate: bool| {
                let is_it = |op: &usize| {
                    flow.nodes[*op].op.name.as_str() == name
                        && (flow.pair.op(&flow.pair.ops[*op]).0.is_none() == candidate)
                };
                (0..flow.nodes.len()).find(is_it).unwrap()
            };
            let group = Substitution {
                baseline: vec![at("Tensor.flatten.0.forward", false)],
                candidate: vec![at("Tensor.transpose.0.forward", true), at("Tensor.flatten.0.forward", true)],
                ..flow.pair.substitutions[0].clone()
            };
            of_one_side(flow, &group).map(|op| flow.nodes[op].op.name.as_str().to_owned())
        });
        assert_eq!(named.as_deref(), Some("Tensor.transpose.0.forward"));
    }
}
