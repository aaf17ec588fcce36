//! Compares a dump of kernels with one of the functions that launched them: pairs ops that both name, and
//! drops the rest.
//!
//! Kernels and functions differ in names, argument order and number: a function may launch several kernels,
//! and a compiler fuses some. Ops are recognised by their kind, their position among ops of that kind, and the
//! shapes of their tensors. An op is compared by its results, and by inputs that cannot be confused with
//! another or with their own transpose.

use std::collections::{BTreeMap, BTreeSet};

use super::mapping::Mapping;
use super::{Alignment, OpPair, Paired, SlotPairs, align};
use probe_dump::{Op, OpKind, OpName, Phase, Rank, Slot};

/// Prefixes of kernel names: those in dumps of the runtime, and those of calls to its interface.
const PREFIXES: [&str; 2] = ["Kernel.", "Aclnn."];

/// Synonyms of kinds. Sources: the names that torch's dispatcher and CANN's operator list give to the same
/// function.
const KINDS: [(&str, &str); 30] = [
    ("linear", "matmul"),
    ("mm", "matmul"),
    ("bmm", "matmul"),
    ("addmm", "matmul"),
    ("baddbmm", "matmul"),
    ("batchmatmul", "matmul"),
    ("gemm", "matmul"),
    ("convolution", "conv"),
    ("conv1d", "conv"),
    ("conv2d", "conv"),
    ("conv3d", "conv"),
    ("nativelayernorm", "layernorm"),
    ("nativebatchnorm", "batchnorm"),
    ("nativegroupnorm", "groupnorm"),
    ("truediv", "div"),
    ("truedivide", "div"),
    ("realdiv", "div"),
    ("divs", "div"),
    ("muls", "mul"),
    ("adds", "add"),
    ("embedding", "gather"),
    ("reducemean", "mean"),
    ("reducesum", "sum"),
    ("reducemax", "amax"),
    ("reducemin", "amin"),
    ("flashattentionscore", "attention"),
    ("scaleddotproductattention", "attention"),
    ("negative", "neg"),
    ("softmaxcrossentropywithlogits", "crossentropy"),
    ("swish", "silu"),
];

/// Returns true if a part holds only kernels.
pub fn holds_kernels(rank: &Rank) -> bool {
    !rank.ops.is_empty() && rank.ops.iter().all(|op| is_kernel(&op.name))
}

fn is_kernel(name: &OpName) -> bool {
    PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
}

/// Pairs kernels of one side with functions of the other. Unpaired ops are removed from both, and a note on
/// the baseline's side says so.
pub fn align_kernels(baseline: &mut Rank, candidate: &mut Rank) -> Alignment {
    let before = [baseline.ops.len(), candidate.ops.len()];
    let kinds = |rank: &Rank| rank.ops.iter().filter_map(kind).collect::<BTreeSet<_>>();
    let (b_kinds, c_kinds) = (kinds(baseline), kinds(candidate));
    let shared: BTreeSet<&String> = b_kinds.intersection(&c_kinds).collect();
    for rank in [&mut *baseline, &mut *candidate] {
        rank.ops.retain(|op| kind(op).is_some_and(|kind| shared.contains(&kind)));
    }
    let Alignment { ops, notes } = align(&by_kind(baseline), &by_kind(candidate), &Mapping::default());
    let pairs = ops.into_iter().filter_map(|pair| {
        let Paired::Both(b, c) = pair.ops else { return None };
        let slots = comparable(&baseline.ops[b], &candidate.ops[c]);
        let has_result = slots
            .iter()
            .filter_map(Paired::baseline)
            .any(|b_slot| baseline.ops[b].slots.get(b_slot).is_some_and(|slot| slot.side.is_result()));
        has_result.then_some(OpPair { ops: pair.ops, slots })
    });
    let pairs: Vec<OpPair> = pairs.collect();
    baseline.notes.push(format!(
        "one side recorded kernels, the other functions: {} pairs by kind, order and shape, from {} and {} ops; the rest is left out",
        pairs.len(),
        before[0],
        before[1]
    ));
    Alignment { ops: pairs, notes }
}

/// Returns the same ops, named by kind and numbered in order, so that they pair like those of two similar
/// dumps.
fn by_kind(rank: &Rank) -> Rank {
    let mut calls: BTreeMap<String, u32> = BTreeMap::new();
    let ops = rank.ops.iter().map(|op| {
        let kind = kind(op).unwrap_or_default();
        let call = calls.entry(kind.clone()).or_default();
        let name = OpName::parse(&format!("Kind.{kind}.{call}.forward"));
        *call += 1;
        let slots = op.slots.iter().filter(|slot| slot.value.tensor().is_some()).cloned().collect();
        Op { slots, ..Op::new(name) }
    });
    Rank {
        ops: ops.collect(),
        key: rank.key.clone(),
        framework: rank.framework,
        task: rank.task,
        level: rank.level.clone(),
        stacks: Vec::new(),
        store: rank.store.clone(),
        faults: Vec::new(),
        notes: Vec::new(),
        cut: rank.cut,
    }
}

