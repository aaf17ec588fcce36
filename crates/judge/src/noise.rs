//! Measured noise: the errors of a second run of the baseline's program, used as floors for the candidate.
//!
//! The second run is weighed against the baseline like a candidate. The part of an error that the inputs do
//! not explain is kept by place (step, rank, op, slot) and pooled by family. The floor of a value is the
//! larger of the noise measured at its place and the median of its family; if its step was not measured, the
//! level of the family alone.

mod file;
mod level;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use level::{Level, number};

use super::difference::Difference;
use super::excess::{BEYOND, UNJUDGED};
use super::family::SHARE;
use super::flow::{Flow, Place};
use super::history::{History, weigh};
use super::median::median;
use super::rulebook::RuleBook;
use super::setting::Setting;
use super::tolerance::Rules;
use super::value::{ExpectedError, Family, ValueKind};
use super::{PartEvidence, Verdict};
use probe_files::settings::SettingsError;
use probe_pair::PartPair;

/// Fraction of the values whose errors may be too large to judge; beyond it the dump is not of a second run.
const FAR: f64 = 0.5;

/// Step and rank, by the baseline's numbering.
type PartKey = (u64, u32);

/// Measured noise of all parts.
#[derive(Debug, Default)]
pub struct Noise {
    parts: HashMap<PartKey, Places>,
    levels: HashMap<Family, Level>,
}

/// Measured noise of one step of one rank.
#[derive(Debug, Default)]
struct Places {
    /// Own errors. An address is a hash of op, slot and role, because names would take many times the memory.
    errors: HashMap<u64, f32>,
    /// Exact values (integers, hashes) that differ between runs.
    varied: HashSet<u64>,
}

/// Noise that one step of one rank shows.
#[derive(Debug, Default)]
pub struct PartNoise {
    key: PartKey,
    places: Places,
    calls: Vec<(Family, Call)>,
    largest: Option<Largest>,
    /// Ops that both runs have.
    paired: usize,
    /// Results, and those with errors too large to judge.
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

/// The largest own error, and its op and slot.
type Largest = (f64, String);

/// Weighs a second run, the candidate of `pair`, against the baseline. `history` is the state left by this
/// rank's previous step.
pub fn measure_noise(pair: &PartPair, evidence: &PartEvidence, history: &History) -> (PartNoise, History) {
    let setting = Setting::of(pair);
    let flow = Flow::of(pair, evidence, &setting, &Rules::default(), &mut RuleBook::default());
    let (expected, _) = weigh(&flow, &setting, history);
    let mut found = PartNoise { key: (pair.step, pair.rank), ..PartNoise::default() };
    for value in &expected.values {
        if value.family.role == ValueKind::Result {
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
        if value.family.role == ValueKind::Result {
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
        found.places.varied.extend(places.map(|place| address(&flow, place, ValueKind::Result)));
    }
    let next = History::after(
        &flow,
        (expected.gradients, &expected.arrivals),
        <_>::default(),
        <_>::default(),
        false,
    );
    (found, next)
}

/// Returns true for differences without a size.
const fn is_exact(difference: Difference) -> bool {
    matches!(difference, Difference::Elements | Difference::Checksum | Difference::ComputedArgument)
}

/// Returns the part of the error that the inputs do not explain; with statistics, which show only a part of
/// either error, all of it.
fn own(value: &ExpectedError) -> f64 {
    let explained = if value.statistics_only { 0.0 } else { value.explained };
    (value.error * value.error - explained * explained).max(0.0).sqrt()
}

fn address(flow: &Flow<'_>, place: Place, role: ValueKind) -> u64 {
    let mut hasher = DefaultHasher::new();
    flow.nodes[place.0].op.name.as_str().hash(&mut hasher);
    flow.slot(place).map(|slot| &*slot.path).hash(&mut hasher);
    role.hash(&mut hasher);
    hasher.finish()
}

/// Collects the noise that the parts of one or more runs show.
#[derive(Debug, Default)]
pub struct NoiseMeter {
    parts: HashMap<PartKey, Places>,
    calls: HashMap<Family, Calls>,
    /// Levels read from files.
    given: HashMap<Family, Level>,
    /// The run being measured.
    run: RunNoise,
}

/// Own errors of a family's calls: `shown` where they show, `hidden` where the inputs explain most of the
/// error.
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

/// Noise of one run.
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
    /// Adds a part of the run being measured.
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
        // Ties are broken by name, so that the order of the parts does not matter.
        run.largest = run
            .largest
            .take()
            .into_iter()
            .chain(part.largest)
            .reduce(|a, b| if b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)).is_gt() { b } else { a });
    }

    /// Ends the run at `path` and returns a one-line summary.
    ///
    /// # Errors
    /// The reason why it cannot be a second run of the same program.
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
            "noise floor raised by {}: {} results of {parts} were measured, {largest}{varied}",
            path.display(),
            run.weighed
        ))
    }

    /// Adds the levels of a file that `probe calibrate` wrote and returns a one-line summary.
    ///
    /// # Errors
    /// [`SettingsError`] with file, place and remedy.
    pub fn add_file(&mut self, path: &Path, name: &Path) -> Result<String, SettingsError> {
        let levels = file::read(path)?;
        let said =
            format!("noise floor raised by the levels of {} in {}", families(levels.len()), name.display());
        for (family, level) in levels {
            widen(&mut self.given, family, level);
        }
        Ok(said)
    }

    /// Returns the noise of all runs and files.
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

