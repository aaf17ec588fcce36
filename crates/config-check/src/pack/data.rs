//! `dataset.json`: inputs of the model at each step.

use serde::{Deserialize, Serialize};

use super::setting::Setting;
use super::tensors::Statistics;

/// `dataset.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dataset {
    /// The steps, ascending.
    #[serde(default)]
    pub steps: Vec<Batch>,
    /// Files the data comes from (tokenizer, vocabulary, index, shards), without their folders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<DataFile>,
}

/// The arguments of one forward call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Batch {
    /// Number of the forward call, from 0.
    pub step: u64,
    /// Every leaf of the arguments, in the order of the call. Lists, tuples and maps are taken apart.
    pub arguments: Vec<Argument>,
}

/// A leaf of the arguments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Argument {
    /// `args.0`, `kwargs.mask`, `args.1.labels.0`.
    pub path: String,
    /// Its kind: a tensor, a value, or an object.
    #[serde(flatten)]
    pub content: Content,
}

/// Kind of a leaf.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Content {
    /// A tensor, measured on the host, contiguous.
    Tensor(BatchTensor),
    /// None, a bool, a number or a text.
    Value {
        /// The value.
        value: Setting,
    },
    /// Anything else.
    Object {
        /// Name of its class.
        class: String,
    },
    /// Something of which a pack of the older tool says nothing. Never written.
    #[default]
    #[serde(skip)]
    Unrecorded,
}

/// A tensor among the arguments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BatchTensor {
    /// Element type as torch names it: `float32`, `bfloat16`, `int64`.
    #[serde(default)]
    pub dtype: Option<String>,
    /// Sizes of the dimensions.
    #[serde(default)]
    pub shape: Option<Vec<u64>>,
    /// xxh3-128 of the contiguous bytes (little endian, row-major), 32 hexadecimal digits.
    #[serde(default)]
    pub hash: Option<String>,
    /// The same of each slice along the first dimension, in order; if there are at most 65,536 of them and at least one
    /// dimension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Vec<String>>,
    /// Statistics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<Statistics>,
}

/// A file that data comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DataFile {
    /// Its purpose: `tokenizer.json`, `vocab`, `train.bin`. Unique in the pack, without folders.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the content, if it was small enough to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}
