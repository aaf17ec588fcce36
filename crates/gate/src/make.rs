//! Makes a baseline of whatever a run has left: dumps, files of scalars, other baselines.

use std::path::{Path, PathBuf};

use super::GateError;
use super::baseline::Baseline;
use super::side::Side;
use probe_dump::NumberSet;
use probe_files::map::FileAccess;
use probe_judge::Incomplete;

/// A baseline that was made, and what could not be read of it.
#[derive(Debug)]
pub struct Made {
    /// The baseline, without provenance.
    pub baseline: Baseline,
    /// What could not be read.
    pub incomplete: Vec<Incomplete>,
    /// Statements about what was read.
    pub notes: Vec<String>,
}

/// What `paths` hold together, with the set-up that `environment`, a configuration pack, tells of. Runs on the current rayon pool.
///
/// # Errors
/// [`GateError`] when something cannot be read, or nothing is in it.
pub fn make(
    paths: &[PathBuf],
    environment: Option<&Path>,
    steps: &NumberSet,
    access: FileAccess,
) -> Result<Made, GateError> {
    let mut side = Side::open(paths, environment, access)?;
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
