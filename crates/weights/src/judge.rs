//! Decides on every tensor of the candidate: where it comes from, and whether it is right.

use std::collections::HashMap;

use crate::finding::Used;
use crate::index::{Hashed, Index, Place};
use crate::layout::{Kind, Layout, Order};
use crate::lines::Axis;
use crate::place::{self, Expected, Found};
use crate::placed::{Placed, Verdict};
use crate::plan::{By, Plan, Sought};
use crate::values::{Difference, Reader};

/// Tensors that are made alike.
type Alike<'a> = (Kind<'a>, Vec<usize>);

/// Decides tensor by tensor.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    index: &'a Index<'a>,
    own: &'a Hashed<'a>,
    older: &'a [Index<'a>],
    baseline: Reader<'a>,
    candidate: Reader<'a>,
    pub(crate) faults: Vec<String>,
}

/// Share of lines from which a tensor counts as found although the others are not.
const MOST: f64 = 0.5;

impl<'a> Judge<'a> {
    pub(crate) fn new(index: &'a Index<'a>, own: &'a Hashed<'a>, older: &'a [Index<'a>]) -> Self {
        let baseline = Reader::new(index.of.checkpoint);
        Self { index, own, older, baseline, candidate: Reader::new(own.checkpoint), faults: Vec::new() }
    }

    /// Decides on all tensors.
    pub(crate) fn all(&mut self) -> Vec<Placed> {
        let found = place::found(self.index, self.own);
        let expected = place::expected(self.index, self.own, &found);
        let mut placed = Vec::with_capacity(found.len());
        for (tensor, (found, expected)) in (0..).zip(found.into_iter().zip(expected)) {
            placed.push(match place::sought(self.own, tensor) {
                None => Placed { layout: None, verdict: Verdict::Unread, plan: None, instead: None },
                Some(sought) => self.one(sought, found, expected),
            });
        }
        self.eliminate(&mut placed);
        self.against_their_kind(&mut placed);
        placed
    }

    /// Holds tensors of one name, apart from numbers, against one another: one that is made of the same sources in another order or
    /// arrangement than most is wrong. Where two say different things, the first is taken to be right.
    fn against_their_kind(&self, placed: &mut [Placed]) {
        // One of another shape is another thing: the last block has two parts where the others have six.
        let mut groups: HashMap<(&str, &[usize]), Vec<Alike<'_>>> = HashMap::new();
        for (at, (tensor, placed)) in self.own.checkpoint.tensors.iter().zip(placed.iter()).enumerate() {
            let (Some(layout), Verdict::Equal) = (&placed.layout, &placed.verdict) else { continue };
            let kind = layout.kind(self.index.of);
            let group = groups.entry((&tensor.name.template, &tensor.shape)).or_default();
            match group.iter_mut().find(|(other, _)| *other == kind) {
                Some((_, members)) => members.push(at),
                None => group.push((kind, vec![at])),
            }
        }
        for group in groups.values().filter(|group| group.len() > 1) {
            let Some((usual, members)) = group.iter().rev().max_by_key(|(_, members)| members.len()) else {
                continue;
            };
            let sources = |kind: &Kind<'_>| {
                let mut names: Vec<String> = kind.0.iter().map(|(name, ..)| (*name).to_owned()).collect();
                names.sort();
                names
            };
            for (kind, odd) in
                group.iter().filter(|(kind, _)| kind != usual && sources(kind) == sources(usual))
            {
                for &at in odd {
                    let other = members.first().map_or("", |&at| &*self.own.checkpoint.tensors[at].name.text);
                    let text = format!("{}, unlike {other}: {}", in_words(kind), in_words(usual));
                    placed[at].verdict = Verdict::Moved(text);
                }
            }
        }
    }

    fn placed(&self, plan: Plan, verdict: Verdict, instead: Option<Plan>) -> Placed {
        Placed { layout: Some(Layout::of(&plan, self.index.of)), verdict, plan: Some(plan), instead }
    }

    fn one(&mut self, sought: Sought<'_>, found: Found, expected: Option<Expected>) -> Placed {
        if let Some(Expected { plan, .. }) = &expected
            && plan.is_whole()
            && plan.equal_lines(self.index, sought).iter().all(|&equal| equal)
        {
            return self.placed(plan.clone(), Verdict::Equal, None);
        }
        let Found { plan, exact } = found;
        let plan = match plan {
            Some(plan) if exact => return self.whole(plan, expected),
            other => other,
        };
        if let Some(verdict) = self.stale(sought) {
            let plan = expected.map(|expected| expected.plan);
            let layout = plan.as_ref().map(|plan| Layout::of(plan, self.index.of));
            return Placed { layout, verdict, plan, instead: None };
        }
        if let Some(plan) = plan.as_ref().filter(|plan| self.is_padded(sought, plan)) {
            return self.placed(plan.clone(), Verdict::Equal, None);
        }
        match (plan, expected) {
            // A scaled or rounded tensor is recognised by its signs, and may be in the wrong place besides.
            (Some(elsewhere), Some(expected))
                if expected.sure
                    && elsewhere.is_whole()
                    && elsewhere != expected.plan
                    && Layout::of(&elsewhere, self.index.of).is_regular() =>
            {
                self.whole(elsewhere, Some(expected))
            }
            (_, Some(expected)) => self.changed(sought, Some(expected.plan)),
            (Some(plan), None) if plan.share() >= MOST => {
                let plan = plan.filled(self.index);
                self.changed(sought, Some(plan))
            }
            _ => self.changed(sought, None),
        }
    }

    /// Decides on a tensor whose lines were all found.
    fn whole(&self, plan: Plan, expected: Option<Expected>) -> Placed {
        match expected.filter(|expected| expected.plan != plan) {
            // One neighbour does not outvote a tensor that is simpler than it: then the neighbour is wrong.
            Some(expected) if expected.sure || expected.plan.runs().len() < plan.runs().len() => {
                let text = moved(&expected.plan, &plan, self.index.of);
                self.placed(expected.plan, Verdict::Moved(text), Some(plan))
            }
            _ => {
                let layout = Layout::of(&plan, self.index.of);
                let verdict = match layout.out_of_order(self.index.of) {
                    Some((first, second)) => Verdict::Moved(format!("{first} comes before {second}")),
                    None if layout.is_regular() => Verdict::Equal,
                    None => Verdict::Moved(layout.text()),
                };
                self.placed(plan, verdict, None)
            }
        }
    }

    /// Seeks a tensor in the snapshots.
    fn stale(&self, sought: Sought<'_>) -> Option<Verdict> {
        let holds =
            |older: &Index<'_>| Plan::find(older, sought, By::Value).is_some_and(|plan| plan.is_whole());
        self.older.iter().position(holds).map(Verdict::Stale)
    }

    /// Returns true if only lines at the end are not found, behind the last line that is.
    fn is_padded(&self, sought: Sought<'_>, plan: &Plan) -> bool {
        let held = plan.places.iter().take_while(|place| place.is_some()).count();
        let Some(last) = held.checked_sub(1).and_then(|at| plan.places[at]) else { return false };
        held < plan.places.len()
            && plan.places[held..].iter().all(Option::is_none)
            && last.after(1).is_some_and(|next| !self.index.of.holds(next))
            && plan.equal_lines(self.index, sought)[..held].iter().all(|&equal| equal)
            && plan.runs().len() == 1
    }

    /// Measures a tensor against its expected value.
    fn changed(&mut self, sought: Sought<'_>, plan: Option<Plan>) -> Placed {
        let Some(plan) = plan else {
            return Placed { layout: None, verdict: Verdict::Extra, plan: None, instead: None };
        };
        let equal = plan.equal_lines(self.index, sought);
        let differing = plan.places.iter().zip(&equal).filter(|(place, equal)| place.is_some() && !**equal);
        if differing.count() == 0
            && let Some(first) = plan.places.iter().position(Option::is_none)
        {
            let lacking = plan.places.iter().filter(|place| place.is_none()).count();
            let (all, word) = (plan.places.len(), plan.axis.word(plan.places.len()));
            let text = format!("{lacking} of {all} {word} are not in the baseline, first {first}");
            return self.placed(plan, Verdict::Moved(text), None);
        }
        let tensor = sought.tensor as usize;
        let measured = Difference::of(&mut self.candidate, tensor, &mut self.baseline, &plan, &equal);
        match measured {
            Ok(difference) => self.placed(plan, Verdict::Changed(difference), None),
            Err(error) => {
                self.faults.push(format!("{}: {error}", sought.name.text));
                self.placed(plan, Verdict::Unread, None)
            }
        }
    }

    /// Pairs the remaining tensors of both sides that alone have the same shape and numbers.
    fn eliminate(&mut self, placed: &mut [Placed]) {
        let used = crate::finding::used(self.index.of, placed);
        let free: Vec<u32> =
            (0_u32..).zip(&used).filter(|(_, used)| **used == Used::Less).map(|(at, _)| at).collect();
        for (tensor, placed) in (0..).zip(placed) {
            let (Verdict::Extra, Some(sought)) = (&placed.verdict, place::sought(self.own, tensor)) else {
                continue;
            };
            let fits = |&other: &u32| {
                let same = self.index.of.lines_of(other).is_some_and(|lines| lines.form == sought.lines.form);
                let [own, theirs] = [&sought.name.numbers, &self.index.of.name(other).numbers];
                same && (own.ends_with(theirs) || theirs.ends_with(own))
            };
            let likeness = |other: &u32| sought.name.likeness(self.index.of.name(*other));
            let mut fitting: Vec<u32> = free.iter().copied().filter(fits).collect();
            fitting.sort_by_key(|other| std::cmp::Reverse(likeness(other)));
            let only = match fitting.as_slice() {
                [one] => *one,
                [one, next, ..] if likeness(one) > likeness(next) => *one,
                _ => continue,
            };
            let plan = Plan::whole(only, sought.lines.form.lines(Axis::Row));
            *placed = self.changed(sought, Some(plan));
        }
    }
}

