//! Noise that an op magnifies, and chances that it takes.

use super::named;
use crate::drawn::{Drawn, Part};
use crate::expected::Walk;
use crate::setting::Setting;

#[test]
fn gates_that_flip_hide_most_of_their_error_from_statistics() {
    let (x, gradient) = (Drawn::normal(31, &[40, 30]), Drawn::normal(32, &[40, 30]));
    // A gradient that is no extreme stands where noise opens the gate, and is magnified behind it.
    let at = gradient.values.iter().position(|value| (2.4..2.6).contains(value)).unwrap();
    let large = gradient.values[at];
    let (mut shut, mut open) = (x.clone(), x.off(33, 1e-3));
    (shut.values[at], open.values[at]) = (-1e-6, 1e-6);
    let relu = |x: &Drawn| x.map(|value| value.max(0.0));
    let gated = |x: &Drawn| x.with(&gradient, |x, g| if x > 0.0 { g } else { 0.0 });
    let behind =
        |g: &Drawn, by: f64| g.map(|g| if (g - large).abs() < 1e-9 { 8.0 * g } else { 2.0 * by * g });
    let judged = |by: f64| {
        let [b, c] = [&shut, &open].map(gated);
        let mut part = Part::of_statistics();
        part.op("Functional.relu.0.forward").tensor("input.0", &shut, &open);
        part.tensor("output.0", &relu(&shut), &relu(&open));
        part.op("Functional.relu.0.backward").tensor("input.0", &gradient, &gradient);
        part.tensor("output.0", &b, &c).op("Tensor.mul.0.backward").tensor("input.0", &b, &c);
        let judged = part.tensor("output.0", &behind(&b, 1.0), &behind(&c, by)).judged("");
        named(&judged).iter().any(|(op, _)| *op == "Tensor.mul.0.backward")
    };
    assert_eq!((judged(1.0), judged(3.0)), (false, true));
}

/// Returns true if an op is named that reads a value off by `error` and makes one function of it on each side.
fn is_named(op: &str, x: &Drawn, error: f64, functions: [fn(f64) -> f64; 2]) -> bool {
    let off = x.off(41, error);
    let [b, c] = [x.map(functions[0]), off.map(functions[1])];
    let mut part = Part::default();
    part.op("Torch.relu.0.forward").tensor("input.0", x, &off).tensor("output.0", x, &off);
    part.op(op).tensor("input.0", x, &off).tensor("output.0", &b, &c);
    part.judged("").findings.iter().any(|found| found.op == op)
}

#[test]
fn a_logarithm_shows_the_relative_error_of_its_least_elements() {
    let mut x = Drawn::normal(40, &[40, 30]).map(|value| value.abs() + 0.1);
    x.values[7] = 1e-6;
    assert!(!is_named("Torch.log.0.forward", &x, 1e-9, [f64::ln; 2]));
    assert!(is_named("Torch.log.0.forward", &x, 1e-9, [f64::ln, |value| 1.01 * value.ln()]));
}

#[test]
fn one_of_many_signs_may_flip() {
    let mut x = Drawn::normal(40, &[8, 4]).map(|value| value + 0.1 * value.signum());
    x.values[3] = 1e-5;
    // The one near zero is taken for a negative number.
    let flips = [f64::signum, |value: f64| if value.abs() < 1e-2 { -1.0 } else { value.signum() }];
    assert!(!is_named("Torch.sign.0.forward", &x, 1e-4, flips));
    assert!(is_named("Torch.sign.0.forward", &x, 1e-9, flips), "no flip is to be expected");
}

#[test]
fn one_element_at_a_threshold_may_be_rounded_to_the_next_whole_number() {
    let mut x = Drawn::normal(42, &[40, 30]).map(|value| 4.0 * value);
    x.values[5] = 1.5;
    let rounded = |next: fn(f64) -> f64| -> [fn(f64) -> f64; 2] { [f64::round, next] };
    // Hardly any flip is to be expected of an error this small.
    let to = |off: f64, next| is_named("Torch.round.0.forward", &x, off, rounded(next));
    assert!(!to(1e-10, |value| if (value - 1.5).abs() < 1e-6 { 1.0 } else { value.round() }));
    assert!(to(1e-10, |value| if (value - 1.5).abs() < 1e-6 { 5.0 } else { value.round() }));
    assert!(to(1e-10, f64::floor));
}

