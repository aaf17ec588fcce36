//! Causes outside of the ops, found in the configuration packs beside two dumps.

use std::path::{Path, PathBuf};

use crate::config_check::{ConfigOptions, Part, PartOutcome, Verdict, check};
use crate::dump::native::root_of;
use crate::files::Copies;
use crate::judge::{Cause, Summary};
use crate::report::command::typed;

/// Maximum number of differences named; all are in the reports of `probe config-check`.
const NAMED: usize = 3;

/// Returns the path of the pack that `probe capture --pack` writes beside a dump.
pub(super) fn beside(dump: &Path) -> PathBuf {
    let root = root_of(dump);
    let mut name = root.file_name().unwrap_or_default().to_owned();
    name.push(".config.zip");
    root.with_file_name(name)
}

/// Returns a note on how the set-ups of the two runs differ, from the packs beside the dumps; without them, how to learn it.
/// `None` if the first divergence is one of an op.
pub(super) fn note(summary: &Summary, sides: [&Path; 2], copies: &Copies) -> Option<String> {
    let cause = summary.first_divergence.as_ref()?.cause;
    let first = parts_of(cause)?;
    let runs = [&summary.baseline, &summary.candidate];
    if !runs.iter().all(|run| run.format.ends_with(" dump")) {
        return None;
    }
    let packs = sides.map(beside);
    let [baseline, candidate] = packs.each_ref().map(|pack| typed(&pack.display().to_string()));
    if !packs.iter().all(|pack| copies.place(pack).is_file()) {
        return Some(
            "the set-ups of the two runs may tell why: record both with `probe capture --pack`, or `probe config-check GPU.zip NPU.zip`"
                .to_owned(),
        );
    }
    let command = format!("`probe config-check {baseline} {candidate}`");
    let options = ConfigOptions { copies: copies.clone(), ..ConfigOptions::default() };
    Some(match check(&packs[0], &packs[1], &options) {
        Ok(outcome) => match differences(&outcome.parts, first) {
            found if found.is_empty() => {
                format!("{command} finds no difference that can change numerics")
            }
            found => format!("{command}: {}", found.join("; ")),
        },
        Err(error) => format!("{command} failed: {error}"),
    })
}

/// Returns the parts of a pack that explain a cause best, in order; `None` if no pack can.
const fn parts_of(cause: Cause) -> Option<&'static [Part]> {
    match cause {
        Cause::Input => Some(&[Part::Weights, Part::Model, Part::Dataset, Part::Random]),
        Cause::Argument => Some(&[Part::Optimizer, Part::Model, Part::Flags, Part::Hyperparameters]),
        Cause::Optimizer => Some(&[Part::Optimizer, Part::Schedule, Part::Scaler]),
        _ => None,
    }
}

/// Describes what differs and can change numerics, that of the parts `first` before the rest.
fn differences(parts: &[PartOutcome], first: &[Part]) -> Vec<String> {
    let rank = |part: &PartOutcome| first.iter().position(|known| *known == part.part).unwrap_or(first.len());
    let mut parts: Vec<&PartOutcome> = parts.iter().collect();
    parts.sort_by_key(|part| rank(part));
    let rows = parts.iter().flat_map(|part| part.rows.iter().map(|row| (part.part, row)));
    let mut found: Vec<String> = rows
        .filter(|(_, row)| row.verdict == Verdict::Diff)
        .map(|(part, row)| {
            let [baseline, candidate] =
                [&row.baseline, &row.candidate].map(|value| value.as_deref().unwrap_or("nothing"));
            format!("{} {}: {baseline} against {candidate}", part.name(), row.key)
        })
        .collect();
    let more = found.len().saturating_sub(NAMED);
    found.truncate(NAMED);
    if more > 0 {
        found.push(format!("{more} more"));
    }
    found
}
