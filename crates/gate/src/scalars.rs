//! Judges scalars: every step, and the mean over all of them.

use std::collections::BTreeSet;

use super::import::{Scalars, Series};
use super::outcome::{Case, Culprit, Kind, NOT_FINITE, Status};
use super::policy::{Policy, ScalarRule};
use probe_dump::Exact;
use probe_judge::Incomplete;

/// Findings on all scalars.
#[derive(Debug, Default)]
pub(super) struct ScalarFindings {
    pub(super) cases: Vec<Case>,
    pub(super) culprits: Vec<Culprit>,
    /// Points of the baseline that the candidate lacks.
    pub(super) missing: Vec<Incomplete>,
    /// Points that cannot be judged because the baseline's value is not finite.
    pub(super) undefined: Vec<Incomplete>,
    pub(super) notes: Vec<String>,
    /// Number of gated points of the baseline, and how many of them the candidate also has.
    pub(super) expected: usize,
    pub(super) paired: usize,
}

/// Maximum number of steps named in a message.
const NAMED: usize = 5;

/// Judges every scalar of the baseline.
pub(super) fn judge(baseline: &Scalars, candidate: &Scalars, policy: &Policy) -> ScalarFindings {
    let mut found = ScalarFindings::default();
    let mut left_out: Vec<&str> = Vec::new();
    for (name, series) in baseline {
        let rule = match policy.scalar(name) {
            Some((_, rule)) if !rule.ignore => rule,
            _ => {
                left_out.push(name);
                continue;
            }
        };
        match candidate.get(name) {
            Some(other) => found.series(name, series, other, rule, policy),
            None => found.absent(name, series, policy),
        }
    }
    if !left_out.is_empty() {
        let more = left_out.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let names = left_out[..left_out.len().min(NAMED)].join(", ");
        found.notes.push(format!("not gated: {names}{more}; add a [[scalar]] to gate one of them"));
    }
    let new: Vec<&str> =
        candidate.keys().filter(|name| !baseline.contains_key(*name)).map(String::as_str).collect();
    if !new.is_empty() && !baseline.is_empty() {
        let names = new[..new.len().min(NAMED)].join(", ");
        found.notes.push(format!("{} scalars of the candidate are not in the baseline: {names}", new.len()));
    }
    found
}

/// A step at which a scalar breaks a bound.
struct Broken {
    step: u64,
    baseline: f64,
    candidate: f64,
    cause: &'static str,
    reason: String,
}

impl Broken {
    fn evidence(&self, rule: &ScalarRule) -> Vec<String> {
        let &Self { baseline, candidate, .. } = self;
        vec![
            format!("baseline   {}", Exact(baseline)),
            format!("candidate  {}", Exact(candidate)),
            format!("difference {:.3e} ({:.3e} relative)", candidate - baseline, off(baseline, candidate)),
            format!("bound      {rule}"),
            format!("broken     {}", self.reason),
        ]
    }
}

/// Returns the case of a step at which nothing can be judged.
fn unverified(name: &str, step: u64, message: String, evidence: String) -> Case {
    Case {
        status: Status::Unverified,
        message,
        evidence: vec![evidence],
        ..Case::passed(Kind::Scalar, name, Some(step), None)
    }
}

impl ScalarFindings {
    fn absent(&mut self, name: &str, series: &Series, policy: &Policy) {
        let wanted = series.keys().filter(|step| wanted(policy, **step)).count();
        self.expected += wanted;
        if wanted > 0 {
            self.missing.push(Incomplete {
                place: name.to_owned(),
                reason: "the candidate has no value for it; record it, or leave it out of the policy".into(),
            });
            self.cases.push(Case {
                status: Status::Unverified,
                message: "the candidate has no value for it".into(),
                evidence: vec![format!("the baseline has {} values, the candidate none", series.len())],
                ..Case::passed(Kind::Scalar, name, None, None)
            });
        }
    }

