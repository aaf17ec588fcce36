//! Gradients of parameters, which are sums of what the backward pass makes.

use super::{NOISE, named};
use crate::Cause;
use crate::drawn::{Drawn, Part};
use crate::expected::GradientErrors;
use crate::setting::Setting;
use crate::wiring;

/// Gradients of four parameters, all off by `error` where the backward pass is off by `made`.
fn named_with(made: f64, error: f64) -> Vec<(String, Cause)> {
    let mut part = Part::default();
    for call in 0..4 {
        let (x, y) = (Drawn::normal(call, &[40, 30]), Drawn::normal(call + 9, &[40, 30]));
        part.op(&format!("Functional.silu.{call}.backward")).tensor("input.0", &x, &x.off(call + 20, made));
        part.tensor("output.0", &y, &y.off(call + 30, made));
    }
    for call in 0..4 {
        let g = Drawn::normal(call + 40, &[40, 30]);
        part.op(&format!("Module.layers.{call}.Linear.parameters_grad.1"));
        part.tensor("output.0", &g, &g.off(call + 50, error));
    }
    let judged = part.judged("");
    named(&judged).into_iter().map(|(op, cause)| (op.to_owned(), cause)).collect()
}

#[test]
fn gradients_that_are_no_sum_of_what_was_made_are_named() {
    let first = ("Module.layers.0.Linear.parameters_grad.1".to_owned(), Cause::Gradient);
    assert_eq!(named_with(NOISE, NOISE), []);
    assert_eq!(named_with(NOISE, 0.6), [first], "what the first of two batches left was dropped");
}

#[test]
fn clipping_scales_all_gradients_by_the_norm_of_all() {
    let (small, large) = (Drawn::normal(71, &[8, 4]), Drawn::normal(72, &[40, 30]));
    let is_named = |of_large: f64| {
        let mut part = Part::default();
        part.op("Optimizer.SGD.step.0");
        let scaled = |drawn: &Drawn| drawn.map(|value| 1.0001 * value);
        part.tensor("input.grad.norm.weight", &small, &scaled(&small));
        part.tensor("input.grad.head.weight", &large, &scaled(&large));
        let made = [("norm", 1e-7), ("head", of_large)]
            .map(|(module, error)| ((module.into(), "weight".into()), error));
        let gradients = GradientErrors::from(made);
        part.flow(|flow| wiring::changed_gradient(flow, &Setting::of(flow.pair), &gradients, 0)).is_some()
    };
    assert!(is_named(1e-7), "nothing else is off by as much");
    assert!(!is_named(1e-3));
}

#[test]
fn the_gradient_of_a_softmax_that_is_called_for_is_what_its_mean_leaves() {
    // Probabilities that are nearly alike, and a gradient that is nearly one number in each row.
    let p = Drawn::normal(31, &[40, 30]).map(|value| (1.0 + 0.05 * value) / 30.0);
    let g = Drawn::normal(32, &[40, 30]).map(|value| 1.0 + 2e-3 * value);
    let made = |g: &Drawn| {
        let product = g.with(&p, |g, p| g * p);
        let row = |at: usize| product.values[at / 30 * 30..][..30].iter().sum::<f64>();
        let values = product.values.iter().zip(&p.values).enumerate();
        Drawn { values: values.map(|(at, (product, p))| product - p * row(at)).collect(), ..g.clone() }
    };
    let judged = |error: f64| {
        let other = g.off(33, 1e-7);
        let mut part = Part::of_binary32();
        part.op("Torch._softmax_backward_data.0.backward").tensor("input.0", &g, &other);
        part.tensor("input.1", &p, &p).tensor("output.0", &made(&g), &made(&other).off(34, error));
        part.judged("").findings.len()
    };
    assert_eq!(judged(0.0), 0);
    assert_eq!(judged(0.5), 1);
}

