//! Ops that only one side has: a fault if the results they pass on differ, else a remark. Devices and versions
//! dispatch the same function to different ops: `matmul` may be one op on one side, and `expand`, `bmm`,
//! `view` on the other.

mod answered;
mod called;
mod converging;
mod groups;
mod levels;
mod losses;
mod micro_batches;
mod named;
mod options;
mod regions;
mod unpaired;

use std::cell::OnceCell;
use std::collections::HashSet;

use answered::{answered, moves_alone};
use called::without_same_calls;
pub(super) use converging::Agreement;
use groups::Groups;
use levels::Levels;
use micro_batches::MicroBatches;
use named::{called_otherwise, cut_before, named};
pub(super) use unpaired::writes;
use unpaired::{computes, computing, counts, stand_for_themselves, tensors};

use super::Cause;
use super::candidate::Candidate;
use super::choices;
use super::difference::Difference;
use super::flow::{Flow, Node, Place};
use super::ops::Kind;
use probe_dump::{Number, Slot, TensorRecord};
use probe_pair::{Substitution, slot_key, value_key};

/// Statistics that differ by less than this fraction of the largest element count as similar.
const ALIKE: f64 = 0.01;

/// Number of ops named per side, in the remark and in a fault.
const NAMED: usize = 4;

/// The excuse of ops that compute the same in another way.
const REWRITTEN: &str = "computed in another way, and all that is made of it agrees";

/// Conclusions about the unpaired ops.
pub(super) struct Structure {
    /// The first op of the first group whose results differ.
    pub(super) fault: Option<Candidate>,
    /// A remark on the groups without a difference.
    pub(super) note: Option<String>,
    /// Ops that compute the same in another way.
    pub(super) rewritten: HashSet<usize>,
    /// First forward op of one side alone among those that are no fault.
    pub(super) other_call: Option<usize>,
    /// The reason to excuse them.
    pub(super) excuse: &'static str,
}

/// Judges the groups of unpaired ops. Differences that arrive behind a group are removed from `candidates`:
/// the group is reported instead.
pub(super) fn of<'a>(
    flow: &Flow<'a>,
    agreement: &Agreement<'_, 'a>,
    candidates: &mut Vec<Candidate>,
) -> Structure {
    // A part that could only be read in part lacks the rest for that reason.
    if !flow.pair.baseline.faults.is_empty() || !flow.pair.candidate.faults.is_empty() {
        return Structure {
            fault: None,
            note: None,
            rewritten: HashSet::new(),
            other_call: None,
            excuse: REWRITTEN,
        };
    }
    let batches = MicroBatches::of(flow);
    if let Some(judged) = batches.and_then(|batches| batches.judged(flow, agreement.rounding, candidates)) {
        return judged;
    }
    shown_where_read(flow, candidates);
    let mut rewritten = uneven_lists(flow);
    candidates.retain(|candidate| !rewritten.contains(&candidate.op));
    without_reshaped(flow, agreement, candidates);
    rewritten.extend(without_resized(flow, agreement, candidates));
    rewritten.extend(without_same_calls(flow, agreement, candidates));
    let groups = Groups { flow, agreement, idle: idle(flow), answered: answered(flow) };
    let levels = Levels::of(flow);
    let regions = OnceCell::new();
    let mut fault: Option<Candidate> = None;
    let mut harmless: Vec<&Substitution> = Vec::new();
    for (place, group) in flow.pair.substitutions.iter().enumerate() {
        let Some(first) = group.baseline.iter().chain(&group.candidate).copied().min() else { continue };
        candidates.retain(|candidate| {
            !is_behind(flow, group, candidate) || !levels.explain(flow, group, candidate)
        });
        if !groups.differ(place, first, candidates) {
            harmless.push(group);
            continue;
        }
        let regions = regions.get_or_init(|| agreement.regions(&flow.pair.substitutions));
        let stands_out = levels.stands_out(flow, group) || moves_alone(flow, group);
        let excused = !stand_for_themselves(flow, group) && !stands_out;
        let region = regions[place].as_ref().filter(|_| excused);
        if let Some(region) = region {
            candidates.retain(|candidate| !region.contains(&candidate.op));
            rewritten.extend(region);
            rewritten.extend(groups.readers_of_infinities(group));
            harmless.push(group);
        } else if fault.is_none() {
            let shown = candidates.iter().find(|candidate| is_behind(flow, group, candidate));
            let named = named(flow, place, first, shown);
            let leads = candidates.iter().any(|candidate| candidate.op < named);
            let called = Some(named).filter(|_| !leads).and_then(|named| called_otherwise(flow, named));
            let named = called.unwrap_or(named);
            let said = said(flow, group, named, shown);
            fault = Some(Candidate { said, ..Candidate::at(named, None, Cause::Structure) });
        }
        candidates.retain(|candidate| !is_behind(flow, group, candidate));
    }
    // A group of the backward pass follows from what the forward pass shows before it.
    if fault.as_ref().is_none_or(|fault| candidates.iter().any(|candidate| candidate.op < fault.op)) {
        fault = right_before(flow, &harmless, candidates).or(fault);
    }
    fault = fault.or_else(|| cut_before(flow, candidates));
    if let Some(fault) = &fault {
        // For a fault behind the backward pass the forward call is named, and its own group may agree.
        harmless.retain(|group| !group.baseline.iter().chain(&group.candidate).any(|&op| op == fault.op));
    }
    let forward = |op: &usize| !flow.nodes[*op].is_backward();
    let other_calls = harmless.iter().flat_map(|group| group.baseline.iter().chain(&group.candidate));
    let other_call = other_calls.copied().filter(forward).min();
    Structure { note: remark(flow, &harmless), fault, rewritten, other_call, excuse: REWRITTEN }
}

