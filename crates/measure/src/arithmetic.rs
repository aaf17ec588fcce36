//! Meaning of the metrics for one element of each kind: the formulas, without loops.
//!
//! An [`Arithmetic`] is a pair of decoded element types with the operations that the metrics are built from.
//! `docs/metrics.md` states the same formulas in words.

use super::sums::Magnitude;

/// Type in which relative errors are divided and extremes are kept.
pub(crate) trait Real: Copy + PartialOrd {
    /// Positive infinity.
    const INFINITY: Self;
    /// Negative infinity.
    const NEG_INFINITY: Self;
    /// Zero.
    const ZERO: Self;
    /// 1/1000, rounded to this type.
    const THOUSANDTH: Self;
    /// 5/1000, rounded to this type.
    const FIVE_THOUSANDTHS: Self;
    /// Exact conversion.
    fn widen(self) -> f64;
}

macro_rules! real {
    ($($type:ident)*) => {$(
        impl Real for $type {
            const INFINITY: Self = $type::INFINITY;
            const NEG_INFINITY: Self = $type::NEG_INFINITY;
            const ZERO: Self = 0.0;
            const THOUSANDTH: Self = 0.001;
            const FIVE_THOUSANDTHS: Self = 0.005;
            #[inline(always)]
            fn widen(self) -> f64 {
                f64::from(self)
            }
        }
    )*};
}
real!(f32 f64);

/// Finite, or the kind of non-finite value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Finite,
    Nan,
    PosInf,
    NegInf,
}

/// The formulas for one kind of element.
pub(crate) trait Arithmetic {
    /// A decoded element.
    type Item: Copy + Default + Send;
    /// Type of relative errors and extremes.
    type Real: Real;

    /// Number of reals in an element.
    const PARTS: usize = 1;

    /// Writes the real numbers of `elements`, exact except for 64-bit integers, to the front of `terms`.
    fn terms(elements: &[Self::Item], terms: &mut [f64]);
    /// The value that min, max and sum are computed from (the modulus for complex).
    fn value(x: Self::Item) -> Self::Real;
    /// Square of the value.
    fn square(x: Self::Item) -> f64;
    /// Product of baseline and candidate (over both parts for complex).
    fn product(b: Self::Item, c: Self::Item) -> f64;
    /// Absolute error and its square.
    fn distance(b: Self::Item, c: Self::Item) -> (f64, f64);
    /// Relative error. With `ZEROS`, zeros in the baseline are handled; without it, they make the result
    /// non-finite.
    fn relative<const ZEROS: bool>(b: Self::Item, c: Self::Item) -> Self::Real;
    /// Returns true for zero of either sign.
    fn is_zero(x: Self::Item) -> bool;
    /// Class of the element.
    fn class(x: Self::Item) -> Class;
    /// Equivalent to `class(x) == Finite`, in a form that compilers vectorise.
    fn is_finite(x: Self::Item) -> bool;
    /// Returns true if two elements differ in value, or non-finite elements in class.
    fn differs(b: Self::Item, c: Self::Item) -> bool;
    /// Returns true if the classes differ.
    fn mismatch(b: Self::Item, c: Self::Item) -> bool {
        Self::class(b) != Self::class(c)
    }
    /// The absolute error in the form used for ranking.
    fn magnitude(b: Self::Item, c: Self::Item) -> Magnitude {
        Magnitude { rounded: Self::distance(b, c).0, exact: 0 }
    }
    /// The real part as binary64, for display.
    fn shown(x: Self::Item) -> f64;
    /// Returns true if a block whose largest error is about `hint` may hold an error above `record`.
    fn may_exceed(hint: f64, record: f64) -> bool {
        hint > record
    }
}

/// Floats up to binary32: differences and sums in binary64, relative errors in binary32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Single;

/// Binary64, and every mix that binary64 holds exactly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Double;

