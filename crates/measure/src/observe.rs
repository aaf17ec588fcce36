//! The data that capture records of one tensor, in one pass over it: a block is summed, sketched and hashed
//! while it is in cache.
//!
//! Runs on the calling thread, which belongs to the training process, and on a [`Crew`] if there is one.
//! Statistics have the bits of [`summarize`](super::summarize), except that sentinels are excluded from mean
//! and norm.

use twox_hash::XxHash3_128;

use probe_dump::{Content, Counts, DType, Number, Observation, RecordedStatistics, TensorRef};

use super::blocks::{Blocks, Threads};
use super::crew::Crew;
use super::extent::SideExtent;
use super::finish;
use super::metric::TensorSummary;
use super::places::Peaks;
use super::segment::Numbers;
use super::simd::{Body, DefaultFloat};
use super::sums::{BLOCK, SEGMENT};

/// Tensors of fewer elements are measured without help.
const SHARED: usize = 2 * SEGMENT;

/// Number of bytes hashed at once if they are in order: a call of the hash costs as much as hashing some
/// thousand bytes, and this much is still in cache.
const HASHED: usize = 1 << 17;

/// Measures one tensor: statistics with the positions of the extremes, and counts always; sketch and hash if
/// `content` requests them. Elements with a magnitude of [`SENTINEL`](super::SENTINEL) or more are counted,
/// and excluded from mean, norm and sketch.
///
/// Runs on the calling thread, at about the speed of memory, and does not materialise strided tensors.
pub fn observe(tensor: TensorRef<'_>, content: Content) -> Observation {
    observe_on(Body::detected(), tensor, content)
}

/// [`observe`] on a given body.
fn observe_on(body: Body, tensor: TensorRef<'_>, content: Content) -> Observation {
    let _control = DefaultFloat::enter();
    let (count, dtype) = (tensor.len(), tensor.dtype());
    let ordered = content.sketch.is_some() || content.hash;
    let mut numbers = Numbers::new(content.sketch);
    let mut hash = (content.hash && count > BLOCK).then(XxHash3_128::new);
    let mut source = source_of(tensor, ordered);
    let mut extremes = Extremes::of(dtype);
    let in_order = tensor.contiguous_bytes();
    let (mut seen, mut hashed) = (0, 0);
    numbers.add(body, &mut source, |bytes| {
        extremes.push(bytes);
        seen += bytes.len();
        let Some(hash) = &mut hash else { return };
        match in_order {
            None => hash.write(bytes),
            Some(all) if seen - hashed >= HASHED || seen == all.len() => {
                hash.write(&all[hashed..seen]);
                hashed = seen;
            }
            Some(_) => {}
        }
    });
    let hash = match hash {
        Some(hash) => Some(hash.finish_128()),
        // A single block needs no buffer.
        None => content.hash.then(|| XxHash3_128::oneshot(source.bytes(0..count))),
    };
    observation(source, numbers, &extremes, hash)
}

/// Like [`observe`], with the help of `crew` if the tensor is large. The result is the same, to the last bit.
pub fn observe_with(crew: &Crew, tensor: TensorRef<'_>, content: Content) -> Observation {
    let _control = DefaultFloat::enter();
    let body = Body::detected();
    let extremes = Extremes::of(tensor.dtype());
    let large = !crew.is_empty() && tensor.len() >= SHARED && matches!(extremes, Extremes::Rounded);
    if !large {
        return observe_on(body, tensor, content);
    }
    // Results that do not depend on order are read in memory order.
    let ordered = content.sketch.is_some() || content.hash;
    let in_memory = if ordered { None } else { tensor.dense_bytes() };
    let row = [tensor.len()];
    let in_memory = in_memory.and_then(|bytes| TensorRef::strided(bytes, tensor.dtype(), &row, &[1], 0).ok());
    match crew.measure(body, in_memory.unwrap_or(tensor), content) {
        Some((numbers, hash)) => observation(source_of(tensor, ordered), numbers, &extremes, hash),
        None => observe_on(body, tensor, content),
    }
}

