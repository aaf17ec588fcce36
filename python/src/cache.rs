//! Cache of measurements of unchanged tensors: an input is usually the unchanged output of an earlier op.
//!
//! A tensor is recognised by its storage object, layout and version. Uncounted writes (through `.data`) are detected
//! by a sample of the bytes, in host memory; memory shared with `numpy` is not cached at all.

use std::collections::HashMap;
use std::sync::Arc;

use probe::capture::DataLocation;
use probe::dump::{DType, Observation, TensorRef};

use crate::tensor::Order;

/// The cache is emptied beyond this many storages: this bounds the memory, not the length of a step.
const MAX_STORAGES: usize = 8192;

/// Elements sampled to see whether a tensor is still the same.
const SAMPLES: usize = 32;

/// Identifies a measured tensor within its storage.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Layout {
    /// Number of writes so far; negative if torch keeps no count.
    pub(crate) version: i64,
    pub(crate) offset: usize,
    pub(crate) order: Order,
    pub(crate) dtype: DType,
}

/// A measurement, and the tensor it belongs to.
#[derive(Debug)]
pub(crate) struct Entry<M> {
    pub(crate) layout: Layout,
    /// True if measured in the handler of the op that wrote to it: torch counts that write when the handler returns,
    /// if it counts it at all.
    pub(crate) rewritten: bool,
    /// Result of [`sample`].
    pub(crate) sample: u64,
    pub(crate) measured: M,
}

impl<M> Entry<M> {
    /// Returns true if a tensor with this layout is the one that was measured.
    fn is_of(&mut self, layout: &Layout) -> bool {
        if self.rewritten && self.layout.version + 1 == layout.version {
            (self.layout.version, self.rewritten) = (layout.version, false);
        }
        self.layout == *layout
    }
}

/// Cached data of a tensor.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) observation: Arc<Observation>,
    /// Location of its written data, for task `tensor`.
    pub(crate) data: Option<DataLocation>,
    /// Elements of a small tensor, stored instead of a sketch.
    pub(crate) bytes: Option<Arc<[u8]>>,
}

/// Measurements of the current step.
#[derive(Debug)]
pub(crate) struct Cache<M> {
    storages: HashMap<usize, Vec<Entry<M>>>,
}

impl<M> Default for Cache<M> {
    fn default() -> Self {
        Self { storages: HashMap::new() }
    }
}

impl<M: Clone> Cache<M> {
    /// Returns the measurement of a tensor, if there is one and nothing was written since.
    pub(crate) fn get(&mut self, identity: usize, layout: &Layout, sample: u64) -> Option<M> {
        // Without a version (inference mode) writes cannot be detected.
        if layout.version < 0 {
            return None;
        }
        let entry = self
            .storages
            .get_mut(&identity)?
            .iter_mut()
            .find_map(|entry| entry.is_of(layout).then_some(entry))?;
        (entry.sample == sample).then(|| entry.measured.clone())
    }

    /// Stores a measurement; forgets all others if there are too many. The caller ensures that `identity` denotes the same
    /// storage until [`Self::clear`].
    pub(crate) fn insert(&mut self, identity: usize, entry: Entry<M>) {
        if self.storages.len() >= MAX_STORAGES {
            self.clear();
        }
        let entries = self.storages.entry(identity).or_default();
        // Entries of another version, or changed unseen, are never found again.
        entries.retain_mut(|old| !old.is_of(&entry.layout) && old.layout.version == entry.layout.version);
        entries.push(entry);
    }

    /// Forgets the measurements of a storage that an op writes to.
    pub(crate) fn forget(&mut self, identity: usize) {
        if let Some(entries) = self.storages.get_mut(&identity) {
            entries.clear();
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.storages.clear();
    }
}

/// Hash of a few elements, spread over the tensor.
pub(crate) fn sample(tensor: &TensorRef<'_>) -> u64 {
    let count = tensor.len();
    let step = (count / SAMPLES).max(1);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for at in (0..count).step_by(step).chain(count.checked_sub(1)) {
        for part in tensor.element(at).chunks(8) {
            let mut word = [0_u8; 8];
            word[..part.len()].copy_from_slice(part);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    hash
}
