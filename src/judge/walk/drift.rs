//! What rounding noise makes of the weights from one step to the next.
//!
//! An optimizer that divides by the size of the gradient (Adam) turns a gradient that is noise (of a bias in front of a
//! normalisation, of the keys of an attention) into full steps. Then a few tensors of the next step differ by far more
//! than rounding, while most agree to the last digits. An optimizer at fault moves them all.

use std::collections::{HashMap, HashSet};

use super::norms;
use crate::dump::{DType, Phase, Slot};
use crate::judge::tolerance::DTypeTolerance;
use crate::measure::{Evidence, Metric};
use crate::pair::{Paired, PartPair};

/// Fewer tensors than this from outside the step show no majority.
const MIN_TENSORS: usize = 4;

/// Half of the tensors must agree this many times better than the bound of the coarsest type of the run. In float32, noise
/// of a correct pair leaves a factor of 100 and more; an update that is off by 1 % does not.
const AGREEMENT: f64 = 4.0;

/// Largest root mean square of a difference after one step: twice the step of an optimizer, whose rate rarely exceeds
/// 1e-3; noise has no direction, so it grows with the root of the number of steps. Weights are larger, so that a damaged
/// tensor stands out.
const LARGEST_RMS: f64 = 3e-3;

/// Baseline norms of the tensors that have drifted since the step before, with their relative error.
#[derive(Debug, Default)]
pub(super) struct Drift {
    by_norm: HashMap<u64, f64>,
    /// All tensors from outside the step.
    pub(super) tensors: usize,
}

impl Drift {
    /// Looks through a part whose rank was compared `since` steps before as well.
    /// `coarsest` are the bounds of the coarsest type that the run computes in.
    pub(super) fn of(
        pair: &PartPair,
        evidence: &[Vec<Evidence>],
        coarsest: Option<DTypeTolerance>,
        since: u64,
    ) -> Self {
        let mut made: HashSet<u64> = HashSet::new();
        // The state of the optimizer, which is read after the backward pass, is noisier than what it makes of it.
        let mut before_backward = true;
        let mut given: HashMap<u64, Given> = HashMap::new();
        for (op_pair, evidence) in pair.ops.iter().zip(evidence) {
            let (Some(op), Paired::Both(..)) = (pair.op(op_pair).0, op_pair.ops) else { continue };
            if op.name.phase() != Phase::Forward {
                before_backward = false;
                continue;
            }
            for (&slots, evidence) in op_pair.slots.iter().zip(evidence) {
                let sides = pair.slot(op_pair, slots);
                let Some(slot) = sides.0 else { continue };
                let norm = norms(sides, Some(evidence)).0;
                if norm <= 0.0 {
                    continue;
                }
                if slot.side.is_result() {
                    made.insert(norm.to_bits());
                } else if !made.contains(&norm.to_bits())
                    && let Some(found) = Given::of(slot, norm, evidence, before_backward)
                {
                    given.entry(norm.to_bits()).or_insert(found);
                }
            }
        }
        // Gradients carry the rounding of the coarsest type, and so do weights that are of a finer one.
        let coarsest = coarsest.map_or(0.0, |coarsest| coarsest.rel_l2);
        let share = |given: &Given| given.error / given.bound.max(coarsest);
        let mut shares: Vec<f64> = given.values().filter(|given| given.votes).map(share).collect();
        shares.sort_by(f64::total_cmp);
        let settled = shares.get(shares.len() / 2).is_some_and(|median| AGREEMENT * median <= 1.0);
        let tensors = given.len();
        if shares.len() < MIN_TENSORS || !settled {
            return Self::default();
        }
        let limit = LARGEST_RMS * (since.max(1) as f64).sqrt();
        let drifted = given
            .into_iter()
            .filter(|(_, given)| AGREEMENT * given.error > given.bound && given.rms <= limit)
            .map(|(norm, given)| (norm, given.error));
        Self { by_norm: drifted.collect(), tensors }
    }

    /// Error of a tensor of this baseline norm, if it has drifted.
    pub(super) fn error(&self, norm: f64) -> Option<f64> {
        self.by_norm.get(&norm.to_bits()).copied()
    }

    /// Number of tensors that have drifted.
    pub(super) fn len(&self) -> usize {
        self.by_norm.len()
    }

    /// Largest error among them.
    pub(super) fn largest(&self) -> f64 {
        self.by_norm.values().copied().fold(0.0, f64::max)
    }
}

/// A tensor that no op of the part has made.
struct Given {
    error: f64,
    /// What its type allows.
    bound: f64,
    /// Root mean square of the difference.
    rms: f64,
    /// Counts in the majority.
    votes: bool,
}

impl Given {
    fn of(slot: &Slot, norm: f64, evidence: &Evidence, votes: bool) -> Option<Self> {
        let tensor = slot.value.tensor()?;
        let tolerance =
            tensor.dtype.known().filter(|dtype| DType::is_float(*dtype)).and_then(DTypeTolerance::of)?;
        let error = evidence.metric(Metric::RelL2).filter(|error| error.is_finite())?;
        let rms = error * norm / (tensor.len().max(1) as f64).sqrt();
        Some(Self { error, bound: tolerance.rel_l2, rms, votes })
    }
}