/// Returns the blocks of a tensor, in row-major order if that matters.
fn source_of(tensor: TensorRef<'_>, ordered: bool) -> Blocks<'_> {
    if ordered { Blocks::of(tensor, tensor.len()) } else { Blocks::in_any_order(tensor) }
}

/// Returns the record of the tensor with these blocks and numbers.
fn observation(
    mut source: Blocks<'_>,
    numbers: Numbers,
    extremes: &Extremes,
    hash: Option<u128>,
) -> Observation {
    let tensor = source.tensor();
    let Numbers { sums, peaks, lanes, sentinels } = numbers;
    let sums = sums.finish();
    let extent = SideExtent::of(tensor, &sums, sentinels, Threads::Caller);
    let summary = finish::summary(tensor.len(), &sums, extent, sentinels);
    let statistics = statistics(tensor.dtype(), &summary, extremes);
    let places = match extremes {
        // Without elements there are no positions of extremes.
        _ if statistics.max.is_none() => None,
        Extremes::Rounded => peaks.places(&mut source),
        Extremes::Signed(peaks) => peaks.places(&mut source),
        Extremes::Unsigned(peaks) => peaks.places(&mut source),
    };
    Observation {
        statistics,
        places,
        counts: Counts {
            elements: summary.count,
            zeros: summary.zeros,
            nan: summary.nan,
            positive_infinite: summary.pos_inf,
            negative_infinite: summary.neg_inf,
            sentinels: Some(sentinels),
        },
        sketch: lanes.map(|lanes| lanes.finish()),
        hash,
        sum_error: None,
    }
}

/// Converts the summary to the types of a record; empty for a tensor without finite elements.
fn statistics(dtype: DType, summary: &TensorSummary, extremes: &Extremes) -> RecordedStatistics {
    let (Some(min), Some(max)) = (summary.min, summary.max) else {
        return RecordedStatistics::default();
    };
    let (min, max) = match (extremes, dtype) {
        (Extremes::Signed(peaks), _) => {
            let (min, max) = peaks.extremes();
            (Number::Int(min), Number::Int(max))
        }
        (Extremes::Unsigned(peaks), _) => {
            let (min, max) = peaks.extremes();
            (unsigned(min), unsigned(max))
        }
        (Extremes::Rounded, DType::Bool) => (Number::Bool(min > 0.0), Number::Bool(max > 0.0)),
        #[expect(clippy::cast_possible_truncation, reason = "integers of up to 32 bits")]
        (Extremes::Rounded, dtype) if dtype.is_integer() => {
            (Number::Int(min as i64), Number::Int(max as i64))
        }
        (Extremes::Rounded, _) => (Number::Float(min), Number::Float(max)),
    };
    RecordedStatistics { max: Some(max), min: Some(min), mean: summary.mean, norm: Some(summary.norm) }
}

fn unsigned(value: u64) -> Number {
    i64::try_from(value).map_or(Number::UInt(value), Number::Int)
}

/// Extremes of the types that binary64 cannot represent exactly.
#[derive(Debug)]
enum Extremes {
    /// Any other type: the extremes of the sums are exact.
    Rounded,
    Signed(Peaks<i64>),
    Unsigned(Peaks<u64>),
}

impl Extremes {
    const fn of(dtype: DType) -> Self {
        match dtype {
            DType::I64 => Self::Signed(Peaks::new(i64::MIN, i64::MAX)),
            DType::U64 => Self::Unsigned(Peaks::new(u64::MIN, u64::MAX)),
            _ => Self::Rounded,
        }
    }

    /// Takes the elements of a block into account.
    fn push(&mut self, bytes: &[u8]) {
        let (elements, _) = bytes.as_chunks::<8>();
        match self {
            Self::Rounded => {}
            Self::Signed(peaks) => {
                let (mut min, mut max) = (i64::MAX, i64::MIN);
                for &element in elements {
                    let value = i64::from_le_bytes(element);
                    (min, max) = (min.min(value), max.max(value));
                }
                peaks.push(min, max);
            }
            Self::Unsigned(peaks) => {
                let (mut min, mut max) = (u64::MAX, u64::MIN);
                for &element in elements {
                    let value = u64::from_le_bytes(element);
                    (min, max) = (min.min(value), max.max(value));
                }
                peaks.push(min, max);
            }
        }
    }
}

#[cfg(test)]
mod estimate;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
