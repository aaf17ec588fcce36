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
    let (b, c) = &on_one_footing(baseline, candidate);
    let apart = kept_out(baseline).zip(kept_out(candidate));
    let mut out = RecordedComparison {
        baseline_non_finite: holds_non_finite(baseline),
        candidate_non_finite: holds_non_finite(candidate),
        sketch: SketchEstimate::of(baseline, candidate).map(Box::new),
        sentinels_differ: apart.filter(|(b, c)| b != c).map(Box::new),
        ..RecordedComparison::default()
    };
    if let (Some(x), Some(y)) = (baseline.counts.as_deref(), candidate.counts.as_deref()) {
        let classes = |counts: &Counts| (counts.nan, counts.positive_infinite, counts.negative_infinite);
        out.counts_differ = (classes(x) != classes(y)).then(|| Box::new((*x, *y)));
    }
    if let (Some(x), Some(y)) = (&baseline.checksum, &candidate.checksum) {
        out.checksum = checksums(x, y, baseline.dtype == candidate.dtype);
    }
    let count = baseline.len() as f64;
    // A 0-d tensor records its value instead of the norm, sign included; the bound needs the magnitude.
    let norm = b.norm.map(f64::abs).filter(|norm| norm.is_finite());
    let magnitude = largest_magnitude(b);
    let root = count.sqrt();
    let scale_l2 = norm.or_else(|| magnitude.map(|m| m * root));
    let (max, min) = (statistic(b.max, c.max, magnitude), statistic(b.min, c.min, magnitude));
    let mean_scale = scale_l2.map(|scale| if root > 0.0 { scale / root } else { scale });
    let mean = statistic(b.mean.map(Number::Float), c.mean.map(Number::Float), mean_scale);
    let norm = statistic(b.norm.map(Number::Float), c.norm.map(Number::Float), scale_l2);
    (out.max, out.min, out.mean, out.norm) = (max.into(), min.into(), mean.into(), norm.into());

    let present = [max, min, mean, norm];
    let extremes = [max, min].into_iter().flatten();
    // A NaN or an infinity on one side is covered by its verdict; metrics concern the elements that are finite
    // on both.
    out.max_abs_err_at_least =
        extremes.map(|s| s.difference.abs()).filter(|d| d.is_finite()).reduce(f64::max).into();
    // An extreme of a large tensor moves the l2 error by |d| / |b| only; mean and norm bound it directly.
    // Returns a sentinel that was excluded from the norm.
    let sentinel = |record: &TensorRecord, extreme: Option<Number>| {
        let (dtype, value) =
            record.dtype.known().zip(extreme.filter(|_| apart.is_some()).map(Number::as_f64))?;
        is_sentinel(dtype, value).then_some(value)
    };
    let from_extremes = [(max, b.max, c.max), (min, b.min, c.min)].into_iter().filter_map(|(s, x, y)| {
        let difference = s?.difference.abs();
        let scale = match (sentinel(baseline, x), sentinel(candidate, y)) {
            // Each may be the least number of its type.
            (Some(_), Some(_)) if baseline.dtype != candidate.dtype => return None,
            (Some(value), _) => value.abs(),
            (None, _) => scale_l2.unwrap_or(0.0),
        };
        difference.is_finite().then(|| ratio(difference, scale))
    });
    let counted = baseline.counts.is_some() && candidate.counts.is_some();
    // Rounding in the sums themselves proves nothing.
    let rounding = if counted { OWN_SUM_ROUNDING } else { SUM_ROUNDING * root };
    let rounding = rounding.max(sum_error(baseline, candidate));
    let from_sums = [mean, norm]
        .into_iter()
        .flatten()
        .filter(|s| s.difference.is_finite())
        .map(|s| (s.relative - rounding).max(0.0));
    out.rel_l2_at_least = from_sums.chain(from_extremes).filter(|r| !r.is_nan()).reduce(f64::max).into();
    out.moved = moved(baseline, candidate, [max, min]);
    let exact = baseline.sum_error.or(candidate.sum_error).is_none();
    let alike = |sum: Option<StatisticDifference>| sum.is_some_and(|sum| sum.relative <= reordering(count));
    out.rearranged = out.moved
        && exact
        && is_same(max)
        && is_same(min)
        && alike(mean)
        && alike(norm)
        && baseline.counts.is_some()
        && baseline.counts == candidate.counts;
    let any = counted || present.iter().any(Option::is_some) || out.checksum.is_some();
    let none_differs = present.iter().flatten().all(|s| s.relative.abs().to_bits() == 0)
        && out.counts_differ.is_none()
        && out.sentinels_differ.is_none()
        && !out.moved
        && out.sketch.as_ref().is_none_or(|sketch| sketch.distance <= 0.0);
    out.all_same = any && none_differs && out.checksum != Some(ChecksumMatch::Different);
    let own = sum_error(baseline, candidate);
    let blurred = |sketch: &SketchEstimate| {
        own > 0.0 && !sketch.is_resolved() && ![baseline, candidate].into_iter().all(has_exact_lanes)
    };
    out.same_integers = out.all_same
        || any
            && out.checksum != Some(ChecksumMatch::Different)
            && out.counts_differ.is_none()
            && [max, min].iter().flatten().all(|s| s.relative <= 0.0)
            && [mean, norm].iter().flatten().all(|s| s.relative <= own.max(LAST_DIGITS))
            && out.sketch.as_deref().is_none_or(|sketch| sketch.distance <= 0.0 || blurred(sketch));
    out
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
mod tests {
    use super::*;
    use crate::observe;
    use probe_dump::{Content, DType, RecordedDType, TensorMetadata, TensorRef};

