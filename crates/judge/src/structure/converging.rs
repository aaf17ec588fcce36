//! The same computation, written in another way: ops differ, and everything that is made of them agrees.
//!
//! From the ops that differ, every reader is followed on both sides until its results agree. If all ways end like
//! that, nothing of the difference is left, and its ops are no fault: a merged weight, a padding that is cut off
//! again, a distribution's method for its formula.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};

use crate::difference::{Difference, Fact};
use crate::excess::BEYOND;
use crate::expected::{ExpectedErrors, Results};
use crate::flow::{Flow, Place};
use crate::median::median;
use crate::precision::Precision;
use crate::value::{Excess, ExpectedError};

use super::is_moved;
use super::unpaired::{computes, is_trained};
use probe_dump::{Phase, Slot, SlotSide};

/// Largest error that still counts as agreement: what coarse types leave behind a few ops.
const LARGEST: f64 = 0.1;

/// Ops that are followed, and readers of one; what reaches more than these is no local rewrite.
const MOST: usize = 2000;

/// What is known of a part besides its flow.
pub(crate) struct Agreement<'f, 'a> {
    pub(super) flow: &'f Flow<'a>,
    expected: &'f ExpectedErrors,
    /// Made when it is needed.
    results: OnceCell<Results<'f>>,
    /// Positions of each side's ops by name, made when they are needed.
    names: OnceCell<[HashMap<&'a str, usize>; 2]>,
    /// Error that one op leaves in this part: rounding of the coarsest type, or of coarse products.
    pub(super) rounding: f64,
    /// The runs have gone apart before the recording begins: what the weights differ by hides what ops do.
    pub(super) apart: bool,
}

impl<'f, 'a> Agreement<'f, 'a> {
    pub(crate) fn of(
        flow: &'f Flow<'a>,
        expected: &'f ExpectedErrors,
        excess: &[Excess],
        coarsest: Option<&'static Precision>,
        apart: bool,
    ) -> Self {
        let products = expected.values.iter().zip(excess).filter(|(value, _)| value.is_product());
        // What a gradient is off by hides in the errors of what it is made of.
        let (forward, backward): (Vec<_>, Vec<_>) =
            products.partition(|(value, _)| value.family.phase == Phase::Forward);
        let products = if forward.is_empty() { backward } else { forward };
        // Half of the products may be behind a fault.
        let floor = median(&mut products.iter().map(|(_, excess)| excess.floor).collect::<Vec<f64>>());
        Self {
            flow,
            expected,
            results: OnceCell::new(),
            names: OnceCell::new(),
            rounding: floor.max(coarsest.map_or(0.0, |coarse| coarse.unknown)),
            apart,
        }
    }

    /// Returns the ops between `first`, which differ, and those behind them whose results agree. `None` if the
    /// difference reaches an end of the part: a loss, a parameter gradient, a parameter.
    pub(super) fn region(&self, first: &[usize]) -> Option<HashSet<usize>> {
        self.region_among(first, &HashSet::new())
    }

    /// The same beside ops that other differences have reached: theirs is no noise.
    pub(super) fn region_among(&self, first: &[usize], reached: &HashSet<usize>) -> Option<HashSet<usize>> {
        let mut region: HashSet<usize> = first.iter().copied().collect();
        // In the order of execution: what an op reads from outside of the region is then known.
        let mut queue: BTreeSet<usize> = first.iter().copied().collect();
        // Between modules readers are not recorded.
        let ends = |op: &usize| self.readers(*op).is_empty() && self.accumulated(*op).is_empty();
        if self.flow.modules_alone || first.iter().all(ends) {
            return None;
        }
        let start = first.iter().copied().min().unwrap_or(0);
        let mut sums = HashSet::new();
        let before = |op, sums: &HashSet<usize>| self.error_from_before(op, start, reached, sums);
        let mut led = first.iter().map(|&op| before(op, &sums)).fold(0.0, f64::max);
        while let Some(position) = queue.pop_first() {
            led = led.max(before(position, &sums));
            let readers = self.readers(position);
            let accumulated = self.accumulated(position);
            sums.extend(accumulated.iter().copied());
            let is_read = !readers.is_empty() || !accumulated.is_empty();
            let reaches_far = region.len().max(readers.len()) > MOST;
            let begins = self.begins_backward(position, &readers, led);
            if reaches_far || begins || self.is_end(position, is_read, first.contains(&position), led) {
                return None;
            }
            for reader in self.differing_readers(position, (readers, accumulated), &region, reached, led) {
                if !region.contains(&reader) {
                    if self.is_in_another_type(reader) {
                        return None;
                    }
                    region.insert(reader);
                    queue.insert(reader);
                }
            }
        }
        Some(region)
    }

