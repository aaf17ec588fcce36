//! Compares what two captures recorded of a tensor, without its data: differences of statistics, checksums and
//! positions, and the errors that they prove.

use super::estimate::{SketchEstimate, sum_error};
use super::sentinel::{is_sentinel, kept_out, summed_otherwise};
use super::sums::{BLOCK, CHUNK, LANES};
use probe_dump::{Checksum, Counts, Figure, Number, RecordedStatistics, TensorRecord};

/// Difference of one recorded statistic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StatisticDifference {
    /// `candidate - baseline`; NaN if one side is not finite and the other is different.
    pub difference: f64,
    /// `|difference|` divided by the scale of the baseline tensor (its norm for mean and norm, its largest
    /// magnitude for max and min); 0 if both are the same, infinite if the baseline is all zero or if the
    /// finite state of the two sides differs. Never divided by the statistic itself, which may be near 0.
    pub relative: f64,
}

/// The difference of a statistic that one side may not have recorded.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KnownDifference {
    difference: Figure,
    relative: f64,
}

impl KnownDifference {
    /// Returns the difference; `None` if one side did not record it.
    pub fn get(self) -> Option<StatisticDifference> {
        Some(StatisticDifference { difference: self.difference.get()?, relative: self.relative })
    }
}

impl From<Option<StatisticDifference>> for KnownDifference {
    fn from(found: Option<StatisticDifference>) -> Self {
        let known = |found: StatisticDifference| Self {
            difference: found.difference.into(),
            relative: found.relative,
        };
        found.map_or_else(Self::default, known)
    }
}

/// Result of comparing two checksums of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumMatch {
    /// Equal, and equal checksums of this kind mean equal bytes.
    Equal,
    /// Equal, but checksums of this kind collide for ordinary data (XOR).
    WeaklyEqual,
    /// Different: the bytes differ.
    Different,
}

/// Comparison of what two captures recorded about a tensor, without its data.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct RecordedComparison {
    /// Comparison of the checksums; `None` if one side has none or if they are of different kinds.
    pub checksum: Option<ChecksumMatch>,
    /// Difference of the maxima.
    pub max: KnownDifference,
    /// Difference of the minima.
    pub min: KnownDifference,
    /// Difference of the means.
    pub mean: KnownDifference,
    /// Difference of the norms.
    pub norm: KnownDifference,
    /// Errors estimated from sketches; `None` if one side has none.
    pub sketch: Option<Box<SketchEstimate>>,
    /// Non-finite elements of either side, if both were counted and the counts differ.
    pub counts_differ: Option<Box<(Counts, Counts)>>,
    /// Sentinels of either side, if both excluded them from their sums and the counts differ.
    pub sentinels_differ: Option<Box<(u64, u64)>>,
    /// Lower bound of the relative l2 error that these differences prove, if any of them is between finite
    /// numbers.
    pub rel_l2_at_least: Figure,
    /// Lower bound of the largest absolute error, from max and min, if one of these is known.
    pub max_abs_err_at_least: Figure,
    /// True if an extreme is equal on both sides but at another position: some elements differ, whatever the
    /// statistics show.
    pub moved: bool,
    /// True if, besides that, everything else that was recorded is equal as far as sums can tell: most likely
    /// both sides hold the same elements, some of them at other positions.
    pub rearranged: bool,
    /// True if the baseline's statistics or counts show a NaN or infinity.
    pub baseline_non_finite: bool,
    /// True if the candidate's statistics or counts show a NaN or infinity.
    pub candidate_non_finite: bool,
    /// True if nothing that both sides recorded differs, positions of extremes included, and something was
    /// recorded.
    pub all_same: bool,
    /// The same for integers and bool, where inexact sums may be off by their declared error.
    pub same_integers: bool,
}

/// Relative error of a recorded norm or mean, times the root of the number of elements: captures sum in the
/// tensor's own type, on the host in long runs. Measured for float32: 1e-5 at 1e6 elements, up to 2.3e-4 for
/// uneven values.
const SUM_ROUNDING: f64 = 2.5e-7;

