//! Compares every value of a part with what led to it: its error, the part of it that its inputs explain, and
//! its family of calls. Decides nothing; [`excess`](super::excess) does.

mod chance;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::difference::{Fact, Identity};
use super::flow::{Flow, Place};
use super::median::median;
use super::ops::Kind;
use super::precision::{Precision, of_sum};
use super::scale;
use super::setting::Setting;
use super::small_rows::SmallRows;
use super::transfer::{self, InputError, centring, largest};
use super::value::{CommonFactor, ExpectedError, Family, Remnant, ValueKind};
use probe_dump::{Figure, Phase, Repeated, SlotSide, shared};
use probe_measure::Evidence;

/// Number of elements from which on noise has no direction.
const WITHOUT_DIRECTION: f64 = 256.0;

/// Fraction of an error along the value from which on it counts as one factor.
const ONE_FACTOR: f64 = 0.7;

/// A sum below this fraction of the norm of uncorrelated terms cancels by nature: gradients of the biases of
/// keys, and in front of normalisations.
const CANCELS: f64 = 0.3;

/// Maximum number of a table's elements whose changes cancel in its sketch.
const CANCELLED: f64 = 8.0;

/// Relative difference of two binary32 norms that is insignificant: error that is uncorrelated with the values
/// changes a norm of n elements by its n-th root only.
const RESOLUTION: f64 = f32::EPSILON as f64;

/// Errors of parameter gradients, for the updates they lead to in this step or the next.
pub(super) type GradientErrors = HashMap<(Box<str>, Box<str>), f64>;

/// Everything weighed.
#[derive(Default)]
pub(super) struct ExpectedErrors {
    pub(super) values: Vec<ExpectedError>,
    /// Input errors of each op, from which roles are decided.
    pub(super) input_errors: Vec<Figure>,
    pub(super) gradients: GradientErrors,
    /// Arrivals, each value where it was first read, in execution order.
    pub(super) arrivals: Vec<Place>,
}

/// A value made by a recorded op.
#[derive(Debug, Clone, Copy)]
struct Made {
    /// Position of the first op that made it.
    by: usize,
    /// Least error of the path that leads to it: statistics do not show all of it.
    path: f64,
}

/// Walks the ops in execution order.
pub(super) struct Walk<'f, 'a> {
    flow: &'f Flow<'a>,
    setting: &'f Setting,
    out: ExpectedErrors,
    /// Last maker of each value, by identity.
    made: HashMap<Identity, Made>,
    /// Names of families, interned.
    names: Repeated,
    families: HashSet<Arc<Family>>,
    /// Errors below sentinels that swamp the norm.
    hidden: HashMap<Identity, InputError>,
    /// Largest error of values made inside each module call, by position of the call.
    inside: Vec<f64>,
    /// Largest fraction of choices that noise flipped inside each module call.
    flipped_inside: Vec<f64>,
    /// Parts of values that are smaller than the rest.
    small_rows: SmallRows,
    /// Coarsest precision of any computation inside each module call.
    precision_inside: Vec<Option<&'static Precision>>,
    /// Largest norm of a gradient that arrives inside each module call: the scale for gradients that are zero
    /// in exact arithmetic.
    gradients_inside: Vec<f64>,
    /// Largest error of a result so far.
    worst: f64,
    /// Values that have arrived so far.
    arrived: HashSet<Identity>,
    /// A product has been computed.
    multiplied: bool,
    /// Error that each product adds to a path.
    product: f64,
    /// Largest and median error of weights that earlier steps have changed.
    drift: f64,
    usual_drift: f64,
    /// Forward ops that read each value.
    readers: HashMap<Identity, Vec<usize>>,
    /// Some forward function chooses between values, so that gradients pass where rounding lets them.
    gates: bool,
}

