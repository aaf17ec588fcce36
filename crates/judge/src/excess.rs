//! Excess: how far the error of a value exceeds its floor and what its inputs explain, in bits. Values with an
//! excess of more than a few bits are at fault.

use std::collections::HashMap;

use super::family::{Families, Learned};
use super::median::median;
use super::ops::Kind;
use super::outliers::{Outliers, Seen};
use super::precision::product_precision;
use super::value::{By, Excess, ExpectedError, Family, MANY, ValueKind};
use probe_dump::Phase;

/// Values whose inputs explain an error of this much are not judged.
pub(super) const UNJUDGED: f64 = 0.3;

/// Threshold for results, in bits.
const RESULT: f64 = 3.0;

/// The same as a factor.
pub(super) const BEYOND: f64 = 8.0;

/// Threshold for results in coarse types, whose rounding is well known.
const COARSE_RESULT: f64 = 2.5;

/// Unit roundoff from which a type counts as coarse: 2^-10, that of float16.
pub(super) const COARSE: f64 = 9.7e-4;

/// Threshold for copies and sums of two values, which add almost no error of their own, for products of elements that are
/// equal on both sides, and for functions whose slope bounds the error they pass on. What the terms of a longer sum have in
/// common is magnified.
const BOUNDED: f64 = 2.0;

/// Threshold for products whose family has shown how error passes through it: a factor of 5.6.
const KNOWN: f64 = 2.5;

/// Number of calls from which on a family counts as known.
const CALLS_FOR_KNOWN: usize = 8;

/// Threshold for a factor common to all elements: none in sound pairs of public models exceeded 1.4.
const GAIN: f64 = 2.5;

/// Threshold for a factor of norms alone, while the largest and the least element stay put. Such a factor at a
/// `ReLU` behind a normalisation may be noise: the normalisation fixes the preceding norm, so that its error
/// does not show. At most 11 in sound pairs of public models.
const GAIN_OF_NORM: f64 = 5.0;

/// Threshold for statistics, which bound errors from below only, for the inputs as well.
const STATISTICS: f64 = 5.0;

/// Threshold for statistics in coarse types.
const COARSE_STATISTICS: f64 = 3.3;

/// Threshold for arrivals whose error has a direction: a factor of 3.4. It accused none of 433 sound pairs of public models, and
/// in five sound rollouts no arrival of so many elements, of any direction, reached 1.4 bits.
const DIRECTED: f64 = 1.75;

/// Thresholds for updates and for their size.
const UPDATE: f64 = 3.0;
const UPDATE_SIZE: f64 = 2.0;

/// Threshold for the size of changes to matrices, and of changes that are not quotients: in 8,000 of them in
/// sound pairs of public models, all sizes were 1.7 bits below the expectation, and all errors 1 bit. The
/// threshold for these errors is [`BOUNDED`].
const BOUNDED_SIZE: f64 = 1.0;

/// Threshold for arrivals in a step after a compared one: they also carry what grew in between.
const LATE_ARRIVAL: f64 = 5.0;

/// Multiple of the spread that must be exceeded (3 standard deviations of a normal distribution: 1.48 median
/// deviations each).
const SPREAD: f64 = 3.0 * 1.48;
const SPREAD_OF_STATISTICS: f64 = 2.5 * 1.48;

/// Number of calls from which on a shared gain below 1 lowers the expected error, by at most half a bit.
const CALLS_FOR_LOWER_GAIN: usize = 8;
const LOWER_GAIN: f64 = -0.5;

/// Own error that an op may have beside what the pair shows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Granted {
    /// Noise that runs of the baseline show: a floor like any other.
    pub(super) measured: f64,
    /// Error that a user rule lets the op make: at fault is only what the inputs and this do not reach.
    pub(super) by_rule: f64,
}

