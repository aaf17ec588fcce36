//! Guarantees for capture: the same bits on every body, for every layout, with every content.

use crate::golden::tensors;
use crate::simd::Body;
use crate::sums::{BLOCK, CHUNK, SEGMENT};
use crate::{Crew, SENTINEL, sketch_distance, summarize};
use probe_dump::{ALL_DTYPES, Content, DType, Number, Observation, TensorRef};

use super::{observe, observe_on, observe_with};

fn flat(dtype: DType, bytes: &[u8], content: Content) -> Observation {
    flat_on(Body::detected(), dtype, bytes, content)
}

fn flat_on(body: Body, dtype: DType, bytes: &[u8], content: Content) -> Observation {
    let shape = [bytes.len() / dtype.size()];
    observe_on(body, TensorRef::strided(bytes, dtype, &shape, &[1], 0).unwrap(), content)
}

fn supported() -> impl Iterator<Item = Body> {
    Body::ALL.into_iter().filter(|body| body.is_supported())
}

/// Formats all digits and signs, which `==` on floats would ignore.
fn exact(found: &Observation) -> String {
    let lanes = found.sketch.as_ref().map(|sketch| sketch.lanes.map(f32::to_bits));
    format!("{:?} {:?} {:?} {lanes:?} {:?}", found.statistics, found.places, found.counts, found.hash)
}

#[test]
fn every_body_gives_the_same_bits() {
    for dtype in ALL_DTYPES {
        for mode in ["near", "zeros", "special", "wild"] {
            for count in [1, 7, 255, 256, 257, 1000, BLOCK, 3 * BLOCK + 301] {
                let [bytes, _] = tensors([dtype, dtype], mode, 9, count);
                let expected = exact(&flat_on(Body::Portable, dtype, &bytes, Content::SKETCH));
                for body in supported() {
                    let found = exact(&flat_on(body, dtype, &bytes, Content::SKETCH));
                    assert_eq!(found, expected, "{dtype} {mode} {count} {body:?}");
                }
            }
        }
    }
}

#[test]
fn an_element_that_is_not_finite_is_left_out_wherever_it_stands() {
    for dtype in [DType::F32, DType::Bf16, DType::F16, DType::F64] {
        for count in [5 * BLOCK, SEGMENT + 3 * BLOCK + 48] {
            let [bytes, _] = tensors([dtype, dtype], "near", 12, count);
            for place in [0, 3 * BLOCK + 77, count - 1] {
                let with = |pattern: &[u8]| {
                    let mut bytes = bytes.clone();
                    bytes[place * dtype.size()..][..dtype.size()].copy_from_slice(pattern);
                    bytes
                };
                let infinity: &[u8] = match dtype {
                    DType::F32 => &f32::INFINITY.to_le_bytes(),
                    DType::Bf16 => &half::bf16::INFINITY.to_le_bytes(),
                    DType::F16 => &half::f16::INFINITY.to_le_bytes(),
                    _ => &f64::INFINITY.to_le_bytes(),
                };
                for body in supported() {
                    let found = flat_on(body, dtype, &with(infinity), Content::SKETCH);
                    let zero = flat_on(body, dtype, &with(&[0; 8][..dtype.size()]), Content::SKETCH);
                    assert_eq!(found.sketch, zero.sketch, "{dtype} {count} {place} {body:?}");
                    assert_eq!(found.counts.positive_infinite, 1, "{dtype} {count} {place} {body:?}");
                    assert_eq!(
                        found.statistics.norm, zero.statistics.norm,
                        "{dtype} {count} {place} {body:?}"
                    );
                }
            }
        }
    }
}

/// Returns the least number of a type, and the next one that is not a sentinel if the type has any.
fn least(dtype: DType) -> Option<[Vec<u8>; 2]> {
    Some(match dtype {
        DType::F64 => [f64::MIN, -(SENTINEL.next_down())].map(|value| value.to_le_bytes().to_vec()),
        DType::F32 => {
            [f32::MIN, f32::from_bits(((127 + 100) << 23) - 1)].map(|value| value.to_le_bytes().to_vec())
        }
        DType::Bf16 => [0xff7f_u16, 0xf17f].map(|bits| bits.to_le_bytes().to_vec()),
        DType::F16 => [0xfbff_u16, 0x7bfe].map(|bits| bits.to_le_bytes().to_vec()),
        _ => return None,
    })
}