impl<'f, 'a> Walk<'f, 'a> {
    /// Weighs all values. `product` is the least error that each product adds to the path of a value with
    /// statistics only.
    pub(super) fn over(flow: &'f Flow<'a>, setting: &'f Setting, product: f64) -> ExpectedErrors {
        let count = flow.nodes.len();
        let mut drifts = drifts(flow);
        let mut walk = Self {
            flow,
            setting,
            out: ExpectedErrors::default(),
            made: HashMap::new(),
            names: Repeated::default(),
            families: HashSet::new(),
            hidden: HashMap::new(),
            inside: vec![0.0; count],
            flipped_inside: vec![0.0; count],
            small_rows: SmallRows::default(),
            precision_inside: vec![None; count],
            gradients_inside: gradients_inside(flow),
            worst: 0.0,
            arrived: HashSet::new(),
            multiplied: false,
            product,
            drift: largest(drifts.iter().copied()),
            usual_drift: median(&mut drifts),
            readers: readers(flow),
            gates: flow.nodes.iter().any(|node| node.traits.chooses && !node.is_backward()),
        };
        for position in 0..count {
            walk.op(position);
        }
        walk.out.values.shrink_to_fit();
        walk.out
    }

    fn op(&mut self, position: usize) {
        let node = &self.flow.nodes[position];
        self.out.input_errors.push(Figure::NONE);
        if !node.is_paired {
            return;
        }
        if matches!(node.traits.kind, Kind::Uninitialised) {
            for slot in node.results() {
                self.note_made((position, slot), 0.0);
            }
            return;
        }
        let given = self.errors(self.flow.given(position));
        let saved = self.errors(self.flow.saved(position));
        self.note_input_error(position, &given, &saved);
        self.arrivals(position, &given);
        let mut most: f64 = 0.0;
        self.multiplied |= node.traits.kind == Kind::Product;
        for slot in node.results().collect::<Vec<_>>() {
            if let Some(error) = self.result((position, slot), &given, &saved) {
                most = most.max(error);
            }
            self.small_rows.note(self.flow, (position, slot), &given);
        }
        if node.op.name.phase() == Phase::Forward || node.op.name.phase() == Phase::Backward {
            let deeper = self.inside[position];
            self.note_inside(position, most.max(deeper));
        }
    }

    /// Reports the size of an error and its precision to the surrounding module.
    fn note_inside(&mut self, position: usize, error: f64) {
        let node = &self.flow.nodes[position];
        let own =
            node.results().filter_map(|slot| self.flow.fact((position, slot)).dtype.and_then(Precision::of));
        let precision = own.chain(self.precision_inside[position]).reduce(Precision::coarser);
        let Some(parent) = self.flow.parent(position) else { return };
        self.inside[parent] = self.inside[parent].max(error);
        let flipped = largest(node.results().map(|slot| self.flow.fact((position, slot)).flipped));
        let flipped = flipped.max(self.flipped_inside[position]);
        self.flipped_inside[parent] = self.flipped_inside[parent].max(flipped);
        self.precision_inside[parent] =
            self.precision_inside[parent].into_iter().chain(precision).reduce(Precision::coarser);
    }

    /// Returns the errors of values: below a sentinel that swamps it the earlier value's error, with
    /// statistics at least the floor of the path.
    fn errors(&self, places: Vec<Place>) -> Vec<(Place, InputError)> {
        places.into_iter().map(|place| (place, self.error(place))).collect()
    }

    fn error(&self, place: Place) -> InputError {
        let fact = self.flow.fact(place);
        if let Some(hidden) = fact.identity.and_then(|identity| self.hidden.get(&identity)) {
            return *hidden;
        }
        if fact.difference.hides_numbers() {
            return InputError { relative: 1.0, absolute: fact.norm };
        }
        if !fact.is_float || fact.swamped {
            return InputError::default();
        }
        let path = if fact.statistics_only { self.path(place) } else { 0.0 };
        let seen = path.max(fact.likely).max(self.unseen(place));
        InputError { relative: fact.relative().max(seen), absolute: fact.distance.max(seen * fact.norm) }
    }