/// Returns an op that one side alone has right before the first value that differs, which no recorded op made, and removes
/// what shows there: gradients that are clipped, scaled or reduced between the backward pass and the step of an
/// optimizer, and memory that is written in place.
fn right_before(
    flow: &Flow<'_>,
    groups: &[&Substitution],
    candidates: &mut Vec<Candidate>,
) -> Option<Candidate> {
    let shown = candidates.iter().min_by_key(|candidate| candidate.op)?;
    let (reader, cause) = (shown.op, shown.cause);
    let steps = cause == Cause::Gradient && flow.nodes[reader].traits.kind == Kind::Optimizer;
    let arrived = cause == Cause::Input && shown.arrived;
    if !steps && !arrived {
        return None;
    }
    let is_border =
        |op: &usize| if steps { flow.nodes[*op].is_backward() } else { flow.nodes[*op].is_paired };
    let border = (0..reader).rev().find(is_border)?;
    let acts = |group: &Substitution, ops: &[usize]| match computing(flow, group) {
        found if steps => found != [None, None] && !ops.iter().any(|&op| is_of_update(flow, op)),
        _ => ops.iter().any(|&op| writes(&flow.nodes[op])),
    };
    let members = |group: &Substitution| [&*group.baseline, &*group.candidate].concat();
    let is_before = |ops: &[usize]| ops.iter().all(|&op| op < reader);
    let between = groups.iter().find_map(|group| {
        let ops = members(group);
        let is_between = is_before(&ops) && ops.iter().any(|&op| op > border);
        (is_between && acts(group, &ops)).then_some((group, ops))
    });
    // What no recorded op reads may have gone into what arrives.
    let unread = || {
        let mut before =
            groups.iter().rev().filter(|group| group.boundary.is_empty() && group.feeds.is_empty());
        let forward = |ops: &[usize]| !ops.iter().any(|&op| flow.nodes[op].is_backward());
        before.find_map(|group| {
            let ops = members(group);
            let computes = computing(flow, group) != [None, None];
            (arrived && computes && is_before(&ops) && forward(&ops)).then_some((group, ops))
        })
    };
    let (group, ops) = between.or_else(unread)?;
    let computes = computing(flow, group).into_iter().flatten().min().filter(|_| steps);
    let named = computes.or_else(|| ops.iter().copied().min())?;
    let instead = said(flow, group, named, None);
    let separator = if instead.is_empty() { "" } else { ", " };
    let said = format!(
        "{instead}{separator}and what {} reads behind it differs",
        flow.nodes[reader].op.name.as_str()
    );
    candidates.retain(|candidate| candidate.op != reader || candidate.cause != cause);
    Some(Candidate { said, ..Candidate::at(named, None, Cause::Structure) })
}

