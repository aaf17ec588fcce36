//! Elements of tensors as binary64.

use probe_dump::TensorRef;

use super::arithmetic::modulus;
use super::blocks::{Blocks, blocks_of};
use super::decode::Decode;

/// Scratch for the values of a block: moduli for complex.
#[derive(Default)]
pub(super) struct Values {
    real: Vec<f64>,
    complex: Vec<[f64; 2]>,
}

impl Values {
    pub(super) fn of(&mut self, tensor: TensorRef<'_>, bytes: &[u8]) -> &[f64] {
        if tensor.dtype().is_complex() {
            <[f64; 2]>::decode(tensor.dtype(), bytes, &mut self.complex);
            self.real.clear();
            self.real.extend(self.complex.iter().map(|&value| modulus(value)));
        } else {
            f64::decode(tensor.dtype(), bytes, &mut self.real);
        }
        &self.real
    }
}

/// Passes the elements of two tensors of equal length to `each` pair by pair, in row-major order and on one
/// thread: moduli for complex.
pub(super) fn for_each_pair(
    baseline: TensorRef<'_>,
    candidate: TensorRef<'_>,
    mut each: impl FnMut(f64, f64),
) {
    let (mut b_values, mut c_values) = (Values::default(), Values::default());
    let all = 0..baseline.len();
    let (mut b_blocks, mut c_blocks) = (Blocks::of(baseline, all.end), Blocks::of(candidate, all.end));
    for block in blocks_of(all) {
        let b = b_values.of(baseline, b_blocks.bytes(block.clone()));
        let c = c_values.of(candidate, c_blocks.bytes(block));
        b.iter().zip(c).for_each(|(&b, &c)| each(b, c));
    }
}
