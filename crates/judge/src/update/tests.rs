//! Changes of a weight, as its sketches tell them.

use super::{Change, State, rounded, weighed};
use crate::drawn::{Drawn, Part};
use crate::{Cause, History, PartJudgement};

/// Returns the change of a weight by equal steps of either sign, which the candidate makes as `other` says.
fn change(other: impl Fn(usize, f64) -> f64) -> Change {
    let weight = Drawn::normal(1, &[3000]);
    let step = Drawn::normal(2, &[3000]).map(|value| 1e-3 * value.signum());
    let mut theirs = step.clone();
    theirs.values.iter_mut().enumerate().for_each(|(at, value)| *value = other(at, *value));
    let after = |step: &Drawn| weight.with(step, |weight, step| weight - step).sketch();
    let before = weight.sketch();
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
    let after = |step: &Drawn| weight.with(step, |weight, step| weight - step).sketch();
    let before = weight.sketch();
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
        let sketches = |values: [&Drawn; 2]| State::Sketched(values.map(Drawn::sketch));
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

/// A step of which nothing earlier was recorded, with four matrices of both sides and an optimizer's changes of size 1e-2.
fn late(matrices: &[[Drawn; 2]]) -> PartJudgement {
    late_in(Part::of_later_step(), matrices)
}

fn late_in(mut part: Part, matrices: &[[Drawn; 2]]) -> PartJudgement {
    let x = Drawn::normal(20, &[40, 30]);
    for (call, [b, c]) in matrices.iter().enumerate() {
        part.op(&format!("Functional.linear.{call}.forward")).tensor("input.0", &x, &x);
        part.tensor("input.1", b, c).requires_grad().tensor("output.0", &x.linear(b), &x.linear(c));
    }
    part.op("Optimizer.AdamW.step.0");
    for (call, [b, c]) in matrices.iter().enumerate() {
        let gradient = Drawn::normal(50 + call as u64, &[20, 30]);
        let after = |before: &Drawn| before.with(&gradient, |before, gradient| before - 1e-2 * gradient);
        part.tensor(&format!("parameter.{call}"), b, c).sketched();
        part.tensor(&format!("input.grad.{call}"), &gradient, &gradient);
        part.tensor(&format!("output.parameter.{call}"), &after(b), &after(c)).sketched();
    }
    part.judged("")
}

/// Returns four matrices that a step of size 1e-2 has moved, the candidate's by `apart` of it otherwise.
fn moved(apart: f64) -> Vec<[Drawn; 2]> {
    let of = |call: u64| {
        let weight = Drawn::normal(10 + call, &[20, 30]);
        let other = Drawn::normal(30 + call, &[20, 30]);
        let theirs = weight.with(&other, |weight, other| weight + 1e-2 * apart * other);
        [weight, theirs]
    };
    (0..4).map(of).collect()
}

#[test]
fn runs_whose_first_steps_have_nothing_in_common_are_no_agreement() {
    for apart in [0.01, 0.25] {
        assert_eq!(late(&moved(apart)).findings.len(), 0, "{apart}");
    }
    let judged = late(&moved(std::f64::consts::SQRT_2));
    assert_eq!(judged.findings.len(), 1);
    let first = &judged.findings[0];
    assert_eq!((first.op.as_str(), first.cause), ("Functional.linear.0.forward", Cause::Input));
    assert!(first.reason.contains("as if they had nothing in common"), "{}", first.reason);
}

#[test]
fn where_the_first_steps_have_nothing_in_common_the_call_of_one_side_is_named() {
    let judged = |apart: f64| {
        let (labels, rolled) = (Drawn::normal(60, &[40]), Drawn::normal(61, &[40]));
        let mut part = Part::of_later_step();
        part.op_of(1, "Tensor.roll.0.forward", &labels, &rolled);
        late_in(part, &moved(apart))
    };
    assert_eq!(judged(0.01).findings.len(), 0);
    let judged = judged(std::f64::consts::SQRT_2);
    let named: Vec<_> = judged.findings.iter().map(|found| (found.op.as_str(), found.cause)).collect();
    assert_eq!(named, [("Tensor.roll.0.forward", Cause::Structure)]);
}

#[test]
fn few_elements_whose_step_noise_turned_are_no_other_weight() {
    let judged = |size: f64| {
        let mut matrices = moved(0.0);
        matrices[1][1].values[..3].iter_mut().for_each(|value| *value += size);
        late(&matrices)
    };
    assert_eq!(judged(0.02).findings.len(), 0);
    assert_eq!(judged(2.0).findings.len(), 1, "no step is that long");
}

#[test]
fn an_element_of_a_vector_whose_step_noise_turned_is_no_other_weight() {
    let judged = |size: f64| {
        let (x, scale) = (Drawn::normal(20, &[40, 30]), Drawn::normal(63, &[30]));
        let mut other = scale.clone();
        other.values[7] += size;
        let wide = |scale: &Drawn| Drawn { shape: vec![40, 30], values: scale.values.repeat(40) };
        let mut part = Part::of_later_step();
        part.op("Tensor.mul.0.forward").tensor("input.0", &x, &x);
        part.tensor("input.1", &scale, &other).requires_grad();
        let times = |scale: &Drawn| x.with(&wide(scale), |x, scale| x * scale);
        part.tensor("output.0", &times(&scale), &times(&other));
        let gradient = Drawn::normal(64, &[30]);
        let after = |before: &Drawn| before.with(&gradient, |before, gradient| before - 1e-2 * gradient);
        part.op("Optimizer.Lion.step.0").tensor("parameter.scale", &scale, &other).sketched();
        part.tensor("input.grad.scale", &gradient, &gradient);
        part.tensor("output.parameter.scale", &after(&scale), &after(&other)).sketched();
        late_in(part, &moved(0.0)).findings.len()
    };
    assert_eq!(judged(0.02), 0);
    assert_eq!(judged(2.0), 1, "no step is that long");
}

#[test]
fn a_matrix_that_is_further_apart_than_steps_go_is_named_where_nothing_else_is() {
    let mut matrices = moved(0.1);
    let other = Drawn::normal(40, &[20, 30]);
    matrices[2][1] = matrices[2][0].with(&other, |weight, other| weight + 0.1 * other);
    let judged = late(&matrices);
    let named: Vec<_> = judged.findings.iter().map(|found| (found.op.as_str(), found.cause)).collect();
    assert_eq!(named, [("Functional.linear.2.forward", Cause::Input)]);
    assert!(judged.findings[0].reason.contains("not loaded"), "{}", judged.findings[0].reason);
}

#[test]
fn before_the_first_step_rounding_moves_no_matrix_apart() {
    let mut matrices = moved(0.0);
    matrices[1][1] = matrices[1][0].off(62, 1e-7);
    assert_eq!(late_in(Part::of_binary32(), &matrices).findings.len(), 0);
}

#[test]
fn a_matrix_that_has_nothing_in_common_with_its_partner_was_not_loaded() {
    // Those behind it have gone their own ways since, by a third of what this one is apart.
    let mut matrices = moved(1.2);
    matrices[2][1] = Drawn::normal(40, &[20, 30]).map(|value| 0.03 * value);
    matrices[2][0] = matrices[2][0].map(|value| 0.03 * value);
    let judged = late(&matrices);
    let named: Vec<_> = judged.findings.iter().map(|found| (found.op.as_str(), found.cause)).collect();
    assert_eq!(named, [("Functional.linear.2.forward", Cause::Input)]);
}

#[test]
fn statistics_tell_a_matrix_that_was_not_loaded_by_both_its_ends() {
    let judged = |other: fn(&Drawn) -> Drawn| {
        let mut part = Part::of_statistics().later();
        for call in 0..4 {
            let x = Drawn::normal(80 + call, &[40, 30]);
            let weight = Drawn::normal(84 + call, &[20, 30]);
            let drifted = if call == 2 { other(&weight) } else { weight.off(88 + call, 1e-4) };
            part.op(&format!("Functional.linear.{call}.forward")).tensor("input.0", &x, &x);
            part.tensor("input.1", &weight, &drifted).requires_grad();
            part.tensor("output.0", &x.linear(&weight), &x.linear(&drifted));
        }
        let judged = part.judged("");
        judged.findings.iter().map(|found| (found.op.clone(), found.cause)).collect::<Vec<_>>()
    };
    let expected = [("Functional.linear.2.forward".to_owned(), Cause::Input)];
    assert_eq!(judged(|weight| weight.map(|value| 0.5 * value)), expected);
    assert_eq!(judged(|weight| weight.off(92, 1e-3)), []);
    let with_one_end = |weight: &Drawn| {
        let mut other = weight.clone();
        other.values[7] = 9.0;
        other
    };
    assert_eq!(judged(with_one_end), []);
}