/// Moves what an op shows to its input, where an op of one side made that and may have put its elements into another order:
/// one that rolls or swaps them leaves no trace in statistics but the places of the extremes, and the reader is off.
fn shown_where_read(flow: &Flow<'_>, candidates: &mut [Candidate]) {
    for candidate in candidates.iter_mut().filter(|candidate| candidate.cause == Cause::Numerics) {
        let op = candidate.op;
        let by_statistics = candidate.slot.is_some_and(|slot| flow.fact((op, slot)).statistics_only);
        if by_statistics && candidate.seen.is_none() {
            let mut given = flow.nodes[op].given().map(|slot| (op, slot));
            candidate.seen = given.find_map(|place| moved_at(flow, place));
        }
    }
}

/// Returns the place where a value, or what it was copied from, is first read after an op of one side made it in what may
/// be another order.
fn moved_at(flow: &Flow<'_>, mut place: Place) -> Option<Place> {
    loop {
        if flow.is_made_unpaired(place) && (is_moved(flow, place) || flow.is_copied_unpaired(place)) {
            return Some(place);
        }
        let copied = flow.makers_of_both(place).map(|maker| maker.0).filter(|&op| {
            op < place.0 && flow.nodes[op].is_paired && flow.nodes[op].traits.kind == Kind::Copy
        });
        let mut read = copied.flat_map(|op| flow.nodes[op].given().map(move |slot| (op, slot)));
        place = read.find(|&read| is_moved(flow, place) && is_moved(flow, read))?;
    }
}

/// Returns true if the extremes of a value stand at other places on both sides.
fn is_moved(flow: &Flow<'_>, (op, slot): Place) -> bool {
    let (b, c) = flow.pair.slot_at(op, slot);
    let places = |slot: Option<&Slot>| {
        let places = slot?.value.tensor()?.places?;
        Some((places.max(), places.min()))
    };
    places(b).zip(places(c)).is_some_and(|(b, c)| b != c)
}

/// Returns true for a difference in a value that a group passes on, or that a module around it returns.
fn is_behind(flow: &Flow<'_>, group: &Substitution, candidate: &Candidate) -> bool {
    let Some(place) = candidate.shown() else { return false };
    let is_of_group = |maker: usize| group.baseline.contains(&maker) || group.candidate.contains(&maker);
    let is_returned = || flow.nodes[place.0].is_module() && flow.side(place).is_result();
    group.boundary.contains(&place) || (is_returned() && flow.unpaired_makers(place).any(is_of_group))
}

/// Removes ops whose values have other sizes, come from other ops, or are plainly others by an argument, where everything
/// that is made of them agrees again; returns the ops in between.
fn without_resized(
    flow: &Flow<'_>,
    agreement: &Agreement<'_, '_>,
    candidates: &mut Vec<Candidate>,
) -> HashSet<usize> {
    let mut rewritten = HashSet::new();
    let resized = |op: usize| flow.facts(op).any(|fact| fact.difference == Difference::Shape);
    let unlike = |candidate: &Candidate| match candidate.cause {
        Cause::Structure => true,
        Cause::Argument => resized(candidate.op) || agreement.makes_another(candidate.op),
        _ => resized(candidate.op),
    };
    // How many of the largest are taken is chosen, though those behind the first hardly count.
    let takes_others = |op: usize| resized(op) && choices::orders(&flow.nodes[op]);
    let unlike: Vec<&Candidate> =
        candidates.iter().filter(|candidate| unlike(candidate) && !takes_others(candidate.op)).collect();
    // What one of them makes is no noise to the others: two values that are read the other way round.
    let reached = agreement.reached(&unlike.iter().map(|candidate| candidate.op).collect::<Vec<usize>>());
    for candidate in unlike {
        if rewritten.contains(&candidate.op) {
            continue;
        }
        let region = agreement.region_among(&[candidate.op], &reached).unwrap_or_default();
        // What undoes a chosen argument is an op that the other side lacks.
        let is_undone = || resized(candidate.op) || region.iter().any(|&op| !flow.nodes[op].is_paired);
        if candidate.cause != Cause::Argument || is_undone() {
            rewritten.extend(region);
        }
    }
    candidates.retain(|candidate| !rewritten.contains(&candidate.op));
    rewritten
}