/// Returns the excess of all values, in order; `granted` is what each may be off by beside that.
pub(super) fn of(
    values: &[ExpectedError],
    learned: (&Learned, &Seen),
    granted: &[Granted],
    is_late: bool,
) -> (Vec<Excess>, (Learned, Seen)) {
    let families = Families::of(values, learned.0);
    let own: Vec<(f64, bool)> = values.iter().map(|value| floor(value, &families)).collect();
    let floors: Vec<(f64, bool)> = own
        .iter()
        .zip(granted)
        .map(|(&(own, is_formula), noise)| (own.max(noise.measured), is_formula))
        .collect();
    let raw: Vec<f64> = values
        .iter()
        .zip(&floors)
        .map(|(value, (floor, _))| {
            let ratio = value.error.max(1e-30) / floor.hypot(value.explained);
            if ratio > 0.0 && ratio.is_finite() { ratio.log2() } else { 60.0 }
        })
        .collect();
    let gains = Gains::of(values, &floors, &raw);
    let peers = Outliers::of(values, &floors, &raw, learned.1, UNJUDGED);
    let found = values.iter().zip(&floors).zip(granted).zip(&raw).map(
        |(((value, &(floor, is_formula)), granted), &raw)| {
            let others = gains.of_others(value);
            // The error that statistics miss and that coarse types round varies from call to call: a call does
            // not stand out because others show less.
            let least = if others.calls + 1 >= CALLS_FOR_LOWER_GAIN
                && !value.statistics_only
                && value.precision.unit < COARSE
            {
                LOWER_GAIN
            } else {
                0.0
            };
            let in_rule = granted.by_rule > 0.0 && value.error <= granted.by_rule.hypot(value.explained);
            let judged = value.explained < UNJUDGED && value.error > value.least && !in_rule;
            let times = if value.statistics_only { SPREAD_OF_STATISTICS } else { SPREAD };
            let stands_out = raw - others.middle.max(least) > threshold(value, others.calls, is_late)
                && raw - others.middle > times * others.spread.min(1.0);
            let is_factor = value.gain.as_deref().is_some_and(|gain| {
                let threshold = if gain.is_of_norm { GAIN_OF_NORM } else { GAIN };
                (gain.error / floor.hypot(gain.explained)).log2() > threshold
            });
            let alone = if judged { peers.stands_out(value, floor, raw) } else { None };
            let is_fault = judged && (stands_out || is_factor || alone.is_some());
            let by = match alone {
                _ if !stands_out && judged && is_factor => By::Factor,
                Some(alone) if !stands_out => alone,
                _ if is_formula => By::Formula,
                _ => By::Size,
            };
            let is_measured = granted.measured > 0.0 && floor <= granted.measured;
            Excess { floor: floor.max(granted.by_rule), is_measured, is_fault, by }
        },
    );
    (found.collect(), (families.learned(), peers.seen()))
}

/// Returns the error an op may have on its own, and true if its family's error exceeds any known precision.
fn floor(value: &ExpectedError, families: &Families<'_>) -> (f64, bool) {
    match value.family.role {
        ValueKind::Update | ValueKind::UpdateSize => return (value.least, false),
        ValueKind::Result | ValueKind::Arrival => {}
    }
    if value.family.role == ValueKind::Arrival && value.kind == Kind::Product {
        return (value.least.max(families.level_of_unrecorded(value)), false);
    }
    let summed = summed_coarsely(value);
    let Some(level) = families.level(value) else {
        // Statistics show less of rounding than its norm.
        let least = if value.statistics_only { value.least } else { value.least.max(value.unknown) };
        return (least.max(summed), false);
    };
    let explains = if value.is_product() || value.is_composite() || value.family.role == ValueKind::Arrival {
        let known = value.is_binary32() && product_precision(level).is_some();
        known || level <= value.precision.product
    } else {
        level <= value.precision.function.max(summed)
    };
    if explains {
        (value.least.max(level).max(summed), false)
    } else {
        (value.least.max(summed), summed <= 0.0)
    }
}

