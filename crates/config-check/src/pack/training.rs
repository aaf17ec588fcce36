//! `optimizer.json`, `schedule.json` and `hyperparameters.json`: the training set-up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::setting::Record;

/// `optimizer.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Optimizer {
    /// Name of the class without its Python module: `AdamW`.
    pub class: String,
    /// `param_groups` in order.
    pub groups: Vec<Group>,
    /// Element type of each kind of state (`exp_avg`, `exp_avg_sq`, `master`), where state exists. Several types are joined
    /// by `, ` in alphabetical order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub state_dtypes: BTreeMap<String, String>,
    /// Calls that clip gradients. An empty list means that none was made; absent if they were not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clipping: Option<Vec<Clip>>,
    /// Calls of `backward` and of `optimizer.step`; absent if they were not observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulation: Option<Vec<Accumulated>>,
    /// Parameters that this optimizer or another one of the program trains, and that are not of the packed model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<u64>,
}

/// A parameter group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// Everything in the group but `params`: `lr`, `betas`, `eps`, `weight_decay`, `foreach`, `fused` and so on.
    pub options: Record,
    /// Names of its parameters in order; a parameter that is not of the model is `?`.
    pub parameters: Vec<String>,
}

/// A call that clips gradients.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clip {
    /// Number of the last forward call before it.
    pub step: u64,
    /// `clip_grad_norm_` or `clip_grad_value_`.
    pub function: String,
    /// The bound, as given.
    pub limit: f64,
    /// Kind of norm, as given: 2.0, or `inf` as a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm_type: Option<super::setting::Setting>,
}

/// Events between one forward call and the next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Accumulated {
    /// Number of the forward call.
    pub step: u64,
    /// Calls of `backward`.
    pub backward: u64,
    /// Calls of `optimizer.step`.
    pub optimizer: u64,
}

/// `schedule.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Schedule {
    /// Name of the class without its Python module: `CosineAnnealingLR`.
    pub class: String,
    /// The numbers, texts, bools and lists of these in its `state_dict()`.
    #[serde(default, skip_serializing_if = "Record::is_empty")]
    pub state: Record,
    /// Learning rates that a clone gives for the first steps, one list a step, one number a parameter group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<Vec<f64>>,
}

/// `hyperparameters.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hyperparameters {
    /// The objects and files that hold arguments.
    pub sources: Vec<HyperparameterSource>,
}

/// An object or file that holds arguments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HyperparameterSource {
    /// Where they come from: `argparse`, `training_arguments`, `deepspeed`, `yaml`, `megatron`, `script` (a launch script,
    /// read as text) or `extra` (handed to `pack`).
    pub source: String,
    /// File name without folders, or name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Arguments with their own types, nested as they are.
    pub values: Record,
}
