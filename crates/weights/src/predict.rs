//! The expected content of a tensor, judged by its neighbours: the same tensor of other layers, experts and ranks.
//!
//! The sources of neighbours that are made alike go up with their numbers. And of three tensors whose names differ in one number only, the
//! third is to the second as the second is to the first: names and first lines are continued like an arithmetic progression. Each pair of
//! neighbours has a vote. A wrong tensor outvotes nobody.

use std::cmp::{Ordering, Reverse};
use std::collections::{HashMap, HashSet};

use crate::index::{Index, Place};
use crate::lines::Form;
use crate::plan::{Plan, Run, Sought};

/// Neighbours on which a prediction rests.
const NEIGHBOURS: usize = 6;

/// A plan that is known, of a tensor.
#[derive(Debug)]
pub(crate) struct Known {
    form: Form,
    plan: Plan,
    runs: Vec<Run>,
}

/// Tensors whose names differ in one number: template, position of that number, and the other numbers.
type Row<'a> = (&'a str, usize, Vec<u32>);

/// Plans of tensors that were found whole, by row and number.
#[derive(Debug)]
pub(crate) struct Neighbours<'a> {
    groups: HashMap<Row<'a>, Vec<(u32, &'a Known)>>,
    /// What is numbered the other way round, such as blocks of a decoder that another program counts from the end.
    reversed: HashSet<Stem<'a>>,
    /// Names and positions of numbers of which most rows hold one tensor over and over, as ranks hold norms.
    replicas: HashSet<(&'a str, usize)>,
    /// By name and position of a number, the numbers of sources that go up with it in most rows.
    counted: HashMap<(&'a str, usize), Vec<bool>>,
}

/// The beginning of names up to a number, and the numbers in it.
type Stem<'a> = (&'a str, Vec<u32>);

/// Plans and how many votes each has.
#[derive(Debug, Default)]
struct Votes(Vec<(Plan, usize)>);

impl Votes {
    /// Counts a vote, unless there are no such lines. Behind the end of a table is padding.
    fn add(&mut self, index: &Index<'_>, plan: Option<Plan>, weight: usize) {
        let Some(mut plan) = plan else { return };
        let there = |place: &Option<Place>| place.is_none_or(|place| index.of.holds(place));
        let held = plan.places.iter().take_while(|place| there(place)).count();
        if held == 0 || plan.places[held..].iter().any(there) {
            return;
        }
        plan.places[held..].fill(None);
        match self.0.iter_mut().find(|(other, _)| *other == plan) {
            Some((_, count)) => *count += weight,
            None => self.0.push((plan, weight)),
        }
    }
}

/// The position of the number that counts in a row, that of a tensor, and the row.
type InRow<'r, 'a> = (usize, u32, &'r [(u32, &'a Known)]);

/// Fewest tensors in a row that show that it is reversed: two may as well be exchanged.
const REVERSED: usize = 3;

fn stem<'a>((template, position, others): &Row<'a>) -> Stem<'a> {
    let end = template.match_indices("{}").nth(*position).map_or(template.len(), |(at, _)| at);
    (&template[..end], others[..*position].to_vec())
}

impl Known {
    pub(crate) fn of(plan: &Plan, form: Form) -> Self {
        Self { form, plan: plan.clone(), runs: plan.runs() }
    }
}

fn without(numbers: &[u32], position: usize) -> Vec<u32> {
    numbers.iter().enumerate().filter(|(at, _)| *at != position).map(|(_, number)| *number).collect()
}

impl<'a> Neighbours<'a> {
    pub(crate) fn new(
        index: &Index<'_>,
        known: impl Iterator<Item = (&'a crate::checkpoint::Name, &'a Known)>,
    ) -> Self {
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
        // One direction for all rows of a module: those that are out of order say nothing.
        let mut directions: HashMap<Stem<'_>, (bool, usize)> = HashMap::new();
        let mut same: HashMap<(&str, usize), (usize, usize)> = HashMap::new();
        let mut counted: HashMap<(&str, usize), HashMap<Vec<bool>, usize>> = HashMap::new();
        for (row, members) in groups.iter().filter(|(_, members)| members.len() > 1) {
            let (replicas, all) = same.entry((row.0, row.1)).or_default();
            *all += 1;
            *replicas += usize::from(!is_mixed(members));
            let counts = counted.entry((row.0, row.1)).or_default();
            for pair in members.windows(2).filter(|pair| alike(index, pair[0].1, pair[1].1)) {
                *counts.entry(differing(index, pair[0].1, pair[1].1)).or_insert(0) += 1;
            }
            let (rises, longest) = directions.entry(stem(row)).or_default();
            match direction(index, members) {
                Ordering::Less => *rises = true,
                Ordering::Greater => *longest = members.len().max(*longest),
                Ordering::Equal => {}
            }
        }
        let reversed = directions.into_iter().filter(|(_, (rises, longest))| !rises && *longest >= REVERSED);
        let reversed = reversed.map(|(stem, _)| stem).collect();
        // An exchange makes no replicas out of others: half of the rows are enough.
        let replicas = same.into_iter().filter(|(_, (replicas, all))| 2 * replicas >= *all);
        let replicas = replicas.map(|(position, _)| position).collect();
        // Of two that are as frequent, the one that counts less: an exchange adds to it.
        let most = |counts: HashMap<Vec<bool>, usize>| {
            let fewest = |which: &[bool]| Reverse(which.iter().filter(|&&differs| differs).count());
            counts.into_iter().max_by_key(|(which, count)| (*count, fewest(which), which.clone()))
        };
        let counted = counted.into_iter().filter_map(|(key, counts)| Some((key, most(counts)?.0))).collect();
        Self { groups, reversed, replicas, counted }
    }

