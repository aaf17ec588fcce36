//! `probe capture`: runs the user's program with the recorder in it.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value, json};

use super::Exit;
use super::args::CaptureArgs;
use super::program::{self, Order};

/// Runs the subcommand. Returns only if the program could not be started.
pub(super) fn run(args: &CaptureArgs) -> anyhow::Result<Exit> {
    let order = Order {
        variable: "PROBE_CAPTURE",
        value: settings(args)?.to_string(),
        // Who records already, and what is packed: of a command that this one runs inside of.
        stale: &["PROBE_CAPTURE_OWNER", "PROBE_CONFIG_CHECK"],
    };
    program::run(&args.command, &order)
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
    set("ranks", args.ranks.clone().map(Value::from));
    set("level", args.level.clone().map(Value::from));
    set("task", args.task.clone().map(Value::from));
    set("max_bytes", args.max_bytes.clone().map(Value::from));
    set("include", Some(&args.include).filter(|names| !names.is_empty()).map(|names| json!(names)));
    set("exclude", Some(&args.exclude).filter(|names| !names.is_empty()).map(|names| json!(names)));
    let config = match &args.config {
        Some(path) => {
            fs::metadata(path).with_context(|| path.display().to_string())?;
            Some(text(&std::path::absolute(path)?)?)
        }
        None => None,
    };
    let directory = text(&env::current_dir().context("the working folder")?)?;
    Ok(json!({ "config": config, "arguments": settings, "directory": directory }))
}
