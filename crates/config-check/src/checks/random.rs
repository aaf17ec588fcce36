//! Seeds and states of random generators.

use std::collections::{BTreeMap, BTreeSet};

use super::coverage::COLLECT;
use super::rows::Rows;
use crate::expectations::Ruling;
use crate::pack::{GeneratorState, Mark, Random, SeedCall};
use crate::part::Verdict;

/// Compares the generators of two ranks.
pub(super) fn check(rows: &mut Rows<'_>, a: &Random, b: &Random) {
    let other_seeds = seeds(rows, a, b);
    calls(rows, a, b);
    marks(rows, a, b, &other_seeds);
    device_init(rows, a.device_init, b.device_init);
}

/// Compares seeds by generator. Returns the generators whose seeds differ.
fn seeds(rows: &mut Rows<'_>, a: &Random, b: &Random) -> BTreeSet<String> {
    let mut differ = BTreeSet::new();
    let (seeds_a, seeds_b) = (common(rows, &a.seeds), common(rows, &b.seeds));
    let names: BTreeSet<&&str> = seeds_a.keys().chain(seeds_b.keys()).collect();
    for name in names {
        let shown = |side: &BTreeMap<&str, &Option<u64>>| {
            side.get(name).map(|seed| seed.map_or_else(|| "not seeded".to_owned(), |seed| seed.to_string()))
        };
        let (x, y) = (shown(&seeds_a), shown(&seeds_b));
        if x.is_some() && y.is_some() && x != y {
            differ.insert((*name).to_owned());
        }
        rows.fact(&format!("seed of {name}"), x.as_deref(), y.as_deref());
    }
    let valued = |side: &Random| !side.seeds.is_empty() || side.calls.iter().any(|call| call.value.is_some());
    if !valued(a) || !valued(b) {
        let shown = |side: &Random| valued(side).then(|| "recorded".to_owned());
        let ruling =
            Ruling::new(Verdict::Unknown, "seed values were not recorded, so they were not compared");
        rows.push("seed values", shown(a), shown(b), ruling.todo(COLLECT));
    }
    differ
}

/// Returns facts of generators by names of both sides: the generator of the framework has that of PyTorch.
fn common<'a, T>(rows: &Rows<'_>, facts: &'a BTreeMap<String, T>) -> BTreeMap<&'a str, &'a T> {
    let name =
        |name: &'a str| if rows.pair().across_frameworks && name == "mindspore" { "torch" } else { name };
    facts.iter().map(|(own, fact)| (name(own), fact)).collect()
}

/// Compares the calls of each function: values with counts, in order.
fn calls(rows: &mut Rows<'_>, a: &Random, b: &Random) {
    let functions: BTreeSet<&String> = a.calls.iter().chain(&b.calls).map(|call| &call.function).collect();
    for function in functions {
        let of = |side: &Random| -> Vec<SeedCall> {
            side.calls.iter().filter(|call| call.function == *function).cloned().collect()
        };
        let (x, y) = (of(a), of(b));
        let key = format!("calls of {function}");
        let shown = |calls: &[SeedCall]| (!calls.is_empty()).then(|| describe(calls));
        let (shown_x, shown_y) = (shown(&x), shown(&y));
        let counts = |calls: &[SeedCall]| {
            let mut counts: BTreeMap<Option<i64>, u64> = BTreeMap::new();
            for call in calls {
                let count = counts.entry(call.value).or_default();
                *count = count.saturating_add(call.count);
            }
            counts
        };
        let (count_x, count_y) = (counts(&x), counts(&y));
        let ruling = if count_x == count_y {
            Ruling::new(Verdict::Match, "")
        } else if count_x.keys().all(|value| count_y.contains_key(value))
            || count_y.keys().all(|value| count_x.contains_key(value))
        {
            Ruling::new(
                Verdict::Note,
                "called more often on one side; the states of the generators show whether it matters",
            )
        } else {
            rows.default_ruling(true)
        };
        rows.push(&key, shown_x, shown_y, ruling);
    }
}

