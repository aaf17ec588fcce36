//! Guarantees for callers: by example, by property, and that only the input decides every bit.

use proptest::prelude::*;

use probe_dump::{ALL_DTYPES, DType, TensorRef};

use super::blocks::kernel;
use super::golden::{self, tensors};
use super::simd::{Body, Path};
use super::sketch::mix;
use super::sums::{BLOCK, BlockSums, CHUNK, PairSums};
use super::{PairMetrics, compare, histogram, summarize};

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

#[test]
fn binary64_beyond_the_range_of_squares_is_measured_all_the_same() {
    for scale in [1e-300, 1e-160, 1e160, 1e300] {
        let b = bytes(&[3.0 * scale, 0.0, -4.0 * scale], f64::to_le_bytes);
        let c = bytes(&[3.0 * scale, 5e-324, -3.0 * scale], f64::to_le_bytes);
        let found = measure(DType::F64, &b, &c);
        let near = |found: Option<f64>, expected: f64| {
            let found = found.unwrap() / expected;
            assert!((found - 1.0).abs() < 1e-14, "{scale}: {found}");
        };
        near(Some(found.baseline.norm), 5.0 * scale);
        near(found.baseline.mean, -scale / 3.0);
        near(found.euclidean, scale);
        near(found.rel_l2, 0.2);
        near(found.mean_abs_err, scale / 3.0);
        near(found.cosine, 21.0 / 5.0 / 18_f64.sqrt());
    }
    let b = bytes(&[f64::MAX, f64::MAX], f64::to_le_bytes);
    let c = bytes(&[-f64::MAX, f64::MAX], f64::to_le_bytes);
    let found = measure(DType::F64, &b, &c);
    assert_eq!((found.max_abs_err, found.cosine), (Some(f64::INFINITY), Some(0.0)));
    assert_eq!((found.mean_abs_err, found.baseline.mean), (Some(f64::MAX), Some(f64::MAX)));
}

#[test]
fn truth_is_any_byte_but_zero() {
    let found = measure(DType::Bool, &[1, 0, 2, 1], &[2, 0, 1, 0]);
    assert_eq!((found.different, found.bit_equal, found.max_abs_index), (1, false, Some(3)));
}

#[test]
fn empty_and_unequal_tensors() {
    let found = measure(DType::F32, &[], &[]);
    assert!(found.bit_equal);
    assert_eq!((found.cosine, found.max_abs_err, found.rel_l2, found.within_1e3), (None, None, None, None));
    let (one, two) = ([0; 4], [0; 8]);
    let one = TensorRef::strided(&one, DType::F32, &[], &[], 0).unwrap();
    let two = TensorRef::strided(&two, DType::F32, &[2], &[1], 0).unwrap();
    assert!(compare(one, two).is_none());
    assert_eq!(compare(one, one).unwrap().cosine, Some(1.0));
}

/// Formats all digits and signs, which `==` on floats would ignore.
fn exact(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

fn supported() -> impl Iterator<Item = Body> {
    Body::ALL.into_iter().filter(|body| body.is_supported())
}

#[test]
fn every_path_that_accepts_a_block_gives_the_same_bits() {
    for dtype in ALL_DTYPES {
        let [b, c] = tensors([dtype, dtype], "near", 7, BLOCK);
        let mut seen: Option<String> = None;
        for body in supported() {
            let mut kernel = kernel(body, dtype, dtype);
            for path in [Path::Plain, Path::ZeroAware, Path::Masked] {
                let sums = BlockSums { max_abs_hint: 0.0, ..kernel.pair(path, &b, &c) };
                // Small integers do contain zeros, and the plain path detects them.
                if !sums.pair.rel.is_finite() {
                    assert_eq!(path, Path::Plain, "{dtype}");
                    continue;
                }
                let sums = exact(&sums);
                assert_eq!(*seen.get_or_insert(sums.clone()), sums, "{dtype} {path:?} {body:?}");
            }
            let (masked, plain) = (kernel.side(true, &b), kernel.side(false, &b));
            assert_eq!(exact(&masked), exact(&plain), "{dtype} {body:?}");
            let same = kernel.pair(Path::Masked, &b, &b);
            assert_eq!(exact(&same.baseline), exact(&plain), "{dtype} {body:?}");
            assert_eq!(exact(&same.pair), exact(&PairSums::of_identical(&plain, BLOCK)), "{dtype} {body:?}");
        }
    }
}

#[test]
fn neither_threads_nor_instructions_change_a_bit() {
    // Above the size that is split, with a ragged end, and with every kind of block.
    let count = 4 * CHUNK + 3 * BLOCK + 5;
    for (dtype, mode) in
        [(DType::F32, "special"), (DType::Bf16, "zeros"), (DType::F64, "near"), (DType::I64, "wild")]
    {
        let pair = tensors([dtype, dtype], mode, 3, count);
        let mut seen: Option<String> = None;
        for body in supported() {
            for threads in [1, 2, 7] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let found = exact(&pool.install(|| golden::measure(body, [dtype, dtype], &pair)));
                assert_eq!(*seen.get_or_insert(found.clone()), found, "{dtype} {body:?} {threads}");
            }
        }
    }
}