/// The same for sums that probe's own capture made in binary64, for any number of elements. Other sums declare
/// their own error.
const OWN_SUM_ROUNDING: f64 = 1e-12;

/// Compares what two captures recorded of a tensor. Statistics of complex tensors are those of the modulus.
///
/// The bounds follow from three inequalities, with `d = candidate - baseline` and `n` elements:
/// `| |c| - |b| | <= |d|`, `|sum(d)| <= sqrt(n) |d|`, and `|max(c) - max(b)| <= max|d| <= |d|`.
pub fn compare_recorded(baseline: &TensorRecord, candidate: &TensorRecord) -> RecordedComparison {
    let pair = RecordedPair::of(baseline, candidate);
    let checksums_of = baseline.checksum.as_ref().zip(candidate.checksum.as_ref());
    let mut out = RecordedComparison {
        checksum: checksums_of.and_then(|(x, y)| checksums(x, y, baseline.dtype == candidate.dtype)),
        max: pair.max.into(),
        min: pair.min.into(),
        mean: pair.mean.into(),
        norm: pair.norm.into(),
        sketch: SketchEstimate::of(baseline, candidate).map(Box::new),
        counts_differ: counts_differ(baseline, candidate),
        sentinels_differ: pair.apart.filter(|(b, c)| b != c).map(Box::new),
        rel_l2_at_least: pair.rel_l2_at_least().into(),
        max_abs_err_at_least: pair.max_abs_err_at_least().into(),
        moved: moved(baseline, candidate, [pair.max, pair.min]),
        baseline_non_finite: holds_non_finite(baseline),
        candidate_non_finite: holds_non_finite(candidate),
        ..RecordedComparison::default()
    };
    out.rearranged = out.moved && pair.is_rearranged();
    let any = pair.is_counted() || pair.has_statistics() || out.checksum.is_some();
    let may_be_equal = any && out.checksum != Some(ChecksumMatch::Different) && out.counts_differ.is_none();
    out.all_same = may_be_equal
        && pair.shows_no_difference()
        && out.sentinels_differ.is_none()
        && !out.moved
        && out.sketch.as_ref().is_none_or(|sketch| sketch.distance <= 0.0);
    out.same_integers = out.all_same || may_be_equal && pair.may_be_same_integers(out.sketch.as_deref());
    out
}

/// Returns the numbers of non-finite elements of both sides, if both were counted and they differ.
fn counts_differ(baseline: &TensorRecord, candidate: &TensorRecord) -> Option<Box<(Counts, Counts)>> {
    let (x, y) = (baseline.counts.as_deref()?, candidate.counts.as_deref()?);
    let classes = |counts: &Counts| (counts.nan, counts.positive_infinite, counts.negative_infinite);
    (classes(x) != classes(y)).then(|| Box::new((*x, *y)))
}

/// Two records, and the differences of their statistics on one footing.
struct RecordedPair<'a> {
    baseline: &'a TensorRecord,
    candidate: &'a TensorRecord,
    /// Largest and smallest value of each side, on one footing.
    extremes: [(Option<Number>, Option<Number>); 2],
    /// Number of sentinels that either side kept out of its sums, if both kept them out.
    apart: Option<(u64, u64)>,
    /// The baseline's norm, or the most that it can be.
    scale_l2: Option<f64>,
    max: Option<StatisticDifference>,
    min: Option<StatisticDifference>,
    mean: Option<StatisticDifference>,
    norm: Option<StatisticDifference>,
}

