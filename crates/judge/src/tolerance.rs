//! User rules, and fixed bounds by dtype for values that follow from nothing that was recorded.
//!
//! Most results are compared with floors and with what their inputs explain ([`excess`](super::excess)). The
//! bounds by dtype judge tensors of checkpoints and saved variables, and tell patterns from rounding
//! ([`pattern`](super::pattern)). A bound has two numbers, each with a reason that can be traced:
//!
//! * `rel_l2`: error that one op may make on agreeing inputs. The accumulative bounds of the operator
//!   standards in use are 2^-11 (float32), 2^-8 (float16) and 2^-7 (bfloat16) for single elements, their bias
//!   limit for float32 is 2^-14. An l2 error averages over elements, so the tighter of the two kinds is taken;
//!   rounding noise measured between two correct implementations stays below 3e-6 (float32), a twentieth of
//!   it.
//! * `accumulated`: error that rounding may grow to over a run. A few elements with larger errors are damage.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use globset::{Glob, GlobMatcher};
use serde::Deserialize;

use probe_dump::DType;
use probe_files::settings::{self, SettingsError};
use probe_measure::{ALL_METRICS, Metric};

/// Fixed bounds for one dtype.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DTypeTolerance {
    /// Largest relative l2 error of one op on agreeing inputs.
    pub rel_l2: f64,
    /// Largest relative l2 error that accumulated rounding explains.
    pub accumulated: f64,
}

impl DTypeTolerance {
    /// The bounds of a dtype; `None` for integers and bool, which must be equal.
    pub fn of(dtype: DType) -> Option<Self> {
        let (rel_l2, accumulated) = match dtype {
            DType::F64 | DType::C128 => (-40, -30),
            DType::F32 | DType::C64 => (-14, -7),
            DType::F16 => (-9, -5),
            DType::Bf16 => (-7, -4),
            DType::F8E4M3 => (-3, -2),
            DType::F8E5M2 => (-2, -1),
            _ => return None,
        };
        Some(Self { rel_l2: 2_f64.powi(rel_l2), accumulated: 2_f64.powi(accumulated) })
    }

    /// Largest systematic scale error `|slope - 1|`: rounding is not biased, so a slope stands out long before the error does.
    pub fn slope(self) -> f64 {
        self.rel_l2 / 4.0
    }
}

/// A user rule for matching slots: the error that an op may make by itself, and limits of the value.
#[derive(Debug, Clone)]
pub struct Rule {
    pattern: String,
    matcher: GlobMatcher,
    dtype: Option<DType>,
    ignore: bool,
    exact: bool,
    /// Bounds of the op's own error.
    bounds: Vec<(Metric, f64)>,
    /// Bounds of the value, whatever led to it.
    limits: Vec<(Metric, f64)>,
}

/// The user's rules in order; the first that matches decides.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<Rule>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    #[serde(default)]
    rule: Vec<RuleEntry>,
}

/// A rule as written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleEntry {
    pattern: String,
    dtype: Option<String>,
    #[serde(default)]
    ignore: bool,
    #[serde(default)]
    exact: bool,
    #[serde(default)]
    limit: BTreeMap<String, f64>,
    cosine: Option<f64>,
    max_abs_err: Option<f64>,
    mean_abs_err: Option<f64>,
    max_rel_err: Option<f64>,
    mean_rel_err: Option<f64>,
    rmse: Option<f64>,
    euclidean: Option<f64>,
    rel_l2: Option<f64>,
    within_1e3: Option<f64>,
    within_5e3: Option<f64>,
    max_ulp: Option<f64>,
}

impl Rules {
    /// Reads a TOML file of `[[rule]]` tables.
    ///
    /// # Errors
    /// [`SettingsError`] that names the file and the rule.
    pub fn from_file(path: &Path) -> Result<Self, SettingsError> {
        settings::load(path, Self::parse)
    }

