//! The part of a result's error that the errors of its inputs explain.
//!
//! All relative to the scale of the result ([`scale`](super::scale)). The rules are first-order and assume
//! errors that are uncorrelated with the values; effects that they do not model (a gain shared by all calls of
//! a kind) show in the family.

mod to_gradient;
mod to_result;

use super::difference::Fact;
use super::flow::{Flow, Node, Place};
use super::ops::Kind;
use probe_dump::{Number, Phase, Scalar, SlotSide, Value};
use probe_measure::Evidence;

/// Slope of element-wise functions: GELU and `SiLU` reach 1.13 and 1.1.
const SLOPE: f64 = 1.2;

/// Factor of the error of a square root: the root of the relative error times this. Elements near 0 contribute
/// more than their share.
const ROOT: f64 = 0.2;

/// For elements of size 1, a fraction of about four times the error is so near a threshold that rounding may
/// carry it over.
const NEAR: f64 = 4.0;

/// Multiple of its share of an error from which on a lane of a sketch holds the error of few elements.
const LOADED: f64 = 3.0;

/// Expected number of flips from which on choices count as flipped.
const FLIPS: f64 = 0.3;

/// Expected flips from which on one may have happened: one in a thousand, because a run has many choices.
pub(super) const ONE_FLIP: f64 = 1e-3;

/// Choices that may have flipped besides the expected number: if that is small, more do once in 50,000 times
/// (0.02 of them expected, three found).
pub(super) const FEW: f64 = 2.0;

/// Elements above the root mean square contribute more to a power's error than to the norm.
const PEAKED: f64 = 2.0;

/// A probability changes by at most itself times the changes of its logit and of the mean of all logits; another factor 2
/// for gradients that are negative, at the label.
const BOTH_SIDES: f64 = 4.0;

/// Largest factor by which a divisor that crosses zero magnifies error.
const MIXED_DIVISOR: f64 = 4.0;

/// Error of one input: relative to its norm, and absolute.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InputError {
    pub(super) relative: f64,
    pub(super) absolute: f64,
}

/// Inputs of an op with their errors.
pub(super) type Inputs = [(Place, InputError)];

/// A result and what it is made from, as far as these are floats.
struct Passage<'p, 'a> {
    flow: &'p Flow<'a>,
    place: Place,
    node: &'p Node<'a>,
    fact: &'p Fact,
    /// Scale of the result.
    scale: f64,
    given: Vec<(Place, InputError)>,
    /// All that is given, numbers among it.
    read: &'p Inputs,
    /// What the forward pass left for a gradient.
    saved: Vec<(Place, InputError)>,
    /// Largest relative error of what is given, and of what is saved.
    relative: f64,
    of_saved: f64,
    /// Relative and absolute errors of all that is given, as if uncorrelated.
    joint: f64,
    absolute: f64,
}

impl<'p, 'a> Passage<'p, 'a> {
    fn of(flow: &'p Flow<'a>, place: Place, scale: f64, read: &'p Inputs, saved: &Inputs) -> Self {
        let node = &flow.nodes[place.0];
        let floats = |inputs: &Inputs| -> Vec<(Place, InputError)> {
            inputs.iter().copied().filter(|(place, _)| flow.fact(*place).is_float).collect()
        };
        let (given, mut saved) = (floats(read), floats(saved));
        // If the gradient itself was not recorded, only the forward tells of it.
        if node.traits.kind == Kind::Product && !given.is_empty() {
            let matrices = saved.iter().any(|(place, _)| flow.shape(*place).len() > 1);
            saved.retain(|(place, _)| {
                is_factor(flow, node, *place) && (flow.shape(*place).len() > 1 || !matrices)
            });
        }
        Self {
            flow,
            place,
            node,
            fact: flow.fact(place),
            scale,
            relative: largest(given.iter().map(|(_, error)| error.relative)),
            of_saved: largest(saved.iter().map(|(_, error)| error.relative)),
            joint: root(given.iter().map(|(_, error)| error.relative)),
            absolute: root(given.iter().map(|(_, error)| error.absolute)),
            given,
            read,
            saved,
        }
    }

    fn len(&self, place: Place) -> f64 {
        self.flow.fact(place).len.max(1.0)
    }

    /// Returns the largest mean of an input's error per element.
    fn mean_error(&self) -> f64 {
        largest(self.given.iter().map(|(place, error)| error.absolute / self.len(*place).sqrt()))
    }

    /// Returns how far the places are off at which a value is read, in distances between its elements: they run from -1 to
    /// 1 over each dimension, and errors of all dimensions add up as if uncorrelated. `read` begins with the value and
    /// the places.
    fn off_by(&self, read: &Inputs) -> f64 {
        let &[(image, _), (places, error), ..] = read else { return 0.0 };
        let dimensions = self.flow.shape(places).last().map_or(1, |&count| count);
        let sizes = self.flow.shape(image).iter().rev().zip(0..dimensions);
        let longest = sizes.map(|(size, _)| size).max();
        let each = error.absolute / self.len(places).sqrt();
        each * longest.map_or(1.0, |&size| size as f64) / 2.0 * (dimensions as f64).sqrt()
    }