#[test]
fn the_first_of_equal_errors_is_named_across_blocks_and_chunks() {
    let count = 5 * CHUNK;
    let b = vec![0_u8; count * 4];
    for first in [0, BLOCK - 1, 3 * CHUNK + 17, count - 2] {
        let mut c = b.clone();
        for index in [first, count - 1] {
            c[index * 4..][..4].copy_from_slice(&2_f32.to_le_bytes());
        }
        let found = measure(DType::F32, &b, &c);
        assert_eq!((found.max_abs_index, found.different), (Some(first as u64), 2));
        assert_eq!(found.max_abs_values, Some((0.0, 2.0)));
    }
}

#[test]
fn strides_do_not_change_a_bit() {
    let (rows, columns) = (1030, 523);
    let [b, c] = tensors([DType::F32, DType::F32], "special", 5, rows * columns);
    let shape = [columns, rows];
    // The candidate is stored transposed and read through strides; the baseline is copied into that order.
    let (strides, row_major) = ([1, columns], [rows, 1]);
    let view = |bytes| TensorRef::strided(bytes, DType::F32, &shape, &strides, 0).unwrap();
    let (copy_b, copy_c) = (view(&b).to_bytes(), view(&c).to_bytes());
    let plain = |bytes| TensorRef::strided(bytes, DType::F32, &shape, &row_major, 0).unwrap();
    let expected = compare(plain(&copy_b), plain(&copy_c)).unwrap();
    assert_eq!(exact(&compare(plain(&copy_b), view(&c)).unwrap()), exact(&expected));
    assert_eq!(exact(&summarize(view(&c))), exact(&expected.candidate));
}

#[test]
fn sums_of_many_elements_keep_twelve_digits() {
    let count = 3 * (1 << 20) + 11;
    let [b, c] = tensors([DType::F32, DType::F32], "zeros", 11, count);
    let found = measure(DType::F32, &b, &c);
    // Neumaier's compensated summation.
    let sum = |term: &dyn Fn(f64, f64) -> f64| {
        let (mut sum, mut rest) = (0.0_f64, 0.0);
        let of =
            |bytes: &[u8], i: usize| f64::from(f32::from_le_bytes(bytes[4 * i..][..4].try_into().unwrap()));
        for i in 0..count {
            let x = term(of(&b, i), of(&c, i));
            let next = sum + x;
            rest += if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
            sum = next;
        }
        sum + rest
    };
    let near = |found: Option<f64>, expected: f64| {
        assert!((found.unwrap() - expected).abs() <= 1e-13 * expected.abs(), "{found:?} {expected}");
    };
    let (bb, cc, dd) = (sum(&|b, _| b * b), sum(&|_, c| c * c), sum(&|b, c| (c - b) * (c - b)));
    near(Some(found.baseline.norm), bb.sqrt());
    near(found.euclidean, dd.sqrt());
    near(found.rel_l2, (dd / bb).sqrt());
    near(found.cosine, sum(&|b, c| b * c) / bb.sqrt() / cc.sqrt());
    near(found.mean_abs_err, sum(&|b, c| (c - b).abs()) / count as f64);
}

#[test]
fn a_histogram_counts_every_finite_element_once() {
    let values = [0.0, 0.5, 1.0, 3.9, 4.0, f64::NAN, f64::INFINITY];
    let bytes = bytes(&values, f64::to_le_bytes);
    let tensor = TensorRef::strided(&bytes, DType::F64, &[7], &[1], 0).unwrap();
    let found = histogram(tensor, 4);
    assert_eq!(found.counts, [2, 1, 0, 2]);
    assert_eq!((found.summary.nan, found.summary.pos_inf), (1, 1));
    assert!(histogram(tensor, 0).counts.is_empty());
    let equal = TensorRef::strided(&bytes, DType::F64, &[3], &[0], 2).unwrap();
    assert_eq!(histogram(equal, 2).counts, [3, 0]);
}

