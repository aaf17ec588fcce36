//! Compares every value of a part with what led to it: its error, the part of it that its inputs explain, and
//! its family of calls. Decides nothing; [`excess`](super::excess) does.

mod arrivals;
mod chance;
mod conserved;
mod lists;
mod results;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub(super) use conserved::broken;

use super::choices;
use super::difference::{ByIdentity, Difference, Fact, Identities};
use super::flow::{Flow, Place};
use super::history::APART;
use super::ops::Kind;
use super::precision::Precision;
use super::setting::Setting;
use super::transfer::{InputError, largest};
use super::value::{ExpectedError, Family, ValueKind};
use super::views::Extremes;
use probe_dump::{Figure, Ordinal, Phase, Repeated, SlotSide};
use probe_measure::Evidence;

/// Number of elements from which on noise has no direction.
const WITHOUT_DIRECTION: f64 = 256.0;

/// Fraction of an error along the value from which on it counts as one factor.
const ONE_FACTOR: f64 = 0.7;

/// A sum below this fraction of the norm of uncorrelated terms cancels by nature: gradients of the biases of
/// keys, and in front of normalisations.
const CANCELS: f64 = 0.3;

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

/// The results among the weighed values, which are in order of place.
pub(super) struct Results<'e> {
    values: &'e [ExpectedError],
    places: Vec<Ordinal>,
}

impl ExpectedErrors {
    /// Indexes the results by place.
    pub(super) fn results(&self) -> Results<'_> {
        let is_result = |index: &usize| self.values[*index].family.role == ValueKind::Result;
        let places: Vec<Ordinal> = (0..self.values.len()).filter(is_result).map(Ordinal::of).collect();
        debug_assert!(places.is_sorted_by_key(|index| self.values[index.place()].place), "in order of place");
        Results { values: &self.values, places }
    }
}

impl Results<'_> {
    /// Returns the position of the result at a place among the weighed values.
    pub(super) fn index(&self, place: Place) -> Option<usize> {
        let found = self.places.binary_search_by_key(&place, |index| self.values[index.place()].place);
        Some(self.places[found.ok()?].place())
    }
}

/// A value made by a recorded op.
#[derive(Debug, Clone, Copy)]
struct Made {
    /// Position of the first op that made it.
    by: Ordinal,
    /// Its slot there.
    slot: Ordinal,
    /// Least error of the path that leads to it: statistics do not show all of it.
    path: f64,
}

/// Walks the ops in execution order.
pub(super) struct Walk<'f, 'a> {
    flow: &'f Flow<'a>,
    setting: &'f Setting,
    out: ExpectedErrors,
    /// Last maker of each value, by identity.
    made: ByIdentity<Made>,
    /// Names of families, interned.
    names: Repeated,
    families: HashSet<Arc<Family>>,
    /// Errors below sentinels that swamp the norm.
    hidden: ByIdentity<InputError>,
    /// Largest error of values made inside each module call, by position of the call.
    inside: Vec<f64>,
    /// Largest fraction of choices that noise flipped inside each module call.
    flipped_inside: Vec<f64>,
    /// Coarsest precision of any computation inside each module call.
    precision_inside: Vec<Option<&'static Precision>>,
    /// Largest norm of a gradient that arrives inside each module call: the scale for gradients that are zero
    /// in exact arithmetic.
    gradients_inside: Vec<f64>,
    /// Largest norm of a gradient made inside each module call that no recorded op reads and that has the elements of its
    /// result: autograd adds up several, which may cancel.
    unread_inside: Vec<f64>,
    /// Largest error of a result so far, and the largest that its extremes show of statistics.
    worst: f64,
    at_extremes: f64,
    /// Values that have arrived so far.
    arrived: Identities,
    /// Lists of the positions of chosen elements.
    listed: Identities,
    /// A product has been computed.
    multiplied: bool,
    /// Error that each product adds to a path.
    product: f64,
    /// Forward ops that read each value.
    readers: ByIdentity<Vec<usize>>,
    /// Ops that made results, and the errors of these, by what tells them in another view; made when needed.
    views: OnceCell<HashMap<Extremes, (usize, f64)>>,
    /// Some forward function chooses between values, so that gradients pass where rounding lets them.
    gates: bool,
    /// Weights have drifted since the first step.
    drifts: bool,
}