    /// Returns all ops that the differences of these reach, those of the same part together.
    pub(super) fn reached(&self, first: &[usize]) -> HashSet<usize> {
        let mut reached: HashSet<usize> = first.iter().copied().collect();
        let mut queue: BTreeSet<usize> = first.iter().copied().collect();
        let start = first.iter().copied().min().unwrap_or(0);
        let (none, mut sums) = (HashSet::new(), HashSet::new());
        while let Some(position) = queue.pop_first() {
            let led = self.error_from_before(position, start, &none, &sums);
            let read = (self.readers(position), self.accumulated(position));
            sums.extend(read.1.iter().copied());
            for reader in self.differing_readers(position, read, &reached, &none, led) {
                if reached.insert(reader) {
                    queue.insert(reader);
                }
            }
        }
        reached
    }

    /// Returns the readers of an op whose results do not agree.
    fn differing_readers(
        &self,
        position: usize,
        (readers, accumulated): (Vec<usize>, Vec<usize>),
        region: &HashSet<usize>,
        reached: &HashSet<usize>,
        led: f64,
    ) -> Vec<usize> {
        // Names of unpaired ops count calls of their side alone.
        let backward = self.flow.backward_of(position).filter(|_| self.flow.nodes[position].is_paired);
        let sums = accumulated.into_iter().filter(|sum| !self.arrives(*sum, led));
        let others = readers.into_iter().chain(backward);
        others.filter(|&reader| !self.agrees(reader, region, reached, led)).chain(sums).collect()
    }

    /// Returns the position of the forward call of an unpaired backward op; `None` for a dispatcher op.
    pub(super) fn forward_of(&self, position: usize) -> Option<usize> {
        if self.flow.nodes[position].is_dispatcher() {
            return None;
        }
        let (b, c) = self.flow.pair.op(&self.flow.pair.ops[position]);
        let (side, op) = b.map(|op| (0, op)).or_else(|| c.map(|op| (1, op)))?;
        self.position(side, &op.name.in_phase(Phase::Forward)?)
    }

    /// Returns the largest error of what an op reads and was there before the op at `start`, so that nothing behind that
    /// one made it: noise of the run, weights that have drifted. What arrives at `sums` is made behind it, though no
    /// recorded op makes it: autograd adds up the gradients of all readers.
    fn error_from_before(
        &self,
        position: usize,
        start: usize,
        reached: &HashSet<usize>,
        sums: &HashSet<usize>,
    ) -> f64 {
        let read = self.sides(position, false).into_iter();
        let made = read.flat_map(|(side, op, slot)| self.makers(side, op, slot));
        let node = &self.flow.nodes[position];
        let given = node.given().map(|slot| (position, slot)).filter(|_| node.is_paired);
        let arrived = given.filter(|&(op, slot)| {
            let fact = self.flow.fact((op, slot));
            fact.is_float
                && fact.difference == Difference::Numbers
                && self.flow.makers_of_both((op, slot)).all(|maker| maker.0 < start)
                && self.is_one_value((op, slot))
                && !(sums.contains(&op) && self.flow.makers_of_both((op, slot)).next().is_none())
        });
        let before = made.filter(|maker| maker.0 < start).chain(arrived);
        let before = before.filter(|&place| !self.is_reached(place, reached));
        before.map(|place| self.error(place)).fold(0.0, f64::max)
    }

    /// Returns true if the same op made a value on both sides, or none did. The result of another op is off by more than
    /// noise.
    fn is_one_value(&self, (op, slot): Place) -> bool {
        let (b, c) = self.flow.pair.slot_at(op, slot);
        let makers = |side: usize, slot: Option<&Slot>| -> HashSet<Place> {
            slot.into_iter().flat_map(|slot| self.makers(side, op, slot)).collect()
        };
        let (b, c) = (makers(0, b), makers(1, c));
        !b.is_disjoint(&c) || (b.is_empty() && c.is_empty())
    }

