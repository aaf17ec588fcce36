//! Errors that what was recorded hides, and that those who read it show.

use super::{named, x};
use crate::Cause;
use crate::drawn::{Drawn, Part};
use crate::expected::Walk;
use crate::setting::Setting;

/// Returns true if a candidate of this op was named.
fn is_named(part: &Part, op: &str) -> bool {
    named(&part.judged("")).iter().any(|(name, _)| *name == op)
}

/// Values whose sums are exact in any order.
fn exact(seed: u64, shape: &[u64]) -> Drawn {
    Drawn::normal(seed, shape).map(|value| (8.0 * value).round() / 8.0)
}

#[test]
fn sentinels_hide_the_error_of_what_arrives_beside_them() {
    let x = Drawn::normal(1, &[40, 30]);
    let masked = |x: &Drawn| {
        let mut values = x.clone();
        values.values.iter_mut().step_by(30).for_each(|value| *value = -3.4e38);
        values
    };
    let maxima = Drawn::normal(2, &[40, 1]);
    let judged = |off: &Drawn| {
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x, off).tensor("output.0", &x, off);
        // A function that nobody recorded has masked them.
        part.op("Tensor.max.0.forward").tensor("input.0", &masked(&x), &masked(off));
        part.tensor("output.0", &maxima, &maxima.off(4, 1e-3));
        is_named(&part, "Tensor.max.0.forward")
    };
    assert!(!judged(&x.off(3, 1e-3)));
    assert!(judged(&x.off(3, 1e-9)), "nothing before it is off by so much");
}

#[test]
fn most_of_the_error_of_a_sum_of_products_may_stand_at_the_largest_factors() {
    // A column of ones beside others that are small, whose gradients nearly cancel.
    let is_large = |at: usize| at.is_multiple_of(64);
    let columns = |large: &dyn Fn(usize) -> f64, small: f64| Drawn {
        shape: vec![40, 64],
        values: (0..40 * 64).map(|at| if is_large(at) { large(at) } else { small }).collect(),
    };
    let noise = Drawn::normal(5, &[40]);
    let mean = noise.values.iter().sum::<f64>() / 40.0;
    let factor = columns(&|_| 1.0, 1e-3);
    let incoming = columns(&|at| noise.values[at / 64] - mean + 0.02, 1e-3);
    let sum = |g: &Drawn| {
        let of = |column: usize| {
            (0..40).map(|row| 64 * row + column).map(|at| g.values[at] * factor.values[at]).sum()
        };
        Drawn { shape: vec![64], values: (0..64).map(of).collect() }
    };
    let judged = |by: f64| {
        let mut off = incoming.clone();
        let errors = Drawn::normal(7, &[40]);
        off.values
            .iter_mut()
            .step_by(64)
            .zip(&errors.values)
            .for_each(|(value, error)| *value += 1e-3 * error);
        let a = Drawn::normal(6, &[64]);
        let mut part = Part::default();
        part.op("Tensor.mul.0.forward").tensor("input.0", &a, &a).tensor("input.1", &factor, &factor);
        part.tensor("output.0", &factor, &factor);
        part.op("Torch.sin.0.backward").tensor("input.0", &incoming, &off);
        part.tensor("output.0", &incoming, &off);
        part.op("Tensor.mul.0.backward").tensor("input.0", &incoming, &off);
        part.tensor("output.0", &sum(&incoming), &sum(&off).map(|value| by * value));
        is_named(&part, "Tensor.mul.0.backward")
    };
    assert!(!judged(1.0));
    assert!(judged(1.5));
}

