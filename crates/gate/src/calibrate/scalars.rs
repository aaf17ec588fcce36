//! Bounds of scalars.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{FACTOR, LEAST, literal, rounded_up};
use crate::import::Scalars;
use crate::policy::is_of_speed;

/// Measurements of one scalar.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Its name.
    pub name: String,
    /// Runs that have it.
    pub runs: usize,
    /// Steps that all of these runs have.
    pub steps: usize,
    /// Largest relative difference of two runs at a step; `None` if all runs are bit-equal.
    pub relative: Option<f64>,
    /// Largest mean of the signed relative differences of two runs.
    pub bias: f64,
}

impl Spread {
    /// Returns the largest relative difference allowed; 0 if values must be equal.
    pub fn bound(&self) -> f64 {
        rounded_up(self.relative.unwrap_or(0.0) * FACTOR)
    }

    /// Returns the largest allowed mean of the signed relative differences.
    pub fn bias_bound(&self) -> f64 {
        rounded_up(self.bias * FACTOR)
    }
}

/// Returns the spread of every scalar that all runs have, except measures of speed.
///
/// # Errors
/// Names the scalar that cannot be calibrated, and the reason.
pub fn spreads(runs: &[Scalars]) -> Result<Vec<Spread>, String> {
    if runs.len() < LEAST {
        return Err(format!("{} runs: a spread needs {LEAST} or more runs of one commit", runs.len()));
    }
    let Some((first, others)) = runs.split_first() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (name, series) in first {
        if is_of_speed(name) {
            continue;
        }
        let all: Vec<&BTreeMap<u64, f64>> =
            std::iter::once(series).chain(others.iter().filter_map(|run| run.get(name))).collect();
        if all.len() < runs.len() {
            return Err(format!(
                "scalar {name:?} is in {} of {} runs; are these runs of one commit?",
                all.len(),
                runs.len()
            ));
        }
        let steps: Vec<u64> =
            series.keys().copied().filter(|step| all.iter().all(|run| run.contains_key(step))).collect();
        if steps.len() < all.iter().map(|run| run.len()).max().unwrap_or(0) {
            return Err(format!(
                "scalar {name:?}: the runs have different steps; calibrate with complete runs"
            ));
        }
        if let Some(step) = steps.iter().find(|step| all.iter().any(|run| !run[*step].is_finite())) {
            return Err(format!("scalar {name:?} step {step} is not finite; no bound can hold there"));
        }
        let mut relative = None;
        let mut bias: f64 = 0.0;
        for (index, a) in all.iter().enumerate() {
            for b in all.iter().skip(index + 1) {
                // A bound is relative to the baseline, and either run may be the baseline.
                for (base, other) in [(a, b), (b, a)] {
                    let mut sum = 0.0;
                    for step in &steps {
                        let (x, y) = (base[step], other[step]);
                        if x.to_bits() != y.to_bits() {
                            let off = if x.abs() > 0.0 { (y - x) / x.abs() } else { f64::INFINITY };
                            relative = Some(f64::max(relative.unwrap_or(0.0), off.abs()));
                            sum += off;
                        }
                    }
                    bias = bias.max((sum / steps.len() as f64).abs());
                }
            }
        }
        if relative.is_some_and(f64::is_infinite) {
            return Err(format!(
                "scalar {name:?} is 0 in one run and not in another; give it an atol by hand"
            ));
        }
        found.push(Spread { name: name.clone(), runs: runs.len(), steps: steps.len(), relative, bias });
    }
    Ok(found)
}

/// Returns the policy rules for these spreads, each annotated with the measurements behind it.
pub fn scalar_rules(spreads: &[Spread]) -> String {
    let mut text = String::new();
    for spread in spreads {
        let name = toml::Value::String(literal(&spread.name));
        _ = write!(text, "\n[[scalar]]\nname = {name}\n");
        match spread.relative {
            None => {
                _ = writeln!(
                    text,
                    "exact = true  # {} runs bit-equal at {} steps",
                    spread.runs, spread.steps
                );
            }
            Some(relative) => {
                _ = writeln!(
                    text,
                    "rtol = {:e}  # {} runs, {} steps, largest spread {relative:.3e}",
                    spread.bound(),
                    spread.runs,
                    spread.steps
                );
                _ = writeln!(
                    text,
                    "bias = {:e}  # largest mean difference of two runs {:.3e}",
                    spread.bias_bound(),
                    spread.bias
                );
            }
        }
    }
    text
}

/// Returns the scalars of a run with one value of `name` moved by twice its bound, or by the smallest possible amount if it must be
/// equal.
pub fn perturbed(run: &Scalars, spread: &Spread) -> Scalars {
    let mut run = run.clone();
    if let Some(value) = run.get_mut(&spread.name).and_then(|series| series.values_mut().last()) {
        let bound = spread.bound();
        *value = if bound > 0.0 {
            *value + 2.0 * bound * value.abs()
        } else {
            f64::from_bits(value.to_bits() ^ 1)
        };
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Series;

    fn run(values: &[f64]) -> Scalars {
        Scalars::from([(
            "loss".into(),
            values.iter().enumerate().map(|(step, value)| (step as u64, *value)).collect::<Series>(),
        )])
    }

    #[test]
    fn equal_runs_are_exact_and_others_twice_their_spread() {
        let same = [run(&[1.0, 2.0]), run(&[1.0, 2.0]), run(&[1.0, 2.0])];
        let found = spreads(&same).unwrap();
        assert_eq!(found[0].relative, None);
        assert!(scalar_rules(&found).contains("exact = true  # 3 runs bit-equal at 2 steps"));
        let apart = [run(&[1.0, 2.0]), run(&[1.0, 2.02]), run(&[1.0, 1.98])];
        let found = spreads(&apart).unwrap();
        let expected = 0.04 / 1.98;
        assert!((found[0].relative.unwrap() - expected).abs() < 1e-12);
        // 0.040404..., to three digits.
        assert!((found[0].bound() - 0.0405).abs() < 1e-12);
        assert!(scalar_rules(&found).contains("rtol = 4.05e-2  # 3 runs, 2 steps, largest spread 2.020e-2"));
        let moved = perturbed(&apart[0], &found[0]);
        assert!((moved["loss"][&1] / 2.0 - 1.0 - 2.0 * 0.0405).abs() < 1e-12);
        for (runs, expected) in [
            (vec![run(&[1.0]), run(&[1.0])], "2 runs"),
            (vec![run(&[1.0]), run(&[1.0]), run(&[1.0, 2.0])], "different steps"),
            (vec![run(&[1.0]), run(&[1.0]), Scalars::new()], "2 of 3 runs"),
            (vec![run(&[1.0]), run(&[1.0]), run(&[f64::NAN])], "not finite"),
            (vec![run(&[0.0]), run(&[0.0]), run(&[1.0])], "is 0 in one run"),
        ] {
            let message = spreads(&runs).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
