//! Files on disk, regardless of content: bytes mapped or read within limits, copies of remote files, settings files, files being
//! written, and seals of tables.

mod copies;
mod draft;
mod error;
mod guard;
pub mod late;
pub mod limits;
pub mod map;
pub mod seal;
pub mod settings;

pub use copies::Copies;
pub use draft::{Discarded, Draft, discard_drafts};
pub use error::ReportError;
pub use guard::guarded;
