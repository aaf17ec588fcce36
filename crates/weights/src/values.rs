//! How far lines that are not equal are from those at their places, and what explains it.

use std::collections::HashMap;

use probe_dump::{DType, ReadError, TensorData};
use probe_measure::{numbers, round};

use crate::checkpoint::{Checkpoint, Tensor};
use crate::index::Place;
use crate::lines::{Axis, Form, common};
use crate::plan::Plan;

/// Most lines that are measured of one tensor. They are taken evenly from those that differ.
const MEASURED: usize = 512;

/// The difference between a tensor and its expected value.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Lines that differ, and of how many.
    pub lines: (usize, usize),
    /// The first of them.
    pub first: usize,
    /// Direction of the lines.
    pub axis: Axis,
    /// Euclidean norm of the difference over that of the baseline, over the measured lines; NaN if both are 0 or not finite.
    pub rel_l2: f64,
    /// The explanation.
    pub explanation: Explanation,
}

/// Explanations of a difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Explanation {
    /// The candidate is the baseline times a factor, up to rounding.
    Scale(f64),
    /// The candidate is the baseline plus a number, up to rounding.
    Offset(f64),
    /// The candidate was cut off to its type instead of rounded to the nearest value.
    Truncated,
    /// Every value is the cast, or a neighbour of it in this type.
    OneRounding(DType),
    /// The candidate has gone through a shorter type.
    Through(DType),
    /// The candidate is zero.
    Zero,
    /// The candidate holds NaN or infinity where the baseline does not; so many of the measured elements.
    NonFinite(usize),
    /// Nothing simple does.
    None,
}

/// Sums over pairs of elements, the baseline's rounded to the type in which both are compared.
#[derive(Debug)]
struct Sums {
    elements: usize,
    base: f64,
    candidate: f64,
    product: f64,
    squares: [f64; 3],
    largest: f64,
    non_finite: usize,
    zeros: usize,
    neighbours: bool,
    truncated: bool,
    through: [(DType, bool); 2],
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            elements: 0,
            base: 0.0,
            candidate: 0.0,
            product: 0.0,
            squares: [0.0; 3],
            largest: 0.0,
            non_finite: 0,
            zeros: 0,
            neighbours: true,
            truncated: true,
            through: [(DType::Bf16, true), (DType::F16, true)],
        }
    }
}

/// Reads lines of a checkpoint; keeps the tensors it has opened.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    open: HashMap<usize, Vec<TensorData>>,
}

/// Tensors that a reader keeps open: enough for the experts of a layer, few enough for the system's limit on maps.
const OPEN: usize = 256;

impl<'a> Reader<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint) -> Self {
        Self { checkpoint, open: HashMap::new() }
    }

    /// Returns the bytes of a line.
    fn line(&mut self, at: usize, axis: Axis, line: usize) -> Result<Vec<u8>, ReadError> {
        let tensor = &self.checkpoint.tensors[at];
        if !self.open.contains_key(&at) {
            if self.open.len() >= OPEN {
                self.open.clear();
            }
            let pieces =
                tensor.pieces.iter().map(crate::checkpoint::Piece::load).collect::<Result<_, _>>()?;
            self.open.insert(at, pieces);
        }
        let pieces = self.open.get(&at).map_or(&[][..], Vec::as_slice);
        let form = Form::of(&tensor.shape);
        let size = tensor.dtype.size();
        let mut bytes = vec![0; form.length(axis) * size];
        if let ([piece], Axis::Row) = (pieces, axis) {
            let start = form.element(axis, line, 0);
            piece.view().gather(start..start + form.length(axis), &mut bytes);
        } else {
            for (at, element) in bytes.chunks_mut(size).enumerate() {
                copy(tensor, pieces, form.element(axis, line, at), element);
            }
        }
        let fault = pieces.iter().find_map(TensorData::fault);
        fault.map_or(Ok(bytes), |fault| Err(ReadError::format(&*tensor.name.text, fault)))
    }
}

