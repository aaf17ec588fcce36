//! Layouts of pieces cut from known values.

#![expect(clippy::single_range_in_vec_init, reason = "a cut of several ranges may have one")]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use probe_dump::{
    Checksum, Content, DType, Op, OpName, PartKey, Rank, RankId, ReadError, RecordedDType, Slot, SlotSide,
    Task, TensorData, TensorRecord, TensorStore, Value,
};
use probe_measure as measure;

use super::{Among, Declared, Folded, Holding, Mesh, Remark, fold};

mod calls;
mod damage;
mod documents;
mod means;
mod parts;
mod spread;
mod tied;

/// Tensors of binary32 by key.
#[derive(Default)]
struct Memory(HashMap<String, (Vec<usize>, Vec<f32>)>);

impl TensorStore for Memory {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let (shape, values) = self.0.get(key).ok_or_else(|| ReadError::format(key, "cut short"))?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let count = bytes.len();
        TensorData::contiguous(Arc::new(bytes), 0..count, DType::F32, shape.clone().into())
            .map_err(|error| ReadError::format(key, error.to_string()))
    }
}

type Matrix = (Vec<usize>, Vec<f32>);

/// Returns a matrix of values without pattern.
fn matrix(rows: usize, columns: usize, seed: u64) -> Matrix {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    (vec![rows, columns], (0..rows * columns).map(|_| next()).collect())
}

/// Returns these rows and columns of a matrix.
fn cut((shape, values): &Matrix, rows: &[Range<usize>], columns: Range<usize>) -> Matrix {
    let kept: Vec<f32> = rows
        .iter()
        .cloned()
        .flatten()
        .flat_map(|row| values[row * shape[1] + columns.start..row * shape[1] + columns.end].to_vec())
        .collect();
    (vec![kept.len() / columns.len(), columns.len()], kept)
}

/// Returns a rank whose op `n` has the matrix `n` for its result, with data or with statistics alone.
fn rank(number: u32, values: &[Matrix], with_data: bool) -> Rank {
    let mut store = Memory::default();
    let ops = values.iter().enumerate().map(|(place, matrix)| {
        let key = format!("t{place}");
        store.0.insert(key.clone(), matrix.clone());
        let data = store.load(&key).unwrap();
        let seen = measure::observe(data.view(), Content::HASH);
        let shape: Vec<u64> = matrix.0.iter().map(|&size| size as u64).collect();
        let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), shape.into());
        (record.statistics, record.counts) = (seen.statistics.into(), Some(seen.counts.into()));
        record.checksum = seen.hash.map(Checksum::of_hash);
        record.data = with_data.then(|| (&*key).into());
        let mut op = Op::new(OpName::parse(&format!("Functional.f.{place}.forward")));
        op.slots.push(Slot::new("output.0", SlotSide::Output, Value::Tensor(record.into())));
        op
    });
    let ops = ops.collect();
    Rank {
        framework: probe_dump::Framework::default(),
        key: PartKey { step: 0, rank: RankId::Rank(number), label: "".into() },
        task: Task::Tensor,
        level: "mix".into(),
        ops,
        stacks: Vec::new(),
        store: Arc::new(store),
        faults: Vec::new(),
        notes: Vec::new(),
        cut: false,
    }
}

/// Folds ranks without declared layouts.
fn all(ranks: Vec<Rank>, other: &Rank) -> Folded {
    fold(ranks, other, &Declared::default()).unwrap()
}

/// Folds ranks that hold `pieces` of one value each, and returns its elements.
fn folded(whole: &Matrix, pieces: Vec<Matrix>) -> (Vec<f32>, Option<Remark>) {
    let ranks = (0..).zip(pieces).map(|(number, piece)| rank(number, &[piece], true)).collect();
    let Folded { rank, mut remarks, .. } = all(ranks, &self::rank(0, std::slice::from_ref(whole), true));
    let record = rank.ops[0].slots[0].value.tensor().unwrap();
    assert_eq!(*record.shape, [whole.0[0] as u64, whole.0[1] as u64]);
    let data = rank.store.load(record.data.as_deref().unwrap()).unwrap();
    let bytes = data.view().to_bytes();
    let values = bytes.as_chunks::<4>().0.iter().map(|&element| f32::from_le_bytes(element)).collect();
    (values, remarks.remove(&(0, 0)))
}