fn describe(calls: &[SeedCall]) -> String {
    let one = |call: &SeedCall| {
        let value = call.value.map_or_else(|| "value not recorded".to_owned(), |value| value.to_string());
        let count = if call.count == 1 { String::new() } else { format!(" {} times", call.count) };
        let place = call.place.as_deref().map_or_else(String::new, |place| format!(" at {place}"));
        format!("{value}{count}{place}")
    };
    calls.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Point where the generator states of both sides diverge.
#[derive(Debug, Clone)]
struct Parting {
    mark: String,
    states: [Option<GeneratorState>; 2],
}

/// Compares the states of generators at each mark of both sides.
fn marks(rows: &mut Rows<'_>, a: &Random, b: &Random, other_seeds: &BTreeSet<String>) {
    let mut run = Generators { sides: [a, b], other_seeds, parted: BTreeMap::new(), before: BTreeMap::new() };
    for mark in &a.marks {
        rows.at_step(step_of(mark));
        let Some(other) = b.marks.iter().find(|other| other.mark == mark.mark) else {
            rows.one_sided(&format!("generators at {}", mark.mark), Some("recorded".into()), None);
            continue;
        };
        let (ours, theirs) = (common(rows, &mark.generators), common(rows, &other.generators));
        let names: BTreeSet<&str> = ours.keys().chain(theirs.keys()).copied().collect();
        for name in names {
            let key = format!("{name} at {}", mark.mark);
            let states = (ours.get(name).copied(), theirs.get(name).copied());
            let (Some(x), Some(y)) = states else {
                let shown = |state: Option<&GeneratorState>| state.map(describe_state);
                rows.one_sided(&key, shown(states.0), shown(states.1));
                continue;
            };
            let ruling = run.ruling(rows, name, &mark.mark, x, y);
            rows.push(&key, Some(describe_state(x)), Some(describe_state(y)), ruling);
            run.before.insert(name.to_owned(), (mark.mark.clone(), [x.clone(), y.clone()]));
        }
    }
    for mark in b.marks.iter().filter(|mark| !a.marks.iter().any(|other| other.mark == mark.mark)) {
        rows.at_step(step_of(mark));
        rows.one_sided(&format!("generators at {}", mark.mark), None, Some("recorded".into()));
    }
    rows.at_step(None);
}

/// The generators of both sides, from mark to mark.
struct Generators<'a> {
    sides: [&'a Random; 2],
    /// Generators whose seeds differ.
    other_seeds: &'a BTreeSet<String>,
    /// Generators whose states differ, with the mark since which they do.
    parted: BTreeMap<String, Parting>,
    /// States at the previous mark.
    before: BTreeMap<String, (String, [GeneratorState; 2])>,
}

impl Generators<'_> {
    /// Judges the states of a generator at a mark.
    fn ruling(
        &mut self,
        rows: &Rows<'_>,
        name: &str,
        mark: &str,
        x: &GeneratorState,
        y: &GeneratorState,
    ) -> Ruling {
        if name == "torch" && rows.pair().across_frameworks {
            let why = "each framework has a generator of its own: one seed gives other numbers";
            return Ruling::new(Verdict::Expected, why)
                .todo("load the same weights on both sides, and switch dropout off");
        }
        if name.starts_with("device") && rows.pair().is_mixed() {
            return across_kinds(rows, x, y);
        }
        if same(x, y) {
            self.parted.remove(name);
            return Ruling::new(Verdict::Match, "");
        }
        if x.untouched && y.untouched {
            return Ruling::new(
                Verdict::Note,
                "not seeded on either side, and nothing was drawn from it so far",
            );
        }
        let states = [Some(x.clone()), Some(y.clone())];
        if let Some(parting) = self.parted.get(name) {
            let on = if parting.states == states { "" } else { ", and both have moved on" };
            return Ruling::new(Verdict::Note, format!("differs since {}{on}", parting.mark));
        }
        self.parted.insert(name.to_owned(), Parting { mark: mark.to_owned(), states });
        self.ruling_of_parting(rows, name, mark, x, y)
    }

    /// Judges the states of a generator at the mark at which they begin to differ.
    fn ruling_of_parting(
        &self,
        rows: &Rows<'_>,
        name: &str,
        mark: &str,
        x: &GeneratorState,
        y: &GeneratorState,
    ) -> Ruling {
        if name == "numpy" && mark == "model" && rows.pair().across_frameworks {
            let why = "MindSpore draws the weights that it makes from NumPy's generator, PyTorch does not";
            return Ruling::new(Verdict::Note, why)
                .todo("seed NumPy again once the model is built, if the program draws from it");
        }
        if self.other_seeds.contains(name) {
            return Ruling::new(Verdict::Note, "follows from the other seed");
        }
        if is_seedable(name) && !self.sides.iter().any(|side| side.seeds.contains_key(name)) {
            let default = rows.default_ruling(true);
            let why = format!("neither side seeded it, and numbers were drawn from it: {}", default.why);
            return Ruling { why, ..default };
        }
        parting(rows, mark, self.before.get(name), x, y)
    }
}

