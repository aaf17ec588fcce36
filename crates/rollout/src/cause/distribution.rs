//! One side reports another distribution than the other: divided by a temperature, or renormalised over the tokens that are kept.

use super::{Case, Cause};
use crate::measure::{Correlation, Measures, chance_of_correlation};

/// Fewest tokens from which a relation is inferred.
const FEWEST: f64 = 24.0;

/// Log-probabilities above this are left out: in binary32, the log-odds of a token that is nearly certain have no digits.
const SATURATED: f64 = -1e-4;

/// Correlation, without its sign, of the difference of the log-odds with their mean from which it is a temperature. Temperatures of
/// 0.7 gave 0.94 in float32 and bfloat16; the closest other cause, an update on the very batch, 0.48, top-p 0.52.
const STEEP: f64 = 0.72;

/// Largest such correlation that another cause was seen to leave.
const STEEP_OTHERWISE: f64 = 0.52;

/// Change of the slope of log-odds below which no temperature is named, as its logarithm.
const LEAST: f64 = 0.01;

/// Share of the larger differences that must have one sign. Renormalising left 1.000 and 0.996, every other cause at most 0.81.
const ONE_SIGN: f64 = 0.985;

/// Returns the log-odds of a log-probability.
fn odds(value: f64) -> f64 {
    value - (-value.exp_m1()).ln()
}

/// Names a temperature, in case the log-odds of one side are those of the other times a factor.
///
/// With two tokens of any weight, the log-odds at temperature T are exactly those at 1, divided by T; with many it holds on
/// average, with an intercept.
pub(super) fn temperature(case: &mut Case<'_>, rest: &Measures) -> bool {
    let (mut trend, mut line) = (Correlation::default(), Correlation::default());
    for (g, p) in case.pairs.g.iter().zip(&case.pairs.p) {
        let (g, p) = (f64::from(*g), f64::from(*p));
        if g > SATURATED || p > SATURATED {
            continue;
        }
        let (a, b) = (odds(p), odds(g));
        trend.add(f64::midpoint(a, b), b - a);
        line.add(a, b);
    }
    let (steep, slope) = (trend.coefficient(), line.principal_slope());
    if trend.count() < FEWEST
        || steep.abs() < STEEP
        || !slope.is_finite()
        || slope <= 0.0
        || slope.ln().abs() < LEAST
    {
        return false;
    }
    // The values that the engine sampled with have the identity on their side.
    let raw = rest.identity - 1.0 > 4.0 * rest.identity_error
        && (rest.inverse - 1.0).abs() < 4.0 * rest.inverse_error;
    let relation = if raw {
        format!(
            "trainer = rollout at temperature {:.2}: E[exp d] is {:.2}, E[exp -d] {:.2}, so the engine sampled with the temperature but reports values before it",
            slope, rest.identity, rest.inverse
        )
    } else {
        format!(
            "rollout = trainer at temperature {:.2}: E[exp d] is {:.2}, so the engine's values are those it sampled with",
            1.0 / slope,
            rest.identity
        )
    };
    let evidence = format!(
        "{relation} (log-odds have slope {slope:.2}, and the difference follows their mean with correlation {:.2})",
        steep.abs()
    );
    let chance = chance_of_correlation(steep, trend.count(), STEEP_OTHERWISE);
    let before = case.pairs.total();
    case.pairs.retain(|_, _| false);
    case.found(Cause::Temperature, before, evidence, Some(chance), Vec::new());
    true
}

/// Names a truncation, in case one side gives every token more probability than the other.
pub(super) fn truncation(case: &mut Case<'_>, rest: &Measures) -> bool {
    let (mut large, mut negative) = (0.0, 0.0);
    let mut ratios: Vec<f32> = Vec::new();
    for (g, p) in case.pairs.g.iter().zip(&case.pairs.p) {
        let d = p - g;
        if f64::from(d.abs()) >= rest.mean_abs {
            large += 1.0;
            negative += f64::from(u8::from(d < 0.0));
        }
        ratios.push(-d.abs());
    }
    let share = if large > 0.0 { negative / large } else { 0.5 };
    let one_sided = share >= ONE_SIGN || share <= 1.0 - ONE_SIGN;
    let biased = rest.mean.abs() >= 0.9 * rest.mean_abs;
    if large < FEWEST / 2.0 || !one_sided || !biased || rest.mean_abs < 1e-5 || rest.correlation < 0.8 {
        return false;
    }
    let lowest = crate::measure::quantile(&mut ratios, 0.01).exp();
    let (side, other, mean) = if share > 0.5 {
        ("rollout", "trainer", rest.identity)
    } else {
        ("trainer", "rollout", rest.inverse)
    };
    let evidence = format!(
        "{:.1} % of the larger differences have one sign: the {side} gives tokens more probability than the {other}, as after top-p or top-k; \
         the kept tokens hold {mean:.2} of the probability on average, {lowest:.2} in the lowest hundredth",
        100.0 * share.max(1.0 - share)
    );
    // Half of the others' largest share, as signs of a coin that falls on one side with 0.81.
    let chance = 0.81_f64.powf(large * share.max(1.0 - share)).min(1.0);
    let before = case.pairs.total();
    case.pairs.retain(|_, _| false);
    case.found(Cause::Truncation, before, evidence, Some(chance), Vec::new());
    true
}
