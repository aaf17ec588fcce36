//! Effects of rounding: least errors by dtype, the levels that known precisions leave in a run, and the
//! highest level shared by calls that a precision can explain.
//!
//! All numbers are relative l2 errors: the norm of the difference over the norm of the result (its scale without
//! cancellation, see [`scale`](super::scale)).

use probe_dump::DType;

/// Floors of one dtype.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Precision {
    /// One unit in the last place, relative to the largest power of two below the element.
    pub(super) unit: f64,
    /// Smallest error ever held against an op: the difference in rounding between two devices if nothing else
    /// is known. 2^-22 in binary32: two roundings of a product and a sum, each by half a unit, on both sides.
    pub(super) least: f64,
    /// Error an op may have if too few calls of its kind show their level: half a unit in types so coarse that
    /// the rounding of the result dominates, else `least`.
    pub(super) unknown: f64,
    /// Largest level shared by calls of one function that is still rounding: 64 units in the last place, the
    /// mean that the operator standards allow binary32 (`docs/judge.md`), eight in coarser types.
    pub(super) function: f64,
    /// Largest such level of products, whose factors a device may round before it multiplies them.
    pub(super) product: f64,
    /// Spacing of the numbers around zero, below the normal ones: the possible error of a small element. 0 for dtypes
    /// whose normal numbers reach far below what networks compute.
    pub(super) spacing: f64,
}

impl Precision {
    pub(super) const BINARY32: Self = Self::new([-23, -22, -22, -17, -9]);

    /// Builds the floors from powers of two.
    const fn new([unit, least, unknown, function, product]: [i64; 5]) -> Self {
        Self {
            unit: two(unit),
            least: two(least),
            unknown: two(unknown),
            function: two(function),
            product: two(product),
            spacing: 0.0,
        }
    }

    /// Sets the power of two of the spacing around zero.
    const fn spaced(self, spacing: i64) -> Self {
        Self { spacing: two(spacing), ..self }
    }

    /// Returns the floors of a dtype; `None` for exact types.
    pub(super) fn of(dtype: DType) -> Option<&'static Self> {
        const F64: Precision = Precision::new([-52, -51, -49, -40, -30]);
        const F16: Precision = Precision::new([-10, -13, -12, -7, -7]).spaced(-24);
        const BF16: Precision = Precision::new([-7, -10, -9, -4, -4]);
        const F8E4M3: Precision = Precision::new([-3, -6, -4, -3, -3]).spaced(-9);
        const F8E5M2: Precision = Precision::new([-2, -5, -3, -2, -2]).spaced(-16);
        Some(match dtype {
            DType::F64 | DType::C128 => &F64,
            DType::F32 | DType::C64 => &Self::BINARY32,
            DType::F16 => &F16,
            DType::Bf16 => &BF16,
            DType::F8E4M3 => &F8E4M3,
            DType::F8E5M2 => &F8E5M2,
            _ => return None,
        })
    }

    /// Returns the coarser of two precisions.
    pub(super) fn coarser(&'static self, other: &'static Self) -> &'static Self {
        if other.unit > self.unit { other } else { self }
    }
}

/// Returns a power of two among the normal numbers.
const fn two(exponent: i64) -> f64 {
    f64::from_bits((1023 + exponent).cast_unsigned() << 52)
}

/// A precision in which a device may compute products of binary32, and the level it leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProductPrecision {
    /// Name in notes.
    pub(super) name: &'static str,
    /// Theoretical level of a product of uncorrelated operands.
    pub(super) predicted: f64,
    /// Smallest and largest level that indicate it.
    pub(super) range: (f64, f64),
    /// Error that a product may have.
    pub(super) floor: f64,
    /// Instructions for computing both sides alike.
    pub(super) repair: &'static str,
}

/// Factors rounded to `p` fraction bits are off by `2^-(p+1) / sqrt(3)` each in the worst binade, about 0.72
/// of that over a binade; a product of two of them by `sqrt(2)` times that: 2.9e-4 for the 10 bits of TF32 and
/// HF32, 2.3e-3 for the 7 bits of bfloat16. The ranges leave room for accumulated error.
pub(super) const PRODUCT_PRECISIONS: [ProductPrecision; 2] = [
    ProductPrecision {
        name: "as with 10-bit inputs (TF32 on GPUs, HF32 on NPUs; float16 inputs look the same)",
        predicted: 2.9e-4,
        range: (1e-4, 9e-4),
        floor: 4e-4,
        repair: "to compute both sides in float32, set torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32 to False, on NPUs torch_npu.npu.matmul.allow_hf32 and torch_npu.npu.conv.allow_hf32",
    },
    ProductPrecision {
        name: "as with 7-bit inputs (bfloat16)",
        predicted: 2.3e-3,
        range: (9e-4, 7e-3),
        floor: 3e-3,
        repair: "to compute both sides in float32, set torch.set_float32_matmul_precision(\"highest\")",
    },
];

/// Level of binary32 products that no such precision explains any more.
pub(super) const COARSEST_PRODUCT: f64 = PRODUCT_PRECISIONS[1].range.1;

/// Returns the precision that explains a level of binary32 products, if any.
pub(super) fn product_precision(level: f64) -> Option<&'static ProductPrecision> {
    PRODUCT_PRECISIONS.iter().find(|known| (known.range.0..known.range.1).contains(&level))
}

/// Returns the factor by which rounding grows with the number of terms of a sum, 1 for sums of up to 1,024
/// terms: the error of a sum in any order is random and grows with the root of its length (Higham and Mary,
/// SIAM J. Sci. Comput. 41(5), 2019); devices sum in blocks, so the growth begins late.
pub(super) fn of_sum(terms: f64) -> f64 {
    (terms / 1024.0).max(1.0).sqrt()
}

/// Longest run of equal terms that is followed: devices sum longer ones in blocks.
const LONGEST_RUN: f64 = 1024.0;

/// Returns the factor by which rounding grows where terms come in runs of equal ones, as the gradients behind a mean
/// do: each of a run is rounded alike, by up to half a unit of the sum, so that the error grows with its length. Four
/// roundings make the least error.
pub(super) const fn of_run(run: f64) -> f64 {
    run.min(LONGEST_RUN) / 4.0
}
