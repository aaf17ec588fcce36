//! Parts of a few ops on drawn numbers.

use super::*;
use crate::drawn::{Drawn, Part};
use crate::{Role, Verdict};

mod choices;
mod conserved;
mod hidden;
mod noise;
mod sums;
mod unseen;
mod ways;

/// Rounding of another device.
const NOISE: f64 = 3e-17;

fn x() -> Drawn {
    Drawn::normal(1, &[40, 30])
}

/// A part with `tanh` and `sin` of one value; both sides read one of them in a sum.
fn sum_of(baseline: &Drawn, candidate: &Drawn) -> PartJudgement {
    let (tanh, sin) = (x().map(f64::tanh), x().map(f64::sin));
    let mut part = Part::default();
    part.op("Torch.tanh.0.forward").tensor("input.0", &x(), &x()).tensor(
        "output.0",
        &tanh,
        &tanh.off(3, NOISE),
    );
    part.op("Torch.sin.0.forward").tensor("input.0", &x(), &x()).tensor("output.0", &sin, &sin.off(4, NOISE));
    let one = |read: &Drawn| read.with(&x(), |a, b| a + b);
    part.op("Torch.add.0.forward").tensor("input.0", baseline, candidate).tensor("input.1", &x(), &x());
    part.tensor("output.0", &one(baseline), &one(candidate));
    part.judged("")
}

fn named(judged: &PartJudgement) -> Vec<(&str, Cause)> {
    judged.findings.iter().map(|found| (found.op.as_str(), found.cause)).collect()
}

#[test]
fn an_op_that_reads_the_result_of_another_one_is_named_with_both() {
    let (tanh, sin) = (x().map(f64::tanh), x().map(f64::sin));
    let judged = sum_of(&tanh, &sin.off(4, NOISE));
    assert_eq!(named(&judged), [("Torch.add.0.forward", Cause::Structure)]);
    let reason = &judged.findings[0].reason;
    assert!(
        reason.starts_with("reads the result of Torch.sin.0.forward, the baseline that of Torch.tanh.0"),
        "{reason}"
    );
    assert_eq!(named(&sum_of(&tanh, &tanh.off(3, NOISE))), [], "as it should be");
}

#[test]
fn a_value_that_was_written_to_between_two_ops_is_named_where_it_is_read() {
    let judged = sum_of(&x().map(f64::tanh), &Drawn::normal(9, &[40, 30]));
    assert_eq!(named(&judged), [("Torch.add.0.forward", Cause::Input)]);
    let reason = &judged.findings[0].reason;
    assert!(reason.starts_with("was written to after Torch.tanh.0.forward made it"), "{reason}");
}

#[test]
fn a_function_of_one_side_between_two_modules_is_named_behind_the_first() {
    let (x, weight) = (x(), Drawn::normal(10, &[20, 30]));
    let judged = |read: &dyn Fn(f64) -> f64| {
        let (made, other) = (x.linear(&weight), x.linear(&weight).map(read));
        let mut part = Part::default();
        part.op("Module.block.up.Linear.forward.0").tensor("input.0", &x, &x);
        part.tensor("output.0", &made, &made);
        part.op("Module.block.down.Linear.forward.0").tensor("input.0", &made, &other);
        part.op("Module.block.Block.forward.0").tensor("input.0", &x, &x).judged("")
    };
    let changed = judged(&f64::atan);
    assert_eq!(named(&changed), [("Module.block.up.Linear.forward.0", Cause::Structure)]);
    let reason = &changed.findings[0].reason;
    assert!(reason.contains("is changed before Module.block.down.Linear.forward.0 reads it"), "{reason}");
    assert_eq!(named(&judged(&|value| value)), []);
}

