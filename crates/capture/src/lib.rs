//! Core of the recorder, without Python: receives the record of each op and writes a dump in probe's own format.
//!
//! ```text
//! DumpWriter  one process of a run: manifest, steps
//!   step      one step: batches of ops go into journals, data into shards
//!   finish    converts the journals of a finished step to tables, on a separate thread
//! CannFiles   dumps of the CANN runtime, which arrive in chunks
//! ```
//!
//! Guarantees: files are only appended to and get their final names once complete, so a killed process leaves every finished
//! step complete and the current one readable up to its last batch. Nothing here panics; every failure is a
//! [`CaptureError`], after which the writer accepts nothing more and waits for [`DumpWriter::abandon`].
//!
//! Nothing is forced to disk (no `fsync`): data written by a killed process is safe with the operating system, and a
//! recorder must not make training wait for a disk. After a power loss the last seconds may be missing or torn, and
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
