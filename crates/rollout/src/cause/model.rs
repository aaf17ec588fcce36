//! Traces of the model itself: padding, position, age of the weights, and what is left when nothing else explains it.

use super::{Again, Case, Cause};
use crate::measure::{Measures, chance_of_correlation, rank_correlation, ranks};
use crate::pairs::Row;

/// Chance below which a trace is named.
const CHANCE: f64 = 0.005;
/// Factor between the error of rows with and without padding from which padding is named.
const PADDED: f64 = 3.0;
/// Share of what rounding explains up to which a row without padding is clean.
const CLEAN: f64 = 0.1;
/// Fewest rows with and without padding that are held against each other within rounding. There, sound pairs in bfloat16 had factors up to 1.3 with
/// such numbers of rows, positions of padded rows that are off by one 5.9 and more.
const FEWEST_BESIDE: usize = 4;
/// Times that rounding of a sound pair may lie below its bound: small models had a tenth of it.
const ROUNDS: f64 = 30.0;
/// Correlation of error and position, as a mean over rows, up to which it is no trace: rounding left 0.017 and stale weights 0.009 in pairs
/// of 78,000 tokens, another rotary base 0.04 to 0.2.
const LEVEL: f64 = 0.02;
/// Standard errors by which it must lie above that; chance alone does so once in 740.
const RISES: f64 = 3.0;
/// Fewest rows, and tokens of each, from which a trend with the position is inferred.
const FEWEST: (usize, usize) = (6, 8);

/// Multiple of what two passes of the trainer differ by from which on it is no rounding. Between an engine and a trainer, rounding was 0.95 to 1.18 times what
/// two passes with other kernels of attention and products differed by, in six models and two types.
const PASSES: f64 = 2.0;

/// Reports a trainer that does not repeat itself. What two passes differ by is what rounding explains, in place of what is assumed of a type, if
/// rounding moved most tokens and not by next to nothing: on one device, another micro-batch may leave all bits as they are.
pub(super) fn trainer(case: &mut Case<'_>, again: &Again, rest: &Measures) {
    if again.tokens == 0 {
        return;
    }
    case.notes.push(format!("two passes of the trainer differ by {:.2e} on average", again.mean_abs));
    if again.mean_abs > case.bound && again.mean_abs > 0.5 * rest.mean_abs {
        let before = case.pairs.total();
        case.clear();
        let evidence = format!(
            "two passes of the trainer over the same tokens differ by {:.3} on average, the two sides by {:.3}: the trainer is not deterministic, as with dropout",
            again.mean_abs, rest.mean_abs
        );
        case.found(Cause::Trainer, before, evidence, None, Vec::new());
    }
    let measured = PASSES * again.mean_abs;
    let tells = again.median_abs > 0.0 && measured * ROUNDS >= case.bound;
    case.bound = if tells { measured } else { case.bound.max(measured) };
}

/// Names what the rest of the differences follows, or says that the weights differ.
pub(super) fn explain(case: &mut Case<'_>, rest: &Measures) {
    // These hold samples of the pair against each other, so they see below what rounding may be elsewhere.
    if stale(case)
        || case.pairs.len() == 0
        || padding(case, rest)
        || rest.mean_abs <= case.bound
        || position(case)
    {
        return;
    }
    let before = case.pairs.total();
    let enough = long(case).count() >= FEWEST.0;
    case.clear();
    let identity = if (rest.identity - 1.0).abs() < 4.0 * rest.identity_error {
        ", and E[exp d] is 1 within its error, as if each side computes its own model correctly"
    } else {
        ""
    };
    let follows = if enough {
        " and follows neither position nor padding"
    } else {
        ", too few to tell if it follows the position"
    };
    let evidence = format!(
        "mean |d| is {:.3}, rounding explains {:.1e}; the error is spread over all samples{follows}{identity}: \
         stale or unsynced weights, a wrong weight converter, quantisation, or another model",
        rest.mean_abs, case.bound
    );
    case.found(Cause::Weights, before, evidence, None, Vec::new());
}

/// Returns the error of each row with tokens, with a fact about the sample.
fn by_row(case: &Case<'_>, fact: impl Fn(usize) -> Option<f64>) -> (Vec<f64>, Vec<f64>) {
    let rows = case.pairs.rows.iter().filter(|row| row.range.len() >= 2);
    rows.filter_map(|row| Some((case.pairs.error(row), fact(row.sample)?))).unzip()
}

