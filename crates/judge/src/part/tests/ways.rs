//! The same step, computed in another way.

use super::{NOISE, named};
use crate::drawn::{Drawn, Part};
use crate::{Cause, History};

/// Ends a step with the gradients of four parameters, one of which is off by `error`.
fn gradients(part: &mut Part, error: f64) {
    let g = Drawn::normal(2, &[40, 30]);
    part.op("Module.net.Net.parameters_grad.0");
    for (place, error) in [NOISE, NOISE, error, NOISE].into_iter().enumerate() {
        part.tensor(&format!("output.{place}"), &g, &g.off(place as u64 + 4, error));
    }
}

/// A step of which the baseline takes another way to gradients, one of which is off by `error`; `in_place`: it changes memory.
fn named_with(error: Option<f64>, in_place: bool) -> Vec<Cause> {
    named(&of_another_way(error, in_place).judged("")).into_iter().map(|(_, cause)| cause).collect()
}

fn of_another_way(error: Option<f64>, in_place: bool) -> Part {
    let x = Drawn::normal(1, &[40, 30]);
    let (tanh, exp) = (x.map(f64::tanh), x.map(f64::tanh).map(f64::exp));
    let mut part = Part::default();
    part.op("Torch.tanh.0.forward").tensor("input.0", &x, &x).tensor("output.0", &tanh, &tanh.off(3, NOISE));
    part.op_of(0, if in_place { "Tensor.exp_.0.forward" } else { "Torch.exp.0.forward" }, &tanh, &exp);
    part.op("Torch.sin.0.forward").tensor("input.0", &exp, &tanh);
    part.tensor("output.0", &exp.map(f64::sin), &tanh.map(f64::sin)).requires_grad();
    if let Some(error) = error {
        gradients(&mut part, error);
    }
    part
}

#[test]
fn a_way_that_leads_to_the_same_gradients_is_no_fault() {
    assert_eq!(named_with(Some(NOISE), false), []);
    assert_eq!(named_with(None, false), [Cause::Structure], "nothing tells that they are the same");
    assert!(named_with(Some(1e-3), false).contains(&Cause::Structure));
    assert!(
        named_with(Some(0.5), false).contains(&Cause::Structure),
        "what the difference makes is no drift"
    );
    assert!(
        named_with(Some(0.5), false).contains(&Cause::Structure),
        "no product tells what rounding leaves"
    );
    assert_eq!(named_with(Some(NOISE), true), [Cause::Structure], "a later step may read it");
}

#[test]
fn what_becomes_of_the_gradients_behind_the_backward_pass_is_no_other_way() {
    let named_if = |changed: f64| {
        let mut part = of_another_way(None, false);
        let g = Drawn::normal(2, &[40, 30]);
        let clipped = g.map(|value| 0.5 * value);
        part.op("Module.net.Net.parameters_grad.0");
        for place in 0..4 {
            part.tensor(&format!("grad.{place}"), &g, &g.off(place + 4, NOISE));
        }
        part.op_of(0, "Tensor.multiply.0.forward", &g, &clipped);
        part.op("Optimizer.SGD.step.0");
        for place in 0..4 {
            part.tensor(&format!("input.grad.net.{place}"), &clipped, &clipped.map(|value| changed * value));
        }
        named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>()
    };
    assert_eq!(named_if(1.0), []);
    assert_eq!(named_if(1.25), [Cause::Gradient]);
}

#[test]
fn a_hook_may_see_another_node_of_a_function_on_each_side() {
    let (x, weight, incoming) =
        (Drawn::normal(70, &[4, 10, 30]), Drawn::normal(71, &[20, 30]), Drawn::normal(72, &[4, 10, 20]));
    let flat = Drawn { shape: vec![40, 20], values: incoming.values.clone() };
    let bias = Drawn::normal(73, &[20]);
    let named_with = |phase: &str, other: &Drawn| {
        let mut part = Part::default();
        part.op("Functional.linear.0.forward").tensor("input.0", &x, &x).tensor("input.1", &weight, &weight);
        part.tensor("output.0", &incoming, &incoming);
        part.op(&format!("Functional.linear.{phase}")).tensor("input.0", &incoming, &incoming);
        part.tensor("output.0", &flat, other);
        if other.shape != flat.shape {
            part.tensor_of_one("output.1", &bias);
        }
        named(&part.judged("")).len()
    };
    assert_eq!(named_with("0.backward", &flat), 0);
    assert_eq!(named_with("0.backward", &incoming), 0);
    assert_eq!(named_with("1.forward", &incoming), 1);
}

