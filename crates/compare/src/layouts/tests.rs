//! Explanations of findings.

use probe_dump::Slot;
use probe_pair::SlotPairs;

use super::strangers::tests::part;
use super::*;

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
        assert_eq!(said.as_deref(), Some("rank 1's replica differs"));
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
