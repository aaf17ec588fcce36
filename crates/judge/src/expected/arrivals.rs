//! Values that no recorded op made: data, weights, and results of unrecorded functions.

use std::collections::{HashMap, HashSet};

use super::super::difference::Fact;
use super::super::excess::BEYOND;
use super::super::history::ANOTHER;
use super::super::ops::Kind;
use super::super::precision::Precision;
use super::super::range::is_float;
use super::super::transfer::{self, InputError, ONE_FLIP};
use super::super::value::{ExpectedError, Family, Remnant, ValueKind};
use super::super::views::extremes;
use super::{Made, Place, Walk, conserved, single};
use probe_dump::{Phase, Slot, SlotSide, shared};
use probe_measure::SENTINEL;

/// Least fraction of a gradient's elements that a function that chooses, as `relu` does, sets to zero.
const GATED: f64 = 0.2;

/// Ops of one side alone that are followed from a value to what they read.
const LONGEST: usize = 32;

impl Walk<'_, '_> {
    /// Weighs the inputs of an op that no recorded op made, each where it is first read.
    pub(super) fn arrivals(&mut self, position: usize, given: &[Place]) {
        for &place in given {
            let fact = self.flow.fact(place);
            let made = fact.identity.and_then(|identity| self.made.get(&identity));
            let known = made.is_some_and(|made| !self.is_another(fact, made));
            // A parameter gradient's inputs belong to other ops; skip them.
            if place.0 != position || known || !fact.is_tensor {
                continue;
            }
            // Already judged on an earlier arrival.
            if fact.identity.is_some_and(|identity| !self.arrived.insert(identity)) {
                continue;
            }
            self.out.arrivals.push(place);
            if fact.swamped && !fact.exact {
                self.hide_arrival(place);
            }
            if fact.is_float && !fact.unwritten && !fact.difference.hides_numbers() {
                let arrival = self.arrival(place);
                self.out.values.extend(arrival);
            }
        }
    }

    /// Returns true if a value is plainly another one than that which was made with its statistics: what was not recorded, or
    /// one side alone, has put its elements into another order.
    fn is_another(&self, fact: &Fact, made: &Made) -> bool {
        let error = self.flow.fact((made.by.place(), made.slot.place())).relative();
        fact.is_float && !fact.statistics_only && fact.relative() > ANOTHER.max(BEYOND * error)
    }

    /// Gives a value whose sentinels swamp its norm the error that it may have by what came before it.
    fn hide_arrival(&mut self, place: Place) {
        let relative = self.explained_on_arrival(place);
        let (fact, (min, max)) = (self.flow.fact(place), self.flow.extremes(place).unwrap_or_default());
        let size = [min.abs(), max.abs()].into_iter().filter(|&size| size <= SENTINEL).fold(0.0, f64::max);
        let error = InputError { relative, absolute: relative * size * fact.len.sqrt() };
        self.hidden.extend(fact.identity.map(|identity| (identity, error)));
    }

