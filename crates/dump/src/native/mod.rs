//! probe's own dump format: its file names, the manifest, and the columns of its tables.
//!
//! This module is shared by the writer (`capture`) and the reader; it accesses neither files nor folders.
//! `docs/formats.md` describes the format for other programs.

pub mod columns;
mod layout;
mod manifest;

pub use layout::{
    JOURNAL, MANIFEST, NOISE_FOLDER, OPS, RUNTIME_FOLDER, STACKS, STACKS_JOURNAL, STOPPED, is_dump_file,
    numbered, rank_folder, root_of, shard_name, shard_part_name, step_folder,
};
#[cfg(feature = "schema")]
pub use manifest::manifest_schema;
pub use manifest::{CaptureLevel, CaptureTask, Device, FORMAT, FORMAT_VERSION, RunManifest, Software};
