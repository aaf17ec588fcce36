//! How far the two sides are apart, in the numbers that the field uses.
//!
//! With g the engine's and p the trainer's log-probability of a token that the engine sampled, d = p - g is the logarithm of the
//! importance weight. All sums run over blocks of fixed size that are merged in order, so they do not depend on threads.

use rayon::prelude::*;
use serde::Serialize;

/// Tokens of a block.
const BLOCK: usize = 1 << 16;

/// Most values from which quantiles are taken; of more, every n-th.
const QUANTILES: usize = 1 << 20;

/// Distance of an importance weight from 1 beyond which PPO clips it, as most recipes have it.
pub const CLIP: f64 = 0.2;

/// Differences of tokens with finite values on both sides. d is the trainer's log-probability minus the engine's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct Measures {
    /// Tokens.
    pub tokens: u64,
    /// Mean of |d|.
    pub mean_abs: f64,
    /// Largest |d|.
    pub max_abs: f64,
    /// Median of |d|.
    pub median_abs: f64,
    /// 99th percentile of |d|.
    pub p99_abs: f64,
    /// Mean of d.
    pub mean: f64,
    /// Mean of exp |d|; `NeMo-RL` warns above 1.05.
    pub mean_exp_abs: f64,
    /// Estimate k1 of the divergence of the trainer from the engine: mean of -d.
    pub k1: f64,
    /// Estimate k3: mean of exp d - 1 - d. Never negative.
    pub k3: f64,
    /// Mean of exp d: 1 if the engine's values are those it sampled with.
    pub identity: f64,
    /// Standard error of `identity`.
    pub identity_error: f64,
    /// Mean of exp -d: 1 if the trainer's values are those that the engine sampled with.
    pub inverse: f64,
    /// Standard error of `inverse`.
    pub inverse_error: f64,
    /// Effective sample size of the importance weights, as a share of the tokens: 0 to 1.
    pub effective: f64,
    /// Share of tokens whose importance weight is further than 0.2 from 1.
    pub clipped: f64,
    /// Share of d below 0.
    pub negative: f64,
    /// Correlation of the two sides' log-probabilities; NaN, in JSON null, where one is constant.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub correlation: f64,
    /// Mean absolute difference of the probabilities.
    pub mean_probability: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    count: f64,
    d: f64,
    abs: f64,
    max: f64,
    exp_abs: f64,
    up: [f64; 2],
    down: [f64; 2],
    clipped: f64,
    negative: f64,
    probability: f64,
    g: [f64; 2],
    p: [f64; 2],
    both: f64,
}

/// Largest |d| that is put into an exponential.
const LARGEST: f64 = 80.0;

/// Sums of tokens that are made of blocks and merged in order.
pub(crate) trait Folded: Default + Send {
    /// Adds a token with the log-probabilities `g` of the engine and `p` of the trainer.
    fn add(&mut self, g: f64, p: f64);

    /// Adds the sums of the next block.
    fn merge(self, next: &Self) -> Self;

    /// Sums all tokens.
    fn of(g: &[f32], p: &[f32]) -> Self {
        let block = |(g, p): (&[f32], &[f32])| {
            let mut sums = Self::default();
            g.iter().zip(p).for_each(|(g, p)| sums.add(f64::from(*g), f64::from(*p)));
            sums
        };
        let blocks: Vec<Self> = g.par_chunks(BLOCK).zip(p.par_chunks(BLOCK)).map(block).collect();
        blocks.iter().fold(Self::default(), Self::merge)
    }
}

impl Folded for Sums {
    fn add(&mut self, g: f64, p: f64) {
        let d = p - g;
        let bounded = d.clamp(-LARGEST, LARGEST);
        let up = bounded.exp();
        let down = 1.0 / up;
        self.count += 1.0;
        self.d += d;
        self.abs += d.abs();
        self.max = self.max.max(d.abs());
        self.exp_abs += up.max(down);
        self.up = [self.up[0] + up, self.up[1] + up * up];
        self.down = [self.down[0] + down, self.down[1] + down * down];
        self.clipped += f64::from(u8::from((up - 1.0).abs() > CLIP));
        self.negative += f64::from(u8::from(d < 0.0));
        self.probability += g.exp() * (up - 1.0).abs();
        self.g = [self.g[0] + g, self.g[1] + g * g];
        self.p = [self.p[0] + p, self.p[1] + p * p];
        self.both += g * p;
    }