    /// Returns the least error of the path that leads to a value.
    fn path(&self, place: Place) -> f64 {
        let fact = self.flow.fact(place);
        match fact.identity.and_then(|identity| self.made.get(&identity)) {
            Some(made) => made.path,
            // Unrecorded functions may have made it from a product, or computed it under autocast.
            None if self.multiplied
                && self.flow.side(place) == SlotSide::Input
                && !self.flow.is_weight(place) =>
            {
                self.setting.autocast.map_or(0.0, |coarse| coarse.least / 2.0).max(self.product)
            }
            None => 0.0,
        }
    }

    /// Returns how far a weight may have drifted from its partner unnoticed; 0 for other values.
    fn unseen(&self, place: Place) -> f64 {
        let fact = self.flow.fact(place);
        let sketched = matches!(self.flow.evidence.at(place.0, place.1), Evidence::Recorded(_));
        let picked = self.flow.nodes[place.0].traits.kind == Kind::Embedding;
        let unseen = if fact.statistics_only {
            (RESOLUTION * fact.len.sqrt()).min(self.drift)
        } else if sketched && picked && !fact.exact {
            // Adam's steps are equal in size: a few of them may cancel in the sketch of a table whose rows are
            // picked.
            self.usual_drift * (CANCELLED / fact.len).sqrt().min(1.0)
        } else {
            0.0
        };
        if unseen > 0.0 && self.flow.is_weight(place) { unseen } else { 0.0 }
    }

    fn note_input_error(
        &mut self,
        position: usize,
        given: &[(Place, InputError)],
        saved: &[(Place, InputError)],
    ) {
        let known = given
            .iter()
            .chain(saved)
            .filter(|(place, _)| {
                self.flow.fact(*place).judgement.error.get().is_some() && self.flow.fact(*place).is_tensor
            })
            .map(|(place, error)| {
                error.relative.max(self.flow.fact(*place).judgement.error.get().unwrap_or(0.0))
            });
        self.out.input_errors[position] = known.reduce(f64::max).into();
    }

    fn note_made(&mut self, place: Place, path: f64) {
        if let Some(identity) = self.flow.fact(place).identity {
            let made = self.made.entry(identity).or_insert(Made { by: place.0, path });
            made.path = path;
        }
    }