/// Copies element `at` of a tensor out of the piece that holds it.
fn copy(tensor: &Tensor, pieces: &[TensorData], at: usize, out: &mut [u8]) {
    for (piece, data) in tensor.pieces.iter().zip(pieces) {
        let (mut rest, mut inside, mut stride) = (at, Some(0), 1);
        for ((&size, &of), &offset) in data.shape().iter().zip(&tensor.shape).zip(&piece.offsets).rev() {
            let index = (rest % of.max(1)).checked_sub(offset).filter(|&index| index < size);
            inside = inside.zip(index).map(|(inside, index)| inside + index * stride);
            rest /= of.max(1);
            stride *= size;
        }
        if let Some(inside) = inside {
            data.view().gather(inside..inside + 1, out);
            return;
        }
    }
}

impl Difference {
    /// Measures the lines of a plan that are not equal.
    ///
    /// # Errors
    /// [`ReadError`] when a tensor cannot be read.
    pub(crate) fn of(
        candidate: &mut Reader<'_>,
        tensor: usize,
        baseline: &mut Reader<'_>,
        plan: &Plan,
        equal: &[bool],
    ) -> Result<Self, ReadError> {
        let lines: Vec<(usize, Place)> = plan
            .places
            .iter()
            .enumerate()
            .filter_map(|(line, place)| Some((line, (*place)?)).filter(|_| !equal[line]))
            .collect();
        let mut sums = Sums::default();
        let dtype = candidate.checkpoint.tensors[tensor].dtype;
        let mut target = dtype;
        for (line, place) in lines.iter().step_by(lines.len().div_ceil(MEASURED).max(1)) {
            let theirs = baseline.checkpoint.tensors[place.tensor as usize].dtype;
            target = common(theirs, dtype).first().copied().unwrap_or(dtype);
            let a = baseline.line(place.tensor as usize, place.axis, place.line as usize)?;
            let b = candidate.line(tensor, plan.axis, *line)?;
            sums.add((theirs, &a), (dtype, &b), target);
        }
        let [_, of_base, of_difference] = sums.squares;
        Ok(Self {
            lines: (lines.len(), plan.places.len()),
            first: lines.first().map_or(0, |(line, _)| *line),
            axis: plan.axis,
            rel_l2: (of_difference / of_base).sqrt(),
            explanation: sums.explanation(target),
        })
    }
}

impl Sums {
    fn add(&mut self, (theirs, a): (DType, &[u8]), (dtype, b): (DType, &[u8]), target: DType) {
        if theirs.is_complex() || dtype.is_complex() || a.is_empty() {
            return;
        }
        let cast = |from: DType, bytes: &[u8], to: DType| {
            let mut out = Vec::new();
            if from == to || !from.is_float() || from.size() < 2 {
                return numbers(from, bytes);
            }
            round(from, bytes, to, &mut out);
            numbers(to, &out)
        };
        let (exact, own) = (numbers(theirs, a), numbers(dtype, b));
        let comparable = !common(theirs, dtype).is_empty();
        let rounded = if comparable { cast(theirs, a, target) } else { exact.clone() };
        let own = if comparable { cast(dtype, b, target) } else { own };
        for (&a, &b) in rounded.iter().zip(&own) {
            self.elements += 1;
            if !b.is_finite() || !a.is_finite() {
                self.non_finite += usize::from(a.is_finite());
                continue;
            }
            self.base += a;
            self.candidate += b;
            self.product += a * b;
            for (sum, x) in self.squares.iter_mut().zip([b, a, a - b]) {
                *sum += x * x;
            }
            self.largest = self.largest.max(a.abs()).max(b.abs());
            self.zeros += usize::from(b.to_bits() << 1 == 0);
            self.neighbours &= (a - b).abs() <= step(a.abs().max(b.abs()), target);
        }
        let toward_zero = exact.iter().zip(&own).all(|(&exact, &own)| {
            let off = exact.abs() - own.abs();
            off >= 0.0 && off < step(exact, target) && exact.is_sign_positive() == own.is_sign_positive()
        });
        self.truncated &= theirs != dtype && toward_zero;
        for (dtype, holds) in &mut self.through {
            let possible = target.mantissa_bits() > dtype.mantissa_bits() && theirs.size() >= 4;
            *holds &=
                possible && cast(theirs, a, *dtype).iter().zip(&own).all(|(a, b)| a.to_bits() == b.to_bits());
        }
    }

