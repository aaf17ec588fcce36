//! Updates: changes made by an optimizer, within a step or from one step to the next.
//!
//! Sketches are sums, so the sketch after minus the sketch before is the sketch of the change, and its error
//! that of the change. A weight differs from its partner by what all earlier steps left; its last change tells
//! if this step's optimizer is at fault.

mod apart;
mod change;
mod follower;
mod moments;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::difference::Fact;
use super::expected::GradientErrors;
use super::flow::{Flow, Place};
use super::median::median;
use super::ops::Kind;
use super::precision::Precision;
use super::value::{ExpectedError, Family, ValueKind};
pub(super) use apart::{gone_apart, turned, unlike_by_extremes, unlike_from_the_start};
use change::Change;
pub(super) use follower::follower;
use moments::Moments;
use probe_dump::{Content, Phase, Rank, SMALL_TENSOR, Scalar, Sketch, SketchVersion, Slot, SlotSide, Value};
use probe_measure::{SKETCH_NOISE, observe};

/// Factor for adaptive optimizers. An optimizer that divides by the size of the gradient makes full steps from
/// gradients that are noise: the error of a change is that of the gradient's smallest elements. Sound runs
/// showed up to 6 times the root of the gradient's relative error (key biases, experts that few tokens reach).
const ADAPTIVE: f64 = 8.0;

/// Minimum for vectors: where part of the gradient is nothing but noise (the keys in a joint bias, weights of
/// features that never fire), its elements take either sign. Only a change that is missing, doubled or
/// reversed stands out.
const SIGNS: f64 = 0.12;

/// Minimum for matrices, divided by the root of the number of input features: the gradients of a feature that
/// hardly ever fires are noise in all its weights and take either sign. All reversed, they change the update
/// by twice the root of their share; a quarter of that, because an update is at fault beyond four times the
/// expectation.
const ONE_FEATURE: f64 = 2.0 / 4.0;

/// Number of parameters whose changes, if all are larger or all smaller by the same factor, are not noise.
const ALIKE: usize = 6;

/// The least such factor, minus 1, and the multiple of the others' spread it must reach.
const COMMON: (f64, f64) = (2e-3, 10.0);

/// Factor for other optimizers, which pass on the error of the gradient and of earlier changes.
const LINEAR: f64 = 4.0;

/// State of torch's optimizers that is a running mean or sum of the gradient, with the power of the gradient in it.
const RUNNING: [(&str, f64); 7] = [
    ("exp_avg", 1.0),
    ("momentum_buffer", 1.0),
    ("grad_avg", 1.0),
    ("exp_avg_sq", 2.0),
    ("max_exp_avg_sq", 2.0),
    ("square_avg", 2.0),
    ("sum", 2.0),
];

/// Optimizers of torch that use the gradient as it is.
const PLAIN: [&str; 2] = ["Optimizer.SGD.step", "Optimizer.ASGD.step"];

/// Least part of a change's size that goes unexplained where statistics alone tell the gradient: they show less than
/// its error. A change at fault is off by twice as much.
const UNTOLD: f64 = 0.12;

/// Relative error of a gradient up to which the change is meaningful.
const LARGEST_GRADIENT_ERROR: f64 = 0.1;

/// The size of a change varies less than its direction: by this fraction, and by these fractions of the
/// gradient's error and of its root.
const SIZE: (f64, f64, f64) = (0.02, 0.5, 0.5);

/// The same for optimizers that divide: where two thirds of a joint bias (those of keys, and of queries that nothing tells
/// apart) have gradients that are zero in exact arithmetic, noise above the small number added to the divisor makes full
/// steps, and noise below it none. The whole change is then larger by up to `sqrt(3)`. This is the rest of that beyond the
/// two bits that a size may be off by.
const JOINT: f64 = 0.732_050_807_568_877_2 / 4.0;

/// Weights of a step, by module path and parameter name.
pub(super) type Weights = HashMap<(Box<str>, Box<str>), State>;

