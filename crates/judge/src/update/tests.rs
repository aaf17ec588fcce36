//! Changes of a weight, as its sketches tell them.

use std::sync::Arc;

use super::Change;
use crate::drawn::Drawn;
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
