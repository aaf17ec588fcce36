//! `probe compare`.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Exit;
use super::args::CompareArgs;
use super::interrupt::leave_nothing_behind;
use super::output::{in_new_folder, to_print};
use super::progress::Bar;
use super::terminal;
use crate::compare::{CompareOptions, PartSink, Progress, Quiet, compare};
use crate::judge::Rules;
use crate::pair::Mapping;
use crate::read::map::FileAccess;
use crate::report::number::counted;
use crate::report::text::{TextOptions, answer, render};
use crate::report::{Extent, Format, ReportSet, json};
use crate::shard::{Shard, ShardOutcome, compare_shard};

/// Folder of the reports, where none is given.
const OUTPUT: &str = "probe-report";

/// Runs the subcommand.
pub(super) fn run(args: &CompareArgs) -> anyhow::Result<Exit> {
    if let (Some(plan), Some(shard)) = (&args.plan, args.shard) {
        return compare_one(plan, shard, args);
    }
    let sides = args.sides().context("two dumps are needed: BASELINE CANDIDATE")?;
    // What is certain to fail should fail before anything is created.
    let noise = args.noise.iter().map(|path| ("noise", path));
    let reference = args.reference.iter().map(|path| ("reference", path));
    for (side, path) in ["baseline", "candidate"].into_iter().zip(sides).chain(noise).chain(reference) {
        std::fs::metadata(path).with_context(|| format!("{} (the {side})", path.display()))?;
    }
    let printed = to_print(
        args.output.as_deref(),
        args.format.as_deref(),
        &[Format::Text, Format::Json],
        Format::Json,
    )?;
    let options = CompareOptions {
        steps: args.step.clone().unwrap_or_default(),
        ranks: args.rank.clone().unwrap_or_default(),
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
    let pool = pool(args.threads)?;
    let compared = |sink: &mut PartSink<'_>| {
        let bar = (!args.verbosity.quiet).then(Bar::on_terminal).flatten();
        let progress: &dyn Progress = bar.as_ref().map_or(&Quiet, |bar| bar);
        compare(sides[0], sides[1], &options, progress, sink)
    };
    let (summary, written) = if printed.is_some() {
        (pool.install(|| compared(&mut |_| Ok(())))?, Vec::new())
    } else {
        let folder = args.output.as_deref().unwrap_or(Path::new(OUTPUT));
        let extent = if args.full { Extent::Full } else { Extent::Selection };
        in_new_folder(folder, || {
            let mut reports =
                ReportSet::create(folder, args.format.as_deref().unwrap_or(&Format::USUAL), extent)?;
            pool.install(|| {
                let summary = compared(&mut |part| reports.part(part))?;
                let written = reports.finish(&summary)?;
                Ok((summary, written))
            })
        })?
    };
    terminal::print(&if printed == Some(Format::Json) {
        json::text(&summary)?
    } else if args.verbosity.quiet {
        format!("{}\n", answer(&summary))
    } else {
        render(&summary, &layout(args, written))
    })?;
    Ok(summary.verdict.into())
}

/// Compares a shard of a plan. That ops are at fault in it is nothing to fail for: the merge tells.
fn compare_one(plan: &Path, shard: Shard, args: &CompareArgs) -> anyhow::Result<Exit> {
    leave_nothing_behind(Vec::new())?;
    let bar = (!args.verbosity.quiet).then(Bar::on_terminal).flatten();
    let progress: &dyn Progress = bar.as_ref().map_or(&Quiet, |bar| bar);
    let done = pool(args.threads)?.install(|| compare_shard(plan, shard, progress))?;
    drop(bar);
    let ShardOutcome { folder, parts, was_done, not_compared, first } = done;
    let what = if was_done { "was done before" } else { "done" };
    let first = first.map_or_else(String::new, |first| format!("; its first op at fault: {first}"));
    if !args.verbosity.quiet {
        let parts = counted(parts as u64, "part");
        terminal::print(&format!("shard {shard}: {what}, {parts}, {}{first}\n", folder.display()))?;
    }
    if not_compared > 0 {
        let places = counted(not_compared as u64, "place");
        terminal::error(&anyhow::anyhow!("{places} could not be compared; `probe merge` lists them"));
    }
    Ok(Exit::Agree)
}

/// Threads to compare with: as many as were asked for, one for each processor by default.
pub(super) fn pool(threads: Option<u16>) -> anyhow::Result<rayon::ThreadPool> {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads.map_or(0, usize::from));
    builder.build().context("cannot start threads")
}

fn layout(args: &CompareArgs, written: Vec<PathBuf>) -> TextOptions {
    let all = args.verbosity.verbose.then_some(usize::MAX);
    let defaults = TextOptions::default();
    TextOptions {
        colour: terminal::colour(),
        width: terminal::width().unwrap_or(defaults.width),
        top: all.unwrap_or(args.top),
        incomplete: all.unwrap_or(defaults.incomplete),
        written,
    }
}
