//! `probe compare --confirm`: the Python package replays the calls of both dumps, in an interpreter beside this process.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::json;

use super::cluster::{PYTHON, text};
use crate::compare::CompareRequest;
use crate::dump::NumberSet;
use crate::judge::Replayed;

/// Program for the interpreter. The working folder is not searched, since it may well contain something with the
/// package's name.
const PROGRAM: &str = "\
import sys
sys.path[:] = [entry for entry in sys.path if entry]
try:
    from probe.replay.confirmation import main
except ImportError as error:
    print(f'probe: --confirm: {sys.executable} cannot replay calls ({error}); it needs the packages probe-precision and torch', file=sys.stderr)
    sys.exit(2)
main(sys.argv[1])";

/// Replays the calls of both dumps, and returns what that showed.
pub(super) fn run(sides: [&Path; 2], request: &CompareRequest, quiet: bool) -> anyhow::Result<Replayed> {
    let ranges = |set: &Option<NumberSet>| -> Vec<(u64, u64)> {
        let ranges = set.iter().flat_map(NumberSet::ranges);
        ranges.map(|range| (*range.start(), *range.end())).collect()
    };
    let order = json!({
        "baseline": text(sides[0])?,
        "candidate": text(sides[1])?,
        "steps": ranges(&request.steps),
        "ranks": ranges(&request.ranks),
        "quiet": quiet,
    });
    let python = env::var_os(PYTHON).unwrap_or_else(|| OsString::from("python3"));
    let mut command = Command::new(&python);
    command.arg("-c").arg(PROGRAM).arg(order.to_string()).env_remove(PYTHON);
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().with_context(|| {
        format!("--confirm needs Python and the package probe-precision: {}", python.display())
    })?;
    if !done.status.success() {
        bail!("--confirm: no call was replayed; the reason is above");
    }
    let found = String::from_utf8(done.stdout).context("--confirm: what Python printed is not UTF-8")?;
    Replayed::parse(&found).map_err(anyhow::Error::msg).context("--confirm: what Python printed")
}