macro_rules! float_arithmetic {
    ($name:ident, $type:ident) => {
        type Item = $type;
        type Real = $type;

        #[inline(always)]
        fn terms(elements: &[$type], terms: &mut [f64]) {
            for (term, &element) in terms.iter_mut().zip(elements) {
                *term = element.into();
            }
        }
        #[inline(always)]
        fn value(x: $type) -> $type {
            x
        }
        #[inline(always)]
        fn square(x: $type) -> f64 {
            f64::from(x) * f64::from(x)
        }
        #[inline(always)]
        fn product(b: $type, c: $type) -> f64 {
            f64::from(b) * f64::from(c)
        }
        #[inline(always)]
        fn distance(b: $type, c: $type) -> (f64, f64) {
            let d = f64::from(c) - f64::from(b);
            (d.abs(), d * d)
        }
        #[inline(always)]
        fn relative<const ZEROS: bool>(b: $type, c: $type) -> $type {
            if ZEROS {
                // numpy's order of operations: epsilon goes to both sides, then the ordinary quotient.
                let zero = Self::is_zero(b);
                let divisor = if zero { $type::EPSILON } else { b };
                let c = if zero { c + $type::EPSILON } else { c };
                ((c - divisor) / divisor).abs()
            } else {
                ((c - b) / b).abs()
            }
        }
        #[inline(always)]
        fn is_zero(x: $type) -> bool {
            x == 0.0
        }
        #[inline(always)]
        fn class(x: $type) -> Class {
            if x.is_finite() {
                Class::Finite
            } else if x.is_nan() {
                Class::Nan
            } else if x == $type::INFINITY {
                Class::PosInf
            } else {
                Class::NegInf
            }
        }
        #[inline(always)]
        fn is_finite(x: $type) -> bool {
            x.abs() < $type::INFINITY
        }
        #[inline(always)]
        #[expect(clippy::float_cmp, reason = "asks for equality, not for closeness")]
        fn differs(b: $type, c: $type) -> bool {
            // NaN differs only from other classes, which `mismatch` detects.
            b != c && !(b.is_nan() && c.is_nan())
        }
        #[inline(always)]
        fn shown(x: $type) -> f64 {
            f64::from(x)
        }
    };
}

impl Arithmetic for Single {
    float_arithmetic!(Single, f32);

    #[expect(clippy::cast_possible_truncation, reason = "the hint may have been rounded the same way")]
    fn may_exceed(hint: f64, record: f64) -> bool {
        // Rounding preserves order: a block below the rounded record cannot beat the record itself.
        hint as f32 >= record as f32
    }
}

impl Arithmetic for Double {
    float_arithmetic!(Double, f64);
}

/// 64-bit integers of one type: exact differences.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed64;

/// Like [`Signed64`], unsigned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unsigned64;

/// Any two integers, one of which is 64 bits wide: exact differences.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wide;

macro_rules! integer_arithmetic {
    ($($name:ident $type:ident)*) => {$(
        impl Arithmetic for $name {
            type Item = $type;
            type Real = f64;

            #[inline(always)]
            fn terms(elements: &[$type], terms: &mut [f64]) {
                for (term, &element) in terms.iter_mut().zip(elements) {
                    *term = element as f64;
                }
            }
            #[inline(always)]
            fn value(x: $type) -> f64 {
                x as f64
            }
            #[inline(always)]
            fn square(x: $type) -> f64 {
                x as f64 * x as f64
            }
            #[inline(always)]
            fn product(b: $type, c: $type) -> f64 {
                b as f64 * c as f64
            }
            #[inline(always)]
            fn distance(b: $type, c: $type) -> (f64, f64) {
                let d = c.abs_diff(b) as f64;
                (d, d * d)
            }
            #[inline(always)]
            fn relative<const ZEROS: bool>(b: $type, c: $type) -> f64 {
                if ZEROS && b == 0 {
                    ((c as f64 + f64::EPSILON) - f64::EPSILON).abs() / f64::EPSILON
                } else {
                    // The exact difference, so that 2^53 + 1 against 2^53 is not 0.
                    c.abs_diff(b) as f64 / (b as f64).abs()
                }
            }
            #[inline(always)]
            fn is_zero(x: $type) -> bool {
                x == 0
            }
            #[inline(always)]
            fn class(_: $type) -> Class {
                Class::Finite
            }
            #[inline(always)]
            fn is_finite(_: $type) -> bool {
                true
            }
            #[inline(always)]
            fn differs(b: $type, c: $type) -> bool {
                b != c
            }
            fn magnitude(b: $type, c: $type) -> Magnitude {
                let exact = c.abs_diff(b);
                Magnitude { rounded: exact as f64, exact: u128::from(exact) }
            }
            fn shown(x: $type) -> f64 {
                x as f64
            }
            fn may_exceed(hint: f64, record: f64) -> bool {
                // From 2^53 on, two exact errors may share a rounded one.
                hint > record || hint >= 9_007_199_254_740_992.0
            }
        }
    )*};
}
integer_arithmetic!(Signed64 i64 Unsigned64 u64 Wide i128);

