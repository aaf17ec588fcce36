//! Confirms a comparison: the Python package replays the calls of both dumps, in an interpreter beside this process.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail};
use serde_json::json;

use super::package::{Worker, text};
use crate::dump::NumberSet;
use crate::judge::Replayed;

/// Requirements of a replay.
pub(super) const NEEDS: &str = "replaying calls needs Python with the packages probe-precision and torch";

const WORKER: Worker = Worker { module: "probe.replay.confirmation", needs: NEEDS };

/// The calls to replay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    /// The dumps: baseline and candidate.
    pub(super) sides: [&'a Path; 2],
    /// Steps; `None` for all.
    pub(super) steps: Option<&'a NumberSet>,
    /// Ranks; `None` for all.
    pub(super) ranks: Option<&'a NumberSet>,
}

impl Scope<'_> {
    /// Replays the calls, and returns what that showed. Standard error shows progress, unless `quiet`; why nothing can be replayed is in the
    /// error.
    pub(super) fn replay(self, quiet: bool) -> anyhow::Result<Replayed> {
        let ranges = |set: Option<&NumberSet>| -> Vec<(u64, u64)> {
            let ranges = set.into_iter().flat_map(NumberSet::ranges);
            ranges.map(|range| (*range.start(), *range.end())).collect()
        };
        let order = json!({
            "baseline": text(self.sides[0])?,
            "candidate": text(self.sides[1])?,
            "steps": ranges(self.steps),
            "ranks": ranges(self.ranks),
            "quiet": quiet,
        });
        let (mut command, python) = WORKER.command(&order);
        let shown = if quiet { Stdio::piped() } else { Stdio::inherit() };
        let done = command.stdin(Stdio::null()).stderr(shown).output();
        let done = done.with_context(|| format!("{}: {}", WORKER.needs, python.display()))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let last = said.trim_end().lines().next_back().unwrap_or("the reason is above");
            bail!("no call was replayed: {}", last.strip_prefix("error: ").unwrap_or(last));
        }
        let found = String::from_utf8(done.stdout).context("what Python printed is not UTF-8")?;
        Replayed::parse(&found).map_err(anyhow::Error::msg).context("what Python printed")
    }
}

/// Returns true if calls can be replayed here.
pub(super) fn is_possible() -> bool {
    WORKER.is_there()
}
