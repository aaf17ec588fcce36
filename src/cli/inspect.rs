//! `probe inspect`: shows the content of a dump or a tensor file.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use globset::Glob;

use super::nearest::nearest;
use super::scratch::Scratch;
use super::{Exit, terminal};
use crate::dump::{NumberSet, Op};
use crate::inspect::{InspectOptions, Inspection, inspect};
use crate::report::inspection::{json, render};
use crate::store::{Selection, Stores};

/// Show the content of a dump or tensor file: ops, slots and statistics, or the values of one tensor.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe inspect gpu_dump --op 'Functional.gelu.*'
  probe inspect gpu_dump --tensor 'Functional.gelu.0.forward output.0'
  probe inspect model.safetensors --format json")]
pub(super) struct InspectArgs {
    /// Dump folder, dump.json, or tensor file.
    pub(super) path: PathBuf,

    /// Only ops whose name matches this pattern (`*` matches anything).
    #[arg(long, value_name = "PATTERN")]
    pub(super) op: Option<String>,

    /// Show values and histogram of one tensor: `OP SLOT` in one argument (`"Functional.gelu.0.forward output.0"`), or the name
    /// of a tensor in a file.
    #[arg(long, value_name = "NAME")]
    pub(super) tensor: Option<String>,

    /// Steps to show [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to show [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// Output format.
    #[arg(long, value_enum, default_value_t = InspectFormat::Text, value_name = "FORMAT")]
    pub(super) format: InspectFormat,

    #[command(flatten)]
    pub(super) scratch: Scratch,
}

/// Forms in which `inspect` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum InspectFormat {
    /// For people.
    Text,
    /// For programs; `schemas/inspection.schema.json` describes it.
    Json,
}

/// Runs the subcommand.
pub(super) fn run(args: &InspectArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    let pattern = args.op.as_deref().map(|pattern| Glob::new(pattern).context("--op")).transpose()?;
    let mut stage = args.scratch.stage(stores, false)?;
    let selection = Selection::of(args.step.as_ref(), args.rank.as_ref());
    let path = stage.dump(&args.path, &selection)?;
    let options = InspectOptions {
        op: pattern.map(|pattern| pattern.compile_matcher()),
        tensor: args.tensor.clone(),
        steps: selection.steps,
        ranks: selection.ranks,
        copies: stage.copies().clone(),
    };
    let found = inspect(&path, &options);
    stage.sound()?;
    let found = found?;
    let missing = found.is_empty().then(|| missing(args, &found)).flatten();
    if missing.is_none() {
        terminal::print(&match args.format {
            InspectFormat::Text => render(&found),
            InspectFormat::Json => json(&found)?,
        })?;
    }
    for fault in &found.faults {
        terminal::error(&anyhow::anyhow!("{fault}"));
    }
    if let Some(reason) = missing {
        bail!("{}: {reason}", args.path.display());
    }
    Ok(if found.faults.is_empty() { Exit::Agree } else { Exit::Incomplete })
}

/// Returns the message for a request that nothing matches; `None` if everything was requested.
fn missing(args: &InspectArgs, found: &Inspection) -> Option<String> {
    if let Some(name) = &args.tensor {
        let of_op = |op: &Op| {
            let name = op.name.to_string();
            let tensors = op.slots.iter().filter(|slot| slot.value.tensor().is_some());
            // The only value of a collection's op goes by the name of the op.
            tensors
                .map(
                    |slot| {
                        if &*slot.path == "value" { name.clone() } else { format!("{name} {}", slot.path) }
                    },
                )
                .collect::<Vec<_>>()
        };
        let hint = nearest(name, found.ops().flat_map(of_op))
            .map_or("`probe inspect PATH` lists what there is".to_owned(), |name| {
                format!("did you mean {name:?}?")
            });
        return Some(format!("no tensor {name:?}; {hint}"));
    }
    let pattern = args.op.as_deref()?;
    let core = pattern.trim_matches('*');
    let holds = |op: &Op| op.name.as_str().to_lowercase().contains(&core.to_lowercase());
    let hint = if let Some(op) = found.ops().find(|op| !core.is_empty() && holds(op)) {
        format!(
            "a pattern has to match the whole name, such as {:?}; try --op '*{}*'",
            op.name.as_str(),
            spelt(op, core)
        )
    } else {
        let names = found
            .ops()
            .flat_map(|op| [op.name.to_string(), op.name.stem().to_owned(), op.name.api().to_owned()]);
        match nearest(core, names) {
            Some(name) => format!("the nearest name is {name:?}; try --op '*{name}*'"),
            None => "`probe inspect PATH` lists what there is".to_owned(),
        }
    };
    Some(format!("no op matches --op {pattern:?}; {hint}"))
}

/// Returns `core` as spelt in the name of `op`.
fn spelt<'a>(op: &'a Op, core: &'a str) -> &'a str {
    let name = op.name.as_str();
    let at = name.to_lowercase().find(&core.to_lowercase());
    at.and_then(|at| name.get(at..at + core.len())).unwrap_or(core)
}
