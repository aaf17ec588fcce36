//! Files on disk, regardless of content: bytes mapped or read within limits, copies of remote files, settings files, and files being
//! written.

mod copies;
mod draft;
mod error;
pub mod late;
pub mod limits;
pub mod map;
pub mod settings;

pub use copies::Copies;
pub use draft::{Discarded, Draft, discard_drafts};
pub use error::ReportError;
