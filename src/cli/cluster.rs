//! `probe compare --ray`: the Python package drives the cluster, in an interpreter that replaces this process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::json;

use super::Exit;
use super::compare::{CompareArgs, OUTPUT};
use super::program::become_program;
use crate::report::Format;

/// The interpreter, if this command was started through the package.
pub(super) const PYTHON: &str = "PROBE_PYTHON";

/// Program for the interpreter. The working folder is not searched, since it may well contain something with the
/// package's name.
const PROGRAM: &str = "\
import sys
sys.path[:] = [entry for entry in sys.path if entry]
try:
    from probe.distributed import main
except ImportError as error:
    print(f'probe: --ray: {sys.executable} has no working package probe ({error}); install it with: pip install \"probe-precision[ray]\"', file=sys.stderr)
    sys.exit(2)
main(sys.argv[1])";

/// Hands the comparison over. Returns only if no interpreter could be started.
pub(super) fn run(address: &str, sides: [&PathBuf; 2], args: &CompareArgs) -> anyhow::Result<Exit> {
    let output = args.output.as_deref().unwrap_or(Path::new(OUTPUT));
    if output == Path::new("-") {
        bail!("--ray: needs a folder for its shards that all workers can see; give it with -o");
    }
    if args.format.as_ref().is_some_and(|formats| formats.contains(&Format::Parquet)) {
        bail!(
            "--format parquet: with --ray rows stay in the shards, a result.parquet in each; SQL reads them as one table"
        );
    }
    let order = json!({
        "baseline": text(sides[0])?,
        "candidate": text(sides[1])?,
        "output": text(output)?,
        "address": address,
        "where": args.ray_where,
        "cpus_per_task": args.threads,
        "formats": args.format.as_ref().map(|formats| formats.iter().map(|format| format.name()).collect::<Vec<_>>()),
        "top": args.top,
        "quiet": args.verbosity.quiet,
        "verbose": args.verbosity.verbose,
        "options": args.request,
    });
    let python = env::var_os(PYTHON).unwrap_or_else(|| OsString::from("python3"));
    let mut command = Command::new(&python);
    command.arg("-c").arg(PROGRAM).arg(order.to_string()).env_remove(PYTHON);
    become_program(command, OsStr::new(&python))
        .context("--ray needs Python and the package probe-precision[ray]")
}

/// Returns a path as text.
pub(super) fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{}: is not UTF-8", path.display()))
}
