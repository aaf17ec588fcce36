//! `probe config-check`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;

use super::args::config_format;
use super::output::{in_new_folder, to_print};
use super::program::{self, Order};
use super::scratch::Scratch;
use super::{Exit, terminal};
use crate::config_check::{ConfigOptions, check};
use crate::report::config::{ConfigFormat, ConfigReports, ConfigTextOptions, answer, model, render};
use crate::store::{Address, Stores};

/// Check whether two training set-ups can be compared: environment, packages, flags, seeds, data, weights and more
///
/// BASELINE and CANDIDATE are configuration packs (.zip), as `probe.config_check.pack` writes them; packs of msprobe are read too.
///
/// Exit codes: 0 agree, 1 something differs that can change numerics, 2 failed or misused, 3 something could not be read.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  probe config-check gpu.zip npu.zip
  probe config-check gpu.zip npu.zip --strict --format json | jq .verdict
  probe config-check --collect -o gpu.zip -- python train.py"
)]
pub(super) struct ConfigCheckArgs {
    /// The pack of the trusted run (usually on a GPU), and that of the run under test (usually on an NPU).
    #[arg(num_args = 2, required_unless_present_any = ["compare", "collect"], value_names = ["BASELINE", "CANDIDATE"])]
    packs: Vec<PathBuf>,

    /// Make a pack instead: run the program after `--`, observe its first steps, and write the pack to the file given with -o.
    #[arg(long, requires = "command", conflicts_with_all = ["packs", "compare", "rules", "strict"])]
    pub(super) collect: bool,

    /// With --collect: number of steps to observe [default: 1].
    #[arg(long, requires = "collect", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) steps: Option<u32>,

    /// With --collect: end the program when the pack is written.
    #[arg(long, requires = "collect")]
    pub(super) stop: bool,

    /// With --collect: launch scripts and configuration files to take settings from.
    #[arg(long, requires = "collect", value_name = "FILE")]
    pub(super) from: Vec<PathBuf>,

    /// With --collect: the program and its arguments, after `--`.
    #[arg(last = true, requires = "collect", value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,

    /// The two packs, in the syntax of msprobe.
    #[arg(short, long, num_args = 2, hide = true, conflicts_with = "packs", value_names = ["BASELINE", "CANDIDATE"])]
    compare: Vec<PathBuf>,

    /// Folder for the reports, created if missing; `-` prints one report instead of writing files [default: probe-config].
    #[arg(short, long, alias = "output_path", value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    /// TOML file of expectations, which override probe's own.
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,

    /// Count unknown values (not recorded, or recorded on one side only) as differences.
    #[arg(long)]
    pub(super) strict: bool,

    /// Comma-separated report formats [default: text,xlsx,json,html]; `json` alone, without -o, is printed.
    #[arg(long, value_delimiter = ',', value_parser = config_format(), value_name = "FORMATS")]
    pub(super) format: Option<Vec<ConfigFormat>>,

    /// Maximum number of differences per part to list in the terminal.
    #[arg(long, default_value_t = 10)]
    pub(super) top: usize,

    #[command(flatten)]
    pub(super) scratch: Scratch,

    #[command(flatten)]
    pub(super) verbosity: ConfigVerbosity,
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct ConfigVerbosity {
    /// Print the answer only.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// List every row of every part, including those that agree.
    #[arg(short, long)]
    pub(super) verbose: bool,
}

impl ConfigCheckArgs {
    /// Returns the two packs.
    pub(super) fn packs(&self) -> Option<[&PathBuf; 2]> {
        match if self.compare.is_empty() { &*self.packs } else { &*self.compare } {
            [baseline, candidate] => Some([baseline, candidate]),
            _ => None,
        }
    }
}

/// Default folder of the reports.
const OUTPUT: &str = "probe-config";

/// Default reports.
const FORMATS: [ConfigFormat; 4] =
    [ConfigFormat::Text, ConfigFormat::Xlsx, ConfigFormat::Json, ConfigFormat::Html];

/// Runs the subcommand.
pub(super) fn run(args: &ConfigCheckArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    if args.collect {
        return collect(args);
    }
    let [baseline, candidate] = args.packs().context("two packs are needed: BASELINE CANDIDATE")?;
    // Detect certain failures before anything is created.
    for (side, path) in [("baseline", baseline), ("candidate", candidate)] {
        if let Address::Local(place) = Address::parse(path)? {
            std::fs::metadata(place).with_context(|| format!("{} (the {side})", path.display()))?;
        }
    }
    let mut stage = args.scratch.stage(stores, args.verbosity.quiet)?;
    let folder = stage.output(args.output.as_deref().unwrap_or(Path::new(OUTPUT)))?;
    let (baseline, candidate) = (stage.file(baseline)?, stage.file(candidate)?);
    let rules = args.rules.as_deref().map(|rules| stage.file(rules)).transpose()?;
    let options = ConfigOptions { rules, strict: args.strict, copies: stage.copies().clone() };
    let printable = [ConfigFormat::Text, ConfigFormat::Json];
    let printed = to_print(args.output.as_deref(), args.format.as_deref(), &printable, ConfigFormat::Json)?;
    let (outcome, written) = if printed.is_some() {
        (check(&baseline, &candidate, &options)?, Vec::new())
    } else {
        let place = options.copies.place(&folder);
        let formats = args.format.as_deref().unwrap_or(&FORMATS);
        in_new_folder(&place, || {
            let reports = ConfigReports::create(&place, formats)?;
            let outcome = check(&baseline, &candidate, &options)?;
            let written = reports.finish(&outcome)?;
            Ok((outcome, stage.deliver(&written)?))
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
    let output = output.context("--collect needs -o PACK.zip, the file to write the pack to")?;
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
        // Distinguishes a pack of this run from an older one.
        "before": std::fs::metadata(output).and_then(|old| old.modified()).ok().and_then(nanoseconds),
    });
    let order = Order { variable: "PROBE_CONFIG_CHECK", value: value.to_string(), stale: &["PROBE_CAPTURE"] };
    program::run(&args.command, &order, &[], || Ok(()))
}

/// Returns nanoseconds since 1970.
fn nanoseconds(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}