#[test]
fn an_argument_of_one_side_is_held_against_the_default() {
    let elu = |alpha: f64| move |value: f64| if value > 0.0 { value } else { alpha * value.exp_m1() };
    let with = |alpha: Option<f64>| {
        let (b, c) = (x().map(elu(1.0)), x().map(elu(alpha.unwrap_or(1.0))));
        let mut part = Part::default();
        part.op("Functional.elu.0.forward")
            .tensor("input.0", &x(), &x())
            .number("kwarg.alpha", [None, alpha]);
        part.tensor("output.0", &b, &c.off(5, NOISE)).judged("")
    };
    assert_eq!(named(&with(Some(0.5))), [("Functional.elu.0.forward", Cause::Argument)]);
    let said = with(Some(0.5)).findings[0].reason.clone();
    assert!(said.starts_with("kwarg.alpha 0.5 in the candidate only"), "{said}");
    assert_eq!(named(&with(Some(1.0))), [], "the default, given explicitly");
}

#[test]
fn an_argument_by_position_is_the_one_by_keyword() {
    let part = |keyword: f64| {
        let mut part = Part::default();
        part.op("Functional.elu.0.forward").tensor("input.0", &x(), &x());
        part.number("input.1", [Some(0.5), None]).number("kwarg.alpha", [None, Some(keyword)]);
        part.tensor("output.0", &x(), &x().off(5, NOISE)).judged("")
    };
    assert_eq!(named(&part(0.5)), []);
    assert_eq!(named(&part(0.7)), [("Functional.elu.0.forward", Cause::Argument)]);
}

#[test]
fn an_argument_that_comes_with_inputs_of_another_size_belongs_to_these() {
    let part = |keys: &Drawn| {
        let mut part = Part::default();
        part.op("Functional.scaled_dot_product_attention.0.forward").tensor("input.0", &x(), &x());
        part.tensor("input.1", &x(), keys).number("kwarg.enable_gqa", [Some(1.0), None]);
        part.tensor("output.0", &x(), &x().off(5, NOISE)).judged("")
    };
    assert_eq!(named(&part(&x()))[0].1, Cause::Argument);
    assert!(named(&part(&Drawn::normal(1, &[80, 30]))).iter().all(|(_, cause)| *cause != Cause::Argument));
}

/// `tanh` off by 1e-3, and a sum behind it.
fn ruled(rules: &str) -> PartJudgement {
    let tanh = x().map(f64::tanh);
    let off = tanh.off(3, 1e-3);
    let one = |read: &Drawn| read.with(&x(), |a, b| a + b);
    let mut part = Part::default();
    part.op("Torch.tanh.0.forward").tensor("input.0", &x(), &x()).tensor("output.0", &tanh, &off);
    part.op("Torch.add.0.forward").tensor("input.0", &tanh, &off).tensor("input.1", &x(), &x());
    part.tensor("output.0", &one(&tanh), &one(&off)).judged(rules)
}

#[test]
fn a_bound_is_about_the_op_itself_and_accuses_nothing() {
    let tanh = [("Torch.tanh.0.forward", Cause::Numerics)];
    assert_eq!(named(&ruled("")), tanh);
    assert_eq!(named(&ruled("[[rule]]\npattern = \"*tanh*\"\nrel_l2 = 2e-3\n")), []);
    assert_eq!(named(&ruled("[[rule]]\npattern = \"*tanh*\"\nrel_l2 = 1e-4\n")), tanh);
    let other =
        ruled("[[rule]]\npattern = \"*tanh*\"\nrel_l2 = 2e-3\n[[rule]]\npattern = \"*\"\nrel_l2 = 1e-9\n");
    assert_eq!(named(&other), [], "the inputs of the sum explain it");
}

#[test]
fn a_limit_names_no_op_that_its_inputs_explain_unless_nothing_else_is_named() {
    let rules = "[[rule]]\npattern = \"*tanh*\"\nrel_l2 = 2e-3\n[[rule]]\npattern = \"*add*output*\"\nlimit = { rel_l2 = 1e-9 }\n";
    let judged = ruled(rules);
    assert_eq!(named(&judged), [("Torch.add.0.forward", Cause::Numerics)]);
    assert_eq!((judged.findings[0].role, judged.slots[1][2].verdict), (Role::Propagates, Verdict::Differs));
    let both = ruled("[[rule]]\npattern = \"*output*\"\nexact = true\n");
    assert_eq!(named(&both), [("Torch.tanh.0.forward", Cause::Numerics)]);
}

