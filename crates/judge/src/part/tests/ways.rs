//! The same step, computed in another way.

use super::{NOISE, named};
use crate::Cause;
use crate::drawn::{Drawn, Part};

/// A step of which the baseline takes another way to gradients, one of which is off by `error`; `in_place`: it changes memory.
fn named_with(error: Option<f64>, in_place: bool) -> Vec<Cause> {
    let (x, g) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let (tanh, exp) = (x.map(f64::tanh), x.map(f64::tanh).map(f64::exp));
    let mut part = Part::default();
    part.op("Torch.tanh.0.forward").tensor("input.0", &x, &x).tensor("output.0", &tanh, &tanh.off(3, NOISE));
    part.op_of(0, if in_place { "Tensor.exp_.0.forward" } else { "Torch.exp.0.forward" }, &tanh, &exp);
    part.op("Torch.sin.0.forward").tensor("input.0", &exp, &tanh);
    part.tensor("output.0", &exp.map(f64::sin), &tanh.map(f64::sin)).requires_grad();
    if let Some(error) = error {
        part.op("Module.net.Net.parameters_grad.0");
        for (place, error) in [NOISE, NOISE, error, NOISE].into_iter().enumerate() {
            part.tensor(&format!("output.{place}"), &g, &g.off(place as u64 + 4, error));
        }
    }
    named(&part.judged("")).into_iter().map(|(_, cause)| cause).collect()
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
        part.op("Torch.tanh.0.backward").tensor("input.0", &g, &other).tensor("output.0", &g, &other);
        named(&part.judged("")).into_iter().map(|(op, _)| op.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(judged(false), ["Torch.add.0.forward"]);
    assert_eq!(judged(true), ["Torch.mul.0.backward"], "calls of two kinds: which one is not known");
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
