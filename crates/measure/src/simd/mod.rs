//! The bodies of the kernels, one leaf file per instruction set. The only place in `measure` with unsafe code.
//!
//! Every body gives the same bits. A body is chosen once per tensor; only speed depends on it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod float_control;
mod portable;
pub(crate) mod unordered;

pub(crate) use float_control::DefaultFloat;

use probe_dump::DType;

use super::arithmetic::Arithmetic;
use super::decode::Decode;
use super::kernel::{Kernel, side_then_sketch};
use super::sketch::SignedSums;
use super::sums::{BlockSums, SideSums};
use super::ulp;
#[cfg(target_arch = "x86_64")]
use super::{
    arithmetic::Single,
    sketch::ROW,
    sums::{Magnitude, Record},
};

/// Assumptions of a kernel about a block. A block that several paths accept gets the same bits from each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// All finite, no zero in the baseline. A violation shows as a sum that is not finite.
    Plain,
    /// All finite. A violation shows as a sum of squares that is not finite.
    ZeroAware,
    /// No assumptions.
    Masked,
}

/// An instruction set with its own body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// AVX-512 with F, BW, DQ and VL, plus the features of [`Avx2`](Self::Avx2).
    Avx512,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// Any CPU.
    Portable,
}

impl Body {
    /// Every body, fastest first.
    pub(crate) const ALL: [Self; 3] = [Self::Avx512, Self::Avx2, Self::Portable];

    /// Returns true if this CPU can run it. The standard library queries the CPU once and caches the answer.
    pub(crate) fn is_supported(self) -> bool {
        match self {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && Self::Avx2.is_supported()
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("popcnt")
            }
            Self::Portable => true,
            #[cfg(any(not(target_arch = "x86_64"), miri))]
            _ => false,
        }
    }

    /// Returns the fastest body that this CPU can run.
    pub(crate) fn detected() -> Self {
        Self::ALL.into_iter().find(|body| body.is_supported()).unwrap_or(Self::Portable)
    }
}

/// The portable code, compiled for the instructions of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes(Body);

