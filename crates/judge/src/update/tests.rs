//! Changes of a weight, as its sketches tell them.

use std::sync::Arc;

use super::{Change, State, rounded, weighed};
use crate::drawn::{Drawn, Part};
use crate::{Cause, History};
use probe_dump::{Content, DType, Sketch, SketchVersion, TensorRef};
use probe_measure::observe;

fn sketched(values: &Drawn) -> Arc<Sketch> {
    let bytes: Vec<u8> = values.values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = [values.values.len()];
    let tensor = TensorRef::strided(&bytes, DType::F64, &shape, &[1], 0).unwrap();
    let content = Content { sketch: Some(SketchVersion::CURRENT), hash: false };
    Arc::new(observe(tensor, content).sketch.unwrap())
}

/// Returns the change of a weight by equal steps of either sign, which the candidate makes as `other` says.
fn change(other: impl Fn(usize, f64) -> f64) -> Change {
    let weight = Drawn::normal(1, &[3000]);
    let step = Drawn::normal(2, &[3000]).map(|value| 1e-3 * value.signum());
    let mut theirs = step.clone();
    theirs.values.iter_mut().enumerate().for_each(|(at, value)| *value = other(at, *value));
    let after = |step: &Drawn| sketched(&weight.with(step, |weight, step| weight - step));
    let before = sketched(&weight);
    Change::of(&[before.clone(), before], &[after(&step), after(&theirs)]).unwrap()
}

#[test]
fn noise_turns_a_change_and_a_factor_does_not() {
    // A fault has twice what is explained.
    let is_explained = |change: &Change| change.ratio().abs() < 2.0 * change.turned();
    for share in [3, 10, 100, 1000] {
        assert!(is_explained(&change(|at, step| if at % share == 0 { -step } else { step })), "{share}");
        assert!(is_explained(&change(|at, step| if at % share == 0 { 0.0 } else { step })), "{share}");
    }
    assert!(!is_explained(&change(|_, step| 1.01 * step)));
    assert!(!is_explained(&change(|_, step| 0.98 * step)));
}

#[test]
fn a_few_elements_that_are_most_of_a_change_turn_it_by_their_own_noise() {
    let weight = Drawn::normal(1, &[3000]);
    let mut step = Drawn::normal(2, &[3000]).map(|value| 1e-3 * value);
    step.values[..3].fill(1.0);
    let mut theirs = step.clone();
    theirs.values[..3].iter_mut().for_each(|value| *value *= 1.0 + 1e-4);
    let after = |step: &Drawn| sketched(&weight.with(step, |weight, step| weight - step));
    let before = sketched(&weight);
    let change = Change::of(&[before.clone(), before], &[after(&step), after(&theirs)]).unwrap();
    assert!(change.ratio().abs() < 2.0 * change.turned(), "{:e} {:e}", change.ratio(), change.turned());
    let spread = self::change(|_, step| step * (1.0 + 1e-4));
    assert!(spread.ratio().abs() > 4.0 * spread.turned(), "{:e} {:e}", spread.ratio(), spread.turned());
}

#[test]
fn a_change_that_leaves_next_to_nothing_is_rounded_as_others_are() {
    let of = |error: f64| {
        let before = Drawn::normal(1, &[300]).map(|value| 0.01 * value);
        let left = before.map(|value| 2e-3 * value);
        let theirs = left.with(&before, |left, before| left + error * before);
        let mut part = Part::of_binary32();
        part.op("Optimizer.RMSprop.step.0").tensor("output.parameter.w", &left, &theirs);
        let sketches = |values: [&Drawn; 2]| State::Sketched(values.map(sketched));
        let states = (sketches([&before, &before]), sketches([&left, &theirs]));
        let values = part.flow(|flow| weighed(flow, (0, 0), (&states.0, &states.1), 0.0, true)).unwrap().1;
        values.iter().map(|value| value.error / value.least).fold(0.0, f64::max)
    };
    assert!(of(6e-8) < 1.0, "{}", of(6e-8));
    assert!(of(1e-4) > 8.0, "{}", of(1e-4));
}

#[test]
fn a_learning_rate_that_is_rounded_scales_a_change_and_a_faulty_one_is_seen() {
    let rate = f64::from(1e-3_f32) / 1e-3;
    let beyond = |by: f64| change(|_, step| by * step).ratio().abs() / rounded(1e-9, 3000.0);
    assert!(beyond(rate) < 4.0, "{}", beyond(rate));
    assert!(beyond(1.000_01) > 4.0);
}

#[test]
fn a_vector_stays_one_among_dimensions_of_size_one() {
    let of = |shape: &[u64]| {
        let x = Drawn::normal(1, shape);
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x, &x).flow(|flow| flow.is_matrix((0, 0)))
    };
    assert!(!of(&[64]) && !of(&[1, 1, 64]) && !of(&[64, 1, 1]));
    assert!(of(&[8, 64]) && of(&[8, 1, 3]));
}

#[test]
fn a_teacher_that_follows_its_student_at_another_rate_is_named() {
    let (x, gradient) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[20, 30]));
    let (student, teacher) = (Drawn::normal(3, &[20, 30]), Drawn::normal(4, &[20, 30]));
    // The teacher's weight at two rates; the student learns alike on both sides.
    let step = |learned: f64, rates: [f64; 2]| {
        let student = student.map(|value| value * (1.0 + learned));
        let [b, c] = rates.map(|rate| teacher.map(|value| value * (1.0 + rate)));
        let mut part = Part::of_statistics();
        for (module, b, c) in [("student", &student, &student), ("teacher", &b, &c)] {
            part.op(&format!("Module.{module}.Linear.forward.0")).tensor("input.0", &x, &x);
            part.tensor("parameter.weight", b, c).tensor("output.0", &x.linear(b), &x.linear(c));
        }
        part.op("Module.student.Linear.parameters_grad").tensor("grad.weight", &gradient, &gradient);
        part
    };
    let named = |rates: [f64; 2]| {
        let (_, history) = step(0.0, [0.0; 2]).judged_after(&History::default(), "");
        let (judged, _) = step(0.01, rates).next().judged_after(&history, "");
        judged.findings.into_iter().map(|found| (found.op, found.cause)).next()
    };
    assert_eq!(named([1e-3, 1e-3]), None);
    for other in [4e-3, 1e-4] {
        assert_eq!(
            named([1e-3, other]),
            Some(("Module.teacher.Linear.forward.0".into(), Cause::Input)),
            "{other}"
        );
    }
}
