//! Sums of binary64 tensors whose squares leave the range of binary64, although the values are finite.
//!
//! A slow second pass, taken only if the first one shows that it is needed: every sum keeps its terms in bins
//! by binary exponent, so that nothing overflows and nothing relevant is lost.

use std::ops::Range;

use probe_dump::{DType, TensorRef};

use super::arithmetic::{Arithmetic, ComplexDouble, modulus};
use super::blocks::{Blocks, Threads, blocks_of, for_chunks};
use super::decode::Decode;
use super::sentinel::is_sentinel;
use super::sums::{SideSums, Totals};

/// Binary orders of magnitude a bin spans.
const SPAN: i32 = 256;

/// Bins for exponents from -2304 to 2303: products of any two finite numbers.
const BINS: usize = 18;

/// Bins below exponent 0.
const LOWEST: i32 = 9;

/// Values outside `2^-470..2^470` get the second pass: their squares are too close to the limits.
const LARGE: f64 = f64::from_bits((1023 + 470) << 52);
const SMALL: f64 = f64::from_bits((1023 - 470) << 52);

/// Square of [`SMALL`].
const SMALL_SQUARES: f64 = f64::from_bits((1023 - 940) << 52);

/// A number as significand and binary exponent; the significand is in the ordinary range of binary64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scaled {
    significand: f64,
    exponent: i32,
}

/// `2^exponent`, for exponents of normal numbers.
#[expect(clippy::cast_sign_loss, reason = "positive after the bias")]
const fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Returns `x * 2^exponent` with at most one rounding.
fn shifted(x: f64, exponent: i32) -> f64 {
    let (x, own) = split(x);
    let exponent = exponent.saturating_add(own);
    match exponent {
        ..-1090 => x * 0.0,
        -1090..-1000 => x * power(-900) * power(exponent + 900),
        -1000..1000 => x * power(exponent),
        1000..1030 => x * power(900) * power(exponent - 900),
        1030.. => x * f64::INFINITY,
    }
}

/// Significand in `[1, 2)` and exponent of a finite number; zero stays zero.
fn split(x: f64) -> (f64, i32) {
    const FRACTION: u64 = (1 << 52) - 1;
    if x.abs() < f64::MIN_POSITIVE {
        if x.to_bits() << 1 == 0 {
            return (x, 0);
        }
        let (significand, exponent) = split(x * power(64));
        return (significand, exponent - 64);
    }
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    (f64::from_bits((bits & (FRACTION | 1 << 63)) | 1023 << 52), exponent)
}

impl Scaled {
    /// An ordinary number.
    pub(crate) const fn from(significand: f64) -> Self {
        Self { significand, exponent: 0 }
    }

    /// Converts to binary64: infinite or zero if it does not fit.
    pub(crate) fn value(self) -> f64 {
        if self.exponent == 0 { self.significand } else { shifted(self.significand, self.exponent) }
    }

    /// True for zero.
    pub(crate) fn is_zero(self) -> bool {
        self.significand == 0.0
    }

    /// Square root.
    pub(crate) fn sqrt(self) -> Self {
        let odd = self.exponent & 1;
        let significand = if odd == 0 { self.significand } else { self.significand * 2.0 };
        Self { significand: significand.sqrt(), exponent: (self.exponent - odd) / 2 }
    }

    /// Product.
    pub(crate) fn times(self, factor: Self) -> Self {
        Self { significand: self.significand * factor.significand, exponent: self.exponent + factor.exponent }
    }

    /// Quotient.
    pub(crate) fn over(self, divisor: Self) -> Self {
        Self {
            significand: self.significand / divisor.significand,
            exponent: self.exponent - divisor.exponent,
        }
    }
}

/// A sum whose terms may have any exponent.
#[derive(Debug, Clone, Copy)]
struct Sum {
    bins: [f64; BINS],
    /// A modulus or a difference exceeds binary64.
    infinite: bool,
}

impl Sum {
    const EMPTY: Self = Self { bins: [0.0; BINS], infinite: false };