/// Names the age of the weights, if samples of older ones differ more.
fn stale(case: &mut Case<'_>) -> bool {
    let version = |sample: usize| case.table.samples[sample].version;
    let Some(newest) = case.samples.clone().filter_map(version).max() else { return false };
    let (errors, ages) = by_row(case, |sample| version(sample).map(|version| (newest - version) as f64));
    let oldest = ages.iter().copied().fold(0.0, f64::max);
    let r = rank_correlation(&errors, &ages);
    let chance = chance_of_correlation(r, errors.len() as f64, 0.0);
    let mean = |old: bool| {
        let of: Vec<f64> = errors
            .iter()
            .zip(&ages)
            .filter(|(_, age)| (**age > 0.0) == old)
            .map(|(error, _)| *error)
            .collect();
        of.iter().sum::<f64>() / (of.len().max(1)) as f64
    };
    let (old, new) = (mean(true), mean(false));
    if oldest <= 0.0 || r <= 0.0 || chance > CHANCE || old < 1.5 * new {
        return false;
    }
    let before = case.pairs.total();
    case.clear();
    let evidence = format!(
        "samples of weights up to {oldest:.0} updates older than the newest differ by {old:.3}, those of the newest by {new:.3} (rank correlation with the age {r:.2})"
    );
    case.found(Cause::Stale, before, evidence, Some(chance), Vec::new());
    true
}

/// Errors of the rows without padding and of those with it.
struct ByPadding {
    clean: Vec<f64>,
    padded: Vec<f64>,
    /// True if the file tells the padding. Where it does not, it is taken to be what makes all samples as long as the longest.
    told: bool,
    /// Rank correlation of error and padding.
    follows: f64,
}

impl ByPadding {
    fn of(case: &Case<'_>) -> Self {
        let length = |sample: usize| {
            let last = case.table.samples[sample].range.clone().next_back()?;
            Some(f64::from(case.table.tokens.positions[last]) + 1.0)
        };
        let longest = case.samples.clone().filter_map(length).fold(0.0, f64::max);
        let told = case.samples.clone().any(|sample| case.table.samples[sample].padding.is_some());
        let (errors, paddings) = by_row(case, |sample| {
            if told {
                case.table.samples[sample].padding.map(f64::from)
            } else {
                Some(longest - length(sample)?)
            }
        });
        let least = paddings.iter().copied().fold(f64::INFINITY, f64::min);
        let rows: Vec<(f64, f64)> = errors.iter().copied().zip(paddings.iter().copied()).collect();
        let of = |padded: bool| -> Vec<f64> {
            rows.iter().filter(|(_, by)| (*by > least) == padded).map(|(error, _)| *error).collect()
        };
        Self { clean: of(false), padded: of(true), told, follows: rank_correlation(&errors, &paddings) }
    }

    /// Returns the chance of such errors if the padding has no part in them, where they are far enough apart to say that it has. `beyond` says
    /// that rounding does not explain the whole.
    fn chance(&self, bound: f64, beyond: bool) -> Option<f64> {
        let rows = self.clean.len() + self.padded.len();
        let (worst, least) = (largest(&self.clean), -largest(self.padded.iter().map(|error| -error)));
        let by_place = if least > worst { 1.0 / choices(rows, self.clean.len()) } else { 1.0 };
        if self.clean.is_empty() || self.padded.is_empty() {
            return None;
        }
        if beyond
            && self.told
            && self.clean.len() >= 2
            && self.padded.len() >= 2
            && worst <= CLEAN * bound
            && least > bound
        {
            // No other weights leave these rows clean, however few they are.
            return Some(by_place);
        }
        let chance = if beyond {
            // Either the error follows the amount of padding, or all rows without any happen to be the best ones.
            let follows = chance_of_correlation(self.follows, rows as f64, 0.0);
            (mean(&self.padded) >= PADDED * worst && self.follows > 0.0).then(|| follows.min(by_place))
        } else {
            self.within_rounding(bound)
        };
        chance.filter(|chance| *chance <= CHANCE)
    }

    /// Returns the chance by the sum of ranks, where the rows without padding show how far rounding goes in this very pair. Rows that are nearly
    /// equal to the bit do not: the two sides computed them by the same kernels, and those with padding by others.
    fn within_rounding(&self, bound: f64) -> Option<f64> {
        let (usual, rounding) = (mean(&self.padded), mean(&self.clean));
        let enough = self.told && self.clean.len().min(self.padded.len()) >= FEWEST_BESIDE;
        (enough && rounding >= bound / ROUNDS && usual >= PADDED * rounding)
            .then(|| crate::measure::chance_beyond(rank_sum(&self.clean, &self.padded).max(0.0)))
    }
}

