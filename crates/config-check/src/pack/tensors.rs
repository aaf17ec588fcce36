//! `model.json` and `weights.json`: structure and values of the model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `model.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Model {
    /// `named_modules()` in order; the model itself has an empty name.
    pub modules: Vec<Module>,
    /// `named_parameters(remove_duplicate=False)`, then all buffers, in order.
    pub tensors: Vec<Declared>,
    /// Names that stand for one and the same tensor (tied weights), each group sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tied: Vec<Vec<String>>,
    /// How the model is compiled: class of the wrapper and backend (`torch.compile inductor`); absent in eager mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiled: Option<String>,
}

/// A module.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Module {
    /// Path in the model: `layers.0.mlp`.
    pub name: String,
    /// Name of the class without its Python module: `LayerNorm`.
    pub class: String,
    /// Its `training` flag.
    #[serde(default)]
    pub training: Option<bool>,
    /// Its `extra_repr()`: `64, eps=1e-05, elementwise_affine=True`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub extra: String,
}

/// A parameter or buffer as the model declares it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Declared {
    /// Full name.
    pub name: String,
    /// Its kind.
    pub kind: TensorKind,
    /// Element type as torch names it.
    pub dtype: String,
    /// Sizes of the dimensions; of a sharded tensor those of the whole.
    pub shape: Vec<u64>,
    /// True if autograd computes its gradient.
    #[serde(default)]
    pub requires_grad: bool,
}

/// Kind of a tensor of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TensorKind {
    /// Trained.
    #[default]
    Parameter,
    /// Part of the state dict, but not trained (running statistics).
    Buffer,
    /// A buffer outside the state dict (`persistent=False`).
    Temporary,
}

impl TensorKind {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Buffer => "buffer",
            Self::Temporary => "non-persistent buffer",
        }
    }
}

/// `weights.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Weights {
    /// The steps, ascending.
    pub steps: Vec<WeightStep>,
}

/// The values before one forward call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WeightStep {
    /// Number of the forward call, from 0.
    pub step: u64,
    /// Parameters and buffers, tied ones once, in the order of the model.
    pub tensors: Vec<Weight>,
}

/// A parameter or buffer: its values, measured on the host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Weight {
    /// Full name.
    pub name: String,
    /// Its kind.
    #[serde(default)]
    pub kind: Option<TensorKind>,
    /// Element type as torch names it.
    #[serde(default)]
    pub dtype: Option<String>,
    /// Sizes of the dimensions of what this rank holds.
    #[serde(default)]
    pub shape: Option<Vec<u64>>,
    /// xxh3-128 of the contiguous bytes (little endian, row-major), 32 hexadecimal digits.
    #[serde(default)]
    pub hash: Option<String>,
    /// Hash of the elements without their order, 16 hexadecimal digits; the guide defines it. Tells that rows were permuted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unordered_hash: Option<String>,
    /// Hashes of the same tensor cast to other types, by type: of float32 and wider at least `bfloat16` and `float16`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cast_hashes: BTreeMap<String, String>,
    /// Statistics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<Statistics>,
    /// The 256 lanes of the signed-sum sketch as little-endian float32, 2048 hexadecimal digits. Tells how far two tensors
    /// are apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sketch: Option<String>,
    /// Where the values lie, of a tensor that is spread over ranks: mesh and placement (`mesh=dp:4 placement=Shard(0)`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
}

/// Numbers about a tensor, from float64 sums in a fixed order over its finite elements.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Statistics {
    /// Elements, those that are not finite included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Least element.
    #[serde(default, with = "number")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub min: Option<f64>,
    /// Greatest element.
    #[serde(default, with = "number")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub max: Option<f64>,
    /// Mean.
    #[serde(default, with = "number")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub mean: Option<f64>,
    /// Euclidean norm.
    #[serde(default, with = "number")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub norm: Option<f64>,
    /// Elements that are NaN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nan: Option<u64>,
    /// Elements that are infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infinite: Option<u64>,
}

/// A number that may be null, or a word if not finite.
mod number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::super::setting::Setting;

    #[expect(clippy::ref_option, reason = "the signature serde asks for")]
    pub(super) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map_or(Setting::Null, Setting::Float).serialize(serializer)
    }

    #[expect(clippy::cast_precision_loss, reason = "statistics of integers are rounded to float64")]
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        match Setting::deserialize(deserializer)? {
            Setting::Null => Ok(None),
            Setting::Integer(value) => Ok(Some(value as f64)),
            Setting::Float(value) => Ok(Some(value)),
            Setting::Text(word) => match &*word {
                "NaN" => Ok(Some(f64::NAN)),
                "Infinity" => Ok(Some(f64::INFINITY)),
                "-Infinity" => Ok(Some(f64::NEG_INFINITY)),
                _ => Err(serde::de::Error::custom("expected a number, NaN, Infinity or -Infinity")),
            },
            _ => Err(serde::de::Error::custom("expected a number")),
        }
    }
}