    /// Adds `significand * 2^exponent`.
    fn add(&mut self, significand: f64, exponent: i32) {
        let rest = exponent.rem_euclid(SPAN);
        if let Ok(bin) = usize::try_from(exponent.div_euclid(SPAN) + LOWEST) {
            self.bins[bin] += significand * power(rest);
        }
    }

    fn add_product(&mut self, x: f64, y: f64) {
        let ((x, ex), (y, ey)) = (split(x), split(y));
        self.add(x * y, ex + ey);
    }

    fn add_term(&mut self, x: f64) {
        if x.is_finite() {
            let (x, exponent) = split(x);
            self.add(x, exponent);
        } else {
            self.infinite = true;
        }
    }

    fn append(&mut self, next: &Self) {
        self.infinite |= next.infinite;
        for (bin, next) in self.bins.iter_mut().zip(next.bins) {
            *bin += next;
        }
    }

    /// Returns the sum, exact up to rounding of its largest terms.
    fn finish(&self) -> Scaled {
        if self.infinite {
            return Scaled::from(f64::INFINITY);
        }
        let Some(top) = self.bins.iter().rposition(|bin| bin.to_bits() << 1 != 0) else {
            return Scaled::from(0.0);
        };
        let mut significand = 0.0;
        let mut exponent = -LOWEST * SPAN;
        // From the smallest terms upwards, in units of the current bin.
        for &bin in &self.bins[..top] {
            significand = (significand + bin) * power(-SPAN);
            exponent += SPAN;
        }
        Scaled { significand: significand + self.bins[top], exponent }
    }
}

/// The sums of one side that may leave the range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SideExtent {
    /// Sum of the values.
    pub(crate) sum: Scaled,
    /// Sum of the squares.
    pub(crate) squares: Scaled,
}

/// The sums of a pair that may leave the range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairExtent {
    /// Sum of products.
    pub(crate) dot: Scaled,
    /// Sum of squares of the baseline.
    pub(crate) baseline_squares: Scaled,
    /// Sum of squares of the candidate.
    pub(crate) candidate_squares: Scaled,
    /// Sum of squared differences.
    pub(crate) distance_squares: Scaled,
    /// Sum of absolute differences.
    pub(crate) abs: Scaled,
}

impl SideExtent {
    /// Returns the sums of `tensor`, without its sentinels if `sums` exclude them: those of the first pass, or
    /// of a second one if needed.
    pub(crate) fn of(tensor: TensorRef<'_>, sums: &SideSums, sentinels: u64, threads: Threads) -> Self {
        let dtype = tensor.dtype();
        let safe = match sentinels {
            0 => in_range(sums),
            // No remaining square is too large, and none of narrower types too small.
            _ => dtype != DType::F64 || sums.squares >= SMALL_SQUARES,
        };
        if safe {
            return Self { sum: Scaled::from(sums.sum), squares: Scaled::from(sums.squares) };
        }
        let complex = tensor.dtype().is_complex();
        let chunk = |range: Range<usize>| {
            let (mut all, mut blocks, mut values) =
                ([Sum::EMPTY; 2], Blocks::of(tensor, range.end), Vec::new());
            for block in blocks_of(range) {
                <[f64; 2]>::decode(tensor.dtype(), blocks.bytes(block), &mut values);
                let summed = |value: &&[f64; 2]| {
                    ComplexDouble::is_finite(**value) && (sentinels == 0 || !is_sentinel(dtype, value[0]))
                };
                for &value in values.iter().filter(summed) {
                    all[0].add_term(if complex { modulus(value) } else { value[0] });
                    for part in value {
                        all[1].add_product(part, part);
                    }
                }
            }
            all
        };
        let mut all = [Sum::EMPTY; 2];
        for_chunks(threads, tensor.len(), chunk, |_, next| append(&mut all, &next));
        Self { sum: all[0].finish(), squares: all[1].finish() }
    }
}

