//! What to record, as the Python package hands it over.

use probe::capture::CaptureTask;
use probe::dump::{Content, Phase};
use serde::Deserialize;

/// Settings of a recording.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the user")]
pub(crate) struct Options {
    task: CaptureTask,
    /// Whether call stacks are recorded.
    pub(crate) stacks: bool,
    /// Most bytes of data a step may write.
    pub(crate) max_bytes: u64,
    forward: bool,
    backward: bool,
    gradients: bool,
    /// Whether what ops are given is recorded.
    pub(crate) inputs: bool,
    /// Whether what ops produce is recorded.
    pub(crate) outputs: bool,
}

impl Options {
    /// What is measured of each tensor.
    pub(crate) const fn content(&self) -> Content {
        match self.task {
            CaptureTask::Statistics => Content::STATISTICS,
            CaptureTask::Hash => Content::HASH,
            CaptureTask::Sketch | CaptureTask::Tensor => Content::SKETCH,
        }
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