    fn series(&mut self, name: &str, b: &Series, c: &Series, rule: &ScalarRule, policy: &Policy) {
        let narrow = b.values().chain(c.values()).all(|value| is_binary32(*value));
        let mut broken: Vec<Broken> = Vec::new();
        let mut missing: Vec<u64> = Vec::new();
        let mut undefined: Vec<u64> = Vec::new();
        let mut relative: Vec<f64> = Vec::new();
        let mut judged = 0;
        for (&step, &baseline) in b {
            let required = wanted(policy, step);
            self.expected += usize::from(required);
            let Some(&candidate) = c.get(&step) else {
                if required {
                    missing.push(step);
                    let message = "the candidate has no value at this step".to_owned();
                    let evidence = format!("baseline {}", Exact(baseline));
                    self.cases.push(unverified(name, step, message, evidence));
                }
                continue;
            };
            self.paired += usize::from(required);
            judged += 1;
            if !baseline.is_finite() && candidate.is_finite() {
                undefined.push(step);
                let message = format!("the baseline is {} here, which proves nothing", Exact(baseline));
                self.cases.push(unverified(name, step, message, format!("candidate {}", Exact(candidate))));
                continue;
            }
            let mut case = Case::passed(Kind::Scalar, name, Some(step), None);
            if let Some((cause, reason)) = break_of(rule, baseline, candidate, narrow) {
                let at = Broken { step, baseline, candidate, cause, reason };
                case.status = Status::Failed;
                case.message.clone_from(&at.reason);
                case.evidence = at.evidence(rule);
                broken.push(at);
            }
            if candidate.is_finite() {
                relative.push(off(baseline, candidate));
            }
            self.cases.push(case);
        }
        self.explain(name, rule, &broken, judged);
        // A single broken bound is more informative than the mean that it moves.
        if broken.is_empty() {
            self.bias(name, rule, &relative);
        }
        self.missing.extend(incomplete(name, &missing, "the candidate has no value"));
        self.undefined.extend(incomplete(
            name,
            &undefined,
            "the baseline is not finite, which proves nothing",
        ));
    }

    /// Adds one culprit for all steps that break a bound.
    fn explain(&mut self, name: &str, rule: &ScalarRule, broken: &[Broken], judged: usize) {
        let Some(first) = broken.first() else { return };
        let size = |at: &Broken| off(at.baseline, at.candidate).abs();
        // NaN is worse than any number, but has no order of its own.
        let rank = |at: &Broken| if size(at).is_nan() { f64::INFINITY } else { size(at) };
        let worst = broken.iter().fold(first, |most, at| if rank(at) > rank(most) { at } else { most });
        let mut reason = format!("{} (bound: {rule})", first.reason);
        if broken.len() > 1 {
            reason = format!("{reason}; {} of {judged} steps", broken.len());
            if worst.step != first.step {
                reason = format!("{reason}, worst at step {}: {}", worst.step, worst.reason);
            }
        }
        self.culprits.push(Culprit {
            kind: Kind::Scalar,
            name: name.to_owned(),
            slot: String::new(),
            step: Some(first.step),
            rank: None,
            // Non-finite is the worst cause, and the only one that no waiver lets pass.
            cause: broken.iter().map(|at| at.cause).find(|cause| *cause == NOT_FINITE).unwrap_or(first.cause),
            reason,
            baseline: Some(Exact(first.baseline)),
            candidate: Some(Exact(first.candidate)),
            error: Some(size(first)).filter(|error| error.is_finite()).map(Exact),
            module: None,
            source: None,
            stack: Vec::new(),
            places: broken.len() as u64,
            followers: 0,
            waived: None,
        });
    }

    /// Judges the mean of the signed relative differences.
    fn bias(&mut self, name: &str, rule: &ScalarRule, relative: &[f64]) {
        let Some(bound) = rule.bias_bound(relative.len()).filter(|_| !relative.is_empty()) else { return };
        let mean = relative.iter().sum::<f64>() / relative.len() as f64;
        let mut case = Case::passed(Kind::Scalar, format!("{name} bias"), None, None);
        // NaN exceeds every bound.
        let holds = rule.worse.part(mean) <= bound && mean.is_finite();
        if !holds {
            let side = if mean < 0.0 { "lower" } else { "higher" };
            let implied = if rule.bias.is_none() { ", which rtol implies" } else { "" };
            let reason = format!(
                "on average {:.3e} {side} over {} steps, more than {bound:.3e}{implied}",
                mean.abs(),
                relative.len()
            );
            case.status = Status::Failed;
            case.message.clone_from(&reason);
            case.evidence = vec![reason.clone(), format!("bound      {rule}")];
            self.culprits.push(Culprit {
                kind: Kind::Scalar,
                name: name.to_owned(),
                slot: String::new(),
                step: None,
                rank: None,
                cause: "bias",
                reason,
                baseline: None,
                candidate: None,
                error: Some(mean.abs()).filter(|error| error.is_finite()).map(Exact),
                module: None,
                source: None,
                stack: Vec::new(),
                places: relative.len() as u64,
                followers: 0,
                waived: None,
            });
        }
        self.cases.push(case);
    }
}

