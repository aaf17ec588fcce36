//! Shared parts of the integration tests.
#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub(crate) mod answer;
pub(crate) mod command;
pub(crate) mod dump_builder;
pub(crate) mod kernels;
pub(crate) mod native;
pub(crate) mod network;
pub(crate) mod pack_builder;
pub(crate) mod place;
pub(crate) mod runs;
pub(crate) mod three_ops;
pub(crate) mod zip_builder;

use std::path::PathBuf;

/// A path below `testdata`.
pub(crate) fn testdata(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(path)
}