    /// Weighs one arrival; `None` for an exact type.
    fn arrival(&mut self, place: Place) -> Option<ExpectedError> {
        let fact = self.flow.fact(place);
        let dtype = fact.dtype?;
        let precision = self.precision_on_arrival(place, Precision::of(dtype)?);
        let is_parameter = self.is_parameter(place);
        let phase = self.flow.nodes[place.0].op.name.phase();
        // What was not conserved shows on its own side, whatever arrives with it.
        let changed = conserved::changed(self.flow, place);
        let family = Family {
            role: ValueKind::Arrival,
            name: self.names.text(if is_parameter { "parameter" } else { "value" }),
            is_module: false,
            phase,
            slot: self.names.text(if changed.is_some() { "conserved" } else { "" }),
            dtype,
        };
        // Unrecorded functions computed it, possibly with products: from weights; or, between modules, from anything.
        let by_functions = self.flow.wants_gradient(place) || (self.flow.modules_alone && !is_parameter);
        let computed =
            phase == Phase::Forward && by_functions && !self.flow.is_weight(place) && changed.is_none();
        let hidden = if fact.statistics_only { self.path(place).max(self.at_extremes) } else { 0.0 };
        let mut explained = self.explained_on_arrival(place).max(hidden);
        if fact.relative() > explained {
            explained = explained.max(self.in_another_view(place).unwrap_or(0.0));
        }
        if changed.is_some() {
            explained = 0.0;
        }
        let scale = self.scale_on_arrival(place.0, fact);
        // Each device may have prepared data by unrecorded functions.
        let least = changed.map_or_else(
            || single(fact, precision).hypot(precision.least * if precision.unit < 1e-6 { 4.0 } else { 1.0 }),
            |changed| changed.least,
        );
        // A baseline of zeros has no relative error.
        let error = (fact.distance.max(fact.likely * fact.norm) / scale).min(1.0);
        Some(ExpectedError {
            place,
            family: shared(&mut self.families, family),
            kind: if computed { Kind::Product } else { Kind::Other },
            precision,
            error: changed.map_or(error, |changed| error.max(changed.error)),
            explained,
            least,
            unknown: changed.map_or(precision.unknown, |changed| changed.least),
            call: place.0,
            clean: explained <= 0.0,
            statistics_only: fact.statistics_only && changed.is_none(),
            elements: fact.len,
            terms: 1.0,
            share: 1.0,
            gain: None,
            is_directed: computed && fact.is_directed(),
            remnant: self.remnant(place, scale, least).map(Box::new),
            extremes: 0.0,
        })
    }

