//! Sentinels: numbers that represent absence, such as -3.4e38 in the mask of an attention. Capture counts them
//! separately and excludes them from sums, which they would swamp; they still count as extremes.
//!
//! An element is a sentinel by its value alone: a magnitude of 2^100 or more, which no result of a working
//! network reaches; in float16, whose range ends before that, the greatest magnitude (in dumps of version 2:
//! the least number only). Complex numbers, float8 and integers have none.

use probe_dump::{DType, Number, TensorRecord};

use super::sums::SideSums;

/// The least magnitude of a sentinel.
pub const SENTINEL: f64 = 1.267_650_600_228_229_4e30; // 2^100

/// The greatest number of float16.
const GREATEST_F16: f64 = 65504.0;

/// Treatment of sentinels in sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sentinels {
    /// They are ordinary numbers.
    #[default]
    Summed,
    /// They are counted and excluded.
    KeptOut,
}

/// Removes the sentinels from blocks of one type.
#[derive(Debug)]
pub(crate) struct Sieve {
    /// The type, if anything is to be removed.
    dtype: Option<DType>,
    /// A block without its sentinels.
    rest: Vec<u8>,
    /// Number of sentinels removed so far.
    pub(crate) found: u64,
}

impl Sieve {
    pub(crate) const fn new(dtype: DType, sentinels: Sentinels) -> Self {
        let dtype = match sentinels {
            Sentinels::Summed => None,
            Sentinels::KeptOut => Some(dtype),
        };
        Self { dtype, rest: Vec::new(), found: 0 }
    }

    /// Returns true if the extremes of a block show a sentinel.
    pub(crate) fn sees(&self, sums: &SideSums) -> bool {
        match self.dtype {
            Some(DType::F64 | DType::F32 | DType::Bf16) => sums.max >= SENTINEL || sums.min <= -SENTINEL,
            Some(DType::F16) => sums.max >= GREATEST_F16 || sums.min <= -GREATEST_F16,
            _ => false,
        }
    }

    /// Returns the block with zeros in place of its sentinels, which are counted.
    pub(crate) fn without(&mut self, bytes: &[u8]) -> &[u8] {
        self.rest.clear();
        self.rest.extend_from_slice(bytes);
        let rest = &mut self.rest;
        self.found += match self.dtype {
            Some(DType::F64) => blank(rest, |element| {
                let magnitude = u64::from_le_bytes(element) & !(1 << 63);
                (SENTINEL.to_bits()..f64::INFINITY.to_bits()).contains(&magnitude)
            }),
            Some(DType::F32) => blank(rest, |element| {
                let magnitude = u32::from_le_bytes(element) & !(1 << 31);
                ((127 + 100) << 23..f32::INFINITY.to_bits()).contains(&magnitude)
            }),
            Some(DType::Bf16) => blank(rest, |element| {
                let magnitude = u16::from_le_bytes(element) & !(1 << 15);
                ((127 + 100) << 7..0x7f80).contains(&magnitude)
            }),
            Some(DType::F16) => blank(rest, |element| u16::from_le_bytes(element) & !(1 << 15) == 0x7bff),
            _ => 0,
        };
        &self.rest
    }
}

/// Replaces matching elements by zeros; returns their number.
fn blank<const N: usize>(bytes: &mut [u8], is_sentinel: impl Fn([u8; N]) -> bool) -> u64 {
    let mut found = 0;
    for element in bytes.as_chunks_mut().0 {
        if is_sentinel(*element) {
            *element = [0; N];
            found += 1;
        }
    }
    found
}

/// Returns the number of sentinels excluded from the sums of a record; `None` if the sums include them.
pub fn kept_out(record: &TensorRecord) -> Option<u64> {
    record.counts.as_ref().and_then(|counts| counts.sentinels)
}

/// Returns true if one of two records has sentinels in mean, norm and sketch, and the other would not: these
/// are then not comparable.
pub(crate) fn summed_otherwise(baseline: &TensorRecord, candidate: &TensorRecord) -> bool {
    match (kept_out(baseline), kept_out(candidate)) {
        (Some(found), None) => found > 0 || shows(candidate),
        (None, Some(found)) => found > 0 || shows(baseline),
        _ => false,
    }
}

/// Returns true if the extremes of a record are sentinels.
fn shows(record: &TensorRecord) -> bool {
    let extremes =
        [record.statistics.max(), record.statistics.min()].into_iter().flatten().map(Number::as_f64);
    record.dtype.known().is_some_and(|dtype| extremes.into_iter().any(|value| is_sentinel(dtype, value)))
}

/// Returns true if a number of this type is a sentinel.
pub(crate) fn is_sentinel(dtype: DType, value: f64) -> bool {
    match dtype {
        DType::F64 | DType::F32 | DType::Bf16 => value.is_finite() && value.abs() >= SENTINEL,
        DType::F16 => value.is_finite() && value.abs() >= GREATEST_F16,
        _ => false,
    }
}
