//! What two values show of each other beyond their metrics: whose shards differ, a factor, a multiple of a bias, chunks in another order.

use std::ops::Range;

use probe_dump::{Slot, TensorData, TensorRecord, TensorRef, TensorStore};
use probe_layout::{Cell, chunk_order, part_error};
use probe_measure as measure;
use probe_pair::PartPair;

use super::{ALONG, APART, LEAST, in_words};
use crate::collect::load;

/// Most elements of a value that is taken apart.
const MOST: usize = 1 << 22;

/// Least cosine of a difference and a multiple of the bias, repeated in every row: the rest is rounding, of bfloat16 as well.
const ONE_VECTOR: f64 = 0.95;

/// Relative error below which a value is the first part of another.
const SAME_PART: f64 = 0.05;

/// Deviation of a multiple from a whole number, up to which it is one.
const NEAR_WHOLE: f64 = 0.05;

/// Says whose shards differ, if those of other ranks agree.
pub(super) fn odd_shards(
    pair: &PartPair,
    (b, c): (&TensorRecord, &TensorRecord),
    shards: &[(u32, Cell)],
) -> Option<String> {
    let x = load((b, &*pair.baseline.store), b.data.as_ref()?).ok()?;
    let y = load((c, &*pair.candidate.store), c.data.as_ref()?).ok()?;
    let errors: Vec<(u32, f64)> =
        shards.iter().map(|(rank, cell)| (*rank, part_error(x.view(), y.view(), cell))).collect();
    let worst = errors.iter().map(|(_, error)| *error).fold(0.0, f64::max);
    let odd: Vec<u32> =
        errors.iter().filter(|(_, error)| *error > APART * worst).map(|(rank, _)| *rank).collect();
    // Where the worst is infinite, none is told from it.
    if odd.is_empty() || odd.len() == shards.len() || worst < LEAST {
        return None;
    }
    Some(match &*odd {
        [rank] => format!("only rank {rank}'s shard differs"),
        _ => format!("only the shards of {} differ", in_words(&odd)),
    })
}

/// Returns the factor between two values that are the same but for one; `None` if they are not.
pub(super) fn ratio(pair: &PartPair, b: &TensorRecord, c: &TensorRecord) -> Option<f64> {
    let norms = || Some(c.statistics.norm()? / b.statistics.norm().filter(|norm| *norm > 0.0)?);
    let (Some(b_key), Some(c_key)) = (&b.data, &c.data) else { return norms() };
    let x = load((b, &*pair.baseline.store), b_key).ok()?;
    let y = load((c, &*pair.candidate.store), c_key).ok()?;
    let metrics = measure::compare(x.view(), y.view())?;
    norms().filter(|_| metrics.cosine.is_some_and(|cosine| cosine > ALONG))
}

/// Returns the relative error of a value; `None` without data.
pub(super) fn distance(pair: &PartPair, b: &Slot, c: &Slot) -> Option<f64> {
    let (b, c) = (b.value.tensor()?, c.value.tensor()?);
    let x = load((b, &*pair.baseline.store), b.data.as_ref()?).ok()?;
    let y = load((c, &*pair.candidate.store), c.data.as_ref()?).ok()?;
    measure::compare(x.view(), y.view())?.rel_l2
}

/// Fewest rows that have a vector in common which is no accident.
const FEWEST_ROWS: usize = 4;

/// Returns true for whole numbers of which most elements are equal; false without data.
pub(super) fn are_mostly_equal(pair: &PartPair, b: &Slot, c: &Slot) -> bool {
    let both = || {
        let (b, c) = (b.value.tensor()?, c.value.tensor()?);
        let x = load((b, &*pair.baseline.store), b.data.as_ref()?).ok()?;
        Some((x, load((c, &*pair.candidate.store), c.data.as_ref()?).ok()?))
    };
    both().is_some_and(|(x, y)| probe_layout::are_mostly_equal(x.view(), y.view()))
}

/// A dimension that is larger than it should be.
pub(super) struct Padding {
    pub(super) dimension: usize,
    pub(super) due: u64,
    pub(super) held: u64,
}