#[test]
fn rows_that_are_off_alike_and_cancel_leave_their_common_error() {
    // The gradient behind a mean over 400 places, of two samples that pull in opposite directions.
    let sample = Drawn::normal(37, &[1, 30]);
    let rows = |first: &Drawn, second: &Drawn| Drawn {
        shape: vec![800, 30],
        values: (0..800)
            .flat_map(|at| if at < 400 { &first.values } else { &second.values })
            .copied()
            .collect(),
    };
    let sum = |first: &Drawn, second: &Drawn| first.with(second, |a, b| 400.0 * (a + b));
    let judged = |mut part: Part, pulls: f64, error: f64| {
        let other = sample.map(|value| -pulls * value);
        let (first, second) = (sample.off(38, 1e-2), other.off(39, 1e-2));
        let (b, c) = (rows(&sample, &other), rows(&first, &second));
        part.op("Aten.tanh.0.forward").tensor("input.0", &b, &c).tensor("output.0", &b, &c);
        part.op("Aten.sum.0.backward").tensor("input.0", &b, &c);
        part.tensor("output.0", &sum(&sample, &other), &sum(&first, &second).off(40, error));
        named(&part.judged("")).iter().any(|(op, _)| op.contains("sum"))
    };
    assert!(!judged(Part::of_later_step(), 0.95, 0.0));
    assert!(judged(Part::of_later_step(), 0.95, 5.0));
    assert!(!judged(Part::default(), 0.97, 0.0), "less than half of what uncorrelated rows have");
}

#[test]
fn the_gradient_at_a_label_that_is_all_but_certain_is_rounded_as_1_is() {
    let (logits, labels) = (Drawn::normal(40, &[40, 30]), Drawn::normal(41, &[40]));
    let judged = |size: f64, error: f64| {
        // Probabilities less the label's 1, of the mean over 40 rows.
        let gradient = Drawn::normal(42, &[40, 30]).map(|value| size * value / 40.0 / 30_f64.sqrt());
        let one = Drawn { shape: vec![1], values: vec![1.0] };
        let mut part = Part::of_binary32();
        part.op("Functional.cross_entropy.0.forward").tensor("input.0", &logits, &logits);
        part.tensor("input.1", &labels, &labels).integers_of(&[0, 1]).tensor("output.0", &one, &one);
        part.op("Functional.cross_entropy.0.backward").tensor("input.0", &one, &one);
        part.tensor("output.0", &gradient, &gradient.off(43, error)).judged("").findings.len()
    };
    assert_eq!(judged(1.0, 6e-5), 1);
    assert_eq!(judged(5e-4, 6e-5), 0);
    assert_eq!(judged(5e-4, 2e-2), 1);
}

#[test]
fn a_gradient_to_which_many_places_of_a_kernel_add_is_rounded_as_often() {
    let (x, g) = (Drawn::normal(60, &[2, 8, 200]), Drawn::normal(61, &[2, 8, 200]));
    let is_named = |function: &str, size: u64, error: f64| {
        let kernel = Drawn::normal(62, &[8, 8, size]).map(|value| value / (8.0 * size as f64).sqrt());
        let mut part = Part::default();
        part.op(&format!("Functional.{function}.0.forward")).tensor("input.0", &x, &x).binary16();
        part.tensor("input.1", &kernel, &kernel).binary16().tensor("output.0", &g, &g).binary16();
        part.op(&format!("Functional.{function}.0.backward")).tensor("input.0", &g, &g).binary16();
        part.tensor("output.0", &x, &x.off(63, error)).binary16();
        !part.judged("").findings.is_empty()
    };
    assert!(is_named("conv1d", 1, 4e-3));
    // The root of half of 128 is 8.
    assert!(!is_named("conv1d", 128, 4e-3));
    assert!(is_named("conv1d", 128, 3e-2));
    assert!(is_named("conv_transpose1d", 128, 4e-3));
}

#[test]
fn gradients_that_autograd_adds_up_in_a_module_may_cancel() {
    // What a mean over places makes of a gradient that is nearly its own mean, less that gradient.
    let g = Drawn::normal(44, &[40, 30]);
    let left = Drawn::normal(45, &[40, 30]).map(|value| 0.01 * value);
    let judged = |error: f64, inside: bool| {
        let pooled = g.with(&left, |g, left| g + left);
        let other = pooled.off(46, error);
        let mut part = Part::of_binary32();
        if inside {
            part.op("Module.block.pool.AvgPool2d.backward.0").tensor("input.0", &g, &g);
            part.tensor("output.0", &pooled, &other);
        }
        part.op("Module.block.Pooling.backward.0").tensor("input.0", &g, &g);
        part.tensor("output.0", &left, &other.with(&g, |other, g| other - g)).judged("").findings.len()
    };
    assert_eq!(judged(2e-7, true), 0);
    assert_eq!(judged(2e-7, false), 1);
    assert!(judged(1e-3, true) > 0);
}

