//! What an op conserves shows its fault beside any noise.

use crate::drawn::{Drawn, Part};
use crate::expected::Walk;
use crate::setting::Setting;

/// Returns how many times more the last value of the part is off than its inputs and rounding explain.
fn beyond(part: &Part) -> f64 {
    part.flow(|flow| {
        let found = Walk::over(flow, &Setting::of(flow.pair), 0.0);
        let last = found.values.last().unwrap();
        last.error / last.explained.max(last.least)
    })
}

#[test]
fn a_copy_has_the_norm_of_what_it_reads() {
    let (x, y) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[20, 30]));
    let (x_off, y_off) = (x.off(3, 1e-3), y.off(4, 1e-3));
    let joined = |x: &Drawn, y: &Drawn| Drawn {
        shape: vec![60, 30],
        values: x.values.iter().chain(&y.values).copied().collect(),
    };
    let judged = |made: &Drawn| {
        let mut part = Part::of_statistics();
        part.op("Torch.cat.0.forward").tensor("input.0.0", &x, &x_off).tensor("input.0.1", &y, &y_off);
        beyond(part.tensor("output.0", &joined(&x, &y), made))
    };
    let sound = joined(&x_off, &y_off);
    assert!(judged(&sound) < 2.0);
    let mut lost = sound.clone();
    lost.values[1000..1010].fill(0.0);
    assert!(judged(&lost) > 100.0);
    let mut moved = sound;
    moved.values.rotate_left(30);
    assert!(judged(&moved) < 2.0, "statistics do not show that");
}

#[test]
fn a_mask_may_choose_otherwise() {
    let (x, mask) = (Drawn::normal(7, &[40, 30]), Drawn::normal(8, &[40, 30]));
    let off = x.off(9, 1e-2);
    let mut chosen = off.clone();
    chosen.values[600] = 0.0;
    let judged = |masked: bool| {
        let mut part = Part::of_statistics();
        part.op("Tensor.masked_fill.0.forward").tensor("input.0", &x, &off);
        if masked {
            part.tensor("input.1", &mask, &mask).integers_of(&[0, 1]);
        }
        beyond(part.tensor("output.0", &x, &chosen))
    };
    assert!(judged(true) < 2.0);
    assert!(judged(false) > 100.0);
}

#[test]
fn probabilities_of_a_row_add_up_to_one() {
    let x = Drawn::normal(5, &[40, 30]);
    let off = x.off(6, 1e-2);
    let softmax = |x: &Drawn, faulty: f64| {
        let mut made = x.map(f64::exp);
        for (at, row) in made.values.chunks_mut(30).enumerate() {
            let sum: f64 = row.iter().sum();
            let factor = if at == 7 { faulty } else { 1.0 } / sum;
            for value in row {
                *value *= factor;
            }
        }
        made
    };
    let judged = |faulty: f64| {
        let mut part = Part::of_statistics();
        part.op("Functional.softmax.0.forward").tensor("input.0", &x, &off);
        beyond(part.tensor("output.0", &softmax(&x, 1.0), &softmax(&off, faulty)).binary32())
    };
    assert!(judged(1.0) < 2.0);
    assert!(judged(1.2) > 100.0);
    let mut part = Part::of_statistics();
    part.op("Functional.softmax.0.forward").tensor("input.0", &x, &x);
    part.tensor("output.0", &softmax(&x, 1.0), &softmax(&x, 1.2)).binary32();
    let reason = &part.judged("").findings[0].reason;
    assert!(reason.contains("its rows do not add up to 1: off by 5.0e-3"), "{reason}");
}

#[test]
fn probabilities_that_nobody_recorded_the_making_of_add_up_to_one() {
    let x = Drawn::normal(5, &[40, 30]);
    let softmax = |x: &Drawn, by: f64| {
        let exp = x.map(f64::exp);
        let sum = |at: usize| exp.values[at / 30 * 30..][..30].iter().sum::<f64>();
        let values = exp.values.iter().enumerate().map(|(at, value)| by * value / sum(at));
        Drawn { values: values.collect(), ..exp.clone() }
    };
    let off = x.off(6, 0.05);
    let named = |by: f64| {
        let (b, c) = (softmax(&x, 1.0), softmax(&off, by));
        let mut part = Part::of_binary32().later();
        part.op("Module.block.scores.Scores.forward.0").tensor("input.0", &x, &x.off(7, 0.05));
        part.tensor("output.0", &x, &off);
        part.op("Module.block.dropout.Dropout.forward.0")
            .tensor("input.0", &b, &c)
            .tensor("output.0", &b, &c);
        let found = part.judged("").findings;
        found.into_iter().any(|found| found.op.contains("dropout"))
    };
    assert!(!named(1.0));
    assert!(named(1.01));
}
