//! Values that no layout explains, and what is made of them.

use probe_dump::{Number, RecordedDType, RecordedStatistics};
use probe_judge::{Cause, OpJudgement, SlotJudgement};
use probe_pair::SlotPairs;

use super::super::strangers::tests::part;
use super::*;

/// A judgement of an op with an input and a result that have these errors.
pub(in super::super) fn judged(errors: &[f64; 2], verdict: Verdict) -> PartJudgement {
    let of = |(error, verdict): (&f64, Verdict)| SlotJudgement {
        verdict,
        error: Some(*error).into(),
        rule: None,
        reason: "".into(),
        follows: false,
    };
    let op = OpJudgement {
        role: Role::Propagates,
        cause: None,
        verdict,
        input_error: None.into(),
        output_error: None.into(),
        worst: None,
        reason: "".into(),
        follows: None,
    };
    let slots: Vec<_> = errors.iter().zip([Verdict::Close, verdict]).map(of).collect();
    let mut judged =
        PartJudgement { ops: vec![op], slots: [slots].into_iter().collect(), ..Default::default() };
    judged.counts.verdicts[verdict as usize] += 2;
    judged.counts.roles[Role::Propagates as usize] += 1;
    judged
}

#[test]
fn a_value_is_mended_if_all_that_is_made_of_it_agrees() {
    let layouts = Layouts::default();
    // The readers of each value, and what they make of it that differs: a view of the value itself, and a mask behind which all agrees.
    let of = HashMap::from([
        (1, vec![Some(vec![1]), Some(vec![])]),
        (2, vec![Some(vec![1])]),
        (3, vec![Some(vec![2]), None]),
        (4, vec![Some(vec![5])]),
        // Copies alone, of which a collective makes something.
        (7, vec![Some(vec![7]), Some(vec![7])]),
    ]);
    let returned = HashSet::from([4, 6]);
    let mut readers = Readers { of, returned, ..Readers::new(&layouts) };
    let mended = [1, 2, 3, 4, 5, 6, 7].map(|key| readers.mends(key));
    assert_eq!(mended, [true, true, false, false, false, true, false]);
}

#[test]
fn a_result_that_no_layout_explains_mends_nothing() {
    let layouts = Layouts::default();
    let mended = |made: Option<Value>| {
        let mut pair = part("Functional.linear.0.forward", [1.0, 1.0]);
        let slots = &mut pair.baseline.ops[0].slots;
        let mut read = slots[0].value.tensor().unwrap().clone();
        let (max, min) = (Some(Number::Float(1.0)), Some(Number::Float(0.0)));
        read.statistics = RecordedStatistics { max, min, ..RecordedStatistics::default() }.into();
        slots[0].value = Value::Tensor(read.into());
        slots[1].value = made.unwrap_or_else(|| slots[1].value.clone());
        let judged = judged(&[1.0, 0.0], Verdict::Close);
        let mut readers = Readers::of(&pair, &judged, &layouts);
        let read = pair.baseline.ops[0].slots[0].value.tensor().unwrap();
        readers.mends(value_key(read).unwrap())
    };
    assert!(mended(None));
    assert!(!mended(Some(Value::Unsupported)));
}

