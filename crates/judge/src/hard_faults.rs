//! Faults that need no error model: a different argument, dtype or shape, a NaN that originates here, integers
//! or checksums that differ without a cause, a broken user bound, results outside the function's range for its
//! inputs, and errors with a pattern that rounding does not have.

use std::collections::HashSet;

use super::Cause;
use super::candidate::Candidate;
use super::difference::{Difference, Fact};
use super::expected::ExpectedErrors;
use super::family::SHARE;
use super::flow::{Flow, Node, Place};
use super::noise::OfPart;
use super::ops::Kind;
use super::pattern;
use super::precision::Precision;
use super::range;
use super::setting::Setting;
use super::{choices, one_sided, transfer, wiring};
use probe_dump::{Number, OpKind, Phase, Scalar, Slot, Value};
use probe_measure::Evidence;

/// Search for certain faults, op by op.
pub(super) struct HardFaults<'f, 'a> {
    flow: &'f Flow<'a>,
    expected: &'f ExpectedErrors,
    setting: &'f Setting,
    noise: OfPart<'f>,
    /// An integer value already differs and no op is named for it: routing and sizes follow from it.
    flipped: bool,
    /// How many elements are taken may follow from it too: something was made of flipped choices that can be counted.
    /// The places of the largest elements alone are as many on both sides.
    counted: bool,
    /// An op has made indices whose order may legitimately differ (for example when it sorts equal elements).
    /// Statistics would not show that, neither for the indices nor for what they select.
    reordered: bool,
    /// Largest error of any value so far.
    error: f64,
    /// Rounding of the coarsest type in use.
    coarse: f64,
    /// Module paths of each side.
    modules: [HashSet<&'a str>; 2],
    found: Vec<Candidate>,
}

impl<'f, 'a> HardFaults<'f, 'a> {
    pub(super) fn of(
        flow: &'f Flow<'a>,
        expected: &'f ExpectedErrors,
        setting: &'f Setting,
        noise: OfPart<'f>,
    ) -> Vec<Candidate> {
        let coarse = setting.coarsest.map_or(0.0, |coarse| coarse.unknown);
        let mut hard_faults = Self {
            flow,
            expected,
            setting,
            noise,
            flipped: false,
            counted: false,
            reordered: false,
            error: 0.0,
            coarse,
            modules: [&flow.pair.baseline, &flow.pair.candidate]
                .map(|side| side.ops.iter().filter_map(|op| op.name.module_path()).collect()),
            found: Vec::new(),
        };
        for (position, node) in flow.nodes.iter().enumerate() {
            hard_faults.reordered |= choices::may_reorder(flow, position);
            if node.is_paired {
                hard_faults.op(position);
            }
        }
        hard_faults.found
    }

    fn op(&mut self, position: usize) {
        self.arrivals(position);
        let node = &self.flow.nodes[position];
        let mut arrived = self.arrived(position).iter();
        let wired = arrived.find_map(|&place| wiring::fault(self.flow, self.setting, place));
        let gradients = &self.expected.gradients;
        let changed = || wiring::changed_gradient(self.flow, self.setting, gradients, position);
        let lost = || wiring::lost_update(self.flow, position);
        self.found.extend(wired.or_else(changed).or_else(lost));
        let mut led: Vec<Place> = self.flow.given(position);
        led.extend(self.flow.saved(position));
        if let Some(slot) = self.argument(position, &led) {
            let shown =
                node.results().find(|&slot| self.flow.fact((position, slot)).differs()).unwrap_or(slot);
            self.found.push(Candidate::at(position, Some(shown), Cause::Argument));
        }
        // Differences between elements may be much smaller than the elements.
        let beside = |&place: &Place| {
            let fact = self.flow.fact(place);
            match fact.relative() {
                // Sentinels leave nothing of it in the norm.
                error if error > 0.0 && fact.swamped => {
                    self.expected.input_errors[position].get().unwrap_or(0.0)
                }
                error if error > 0.0 => error * transfer::spread_out(self.flow, place),
                _ => 0.0,
            }
        };
        let given_error = led.iter().map(beside).fold(0.0, f64::max);
        for slot in node.results() {
            let place = (position, slot);
            let fact = self.flow.fact(place);
            if let Some(cause) = self.fault(place, &led, given_error) {
                self.found.push(Candidate::at(position, Some(slot), cause));
            } else if let Some(said) = self.pattern(place, &led).or_else(|| range::beyond(self.flow, place)) {
                let candidate = Candidate::at(position, Some(slot), numeric(node));
                self.found.push(Candidate { said, ..candidate });
            } else if fact.difference == Difference::Elements {
                self.flipped = true;
                self.counted |= !choices::orders(node);
            } else if fact.difference == Difference::Shape {
                self.counted = true;
            }
            if fact.is_float {
                self.error = self.error.max(fact.relative());
            }
        }
    }