/// Removes inputs with a different shape, or on one side only, from which ops compute the same.
fn without_reshaped(flow: &Flow<'_>, agreement: &Agreement<'_, '_>, candidates: &mut Vec<Candidate>) {
    let comes_to_the_same = |op| comes_to_the_same(flow, agreement, op, candidates);
    let harmless: Vec<bool> = candidates
        .iter()
        .map(|candidate| is_reshaped(flow, candidate) && comes_to_the_same(candidate.op))
        .collect();
    let mut harmless = harmless.into_iter();
    candidates.retain(|_| !harmless.next().unwrap_or(false));
}

/// Returns true for a value that arrives in another shape, or on one side only.
fn is_reshaped(flow: &Flow<'_>, candidate: &Candidate) -> bool {
    let given = candidate.slot.filter(|_| candidate.arrived);
    given.is_some_and(|slot| {
        matches!(flow.fact((candidate.op, slot)).difference, Difference::Shape | Difference::Missing)
    })
}

/// Returns true if an op computes the same from different inputs: an attention that receives a mask on one
/// side and makes its own, or one of another shape, on the other.
fn comes_to_the_same(
    flow: &Flow<'_>,
    agreement: &Agreement<'_, '_>,
    op: usize,
    candidates: &[Candidate],
) -> bool {
    agreement.makes_the_same(op)
        && candidates.iter().all(|candidate| candidate.op != op || is_reshaped(flow, candidate))
}

/// Returns true if all ops of a group belong to the update of an optimizer.
fn is_within_update(flow: &Flow<'_>, group: &Substitution) -> bool {
    group.baseline.iter().chain(&group.candidate).all(|&op| is_of_update(flow, op))
}

/// Returns true if an op belongs to an optimizer step that is judged as a whole, by its changes. Devices implement
/// steps differently: all parameters at once, or one by one.
fn is_of_update(flow: &Flow<'_>, op: usize) -> bool {
    let step = flow.nodes[op].op.parent.as_deref().and_then(|step| flow.named(step));
    step.is_some_and(|position| {
        let node = &flow.nodes[position];
        node.traits.optimizes && node.results().any(|slot| flow.fact((position, slot)).is_measured)
    })
}

/// Returns the ops of an update that read lists of unequal length: one side keeps in one parameter what the other
/// keeps in several, so that equal places are no equal parameters.
fn uneven_lists(flow: &Flow<'_>) -> HashSet<usize> {
    let is_uneven = |&op: &usize| {
        let node = &flow.nodes[op];
        node.is_paired && is_of_update(flow, op) && node.given().any(|slot| flow.is_of_one_side((op, slot)))
    };
    (0..flow.nodes.len()).filter(is_uneven).collect()
}

