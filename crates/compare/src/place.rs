//! Looks up where in a tensor the error of a finding lies. Of findings alone: it takes a second look at the data.

use super::collect::load;
use probe_judge::{ErrorPlace, Finding};
use probe_measure as measure;
use probe_pair::PartPair;

/// Findings of a part that are looked at; of what comes later the place says little.
const MAX_FINDINGS: usize = 10;

/// Elements up to which a tensor is looked at again.
const MAX_ELEMENTS: u64 = 1 << 26;

/// Completes the places of `findings`, which are those of `pair`.
pub(super) fn complete(pair: &PartPair, findings: &mut [Finding]) {
    for finding in findings.iter_mut().take(MAX_FINDINGS) {
        let (order, slot) = (finding.order, finding.slot.as_str());
        if let Some(place) = &mut finding.place {
            place.region = region(pair, order, slot, place);
        }
    }
}

/// `None` where the error is spread over the tensor, and where the data cannot be had again.
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
