//! One side reports another distribution than the other: divided by a temperature, or renormalised over the tokens that are kept.

use super::{Case, Cause};
use crate::measure::{Correlation, Folded, Measures, chance_of_correlation};

/// Fewest tokens from which a relation is inferred.
const FEWEST: f64 = 24.0;

/// Log-probabilities above this are left out: in binary32, the log-odds of a token that is nearly certain have no digits.
const SATURATED: f64 = -1e-4;

/// Correlation, without its sign, of the difference of the log-odds with their mean from which it is a temperature. Temperatures of
/// 0.7 gave 0.94 in float32 and bfloat16; the closest other cause, an update on the very batch, 0.48, top-p 0.52.
const STEEP: f64 = 0.72;

/// Least correlation of the two sides' log-odds. Temperatures left 0.99; a trainer that computes something else, whose values only
/// spread wider, 0.35 to 0.65.
const RELATED: f64 = 0.9;

/// Ratio of the slopes above and below the median from which the relation is bent. Temperatures gave 0.9 to 1.1, a soft cap of 15
/// 4 to 5.
const BENT: f64 = 2.0;

/// Largest such correlation that another cause was seen to leave.
const STEEP_OTHERWISE: f64 = 0.52;

/// Change of the slope of log-odds below which no temperature is named, as its logarithm.
const LEAST: f64 = 0.01;

/// Share of the larger differences that must have one sign. Renormalising left 1.000 and 0.996, every other cause at most 0.81.
const ONE_SIGN: f64 = 0.985;

/// Returns the log-odds of a log-probability of at most [`SATURATED`], to 12 digits.
fn odds(value: f64) -> f64 {
    value - (1.0 - value.exp()).ln()
}

/// How the log-odds of the two sides go together.
#[derive(Default)]
struct Relation {
    /// Their mean, and the engine's minus the trainer's.
    trend: Correlation,
    /// The trainer's and the engine's.
    line: Correlation,
}

impl Folded for Relation {
    fn add(&mut self, g: f64, p: f64) {
        if g <= SATURATED && p <= SATURATED {
            let (a, b) = (odds(p), odds(g));
            self.trend.add(f64::midpoint(a, b), b - a);
            self.line.add(a, b);
        }
    }

    fn merge(self, next: &Self) -> Self {
        Self { trend: self.trend.merge(&next.trend), line: self.line.merge(&next.line) }
    }
}