/// Returns true for generators whose seeds are recorded, and that have no seed unless the program sets
/// one.
fn is_seedable(generator: &str) -> bool {
    matches!(generator, "python" | "numpy")
}

fn step_of(mark: &Mark) -> Option<u64> {
    mark.mark.strip_prefix("step ")?.parse().ok()
}

/// Compares two generators by the strongest evidence both recorded.
fn same(a: &GeneratorState, b: &GeneratorState) -> bool {
    match (&a.state, &b.state) {
        (Some(x), Some(y)) => x == y,
        _ => a.draws == b.draws && a.seed == b.seed && a.offset == b.offset,
    }
}

fn describe_state(state: &GeneratorState) -> String {
    let mut facts = Vec::new();
    if let Some(hash) = &state.state {
        facts.push(format!("state {}", hash.chars().take(12).collect::<String>()));
    }
    for (word, number) in [("draws", state.draws), ("seed", state.seed), ("offset", state.offset)] {
        facts.extend(number.map(|number| format!("{word} {number}")));
    }
    if facts.is_empty() { "nothing recorded".into() } else { facts.join(", ") }
}

/// Compares generators of a GPU and an NPU: their states differ in form, seed and offset do not.
fn across_kinds(rows: &Rows<'_>, a: &GeneratorState, b: &GeneratorState) -> Ruling {
    if a.seed != b.seed && a.seed.is_some() && b.seed.is_some() {
        return rows.default_ruling(true);
    }
    if a.offset != b.offset && a.offset.is_some() && b.offset.is_some() {
        let why = "the device generators were used a different number of times; their numbers differ by design anyway";
        return Ruling::new(Verdict::Note, why)
            .todo("draw on the host if both sides must see the same numbers");
    }
    Ruling::new(
        Verdict::Expected,
        "the state of a generator has a different form on each kind of device; seed and offset agree",
    )
}

/// Describes a generator that diverges.
fn parting(
    rows: &Rows<'_>,
    mark: &str,
    before: Option<&(String, [GeneratorState; 2])>,
    a: &GeneratorState,
    b: &GeneratorState,
) -> Ruling {
    let default = rows.default_ruling(true);
    let Some((since, [a_before, b_before])) = before else {
        return Ruling { why: format!("differs already at {mark}: {}", default.why), ..default };
    };
    let drawn = |before: &GeneratorState, now: &GeneratorState| now.draws?.checked_sub(before.draws?);
    let what = match (drawn(a_before, a), drawn(b_before, b)) {
        (Some(x), Some(y)) if x != y => format!("the baseline drew {x} numbers, the candidate {y}"),
        (Some(_), Some(_)) => {
            "both drew the same number of values, but one was reseeded or drew a different kind".into()
        }
        _ => "one side drew numbers that the other did not, or was reseeded".into(),
    };
    Ruling { why: format!("from {since} to {mark} {what}: {}", default.why), ..default }
}

fn device_init(rows: &mut Rows<'_>, a: Option<bool>, b: Option<bool>) {
    let shown =
        |side: Option<bool>| side.map(|side| if side { "on the device" } else { "on the host" }.to_owned());
    let key = "device_init";
    match (a, b) {
        (None, None) => {}
        (Some(a_device), Some(b_device)) if a_device == b_device && (!a_device || rows.pair().is_same()) => {
            rows.push(key, shown(a), shown(b), Ruling::new(Verdict::Match, "where parameters were drawn"));
        }
        _ => {
            let ruling = rows.ruling_of_difference(key, shown(a).as_deref(), shown(b).as_deref());
            rows.push(key, shown(a), shown(b), ruling);
        }
    }
}
