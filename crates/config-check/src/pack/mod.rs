//! Packs: a training script's recorded set-up, one zip with a JSON member per part and rank.
//!
//! The types of this module define the format, version 1; `docs/config-check.md` describes it for authors of packs, and
//! `schemas/pack.schema.json` checks them.

mod data;
mod host;
pub mod keys;
mod manifest;
mod members;
mod native;
mod older;
mod open;
mod opened;
mod random;
#[cfg(feature = "schema")]
mod schema;
mod secret;
mod setting;
mod tensors;
mod training;

pub use data::{Argument, Batch, BatchTensor, Content, DataFile, Dataset};
pub use host::{Env, Package, Pip};
pub use manifest::{
    Device, DeviceKind, FORMAT, MANIFEST, Manifest, MemberDigest, Tool, VERSION, member_name,
    parse_member_name,
};
pub(crate) use open::open_copy;
pub use open::{open, open_bytes};
pub use opened::{Fault, Origin, Pack, Parts};
pub use random::{GeneratorState, Mark, Random, SeedCall};
#[cfg(feature = "schema")]
pub use schema::pack_schema;
pub(crate) use secret::mask_text;
pub(crate) use setting::MASK;
pub use setting::{AllowedVariables, Record, Setting};
pub use tensors::{Declared, Model, Module, Statistics, TensorKind, Weight, WeightStep, Weights};
pub use training::{Accumulated, Clip, Group, HyperparameterSource, Hyperparameters, Optimizer, Schedule};