    /// Reads rules from TOML text.
    ///
    /// # Errors
    /// The problem, on one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: RulesFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            format!("line {line}: {}", error.message().replace('\n', " "))
        })?;
        Self::of(file.rule)
    }

    /// Builds rules from entries that were read as a part of another file.
    ///
    /// # Errors
    /// The problem, on one line, beginning with `rule` and the number of the entry.
    pub fn of(entries: Vec<RuleEntry>) -> Result<Self, String> {
        let rules = entries.into_iter().enumerate().map(|(index, entry)| {
            entry.validate().map_err(|message| format!("rule {}: {message}", index + 1))
        });
        rules.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the same rules with all bounds as limits of the values too, as a gate means them.
    #[must_use]
    pub fn as_limits(mut self) -> Self {
        for rule in &mut self.0 {
            rule.limits.extend(rule.bounds.iter().copied());
        }
        self
    }

    /// Returns the pattern and the bounds of each rule, in order.
    pub fn texts(&self) -> Vec<(String, String)> {
        let text = |rule: &Rule| {
            rule.to_string().split_once(": ").map_or_else(String::new, |(_, bounds)| bounds.to_owned())
        };
        self.0.iter().map(|rule| (rule.pattern.clone(), text(rule))).collect()
    }

    /// Returns true if the first rule of a pattern allows something that the first one of `older` did not.
    pub fn is_looser(&self, older: &Self, pattern: &str) -> bool {
        let of = |rules: &'_ Self| rules.0.iter().find(|rule| rule.pattern == pattern).cloned();
        let (Some(new), Some(old)) = (of(self), of(older)) else { return true };
        if old.ignore || new.exact {
            return false;
        }
        if new.ignore || old.exact || new.dtype != old.dtype {
            return true;
        }
        any_looser(&old.bounds, &new.bounds) || any_looser(&old.limits, &new.limits)
    }

    /// Iterates over the rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// Returns true if there is any rule.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns position and content of the first rule that matches a slot.
    pub fn find(&self, op: &str, slot: &str, dtype: Option<DType>) -> Option<(usize, &Rule)> {
        if self.0.is_empty() {
            return None;
        }
        let full = format!("{op}.{slot}");
        self.0.iter().enumerate().find(|(_, rule)| {
            (rule.dtype.is_none() || rule.dtype == dtype)
                && (rule.matcher.is_match(&full) || rule.matcher.is_match(op))
        })
    }
}

impl RuleEntry {
    fn validate(self) -> Result<Rule, String> {
        let dtype = match &self.dtype {
            Some(name) => Some(DType::parse(name).ok_or_else(|| {
                let known: Vec<_> = probe_dump::ALL_DTYPES.iter().map(|dtype| dtype.name()).collect();
                format!("unknown dtype {name:?}; known: {}", known.join(", "))
            })?),
            None => None,
        };
        let matcher = Glob::new(&self.pattern)
            .map_err(|error| format!("pattern {:?}: {}", self.pattern, error.kind()))?
            .compile_matcher();
        let given = [
            (Metric::Cosine, self.cosine),
            (Metric::MaxAbsErr, self.max_abs_err),
            (Metric::MeanAbsErr, self.mean_abs_err),
            (Metric::MaxRelErr, self.max_rel_err),
            (Metric::MeanRelErr, self.mean_rel_err),
            (Metric::Rmse, self.rmse),
            (Metric::Euclidean, self.euclidean),
            (Metric::RelL2, self.rel_l2),
            (Metric::Within1e3, self.within_1e3),
            (Metric::Within5e3, self.within_5e3),
            (Metric::MaxUlp, self.max_ulp),
        ];
        let limits = self.limit.iter().map(|(name, bound)| {
            let metric = given.iter().map(|(metric, _)| *metric).find(|metric| metric.name() == name);
            let unknown = || format!("limit has an unknown metric `{name}`; known: {}", metric_names());
            Ok((metric.ok_or_else(unknown)?, *bound))
        });
        let limits: Vec<(Metric, f64)> = limits.collect::<Result<_, String>>()?;
        let bounds: Vec<_> = given.into_iter().filter_map(|(metric, bound)| Some((metric, bound?))).collect();
        let least = |metric| if metric == Metric::Cosine { -1.0 } else { 0.0 };
        if let Some((metric, bound)) =
            bounds.iter().chain(&limits).find(|(metric, bound)| bound.is_nan() || *bound < least(*metric))
        {
            return Err(format!("{} = {bound} is not a bound", metric.name()));
        }
        if bounds.is_empty() && limits.is_empty() && !self.ignore && !self.exact {
            return Err(format!(
                "has no bound; give one of {}, or limit = {{ ... }}, or exact = true, or ignore = true",
                metric_names()
            ));
        }
        let (ignore, exact) = (self.ignore, self.exact);
        Ok(Rule { pattern: self.pattern, matcher, dtype, ignore, exact, bounds, limits })
    }
}