impl<'a> RecordedPair<'a> {
    fn of(baseline: &'a TensorRecord, candidate: &'a TensorRecord) -> Self {
        let (b, c) = on_one_footing(baseline, candidate);
        // A 0-d tensor records its value instead of the norm, sign included; the bound needs the magnitude.
        let norm = b.norm.map(f64::abs).filter(|norm| norm.is_finite());
        let magnitude = largest_magnitude(&b);
        let root = (baseline.len() as f64).sqrt();
        let scale_l2 = norm.or_else(|| magnitude.map(|m| m * root));
        let mean_scale = scale_l2.map(|scale| if root > 0.0 { scale / root } else { scale });
        Self {
            baseline,
            candidate,
            extremes: [(b.max, c.max), (b.min, c.min)],
            apart: kept_out(baseline).zip(kept_out(candidate)),
            scale_l2,
            max: statistic(b.max, c.max, magnitude),
            min: statistic(b.min, c.min, magnitude),
            mean: statistic(b.mean.map(Number::Float), c.mean.map(Number::Float), mean_scale),
            norm: statistic(b.norm.map(Number::Float), c.norm.map(Number::Float), scale_l2),
        }
    }

    const fn is_counted(&self) -> bool {
        self.baseline.counts.is_some() && self.candidate.counts.is_some()
    }

    fn has_statistics(&self) -> bool {
        [self.max, self.min, self.mean, self.norm].iter().any(Option::is_some)
    }

    fn shows_no_difference(&self) -> bool {
        let present = [self.max, self.min, self.mean, self.norm];
        present.iter().flatten().all(|s| s.relative.abs().to_bits() == 0)
    }

    /// Returns the lower bound of the largest absolute error. A NaN or an infinity on one side is covered by its verdict;
    /// metrics concern the elements that are finite on both.
    fn max_abs_err_at_least(&self) -> Option<f64> {
        let extremes = [self.max, self.min].into_iter().flatten();
        extremes.map(|s| s.difference.abs()).filter(|d| d.is_finite()).reduce(f64::max)
    }

    /// Returns the lower bound of the relative l2 error: mean and norm bound it directly.
    fn rel_l2_at_least(&self) -> Option<f64> {
        // Rounding in the sums themselves proves nothing.
        let rounding = if self.is_counted() {
            OWN_SUM_ROUNDING
        } else {
            SUM_ROUNDING * (self.baseline.len() as f64).sqrt()
        };
        let rounding = rounding.max(sum_error(self.baseline, self.candidate));
        let from_sums = [self.mean, self.norm]
            .into_iter()
            .flatten()
            .filter(|s| s.difference.is_finite())
            .map(|s| (s.relative - rounding).max(0.0));
        from_sums.chain(self.rel_l2_of_extremes()).filter(|r| !r.is_nan()).reduce(f64::max)
    }

    /// Returns the relative l2 errors that the extremes prove: one of a large tensor moves it by |d| / |b| only.
    fn rel_l2_of_extremes(&self) -> impl Iterator<Item = f64> {
        let found = [self.max, self.min].into_iter().zip(self.extremes);
        found.filter_map(|(s, (x, y))| {
            let difference = s?.difference.abs();
            let scale = match (self.sentinel(self.baseline, x), self.sentinel(self.candidate, y)) {
                // Each may be the least number of its type.
                (Some(_), Some(_)) if self.baseline.dtype != self.candidate.dtype => return None,
                (Some(value), _) => value.abs(),
                (None, _) => self.scale_l2.unwrap_or(0.0),
            };
            difference.is_finite().then(|| ratio(difference, scale))
        })
    }

    /// Returns an extreme that is a sentinel, which was excluded from the norm.
    fn sentinel(&self, record: &TensorRecord, extreme: Option<Number>) -> Option<f64> {
        let extreme = extreme.filter(|_| self.apart.is_some()).map(Number::as_f64);
        let (dtype, value) = record.dtype.known().zip(extreme)?;
        is_sentinel(dtype, value).then_some(value)
    }

    /// Returns true if the sums allow both sides to hold the same elements at other positions.
    fn is_rearranged(&self) -> bool {
        let exact = self.baseline.sum_error.or(self.candidate.sum_error).is_none();
        let reordering = reordering(self.baseline.len() as f64);
        let alike = |sum: Option<StatisticDifference>| sum.is_some_and(|sum| sum.relative <= reordering);
        exact
            && is_same(self.max)
            && is_same(self.min)
            && alike(self.mean)
            && alike(self.norm)
            && self.baseline.counts.is_some()
            && self.baseline.counts == self.candidate.counts
    }