    /// Weighs inputs that no recorded op made: data, weights, and results of unrecorded functions.
    fn arrivals(&mut self, position: usize, given: &[(Place, InputError)]) {
        for &(place, _) in given {
            let fact = self.flow.fact(place);
            let known = fact.identity.is_some_and(|identity| self.made.contains_key(&identity));
            // A parameter gradient's inputs belong to other ops; skip them.
            if place.0 != position || known || !fact.is_tensor {
                continue;
            }
            // Already judged on an earlier arrival.
            if fact.identity.is_some_and(|identity| !self.arrived.insert(identity)) {
                continue;
            }
            self.out.arrivals.push(place);
            let Some((dtype, precision)) = fact.dtype.and_then(|dtype| Some((dtype, Precision::of(dtype)?)))
            else {
                continue;
            };
            if !fact.is_float || fact.unwritten || fact.difference.hides_numbers() {
                continue;
            }
            let precision = self
                .setting
                .coarsest
                .filter(|_| self.setting.mixed.is_some())
                .map_or(precision, |coarse| precision.coarser(coarse));
            let side = self.flow.side(place);
            // Unrecorded functions may have computed it under autocast.
            let unrecorded =
                self.setting.autocast.filter(|_| side != SlotSide::Parameter && self.worst > 0.0);
            let precision = unrecorded.map_or(precision, |coarse| precision.coarser(coarse));
            let phase = self.flow.nodes[position].op.name.phase();
            let family = Family {
                role: ValueKind::Arrival,
                name: self.names.text(if side == SlotSide::Parameter { "parameter" } else { "value" }),
                is_module: false,
                phase,
                slot: self.names.text(""),
                dtype,
            };
            let coarse = self.setting.coarsest.map_or(0.0, |coarse| coarse.unknown);
            // Unrecorded functions computed it from weights, possibly with products.
            let computed =
                phase == Phase::Forward && self.flow.wants_gradient(place) && !self.flow.is_weight(place);
            let explained = match side {
                SlotSide::Parameter => 0.0,
                _ if transfer::may_select_others(self.flow, place, self.worst.max(coarse)) => 1.0,
                // It may have passed a function that chooses.
                _ if self.gates && self.flow.nodes[position].is_backward() => {
                    self.worst.max(transfer::flipped_gates(fact.len, self.worst))
                }
                _ => self.worst,
            };
            let scale = self.scale_on_arrival(position, fact);
            // Each device may have prepared data by unrecorded functions.
            let least = single(fact, precision)
                .hypot(precision.least * if precision.unit < 1e-6 { 4.0 } else { 1.0 });
            self.out.values.push(ExpectedError {
                place,
                family: shared(&mut self.families, family),
                kind: if computed { Kind::Product } else { Kind::Other },
                precision,
                error: (fact.relative().max(fact.likely) * fact.norm / scale).min(1.0),
                explained,
                least,
                unknown: precision.unknown,
                call: position,
                clean: explained <= 0.0,
                statistics_only: fact.statistics_only,
                elements: fact.len,
                terms: 1.0,
                gain: None,
                remnant: self.remnant(place, scale, least).map(Box::new),
                extremes: 0.0,
            });
        }
    }

    /// Relates a gradient that arrives at a module to the largest one inside the surrounding module, if all of
    /// that is known and the error cannot be that of a few elements that unrecorded functions let through on
    /// one side only.
    fn remnant(&self, place: Place, scale: f64, least: f64) -> Option<Remnant> {
        let fact = self.flow.fact(place);
        let arrives = self.flow.modules_alone && self.flow.nodes[place.0].op.name.phase() == Phase::Backward;
        let known = arrives && !fact.statistics_only && fact.norm > 0.0 && !self.may_be_few_choices(place);
        known.then(|| Remnant {
            own: fact.relative(),
            share: (fact.norm / scale).min(1.0),
            before: self.worst.hypot(least),
        })
    }

    /// Returns the scale of an arriving value: its norm; for a gradient at least the largest gradient next to
    /// it.
    fn scale_on_arrival(&self, position: usize, fact: &Fact) -> f64 {
        let node = &self.flow.nodes[position];
        let beside = self.flow.parent(position).filter(|_| node.is_backward());
        let beside = beside.map_or(0.0, |parent| self.gradients_inside[parent]);
        // A running mean is compared with the elements that it is the mean of; in a dispatcher op they follow
        // their gradient.
        let whole = node
            .given()
            .map(|slot| self.flow.fact((position, slot)))
            .filter(|given| given.is_float && given.len > fact.len);
        let size = whole.last().filter(|_| node.traits.kind == Kind::Normalisation);
        let size = size.map_or(0.0, |given| given.norm * (fact.len / given.len).sqrt());
        fact.norm.max(beside).max(size).max(f64::MIN_POSITIVE)
    }

