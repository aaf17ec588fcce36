//! Masks, end tokens, values that nobody wrote: what can be seen without any statistic.

use std::ops::Range;

use super::{Case, Cause};
use crate::table::{COUNTED, ROLLOUT, Table};

/// Share of the rows that must be moved alike. A mask is built by one piece of code for all rows.
const MOST: f64 = 0.9;

/// Share of sampled tokens without probability in the trainer below which both sides merely disagree about the edge of top-p. In
/// bfloat16, 2 of 1,000 were measured on a sound pair.
const EDGE: f64 = 0.005;
/// Standard deviations of a number of tokens, as of a rare event, that are no more than the usual.
const DEVIATIONS: f64 = 3.0;

/// Takes out values that are not finite.
pub(super) fn non_finite(case: &mut Case<'_>) {
    let pairs = &case.pairs;
    let (mut nan, mut lost, mut first) = (0_u64, 0_u64, None);
    for at in 0..pairs.len() {
        let (g, p) = (pairs.g[at], pairs.p[at]);
        if g.is_finite() && p.is_finite() {
            continue;
        }
        let only_lost = g.is_finite() && p.is_infinite() && p < 0.0;
        *if only_lost { &mut lost } else { &mut nan } += 1;
        if !only_lost && first.is_none() {
            first = Some((pairs.place[at], g, p));
        }
    }
    if nan + lost == 0 {
        return;
    }
    let all = pairs.len() as f64;
    case.keep(|pairs, at| pairs.g[at].is_finite() && pairs.p[at].is_finite());
    if let Some((place, g, p)) = first {
        let sample = sample_of(case, place);
        let evidence = format!(
            "{nan} tokens have no finite value, the first in sample {} at position {}: rollout {g}, trainer {p}",
            case.names(&[sample]),
            case.table.tokens.positions[place]
        );
        case.findings.push(super::Finding {
            cause: Cause::NonFinite,
            evidence,
            share: None,
            chance: None,
            samples: Vec::new(),
        });
    }
    let share = lost as f64 / all.max(1.0);
    if lost == 0 {
        return;
    }
    let said = format!("{lost} sampled tokens have probability 0 in the trainer ({:.2} %)", 100.0 * share);
    let usual = EDGE * all;
    if lost as f64 <= usual + DEVIATIONS * usual.sqrt() {
        case.notes.push(format!("{said}: both sides truncate, and rounding decides which tokens are kept"));
    } else {
        let evidence =
            format!("{said}: it truncates (top-p, top-k) to other tokens than the engine sampled from");
        case.findings.push(super::Finding {
            cause: Cause::Truncation,
            evidence,
            share: None,
            chance: None,
            samples: Vec::new(),
        });
    }
}

fn sample_of(case: &Case<'_>, place: usize) -> usize {
    let row = case.samples.clone().find(|sample| case.table.samples[*sample].range.contains(&place));
    row.unwrap_or(case.samples.start)
}

/// Returns true for a token that the engine has a value of. In files that pad with 0, 0 is none.
fn sampled(table: &Table, place: usize) -> bool {
    table.tokens.flags[place] & ROLLOUT != 0 && table.tokens.rollout[place].abs() > 0.0
}

/// Returns first and last place of a sample that `holds`.
fn extent(range: &Range<usize>, holds: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
    let first = range.clone().find(|place| holds(*place))?;
    range.clone().rev().find(|place| holds(*place)).map(|last| (first, last))
}

/// Reports masks that do not cover what was sampled, and takes out tokens that were not sampled.
pub(super) fn mask(case: &mut Case<'_>) {
    let table = case.table;
    let counted = |place: usize| table.tokens.flags[place] & COUNTED != 0;
    let mut rows = 0_usize;
    // Samples by how far their mask begins and ends from what was sampled.
    let (mut earlier, mut later, mut short) = (Vec::new(), Vec::new(), Vec::new());
    for sample in case.samples.clone() {
        let range = &table.samples[sample].range;
        let (Some(mask), Some(own)) = (extent(range, counted), extent(range, |place| sampled(table, place)))
        else {
            continue;
        };
        rows += 1;
        if mask.0 + 1 == own.0 && mask.1 + 1 == own.1 {
            earlier.push(sample);
        } else if mask.0 == own.0 + 1 && mask.1 >= own.1 {
            later.push(sample);
        } else if mask.0 == own.0 && mask.1 + 1 == own.1 {
            short.push(sample);
        }
    }
    let before = case.pairs.total();
    let most = |samples: &[usize]| !samples.is_empty() && samples.len() as f64 >= MOST * rows as f64;
    for (samples, side) in [(earlier, "before"), (later, "behind")] {
        if !most(&samples) {
            continue;
        }
        case.keep(|pairs, at| sampled(table, pairs.place[at]));
        let evidence = format!(
            "the mask of {} of {rows} samples begins one token {side} the first sampled token: it is moved by one",
            samples.len()
        );
        case.found(Cause::Mask, before, evidence, None, samples);
        return;
    }
    if !short.is_empty() {
        let evidence = format!(
            "the engine has a value of one more token than the mask covers in {} of {rows} samples ({}): their end token is not counted",
            short.len(),
            case.names(&short)
        );
        case.found(Cause::EndToken, before, evidence, None, short);
    }
}

/// Log-probability below which the other side's exact 0 is no rounding: 0 is a probability of 1.
const SURELY_BELOW: f32 = -0.01;
/// The same for tokens within a response, where truncation to one token gives 0 as well; e^-0.7 is below every usual top-p.
const SURELY_BELOW_INSIDE: f32 = -0.7;

/// Takes out tokens that one side has the value 0 of and the other has not.
pub(super) fn unscored(case: &mut Case<'_>) {
    for (side, other) in [("trainer", "rollout"), ("rollout", "trainer")] {
        let value = |at: usize| {
            let (g, p) = (case.pairs.g[at], case.pairs.p[at]);
            if side == "trainer" { (p, g) } else { (g, p) }
        };
        let missing = |at: usize, below: f32| value(at).0.abs() <= 0.0 && value(at).1 < below;
        if !(0..case.pairs.len()).any(|at| missing(at, SURELY_BELOW)) {
            continue;
        }
        let ends = case.pairs.rows.iter().filter_map(|row| row.range.clone().next_back());
        let ends: Vec<usize> = ends.filter(|at| missing(*at, SURELY_BELOW)).collect();
        let zeros = (0..case.pairs.len()).filter(|at| missing(*at, SURELY_BELOW)).count();
        let inside: Vec<usize> =
            (0..case.pairs.len()).filter(|at| missing(*at, SURELY_BELOW_INSIDE)).collect();
        let last = !ends.is_empty() && ends.len() as f64 >= 0.8 * zeros as f64;
        let gone = if last { ends } else { inside };
        if gone.is_empty() {
            continue;
        }
        let before = case.pairs.total();
        let places: std::collections::HashSet<usize> = gone.iter().map(|at| case.pairs.place[*at]).collect();
        let touched = case
            .pairs
            .rows
            .iter()
            .filter(|row| row.range.clone().any(|at| places.contains(&case.pairs.place[at])));
        let samples: Vec<usize> = touched.map(|row| row.sample).collect();
        case.keep(|pairs, at| !places.contains(&pairs.place[at]));
        let which = if last { "the last token of their sample" } else { "inside their sample" };
        let evidence = format!(
            "{} tokens, {which}, have the value 0 in the {side} and less in the {other}: the {side} did not score them (samples {})",
            places.len(),
            case.names(&samples)
        );
        case.found(Cause::Unscored, before, evidence, None, samples);
    }
}
