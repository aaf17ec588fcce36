//! What to record, as the Python package hands it over.

use std::num::NonZero;
use std::thread;

use probe::capture::{CaptureTask, Existing};
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
    /// Whether call stacks are recorded.
    pub(crate) stacks: bool,
    overwrite: bool,
    /// Most bytes of data a step may write.
    pub(crate) max_bytes: u64,
    forward: bool,
    backward: bool,
    gradients: bool,
    /// Whether what ops are given is recorded.
    pub(crate) inputs: bool,
    /// Whether what ops produce is recorded.
    pub(crate) outputs: bool,
    /// Whether tensors in host memory are measured as those on a device are, for tests of that.
    #[serde(default)]
    pub(crate) as_on_device: bool,
}

/// Most threads that help to measure: a recorded step is not to fill a large host.
const MAX_HELPERS: usize = 3;

impl Options {
    /// Threads that may help to measure: as many as there are processors that the program leaves unused.
    pub(crate) fn helpers(&self) -> usize {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        (processors / self.processes.max(1)).saturating_sub(self.threads).min(MAX_HELPERS)
    }

    /// What is measured of each tensor.
    pub(crate) const fn content(&self) -> Content {
        match self.task {
            CaptureTask::Statistics => Content::STATISTICS,
            CaptureTask::Hash => Content::HASH,
            CaptureTask::Sketch | CaptureTask::Tensor => Content::SKETCH,
        }
    }

    /// What is done with a dump that the folder holds.
    pub(crate) const fn existing(&self) -> Existing {
        if self.overwrite { Existing::Replace } else { Existing::Keep }
    }

    /// Whether the data of every tensor is written.
    pub(crate) fn with_data(&self) -> bool {
        self.task == CaptureTask::Tensor
    }

    /// Whether ops of this pass are recorded.
    pub(crate) const fn has_phase(&self, phase: Phase) -> bool {
        match phase {
            Phase::Forward => self.forward,
            Phase::Backward => self.backward,
            Phase::ParameterGradient => self.gradients,
            Phase::None => true,
        }
    }
}
