//! A quantised engine. Its noise has neither a level nor a shape of its own: in the samples of vLLM, updates of the weights left the same
//! spread over words, tails and positions. A pass of the trainer with weights quantised in the same way tells: it comes closer to the
//! engine's values if they were made so, and no closer otherwise.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Case, Cause};
use crate::measure::{Measures, chance_beyond, ranks};
use crate::table::{TRAINER, Table};

/// Share of the mean of |d| that may be left. Passes quantised as the engine left at most 0.07 in float32
/// and 0.77 in bfloat16, where its rounding is left; those of pairs with another cause 0.97 and more.
const LEFT: f64 = 0.85;
/// Share of the error of quantisation that the other rounding of two programs leaves, where a value lies between two that are kept: passes
/// quantised as the engine left up to 0.07 in float32, with 144 tokens.
const FLIPS: f64 = 0.1;
/// Chance below which the pass is said to be closer.
const CHANCE: f64 = 1e-3;
/// Fewest tokens.
const FEWEST: usize = 24;

/// Takes `quantized`, a table of the trainer's quantised pass, in place of the trainer where it is closer to the engine, and says so.
pub(super) fn quantized(case: &mut Case<'_>, quantized: &Table, rest: &Measures) {
    let second = values(case, quantized);
    let (mut gains, mut sums) = (Vec::new(), [0.0_f64; 2]);
    for (at, second) in second.iter().enumerate().filter_map(|(at, second)| Some((at, (*second)?))) {
        let [first, second] = [case.pairs.p[at], second].map(|p| f64::from((p - case.pairs.g[at]).abs()));
        sums = [sums[0] + first, sums[1] + second];
        gains.push(first - second);
    }
    let count = gains.len();
    if count == 0 {
        return;
    }
    if count < FEWEST {
        case.notes.push(format!("the quantised pass has {count} of the compared tokens, too few to tell"));
        return;
    }
    let [first, new] = sums.map(|sum| sum / count as f64);
    // Tokens of a sequence share a part of their error: they count for half.
    let deviations = signed_ranks(&gains) / std::f64::consts::SQRT_2;
    let chance = chance_beyond(deviations.max(0.0));
    let said = format!(
        "with weights quantised, mean |d| of the trainer is {new:.2e} in place of {first:.2e} ({count} tokens, {deviations:.1} standard errors)"
    );
    if rest.mean_abs <= case.bound || new > LEFT * first || chance > CHANCE {
        case.notes.push(said);
        return;
    }
    let before = case.pairs.total();
    // Passes that are not quantised do not show what rounding makes of quantised ones.
    case.bound = case.bound.max(case.assumed).max(FLIPS * first);
    for (p, second) in Arc::make_mut(&mut case.pairs).p.iter_mut().zip(second) {
        *p = second.unwrap_or(*p);
    }
    let evidence = format!("{said}: the engine computes with quantised weights");
    case.found(Cause::Quantized, before, evidence, Some(chance), Vec::new());
}

/// Returns the standard deviations by which positive values outrank negative ones (Wilcoxon's signed ranks). It is 0 on average where values
/// are as often and as far above 0 as below.
fn signed_ranks(values: &[f64]) -> f64 {
    let values: Vec<f64> = values.iter().copied().filter(|value| value.abs() > 0.0).collect();
    let sizes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
    let (mut sum, mut square) = (0.0, 0.0);
    for (value, rank) in values.iter().zip(ranks(&sizes)) {
        let rank = rank + 1.0;
        sum += rank.copysign(*value);
        square += rank * rank;
    }
    if square > 0.0 { sum / square.sqrt() } else { 0.0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_ranks_are_those_of_wilcoxon() {
        // Ranks 1 to 10; the third is negative, and the fourth and fifth share 4.5 with opposite signs.
        let values = [1.0, 2.0, -3.0, 4.5, -4.5, 6.0, 7.0, 8.0, 9.0, 10.0];
        let squares = 385.0 - 16.0 - 25.0 + 2.0 * 4.5 * 4.5;
        let expected = (1.0 + 2.0 - 3.0 + 6.0 + 7.0 + 8.0 + 9.0 + 10.0) / f64::sqrt(squares);
        assert!((signed_ranks(&values) - expected).abs() < 1e-12);
        assert!(signed_ranks(&[0.0, 1.0, -1.0]).abs() < 1e-12);
    }
}
