//! Copies of files in object stores.

use std::path::PathBuf;

use clap::Args;

use super::args::size;
use super::interrupt::leave_no_copies_behind;
use super::progress::ByteBar;
use crate::store::{Stage, StageOptions, Stores};

// Not a doc comment, which would become part of the help text.
#[derive(Debug, Clone, Args)]
pub(super) struct Scratch {
    /// Folder for copies from object stores [default: the system's folder for temporary files].
    #[arg(long, value_name = "DIR")]
    pub(super) scratch: Option<PathBuf>,

    /// Limit for these copies, such as 200GB [default: 64GiB].
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(super) scratch_bytes: Option<u64>,
}

impl Scratch {
    /// Returns the copies of this command, which are removed when it ends or is interrupted. A bar shows their progress,
    /// unless `quiet`.
    pub(super) fn stage<'a>(&self, stores: &'a dyn Stores, quiet: bool) -> anyhow::Result<Stage<'a>> {
        leave_no_copies_behind()?;
        let usual = StageOptions::default();
        let bytes = self.scratch_bytes.unwrap_or(usual.bytes);
        let stage = Stage::new(stores, StageOptions { scratch: self.scratch.clone(), bytes, ..usual });
        Ok(match (!quiet).then(ByteBar::on_terminal).flatten() {
            Some(bar) => stage.watched(move |done, total| bar.show(done, total)),
            None => stage,
        })
    }
}