#[test]
fn a_padding_that_is_cut_off_again_is_written_otherwise() {
    let (wide, wider) = (Drawn::normal(6, &[40, 31]), Drawn::normal(7, &[40, 32]));
    let judged = |cut: &Drawn| {
        let mut part = Part::default();
        part.op("Aten.constant_pad_nd.0.forward").tensor("input.0", &x(), &x());
        part.number("input.1.1", [Some(1.0), Some(2.0)]).tensor("output.0", &wide, &wider);
        part.op("Aten.slice.0.forward").tensor("input.0", &wide, &wider).tensor(
            "output.0",
            &x().map(f64::cos),
            cut,
        );
        part.judged("")
    };
    assert_eq!(named(&judged(&x().map(f64::cos))), []);
    let other = judged(&x().map(f64::sin));
    assert_eq!(named(&other)[0].0, "Aten.constant_pad_nd.0.forward", "what is cut out differs");
}

#[test]
fn results_of_one_op_are_told_apart_where_they_are_read() {
    let halves = [Drawn::normal(6, &[40, 15]), Drawn::normal(7, &[40, 15])];
    let judged = |read: &Drawn| {
        let mut part = Part::default();
        part.op("Tensor.chunk.0.forward").tensor("input.0", &x(), &x());
        part.tensor("output.0", &halves[0], &halves[0]).tensor("output.1", &halves[1], &halves[1]);
        part.op("Torch.tanh.0.forward").tensor("input.0", &halves[0], read);
        part.tensor("output.0", &halves[0].map(f64::tanh), &read.map(f64::tanh)).judged("")
    };
    assert_eq!(named(&judged(&halves[0])), []);
    let swapped = judged(&halves[1]);
    assert_eq!(named(&swapped), [("Torch.tanh.0.forward", Cause::Structure)]);
    let reason = &swapped.findings[0].reason;
    assert!(reason.contains("Tensor.chunk.0.forward output.1, the baseline that of"), "{reason}");
}

#[test]
fn another_sign_on_the_way_to_the_same_is_written_otherwise() {
    let (square, back) = (x().map(|value| value * value), x().map(|value| -value * value));
    let judged = |function: fn(f64) -> f64, name: &str| {
        let (b, c) = (square.map(function), back.map(function));
        let mut part = Part::default();
        part.op("Tensor.square.0.forward").tensor("input.0", &x(), &x()).tensor("output.0", &square, &square);
        part.op("Tensor.neg.0.forward").tensor("input.0", &square, &square).tensor("output.0", &back, &back);
        part.op(name).tensor("input.0", &square, &back).tensor("output.0", &b, &c);
        part.op("Tensor.tanh.0.forward").tensor("input.0", &b, &c);
        part.tensor("output.0", &b.map(f64::tanh), &c.map(f64::tanh)).judged("")
    };
    assert_eq!(named(&judged(f64::cos, "Tensor.cos.0.forward")), []);
    assert_eq!(named(&judged(f64::sin, "Tensor.sin.0.forward")).len(), 1, "it does not end there");
}

#[test]
fn a_dimension_counted_from_the_other_end_is_the_same() {
    let judged = |dimension: i64, made: &Drawn| {
        let mut part = Part::default();
        part.op("Tensor.cumsum.0.forward").tensor("input.0", &x(), &x());
        part.integer("input.1", [Some(1), Some(dimension)]);
        part.tensor("output.0", &x(), made).judged("")
    };
    assert_eq!(named(&judged(-1, &x().off(5, NOISE))), []);
    assert_eq!(named(&judged(-2, &x().off(5, NOISE))), [("Tensor.cumsum.0.forward", Cause::Argument)]);
    assert_eq!(named(&judged(-1, &Drawn::normal(9, &[40, 30]))).len(), 1, "another result");
}

