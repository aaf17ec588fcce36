//! Makes a baseline from the output of a run: dumps, files of scalars, other baselines.

use std::path::{Path, PathBuf};

use super::GateError;
use super::baseline::Baseline;
use super::side::SideContent;
use probe_dump::NumberSet;
use probe_files::map::FileAccess;
use probe_judge::Incomplete;

/// A newly made baseline, and everything that could not be read for it.
#[derive(Debug)]
pub struct Made {
    /// The baseline, without provenance.
    pub baseline: Baseline,
    /// Places that could not be read.
    pub incomplete: Vec<Incomplete>,
    /// Statements about what was read.
    pub notes: Vec<String>,
}

/// Combines the contents of `paths`, with the environment described by the configuration pack `environment`. Runs on the current
/// rayon pool.
///
/// # Errors
/// [`GateError`] when something cannot be read, or contains nothing.
pub fn make(
    paths: &[PathBuf],
    environment: Option<&Path>,
    steps: &NumberSet,
    access: FileAccess,
) -> Result<Made, GateError> {
    let mut side = SideContent::open(paths, environment, access)?;
    let parts = side.lines(steps, &NumberSet::default());
    let mut scalars = std::mem::take(&mut side.scalars);
    for series in scalars.values_mut() {
        series.retain(|step, _| steps.contains(*step));
    }
    scalars.retain(|_, series| !series.is_empty());
    let baseline = Baseline { environment: side.environment, scalars, parts, ..Baseline::default() };
    if baseline.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(GateError::Usage(format!("{}: contains no scalar and no value", names.join(", "))));
    }
    Ok(Made { baseline, incomplete: side.incomplete, notes: side.notes })
}
