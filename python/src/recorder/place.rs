//! Position of the program when an op begins: node of the backward pass, checkpointed region, call stack.

use pyo3::prelude::*;

use super::{Recorder, lock};
use crate::interrupt;
use crate::names::Region;
use crate::stack::{CheckpointFrame, LocatedCall};

/// The checkpointed region of the last call, cached to avoid a lookup for each call.
#[derive(Debug)]
pub(super) struct LastRegion {
    frame: Py<PyAny>,
    region: Region,
}

/// Position of the program when an op begins.
pub(super) struct Here<'py> {
    /// The running node of the backward pass, or Python's None.
    pub(super) node: Bound<'py, PyAny>,
    pub(super) found: Option<LocatedCall>,
    pub(super) region: Region,
    /// True if a checkpointed region is being recomputed.
    pub(super) recomputed: bool,
    /// True if the op belongs to the backward pass itself.
    pub(super) backward: bool,
}

impl Recorder {
    /// Returns the position of the program. None if nothing is recorded: in the backward of compiled code, in the
    /// recorder's own calls.
    pub(super) fn here<'py>(&self, py: Python<'py>) -> PyResult<Option<Here<'py>>> {
        let node = self.questions.autograd_node.bind(py).call0()?;
        if !node.is_none() && self.compiled.contain(&node)? {
            return Ok(None);
        }
        let found = self.found(py)?;
        if found.as_ref().is_some_and(|found| found.own) {
            return Ok(None);
        }
        let region = self.region(py, found.as_ref())?;
        let recomputed = matches!(region, Region::Recompute(_));
        let backward = !node.is_none() && !recomputed;
        Ok(Some(Here { node, found, region, recomputed, backward }))
    }

    pub(super) fn found(&self, py: Python<'_>) -> PyResult<Option<LocatedCall>> {
        lock(py, &self.stacks).here(py).map(Some)
    }

    pub(super) fn region(&self, py: Python<'_>, found: Option<&LocatedCall>) -> PyResult<Region> {
        let Some((kind, frame)) = found.and_then(|found| found.checkpoint.as_ref()) else {
            let mut last = lock(py, &self.last_region);
            if last.is_some() {
                *last = None;
            }
            return Ok(Region::None);
        };
        if let Some(last) = &*lock(py, &self.last_region)
            && last.frame.is(frame)
        {
            return Ok(last.region);
        }
        let identity: isize =
            interrupt::asked(py, || self.questions.region.bind(py).call1((frame,)))?.extract()?;
        let region = match kind {
            CheckpointFrame::Forward => Region::Forward(identity),
            CheckpointFrame::Recompute => Region::Recompute(identity),
            CheckpointFrame::Own | CheckpointFrame::Engine => Region::None,
        };
        *lock(py, &self.last_region) = Some(LastRegion { frame: frame.clone_ref(py), region });
        Ok(region)
    }

    /// Returns the number of a place in the writer.
    pub(super) fn stack(&self, py: Python<'_>, place: Option<usize>) -> Option<u32> {
        let place = place.filter(|_| self.options.stacks)?;
        if let Some(&number) = lock(py, &self.written_stacks).get(&place) {
            return Some(number);
        }
        let frames = lock(py, &self.stacks).frames(place)?;
        let number = self.tape.push_stack(py, &frames)?;
        lock(py, &self.written_stacks).insert(place, number);
        Some(number)
    }
}