    /// Returns true if nothing shows that two tensors of integers differ, whose inexact sums may be off.
    fn may_be_same_integers(&self, sketch: Option<&SketchEstimate>) -> bool {
        let own = sum_error(self.baseline, self.candidate);
        let blurred = |sketch: &SketchEstimate| {
            own > 0.0
                && !sketch.is_resolved()
                && ![self.baseline, self.candidate].into_iter().all(has_exact_lanes)
        };
        [self.max, self.min].iter().flatten().all(|s| s.relative <= 0.0)
            && [self.mean, self.norm].iter().flatten().all(|s| s.relative <= own.max(LAST_DIGITS))
            && sketch.is_none_or(|sketch| sketch.distance <= 0.0 || blurred(sketch))
    }
}

fn is_same(statistic: Option<StatisticDifference>) -> bool {
    statistic.is_some_and(|statistic| statistic.relative <= 0.0)
}

/// Returns true if an extreme that is equal on both sides has another position.
fn moved(
    baseline: &TensorRecord,
    candidate: &TensorRecord,
    [max, min]: [Option<StatisticDifference>; 2],
) -> bool {
    let places = baseline.places.zip(candidate.places);
    let comparable = baseline.dtype == candidate.dtype && baseline.len() == candidate.len();
    places
        .filter(|_| comparable)
        .is_some_and(|(b, c)| is_same(max) && b.max() != c.max() || is_same(min) && b.min() != c.min())
}

/// Relative difference between mean and norm of the same integers if two programs divide and take the root in
/// another order.
const LAST_DIGITS: f64 = 4.0 * f64::EPSILON;

/// Returns the largest effect of reordering the same elements on a sum in binary64, relative to the sum of
/// their magnitudes: on each side a lane of a block, the blocks of a chunk and the chunks round once for each
/// of their terms, and a term once more.
fn reordering(elements: f64) -> f64 {
    let terms = BLOCK / LANES + LANES + CHUNK / BLOCK + 1;
    (terms as f64 + elements / CHUNK as f64) * f64::EPSILON
}

/// Returns true if no sum of integers in a sketch lane can exceed the digits of binary32, however it was
/// summed.
fn has_exact_lanes(record: &TensorRecord) -> bool {
    let lanes = record.sketch.as_ref().map_or(1, |sketch| sketch.version.lanes());
    let rows = (record.len() as f64 / lanes as f64).ceil();
    largest_magnitude(&record.statistics.get()).is_some_and(|magnitude| magnitude * rows < 16_777_216.0)
}

fn checksums(a: &Checksum, b: &Checksum, same_type: bool) -> Option<ChecksumMatch> {
    let (equal, proof) = match (a, b) {
        (Checksum::Crc32(a), Checksum::Crc32(b)) => (a == b, ChecksumMatch::Equal),
        (Checksum::Xor(a), Checksum::Xor(b)) => (a == b, ChecksumMatch::WeaklyEqual),
        (Checksum::Value(a), Checksum::Value(b)) => {
            (Number::Float(*a).same(Number::Float(*b)), ChecksumMatch::Equal)
        }
        (Checksum::Text(a), Checksum::Text(b)) => (a == b, ChecksumMatch::Equal),
        // Hashes of bytes: different types prove nothing.
        (Checksum::Xxh3(a), Checksum::Xxh3(b)) if same_type => (a == b, ChecksumMatch::Equal),
        _ => return None,
    };
    Some(if equal { proof } else { ChecksumMatch::Different })
}

