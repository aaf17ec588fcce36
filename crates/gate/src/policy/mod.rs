//! `probe-gate.toml`: the requirements of a gate. The schema is closed, and nothing in it is evaluated.
//!
//! An unknown key, a pattern that matches nothing and an expired waiver are errors, not ignored: each ends the gate before it judges.

mod date;
mod file;
mod growth;
mod scalar;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use globset::{Glob, GlobMatcher};
use serde::Deserialize;

pub use date::Date;
pub use growth::{Growth, growth};
pub use scalar::{DEFAULT_RULE, ScalarRule, Worse, is_of_speed};

use super::GateError;
use probe_dump::NumberSet;
use probe_files::limits;
use probe_files::settings::{self, SettingsError};
use probe_judge::Rules;

/// Way in which the baseline was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// At another time, perhaps on another machine: a failure in a different environment is drift.
    #[default]
    Golden,
    /// On the same machine in the same job: nothing drifts.
    Paired,
}

impl Mode {
    /// Returns the word used in the policy and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Golden => "golden",
            Self::Paired => "paired",
        }
    }
}

/// Effect on the exit code of a finding that does not blame the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The gate fails: exit code 1.
    #[default]
    Fail,
    /// It is reported, and the exit code is 0.
    Neutral,
}

/// Data that must be present; otherwise the gate has proved nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Require {
    /// Steps that both sides must have; all steps of the baseline if `None`.
    pub steps: Option<NumberSet>,
    /// Ranks that both sides must have; all ranks of the baseline if `None`.
    pub ranks: Option<NumberSet>,
    /// Minimum share of the baseline's values that must be found in the candidate, from 0 to 1.
    pub min_pairs: f64,
}

impl Default for Require {
    fn default() -> Self {
        Self { steps: None, ranks: None, min_pairs: 1.0 }
    }
}

/// Settings of the environment, as patterns of their names.
#[derive(Debug, Clone)]
pub struct EnvironmentRules {
    /// Settings that must be the same; otherwise the runs are not comparable.
    pub same: Vec<Pattern>,
    /// Settings that turn a failure into drift if one of them differs; the others are ignored.
    pub report: Vec<Pattern>,
}

/// Numbers of ops that may be at fault without failing the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Ops whose results differ although their inputs agree.
    pub introduces: u64,
    /// Ops that make an error much larger.
    pub amplifies: u64,
    /// Unpaired ops; `None` allows any number, but their results are still judged.
    pub unpaired: Option<u64>,
}

/// A known fault that is allowed until a given day.
#[derive(Debug, Clone)]
pub struct Waiver {
    /// Names of ops, values or scalars.
    pub pattern: Pattern,
    /// The last day on which it is valid.
    pub until: Date,
    /// The reason.
    pub reason: String,
    /// Issue where it is tracked.
    pub issue: Option<String>,
}

impl Waiver {
    /// Returns true if it covers this name, or this value of an op.
    pub(super) fn covers(&self, name: &str, slot: &str) -> bool {
        self.pattern.matches(name) || (!slot.is_empty() && self.pattern.matches(&format!("{name}.{slot}")))
    }
}

/// A pattern of names, in which `*` matches anything.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    matcher: GlobMatcher,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A description of the error.
    pub fn new(text: &str) -> Result<Self, String> {
        let glob = Glob::new(text).map_err(|error| format!("pattern {text:?}: {}", error.kind()))?;
        Ok(Self { text: text.to_owned(), matcher: glob.compile_matcher() })
    }

    /// Returns the pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if the name matches. A name equal to the pattern's text always matches, because names of metrics may
    /// contain brackets.
    pub fn matches(&self, name: &str) -> bool {
        self.text == name || self.matcher.is_match(name)
    }
}

/// A policy.
#[derive(Debug, Clone)]
pub struct Policy {
    /// File it was read from; `None` for the default policy.
    pub path: Option<PathBuf>,
    /// Mode in which the baseline was made.
    pub mode: Mode,
    /// The baseline to use if the command line names none.
    pub baseline: Option<PathBuf>,
    /// Effect of drift.
    pub on_drift: Effect,
    /// Effect of a flaky result.
    pub on_flaky: Effect,
    /// Data that must be present.
    pub require: Require,
    /// Requirements on the environment.
    pub environment: EnvironmentRules,
    /// Rules for scalars; the first match wins. Without rules, all scalars must be equal, except measures of speed.
    pub scalars: Vec<ScalarRule>,
    /// Rules for values of ops, as in tolerance files; the first match wins.
    pub values: Rules,
    /// Ops that may be at fault.
    pub budget: Budget,
    /// Faults that are allowed.
    pub waivers: Vec<Waiver>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            path: None,
            mode: Mode::default(),
            baseline: None,
            on_drift: Effect::default(),
            on_flaky: Effect::default(),
            require: Require::default(),
            environment: EnvironmentRules { same: Vec::new(), report: everything() },
            scalars: Vec::new(),
            values: Rules::default(),
            budget: Budget::default(),
            waivers: Vec::new(),
        }
    }
}

fn everything() -> Vec<Pattern> {
    Pattern::new("*").into_iter().collect()
}

impl Policy {
    /// Reads a file; waivers are checked against the date `today`.
    ///
    /// # Errors
    /// [`GateError::Settings`] naming the file and the line or entry.
    pub fn from_file(path: &Path, today: Date) -> Result<Self, GateError> {
        let size = std::fs::metadata(path).map_or(0, |file| file.len());
        if size > limits::MAX_POLICY_BYTES {
            let message = format!("has {size} bytes, more than the limit of {}", limits::MAX_POLICY_BYTES);
            return Err(SettingsError::Format { path: path.into(), message }.into());
        }
        let mut policy = settings::load(path, |text| Self::parse(text, today))?;
        // The path is relative to the policy, wherever the gate is run.
        let folder = path.parent().unwrap_or(Path::new(""));
        policy.baseline = policy.baseline.map(|baseline| folder.join(baseline));
        policy.path = Some(path.to_path_buf());
        Ok(policy)
    }

    /// Reads a policy from TOML text.
    ///
    /// # Errors
    /// A one-line description of the error.
    pub fn parse(text: &str, today: Date) -> Result<Self, String> {
        file::parse(text, today)
    }

    /// Returns the rule for a scalar and its index among the rules. `None` if the policy names other scalars but not this one, and for
    /// measures of speed that it does not name.
    pub fn scalar(&self, name: &str) -> Option<(Option<usize>, &ScalarRule)> {
        let found = self.scalars.iter().enumerate().find(|(_, rule)| {
            rule.pattern.matches(name)
                // A catch-all pattern covers only results; gating speed must be explicit.
                && (!is_of_speed(name) || rule.pattern.text() != "*")
        });
        match found {
            Some((index, rule)) => Some((Some(index), rule)),
            None if self.scalars.is_empty() && !is_of_speed(name) => Some((None, &DEFAULT_RULE)),
            None => None,
        }
    }
}