/// Pairs slots that hold the same tensor on both sides if the ops agree: results with the same path and shape,
/// and inputs whose shape is unique among the inputs of each side and differs from that of its transpose.
fn comparable(b: &Op, c: &Op) -> SlotPairs {
    let mut found = Vec::new();
    for (at_b, slot) in b.slots.iter().enumerate() {
        let Some(shape) = shape(slot) else { continue };
        let same = |other: &Slot| {
            other.side.is_result() == slot.side.is_result() && self::shape(other).as_ref() == Some(&shape)
        };
        let mut partners = c.slots.iter().enumerate().filter(|(_, other)| same(other));
        if slot.side.is_result() {
            let partner = partners.find(|(_, other)| other.path == slot.path);
            found.extend(partner.map(|(at_c, _)| Paired::Both(at_b, at_c)));
            continue;
        }
        let square = matches!(*shape, [.., rows, columns] if rows == columns);
        let alone = b
            .slots
            .iter()
            .filter(|other| !other.side.is_result() && self::shape(other).as_ref() == Some(&shape))
            .count()
            == 1;
        if let (Some((at_c, _)), None) = (partners.next(), partners.next())
            && alone
            && !square
        {
            found.push(Paired::Both(at_b, at_c));
        }
    }
    found.into_iter().collect()
}

fn shape(slot: &Slot) -> Option<Vec<u64>> {
    slot.value.tensor().map(probe_dump::TensorRecord::squeezed_shape)
}

/// Returns the kind of an op in lower case, without version, vendor and in-place marks: `GeluV2`, `aclnnGelu`,
/// `gelu_` and `Aten.gelu` are the same. `None` for modules and anything that is not a call.
fn kind(op: &Op) -> Option<String> {
    if op.name.kind() != OpKind::Api || op.name.phase() == Phase::None {
        return None;
    }
    let stem = op.name.stem();
    let mut parts = stem.split('.');
    let (first, second) = (parts.next()?, parts.next()?);
    // The overload follows in dispatcher names.
    let api = if first == "Aten" || is_kernel(&op.name) { second } else { op.name.api() };
    let mut word: String = api.chars().filter(|&c| c != '_').flat_map(char::to_lowercase).collect();
    if let Some(rest) = word.strip_prefix("aclnn").or_else(|| word.strip_prefix("inplace")) {
        word = rest.to_owned();
    }
    let version = word.trim_end_matches(|c: char| c.is_ascii_digit());
    if let Some(plain) = version.strip_suffix('v').filter(|_| version.len() < word.len()) {
        word = plain.to_owned();
    }
    let (mut base, mut backward) = (word.as_str(), op.name.phase() == Phase::Backward);
    for mark in ["backward", "grad"] {
        if let Some(plain) = base.strip_suffix(mark).filter(|plain| !plain.is_empty()) {
            (base, backward) = (plain, true);
        }
    }
    let known = KINDS.iter().find(|(other, _)| *other == base).map_or(base, |(_, kind)| kind);
    Some(if backward { format!("{known}_backward") } else { known.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_and_functions_of_one_kind_have_one_word() {
        let kind = |name: &str| kind(&Op::new(OpName::parse(name))).unwrap_or_default();
        for (names, word) in [
            (
                &[
                    "Kernel.MatMulV2.0.forward",
                    "Functional.linear.3.forward",
                    "Aten.addmm.default.1.forward",
                    "Kernel.BatchMatMulV2.1.forward",
                ][..],
                "matmul",
            ),
            (&["Kernel.GeluV2.0.forward", "Aclnn.Gelu.2.forward", "Functional.gelu.1.forward"], "gelu"),
            (
                &[
                    "Kernel.GeluGrad.0.forward",
                    "Functional.gelu.1.backward",
                    "Aten.gelu_backward.default.0.forward",
                ],
                "gelu_backward",
            ),
            (&["Tensor.__add__.0.forward", "Kernel.Add.3.forward", "Aten.add_.Tensor.0.forward"], "add"),
            (&["Kernel.Conv2D.0.forward", "Functional.conv2d.0.forward"], "conv"),
            (&["Module.net.Linear.forward.0", "x.0.debug"], ""),
        ] {
            for name in names {
                assert_eq!(kind(name), word, "{name}");
            }
        }
    }
}
