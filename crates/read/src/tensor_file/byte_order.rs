//! Big-endian tensors: swapped into a buffer of our own, since every kernel reads little-endian bytes.

use probe_dump::DType;

/// Copies `bytes` with the byte order of every element reversed. Both numbers of a complex element are reversed
/// separately; a trailing partial number is dropped.
pub(super) fn swapped(bytes: &[u8], dtype: DType) -> Vec<u8> {
    let size = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
    let mut out = bytes.to_vec();
    for number in out.chunks_exact_mut(size) {
        number.reverse();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_complex_numbers_stay_in_place() {
        assert_eq!(swapped(&[1, 2, 3, 4], DType::I16), [2, 1, 4, 3]);
        assert_eq!(swapped(&[1, 2, 3, 4, 5, 6, 7, 8], DType::C64), [4, 3, 2, 1, 8, 7, 6, 5]);
        assert_eq!(swapped(&[1, 2], DType::Bool), [1, 2]);
    }
}
