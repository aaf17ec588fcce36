//! `probe config-check`.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;

use super::Exit;
use super::args::ConfigCheckArgs;
use super::output::{in_new_folder, to_print};
use super::program::{self, Order};
use super::terminal;
use crate::config_check::{ConfigOptions, check};
use crate::report::config::{ConfigFormat, ConfigReports, ConfigTextOptions, answer, model, render};

/// Folder of the reports, where none is given.
const OUTPUT: &str = "probe-config";

/// Reports that are written, where none are chosen.
const FORMATS: [ConfigFormat; 4] =
    [ConfigFormat::Text, ConfigFormat::Xlsx, ConfigFormat::Json, ConfigFormat::Html];

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
    let printable = [ConfigFormat::Text, ConfigFormat::Json];
    let printed = to_print(args.output.as_deref(), args.format.as_deref(), &printable, ConfigFormat::Json)?;
    let (outcome, written) = if printed.is_some() {
        (check(baseline, candidate, &options)?, Vec::new())
    } else {
        let folder = args.output.as_deref().unwrap_or(Path::new(OUTPUT));
        let formats = args.format.as_deref().unwrap_or(&FORMATS);
        in_new_folder(folder, || {
            let reports = ConfigReports::create(folder, formats)?;
            let outcome = check(baseline, candidate, &options)?;
            let written = reports.finish(&outcome)?;
            Ok((outcome, written))
        })?
    };
    terminal::print(&if printed == Some(ConfigFormat::Json) {
        String::from_utf8(model::json(&outcome)?)?
    } else if args.verbosity.quiet {
        format!("{}\n", answer(&outcome))
    } else {
        let layout =
            if args.verbosity.verbose { ConfigTextOptions::complete() } else { ConfigTextOptions::default() };
        let top = if args.verbosity.verbose { usize::MAX } else { args.top };
        render(&outcome, &ConfigTextOptions { colour: terminal::colour(), top, written, ..layout })
    })?;
    Ok(outcome.verdict.into())
}

/// Runs the program and packs its set-up. Returns only if the program could not be started.
fn collect(args: &ConfigCheckArgs) -> anyhow::Result<Exit> {
    let output = args.output.as_deref().filter(|path| path.extension().is_some_and(|kind| kind == "zip"));
    let output = output.context("--collect needs -o PACK.zip, the file that the pack is written to")?;
    let directory = std::env::current_dir().context("the working folder")?;
    let started = nanoseconds(SystemTime::now()).unwrap_or_default();
    let value = serde_json::json!({
        "output": output,
        "steps": args.steps.unwrap_or(1),
        "stop": args.stop,
        "files": args.from,
        // Ranks of one launch find one another by it.
        "run": format!("{:x}{:x}", std::process::id(), started),
        "directory": directory,
        // Tells a pack of this run from an older one.
        "before": std::fs::metadata(output).and_then(|old| old.modified()).ok().and_then(nanoseconds),
    });
    let order = Order { variable: "PROBE_CONFIG_CHECK", value: value.to_string(), stale: &["PROBE_CAPTURE"] };
    program::run(&args.command, &order, &[], || Ok(()))
}

/// Since 1970.
fn nanoseconds(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}
