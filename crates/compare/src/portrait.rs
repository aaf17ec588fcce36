//! Takes a closer look at the values of the ops at fault; this needs a second read of the data.

use super::collect::load;
use probe_dump::{Slot, TensorRecord};
use probe_judge::{Finding, PartEvidence};
use probe_measure::{Evidence, Look, look, look_at_sketches};
use probe_pair::PartPair;

/// A closer look at a value of an op at fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Portrait {
    /// Position of the op in execution order within its step and rank, from 0.
    pub order: usize,
    /// Position of the value among the slots of the op.
    pub slot: usize,
    /// The look at the values.
    pub look: Look,
}

/// Maximum number of findings per part that are looked at.
const MAX_FINDINGS: usize = 4;

/// Maximum number of values per op that are looked at.
const MAX_SLOTS: usize = 8;

/// Maximum number of elements per part that are looked at; a tensor that would exceed it is skipped.
const MAX_ELEMENTS: u64 = 1 << 25;

/// Returns portraits of the values of the first of `findings`, which belong to `pair`. Values that are bit-equal or cannot be read again
/// are left out.
pub(super) fn portraits(pair: &PartPair, evidence: &PartEvidence, findings: &[Finding]) -> Vec<Portrait> {
    let mut left = MAX_ELEMENTS;
    let mut found: Vec<Portrait> = Vec::new();
    for finding in findings.iter().take(MAX_FINDINGS) {
        let order = finding.order;
        let Some(op) = pair.ops.get(order) else { continue };
        if found.iter().any(|portrait| portrait.order == order) {
            continue;
        }
        let slots = op.slots.iter().map(|slots| pair.slot(op, slots)).zip(evidence.of_op(order)).enumerate();
        let looks = slots.filter_map(|(slot, ((b, c), evidence))| {
            let look = closer(pair, tensor(b)?, tensor(c)?, evidence, &mut left)?;
            Some(Portrait { order, slot, look })
        });
        found.extend(looks.take(MAX_SLOTS));
    }
    found
}

fn tensor(slot: Option<&Slot>) -> Option<&TensorRecord> {
    slot?.value.tensor()
}

fn closer(
    pair: &PartPair,
    b: &TensorRecord,
    c: &TensorRecord,
    evidence: &Evidence,
    left: &mut u64,
) -> Option<Look> {
    match evidence {
        Evidence::Data(kept) => {
            let metrics = Some(kept.metrics()).filter(|metrics| !metrics.bit_equal)?;
            *left = left.checked_sub(b.len())?;
            let b = load((b, &*pair.baseline.store), b.data.as_ref()?).ok()?;
            let c = load((c, &*pair.candidate.store), c.data.as_ref()?).ok()?;
            look(b.view(), c.view(), &metrics).filter(|_| b.fault().or_else(|| c.fault()).is_none())
        }
        Evidence::Recorded(_) => look_at_sketches(b.sketch.as_ref()?, c.sketch.as_ref()?),
        Evidence::Unreadable(_) | Evidence::Nothing => None,
    }
}
