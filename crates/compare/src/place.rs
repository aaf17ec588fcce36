//! Locates the error of a finding inside its tensor. Only done for findings, because it needs a second read of the
//! data.

use super::collect::load;
use probe_judge::{ErrorPlace, Finding};
use probe_measure as measure;
use probe_pair::PartPair;

/// Maximum number of findings per part that are located; for later findings the place is hardly informative.
const MAX_FINDINGS: usize = 10;

/// Maximum number of elements of a tensor that is read again.
const MAX_ELEMENTS: u64 = 1 << 26;

/// Completes the places of `findings`, which belong to `pair`.
pub(super) fn complete(pair: &PartPair, findings: &mut [Finding]) {
    for finding in findings.iter_mut().take(MAX_FINDINGS) {
        let (order, slot) = (finding.order, finding.slot.as_str());
        if let Some(place) = &mut finding.place {
            place.region = region(pair, order, slot, place);
        }
    }
}

/// Returns the region of the error; `None` if it is spread over the tensor, or if the data cannot be read again.
fn region(
    pair: &PartPair,
    order: usize,
    slot: &str,
    place: &ErrorPlace,
) -> Option<Vec<std::ops::Range<u64>>> {
    if place.shape.iter().product::<u64>() > MAX_ELEMENTS {
        return None;
    }
    let op = pair.ops.get(order)?;
    let (b, c) = op.slots.iter().map(|slots| pair.slot(op, slots)).find_map(|(b, c)| {
        let (b, c) = (b?, c?);
        (*b.path == *slot).then_some((b.value.tensor()?, c.value.tensor()?))
    })?;
    let b = load((b, &*pair.baseline.store), b.data.as_ref()?).ok()?;
    let c = load((c, &*pair.candidate.store), c.data.as_ref()?).ok()?;
    let found = measure::spread(b.view(), c.view()).filter(|_| b.fault().or_else(|| c.fault()).is_none())?;
    Some(found.into_iter().map(|range| range.start as u64..range.end as u64).collect())
}