#[test]
fn calls_that_differ_in_their_gradients_alone_are_named_in_the_forward_pass() {
    let (x, g) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let (tanh, other) = (x.map(f64::tanh), g.map(|value| value * value));
    let judged = |also: bool| {
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x, &x).tensor("output.0", &tanh, &tanh);
        part.op_of(1, "Torch.add.0.forward", &tanh, &tanh);
        part.op("Torch.sin.0.forward").tensor("input.0", &tanh, &tanh);
        part.tensor("output.0", &tanh.map(f64::sin), &tanh.map(f64::sin));
        if also {
            let cos = tanh.map(f64::cos);
            part.op_of(0, "Torch.clone.0.forward", &tanh, &tanh).op_of(
                0,
                "Torch.relu.0.forward",
                &tanh,
                &tanh,
            );
            part.op("Torch.cos.0.forward").tensor("input.0", &tanh, &tanh).tensor("output.0", &cos, &cos);
        }
        part.op("Torch.sin.0.backward").tensor("input.0", &g, &g).tensor("output.0", &g, &g);
        part.op_of(1, "Torch.mul.0.backward", &g, &other);
        part.op("Torch.tanh.0.backward").tensor("input.0", &g, &other);
        let passed_on = |g: &Drawn| g.with(&tanh, |g, tanh| g * (1.0 - tanh * tanh));
        part.tensor("output.0", &passed_on(&g), &passed_on(&other));
        named(&part.judged("")).into_iter().map(|(op, _)| op.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(judged(false), ["Torch.add.0.forward"]);
    assert_eq!(judged(true), ["Torch.mul.0.backward"], "calls of two kinds: which one is not known");
}

#[test]
fn a_tensor_for_a_number_is_an_argument_unless_it_holds_that_number() {
    let (x, ones) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]).map(|_| 1.0));
    let gain = ones.off(3, 1e-3);
    let judged = |factor: &Drawn| {
        let mut part = Part::default();
        part.op("Tensor.mul.0.forward").tensor("input.0", &x, &x);
        part.tensor_of_one("input.1", factor).number("input.1", [None, Some(1.0)]);
        part.tensor("output.0", &x.with(factor, |x, factor| x * factor), &x);
        named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>()
    };
    assert_eq!(judged(&gain), [Cause::Argument]);
    assert_eq!(judged(&ones), []);
}

#[test]
fn a_tensor_of_one_side_alone_is_an_argument_where_it_changes_the_result() {
    let (x, weights) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let (tanh, weighted) = (x.map(f64::tanh), x.with(&weights, |x, weight| x * weight));
    let judged = |made: &Drawn| {
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x, &x).tensor("output.0", &tanh, &tanh);
        part.op("Torch.sin.0.forward").tensor("input.0", &weights, &weights);
        part.tensor("output.0", &weights.map(f64::sin), &weights.map(f64::sin));
        part.op("Functional.embedding_bag.0.forward").tensor("input.0", &tanh, &tanh);
        part.tensor_of_one("kwarg.per_sample_weights", &weights).tensor("output.0", &weighted, made);
        named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>()
    };
    assert_eq!(judged(&x), [Cause::Argument]);
    assert_eq!(judged(&weighted.off(3, NOISE)), []);
}