    fn record(shape: &[u64], max: f64, min: f64, mean: f64, norm: f64) -> TensorRecord {
        TensorRecord {
            statistics: RecordedStatistics {
                max: Some(Number::Float(max)),
                min: Some(Number::Float(min)),
                mean: Some(mean),
                norm: Some(norm),
            }
            .into(),
            ..TensorRecord::new(RecordedDType::Known(DType::F32), shape.into())
        }
    }

    /// Returns population statistics of a slice, as a capture would record them.
    fn recorded(values: &[f64]) -> TensorRecord {
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt();
        record(&[values.len() as u64], max, min, mean, norm)
    }

    #[test]
    fn bounds_never_exceed_the_true_errors() {
        let b: Vec<f64> = (0..1000).map(|i| (f64::from(i) * 0.37).sin()).collect();
        for (name, c) in [
            ("scale", b.iter().map(|v| v * 1.01).collect::<Vec<_>>()),
            ("bias", b.iter().map(|v| v + 0.02).collect()),
            ("one element", b.iter().enumerate().map(|(i, v)| if i == 7 { 9.0 } else { *v }).collect()),
            ("swap", b.iter().rev().copied().collect()),
        ] {
            let distance = b.iter().zip(&c).map(|(b, c)| (c - b).powi(2)).sum::<f64>().sqrt();
            let largest = b.iter().zip(&c).map(|(b, c)| (c - b).abs()).fold(0.0, f64::max);
            let norm = b.iter().map(|v| v * v).sum::<f64>().sqrt();
            let found = compare_recorded(&recorded(&b), &recorded(&c));
            let bound = found.rel_l2_at_least.get().unwrap();
            assert!(bound <= distance / norm * (1.0 + 1e-9), "{name}: {bound} > {}", distance / norm);
            assert!(found.max_abs_err_at_least.get().unwrap() <= largest * (1.0 + 1e-12), "{name}");
            if name != "swap" {
                assert!(bound > 1e-3, "{name} is seen: {bound}");
            }
        }
    }