#[test]
fn drifted_weights_make_one_error_in_all_rows() {
    let (x, shift, g) =
        (Drawn::normal(11, &[120, 30]), Drawn::normal(12, &[30]), Drawn::normal(13, &[120, 30]));
    let rows = |g: &Drawn| {
        let of = |column: usize| (0..120).map(|row| g.values[30 * row + column]).sum();
        Drawn { shape: vec![30], values: (0..30).map(of).collect() }
    };
    let error = Drawn::normal(14, &[30]);
    let mut off = g.clone();
    off.values.iter_mut().enumerate().for_each(|(at, value)| *value += 1e-3 * error.values[at % 30]);
    let judged = |mut part: Part| {
        part.op("Tensor.add.0.forward").tensor("input.0", &x, &x).tensor("input.1", &shift, &shift);
        part.tensor("output.0", &x, &x);
        part.op("Torch.sin.0.backward").tensor("input.0", &g, &off).tensor("output.0", &g, &off);
        part.op("Tensor.add.0.backward").tensor("input.0", &g, &off).tensor("output.0", &g, &off);
        part.tensor("output.1", &rows(&g), &rows(&off));
        is_named(&part, "Tensor.add.0.backward")
    };
    assert!(judged(Part::default()));
    assert!(!judged(Part::of_later_step()));
}

#[test]
fn a_quotient_shows_how_far_numbers_below_the_normal_ones_are_off() {
    let small = Drawn::normal(21, &[40, 30]).map(|value| 1e-40 * (1.0 + value.abs()));
    let off = small.off(22, 1e-3);
    let (divisor, scaled) =
        (Drawn::normal(23, &[1]).map(|_| 1e-20), |x: &Drawn| x.map(|value| value / 1e-20));
    let judged = |by: f64| {
        let mut part = Part::of_binary32();
        part.op("Torch.tanh.0.forward").tensor("input.0", &small, &off).tensor("output.0", &small, &off);
        part.op("Tensor.div_.0.forward").tensor("input.0", &small, &off);
        part.tensor("input.1", &divisor, &divisor);
        part.tensor("output.0", &scaled(&small), &scaled(&off).map(|value| by * value));
        is_named(&part, "Tensor.div_.0.forward")
    };
    assert!(!judged(1.0));
    assert!(judged(1.1));
}

#[test]
fn other_places_of_equal_elements_are_named_where_one_side_alone_moved_them() {
    let (x, made) = (Drawn::normal(30, &[40, 30]), exact(31, &[40, 30]));
    let mut moved = made.clone();
    moved.values.rotate_right(30);
    let mut part = Part::default();
    part.op("Torch.cos.0.forward").tensor("input.0", &x, &x).tensor("output.0", &made, &made);
    part.op_of(1, "Tensor.roll.0.forward", &made, &moved);
    part.op("Torch.sin.0.forward").tensor("input.0", &made, &moved);
    part.tensor("output.0", &made.map(f64::sin), &moved.map(f64::sin));
    assert_eq!(named(&part.judged("")), [("Tensor.roll.0.forward", Cause::Structure)]);
}

#[test]
fn what_one_side_computes_and_nobody_reads_has_gone_into_what_arrives_otherwise() {
    let [x, y, centred] = [41, 42, 45].map(|seed| Drawn::normal(seed, &[40, 30]));
    let mean = Drawn::normal(43, &[40, 1]);
    let judged = |error: f64| {
        let off = y.off(44, error);
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x, &x).tensor(
            "output.0",
            &x.map(f64::tanh),
            &x.map(f64::tanh),
        );
        part.op_of(0, "Tensor.mean.0.forward", &x, &mean).op_of(0, "Tensor.sub.0.forward", &mean, &centred);
        part.op("Torch.cos.0.forward").tensor("input.0", &x, &x).tensor(
            "output.0",
            &x.map(f64::cos),
            &x.map(f64::cos),
        );
        part.op("Torch.sin.0.forward").tensor("input.0", &y, &off);
        part.tensor("output.0", &y.map(f64::sin), &off.map(f64::sin)).judged("")
    };
    assert_eq!(named(&judged(1e-2)), [("Tensor.mean.0.forward", Cause::Structure)]);
    assert_eq!(named(&judged(0.0)), []);
}

