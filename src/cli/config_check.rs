//! `probe config-check`.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;

use super::Exit;
use super::args::ConfigCheckArgs;
use super::output::in_new_folder;
use super::program::{self, Order};
use super::terminal;
use crate::config_check::{ConfigOptions, check};
use crate::report::config::{ConfigReports, ConfigTextOptions, answer, render};

/// Runs the subcommand.
pub(super) fn run(args: &ConfigCheckArgs) -> anyhow::Result<Exit> {
    if args.collect {
        return collect(args);
    }
    let [baseline, candidate] = args.packs().context("two packs are needed: BASELINE CANDIDATE")?;
    // What is certain to fail should fail before anything is created.
    for (side, path) in [("baseline", baseline), ("candidate", candidate)] {
        std::fs::metadata(path).with_context(|| format!("{} (the {side})", path.display()))?;
    }
    let options = ConfigOptions { rules: args.rules.clone(), strict: args.strict };
    let (outcome, written) = in_new_folder(&args.output, || {
        let reports = ConfigReports::create(&args.output, &args.format)?;
        let outcome = check(baseline, candidate, &options)?;
        let written = reports.finish(&outcome)?;
        Ok((outcome, written))
    })?;
    if args.verbosity.quiet {
        terminal::print(&format!("{}\n", answer(&outcome)))?;
    } else {
        let layout =
            if args.verbosity.verbose { ConfigTextOptions::complete() } else { ConfigTextOptions::default() };
        let top = if args.verbosity.verbose { usize::MAX } else { args.top };
        let text = ConfigTextOptions { colour: terminal::colour(), top, written, ..layout };
        terminal::print(&render(&outcome, &text))?;
    }
    Ok(outcome.verdict.into())
}

/// Runs the program and packs its set-up. Returns only if the program could not be started.
fn collect(args: &ConfigCheckArgs) -> anyhow::Result<Exit> {
    // The default of the option is the folder of the check's reports.
    anyhow::ensure!(
        args.output.extension().is_some_and(|extension| extension == "zip"),
        "--collect needs -o PACK.zip, the file that the pack is written to"
    );
    let directory = std::env::current_dir().context("the working folder")?;
    let started = nanoseconds(SystemTime::now()).unwrap_or_default();
    let value = serde_json::json!({
        "output": args.output,
        "steps": args.steps.unwrap_or(1),
        "stop": args.stop,
        "files": args.from,
        // Ranks of one launch find one another by it.
        "run": format!("{:x}{:x}", std::process::id(), started),
        "directory": directory,
        // Tells a pack of this run from an older one.
        "before": std::fs::metadata(&args.output).and_then(|old| old.modified()).ok().and_then(nanoseconds),
    });
    let order = Order { variable: "PROBE_CONFIG_CHECK", value: value.to_string(), stale: &["PROBE_CAPTURE"] };
    program::run(&args.command, &order)
}

/// Since 1970.
fn nanoseconds(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}