    #[test]
    fn statistics_of_finite_elements_meet_those_of_the_older_tool() {
        let counts = |nan, up, down| Counts {
            elements: 4,
            nan,
            positive_infinite: up,
            negative_infinite: down,
            ..Counts::default()
        };
        let own = |counts: Counts| TensorRecord {
            counts: Some(counts.into()),
            ..record(&[4], 2.0, -1.0, 0.5, 2.5)
        };
        let nan = f64::NAN;
        for (ours, theirs) in [
            (own(counts(0, 0, 0)), record(&[4], 2.0, -1.0, 0.5, 2.5)),
            (own(counts(1, 0, 0)), record(&[4], nan, nan, nan, nan)),
            (own(counts(0, 1, 0)), record(&[4], f64::INFINITY, -1.0, f64::INFINITY, f64::INFINITY)),
            (own(counts(0, 1, 1)), record(&[4], f64::INFINITY, f64::NEG_INFINITY, nan, f64::INFINITY)),
        ] {
            for (b, c) in [(&ours, &theirs), (&theirs, &ours)] {
                let found = compare_recorded(b, c);
                assert!(found.all_same, "{:?} {found:?}", ours.counts);
                assert_eq!(found.baseline_non_finite, found.candidate_non_finite);
            }
        }
        // The older tool writes the value of a 0-d tensor as its norm, and half-precision norms overflow.
        let scalar =
            TensorRecord { counts: Some(counts(0, 0, 0).into()), ..record(&[], -2.0, -2.0, -2.0, 2.0) };
        assert!(compare_recorded(&scalar, &record(&[], -2.0, -2.0, -2.0, -2.0)).all_same);
        let overflown = compare_recorded(&own(counts(0, 0, 0)), &record(&[4], 2.0, -1.0, 0.5, f64::INFINITY));
        assert!(overflown.norm.get().is_none() && overflown.all_same);
    }

    #[test]
    fn other_counts_of_non_finite_elements_are_a_difference() {
        let own = |nan| TensorRecord {
            counts: Some(Counts { elements: 4, nan, ..Counts::default() }.into()),
            ..record(&[4], 2.0, -1.0, 0.5, 2.5)
        };
        let found = compare_recorded(&own(1), &own(2));
        assert!(found.counts_differ.is_some() && !found.all_same);
        assert!(compare_recorded(&own(1), &own(1)).counts_differ.is_none());
    }

    #[test]
    fn integers_are_the_same_whatever_order_their_norm_was_computed_in() {
        let truth_values = |zeros, mean, norm| {
            let counts = Counts { elements: 96, zeros, ..Counts::default() };
            TensorRecord { counts: Some(counts.into()), ..record(&[96], 1.0, 0.0, mean, norm) }
        };
        let host = truth_values(26, 70.0 / 96.0, 70.0_f64.sqrt());
        let device = truth_values(26, 70.0 / 96.0, 70.0_f64.sqrt() * (1.0 - f64::EPSILON));
        assert!(compare_recorded(&host, &device).same_integers);
        let other = truth_values(25, 71.0 / 96.0, 71.0_f64.sqrt());
        assert!(!compare_recorded(&host, &other).same_integers);
    }

    #[test]
    fn sums_of_a_device_prove_no_more_than_they_say_of_themselves() {
        let on_host = |norm| TensorRecord {
            counts: Some(Counts { elements: 100, ..Counts::default() }.into()),
            ..record(&[100], 2.0, -1.0, 0.1, norm)
        };
        let on_device = |norm| {
            let mut record = on_host(norm);
            record.sum_error = Some(1e-6);
            record
        };
        let host = on_host(5.0);
        let near = compare_recorded(&host, &on_device(5.0 * (1.0 + 9e-7)));
        assert!(
            near.rel_l2_at_least.get().unwrap() <= 0.0 && !near.all_same && near.same_integers,
            "{near:?}"
        );
        // Both sides may be off.
        assert!(
            compare_recorded(&on_device(5.0), &on_device(5.0 * (1.0 + 1.9e-6)))
                .rel_l2_at_least
                .get()
                .unwrap()
                <= 0.0
        );
        let off = compare_recorded(&host, &on_device(5.0 * (1.0 + 3e-6)));
        assert!(off.rel_l2_at_least.get().unwrap() > 1e-6 && !off.same_integers, "{off:?}");
        // A difference between exact sums of integers counts.
        let off = compare_recorded(&host, &on_host(5.0 * (1.0 + 9e-7)));
        assert!(!off.same_integers, "{off:?}");
    }

