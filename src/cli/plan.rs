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
            "{}: {} parts of {} ranks, {} bytes; up to {} shards have something to do\nnext: probe compare --plan {} --shard 1/{}, and so on, then probe merge {}\n",
            path.display(),
            made.parts(),
            made.groups(),
            made.bytes(),
            made.groups(),
            path.display(),
            made.groups().min(64),
            args.output.display()
        )
    };
    terminal::print(&text)?;
    Ok(Exit::Agree)
}
