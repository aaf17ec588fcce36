//! Noise that was measured: by how much a second run of the baseline's program is off, as floors for the candidate.
//!
//! The second run is weighed against the baseline as a candidate is. What is left of an error beyond what the inputs explain is
//! kept by place (step, rank, op, slot) and pooled by family. A value may be off by what was measured at its place and by the
//! median of its family; where its step was not measured, by the level of the family alone.

mod file;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use super::difference::Difference;
use super::excess::UNJUDGED;
use super::family::SHARE;
use super::flow::{Flow, Place};
use super::history::{History, weigh};
use super::median::median;
use super::rulebook::RuleBook;
use super::setting::Setting;
use super::tolerance::Rules;
use super::value::{Family, Role, Weighed};
use super::{PartEvidence, Verdict};
use probe_files::settings::SettingsError;
use probe_pair::PartPair;

/// A fault is beyond measured noise by more than this factor: 3 bits, as beyond any other floor.
const BEYOND: f64 = 8.0;

/// The largest error of a family is at most this many times its level: below all thresholds of the judge, the least of which
/// is 2 bits, so that nothing that was measured looks at fault.
const LARGEST: f64 = 4.0;

/// Share of the values that may be so far off that nothing can be judged; beyond it the dump is of no second run.
const FAR: f64 = 0.5;

/// Step and rank, as the baseline numbers them.
type PartKey = (u64, u32);

/// What was measured, for all parts.
#[derive(Debug, Default)]
pub struct Noise {
    parts: HashMap<PartKey, Places>,
    levels: HashMap<Family, Level>,
}

/// What was measured in one step of one rank.
#[derive(Debug, Default)]
struct Places {
    /// Own errors; an address is a hash of op, slot and role, since names would take many times the memory.
    errors: HashMap<u64, f32>,
    /// Values that are exact (integers, hashes) and differ between runs.
    varied: HashSet<u64>,
}

/// Level of a family, of the own errors of its calls.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    median: f64,
    largest: f64,
    calls: usize,
}

impl Level {
    /// What any call of the family may be off by.
    fn of_any(self) -> f64 {
        self.median.max(self.largest / LARGEST)
    }
}

/// What one step of one rank shows of noise.
#[derive(Debug, Default)]
pub struct PartNoise {
    key: PartKey,
    places: Places,
    calls: Vec<(Family, Call)>,
    largest: Option<Largest>,
    /// Ops that both runs have.
    paired: usize,
    /// Results that were weighed, and those so far off that nothing can be judged.
    weighed: usize,
    far: usize,
}

/// Own error of a call.
#[derive(Debug, Clone, Copy)]
struct Call {
    own: f32,
    /// The inputs explain little of its error.
    shows: bool,
}

/// The largest own error: what it is, and of which op and slot.
type Largest = (f64, String);

/// Weighs a second run, the candidate of `pair`, against the baseline. `history` is what the step before of this rank left.
pub fn measure_noise(pair: &PartPair, evidence: &PartEvidence, history: &History) -> (PartNoise, History) {
    let setting = Setting::of(pair);
    let flow = Flow::of(pair, evidence, &setting, &Rules::default(), &mut RuleBook::default());
    let (weighing, _) = weigh(&flow, &setting, history);
    let mut found = PartNoise { key: (pair.step, pair.rank), ..PartNoise::default() };
    for value in &weighing.values {
        if value.family.role == Role::Result {
            found.weighed += 1;
            found.far += usize::from(value.error >= UNJUDGED);
        }
        if value.explained >= UNJUDGED || !value.error.is_finite() {
            continue;
        }
        let own = own(value);
        #[expect(clippy::cast_possible_truncation, reason = "a floor needs no more digits")]
        let stored = own as f32;
        if own > 0.0 {
            let address = address(&flow, value.place, value.family.role);
            found.places.errors.insert(address, stored);
        }
        if value.family.role == Role::Result {
            let shows = value.elements > 1.0 && (value.clean || value.explained < SHARE * value.error);
            found.calls.push(((*value.family).clone(), Call { own: stored, shows }));
            if found.largest.as_ref().is_none_or(|(largest, _)| own > *largest) {
                let slot = flow.slot(value.place).map_or("", |slot| &*slot.path);
                found.largest = Some((own, format!("{} {slot}", flow.nodes[value.place.0].op.name)));
            }
        }
    }
    for (position, node) in flow.nodes.iter().enumerate() {
        found.paired += usize::from(node.is_paired);
        let varied = |slot: &usize| is_exact(flow.fact((position, *slot)).difference);
        let places = (0..node.slot_count()).filter(varied).map(|slot| (position, slot));
        found.places.varied.extend(places.map(|place| address(&flow, place, Role::Result)));
    }
    let next = History::after(&flow, weighing.gradients, <_>::default(), false);
    (found, next)
}

