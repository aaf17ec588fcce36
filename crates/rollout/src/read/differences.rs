//! Differences of probabilities that msprobe saves for verl: `prob_diff_step_N.npy` and the mask beside it.

use std::path::{Path, PathBuf};

use super::{Collected, step_of};
use probe_dump::TensorData;
use probe_files::map::FileAccess;
use probe_read::{ReadError, tensor_file};

use super::verl::numbers;

/// Absolute differences of probabilities of the tokens of one step. They tell how large the error is, but not its sign, so no
/// cause can be read from them.
#[derive(Debug, Clone, PartialEq)]
pub struct Differences {
    /// Training step.
    pub step: u64,
    /// Samples.
    pub rows: usize,
    /// Tokens of the longest response.
    pub width: usize,
    /// Differences, row by row.
    pub values: Vec<f32>,
    /// True for tokens of a response.
    pub mask: Vec<bool>,
}

/// Reads the differences at `path`, or those that belong to the mask at `path`, with their mask.
pub(super) fn read(path: &Path, into: &mut Collected) -> Result<(), ReadError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = |name: String| -> PathBuf { path.with_file_name(name) };
    let (values, mask) = if name.contains("prob_diff") {
        (path.to_path_buf(), beside(name.replace("prob_diff", "prob_mask")))
    } else if name.contains("prob_mask") {
        (beside(name.replace("prob_mask", "prob_diff")), path.to_path_buf())
    } else {
        let message = "is a bare array; of msprobe, prob_diff_step_N.npy and prob_mask_step_N.npy are read";
        return Err(ReadError::usage(path, message));
    };
    if let Some(lacking) = [&values, &mask].into_iter().find(|file| !file.exists()) {
        let lacking = lacking.file_name().unwrap_or_default().to_string_lossy();
        let message = format!(
            "{lacking} is not beside it; copy it there: msprobe writes both, and they are read together"
        );
        return Err(ReadError::usage(path, message));
    }
    let difference = tensor_file::load_single(&values, FileAccess::Map)?;
    let masked = tensor_file::load_single(&mask, FileAccess::Map)?;
    let &[rows, width] = difference.shape() else {
        let shape = difference.shape();
        let message = format!("has shape {shape:?}, expected two dimensions: sample, token of the response");
        return Err(ReadError::format(&values, message));
    };
    if masked.shape() != difference.shape() {
        return Err(ReadError::format(
            &mask,
            format!(
                "has shape {:?}, but the differences {:?}; give files of one step",
                masked.shape(),
                difference.shape()
            ),
        ));
    }
    let load = |tensor: &TensorData, path: &Path| numbers(tensor, path);
    into.differences.push(Differences {
        step: step_of(&values),
        rows,
        width,
        values: load(&difference, &values)?.into_iter().map(super::fields::narrow).collect(),
        mask: load(&masked, &mask)?.into_iter().map(|value| value > 0.0).collect(),
    });
    Ok(())
}

impl Differences {
    /// Mean difference above which sides are said to differ: what the bound of bfloat16 for log-probabilities makes of probabilities,
    /// whose differences are smaller than those of their logarithms.
    pub const BOUND: f64 = 0.03;

    fn counted(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().zip(&self.mask).filter(|(_, mask)| **mask).map(|(value, _)| f64::from(*value))
    }

    /// Returns the number of tokens of responses.
    pub fn tokens(&self) -> u64 {
        self.counted().count() as u64
    }

    /// Returns true if they are larger than rounding makes them. A mean that is no number is.
    pub fn differ(&self) -> bool {
        self.mean().is_nan() || self.mean() > Self::BOUND
    }

    /// Returns the mean over tokens of responses; 0 if there is none.
    pub fn mean(&self) -> f64 {
        self.counted().sum::<f64>() / (self.tokens().max(1)) as f64
    }

    /// Returns the largest.
    pub fn max(&self) -> f64 {
        self.counted().fold(0.0, |most, value| if value.is_nan() { value } else { most.max(value) })
    }
}