#[test]
fn a_cast_called_in_another_way_is_told_by_its_result() {
    let judged = |made: &Drawn| {
        let mut part = Part::default();
        part.op("Tensor.to.0.forward").tensor("input.0", &x(), &x()).integer("input.1", [Some(6), Some(7)]);
        part.tensor("output.0", &x(), made).judged("")
    };
    assert_eq!(named(&judged(&x())), []);
    assert_eq!(named(&judged(&x().off(5, 1e-3)))[0].1, Cause::Argument);
}

#[test]
fn a_number_in_the_place_of_a_tensor_is_named_unless_it_makes_the_same() {
    let (y, zero) = (Drawn::normal(2, &[40, 30]), x().map(|_| 0.0));
    let judged = |y: &Drawn| {
        let mut part = Part::default();
        part.op("Tensor.sub.0.forward").tensor("input.0", &x(), &x()).tensor_of_one("input.1", y);
        part.integer("input.1", [None, Some(0)]);
        part.tensor("output.0", &x().with(y, |x, y| x - y), &x()).judged("")
    };
    assert_eq!(named(&judged(&zero)), []);
    assert_eq!(named(&judged(&y)).len(), 1);
}

#[test]
fn what_an_optimizer_keeps_is_off_by_no_more_than_what_it_is_made_of() {
    let (before, gradient) = (x().map(|value| value * 0.1), Drawn::normal(2, &[40, 30]));
    let mean = |m: &Drawn, g: &Drawn, by: f64| m.with(g, |m, g| 0.9 * m + by * 0.1 * g);
    let square = |g: &Drawn| g.map(|g| 0.001 * g * g);
    let judged = |error: f64, by: f64| {
        let (m, g) = (before.off(3, error), gradient.off(4, error));
        let mut part = Part::default();
        part.op("Optimizer.AdamW.step.0").tensor("input.grad.w", &gradient, &g);
        part.tensor("input.exp_avg.w", &before, &m);
        part.tensor("output.exp_avg.w", &mean(&before, &gradient, 1.0), &mean(&m, &g, by));
        part.tensor("output.exp_avg_sq.w", &square(&gradient), &square(&g)).judged("")
    };
    for error in [0.0, NOISE, 1e-6, 1e-2] {
        assert_eq!(named(&judged(error, 1.0)), [], "{error}");
    }
    let wrong = judged(1e-4, 1.01);
    assert_eq!(named(&wrong), [("Optimizer.AdamW.step.0", Cause::Optimizer)]);
    assert!(
        wrong.findings[0].reason.contains("what is kept of its gradients"),
        "{}",
        wrong.findings[0].reason
    );
    assert_eq!(named(&judged(1e-2, 1.01)), [], "as far off as the gradient");
}

#[test]
fn a_parameter_gradient_that_nothing_leads_to_is_held_against_all_errors_before_it() {
    let g = Drawn::normal(2, &[40, 30]);
    let judged = |error: f64, small: f64| {
        let tanh = x().map(f64::tanh);
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x(), &x());
        part.tensor("output.0", &tanh, &tanh.off(3, NOISE));
        part.op("Module.net.Net.parameters_grad.0").tensor("output.a", &g, &g.off(4, NOISE));
        let cancels = g.map(|value| small * value);
        part.tensor("output.b", &cancels, &cancels.off(5, error)).judged("")
    };
    assert_eq!(named(&judged(1e-16, 1.0)), []);
    assert_eq!(named(&judged(0.3, 1e-17)), [], "a gradient that cancels");
    assert_eq!(named(&judged(0.3, 1.0)), [("Module.net.Net.parameters_grad.0", Cause::Gradient)]);
}