    /// Returns the inputs of an op that no recorded op made, where it is the first to read them.
    fn arrived(&self, position: usize) -> &'f [Place] {
        // In execution order.
        let all = &self.expected.arrivals;
        let first = all.partition_point(|place| place.0 < position);
        let count = all[first..].partition_point(|place| place.0 == position);
        &all[first..first + count]
    }

    /// Finds inputs that differ on arrival and that no recorded op made.
    fn arrivals(&mut self, position: usize) {
        let node = &self.flow.nodes[position];
        for &place in self.arrived(position) {
            let fact = self.flow.fact(place);
            let differs = !fact.difference.is_open()
                && !matches!(fact.difference, Difference::Argument | Difference::ComputedArgument);
            // A value that only one side has is reported with the op that made it.
            let is_told = fact.difference == Difference::Missing
                && one_sided::tensor(self.flow, place, &self.flow.given(position));
            let is_own = || !self.is_of_another_module(place);
            if differs && !fact.allowed && !is_told && is_own() && !self.follows_earlier(place) {
                let backward = node.is_backward();
                let cause = match fact.difference {
                    Difference::NonFinite if backward => Cause::NonFinite,
                    Difference::RequiresGrad => Cause::Argument,
                    _ if backward => Cause::Gradient,
                    _ => Cause::Input,
                };
                let mut candidate = Candidate::at(position, Some(place.1), cause);
                candidate.arrived = cause != Cause::Argument;
                self.found.push(candidate);
            }
        }
    }

    /// Returns true if only one side's optimizer has a parameter because only that side has the module: the
    /// other side fuses the weights.
    fn is_of_another_module(&self, place: Place) -> bool {
        if !self.flow.nodes[place.0].traits.optimizes
            || self.flow.fact(place).difference != Difference::Missing
        {
            return false;
        }
        let [b, c] = &self.modules;
        let (path, has, lacks) = match self.flow.pair.slot_at(place.0, place.1) {
            (Some(slot), None) => (&slot.path, b, c),
            (None, Some(slot)) => (&slot.path, c, b),
            _ => return false,
        };
        // The kind of value precedes the parameter name.
        let mut owners =
            path.match_indices('.').filter_map(|(at, _)| Some(path[at + 1..].rsplit_once('.')?.0));
        owners.any(|owner| has.contains(owner) && !lacks.contains(owner))
    }

    /// Returns true if an earlier difference may have caused a difference on arrival, through unrecorded ops.
    fn follows_earlier(&mut self, place: Place) -> bool {
        let fact = self.flow.fact(place);
        if fact.difference == Difference::Shape {
            if transfer::may_select_others(self.flow, place, self.error.max(self.coarse)) {
                (self.flipped, self.counted) = (true, true);
            }
            if self.flipped {
                return true;
            }
        }
        let flips = self.flipped || !choices::is_beyond_noise(fact, self.error);
        match fact.difference {
            Difference::Elements => flips,
            Difference::DType if !self.setting.lists.is_empty() => true,
            Difference::NonFinite | Difference::Shape | Difference::DType | Difference::Missing => {
                self.found.iter().any(|candidate| {
                    matches!(
                        candidate.cause,
                        Cause::NonFinite | Cause::Structure | Cause::DType | Cause::Input | Cause::Gradient
                    )
                })
            }
            Difference::Checksum | Difference::Limit => !self.found.is_empty() || self.error > 0.0,
            _ => false,
        }
    }

    /// Returns the first argument that someone chose differently. A computed argument counts as chosen if
    /// nothing before it could have made it differ.
    fn argument(&self, position: usize, led: &[Place]) -> Option<usize> {
        let node = &self.flow.nodes[position];
        let picks = led.iter().any(|&place| self.flow.fact(place).difference == Difference::Elements);
        node.given().find(|&slot| match self.flow.fact((position, slot)).difference {
            // Sizes and counts may follow from choices that noise flipped; typed values do not.
            Difference::Argument => {
                let follows = if choices::orders(node) { self.counted } else { self.flipped };
                (!picks && !follows) || self.is_typed((position, slot)) || self.is_set(position)
            }
            Difference::ComputedArgument => {
                let error = self.flow.fact((position, slot)).judgement.error.get().unwrap_or(1.0);
                !picks && !self.flipped && error > 8.0 * self.error
            }
            Difference::Missing => {
                let place = (position, slot);
                one_sided::argument(self.flow, place) || one_sided::tensor(self.flow, place, led)
            }
            _ => false,
        })
    }

