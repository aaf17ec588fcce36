//! What callers may rely on, by example.

use crate::dump::{DType, TensorRef};

use super::{PairMetrics, compare};

fn measure(dtype: DType, b: &[u8], c: &[u8]) -> PairMetrics {
    let shape = [b.len() / dtype.size()];
    let tensor = |bytes| TensorRef::strided(bytes, dtype, &shape, &[1], 0).unwrap();
    compare(tensor(b), tensor(c)).unwrap()
}

fn bytes<const N: usize, T: Copy>(values: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| to_bytes(value)).collect()
}

#[test]
fn a_small_pair_gives_the_textbook_numbers() {
    let b = bytes(&[1.0, 2.0, 0.0, -4.0], f32::to_le_bytes);
    let c = bytes(&[1.0, 2.5, 0.0, -3.0], f32::to_le_bytes);
    let found = measure(DType::F32, &b, &c);
    assert_eq!(found.both_finite, 4);
    assert_eq!((found.different, found.zero_baseline), (2, 0));
    assert_eq!((found.max_abs_err, found.max_abs_index), (Some(1.0), Some(3)));
    assert_eq!(found.max_abs_values, Some((-4.0, -3.0)));
    assert_eq!(found.mean_abs_err, Some(0.375));
    assert_eq!(found.euclidean, Some(1.25_f64.sqrt()));
    assert_eq!(found.rel_l2, Some(1.25_f64.sqrt() / 21_f64.sqrt()));
    assert_eq!((found.max_rel_err, found.within_1e3), (Some(0.25), Some(0.5)));
    assert_eq!((found.baseline.min, found.baseline.max), (Some(-4.0), Some(2.0)));
    assert_eq!((found.candidate.mean, found.candidate.zeros), (Some(0.125), 1));
    assert!(!found.bit_equal);
}

#[test]
fn identical_tensors_have_a_cosine_of_exactly_one() {
    let values: Vec<f32> = (0..5000_u16).map(|i| f32::from(i % 97) / 7.0).collect();
    let b = bytes(&values, f32::to_le_bytes);
    let found = measure(DType::F32, &b, &b);
    assert!(found.bit_equal);
    assert_eq!((found.cosine, found.euclidean, found.max_ulp), (Some(1.0), Some(0.0), Some(0)));
    assert_eq!((found.max_abs_err, found.max_abs_index), (Some(0.0), Some(0)));
    assert_eq!(found.within_1e3, Some(1.0));
}

#[test]
fn integers_are_compared_exactly() {
    let b = bytes(&[1 << 53, i64::MIN, 5], i64::to_le_bytes);
    let c = bytes(&[(1 << 53) + 1, i64::MAX, 5], i64::to_le_bytes);
    let found = measure(DType::I64, &b, &c);
    assert_eq!(found.different, 2);
    assert_eq!((found.max_abs_err, found.max_abs_index), (Some(u64::MAX as f64), Some(1)));
}