    #[test]
    fn lanes_of_integers_are_exact_while_binary32_holds_their_sums() {
        let of = |values: &[i32], sum_error| {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let shape = [values.len()];
            let tensor = TensorRef::strided(&bytes, DType::I32, &shape, &[1], 0).unwrap();
            let found = observe(tensor, Content::SKETCH);
            TensorRecord {
                statistics: found.statistics.into(),
                counts: Some(found.counts.into()),
                sketch: found.sketch.map(std::sync::Arc::new),
                ..TensorRecord::from(TensorMetadata {
                    sum_error,
                    ..TensorMetadata::new(RecordedDType::Known(DType::I32), [values.len() as u64].into())
                })
            }
        };
        for (scale, seen) in [(20, true), (50_000, false)] {
            let values: Vec<i32> = (0..20_000).map(|index| index % 997 * scale).collect();
            let mut other = values.clone();
            other[7000] += 1;
            let found = compare_recorded(&of(&values, None), &of(&other, Some(1e-6)));
            assert_eq!(found.same_integers, !seen, "{scale}");
            assert!(compare_recorded(&of(&values, None), &of(&values, Some(1e-6))).same_integers);
        }
    }

    /// Returns binary32 elements as a capture records them.
    fn observed(values: &[f32]) -> TensorRecord {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let shape = [values.len()];
        let tensor = TensorRef::strided(&bytes, DType::F32, &shape, &[1], 0).unwrap();
        let found = observe(tensor, Content::STATISTICS);
        TensorRecord {
            statistics: found.statistics.into(),
            places: found.places,
            counts: Some(found.counts.into()),
            ..TensorRecord::new(RecordedDType::Known(DType::F32), [values.len() as u64].into())
        }
    }

    #[test]
    fn elements_in_other_places_are_told_from_other_elements() {
        for count in [3_u64, 4000, 700_000] {
            // All positive, of very uneven sizes: sums round most.
            let values: Vec<f32> = (0..count)
                .map(|index| ((index * 7919 % count) as f32 / count as f32).powi(9) + 1e-3)
                .collect();
            let mut other = values.clone();
            other.reverse();
            let found = compare_recorded(&observed(&values), &observed(&other));
            assert!(found.moved && found.rearranged && !found.all_same, "{count} {found:?}");
            assert!(found.rel_l2_at_least.get().unwrap() <= 0.0);
            let same = compare_recorded(&observed(&values), &observed(&values));
            assert!(!same.moved && !same.rearranged && same.all_same);
            // One element off by one rounding: with 700,000 elements the sums do not show it.
            let middle = values.iter().position(|value| *value > 1.01e-3).unwrap();
            let mut off = values.clone();
            off[middle] = off[middle].next_up();
            off.reverse();
            let found = compare_recorded(&observed(&values), &observed(&off));
            assert!(found.moved && (count > 100_000 || !found.rearranged), "{count} {found:?}");
        }
    }

    #[test]
    fn elements_in_other_places_need_exact_sums_and_equal_counts() {
        let values: Vec<f32> = (0..500).map(|index| (index as f32 * 0.37).sin()).collect();
        let mut other = values.clone();
        other.reverse();
        let (b, c) = (observed(&values), observed(&other));
        assert!(compare_recorded(&b, &c).rearranged);
        let zeros = Counts { zeros: 7, ..*c.counts.clone().unwrap() };
        let mut on_device = c.clone();
        on_device.sum_error = Some(1e-6);
        for changed in [
            TensorRecord { counts: Some(zeros.into()), ..c.clone() },
            on_device,
            TensorRecord { counts: None, ..c.clone() },
        ] {
            let found = compare_recorded(&b, &changed);
            assert!(found.moved && !found.rearranged, "{found:?}");
        }
        // A device, or a capture made before positions were recorded, provides no positions.
        let found = compare_recorded(&b, &TensorRecord { places: None, ..c.clone() });
        assert!(!found.moved && !found.rearranged);
        let mut wide = c;
        wide.dtype = RecordedDType::Known(DType::F64);
        assert!(!compare_recorded(&b, &wide).moved);
    }