#[test]
fn a_small_divisor_makes_most_of_what_its_dividend_is_off_by() {
    // The first step of Adam, whose divisor is the size of the gradient.
    let mut gradient = Drawn::normal(43, &[40, 30]).map(|value| value + 0.1 * value.signum());
    gradient.values[10] = 1e-4;
    let mut other = gradient.off(44, 1e-3);
    other.values[10] = -1e-4;
    let size = gradient.map(f64::abs);
    let step = |gradient: &Drawn| gradient.with(&size, |g, size| g / size);
    let named = |by: f64| {
        let mut part = Part::default();
        part.op("Tensor.abs.0.forward").tensor("input.0", &gradient, &other);
        part.tensor("output.0", &gradient.map(f64::abs), &other.map(f64::abs));
        part.op("Tensor.__truediv__.0.forward").tensor("input.0", &gradient, &other);
        part.tensor("input.1", &size, &size);
        part.tensor("output.0", &step(&gradient), &step(&other).map(|value| by * value));
        part.judged("").findings.iter().any(|found| found.op == "Tensor.__truediv__.0.forward")
    };
    assert_eq!((named(1.0), named(3.0)), (false, true));
}

#[test]
fn a_gradient_that_an_op_in_place_hands_on_may_be_gated_behind_it() {
    let (x, gradient) = (Drawn::normal(45, &[40, 30]), Drawn::normal(46, &[40, 30]));
    let off = x.off(47, 3e-3);
    let gated = |x: &Drawn| x.with(&gradient, |x, g| if x > 0.0 { g } else { 0.0 });
    let named = |function: &str| {
        let mut part = Part::default();
        part.op(&format!("Tensor.{function}.0.forward")).tensor("input.0", &x, &off);
        part.tensor("output.0", &x.map(|x| x.max(0.0)), &off.map(|x| x.max(0.0)));
        part.in_module("Module.block.Block.forward.0");
        part.op("Module.block.Block.forward.0").tensor("input.0", &x, &off);
        part.tensor("output.0", &x.map(|x| x.max(0.0)), &off.map(|x| x.max(0.0)));
        part.op(&format!("Tensor.{function}.0.backward")).tensor("input.0", &gradient, &gradient);
        part.tensor("output.0", &gradient, &gradient).in_module("Module.block.Block.backward.0");
        part.op("Module.block.Block.backward.0").tensor("input.0", &gradient, &gradient);
        part.tensor("output.0", &gated(&x), &gated(&off));
        part.judged("").findings.iter().any(|found| found.op == "Module.block.Block.backward.0")
    };
    assert_eq!((named("relu_"), named("tanh_")), (false, true));
}

#[test]
fn a_view_that_nobody_recorded_has_the_error_of_what_it_views() {
    let (x, weight, incoming) =
        (Drawn::normal(50, &[40, 30]), Drawn::normal(51, &[20, 30]), Drawn::normal(52, &[40, 20]));
    // A gradient in which nearly all cancels is off by more than anything that it is made of.
    let small = Drawn::normal(53, &[40, 30]).map(|value| 1e-3 * value);
    let turned = |from: &Drawn| {
        let of = |row: usize| (0..40).map(move |column| 30 * column + row);
        Drawn { shape: vec![30, 40], values: (0..30).flat_map(of).map(|at| from.values[at]).collect() }
    };
    let is_named = |moved: bool| {
        let other = small.off(54, 3e-3);
        let mut part = Part::default();
        part.op("Functional.linear.0.forward").tensor("input.0", &x, &x).tensor("input.1", &weight, &weight);
        part.tensor("output.0", &x.linear(&weight), &x.linear(&weight));
        part.op("Functional.linear.0.backward").tensor("input.0", &incoming, &incoming.off(55, 1e-5));
        part.tensor("output.0", &small, &other);
        let (view, mut moved_on) = (turned(&small), turned(&other));
        if moved {
            moved_on.values.rotate_right(1);
        }
        part.op("Torch.sin.0.backward")
            .tensor("input.0", &view, &moved_on)
            .tensor("output.0", &view, &moved_on);
        part.judged("").findings.iter().any(|found| found.op == "Torch.sin.0.backward")
    };
    assert!(!is_named(false));
    assert!(is_named(true), "in another order on one side alone");
}

