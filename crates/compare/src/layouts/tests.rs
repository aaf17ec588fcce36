//! Explanations of findings.

use probe_dump::{
    DType, Number, ReadError, RecordedDType, RecordedStatistics, Slot, TensorData, TensorRecord, TensorStore,
    Value,
};
use probe_judge::{OpJudgement, Verdict};
use probe_layout::{Cell, Holding, Piece};
use probe_pair::SlotPairs;

use std::ops::Range;

use super::mended::tests::judged;
use super::strangers::tests::part;
use super::*;

/// Values of one run, by number: sizes and elements.
pub(super) type Values = Vec<(Vec<usize>, Vec<f32>)>;

struct Stored(Values);

impl TensorStore for Stored {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let (shape, elements) = &self.0[key.parse::<usize>().unwrap()];
        let bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        let all = 0..bytes.len();
        TensorData::contiguous(Arc::new(bytes), all, DType::F32, shape.clone().into())
            .map_err(|error| ReadError::format("value", error.to_string()))
    }
}

/// A part with one op, called `name`, of slots with these values; a path that starts with `output` is a result.
pub(super) fn part_of(name: &str, paths: &[&str], [baseline, candidate]: [Values; 2]) -> PartPair {
    let mut pair = part(name, [1.0, 1.0]);
    for (rank, values) in [(&mut pair.baseline, baseline), (&mut pair.candidate, candidate)] {
        let slot = |at: usize| {
            let (path, (shape, elements)) = (paths[at], &values[at]);
            let shape: Vec<u64> = shape.iter().map(|&size| size as u64).collect();
            let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), shape.into());
            let of = |pick: fn(f32, f32) -> f32| {
                Some(Number::Float(f64::from(elements.iter().copied().reduce(pick).unwrap())))
            };
            let norm = f64::from(elements.iter().map(|element| element * element).sum::<f32>()).sqrt();
            record.statistics =
                RecordedStatistics { max: of(f32::max), min: of(f32::min), norm: Some(norm), mean: None }
                    .into();
            record.data = Some(at.to_string().as_str().into());
            let side = if path.starts_with("output") { SlotSide::Output } else { SlotSide::Input };
            Slot::new(path, side, Value::Tensor(record.into()))
        };
        rank.ops[0].name = OpName::parse(name);
        rank.ops[0].slots = (0..paths.len()).map(slot).collect();
        rank.store = Arc::new(Stored(values));
    }
    pair.ops[0].slots = SlotPairs::in_order(paths.len());
    pair
}

#[test]
fn keys_that_lie_in_the_order_of_the_ranks_were_not_put_back() {
    let rows =
        |order: &[u8]| (vec![1, order.len(), 2], order.iter().flat_map(|&at| [f32::from(at), 1.5]).collect());
    let queries = rows(&[0, 1, 2, 3, 4, 5]);
    let said = |keys: &[u8]| {
        let values = [vec![queries.clone(), queries.clone()], vec![queries.clone(), rows(keys)]];
        let pair = part_of("Functional.attention.0.forward", &["input.0", "input.1"], values);
        // Chunks of two documents, of four and of two tokens.
        let piece = |(rank, ranges): (u32, &[Range<usize>])| Piece {
            ranks: vec![rank],
            cell: Cell::whole(&[1, 6, 2]).with(1, ranges.into()),
            holding: Holding::Part,
        };
        let held: [&[Range<usize>]; 2] = [&[0..1, 3..4, 4..5], &[1..3, 5..6]];
        let pieces = (0..).zip(held).map(piece).collect();
        let spread = Arc::new(Spread { shape: [1, 6, 2].into(), pieces });
        let spread = [((0, 0), spread)].into_iter().collect();
        let layouts = Layouts { ranks: vec![0, 1], spread, ..Layouts::default() };
        layouts.disordered(&pair, 0).map(|(path, said)| (path.to_owned(), said))
    };
    let (path, words) = said(&[0, 3, 4, 1, 2, 5]).unwrap();
    assert_eq!(path, "input.1");
    assert!(
        words.ends_with("in which the ranks hold it, [0:1+3:4+4:5], [1:3+5:6]: zigzag is not undone"),
        "{words}"
    );
    assert_eq!(said(&[0, 1, 2, 3, 4, 5]), None);
    assert_eq!(said(&[5, 4, 3, 2, 1, 0]), None, "another order");
}

