//! Values that belong to another token or to another sample: they fit elsewhere.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::{Case, Cause};
use crate::measure::{Correlation, quantile};
use crate::pairs::{Pairs, Row, mean_distance};
use crate::read::narrow;

/// Mean of |d| of a row from which it is asked whether its values fit elsewhere. A row of noise fits nowhere better.
const LARGE: f64 = 0.05;
/// Residual, relative to that in place, below which values fit elsewhere. Values that fit left 7e-7 (float32) and 7e-3
/// (bfloat16), others at least 0.36, in the samples that this was measured on.
const FITS: f64 = 0.3;
/// The same for a shift, which may come with another cause: random neighbours leave 0.9 and more.
const FITS_SHIFTED: f64 = 0.5;
/// Fewest tokens of a row that is looked at.
const FEWEST: usize = 4;
/// Fewest tokens of a row that is asked for a shift.
const FEWEST_SHIFTED: usize = 8;
/// Share of the long rows that must be moved for the short ones to be moved with them.
const MOST: f64 = 0.9;
/// Share of the rows that are far off of which another must hold the values.
const MATCHED: f64 = 0.5;
/// Most rows that are held against one another.
const MOST_ROWS: usize = 512;
/// Tokens of a row that are held against those of others.
const HEAD: usize = 64;

/// Distances that are tried, in tokens. Positive: the trainer's value of token t lies at t + k.
const SHIFTS: [isize; 4] = [1, -1, 2, -2];

/// Returns the rollout's and the trainer's values with the trainer's moved by `shift`.
fn shifted<'a>(g: &'a [f32], p: &'a [f32], shift: isize) -> (&'a [f32], &'a [f32]) {
    let by = shift.unsigned_abs().min(g.len());
    if shift > 0 { (&g[..g.len() - by], &p[by..]) } else { (&g[by..], &p[..p.len() - by]) }
}

/// Reports rows whose values are moved along the sequence, and moves them back.
pub(super) fn shift(case: &mut Case<'_>) {
    let mut by_shift: BTreeMap<isize, Vec<usize>> = BTreeMap::new();
    let (mut long, mut gone, mut left) = (0_usize, 0.0, 0.0);
    for (place, row) in case.pairs.rows.iter().enumerate() {
        let (g, p) = case.pairs.row(row);
        if g.len() < FEWEST_SHIFTED {
            continue;
        }
        long += 1;
        let error = mean_distance(g, p);
        if error < LARGE {
            continue;
        }
        let residual = |shift: &isize| {
            let (g, p) = shifted(g, p, *shift);
            mean_distance(g, p)
        };
        let best = SHIFTS.iter().map(|shift| (*shift, residual(shift))).min_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((shift, residual)) = best.filter(|(_, residual)| *residual < FITS_SHIFTED * error) {
            by_shift.entry(shift).or_default().push(place);
            gone += error;
            left += residual;
        }
    }
    let Some((shift, mut rows)) = by_shift.into_iter().max_by_key(|(_, rows)| rows.len()) else { return };
    // One row of several may fit by chance where everything is far off.
    if rows.len() * 10 < long || (rows.len() < 2 && long > 1) {
        return;
    }
    let before = case.pairs.total();
    let samples: Vec<usize> = rows.iter().map(|row| case.pairs.rows[*row].sample).collect();
    // A cause that moves every long row moves the short ones as well.
    let all = rows.len() as f64 >= MOST * long as f64;
    if all {
        rows = (0..case.pairs.rows.len()).collect();
    }
    move_back(Arc::make_mut(&mut case.pairs), &rows, shift);
    let tokens = if shift.abs() == 1 { "token" } else { "tokens" };
    let evidence = format!(
        "in {} of {long} samples of {FEWEST_SHIFTED} tokens or more, the trainer's value of a token fits the rollout's value {} {tokens} {}: moved, mean |d| falls from {:.3} to {:.2e}",
        samples.len(),
        shift.abs(),
        if shift < 0 { "earlier" } else { "later" },
        gone / samples.len() as f64,
        left / samples.len() as f64
    );
    case.found(Cause::Shift, before, evidence, None, if all { Vec::new() } else { samples });
}

fn move_back(pairs: &mut Pairs, rows: &[usize], shift: isize) {
    for &row in rows {
        let range = pairs.rows[row].range.clone();
        let by = shift.unsigned_abs().min(range.len());
        let p = &mut pairs.p[range];
        if shift > 0 {
            p.rotate_left(by);
            let end = p.len() - by;
            p[end..].fill(f32::NAN);
        } else {
            p.rotate_right(by);
            p[..by].fill(f32::NAN);
        }
    }
    pairs.retain(|pairs, at| !pairs.p[at].is_nan());
}