#[test]
fn a_function_between_modules_that_leaves_most_equal_to_the_bit_rounds_and_may_flip() {
    let (x, made) =
        (Drawn::normal(51, &[40, 30]), Drawn::normal(51, &[40, 30]).map(|x| (8.0 * x).round() / 8.0));
    let is_explained = |given: &Drawn, changed: &Drawn| {
        let mut part = Part::default();
        part.op("Module.block.up.Linear.forward.0").tensor("input.0", &x, &x).tensor("output.0", &x, given);
        part.op("Module.block.down.Linear.forward.0").tensor("input.0", &made, changed);
        part.op("Module.block.Rounded.forward.0").tensor("input.0", &x, &x);
        part.flow(|flow| {
            let expected = Walk::over(flow, &Setting::of(flow.pair), 0.0);
            let arrival = expected.values.iter().find(|value| value.place == (1, 0)).unwrap();
            arrival.explained >= arrival.error
        })
    };
    let (noisy, mut flipped) = (x.off(52, 1e-6), made.clone());
    flipped.values[17] += 0.125;
    assert!(is_explained(&noisy, &flipped));
    assert!(!is_explained(&x, &flipped), "nothing led to it");
    assert!(!is_explained(&noisy, &made.off(53, 1e-3)), "all elements are off");
}

#[test]
fn what_a_sum_hides_from_statistics_is_expected_behind_it() {
    let (x, branch) = (Drawn::normal(61, &[40, 30]), Drawn::normal(62, &[40, 30]).map(|value| 0.01 * value));
    let off = branch.off(63, 0.3);
    let sum = |branch: &Drawn| x.with(branch, |a, b| a + b);
    let mut part = Part::of_statistics();
    part.op("Torch.tanh.0.forward").tensor("input.0", &branch, &off).tensor("output.0", &branch, &off);
    part.op("Torch.add.0.forward").tensor("input.0", &x, &x).tensor("input.1", &branch, &off);
    part.tensor("output.0", &sum(&branch), &sum(&off));
    part.op("Torch.tanh.1.forward").tensor("input.0", &sum(&branch), &sum(&off));
    part.tensor("output.0", &sum(&branch).map(f64::tanh), &sum(&off).map(f64::tanh));
    let (shown, explained) = part.flow(|flow| {
        let expected = Walk::over(flow, &Setting::of(flow.pair), 0.0);
        let behind = expected.values.iter().find(|value| value.place == (2, 1)).unwrap();
        (flow.fact((1, 2)).relative(), behind.explained)
    });
    let error = sum(&branch).with(&sum(&off), |b, c| b - c).norm() / sum(&branch).norm();
    assert!(shown < 0.5 * error, "{shown} of {error}");
    assert!(explained > 0.5 * error && explained < 2.0 * error, "{explained} for {error}");
}

#[test]
fn statistics_that_show_full_precision_name_no_other() {
    let (x, w) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[30, 30]));
    let said = |error: f64| {
        let mut part = Part::of_statistics();
        part.op("Functional.linear.0.forward").tensor("input.0", &x, &x).binary32();
        part.tensor("input.1", &w, &w).binary32();
        part.tensor("output.0", &x.linear(&w), &x.linear(&w).off(3, error)).binary32();
        part.judged("").notes.join(" ")
    };
    assert!(said(2e-3).contains("as with 10-bit inputs"), "{}", said(2e-3));
    assert!(!said(1e-9).contains("as with 10-bit inputs"), "{}", said(1e-9));
}

