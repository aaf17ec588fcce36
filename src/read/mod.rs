//! Anything on disk becomes a [`Dump`](crate::dump::Dump): detection, and one reader a format.
//!
//! Nothing read here is executed, and no size in a file is believed before it is checked against the file itself.

pub(crate) mod archive;
pub mod cann;
mod collection;
mod copied;
mod detect;
pub(crate) mod msprobe;
mod native;
pub mod tensor_file;

pub use crate::dump::ReadError;
pub use copied::open_called;
pub use detect::open;
pub(crate) use msprobe::FORMAT as MSPROBE;
pub(crate) use msprobe::INDEX_NAMES;