    /// Returns a mask of -3.4e38 over other numbers; `apart` is the count of a capture that counts sentinels.
    fn masked(apart: Option<u64>, norm: f64) -> TensorRecord {
        TensorRecord {
            counts: Some(Counts { elements: 4, sentinels: apart, ..Counts::default() }.into()),
            ..record(&[4], 2.0, f64::from(f32::MIN), norm / 2.0, norm)
        }
    }

    #[test]
    fn sentinels_that_one_side_has_in_its_norm_and_the_other_has_not_prove_nothing() {
        let (old, new) = (masked(None, 3.4e38), masked(Some(1), 2.5));
        for (b, c) in [(&old, &new), (&new, &old)] {
            let found = compare_recorded(b, c);
            assert!(found.norm.get().or(found.mean.get()).is_none() && found.all_same, "{found:?}");
        }
        // A difference that the mask would hide shows if the mask is excluded.
        let off = compare_recorded(&new, &masked(Some(1), 2.6));
        assert!((off.rel_l2_at_least.get().unwrap() - 0.04).abs() < 1e-9, "{off:?}");
        assert!(compare_recorded(&new, &new).all_same);
    }

    #[test]
    fn sentinels_on_one_side_alone_are_a_difference() {
        let found = compare_recorded(&masked(Some(1), 2.5), &masked(Some(2), 2.5));
        assert!(found.sentinels_differ.as_deref() == Some(&(1, 2)) && !found.all_same);
    }

    #[test]
    fn another_sentinel_is_held_against_itself() {
        let mut other = masked(Some(1), 2.5);
        // The least number of float32 converted to bfloat16.
        other.statistics = RecordedStatistics {
            min: Some(Number::Float(-3.389_531_389_251_535_5e38)),
            ..other.statistics.get()
        }
        .into();
        let found = compare_recorded(&masked(Some(1), 2.5), &other);
        let bound = found.rel_l2_at_least.get().unwrap();
        assert!(bound > 0.003 && bound < 0.004 && !found.all_same, "{bound}");
        // In a bfloat16 tensor it is the least number.
        other.dtype = RecordedDType::Known(DType::Bf16);
        let found = compare_recorded(&masked(Some(1), 2.5), &other);
        assert!(found.rel_l2_at_least.get().unwrap().to_bits() == 0, "{found:?}");
    }

    #[test]
    fn a_mean_near_zero_is_judged_against_the_norm() {
        let found =
            compare_recorded(&record(&[100], 1.0, -1.0, 1e-12, 5.0), &record(&[100], 1.0, -1.0, -1e-9, 5.0));
        assert!(found.rel_l2_at_least.get().unwrap() < 1e-8);
    }

    #[test]
    fn finite_state_and_zero_baselines_are_infinite_differences() {
        let nan = compare_recorded(
            &record(&[2], 1.0, 0.0, 0.5, 1.0),
            &record(&[2], f64::NAN, f64::NAN, f64::NAN, f64::NAN),
        );
        assert!(nan.candidate_non_finite && !nan.baseline_non_finite);
        assert!(nan.max.get().unwrap().relative.is_infinite());
        assert_eq!(
            (nan.rel_l2_at_least, nan.max_abs_err_at_least),
            (Figure::NONE, Figure::NONE),
            "metrics are of finite elements"
        );
        let zero = compare_recorded(&record(&[2], 0.0, 0.0, 0.0, 0.0), &record(&[2], 1.0, 0.0, 0.5, 1.0));
        assert!(zero.rel_l2_at_least.get().unwrap().is_infinite());
        let same = record(&[2], f64::INFINITY, 1.0, f64::INFINITY, f64::INFINITY);
        assert!(compare_recorded(&same, &same).all_same);
    }
}