#[test]
fn weights_of_a_loss_are_an_argument_whatever_the_runs_have_drifted_by() {
    let judged = |weights: &Drawn| {
        let (x, aims) = (Drawn::normal(78, &[40, 30]), Drawn::normal(79, &[40, 30]));
        let (drifted, loss) = (x.off(80, 0.1), Drawn { shape: vec![1], values: vec![0.75] });
        let mut part = Part::of_later_step();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x, &drifted).requires_grad();
        part.tensor("output.0", &x.map(f64::tanh), &drifted.map(f64::tanh));
        part.op("Functional.binary_cross_entropy_with_logits.0.forward");
        part.tensor("input.0", &x.map(f64::tanh), &drifted.map(f64::tanh)).tensor("input.1", &aims, &aims);
        part.tensor_of_one("kwarg.pos_weight", weights);
        part.tensor("output.0", &loss, &loss.map(|loss| 1.02 * loss));
        named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>()
    };
    assert_eq!(judged(&Drawn::normal(81, &[30])), [Cause::Argument]);
    assert_eq!(judged(&Drawn::normal(81, &[30]).map(|_| 1.0)), []);
}

/// Returns what is named of counts that one side makes as floats, and of a tensor that it so makes of another.
fn named_of_counts(name: &str, reads: bool) -> Vec<Cause> {
    let (x, counts) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[12]).map(f64::round));
    let mut part = Part::default();
    part.op("Torch.tanh.0.forward").tensor("input.0", &x, &x).tensor("output.0", &x, &x);
    part.op(name);
    if reads {
        part.tensor("input.0", &counts, &counts);
    }
    part.tensor("output.0", &counts, &counts).integers_of_one();
    named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect()
}

#[test]
fn counts_keep_their_numbers_in_any_type() {
    assert_eq!(named_of_counts("Torch.arange.0.forward", false), []);
    assert_eq!(named_of_counts("Tensor.round.0.forward", true), [Cause::DType]);
}

#[test]
fn what_checkpointing_computes_again_is_no_other_op() {
    let (x, g) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let tanh = x.map(f64::tanh);
    let judged = |again: bool| {
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x, &x).tensor("output.0", &tanh, &tanh);
        part.op("Torch.sin.0.forward").tensor("input.0", &tanh, &tanh);
        part.tensor("output.0", &tanh.map(f64::sin), &tanh.map(f64::sin));
        part.op_of(1, "Torch.tanh.0.forward", &x, &tanh);
        if again {
            part.computed_again();
        }
        part.op("Aten.sin_backward.0.backward").tensor("input.0", &g, &g).tensor("input.1", &tanh, &tanh);
        part.tensor("output.0", &g, &g);
        named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>()
    };
    assert_eq!(judged(true), []);
    assert_eq!(judged(false), [Cause::Structure]);
}

#[test]
fn the_op_of_one_side_that_a_module_returns_is_named_and_not_the_module() {
    let x = Drawn::normal(1, &[40, 30]);
    let (tanh, sin) = (x.map(f64::tanh), x.map(f64::sin));
    let mut part = Part::default();
    part.op("Torch.add.0.forward").tensor("input.0", &x, &x).tensor("output.0", &x, &x);
    part.op_of(0, "Torch.tanh.0.forward", &x, &tanh).op_of(1, "Torch.sin.0.forward", &x, &sin);
    part.op("Module.block.Block.forward.0").tensor("input.0", &x, &x).tensor("output.0", &tanh, &sin);
    part.op("Torch.add.1.forward").tensor("input.0", &x, &x).tensor("input.1", &tanh, &sin);
    part.tensor("output.0", &x.with(&tanh, |x, y| x + y), &x.with(&sin, |x, y| x + y));
    let judged = part.judged("");
    assert_eq!(named(&judged), [("Torch.sin.0.forward", Cause::Structure)]);
}

#[test]
fn a_factor_of_the_backward_pass_follows_from_another_formula() {
    let g = Drawn::normal(1, &[40, 30]);
    let is_named = |error: f64| {
        let mut part = Part::default();
        part.op("Aten.mul.0.backward").tensor("input.0", &g, &g).number("input.1", [Some(0.9), Some(0.1)]);
        part.tensor("output.0", &g.map(|g| 0.9 * g), &g.map(|g| 0.1 * g));
        gradients(&mut part, error);
        !part.judged("").findings.is_empty()
    };
    assert!(!is_named(NOISE));
    assert!(is_named(1e-3));
}