impl<'f, 'a> Walk<'f, 'a> {
    /// Weighs all values. `product` is the least error that each product adds to the path of a value with
    /// statistics only.
    pub(super) fn over(flow: &'f Flow<'a>, setting: &'f Setting, product: f64) -> ExpectedErrors {
        let count = flow.nodes.len();
        let mut walk = Self {
            flow,
            setting,
            out: ExpectedErrors::default(),
            made: ByIdentity::default(),
            names: Repeated::default(),
            families: HashSet::new(),
            hidden: ByIdentity::default(),
            inside: vec![0.0; count],
            flipped_inside: vec![0.0; count],
            precision_inside: vec![None; count],
            gradients_inside: gradients_inside(flow),
            unread_inside: vec![0.0; count],
            worst: 0.0,
            at_extremes: 0.0,
            arrived: Identities::default(),
            listed: Identities::default(),
            multiplied: false,
            product,
            readers: readers(flow),
            views: OnceCell::new(),
            gates: flow.nodes.iter().any(|node| node.traits.chooses && !node.is_backward()),
            drifts: flow.pair.step > 0 && drifts(flow),
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
        let places = self.flow.given(position);
        self.arrivals(position, &places);
        let given = self.errors(places);
        let saved = self.errors(self.flow.saved(position));
        self.note_input_error(position, &given, &saved);
        let mut most: f64 = 0.0;
        self.multiplied |= node.traits.kind == Kind::Product;
        self.note_lists(position);
        let (groups, results) = lists::split(self.flow, position, given);
        for (slot, group) in results {
            if let Some(error) = self.result((position, slot), &groups[group], &saved) {
                most = most.max(error);
            }
        }
        // What an op in place makes of a gradient was not recorded, and reaches what is recorded around it.
        if node.is_backward() && self.hands_on(position) {
            most = most.max(self.passed_on(position).unwrap_or(0.0));
        }
        self.note_unread(position);
        if node.op.name.phase() == Phase::Forward || node.op.name.phase() == Phase::Backward {
            let deeper = self.inside[position];
            self.note_inside(position, most.max(deeper));
        }
    }

    /// Returns true if an op has no results, or is in place and hands on what it was given: a hook sees another node than the
    /// one that makes its gradient.
    fn hands_on(&self, position: usize) -> bool {
        let node = &self.flow.nodes[position];
        let norms = |slot: usize| self.flow.fact((position, slot)).norms;
        let is_given = |slot: usize| node.given().any(|given| norms(given) == norms(slot));
        let mut results = node.results().peekable();
        let (is_recorded, in_place) = (results.peek().is_some(), node.op.name.api().ends_with('_'));
        (in_place || !is_recorded) && results.all(is_given)
    }

    /// Reports the size of an error and its precision to the surrounding module.
    fn note_inside(&mut self, position: usize, error: f64) {
        let node = &self.flow.nodes[position];
        let own =
            node.results().filter_map(|slot| self.flow.fact((position, slot)).dtype.and_then(Precision::of));
        let precision = own.chain(self.precision_inside[position]).reduce(Precision::coarser);
        let Some(parent) = self.flow.parent(position) else { return };
        self.inside[parent] = self.inside[parent].max(error);
        let flipped = largest(node.results().map(|slot| self.flipped((position, slot))));
        let flipped = flipped.max(self.flipped_inside[position]);
        self.flipped_inside[parent] = self.flipped_inside[parent].max(flipped);
        self.precision_inside[parent] =
            self.precision_inside[parent].into_iter().chain(precision).reduce(Precision::coarser);
    }

    /// Reports gradients that no recorded op reads to the surrounding module.
    fn note_unread(&mut self, position: usize) {
        let (flow, node) = (self.flow, &self.flow.nodes[position]);
        let Some(parent) = flow.parent(position).filter(|_| node.op.name.phase() == Phase::Backward) else {
            return;
        };
        let is_result = |len: f64| {
            flow.nodes[parent].results().any(|slot| flow.fact((parent, slot)).len.to_bits() == len.to_bits())
        };
        let is_unread = |slot: usize| {
            let slot = flow.pair.slot_at(position, slot).0;
            slot.is_some_and(|slot| flow.values.readers(0, slot).next().is_none())
        };
        let unread = node.results().filter(|&slot| {
            let fact = flow.fact((position, slot));
            fact.is_float && !fact.swamped && is_result(fact.len) && is_unread(slot)
        });
        let largest = unread.map(|slot| flow.fact((position, slot)).norm).fold(0.0, f64::max);
        self.unread_inside[parent] = self.unread_inside[parent].max(largest);
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
        let seen = path.max(fact.likely);
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
            // The few elements of a vector show theirs.
            None if self.is_drifted_matrix(place) => hidden_drift(fact),
            None => 0.0,
        }
    }

