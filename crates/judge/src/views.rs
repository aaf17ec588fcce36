//! Values that are recognised by their extremes: in another step, or in a view that nobody recorded.

use super::flow::{Flow, Place};
use probe_dump::TensorRecord;

/// Length of a value, and two numbers that tell it from others on both sides, as bits: whatever view of it is recorded.
pub(super) type Extremes = (u64, [[u64; 2]; 2]);

/// Returns what identifies a value in another step or view: its extremes, or where these agree mean and norm. `None` if all of that
/// agrees, which then identifies nothing.
pub(super) fn extremes(flow: &Flow<'_>, place: Place) -> Option<Extremes> {
    let (b, c) = flow.pair.slot_at(place.0, place.1);
    let (b, c) = (b?.value.tensor()?, c?.value.tensor()?);
    let bits = |record: &TensorRecord| {
        let statistics = &record.statistics;
        Some([statistics.max()?, statistics.min()?].map(|number| number.as_f64().to_bits()))
    };
    let sums = |record: &TensorRecord| {
        let statistics = &record.statistics;
        Some([statistics.mean()?, statistics.norm()?].map(f64::to_bits))
    };
    let extremes = [bits(b)?, bits(c)?];
    let sides = if extremes[0] == extremes[1] { [sums(b)?, sums(c)?] } else { extremes };
    (sides[0] != sides[1]).then_some((b.len(), sides))
}