/// Returns the error that the gradient of a normalisation's weight or bias may have if a device sums it in the
/// gradients' coarse type: similar rows round alike, so the error of the sum grows with their number, by a
/// quarter of a unit each. 0 for all other values.
fn summed_coarsely(value: &ExpectedError) -> f64 {
    let sums = value.kind == Kind::Normalisation && value.family.phase != Phase::Forward && value.terms > 1.0;
    if sums && value.precision.unit >= COARSE {
        (value.precision.unit * value.terms / 4.0).min(UNJUDGED)
    } else {
        0.0
    }
}

fn threshold(value: &ExpectedError, calls: usize, is_late: bool) -> f64 {
    let coarse = value.precision.unit >= COARSE;
    let forward = value.family.phase == Phase::Forward;
    let bounded = (matches!(value.kind, Kind::Copy | Kind::Add) && value.terms <= 1.0)
        || (value.kind == Kind::Lipschitz && forward)
        || (value.kind == Kind::Multiply && value.clean);
    match value.family.role {
        ValueKind::Update if value.kind == Kind::Add => BOUNDED,
        ValueKind::Update => UPDATE,
        ValueKind::UpdateSize if value.kind == Kind::Add => BOUNDED_SIZE,
        ValueKind::UpdateSize => UPDATE_SIZE,
        ValueKind::Result if value.statistics_only && coarse => COARSE_STATISTICS,
        _ if value.statistics_only => STATISTICS,
        ValueKind::Arrival if is_late => LATE_ARRIVAL,
        _ if value.is_directed => DIRECTED,
        _ if bounded => BOUNDED,
        _ if coarse => COARSE_RESULT,
        _ if value.is_product() && calls >= CALLS_FOR_KNOWN => KNOWN,
        _ => RESULT,
    }
}

/// The factor shared by the calls of a family, and its spread: the part that the transfer rules do not model.
struct Gains<'a> {
    by_family: HashMap<&'a Family, Shared>,
}

/// Excess of the calls of a family through which error passes.
#[derive(Default)]
struct Shared {
    calls: Vec<(usize, f64)>,
    /// Median and spread of all calls, if there are so many that leaving one out changes nothing.
    all: Option<(f64, f64)>,
}

/// Excess of the other calls of a family.
#[derive(Default)]
struct Others {
    /// Median excess, and median deviation from it.
    middle: f64,
    spread: f64,
    calls: usize,
}

impl<'a> Gains<'a> {
    fn of(values: &'a [ExpectedError], floors: &[(f64, bool)], raw: &[f64]) -> Self {
        let mut by_family: HashMap<&Family, Shared> = HashMap::new();
        for ((value, (floor, _)), raw) in values.iter().zip(floors).zip(raw) {
            // A gain shows only where error passes through.
            let passes = value.explained > *floor && value.explained < UNJUDGED;
            let compared = matches!(value.family.role, ValueKind::Result | ValueKind::Arrival);
            if compared && passes && value.error > 0.0 {
                by_family.entry(&value.family).or_default().calls.push((value.call, *raw));
            }
        }
        for shared in by_family.values_mut().filter(|shared| shared.calls.len() > MANY) {
            shared.all = Some(middle_and_spread(shared.calls.iter().map(|(_, raw)| *raw).collect()));
        }
        Self { by_family }
    }

    fn of_others(&self, value: &ExpectedError) -> Others {
        let Some(shared) = self.by_family.get(&*value.family) else { return Others::default() };
        let (middle, spread) = shared.all.unwrap_or_else(|| {
            let others = shared.calls.iter().filter(|(call, _)| *call != value.call);
            middle_and_spread(others.map(|(_, raw)| *raw).collect())
        });
        Others { middle, spread, calls: shared.calls.len().saturating_sub(1) }
    }
}

fn middle_and_spread(mut raw: Vec<f64>) -> (f64, f64) {
    if raw.len() < 2 {
        return (0.0, 0.0);
    }
    let middle = median(&mut raw);
    let mut deviations: Vec<f64> = raw.iter().map(|raw| (raw - middle).abs()).collect();
    (middle, median(&mut deviations))
}
