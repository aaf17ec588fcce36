//! `probe capture`: runs the user's program with the recorder in it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::{Map, Value, json};

use super::Exit;
use super::args::CaptureArgs;
use super::program::{self, Order};
use crate::capture::{self, Existing};

/// Runs the subcommand. Returns only if the program could not be started.
pub(super) fn run(args: &CaptureArgs) -> anyhow::Result<Exit> {
    let order = Order {
        variable: "PROBE_CAPTURE",
        value: settings(args)?.to_string(),
        // Who records already, and what is packed: of a command that this one runs inside of.
        stale: &["PROBE_CAPTURE_OWNER", "PROBE_CONFIG_CHECK"],
    };
    program::run(&args.command, &order, || prepare(args))
}

/// Sees to it that there is room for the dump, before the program runs for nothing.
fn prepare(args: &CaptureArgs) -> anyhow::Result<()> {
    let (output, overwrite) = place(args)?;
    let existing = if args.overwrite || overwrite { Existing::Replace } else { Existing::Keep };
    Ok(capture::prepare(&output, existing, "--overwrite")?)
}

/// Folder of the dump, and whether the file of settings wants an old one replaced. A file that is no TOML is the package's to
/// complain about.
fn place(args: &CaptureArgs) -> anyhow::Result<(PathBuf, bool)> {
    let file = args.config.as_ref().and_then(|path| fs::read_to_string(path).ok());
    let file = file.and_then(|text| text.parse::<toml::Table>().ok()).unwrap_or_default();
    let written = file.get("output").and_then(toml::Value::as_str).map(PathBuf::from);
    let output = args.output.clone().or(written).unwrap_or_else(|| "probe_dump".into());
    let output = match (output.strip_prefix("~"), env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => output,
    };
    let overwrite = file.get("overwrite").and_then(toml::Value::as_bool).unwrap_or_default();
    Ok((std::path::absolute(output)?, overwrite))
}

/// Identity of this run, by which its ranks know one another.
fn run_identity() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_nanos(), std::process::id())
}

/// What was asked for, in the words of `probe.toml`.
fn settings(args: &CaptureArgs) -> anyhow::Result<Value> {
    let text = |path: &Path| {
        path.to_str().map(String::from).with_context(|| format!("{}: is not UTF-8", path.display()))
    };
    let mut settings = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            settings.insert(key.into(), value);
        }
    };
    set("output", args.output.as_deref().map(text).transpose()?.map(Value::from));
    set("steps", args.steps.clone().map(Value::from));
    set("step_on", args.step_on.clone().map(Value::from));
    set("ranks", args.ranks.clone().map(Value::from));
    set("level", args.level.clone().map(Value::from));
    set("task", args.task.clone().map(Value::from));
    set("max_bytes", args.max_bytes.clone().map(Value::from));
    set("perturb", args.perturb.map(Value::from));
    set("quiet", args.quiet.then_some(Value::from(true)));
    set("include", Some(&args.include).filter(|names| !names.is_empty()).map(|names| json!(names)));
    set("exclude", Some(&args.exclude).filter(|names| !names.is_empty()).map(|names| json!(names)));
    set("overwrite", args.overwrite.then(|| true.into()));
    let config = match &args.config {
        Some(path) => {
            fs::metadata(path).with_context(|| path.display().to_string())?;
            Some(text(&std::path::absolute(path)?)?)
        }
        None => None,
    };
    let directory = text(&env::current_dir().context("the working folder")?)?;
    Ok(json!({ "config": config, "arguments": settings, "directory": directory, "run": run_identity() }))
}