#[test]
fn weights_that_drifted_are_no_precision_of_products() {
    let said = |drift: f64, own: f64| {
        let mut part = Part::of_later_step();
        for layer in 0..5 {
            let (x, w) = (Drawn::normal(70 + layer, &[40, 30]), Drawn::normal(80 + layer, &[30, 30]));
            let (moved, seed) = (w.off(90 + layer, drift), 100 + layer);
            part.op(&format!("Functional.linear.{layer}.forward")).tensor("input.0", &x, &x).binary32();
            part.tensor("input.1", &w, &moved).requires_grad().binary32();
            part.tensor("output.0", &x.linear(&w), &x.linear(&moved).off(seed, own)).binary32();
        }
        part.judged("").notes.join(" ")
    };
    // What is left when the drift is taken away is a third of it.
    assert!(!said(6e-4, 2e-4).contains("as with 10-bit inputs"), "{}", said(6e-4, 2e-4));
    assert!(said(6e-4, 2e-4).contains("weights differ by up to"), "{}", said(6e-4, 2e-4));
    assert!(said(1e-5, 3e-4).contains("as with 10-bit inputs"), "{}", said(1e-5, 3e-4));
}

#[test]
fn what_is_computed_in_binary16_is_a_multiple_of_its_least_number() {
    let spacing = 2_f64.powi(-24);
    let on_grid = |x: &Drawn| x.map(|value| (value / spacing).round() * spacing);
    let x = Drawn::normal(71, &[40, 30]).map(|value| 8e-6 * value);
    let weight = Drawn::normal(72, &[20, 30]);
    let incoming = Drawn::normal(73, &[40, 20]).map(|value| 1e-2 * value);
    let gradient = on_grid(&Drawn::normal(74, &[20, 30]).map(|value| 8.0 * spacing * value));
    let is_named = |off: &Drawn| {
        let mut part = Part::default();
        part.op("Functional.linear.0.forward").tensor("input.0", &x, &x).binary16();
        part.tensor("input.1", &weight, &weight).binary32();
        part.tensor("output.0", &x.linear(&weight), &x.linear(&weight)).binary16();
        part.op("Functional.linear.0.backward")
            .tensor("input.0", &incoming, &incoming.off(75, 1e-4))
            .binary16();
        // Autocast returns the gradient of a weight in the weight's type.
        part.tensor("output.1", &gradient, off).binary32();
        named(&part.judged("")).iter().any(|(op, _)| *op == "Functional.linear.0.backward")
    };
    let mut rounded = gradient.clone();
    rounded.values.iter_mut().step_by(50).for_each(|value| *value += spacing);
    assert!(!is_named(&rounded));
    assert!(is_named(&gradient.map(|value| 2.0 * value)));
}

#[test]
fn a_gradient_that_several_modules_have_is_the_sum_of_theirs() {
    let (rows, hidden) = (Drawn::normal(81, &[40, 30]), Drawn::normal(82, &[40, 30]));
    let (below, above) = (Drawn::normal(83, &[40, 30]), Drawn::normal(84, &[40, 20]));
    let weight = Drawn::normal(85, &[20, 30]);
    let (gradient, off) = (Drawn::normal(86, &[20, 30]), Drawn::normal(86, &[20, 30]).off(87, 1e-4));
    let is_named = |of_head: Option<&Drawn>, reported: [&Drawn; 2]| {
        let mut part = Part::default();
        part.op("Module.words.Embedding.forward.0").tensor("parameter.weight", &weight, &weight);
        part.tensor("output.0", &rows, &rows);
        part.op("Module.head.Linear.forward.0").tensor("input.0", &hidden, &hidden);
        if let Some(of_head) = of_head {
            part.tensor("parameter.weight", of_head, of_head);
        }
        part.tensor("output.0", &hidden.linear(&weight), &hidden.linear(&weight));
        part.op("Module.head.Linear.backward.0").tensor("input.0", &above, &above.off(88, 1e-4));
        part.op("Module.words.Embedding.backward.0").tensor("input.0", &below, &below);
        part.op("Module.words.Embedding.parameters_grad.0").tensor("grad.weight", &gradient, &off);
        part.op("Module.head.Linear.parameters_grad.0").tensor("grad.weight", reported[0], reported[1]);
        let judged = part.judged("");
        named(&judged).iter().any(|(op, _)| *op == "Module.words.Embedding.parameters_grad.0")
    };
    let other = Drawn::normal(89, &[20, 30]);
    assert!(!is_named(None, [&gradient, &off]), "they report one gradient");
    assert!(!is_named(Some(&weight), [&other, &other]), "they read one parameter");
    assert!(is_named(Some(&other), [&other, &other]), "nothing of the head is in it");
    assert!(is_named(Some(&other), [&gradient, &off]), "two parameters that are added up have one gradient");
}

