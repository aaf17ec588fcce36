//! `random.json`: seeds, and states of random generators at agreed moments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `random.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Random {
    /// Seed of each generator that can be queried, by the names of [`Mark::generators`]: `torch.initial_seed()` and the
    /// last value given to a seed call.
    #[serde(default)]
    pub seeds: BTreeMap<String, Option<u64>>,
    /// Calls that set a seed, in order of the first call of each place.
    #[serde(default)]
    pub calls: Vec<SeedCall>,
    /// The moments, in order of time.
    #[serde(default)]
    pub marks: Vec<Mark>,
    /// True if parameters were drawn by a generator of the device (built on the device, not on the host and moved).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_init: Option<bool>,
}

/// A call that set a seed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeedCall {
    /// Full name: `torch.manual_seed`, `numpy.random.seed`, `random.seed`.
    pub function: String,
    /// The seed; null if none was given or it is not a number.
    #[serde(default)]
    pub value: Option<i64>,
    /// Calls of this place with this value.
    #[serde(default = "one")]
    pub count: u64,
    /// File name without folders, line and function: `train.py:15 seed_everything`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

const fn one() -> u64 {
    1
}

/// A moment of the run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mark {
    /// `seeded` (after the last seed call), `model` (when the model was handed over), or `step N` (before forward call N).
    pub mark: String,
    /// Generators by name: `python`, `numpy`, `torch` (the default CPU generator), `device.K`, `worker.K.torch`,
    /// `worker.K.numpy`, `worker.K.python`, or any other that the script made.
    pub generators: BTreeMap<String, GeneratorState>,
}

/// Where a generator stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GeneratorState {
    /// xxh3-128 of the state's bytes, 32 hexadecimal digits. Python: of `repr(random.getstate())`; `NumPy`: of the key's bytes
    /// and the position as 8 little-endian bytes; torch: of `get_state()`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Numbers drawn since the seed was set, if the generator counts them: 32-bit words for Mersenne twisters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draws: Option<u64>,
    /// Nothing seeded it and nothing was drawn from it, so that its state is the chance of its start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untouched: bool,
    /// Seed, of generators that keep it (those of devices).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Philox offset, of generators of devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}