#[test]
fn a_result_that_is_read_in_place_of_a_constant_is_named() {
    let (zeros, tanh) = (x().map(|_| 0.0), x().map(f64::tanh));
    let judged = |read: &Drawn| {
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x(), &x()).tensor("output.0", &tanh, &tanh);
        part.op("Torch.zeros_like.0.forward")
            .tensor("input.0", &x(), &x())
            .tensor("output.0", &zeros, &zeros);
        part.op("Torch.add.0.forward").tensor("input.0", &zeros, read).tensor("input.1", &x(), &x());
        part.tensor("output.0", &x(), &read.with(&x(), |a, b| a + b)).judged("")
    };
    assert_eq!(named(&judged(&zeros)), []);
    let other = judged(&tanh);
    assert_eq!(named(&other), [("Torch.add.0.forward", Cause::Structure)]);
    let reason = &other.findings[0].reason;
    assert!(
        reason.starts_with("reads the result of Torch.tanh.0.forward, the baseline a constant"),
        "{reason}"
    );
}

#[test]
fn a_sum_of_runs_of_equal_terms_rounds_by_their_length() {
    const PLACES: usize = 100;
    let each = Drawn::normal(3, &[6, 4]).map(f64::abs);
    let values = each.values.iter().flat_map(|&value| [value; PLACES]).collect();
    let runs = Drawn { shape: vec![6, 4, PLACES as u64], values };
    let judged = |gradient: &Drawn, error: f64| {
        let mut bias = Drawn { shape: vec![4], values: vec![0.0; 4] };
        for (at, value) in gradient.values.iter().enumerate() {
            bias.values[at / PLACES % 4] += value;
        }
        let mut part = Part::default();
        part.op("Functional.conv2d.0.backward").tensor("input.0", gradient, gradient);
        part.tensor("output.2", &bias, &bias.off(5, error)).judged("")
    };
    let units = 200.0 * f64::EPSILON / 2.0;
    assert_eq!(named(&judged(&runs, units)), []);
    assert_eq!(named(&judged(&runs, 1e-10)).len(), 1);
    assert_eq!(named(&judged(&Drawn::normal(4, &runs.shape), units)).len(), 1, "terms that are no run");
}

#[test]
fn where_a_result_is_kept_changes_no_number() {
    let x = Drawn::normal(25, &[40, 30]).map(f64::abs);
    let judged = |argument: &str| {
        let mut part = Part::default();
        part.op("Functional.relu.0.forward").tensor("input.0", &x, &x);
        part.integer(argument, [Some(1), Some(0)]).tensor("output.0", &x, &x.off(26, NOISE));
        part.judged("").findings.len()
    };
    assert_eq!((judged("kwarg.inplace"), judged("kwarg.slope")), (0, 1));
}

#[test]
fn an_op_that_only_moves_elements_is_named_where_statistics_are_blind() {
    let (x, w) = (Drawn::normal(21, &[40, 30]), Drawn::normal(22, &[20, 30]).map(|value| value + 0.5));
    let moved = Drawn { values: x.values.iter().rev().copied().collect(), ..x.clone() };
    let mut part = Part::of_statistics();
    part.op("Torch.relu.0.forward").tensor("input.0", &x, &x).tensor("output.0", &x, &x);
    part.op_of(1, "Torch.flip.0.forward", &x, &moved);
    part.op("Functional.linear.0.forward").tensor("input.0", &x, &moved).tensor("input.1", &w, &w);
    part.tensor("output.0", &x.linear(&w), &moved.linear(&w));
    assert_eq!(named(&part.judged("")), [("Torch.flip.0.forward", Cause::Structure)]);
}