/// A parameter on both sides, as it was recorded.
#[derive(Debug, Clone)]
pub(super) enum State {
    Sketched([Arc<Sketch>; 2]),
    /// Statistics alone.
    Told([Moments; 2]),
}

impl State {
    fn of(flow: &Flow<'_>, place: Place) -> Option<Self> {
        let (b, c) = flow.pair.slot_at(place.0, place.1);
        let (b, c) = (b?, c?);
        let sketches = || Some([sketch(&flow.pair.baseline, b)?, sketch(&flow.pair.candidate, c)?]);
        let told = || Some([Moments::of(b)?, Moments::of(c)?]);
        sketches().map(Self::Sketched).or_else(|| told().map(Self::Told))
    }
}

/// If all changes are larger by one factor, compares each with the spread of the factors.
fn common_factor(ratios: &[f64], found: &mut [ExpectedError]) {
    let mut sorted = ratios.to_vec();
    let middle = median(&mut sorted);
    let mut deviations: Vec<f64> = ratios.iter().map(|ratio| (ratio - middle).abs()).collect();
    let spread = median(&mut deviations);
    let (least, times) = COMMON;
    if ratios.len() < ALIKE || middle.abs() < least.max(times * spread) {
        return;
    }
    for value in found.iter_mut().filter(|value| value.family.role == ValueKind::UpdateSize) {
        value.explained = value.explained.min(spread.max(least / times));
    }
}

/// Returns the sketch of a tensor, computed from its elements if it is so small that these were recorded
/// instead.
fn sketch(rank: &Rank, slot: &Slot) -> Option<Arc<Sketch>> {
    let record = slot.value.tensor()?;
    let size = record.dtype.known()?.size() as u64;
    if record.sketch.is_some() || record.len().saturating_mul(size) >= SMALL_TENSOR as u64 {
        return record.sketch.clone();
    }
    let data = rank.store.load(record.data.as_deref()?).ok()?;
    observe(data.view(), Content { sketch: Some(SketchVersion::CURRENT), hash: false }).sketch.map(Arc::new)
}

/// Weighs a change: its error and its size, or with statistics its size alone. Returns the values, and the excess of
/// the candidate's change over the baseline's; `None` if the change is not known.
fn weighed(
    flow: &Flow<'_>,
    place: Place,
    (before, after): (&State, &State),
    gradient: f64,
    divides: bool,
) -> Option<(f64, Vec<ExpectedError>)> {
    let fact = flow.fact(place);
    let precision = Precision::of(fact.dtype?)?;
    let one = |role, error: f64, explained: f64, least: f64| {
        let kind = if divides && !flow.is_matrix(place) { Kind::Update } else { Kind::Add };
        let clean = gradient <= 0.0;
        let errors = (error, explained, least);
        Some(ExpectedError { kind, clean, ..change_of(flow, place, role, precision, errors)? })
    };
    let size = size_explained(flow, place, gradient, divides);
    let change = match (before, after) {
        (State::Sketched(before), State::Sketched(after)) => Change::of(before, after)?,
        (State::Told(before), State::Told(after)) => {
            let ratio = moments::factor(before, after)? - 1.0;
            let found = one(ValueKind::UpdateSize, ratio.abs(), size.max(UNTOLD), precision.least)?;
            return Some((ratio, vec![found]));
        }
        _ => return None,
    };
    // The change is rounded too, also where it leaves next to nothing.
    let resolution =
        precision.least.max(2.0 * SKETCH_NOISE).max(2.0 * fact.noise) * (fact.norm / change.size[0]).max(1.0);
    let noise = match gradient {
        _ if gradient >= LARGEST_GRADIENT_ERROR => 2.0,
        _ if divides && gradient > 0.0 => (ADAPTIVE * gradient.sqrt()).max(match *flow.shape(place) {
            [_, features, ..] if features > 0 => ONE_FEATURE / (features as f64).sqrt(),
            _ => SIGNS,
        }),
        _ if divides => 0.0,
        _ => LINEAR * gradient,
    };
    let rounded = rounded(resolution, fact.len);
    let error = change.error / change.size[0];
    let size = if flow.is_matrix(place) { size.min(change.turned() + gradient) } else { size };
    let found = vec![
        one(ValueKind::Update, error, noise.min(2.0), resolution)?,
        one(ValueKind::UpdateSize, change.ratio().abs(), size, rounded)?,
    ];
    Some((change.ratio(), found))
}

