//! Statistics and hashes of tensors whose format records none: they tell replicas from shards and terms.

use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;

use probe_dump::{Checksum, Content, Rank, TensorRecord, Value};
use probe_measure as measure;

/// Reads the tensors of a rank that have data and neither statistics nor a hash, and records both. What cannot be read stays as it is.
pub fn observed(rank: &mut Rank) {
    let slots = rank.ops.iter().flat_map(|op| &op.slots);
    let records = slots.filter_map(|slot| match &slot.value {
        Value::Tensor(record) if is_bare(record) => Some((Arc::as_ptr(record).addr(), Arc::clone(record))),
        _ => None,
    });
    // One record may stand at many places.
    let bare: HashMap<usize, Arc<TensorRecord>> = records.collect();
    let store = &rank.store;
    let new = |record: &Arc<TensorRecord>| {
        let data = store.load(record.data.as_deref()?).ok()?;
        let seen = measure::observe(data.view(), Content::HASH);
        let mut made = TensorRecord::clone(record);
        (made.statistics, made.places) = (seen.statistics.into(), seen.places);
        (made.counts, made.checksum) = (Some(seen.counts.into()), seen.hash.map(Checksum::of_hash));
        data.fault().is_none().then(|| Arc::new(made))
    };
    let made: HashMap<usize, Arc<TensorRecord>> =
        bare.par_iter().filter_map(|(at, record)| Some((*at, new(record)?))).collect();
    for slot in rank.ops.iter_mut().flat_map(|op| &mut op.slots) {
        if let Value::Tensor(record) = &mut slot.value
            && let Some(made) = made.get(&Arc::as_ptr(record).addr())
        {
            *record = Arc::clone(made);
        }
    }
}

fn is_bare(record: &TensorRecord) -> bool {
    record.data.is_some() && record.checksum.is_none() && record.statistics.norm().is_none()
}