#[test]
fn padding_is_told_unless_the_op_that_reads_it_cuts_it_off() {
    let logits = |width: usize, rows: usize| {
        let elements = (0..rows * width).map(|at| (at % width) as f32 + 10.0 * (at / width) as f32);
        (vec![rows, width], elements.collect::<Vec<_>>())
    };
    let said = |result: [(Vec<usize>, Vec<f32>); 2], read: (Vec<usize>, Vec<f32>)| {
        let [b, c] = result;
        let values = [vec![logits(3, 4), b], vec![read, c]];
        let pair = part_of("Functional.cross_entropy.0.forward", &["input.0", "output.0"], values);
        Layouts::leaks_padding(&pair, &PartJudgement::default()).map(|finding| (finding.slot, finding.cause))
    };
    let loss = || [(vec![], vec![1.0]), (vec![], vec![1.1])];
    let leaks = Some(("input.0".to_owned(), Cause::Input));
    assert_eq!(said(loss(), logits(4, 4)), leaks);
    assert_eq!(said(loss(), logits(4, 2)), leaks, "a rank's part of the rows");
    assert_eq!(said(loss(), logits(4, 3)), None, "no part of the rows");
    let mut other = logits(4, 4);
    other.1.iter_mut().for_each(|element| *element = 7.0 - *element);
    assert_eq!(said(loss(), other), None, "its first part is another value");
    assert_eq!(said([logits(3, 4), logits(3, 4)], logits(4, 4)), None, "cut off");
}

#[test]
fn a_rank_with_other_weights_is_an_input_of_its_own_and_no_gradient() {
    let explained = |path: &str, side: SlotSide| {
        let mut pair = part("Module.down.Row.forward.0", [1.0, 2.0]);
        for rank in [&mut pair.baseline, &mut pair.candidate] {
            let slots = &mut rank.ops[0].slots;
            slots[0] = Slot::new(path, side, slots[0].value.clone());
        }
        let remarks = [((0, 0), Remark::Odd(vec![1]))].into_iter().collect();
        let layouts = Layouts { ranks: vec![0, 1], remarks, ..Layouts::default() };
        let made = pair.candidate.ops[0].slots[1].clone();
        let mut finding = partial::finding(&pair, 0, &made, Cause::Gradient);
        let slots = BySlot::default();
        let roundings = Roundings::of(&pair, &slots);
        let said = layouts.explanation(&pair, (&mut finding, true), &slots, &roundings);
        assert_eq!(said.map(Said::into_words).as_deref(), Some("rank 1's replica differs"));
        (finding.slot, finding.cause)
    };
    assert_eq!(
        explained("parameter.weight", SlotSide::Parameter),
        ("parameter.weight".to_owned(), Cause::Input)
    );
    assert_eq!(explained("input.0", SlotSide::Input), ("input.0".to_owned(), Cause::Gradient));
}

#[test]
fn an_update_that_shows_an_unreduced_gradient_is_a_fault_of_the_gradient() {
    let cause = |op: &str| {
        let pair = part(op, [1.0, 2.0]);
        let made = pair.candidate.ops[0].slots[1].clone();
        let mut finding = partial::finding(&pair, 0, &made, Cause::Optimizer);
        Layouts::moved(&pair, &mut finding, 0, "output.0");
        finding.cause
    };
    assert_eq!(cause("Functional.layer_norm.3.backward"), Cause::Gradient);
    assert_eq!(cause("Optimizer.SGD.step.0"), Cause::Optimizer);
}

#[test]
fn an_argument_that_differs_stays_where_it_was_given() {
    // The op behind it shows that its result is twice what it should be.
    let mut pair = part("Module.down.Row.forward.0", [1.0, 2.0]);
    let op = pair.ops.remove(0);
    let behind = OpPair { ops: Paired::Both(1, 1), ..op };
    for rank in [&mut pair.baseline, &mut pair.candidate] {
        let mut given = rank.ops[0].clone();
        given.slots.truncate(1);
        rank.ops.insert(0, given);
    }
    pair.ops = vec![OpPair { ops: Paired::Both(0, 0), slots: SlotPairs::in_order(1) }, behind];
    let layouts = Layouts { ranks: vec![0, 1], ..Layouts::default() };
    let explained = |cause: Cause| {
        let read = pair.candidate.ops[0].slots[0].clone();
        let mut finding = partial::finding(&pair, 0, &read, cause);
        let slots = BySlot::default();
        let roundings = Roundings::of(&pair, &slots);
        let said = layouts.explanation(&pair, (&mut finding, true), &slots, &roundings);
        (said.is_some(), finding.order)
    };
    assert_eq!(explained(Cause::Numerics), (true, 1));
    assert_eq!(explained(Cause::Argument), (false, 0));
}

