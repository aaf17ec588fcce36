//! The expected content of a tensor, judged by its neighbours: the same tensor of other layers, experts and ranks.
//!
//! The sources of neighbours that are made alike go up with their numbers. And of three tensors whose names differ in one number only, the
//! third is to the second as the second is to the first: names and first lines are continued like an arithmetic progression. Each pair of
//! neighbours has a vote. A wrong tensor outvotes nobody.

use std::collections::HashMap;

use crate::index::{Index, Place};
use crate::plan::{Plan, Run, Sought};

/// Neighbours on which a prediction rests.
const NEIGHBOURS: usize = 6;

/// A plan that is known, of a tensor.
#[derive(Debug)]
pub(crate) struct Known {
    plan: Plan,
    runs: Vec<Run>,
}

/// Tensors whose names differ in one number: template, position of that number, and the other numbers.
type Row<'a> = (&'a str, usize, Vec<u32>);

/// Plans of tensors that were found whole, by row and number.
#[derive(Debug)]
pub(crate) struct Neighbours<'a> {
    groups: HashMap<Row<'a>, Vec<(u32, &'a Known)>>,
}

impl Known {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self { plan: plan.clone(), runs: plan.runs() }
    }
}

fn without(numbers: &[u32], position: usize) -> Vec<u32> {
    numbers.iter().enumerate().filter(|(at, _)| *at != position).map(|(_, number)| *number).collect()
}

impl<'a> Neighbours<'a> {
    pub(crate) fn new(known: impl Iterator<Item = (&'a crate::checkpoint::Name, &'a Known)>) -> Self {
        let mut groups: HashMap<_, Vec<(u32, &Known)>> = HashMap::new();
        for (name, known) in known {
            for (position, &number) in name.numbers.iter().enumerate() {
                let key = (&*name.template, position, without(&name.numbers, position));
                groups.entry(key).or_default().push((number, known));
            }
        }
        for group in groups.values_mut() {
            group.sort_by_key(|(number, _)| *number);
        }
        Self { groups }
    }

    /// Returns the plan that most neighbours vote for, and whether more than one pair did.
    pub(crate) fn predict(&self, index: &Index<'_>, sought: Sought<'_>) -> Option<(Plan, bool)> {
        let name = sought.name;
        let mut votes: Vec<(Plan, usize)> = Vec::new();
        let mut vote = |plan: Option<Plan>, weight: usize| {
            let Some(plan) =
                plan.filter(|plan| plan.places.iter().flatten().all(|&place| index.of.holds(place)))
            else {
                return;
            };
            match votes.iter_mut().find(|(other, _)| *other == plan) {
                Some((_, count)) => *count += weight,
                None => votes.push((plan, weight)),
            }
        };
        for (position, &number) in name.numbers.iter().enumerate() {
            let key = (&*name.template, position, without(&name.numbers, position));
            let Some(group) = self.groups.get(&key) else { continue };
            let mut near: Vec<_> = group.iter().filter(|(other, _)| *other != number).collect();
            near.sort_by_key(|(other, _)| other.abs_diff(number));
            near.truncate(NEIGHBOURS);
            for (at, (from, first)) in near.iter().enumerate() {
                for (to, second) in &near[at + 1..] {
                    let step = (i64::from(*to) - i64::from(*from), i64::from(number) - i64::from(*from));
                    vote(continued(index, sought, first, second, step), 2);
                }
            }
            if let [(from, only)] = near.as_slice() {
                vote(shifted(index, sought, only, *from, number), 1);
            }
        }
        let all: usize = votes.iter().map(|(_, count)| count).sum();
        // A pair has two votes. More than one neighbour alone, and more than all others together, is sure.
        let best = votes.into_iter().max_by_key(|(_, count)| *count);
        best.map(|(plan, count)| (plan, count >= 2 && 2 * count > all))
    }

