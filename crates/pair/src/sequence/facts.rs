//! Properties that ops are matched by: names in common terms, shapes, and keys of values.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use probe_dump::{Checksum, DType, Number, Op, OpKind, Phase, Slot, TensorRecord, Value};

/// Steps per factor of two in which sizes of values count as nearly the same: 1/64, about 1 %.
const STEPS: f64 = 64.0;

/// An op's name as numbers that both sides share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    /// API or module in one phase.
    pub(crate) stem: u32,
    /// Number shared with related ops of other names: for modules the class, for all others the stem.
    pub(crate) kin: u32,
}

/// Assigns numbers to names.
#[derive(Debug, Default)]
pub(crate) struct Names<'a> {
    known: HashMap<(OpKind, Phase, &'a str, bool), u32>,
}

impl<'a> Names<'a> {
    /// Returns the numbers of an op with the given stem, in common terms.
    pub(crate) fn number(&mut self, op: &Op, stem: &'a str) -> Name {
        let (kind, phase) = (op.name.kind(), op.name.phase());
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        let number = *self.known.entry((kind, phase, stem, false)).or_insert(next);
        let class = stem.rsplit_once('.').map_or(stem, |(_, class)| class);
        let kin = if kind == OpKind::Module {
            let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
            *self.known.entry((kind, phase, class, true)).or_insert(next)
        } else {
            number
        };
        Name { stem: number, kin }
    }
}

/// Likeness of two tensors of the same shape: with any contents, and as their sizes agree.
const SAME_SHAPE: f64 = 0.3;
const NEARLY: f64 = 0.9;

/// Likeness of two tensors of the same shape if nothing else is known.
const UNKNOWN: f64 = 0.5;

/// Decimal digits of a number that a program writes down.
const WRITTEN: usize = 4;

/// Properties by which one op is matched.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) op: &'a Op,
    pub(super) name: Name,
    /// Kin and shapes of its tensors.
    pub(super) form: u64,
    /// Stem, shapes and module.
    pub(super) place: u64,
}

impl<'a> Facts<'a> {
    pub(super) fn of(op: &'a Op, name: Name) -> Self {
        let shapes: Vec<(&str, &[u64])> = tensors(op).map(|(path, record)| (path, &*record.shape)).collect();
        let scope = op.parent.as_deref();
        Self { op, name, form: hash(&(name.kin, &shapes)), place: hash(&(name.stem, &shapes, scope)) }
    }

    /// Returns the keys of its values, each with the kind of op and the slot.
    pub(super) fn values(&self, exact: bool) -> impl Iterator<Item = u64> {
        tensors(self.op).filter_map(move |(path, record)| {
            let key = if exact { value_key(record) } else { coarse_key(record) }?;
            Some(hash(&(self.name.kin, path, key)))
        })
    }

    /// Returns the likeness of two ops of one kind, from 0 to 1: by the tensors in the same slots.
    pub(super) fn likeness(&self, other: &Self) -> f64 {
        let mut seen = 0;
        let mut sum = 0.0;
        for (path, record) in tensors(self.op) {
            seen += 1;
            let partner = tensors(other.op).find(|(other, _)| *other == path);
            sum += partner.map_or(0.0, |(_, partner)| alike(record, partner));
        }
        let more = tensors(other.op).count().saturating_sub(seen);
        // Ops without tensors are interchangeable.
        if seen + more == 0 { 1.0 } else { sum / (seen + more) as f64 }
    }
}