#[test]
fn a_gradient_that_an_op_hands_on_does_not_tell_two_ways_apart() {
    let (x, y, z) = (Drawn::normal(51, &[8, 48]), Drawn::normal(52, &[8, 24]), Drawn::normal(53, &[8, 24]));
    let (g, of_weight) = (Drawn::normal(54, &[8, 24]), Drawn::normal(55, &[24, 48]));
    let mut part = Part::default();
    part.op_of(0, "Functional.conv2d.0.forward", &x, &y).op_of(1, "Functional.linear.0.forward", &x, &y);
    part.op("Torch.sin.0.forward").tensor("input.0", &y, &y).tensor("output.0", &z, &z);
    part.op("Torch.sin.0.backward").tensor("input.0", &z, &z).tensor("output.0", &g, &g);
    // The older tool records another node of the graph for a product of three dimensions.
    part.op_of(0, "Functional.conv2d.0.backward", &g, &of_weight).op_of(
        1,
        "Functional.linear.0.backward",
        &g,
        &g,
    );
    assert_eq!(named(&part.judged("")), []);
}

#[test]
fn rows_that_are_summed_share_an_error_that_statistics_would_take_for_a_factor() {
    let (x, shift) = (Drawn::normal(61, &[48, 64]), Drawn::normal(62, &[64]));
    let at = |at: usize| 1.0 + shift.values[at % 64];
    let g = Drawn { shape: vec![48, 64], values: (0..48 * 64).map(at).collect() };
    let rows =
        |by: f64| Drawn { shape: vec![64], values: (0..64).map(|column| 48.0 * by * at(column)).collect() };
    let mut part = Part::of_statistics();
    part.op("Tensor.add.0.forward").tensor("input.0", &x, &x).tensor("input.1", &shift, &shift);
    part.tensor("output.0", &x, &x);
    part.op("Tensor.add.0.backward").tensor("input.0", &g, &g).tensor("output.0", &g, &g.map(|g| 1.01 * g));
    part.tensor("output.1", &rows(1.0), &rows(1.01));
    part.flow(|flow| {
        let found = Walk::over(flow, &Setting::of(flow.pair), 0.0);
        let has_factor =
            |place| found.values.iter().any(|value| value.place == place && value.gain.is_some());
        assert_eq!((has_factor((1, 1)), has_factor((1, 2))), (true, false));
    });
}

#[test]
fn what_arrives_between_modules_may_be_off_at_its_extremes_as_what_came_before() {
    let (x, y, z) =
        (Drawn::normal(71, &[40, 64]), Drawn::normal(72, &[40, 64]), Drawn::normal(73, &[40, 40]));
    // Errors that leave the norm as it is: statistics show them at the extremes alone.
    let nearly = |x: &Drawn, seed: u64, error: f64| {
        let off = x.off(seed, error);
        let by = x.norm() / off.norm();
        off.map(|value| by * value)
    };
    let explained = |before: f64| {
        let (read, made, off) = (nearly(&x, 75, before), nearly(&y, 74, before), nearly(&z, 77, 1e-3));
        let mut part = Part::of_statistics();
        part.op("Module.net.q.Linear.forward.0").tensor("input.0", &x, &read).tensor("output.0", &y, &made);
        part.op("Module.net.softmax.Softmax.forward.0").tensor("input.0", &z, &off);
        part.flow(|flow| {
            let found = Walk::over(flow, &Setting::of(flow.pair), 0.0);
            found.values.iter().find(|value| value.place == (1, 0)).map(|value| value.explained).unwrap()
        })
    };
    assert!(explained(1e-3) > 1e-4);
    assert!(explained(1e-7) < 1e-6);
}

#[test]
fn an_error_along_the_value_is_told_from_rounding_of_the_same_size() {
    let x = Drawn::normal(78, &[80, 64]);
    let scores = Drawn::normal(79, &[80, 64]);
    let off = x.off(80, 1e-3);
    let named_at = |arriving: &Drawn| {
        let mut part = Part::default();
        part.op("Module.net.q.Linear.forward.0").tensor("input.0", &x, &off).tensor("output.0", &x, &off);
        part.op("Module.net.o.Linear.forward.0").tensor("input.0", &scores, arriving);
        part.judged("").findings.len()
    };
    // Of the part along the value, a fifth of the error, rounding would leave a seventieth.
    assert_eq!(
        [named_at(&scores.off(81, 5e-3)), named_at(&scores.map(|value| 0.999 * value).off(81, 4.9e-3))],
        [0, 1]
    );
}

