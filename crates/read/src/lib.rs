//! Anything on disk becomes a [`Dump`](probe_dump::Dump): detection, and one reader a format.
//!
//! Nothing read here is executed, and no size in a file is believed before it is checked against the file itself.

pub mod archive;
pub mod cann;
mod collection;
mod copied;
mod detect;
pub mod msprobe;
mod native;
pub mod tensor_file;

pub use copied::open_called;
pub use detect::open;
pub use msprobe::{FORMAT as MSPROBE, INDEX_NAMES};
pub use probe_dump::ReadError;
