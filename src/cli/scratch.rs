//! Copies of what lies in object stores.

use std::path::PathBuf;

use clap::Args;

use super::args::size;
use super::interrupt::leave_no_copies_behind;
use super::progress::ByteBar;
use crate::store::{Stage, StageOptions, Stores};

// No text of the help, which a comment for documentation would become.
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
    /// The copies of this command, which go when it ends or is interrupted. A bar shows how far they are, unless `quiet`.
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