    /// Returns the plan that most neighbours vote for, and whether more than one pair did.
    pub(crate) fn predict(
        &self,
        index: &Index<'_>,
        sought: Sought<'_>,
        own: Option<&Plan>,
    ) -> Option<(Plan, bool)> {
        let rows = self.rows(sought.name);
        // Of a tensor and its copy, one is in the wrong place. Those between which it was copied say which.
        let is_copy = |(position, _, row): &InRow<'_, '_>| {
            let alike = row.iter().filter(|(_, known)| Some(&known.plan) == own).count();
            alike > 1 && is_mixed(row) && !self.replicas.contains(&(&*sought.name.template, *position))
        };
        let mut votes = Votes::default();
        let copies: Vec<_> = rows.iter().filter(|row| is_copy(row)).collect();
        for row in &copies {
            self.poll(index, sought, own, row, &mut votes);
        }
        if votes.0.is_empty() {
            for row in &rows {
                self.poll(index, sought, own.filter(|_| !copies.is_empty()), row, &mut votes);
            }
        }
        let all: usize = votes.0.iter().map(|(_, count)| count).sum();
        // A pair has two votes. More than one neighbour alone, and more than all others together, is sure.
        let best = votes.0.into_iter().max_by_key(|(_, count)| *count);
        let is_copy = !copies.is_empty();
        best.map(|(plan, count)| (plan, count >= 2 && 2 * count > all || is_copy && count == all))
    }

    /// Collects the votes of a row on a tensor, those of the plan `without` left out.
    fn poll(
        &self,
        index: &Index<'_>,
        sought: Sought<'_>,
        without: Option<&Plan>,
        &(position, number, row): &InRow<'_, '_>,
        votes: &mut Votes,
    ) {
        let other = |(at, known): &&(u32, &Known)| *at != number && Some(&known.plan) != without;
        let mut near: Vec<_> = row.iter().filter(other).collect();
        near.sort_by_key(|(other, _)| other.abs_diff(number));
        near.truncate(NEIGHBOURS);
        if self.replicas.contains(&(&*sought.name.template, position)) {
            for (_, known) in &near {
                votes.add(index, Some(known.plan.clone()), 2);
            }
            return;
        }
        for (at, (from, first)) in near.iter().enumerate() {
            for (to, second) in &near[at + 1..] {
                if first.plan == second.plan && is_mixed(row) {
                    continue;
                }
                let step = (i64::from(*to) - i64::from(*from), i64::from(number) - i64::from(*from));
                votes.add(index, continued(index, sought, first, second, step), 2);
            }
        }
        if let [(from, only)] = near.as_slice() {
            votes.add(index, shifted(index, sought, only, *from, number), 1);
        }
    }

