//! Options of a comparison, shared by `compare` and `plan`.

use std::path::PathBuf;

use clap::Args;

use super::args::level;
use crate::compare::Asked;
use crate::dump::{LevelFilter, NumberSet};
use crate::store::Selection;

// Not a doc comment, which would become part of the help text.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub(super) struct Comparison {
    /// Kinds of op to compare: module calls, torch functions, dispatcher ops, or all.
    #[arg(short, long, default_value_t = LevelFilter::All, value_parser = level())]
    pub(super) level: LevelFilter,

    /// Steps to compare, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to compare, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// TOML file of tolerance rules: pattern and bounds, the first match wins.
    #[arg(long, value_name = "FILE")]
    pub(super) tolerance: Option<PathBuf>,

    /// Names that belong together: TOML, or msprobe's YAML of cells, data, APIs or layers.
    #[arg(long, aliases = ["cell_mapping", "data_mapping", "api_mapping", "layer_mapping"], value_name = "FILE")]
    pub(super) mapping: Option<PathBuf>,

    /// A second run of the baseline, or a file that `probe calibrate` wrote: differences of that size are not faults; may be
    /// given several times.
    #[arg(long, value_name = "DUMP")]
    pub(super) noise: Vec<PathBuf>,

    /// A run of the same program in float32 or float64: values as close to it as the baseline's are not at fault.
    #[arg(long, value_name = "DUMP")]
    pub(super) reference: Option<PathBuf>,

    /// Compare dumps of different tasks by what both recorded.
    #[arg(long)]
    pub(super) any_task: bool,

    /// Compare dumps of different levels by the kinds of op that both recorded.
    #[arg(long)]
    pub(super) any_level: bool,

    /// Compare batches of different size by the rows that both have: forward pass only, task tensor.
    #[arg(long)]
    pub(super) rows: bool,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,
}

impl Comparison {
    /// Returns the options as the library takes them.
    pub(super) fn asked(&self) -> Asked {
        Asked {
            steps: self.step.as_ref().map(ToString::to_string),
            ranks: self.rank.as_ref().map(ToString::to_string),
            level: Some(self.level.name().to_owned()),
            tolerance: self.tolerance.clone(),
            mapping: self.mapping.clone(),
            noise: self.noise.clone(),
            reference: self.reference.clone(),
            any_task: self.any_task,
            any_level: self.any_level,
            rows: self.rows,
            no_mmap: self.no_mmap,
        }
    }

    /// Returns the selection of the dumps that is needed.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            steps: self.step.clone().unwrap_or_default(),
            ranks: self.rank.clone().unwrap_or_default(),
            ..Selection::default()
        }
    }
}