#[test]
fn shards_of_any_cut_make_the_whole() {
    let whole = matrix(12, 10, 1);
    let all = 0..10;
    let cuts: Vec<Vec<Matrix>> = vec![
        vec![cut(&whole, &[0..6], all.clone()), cut(&whole, &[6..12], all.clone())],
        vec![cut(&whole, &[0..12], 0..5), cut(&whole, &[0..12], 5..10)],
        // Zigzag, as context parallelism splits a sequence.
        vec![cut(&whole, &[0..3, 9..12], all.clone()), cut(&whole, &[3..6, 6..9], all.clone())],
        // Uneven.
        vec![
            cut(&whole, &[0..5], all.clone()),
            cut(&whole, &[5..10], all.clone()),
            cut(&whole, &[10..12], all),
        ],
        // Two dimensions, of which the first varies fastest.
        vec![
            cut(&whole, &[0..6], 0..5),
            cut(&whole, &[6..12], 0..5),
            cut(&whole, &[0..6], 5..10),
            cut(&whole, &[6..12], 5..10),
        ],
    ];
    for pieces in cuts {
        let (values, remark) = folded(&whole, pieces);
        assert_eq!(values, whole.1);
        assert!(matches!(remark, Some(Remark::Sharded(_))), "{remark:?}");
    }
}

#[test]
fn padding_behind_the_last_shard_is_left_out() {
    let (whole, padded) = (matrix(10, 4, 2), matrix(2, 4, 9));
    let mut last = cut(&whole, &[6..10], 0..4);
    (last.0[0], last.1) = (6, [last.1, padded.1].concat());
    assert_eq!(folded(&whole, vec![cut(&whole, &[0..6], 0..4), last]).0, whole.1);
}

#[test]
fn terms_of_a_sum_are_told_from_replicas_that_differ() {
    let (whole, mut first) = (matrix(8, 8, 3), matrix(8, 8, 4));
    let mut rest = whole.clone();
    rest.1.iter_mut().zip(&first.1).for_each(|(rest, first)| *rest -= first);
    let (values, remark) = folded(&whole, vec![first.clone(), rest]);
    assert!(values.iter().zip(&whole.1).all(|(made, value)| (made - value).abs() < 1e-6));
    assert_eq!(remark, Some(Remark::Partial(vec![0, 1], Among::Sum(1))));
    first.1.copy_from_slice(&whole.1);
    first.1[3] += 0.5;
    let (values, remark) = folded(&whole, vec![whole.clone(), first.clone(), whole.clone()]);
    assert_eq!((values, remark), (first.1, Some(Remark::Odd(vec![1]))));
}

#[test]
fn shards_in_another_order_than_elsewhere_differ() {
    let wholes: Vec<Matrix> = (0..6).map(|seed| matrix(8, 8, seed + 20)).collect();
    let half = |place: usize, second: bool| {
        let second = second != (place == 5);
        cut(&wholes[place], &[if second { 4..8 } else { 0..4 }], 0..8)
    };
    let side = |second: bool| (0..6).map(|place| half(place, second)).collect::<Vec<_>>();
    let folded = all(vec![rank(0, &side(false), true), rank(1, &side(true), true)], &rank(0, &wholes, true));
    assert_eq!(folded.remarks[&(5, 0)], Remark::Order(vec![(0, 1, 0), (1, 0, 1)]));
    assert!(matches!(folded.remarks[&(0, 0)], Remark::Sharded(_)));
}

#[test]
fn shards_of_a_transposed_value_are_in_the_order_of_the_others() {
    // Six values are cut over two dimensions by four ranks; of one, the dimensions are exchanged.
    let wholes: Vec<Matrix> = (0..6).map(|seed| matrix(8, 8, seed + 80)).collect();
    let range = |half: usize| half * 4..(half + 1) * 4;
    let ranks: Vec<Rank> = (0..4)
        .map(|number| {
            let (outer, inner) = (number as usize / 2, number as usize % 2);
            let part = |place: usize| match place {
                5 => cut(&wholes[5], &[range(inner)], range(outer)),
                _ => cut(&wholes[place], &[range(outer)], range(inner)),
            };
            rank(number, &(0..6).map(part).collect::<Vec<_>>(), true)
        })
        .collect();
    let folded = all(ranks, &rank(0, &wholes, true));
    assert!(matches!(folded.remarks[&(5, 0)], Remark::Sharded(_)), "{:?}", folded.remarks[&(5, 0)]);
    let made = |rank: &Rank| rank.ops[5].slots[0].value.tensor().unwrap().checksum.clone();
    assert_eq!(made(&folded.rank), made(&rank(0, &wholes, true)));
}