/// Differences that have no size.
const fn is_exact(difference: Difference) -> bool {
    matches!(difference, Difference::Elements | Difference::Checksum | Difference::ComputedArgument)
}

/// What the inputs do not explain. Of statistics, which show a part of either error, all.
fn own(value: &Weighed) -> f64 {
    let explained = if value.blind { 0.0 } else { value.explained };
    (value.error * value.error - explained * explained).max(0.0).sqrt()
}

fn address(flow: &Flow<'_>, place: Place, role: Role) -> u64 {
    let mut hasher = DefaultHasher::new();
    flow.nodes[place.0].op.name.as_str().hash(&mut hasher);
    flow.slot(place).map(|slot| &*slot.path).hash(&mut hasher);
    role.hash(&mut hasher);
    hasher.finish()
}

/// Gathers what the parts of one or more runs show.
#[derive(Debug, Default)]
pub struct NoiseMeter {
    parts: HashMap<PartKey, Places>,
    calls: HashMap<Family, Calls>,
    /// Levels of files.
    given: HashMap<Family, Level>,
    /// Of the run that is being measured.
    run: RunNoise,
}

/// Own errors of the calls of a family: of those that show them, and of those whose inputs explain most of their errors.
#[derive(Debug, Default)]
struct Calls {
    shown: Vec<f32>,
    hidden: Vec<f32>,
}

impl Calls {
    fn level(self) -> Level {
        let shown = if self.shown.is_empty() { self.hidden } else { self.shown };
        let mut errors: Vec<f64> = shown.into_iter().map(f64::from).collect();
        let median = median(&mut errors);
        Level { median, largest: errors.last().copied().unwrap_or_default(), calls: errors.len() }
    }
}

/// What one run shows.
#[derive(Debug, Default)]
struct RunNoise {
    steps: BTreeSet<u64>,
    ranks: BTreeSet<u32>,
    largest: Option<Largest>,
    paired: usize,
    weighed: usize,
    far: usize,
    varied: usize,
}

impl NoiseMeter {
    /// Adds a part of the run that is being measured.
    pub fn add(&mut self, part: PartNoise) {
        let places = self.parts.entry(part.key).or_default();
        for (address, error) in part.places.errors {
            let known = places.errors.entry(address).or_default();
            *known = known.max(error);
        }
        self.run.varied += part.places.varied.len();
        places.varied.extend(part.places.varied);
        for (family, call) in part.calls {
            let calls = self.calls.entry(family).or_default();
            if call.shows { &mut calls.shown } else { &mut calls.hidden }.push(call.own);
        }
        let run = &mut self.run;
        run.steps.insert(part.key.0);
        run.ranks.insert(part.key.1);
        run.paired += part.paired;
        run.weighed += part.weighed;
        run.far += part.far;
        // By name where errors are equal, so that the order of the parts does not matter.
        run.largest = run
            .largest
            .take()
            .into_iter()
            .chain(part.largest)
            .reduce(|a, b| if b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)).is_gt() { b } else { a });
    }

    /// Ends the run at `path`: says in one line what it showed.
    ///
    /// # Errors
    /// Why it can be no second run of the same program.
    pub fn end_run(&mut self, path: &Path) -> Result<String, String> {
        let run = std::mem::take(&mut self.run);
        if run.paired == 0 {
            return Err("has no op of the baseline; capture the same model at the same level".into());
        }
        if run.far as f64 > FAR * run.weighed as f64 {
            return Err(format!(
                "{} of {} results are off by {:.0} % or more: this is not a second run of the baseline's program on its data; capture it with the same seeds, weights and data",
                run.far,
                run.weighed,
                100.0 * UNJUDGED
            ));
        }
        let parts = format!("{} and {}", number(run.steps.len(), "step"), number(run.ranks.len(), "rank"));
        let largest = match run.largest {
            Some((error, place)) if error > 0.0 => format!("the largest {error:.1e}, at {place}"),
            _ => "none of them differ".to_owned(),
        };
        let varied = match run.varied {
            0 => String::new(),
            count => {
                format!("; {} compared exactly differ and do not count as faults", number(count, "value"))
            }
        };
        Ok(format!(
            "floors are at least the differences of {} from the baseline: {} results of {parts} were measured, {largest}{varied}",
            path.display(),
            run.weighed
        ))
    }

    /// Adds the levels of a file that `probe calibrate` wrote: says in one line what it holds.
    ///
    /// # Errors
    /// [`SettingsError`] with file, place and repair.
    pub fn add_file(&mut self, path: &Path, name: &Path) -> Result<String, SettingsError> {
        let levels = file::read(path)?;
        let said =
            format!("floors are at least the levels of {} in {}", families(levels.len()), name.display());
        for (family, level) in levels {
            widen(&mut self.given, family, level);
        }
        Ok(said)
    }

    /// What all runs and files showed.
    pub fn finish(self) -> Noise {
        let mut levels = self.given;
        for (family, calls) in self.calls {
            let level = calls.level();
            if level.largest > 0.0 {
                widen(&mut levels, family, level);
            }
        }
        Noise { parts: self.parts, levels }
    }
}