/// Reports rows whose values fit another row, gives them back, and takes out rows that fit none.
pub(super) fn rows(case: &mut Case<'_>) {
    let long = |row: &Row| row.range.len() >= FEWEST;
    let errors: Vec<f64> = case.pairs.rows.iter().map(|row| case.pairs.error(row)).collect();
    let mut sorted: Vec<f32> = case
        .pairs
        .rows
        .iter()
        .zip(&errors)
        .filter(|(row, _)| long(row))
        .map(|(_, error)| narrow(*error))
        .collect();
    let count = sorted.len();
    // Where most rows are out of order, the median row is one of them.
    let usual = quantile(&mut sorted, 0.5);
    let floor = if usual > 0.5 { 4.0 * LARGE } else { (2.5 * usual).max(4.0 * LARGE) };
    let mut bad: Vec<usize> =
        (0..errors.len()).filter(|row| errors[*row] >= floor && long(&case.pairs.rows[*row])).collect();
    bad.sort_by(|a, b| errors[*b].total_cmp(&errors[*a]));
    bad.truncate(MOST_ROWS);
    bad.sort_unstable();
    let owners: Vec<(usize, usize)> =
        bad.iter().filter_map(|row| Some((*row, owner(case, *row, &bad, errors[*row])?))).collect();
    // Where every row is far off, some fit another by chance, and many fit the same one.
    let distinct: HashSet<usize> = owners.iter().map(|(_, owner)| *owner).collect();
    if distinct.len() >= 2 && distinct.len() as f64 >= MATCHED * bad.len() as f64 {
        let samples: Vec<usize> = owners.iter().map(|(row, _)| case.pairs.rows[*row].sample).collect();
        let before = case.pairs.total();
        let old: f64 = owners.iter().map(|(row, _)| errors[*row]).sum::<f64>() / owners.len() as f64;
        give_back(Arc::make_mut(&mut case.pairs), &owners);
        let new = owners.iter().map(|(row, _)| case.pairs.error(&case.pairs.rows[*row])).sum::<f64>()
            / owners.len() as f64;
        let name = |row: usize| case.names(&[case.pairs.rows[row].sample]);
        let evidence = format!(
            "the trainer's values of {} of {count} samples belong to others: those of sample {} fit sample {} (mean |d| {old:.3}, exchanged {new:.2e})",
            owners.len(),
            name(owners[0].1),
            name(owners[0].0)
        );
        case.found(Cause::Rows, before, evidence, None, samples);
    }
    strangers(case, usual, count);
}

/// Returns the row whose trainer's values fit the engine's values of `row`.
fn owner(case: &Case<'_>, row: usize, bad: &[usize], error: f64) -> Option<usize> {
    let own = &case.pairs.rows[row];
    let g = &case.pairs.g[own.range.clone()];
    let fits = |other: &usize| {
        let (g, p) = facing(case, g, own, &case.pairs.rows[*other]);
        let count = g.len().min(p.len()).min(HEAD);
        let residual = mean_distance(&g[..count], &p[..count]);
        // Few tokens fit one of many rows by chance.
        let most = if count < FEWEST_SHIFTED { FITS / 3.0 } else { FITS };
        (count >= FEWEST && residual < most * error).then_some((*other, residual))
    };
    let others = bad.iter().filter(|other| **other != row).filter_map(fits);
    others.min_by(|a, b| a.1.total_cmp(&b.1)).map(|best| best.0)
}

/// Returns the engine's values of one row and the trainer's of another that belong together if the other holds this row's: from the
/// first of each, or, if both rows have prompts of other lengths, at equal positions.
fn facing<'a>(case: &'a Case<'_>, g: &'a [f32], own: &Row, other: &Row) -> (&'a [f32], &'a [f32]) {
    let position = |row: &Row| {
        let place = case.pairs.place.get(row.range.start);
        place.map_or(0, |place| case.table.tokens.positions[*place])
    };
    let p = &case.pairs.p[other.range.clone()];
    let gap = position(other).abs_diff(position(own)) as usize;
    let plain = (g, p);
    let moved = if position(other) > position(own) {
        (g.get(gap..).unwrap_or_default(), p)
    } else {
        (g, p.get(gap..).unwrap_or_default())
    };
    let distance = |(g, p): (&[f32], &[f32])| {
        let count = g.len().min(p.len()).min(HEAD);
        if count < FEWEST { f64::INFINITY } else { mean_distance(&g[..count], &p[..count]) }
    };
    if gap > 0 && distance(moved) < distance(plain) { moved } else { plain }
}

fn give_back(pairs: &mut Pairs, owners: &[(usize, usize)]) {
    let before = pairs.p.clone();
    for &(row, owner) in owners {
        let (to, from) = (pairs.rows[row].range.clone(), pairs.rows[owner].range.clone());
        let both = to.len().min(from.len());
        pairs.p[to.clone()].fill(f32::NAN);
        pairs.p[to.start..to.start + both].copy_from_slice(&before[from.start..from.start + both]);
    }
    pairs.retain(|pairs, at| !pairs.p[at].is_nan());
}

/// Reports rows that have nothing to do with the engine's, where most rows are sound.
fn strangers(case: &mut Case<'_>, usual: f64, count: usize) {
    if usual > 2.0 * LARGE {
        return;
    }
    let strange = |row: &&Row| {
        let (g, p) = case.pairs.row(row);
        if g.len() < 4 * FEWEST || case.pairs.error(row) <= (10.0 * usual).max(0.5) {
            return false;
        }
        let mut sums = Correlation::default();
        g.iter().zip(p).for_each(|(g, p)| sums.add(f64::from(*g), f64::from(*p)));
        sums.coefficient() < 0.5
    };
    let rows: Vec<Row> = case.pairs.rows.iter().filter(strange).cloned().collect();
    if rows.is_empty() || rows.len() * 4 > count {
        return;
    }
    let before = case.pairs.total();
    let samples: Vec<usize> = rows.iter().map(|row| row.sample).collect();
    case.keep(|_, at| !rows.iter().any(|row| row.range.contains(&at)));
    let evidence = format!(
        "the values of {} of {count} samples ({}) have nothing to do with each other, all others agree: one side scored other text",
        samples.len(),
        case.names(&samples)
    );
    case.found(Cause::Rows, before, evidence, None, samples);
}