/// Calls `$name` as compiled for the body `$self`.
macro_rules! on_body {
    ($self:ident, $name:ident::<$type:ty>($($argument:expr),*), $portable:expr) => {
        match $self.0 {
            // SAFETY: `new` has checked that the CPU has the instructions.
            #[cfg(target_arch = "x86_64")]
            Body::Avx512 => unsafe { avx512::$name::<$type>($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Body::Avx2 => unsafe { avx2::$name::<$type>($($argument),*) },
            _ => $portable,
        }
    };
}

#[expect(unsafe_code, reason = "calls code for instructions that not every CPU has")]
impl Lanes {
    /// Returns the portable code for `body`.
    ///
    /// # Panics
    /// If this CPU cannot run it.
    pub(crate) fn new(body: Body) -> Self {
        assert!(body.is_supported(), "not on this CPU");
        Self(body)
    }

    /// [`portable::pair`].
    pub(crate) fn pair<A: Arithmetic>(self, path: Path, b: &[A::Item], c: &[A::Item]) -> BlockSums {
        on_body!(self, pair_lanes::<A>(path, b, c), portable::pair::<A>(path, b, c))
    }

    /// [`portable::side`].
    pub(crate) fn side<A: Arithmetic>(self, masked: bool, x: &[A::Item]) -> SideSums {
        on_body!(self, side_lanes::<A>(masked, x), portable::side::<A>(masked, x))
    }

    /// [`portable::sketch`].
    pub(crate) fn sketch<A: Arithmetic>(self, masked: bool, x: &[A::Item], sums: &mut SignedSums) {
        on_body!(self, sketch_lanes::<A>(masked, x, sums), portable::sketch::<A>(masked, x, sums));
    }

    /// [`Decode::decode`].
    pub(crate) fn decode<T: Decode>(self, dtype: DType, bytes: &[u8], out: &mut Vec<T>) {
        on_body!(self, decode::<T>(dtype, bytes, out), T::decode(dtype, bytes, out));
    }

    /// [`ulp::largest`].
    pub(crate) fn largest_ulp(self, dtype: DType, b: &[u8], c: &[u8]) -> u64 {
        match self.0 {
            // SAFETY: `new` has checked that the CPU has the instructions.
            #[cfg(target_arch = "x86_64")]
            Body::Avx512 => unsafe { avx512::largest_ulp(dtype, b, c) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Body::Avx2 => unsafe { avx2::largest_ulp(dtype, b, c) },
            _ => ulp::largest(dtype, b, c),
        }
    }
}

/// Binary32, as a parameter of the vector bodies.
#[cfg(target_arch = "x86_64")]
const F32: u8 = 0;
/// bfloat16.
#[cfg(target_arch = "x86_64")]
const BF16: u8 = 1;
/// Binary16.
#[cfg(target_arch = "x86_64")]
const F16: u8 = 2;

/// Bytes of an element.
#[cfg(target_arch = "x86_64")]
const fn size_of_kind(kind: u8) -> usize {
    if kind == F32 { 4 } else { 2 }
}

/// Prefetch distance in bytes: the hardware's own prefetcher stops at every page.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 2048;

/// Prefetches the memory that a later step will read. A hint: any address will do, even one beyond the tensor.
#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "an intrinsic that takes a pointer and reads nothing")]
fn fetch_ahead(at: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: prefetching any address is allowed and has no effect visible to the program. Every x86-64 CPU
    // supports it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD).cast()) }
}

/// A vector kernel for two tensors of one of the types `F32`, `BF16` and `F16`. `WIDE`: AVX-512, else AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
struct Vector<const KIND: u8, const WIDE: bool>(());

#[cfg(target_arch = "x86_64")]
impl<const KIND: u8, const WIDE: bool> Vector<KIND, WIDE> {
    /// Returns the kernel. Its existence proves that the CPU has the instructions.
    ///
    /// # Panics
    /// If it does not.
    fn new() -> Self {
        assert!(if WIDE { Body::Avx512 } else { Body::Avx2 }.is_supported(), "not on this CPU");
        Self(())
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls code for instructions that not every CPU has")]
impl<const KIND: u8, const WIDE: bool> Kernel for Vector<KIND, WIDE> {
    fn pair(&mut self, path: Path, b: &[u8], c: &[u8]) -> BlockSums {
        if WIDE {
            // SAFETY: `new` has checked that the CPU has the instructions.
            unsafe { avx512::pair::<KIND>(path, b, c) }
        } else {
            // SAFETY: as above.
            unsafe { avx2::pair::<KIND>(path, b, c) }
        }
    }

    fn side(&mut self, masked: bool, x: &[u8]) -> SideSums {
        // Bound by widening: more lanes per step gain nothing, but masks do.
        if WIDE && masked {
            // SAFETY: as above.
            unsafe { avx512::masked_side::<KIND>(x) }
        } else {
            // SAFETY: as above.
            unsafe { avx2::side::<KIND>(masked, x) }
        }
    }

    fn sketch(&mut self, masked: bool, x: &[u8], sums: &mut SignedSums) {
        match (WIDE, masked) {
            // SAFETY: as above.
            (true, false) => unsafe { avx512::sketch::<KIND, false>(x, sums) },
            // SAFETY: as above.
            (true, true) => unsafe { avx512::sketch::<KIND, true>(x, sums) },
            // SAFETY: as above.
            (false, false) => unsafe { avx2::sketch::<KIND, false>(x, sums) },
            // SAFETY: as above.
            (false, true) => unsafe { avx2::sketch::<KIND, true>(x, sums) },
        }
    }

    fn side_and_sketch(&mut self, x: &[u8], sums: &mut SignedSums) -> SideSums {
        if x.len().is_multiple_of(ROW * size_of_kind(KIND)) {
            // SAFETY: as above.
            unsafe { avx2::side_and_sketch::<KIND>(x, sums) }
        } else {
            side_then_sketch(self, x, sums)
        }
    }

    fn locate(&mut self, hint: f64, floor: Option<f64>, b: &[u8], c: &[u8]) -> Option<Record> {
        if WIDE {
            // SAFETY: as above.
            unsafe { avx512::locate::<KIND>(hint, floor, b, c) }
        } else {
            // SAFETY: as above.
            unsafe { avx2::locate::<KIND>(hint, floor, b, c) }
        }
    }

    fn may_exceed(&self, hint: f64, record: Magnitude) -> bool {
        // The largest error of the 16-bit types is kept in binary64: nothing was rounded.
        if KIND == F32 { Single::may_exceed(hint, record.rounded) } else { hint > record.rounded }
    }
}

/// Returns the kernel of `body` for two tensors of type `dtype`; `None` if the portable body serves the type
/// as well.
pub(crate) fn kernel(body: Body, dtype: DType) -> Option<Box<dyn Kernel>> {
    #[cfg(target_arch = "x86_64")]
    match (body, dtype) {
        (Body::Avx512, DType::F32) => return Some(Box::new(Vector::<F32, true>::new())),
        (Body::Avx512, DType::Bf16) => return Some(Box::new(Vector::<BF16, true>::new())),
        (Body::Avx512, DType::F16) => return Some(Box::new(Vector::<F16, true>::new())),
        (Body::Avx2, DType::F32) => return Some(Box::new(Vector::<F32, false>::new())),
        (Body::Avx2, DType::Bf16) => return Some(Box::new(Vector::<BF16, false>::new())),
        (Body::Avx2, DType::F16) => return Some(Box::new(Vector::<F16, false>::new())),
        _ => {}
    }
    let _ = (body, dtype);
    None
}