#[test]
fn sentinels_are_counted_and_left_out_of_sums_wherever_they_stand() {
    for dtype in ALL_DTYPES {
        let Some([sentinel, ordinary]) = least(dtype) else { continue };
        for count in [1, 300, 5 * BLOCK, SEGMENT + 3 * BLOCK + 48] {
            let [bytes, _] = tensors([dtype, dtype], "near", 12, count);
            for places in
                [vec![0], vec![count - 1], vec![count / 2, count / 3, count - 1], vec![0, 0, count / 2]]
            {
                let with = |pattern: &[u8]| {
                    let mut bytes = bytes.clone();
                    for place in &places {
                        bytes[place * dtype.size()..][..dtype.size()].copy_from_slice(pattern);
                    }
                    bytes
                };
                let mut distinct = places.clone();
                distinct.sort_unstable();
                distinct.dedup();
                for body in supported() {
                    let what = format!("{dtype} {count} {places:?} {body:?}");
                    let found = flat_on(body, dtype, &with(&sentinel), Content::SKETCH);
                    let zero = flat_on(body, dtype, &with(&vec![0; dtype.size()]), Content::SKETCH);
                    assert_eq!(found.sketch, zero.sketch, "{what}");
                    assert_eq!(found.counts.sentinels, Some(distinct.len() as u64), "{what}");
                    assert_eq!(found.counts.zeros, zero.counts.zeros - distinct.len() as u64, "{what}");
                    let (found, zero) = (found.statistics, zero.statistics);
                    assert_eq!(found.norm, zero.norm, "{what}");
                    assert!(found.min.unwrap().as_f64() < -60000.0, "{what}");
                    // The sum is the same, over fewer elements.
                    let rest = count - distinct.len();
                    assert_eq!(found.mean.is_some(), rest > 0, "{what}");
                    let sum = zero.mean.unwrap() * count as f64;
                    let rounding = 1e-14 * zero.norm.unwrap() * (count as f64).sqrt();
                    assert!((found.mean.unwrap_or(0.0) * rest as f64 - sum).abs() <= rounding, "{what}");
                    let alone = flat_on(body, dtype, &with(&sentinel), Content::STATISTICS);
                    assert_eq!(format!("{:?}", alone.statistics), format!("{found:?}"), "{what}");
                    let ordinary = flat_on(body, dtype, &with(&ordinary), Content::SKETCH);
                    assert_eq!(ordinary.counts.sentinels, Some(0), "{what}");
                    assert!(ordinary.statistics.norm.unwrap() > 60000.0, "{what}");
                }
            }
        }
    }
}

#[test]
fn threads_that_help_find_the_same_sentinels() {
    let [mut bytes, _] = tensors([DType::F32; 2], "near", 3, 9 * SEGMENT + 5);
    for row in bytes.chunks_mut(4 * 1000) {
        for element in row.chunks_mut(4).skip(600) {
            element.copy_from_slice(&f32::MIN.to_le_bytes());
        }
    }
    let shape = [bytes.len() / 4];
    let tensor = TensorRef::strided(&bytes, DType::F32, &shape, &[1], 0).unwrap();
    let crew = Crew::new(3, || {});
    let alone = observe(tensor, Content::SKETCH);
    assert_eq!(exact(&observe_with(&crew, tensor, Content::SKETCH)), exact(&alone));
    assert!(alone.counts.sentinels.unwrap() > 200_000 && alone.statistics.norm.unwrap() < 1e6);
}

#[test]
fn statistics_are_those_of_a_summary() {
    for (dtype, mode) in ALL_DTYPES.into_iter().flat_map(|dtype| [(dtype, "near"), (dtype, "special")]) {
        let [bytes, _] = tensors([dtype, dtype], mode, 4, CHUNK + 3 * BLOCK + 17);
        let shape = [bytes.len() / dtype.size()];
        let tensor = TensorRef::strided(&bytes, dtype, &shape, &[1], 0).unwrap();
        let (found, expected) = (observe(tensor, Content::STATISTICS), summarize(tensor));
        let sentinels = mode == "special" && least(dtype).is_some();
        assert_eq!(found.counts.sentinels > Some(0), sentinels, "{dtype}");
        if !sentinels {
            assert_eq!(found.statistics.mean, expected.mean, "{dtype}");
            assert_eq!(found.statistics.norm, Some(expected.norm), "{dtype}");
        }
        assert_eq!(found.statistics.min.map(Number::as_f64), expected.min, "{dtype}");
        assert_eq!(found.statistics.max.map(Number::as_f64), expected.max, "{dtype}");
        let counts = found.counts;
        assert_eq!((counts.elements, counts.zeros), (expected.count, expected.zeros), "{dtype}");
        assert_eq!(counts.nan, expected.nan, "{dtype}");
        assert_eq!(counts.positive_infinite, expected.pos_inf, "{dtype}");
        assert_eq!(counts.negative_infinite, expected.neg_inf, "{dtype}");
        assert!(found.sketch.is_none() && found.hash.is_none());
        let whole = flat(dtype, &bytes, Content::SKETCH);
        assert_eq!(format!("{:?}", whole.statistics), format!("{:?}", found.statistics), "{dtype}");
    }
}