/// Describes a group besides its named op: the ops it replaces, and the value that shows the difference.
fn said(flow: &Flow<'_>, group: &Substitution, named: usize, shown: Option<&Candidate>) -> String {
    let mut parts = Vec::new();
    let [of_b, of_c] = [&group.baseline, &group.candidate].map(|ops| ops.contains(&named));
    if !of_b && !of_c {
        // A call of the forward pass.
        parts.push(format!("and its backward pass is another, as {} shows", first_name(flow, group)));
    } else if !group.baseline.is_empty() && !group.candidate.is_empty() {
        let others = if of_b { &group.candidate } else { &group.baseline };
        parts.push(format!("instead of {}", names(flow, others)));
    }
    if let Some((candidate, beyond)) = shown.and_then(|candidate| Some((candidate, candidate.beyond?))) {
        let place = candidate.shown();
        let path = place.and_then(|place| flow.slot(place)).map_or("", |slot| &*slot.path);
        let reader = flow.nodes[place.map_or(candidate.op, |place| place.0)].op.name.as_str();
        parts.push(format!("and what it passes to {reader} {path} differs: {beyond}"));
    }
    parts.join(", ")
}

/// Returns the name of the first op of a group.
fn first_name<'f>(flow: &'f Flow<'_>, group: &Substitution) -> &'f str {
    let first = group.baseline.iter().chain(&group.candidate).copied().min();
    first.map_or("", |op| flow.nodes[op].op.name.as_str())
}

/// Returns true if unpaired ops only pass on what they read, as `detach` and `view` do, and `relu` for
/// positive values. Other ops compute something that the other side does not, however small the effect.
/// Results that nobody reads do not count: a mean that is logged.
fn hands_on(flow: &Flow<'_>, group: &Substitution, idle: &HashSet<usize>) -> bool {
    if stand_for_themselves(flow, group) {
        return false;
    }
    if passes_on(flow, group) {
        return true;
    }
    group.baseline.iter().chain(&group.candidate).filter(|op| !idle.contains(op)).all(|&op| {
        let node = &flow.nodes[op];
        let read: Vec<u64> = tensors(node, false).filter_map(value_key).collect();
        // A gradient that passes through a choice again loses only what the choice already dropped.
        // What checkpointing computes again was there before; if it comes out otherwise, its readers show it.
        let again = node.op.recomputed || (node.is_backward() && node.traits.chooses);
        let handed_on = |record| value_key(record).is_some_and(|made| read.contains(&made));
        again || !computes(node) || tensors(node, true).all(handed_on)
    })
}

/// Returns true if everything that is read behind the unpaired ops existed before them, whatever they made in
/// between: for example zeros that a copy overwrites.
fn passes_on(flow: &Flow<'_>, group: &Substitution) -> bool {
    let (side, ops) = match (group.baseline.is_empty(), group.candidate.is_empty()) {
        (false, true) => (0, &group.baseline),
        (true, false) => (1, &group.candidate),
        _ => return false,
    };
    let mut given = HashSet::new();
    let mut made = HashSet::new();
    for node in ops.iter().map(|&op| &flow.nodes[op]) {
        let read = tensors(node, false).filter_map(value_key).filter(|key| !made.contains(key));
        given.extend(read.collect::<Vec<u64>>());
        made.extend(tensors(node, true).filter_map(value_key));
    }
    let was_there = |&(op, slot): &Place| {
        let (b, c) = flow.pair.slot_at(op, slot);
        let read = [b, c][side].and_then(|slot| slot.value.tensor()).and_then(value_key);
        read.is_some_and(|key| given.contains(&key))
    };
    group.feeds.is_empty() && !group.boundary.is_empty() && group.boundary.iter().all(was_there)
}

/// Returns the unpaired ops whose results no paired op uses, even indirectly. Between modules not everything
/// is recorded, so readers are unknown.
fn idle(flow: &Flow<'_>) -> HashSet<usize> {
    let mut idle = HashSet::new();
    if flow.modules_alone || flow.pair.substitutions.is_empty() {
        return idle;
    }
    // Values of each side that are used.
    let mut alive: [HashSet<u64>; 2] = [HashSet::new(), HashSet::new()];
    for (position, op_pair) in flow.pair.ops.iter().enumerate().rev() {
        let node = &flow.nodes[position];
        let (b, c) = flow.pair.op(op_pair);
        for (op, alive) in [b, c].into_iter().zip(&mut alive) {
            let Some(op) = op else { continue };
            let values = |results: bool| {
                op.slots
                    .iter()
                    .filter(move |slot| slot.side.is_result() == results && slot.value.tensor().is_some())
                    .map(any_slot_key)
            };
            let ends = |key: Option<u64>| key.is_some_and(|key| !alive.contains(&key));
            let lasts = writes(node) && !counts(op);
            if !node.is_paired && !lasts && values(true).all(ends) {
                idle.insert(position);
                continue;
            }
            alive.extend(values(false).flatten());
            if node.is_paired && node.is_module() {
                // Readers of a module's results need not be recorded.
                alive.extend(values(true).flatten());
            }
        }
    }
    idle
}

