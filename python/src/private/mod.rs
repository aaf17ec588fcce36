//! The private side of torch and of the interpreter, in one place: memory that is read directly, and functions that
//! are looked up by name. The Python half is `python/probe/private`, with the table of versions on which all of this
//! was tried.
//!
//! Everything here is a quick alternative to slower attributes, which remain the fallback: if a name is missing, if
//! words are not found or disagree with the attributes, and if [`are_quick_ways_taken`] returns false.

mod frame;
mod interior;
mod shim;
mod symbols;

use pyo3::prelude::*;

pub(crate) use frame::Frames;
pub(crate) use interior::{Inside, Interior};
pub(crate) use shim::{Layout, Shim};
pub(crate) use symbols::Library;

/// Returns true if quick ways may be used: not with `PROBE_SAFE=1`, nor with a version of torch on which they were
/// not tried. See `probe.private.safe`.
pub(crate) fn are_quick_ways_taken(py: Python<'_>) -> bool {
    let reason =
        py.import("probe.private").and_then(|private| private.call_method0("safe")?.extract::<String>());
    reason.is_ok_and(|reason| reason.is_empty())
}