#[test]
fn rows_of_a_table_show_a_drift_that_sums_over_all_rows_hide() {
    let (table, indices) = (Drawn::normal(91, &[320, 32]), Drawn::normal(92, &[16]));
    let rows = |table: &Drawn| Drawn { shape: vec![16, 32], values: table.values[..512].to_vec() };
    let mut drifted = table.clone();
    drifted.values[..512].iter_mut().for_each(|value| *value *= 1.0 + 1e-4);
    let is_named = |part: Part, made: &Drawn| {
        let mut part = part;
        part.op("Functional.embedding.0.forward").tensor("input.0", &indices, &indices);
        part.integers_of(&[0, 1]).tensor("input.1", &table, &drifted).requires_grad();
        part.tensor("output.0", &rows(&table), made);
        named(&part.judged("")).iter().any(|(op, _)| *op == "Functional.embedding.0.forward")
    };
    assert!(!is_named(Part::of_statistics().later(), &rows(&drifted)));
    assert!(is_named(Part::of_statistics().later(), &rows(&table.map(|value| 1.1 * value))));
}

#[test]
fn sums_in_short_numbers_that_are_equal_may_hide_a_drift_where_others_show_one() {
    let (table, indices) = (Drawn::normal(95, &[320, 32]), Drawn::normal(96, &[16]));
    let rows = Drawn { shape: vec![16, 32], values: table.values[..512].to_vec() };
    let (x, weight) = (Drawn::normal(97, &[40, 30]), Drawn::normal(98, &[20, 30]));
    let is_named = |drift: f64| {
        let drifted = weight.map(|value| value * (1.0 + drift));
        let mut part = Part::of_statistics().later();
        part.op("Functional.embedding.0.forward").tensor("input.0", &indices, &indices);
        part.integers_of(&[0, 1]).tensor("input.1", &table, &table).requires_grad();
        part.tensor("output.0", &rows, &rows.map(|value| value * (1.0 + 2e-5)));
        part.op("Functional.linear.0.forward").tensor("input.0", &x, &x).tensor("input.1", &weight, &drifted);
        part.requires_grad().tensor("output.0", &x.linear(&weight), &x.linear(&drifted));
        named(&part.judged("")).iter().any(|(op, _)| *op == "Functional.embedding.0.forward")
    };
    assert!(!is_named(1e-4));
    assert!(is_named(0.0));
}

#[test]
fn groups_with_means_of_their_own_are_normalised_by_less_than_all_elements_show() {
    // Eight elements in each of 30 groups, which differ by a hundredth of their mean.
    let (means, inside) = (Drawn::normal(101, &[30]), Drawn::normal(102, &[8, 30]));
    let spread = |means: &Drawn, inside: &Drawn| Drawn {
        shape: vec![8, 30],
        values: (0..240).map(|at| means.values[at % 30] + 1e-3 * inside.values[at]).collect(),
    };
    let x = spread(&means, &inside);
    let off = x.off(103, 1e-8);
    let normalised = |x: &Drawn| {
        let group = |column: usize| (0..8).map(move |row| 30 * row + column);
        let mut values = x.clone();
        for column in 0..30 {
            let mean = group(column).map(|at| x.values[at]).sum::<f64>() / 8.0;
            let variance = group(column).map(|at| (x.values[at] - mean).powi(2)).sum::<f64>() / 8.0;
            group(column).for_each(|at| values.values[at] = (x.values[at] - mean) / (variance + 1e-5).sqrt());
        }
        values
    };
    let (ones, zeros) = (Drawn::normal(104, &[30]).map(|_| 1.0), Drawn::normal(105, &[30]).map(|_| 0.0));
    let is_named = |by: f64| {
        let mut part = Part::default();
        part.op("Torch.cos.0.forward").tensor("input.0", &x, &off).tensor("output.0", &x, &off);
        part.op("Functional.batch_norm.0.forward").tensor("input.0", &x, &off);
        part.tensor("input.3", &ones, &ones).tensor("input.4", &zeros, &zeros);
        part.integer("kwarg.training", [Some(1), Some(1)]).number("kwarg.eps", [Some(1e-5), Some(1e-5)]);
        part.tensor("output.0", &normalised(&x), &normalised(&off).map(|value| by * value));
        named(&part.judged("")).iter().any(|(op, _)| *op == "Functional.batch_norm.0.forward")
    };
    assert!(!is_named(1.0));
    assert!(is_named(1.001));
}

