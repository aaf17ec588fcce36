//! Tests positions against a search element by element.

use super::*;
use crate::golden::tensors;
use crate::sums::SEGMENT;
use crate::{Crew, observe, observe_with};
use probe_dump::{ALL_DTYPES, Content};

/// Returns the elements as integers in the order of their values, equal for equal elements; `None` for
/// non-finite elements.
fn ranks(dtype: DType, bytes: &[u8]) -> Vec<Option<i128>> {
    if matches!(dtype, DType::I64 | DType::U64) {
        let mut values: Vec<i128> = Vec::new();
        <i128 as crate::decode::Decode>::decode(dtype, bytes, &mut values);
        return values.into_iter().map(Some).collect();
    }
    let mut values = Vec::new();
    <[f64; 2]>::decode(dtype, bytes, &mut values);
    let rank = |[re, im]: [f64; 2]| {
        let value = if dtype.is_complex() { modulus([re, im]) } else { re };
        let bits = i128::from(value.abs().to_bits());
        (re.is_finite() && im.is_finite()).then_some(if value < 0.0 { -bits } else { bits })
    };
    values.into_iter().map(rank).collect()
}

fn expected(dtype: DType, bytes: &[u8]) -> Option<(u64, u64)> {
    let ranks: Vec<(i128, u64)> =
        ranks(dtype, bytes).into_iter().zip(0..).filter_map(|(rank, index)| Some((rank?, index))).collect();
    // Among equal elements the first, which has the least index.
    let greatest = ranks.iter().max_by_key(|(rank, index)| (*rank, std::cmp::Reverse(*index)))?;
    Some((greatest.1, ranks.iter().min()?.1))
}

fn found(tensor: TensorRef<'_>, content: Content) -> Option<(u64, u64)> {
    observe(tensor, content).places.map(|places| (places.max(), places.min()))
}

#[test]
fn they_are_the_first_in_row_major_order() {
    for dtype in ALL_DTYPES {
        for mode in ["near", "zeros", "special", "wild"] {
            for (count, seed) in [(1, 1), (7, 2), (65, 3), (1000, 4), (BLOCK, 5), (3 * BLOCK + 301, 6)] {
                let [bytes, _] = tensors([dtype; 2], mode, seed, count);
                let shape = [count];
                let tensor = TensorRef::strided(&bytes, dtype, &shape, &[1], 0).unwrap();
                for content in [Content::STATISTICS, Content::SKETCH] {
                    assert_eq!(found(tensor, content), expected(dtype, &bytes), "{dtype} {mode} {count}");
                }
            }
        }
    }
}

#[test]
fn ties_go_to_the_first_however_the_elements_lie_in_memory() {
    // In all blocks, in a few, and in one; in memory order the last comes first.
    for dtype in [DType::F32, DType::Bf16, DType::U8, DType::I64] {
        for (rows, columns) in [(128, 96), (7, 3000), (3000, 7), (257, 255)] {
            for (apart, from) in [(1, 0), (3, 0), (977, 0), (9000, 0), (2, rows * columns - 5)] {
                let of = |value: u8| match dtype {
                    DType::F32 => f32::from(value).to_le_bytes().to_vec(),
                    DType::Bf16 => bf16::from_f32(f32::from(value)).to_le_bytes().to_vec(),
                    DType::I64 => i64::from(value).to_le_bytes().to_vec(),
                    _ => vec![value],
                };
                let value =
                    |index: usize| if index >= from && (index - from).is_multiple_of(apart) { 9 } else { 5 };
                // Row-major index of each position in memory.
                let bytes: Vec<u8> = (0..rows * columns)
                    .flat_map(|place| of(value(place % rows * columns + place / rows)))
                    .collect();
                let (shape, strides) = ([rows, columns], [1, rows]);
                let view = TensorRef::strided(&bytes, dtype, &shape, &strides, 0).unwrap();
                let wanted = expected(dtype, &view.to_bytes());
                for content in [Content::STATISTICS, Content::HASH] {
                    assert_eq!(found(view, content), wanted, "{dtype} {rows} {columns} {apart} {from}");
                }
            }
        }
    }
}

#[test]
fn threads_find_the_same() {
    let crew = Crew::new(3, || {});
    for (dtype, mode) in
        [(DType::F32, "near"), (DType::Bf16, "zeros"), (DType::I8, "wild"), (DType::I64, "wild")]
    {
        let [bytes, _] = tensors([dtype; 2], mode, 8, 5 * SEGMENT + 77);
        let side = 500;
        for (shape, strides) in [([600, side], [side, 1]), ([side, 600], [1, side])] {
            let tensor = TensorRef::strided(&bytes, dtype, &shape, &strides, 3).unwrap();
            let wanted = expected(dtype, &tensor.to_bytes());
            for content in [Content::STATISTICS, Content::SKETCH] {
                assert_eq!(found(tensor, content), wanted, "{dtype}");
                let shared = observe_with(&crew, tensor, content);
                assert_eq!(shared.places, observe(tensor, content).places, "{dtype}");
            }
        }
    }
}

#[test]
fn signs_of_zero_are_no_difference() {
    let negative = |bytes: &[f32]| bytes.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let bytes = negative(&[-0.0, 0.0, -0.0]);
    let tensor = TensorRef::strided(&bytes, DType::F32, &[3], &[1], 0).unwrap();
    assert_eq!(found(tensor, Content::STATISTICS), Some((0, 0)));
    let bytes = negative(&[f32::NAN, -1.0, 0.0, -0.0, f32::NEG_INFINITY]);
    let tensor = TensorRef::strided(&bytes, DType::F32, &[5], &[1], 0).unwrap();
    assert_eq!(found(tensor, Content::STATISTICS), Some((2, 1)));
    let scalar = TensorRef::strided(&bytes, DType::F32, &[], &[], 1).unwrap();
    assert_eq!(found(scalar, Content::SKETCH), Some((0, 0)));
}

#[test]
fn two_places_take_no_more_room_than_two_numbers() {
    assert_eq!(size_of::<Option<ExtremePlaces>>(), 16);
    let places = ExtremePlaces::new(u64::MAX - 1, 0).unwrap();
    assert_eq!((places.max(), places.min()), (u64::MAX - 1, 0));
    assert!(ExtremePlaces::new(u64::MAX, 0).is_none());
}