    /// Returns the coarsest precision in which an arrival may have been computed.
    fn precision_on_arrival(&self, place: Place, own: &'static Precision) -> &'static Precision {
        let run = self.setting.coarsest.filter(|_| self.setting.mixed.is_some());
        // Unrecorded functions may have computed it under autocast, from what is off; statistics of coarse types hide that.
        let is_parameter = self.is_parameter(place);
        let may_be_off = self.worst > 0.0 || (self.multiplied && self.flow.fact(place).statistics_only);
        let unrecorded = self.setting.autocast.filter(|_| !is_parameter && may_be_off);
        run.into_iter().chain(unrecorded).fold(own, Precision::coarser)
    }

    /// Returns true for a parameter of a module, also where a function inside of the module reads it first: nothing in the step has made it.
    fn is_parameter(&self, place: Place) -> bool {
        let is_listed = |place: Place| self.flow.side(place) == SlotSide::Parameter;
        let (b, c) = self.flow.pair.slot_at(place.0, place.1);
        // Zeros and ones are equal to some parameter's on one side by chance.
        let of_module = |side: usize, slot: &Slot| self.flow.values.readers(side, slot).any(is_listed);
        is_listed(place) || b.zip(c).is_some_and(|(b, c)| of_module(0, b) && of_module(1, c))
    }

    /// Returns the error that an arrival may have by what came before it: unrecorded functions may have made it
    /// from that.
    fn explained_on_arrival(&self, place: Place) -> f64 {
        if self.is_parameter(place) {
            return 0.0;
        }
        let fact = self.flow.fact(place);
        let is_backward = self.flow.nodes[place.0].is_backward();
        if self.may_select_others(place) {
            1.0
        } else if !is_backward && self.was_rounded(place) {
            self.worst.max(fact.relative())
        } else if self.flow.modules_alone
            && is_backward
            && transfer::flips(fact.len, self.worst) > ONE_FLIP
            && self.is_one_element(place)
        {
            // A loss between modules may choose, as that of a quantile does.
            self.worst.max(fact.relative())
        } else if is_backward && (self.gates || self.is_gated(place)) {
            // It may have passed a function that chooses.
            self.worst.max(transfer::flipped_gates(fact.len, self.worst))
        } else {
            self.led_to_rewritten(place).map_or(self.worst, |led| led.min(self.worst))
        }
    }

    /// Returns the largest error of what was read by the ops that one side alone has and that made a value of the forward pass, on
    /// either side. `None` if both sides have an op that made it, or if the error of something they read is not known.
    fn led_to_rewritten(&self, place: Place) -> Option<f64> {
        let flow = self.flow;
        if flow.modules_alone || flow.nodes[place.0].is_backward() {
            return None;
        }
        flow.unpaired_makers(place).next()?;
        let (b, c) = flow.pair.slot_at(place.0, place.1);
        let mut most: f64 = 0.0;
        for (side, made) in [b?, c?].into_iter().enumerate() {
            let makers = |slot| flow.values.makers(side, slot).filter(|maker| maker.0 < place.0);
            let is_paired = |place: &Place| flow.nodes[place.0].is_paired;
            if makers(made).any(|maker| is_paired(&maker)) {
                return None;
            }
            // What nobody recorded on this side was made of the same as on the other.
            let mut read: Vec<&Slot> = makers(made).next().map(|_| made).into_iter().collect();
            let mut seen = HashSet::new();
            while let Some(slot) = read.pop() {
                if let Some(maker) = makers(slot).find(|maker| !is_paired(maker)) {
                    let (b, c) = flow.pair.op(&flow.pair.ops[maker.0]);
                    let given = [b, c][side]?.slots.iter().filter(|slot| !slot.side.is_result());
                    if seen.insert(maker.0) {
                        read.extend(given.filter(|slot| is_float(slot)));
                    }
                } else {
                    // What no op made shows its error where both sides read it.
                    let known = makers(slot).chain(flow.values.readers(side, slot)).find(is_paired)?;
                    most = most.max(self.error(known).relative);
                }
                if seen.len() > LONGEST {
                    return None;
                }
            }
        }
        Some(most)
    }

    /// Returns true if a value may hold other rows of what a surrounding module was given, since noise has flipped a choice.
    pub(super) fn may_select_others(&self, place: Place) -> bool {
        let coarse = self.setting.coarsest.map_or(0.0, |coarse| coarse.unknown);
        transfer::may_select_others(self.flow, place, self.worst.max(coarse))
    }

    /// Returns the error of a result before this value that has its elements: the property `mT` of a tensor makes a view
    /// that nobody records. Elements in another order on one side alone are off by more than where they were made.
    fn in_another_view(&self, place: Place) -> Option<f64> {
        let flow = self.flow;
        let errors = || {
            let results = flow.nodes.iter().enumerate().filter(|(_, node)| node.is_paired);
            let places = results.flat_map(|(op, node)| node.results().map(move |slot| (op, slot)));
            let floats = places.filter(|&place| flow.fact(place).is_float);
            // The first that made it.
            let mut found = HashMap::new();
            floats.for_each(|place| {
                if let Some(extremes) = extremes(flow, place) {
                    found.entry(extremes).or_insert((place.0, flow.fact(place).relative()));
                }
            });
            found
        };
        let &(op, error) = self.views.get_or_init(errors).get(&extremes(flow, place)?)?;
        (op < place.0).then_some(error)
    }

    /// Returns true if an unrecorded function let some elements of an arriving gradient through, and not others.
    fn is_gated(&self, place: Place) -> bool {
        let share = self.flow.zero_shares(place)[0].unwrap_or(0.0);
        self.flow.modules_alone && (GATED..=1.0 - GATED).contains(&share)
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
        let is_longer = |given: &&Fact| given.is_float && given.len > fact.len;
        let whole = || node.given().map(|slot| self.flow.fact((position, slot))).filter(is_longer).last();
        let whole = if node.traits.kind == Kind::Normalisation { whole() } else { None };
        let size = whole.map_or(0.0, |given| given.norm * (fact.len / given.len).sqrt());
        fact.norm.max(beside).max(size).max(self.added_up(position, fact)).max(f64::MIN_POSITIVE)
    }

    /// Returns the largest norm of the gradients that autograd adds up to the one that arrives at an op: those that the
    /// readers of its result pass on, which may cancel.
    fn added_up(&self, position: usize, fact: &Fact) -> f64 {
        let flow = self.flow;
        if !flow.nodes[position].makes_gradients() {
            return 0.0;
        }
        let made = flow.saved(position).into_iter().filter(|&place| flow.side(place).is_result());
        let read = made.filter_map(|place| self.readers.get(&flow.fact(place).identity?)).flatten();
        let passed_on = read
            .filter_map(|&reader| flow.backward_of(reader))
            .flat_map(|backward| flow.nodes[backward].results().map(move |slot| flow.fact((backward, slot))));
        let alike = passed_on.filter(|passed| passed.is_float && passed.len.to_bits() == fact.len.to_bits());
        alike.map(|passed| passed.norm).fold(0.0, f64::max)
    }
}
