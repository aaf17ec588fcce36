//! A pack in memory, from any tool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{
    Dataset, DeviceKind, Env, Hyperparameters, Manifest, Model, Optimizer, Pip, Random, Record, Schedule,
    Weights,
};
use crate::Part;

/// The tool that wrote a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This tool.
    Probe,
    /// msprobe, which records less: no manifest, no hashes, no flags.
    Msprobe,
}

impl Origin {
    /// Returns a description.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe pack",
            Self::Msprobe => "msprobe pack",
        }
    }
}

/// A piece of a pack that could not be read. It makes the check incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The part it belongs to; [`Part::Coverage`] if none.
    pub part: Part,
    /// The rank, if it belongs to one.
    pub rank: Option<u32>,
    /// Name of the member, made printable.
    pub member: String,
    /// The reason, and the repair if there is one.
    pub reason: String,
}

/// An opened pack.
#[derive(Debug)]
pub struct Pack {
    /// Path as given.
    pub path: PathBuf,
    /// The tool that wrote it.
    pub origin: Origin,
    /// The manifest, in packs of probe.
    pub manifest: Option<Manifest>,
    /// Kind of device; inferred later for packs without a manifest.
    pub device: Option<DeviceKind>,
    /// The parts of each rank.
    pub ranks: BTreeMap<u32, Parts>,
    /// Members that could not be read.
    pub faults: Vec<Fault>,
    /// Members whose content does not match the manifest: part, and name of the member.
    pub altered: Vec<(Part, String)>,
    /// Further notes: unknown and repeated members.
    pub notes: Vec<String>,
}

/// Parts of one rank.
#[derive(Debug, Default)]
pub struct Parts {
    /// `platform`.
    pub platform: Option<Record>,
    /// `env`.
    pub env: Option<Env>,
    /// `pip`.
    pub pip: Option<Pip>,
    /// `flags`.
    pub flags: Option<Record>,
    /// `random`.
    pub random: Option<Random>,
    /// `dataset`.
    pub dataset: Option<Dataset>,
    /// `dataloader`.
    pub dataloader: Option<Record>,
    /// `model`.
    pub model: Option<Model>,
    /// `weights`.
    pub weights: Option<Weights>,
    /// `optimizer`.
    pub optimizer: Option<Optimizer>,
    /// `schedule`.
    pub schedule: Option<Schedule>,
    /// `scaler`.
    pub scaler: Option<Record>,
    /// `distributed`.
    pub distributed: Option<Record>,
    /// `hyperparameters`.
    pub hyperparameters: Option<Hyperparameters>,
    /// `source`.
    pub source: Option<Record>,
}

impl Parts {
    /// Returns true if `part` was recorded.
    pub const fn has(&self, part: Part) -> bool {
        match part {
            Part::Platform => self.platform.is_some(),
            Part::Env => self.env.is_some(),
            Part::Pip => self.pip.is_some(),
            Part::Flags => self.flags.is_some(),
            Part::Random => self.random.is_some(),
            Part::Dataset => self.dataset.is_some(),
            Part::Dataloader => self.dataloader.is_some(),
            Part::Model => self.model.is_some(),
            Part::Weights => self.weights.is_some(),
            Part::Optimizer => self.optimizer.is_some(),
            Part::Schedule => self.schedule.is_some(),
            Part::Scaler => self.scaler.is_some(),
            Part::Distributed => self.distributed.is_some(),
            Part::Hyperparameters => self.hyperparameters.is_some(),
            Part::Source => self.source.is_some(),
            Part::Coverage => false,
        }
    }

    /// Returns the part, if it is plain settings.
    pub const fn settings(&self, part: Part) -> Option<&Record> {
        match part {
            Part::Platform => self.platform.as_ref(),
            Part::Flags => self.flags.as_ref(),
            Part::Dataloader => self.dataloader.as_ref(),
            Part::Scaler => self.scaler.as_ref(),
            Part::Distributed => self.distributed.as_ref(),
            Part::Source => self.source.as_ref(),
            _ => None,
        }
    }
}

impl Pack {
    /// Returns true if any rank has `part`.
    pub fn has(&self, part: Part) -> bool {
        self.ranks.values().any(|parts| parts.has(part))
    }

    /// Returns the parts that any rank has, in order.
    pub fn parts(&self) -> Vec<Part> {
        Part::ALL.into_iter().filter(|part| self.has(*part)).collect()
    }

    /// Returns the ranks that have `part`.
    pub fn ranks_with(&self, part: Part) -> BTreeSet<u32> {
        self.ranks.iter().filter(|(_, parts)| parts.has(part)).map(|(rank, _)| *rank).collect()
    }

    /// Returns the steps of batches and weights over all ranks.
    pub fn steps(&self) -> BTreeSet<u64> {
        let mut steps: BTreeSet<u64> =
            self.manifest.iter().flat_map(|manifest| manifest.steps.clone()).collect();
        for parts in self.ranks.values() {
            steps.extend(parts.dataset.iter().flat_map(|dataset| &dataset.steps).map(|batch| batch.step));
            steps.extend(parts.weights.iter().flat_map(|weights| &weights.steps).map(|step| step.step));
        }
        steps
    }
}
