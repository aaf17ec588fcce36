//! Options of a gate.

use std::path::PathBuf;

use probe_files::map::FileAccess;

/// The data to be gated, and additional facts about it.
#[derive(Debug, Clone, Default)]
pub struct GateOptions {
    /// The trusted side: a baseline, a dump, or any file that scalars can be imported from; several are combined.
    pub baseline: Vec<PathBuf>,
    /// The side under test, in the same forms.
    pub candidate: Vec<PathBuf>,
    /// Configuration pack of the baseline's run, if the baseline does not record its environment.
    pub baseline_environment: Option<PathBuf>,
    /// Configuration pack of the candidate's run.
    pub candidate_environment: Option<PathBuf>,
    /// The commit under test.
    pub commit: Option<String>,
    /// Earlier results (`gate.json` or its folder) that may show that a result is flaky.
    pub evidence: Vec<PathBuf>,
    /// Access method for the bytes of large files.
    pub access: FileAccess,
}