    /// Weighs one result and returns its error, if known.
    fn result(
        &mut self,
        place: Place,
        given: &[(Place, InputError)],
        saved: &[(Place, InputError)],
    ) -> Option<f64> {
        let node = &self.flow.nodes[place.0];
        let fact = self.flow.fact(place);
        if !fact.is_tensor || fact.len < 1.0 {
            return None;
        }
        let inputs = || given.iter().chain(saved);
        let path = largest(inputs().map(|(place, _)| self.path(*place)));
        let floats = inputs().filter(|(place, _)| self.flow.fact(*place).is_float);
        if fact.is_float && fact.swamped && (fact.statistics_only || fact.relative() < 1e-10) {
            let error = InputError {
                relative: largest(floats.clone().map(|(_, error)| error.relative)),
                absolute: largest(floats.map(|(_, error)| error.absolute)),
            };
            if let Some(identity) = fact.identity {
                self.hidden.insert(identity, error);
            }
            self.note_made(place, error.relative);
            return None;
        }
        let known = fact.is_measured && !fact.unwritten && !fact.difference.hides_numbers();
        if !fact.is_float || !known {
            self.note_made(place, path);
            return None;
        }
        let (dtype, precision) = fact.dtype.and_then(|dtype| Some((dtype, Precision::of(dtype)?)))?;
        let places =
            |inputs: &[(Place, InputError)]| inputs.iter().map(|(place, _)| *place).collect::<Vec<_>>();
        let (given_places, saved_places) = (places(given), places(saved));
        let scale = scale::of(self.flow, place, &given_places, &saved_places);
        // A gradient that underflows to zero on one side is compared with those around it.
        let vanished = node.is_backward() && fact.norm <= 0.0;
        let around = self.flow.around(place.0).filter(|_| vanished).map(|outer| self.gradients_inside[outer]);
        let around = largest(around);
        let norm = scale.norm.max(around).max(f64::MIN_POSITIVE);
        let error = (fact.distance / norm).min(f64::MAX);
        let mut explained = transfer::explained(self.flow, place, norm, given, saved);
        explained = explained.hypot(self.small_rows.shown(self.flow, place, given, saved));
        // Choices in the inputs, made inside, or made along with this result.
        let flipped = largest(inputs().map(|(place, _)| self.flow.fact(*place).flipped))
            .max(self.flipped_inside[place.0])
            .max(largest(node.results().map(|slot| self.flow.fact((place.0, slot)).flipped)));
        explained = explained.max(transfer::picked(flipped));
        if inputs().any(|(place, _)| self.flow.fact(*place).difference.hides_numbers()) {
            explained = explained.max(1.0);
        }
        if self.may_be_one_choice(place, given, saved) {
            explained = explained.max(error);
        }
        let unseen = self.unseen_gradient(place, given);
        explained = explained.max(unseen.unwrap_or(0.0));
        let of_bias = node.makes_gradients() && self.flow.shape(place).len() <= 1;
        if of_bias && fact.norm < CANCELS * scale.norm {
            // The remainder of a cancelling sum is the common error of all its terms.
            explained *= scale.terms.sqrt();
        }
        if node.is_module() {
            explained = explained.max(self.inside[place.0]);
        }
        let precision = self.computed_in(place, precision, inputs());
        let conditioned = if node.traits.kind == Kind::Normalisation && !node.is_backward() {
            given.first().map_or(1.0, |(place, _)| centring(self.flow, node, *place))
        } else {
            1.0
        };
        let clean = inputs().all(|(place, _)| {
            let fact = self.flow.fact(*place);
            fact.exact || !fact.is_tensor || !fact.differs()
        }) && unseen.is_none();
        let by = fact.identity.and_then(|identity| self.made.get(&identity)).map(|made| made.by);
        let again = by.is_some() && node.is_module();
        let call = by.filter(|_| node.op.name.phase() != Phase::Forward && !fact.exact).unwrap_or(place.0);
        // Sums of zeros say nothing about the summation; a zero bias does not matter.
        let nothing = given.iter().any(|(place, _)| {
            let fact = self.flow.fact(*place);
            fact.is_float && fact.norm <= 0.0 && self.flow.shape(*place).len() > 1
        });
        let gain = CommonFactor {
            error: fact.gain().abs() * fact.norm / norm,
            explained: self.gain_explained(place, given, saved, explained),
            is_of_norm: fact.scales_norm_alone(),
        };
        let weighs = !again
            && (!given.is_empty() || !saved.is_empty() || node.op.name.phase() != Phase::ParameterGradient);
        if weighs {
            let growth = of_sum(scale.terms);
            let family = Family {
                role: ValueKind::Result,
                name: self.names.text(node.base),
                is_module: node.is_module(),
                phase: node.op.name.phase(),
                slot: self.names.text(slot_family(self.flow, place)),
                dtype,
            };
            self.out.values.push(ExpectedError {
                place,
                family: shared(&mut self.families, family),
                kind: node.traits.kind,
                precision,
                error,
                explained,
                least: single(fact, precision)
                    .hypot(precision.least * conditioned * growth)
                    .hypot(Precision::spacing(dtype) / 2.0 * fact.len.sqrt() / norm),
                unknown: precision.unknown * conditioned * growth,
                call,
                clean: clean && !nothing,
                statistics_only: fact.statistics_only,
                elements: fact.len,
                terms: if nothing { 1.0 } else { scale.terms },
                gain: Some(gain)
                    .filter(|gain| {
                        !node.is_composite()
                            && fact.norm >= CANCELS * norm
                            && !(fact.statistics_only && self.has_few_directions(place.0))
                            && unseen.is_none()
                            && fact.len >= WITHOUT_DIRECTION
                            && gain.error >= ONE_FACTOR * error
                    })
                    .map(Box::new),
                remnant: None,
                extremes: fact.extremes * fact.norm / norm,
            });
        }
        let copies = matches!(node.traits.kind, Kind::Copy);
        let step = match node.traits.kind {
            _ if copies => 0.0,
            Kind::Product | Kind::Recurrent | Kind::Attention => self.product.max(precision.least / 2.0),
            _ => precision.least / 2.0,
        };
        self.note_made(place, if fact.statistics_only { path.hypot(step) } else { 0.0 });
        let raw = error.min(fact.relative());
        if node.op.name.phase() == Phase::ParameterGradient {
            if let (Some(module), Some(slot)) = (node.op.name.module_path(), self.flow.slot(place)) {
                let parameter = slot.path.strip_prefix("grad.").unwrap_or(&slot.path);
                self.out.gradients.insert((module.into(), parameter.into()), fact.relative());
            }
            return None;
        }
        if fact.len > 1.0 {
            self.worst = self.worst.max(raw);
        }
        Some(raw)
    }

