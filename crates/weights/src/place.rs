//! Finds the places of all tensors of the candidate, and their expected layouts.

use rayon::prelude::*;

use crate::index::{Hashed, Index, Place};
use crate::lines::Axis;
use crate::plan::{By, Plan, Sought};
use crate::predict::{Known, Neighbours};

/// Findings on a tensor.
#[derive(Debug)]
pub(crate) struct Found {
    /// Lines that are equal, and where nothing is, lines of equal signs.
    pub(crate) plan: Option<Plan>,
    /// True if all lines are equal to those at their places.
    pub(crate) exact: bool,
}

/// Expected content of a tensor.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) plan: Plan,
    /// True if it has the same name, or more than one pair of neighbours say so.
    pub(crate) sure: bool,
}

/// Returns the tensors of a side that could be read, as things to be placed.
pub(crate) fn sought<'a>(side: &'a Hashed<'_>, tensor: u32) -> Option<Sought<'a>> {
    let lines = side.lines_of(tensor)?;
    Some(Sought {
        tensor,
        dtype: side.dtype(tensor),
        lines,
        name: &side.checkpoint.tensors[tensor as usize].name,
    })
}

/// Seeks every tensor of `own`.
pub(crate) fn found(index: &Index<'_>, own: &Hashed<'_>) -> Vec<Found> {
    let count = u32::try_from(own.lines.len()).unwrap_or(u32::MAX);
    (0..count)
        .into_par_iter()
        .map(|tensor| {
            let Some(sought) = sought(own, tensor) else { return Found { plan: None, exact: false } };
            let equal = Plan::find(index, sought, By::Value);
            if let Some(plan) = equal.as_ref().filter(|plan| plan.is_whole()) {
                return Found { plan: Some(plan.clone()), exact: true };
            }
            let alike = Plan::find(index, sought, By::Sign);
            Found { plan: merged(equal, alike), exact: false }
        })
        .collect()
}

/// Adds places by signs to those by value, if both go along the same direction.
fn merged(equal: Option<Plan>, alike: Option<Plan>) -> Option<Plan> {
    let (Some(mut equal), Some(alike)) = (equal.clone(), alike.clone()) else { return equal.or(alike) };
    if equal.axis != alike.axis {
        return Some(if alike.share() > equal.share() { alike } else { equal });
    }
    for (place, other) in equal.places.iter_mut().zip(alike.places) {
        *place = place.or(other);
    }
    Some(equal)
}

/// Returns the expected layout of every tensor: by its name, by its neighbours, or for a bias by its weight.
pub(crate) fn expected(index: &Index<'_>, own: &Hashed<'_>, found: &[Found]) -> Vec<Option<Expected>> {
    let known: Vec<Option<Known>> = found
        .iter()
        .zip(&own.lines)
        .map(|(found, lines)| {
            let plan = found.plan.as_ref().filter(|plan| plan.is_whole())?;
            Some(Known::of(plan, lines.as_ref()?.form))
        })
        .collect();
    let pairs = (0..).zip(&known).filter_map(|(tensor, known)| Some((own.name(tensor), known.as_ref()?)));
    let neighbours = Neighbours::new(index, pairs);
    let kept = numbers_are_kept(index, own, found);
    let alike = names_mean_the_same(index, own);
    let expected = |tensor: u32| {
        let sought = sought(own, tensor)?;
        let called = called(index, sought);
        if let Some(plan) = called.clone().filter(|_| alike) {
            return Some(Expected { plan, sure: true });
        }
        let found = found[tensor as usize].plan.as_ref();
        if let Some(plan) =
            known[tensor as usize].as_ref().and_then(|own| neighbours.in_turn(index, sought, own))
        {
            return Some(Expected { plan, sure: true });
        }
        match neighbours.predict(index, sought, found.filter(|plan| plan.is_whole())) {
            Some((plan, true)) => Some(Expected { plan, sure: true }),
            unsure => {
                let plan = found.filter(|_| kept).and_then(|plan| numbered(index, sought, plan));
                plan.map(|plan| Expected { plan, sure: true })
                    .or_else(|| unsure.map(|(plan, sure)| Expected { plan, sure }))
                    .or_else(|| called.map(|plan| Expected { plan, sure: false }))
            }
        }
    };
    let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
    let mut all: Vec<Option<Expected>> = (0..count).into_par_iter().map(expected).collect();
    for tensor in 0..count {
        if all[tensor as usize].as_ref().is_none_or(|expected| !expected.sure)
            && let Some(sought) = sought(own, tensor)
            && let Some(plan) = of_bias(index, own, found, &all, sought)
        {
            all[tensor as usize] = Some(Expected { plan, sure: false });
        }
    }
    all
}

