//! What a tensor should be, judged by its neighbours: the same tensor of other layers, experts and ranks.
//!
//! Of three tensors whose names differ in one number only, the third is to the second as the second is to the first: names and first lines of
//! what they are made of are continued like an arithmetic progression. Each pair of neighbours has a vote. A wrong tensor outvotes nobody.

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

/// Template, position of the number left out, the other numbers.
type Group<'a> = (&'a str, usize, Vec<u32>);

/// Plans of tensors that were found whole, by name.
#[derive(Debug)]
pub(crate) struct Neighbours<'a> {
    /// The number left out, and the plan.
    groups: HashMap<Group<'a>, Vec<(u32, &'a Known)>>,
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

    /// Returns the plan that a tensor should have among those that share the same tensors of the other side: shards, which go up with the
    /// number of the rank (or expert, or layer). `None` if they do, or share nothing.
    pub(crate) fn in_turn(&self, sought: Sought<'_>, found: &Plan) -> Option<Plan> {
        let name = sought.name;
        let start = |plan: &Plan| plan.places.first().copied().flatten();
        name.numbers.iter().enumerate().find_map(|(position, &number)| {
            let group = self.groups.get(&(&*name.template, position, without(&name.numbers, position)))?;
            let mut plans: Vec<&Plan> = group.iter().map(|(_, known)| &known.plan).collect();
            let at = group.iter().position(|(other, _)| *other == number)?;
            let shares = |plan: &&Plan| plan.axis == found.axis && plan.shares(found);
            let distinct = plans.windows(2).all(|pair| start(pair[0]) != start(pair[1]));
            if plans.len() < 2 || !distinct || !plans.iter().all(shares) {
                return None;
            }
            plans.sort_by_key(|plan| start(plan));
            (plans[at] != found).then(|| plans[at].clone())
        })
    }
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
    let same = first.plan.axis == second.plan.axis
        && first.runs.len() == second.runs.len()
        && first.plan.places.len() == count;
    if !same {
        return None;
    }
    let mut runs = Vec::with_capacity(first.runs.len());
    for (a, b) in first.runs.iter().zip(&second.runs) {
        let names = [a, b].map(|run| index.of.name(run.first.tensor));
        let same = (a.at, a.count, a.step, a.first.axis) == (b.at, b.count, b.step, b.first.axis);
        if !same || names[0].template != names[1].template {
            return None;
        }
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
