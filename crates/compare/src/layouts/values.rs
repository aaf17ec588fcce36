//! What two values show of each other beyond their metrics: whose shards differ, a factor, a multiple of a bias, chunks in another order.

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
    if odd.len() == shards.len() || worst < LEAST {
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

/// Returns the dimension in which one value is larger, and both sizes, if its first part is the other value.
pub(super) fn padding(pair: &PartPair, b: &Slot, c: &Slot) -> Option<(usize, usize, usize)> {
    let (b, c) = (b.value.tensor()?, c.value.tensor()?);
    if b.shape.len() != c.shape.len() || b.shape == c.shape {
        return None;
    }
    let x = load((b, &*pair.baseline.store), b.data.as_ref()?).ok()?;
    let y = load((c, &*pair.candidate.store), c.data.as_ref()?).ok()?;
    let (x, y) = (x.view(), y.view());
    let (small, large) = if x.len() < y.len() { (x, y) } else { (y, x) };
    let sizes = || small.shape().iter().zip(large.shape()).enumerate().filter(|(_, (a, b))| a != b);
    let (dimension, (&due, &held)) = sizes().next().filter(|(_, (due, held))| due < held)?;
    if sizes().count() > 1 || large.storage().is_empty() || small.storage().is_empty() {
        return None;
    }
    let part =
        TensorRef::strided(large.storage(), large.dtype(), small.shape(), large.strides(), large.offset())
            .ok()?;
    let error = measure::compare(small, part)?.rel_l2?;
    (error < SAME_PART).then_some((dimension, due, held))
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