/// Returns the plan of a tensor that has a name of the other side, and the same shape.
fn called(index: &Index<'_>, sought: Sought<'_>) -> Option<Plan> {
    let tensor = index.called(sought.name)?;
    let same = index.of.lines_of(tensor)?.form == sought.lines.form;
    same.then(|| Plan::whole(tensor, sought.lines.form.lines(Axis::Row)))
}

/// Returns the plan of a bias that is made of other biases as its weight is made of their weights.
fn of_bias(
    index: &Index<'_>,
    own: &Hashed<'_>,
    found: &[Found],
    expected: &[Option<Expected>],
    sought: Sought<'_>,
) -> Option<Plan> {
    let wanted = format!("{}weight", sought.name.text.strip_suffix("bias")?);
    let at = own.checkpoint.tensors.iter().position(|tensor| *tensor.name.text == *wanted)?;
    let plan = expected[at].as_ref().map(|expected| &expected.plan).or(found[at].plan.as_ref());
    let plan = plan.filter(|plan| plan.axis == Axis::Row && plan.is_whole())?;
    let count = sought.lines.form.lines(Axis::Column);
    if plan.places.len() != count || sought.lines.form.lines(Axis::Row) != 1 {
        return None;
    }
    let place = |place: &Place| {
        let name = index.of.name(place.tensor);
        let template = format!("{}bias", name.template.strip_suffix("weight")?);
        let tensor = index.named(&template, &name.numbers)?;
        let bias = Place { tensor, axis: Axis::Column, line: place.line };
        index.of.holds(bias).then_some(bias)
    };
    let places: Option<Vec<_>> = plan.places.iter().flatten().map(|at| place(at).map(Some)).collect();
    Some(Plan { axis: Axis::Column, places: places? })
}

/// Returns true if tensors of one name have one shape. If not, the same names stand for other layouts, such as transposes.
fn names_mean_the_same(index: &Index<'_>, own: &Hashed<'_>) -> bool {
    own.checkpoint.tensors.iter().all(|tensor| {
        let other = index.called(&tensor.name).map(|other| &index.of.checkpoint.tensors[other as usize]);
        other.is_none_or(|other| other.shape == tensor.shape)
    })
}

/// Share of tensors from which the numbers in names count as the same on both sides.
const KEPT: f64 = 0.7;

/// Returns true if tensors mostly have the numbers of their sources.
fn numbers_are_kept(index: &Index<'_>, own: &Hashed<'_>, found: &[Found]) -> bool {
    let (mut kept, mut all) = (0_u32, 0_u32);
    for (tensor, found) in (0..).zip(found) {
        let numbers = &own.name(tensor).numbers;
        let first = found.plan.as_ref().and_then(|plan| plan.places.first().copied().flatten());
        let Some(place) = first.filter(|_| !numbers.is_empty()) else { continue };
        let theirs = &index.of.name(place.tensor).numbers;
        if theirs.len() == numbers.len() {
            all += 1;
            kept += u32::from(theirs == numbers);
        }
    }
    all > 0 && f64::from(kept) >= KEPT * f64::from(all)
}

/// Returns the plan with the tensor's own numbers in the names of its sources, if that is another one.
fn numbered(index: &Index<'_>, sought: Sought<'_>, plan: &Plan) -> Option<Plan> {
    let place = |place: &Place| {
        let name = index.of.name(place.tensor);
        (name.numbers.len() == sought.name.numbers.len()).then_some(())?;
        let tensor = index.named(&name.template, &sought.name.numbers)?;
        Some(Some(Place { tensor, ..*place })).filter(|place| place.is_some_and(|at| index.of.holds(at)))
    };
    let places: Option<Vec<_>> =
        plan.is_whole().then(|| plan.places.iter().flatten().map(place).collect())?;
    let other = Plan { axis: plan.axis, places: places? };
    (other != *plan).then_some(other)
}
