//! `probe` finds the operator where two training runs part ways, and says why.
//!
//! Data flows one way:
//!
//! ```text
//! files -> read -> pair -> measure -> judge -> report -> files, terminal
//!           \_________ all speak of a `dump` _________/
//! ```

pub mod capture;
pub mod cli;
pub mod compare;
pub mod config_check;
pub mod convert;
pub mod dump;
pub mod files;
pub mod gate;
pub mod inspect;
pub mod judge;
pub mod measure;
pub mod pair;
pub mod peers;
pub mod read;
pub mod report;
pub mod shard;
pub mod store;
