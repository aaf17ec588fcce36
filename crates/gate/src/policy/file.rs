//! The keys of a policy.

use std::path::PathBuf;

use serde::Deserialize;

use super::{
    Budget, Date, Effect, EnvironmentRules, Mode, Pattern, Policy, Require, ScalarRule, Waiver, Worse,
    everything,
};
use probe_dump::NumberSet;
use probe_judge::{RuleEntry, Rules};

/// Version of the schema.
const VERSION: u32 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default)]
    mode: Mode,
    baseline: Option<PathBuf>,
    #[serde(default)]
    on_drift: Effect,
    #[serde(default)]
    on_flaky: Effect,
    #[serde(default)]
    require: RequireEntry,
    #[serde(default)]
    environment: EnvironmentEntry,
    #[serde(default)]
    scalar: Vec<ScalarEntry>,
    #[serde(default)]
    value: Vec<RuleEntry>,
    #[serde(default)]
    budget: BudgetEntry,
    #[serde(default)]
    waive: Vec<WaiveEntry>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RequireEntry {
    steps: Option<String>,
    ranks: Option<String>,
    min_pairs: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct EnvironmentEntry {
    #[serde(default)]
    same: Vec<String>,
    report: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScalarEntry {
    name: String,
    #[serde(default)]
    exact: bool,
    #[serde(default)]
    ignore: bool,
    rtol: Option<f64>,
    atol: Option<f64>,
    ulp: Option<u64>,
    bias: Option<f64>,
    worse: Option<Worse>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct BudgetEntry {
    introduces: Option<u64>,
    amplifies: Option<u64>,
    unpaired: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaiveEntry {
    pattern: String,
    until: toml::value::Datetime,
    reason: String,
    issue: Option<String>,
}

pub(super) fn parse(text: &str, today: Date) -> Result<Policy, String> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line =
            error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        format!("line {line}: {}", error.message().replace('\n', " "))
    })?;
    if file.version != VERSION {
        return Err(format!("version = {}: this program knows version {VERSION}", file.version));
    }
    let scalars = numbered("scalar", file.scalar, ScalarEntry::validate)?;
    let waivers = numbered("waive", file.waive, |entry| entry.validate(today))?;
    let values = Rules::of(file.value).map_err(|message| message.replacen("rule", "value", 1))?.as_limits();
    let patterns = |names: &[String]| -> Result<Vec<Pattern>, String> {
        names
            .iter()
            .map(|name| Pattern::new(name))
            .collect::<Result<_, _>>()
            .map_err(|error| format!("environment: {error}"))
    };
    let defaults = Budget::default();
    Ok(Policy {
        path: None,
        mode: file.mode,
        baseline: file.baseline,
        on_drift: file.on_drift,
        on_flaky: file.on_flaky,
        require: file.require.validate()?,
        environment: EnvironmentRules {
            same: patterns(&file.environment.same)?,
            report: file.environment.report.as_deref().map_or_else(|| Ok(everything()), patterns)?,
        },
        scalars,
        values,
        budget: Budget {
            introduces: file.budget.introduces.unwrap_or(defaults.introduces),
            amplifies: file.budget.amplifies.unwrap_or(defaults.amplifies),
            unpaired: file.budget.unpaired,
        },
        waivers,
    })
}

/// Validates the entries of a list; an error names the position of its entry.
fn numbered<T, U>(
    name: &str,
    entries: Vec<T>,
    validate: impl Fn(T) -> Result<U, String>,
) -> Result<Vec<U>, String> {
    let one = |(index, entry)| validate(entry).map_err(|error| format!("[[{name}]] {}: {error}", index + 1));
    entries.into_iter().enumerate().map(one).collect()
}

impl RequireEntry {
    fn validate(self) -> Result<Require, String> {
        let set = |name: &str, text: Option<String>| -> Result<Option<NumberSet>, String> {
            text.map(|text| text.parse().map_err(|error| format!("[require] {name}: {error}"))).transpose()
        };
        let min_pairs = self.min_pairs.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&min_pairs) {
            return Err(format!("[require] min_pairs = {min_pairs} is not a share from 0 to 1"));
        }
        Ok(Require { steps: set("steps", self.steps)?, ranks: set("ranks", self.ranks)?, min_pairs })
    }
}

impl ScalarEntry {
    fn validate(self) -> Result<ScalarRule, String> {
        let pattern = Pattern::new(&self.name)?;
        for (name, bound) in [("rtol", self.rtol), ("atol", self.atol), ("bias", self.bias)] {
            // An infinite bound passes everything, so it is not a bound.
            if let Some(bound) = bound.filter(|bound| !bound.is_finite() || *bound < 0.0) {
                return Err(format!("{name} = {bound} is not a bound"));
            }
        }
        let bounds =
            [self.rtol, self.atol, self.bias].iter().flatten().count() + usize::from(self.ulp.is_some());
        if self.ignore && (self.exact || bounds > 0) {
            return Err(format!("{:?}: ignore = true leaves nothing to bound", self.name));
        }
        if bounds == 0 && !self.exact && !self.ignore {
            return Err(format!(
                "{:?} has no bound; give exact, rtol, atol, ulp or bias, or ignore = true",
                self.name
            ));
        }
        let worse = self.worse.unwrap_or_default();
        if self.exact && worse != Worse::Both {
            return Err(format!("{:?}: exact has no side; leave out worse = {:?}", self.name, worse.name()));
        }
        Ok(ScalarRule {
            pattern,
            exact: self.exact,
            ignore: self.ignore,
            rtol: self.rtol,
            atol: self.atol,
            ulp: self.ulp,
            bias: self.bias,
            worse,
        })
    }
}

impl WaiveEntry {
    fn validate(self, today: Date) -> Result<Waiver, String> {
        let pattern = Pattern::new(&self.pattern)?;
        let until = self
            .until
            .date
            .and_then(|date| Date::new(date.year, date.month, date.day))
            .ok_or_else(|| format!("{:?}: until = {} is not a date", self.pattern, self.until))?;
        if self.reason.trim().is_empty() {
            return Err(format!("{:?} has no reason", self.pattern));
        }
        if until < today {
            return Err(format!(
                "{:?} has expired on {until} ({}); remove or renew it",
                self.pattern, self.reason
            ));
        }
        Ok(Waiver { pattern, until, reason: self.reason, issue: self.issue })
    }
}
