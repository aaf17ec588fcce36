//! `probe plan`.

use anyhow::Context;

use super::Exit;
use super::args::PlanArgs;
use super::interrupt::leave_nothing_behind;
use super::terminal;
use crate::compare::CompareOptions;
use crate::judge::Rules;
use crate::pair::Mapping;
use crate::read::map::FileAccess;
use crate::report::number::counted;
use crate::shard::{PLAN, PlanOptions, plan};

/// Runs the subcommand.
pub(super) fn run(args: &PlanArgs) -> anyhow::Result<Exit> {
    let [baseline, candidate] = args.sides().context("two dumps are needed: BASELINE CANDIDATE")?;
    leave_nothing_behind(Vec::new())?;
    let numbers = |text: &Option<String>| text.as_deref().map(str::parse).transpose();
    let compare = CompareOptions {
        steps: numbers(&args.step)?.unwrap_or_default(),
        ranks: numbers(&args.rank)?.unwrap_or_default(),
        level: args.level,
        rules: args.tolerance.as_deref().map_or_else(|| Ok(Rules::default()), Rules::from_file)?,
        access: if args.no_mmap { FileAccess::Read } else { FileAccess::Map },
        any_task: args.unlike.any_task,
        any_level: args.unlike.any_level,
        rows: args.unlike.rows,
        mapping: args.mapping.as_deref().map_or_else(|| Ok(Mapping::default()), Mapping::from_file)?,
        noise: args.noise.clone(),
        reference: args.reference.clone(),
    };
    let options = PlanOptions {
        compare,
        steps: args.step.clone(),
        ranks: args.rank.clone(),
        tolerance: args.tolerance.clone(),
        mapping: args.mapping.clone(),
    };
    let made = plan(baseline, candidate, &args.output, &options)?;
    let path = args.output.join(PLAN);
    let text = if args.quiet {
        format!("{}\n", path.display())
    } else {
        format!(
            "{}: {} of {}, {}; up to {} can work on it\nnext: probe compare --plan {} --shard 1/{}, and so on, then probe merge {}\n",
            path.display(),
            counted(made.parts() as u64, "part"),
            counted(made.groups() as u64, "rank"),
            counted(made.bytes(), "byte"),
            counted(made.groups() as u64, "shard"),
            path.display(),
            made.groups().min(64),
            args.output.display()
        )
    };
    terminal::print(&text)?;
    Ok(Exit::Agree)
}