    fn is_drifted_matrix(&self, place: Place) -> bool {
        let is_matrix = self.flow.shape(place).len() > 1;
        let may_differ = || !self.flow.fact(place).exact || self.has_short_sums(place);
        self.drifts && is_matrix && self.flow.is_weight(place) && may_differ()
    }

    /// Returns true if the sums of a value were recorded in binary32, as other tools do: equal ones may be so by chance.
    fn has_short_sums(&self, place: Place) -> bool {
        let record = self.flow.slot(place).and_then(|slot| slot.value.tensor());
        record.is_some_and(|record| record.counts.is_none() && record.checksum.is_none())
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

    /// Notes lists of positions, and parts and copies of them.
    fn note_lists(&mut self, position: usize) {
        let node = &self.flow.nodes[position];
        let identity = |slot| self.flow.fact((position, slot)).identity;
        let is_listed = |slot| identity(slot).is_some_and(|identity| self.listed.contains(&identity));
        if choices::lists_positions(node) || (node.traits.kind == Kind::Copy && node.given().any(is_listed)) {
            let made: Vec<_> = node.results().filter_map(identity).collect();
            self.listed.extend(made);
        }
    }

    /// Returns the largest fraction of the elements of an exact type that may differ. Where one position more is listed, all
    /// behind it move: a sketch or statistics do not tell how many.
    fn flipped(&self, place: Place) -> f64 {
        let fact = self.flow.fact(place);
        // An expert that was given more tokens, or fewer.
        if fact.difference == Difference::Shape && self.may_select_others(place) {
            return rows_apart(self.flow, place);
        }
        let is_listed = || fact.identity.is_some_and(|identity| self.listed.contains(&identity));
        let is_counted = || matches!(self.flow.evidence.at(place.0, place.1), Evidence::Data(_));
        if fact.flipped > 0.0 && is_listed() && !is_counted() { 1.0 } else { fact.flipped }
    }

    fn note_made(&mut self, place: Place, path: f64) {
        if let Some(identity) = self.flow.fact(place).identity {
            let (by, slot) = (Ordinal::of(place.0), Ordinal::of(place.1));
            let made = self.made.entry(identity).or_insert(Made { by, slot, path });
            made.path = path;
        }
    }
}

/// Returns the share of the rows of a value by which it is longer on one side.
fn rows_apart(flow: &Flow<'_>, place: Place) -> f64 {
    let (b, c) = flow.pair.slot_at(place.0, place.1);
    let [b, c] =
        [b, c].map(|slot| slot.and_then(|slot| slot.value.tensor()).map_or(0.0, |of| of.len() as f64));
    (b - c).abs() / b.max(c).max(1.0)
}

/// Returns the positions of the forward ops that read each value.
fn readers(flow: &Flow<'_>) -> ByIdentity<Vec<usize>> {
    let mut readers: ByIdentity<Vec<usize>> = ByIdentity::default();
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

/// Returns true if a weight differs.
fn drifts(flow: &Flow<'_>) -> bool {
    let nodes = flow.nodes.iter().enumerate().filter(|(_, node)| node.is_paired);
    let mut given = nodes.flat_map(|(op, node)| node.given().map(move |slot| (op, slot)));
    given.any(|place| flow.fact(place).is_float && !flow.fact(place).exact && flow.is_weight(place))
}

/// Returns the error of a drifted weight that its norms suggest, which rounding in the recorded sums may hide: a change of
/// `n` elements in no direction changes the norm by the root of `n` less than its own size. Norms in binary32 that are equal
/// are known to half a unit in the last place.
fn hidden_drift(fact: &Fact) -> f64 {
    let (b, c) = fact.norms;
    let apart = ((c - b).abs() / b.max(f64::MIN_POSITIVE)).max(Precision::BINARY32.unit / 2.0);
    (apart * fact.len.sqrt()).min(APART)
}

/// Returns the error of a single element that is off by a unit in its last place, at the largest magnitude of
/// the tensor; at least the rounding of the recorded sums.
fn single(fact: &Fact, precision: &Precision) -> f64 {
    let unit =
        if fact.norm > 0.0 { (precision.unit * fact.largest / fact.norm).min(precision.unit) } else { 0.0 };
    unit.max(fact.noise)
}