/// Returns the names of all metrics, for messages.
fn metric_names() -> String {
    ALL_METRICS.iter().map(|metric| metric.name()).collect::<Vec<_>>().join(", ")
}

/// Returns true if a bound of `old` is wider in `new`, or is not there.
fn any_looser(old: &[(Metric, f64)], new: &[(Metric, f64)]) -> bool {
    old.iter().any(|(metric, before)| match new.iter().find(|(other, _)| other == metric) {
        Some((_, now)) if is_similarity(*metric) => now < before,
        Some((_, now)) => now > before,
        None => true,
    })
}

/// Compares each bounded metric with its bound. `None` if no metric is known; otherwise the first broken bound,
/// if any.
fn check(bounds: &[(Metric, f64)], value: impl Fn(Metric) -> Option<f64>) -> Option<Result<(), String>> {
    let mut known = false;
    for &(metric, bound) in bounds {
        let Some(found) = value(metric) else { continue };
        known = true;
        let (holds, sign) = if is_similarity(metric) { (found >= bound, "<") } else { (found <= bound, ">") };
        if !holds {
            return Some(Err(format!("{} {found:.3e} {sign} {bound:.3e}", metric.name())));
        }
    }
    known.then_some(Ok(()))
}

/// Returns true for metrics that are better the larger they are; their bounds are minima.
const fn is_similarity(metric: Metric) -> bool {
    matches!(metric, Metric::Cosine | Metric::Within1e3 | Metric::Within5e3)
}

impl Rule {
    /// Returns true if matching slots are not judged at all.
    pub const fn ignores(&self) -> bool {
        self.ignore
    }

    /// Returns true if matching slots must be equal to the bit.
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Returns the pattern as written.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns true if the rule matches this slot, whatever its dtype.
    pub fn is_about(&self, op: &str, slot: &str) -> bool {
        self.matcher.is_match(format!("{op}.{slot}")) || self.matcher.is_match(op)
    }

    /// Compares the metrics with the bounds of the op's own error. `None` if no metric is known; otherwise the
    /// first broken bound, if any.
    pub fn check(&self, value: impl Fn(Metric) -> Option<f64>) -> Option<Result<(), String>> {
        check(&self.bounds, value)
    }

    /// The same for the limits of the value.
    pub fn check_limits(&self, value: impl Fn(Metric) -> Option<f64>) -> Option<Result<(), String>> {
        check(&self.limits, value)
    }