    fn explanation(&self, target: DType) -> Explanation {
        let count = self.elements as f64;
        let [of_candidate, of_base, of_difference] = self.squares;
        if self.non_finite > 0 {
            return Explanation::NonFinite(self.non_finite);
        }
        if self.zeros == self.elements && of_base > 0.0 {
            return Explanation::Zero;
        }
        if let Some((dtype, _)) = self.through.iter().find(|(_, holds)| *holds) {
            return Explanation::Through(*dtype);
        }
        if self.truncated && target.is_float() {
            return Explanation::Truncated;
        }
        if self.neighbours && target.is_float() {
            return Explanation::OneRounding(target);
        }
        // Rounding moves an element by up to half a step, 2^-(mantissa + 1) of it.
        let rounding =
            target.mantissa_bits().map_or(0.0, |bits| 2_f64.powi(-i32::try_from(bits).unwrap_or(0)));
        let factor = self.product / of_base;
        let left = (of_candidate - factor * self.product).abs();
        // Sums of squares in binary64 are off by about 1e-15 of themselves.
        let tolerance = (rounding * rounding).max(1e-13);
        if factor.is_finite() && left <= tolerance * of_candidate && of_difference > 0.0 {
            return Explanation::Scale(factor);
        }
        let offset = (self.candidate - self.base) / count;
        let spread = of_difference / count - offset * offset;
        let bound = (rounding * self.largest).powi(2).max(1e-13 * self.largest * self.largest);
        if offset.abs() > 4.0 * rounding * self.largest && spread <= bound {
            return Explanation::Offset(offset);
        }
        Explanation::None
    }
}

/// Returns the distance between neighbours of a type near `value`.
fn step(value: f64, dtype: DType) -> f64 {
    let (bits, least) = match dtype {
        DType::F32 => (23, -126),
        DType::F16 => (10, -14),
        DType::Bf16 => (7, -126),
        DType::F8E4M3 => (3, -6),
        DType::F8E5M2 => (2, -14),
        _ => (52, -1022),
    };
    let exponent = i32::try_from(value.to_bits() >> 52 & 0x7ff).unwrap_or(0) - 1023;
    2_f64.powi(exponent.max(least) - bits)
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scale(factor) => write!(f, "scale of {factor:.4}"),
            Self::Offset(offset) => write!(f, "offset of {offset:.4}"),
            Self::Truncated => f.write_str("cut off by the cast instead of rounded to the nearest value"),
            Self::OneRounding(dtype) => write!(f, "differs from the cast by one rounding of {dtype}"),
            Self::Through(dtype) => write!(f, "has gone through {dtype}"),
            Self::Zero => f.write_str("is zero"),
            Self::NonFinite(count) => write!(f, "NaN or infinity in {count} of the measured elements"),
            Self::None => f.write_str("other values"),
        }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.explanation)?;
        let (differ, of) = self.lines;
        if differ < of {
            write!(f, " in {differ} of {of} {}, first {}", self.axis.word(of), self.first)?;
        }
        if matches!(
            self.explanation,
            Explanation::None | Explanation::OneRounding(_) | Explanation::Truncated
        ) {
            write!(f, " (rel_l2 {:.2e})", self.rel_l2)?;
        }
        Ok(())
    }
}