#[test]
fn statistics_of_shards_are_those_of_the_whole() {
    let whole = matrix(12, 10, 5);
    let pieces = [cut(&whole, &[0..6], 0..10), cut(&whole, &[6..12], 0..10)];
    let ranks = (0..).zip(pieces).map(|(number, piece)| rank(number, &[piece], false)).collect();
    let other = rank(0, &[whole], false);
    let made = all(ranks, &other).rank;
    let (made, due) = [&made, &other].map(|rank| rank.ops[0].slots[0].value.tensor().unwrap().clone()).into();
    let (a, b) = (made.statistics.get(), due.statistics.get());
    assert_eq!((a.max, a.min, &made.counts), (b.max, b.min, &due.counts));
    assert!(
        (a.mean.unwrap() - b.mean.unwrap()).abs() < 1e-12
            && (a.norm.unwrap() - b.norm.unwrap()).abs() < 1e-12
    );
}

/// Returns a rank that called a module for each path, with a weight of its own, and a function in each.
pub(crate) fn stage(number: u32, layers: &[(&str, u64)]) -> Rank {
    let weights: Vec<Matrix> = layers.iter().map(|(_, seed)| matrix(4, 4, *seed)).collect();
    let mut made = rank(number, &weights, true);
    let called = std::mem::take(&mut made.ops).into_iter().zip(layers).enumerate();
    made.ops = called
        .flat_map(|(place, (held, (path, _)))| {
            let value = &held.slots[0].value;
            let mut module = Op::new(OpName::parse(&format!("Module.{path}.Linear.forward.0")));
            module.slots.push(Slot::new("parameter.weight", SlotSide::Parameter, value.clone()));
            let mut call = Op::new(OpName::parse(&format!("Functional.linear.{place}.forward")));
            call.parent = Some(module.name.as_str().into());
            call.slots.push(Slot::new("output.0", SlotSide::Output, value.clone()));
            [call, module]
        })
        .collect();
    made
}

pub(crate) fn names(rank: &Rank) -> Vec<&str> {
    rank.ops.iter().map(|op| op.name.as_str()).collect()
}

#[test]
fn stages_bear_the_numbers_of_the_whole_model() {
    let whole =
        [("embed", 9), ("layers.0", 1), ("layers.1", 2), ("layers.2", 3), ("layers.3", 4), ("head", 8)];
    let other = stage(0, &whole);
    let first = [("embed", 9), ("layers.0", 1), ("layers.1", 2)];
    let last = [("layers.0", 3), ("layers.1", 4), ("head", 8)];
    let folded = all(vec![stage(0, &first), stage(1, &last)], &other);
    assert_eq!(names(&folded.rank), names(&other));
    assert_eq!(folded.misplaced, []);
    // Interleaved: each rank has two chunks of the model.
    let chunks = |rank: u64| [("0.layers.0", rank + 1), ("1.layers.0", rank + 3)];
    let other = stage(0, &whole[1..5]);
    let folded = all(vec![stage(0, &chunks(0)), stage(1, &chunks(1))], &other);
    assert_eq!(names(&folded.rank), names(&other));
}

#[test]
fn a_stage_with_other_layers_is_told() {
    let other = stage(0, &[("layers.0", 1), ("layers.1", 2), ("layers.2", 3), ("layers.3", 4)]);
    let part =
        |number: u32, seeds: [u64; 2]| stage(number, &[("layers.0", seeds[0]), ("layers.1", seeds[1])]);
    let folded = all(vec![part(0, [1, 2]), part(1, [1, 2])], &other);
    assert_eq!(names(&folded.rank), names(&other));
    let [found] = &*folded.misplaced else { panic!("{:?}", folded.misplaced) };
    assert_eq!(
        (found.part, &*found.ranks, &*found.held, &*found.due),
        (1, &[1][..], &[0, 1][..], &[2, 3][..])
    );
}