/// Returns the part of a change's size that rounding makes. That of elements, by `resolution` of the change, has no direction. That of
/// the learning rate and of other numbers has: one device computes with them in binary32, another in binary64.
fn rounded(resolution: f64, elements: f64) -> f64 {
    (2.0 * resolution * resolution.max(1.0 / elements.sqrt())).max(Precision::BINARY32.least)
}

/// Returns the part of a change's size that the error of the gradient explains, relative to it.
fn size_explained(flow: &Flow<'_>, place: Place, gradient: f64, divides: bool) -> f64 {
    if gradient >= LARGEST_GRADIENT_ERROR {
        return 10.0;
    }
    let (share, of_error, of_root) = SIZE;
    let size = share + of_error * gradient + of_root * gradient.sqrt();
    if divides && !flow.is_matrix(place) && gradient > 0.0 { size.hypot(JOINT) } else { size }
}

/// Returns a weighed change of a value: its error, the part that is explained, and the least that counts.
fn change_of(
    flow: &Flow<'_>,
    place: Place,
    role: ValueKind,
    precision: &'static Precision,
    (error, explained, least): (f64, f64, f64),
) -> Option<ExpectedError> {
    let fact = flow.fact(place);
    let family = Family {
        role,
        name: Arc::default(),
        is_module: false,
        phase: Phase::Forward,
        slot: Arc::default(),
        dtype: fact.dtype?,
    };
    Some(ExpectedError {
        place,
        family: family.into(),
        kind: Kind::Add,
        precision,
        error,
        explained,
        least,
        unknown: least,
        call: place.0,
        clean: false,
        statistics_only: false,
        elements: fact.len,
        terms: 1.0,
        share: 1.0,
        gain: None,
        is_directed: false,
        remnant: None,
        extremes: 0.0,
    })
}

/// A parameter that an op has written.
struct Written {
    place: Place,
    /// The parameter before the change.
    before: Place,
    /// Gradient and state, or the two inputs of a quotient.
    led: Vec<usize>,
    divides: bool,
}

/// Returns true for an op that changes parameters: an optimizer step, or one in it that adds a quotient to its first input.
fn changes_parameters(flow: &Flow<'_>, position: usize) -> bool {
    let node = &flow.nodes[position];
    let changes = || adds(flow, position) || matches!(node.traits.kind, Kind::Update | Kind::Optimizer);
    node.is_paired && changes()
}

fn adds(flow: &Flow<'_>, position: usize) -> bool {
    flow.nodes[position].op.name.api() == "add_" && is_inside_step(flow, position)
}

/// Slots of what an op is given.
#[derive(Default)]
struct Given<'f> {
    by_path: HashMap<&'f str, usize>,
    /// Gradient and state of each parameter.
    by_parameter: HashMap<&'f str, Vec<usize>>,
}

impl<'f> Given<'f> {
    fn of(flow: &'f Flow<'_>, position: usize) -> Self {
        let mut all = Self::default();
        for slot in flow.nodes[position].given() {
            let Some(path) = flow.slot((position, slot)).map(|slot| &*slot.path) else { continue };
            all.by_path.insert(path, slot);
            let kept = path.strip_prefix("input.").and_then(|rest| rest.split_once('.'));
            if let Some((_, parameter)) = kept {
                all.by_parameter.entry(parameter).or_default().push(slot);
            }
        }
        all
    }

    fn at(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }
}

/// Returns the parameters that an op has written.
fn written(flow: &Flow<'_>, position: usize, given: &Given<'_>) -> Vec<Written> {
    let node = &flow.nodes[position];
    let adds = adds(flow, position);
    let divides = !adds && !PLAIN.contains(&node.op.name.stem());
    let of = |slot: usize| {
        let place = (position, slot);
        let (before, led) = led_to(&flow.slot(place)?.path, given)?;
        let by_float = led.iter().any(|&given| flow.fact((position, given)).is_float);
        (!adds || by_float).then_some(Written { place, before: (position, before), led, divides })
    };
    node.results().filter_map(of).collect()
}

