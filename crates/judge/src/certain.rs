//! What needs no measure: another argument, element type or shape, a NaN that is born, integers or checksums that differ
//! although nothing led to it, a bound of the user's that is broken, results that the function cannot make of its inputs, and errors with a pattern
//! that rounding does not have.

use std::collections::HashSet;

use super::Cause;
use super::candidate::Candidate;
use super::difference::{Difference, Fact};
use super::flow::{Flow, Node, Place};
use super::noise::OfPart;
use super::ops::Kind;
use super::pattern;
use super::precision::Precision;
use super::range;
use super::setting::Setting;
use super::transfer;
use super::weigh::Weighing;
use probe_dump::{DType, Number, OpKind, Phase, Scalar, Value};
use probe_measure::Evidence;

/// Probability below which noise has not flipped as many choices as were: one in ten thousand, for a run makes many.
const UNLIKELY: f64 = 1e-4;

/// Elements that one flipped choice changes at least: the two that trade places.
const TRADED: f64 = 2.0;

/// Share of elements near a choice, in units of the error.
const NEAR: f64 = 4.0;

/// What is found at one op.
pub(super) struct Certain<'f, 'a> {
    flow: &'f Flow<'a>,
    weighing: &'f Weighing,
    noise: OfPart<'f>,
    /// Something integer differs already, which no op is named for: routing and sizes follow from it.
    flipped: bool,
    /// An op has made indices in an order that may be another one elsewhere (of what it sorts, where elements are equal), and statistics
    /// would not show it: nor would they of what is taken by these indices.
    reordered: bool,
    /// Largest error of any value so far.
    error: f64,
    /// What the coarsest type in use rounds by.
    coarse: f64,
    /// Paths of the modules that each side has.
    modules: [HashSet<&'a str>; 2],
    found: Vec<Candidate>,
}

impl<'f, 'a> Certain<'f, 'a> {
    pub(super) fn of(
        flow: &'f Flow<'a>,
        weighing: &'f Weighing,
        setting: &Setting,
        noise: OfPart<'f>,
    ) -> Vec<Candidate> {
        let coarse = setting.coarsest.map_or(0.0, |coarse| coarse.unknown);
        let mut certain = Self {
            flow,
            weighing,
            noise,
            flipped: false,
            reordered: false,
            error: 0.0,
            coarse,
            modules: [&flow.pair.baseline, &flow.pair.candidate]
                .map(|side| side.ops.iter().filter_map(|op| op.name.module_path()).collect()),
            found: Vec::new(),
        };
        for (position, node) in flow.nodes.iter().enumerate() {
            certain.reordered |= may_reorder(flow, position);
            if node.is_paired {
                certain.op(position);
            }
        }
        certain.found
    }

    fn op(&mut self, position: usize) {
        self.arrivals(position);
        let node = &self.flow.nodes[position];
        let mut led: Vec<Place> = self.flow.given(position);
        led.extend(self.flow.saved(position));
        if let Some(slot) = self.argument(position, &led) {
            let shown =
                node.results().find(|&slot| self.flow.fact((position, slot)).differs()).unwrap_or(slot);
            self.found.push(Candidate::at(position, Some(shown), Cause::Argument));
        }
        // What tells elements apart may be much smaller than they are.
        let beside = |&place: &Place| {
            let error = self.flow.fact(place).relative();
            if error > 0.0 { error * transfer::spread_out(self.flow, place) } else { 0.0 }
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
            }
            if fact.is_float {
                self.error = self.error.max(fact.relative());
            }
        }
    }