/// Names the sources of a layout, in short.
fn in_words((sources, _): &Kind<'_>) -> String {
    let last = |name: &str| {
        name.rsplit('.').find(|part| !matches!(*part, "weight" | "bias" | "{}")).unwrap_or(name).to_owned()
    };
    let source = |(name, along, order): &(&str, bool, Order)| {
        let turned = if *along { "" } else { " transposed" };
        let order = if *order == Order::Kept { String::new() } else { format!(" {order}") };
        format!("{}{turned}{order}", last(name))
    };
    sources.iter().map(source).collect::<Vec<_>>().join(", ")
}

/// Says how a tensor that was found elsewhere differs from where it should be.
fn moved(expected: &Plan, found: &Plan, side: &Hashed<'_>) -> String {
    let turned = |plan: &Plan| plan.places.iter().flatten().any(|place| place.axis != plan.axis);
    if turned(expected) != turned(found) {
        return "transposed".to_owned();
    }
    let pairs: Vec<(Place, Place)> = expected
        .places
        .iter()
        .zip(&found.places)
        .filter_map(|(expected, found)| Some(((*expected)?, (*found)?)))
        .collect();
    if expected.axis != found.axis || pairs.is_empty() {
        return format!("{} instead of {}", told(found, side), told(expected, side));
    }
    if pairs.iter().all(|(expected, found)| expected.tensor == found.tensor) {
        return reordered(&pairs, side).unwrap_or_else(|| {
            let (held, due) = (told(found, side), told(expected, side));
            // The neighbours are permuted, and this one is not.
            if held == due {
                "the sources follow one another differently".to_owned()
            } else {
                format!("{held} instead of {due}")
            }
        });
    }
    let mut renamed: Vec<(u32, u32)> = Vec::new();
    for (expected, found) in &pairs {
        if renamed.iter().all(|pair| *pair != (expected.tensor, found.tensor)) {
            renamed.push((expected.tensor, found.tensor));
        }
    }
    let other: Vec<(u32, u32)> = renamed.iter().copied().filter(|(a, b)| a != b).collect();
    let one_to_one =
        renamed.iter().all(|(a, b)| renamed.iter().filter(|(c, d)| c == a || d == b).count() == 1);
    match other.as_slice() {
        [(a, b), (c, d)] if one_to_one && (a, b) == (d, c) => {
            format!("{} and {} swapped", side.name(*a).text, side.name(*b).text)
        }
        [(a, b), ..] if one_to_one => {
            format!("holds {} instead of {}", side.name(*b).text, side.name(*a).text)
        }
        _ => format!("{} instead of {}", told(found, side), told(expected, side)),
    }
}