/// Weighs the changes that recorded ops made to parameters.
pub(super) fn within(flow: &Flow<'_>, values: &mut Vec<ExpectedError>) {
    let mut judged: HashSet<Place> = HashSet::new();
    let (mut found, mut ratios) = (Vec::new(), Vec::new());
    for position in (0..flow.nodes.len()).filter(|&position| changes_parameters(flow, position)) {
        let node = &flow.nodes[position];
        let given = Given::of(flow, position);
        let decay = weight_decay(flow, position);
        let path = |slot: usize| flow.slot((position, slot)).map_or("", |slot| &*slot.path);
        let keeps_squares = node.results().any(|slot| path(slot).starts_with("output.square_avg."));
        // Beside running squares, the buffer of momentum is a sum of quotients: of changes, not of gradients.
        let states = node
            .results()
            .filter(|&slot| !keeps_squares || !path(slot).starts_with("output.momentum_buffer."));
        found.extend(states.filter_map(|slot| state(flow, (position, slot), &given, decay)));
        for Written { place, before, led, divides } in written(flow, position, &given) {
            let error =
                led.into_iter().map(|given| flow.fact((position, given)).relative()).fold(0.0, f64::max);
            let states = State::of(flow, before).zip(State::of(flow, place));
            let change =
                states.and_then(|(before, after)| weighed(flow, place, (&before, &after), error, divides));
            let Some((ratio, changed)) = change else { continue };
            if !flow.fact(place).statistics_only {
                judged.insert(place);
            }
            ratios.push(ratio);
            found.extend(changed);
        }
    }
    // The added value tells more than the resulting parameter; optimizer state shows in what it adds.
    values.retain(|value| {
        !judged.contains(&value.place) && flow.nodes[value.place.0].traits.kind != Kind::Optimizer
    });
    common_factor(&ratios, &mut found);
    values.extend(found);
}

/// Weighs what an optimizer keeps of gradients for the next step. With state `s`, gradient `g`, power `p` and any
/// `0 <= b <= 1`, `s' = b s + (1 - b) g^p` is off by at most `|ds| + p r |s' - b s|`, where `r` is the relative error
/// of the gradient. Errors of a square weigh the largest of `n` elements most: at most by the fourth root of `n` more
/// than the gradient's norm shows.
fn state(flow: &Flow<'_>, place: Place, given: &Given<'_>, weight_decay: f64) -> Option<ExpectedError> {
    let path = flow.slot(place)?.path.strip_prefix("output.")?;
    let (kind, name) = path.split_once('.')?;
    let &(_, power) = RUNNING.iter().find(|(known, _)| *known == kind)?;
    let fact = flow.fact(place);
    let gradient = flow.fact((place.0, given.at(&format!("input.grad.{name}"))?));
    let comparable = |fact: &Fact| fact.is_float && fact.is_measured && !fact.swamped && fact.norm > 0.0;
    let before = given.at(&format!("input.{path}")).map(|slot| flow.fact((place.0, slot)));
    // Statistics of a mean and of its parts need not be off alike.
    let is_sum = before.is_some() && (fact.statistics_only || gradient.statistics_only);
    if !comparable(fact) || !comparable(gradient) || is_sum {
        return None;
    }
    let (was, was_off) = before.map_or((0.0, 0.0), |before| (before.norm, before.distance));
    let parameter = given.at(&format!("parameter.{name}")).map(|slot| flow.fact((place.0, slot)));
    // Decay adds the error of the parameter to the gradient.
    let decayed = weight_decay * parameter.map_or(0.0, |parameter| parameter.distance);
    let relative = (gradient.distance + decayed) / gradient.norm;
    let peaked = if power > 1.0 { fact.len.sqrt().sqrt() } else { 1.0 };
    let explained = (was_off + power * peaked * relative * (fact.norm + was)) / fact.norm;
    let precision = Precision::of(fact.dtype?)?;
    let least =
        (precision.unknown * (fact.norm + was) / fact.norm).max(4.0 * SKETCH_NOISE).max(4.0 * fact.noise);
    Some(ExpectedError {
        statistics_only: fact.statistics_only,
        ..change_of(flow, place, ValueKind::Update, precision, (fact.relative(), explained, least))?
    })
}