    fn merge(mut self, other: &Self) -> Self {
        self.count += other.count;
        self.d += other.d;
        self.abs += other.abs;
        self.max = self.max.max(other.max);
        self.exp_abs += other.exp_abs;
        for (mine, theirs) in [
            (&mut self.up, other.up),
            (&mut self.down, other.down),
            (&mut self.g, other.g),
            (&mut self.p, other.p),
        ] {
            mine[0] += theirs[0];
            mine[1] += theirs[1];
        }
        self.clipped += other.clipped;
        self.negative += other.negative;
        self.probability += other.probability;
        self.both += other.both;
        self
    }
}

impl Measures {
    /// Measures tokens, `g` of the engine and `p` of the trainer, all finite.
    pub fn of(g: &[f32], p: &[f32]) -> Self {
        let sums = Sums::of(g, p);
        if g.is_empty() {
            return Self::default();
        }
        let n = sums.count;
        let mean = sums.d / n;
        let error = |[sum, square]: [f64; 2]| ((square / n - (sum / n).powi(2)).max(0.0) / n).sqrt();
        let variance = |[sum, square]: [f64; 2]| (square / n - (sum / n).powi(2)).max(0.0);
        let spread = (variance(sums.g) * variance(sums.p)).sqrt();
        let covariance = sums.both / n - sums.g[0] / n * (sums.p[0] / n);
        let [median_abs, p99_abs] = quantiles(g, p);
        Self {
            tokens: g.len() as u64,
            mean_abs: sums.abs / n,
            max_abs: sums.max,
            median_abs,
            p99_abs,
            mean,
            mean_exp_abs: sums.exp_abs / n,
            k1: -mean,
            k3: (sums.up[0] / n - 1.0 - mean).max(0.0),
            identity: sums.up[0] / n,
            identity_error: error(sums.up),
            inverse: sums.down[0] / n,
            inverse_error: error(sums.down),
            effective: sums.up[0].powi(2) / (n * sums.up[1]),
            clipped: sums.clipped / n,
            negative: sums.negative / n,
            correlation: if spread > 0.0 { covariance / spread } else { f64::NAN },
            mean_probability: sums.probability / n,
        }
    }
}

/// Returns the median and the 99th percentile of |p - g|.
fn quantiles(g: &[f32], p: &[f32]) -> [f64; 2] {
    let stride = g.len().div_ceil(QUANTILES);
    let mut values: Vec<f32> = g.iter().zip(p).step_by(stride).map(|(g, p)| (p - g).abs()).collect();
    [0.5, 0.99].map(|share| quantile(&mut values, share))
}

/// Returns the value below which this share of the values lies; reorders them.
pub(crate) fn quantile(values: &mut [f32], share: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
    let place = (share * last as f64).round() as usize;
    f64::from(*values.select_nth_unstable_by(place.min(last), f32::total_cmp).1)
}