#[test]
fn a_shift_is_no_dimension_counted_from_the_other_end() {
    let (x, w) = (Drawn::normal(21, &[40, 30]), Drawn::normal(22, &[20, 30]).map(|value| value + 0.5));
    let moved = |by: usize| {
        let mut values = x.values.clone();
        values.rotate_right(by);
        Drawn { values, ..x.clone() }
    };
    let judged = |b: i64, c: i64, path: &str| {
        let [baseline, candidate] = [b, c].map(|by| moved(usize::try_from(by.rem_euclid(1200)).unwrap()));
        let mut part = Part::of_statistics();
        part.op("Tensor.roll.0.forward").tensor("input.0", &x, &x).integer(path, [Some(b), Some(c)]);
        part.tensor("output.0", &baseline, &candidate);
        part.op("Functional.linear.0.forward").tensor("input.0", &baseline, &candidate);
        part.tensor("input.1", &w, &w).tensor("output.0", &baseline.linear(&w), &candidate.linear(&w));
        named(&part.judged("")).first().map(|(op, cause)| ((*op).to_owned(), *cause))
    };
    assert_eq!(judged(1, -1, "input.1.0"), Some(("Tensor.roll.0.forward".to_owned(), Cause::Argument)));
    assert_eq!(judged(7, 7, "input.1.0"), None);
}

#[test]
fn the_call_that_cuts_gradients_off_is_named_for_a_backward_pass_without_them() {
    let (tanh, g) = (x().map(f64::tanh), Drawn::normal(2, &[40, 30]));
    let made = g.map(|value| 0.5 * value);
    let mut part = Part::default();
    part.op("Aten.tanh.0.forward").tensor("input.0", &x(), &x()).tensor("output.0", &tanh, &tanh);
    part.op_of(1, "Aten.detach.0.forward", &tanh, &tanh);
    part.op("Aten.mul.0.backward").tensor("input.0", &g, &g).tensor("output.0", &made, &made);
    let back = made.with(&tanh, |g, y| g * (1.0 - y * y));
    part.op_of(0, "Aten.tanh_backward.0.backward", &made, &back);
    part.op("Aten.neg.0.backward").tensor("input.0", &back, &g);
    part.tensor("output.0", &back.map(|value| -value), &g.map(|value| -value));
    assert_eq!(named(&part.judged("")), [("Aten.detach.0.forward", Cause::Structure)]);
}

#[test]
fn no_op_behind_its_reader_made_what_that_reads() {
    let (w, other) = (Drawn::normal(5, &[20, 30]), Drawn::normal(6, &[20, 30]));
    let judged = |behind: &str| {
        let (b, c) = (x().linear(&w), x().linear(&other));
        let mut part = Part::default();
        part.op("Aten.linear.0.forward").tensor("input.0", &x(), &x()).tensor("input.1", &w, &other);
        part.tensor("output.0", &b, &c).op(behind).tensor("input.0", &b, &b).tensor("output.0", &w, &w);
        part.judged("").findings[0].cause
    };
    assert_eq!(judged("Aten.t.3.backward"), Cause::Input);
}

#[test]
fn what_one_side_writes_in_place_before_a_reader_is_named_for_what_that_reads() {
    let (wide, padded) = (Drawn::normal(7, &[40, 32]), Drawn::normal(8, &[40, 32]));
    let judged = |name: &str| {
        let mut part = Part::default();
        part.op("Torch.tanh.0.forward").tensor("input.0", &x(), &x());
        part.tensor("output.0", &x().map(f64::tanh), &x().map(f64::tanh));
        part.op_of(1, name, &x(), &x());
        part.op("Torch.cos.0.forward").tensor("input.0", &wide, &padded);
        part.tensor("output.0", &wide.map(f64::cos), &padded.map(f64::cos)).judged("")
    };
    assert_eq!(named(&judged("Tensor.copy_.0.forward")), [("Tensor.copy_.0.forward", Cause::Structure)]);
    assert_eq!(named(&judged("Tensor.clone.0.forward")), [("Torch.cos.0.forward", Cause::Input)]);
}