/// Raises the level of a family to another.
fn widen(levels: &mut HashMap<Family, Level>, family: Family, level: Level) {
    let known = levels.entry(family).or_insert(level);
    known.median = known.median.max(level.median);
    known.largest = known.largest.max(level.largest);
}

fn families(count: usize) -> String {
    format!("{count} {}", if count == 1 { "family" } else { "families" })
}

/// A count with its noun.
fn number(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

impl Noise {
    /// Number of families with a level.
    pub fn families(&self) -> usize {
        self.levels.len()
    }

    /// What is known of one step of one rank.
    pub(super) fn of_part(&self, pair: &PartPair) -> OfPart<'_> {
        OfPart { places: self.parts.get(&(pair.step, pair.rank)), levels: &self.levels }
    }
}

/// Noise as it concerns one step of one rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfPart<'a> {
    places: Option<&'a Places>,
    levels: &'a HashMap<Family, Level>,
}

impl OfPart<'_> {
    /// What a value may be off by on its own; 0 where nothing was measured.
    pub(super) fn floor(&self, flow: &Flow<'_>, value: &Weighed) -> f64 {
        let level = self.levels.get(&value.family);
        match self.places {
            Some(_) => {
                let here = self.error(flow, value.place, value.family.role);
                level.map_or(here, |level| here.max(level.median))
            }
            None => level.map_or(0.0, |level| level.of_any()),
        }
    }

    /// Whether an error is of the size that was measured at its place.
    pub(super) fn covers(&self, flow: &Flow<'_>, place: Place, error: f64) -> bool {
        error <= BEYOND * self.error(flow, place, Role::Result)
    }

    fn error(&self, flow: &Flow<'_>, place: Place, role: Role) -> f64 {
        let Some(places) = self.places.filter(|places| !places.errors.is_empty()) else { return 0.0 };
        places.errors.get(&address(flow, place, role)).map_or(0.0, |&error| f64::from(error))
    }

    /// Integers and hashes that differ between two runs of the baseline as well accuse nobody.
    pub(super) fn forgive(&self, flow: &mut Flow<'_>) {
        let Some(places) = self.places.filter(|places| !places.varied.is_empty()) else { return };
        let differing = flow.nodes.iter().enumerate().flat_map(|(position, node)| {
            let places = (0..node.slot_count()).map(move |slot| (position, slot));
            places.filter(|&place| is_exact(flow.fact(place).difference))
        });
        let known: Vec<Place> =
            differing.filter(|&place| places.varied.contains(&address(flow, place, Role::Result))).collect();
        for place in known {
            let fact = flow.fact_mut(place);
            fact.allowed = true;
            fact.judgement.verdict = Verdict::Close;
            fact.judgement.reason =
                format!("{}; it also differs between two runs of the baseline", fact.judgement.reason).into();
        }
    }
}