#[test]
fn a_gradient_of_which_the_readers_make_opposite_parts_is_measured_by_these() {
    let (x, y, g) =
        (Drawn::normal(47, &[40, 30]), Drawn::normal(48, &[40, 30]), Drawn::normal(49, &[40, 30]));
    let noise = |seed| Drawn::normal(seed, &[40, 30]).map(|value| 3e-8 * value);
    let made = x.with(&y, f64::max);
    let minus = g.map(|value| -value);
    let judged = |readers: usize| {
        let mut part = Part::of_binary32();
        part.op("Torch.maximum.0.forward").tensor("input.0", &x, &x).tensor("input.1", &y, &y);
        part.tensor("output.0", &made, &made);
        for reader in 0..readers {
            part.op(&format!("Tensor.__sub__.{reader}.forward")).tensor("input.0", &x, &x);
            part.tensor("input.1", &made, &made);
            let less = x.with(&made, |x, made| x - made);
            part.tensor("output.0", &less, &less);
        }
        for reader in 0..readers {
            let part_of = if reader == 0 { &g } else { &minus };
            part.op(&format!("Tensor.__sub__.{reader}.backward")).tensor("input.0", part_of, part_of);
            part.tensor("output.1", &part_of.map(|value| -value), &part_of.map(|value| -value));
        }
        part.op("Torch.maximum.0.backward").tensor("input.0", &noise(50), &noise(51));
        named(&part.judged("")).len()
    };
    assert_eq!(judged(2), 0);
    assert_eq!(judged(0), 1);
}

#[test]
fn a_norm_is_rounded_as_a_sum_of_its_elements_is() {
    let of_one = |value: f64| Drawn { shape: vec![1], values: vec![value] };
    let judged = |rows: u64| {
        let x = Drawn::normal(52, &[rows, 400]);
        let mut part = Part::of_binary32();
        part.op("Tensor.norm.0.forward").tensor("input.0", &x, &x);
        part.tensor("output.0", &of_one(x.norm()), &of_one(x.norm() * (1.0 + 5e-6)));
        part.judged("").findings.len()
    };
    assert_eq!((judged(512), judged(2)), (0, 1));
}

#[test]
fn what_a_product_multiplies_by_zero_is_not_read() {
    // Megatron's attention passes memory that nobody has written to `baddbmm`, also where a fault is behind it.
    let (memory, other) =
        (Drawn::normal(90, &[4, 6, 6]), Drawn::normal(91, &[4, 6, 6]).map(|value| 1e20 * value));
    let (q, k) = (Drawn::normal(92, &[4, 6, 8]), Drawn::normal(93, &[4, 8, 6]));
    let made = Drawn::normal(94, &[4, 6, 6]);
    let accused = |beta: f64| {
        let mut part = Part::of_binary32();
        part.op("Tensor.view.0.forward")
            .tensor("input.0", &memory, &other)
            .tensor("output.0", &memory, &other);
        part.op("Torch.baddbmm.0.forward").tensor("input.0", &memory, &other).tensor("input.1", &q, &q);
        part.tensor("input.2", &k, &k).number("kwarg.beta", [Some(beta), Some(beta)]);
        part.tensor("output.0", &made, &made);
        part.op("Functional.silu.0.forward").tensor("input.0", &made, &made);
        part.tensor("output.0", &q, &q.off(95, 0.3));
        part.judged("").findings.first().map(|finding| finding.op.clone())
    };
    assert_eq!(accused(0.0).as_deref(), Some("Functional.silu.0.forward"));
    assert_eq!(accused(1.0).as_deref(), Some("Tensor.view.0.forward"));
}

#[test]
fn a_parameter_that_a_function_reads_first_has_no_error_of_what_came_before_it() {
    let (x, weight) = (Drawn::normal(96, &[64, 32]), Drawn::normal(97, &[48, 32]));
    let other = weight.off(98, 1.5e-2);
    let accused = |is_listed: bool| {
        let mut part = Part::default();
        part.op("Functional.gelu.0.forward").tensor("input.0", &x, &x.off(99, 1e-2)).binary16();
        part.tensor("output.0", &x, &x.off(99, 1e-2)).binary16();
        part.op("Tensor.t.0.forward").tensor("input.0", &weight, &other).binary16();
        part.tensor("output.0", &weight, &other).binary16();
        if is_listed {
            part.op("Module.fc1.Linear.forward.0").tensor("parameter.weight", &weight, &other).binary16();
        }
        part.judged("")
            .findings
            .iter()
            .any(|finding| finding.slot.ends_with("weight") || finding.op.starts_with("Tensor.t"))
    };
    assert!(accused(true));
    assert!(!accused(false));
}