/// The obvious implementation: one element after the other.
#[expect(clippy::float_cmp, reason = "asks for equality, not for closeness")]
fn oracle(values: &[(f64, f64)]) -> (u64, u64, u64, Option<(f64, u64)>) {
    let (mut finite, mut different, mut zeros, mut largest) = (0, 0, 0, None::<(f64, u64)>);
    for (index, &(b, c)) in (0..).zip(values) {
        let both = b.is_finite() && c.is_finite();
        different += u64::from(b != c && !(b.is_nan() && c.is_nan()));
        finite += u64::from(both);
        zeros += u64::from(both && b == 0.0 && c != 0.0);
        if both && largest.is_none_or(|(error, _)| (c - b).abs() > error) {
            largest = Some(((c - b).abs(), index));
        }
    }
    (finite, different, zeros, largest)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_of_any_types_are_measured_alike_by_every_body(
        seed in any::<u64>(),
        count in 0_usize..700,
        types in (0_usize..17, 0_usize..17),
        rarity in 1_u64..40,
    ) {
        let dtypes = [ALL_DTYPES[types.0], ALL_DTYPES[types.1]];
        // Arbitrary bytes, with runs of equal elements and zeros between them.
        let side = |dtype: DType, salt: u64| -> Vec<u8> {
            (0..count as u64)
                .flat_map(|i| {
                    let same = mix(seed ^ i).is_multiple_of(rarity);
                    let word = if same { mix(i) & 0xff } else { mix(seed ^ mix(i ^ salt)) };
                    let word = u128::from(word) | u128::from(mix(word)) << 64;
                    word.to_le_bytes().into_iter().take(dtype.size())
                })
                .collect()
        };
        if count == 0 {
            return Ok(());
        }
        let pair = [side(dtypes[0], 1 << 60), side(dtypes[1], 1 << 61)];
        let expected = golden::measure(Body::Portable, dtypes, &pair);
        for body in supported() {
            prop_assert_eq!(exact(&golden::measure(body, dtypes, &pair)), exact(&expected));
        }
        let swapped = golden::measure(Body::detected(), [dtypes[1], dtypes[0]], &[pair[1].clone(), pair[0].clone()]);
        prop_assert_eq!(swapped.max_abs_index, expected.max_abs_index);
        prop_assert_eq!(swapped.different, expected.different);
        prop_assert_eq!(swapped.max_ulp, expected.max_ulp);
        prop_assert_eq!(swapped.cosine, expected.cosine);
    }

    #[test]
    fn counts_and_the_largest_error_are_those_of_a_plain_loop(
        values in prop::collection::vec((prop::num::f32::ANY, prop::num::f32::ANY, any::<bool>()), 1..300),
    ) {
        let pair: Vec<(f32, f32)> =
            values.iter().map(|&(b, c, same)| if same { (b, b) } else { (b, c) }).collect();
        let b = bytes(&pair, |(b, _)| b.to_le_bytes());
        let c = bytes(&pair, |(_, c)| c.to_le_bytes());
        let wide: Vec<(f64, f64)> = pair.iter().map(|&(b, c)| (b.into(), c.into())).collect();
        let found = measure(DType::F32, &b, &c);
        let largest = found.max_abs_err.zip(found.max_abs_index);
        prop_assert_eq!((found.both_finite, found.different, found.zero_baseline, largest), oracle(&wide));
    }

    #[test]
    fn integers_of_any_two_types_are_told_apart_exactly(
        values in prop::collection::vec((any::<i64>(), any::<u64>(), 0_u8..3), 1..60),
    ) {
        let values: Vec<(i64, u64)> = values
            .iter()
            .map(|&(b, c, kind)| match kind {
                0 => (b, c),
                1 => (b, b.unsigned_abs()),
                _ => (b.saturating_abs(), b.saturating_abs().unsigned_abs() + 1),
            })
            .collect();
        let [b, c] = [bytes(&values, |v| v.0.to_le_bytes()), bytes(&values, |v| v.1.to_le_bytes())];
        let found = golden::measure(Body::detected(), [DType::I64, DType::U64], &[b, c]);
        let errors: Vec<u128> =
            values.iter().map(|&(b, c)| i128::from(b).abs_diff(i128::from(c))).collect();
        let largest = errors.iter().copied().max().unwrap();
        prop_assert_eq!(found.different, errors.iter().filter(|&&error| error != 0).count() as u64);
        prop_assert_eq!(found.max_abs_err, Some(largest as f64));
        prop_assert_eq!(found.max_abs_index, errors.iter().position(|&e| e == largest).map(|i| i as u64));
    }
}