#[test]
fn shards_of_joined_dimensions_and_rows_in_turn_make_the_whole() {
    let whole = matrix(24, 6, 30);
    // Two sequences of twelve, each split between two ranks: contiguous and zigzag; then in turn; then in any order.
    let cuts: [[Vec<usize>; 2]; 4] = [
        [[0..6, 12..18].into_iter().flatten().collect(), [6..12, 18..24].into_iter().flatten().collect()],
        [
            [0..3, 9..12, 12..15, 21..24].into_iter().flatten().collect(),
            [3..6, 6..9, 15..18, 18..21].into_iter().flatten().collect(),
        ],
        [(0..24).step_by(2).collect(), (1..24).step_by(2).collect()],
        [vec![5, 1, 23, 7, 9, 0, 2, 14], vec![3, 4, 6, 8, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 21, 22]],
    ];
    let in_rows = |rows: [Vec<usize>; 2]| {
        rows.map(|rows| cut(&whole, &rows.iter().map(|&row| row..row + 1).collect::<Vec<_>>(), 0..6))
    };
    for rows in cuts.clone() {
        assert_eq!(folded(&whole, in_rows(rows).into()).0, whole.1);
    }
    // Gradients of each rank's own term of a mean.
    let twice = |values: &[f32]| -> Vec<f32> { values.iter().map(|value| 2.0 * value).collect() };
    let [.., routed] = cuts;
    let pieces = in_rows(routed).map(|(shape, values)| (shape, twice(&values)));
    assert_eq!(folded(&whole, pieces.into()).0, twice(&whole.1));
}

#[test]
fn contiguous_shards_among_zigzag_ones_are_told() {
    let wholes: Vec<Matrix> = (0..6).map(|seed| matrix(8, 8, seed + 40)).collect();
    let part = |second: bool| {
        let one = |place: usize| match (place, second) {
            (5, false) => cut(&wholes[5], &[0..4], 0..8),
            (5, true) => cut(&wholes[5], &[4..8], 0..8),
            (_, false) => cut(&wholes[place], &[0..2, 6..8], 0..8),
            (_, true) => cut(&wholes[place], &[2..6], 0..8),
        };
        (0..6).map(one).collect::<Vec<_>>()
    };
    let folded = all(vec![rank(0, &part(false), true), rank(1, &part(true), true)], &rank(0, &wholes, true));
    assert_eq!(folded.remarks[&(5, 0)], Remark::Cut(false));
    assert!(matches!(folded.remarks[&(0, 0)], Remark::Sharded(_)));
}

