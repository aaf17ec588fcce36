//! `probe compare --ray`: the Python package drives the cluster, in an interpreter that replaces this process.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::json;

use super::Exit;
use super::compare::{CompareArgs, OUTPUT};
use super::package::{Worker, text};
use super::program::become_program;
use crate::report::Format;

const WORKER: Worker =
    Worker { module: "probe.distributed", needs: "--ray needs Python with the package probe-precision[ray]" };

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
    let (command, python) = WORKER.command(&order);
    become_program(command, &python).context(WORKER.needs)
}
