//! Ways that a difference takes.

use std::collections::HashSet;

use super::Agreement;
use crate::drawn::{Drawn, Part};
use crate::expected::ExpectedErrors;
use crate::precision::Precision;

#[test]
fn a_gradient_is_followed_to_the_parameter_that_an_op_handed_on() {
    let (weight, g) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let followed = |handed_on: &Drawn| {
        let mut part = Part::default();
        part.op("Tensor.to.0.forward").tensor("input.0", &weight, &weight);
        part.tensor("output.0", handed_on, handed_on);
        part.op("Torch.exp.0.forward").tensor("input.0", handed_on, handed_on).requires_grad();
        part.tensor("output.0", &g, &g);
        part.op("Module.net.Net.forward.0").tensor("parameter.weight", &weight, &weight);
        part.op("Torch.exp.0.backward").tensor("input.0", &g, &g).tensor("output.0", &weight, &weight);
        part.op("Module.net.Net.parameters_grad.0").tensor("output.weight", &g, &g);
        part.flow(|flow| Agreement::of(flow, &ExpectedErrors::default(), &[], None, false).accumulated(3))
    };
    assert_eq!(followed(&weight), [4, 4], "once for each side");
    assert_eq!(followed(&weight.map(|value| 2.0 * value)), [0; 0], "its own backward pass comes between");
}

#[test]
fn a_sum_of_gradients_that_nobody_recorded_is_no_noise() {
    let (x, g) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let mut part = Part::default();
    let exp = x.map(f64::exp);
    part.op("Torch.exp.0.forward").tensor("input.0", &x, &x).tensor("output.0", &exp, &exp);
    part.op("Torch.exp.0.backward").tensor("input.0", &g, &g.off(3, 0.01)).tensor("output.0", &x, &x);
    let before = |sums: &[usize]| {
        let sums = sums.iter().copied().collect();
        part.flow(|flow| {
            let expected = ExpectedErrors::default();
            let agreement = Agreement::of(flow, &expected, &[], None, false);
            agreement.error_from_before(1, 1, &HashSet::new(), &sums)
        })
    };
    assert!((before(&[]) / 0.01 - 1.0).abs() < 0.1, "it was off before the difference");
    assert!(before(&[1]) < 1e-12, "the difference is a part of it");
}

#[test]
fn other_labels_are_told_by_the_gradient_of_a_loss_that_is_the_same() {
    let (x, g) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]));
    let (labels, rolled) = (Drawn::normal(3, &[40]), Drawn::normal(4, &[40]));
    let leads = |gradient: &Drawn| {
        let mut part = Part::default();
        part.op_of(1, "Tensor.roll.0.forward", &labels, &rolled).integers_of(&[1]);
        part.op("Functional.cross_entropy.0.forward").tensor("input.0", &x, &x);
        part.tensor("input.1", &labels, &rolled).integers_of(&[0, 1]).tensor("output.0", &g, &g);
        part.op("Functional.cross_entropy.0.backward").tensor("input.0", &x, &x);
        part.tensor("output.0", &g, gradient);
        part.flow(|flow| {
            let expected = ExpectedErrors::default();
            Agreement::of(flow, &expected, &[], None, false).leads_elsewhere(1, &[0].into())
        })
    };
    assert!(leads(&g.off(5, 0.5)));
    assert!(!leads(&g), "labels that a loss ignores");
}

#[test]
fn an_op_that_makes_the_same_of_another_shape_undoes_that() {
    let (packed, wide) = (Drawn::normal(1, &[20, 30]), Drawn::normal(1, &[40, 15]));
    let made = Drawn::normal(3, &[20, 20]);
    let undoes = |read: &Drawn, other: &Drawn| {
        let mut part = Part::of_binary32();
        part.op("Functional.conv2d.0.forward")
            .tensor("input.0", &packed, read)
            .tensor("output.0", &made, other);
        part.flow(|flow| {
            let expected = ExpectedErrors::default();
            Agreement::of(flow, &expected, &[], Some(&Precision::BINARY32), false).undoes(0)
        })
    };
    assert!(undoes(&wide, &made.off(4, 1e-7)));
    assert!(!undoes(&wide, &made.off(4, 1e-3)));
    assert!(!undoes(&packed, &made.off(4, 1e-7)), "nothing to be undone");
}

#[test]
fn a_step_by_the_sign_of_a_gradient_does_not_undo_a_difference_of_it() {
    let (g, other, weight) =
        (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]), Drawn::normal(3, &[40, 30]));
    let agrees = |error: f64| {
        let off = g.off(4, error);
        let mut part = Part::of_binary32();
        part.op("Aten.mm.0.backward").tensor("input.0", &other, &other).tensor("output.0", &g, &off);
        part.op("Optimizer.AdamW.step.0").tensor("input.grad.a", &g, &off);
        part.tensor("input.grad.b", &other, &other.off(5, 1e-3)).tensor(
            "output.parameter.a",
            &weight,
            &weight.off(6, 1e-9),
        );
        part.flow(|flow| {
            let expected = ExpectedErrors::default();
            let agreement = Agreement::of(flow, &expected, &[], Some(&Precision::BINARY32), false);
            agreement.agrees(1, &[0].into(), &HashSet::new(), 0.0)
        })
    };
    assert!(agrees(1e-7));
    assert!(!agrees(1e-3));
}