#[test]
fn declared_layouts_decide_unless_the_values_contradict() {
    // Rows that are all alike leave the order open.
    let whole: Matrix = (vec![8, 2], [1.0, 2.0].repeat(8));
    let pieces = [cut(&whole, &[0..4], 0..2), cut(&whole, &[4..8], 0..2)];
    let other = rank(0, std::slice::from_ref(&whole), true);
    let folded = |dims: &str, pieces: &[Matrix; 2], other: &Rank| {
        let mut declared = Declared::default();
        declared.add("Functional.f.*", None, dims, Mesh::parse("cp=2").unwrap())?;
        let ranks = (0..).zip(pieces).map(|(number, piece)| rank(number, std::slice::from_ref(piece), true));
        fold(ranks.collect(), other, &declared)
    };
    let made = folded("s[cp:zigzag] h", &pieces, &other).unwrap();
    let Some(Remark::Sharded(shards)) = made.remarks.get(&(0, 0)) else { panic!("{:?}", made.remarks) };
    assert_eq!(shards[0].1.dimensions()[0].to_vec(), [0..2, 6..8]);
    let told = matrix(8, 2, 50);
    let pieces = [cut(&told, &[0..2, 6..8], 0..2), cut(&told, &[2..6], 0..2)];
    let other = rank(0, &[told], true);
    assert!(folded("s[cp:zigzag] h", &pieces, &other).is_ok());
    for (dims, part) in
        [("s[cp] h", "another layout"), ("s h[cp]", "should hold [8, 1]"), ("s", "1 dimensions")]
    {
        let message = folded(dims, &pieces, &other).unwrap_err();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn whole_numbers_add_up_exactly() {
    let large = (1_i64 << 53) + 1;
    let piece = |numbers: [i64; 2]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        TensorData::contiguous(Arc::new(bytes), 0..16, DType::I64, vec![2].into()).unwrap()
    };
    let layout = super::Layout::same(&[2], 2, super::Among::Sum(1));
    let sum = super::pieces::view(&layout, vec![piece([large, -3]), piece([1, 1])]).unwrap();
    let bytes = sum.view().to_bytes();
    let numbers: Vec<i64> =
        bytes.as_chunks::<8>().0.iter().map(|&number| i64::from_le_bytes(number)).collect();
    assert_eq!(numbers, [large + 1, -2]);
}

#[test]
fn one_piece_of_a_mean_is_divided() {
    let value = matrix(4, 4, 7);
    let layout = super::Layout::same(&[4, 4], 1, super::Among::Sum(2));
    assert!(!layout.is_one_piece());
    let held = rank(0, std::slice::from_ref(&value), true);
    let record = held.ops[0].slots[0].value.tensor().unwrap();
    let halved = super::record::fold(&layout, &[record]);
    assert_eq!(halved.statistics.norm(), record.statistics.norm().map(|norm| norm / 2.0));
}

#[test]
fn values_that_no_layout_explains_are_said_to_be_apart() {
    let (whole, other) = (matrix(6, 4, 3), matrix(6, 4, 4));
    let ranks = vec![rank(0, std::slice::from_ref(&other), true), rank(1, &[matrix(6, 4, 5)], true)];
    assert!(all(ranks, &rank(0, std::slice::from_ref(&whole), true)).apart.contains(&(0, 0)));
    let ranks =
        vec![rank(0, std::slice::from_ref(&whole), true), rank(1, std::slice::from_ref(&whole), true)];
    assert!(all(ranks, &rank(0, &[whole], true)).apart.is_empty());
}

/// Returns a rank that calls a function with each of these numbers, in one module.
fn calling(number: u32, numbers: &[i64], value: &Matrix) -> Rank {
    let mut held = rank(number, &vec![value.clone(); numbers.len()], true);
    for (op, &argument) in held.ops.iter_mut().zip(numbers) {
        op.parent = Some("Module.experts.Experts.forward.0".into());
        let argument = Value::Scalar(probe_dump::Scalar::Number(probe_dump::Number::Int(argument)));
        op.slots.insert(0, Slot::new("input.0", SlotSide::Input, argument));
    }
    held
}

#[test]
fn memory_that_nothing_was_written_to_has_any_content_and_the_size_of_a_shard() {
    let call = |number: u32, size: u32, seed: u64| {
        let mut held = calling(number, &[size.into()], &matrix(1, size as usize, seed));
        held.ops[0].name = OpName::parse("Torch.empty.0.forward");
        held.ops[0].slots[1].identity = probe_dump::SeenAs::new(1);
        // A view of it.
        let value = held.ops[0].slots[1].value.clone();
        let mut view = Op::new(OpName::parse("Tensor.view.0.forward"));
        view.slots.push(Slot::new("input.0", SlotSide::Input, value.clone()));
        view.slots[0].identity = probe_dump::SeenAs::new(1);
        view.slots.push(Slot::new("input.1", SlotSide::Input, held.ops[0].slots[0].value.clone()));
        view.slots.push(Slot::new("output.0", SlotSide::Output, value));
        held.ops.push(view);
        held
    };
    let folded = all(vec![call(0, 4, 7), call(1, 4, 7)], &call(0, 8, 8));
    assert!(folded.remarks.is_empty() && folded.apart.is_empty());
    let held: Vec<Value> = folded.rank.ops[0].slots.iter().map(|slot| slot.value.clone()).collect();
    let eight = Value::Scalar(probe_dump::Scalar::Number(probe_dump::Number::Int(8)));
    assert_eq!(held, [eight.clone(), Value::Unsupported]);
    let held: Vec<Value> = folded.rank.ops[1].slots.iter().map(|slot| slot.value.clone()).collect();
    assert_eq!(held, [Value::Unsupported, eight, Value::Unsupported]);
}

#[test]
fn calls_of_some_experts_pair_with_those_of_the_same_arguments() {
    let value = matrix(4, 4, 9);
    let mut ranks = vec![calling(0, &[0, 1], &value), calling(1, &[2, 3], &value)];
    let whole = calling(0, &[0, 1, 2, 3], &value);
    super::calls::under_others_names(&mut ranks, &whole, false);
    let names: Vec<&str> = ranks[1].ops.iter().map(|op| op.name.as_str()).collect();
    assert_eq!(names, ["Functional.f.2.forward", "Functional.f.3.forward"]);
}

#[test]
fn maxima_of_parts_make_the_maximum_of_all() {
    let (first, second) = (matrix(8, 8, 70), matrix(8, 8, 71));
    let of = |pick: fn(f32, f32) -> f32| {
        let values = first.1.iter().zip(&second.1).map(|(a, b)| pick(*a, *b)).collect();
        (vec![8, 8], values)
    };
    for (whole, among) in [(of(f32::max), Among::Max), (of(f32::min), Among::Min)] {
        let (values, remark) = folded(&whole, vec![first.clone(), second.clone()]);
        assert_eq!((values, remark), (whole.1, Some(Remark::Partial(vec![0, 1], among))));
    }
    // A sum whose terms do not overlap, which are positive, stays a sum.
    let mut terms = [first.clone(), first.clone()];
    let whole: Matrix = (first.0.clone(), first.1.iter().map(|value| value.abs()).collect());
    for (place, value) in whole.1.iter().enumerate() {
        terms[place % 2].1[place] = *value;
        terms[1 - place % 2].1[place] = 0.0;
    }
    let (values, remark) = folded(&whole, terms.into());
    assert_eq!((values, remark), (whole.1, Some(Remark::Partial(vec![0, 1], Among::Sum(1)))));
    // A replica whose elements are all smaller is one that differs.
    let mut low = whole_of(&first);
    low.1.iter_mut().for_each(|value| *value *= 0.5);
    let (_, remark) = folded(&whole_of(&first), vec![whole_of(&first), low]);
    assert_eq!(remark, Some(Remark::Odd(vec![1])));
}

/// Returns the magnitudes of a matrix.
fn whole_of(matrix: &Matrix) -> Matrix {
    (matrix.0.clone(), matrix.1.iter().map(|value| value.abs()).collect())
}

#[test]
fn statistics_of_maxima_are_their_largest() {
    let [first, second] = [72, 73].map(|seed| rank(0, &[matrix(8, 8, seed)], true));
    let records = [&first, &second].map(|held| held.ops[0].slots[0].value.tensor().unwrap());
    let layout = super::Layout::same(&[8, 8], 2, Among::Max);
    let folded = super::record::fold(&layout, &[records[0], records[1]]);
    let largest =
        records.map(|record| record.statistics.max().unwrap().as_f64()).into_iter().fold(0.0, f64::max);
    assert_eq!(folded.statistics.max().map(probe_dump::Number::as_f64), Some(largest));
    assert_eq!((folded.statistics.min(), folded.statistics.norm()), (None, None));
}

#[test]
fn what_each_rank_holds_is_told() {
    let whole = matrix(8, 8, 74);
    let pieces = |held: Vec<Matrix>| {
        let ranks = (0..).zip(held).map(|(number, piece)| rank(number, &[piece], true)).collect();
        let folded = all(ranks, &rank(0, std::slice::from_ref(&whole), true));
        let spread = &folded.spread[&(0, 0)];
        spread.pieces.iter().map(|piece| (piece.ranks.clone(), piece.holding)).collect::<Vec<_>>()
    };
    assert_eq!(pieces(vec![whole.clone(), whole.clone()]), [(vec![0, 1], Holding::Part)]);
    let half = |rows: Range<usize>| cut(&whole, &[rows], 0..8);
    let shards = vec![half(0..4), half(0..4), half(4..8), half(4..8)];
    assert_eq!(pieces(shards), [(vec![0, 1], Holding::Part), (vec![2, 3], Holding::Part)]);
    let other = matrix(8, 8, 75);
    let mut rest = whole.clone();
    rest.1.iter_mut().zip(&other.1).for_each(|(rest, other)| *rest -= other);
    let terms = vec![other.clone(), rest.clone(), other.clone(), rest];
    let term = Holding::Term(Among::Sum(1));
    assert_eq!(pieces(terms), [(vec![0, 2], term), (vec![1, 3], term)]);
    let mut odd = whole.clone();
    odd.1[5] += 0.5;
    let replicas = vec![whole.clone(), odd, whole.clone()];
    assert_eq!(pieces(replicas), [(vec![0, 2], Holding::Part), (vec![1], Holding::Odd)]);
    let strangers = vec![other, matrix(8, 8, 76)];
    let open = Holding::Unexplained;
    assert_eq!(pieces(strangers), [(vec![0], open), (vec![1], open)]);
}