    /// Returns the plan that a tensor should have among those that are made alike in a row: what they are made of goes up with their number,
    /// of layers, experts and shards. `None` if there is no such row.
    pub(crate) fn in_turn(&self, index: &Index<'_>, sought: Sought<'_>, own: &Known) -> Option<Plan> {
        let name = sought.name;
        let start = |known: &Known| {
            known.runs.first().map(|run| (&index.of.name(run.first.tensor).numbers, run.first))
        };
        let mut kept = None;
        for (position, &number) in name.numbers.iter().enumerate() {
            let Some(row) = self.groups.get(&(&*name.template, position, without(&name.numbers, position)))
            else {
                continue;
            };
            let row: Vec<_> = row.iter().filter(|(_, known)| in_step(index, own, known)).collect();
            let Some(at) = row.iter().position(|(other, _)| *other == number) else { continue };
            let mut plans: Vec<&Known> = row.iter().map(|(_, known)| *known).collect();
            plans.sort_by_key(|known| start(known));
            // Replicas say nothing.
            if plans.len() < 2 || plans.windows(2).any(|pair| start(pair[0]) == start(pair[1])) {
                continue;
            }
            if plans[at].plan != own.plan {
                return Some(plans[at].plan.clone());
            }
            kept = Some(own.plan.clone());
        }
        kept
    }
}

/// Returns true if two plans are made of tensors of the same names, apart from numbers, in the same runs.
fn alike(index: &Index<'_>, first: &Known, second: &Known) -> bool {
    let same = |(a, b): (&Run, &Run)| {
        let [left, right] = [a, b].map(|run| &index.of.name(run.first.tensor).template);
        (a.at, a.count, a.step, a.first.axis) == (b.at, b.count, b.step, b.first.axis) && left == right
    };
    first.plan.axis == second.plan.axis
        && first.plan.places.len() == second.plan.places.len()
        && first.runs.len() == second.runs.len()
        && first.runs.iter().zip(&second.runs).all(same)
}

/// Returns true if two plans are alike, and their numbers are the same distance apart in all runs: the same experts in the same order.
fn in_step(index: &Index<'_>, first: &Known, second: &Known) -> bool {
    let distances = |(a, b): (&Run, &Run)| -> Vec<i64> {
        let [a, b] = [a, b].map(|run| index.of.name(run.first.tensor).numbers.iter());
        a.zip(b).map(|(a, b)| i64::from(*b) - i64::from(*a)).collect()
    };
    let mut all = first.runs.iter().zip(&second.runs).map(distances);
    let distance = all.next();
    alike(index, first, second) && all.all(|other| Some(other) == distance)
}

/// Returns `from + (to - from) * ahead / step` if that is a whole number of 32 bits.
fn line(from: u32, to: u32, (step, ahead): (i64, i64)) -> Option<u32> {
    let gone = (i64::from(to) - i64::from(from)).checked_mul(ahead)?;
    (gone % step == 0).then(|| u32::try_from(i64::from(from) + gone / step).ok()).flatten()
}

/// Continues the progression from the first plan to the second.
fn continued(
    index: &Index<'_>,
    sought: Sought<'_>,
    first: &Known,
    second: &Known,
    step: (i64, i64),
) -> Option<Plan> {
    let count = sought.lines.form.lines(first.plan.axis);
    if first.plan.places.len() != count || !alike(index, first, second) {
        return None;
    }
    let mut runs = Vec::with_capacity(first.runs.len());
    for (a, b) in first.runs.iter().zip(&second.runs) {
        let names = [a, b].map(|run| index.of.name(run.first.tensor));
        let numbers = names[0].numbers.iter().zip(&names[1].numbers);
        let numbers: Option<Vec<u32>> = numbers.map(|(&a, &b)| line(a, b, step)).collect();
        let tensor = index.named(&names[0].template, &numbers?)?;
        let first = Place { tensor, axis: a.first.axis, line: line(a.first.line, b.first.line, step)? };
        runs.push(Run { first, ..*a });
    }
    Some(Plan::of_runs(first.plan.axis, count, &runs))
}

/// Moves the only plan there is from number `from` to `to`, in names that contain `from`.
fn shifted(index: &Index<'_>, sought: Sought<'_>, only: &Known, from: u32, to: u32) -> Option<Plan> {
    let count = sought.lines.form.lines(only.plan.axis);
    let mut runs = Vec::with_capacity(only.runs.len());
    for run in &only.runs {
        let name = index.of.name(run.first.tensor);
        // The last such number: experts and layers stand behind ranks.
        let at = name.numbers.iter().rposition(|&number| number == from)?;
        let mut numbers = name.numbers.to_vec();
        numbers[at] = to;
        let tensor = index.named(&name.template, &numbers)?;
        runs.push(Run { first: Place { tensor, ..run.first }, ..*run });
    }
    (only.plan.places.len() == count).then(|| Plan::of_runs(only.plan.axis, count, &runs))
}
