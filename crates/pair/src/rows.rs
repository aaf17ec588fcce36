//! Different batch sizes: a batch on one side, and some of its rows, or micro-batches of it, on the other.

use std::collections::BTreeMap;

use probe_dump::{Op, Phase, Rank, TensorRecord};

/// Keeps what can be compared row by row: the forward pass, because gradients belong to a different loss; and,
/// if one side calls everything several times as often because it splits the batch into micro-batches, the
/// first of these. Notes on the baseline's side say so.
pub fn keep_first_batch(baseline: &mut Rank, candidate: &mut Rank) {
    let is_forward = |op: &Op| {
        let steps = [Some(op.name.as_str()), op.parent.as_deref()];
        matches!(op.name.phase(), Phase::Forward | Phase::None)
            && !steps.into_iter().flatten().any(|name| name.starts_with("Optimizer."))
    };
    let before = baseline.ops.len() + candidate.ops.len();
    for side in [&mut *baseline, &mut *candidate] {
        side.ops.retain(is_forward);
    }
    if baseline.ops.len() + candidate.ops.len() < before {
        baseline.notes.push(
            "batch sizes differ: only the forward pass is compared, gradients are those of a different loss"
                .into(),
        );
    }
    let times = times_as_often(baseline, candidate);
    let (side, word, times) = match times {
        Some((1, times)) if times > 1 => (&mut *candidate, "candidate", times),
        Some((times, 1)) if times > 1 => (&mut *baseline, "baseline", times),
        _ => return,
    };
    let calls = calls_by_stem(side);
    let before = side.ops.len();
    side.ops.retain(|op| {
        let calls = calls.get(op.name.stem()).copied().unwrap_or(0);
        calls % times != 0 || op.name.call().unwrap_or(0) < calls / times
    });
    let left = before - side.ops.len();
    baseline.notes.push(format!(
        "the {word} takes {times} micro-batches: {left} ops of all but the first are not compared"
    ));
}

/// Counts the calls of each function and module.
fn calls_by_stem(side: &Rank) -> BTreeMap<Box<str>, u32> {
    let mut calls = BTreeMap::new();
    for op in &side.ops {
        *calls.entry(op.name.stem().into()).or_default() += 1;
    }
    calls
}

/// Returns how often each side calls what both call, if one calls most of it `n` times as often as the other.
fn times_as_often(baseline: &Rank, candidate: &Rank) -> Option<(u32, u32)> {
    let (b, c) = (calls_by_stem(baseline), calls_by_stem(candidate));
    let shared: Vec<(u32, u32)> = b.iter().filter_map(|(stem, &b)| Some((b, *c.get(stem)?))).collect();
    let mut ratios: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for (b, c) in &shared {
        let ratio = if b % c == 0 {
            (b / c, 1)
        } else if c % b == 0 {
            (1, c / b)
        } else {
            continue;
        };
        *ratios.entry(ratio).or_default() += 1;
    }
    let (ratio, found) = ratios.into_iter().max_by_key(|(_, found)| *found)?;
    (2 * found > shared.len()).then_some(ratio)
}

/// Returns the dimension in which two shapes differ, and the smaller of its sizes, if they differ in only one.
pub fn shared_rows(b: &TensorRecord, c: &TensorRecord) -> Option<(usize, u64)> {
    if b.shape.len() != c.shape.len() || b.is_empty() || c.is_empty() {
        return None;
    }
    let mut apart = (0..b.shape.len()).filter(|&at| b.shape[at] != c.shape[at]);
    let dimension = apart.next()?;
    apart.next().is_none().then(|| (dimension, b.shape[dimension].min(c.shape[dimension])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_dump::{DType, RecordedDType};

    #[test]
    fn rows_are_shared_where_one_dimension_alone_differs() {
        let of = |shape: &[u64]| TensorRecord::new(RecordedDType::Known(DType::F32), shape.into());
        let shared = |b: &[u64], c: &[u64]| shared_rows(&of(b), &of(c));
        assert_eq!(shared(&[8, 3], &[2, 3]), Some((0, 2)));
        assert_eq!(shared(&[3, 2, 5], &[3, 8, 5]), Some((1, 2)));
        for (b, c) in
            [(&[8, 3][..], &[8, 3][..]), (&[8, 3], &[2, 4]), (&[8], &[8, 1]), (&[], &[]), (&[8], &[0])]
        {
            assert_eq!(shared(b, c), None, "{b:?} {c:?}");
        }
    }
}