/// Returns a key that tensors with equal elements share; constants may share it with others if the capture
/// cannot distinguish them.
fn any_slot_key(slot: &Slot) -> Option<u64> {
    slot_key(slot).or_else(|| {
        let record = slot.value.tensor()?;
        let (min, max) = (record.statistics.min()?.as_f64(), record.statistics.max()?.as_f64());
        Some(min.to_bits() ^ max.to_bits().rotate_left(1) ^ record.len())
    })
}

/// Returns true if the last ops of both sides have similar results, by number of elements and statistics: each of the
/// candidate's like one of the baseline's there, or in another group of that pass. What only holds elements that its op was
/// given says nothing. Always true if only one side has ops.
fn ends_alike(flow: &Flow<'_>, group: &Substitution) -> bool {
    let (Some(&b), Some(&c)) = (group.baseline.last(), group.candidate.last()) else { return true };
    let made: Vec<_> = tensors(&flow.nodes[c], true).collect();
    let is_handed_on = |op: usize, y: &TensorRecord| {
        flow.nodes[op].is_backward() && tensors(&flow.nodes[op], false).any(|x| alike(x, y))
    };
    let mut given = tensors(&flow.nodes[b], true).peekable();
    if given.peek().is_some() && given.all(|x| is_handed_on(b, x)) {
        return true;
    }
    let others = flow.pair.substitutions.iter().flat_map(|group| &group.baseline).copied();
    let others = others.filter(|&other| flow.nodes[other].is_backward() && flow.nodes[c].is_backward());
    let results: Vec<_> =
        [b].into_iter().chain(others).flat_map(|op| tensors(&flow.nodes[op], true)).collect();
    !made.is_empty() && made.iter().all(|y| is_handed_on(c, y) || results.iter().any(|x| alike(x, y)))
}

/// Returns true if both have as many elements and their extremes are close.
fn alike(x: &TensorRecord, y: &TensorRecord) -> bool {
    let number = |number: Option<Number>| number.map(Number::as_f64);
    let (x_has, y_has) = (&x.statistics, &y.statistics);
    let extremes = [(number(x_has.max()), number(y_has.max())), (number(x_has.min()), number(y_has.min()))];
    let largest = extremes.iter().filter_map(|(x, _)| *x).map(f64::abs).fold(0.0, f64::max);
    let close = |x: f64, y: f64| (x - y).abs() <= ALIKE * largest || (x.is_nan() && y.is_nan());
    x.len() == y.len() && extremes.iter().all(|pair| matches!(*pair, (Some(x), Some(y)) if close(x, y)))
}

fn remark(flow: &Flow<'_>, groups: &[&Substitution]) -> Option<String> {
    let first = groups.first()?;
    let places = if groups.len() == 1 { "one place".to_owned() } else { format!("{} places", groups.len()) };
    Some(format!(
        "the runs call different ops at {places}, but the values they pass on agree; first: {} in the baseline, {} in the candidate",
        names(flow, &first.baseline),
        names(flow, &first.candidate)
    ))
}

/// Formats the first few ops of one side.
fn names(flow: &Flow<'_>, ops: &[usize]) -> String {
    let shown: Vec<&str> = ops.iter().take(NAMED).map(|&op| flow.nodes[op].op.name.as_str()).collect();
    match ops.len() {
        0 => "nothing".to_owned(),
        count if count > NAMED => format!("{} and {} more", shown.join(", "), count - NAMED),
        _ => shown.join(", "),
    }
}