#[test]
fn a_function_that_completes_what_the_other_side_did_at_once_is_written_otherwise() {
    let (masked, mask) = (Drawn::normal(7, &[40, 30]), Drawn::normal(8, &[40, 30]));
    let judged = |done: &Drawn| {
        let (tanh, few) = (x().map(f64::tanh), mask.map(f64::trunc));
        let mut part = Part::default();
        part.op("Aten.tanh.0.forward").tensor("input.0", &x(), &x()).tensor("output.0", &tanh, &tanh);
        part.op_of(1, "Aten.clone.0.forward", &few, &few);
        part.op("Aten.masked_fill.0.forward").tensor("input.0", &tanh, &few);
        part.tensor("output.0", &masked, &mask).op_of(1, "Aten.add.0.forward", &mask, done);
        part.op("Aten._softmax.0.forward").tensor("input.0", &masked, done);
        part.tensor("output.0", &masked.map(f64::tanh), &done.map(f64::tanh));
        part.judged("").findings.len()
    };
    assert_eq!(judged(&masked), 0);
    assert!(judged(&Drawn::normal(9, &[40, 30])) > 0);
}

#[test]
fn what_differs_because_of_a_fault_alone_is_told_from_what_differs_anyhow() {
    let (made, other) = (x().map(f64::tanh), x().map(f64::tanh).off(3, 0.1));
    let mut part = Part::default();
    part.op("Torch.tanh.0.forward").tensor("input.0", &x(), &x()).tensor("output.0", &made, &other);
    part.op("Torch.neg.0.forward").tensor("input.0", &made, &other);
    let [made, other] = [made, other].map(|value| value.map(|value| -value));
    let judged = part.tensor("output.0", &made, &other).judged("");
    assert_eq!(named(&judged), [("Torch.tanh.0.forward", Cause::Numerics)]);
    let of = |op: usize, slot: usize| (judged.slots[op][slot].verdict, judged.slots[op][slot].follows);
    assert_eq!((of(0, 0), of(1, 1)), ((Verdict::BitEqual, false), (Verdict::Differs, true)));
}

#[test]
fn dimensions_that_mean_the_same_are_no_argument_whatever_the_result() {
    let (x, other) = (Drawn::normal(2, &[4, 5, 6]), Drawn::normal(3, &[4, 6, 5]));
    let judged = |dimension: i64| {
        let mut part = Part::default();
        part.op("Aten.transpose.0.forward").tensor("input.0", &x, &x);
        part.integer("input.1", [Some(1), Some(-2)]).integer("input.2", [Some(2), Some(dimension)]);
        part.tensor("output.0", &other, &other.off(5, 0.2)).judged("").findings[0].cause
    };
    assert_eq!((judged(-1), judged(0)), (Cause::Numerics, Cause::Argument));
}

#[test]
fn two_differences_do_not_excuse_one_another() {
    let (weight, value) = (Drawn::normal(5, &[20, 30]), x().map(f64::tanh));
    let (factor, rounded) =
        (weight.map(f64::tanh), |value: &Drawn| value.map(|value| (64.0 * value).round() / 64.0));
    let floored = |value: &Drawn| value.map(|value| (64.0 * value).floor() / 64.0);
    let mut part = Part::default();
    for (call, (given, made)) in [(&x(), &value), (&weight, &factor)].into_iter().enumerate() {
        part.op(&format!("Torch.tanh.{call}.forward")).tensor("input.0", given, given);
        part.tensor("output.0", made, made);
        part.op_of(0, &format!("Torch.round.{call}.forward"), made, &rounded(made));
        part.op_of(1, &format!("Torch.floor.{call}.forward"), made, &floored(made));
    }
    let [b, c] = [rounded(&value).linear(&rounded(&factor)), floored(&value).linear(&floored(&factor))];
    part.op("Functional.linear.0.forward").tensor("input.0", &rounded(&value), &floored(&value));
    part.tensor("input.1", &rounded(&factor), &floored(&factor)).tensor("output.0", &b, &c);
    part.op("Torch.neg.0.forward").tensor("input.0", &b, &c);
    part.tensor("output.0", &b.map(|value| -value), &c.map(|value| -value));
    assert_eq!(named(&part.judged("")), [("Torch.floor.0.forward", Cause::Structure)]);
}