    /// Returns the relative l2 error up to which an op's own error obeys the bounds, for a tensor of this root
    /// mean square, norm and unit in the last place. 0 without a bound that limits it.
    ///
    /// Where all elements are off alike, a relative error of each is that of the whole, and an absolute one is
    /// relative to the root mean square. Two vectors of one length and the cosine `c` are `sqrt(2 - 2 c)`
    /// apart. Shares of elements within a bound limit no l2 error.
    pub(super) fn own_error(&self, rms: f64, norm: f64, unit: f64) -> f64 {
        let relative = |(metric, bound): &(Metric, f64)| match metric {
            Metric::RelL2 | Metric::MaxRelErr | Metric::MeanRelErr => Some(*bound),
            Metric::MaxUlp => Some(bound * unit),
            Metric::MaxAbsErr | Metric::MeanAbsErr | Metric::Rmse => Some(bound / rms),
            Metric::Euclidean => Some(bound / norm),
            Metric::Cosine => Some((2.0 - 2.0 * bound).max(0.0).sqrt()),
            _ => None,
        };
        self.bounds
            .iter()
            .filter_map(relative)
            .filter(|error| error.is_finite())
            .reduce(f64::min)
            .unwrap_or(0.0)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user rule {:?}:", self.pattern)?;
        if self.ignore {
            return f.write_str(" not judged");
        }
        let text = |prefix: &str, (metric, bound): &(Metric, f64)| {
            let sign = if is_similarity(*metric) { ">=" } else { "<=" };
            format!("{prefix}{} {sign} {bound:e}", metric.name())
        };
        let exact = self.exact.then(|| "exact".to_owned());
        let bounds = self.bounds.iter().map(|bound| text("", bound));
        // A gate's bound is a limit as well, and is written once.
        let alone = self.limits.iter().filter(|limit| !self.bounds.contains(limit));
        let limits = alone.map(|limit| text("limit ", limit));
        let parts: Vec<String> = exact.into_iter().chain(bounds).chain(limits).collect();
        write!(f, " {}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_rule_wins() {
        let rules = Rules::parse(
            r#"
            [[rule]]
            pattern = "Functional.softmax.*.output.0"
            rel_l2 = 1e-3
            cosine = 0.999
            [[rule]]
            pattern = "*"
            dtype = "bfloat16"
            max_ulp = 2
            "#,
        )
        .unwrap();
        let find = |op, slot, dtype| rules.find(op, slot, dtype).map(|(index, _)| index);
        assert_eq!(find("Functional.softmax.3.forward", "output.0", Some(DType::Bf16)), Some(0));
        assert_eq!(find("Functional.softmax.3.forward", "input.0", Some(DType::Bf16)), Some(1));
        assert_eq!(find("Functional.softmax.3.forward", "input.0", Some(DType::F32)), None);
        let (_, rule) = rules.find("Functional.softmax.3.forward", "output.0", None).unwrap();
        assert_eq!(rule.check(|_| None), None);
        assert_eq!(rule.check(|m| (m == Metric::RelL2).then_some(1e-4)), Some(Ok(())));
        assert!(rule.check(|m| (m == Metric::Cosine).then_some(0.9)).unwrap().is_err());
        assert_eq!(
            rule.to_string(),
            "user rule \"Functional.softmax.*.output.0\": cosine >= 9.99e-1, rel_l2 <= 1e-3"
        );
    }

    #[test]
    fn mistakes_are_named_on_one_line() {
        for (text, expected) in [
            ("[[rule]]\npattern = \"*\"\nrel_12 = 1.0\n", "line 3: unknown field `rel_12`"),
            ("[[rule]]\npattern = \"*\"\n", "rule 1: has no bound"),
            (
                "[[rule]]\npattern = \"*\"\ndtype = \"float31\"\nrel_l2 = 1\n",
                "rule 1: unknown dtype \"float31\"",
            ),
            ("[[rule]]\npattern = \"a[\"\nrel_l2 = 1\n", "rule 1: pattern \"a[\""),
            ("[[rule]]\npattern = \"*\"\nrel_l2 = nan\n", "rule 1: rel_l2 = NaN is not a bound"),
            ("[[rule]]\npattern = \"*\"\nrmse = -0.5\n", "rule 1: rmse = -0.5 is not a bound"),
        ] {
            let message = Rules::parse(text).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
            assert!(!message.contains('\n'));
        }
    }

    #[test]
    fn coarser_types_have_wider_bounds() {
        let bound = |dtype| DTypeTolerance::of(dtype).unwrap().rel_l2;
        assert!(bound(DType::F64) < bound(DType::F32) && bound(DType::F32) < bound(DType::F16));
        assert!(bound(DType::F16) < bound(DType::Bf16) && bound(DType::Bf16) < bound(DType::F8E4M3));
        assert_eq!(DTypeTolerance::of(DType::I64), None);
    }
}
