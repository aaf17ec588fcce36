//! What two values show of each other beyond their metrics: whose shards differ, a factor, a multiple of a bias, chunks in another order.

use probe_dump::{Slot, TensorData, TensorRecord};
use probe_layout::{Cell, chunk_order, part_error};
use probe_measure as measure;
use probe_pair::PartPair;

use super::{ALONG, APART, LEAST, in_words};
use crate::collect::load;

/// Most elements of a value that is taken apart.
const MOST: usize = 1 << 22;

/// Least cosine of a difference and a multiple of the bias, repeated in every row: the rest is rounding, of bfloat16 as well.
const ONE_VECTOR: f64 = 0.95;

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
    if x.view().storage().is_empty() || y.view().storage().is_empty() {
        return None;
    }
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

/// Returns the tensors of two slots, if both are in memory and small enough.
fn tensors(pair: &PartPair, b: &Slot, c: &Slot) -> Option<(TensorData, TensorData)> {
    let (b, c) = (b.value.tensor()?, c.value.tensor()?);
    let x = load((b, &*pair.baseline.store), b.data.as_ref()?).ok()?;
    let y = load((c, &*pair.candidate.store), c.data.as_ref()?).ok()?;
    let usable = x.view().shape() == y.view().shape() && x.view().len() <= MOST;
    (usable && !x.view().storage().is_empty() && !y.view().storage().is_empty()).then_some((x, y))
}

/// Returns how many times the bias is in the candidate's result, if the result is the baseline's but for that.
pub(super) fn times_the_bias(pair: &PartPair, (b, c): (&Slot, &Slot), bias: &TensorRecord) -> Option<f64> {
    let (x, y) = tensors(pair, b, c)?;
    let bias = load((bias, &*pair.baseline.store), bias.data.as_ref()?).ok()?;
    let numbers = |of: &TensorData| measure::numbers(of.dtype(), &of.view().to_bytes());
    let (x, y, bias) = (numbers(&x), numbers(&y), numbers(&bias));
    if bias.is_empty() || !x.len().is_multiple_of(bias.len()) {
        return None;
    }
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
