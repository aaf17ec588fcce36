//! The private side of torch and of the interpreter: what is read in memory or called by a name that is looked up, in one place. The
//! Python half is `python/probe/private`, with the table of versions on which all of this was tried.
//!
//! Everything here is a quick way to what attributes say more slowly, and has that slow way beside it: where a name is missing, where
//! words are not found or say something else than the attributes, and where [`are_quick_ways_taken`] says no.

mod frame;
mod interior;
mod shim;
mod symbols;

use pyo3::prelude::*;

pub(crate) use frame::Frames;
pub(crate) use interior::{Inside, Interior};
pub(crate) use shim::{Layout, Shim};
pub(crate) use symbols::Library;

/// Whether quick ways may be taken: not with `PROBE_SAFE=1`, nor with a version of torch on which they were not tried. See
/// `probe.private.safe`.
pub(crate) fn are_quick_ways_taken(py: Python<'_>) -> bool {
    let reason =
        py.import("probe.private").and_then(|private| private.call_method0("safe")?.extract::<String>());
    reason.is_ok_and(|reason| reason.is_empty())
}
