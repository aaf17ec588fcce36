//! Turns any input on disk into a [`Dump`](probe_dump::Dump): format detection, and one reader per
//! format.
//!
//! Nothing read here is executed, and every size in a file is checked against the file itself before it is used.

pub mod archive;
pub mod cann;
mod collection;
mod copied;
mod detect;
mod mindspore;
pub mod msprobe;
mod native;
mod sglang;
pub mod tensor_file;
mod wire;

pub use copied::open_called;
pub use detect::open;
pub use msprobe::{FORMAT as MSPROBE, INDEX_NAMES};
pub use probe_dump::ReadError;

use probe_dump::PartKey;

/// Returns the error for a part that a dump does not have.
fn no_such_part(key: &PartKey) -> ReadError {
    ReadError::usage(&*key.label, "no such part in this dump")
}