#[test]
fn an_argument_says_what_an_op_of_one_side_made() {
    let (x, y) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let exp = x.map(f64::exp);
    let is_named = |error: f64| {
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &y, &y).tensor("output.0", &x, &x);
        part.op_of(1, "Torch.exp.0.forward", &x, &exp);
        part.op("Functional.kl_div.0.forward").tensor("input.0", &y, &y).tensor("input.1", &x, &exp);
        part.number("kwarg.log_target", [Some(1.0), None]).tensor("output.0", &y, &y.off(3, error));
        gradients(&mut part, error);
        !part.judged("").findings.is_empty()
    };
    assert!(!is_named(NOISE));
    assert!(is_named(1e-3));
}

/// Returns true if a way that leads to the same gradients is named beside a norm that is off, before or behind these.
fn is_named_beside_a_norm(behind: bool) -> bool {
    let (x, norm) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[1]));
    let mut part = Part::default();
    let with_norm = |part: &mut Part| {
        part.op("Tensor.norm.0.forward").tensor("input.0", &x, &x);
        part.tensor("output.0", &norm, &norm.off(3, 1e-3));
    };
    part.op("Torch.tanh.0.forward").tensor("input.0", &x, &x).tensor("output.0", &x, &x);
    part.op_of(1, "Torch.exp.0.forward", &x, &x.map(f64::exp));
    part.op("Torch.sin.0.forward").tensor("input.0", &x, &x.map(f64::exp));
    part.tensor("output.0", &x.map(f64::sin), &x.map(f64::exp).map(f64::sin));
    if !behind {
        with_norm(&mut part);
    }
    gradients(&mut part, NOISE);
    if behind {
        with_norm(&mut part);
    }
    !part.judged("[[rule]]\npattern = \"*norm*\"\nrel_l2 = 1e-2\n").findings.is_empty()
}

#[test]
fn a_number_behind_the_last_gradient_is_no_loss() {
    assert!(!is_named_beside_a_norm(true));
    assert!(is_named_beside_a_norm(false));
}

#[test]
fn a_large_difference_inside_a_module_that_no_gradient_shows_was_undone() {
    let (x, y) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let judged = |read: &Drawn, error: f64| {
        let mut part = Part::default();
        part.op("Module.block.down.Linear.forward.0")
            .tensor("input.0", &y, read)
            .tensor("output.0", &y, read);
        part.op("Module.block.Block.forward.0").tensor("input.0", &x, &x);
        part.tensor("output.0", &y, &y.off(3, NOISE));
        gradients(&mut part, error);
        part.judged("").findings.len()
    };
    let twice = y.map(|value| 2.0 * value);
    assert_eq!(judged(&twice, NOISE), 0);
    assert_eq!(judged(&twice, 1e-2), 1);
}

#[test]
fn a_loss_of_another_op_is_named_where_the_backward_pass_begins() {
    let (x, loss) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[8]));
    let (one, tanh) = (loss.map(|_| 1.0), x.map(f64::tanh));
    let judged = |other: &Drawn| {
        let mut part = Part::default();
        part.op("Aten.tanh.0.forward").tensor("input.0", &x, &x).tensor("output.0", &tanh, &tanh);
        part.op_of(0, "Aten.mean.0.forward", &tanh, &loss).op_of(1, "Aten.sum.0.forward", &tanh, other);
        part.op("Aten.ones_like.0.forward").tensor("input.0", &loss, other).tensor("output.0", &one, &one);
        named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>()
    };
    assert_eq!(judged(&loss.off(3, NOISE)), []);
    assert_eq!(judged(&loss.map(|loss| 3.0 * loss)), [Cause::Structure]);
}

