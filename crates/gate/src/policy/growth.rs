//! Bounds that one policy allows and another did not: every bound that grew.

use std::fmt;

use super::{Effect, Mode, Policy, ScalarRule, Worse};

/// A bound that is looser than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// Name of the bound, such as `scalar "loss" rtol`.
    pub what: String,
    /// The old bound.
    pub old: String,
    /// The new bound.
    pub new: String,
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} became {}", self.what, self.old, self.new)
    }
}

/// Returns everything that `new` allows and `old` did not.
pub fn growth(old: &Policy, new: &Policy) -> Vec<Growth> {
    let mut grown = Vec::new();
    scalars(old, new, &mut grown);
    values(old, new, &mut grown);
    effects(old, new, &mut grown);
    requirements(old, new, &mut grown);
    budgets(old, new, &mut grown);
    waivers(old, new, &mut grown);
    grown
}

impl Growth {
    fn of(what: &str, old: String, new: String) -> Self {
        Self { what: what.to_owned(), old, new }
    }
}

fn effects(old: &Policy, new: &Policy, grown: &mut Vec<Growth>) {
    let word = |effect: Effect| if effect == Effect::Fail { "fail" } else { "neutral" }.to_owned();
    for (name, a, b) in [("on_drift", old.on_drift, new.on_drift), ("on_flaky", old.on_flaky, new.on_flaky)] {
        if a == Effect::Fail && b == Effect::Neutral {
            grown.push(Growth::of(name, word(a), word(b)));
        }
    }
    if old.mode == Mode::Paired && new.mode == Mode::Golden {
        grown.push(Growth::of("mode", old.mode.name().into(), new.mode.name().into()));
    }
}

fn requirements(old: &Policy, new: &Policy, grown: &mut Vec<Growth>) {
    let (a, b) = (&old.require, &new.require);
    if b.min_pairs < a.min_pairs {
        let (a, b) = (a.min_pairs.to_string(), b.min_pairs.to_string());
        grown.push(Growth::of("require min_pairs", a, b));
    }
    for (name, a, b) in [("require steps", &a.steps, &b.steps), ("require ranks", &a.ranks, &b.ranks)] {
        let text = |set: &Option<probe_dump::NumberSet>| {
            set.as_ref().map_or_else(|| "all".to_owned(), ToString::to_string)
        };
        // An explicit set may omit something that the other requires; whether it does depends on the baseline.
        if a != b && b.is_some() {
            grown.push(Growth::of(name, text(a), text(b)));
        }
    }
}

fn budgets(old: &Policy, new: &Policy, grown: &mut Vec<Growth>) {
    let (a, b) = (old.budget, new.budget);
    for (name, a, b) in [
        ("budget introduces", Some(a.introduces), Some(b.introduces)),
        ("budget amplifies", Some(a.amplifies), Some(b.amplifies)),
        ("budget unpaired", a.unpaired, b.unpaired),
    ] {
        let text =
            |bound: Option<u64>| bound.map_or_else(|| "any number".to_owned(), |bound| bound.to_string());
        if b.unwrap_or(u64::MAX) > a.unwrap_or(u64::MAX) {
            grown.push(Growth::of(name, text(a), text(b)));
        }
    }
}

/// Settings that no longer need to be the same, and waivers that are new or last longer.
fn waivers(old: &Policy, new: &Policy, grown: &mut Vec<Growth>) {
    for pattern in &old.environment.same {
        if !new.environment.same.iter().any(|other| other.text() == pattern.text()) {
            let text = format!("{:?}", pattern.text());
            grown.push(Growth::of("environment same", text, "not asked for".into()));
        }
    }
    for waiver in &new.waivers {
        let before = old.waivers.iter().find(|other| other.pattern.text() == waiver.pattern.text());
        if before.is_none_or(|before| before.until < waiver.until) {
            let old = before.map_or_else(|| "none".to_owned(), |before| format!("until {}", before.until));
            let new = format!("until {}: {}", waiver.until, waiver.reason);
            grown.push(Growth::of(&format!("waive {:?}", waiver.pattern.text()), old, new));
        }
    }
}

/// Returns the bounds of a rule by name; an omitted bound is infinite.
fn bounds(rule: &ScalarRule) -> [(&'static str, f64); 5] {
    let given = |bound: Option<f64>| bound.unwrap_or(f64::INFINITY);
    #[expect(clippy::cast_precision_loss, reason = "bounds of ulp are small")]
    let ulp = rule.ulp.map(|bound| bound as f64);
    // Bit-equal values are within any bound.
    let exact = |bound: f64| if rule.exact { 0.0 } else { bound };
    let exactly = if rule.exact { 0.0 } else { f64::INFINITY };
    [
        ("exact", exactly),
        ("rtol", exact(given(rule.rtol))),
        ("atol", exact(given(rule.atol))),
        ("ulp", exact(given(ulp))),
        ("bias", exact(given(rule.bias.or(rule.rtol)))),
    ]
}

fn shown(bound: f64) -> String {
    if bound.is_infinite() { "no bound".to_owned() } else { format!("{bound:e}") }
}

fn scalars(old: &Policy, new: &Policy, grown: &mut Vec<Growth>) {
    // Patterns of both policies, so that a removed rule is noticed too.
    let mut names: Vec<&str> =
        old.scalars.iter().chain(&new.scalars).map(|rule| rule.pattern.text()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let of =
            |policy: &Policy| policy.scalar(name).map(|(_, rule)| rule.clone()).filter(|rule| !rule.ignore);
        let Some(before) = of(old) else { continue };
        let what = |key: &str| format!("scalar {name:?} {key}");
        let Some(after) = of(new) else {
            grown.push(Growth { what: what("rule"), old: before.to_string(), new: "not judged".into() });
            continue;
        };
        if before.exact && !after.exact {
            grown.push(Growth { what: what("exact"), old: "exact".into(), new: after.to_string() });
            continue;
        }
        for ((key, a), (_, b)) in bounds(&before).into_iter().zip(bounds(&after)) {
            if b > a {
                grown.push(Growth { what: what(key), old: shown(a), new: shown(b) });
            }
        }
        if before.worse == Worse::Both && after.worse != Worse::Both {
            grown.push(Growth { what: what("worse"), old: "both".into(), new: after.worse.name().into() });
        }
    }
}

fn values(old: &Policy, new: &Policy, grown: &mut Vec<Growth>) {
    let (before, after) = (old.values.texts(), new.values.texts());
    for (pattern, text) in &before {
        match after.iter().find(|(other, _)| other == pattern) {
            Some((_, now)) if now == text => {}
            // The rule knows in which direction a bound on a similarity points.
            Some((_, now)) if !new.values.is_looser(&old.values, pattern) => _ = now,
            Some((_, now)) => {
                grown.push(Growth::of(&format!("value {pattern:?}"), text.clone(), now.clone()));
            }
            None => {
                grown.push(Growth::of(&format!("value {pattern:?}"), text.clone(), "no rule".into()));
            }
        }
    }
    for (pattern, text) in &after {
        if !before.iter().any(|(other, _)| other == pattern) {
            grown.push(Growth::of(&format!("value {pattern:?}"), "no rule".into(), text.clone()));
        }
    }
}
