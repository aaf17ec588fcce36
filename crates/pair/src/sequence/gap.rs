//! Aligns the ops that remain between anchors: the pairs with the largest total likeness, in order on both
//! sides.

use std::collections::HashMap;
use std::ops::Range;

use super::facts::Facts;
use super::increasing;

/// Largest product of the lengths of two gaps that is aligned cell by cell.
const CELLS: usize = 1 << 16;

/// Value of a pair besides the likeness of its ops: several good pairs are better than a perfect one.
const PAIR: f64 = 1.0;

/// Value of equal names, among ops of one kind.
const SAME_NAME: f64 = 0.5;

/// Least likeness of ops of one kind with different names: unrelated modules of the same shapes do not reach
/// it.
pub(super) const RENAMED: f64 = 0.5;

/// Returns pairs of positions inside the two gaps.
pub(super) fn pairs(
    b: &[Facts<'_>],
    in_b: Range<usize>,
    c: &[Facts<'_>],
    in_c: Range<usize>,
) -> Vec<(usize, usize)> {
    if in_b.len().saturating_mul(in_c.len()) > CELLS {
        return by_occurrence(b, in_b, c, in_c);
    }
    let (height, width) = (in_b.len(), in_c.len());
    // Best sum of the following pairs, for each pair of beginnings.
    let mut best = vec![0.0_f64; (height + 1) * (width + 1)];
    let cell = |row: usize, column: usize| row * (width + 1) + column;
    let mut worth = vec![0.0_f64; height * width];
    let even = even_forms(b, &in_b, c, &in_c);
    for row in (0..height).rev() {
        for column in (0..width).rev() {
            let value = value(&b[in_b.start + row], &c[in_c.start + column], &even);
            worth[row * width + column] = value;
            let skip = best[cell(row + 1, column)].max(best[cell(row, column + 1)]);
            let take = if value > 0.0 { best[cell(row + 1, column + 1)] + value } else { 0.0 };
            best[cell(row, column)] = skip.max(take);
        }
    }
    let (mut row, mut column, mut found) = (0, 0, Vec::new());
    while row < height && column < width {
        let value = worth[row * width + column];
        let here = best[cell(row, column)];
        // The sums have the same terms in the same order, so equality is exact; among equal choices the
        // earliest pair is taken.
        if value > 0.0 && (best[cell(row + 1, column + 1)] + value).to_bits() == here.to_bits() {
            found.push((in_b.start + row, in_c.start + column));
            (row, column) = (row + 1, column + 1);
        } else if best[cell(row + 1, column)].to_bits() == here.to_bits() {
            row += 1;
        } else {
            column += 1;
        }
    }
    found
}

/// Returns, for each stem, if it occurs equally often in both gaps.
fn even_forms(
    b: &[Facts<'_>],
    in_b: &Range<usize>,
    c: &[Facts<'_>],
    in_c: &Range<usize>,
) -> HashMap<u32, bool> {
    let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
    b[in_b.clone()].iter().for_each(|facts| counts.entry(facts.name.stem).or_default().0 += 1);
    c[in_c.clone()].iter().for_each(|facts| counts.entry(facts.name.stem).or_default().1 += 1);
    counts.into_iter().map(|(stem, (b, c))| (stem, b == c)).collect()
}

/// Returns the value of a pair; 0 for ops that do not belong together.
fn value(b: &Facts<'_>, c: &Facts<'_>, even: &HashMap<u32, bool>) -> f64 {
    if b.name.kin != c.name.kin {
        return 0.0;
    }
    let same = b.name.stem == c.name.stem;
    let likeness = b.likeness(c);
    if !same && likeness < RENAMED {
        return 0.0;
    }
    // Ops without a tensor of the same shape are different, unless nothing else can match them.
    if likeness <= 0.0 && !(same && even.get(&b.name.stem).copied().unwrap_or(false)) {
        return 0.0;
    }
    PAIR + likeness + if same { SAME_NAME } else { 0.0 }
}

/// Pairs the first of a kind and shape with the first, the second with the second, as far as that keeps the
/// order.
fn by_occurrence(
    b: &[Facts<'_>],
    in_b: Range<usize>,
    c: &[Facts<'_>],
    in_c: Range<usize>,
) -> Vec<(usize, usize)> {
    let mut queues: HashMap<u64, std::collections::VecDeque<usize>> = HashMap::new();
    for at in in_c {
        queues.entry(c[at].form).or_default().push_back(at);
    }
    let pairs: Vec<(usize, usize)> =
        in_b.filter_map(|at| Some((at, queues.get_mut(&b[at].form)?.pop_front()?))).collect();
    increasing(&pairs).into_iter().map(|at| pairs[at]).collect()
}
