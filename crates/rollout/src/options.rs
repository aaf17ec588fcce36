//! Options of a comparison.

use std::path::PathBuf;
use std::str::FromStr;

/// Number format that both sides compute in. It bounds what rounding explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// IEEE binary32.
    Float32,
    /// IEEE binary16.
    Float16,
    /// Upper half of a binary32.
    Bfloat16,
}

impl Precision {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Float32, Self::Float16, Self::Bfloat16];

    /// Returns the word used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
        }
    }

    /// Returns the mean of |d| up to which rounding explains a difference.
    ///
    /// In bfloat16, sound pairs gave 0.014 to 0.0185, and miles warns from 0.03. In float32, sound pairs gave 1.3e-6, and one stale
    /// step at a learning rate of 1e-6 gave 3e-4. The bound for float16 is that of bfloat16 over 8, as three more bits make it.
    pub const fn bound(self) -> f64 {
        match self {
            Self::Float32 => 1e-4,
            Self::Float16 => 0.03 / 8.0,
            Self::Bfloat16 => 0.03,
        }
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|precision| precision.name() == text)
            .ok_or_else(|| format!("unknown number format {text:?}; choose from float32, float16, bfloat16"))
    }
}

/// Options of a comparison.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RolloutOptions {
    /// The trainer's file or folder; `None` if the rollout's holds both sides.
    pub trainer: Option<PathBuf>,
    /// A second pass of the trainer over the same tokens, which shows its own noise.
    pub again: Option<PathBuf>,
    /// A pass of the trainer with weights quantised as the engine's, which shows if that is the cause.
    pub quantized: Option<PathBuf>,
    /// Number format of both sides; bfloat16 is assumed if none is given.
    pub precision: Option<Precision>,
}