/// Returns the dimension in which one value is larger, if its first part is the other value; of values that ranks hold parts of, by their sizes alone:
/// the last dimension is larger, and the others divide those of the whole.
pub(super) fn padding(pair: &PartPair, b: &Slot, c: &Slot) -> Option<Padding> {
    let (b, c) = (b.value.tensor()?, c.value.tensor()?);
    if b.shape.len() != c.shape.len() || b.shape == c.shape {
        return None;
    }
    let larger = |a: &TensorRecord, b: &TensorRecord| {
        let mut sizes = a.shape.iter().zip(&*b.shape).enumerate().filter(|(_, (due, held))| due != held);
        let (dimension, (&due, &held)) = sizes.next_back().filter(|(_, (due, held))| due < held)?;
        Some((Padding { dimension, due, held }, sizes.all(|(_, (whole, part))| is_part(*part, *whole))))
    };
    let (padding, of_part) = larger(b, c).or_else(|| larger(c, b))?;
    let sizes = b.shape.iter().zip(&*c.shape).filter(|(b, c)| b != c).count();
    if sizes > 1 {
        return Some(padding).filter(|of| of_part && of.dimension + 1 == b.shape.len());
    }
    let x = load((b, &*pair.baseline.store), b.data.as_ref()?).ok()?;
    let y = load((c, &*pair.candidate.store), c.data.as_ref()?).ok()?;
    let (x, y) = (x.view(), y.view());
    let (small, large) = if x.len() < y.len() { (x, y) } else { (y, x) };
    if large.storage().is_empty() || small.storage().is_empty() {
        return None;
    }
    let part =
        TensorRef::strided(large.storage(), large.dtype(), small.shape(), large.strides(), large.offset())
            .ok()?;
    let error = measure::compare(small, part)?.rel_l2?;
    (error < SAME_PART).then_some(padding)
}

/// Returns true for the size of an equal part.
const fn is_part(part: u64, whole: u64) -> bool {
    part > 0 && part < whole && whole.is_multiple_of(part)
}

/// Returns a tensor of real numbers that is small enough.
pub(super) fn tensor(record: &TensorRecord, store: &dyn TensorStore) -> Option<TensorData> {
    let data = load((record, store), record.data.as_ref()?).ok()?;
    (data.view().len() <= MOST && !data.dtype().is_complex()).then_some(data)
}

/// Returns the tensors of two slots, if they are of real numbers, of one shape and small enough.
fn tensors(pair: &PartPair, b: &Slot, c: &Slot) -> Option<(TensorData, TensorData)> {
    let x = tensor(b.value.tensor()?, &*pair.baseline.store)?;
    let y = tensor(c.value.tensor()?, &*pair.candidate.store)?;
    (x.view().shape() == y.view().shape()).then_some((x, y))
}

/// As [`ratio`], of what is left of results without the bias that was added to them.
pub(super) fn ratio_without(pair: &PartPair, (b, c): (&Slot, &Slot), bias: &TensorRecord) -> Option<f64> {
    let (x, y, bias) = with_bias(pair, (b, c), bias)?;
    let (mut both, mut own, mut other) = (0.0, 0.0, 0.0);
    for ((x, y), bias) in x.iter().zip(&y).zip(bias.iter().cycle()) {
        let (x, y) = (x - bias, y - bias);
        both += x * y;
        own += x * x;
        other += y * y;
    }
    (own > 0.0 && both / (own * other).sqrt() > ALONG).then(|| (other / own).sqrt())
}

/// Returns the elements of two results and of the bias in their rows.
fn with_bias(
    pair: &PartPair,
    (b, c): (&Slot, &Slot),
    bias: &TensorRecord,
) -> Option<(Vec<f64>, Vec<f64>, Vec<f64>)> {
    let (x, y) = tensors(pair, b, c)?;
    let bias = load((bias, &*pair.baseline.store), bias.data.as_ref()?).ok()?;
    let numbers = |of: &TensorData| measure::numbers(of.dtype(), &of.view().to_bytes());
    let fits = x.view().shape().last() == bias.view().shape().last() && !bias.view().is_empty();
    fits.then(|| (numbers(&x), numbers(&y), numbers(&bias)))
}