#[test]
fn a_scalar_is_its_own_sketch() {
    let bytes = (-3_f32).to_le_bytes();
    let scalar = TensorRef::strided(&bytes, DType::F32, &[], &[], 0).unwrap();
    let found = observe(scalar, Content::SKETCH);
    assert_eq!(found.statistics.norm, Some(3.0));
    assert_eq!(found.statistics.mean, Some(-3.0));
    let zero = flat(DType::F32, &0_f32.to_le_bytes(), Content::SKETCH);
    assert!((sketch_distance(&found.sketch.unwrap(), &zero.sketch.unwrap()) - 3.0).abs() < 1e-12);
}

#[test]
fn nothing_is_known_of_nothing() {
    let empty = flat(DType::F32, &[], Content::SKETCH);
    assert!(empty.statistics.is_empty());
    assert_eq!(empty.counts.elements, 0);
    assert!(empty.sketch.unwrap().lanes.iter().all(|&lane| lane.to_bits() == 0));
    assert_eq!(empty.hash, Some(0x99aa_06d3_0147_98d8_6001_c324_468d_497f));
    let nan = flat(DType::F32, &f32::NAN.to_le_bytes(), Content::STATISTICS);
    assert!(nan.statistics.is_empty());
    assert_eq!(nan.counts.nan, 1);
    let infinite = flat(DType::F32, &f32::NEG_INFINITY.to_le_bytes(), Content::STATISTICS);
    assert_eq!([empty.places, nan.places, infinite.places], [None; 3]);
}

#[test]
fn integers_keep_every_digit_and_truth_is_any_and_all() {
    let bytes = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let found = flat(DType::I64, &bytes(&[i64::MAX, i64::MAX - 1]), Content::STATISTICS).statistics;
    assert_eq!((found.min, found.max), (Some(Number::Int(i64::MAX - 1)), Some(Number::Int(i64::MAX))));
    let found = flat(DType::U64, &bytes(&[-1, 5]), Content::STATISTICS).statistics;
    assert_eq!((found.min, found.max), (Some(Number::Int(5)), Some(Number::UInt(u64::MAX))));
    let found = flat(DType::I8, &[255, 3], Content::STATISTICS).statistics;
    assert_eq!((found.min, found.max), (Some(Number::Int(-1)), Some(Number::Int(3))));
    let found = flat(DType::Bool, &[1, 0], Content::STATISTICS).statistics;
    assert_eq!((found.min, found.max), (Some(Number::Bool(false)), Some(Number::Bool(true))));
    assert_eq!((found.mean, found.norm), (Some(0.5), Some(1.0)));
}

#[test]
fn strides_change_no_bit_and_storage_order_little() {
    for dtype in [DType::F32, DType::Bf16, DType::U8, DType::F64, DType::C128] {
        for (shape, strides, offset) in [
            (vec![130, 77], vec![1, 130], 0),
            (vec![77, 130], vec![1, 77], 5),
            (vec![3, 64, 49], vec![64 * 49, 1, 64], 0),
            (vec![17, 5, 33], vec![1, 17, 85], 0),
            (vec![60, 50], vec![100, 2], 1),
            (vec![40, 30], vec![0, 1], 0),
            (vec![40, 30], vec![1, 0], 0),
            (vec![5, 1, 40, 7], vec![280, 9, 7, 1], 2),
            (vec![6, 300, 5], vec![1, 40, 6], 0),
            (vec![2, 5000], vec![1, 2], 0),
        ] {
            let count = 13_000;
            let [bytes, _] = tensors([dtype, dtype], "special", 6, count);
            let view = TensorRef::strided(&bytes, dtype, &shape, &strides, offset).unwrap();
            // Element by element, the slow way.
            let mut copy = Vec::new();
            for index in 0..view.len() {
                let (mut rest, mut at) = (index, offset);
                for axis in (0..shape.len()).rev() {
                    at += rest % shape[axis] * strides[axis];
                    rest /= shape[axis];
                }
                copy.extend_from_slice(&bytes[at * dtype.size()..][..dtype.size()]);
            }
            assert_eq!(view.to_bytes(), copy, "{view:?}");
            let expected = flat(dtype, &copy, Content::SKETCH);
            let found = observe(view, Content::SKETCH);
            assert_eq!(exact(&found), exact(&expected), "{view:?}");
            let found = observe(view, Content::STATISTICS);
            assert_eq!(found.counts, expected.counts);
            assert_eq!(found.statistics.min, expected.statistics.min);
            assert_eq!(found.statistics.max, expected.statistics.max);
            assert_eq!(found.places, expected.places, "{view:?}");
            let (found, expected) = (found.statistics.norm.unwrap(), expected.statistics.norm.unwrap());
            assert!(found.to_bits() == expected.to_bits() || (found - expected).abs() <= 1e-14 * expected);
        }
    }
}