/// Describes steps that could not be judged.
fn incomplete(name: &str, steps: &[u64], what: &str) -> Option<Incomplete> {
    let first = steps.first()?;
    let place = if steps.len() == 1 {
        format!("{name} step {first}")
    } else {
        format!("{name}, {} steps from {first} on", steps.len())
    };
    Some(Incomplete { place, reason: what.to_owned() })
}

/// Returns true if the policy requires this step.
fn wanted(policy: &Policy, step: u64) -> bool {
    policy.require.steps.as_ref().is_none_or(|steps| steps.contains(step))
}

/// Returns the signed difference relative to the magnitude of the baseline; infinite for a baseline of 0, 0 between equal
/// numbers.
fn off(baseline: f64, candidate: f64) -> f64 {
    let difference = candidate - baseline;
    if difference.abs() > 0.0 || difference.is_nan() { difference / baseline.abs() } else { 0.0 }
}

/// Returns the broken bound: kind of fault, and description. Non-finite values never pass, on either side.
fn break_of(
    rule: &ScalarRule,
    baseline: f64,
    candidate: f64,
    narrow: bool,
) -> Option<(&'static str, String)> {
    if !candidate.is_finite() {
        let both = if baseline.is_finite() { "" } else { " on both sides" };
        return Some((NOT_FINITE, format!("{} became {}{both}", Exact(baseline), Exact(candidate))));
    }
    if baseline.to_bits() == candidate.to_bits() {
        return None;
    }
    if rule.exact {
        return Some(("bound", format!("{} became {}", Exact(baseline), Exact(candidate))));
    }
    let difference = rule.worse.part(candidate - baseline);
    let relative = rule.worse.part(off(baseline, candidate));
    let said = |kind: &str, found: f64, bound: f64| {
        Some((
            "bound",
            format!("{} became {}, {kind} {found:.3e} > {bound:e}", Exact(baseline), Exact(candidate)),
        ))
    };
    if let Some(bound) = rule.rtol
        && relative > bound
    {
        return said("rtol", relative, bound);
    }
    if let Some(bound) = rule.atol
        && difference > bound
    {
        return said("atol", difference, bound);
    }
    if let Some(bound) = rule.ulp
        && difference > 0.0
    {
        let distance = ulps(baseline, candidate, narrow);
        if distance > bound {
            let reason = format!(
                "{} became {}, {distance} ulp of {} > {bound}",
                Exact(baseline),
                Exact(candidate),
                if narrow { "float32" } else { "float64" }
            );
            return Some(("bound", reason));
        }
    }
    None
}

fn is_binary32(value: f64) -> bool {
    #[expect(clippy::cast_possible_truncation, reason = "whether anything is lost is what is asked")]
    let narrow = f64::from(value as f32);
    narrow.to_bits() == value.to_bits() || !value.is_finite()
}

/// Returns the number of representable numbers between two finite ones.
fn ulps(a: f64, b: f64, narrow: bool) -> u64 {
    // Ordered like the numbers: negative ones count down from 0.
    let place = |value: f64| -> i128 {
        let (bits, sign) = if narrow {
            #[expect(clippy::cast_possible_truncation, reason = "all values are binary32's")]
            let bits = (value as f32).to_bits();
            (i128::from(bits & 0x7fff_ffff), bits >> 31 == 1)
        } else {
            (i128::from(value.to_bits() & (u64::MAX >> 1)), value.is_sign_negative())
        };
        if sign { -bits } else { bits }
    };
    u64::try_from((place(a) - place(b)).unsigned_abs()).unwrap_or(u64::MAX)
}

/// Returns the steps of a side, over all scalars.
pub(super) fn steps(scalars: &Scalars) -> BTreeSet<u64> {
    scalars.values().flat_map(|series| series.keys().copied()).collect()
}