fn tensors(op: &Op) -> impl Iterator<Item = (&str, &TensorRecord)> {
    op.slots.iter().filter_map(|slot| match &slot.value {
        Value::Tensor(record) => Some((&*slot.path, &**record)),
        _ => None,
    })
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns a key shared by tensors with equal elements, in any shape; `None` if too little was recorded to
/// tell.
pub fn value_key(record: &TensorRecord) -> Option<u64> {
    match record.checksum {
        Some(Checksum::Xxh3(bits)) => return Some(hash(&(0, bits.bits()))),
        Some(Checksum::Crc32(bits)) => return Some(hash(&(1, bits, record.len()))),
        _ => {}
    }
    let found = &record.statistics;
    let real = |number: Option<Number>| number.map(|number| number.as_f64().to_bits());
    let (min, max) = (real(found.min())?, real(found.max())?);
    let norm = found.norm().or(found.mean()).map(f64::to_bits);
    // Constants cannot be told apart.
    (min != max || is_telling(record)).then(|| hash(&(2, record.len(), min, max, norm)))
}

/// Returns true for a single number that hardly two computations make: one of binary32 or wider that needs more than
/// half of the fraction bits of binary32, and more than four decimal digits. What a program writes down needs fewer.
fn is_telling(record: &TensorRecord) -> bool {
    let number = record.statistics.max().map(Number::as_f64).filter(|number| number.is_finite());
    let is_wide = matches!(record.dtype.known(), Some(DType::F32 | DType::F64));
    let Some(number) = number.filter(|_| record.len() == 1 && is_wide) else { return false };
    #[expect(clippy::cast_possible_truncation, reason = "the bits of a rounded number tell as much")]
    let number = number as f32;
    let digits =
        || format!("{number:e}").bytes().take_while(|&c| c != b'e').filter(u8::is_ascii_digit).count();
    number.to_bits().trailing_zeros() < f32::MANTISSA_DIGITS / 2 && digits() > WRITTEN
}

/// Like [`value_key`], but constants use their identity in the capture, if known, because many have equal
/// elements; so do indices and masks without a hash, because many have equal statistics.
pub fn slot_key(slot: &Slot) -> Option<u64> {
    let record = slot.value.tensor()?;
    let found = &record.statistics;
    let is_constant = found.min().is_some() && found.min() == found.max();
    let counts = record.dtype.known().is_some_and(|dtype| dtype.is_integer() || dtype == DType::Bool);
    let is_common = is_constant || (counts && record.checksum.is_none());
    slot.identity.filter(|_| is_common).map(|seen| hash(&(3, seen))).or_else(|| value_key(record))
}

/// Returns a key shared by tensors with the same shape and nearly the same sizes.
fn coarse_key(record: &TensorRecord) -> Option<u64> {
    let found = &record.statistics;
    let real = |number: Option<Number>| number.map(Number::as_f64);
    let (min, max) = (real(found.min())?, real(found.max())?);
    let told = min.is_finite() && max.is_finite() && max > min;
    #[expect(clippy::cast_possible_truncation, reason = "logarithms of finite numbers are below 2048")]
    let step = |value: f64| ((value.abs().log2() * STEPS).round() as i64, value < 0.0);
    told.then(|| hash(&(record.squeezed_shape(), step(min), step(max), found.norm().map(step))))
}

/// Returns the likeness of two tensors: 0 for different shapes, 1 for the same bits.
fn alike(b: &TensorRecord, c: &TensorRecord) -> f64 {
    if b.squeezed_shape() != c.squeezed_shape() {
        return 0.0;
    }
    if let (Some(x), Some(y)) = (value_key(b), value_key(c))
        && x == y
    {
        return 1.0;
    }
    apart(b, c).map_or(UNKNOWN, |off| SAME_SHAPE + (NEARLY - SAME_SHAPE) / (1.0 + 10.0 * off))
}

/// Returns the largest distance between extremes and norms of two tensors, relative to the larger: from 0 to
/// 1, or `None` if neither is known.
pub fn apart(b: &TensorRecord, c: &TensorRecord) -> Option<f64> {
    let sizes = |record: &TensorRecord| {
        let found = &record.statistics;
        [found.min().map(Number::as_f64), found.max().map(Number::as_f64), found.norm()]
    };
    let ([b_min, b_max, b_norm], [c_min, c_max, c_norm]) = (sizes(b), sizes(c));
    let finite = |value: &f64| value.is_finite();
    // An extreme near zero is compared with the other one, a norm with itself.
    let extent =
        [b_min, b_max, c_min, c_max].into_iter().flatten().filter(finite).map(f64::abs).fold(0.0, f64::max);
    let norm = [b_norm, c_norm].into_iter().flatten().filter(finite).map(f64::abs).fold(0.0, f64::max);
    let pairs = [(b_min, c_min, extent), (b_max, c_max, extent), (b_norm, c_norm, norm)];
    pairs
        .into_iter()
        .filter_map(|(x, y, size)| Some(((x? - y?).abs() / size.max(f64::MIN_POSITIVE)).min(1.0)))
        .filter(finite)
        .reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_dump::{RecordedDType, RecordedStatistics};

    fn has_key(number: f64, dtype: DType, shape: &[u64]) -> bool {
        let mut record = TensorRecord::new(RecordedDType::Known(dtype), shape.into());
        let number = Some(Number::Float(number));
        record.statistics = RecordedStatistics { min: number, max: number, mean: None, norm: None }.into();
        value_key(&record).is_some()
    }

    #[test]
    fn a_single_number_is_told_from_others_unless_a_program_writes_it_down() {
        assert!(has_key(f64::from(1.0203_f32), DType::F32, &[]));
        assert!(has_key(f64::from(0.713_147_2_f32), DType::F32, &[1]));
        for constant in [0.0, 1.0, 0.5, f64::from(0.1_f32), f64::from(1e-5_f32), 1.0 / 1024.0, f64::NAN] {
            assert!(!has_key(constant, DType::F32, &[]), "{constant}");
        }
        // Few numbers have so few bits, and other ops make the same; so may a whole tensor of one number.
        assert!(!has_key(0.6875, DType::Bf16, &[]));
        assert!(!has_key(f64::from(0.713_147_2_f32), DType::F32, &[2]));
    }
}
