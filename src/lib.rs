//! `probe` finds the operator where two training runs diverge, and says why.
//!
//! This crate is the program, and re-exports the crates it consists of. Data flows one way, and no crate depends on a later one:
//!
//! ```text
//! files -> read -> pair -> measure -> judge -> report -> files, terminal
//!           \_________ all speak of a `dump` _________/
//! ```

pub mod cli;

pub use probe_capture as capture;
pub use probe_capture::convert;
pub use probe_compare as compare;
pub use probe_compare::{inspect, peers};
pub use probe_config_check as config_check;
pub use probe_dump as dump;
pub use probe_files as files;
pub use probe_gate as gate;
pub use probe_judge as judge;
pub use probe_measure as measure;
pub use probe_pair as pair;
pub use probe_read as read;
pub use probe_report as report;
pub use probe_rollout as rollout;
pub use probe_shard as shard;
pub use probe_store as store;
pub use probe_weights as weights;
