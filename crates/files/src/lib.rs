//! Files on disk, whatever is in them: bytes that are mapped or read under limits, copies of what lies elsewhere, files of settings, and
//! files that are written.

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
