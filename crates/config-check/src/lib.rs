//! Checks whether two training runs are comparable by comparing their configuration packs.
//!
//! A pack is read whole, into memory, and without its secrets ([`pack`]). Each part is checked independently (`checks`);
//! the meaning of a difference is looked up in a table ([`expectations`]). A failed check produces a row and never stops
//! the others.

mod checks;
mod error;
pub mod expectations;
mod outcome;
pub mod pack;
mod pair;
mod part;
mod pip_name;
mod value;
mod vote;
mod wildcard;

use std::path::{Path, PathBuf};
use std::time::Instant;

pub use error::ConfigError;
pub use expectations::Expectations;
pub use outcome::{CheckVerdict, Outcome, PackInfo, PartOutcome, Row, Unreadable};
pub use pair::DevicePair;
pub use part::{Part, Verdict};

use checks::Context;
use pack::Pack;
use probe_files::Copies;

/// Options of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigOptions {
    /// The user's table of expectations, consulted before the one shipped with probe.
    pub rules: Option<PathBuf>,
    /// True if [`Verdict::Unknown`] counts as a difference.
    pub strict: bool,
    /// Locations of packs and rules that are read from a copy.
    pub copies: Copies,
}

/// Compares the pack at `candidate` with the one at `baseline`.
///
/// # Errors
/// [`ConfigError`] when a pack cannot be opened at all, the rules are wrong, or the packs share no part.
pub fn check(baseline: &Path, candidate: &Path, options: &ConfigOptions) -> Result<Outcome, ConfigError> {
    let start = Instant::now();
    let copies = &options.copies;
    let rules = options.rules.as_deref().map(|rules| copies.place(rules));
    let expectations = Expectations::load(rules.as_deref()).map_err(|error| error.called(copies))?;
    let baseline = pack::open_copy(baseline, copies, &expectations)?;
    let candidate = pack::open_copy(candidate, copies, &expectations)?;
    let mut outcome = check_packs(&baseline, &candidate, &expectations, options.strict)?;
    outcome.seconds = start.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Compares two opened packs.
///
/// # Errors
/// [`ConfigError::Nothing`] when they share no part.
pub fn check_packs(
    baseline: &Pack,
    candidate: &Pack,
    expectations: &Expectations,
    strict: bool,
) -> Result<Outcome, ConfigError> {
    let start = Instant::now();
    let unread = |pack: &Pack, part| pack.faults.iter().any(|fault| fault.part == part);
    let shared = |part: &Part| {
        let there = |pack: &Pack| pack.has(*part) || unread(pack, *part);
        *part != Part::Coverage && there(baseline) && there(candidate)
    };
    if !Part::ALL.iter().any(shared) {
        return Err(ConfigError::Nothing {
            baseline: baseline.path.clone(),
            baseline_parts: list(baseline),
            candidate: candidate.path.clone(),
            candidate_parts: list(candidate),
        });
    }
    let pair = vote::devices(baseline, candidate, expectations);
    let context = Context { baseline, candidate, expectations, pair };
    let parts: Vec<PartOutcome> = Part::ALL.iter().map(|part| checks::run(*part, &context)).collect();
    let incomplete: Vec<Unreadable> = [baseline, candidate]
        .into_iter()
        .flat_map(|pack| {
            let path = pack.path.display().to_string();
            pack.faults.iter().map(move |fault| Unreadable {
                place: format!("{path}: {}", fault.member),
                reason: fault.reason.clone(),
            })
        })
        .collect();
    let worst = parts.iter().map(|part| part.verdict).max().unwrap_or(Verdict::Unknown);
    let verdict = if !incomplete.is_empty() {
        CheckVerdict::Incomplete
    } else if worst == Verdict::Diff || (strict && worst == Verdict::Unknown) {
        CheckVerdict::Diff
    } else {
        CheckVerdict::Match
    };
    Ok(Outcome {
        verdict,
        pair,
        parts,
        incomplete,
        baseline: PackInfo::of(baseline, pair.baseline),
        candidate: PackInfo::of(candidate, pair.candidate),
        strict,
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn list(pack: &Pack) -> String {
    let names: Vec<&str> = pack.parts().into_iter().map(Part::name).collect();
    if names.is_empty() { "no part".into() } else { names.join(", ") }
}
