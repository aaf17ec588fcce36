//! `probe-gate.toml`: what a gate demands. A closed schema; nothing in it is evaluated.
//!
//! An unknown key, a pattern that matches nothing and a waiver that has expired are mistakes, not silence: each ends the gate before it judges.

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

/// How the baseline was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// At another time, perhaps elsewhere: a failure in another environment is drift.
    #[default]
    Golden,
    /// On the same machine in the same job: nothing drifts.
    Paired,
}

impl Mode {
    /// The word in the policy and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Golden => "golden",
            Self::Paired => "paired",
        }
    }
}

/// What a finding that does not blame the commit does to the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The gate fails: exit code 1.
    #[default]
    Fail,
    /// It is reported, and the exit code is 0.
    Neutral,
}

/// What has to be there; else the gate has proved nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Require {
    /// Steps that both sides must have; all of the baseline's where none are named.
    pub steps: Option<NumberSet>,
    /// Ranks that both sides must have; all of the baseline's where none are named.
    pub ranks: Option<NumberSet>,
    /// Least share of the baseline's values that must be found again, from 0 to 1.
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
    /// Must be the same: otherwise the runs are not comparable.
    pub same: Vec<Pattern>,
    /// Where one differs, a failure is called drift; the others are not looked at.
    pub report: Vec<Pattern>,
}

/// Ops that may be at fault without failing the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Ops whose results differ although their inputs agree.
    pub introduces: u64,
    /// Ops that make an error much larger.
    pub amplifies: u64,
    /// Ops without partner; `None` for any number, whose results are judged all the same.
    pub unpaired: Option<u64>,
}

/// A fault that is known and let pass until a day.
#[derive(Debug, Clone)]
pub struct Waiver {
    /// Names of ops, values or scalars.
    pub pattern: Pattern,
    /// The last day that it holds.
    pub until: Date,
    /// Why.
    pub reason: String,
    /// Where it is followed up.
    pub issue: Option<String>,
}

impl Waiver {
    /// Whether it is for this name, or this value of an op.
    pub(super) fn covers(&self, name: &str, slot: &str) -> bool {
        self.pattern.matches(name) || (!slot.is_empty() && self.pattern.matches(&format!("{name}.{slot}")))
    }
}

/// A pattern of names: `*` stands for anything.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    matcher: GlobMatcher,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        let glob = Glob::new(text).map_err(|error| format!("pattern {text:?}: {}", error.kind()))?;
        Ok(Self { text: text.to_owned(), matcher: glob.compile_matcher() })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a name is of the pattern. A name that is the pattern's own text always is: names of metrics may hold brackets.
    pub fn matches(&self, name: &str) -> bool {
        self.text == name || self.matcher.is_match(name)
    }
}

/// A policy.
#[derive(Debug, Clone)]
pub struct Policy {
    /// File it was read from; `None` for the default.
    pub path: Option<PathBuf>,
    /// How the baseline was made.
    pub mode: Mode,
    /// The baseline, where the command line names none.
    pub baseline: Option<PathBuf>,
    /// What drift does.
    pub on_drift: Effect,
    /// What a result that changes by itself does.
    pub on_flaky: Effect,
    /// What has to be there.
    pub require: Require,
    /// What is asked of the environment.
    pub environment: EnvironmentRules,
    /// Rules for scalars; the first that matches counts. Where there are none, all have to be equal, apart from measures of speed.
    pub scalars: Vec<ScalarRule>,
    /// Rules for values of ops, as in tolerance files; the first that matches counts.
    pub values: Rules,
    /// Ops that may be at fault.
    pub budget: Budget,
    /// Faults that are let pass.
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
    /// Reads a file; `today` is what waivers are held against.
    ///
    /// # Errors
    /// [`GateError::Settings`] that names the file and the line or the entry.
    pub fn from_file(path: &Path, today: Date) -> Result<Self, GateError> {
        let size = std::fs::metadata(path).map_or(0, |file| file.len());
        if size > limits::MAX_POLICY_BYTES {
            let message = format!("has {size} bytes, more than the limit of {}", limits::MAX_POLICY_BYTES);
            return Err(SettingsError::Format { path: path.into(), message }.into());
        }
        let mut policy = settings::load(path, |text| Self::parse(text, today))?;
        // Beside the policy, wherever the gate is called from.
        let folder = path.parent().unwrap_or(Path::new(""));
        policy.baseline = policy.baseline.map(|baseline| folder.join(baseline));
        policy.path = Some(path.to_path_buf());
        Ok(policy)
    }

    /// Reads a policy from TOML text.
    ///
    /// # Errors
    /// What is wrong, on one line.
    pub fn parse(text: &str, today: Date) -> Result<Self, String> {
        file::parse(text, today)
    }

    /// The rule for a scalar, and the place of that rule among them. `None` where the policy names other scalars and not this one, and for
    /// measures of speed that it does not name.
    pub fn scalar(&self, name: &str) -> Option<(Option<usize>, &ScalarRule)> {
        let found = self.scalars.iter().enumerate().find(|(_, rule)| {
            rule.pattern.matches(name)
                // A pattern for all is about results; who wants speed gated says so.
                && (!is_of_speed(name) || rule.pattern.text() != "*")
        });
        match found {
            Some((index, rule)) => Some((Some(index), rule)),
            None if self.scalars.is_empty() && !is_of_speed(name) => Some((None, &DEFAULT_RULE)),
            None => None,
        }
    }
}