/// Returns true if all rows of two results are off by one vector, as by a bias that nobody recorded.
pub(super) fn are_off_by_one_vector(pair: &PartPair, (b, c): (&Slot, &Slot)) -> bool {
    let vector = || {
        let (x, y) = tensors(pair, b, c)?;
        let width = x.view().shape().last().copied().filter(|width| *width > 1)?;
        let numbers = |of: &TensorData| measure::numbers(of.dtype(), &of.view().to_bytes());
        let off: Vec<f64> = numbers(&y).iter().zip(&numbers(&x)).map(|(y, x)| y - x).collect();
        let rows = off.len() / width;
        let mut sums = vec![0.0; width];
        for row in off.chunks(width) {
            sums.iter_mut().zip(row).for_each(|(sum, off)| *sum += off);
        }
        let common = sums.iter().map(|sum| sum * sum).sum::<f64>() / rows as f64;
        let all: f64 = off.iter().map(|off| off * off).sum();
        (rows >= FEWEST_ROWS && all > 0.0).then(|| (common / all).sqrt())
    };
    vector().is_some_and(|share| share > ONE_VECTOR)
}

/// Returns how many times the bias is in the candidate's result, if the result is the baseline's but for that.
pub(super) fn times_the_bias(pair: &PartPair, (b, c): (&Slot, &Slot), bias: &TensorRecord) -> Option<f64> {
    let (x, y, bias) = with_bias(pair, (b, c), bias)?;
    let (mut along, mut difference, mut length) = (0.0, 0.0, 0.0);
    for ((x, y), bias) in x.iter().zip(&y).zip(bias.iter().cycle()) {
        along += (y - x) * bias;
        difference += (y - x) * (y - x);
        length += bias * bias;
    }
    let (cosine, more) = (along / (difference * length).sqrt(), along / length);
    let whole = (more - more.round()).abs() < NEAR_WHOLE * more.abs();
    (cosine.abs() > ONE_VECTOR && whole && more.round() != 0.0).then_some(more + 1.0)
}

/// Returns the dimension and the order in which the chunks of a value lie, of as many chunks as ranks make.
pub(super) fn chunks(pair: &PartPair, b: &Slot, c: &Slot, ranks: usize) -> Option<(usize, Vec<usize>)> {
    let (x, y) = tensors(pair, b, c)?;
    let parts = (2..=ranks).filter(|part| ranks.is_multiple_of(*part)).flat_map(|part| [2 * part, part]);
    let dimensions = 0..x.view().shape().len();
    parts
        .flat_map(|parts| dimensions.clone().map(move |dimension| (dimension, parts)))
        .find_map(|(dimension, parts)| Some((dimension, chunk_order(x.view(), y.view(), dimension, parts)?)))
}

/// Returns the dimension of a value that lies in the order of `ranges` of the other run's, on either side; `None` if the values agree as they are.
pub(super) fn lies_in(pair: &PartPair, b: &Slot, c: &Slot, ranges: &[Range<usize>]) -> Option<usize> {
    let (x, y) = tensors(pair, b, c)?;
    let order: Vec<usize> = ranges.iter().cloned().flatten().collect();
    let shape = x.view().shape().to_vec();
    let numbers = |of: &TensorData| measure::numbers(of.dtype(), &of.view().to_bytes());
    if measure::compare(x.view(), y.view())?.rel_l2? < SAME_PART {
        return None;
    }
    let (x, y) = (numbers(&x), numbers(&y));
    // The distance of the two, one of them in this order.
    let apart = |of: &[f64], other: &[f64], dimension: usize| {
        let (count, inner) = (shape[dimension], shape[dimension + 1..].iter().product::<usize>());
        let (mut off, mut whole) = (0.0, 0.0);
        for (place, value) in other.iter().enumerate() {
            let (row, within) = (place / inner, place % inner);
            let due = of[(row / count * count + order[row % count]) * inner + within];
            off += (due - value) * (due - value);
            whole += due * due;
        }
        f64::sqrt(off / whole)
    };
    let is_other =
        |dimension: &usize| apart(&x, &y, *dimension) < SAME_PART || apart(&y, &x, *dimension) < SAME_PART;
    let fits =
        |dimension: &usize| shape[*dimension] == order.len() && order.iter().all(|at| *at < order.len());
    (0..shape.len()).filter(fits).find(is_other)
}
