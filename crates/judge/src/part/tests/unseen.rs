//! Gradients that nobody recorded: ops in place return what they read.

use crate::drawn::{Drawn, Part};
use crate::expected::Walk;
use crate::flow::Flow;
use crate::setting::Setting;

/// Error of values in the forward pass.
const NEAR: f64 = 2e-4;

/// An op in place that adds a vector, behind it one of this name, and a module around both.
fn part(function: &str) -> Part {
    let (x, y, shift) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]), Drawn::normal(3, &[30]));
    let (z, g) = (Drawn::normal(4, &[40, 30]), Drawn::normal(5, &[40, 30]));
    let mut part = Part::default();
    part.op("Tensor.add_.0.forward").tensor("input.0", &x, &x.off(6, NEAR));
    part.tensor("input.1", &shift, &shift).tensor("output.0", &y, &y.off(7, NEAR));
    part.op(&format!("Tensor.{function}.0.forward")).tensor("input.0", &y, &y.off(7, NEAR));
    part.tensor("output.0", &z, &z.off(8, NEAR));
    part.op(&format!("Tensor.{function}.0.backward")).tensor("input.0", &g, &g.off(9, NEAR));
    part.op("Tensor.add_.0.backward").tensor("output.1", &shift, &shift.off(10, 1e-2));
    part
}

/// Returns what explains the gradient of the vector.
fn explained(flow: &Flow<'_>) -> f64 {
    let expected = Walk::over(flow, &Setting::of(flow.pair), 0.0);
    expected.values.iter().find(|value| value.place.0 == 3).map_or(0.0, |value| value.explained)
}

#[test]
fn choices_in_place_explain_a_gradient_that_was_not_recorded() {
    // One of 1,200 elements is let through on one side alone, though the vector has but 30.
    assert!(part("relu_").flow(explained) > 1e-2, "{}", part("relu_").flow(explained));
    assert!(part("exp_").flow(explained) < 1e-3, "{}", part("exp_").flow(explained));
}
