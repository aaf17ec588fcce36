//! Values that are chosen, masked or scaled otherwise.

use std::cell::Cell;

use super::{NOISE, named, x};
use crate::Cause;
use crate::drawn::{Drawn, Part};

/// Positions of 1,200 elements in some order.
fn order() -> Drawn {
    let next = Cell::new(0.0);
    x().map(|_| next.replace(next.get() + 1.0))
}

/// What is named of values that are sorted the other way round on one side, which `undone` turns back.
fn sorted(undone: bool) -> Vec<Cause> {
    let (y, order) = (x().map(f64::tanh), order());
    let (turned, z) = (x().map(|value| -value), y.map(f64::exp));
    let mut part = Part::default();
    part.op("Torch.argsort.0.forward").tensor("input.0", &x(), &x());
    part.integer("kwarg.descending", [Some(0), Some(1)]);
    part.tensor("output.0", &order, &order.map(|at| 1199.0 - at)).integers_of(&[0, 1]);
    part.op("Tensor.__getitem__.0.forward").tensor("input.0", &x(), &x());
    part.tensor("input.1", &order, &order.map(|at| 1199.0 - at)).integers_of(&[0, 1]);
    part.tensor("output.0", &y, &turned);
    if undone {
        part.op_of(1, "Tensor.flip.0.forward", &turned, &y);
    }
    let read = if undone { &y } else { &turned };
    part.op("Torch.cumsum.0.forward").tensor("input.0", &y, read);
    part.tensor("output.0", &z, &if undone { z.off(3, NOISE) } else { z.map(f64::sin) });
    named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect()
}

#[test]
fn an_order_that_is_turned_back_is_another_way() {
    assert_eq!(sorted(true), []);
    assert_eq!(sorted(false), [Cause::Argument]);
}

/// What is named of elements that one side masks by infinity and the other by a large number; `error` is that of what is
/// made of them.
fn masked(error: f64) -> Vec<Cause> {
    let (tanh, made) = (x().map(f64::tanh), x().map(f64::exp));
    let mask = |by: f64| tanh.map(|value| if value < -0.5 { by } else { value });
    let (infinite, large) = (mask(f64::NEG_INFINITY), mask(-1e4));
    let mut part = Part::default();
    part.op("Torch.tanh.0.forward").tensor("input.0", &x(), &x()).tensor("output.0", &tanh, &tanh);
    part.op_of(0, "Tensor.masked_fill.0.forward", &tanh, &infinite);
    part.op_of(1, "Torch.where.0.forward", &tanh, &large);
    part.op("Functional.softmax.0.forward").tensor("input.0", &infinite, &large);
    part.tensor("output.0", &made, &made.off(3, error));
    named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect()
}

#[test]
fn a_mask_by_infinity_is_one_by_a_large_number() {
    assert_eq!(masked(NOISE), []);
    assert_eq!(masked(0.5), [Cause::Structure]);
}

/// What is named of a value that one side alone doubles, and of the factors behind it.
fn halved(factors: [f64; 2]) -> Vec<Cause> {
    let (tanh, double) = (x().map(f64::tanh), x().map(|value| 2.0 * value.tanh()));
    let mut part = Part::default();
    part.op("Torch.tanh.0.forward").tensor("input.0", &x(), &x()).tensor("output.0", &tanh, &tanh);
    part.op_of(0, "Torch.add.0.forward", &tanh, &double);
    part.op_of(1, "Torch.addcmul.0.forward", &tanh, &tanh);
    part.op("Tensor.mul.0.forward").tensor("input.0", &double, &tanh).number("input.1", factors.map(Some));
    let [b, c] = factors;
    part.tensor("output.0", &double.map(|value| value * b), &tanh.off(3, NOISE).map(|value| value * c));
    named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect()
}

#[test]
fn a_factor_that_undoes_another_one_is_no_other_argument() {
    assert_eq!(halved([0.5, 1.0]), []);
    assert_eq!(halved([0.5, 2.0]), [Cause::Structure, Cause::Argument]);
}

/// What is named of the number of largest elements that are taken, where noise has flipped which they are; `counted`: how
/// many of them there are was computed before.
fn taken(counted: bool) -> Vec<Cause> {
    let (order, flip) = (order(), |at: f64| if at < 2.0 { 1.0 - at } else { at });
    let flipped = order.map(flip);
    let mut part = Part::default();
    part.op("Torch.topk.0.forward").tensor("input.0", &x(), &x().off(2, 1e-3));
    part.tensor("output.0", &order, &flipped).integers_of(&[0, 1]);
    if counted {
        part.op("Torch.bincount.0.forward").tensor("input.0", &order, &flipped).integers_of(&[0, 1]);
        part.tensor("output.0", &order.map(|at| at + 1.0), &flipped.map(|at| at + 1.0)).integers_of(&[0, 1]);
    }
    let y = x().map(f64::tanh);
    part.op("Torch.topk.1.forward").tensor("input.0", &y, &y).integer("input.1", [Some(10), Some(12)]);
    part.tensor("output.0", &Drawn::normal(5, &[40, 10]), &Drawn::normal(6, &[40, 12]));
    named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect()
}