#[test]
fn statistics_of_what_was_rolled_agree_and_their_places_do_not() {
    let (x, loss) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[1]));
    let mut rolled = x.clone();
    rolled.values.rotate_right(1);
    let mut part = Part::of_statistics();
    part.op_of(1, "Aten.roll.0.forward", &x, &rolled);
    part.op("Aten.view.0.forward").tensor("input.0", &x, &rolled).tensor("output.0", &x, &rolled);
    part.op("Aten.nll_loss_forward.0.forward").tensor("input.0", &x, &rolled);
    part.tensor("output.0", &loss, &loss.map(|loss| 1.01 * loss));
    assert_eq!(named(&part.judged("")), [("Aten.roll.0.forward", Cause::Structure)]);
}

#[test]
fn statistics_tell_that_half_of_the_gradients_is_lost_behind_the_backward_pass() {
    let g = Drawn::normal(1, &[40, 30]);
    let judged = |factor: f64| {
        let mut part = Part::of_statistics();
        for (place, name) in ["sin", "cos", "tan", "exp", "log"].into_iter().enumerate() {
            let g = Drawn::normal(place as u64 + 10, &[40, 30]);
            part.op(&format!("Torch.{name}.0.backward")).tensor("input.0", &g, &g);
            part.tensor("output.0", &g, &g.off(place as u64 + 20, NOISE));
        }
        part.op("Module.net.Net.parameters_grad.0");
        for place in 0..5 {
            part.tensor(&format!("output.{place}"), &g, &g.map(|g| factor * g));
        }
        named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>()
    };
    assert_eq!(judged(0.5), [Cause::Gradient]);
    assert_eq!(judged(0.98), []);
}

#[test]
fn weights_that_one_side_alone_records_have_drifted_as_the_others() {
    let (x, weight) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[30, 30]));
    let made = x.linear(&weight);
    let judged = |error: f64| {
        let mut part = Part::of_later_step();
        part.op_of(0, "Module.block.map.Conv2d.forward.0", &x, &made);
        part.tensor_of_one("parameter.weight", &weight);
        part.op("Module.block.Convolution.forward.0").tensor("input.0", &x, &x);
        part.tensor("output.0", &made, &made.off(4, error));
        let (drifted, read) = (weight.off(3, 1e-2), made.off(4, error));
        part.op("Module.head.Linear.forward.0").tensor("input.0", &made, &read);
        part.tensor("parameter.weight", &weight, &drifted);
        part.tensor("output.0", &made.linear(&weight), &read.linear(&drifted));
        part.judged("").findings.len()
    };
    assert_eq!(judged(1e-2), 0);
    assert_eq!(judged(0.5), 1);
}

#[test]
fn a_way_that_led_to_the_same_gradients_is_none_in_later_steps() {
    let later = |first: f64, second: f64| {
        let (_, history) = of_another_way(Some(first), false).judged_after(&History::default(), "");
        of_another_way(Some(second), false).judged_after(&history, "").0.findings.len()
    };
    assert_eq!(later(NOISE, 1e-3), 0);
    assert!(later(1e-3, 1e-3) > 0, "the first step did not show it");
    assert!(later(NOISE, 0.2) > 0, "the gradient is plainly another one");
}