    /// Returns true for an argument that cannot be an element count.
    fn is_typed(&self, place: Place) -> bool {
        let value = self.flow.slot(place).map(|slot| &slot.value);
        matches!(
            value,
            Some(Value::Scalar(Scalar::Number(Number::Float(_) | Number::Bool(_)) | Scalar::Text(_)))
        )
    }

    /// Returns true for an op whose whole numbers follow from no choice where its tensors have the same sizes on both
    /// sides: strides, groups, dimensions. Those that pick elements, or divide by a count, may take theirs from data.
    fn is_set(&self, position: usize) -> bool {
        let node = &self.flow.nodes[position];
        let computes = matches!(
            node.traits.kind,
            Kind::Product
                | Kind::Recurrent
                | Kind::Attention
                | Kind::Normalisation
                | Kind::Sum
                | Kind::Mean
                | Kind::Exponential
                | Kind::LogSoftmax
        );
        computes && node.given().all(|slot| self.flow.fact((position, slot)).difference != Difference::Shape)
    }

    /// Returns true for whole numbers that an op makes of none, as `arange` does: of integers on one side, and of the same
    /// numbers as floats on the other. What is computed with them is in the type of the rest.
    fn counts_in_another_type(&self, place: Place) -> bool {
        let (b, c) = self.flow.pair.slot_at(place.0, place.1);
        let is_integer = |slot: Option<&Slot>| Some(slot?.value.tensor()?.dtype.known()?.is_integer());
        let one_counts = is_integer(b).zip(is_integer(c)).is_some_and(|(b, c)| b != c);
        let mut given = self.flow.nodes[place.0].given();
        let reads = given.any(|slot| self.flow.fact((place.0, slot)).is_tensor);
        one_counts && !reads && self.flow.fact(place).judgement.error.get() == Some(0.0)
    }

    /// Returns true for the backward pass of a function of several nodes of autograd, of which a hook sees the last, where
    /// both sides show another one: a gradient has the shape of its value. (`linear` adds its bias in the product, or
    /// behind it where the input is not contiguous.)
    fn is_of_another_node(&self, position: usize) -> bool {
        let node = &self.flow.nodes[position];
        let is_function = node.is_backward() && node.op.name.kind() == OpKind::Api && !node.is_dispatcher();
        is_function
            && node.results().any(|slot| self.flow.fact((position, slot)).difference == Difference::Shape)
    }

    /// Returns the cause of a certain fault in a result that nothing led to.
    fn fault(&self, place: Place, led: &[Place], error: f64) -> Option<Cause> {
        let node = &self.flow.nodes[place.0];
        let fact = self.flow.fact(place);
        if fact.allowed {
            return None;
        }
        let before =
            |difference: Difference| led.iter().any(|&place| self.flow.fact(place).difference == difference);
        let hides_numbers = || led.iter().any(|&place| self.flow.fact(place).difference.hides_numbers());
        // Evaluated only when the difference has no other cause: it scans all earlier ops.
        let inner = || {
            node.is_module()
                && self.flow.within(place.0).any(|inner| self.flow.fact(inner).difference == fact.difference)
        };
        match fact.difference {
            Difference::NonFinite => {
                // If none of its inputs was recorded (a gradient seen by hooks), attribute it to the earlier
                // NaN.
                let statistics_only = !led.iter().any(|&place| self.flow.fact(place).is_tensor);
                let follows =
                    statistics_only && self.found.iter().any(|found| found.cause == Cause::NonFinite);
                (!before(Difference::NonFinite) && !inner() && !follows).then_some(Cause::NonFinite)
            }
            Difference::DType => {
                let by_list = self.setting.lists.contains_key(node.base);
                let counts = || self.counts_in_another_type(place);
                (!before(Difference::DType) && !by_list && !inner() && !counts()).then_some(Cause::DType)
            }
            Difference::Shape | Difference::Missing if self.is_of_another_node(place.0) => None,
            Difference::Shape | Difference::Missing => {
                let led = before(Difference::Shape) || before(Difference::Missing) || inner() || self.flipped;
                (!led).then_some(Cause::Structure)
            }
            Difference::RequiresGrad => {
                (!before(Difference::RequiresGrad) && !inner()).then_some(Cause::Argument)
            }
            Difference::Elements => {
                // Statistics show neither how much elements differ, nor a different order of masks and indices.
                let hides = |fact: &Fact| {
                    fact.statistics_only
                        && fact.is_tensor
                        && (fact.differs() || (!fact.is_float && self.error > 0.0))
                };
                let unseen = led.iter().any(|&place| hides(self.flow.fact(place)));
                let led = before(Difference::Elements) || hides_numbers() || inner() || unseen;
                let led = led || choices::is_order_of_equals(self.flow, place);
                let error = error * choices::nearer(node, self.flow.shape(place));
                (!led && choices::is_beyond_noise(fact, error)).then(|| numeric(node))
            }
            Difference::Checksum => {
                let led = led.iter().any(|&place| self.flow.fact(place).differs());
                (!led && !inner()).then(|| numeric(node))
            }
            Difference::Limit => {
                let differs = led.iter().any(|&place| self.flow.fact(place).differs());
                let led = differs && (fact.relative() <= 0.0 || error >= SHARE * fact.relative());
                (!led && !inner()).then(|| numeric(node))
            }
            _ => None,
        }
    }

