//! Recording options and the manifest, as passed by the Python package.

use std::num::NonZero;
use std::thread;

use probe::capture::{CaptureTask, Existing, RunManifest};
use probe::dump::{Content, Phase};
use serde::Deserialize;

/// Settings of a recording.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the user")]
pub(crate) struct Options {
    task: CaptureTask,
    /// Threads that the program's own ops use.
    threads: usize,
    /// Processes of the program on this machine.
    processes: usize,
    /// True if call stacks are recorded.
    pub(crate) stacks: bool,
    overwrite: bool,
    /// Most bytes of data that a step may write.
    pub(crate) max_bytes: u64,
    forward: bool,
    backward: bool,
    gradients: bool,
    /// True if the inputs of ops are recorded.
    pub(crate) inputs: bool,
    /// True if the outputs of ops are recorded.
    pub(crate) outputs: bool,
    /// True if tensors in host memory are measured like those on a device, for tests.
    #[serde(default)]
    pub(crate) as_on_device: bool,
}

/// Most threads that help with measuring: a recorded step must not occupy a whole large host.
const MAX_HELPERS: usize = 3;

impl Options {
    /// Returns the number of threads that may help with measuring: as many as the program leaves processors unused.
    pub(crate) fn helpers(&self) -> usize {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        (processors / self.processes.max(1)).saturating_sub(self.threads).min(MAX_HELPERS)
    }

    /// Content measured for each tensor.
    pub(crate) const fn content(&self) -> Content {
        match self.task {
            CaptureTask::Statistics => Content::STATISTICS,
            CaptureTask::Hash => Content::HASH,
            CaptureTask::Sketch | CaptureTask::Tensor => Content::SKETCH,
        }
    }

    /// Handling of an existing dump in the folder.
    pub(crate) const fn existing(&self) -> Existing {
        if self.overwrite { Existing::Replace } else { Existing::Keep }
    }

    /// Returns true if the data of every tensor is written.
    pub(crate) fn with_data(&self) -> bool {
        self.task == CaptureTask::Tensor
    }

    /// Returns true if ops of this pass are recorded.
    pub(crate) const fn has_phase(&self, phase: Phase) -> bool {
        match phase {
            Phase::Forward => self.forward,
            Phase::Backward => self.backward,
            Phase::ParameterGradient => self.gradients,
            Phase::None => true,
        }
    }
}

/// Combines the manifest of this format and version with Python's facts about the run.
pub(crate) fn full_manifest(run: &str) -> serde_json::Result<RunManifest> {
    let run: serde_json::Map<String, serde_json::Value> = serde_json::from_str(run)?;
    let mut manifest = serde_json::to_value(RunManifest::default())?;
    if let Some(keys) = manifest.as_object_mut() {
        keys.extend(run);
    }
    serde_json::from_value(manifest)
}
