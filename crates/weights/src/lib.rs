//! Weights of two checkpoints: which tensor of one is which of the other, however it is named, split, joined, transposed, permuted or cast;
//! and what is wrong.
//!
//! Everything is found by content (`lines`): rows and columns of both sides are hashed, in the type in which they can be equal, and sought
//! on the other side. Names decide only between equal candidates, and for what is not equal. What a tensor *should* be is learned from its
//! neighbours: the same tensor of other layers, experts and ranks (`predict`). Each side is read once; only lines that differ are read again.
//!
//! This crate knows nothing of models: no list of names of layers, no configuration.

mod checkpoint;
mod finding;
mod index;
mod judge;
mod layout;
mod lines;
mod mapping;
mod place;
mod placed;
mod plan;
mod predict;
mod values;

use std::collections::BTreeSet;

use probe_dump::DType;

pub use checkpoint::{Checkpoint, Name, Selected, Tensor};
pub use finding::{Finding, FindingKind};
pub use layout::{Arrangement, Layout, Order, Source};
pub use lines::Axis;
pub use mapping::mapping;
pub use placed::{Placed, Verdict};
pub use values::{Difference, Explanation};

use index::{Hashed, Index};

/// The comparison of two checkpoints.
#[derive(Debug)]
pub struct Weights {
    /// The tensors of the candidate, in its order.
    pub placed: Vec<Placed>,
    /// Faults, each with its tensors, in the order of the candidate.
    pub findings: Vec<Finding>,
    /// Remarks that are no fault.
    pub notes: Vec<String>,
    /// Things that could not be read.
    pub faults: Vec<String>,
}

impl Weights {
    /// Returns true if all of the candidate is the baseline up to the mapping, and nothing of the baseline is missing.
    pub const fn agree(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Compares the weights of two checkpoints. `snapshots` are older states of the same weights, in either's names: what is not up to date is
/// sought in them.
pub fn compare(baseline: &Checkpoint, candidate: &Checkpoint, snapshots: &[Checkpoint]) -> Weights {
    let types = |checkpoint: &Checkpoint| -> BTreeSet<DType> {
        checkpoint.tensors.iter().map(|tensor| tensor.dtype).collect()
    };
    let of_candidate: Vec<DType> = types(candidate).into_iter().collect();
    let others: BTreeSet<DType> = std::iter::once(baseline).chain(snapshots).flat_map(types).collect();
    let others: Vec<DType> = others.into_iter().collect();
    let theirs = Hashed::of(baseline, &of_candidate);
    let own = Hashed::of(candidate, &others);
    let older: Vec<Hashed<'_>> =
        snapshots.iter().map(|snapshot| Hashed::of(snapshot, &of_candidate)).collect();
    let index = Index::of(&theirs);
    let older_index: Vec<Index<'_>> = older.iter().map(Index::of).collect();
    let mut faults: Vec<String> = Vec::new();
    let sides = [("baseline", baseline, &theirs), ("candidate", candidate, &own)];
    let older_sides = snapshots.iter().zip(&older).map(|(snapshot, hashed)| ("snapshot", snapshot, hashed));
    for (side, checkpoint, hashed) in sides.into_iter().chain(older_sides) {
        let of_side = checkpoint.faults.iter().chain(&hashed.faults);
        faults.extend(of_side.map(|fault| format!("{side}: {fault}")));
    }
    let mut judge = judge::Judge::new(&index, &own, &older_index);
    let placed = judge.all();
    faults.append(&mut judge.faults);
    let (findings, notes) = finding::collect(&index, &own, &placed, snapshots);
    Weights { placed, findings, notes, faults }
}