    /// Returns the rows in which a tensor stands: the position of the number that counts, its value, and the row.
    fn rows<'r>(&'r self, name: &'r crate::checkpoint::Name) -> Vec<InRow<'r, 'a>> {
        let row = |(position, &number): (usize, &u32)| {
            let key = (&*name.template, position, without(&name.numbers, position));
            Some((position, number, self.groups.get(&key)?.as_slice()))
        };
        name.numbers.iter().enumerate().filter_map(row).collect()
    }

    /// Returns the plan that a tensor should have among those that are made alike in a row: what they are made of goes up with their number,
    /// of layers, experts and shards. `None` if there is no such row, or if another tensor in it has the same content.
    pub(crate) fn in_turn(&self, index: &Index<'_>, sought: Sought<'_>, own: &Known) -> Option<Plan> {
        let name = sought.name;
        let mut kept = None;
        for (position, number, row) in self.rows(name) {
            if self.replicas.contains(&(&*name.template, position)) {
                continue;
            }
            // What else goes up with the number is not what it counts: here, layers are exchanged in one group of experts.
            let usual = self.counted.get(&(&*name.template, position));
            let fits = |known: &Known| {
                let differing = differing(index, own, known);
                in_step(index, own, known)
                    && usual.is_none_or(|usual| differing == *usual || !differing.contains(&true))
            };
            let row: Vec<_> = row.iter().filter(|(_, known)| fits(known)).collect();
            let Some(at) = row.iter().position(|(other, _)| *other == number) else { continue };
            let mut plans: Vec<&Known> = row.iter().map(|(_, known)| *known).collect();
            plans.sort_by(|a, b| start(index, a).cmp(&start(index, b)));
            if self.reversed.contains(&stem(&(&name.template, position, without(&name.numbers, position)))) {
                plans.reverse();
            }
            let copies = plans.iter().filter(|known| known.plan == own.plan).count();
            if copies > 1 && copies < plans.len() {
                return None;
            }
            // Replicas say nothing.
            if plans.len() < 2 || plans.windows(2).any(|pair| start(index, pair[0]) == start(index, pair[1]))
            {
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
        && first.form == second.form
        && first.runs.len() == second.runs.len()
        && first.runs.iter().zip(&second.runs).all(same)
}

/// Returns true if two plans are alike, and the same distance apart in all runs: the same experts, or the same heads, in the same order. Other
/// tensors have the same lines (layers, experts), and the same ones other lines (shards, stacks).
fn in_step(index: &Index<'_>, first: &Known, second: &Known) -> bool {
    let runs = || first.runs.iter().zip(&second.runs);
    let distances = |(a, b): (&Run, &Run)| -> Vec<i64> {
        let [a, b] = [a, b].map(|run| index.of.name(run.first.tensor).numbers.iter());
        a.zip(b).map(|(a, b)| i64::from(*b) - i64::from(*a)).collect()
    };
    let mut all = runs().map(distances);
    let distance = all.next();
    if !alike(index, first, second) || !all.all(|other| Some(other) == distance) {
        return false;
    }
    let other = distance.is_some_and(|distance| distance.iter().any(|&number| number != 0));
    let mut gone: HashMap<&str, i64> = HashMap::new();
    runs().all(|(a, b)| {
        let lines = i64::from(b.first.line) - i64::from(a.first.line);
        let of_source = *gone.entry(&*index.of.name(a.first.tensor).template).or_insert(lines);
        if other { lines == 0 } else { lines == of_source }
    })
}

/// Returns which numbers of the first sources of two plans differ.
fn differing(index: &Index<'_>, first: &Known, second: &Known) -> Vec<bool> {
    let Some((a, b)) = first.runs.first().zip(second.runs.first()) else { return Vec::new() };
    let [a, b] = [a, b].map(|run| index.of.name(run.first.tensor).numbers.iter());
    a.zip(b).map(|(a, b)| a != b).collect()
}

/// Returns the numbers and the place with which a plan begins.
fn start<'a>(index: &Index<'a>, known: &Known) -> Option<(&'a [u32], Place)> {
    known.runs.first().map(|run| (&*index.of.name(run.first.tensor).numbers, run.first))
}

/// Returns true if plans in a row are not all the same, as those of replicas are.
fn is_mixed(row: &[(u32, &Known)]) -> bool {
    row.windows(2).any(|pair| pair[0].1.plan != pair[1].1.plan)
}

/// Returns whether what plans in a row are made of goes up or down with their numbers: where more of them are in their places.
fn direction(index: &Index<'_>, row: &[(u32, &Known)]) -> Ordering {
    let own: Vec<_> = row.iter().filter_map(|(_, known)| start(index, known)).collect();
    let mut sorted = own.clone();
    sorted.sort();
    let in_place = own.iter().zip(&sorted).filter(|(own, due)| own == due).count();
    let in_reverse = own.iter().zip(sorted.iter().rev()).filter(|(own, due)| own == due).count();
    in_reverse.cmp(&in_place)
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
    if first.form != sought.lines.form || !alike(index, first, second) {
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
        // The last such number of which there is another: experts and layers stand behind ranks.
        let tensor = (0..name.numbers.len()).rev().filter(|&at| name.numbers[at] == from).find_map(|at| {
            let mut numbers = name.numbers.to_vec();
            numbers[at] = to;
            index.named(&name.template, &numbers)
        })?;
        runs.push(Run { first: Place { tensor, ..run.first }, ..*run });
    }
    (only.form == sought.lines.form).then(|| Plan::of_runs(only.plan.axis, count, &runs))
}