fn told(plan: &Plan, side: &Hashed<'_>) -> String {
    let text = Layout::of(plan, side).text();
    if text.is_empty() { "in order".to_owned() } else { text }
}

/// Returns the order of the lines that were found among those that are due.
fn of_due(pairs: &[&(Place, Place)]) -> Option<Order> {
    let due: HashMap<u32, u32> = pairs.iter().map(|(expected, _)| expected.line).zip(0..).collect();
    let found: Option<Vec<u32>> = pairs.iter().map(|(_, found)| due.get(&found.line).copied()).collect();
    Some(Order::of(&found?))
}

/// Says how the lines of each source are ordered; `None` if they are in order.
fn reordered(pairs: &[(Place, Place)], side: &Hashed<'_>) -> Option<String> {
    let mut sources: Vec<u32> = pairs.iter().map(|(expected, _)| expected.tensor).collect();
    sources.sort_unstable();
    sources.dedup();
    let mut words = Vec::new();
    for &source in &sources {
        let of: Vec<&(Place, Place)> =
            pairs.iter().filter(|(expected, _)| expected.tensor == source).collect();
        let mut lines: Vec<u32> = of.iter().map(|(expected, _)| expected.line).collect();
        lines.sort_unstable();
        let word = of.first().map_or("lines", |pair| pair.1.axis.word(2));
        let ranks: Option<Vec<u32>> = of
            .iter()
            .map(|(_, found)| lines.binary_search(&found.line).ok().and_then(|at| u32::try_from(at).ok()))
            .collect();
        let Some(ranks) = ranks else {
            let [from, instead] = [of.first().map(|pair| pair.1.line), lines.first().copied()];
            let (from, instead) = (from.unwrap_or(0), instead.unwrap_or(0));
            words.push(format!("{word} from {from} on instead of from {instead} on"));
            continue;
        };
        let order = match Order::of(&ranks) {
            order if order.is_regular() => order,
            // Where a rotary embedding permutes all, only the order against that says more.
            order => of_due(&of).filter(|due| *due != Order::Mixed).unwrap_or(order),
        };
        if order != Order::Kept {
            let name = &side.name(source).text;
            let of_one = sources.len() == 1;
            words.push(if of_one {
                format!("{word}: {order}")
            } else {
                format!("{word} of {name}: {order}")
            });
        }
    }
    words.dedup();
    (!words.is_empty()).then(|| words.join("; "))
}