    /// Iterates over the numbers that are given.
    fn numbers(&self) -> impl Iterator<Item = f64> {
        self.read.iter().filter_map(|&(place, _)| match &self.flow.slot(place)?.value {
            Value::Scalar(Scalar::Number(number @ (Number::Int(_) | Number::Float(_)))) => {
                Some(number.as_f64())
            }
            _ => None,
        })
    }

    /// Returns the exponent of a power, if it is a number.
    fn exponent(&self) -> Option<f64> {
        if self.node.base == "square" { Some(2.0) } else { self.numbers().next() }
    }

    /// Returns the magnitude of the scalar factors of an element-wise product.
    fn factors(&self) -> f64 {
        self.numbers().map(f64::abs).filter(|number| number.is_finite()).product()
    }

    /// Returns the error if nothing is known of the function.
    fn relative_errors(&self) -> f64 {
        if self.node.is_backward() { self.relative + self.of_saved } else { self.joint }
    }
}

/// Returns the relative error of the result at `place` that its inputs explain. `scale` is the scale of the
/// result, positive.
pub(super) fn explained(flow: &Flow<'_>, place: Place, scale: f64, given: &Inputs, saved: &Inputs) -> f64 {
    let passage = Passage::of(flow, place, scale, given, saved);
    let Passage { node, fact, relative, .. } = passage;
    let gradient = node.makes_gradients();
    let mut explained = if gradient { passage.to_gradient() } else { passage.to_result() };
    if node.traits.chooses && (gradient || node.traits.is_gradient) {
        // A flipped choice lets an element through or not. In a dispatcher op, the gradient comes first,
        // followed by the values that the choice is based on.
        let others = largest(passage.given.iter().skip(1).map(|(_, error)| error.relative));
        let near = passage.of_saved.max(if node.is_dispatcher() { others } else { 0.0 });
        explained = explained.max(flipped_gates(fact.len, near));
    }
    if node.traits.kind == Kind::Root {
        explained = explained.max(ROOT * relative.sqrt());
    }
    // A flipped sign changes an element by twice its size.
    if matches!(node.base, "sign" | "sgn") {
        let expected = flips(fact.len, relative);
        let few = if expected > ONE_FLIP { expected + FEW } else { 0.0 };
        explained = explained.max(2.0 * (few / fact.len).sqrt());
    }
    explained
}

/// Returns true for a logarithm of each element.
fn is_logarithm(base: &str) -> bool {
    matches!(base, "log" | "log2" | "log10" | "log1p")
}

/// Returns the relative error that a gradient of this many elements gets from choices that let elements
/// through on one side only, if the values chosen by are off by `near`; 0 if hardly any flip is expected.
pub(super) fn flipped_gates(elements: f64, near: f64) -> f64 {
    if may_flip(elements, near) { near.sqrt() } else { 0.0 }
}

/// Returns true if a flip is to be expected among this many choices whose values are off by `near`.
pub(super) fn may_flip(elements: f64, near: f64) -> bool {
    flips(elements, near) > FLIPS
}

/// Returns the expected number of flips among this many choices whose values are off by `near`.
pub(super) fn flips(elements: f64, near: f64) -> f64 {
    elements * near * NEAR
}

/// Returns the relative error of a result of which a fraction is picked by other indices: as if other elements
/// of the same size stood there, which may be larger than most.
pub(super) fn picked(share: f64) -> f64 {
    (PEAKED * (2.0 * share).sqrt()).min(1.0)
}

/// Returns the number of rows summed in each element of a loss; 1 for a mean.
fn rows_summed(flow: &Flow<'_>, node: &Node<'_>, position: usize) -> f64 {
    let rows = |slot| flow.shape((position, slot)).iter().rev().skip(1).product::<u64>() as f64;
    node.given().next().filter(|_| sums_rows(flow, position)).map_or(1.0, rows)
}

/// Returns true for a loss that sums its elements, which it averages by default.
pub(super) fn sums_rows(flow: &Flow<'_>, position: usize) -> bool {
    let node = &flow.nodes[position];
    node.given().any(|slot| {
        let Some(slot) = flow.slot((position, slot)) else { return false };
        match &slot.value {
            Value::Scalar(Scalar::Text(text)) => &**text == "sum",
            // The code of dispatcher ops.
            Value::Scalar(Scalar::Number(number)) => {
                node.is_dispatcher() && &*slot.path == "input.3" && number.as_f64() > 1.5
            }
            _ => false,
        }
    })
}

/// Returns true if the gradient of a product depends on a value of its forward: it depends on the factors, and
/// a weight's gradient on the other factor only. The product itself does not matter.
fn is_factor(flow: &Flow<'_>, node: &Node<'_>, place: Place) -> bool {
    let side = flow.side(place);
    let own = side == SlotSide::Parameter && node.op.name.phase() == Phase::ParameterGradient;
    !side.is_result() && !own
}

