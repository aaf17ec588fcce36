//! `probe peers`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::compare::pool;
use super::scratch::Scratch;
use super::{Exit, terminal};
use crate::dump::NumberSet;
use crate::files::map::FileAccess;
use crate::peers::{Birth, OddRank, PeerOptions, Peers, StepPeers, peers};
use crate::report::number::counted;
use crate::report::peers::json;
use crate::report::visible::visible;
use crate::store::{Selection, Stores};

/// Compare the ranks of one dump with each other: which ranks differ from their peers, and where a NaN first appears.
///
/// Weights, gradients after reduction and optimizer steps are the same on all replicas; which ranks are replicas is detected from the dump.
///
/// Exit codes: 0 the ranks agree, 1 a rank differs or produces a NaN, 2 failed or misused, 3 something could not be read.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  probe peers npu_dump
  probe peers npu_dump --step 120-130
  probe peers npu_dump --format json | jq .steps[].births")]
pub(super) struct PeersArgs {
    /// A dump of several ranks.
    #[arg(value_name = "DUMP")]
    pub(super) dump: PathBuf,

    /// Steps to compare, such as 3 or 0,10-12 [default: all].
    #[arg(long, value_name = "STEPS")]
    pub(super) step: Option<NumberSet>,

    /// Ranks to compare, such as 0 or 0-7 [default: all].
    #[arg(long, value_name = "RANKS")]
    pub(super) rank: Option<NumberSet>,

    /// Output format: `text`, or `json` for programs [default: text].
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_default_value = true)]
    #[arg(value_parser = ["text", "json"])]
    pub(super) format: String,

    /// Threads to use [default: one per processor].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub(super) no_mmap: bool,

    #[command(flatten)]
    pub(super) scratch: Scratch,
}

/// Most ranks listed per step.
const LISTED: usize = 10;

/// Runs the subcommand.
pub(super) fn run(args: &PeersArgs, stores: &dyn Stores) -> anyhow::Result<Exit> {
    let mut stage = args.scratch.stage(stores, false)?;
    let selection = Selection::of(args.step.as_ref(), args.rank.as_ref());
    let dump = stage.dump(&args.dump, &selection)?;
    let options = PeerOptions {
        steps: selection.steps,
        ranks: selection.ranks,
        access: if args.no_mmap { FileAccess::Read } else { FileAccess::Map },
        copies: stage.copies().clone(),
    };
    let found = pool(args.threads)?.install(|| peers(&dump, &options));
    stage.sound()?;
    let found = found?;
    let printed = if args.format == "json" { json(&found)? } else { text(&found) };
    terminal::print(&printed)?;
    Ok(terminal::ended(&found.faults, found.agree()))
}

fn text(found: &Peers) -> String {
    let mut out = String::new();
    let replicated: u64 = found.steps.iter().map(|step| step.replicated).sum();
    let verdict = if found.agree() { "the ranks agree" } else { "the ranks differ" };
    _ = writeln!(
        out,
        "{}: {verdict} ({}, {}, {} that several ranks hold)",
        visible(&found.path.display().to_string()),
        counted(found.ranks.len() as u64, "rank"),
        counted(found.steps.len() as u64, "step"),
        counted(replicated, "value")
    );
    for step in &found.steps {
        tell(&mut out, step);
    }
    if replicated == 0 {
        out.push_str("no value is held by more than one rank: weights, gradients after reduction and optimizer steps would be (level mix)\n");
    }
    out
}

fn tell(out: &mut String, step: &StepPeers) {
    let at = step.step;
    for OddRank { rank, or, values, first, .. } in step.odd.iter().take(LISTED) {
        let who = match or {
            Some(other) => format!("rank {rank} or {other} (cannot tell which): they differ"),
            None => format!("rank {rank} differs from its peers"),
        };
        _ = writeln!(out, "step {at}: {who} in {}, first {}", counted(*values, "value"), visible(first));
    }
    if step.odd.len() > LISTED {
        _ = writeln!(out, "step {at}: {} more ranks differ from their peers", step.odd.len() - LISTED);
    }
    for (number, Birth { rank, collectives, op, slot, nan, .. }) in
        step.births.iter().take(LISTED).enumerate()
    {
        let what = if *nan { "NaN" } else { "infinity" };
        let origin = if number == 0 && *nan { ", the origin" } else { "" };
        _ = writeln!(
            out,
            "step {at} rank {rank}: {} produces {what} from finite inputs in {slot}, after {}{origin}",
            visible(op),
            counted(*collectives as u64, "collective")
        );
    }
    if step.births.len() > LISTED {
        _ = writeln!(out, "step {at}: so do {} more ranks", step.births.len() - LISTED);
    }
    if let Some((_, through)) = step.received.first() {
        _ = writeln!(
            out,
            "step {at}: {} received it through {}",
            counted(step.received.len() as u64, "rank"),
            visible(through)
        );
    }
}
