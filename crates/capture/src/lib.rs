//! The recorder's core, without Python: takes what was recorded of each op and writes it as a dump of probe's own format.
//!
//! ```text
//! DumpWriter  one process of a run: manifest, steps
//!   step      one step: batches of ops go into journals, data into shards
//!   finish    turns the journals of a finished step into tables, on a thread of its own
//! CannFiles   dumps of the CANN runtime, which arrive in pieces
//! ```
//!
//! Promises: files are only appended to and get their names when they are complete, so a process that is killed leaves every
//! finished step whole and the current one readable up to its last batch. Nothing here panics; every failure is a
//! [`CaptureError`], after which the writer takes nothing more and waits for [`DumpWriter::abandon`].
//!
//! Nothing is forced to the disk (no `fsync`): what a killed process has written is safe with the operating system, and a
//! recorder must not make training wait for a disk. After a loss of power the last seconds may be missing or torn, and
//! readers say so.

mod batch;
mod cann;
pub mod convert;
mod error;
mod finish;
mod folder;
mod journal;
mod manifest;
mod record;
mod shard;
mod step;
mod writer;

#[cfg(test)]
mod tests;

pub use cann::{CannFiles, Fate, prepare_cann};
pub use error::CaptureError;
pub use folder::{Existing, prepare};
pub use record::{DataLocation, OpRecord, SlotRecord, SlotValue, TensorFacts};
pub(crate) use shard::Shards;
pub use writer::DumpWriter;

pub use probe_dump::native::{CaptureLevel, CaptureTask, Device, RunManifest, Software};