/// Names the padding, if rows without it are clean.
fn padding(case: &mut Case<'_>, rest: &Measures) -> bool {
    let rows = ByPadding::of(case);
    // Rows without padding show how far rounding goes in this very pair; what is assumed of a type says if that can be.
    let bound = case.bound.max(case.assumed);
    let Some(chance) = rows.chance(bound, rest.mean_abs > bound) else { return false };
    let before = case.pairs.total();
    case.clear();
    let how = if rows.told { "" } else { ", taking all samples to be padded to the longest" };
    let evidence = format!(
        "the {} samples without padding differ by {:.2e} at most, the {} with padding by {:.3} on average (rank correlation {:.2}{how})",
        rows.clean.len(),
        largest(&rows.clean),
        rows.padded.len(),
        mean(&rows.padded),
        rows.follows
    );
    case.found(Cause::Padding, before, evidence, Some(chance), Vec::new());
    true
}

fn largest(values: impl IntoIterator<Item = impl std::borrow::Borrow<f64>>) -> f64 {
    values.into_iter().map(|value| *value.borrow()).fold(f64::NEG_INFINITY, f64::max)
}

fn mean<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Returns by how many standard errors the values of `more` rank above those of `less` (Mann and Whitney).
fn rank_sum(less: &[f64], more: &[f64]) -> f64 {
    let both: Vec<f64> = more.iter().chain(less).copied().collect();
    let (n, k) = (less.len() as f64, more.len() as f64);
    let sum: f64 = ranks(&both)[..more.len()].iter().sum();
    // Ranks begin at 0.
    (sum - k * (n + k - 1.0) / 2.0) / (n * k * (n + k + 1.0) / 12.0).sqrt()
}

/// Returns the number of ways to choose `k` of `n`.
fn choices(n: usize, k: usize) -> f64 {
    (0..k.min(n)).map(|at| (n - at) as f64 / (at + 1) as f64).product()
}

/// Returns the rank correlation of position and error of log-odds in one row. The log-odds take out how hard tokens are.
fn rise(case: &Case<'_>, row: &Row) -> f64 {
    let (g, p) = case.pairs.row(row);
    let odds = |value: &f32| {
        let value = f64::from(*value).min(-1e-4);
        value - (-value.exp_m1()).ln()
    };
    let errors: Vec<f64> = g.iter().zip(p).map(|(g, p)| (odds(p) - odds(g)).abs()).collect();
    let places: Vec<f64> = (0..errors.len()).map(|place| place as f64).collect();
    rank_correlation(&places, &errors)
}

/// Returns the rows that are long enough for a trend.
fn long<'a>(case: &'a Case<'_>) -> impl Iterator<Item = &'a Row> {
    case.pairs.rows.iter().filter(|row| row.range.len() >= FEWEST.1)
}

/// Names the position, if the error grows along rows.
pub(super) fn position(case: &mut Case<'_>) -> bool {
    let rises: Vec<f64> = long(case).map(|row| rise(case, row)).collect();
    let n = rises.len() as f64;
    if rises.len() < FEWEST.0 {
        return false;
    }
    let mean = rises.iter().sum::<f64>() / n;
    let spread = (rises.iter().map(|rise| (rise - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let standard = as_normal((mean - LEVEL) / (spread / n.sqrt()).max(1e-9), n - 1.0);
    if standard < RISES {
        return false;
    }
    let thirds = thirds(case);
    let before = case.pairs.total();
    case.clear();
    let evidence = format!(
        "the error grows with the position: mean |d| is {:.3} in the first and {:.3} in the last third of the tokens by position (rank correlation {mean:.2} over {n} samples, {standard:.1} standard errors above {LEVEL})",
        thirds[0], thirds[1]
    );
    case.found(Cause::Position, before, evidence, Some(crate::measure::chance_beyond(standard)), Vec::new());
    true
}

/// Returns the normal deviate that is as unlikely as `t` with `freedom` degrees of freedom (Wallace's approximation, within 0.2).
fn as_normal(t: f64, freedom: f64) -> f64 {
    let size = (freedom * (t * t / freedom).ln_1p()).sqrt() * (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0);
    size.copysign(t)
}

/// Returns the mean of |d| in the first and the last third of all tokens, by position.
fn thirds(case: &Case<'_>) -> [f64; 2] {
    let positions: Vec<f64> =
        case.pairs.place.iter().map(|place| f64::from(case.table.tokens.positions[*place])).collect();
    let ranks = ranks(&positions);
    let third = positions.len() as f64 / 3.0;
    let mean = |inside: &dyn Fn(f64) -> bool| {
        let places: Vec<usize> = (0..ranks.len()).filter(|at| inside(ranks[*at])).collect();
        let sum: f64 = places.iter().map(|at| f64::from((case.pairs.p[*at] - case.pairs.g[*at]).abs())).sum();
        sum / places.len().max(1) as f64
    };
    [mean(&|rank| rank < third), mean(&|rank| rank >= 2.0 * third)]
}
