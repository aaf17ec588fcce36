//! Calls outside of all modules that are given what a stage has of the model.

use probe_dump::{Number, Scalar, SeenAs};

use super::*;
use crate::arguments::without_lists_of_parts;

/// Returns a rank that stacks `count` norms, takes the root of their sum, and clips by a number that was reduced.
fn clipping(number: u32, count: usize) -> Rank {
    let mut made = rank(number, &[matrix(1, count, 5), matrix(1, 1, 6), matrix(1, 1, 7)], true);
    for (place, name) in ["Torch.stack.0", "Tensor.sqrt.0", "Tensor.mul_.0"].iter().enumerate() {
        made.ops[place].name = OpName::parse(&format!("{name}.forward"));
        made.ops[place].slots[0].identity = SeenAs::new(place as u64);
    }
    let value = made.ops[1].slots[0].value.clone();
    let elements = (0..count).map(|at| Slot::new(&*format!("input.0.{at}"), SlotSide::Input, value.clone()));
    made.ops[0].slots.splice(0..0, elements);
    for (place, read) in [(1, 0), (2, 9)] {
        let mut slot = Slot::new("input.0", SlotSide::Input, value.clone());
        slot.identity = SeenAs::new(read);
        made.ops[place].slots.insert(0, slot);
    }
    made
}

#[test]
fn lists_of_a_stage_and_what_is_made_of_them_are_not_compared() {
    let whole = clipping(0, 5);
    let mut ranks = vec![clipping(0, 3), clipping(1, 2)];
    without_lists_of_parts(&mut ranks, &whole);
    assert!(ranks.iter().all(|rank| names(rank) == ["Tensor.mul_.0.forward"]));
    let mut same = vec![clipping(0, 5)];
    without_lists_of_parts(&mut same, &whole);
    assert_eq!(names(&same[0]), names(&whole));
}

/// Returns a rank that cuts a matrix into parts.
fn cutting(number: u32, whole: &Matrix, parts: usize) -> Rank {
    let width = whole.0[1] / parts;
    let mut held = vec![whole.clone()];
    held.extend((0..parts).map(|part| cut(whole, &[0..whole.0[0]], part * width..(part + 1) * width)));
    let mut rank = rank(number, &held, true);
    let values: Vec<Value> = rank.ops.iter().map(|op| op.slots[0].value.clone()).collect();
    let mut op = Op::new(OpName::parse("Tensor.chunk.0.forward"));
    op.slots.push(Slot::new("input.0", SlotSide::Input, values[0].clone()));
    let count = Scalar::Number(Number::Int(i64::try_from(parts).unwrap()));
    op.slots.push(Slot::new("input.1", SlotSide::Input, Value::Scalar(count)));
    for (place, part) in values[1..].iter().enumerate() {
        op.slots.push(Slot::new(format!("output.{place}"), SlotSide::Output, part.clone()));
    }
    rank.ops = vec![op];
    rank
}

#[test]
fn a_number_of_parts_that_is_that_of_the_ranks_is_no_argument() {
    let whole = matrix(4, 12, 71);
    let folded_by = |ranks: u32, parts: usize| {
        let spread = (0..ranks).map(|number| cutting(number, &whole, parts)).collect();
        all(spread, &cutting(0, &whole, 1)).rank.ops.remove(0)
    };
    let paths = |op: &Op| op.slots.iter().map(|slot| slot.path.to_string()).collect::<Vec<_>>();
    for (ranks, parts) in [(2, 2), (4, 2), (4, 4)] {
        let op = folded_by(ranks, parts);
        assert_eq!(paths(&op), ["input.0", "input.1", "output.0"]);
        assert!(op.slots[0].value.tensor().is_some(), "{op:?}");
        assert_eq!(
            op.slots[1..].iter().map(|slot| &slot.value).collect::<Vec<_>>(),
            [&Value::Unsupported; 2]
        );
    }
    // A rank has the tokens of its own experts, or each rank's tokens of all experts.
    for (own, their) in [(2, 4), (4, 2)] {
        let spread = (0..2).map(|number| cutting(number, &whole, own)).collect();
        let op = all(spread, &cutting(0, &whole, their)).rank.ops.remove(0);
        assert!(op.slots[1..].iter().all(|slot| slot.value == Value::Unsupported), "{op:?}");
    }
    // Three parts on two ranks are no layout: the program differs.
    let op = folded_by(2, 3);
    assert_eq!(paths(&op).len(), 5);
    assert_eq!(op.slots[1].value, Value::Scalar(Scalar::Number(Number::Int(3))));
}

#[test]
fn shards_of_an_empty_value_make_an_empty_value() {
    let empty = |rows: usize| -> Matrix { (vec![rows, 0], Vec::new()) };
    let ranks = (0..2).map(|number| rank(number, &[empty(4)], true)).collect();
    let folded = all(ranks, &rank(0, &[empty(8)], true));
    assert!(folded.remarks.is_empty() && folded.apart.is_empty());
    assert_eq!(*folded.rank.ops[0].slots[0].value.tensor().unwrap().shape, [8, 0]);
}

#[test]
fn collectives_of_unlike_numbers_are_different_calls() {
    let calls = |number: u32, count: usize| {
        let values: Vec<Matrix> = (0..count).map(|call| matrix(4, 4, 80 + call as u64)).collect();
        let mut rank = rank(number, &values, true);
        for (call, op) in rank.ops.iter_mut().enumerate() {
            op.name = OpName::parse(&format!("Distributed.all_reduce.{call}.forward"));
        }
        rank
    };
    let folded =
        |own: usize, theirs: usize| all(vec![calls(0, own), calls(1, own)], &calls(0, theirs)).rank.ops;
    let held = |ops: &[Op]| ops.iter().map(|op| op.slots[0].value.tensor().is_some()).collect::<Vec<_>>();
    assert_eq!(held(&folded(2, 2)), [true, true]);
    // The ranks make a call before those that the other run makes too.
    assert_eq!(held(&folded(3, 2)), [false, false]);
}