    /// Describes an error on equal inputs whose pattern rounding does not have.
    fn pattern(&self, place: Place, led: &[Place]) -> Option<String> {
        let node = &self.flow.nodes[place.0];
        let fact = self.flow.fact(place);
        // Unrecorded work inside a module may have begun with a different order.
        let is_seen = !fact.statistics_only || (fact.rearranged && !self.reordered && !node.is_module());
        let open = fact.difference == Difference::Numbers && !fact.allowed && is_seen;
        let mut tensors =
            led.iter().map(|&place| self.flow.fact(place)).filter(|fact| fact.is_tensor).peekable();
        let open = open && !self.noise.covers(self.flow, place, fact.relative()) && !fact.is_granted();
        // Unrecorded work inside a module may have any precision, and its weights may have changed.
        let composite = node.is_composite();
        let moves = || {
            let mut inside = self.flow.within(place.0);
            composite && (self.flow.pair.step > 0 || inside.any(|place| !self.flow.fact(place).exact))
        };
        if !open
            || node.traits.chooses
            || node.traits.kind == Kind::Basis
            || tensors.peek().is_none()
            || self.flow.lacks_gradient(
                place.0,
                led.iter().copied().filter(|place| self.flow.nodes[place.0].is_backward()),
            )
            || !tensors.all(|fact| fact.exact)
            || moves()
        {
            return None;
        }
        let dtype = fact.dtype?;
        // A rounded factor scales all elements of a product of few terms alike.
        let multiplies =
            composite || matches!(node.traits.kind, Kind::Product | Kind::Recurrent | Kind::Attention);
        let least = Precision::of(dtype).filter(|_| multiplies).map_or(0.0, |precision| precision.product);
        // A normalisation divides each row by a number of its own.
        let row = self.flow.shape(place).last().map_or(1.0, |&size| size as f64);
        let directions = if node.traits.kind == Kind::Normalisation { fact.len / row } else { fact.len };
        let directions = directions.min(pattern::large_directions(fact.norm, self.flow.extremes(place)));
        match self.flow.evidence.at(place.0, place.1) {
            // The reason of the value already says it.
            Evidence::Recorded(_) if fact.statistics_only => {
                pattern::is_misplaced(fact, dtype, node.traits.kind).then(String::new)
            }
            Evidence::Data(kept) => pattern::of_elements(&kept.metrics(), dtype, least, directions),
            Evidence::Recorded(recorded) => {
                let sketch = recorded.sketch.as_deref().filter(|sketch| sketch.is_resolved())?;
                pattern::of_sketch(fact, sketch, dtype, least, directions)
            }
            Evidence::Unreadable(_) | Evidence::Nothing => None,
        }
    }
}

/// Returns the cause that a numeric difference at this op implies.
pub(super) fn numeric(node: &Node<'_>) -> Cause {
    let saved_gradient = node.op.name.kind() == OpKind::Saved && node.op.name.stem().ends_with("_grad");
    match node.op.name.phase() {
        // A checkpoint's tensors are weights: nothing computed them here.
        _ if node.op.name.kind() == OpKind::Tensor => Cause::Input,
        _ if node.traits.optimizes => Cause::Optimizer,
        Phase::Backward | Phase::ParameterGradient => Cause::Gradient,
        _ if saved_gradient => Cause::Gradient,
        Phase::Forward | Phase::None => Cause::Numerics,
    }
}
