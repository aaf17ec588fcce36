//! `probe inspect`: what a dump or a tensor file holds.

use anyhow::{Context, bail};
use globset::Glob;

use super::Exit;
use super::args::{InspectArgs, InspectFormat};
use super::nearest::nearest;
use super::terminal;
use crate::dump::Op;
use crate::inspect::{InspectOptions, Inspection, inspect};
use crate::report::inspection::{json, render};

/// Runs the subcommand.
pub(super) fn run(args: &InspectArgs) -> anyhow::Result<Exit> {
    let pattern = args.op.as_deref().map(|pattern| Glob::new(pattern).context("--op")).transpose()?;
    let options = InspectOptions {
        op: pattern.map(|pattern| pattern.compile_matcher()),
        tensor: args.tensor.clone(),
        steps: args.step.clone().unwrap_or_default(),
        ranks: args.rank.clone().unwrap_or_default(),
    };
    let found = inspect(&args.path, &options)?;
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

/// What to say where nothing is called as was asked for; `None` where everything was asked for.
fn missing(args: &InspectArgs, found: &Inspection) -> Option<String> {
    if let Some(name) = &args.tensor {
        let of_op = |op: &Op| {
            let name = op.name.to_string();
            let tensors = op.slots.iter().filter(|slot| slot.value.tensor().is_some());
            // The one value of an op of a collection goes by the name of the op.
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
            "a pattern matches whole names, as they are written, such as {:?}; try --op '*{}*'",
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

/// `core` as the name of `op` writes it.
fn spelt<'a>(op: &'a Op, core: &'a str) -> &'a str {
    let name = op.name.as_str();
    let at = name.to_lowercase().find(&core.to_lowercase());
    at.and_then(|at| name.get(at..at + core.len())).unwrap_or(core)
}
