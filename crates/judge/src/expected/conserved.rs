//! What an op conserves, on each side by itself: the norm of what it copies, the sum of probabilities. No noise is in that, so the
//! check is as sharp under TF32 and in bfloat16 as between equal runs.

use super::super::flow::Flow;
use super::super::ops::Kind;
use super::super::precision::Precision;
use super::Place;
use super::chance::rounded_by;
use probe_dump::{Slot, SlotSide};

/// Error of sums in binary64 that are added.
const ADDED: f64 = 1e-9;

/// The same for norms that were recorded in shorter numbers: this many times the rounding of one.
const SHORT: f64 = 40.0;

/// Number of elements from which on the error of sums in shorter numbers grows, with the root of their number.
const LONG: f64 = 32_768.0;

/// Sums of a device, of which the error is known, are off by that on either side of an equation.
const SUMS: f64 = 2.0;

/// Multiple of rounding, or of what the baseline is off by, from which on something was not conserved.
const BEYOND: f64 = 8.0;

/// A value that does not have what the op that made it conserves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changed {
    /// Least relative error.
    pub(super) error: f64,
    /// Error that the recorded statistics may show where there is none.
    pub(super) least: f64,
    /// The property that it lacks.
    what: &'static str,
}

impl Changed {
    /// Returns what the candidate is off by; `None` if it may be rounding, or if the baseline does not conserve it either.
    fn beside((before, after): (f64, f64), least: f64, what: &'static str) -> Option<Self> {
        (before <= least && after > BEYOND * least && after.is_finite()).then_some(Self {
            error: after,
            least,
            what,
        })
    }
}

/// Says what the candidate's value lacks that its op conserves.
pub(in super::super) fn broken(flow: &Flow<'_>, place: Place) -> Option<String> {
    changed(flow, place).map(|Changed { error, what, .. }| format!("{what}: off by {error:.1e}"))
}

/// Returns what the candidate's value lacks that the op that made it conserves.
pub(super) fn changed(flow: &Flow<'_>, place: Place) -> Option<Changed> {
    let (node, fact) = (&flow.nodes[place.0], flow.fact(place));
    if !fact.is_measured || fact.swamped || node.is_backward() && node.traits.kind != Kind::Copy {
        return None;
    }
    match (flow.side(place), node.traits.kind) {
        (SlotSide::Input, _) => arrived(flow, place),
        (SlotSide::Output, Kind::Copy) => copied(flow, place),
        (SlotSide::Output, _) if matches!(node.base, "softmax" | "Softmax") => {
            probabilities(flow, place, flow.shape(place))
        }
        _ => None,
    }
}

/// What an unrecorded softmax made: of the baseline the elements lie between 0 and 1, differ, and add up to 1 in each row.
fn arrived(flow: &Flow<'_>, place: Place) -> Option<Changed> {
    let (least, largest) = flow.extremes(place)?;
    let shape = flow.shape(place);
    let row = *shape.last().filter(|_| shape.len() > 1)?;
    let may_be = flow.fact(place).is_float && least >= 0.0 && largest <= 1.0 && least < largest;
    if may_be { probabilities(flow, place, &[row]) } else { None }
}

/// A result that holds all that was read has its norm. Masks and indices choose what is copied, and may do so otherwise under noise.
fn copied(flow: &Flow<'_>, place: Place) -> Option<Changed> {
    let (node, made) = (&flow.nodes[place.0], flow.fact(place));
    let read = || node.given().map(|slot| flow.fact((place.0, slot))).filter(|fact| fact.is_float);
    let chooses =
        || node.given().map(|slot| flow.fact((place.0, slot))).any(|fact| fact.is_tensor && !fact.is_float);
    let is_whole = !chooses()
        && read().all(|fact| fact.dtype == made.dtype && fact.is_measured && !fact.swamped)
        && (read().map(|fact| fact.len).sum::<f64>() - made.len).abs() < 0.5;
    if !is_whole {
        return None;
    }
    let square = |(b, c): (f64, f64)| (b * b, c * c);
    let all =
        read().map(|fact| square(fact.norms)).fold((0.0, 0.0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
    let off = |made: f64, read: f64| ((made / read).sqrt() - 1.0).abs();
    let written = read().chain([made]).map(|fact| SHORT * written(fact.norms, fact.len));
    let summed = node.given().map(|slot| (place.0, slot)).chain([place]).map(|place| sum_error(flow, place));
    let least = ADDED.max(written.fold(0.0, f64::max)).max(SUMS * summed.fold(0.0, f64::max));
    let (b, c) = square(made.norms);
    Changed::beside((off(b, all.0), off(c, all.1)), least, "it has another norm than all that it copies")
}

/// Returns the error of sums over this many elements on both sides, by the format they were written in.
fn written(sums: (f64, f64), elements: f64) -> f64 {
    rounded_by(sums.0).max(rounded_by(sums.1)) * (elements / LONG).sqrt().max(1.0)
}

/// Returns the largest error of the recorded sums of a value, relative to its norm.
fn sum_error(flow: &Flow<'_>, place: Place) -> f64 {
    let (b, c) = flow.pair.slot_at(place.0, place.1);
    let errors = [b, c].into_iter().flatten().filter_map(|slot| slot.value.tensor()?.sum_error);
    errors.fold(0.0, f64::max)
}

/// The probabilities of a row add up to 1: rows of one of these sizes.
fn probabilities(flow: &Flow<'_>, place: Place, sizes: &[u64]) -> Option<Changed> {
    let precision = Precision::of(flow.fact(place).dtype?).filter(|_| sum_error(flow, place) <= 0.0)?;
    let (b, c) = flow.pair.slot_at(place.0, place.1);
    let mean = |slot: Option<&Slot>| slot?.value.tensor()?.statistics.mean();
    let (b, c) = (mean(b)?, mean(c)?);
    // The dimension is the one whose size the baseline's mean tells.
    let off = |mean: f64, size: u64| (mean * size as f64 - 1.0).abs();
    let size = sizes.iter().copied().min_by(|one, other| off(b, *one).total_cmp(&off(b, *other)))?;
    let least = precision.least.max(written((b, c), flow.fact(place).len));
    Changed::beside((off(b, size), off(c, size)), least, "its rows do not add up to 1")
}