    /// Iterates over the tensors that an op makes or reads, side by side, with their keys' sides.
    pub(super) fn sides(&self, op: usize, results: bool) -> Vec<(usize, usize, &'a Slot)> {
        let (b, c) = self.flow.pair.op(&self.flow.pair.ops[op]);
        let sides = [b, c].into_iter().enumerate().filter_map(|(side, op)| Some((side, op?)));
        let slots = sides.flat_map(|(side, node)| node.slots.iter().map(move |slot| (side, op, slot)));
        slots.filter(|(_, _, slot)| slot.side.is_result() == results).collect()
    }

    pub(super) fn makers(&self, side: usize, before: usize, slot: &Slot) -> impl Iterator<Item = Place> + '_ {
        self.flow.values.makers(side, slot).filter(move |place| place.0 < before)
    }

    /// Returns the later ops that read what an op makes, on either side.
    pub(super) fn readers(&self, position: usize) -> Vec<usize> {
        let made = self.sides(position, true).into_iter();
        let readers = made.flat_map(|(side, _, slot)| self.flow.values.readers(side, slot));
        readers.map(|place| place.0).filter(|&reader| reader > position).collect()
    }

    /// Returns the later ops that read the sum of gradients to which a backward op adds one: autograd adds up those of
    /// all readers of a value, which nobody records. They are the backward of the op that made the value, or the
    /// gradient of a parameter and its optimizer.
    fn accumulated(&self, position: usize) -> Vec<usize> {
        let node = &self.flow.nodes[position];
        if node.op.name.phase() != Phase::Backward || node.is_dispatcher() {
            return Vec::new();
        }
        let (b, c) = self.flow.pair.op(&self.flow.pair.ops[position]);
        let mut found = Vec::new();
        for (side, op) in [b, c].into_iter().enumerate() {
            let forward = op.and_then(|op| self.position(side, &op.name.in_phase(Phase::Forward)?));
            let Some(forward) = forward else { continue };
            let given = self.sides(forward, false).into_iter().filter(|(of, ..)| *of == side);
            for (_, _, slot) in given.filter(|(_, _, slot)| is_trained(slot)) {
                // An op that returns what it reads, as `to` does in the same type, makes nothing.
                let hands_on =
                    |maker: &Place| self.flow.values.readers(side, slot).any(|reader| reader.0 == maker.0);
                let makers: Vec<Place> =
                    self.makers(side, forward, slot).filter(|maker| !hands_on(maker)).collect();
                let readers = self.flow.values.readers(side, slot).filter(|_| makers.is_empty());
                let owners = readers.filter(|&place| self.flow.side(place) == SlotSide::Parameter);
                found.extend(makers.iter().filter_map(|maker| self.in_phase(side, maker.0, Phase::Backward)));
                found.extend(owners.filter_map(|owner| {
                    let optimizes = self.flow.nodes[owner.0].traits.optimizes;
                    let gradient = self.in_phase(side, owner.0, Phase::ParameterGradient);
                    gradient.or_else(|| optimizes.then_some(owner.0))
                }));
            }
        }
        found.retain(|&reader| reader > position);
        found
    }

    /// Returns the position of an op of one side by its name.
    fn position(&self, side: usize, name: &str) -> Option<usize> {
        let names = self.names.get_or_init(|| {
            let mut names = [HashMap::new(), HashMap::new()];
            for (position, pair) in self.flow.pair.ops.iter().enumerate() {
                let (b, c) = self.flow.pair.op(pair);
                for (op, names) in [b, c].into_iter().zip(&mut names) {
                    names.extend(op.map(|op| (op.name.as_str(), position)));
                }
            }
            names
        });
        names[side].get(name).copied()
    }

    /// Returns the position of the same call of one side in another phase.
    fn in_phase(&self, side: usize, position: usize, phase: Phase) -> Option<usize> {
        let (b, c) = self.flow.pair.op(&self.flow.pair.ops[position]);
        self.position(side, &[b, c][side]?.name.in_phase(phase)?)
    }

    /// Returns true if the gradients that arrive at an op agree, where what led to them is off by `led`.
    fn arrives(&self, position: usize, led: f64) -> bool {
        self.flow.nodes[position].is_paired && self.gradients(position).all(|fact| self.is_near(fact, led))
    }

    /// Returns true if the gradients agree that both sides have at an op, whatever one side alone has there.
    fn shared_arrive(&self, position: usize, led: f64) -> bool {
        let is_shared = |fact: &&Fact| !matches!(fact.difference, Difference::Missing | Difference::Shape);
        self.gradients(position).filter(is_shared).all(|fact| self.is_near(fact, led))
    }