    /// Returns the error of a result's incoming gradient if that was not recorded, for example because an
    /// in-place op overwrites it: the error of the gradients that reached the readers of the forward result,
    /// or else the largest so far. `None` if it was recorded.
    fn unseen_gradient(&self, place: Place, given: &[(Place, InputError)]) -> Option<f64> {
        if !self.flow.lacks_gradient(place.0, given.iter().map(|(place, _)| *place)) {
            return None;
        }
        let made = self.flow.saved(place.0).into_iter().filter(|&place| self.flow.side(place).is_result());
        let read = made.filter_map(|place| self.readers.get(&self.flow.fact(place).identity?)).flatten();
        let reached = read.filter_map(|&reader| {
            let backward = self.flow.backward_of(reader)?;
            let node = &self.flow.nodes[backward];
            let gradients = node.given().filter(|&slot| self.flow.fact((backward, slot)).is_float);
            let error = gradients.map(|slot| self.error((backward, slot)).relative).reduce(f64::max)?;
            let saved = self.errors(self.flow.saved(backward));
            let near = largest(saved.iter().map(|(_, error)| error.relative));
            let flipped = transfer::flipped_gates(self.flow.fact(place).len, near);
            Some(if node.traits.chooses { error.max(flipped) } else { error })
        });
        Some(reached.reduce(f64::max).unwrap_or_else(|| {
            self.worst.max(if self.gates {
                transfer::flipped_gates(self.flow.fact(place).len, self.worst)
            } else {
                0.0
            })
        }))
    }