#[test]
fn complex_numbers_are_made_by_products_of_binary32_as_well() {
    let x = Drawn::normal(101, &[64, 48]);
    let is_named = |coarse: f64| {
        let mut part = Part::default();
        for at in 0..4 {
            let weight = Drawn::normal(110 + at, &[64, 48]);
            let made = x.linear(&weight);
            part.op(&format!("Module.net.l{at}.Linear.forward.0")).tensor("input.0", &x, &x).binary32();
            part.tensor("parameter.weight", &weight, &weight).binary32();
            part.tensor("output.0", &made, &made.off(120 + at, coarse)).binary32();
        }
        let table = Drawn::normal(102, &[24, 8]);
        part.op("Module.net.rotary.Rotary.forward.0").tensor("input.0", &x, &x).binary32();
        part.tensor("output.0", &table, &table.off(103, 2.3e-4)).complex64();
        named(&part.judged("")).iter().any(|(op, _)| op.contains("Rotary"))
    };
    assert!(!is_named(2.9e-4));
    assert!(is_named(1e-7), "no other product is coarse");
}

#[test]
fn deviations_of_rows_that_are_alike_have_one_factor() {
    let x = Drawn::normal(61, &[600, 16]);
    let reciprocal = Drawn::normal(62, &[600, 1]).map(|value| 1.0 + 0.01 * value);
    let is_open = |function: &str| {
        let mut part = Part::default();
        part.op(function).tensor("input.0", &x, &x.off(63, 1e-5)).tensor("output.0", &x, &x.off(64, 1e-5));
        part.tensor("output.2", &reciprocal, &reciprocal.map(|value| 1.000_01 * value));
        part.flow(|flow| {
            let expected = Walk::over(flow, &Setting::of(flow.pair), 0.0);
            expected.values.iter().any(|value| value.place == (0, 2) && value.gain.is_some())
        })
    };
    assert!(!is_open("Aten.native_layer_norm.0.forward"));
    assert!(is_open("Aten.sin.0.forward"));
}

#[test]
fn rows_that_are_summed_share_the_direction_of_their_error() {
    let pattern = Drawn::normal(65, &[1, 300]);
    let rows = Drawn::normal(66, &[48, 300]);
    let terms = |by: f64| Drawn {
        values: rows.values.iter().enumerate().map(|(at, row)| row + by * pattern.values[at % 300]).collect(),
        ..rows.clone()
    };
    let sum = |terms: &Drawn| Drawn {
        shape: vec![1, 300],
        values: (0..300).map(|at| terms.values.iter().skip(at).step_by(300).sum()).collect(),
    };
    // Off by a tenth, which is no factor of all terms and one of their sum.
    let (b, c) = (terms(1.0), terms(1.0 + 0.2 / 0.9).map(|value| 0.9 * value));
    let mut part = Part::default();
    part.op("Aten.sum.0.backward").tensor("input.0", &b, &c).tensor("output.0", &sum(&b), &sum(&c));
    let beyond = part.flow(|flow| {
        let expected = Walk::over(flow, &Setting::of(flow.pair), 0.0);
        let value = expected.values.iter().find(|value| value.place == (0, 1)).unwrap();
        value.gain.as_ref().map_or(0.0, |gain| gain.error / gain.explained)
    });
    assert!((0.1..2.0).contains(&beyond), "{beyond}");
}