    pub(super) fn is_near(&self, fact: &Fact, led: f64) -> bool {
        match fact.difference {
            Difference::None => true,
            Difference::Numbers => fact.relative().max(fact.likely) <= self.bound(led),
            _ => fact.allowed,
        }
    }

    /// Returns the gradients that arrive at an op, or that it is the gradient of.
    fn gradients(&self, position: usize) -> impl Iterator<Item = &Fact> {
        let node = &self.flow.nodes[position];
        let is_gradient = |slot: usize| {
            let path = self.flow.slot((position, slot)).map_or("", |slot| &*slot.path);
            !node.traits.optimizes || path.starts_with("input.grad.")
        };
        let places = if node.op.name.phase() == Phase::ParameterGradient {
            node.results().collect::<Vec<usize>>()
        } else {
            node.given().filter(|&slot| is_gradient(slot)).collect()
        };
        places.into_iter().map(move |slot| self.flow.fact((position, slot))).filter(|fact| fact.is_tensor)
    }

    /// Returns true if a difference that is left at an op is one of the run: nobody reads its results, or they
    /// change a parameter. What one side alone computes and nobody reads is logged.
    fn is_end(&self, position: usize, is_read: bool, is_first: bool, led: f64) -> bool {
        let node = &self.flow.nodes[position];
        let apart = || node.results().any(|slot| self.flow.fact((position, slot)).differs());
        if node.traits.optimizes || node.op.name.phase() == Phase::ParameterGradient {
            return self.has_partners(position) || !self.shared_arrive(position, led);
        }
        !is_read && node.is_paired && !is_first && apart() && !self.is_of_parts(position)
    }

    /// Returns true if both sides have every tensor of an op. What one side alone keeps as a parameter of its own has
    /// no partner: the weights of merged products.
    fn has_partners(&self, position: usize) -> bool {
        let node = &self.flow.nodes[position];
        node.is_paired && !(0..node.slot_count()).any(|slot| self.flow.is_of_one_side((position, slot)))
    }

    /// Returns true if the results of an op of both sides agree: their errors are what its inputs from outside
    /// of the region, or the region's, and rounding leave. A difference that arrives from the region must be undone
    /// besides: one that is only small beside a larger value, as behind a residual connection, is still there.
    fn agrees(&self, position: usize, region: &HashSet<usize>, reached: &HashSet<usize>, led: f64) -> bool {
        let node = &self.flow.nodes[position];
        if !node.is_paired || self.leads_elsewhere(position, region) {
            return false;
        }
        let given = node.given().map(|slot| (position, slot));
        let given = given.filter(|&place| self.flow.fact(place).is_float);
        let (within, outside): (Vec<Place>, Vec<Place>) =
            given.partition(|&place| self.is_made_in(place, region));
        // Other gradients tell nothing of these, and a step by the sign of a gradient nothing of its size.
        if node.traits.optimizes {
            return within.iter().all(|&place| self.is_near(self.flow.fact(place), led));
        }
        let largest = |places: &[Place]| {
            places.iter().map(|&place| self.flow.fact(place).relative()).fold(0.0, f64::max)
        };
        let noise: Vec<Place> =
            outside.into_iter().filter(|&place| !self.is_reached(place, reached)).collect();
        let bound = self.bound(largest(&noise).hypot(led));
        // What else the reader is given tells nothing of what the region hands on.
        let (carried, handed_on) = (largest(&within), self.bound(led));
        let agrees = |place: Place| {
            let fact = self.flow.fact(place);
            match fact.difference {
                // Statistics are the same in any order.
                Difference::None => !is_moved(self.flow, place),
                Difference::Numbers => {
                    self.error(place) <= bound && (carried <= handed_on || self.is_undone(place, carried))
                }
                _ => fact.allowed,
            }
        };
        let mut results = node.results().map(|slot| (position, slot)).peekable();
        results.peek().is_some() && results.all(agrees)
    }

    /// Returns true if an op reads other integers from the region (labels) and its gradient is plainly another one:
    /// before a model has learned, the mean loss is about the same for any.
    fn leads_elsewhere(&self, position: usize, region: &HashSet<usize>) -> bool {
        let mut given = self.flow.nodes[position].given().map(|slot| (position, slot));
        let is_other = |place: Place| {
            let fact = self.flow.fact(place);
            fact.is_tensor && !fact.is_float && fact.differs() && self.is_made_in(place, region)
        };
        given.any(is_other)
            && self
                .flow
                .backward_of(position)
                .is_some_and(|backward| self.makes_another(backward) && self.arrives(backward, 0.0))
    }

