//! A user's tolerance rule on one value: its bounds say how far the op may be off by itself, and its limits
//! where the value may not be, whatever led to it.

use super::Verdict;
use super::difference::{Difference, Fact};
use super::precision::Precision;
use super::rulebook::{RuleBook, RuleKey};
use super::tolerance::Rule;
use probe_measure::Evidence;

/// Applies a rule to a value: sets the error that the op may make by itself, accepts integers within all bounds,
/// and marks a value beyond a limit. Does nothing to values that differ in more than numbers, or of which no bounded
/// metric is known.
pub(super) fn apply(fact: &mut Fact, index: usize, rule: &Rule, evidence: &Evidence, book: &mut RuleBook) {
    let numerical = matches!(fact.difference, Difference::None | Difference::Numbers | Difference::Elements)
        && fact.judgement.verdict != Verdict::Unknown;
    if !numerical {
        return;
    }
    let bounds = rule.check(|metric| evidence.metric(metric));
    let limits = rule.check_limits(|metric| evidence.metric(metric));
    let is_equal = fact.exact || fact.judgement.verdict == Verdict::BitEqual;
    if bounds.is_none() && limits.is_none() && !rule.is_exact() {
        return;
    }
    fact.judgement.rule = Some(book.index(RuleKey::User(index), || rule.to_string()));
    let unit = fact.dtype.and_then(Precision::of).map_or(0.0, |precision| precision.unit);
    fact.floor = rule.own_error(fact.norm / fact.len.max(1.0).sqrt(), fact.norm, unit);
    let unequal = (rule.is_exact() && !is_equal).then(|| "not bit-equal".to_owned());
    if let Some(broken) = unequal.or_else(|| limits.and_then(Result::err)) {
        fact.difference = Difference::Limit;
        fact.judgement.verdict = Verdict::Differs;
        fact.judgement.reason = format!("beyond your limit: {broken}").into();
    } else if fact.difference == Difference::Elements && bounds.is_some_and(|bounds| bounds.is_ok()) {
        fact.allowed = true;
        fact.difference = Difference::None;
        fact.judgement.verdict = Verdict::Close;
    }
}