#[test]
fn an_order_of_a_ranks_own_that_nothing_reads_is_mended_and_one_that_is_returned_is_not() {
    let layouts = Layouts { ranks: vec![0, 1], ..Layouts::default() };
    let mended = |inside: bool, returned: bool| {
        let mut pair = part("Tensor.argsort.0.forward", [1.0, 2.0]);
        for rank in [&mut pair.baseline, &mut pair.candidate] {
            let mut record = rank.ops[0].slots[1].value.tensor().unwrap().clone();
            record.dtype = RecordedDType::Known(DType::I64);
            let (max, min) = (Some(Number::Int(7)), Some(Number::Int(0)));
            record.statistics = RecordedStatistics { max, min, ..RecordedStatistics::default() }.into();
            rank.ops[0].slots[1].value = Value::Tensor(record.into());
            rank.ops[0].parent = inside.then(|| "Module.attention.Attention.forward.0".into());
            let mut module = rank.ops[0].clone();
            module.name = OpName::parse("Module.attention.Attention.forward.0");
            module.slots.remove(0);
            rank.ops.extend(returned.then_some(module));
        }
        let of_module = OpPair { ops: Paired::Both(1, 1), slots: SlotPairs::in_order(1) };
        pair.ops.extend(returned.then_some(of_module));
        let mut judged = judged(&[0.0, 1.0], Verdict::Differs);
        let slots = [judged.slots[0].to_vec(), judged.slots[0][1..].to_vec()];
        judged.slots = slots.into_iter().take(pair.ops.len()).collect();
        judged.ops = vec![judged.ops[0].clone(); pair.ops.len()];
        Readers::of(&pair, &judged, &layouts).is_mended_slot(&pair, (0, 1))
    };
    assert!(mended(true, false));
    assert!(!mended(true, true), "a module returns it");
    assert!(!mended(false, false), "it may be what the program is for");
}

#[test]
fn all_mended_values_are_excused_with_the_first_that_is_named() {
    let mut pair = part("Tensor.index_add.0.forward", [1.0, 2.0]);
    for rank in [&mut pair.baseline, &mut pair.candidate] {
        let mut record = rank.ops[0].slots[1].value.tensor().unwrap().clone();
        let (max, min) = (Some(Number::Float(1.0)), Some(Number::Float(0.0)));
        record.statistics = RecordedStatistics { max, min, ..RecordedStatistics::default() }.into();
        rank.ops[0].slots[1].value = Value::Tensor(record.into());
        rank.ops = vec![rank.ops[0].clone(); 3];
    }
    pair.ops =
        (0..3).map(|place| OpPair { ops: Paired::Both(place, place), ..pair.ops[0].clone() }).collect();
    let layouts = Layouts { ranks: vec![0, 1], apart: HashSet::from([(0, 1), (1, 1)]), ..Layouts::default() };
    let excused = |named: bool| {
        let mut judged = judged(&[0.0, 1.0], Verdict::Differs);
        judged.slots = vec![judged.slots[0].to_vec(); 3].into_iter().collect();
        judged.ops = vec![judged.ops[0].clone(); 3];
        let slot = &pair.baseline.ops[0].slots[1];
        let finding = || super::super::partial::finding(&pair, 0, slot, Cause::Numerics);
        judged.findings.extend(named.then(finding));
        let key = value_key(slot.value.tensor().unwrap()).unwrap();
        // All that is made of it agrees.
        let of = HashMap::from([(key, vec![Some(vec![])])]);
        let mut readers = Readers { of, ..Readers::new(&layouts) };
        let mut places: Vec<_> = readers.excused(&pair, &judged).into_iter().map(|(at, _)| at).collect();
        places.sort_unstable();
        places.dedup();
        places
    };
    assert_eq!(excused(true), [(0, 1), (1, 1)], "a layout makes the third one");
    assert!(excused(false).is_empty(), "nothing is named that has to be excused");
}

#[test]
fn what_follows_from_dropped_findings_alone_is_close() {
    let settled = |follows: bool, named: bool| {
        let pair = part("Module.down.Row.forward.0", [1.0, 2.0]);
        let mut judged = judged(&[0.0, 1.0], Verdict::Differs);
        judged.slots.at_mut(0, 1).unwrap().follows = follows;
        if named {
            let slot = &pair.baseline.ops[0].slots[1];
            judged.findings.push(super::super::partial::finding(&pair, 0, slot, Cause::Numerics));
        }
        let roundings = Roundings::of(&pair, &judged.slots);
        Readers::settle_rest(&pair, &mut judged, &roundings);
        (judged.slots[0][1].verdict, judged.ops[0].role)
    };
    assert_eq!(settled(true, false), (Verdict::Differs, Role::Propagates));
    assert_eq!(settled(false, false), (Verdict::Differs, Role::Propagates));
    assert_eq!(settled(true, true), (Verdict::Differs, Role::Propagates));
}
