//! Calls outside of all modules that are given what a stage has of the model.

use probe_dump::SeenAs;

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
