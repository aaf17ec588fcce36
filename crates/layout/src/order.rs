//! The order in which the chunks of a value lie.

use probe_dump::TensorRef;

use super::infer::{NEAR, error};

/// Returns the order in which the chunks of a dimension of `whole` lie in `value`, which has the same shape; `None` if `value` is not made of
/// them, or if they lie as they should.
pub fn chunk_order(
    whole: TensorRef<'_>,
    value: TensorRef<'_>,
    dimension: usize,
    chunks: usize,
) -> Option<Vec<usize>> {
    let size = *whole.shape().get(dimension)?;
    if whole.shape() != value.shape() || chunks < 2 || size < chunks || !size.is_multiple_of(chunks) {
        return None;
    }
    let mut sizes = whole.shape().to_vec();
    sizes[dimension] = size / chunks;
    let chunk = |of: TensorRef<'_>, number: usize| {
        of.offset() + number * sizes[dimension] * of.strides().get(dimension).copied().unwrap_or(0)
    };
    let near = |own: usize, due: usize| {
        let a =
            TensorRef::strided(whole.storage(), whole.dtype(), &sizes, whole.strides(), chunk(whole, due));
        let b =
            TensorRef::strided(value.storage(), value.dtype(), &sizes, value.strides(), chunk(value, own));
        matches!((a, b), (Ok(a), Ok(b)) if error(a, b) < NEAR)
    };
    let mut free: Vec<usize> = (0..chunks).collect();
    let mut order = Vec::new();
    for own in 0..chunks {
        let at = free.iter().position(|&due| near(own, due))?;
        order.push(free.remove(at));
    }
    (!order.iter().copied().eq(0..chunks)).then_some(order)
}