/// Complex numbers whose parts are binary32 or narrower, held as binary64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ComplexSingle;

/// Complex numbers whose parts are binary64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ComplexDouble;

/// Returns the modulus without intermediate overflow or underflow.
#[expect(clippy::imprecise_flops, reason = "the last bit of the library's hypot differs by platform")]
pub(crate) fn modulus([re, im]: [f64; 2]) -> f64 {
    const LARGE: f64 = 1e150;
    const SMALL: f64 = 1e-140;
    let larger = if re.abs() > im.abs() { re.abs() } else { im.abs() };
    let scale = if larger > LARGE {
        f64::from_bits((1023 - 600) << 52)
    } else if larger < SMALL {
        f64::from_bits((1023 + 600) << 52)
    } else {
        1.0
    };
    let (re, im) = (re * scale, im * scale);
    (re * re + im * im).sqrt() / scale
}

macro_rules! complex_arithmetic {
    ($($name:ident $epsilon:expr;)*) => {$(
        impl Arithmetic for $name {
            type Item = [f64; 2];
            type Real = f64;

            const PARTS: usize = 2;

            fn terms(elements: &[[f64; 2]], terms: &mut [f64]) {
                let parts = elements.as_flattened();
                terms[..parts.len()].copy_from_slice(parts);
            }
            fn value(x: [f64; 2]) -> f64 {
                modulus(x)
            }
            fn square([re, im]: [f64; 2]) -> f64 {
                re * re + im * im
            }
            fn product(b: [f64; 2], c: [f64; 2]) -> f64 {
                b[0] * c[0] + b[1] * c[1]
            }
            fn distance(b: [f64; 2], c: [f64; 2]) -> (f64, f64) {
                let d = [c[0] - b[0], c[1] - b[1]];
                (modulus(d), d[0] * d[0] + d[1] * d[1])
            }
            fn relative<const ZEROS: bool>(b: [f64; 2], c: [f64; 2]) -> f64 {
                if ZEROS && Self::is_zero(b) {
                    return modulus(c) / $epsilon;
                }
                // Near the end of the range moduli overflow although their quotient does not; quarters are
                // safe.
                let huge = |x: [f64; 2]| x[0].abs() > 1e300 || x[1].abs() > 1e300;
                let scale = if huge(b) || huge(c) { 0.25 } else { 1.0 };
                let [b, c] = [b, c].map(|x| x.map(|part| part * scale));
                modulus([c[0] - b[0], c[1] - b[1]]) / modulus(b)
            }
            fn is_zero([re, im]: [f64; 2]) -> bool {
                re == 0.0 && im == 0.0
            }
            fn class(x: [f64; 2]) -> Class {
                if x.iter().any(|part| part.is_nan()) {
                    Class::Nan
                } else if x.iter().any(|part| part.is_infinite()) {
                    Class::PosInf
                } else {
                    Class::Finite
                }
            }
            fn is_finite([re, im]: [f64; 2]) -> bool {
                re.is_finite() && im.is_finite()
            }
            fn differs(b: [f64; 2], c: [f64; 2]) -> bool {
                (0..2).any(|part| Double::differs(b[part], c[part]))
            }
            fn mismatch(b: [f64; 2], c: [f64; 2]) -> bool {
                (0..2).any(|part| Double::mismatch(b[part], c[part]))
            }
            fn shown(x: [f64; 2]) -> f64 {
                x[0]
            }
        }
    )*};
}
complex_arithmetic!(ComplexSingle f64::from(f32::EPSILON); ComplexDouble f64::EPSILON;);