/// Names a temperature, in case the log-odds of one side are those of the other times a factor.
///
/// With two tokens of any weight, the log-odds at temperature T are exactly those at 1, divided by T; with many it holds on
/// average, with an intercept.
pub(super) fn temperature(case: &mut Case<'_>, rest: &Measures) -> bool {
    let Relation { trend, line } = Relation::of(&case.pairs.g, &case.pairs.p);
    let (steep, slope) = (trend.coefficient(), line.principal_slope());
    if trend.count() < FEWEST
        || steep.abs() < STEEP
        || line.coefficient() < RELATED
        || !slope.is_finite()
        || slope <= 0.0
        || slope.ln().abs() < LEAST
    {
        return false;
    }
    if soft_cap(case, rest, steep) {
        return true;
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
    case.clear();
    case.found(Cause::Temperature, before, evidence, Some(chance), Vec::new());
    true
}

/// Names a soft cap, in case likely tokens differ in slope and others do not: only large logits are bent.
fn soft_cap(case: &mut Case<'_>, rest: &Measures, steep: f64) -> bool {
    let both = || case.pairs.g.iter().zip(&case.pairs.p).map(|(g, p)| (f64::from(*g), f64::from(*p)));
    let points: Vec<(f64, f64)> = both()
        .filter(|(g, p)| *g <= SATURATED && *p <= SATURATED)
        .map(|(g, p)| (f64::midpoint(odds(g), odds(p)), odds(g) - odds(p)))
        .collect();
    let mut middles: Vec<f32> = points.iter().map(|(middle, _)| crate::read::narrow(*middle)).collect();
    let median = crate::measure::quantile(&mut middles, 0.5);
    let slope = |upper: bool| {
        let mut sums = Correlation::default();
        points.iter().filter(|(middle, _)| (*middle > median) == upper).for_each(|(x, y)| sums.add(*x, *y));
        sums.slope()
    };
    let (low, high) = (slope(false), slope(true));
    // A truncation bends too, but all its differences have one sign.
    let two_signs = rest.negative > 0.05 && rest.negative < 0.95;
    if !two_signs || high.signum() != steep.signum() || high.abs() < BENT * low.abs() {
        return false;
    }
    let side = if high < 0.0 { "rollout" } else { "trainer" };
    let evidence = format!(
        "the {side} flattens likely tokens: the difference of the log-odds has slope {high:.3} above their median and {low:.3} below, as after a soft cap of the logits on that side alone"
    );
    let chance = chance_of_correlation(steep, points.len() as f64, STEEP_OTHERWISE);
    let before = case.pairs.total();
    case.clear();
    case.found(Cause::SoftCap, before, evidence, Some(chance), Vec::new());
    true
}

/// Bits of a binary32 that the numbers of a type of 16 bits leave 0, the step between such numbers at 1, and the type.
const NARROW: [(u32, f64, &str); 2] = [(0xffff, 1.0 / 128.0, "bfloat16"), (0x1fff, 1.0 / 1024.0, "float16")];

/// Names a side whose values are numbers of 16 bits, in case this explains the difference.
pub(super) fn precision(case: &mut Case<'_>, rest: &Measures) -> bool {
    let sides = [("trainer", &case.pairs.p), ("rollout", &case.pairs.g)];
    let explained = sides.into_iter().find_map(|(side, column)| {
        let (name, step) = narrow_type(column)?;
        let size = column.iter().map(|value| f64::from(value.abs())).sum::<f64>() / column.len() as f64;
        // A softmax in such numbers rounds its sum and its result, each by half of a step.
        (rest.mean_abs <= step * size)
            .then(|| (format!("every value of the {side} is a number of {name}"), step * size))
    });
    let Some((said, most)) = explained else { return false };
    if rest.mean_abs <= case.bound {
        case.notes.push(said);
        return false;
    }
    let evidence = format!(
        "{said}: mean |d| is {:.1e}, and rounding to such numbers explains up to {most:.1e}",
        rest.mean_abs
    );
    let before = case.pairs.total();
    case.clear();
    // Seen, not inferred: n values of binary32 end in so many zeros with a chance of 2^-13n.
    case.found(Cause::Precision, before, evidence, None, Vec::new());
    true
}

/// Returns the type of 16 bits that all values are numbers of, and its step at 1.
fn narrow_type(column: &[f32]) -> Option<(&'static str, f64)> {
    let all = |bits: u32| column.iter().all(|value| value.to_bits() & bits == 0);
    if (column.len() as f64) < FEWEST {
        return None;
    }
    NARROW.into_iter().find(|(bits, _, _)| all(*bits)).map(|(_, step, name)| (name, step))
}

/// Names a truncation, in case one side gives every token more probability than the other.
pub(super) fn truncation(case: &mut Case<'_>, rest: &Measures) -> bool {
    let (mut large, mut negative) = (0.0, 0.0);
    let pairs = || case.pairs.g.iter().zip(&case.pairs.p);
    for d in pairs().map(|(g, p)| p - g).filter(|d| f64::from(d.abs()) >= rest.mean_abs) {
        large += 1.0;
        negative += f64::from(u8::from(d < 0.0));
    }
    let share = if large > 0.0 { negative / large } else { 0.5 };
    let one_sided = share >= ONE_SIGN || share <= 1.0 - ONE_SIGN;
    let biased = rest.mean.abs() >= 0.9 * rest.mean_abs;
    if large < FEWEST / 2.0 || !one_sided || !biased || rest.mean_abs < 1e-5 || rest.correlation < 0.8 {
        return false;
    }
    let mut ratios: Vec<f32> = pairs().map(|(g, p)| -(p - g).abs()).collect();
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
    case.clear();
    case.found(Cause::Truncation, before, evidence, Some(chance), Vec::new());
    true
}