/// Converts the statistics of both sides to one convention.
///
/// A record with counts has statistics of the finite elements, in binary64. One without was made by the older
/// tool: a NaN or an infinity is in its statistics too, the norm of a 0-d tensor is its value with its sign,
/// and a norm may have overflowed in the tensor's own type.
fn on_one_footing(
    baseline: &TensorRecord,
    candidate: &TensorRecord,
) -> (RecordedStatistics, RecordedStatistics) {
    let (mut b, mut c) = (baseline.statistics.get(), candidate.statistics.get());
    if summed_otherwise(baseline, candidate) {
        for side in [&mut b, &mut c] {
            (side.mean, side.norm) = (None, None);
        }
    }
    if baseline.counts.is_some() == candidate.counts.is_some() {
        return (b, c);
    }
    (b, c) = (with_non_finite(baseline, b), with_non_finite(candidate, c));
    for side in [&mut b, &mut c] {
        let scalar = baseline.shape.is_empty() || candidate.shape.is_empty();
        side.norm = side.norm.map(|norm| if scalar { norm.abs() } else { norm });
    }
    let overflowed =
        |side: &RecordedStatistics| !shows_non_finite(side) && side.norm.is_some_and(f64::is_infinite);
    if overflowed(&b) || overflowed(&c) {
        (b.norm, c.norm) = (None, None);
    }
    (b, c)
}

/// Returns the statistics that a tool without counts would have recorded.
fn with_non_finite(record: &TensorRecord, mut statistics: RecordedStatistics) -> RecordedStatistics {
    let Some(counts) = &record.counts else { return statistics };
    let (up, down) = (counts.positive_infinite > 0, counts.negative_infinite > 0);
    let infinite = |up: bool| Some(Number::Float(if up { f64::INFINITY } else { f64::NEG_INFINITY }));
    if counts.nan > 0 {
        let nan = Some(Number::Float(f64::NAN));
        return RecordedStatistics { max: nan, min: nan, mean: Some(f64::NAN), norm: Some(f64::NAN) };
    }
    if up || down {
        statistics.max = if up { infinite(true) } else { statistics.max.or(infinite(false)) };
        statistics.min = if down { infinite(false) } else { statistics.min.or(infinite(true)) };
        statistics.norm = Some(f64::INFINITY);
        statistics.mean = Some(match (up, down) {
            (true, true) => f64::NAN,
            (true, false) => f64::INFINITY,
            (false, _) => f64::NEG_INFINITY,
        });
    }
    statistics
}

fn holds_non_finite(record: &TensorRecord) -> bool {
    record.counts.as_ref().map_or_else(
        || shows_non_finite(&record.statistics.get()),
        |counts| counts.nan + counts.positive_infinite + counts.negative_infinite > 0,
    )
}

fn shows_non_finite(statistics: &RecordedStatistics) -> bool {
    let bad = |number: Option<Number>| number.is_some_and(|n| !n.as_f64().is_finite());
    // The norm of a half-precision tensor overflows in its own type although all elements are finite, so only
    // the extremes tell.
    bad(statistics.max) || bad(statistics.min)
}

fn largest_magnitude(statistics: &RecordedStatistics) -> Option<f64> {
    [statistics.max, statistics.min]
        .into_iter()
        .flatten()
        .map(|n| n.as_f64().abs())
        .filter(|v| v.is_finite())
        .reduce(f64::max)
}

fn ratio(difference: f64, scale: f64) -> f64 {
    if difference.to_bits() == 0 { 0.0 } else { difference / scale }
}

fn statistic(b: Option<Number>, c: Option<Number>, scale: Option<f64>) -> Option<StatisticDifference> {
    let (b, c) = (b?, c?);
    if b.same(c) {
        return Some(StatisticDifference { difference: 0.0, relative: 0.0 });
    }
    let difference = exact_difference(b, c);
    let relative =
        if difference.is_finite() { ratio(difference.abs(), scale.unwrap_or(0.0)) } else { f64::INFINITY };
    Some(StatisticDifference { difference, relative })
}

fn exact_difference(b: Number, c: Number) -> f64 {
    let integer = |n: Number| match n {
        Number::Int(v) => Some(i128::from(v)),
        Number::UInt(v) => Some(i128::from(v)),
        Number::Float(_) | Number::Bool(_) => None,
    };
    match (integer(b), integer(c)) {
        (Some(b), Some(c)) => (c - b) as f64,
        _ => c.as_f64() - b.as_f64(),
    }
}

#[cfg(test)]
mod tests;
