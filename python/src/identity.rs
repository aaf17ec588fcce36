//! Detects slots that hold the same tensor: the same place in the same storage, not written to in between.
//!
//! Storages are held weakly until the step ends, so that their addresses are not reused. Writes that torch does not
//! count (through `.data`) are detected by comparing measurements, where there are any.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use probe::dump::{Number, Observation};

use crate::tensor::{Facts, Marks};

/// Beyond this many views, everything is forgotten, and later tensors get new identities: this bounds the memory, not
/// the length of a step.
const MAX_VIEWS: usize = 1 << 17;

/// A tensor seen in this step.
#[derive(Debug)]
struct Seen {
    version: i64,
    /// Writes to the storage observed in ops.
    writes: u64,
    /// True if seen in the handler of the op that wrote to it: torch counts that write when the handler returns, if
    /// it counts it at all.
    rewritten: bool,
    /// Fingerprint of its measurement, if it was measured.
    print: Option<u64>,
    identity: u64,
}

/// Tensors of the current step.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    /// Held storages, with the number of writes seen to each.
    storages: HashMap<usize, u64>,
    /// Tensors by storage and place in it.
    views: HashMap<(usize, u64), Seen>,
    next: u64,
}

/// Hashes the part of a tensor's identity that its storage does not determine.
pub(crate) fn view_of(facts: &Facts) -> u64 {
    let mut hasher = DefaultHasher::new();
    (facts.offset, &facts.shape, &facts.strides, &facts.dtype_name).hash(&mut hasher);
    hasher.finish()
}

/// Returns a number that differs if two measurements of a tensor differ.
pub(crate) fn print_of(observation: &Observation) -> u64 {
    let mut hasher = DefaultHasher::new();
    if let Some(hash) = observation.hash {
        hash.hash(&mut hasher);
        return hasher.finish();
    }
    let statistics = &observation.statistics;
    for number in [statistics.min, statistics.max].map(|number| number.map_or(0.0, Number::as_f64)) {
        number.to_bits().hash(&mut hasher);
    }
    for number in [statistics.mean, statistics.norm].map(|number| number.unwrap_or(0.0)) {
        number.to_bits().hash(&mut hasher);
    }
    hasher.finish()
}

impl Identities {
    /// Returns true if the storage is already held.
    pub(crate) fn holds(&self, storage: usize) -> bool {
        self.storages.contains_key(&storage)
    }

    /// Marks the storage as held.
    pub(crate) fn hold(&mut self, storage: usize) {
        self.storages.insert(storage, 0);
    }

    /// Returns the identity of a tensor whose storage is held. `print` is that of its measurement.
    pub(crate) fn of(&mut self, marks: Marks, view: u64, rewritten: bool, print: Option<u64>) -> u64 {
        let writes = self.storages.get(&marks.storage).copied().unwrap_or(0);
        let place = (marks.storage, view);
        if let Some(seen) = self.views.get_mut(&place) {
            if seen.rewritten && seen.version + 1 == marks.version {
                (seen.version, seen.rewritten) = (marks.version, false);
            }
            let unchanged = seen.print.is_none() || print.is_none() || seen.print == print;
            if seen.version == marks.version && seen.writes == writes && unchanged {
                return seen.identity;
            }
        }
        let identity = self.next;
        self.next += 1;
        self.views.insert(place, Seen { version: marks.version, writes, rewritten, print, identity });
        identity
    }

    /// Notes that an op writes to the storage: tensors seen in it from now on are different ones.
    pub(crate) fn wrote(&mut self, storage: usize) {
        if let Some(writes) = self.storages.get_mut(&storage) {
            *writes += 1;
        }
    }

    /// Returns true if everything should be forgotten.
    pub(crate) fn is_full(&self) -> bool {
        self.views.len() >= MAX_VIEWS
    }

    /// Forgets all tensors. Later identities are new ones.
    pub(crate) fn clear(&mut self) {
        self.storages.clear();
        self.views.clear();
    }

    /// Restarts the numbering for another step.
    pub(crate) fn restart(&mut self) {
        self.clear();
        self.next = 0;
    }
}
