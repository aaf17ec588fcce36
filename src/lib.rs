//! `probe` finds the operator where two training runs part ways, and says why.
//!
//! Data flows one way:
//!
//! ```text
//! files -> read -> pair -> measure -> judge -> report -> files, terminal
//!           \_________ all speak of a `dump` _________/
//! ```

#[cfg(feature = "native")]
pub mod capture;
#[cfg(feature = "cli")]
pub mod cli;
pub mod compare;
pub mod config_check;
#[cfg(feature = "native")]
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
#[cfg(feature = "parquet")]
pub mod shard;
#[cfg(feature = "native")]
pub mod store;
