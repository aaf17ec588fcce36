//! The two dumps of a comparison.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

// Not a doc comment, which would become part of the help text.
#[derive(Debug, Args)]
pub(super) struct Sides {
    /// The trusted run (usually on a GPU).
    #[arg(value_name = "BASELINE", requires = "second")]
    first: Option<PathBuf>,

    /// The run under test (usually on an NPU).
    #[arg(value_name = "CANDIDATE")]
    second: Option<PathBuf>,

    /// BASELINE, given by name.
    #[arg(short, long, aliases = ["golden-path", "golden_path"], value_name = "BASELINE")]
    #[arg(requires = "candidate", conflicts_with = "first")]
    baseline: Option<PathBuf>,

    /// CANDIDATE, given by name.
    #[arg(short, long, aliases = ["target-path", "target_path"], value_name = "CANDIDATE")]
    #[arg(requires = "baseline", conflicts_with = "first")]
    candidate: Option<PathBuf>,
}

impl Sides {
    /// Returns baseline and candidate.
    pub(super) fn paths(&self) -> anyhow::Result<[&PathBuf; 2]> {
        let baseline = self.first.as_ref().or(self.baseline.as_ref());
        let candidate = self.second.as_ref().or(self.candidate.as_ref());
        baseline.zip(candidate).map(<[_; 2]>::from).context("two dumps are needed: BASELINE CANDIDATE")
    }
}
