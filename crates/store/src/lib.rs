//! Object stores: data named by a URL is copied into a scratch folder before it is read, and output written there is uploaded to the
//! store.
//!
//! ```text
//! address   parses an argument: a path, file://, or scheme, bucket and key
//! bucket    interface of a store; the implementation is passed in, so that this crate has no network code
//! choose    selects the objects of a listing that steps and ranks need
//! fetch     copies objects into files, several at a time, each checked against the listing
//! late      objects of which only the bytes that are read are copied
//! spans     sets of bytes of an object
//! scratch   the folder of the copies, and its budget of bytes
//! stage     the above for a command: names in, names out
//! ```
//!
//! Nothing that a server says is trusted: a size counts against the budget before a byte is read, an answer must be for the listed object, and a
//! listing is made twice. Bytes that were not fetched are never read; the first error ends the command.

mod address;
mod bucket;
mod choose;
mod error;
mod fetch;
mod late;
mod scheme;
mod scratch;
mod spans;
mod stage;

pub use address::{Address, Remote};
pub use bucket::{Answer, Bucket, Fault, NoStores, Object, Stores};
pub use choose::Selection;
pub use error::StoreError;
pub use scheme::Scheme;
pub use scratch::{SCRATCH_BYTES, discard_scratch};
pub use stage::{Stage, StageOptions};