/// Sums for the correlation of two series.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Correlation {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Correlation {
    pub(crate) fn add(&mut self, x: f64, y: f64) {
        self.n += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.yy += y * y;
        self.xy += x * y;
    }

    pub(crate) fn merge(mut self, next: &Self) -> Self {
        self.n += next.n;
        self.x += next.x;
        self.y += next.y;
        self.xx += next.xx;
        self.yy += next.yy;
        self.xy += next.xy;
        self
    }

    pub(crate) const fn count(&self) -> f64 {
        self.n
    }

    fn moments(&self) -> (f64, f64, f64) {
        let (x, y) = (self.x / self.n, self.y / self.n);
        (self.xx / self.n - x * x, self.yy / self.n - y * y, self.xy / self.n - x * y)
    }

    /// Returns Pearson's coefficient; 0 where one series is constant.
    pub(crate) fn coefficient(&self) -> f64 {
        let (xx, yy, xy) = self.moments();
        if self.n < 3.0 || xx <= 0.0 || yy <= 0.0 { 0.0 } else { (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0) }
    }

    /// Returns the slope of y against x by least squares; 0 where x is constant.
    pub(crate) fn slope(&self) -> f64 {
        let (xx, _, xy) = self.moments();
        if xx > 0.0 { xy / xx } else { 0.0 }
    }

    /// Returns the slope of the first principal axis: of y against x where both have noise.
    pub(crate) fn principal_slope(&self) -> f64 {
        let (xx, yy, xy) = self.moments();
        let gap = yy - xx;
        (gap + (gap * gap + 4.0 * xy * xy).sqrt()) / (2.0 * xy)
    }
}

/// Returns the ranks of values, equal ones sharing their mean rank.
pub(crate) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let tied = order[start..]
            .iter()
            .take_while(|place| values[**place].total_cmp(&values[order[start]]).is_eq());
        let end = start + tied.count();
        order[start..end].iter().for_each(|place| ranks[*place] = (start + end - 1) as f64 / 2.0);
        start = end;
    }
    ranks
}

/// Returns Spearman's coefficient.
pub(crate) fn rank_correlation(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = Correlation::default();
    ranks(x).into_iter().zip(ranks(y)).for_each(|(x, y)| sums.add(x, y));
    sums.coefficient()
}

/// Returns the chance that a normal variable lies further from 0 than `z`, on both sides together. The bound is Mills's:
/// within 5 % above z = 2.5, and never too small.
pub(crate) fn chance_beyond(z: f64) -> f64 {
    let z = z.abs();
    if z < 0.8 {
        return 1.0;
    }
    ((2.0 / std::f64::consts::PI).sqrt() / z * (-z * z / 2.0).exp()).min(1.0)
}

/// Returns the chance of a correlation of at least `r` among `n` pairs whose true one is `null`, by Fisher's transform. No order of few
/// values is rarer than one among all orders of them.
pub(crate) fn chance_of_correlation(r: f64, n: f64, null: f64) -> f64 {
    let transform = |r: f64| r.abs().min(0.999_999).atanh();
    let orders: f64 = (1..=20_u8).map(f64::from).take_while(|place| *place <= n).product();
    chance_beyond((transform(r) - transform(null)).max(0.0) * (n - 3.0).max(1.0).sqrt()).max(1.0 / orders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_pair_has_known_measures() {
        let g = [-1.0_f32, -2.0, -0.5, -3.0];
        let p = [-1.1_f32, -1.8, -0.5, -3.4];
        let measures = Measures::of(&g, &p);
        let d = [-0.1_f64, 0.2, 0.0, -0.4];
        let mean = |of: &dyn Fn(f64) -> f64| d.iter().map(|d| of(*d)).sum::<f64>() / 4.0;
        for (found, expected) in [
            (measures.mean_abs, 0.175),
            (measures.mean, -0.075),
            (measures.k3, mean(&|d| d.exp_m1() - d)),
            (measures.identity, mean(&f64::exp)),
            (measures.mean_exp_abs, mean(&|d| d.abs().exp())),
            (measures.effective, mean(&f64::exp).powi(2) / mean(&|d| (2.0 * d).exp())),
            (measures.clipped, 0.5),
            (measures.negative, 0.5),
        ] {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }

    #[test]
    fn ranks_share_ties() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [2.5, 0.0, 2.5, 1.0]);
        assert!((rank_correlation(&[1.0, 2.0, 3.0], &[1.0, 8.0, 27.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_slope_is_that_of_the_line() {
        let mut sums = Correlation::default();
        (0..50).for_each(|x| sums.add(f64::from(x), 1.4 * f64::from(x) + 3.0));
        assert!((sums.principal_slope() - 1.4).abs() < 1e-9);
    }
}