    /// Returns the precision in which a result was computed, as far as dtypes show it: the coarsest of its
    /// inputs.
    fn computed_in<'x>(
        &self,
        place: Place,
        own: &'static Precision,
        inputs: impl Iterator<Item = &'x (Place, InputError)>,
    ) -> &'static Precision {
        let node = &self.flow.nodes[place.0];
        let of = |place: Place| {
            let fact = self.flow.fact(place);
            fact.dtype.filter(|_| fact.is_float && fact.len > 1.0).and_then(Precision::of)
        };
        let results = node.results().filter_map(|slot| of((place.0, slot)));
        let inside = self.precision_inside[place.0].filter(|_| node.is_module());
        // Work inside an op is not recorded; under autocast it may have been products.
        let hidden = node.traits.kind == Kind::Recurrent || node.is_composite();
        let autocast = self.setting.autocast.filter(|_| hidden);
        let run = self.setting.coarsest.filter(|_| self.setting.mixed.is_some());
        inputs
            .filter_map(|(place, _)| of(*place))
            .chain(results)
            .chain(inside)
            .chain(autocast)
            .chain(run)
            .fold(own, Precision::coarser)
    }
}

/// Returns the errors of the weights that the forward pass reads in steps after the first; none in the first.
fn drifts(flow: &Flow<'_>) -> Vec<f64> {
    if flow.pair.step == 0 {
        return Vec::new();
    }
    let nodes = flow.nodes.iter().enumerate().filter(|(_, node)| node.is_paired && !node.is_backward());
    let given = nodes.flat_map(|(position, node)| node.given().map(move |slot| (position, slot)));
    let weights = given.filter(|&place| flow.fact(place).is_float && flow.is_weight(place));
    weights.map(|place| flow.fact(place)).map(|fact| fact.relative().max(fact.likely)).collect()
}

/// Returns the positions of the forward ops that read each value.
fn readers(flow: &Flow<'_>) -> HashMap<Identity, Vec<usize>> {
    let mut readers: HashMap<Identity, Vec<usize>> = HashMap::new();
    for (position, node) in flow.nodes.iter().enumerate() {
        if node.is_paired && node.op.name.phase() == Phase::Forward && !node.is_dispatcher() {
            for identity in node.given().filter_map(|slot| flow.fact((position, slot)).identity) {
                readers.entry(identity).or_default().push(position);
            }
        }
    }
    readers
}

/// Returns the largest norm of the inputs of backward ops inside each module call.
fn gradients_inside(flow: &Flow<'_>) -> Vec<f64> {
    let mut largest = vec![0.0_f64; flow.nodes.len()];
    for (position, node) in flow.nodes.iter().enumerate() {
        let Some(parent) = flow.parent(position).filter(|_| node.op.name.phase() == Phase::Backward) else {
            continue;
        };
        let given = node
            .given()
            .map(|slot| flow.fact((position, slot)))
            .filter(|fact| fact.is_float && !fact.swamped);
        largest[parent] = given.map(|fact| fact.norm).fold(largest[parent], f64::max);
    }
    largest
}

/// Returns the error of a single element that is off by a unit in its last place, at the largest magnitude of
/// the tensor; at least the rounding of the recorded sums.
fn single(fact: &Fact, precision: &Precision) -> f64 {
    let unit =
        if fact.norm > 0.0 { (precision.unit * fact.largest / fact.norm).min(precision.unit) } else { 0.0 };
    unit.max(fact.noise)
}

/// Returns the slot name for the family: forward results and copies of one call differ in number only;
/// gradients and statistics of one call differ in kind.
fn slot_family<'f>(flow: &'f Flow<'_>, place: Place) -> &'f str {
    let node = &flow.nodes[place.0];
    let path = flow.slot(place).map_or("", |slot| &*slot.path);
    let alike = !node.is_backward() || matches!(node.traits.kind, Kind::Copy | Kind::Add);
    match path.rsplit_once('.') {
        Some((head, number)) if alike && number.parse::<u32>().is_ok() => head,
        _ => path,
    }
}