#[test]
fn a_module_that_returns_twice_what_it_should_is_named_if_what_it_reads_agrees() {
    let layouts = Layouts { ranks: vec![0, 1], ..Layouts::default() };
    let named = |name: &str, read: f64, made: f32| {
        let pair = part(name, [1.0, made]);
        let judged = judged(&[read, f64::from(made) - 1.0], Verdict::Close);
        let mut readers = Readers::of(&pair, &judged, &layouts);
        layouts.multiplied(&pair, &judged, &mut readers).map(|finding| finding.slot)
    };
    let forward = "Module.down.Row.forward.0";
    assert_eq!(named(forward, 1e-7, 2.0).as_deref(), Some("output.0"));
    assert_eq!(named(forward, 0.5, 2.0), None, "what arrives is wrong");
    assert_eq!(named(forward, 1e-7, 1.3), None, "no multiple");
    assert_eq!(named("Module.down.Row.backward.0", 1e-7, 2.0), None, "a gradient");
    // Calls of one run alone before it, behind which nothing differs, are of the layout.
    let mut pair = part(forward, [1.0, 2.0]);
    let call = pair.candidate.ops[0].clone();
    pair.candidate.ops.push(call);
    pair.ops.insert(0, OpPair { ops: Paired::CandidateOnly(1), slots: SlotPairs::in_order(0) });
    let alone = judged(&[1e-7, 1.0], Verdict::Close);
    let mut found =
        PartJudgement { slots: [Vec::new(), alone.slots[0].to_vec()].into_iter().collect(), ..alone };
    found
        .ops
        .insert(0, OpJudgement { role: Role::Unpaired, verdict: Verdict::Missing, ..found.ops[0].clone() });
    let slot = &pair.baseline.ops[0].slots[1];
    found.findings.push(partial::finding(&pair, 0, slot, Cause::Structure));
    let mut readers = Readers::of(&pair, &found, &layouts);
    assert!(layouts.multiplied(&pair, &found, &mut readers).is_some());
}

#[test]
fn what_is_found_behind_the_first_finding_has_not_begun_in_front_of_it() {
    let pair = part("Functional.f.0.forward", [1.0, 2.0]);
    let slot = &pair.candidate.ops[0].slots[1];
    let at = |order: usize| Finding { order, ..partial::finding(&pair, 0, slot, Cause::Numerics) };
    let left = |mut moved: Vec<(usize, usize)>| {
        let mut findings = vec![at(5), at(3), at(9)];
        drop_moved_in_front(&mut findings, &mut moved);
        (findings.iter().map(|finding| finding.order).collect::<Vec<_>>(), moved)
    };
    assert_eq!(left(vec![(8, 5), (7, 3)]), (vec![5, 9], vec![(8, 5)]));
    assert_eq!(left(vec![(4, 3)]), (vec![5, 3, 9], vec![(4, 3)]), "it was found in front of it");
}

#[test]
fn a_vector_that_all_rows_are_off_by_is_told_where_no_bias_was_recorded() {
    let said = |odd: f32| {
        let baseline: Vec<f32> = (0..16).map(|at| (at as f32 * 0.7).sin()).collect();
        let mut candidate = baseline.clone();
        for (at, element) in candidate.iter_mut().enumerate() {
            *element += [0.5, -1.0, 0.25, 2.0][at % 4];
        }
        candidate[0] += odd;
        let of = |elements| vec![(vec![4, 4], elements)];
        let pair = part_of("Module.down.Linear.forward.0", &["output.0"], [of(baseline), of(candidate)]);
        let layouts = Layouts { ranks: vec![0, 1], ..Layouts::default() };
        layouts.biased(&pair, 0).map(|(_, said)| said)
    };
    assert!(said(0.0).unwrap().contains("all rows are off by one vector"));
    assert_eq!(said(9.0), None);
}