/// Returns the largest factor of weight decay that an optimizer was given, at most 1.
fn weight_decay(flow: &Flow<'_>, position: usize) -> f64 {
    let factors = flow.nodes[position].given().filter_map(|slot| {
        let slot = flow.slot((position, slot)).filter(|slot| slot.path.contains("weight_decay"))?;
        match slot.value {
            Value::Scalar(Scalar::Number(number)) => Some(number.as_f64().abs()),
            _ => None,
        }
    });
    factors.fold(0.0, f64::max).min(1.0)
}

/// Returns true if an optimizer step called the op.
fn is_inside_step(flow: &Flow<'_>, position: usize) -> bool {
    flow.nodes[position].op.parent.as_deref().is_some_and(|parent| parent.starts_with("Optimizer."))
}

/// Returns the slot of a parameter before a change, and those of the causes of the change: gradient and state,
/// or the two inputs of the quotient.
fn led_to(path: &str, given: &Given<'_>) -> Option<(usize, Vec<usize>)> {
    if let Some(name) = path.strip_prefix("output.parameter.") {
        let before = given.at(&format!("parameter.{name}"))?;
        return Some((before, given.by_parameter.get(name).cloned().unwrap_or_default()));
    }
    let index = path.strip_prefix("output.0").or_else(|| path.strip_prefix("output"))?;
    let part = |number: usize| given.at(&format!("input.{number}{index}"));
    Some((part(0)?, [part(1), part(2)].into_iter().flatten().collect()))
}

/// Weighs changes of weights since the previous step, if it recorded no optimizer op.
pub(super) fn across(
    flow: &Flow<'_>,
    before: &Weights,
    gradients: &GradientErrors,
    values: &mut Vec<ExpectedError>,
) {
    let (mut found, mut ratios) = (Vec::new(), Vec::new());
    for (key, place) in parameters(flow) {
        let (Some(then), Some(now), Some(&gradient)) =
            (before.get(&key), State::of(flow, place), gradients.get(&key))
        else {
            continue;
        };
        if let Some((ratio, changed)) = weighed(flow, place, (then, &now), gradient, true) {
            ratios.push(ratio);
            found.extend(changed);
        }
    }
    common_factor(&ratios, &mut found);
    values.extend(found);
}

/// Returns the weights of a part.
pub(super) fn weights(flow: &Flow<'_>) -> Weights {
    parameters(flow).filter_map(|(key, place)| Some((key, State::of(flow, place)?))).collect()
}

/// Returns the module parameters at their first read, by module path and name.
fn parameters<'f>(flow: &'f Flow<'_>) -> impl Iterator<Item = ((Box<str>, Box<str>), Place)> + 'f {
    let mut seen = HashSet::new();
    flow.nodes.iter().enumerate().flat_map(move |(position, node)| {
        let module =
            node.op.name.module_path().filter(|_| node.is_paired && node.op.name.phase() == Phase::Forward);
        let slots: Vec<_> = module
            .into_iter()
            .flat_map(|module| node.given().map(move |slot| (module, slot)))
            .filter(|&(_, slot)| {
                flow.side((position, slot)) == SlotSide::Parameter && flow.fact((position, slot)).is_float
            })
            .filter_map(|(module, slot)| {
                let path = &flow.slot((position, slot))?.path;
                let name = path.strip_prefix("parameter.").unwrap_or(path);
                let key: (Box<str>, Box<str>) = (module.into(), name.into());
                seen.insert(key.clone()).then_some((key, (position, slot)))
            })
            .collect();
        slots
    })
}

#[cfg(test)]
mod tests;
