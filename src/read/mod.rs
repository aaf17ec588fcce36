//! Anything on disk becomes a [`Dump`](crate::dump::Dump): detection, and one reader a format.
//!
//! Nothing read here is executed, and no size in a file is believed before it is checked against the file itself.

mod collection;
mod error;
pub mod limits;
pub mod map;
pub mod tensor_file;

pub use error::ReadError;