    /// Returns the largest error that counts as agreement where inputs are off by `given`.
    pub(super) fn bound(&self, given: f64) -> f64 {
        (BEYOND * given.hypot(self.rounding)).min(LARGEST)
    }

    /// Returns true if the results of an op agree, as far as the inputs that can be compared tell.
    pub(super) fn makes_the_same(&self, position: usize) -> bool {
        let (flow, node) = (self.flow, &self.flow.nodes[position]);
        let given = node.given().map(|slot| flow.fact((position, slot)));
        let given = given.filter(|fact| fact.is_float && !fact.difference.hides_numbers());
        let bound = self.bound(given.map(Fact::relative).fold(0.0, f64::max));
        let mut results = node.results().map(|slot| flow.fact((position, slot))).peekable();
        results.peek().is_some() && results.all(|fact| fact.difference.is_open() && fact.relative() <= bound)
    }

    /// Returns true if the results of an op are plainly others, and not the same but for noise.
    pub(super) fn makes_another(&self, position: usize) -> bool {
        let mut results = self.flow.nodes[position].results().map(|slot| self.flow.fact((position, slot)));
        results.any(|fact| match fact.difference {
            Difference::Numbers => fact.relative() > LARGEST,
            Difference::Elements => fact.flipped > LARGEST,
            _ => false,
        })
    }

    /// Returns true if an op reads what is plainly another value, and makes the same of it.
    pub(super) fn undoes(&self, position: usize) -> bool {
        let (flow, node) = (self.flow, &self.flow.nodes[position]);
        let given = node.given().map(|slot| flow.fact((position, slot)));
        let carried = given.map(|fact| match fact.difference {
            Difference::Numbers => fact.relative(),
            Difference::Shape => 1.0,
            _ => 0.0,
        });
        let carried = carried.fold(0.0, f64::max);
        let is_left = |place: Place| match flow.fact(place).difference {
            Difference::None => false,
            Difference::Numbers => self.error(place) > self.bound(0.0) || !self.is_undone(place, carried),
            _ => true,
        };
        let mut results = node.results().map(|slot| (position, slot)).peekable();
        carried > LARGEST && results.peek().is_some() && !results.any(is_left)
    }

    /// Returns true if both sides compute an op, in different element types: that is a choice, and no way of writing.
    fn is_in_another_type(&self, position: usize) -> bool {
        let node = &self.flow.nodes[position];
        // A complex number is two real ones.
        let precision = |slot: Option<&Slot>| slot?.value.tensor()?.dtype.known().and_then(Precision::of);
        let is_other = |slot: usize| {
            let fact = self.flow.fact((position, slot));
            let (b, c) = self.flow.pair.slot_at(position, slot);
            fact.difference == Difference::DType && !fact.allowed && precision(b) != precision(c)
        };
        node.is_paired && computes(node) && node.results().any(is_other)
    }

    /// Returns true if less than one part in [`BEYOND`] is left in a result of what its inputs would leave there.
    fn is_undone(&self, place: Place, carried: f64) -> bool {
        match self.result(place) {
            Some(value) => value.error * BEYOND <= value.explained,
            None => self.error(place) * BEYOND <= carried,
        }
    }

    /// Returns true if another difference reaches a value, where it is made or where it is read.
    fn is_reached(&self, place: Place, reached: &HashSet<usize>) -> bool {
        let is_result = self.flow.side(place).is_result();
        if is_result { reached.contains(&place.0) } else { self.is_made_in(place, reached) }
    }

    fn is_made_in(&self, place: Place, region: &HashSet<usize>) -> bool {
        self.flow.makers_of_both(place).any(|maker| region.contains(&maker.0))
    }

    /// Returns the error of a value against its scale, or its own size if it has none.
    fn error(&self, place: Place) -> f64 {
        let fact = self.flow.fact(place);
        // The norm and mean of statistics show less than their extremes.
        let own = fact.relative().max(fact.likely);
        self.result(place).map_or(own, |value| own.min(value.error.max(fact.likely)))
    }

    /// Returns what is expected of the result at a place, if anything.
    fn result(&self, place: Place) -> Option<&'f ExpectedError> {
        let results = self.results.get_or_init(|| self.expected.results());
        results.index(place).map(|index| &self.expected.values[index])
    }
}

#[cfg(test)]
mod tests;