/// Returns the largest element of a baseline value; 0 if none is positive or if unknown.
fn positive(flow: &Flow<'_>, place: Place) -> f64 {
    flow.extremes(place).map_or(0.0, |(_, max)| max.max(0.0))
}

/// Returns true if a value may hold some of the rows of a surrounding module's input, picked by choices that
/// an error of `noise` flips: the tokens of an expert.
pub(super) fn may_select_others(flow: &Flow<'_>, place: Place, noise: f64) -> bool {
    let fact = flow.fact(place);
    let Some(&width) = flow.shape(place).last().filter(|&&width| width > 1) else { return false };
    let modules = || flow.around(place.0).filter(|&outer| flow.nodes[outer].is_module());
    // A parameter of a module around is no selection.
    let is_own = |given: Place| {
        flow.side(given) == SlotSide::Parameter
            && flow.fact(given).identity.is_some_and(|of| Some(of) == fact.identity)
    };
    let is_owned = modules().flat_map(|outer| flow.given(outer)).any(is_own);
    !is_owned
        && modules().flat_map(|outer| flow.given(outer)).any(|whole| {
            let given = flow.fact(whole);
            let rows = given.len / width as f64;
            flow.shape(whole).last() == Some(&width)
                && given.is_float
                && !given.exact
                && given.len > fact.len
                && rows * noise * NEAR > FLIPS
        })
}

/// Returns the norm of the error of an element-wise product: the error of each factor times the size of the
/// others.
fn multiplied(flow: &Flow<'_>, given: &Inputs, len: f64) -> f64 {
    let rms = |place: Place| flow.fact(place).norm / flow.fact(place).len.max(1.0).sqrt();
    let parts = given.iter().map(|&(place, error)| {
        let others: f64 =
            given.iter().filter(|(other, _)| *other != place).map(|(other, _)| rms(*other)).product();
        error.absolute * (len / flow.fact(place).len.max(1.0)).max(1.0).sqrt() * others
    });
    root(parts)
}

/// Returns the largest relative error (in l2) of a quotient by the error of its divisor: what its least elements are off
/// by. The error of all, spread over them, counts there by their root mean square over the least; a root has most of
/// its error at its least elements, which data show, and a sketch where few of its lanes hold nearly all of it.
fn of_divisor(flow: &Flow<'_>, place: Place, error: InputError) -> f64 {
    let fact = flow.fact(place);
    let Some((min, max)) = flow.extremes(place) else { return error.relative };
    let smallest = if min > 0.0 { min } else { -max };
    if smallest <= 0.0 {
        return MIXED_DIVISOR * error.relative;
    }
    let spread = (fact.norm / fact.len.max(1.0).sqrt() / smallest).max(1.0) * error.relative;
    let alone = match flow.evidence.at(place.0, place.1) {
        Evidence::Data(kept) => kept.metrics().max_rel_err,
        Evidence::Recorded(recorded) => recorded.sketch.as_ref().and_then(|sketch| {
            let usual = fact.distance / f64::from(sketch.lanes).sqrt();
            (sketch.largest_lane > LOADED * usual).then_some(sketch.largest_lane / smallest)
        }),
        Evidence::Unreadable(_) | Evidence::Nothing => None,
    };
    spread.max(alone.unwrap_or(0.0).min(1.0))
}

/// Returns the factor by which relative error grows when the mean is removed: root mean square over deviation,
/// over all elements. 1 for normalisations that do not centre.
pub(super) fn centring(flow: &Flow<'_>, node: &Node<'_>, place: Place) -> f64 {
    if node.base.to_ascii_lowercase().contains("rms") { 1.0 } else { spread_out(flow, place) }
}

/// Returns the root mean square of a value over its deviation: the factor by which an error is larger relative
/// to the differences between elements than relative to their size.
pub(super) fn spread_out(flow: &Flow<'_>, place: Place) -> f64 {
    let fact = flow.fact(place);
    let mean = match flow.evidence.at(place.0, place.1).measured() {
        Some(metrics) => metrics.baseline.mean,
        None => {
            flow.slot(place).and_then(|slot| slot.value.tensor()).and_then(|record| record.statistics.mean())
        }
    };
    let square = fact.norm * fact.norm / fact.len.max(1.0);
    let Some(mean) = mean.filter(|mean| mean.is_finite() && square > 0.0) else { return 1.0 };
    (square / (square - mean * mean).max(square * 1e-6)).sqrt()
}

/// Returns the largest error of an element; for a sketch, of the few that share its lane.
pub(super) fn largest_error(flow: &Flow<'_>, place: Place) -> Option<f64> {
    match flow.evidence.at(place.0, place.1) {
        Evidence::Data(kept) => kept.metrics().max_abs_err,
        Evidence::Recorded(recorded) => recorded.sketch.as_ref().map(|sketch| sketch.largest_lane),
        Evidence::Unreadable(_) | Evidence::Nothing => None,
    }
}

/// Returns the root of the sum of squares.
pub(super) fn root(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// Returns the largest of some errors, 0 if there are none.
pub(super) fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests;