#[test]
fn in_a_late_step_another_result_is_told_from_a_drifted_one_by_what_its_own_side_made() {
    let weight = Drawn::normal(12, &[20, 30]);
    let drifted = weight.off(13, 0.05);
    let judged = |read: fn(f64) -> f64| {
        let mut part = Part::of_later_step();
        let (b, c) = (x().linear(&weight), x().linear(&drifted));
        part.op("Functional.linear.0.forward").tensor("input.0", &x(), &x());
        part.tensor("input.1", &weight, &drifted).requires_grad().tensor("output.0", &b, &c);
        for (name, function) in [
            ("Torch.tanh.0.forward", f64::tanh as fn(f64) -> f64),
            ("Functional.hardtanh.0.forward", hardtanh),
        ] {
            part.op(name).tensor("input.0", &b, &c).tensor("output.0", &b.map(function), &c.map(function));
        }
        let (one, other) = (b.map(f64::tanh), c.map(read));
        part.op("Torch.exp.0.forward").tensor("input.0", &one, &other);
        part.tensor("output.0", &one.map(f64::exp), &other.map(f64::exp)).judged("")
    };
    assert_eq!(named(&judged(f64::tanh)), []);
    assert_eq!(named(&judged(hardtanh)), [("Torch.exp.0.forward", Cause::Structure)]);
}

fn hardtanh(value: f64) -> f64 {
    value.clamp(-1.0, 1.0)
}

#[test]
fn a_function_for_another_is_told_by_what_both_read_and_not_by_what_has_drifted_elsewhere() {
    let (near, far) = (Drawn::normal(14, &[20, 30]).map(|value| 0.05 * value), Drawn::normal(15, &[20, 30]));
    let (nearly, further) = (near.off(16, 1e-4), far.off(17, 1e-2));
    let last = Drawn::normal(18, &[20, 30]);
    let moved = last.off(19, 0.3);
    let sigmoid = |value: f64| 1.0 / (1.0 + (-value).exp());
    let judged = |function: &dyn Fn(f64) -> f64| {
        let mut part = Part::of_later_step();
        for (call, (weight, drifted)) in [(&far, &further), (&near, &nearly)].into_iter().enumerate() {
            part.op(&format!("Functional.linear.{call}.forward")).tensor("input.0", &x(), &x());
            part.tensor("input.1", weight, drifted).requires_grad();
            part.tensor("output.0", &x().linear(weight), &x().linear(drifted));
        }
        let (gate, other) = (x().linear(&near), x().linear(&nearly));
        let (b, c) = (gate.map(sigmoid), other.map(function));
        part.op_of(0, "Torch.sigmoid.0.forward", &gate, &b);
        part.op_of(1, "Functional.hardsigmoid.0.forward", &other, &c);
        let multiplied = |one: &Drawn, other: &Drawn| one.with(other, |one, other| one * other);
        let (y, theirs) = (x().linear(&far), x().linear(&further));
        part.op("Torch.mul.0.forward").tensor("input.0", &y, &theirs).tensor("input.1", &b, &c);
        part.tensor("output.0", &multiplied(&y, &b), &multiplied(&theirs, &c));
        // One weight has moved much further.
        part.op("Functional.linear.2.forward").tensor("input.0", &x(), &x());
        part.tensor("input.1", &last, &moved).requires_grad();
        part.tensor("output.0", &x().linear(&last), &x().linear(&moved)).judged("")
    };
    assert_eq!(named(&judged(&sigmoid)), []);
    let hard = judged(&|value| (value / 6.0 + 0.5).clamp(0.0, 1.0));
    assert_eq!(named(&hard), [("Functional.hardsigmoid.0.forward", Cause::Structure)]);
}