    /// What arrives otherwise, and was not made by a recorded op.
    fn arrivals(&mut self, position: usize) {
        let node = &self.flow.nodes[position];
        // In execution order.
        let all = &self.weighing.arrivals;
        let first = all.partition_point(|place| place.0 < position);
        for &place in all[first..].iter().take_while(|place| place.0 == position) {
            let fact = self.flow.fact(place);
            let differs = !fact.difference.is_open()
                && !matches!(fact.difference, Difference::Argument | Difference::ComputedArgument);
            // What one side alone has is told with the op that made it.
            if differs && !fact.allowed && !self.is_of_another_module(place) && !self.follows_earlier(place) {
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

    /// Whether an optimizer has a parameter on one side alone because that side alone has the module: weights that the other side keeps as one.
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
        // What the value is of the parameter comes before its name.
        let mut owners =
            path.match_indices('.').filter_map(|(at, _)| Some(path[at + 1..].rsplit_once('.')?.0));
        owners.any(|owner| has.contains(owner) && !lacks.contains(owner))
    }

    /// A difference on arrival that an earlier one may have led to, through what was not recorded.
    fn follows_earlier(&mut self, place: Place) -> bool {
        let fact = self.flow.fact(place);
        if fact.difference == Difference::Shape {
            self.flipped |= transfer::may_select_others(self.flow, place, self.error.max(self.coarse));
            if self.flipped {
                return true;
            }
        }
        let flips = self.flipped || !is_beyond_noise(fact, self.error);
        match fact.difference {
            Difference::Elements => flips,
            Difference::NonFinite | Difference::Shape | Difference::DType | Difference::Missing => {
                self.found.iter().any(|candidate| {
                    matches!(
                        candidate.cause,
                        Cause::NonFinite | Cause::Structure | Cause::DType | Cause::Input | Cause::Gradient
                    )
                })
            }
            Difference::Checksum | Difference::Bound => !self.found.is_empty() || self.error > 0.0,
            _ => false,
        }
    }

    /// The first argument that someone chose differently. A computed one counts as chosen where nothing before could have
    /// made it differ.
    fn argument(&self, position: usize, led: &[Place]) -> Option<usize> {
        let node = &self.flow.nodes[position];
        let picks = led.iter().any(|&place| self.flow.fact(place).difference == Difference::Elements);
        node.given().find(|&slot| match self.flow.fact((position, slot)).difference {
            // Sizes and counts may follow from choices that noise has flipped; what someone typed does not.
            Difference::Argument => (!picks && !self.flipped) || self.is_typed((position, slot)),
            Difference::ComputedArgument => {
                let error = self.flow.fact((position, slot)).judgement.error.get().unwrap_or(1.0);
                !picks && !self.flipped && error > 8.0 * self.error
            }
            _ => false,
        })
    }

    /// An argument that is no number of elements.
    fn is_typed(&self, place: Place) -> bool {
        let value = self.flow.slot(place).map(|slot| &slot.value);
        matches!(
            value,
            Some(Value::Scalar(Scalar::Number(Number::Float(_) | Number::Bool(_)) | Scalar::Text(_)))
        )
    }

    /// What a result shows for certain that nothing led to.
    fn fault(&self, place: Place, led: &[Place], error: f64) -> Option<Cause> {
        let node = &self.flow.nodes[place.0];
        let fact = self.flow.fact(place);
        if fact.allowed {
            return None;
        }
        let before =
            |difference: Difference| led.iter().any(|&place| self.flow.fact(place).difference == difference);
        let hidden = led.iter().any(|&place| self.flow.fact(place).difference.hides_numbers());
        // Asked where something differs alone: it looks through all ops before.
        let inner = || {
            node.is_module()
                && self.flow.within(place.0).any(|inner| self.flow.fact(inner).difference == fact.difference)
        };
        match fact.difference {
            Difference::NonFinite => {
                // Where nothing was recorded of what led to it (a gradient that hooks saw), the one before did.
                let blind = !led.iter().any(|&place| self.flow.fact(place).is_tensor);
                let follows = blind && self.found.iter().any(|found| found.cause == Cause::NonFinite);
                (!before(Difference::NonFinite) && !inner() && !follows).then_some(Cause::NonFinite)
            }
            Difference::DType => (!before(Difference::DType) && !inner()).then_some(Cause::DType),
            Difference::Shape | Difference::Missing => {
                let led = before(Difference::Shape) || before(Difference::Missing) || inner() || self.flipped;
                (!led).then_some(Cause::Structure)
            }
            Difference::RequiresGrad => {
                (!before(Difference::RequiresGrad) && !inner()).then_some(Cause::Argument)
            }
            Difference::Elements => {
                // By how much, statistics do not tell, and nothing of masks and indices in another order.
                let hides = |fact: &Fact| {
                    fact.blind && fact.is_tensor && (fact.differs() || (!fact.is_float && self.error > 0.0))
                };
                let unseen = led.iter().any(|&place| hides(self.flow.fact(place)));
                let led = before(Difference::Elements) || hidden || inner() || unseen;
                (!led && is_beyond_noise(fact, error)).then(|| numeric(node))
            }
            Difference::Checksum => {
                let led = led.iter().any(|&place| self.flow.fact(place).differs());
                (!led && !inner()).then(|| numeric(node))
            }
            Difference::Bound => (!before(Difference::Bound) && !inner()).then(|| numeric(node)),
            _ => None,
        }
    }

    /// An error on equal inputs whose pattern rounding does not have, in words.
    fn pattern(&self, place: Place, led: &[Place]) -> Option<String> {
        let node = &self.flow.nodes[place.0];
        let fact = self.flow.fact(place);
        // What a module does that no function inside shows may have begun with an order.
        let is_seen = !fact.blind || (fact.rearranged && !self.reordered && !node.is_module());
        let open = fact.difference == Difference::Numbers && !fact.allowed && is_seen;
        let mut tensors =
            led.iter().map(|&place| self.flow.fact(place)).filter(|fact| fact.is_tensor).peekable();
        let open = open && !self.noise.covers(self.flow, place, fact.relative());
        // What a module does between the parts that were recorded may have any precision, and its weights may have moved.
        let composite = node.is_composite();
        let moves = || {
            let mut inside = self.flow.within(place.0);
            composite && (self.flow.pair.step > 0 || inside.any(|place| !self.flow.fact(place).exact))
        };
        if !open
            || node.traits.chooses
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
        // A factor that the device rounds scales all elements of a product of few terms alike.
        let multiplies =
            composite || matches!(node.traits.kind, Kind::Product | Kind::Recurrent | Kind::Attention);
        let least = Precision::of(dtype).filter(|_| multiplies).map_or(0.0, |precision| precision.product);
        match self.flow.evidence.at(place.0, place.1) {
            // The reason of the value says it.
            Evidence::Recorded(_) if fact.blind => {
                pattern::is_misplaced(fact, dtype, node.traits.kind).then(String::new)
            }
            Evidence::Data(kept) => pattern::of_elements(&kept.metrics(), dtype, least),
            Evidence::Recorded(recorded) => {
                let sketch = recorded.sketch.as_deref().filter(|sketch| sketch.is_resolved())?;
                pattern::of_sketch(fact, sketch, dtype, least)
            }
            Evidence::Unreadable(_) | Evidence::Nothing => None,
        }
    }
}

/// Whether an op makes indices of which nothing says that their order is the same everywhere: it sorts, picks or draws, or is not known.
fn may_reorder(flow: &Flow<'_>, position: usize) -> bool {
    let node = &flow.nodes[position];
    let is_open = node.traits.chooses || matches!(node.traits.kind, Kind::Other | Kind::Random);
    let is_tensor = |slot: usize| flow.fact((position, slot)).is_tensor;
    let is_list = |slot: usize| {
        let fact = flow.fact((position, slot));
        fact.len > 1.0 && fact.dtype.is_some_and(DType::is_integer)
    };
    // A range is made of numbers alone. Of an op that one side alone has, nothing is known.
    let reads = node.traits.kind == Kind::Random || node.given().any(is_tensor);
    is_open && (!node.is_paired || (reads && node.results().any(is_list)))
}

/// Whether more choices differ than noise flips. Those that an error of `error` flips are independent and rare, so that their number
/// has Poisson's distribution, whose tail from `k` on is at most `exp(-m) (e m / k)^k` for a mean `m` below `k` (Chernoff).
fn is_beyond_noise(fact: &Fact, error: f64) -> bool {
    let expected = fact.len * error * NEAR;
    let found = (fact.flipped * fact.len / TRADED).max(1.0);
    if expected <= 0.0 {
        return true;
    }
    found > expected && found - expected + found * (expected / found).ln() < UNLIKELY.ln()
}

/// The kind of fault that numbers mean.
pub(super) fn numeric(node: &Node<'_>) -> Cause {
    let saved_gradient = node.op.name.kind() == OpKind::Saved && node.op.name.stem().ends_with("_grad");
    match node.op.name.phase() {
        // The tensors of a checkpoint are weights: nothing computed them here.
        _ if node.op.name.kind() == OpKind::Tensor => Cause::Input,
        _ if node.traits.optimizes => Cause::Optimizer,
        Phase::Backward | Phase::ParameterGradient => Cause::Gradient,
        _ if saved_gradient => Cause::Gradient,
        Phase::Forward | Phase::None => Cause::Numerics,
    }
}
