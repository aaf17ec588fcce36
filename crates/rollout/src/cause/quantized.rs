//! A quantised engine. Its noise has neither a level nor a shape of its own: in the samples of vLLM, updates of the weights left the same
//! spread over words, tails and positions. A pass of the trainer with weights quantised in the same way tells: it comes closer to the
//! engine's values if they were made so, and no closer otherwise.

use std::collections::HashMap;

use super::{Case, Cause};
use crate::measure::{Measures, chance_beyond};
use crate::table::{TRAINER, Table};

/// Share of the mean of |d| that may be left. Passes quantised as the engine left at most 0.01 in float32
/// and 0.77 in bfloat16, where its rounding is left; those of pairs with another cause 0.97 and more.
const LEFT: f64 = 0.85;
/// Chance below which the pass is said to be closer.
const CHANCE: f64 = 1e-3;
/// Fewest tokens.
const FEWEST: usize = 24;

/// Takes `quantized`, a table of the trainer's quantised pass, in place of the trainer where it is closer to the engine, and says so.
pub(super) fn quantized(case: &mut Case<'_>, quantized: &Table, rest: &Measures) {
    let second = values(case, quantized);
    let (mut closer, mut count, mut sums) = (0_usize, 0_usize, [0.0_f64; 2]);
    for (at, second) in second.iter().enumerate().filter_map(|(at, second)| Some((at, (*second)?))) {
        let [first, second] = [case.pairs.p[at], second].map(|p| f64::from((p - case.pairs.g[at]).abs()));
        closer += usize::from(second < first);
        count += 1;
        sums = [sums[0] + first, sums[1] + second];
    }
    if count == 0 {
        return;
    }
    if count < FEWEST {
        case.notes.push(format!("the quantised pass has {count} of the compared tokens, too few to tell"));
        return;
    }
    let [first, new] = sums.map(|sum| sum / count as f64);
    // Tokens of a sequence share a part of their error: they count for half.
    let deviations = (closer as f64 - count as f64 / 2.0) / (count as f64 / 2.0).sqrt();
    let chance = chance_beyond(deviations.max(0.0));
    let said = format!(
        "with weights quantised, mean |d| of the trainer is {new:.2e} in place of {first:.2e}, and {:.0} % of {count} tokens are closer",
        100.0 * closer as f64 / count as f64
    );
    if rest.mean_abs <= case.bound || new > LEFT * first || chance > CHANCE {
        case.notes.push(said);
        return;
    }
    let before = case.pairs.total();
    for (p, second) in case.pairs.p.iter_mut().zip(second) {
        *p = second.unwrap_or(*p);
    }
    let evidence = format!("{said}: the engine computes with quantised weights");
    case.found(Cause::Quantized, before, evidence, Some(chance), Vec::new());
}

/// Returns the value of each compared token in the second pass.
fn values(case: &Case<'_>, second: &Table) -> Vec<Option<f32>> {
    let own: HashMap<(u64, &str), usize> =
        second.samples.iter().enumerate().map(|(at, sample)| ((sample.step, &*sample.name), at)).collect();
    let mut values = vec![None; case.pairs.len()];
    for row in &case.pairs.rows {
        let sample = &case.table.samples[row.sample];
        let Some(&other) = own.get(&(sample.step, &*sample.name)) else { continue };
        let range = second.samples[other].range.clone();
        let positions = &second.tokens.positions[range.clone()];
        for at in row.range.clone() {
            let position = case.table.tokens.positions[case.pairs.place[at]];
            let Ok(found) = positions.binary_search(&position) else { continue };
            let place = range.start + found;
            let value = second.tokens.trainer[place];
            if second.tokens.flags[place] & TRAINER != 0 && value.is_finite() {
                values[at] = Some(value);
            }
        }
    }
    values
}