/// Raises the level of a family to at least `level`.
fn widen(levels: &mut HashMap<Family, Level>, family: Family, level: Level) {
    let known = levels.entry(family).or_insert(level);
    known.median = known.median.max(level.median);
    known.largest = known.largest.max(level.largest);
}

fn families(count: usize) -> String {
    format!("{count} {}", if count == 1 { "family" } else { "families" })
}

impl Noise {
    /// Returns the levels as TOML, the largest first. `made_of` is a line that names the runs they come from.
    pub fn to_toml(&self, made_of: &str) -> String {
        file::to_toml(&self.levels, made_of)
    }

    /// Number of families with a level.
    pub fn families(&self) -> usize {
        self.levels.len()
    }

    /// Returns the noise of one step of one rank.
    pub(super) fn of_part(&self, pair: &PartPair) -> OfPart<'_> {
        OfPart { places: self.parts.get(&(pair.step, pair.rank)), levels: &self.levels }
    }
}

/// Noise of one step of one rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfPart<'a> {
    places: Option<&'a Places>,
    levels: &'a HashMap<Family, Level>,
}

impl OfPart<'_> {
    /// Returns the error a value may have on its own; 0 if nothing was measured.
    pub(super) fn floor(&self, flow: &Flow<'_>, value: &ExpectedError) -> f64 {
        let level = self.levels.get(&value.family);
        match self.places {
            Some(_) => {
                let here = self.error(flow, value.place, value.family.role);
                level.map_or(here, |level| here.max(level.median))
            }
            None => level.map_or(0.0, |level| level.of_any()),
        }
    }

    /// Returns true if an error is within the noise measured at its place.
    pub(super) fn covers(&self, flow: &Flow<'_>, place: Place, error: f64) -> bool {
        error <= BEYOND * self.error(flow, place, ValueKind::Result)
    }

    fn error(&self, flow: &Flow<'_>, place: Place, role: ValueKind) -> f64 {
        let Some(places) = self.places.filter(|places| !places.errors.is_empty()) else { return 0.0 };
        places.errors.get(&address(flow, place, role)).map_or(0.0, |&error| f64::from(error))
    }

    /// Accepts integers and hashes that also differ between two runs of the baseline.
    pub(super) fn forgive(&self, flow: &mut Flow<'_>) {
        let Some(places) = self.places.filter(|places| !places.varied.is_empty()) else { return };
        let differing = flow.nodes.iter().enumerate().flat_map(|(position, node)| {
            let places = (0..node.slot_count()).map(move |slot| (position, slot));
            places.filter(|&place| is_exact(flow.fact(place).difference))
        });
        let known: Vec<Place> = differing
            .filter(|&place| places.varied.contains(&address(flow, place, ValueKind::Result)))
            .collect();
        for place in known {
            let fact = flow.fact_mut(place);
            fact.allowed = true;
            fact.judgement.verdict = Verdict::Close;
            fact.judgement.reason =
                format!("{}; it also differs between two runs of the baseline", fact.judgement.reason).into();
        }
    }
}