#[test]
fn two_values_read_the_other_way_round_are_no_noise_of_one_another() {
    let (x, y) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let (first, second) = (x.map(f64::tanh), y.map(f64::tanh));
    let (exp, sin) = (|of: &Drawn| of.map(f64::exp), |of: &Drawn| of.map(|value| 1.0 + 0.1 * value.sin()));
    let judged = |turned: bool| {
        let (exp_of, sin_of) = if turned { (&second, &first) } else { (&first, &second) };
        let mut part = Part::default();
        for (call, read, made) in [(0, &x, &first), (1, &y, &second)] {
            part.op(&format!("Torch.tanh.{call}.forward")).tensor("input.0", read, read);
            part.tensor("output.0", made, made);
        }
        part.op("Torch.exp.0.forward").tensor("input.0", &first, exp_of).tensor(
            "output.0",
            &exp(&first),
            &exp(exp_of),
        );
        part.op("Torch.sin.0.forward").tensor("input.0", &second, sin_of).tensor(
            "output.0",
            &sin(&second),
            &sin(sin_of),
        );
        let product = exp(&first).with(&sin(&second), |x, y| x * y);
        let other = if turned { product.off(7, 0.05) } else { product.clone() };
        part.op("Torch.mul.0.forward").tensor("input.0", &exp(&first), &exp(exp_of));
        part.tensor("input.1", &sin(&second), &sin(sin_of)).tensor("output.0", &product, &other);
        part.op("Torch.cos.0.forward").tensor("input.0", &product, &other);
        part.tensor("output.0", &product.map(f64::cos), &other.map(f64::cos));
        named(&part.judged("")).first().map(|(op, cause)| ((*op).to_owned(), *cause))
    };
    assert_eq!(judged(true), Some(("Torch.exp.0.forward".to_owned(), Cause::Structure)));
    assert_eq!(judged(false), None);
}

#[test]
fn a_weight_that_is_another_one_is_told_though_it_requires_a_gradient_on_one_side_alone() {
    let (x, w) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[20, 30]));
    let judged = |error: f64| {
        let other = w.off(3, error);
        let mut part = Part::default();
        part.op("Functional.linear.0.forward").tensor("input.0", &x, &x).tensor("input.1", &w, &other);
        part.trained_on_one_side().tensor("output.0", &x.linear(&w), &x.linear(&other));
        gradients(&mut part, NOISE);
        named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>()
    };
    assert_eq!(judged(0.01), [Cause::Input]);
    assert_eq!(judged(0.0), []);
}

#[test]
fn a_gradient_that_ends_at_a_call_of_one_side_is_named_there() {
    let (x, g) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let (tanh, exp) = (x.map(f64::tanh), x.map(f64::tanh).map(f64::exp));
    let judged = |detaches: bool| {
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x, &x).tensor("output.0", &tanh, &tanh);
        if detaches {
            part.op_of(1, "Tensor.detach.0.forward", &tanh, &tanh);
        }
        part.op("Torch.exp.0.forward").tensor("input.0", &tanh, &tanh).tensor("output.0", &exp, &exp);
        part.op("Torch.exp.0.backward").tensor("input.0", &g, &g).tensor_of_one("output.0", &g);
        let less = g.off(3, 0.3);
        part.op("Torch.tanh.0.backward").tensor("input.0", &x, &less).tensor("output.0", &x, &less);
        named(&part.judged("")).first().map(|(op, cause)| ((*op).to_owned(), *cause))
    };
    assert_eq!(judged(true), Some(("Tensor.detach.0.forward".to_owned(), Cause::Structure)));
    assert_eq!(judged(false), Some(("Torch.exp.0.backward".to_owned(), Cause::Structure)));
}

#[test]
fn other_functions_are_named_where_weights_hide_what_they_make() {
    let (x, w) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[30, 30]));
    let judged = |apart: f64| {
        let mut part = Part::of_later_step();
        let (b, c) = (x.linear(&w), x.linear(&w.off(3, apart)));
        part.op("Module.net.Linear.forward.0").tensor("parameter.weight", &w, &w.off(3, apart));
        part.op("Functional.linear.0.forward").tensor("input.0", &x, &x);
        part.tensor("input.1", &w, &w.off(3, apart)).tensor("output.0", &b, &c);
        part.op_of(0, "Torch.sin.0.forward", &b, &b.map(f64::sin));
        part.op_of(1, "Torch.tanh.0.forward", &c, &c.map(f64::sin));
        part.op("Torch.exp.0.forward").tensor("input.0", &b.map(f64::sin), &c.map(f64::sin));
        part.tensor("output.0", &b.map(f64::sin).map(f64::exp), &c.map(f64::sin).map(f64::exp));
        named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect::<Vec<_>>()
    };
    assert_eq!(judged(1e-6), []);
    assert_eq!(judged(0.2), [Cause::Structure]);
}
