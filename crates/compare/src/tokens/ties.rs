//! Experts that rounding chooses. Where two experts are equally good, two sound programs choose differently, and all that follows in that
//! sequence differs. Such tokens, and those behind them, are left out.

use crate::median::median;
use std::collections::HashSet;

use super::frame::{Frame, Key};
use super::view::View;
use probe_dump::{DType, Op};

/// Last names of modules that score experts.
const ROUTERS: [&str; 3] = ["gate", "router", "wg"];
/// Most experts that a router scores.
const EXPERTS: usize = 1024;
/// Experts whose order is looked at, more than any model uses for a token.
const LOOKED_AT: usize = 17;
/// Factor over the usual error of a token up to which a difference in a block's input is rounding.
const USUAL: f64 = 4.0;
/// The factor from which its result is another expert's.
const OTHER: f64 = 4.0;
/// Fewest tokens that are left, else none is left out.
const FEWEST: usize = 8;

/// Errors of the tokens of one value, relative to their size.
fn errors(views: &[View; 2], ops: [&Op; 2], path: &str) -> Option<(Vec<f64>, DType)> {
    let [(ours, dtype), (theirs, _)] = [views[0].rows(ops[0], path)?, views[1].rows(ops[1], path)?];
    if ours.len() != theirs.len() {
        return None;
    }
    let error = |(ours, theirs): (&Vec<f64>, &Vec<f64>)| {
        let apart: f64 = ours.iter().zip(theirs).map(|(a, b)| (a - b).powi(2)).sum();
        let size: f64 = ours.iter().map(|value| value * value).sum();
        (apart / size.max(f64::MIN_POSITIVE)).sqrt()
    };
    Some((ours.iter().zip(&theirs).map(error).collect(), dtype))
}

/// Returns the experts with the highest scores, in order.
fn best(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.truncate(LOOKED_AT);
    order
}

/// Returns the places of tokens that went to other experts although the input of their block agrees.
fn flipped(views: &[View; 2]) -> HashSet<usize> {
    let mut flipped = HashSet::new();
    for router in &views[0].ops {
        let found = block(views, router).and_then(|ops| flips(views, ops));
        flipped.extend(found.into_iter().flatten());
    }
    flipped
}

/// Returns the router and the block that it is part of, on both sides.
fn block<'v>(views: &'v [View; 2], router: &'v Op) -> Option<[[&'v Op; 2]; 2]> {
    let (path, _) = router.name.module_path()?.rsplit_once('.').filter(|(_, last)| ROUTERS.contains(last))?;
    let twin = |op: &Op| views[1].ops.iter().find(|other| other.name == op.name);
    let whole = views[0].ops.get(views[0].find(path)?)?;
    Some([[router, twin(router)?], [whole, twin(whole)?]])
}

fn flips(views: &[View; 2], [router, whole]: [[&Op; 2]; 2]) -> Option<Vec<usize>> {
    let [ours, theirs] = [views[0].rows(router[0], "output.0")?.0, views[1].rows(router[1], "output.0")?.0];
    if ours.first().is_none_or(|scores| scores.len() < 2 || scores.len() > EXPERTS)
        || ours.len() != theirs.len()
    {
        return None;
    }
    let (given, dtype) = errors(views, router, "input.0")?;
    let (made, _) = errors(views, whole, "output.0")?;
    let (usual_given, usual_made) = (median(&given).max(epsilon(dtype)), median(&made).max(epsilon(dtype)));
    let is_flip = |at: &usize| {
        given[*at] <= USUAL * usual_given
            && made[*at] > OTHER * usual_made
            && best(&ours[*at]) != best(&theirs[*at])
    };
    (given.len() == made.len() && given.len() == ours.len())
        .then(|| (0..ours.len()).filter(is_flip).collect())
}

/// Returns the rounding of one operation.
const fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::Bf16 => 1.0 / 256.0,
        DType::F16 => 1.0 / 2048.0,
        _ => 1e-6,
    }
}

/// Returns, for each token, if it is compared: neither it nor one before it in its sequence went to other experts. `None` if all are, or
/// if too few would be left.
pub(super) fn untouched(views: &[View; 2], frame: &Frame, places: &[(usize, usize)]) -> Option<Vec<bool>> {
    let flipped = flipped(views);
    if flipped.is_empty() {
        return None;
    }
    let flipped: HashSet<(usize, usize)> = flipped.into_iter().map(|at| places[at]).collect();
    let mut tainted: HashSet<Key> = HashSet::new();
    for (place, key, before) in frame.chains() {
        if flipped.contains(&place) || before.is_some_and(|before| tainted.contains(&before)) {
            tainted.insert(key);
        }
    }
    let clean: HashSet<(usize, usize)> =
        frame.tokens().filter(|(_, key)| !tainted.contains(key)).map(|(place, _)| place).collect();
    let kept: Vec<bool> = places.iter().map(|place| clean.contains(place)).collect();
    (kept.iter().filter(|kept| **kept).count() >= FEWEST).then_some(kept)
}