#[test]
fn how_many_are_taken_is_chosen_unless_it_was_counted() {
    assert!(taken(false).contains(&Cause::Argument), "{:?}", taken(false));
    assert!(!taken(true).contains(&Cause::Argument), "{:?}", taken(true));
}

#[test]
fn how_many_are_taken_is_no_size_that_is_undone() {
    let (y, loss) = (x().map(f64::tanh), Drawn::normal(7, &[40, 1]));
    let (few, more) = (Drawn::normal(5, &[40, 10]), Drawn::normal(6, &[40, 12]));
    let judged = |function: &str| {
        let mut part = Part::default();
        part.op(&format!("Torch.{function}.0.forward")).tensor("input.0", &y, &y);
        part.integer("input.1", [Some(10), Some(12)]).tensor("output.0", &few, &more);
        // Those behind the tenth hardly count.
        part.op("Torch.logsumexp.0.forward").tensor("input.0", &few, &more);
        part.tensor("output.0", &loss, &loss.off(8, NOISE));
        part.op("Torch.exp.0.forward").tensor("input.0", &loss, &loss.off(8, NOISE));
        part.tensor("output.0", &loss.map(f64::exp), &loss.map(f64::exp).off(9, NOISE));
        named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>()
    };
    assert_eq!(judged("topk"), [Cause::Argument]);
    assert_eq!(judged("unfold"), [], "another size");
}

#[test]
fn the_places_of_a_sorted_row_change_with_the_distance_of_neighbours() {
    // Every sixth trades places with its neighbour.
    let moved = order().map(|at| match at % 6.0 {
        0.0 => at + 1.0,
        1.0 => at - 1.0,
        _ => at,
    });
    let judged = |function: &str, error: f64| {
        let (y, off) = (x().map(f64::tanh), x().map(f64::tanh).off(6, error));
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward")
            .tensor("input.0", &x(), &x().off(5, error))
            .tensor("output.0", &y, &off);
        part.op(&format!("Torch.{function}.0.forward")).tensor("input.0", &y, &off);
        part.tensor("output.0", &order(), &moved).integers_of(&[0, 1]);
        named(&part.judged("")).iter().any(|(op, _)| op.contains(function))
    };
    assert!(!judged("argsort", 1e-2));
    assert!(judged("argsort", 1e-6));
    assert!(judged("bucketize", 1e-2), "a threshold is no neighbour");
}

/// What is named of a block whose experts get a token more and a token less on one side, in binary16 or not.
fn routed(in_half: bool) -> Vec<String> {
    let tokens = Drawn::normal(1, &[480, 64]);
    let off = tokens.off(2, if in_half { 3e-4 } else { NOISE });
    let rows = |of: &Drawn, count: usize| Drawn {
        shape: vec![count as u64, 64],
        values: of.values[..count * 64].to_vec(),
    };
    let mut part = Part::default();
    let add = |part: &mut Part, name: &str, given: [&Drawn; 2], made: [&Drawn; 2]| {
        part.op(name);
        for (path, [b, c]) in [("input.0", given), ("output.0", made)] {
            part.tensor(path, b, c);
            if in_half {
                part.binary16();
            }
        }
    };
    for (expert, (b, c)) in [(230, 231), (250, 249)].into_iter().enumerate() {
        let [b, c] = [rows(&tokens, b), rows(&off, c)];
        let name = format!("Module.block.experts.{expert}.Mlp.forward.0");
        add(&mut part, &name, [&b, &c], [&b.map(f64::tanh), &c.map(f64::tanh)]);
    }
    let made = tokens.map(f64::tanh);
    add(&mut part, "Module.block.Block.forward.0", [&tokens, &off], [&made, &made.off(3, 0.06)]);
    part.judged("").findings.into_iter().map(|found| found.op).collect()
}

#[test]
fn a_block_whose_experts_got_other_tokens_is_off_by_these() {
    assert_eq!(routed(true), [""; 0]);
    assert!(!routed(false).is_empty(), "noise flips no choice");
}

#[test]
fn a_weight_as_wide_as_what_its_module_is_given_is_no_choice_of_rows() {
    let (x, weight) = (Drawn::normal(240, &[400, 30]), Drawn::normal(241, &[20, 30]));
    let other = Drawn::normal(242, &[20, 30]);
    let (made, off) = (Drawn::normal(243, &[400, 20]), Drawn::normal(244, &[400, 20]));
    let named_if = |owned: bool| {
        let near = x.off(245, 1e-3);
        let mut part = Part::default();
        part.op("Functional.linear.0.forward").in_module("Module.down.Row.forward.0");
        part.tensor("input.0", &x, &near).binary16();
        part.tensor("input.1", &weight, &other).binary16().requires_grad();
        part.tensor("output.0", &made, &off).binary16();
        part.op("Module.down.Row.forward.0").tensor("input.0", &x, &near).binary16();
        if owned {
            part.tensor("parameter.weight", &weight, &other).binary16();
        }
        part.tensor("output.0", &made, &off).binary16();
        named(&part.judged("")).into_iter().map(|(op, cause)| (op.to_owned(), cause)).collect::<Vec<_>>()
    };
    let linear = "Functional.linear.0.forward".to_owned();
    assert_eq!(named_if(true), [(linear, Cause::Input)]);
    assert_eq!(named_if(false), [], "it may hold some of the rows");
}