impl PairExtent {
    /// Returns the sums of a pair: those of the first pass, or of a second one if needed.
    pub(crate) fn of(b: TensorRef<'_>, c: TensorRef<'_>, totals: &Totals) -> Self {
        let pair = &totals.pair;
        let largest = totals.record.map_or(0.0, |record| record.error.rounded);
        // An equal pair has no distance to lose; a far smaller both-finite part of a tensor shows in its
        // squares.
        let safe = in_range(&totals.baseline)
            && in_range(&totals.candidate)
            && (largest.to_bits() == 0 || (SMALL..=LARGE).contains(&largest))
            && [(pair.baseline_squares, &totals.baseline), (pair.candidate_squares, &totals.candidate)]
                .iter()
                .all(|(squares, side)| *squares >= SMALL_SQUARES || extent(side) < SMALL || pair.finite == 0);
        if safe {
            return Self {
                dot: Scaled::from(pair.dot),
                baseline_squares: Scaled::from(pair.baseline_squares),
                candidate_squares: Scaled::from(pair.candidate_squares),
                distance_squares: Scaled::from(pair.distance_squares),
                abs: Scaled::from(pair.abs),
            };
        }
        let complex = b.dtype().is_complex() || c.dtype().is_complex();
        let chunk = |range: Range<usize>| {
            let mut all = [Sum::EMPTY; 5];
            let (mut blocks_b, mut blocks_c) = (Blocks::of(b, range.end), Blocks::of(c, range.end));
            let (mut values_b, mut values_c) = (Vec::new(), Vec::new());
            for block in blocks_of(range) {
                <[f64; 2]>::decode(b.dtype(), blocks_b.bytes(block.clone()), &mut values_b);
                <[f64; 2]>::decode(c.dtype(), blocks_c.bytes(block), &mut values_c);
                for (&b, &c) in values_b.iter().zip(&values_c) {
                    if ComplexDouble::is_finite(b) && ComplexDouble::is_finite(c) {
                        add_pair(&mut all, b, c, complex);
                    }
                }
            }
            all
        };
        let mut all = [Sum::EMPTY; 5];
        for_chunks(Threads::Pool, b.len(), chunk, |_, next| append(&mut all, &next));
        let [dot, baseline_squares, candidate_squares, distance_squares, abs] = all.map(|sum| sum.finish());
        Self { dot, baseline_squares, candidate_squares, distance_squares, abs }
    }
}

fn add_pair(
    [dot, squares_b, squares_c, squares, abs]: &mut [Sum; 5],
    b: [f64; 2],
    c: [f64; 2],
    complex: bool,
) {
    let mut halves = [0.0; 2];
    for part in 0..2 {
        dot.add_product(b[part], c[part]);
        squares_b.add_product(b[part], b[part]);
        squares_c.add_product(c[part], c[part]);
        let difference = c[part] - b[part];
        if difference.is_finite() {
            squares.add_product(difference, difference);
            halves[part] = difference / 2.0;
        } else {
            // Halves have a difference that fits; the result is doubled again.
            halves[part] = c[part] / 2.0 - b[part] / 2.0;
            let (half, exponent) = split(halves[part]);
            squares.add(half * half, 2 * (exponent + 1));
        }
    }
    if complex {
        abs.add_term(modulus([c[0] - b[0], c[1] - b[1]]));
    } else if (c[0] - b[0]).is_finite() {
        abs.add_term((c[0] - b[0]).abs());
    } else {
        let (half, exponent) = split(halves[0].abs());
        abs.add(half, exponent + 1);
    }
}

fn append<const N: usize>(sums: &mut [Sum; N], next: &[Sum; N]) {
    sums.iter_mut().zip(next).for_each(|(sum, next)| sum.append(next));
}

/// Returns the largest finite modulus; 0 if there is none.
fn extent(sums: &SideSums) -> f64 {
    if sums.min > sums.max {
        0.0
    } else if -sums.min > sums.max {
        -sums.min
    } else {
        sums.max
    }
}

/// Returns true if no square of this side can leave the range, or if nothing is lost when one does.
fn in_range(sums: &SideSums) -> bool {
    let extent = extent(sums);
    extent.to_bits() << 1 == 0 || (SMALL..=LARGE).contains(&extent)
}
