//! The part of a result's error that the errors of its inputs explain.
//!
//! All relative to the scale of the result ([`scale`](super::scale)). The rules are first-order and assume
//! errors that are uncorrelated with the values; effects that they do not model (a gain shared by all calls of
//! a kind) show in the family.

use super::flow::{Flow, Node, Place};
use super::ops::Kind;
use super::scale::size_of_other;
use super::slope;
use probe_dump::{Number, Phase, Scalar, SlotSide, Value};

/// Slope of element-wise functions: GELU and `SiLU` reach 1.13 and 1.1.
const SLOPE: f64 = 1.2;

/// Factor of the error of a square root: the root of the relative error times this. Elements near 0 contribute
/// more than their share.
const ROOT: f64 = 0.2;

/// For elements of size 1, a fraction of about four times the error is so near a threshold that rounding may
/// carry it over.
const NEAR: f64 = 4.0;

/// Expected number of flips from which on choices count as flipped.
const FLIPS: f64 = 0.3;

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

/// Returns the relative error of the result at `place` that its inputs explain. `scale` is the scale of the
/// result, positive.
pub(super) fn explained(flow: &Flow<'_>, place: Place, scale: f64, given: &Inputs, saved: &Inputs) -> f64 {
    let node = &flow.nodes[place.0];
    let fact = flow.fact(place);
    let floats = |inputs: &Inputs| -> Vec<(Place, InputError)> {
        inputs.iter().copied().filter(|(place, _)| flow.fact(*place).is_float).collect()
    };
    let (given, mut saved) = (floats(given), floats(saved));
    // If the gradient itself was not recorded, only the forward tells of it.
    if node.traits.kind == Kind::Product && !given.is_empty() {
        let matrices = saved.iter().any(|(place, _)| flow.shape(*place).len() > 1);
        saved.retain(|(place, _)| {
            is_factor(flow, node, *place) && (flow.shape(*place).len() > 1 || !matrices)
        });
    }
    let relative = largest(given.iter().map(|(_, error)| error.relative));
    let of_saved = largest(saved.iter().map(|(_, error)| error.relative));
    let joint = root(given.iter().map(|(_, error)| error.relative));
    let absolute = root(given.iter().map(|(_, error)| error.absolute));
    let len = |place: Place| flow.fact(place).len.max(1.0);
    // A broadcast input is read often.
    let spread = largest(given.iter().map(|(place, _)| (fact.len / len(*place)).sqrt())).max(1.0);
    let gradient = node.makes_gradients();
    let mut explained = match node.traits.kind {
        Kind::Add if !gradient => absolute * spread / scale,
        Kind::Copy | Kind::Embedding if !gradient => relative.max(absolute / scale),
        Kind::Copy | Kind::Embedding => {
            let elements = largest(given.iter().map(|(place, _)| len(*place)));
            if fact.len <= elements { relative.max(absolute / scale) } else { relative }
        }
        Kind::Lipschitz if !gradient => relative.max(SLOPE * absolute / scale),
        Kind::Distance if !gradient => {
            let share = given.first().map_or(1.0, |(place, _)| len(*place) / fact.len.max(1.0));
            joint.max(absolute / share.max(1.0) / scale)
        }
        Kind::Distance => {
            // The scale is that of the larger value.
            let (incoming, rest) = if node.is_dispatcher() {
                given.split_at(given.len().min(1))
            } else {
                (&given[..], &saved[..])
            };
            let same = || rest.iter().filter(|(place, _)| len(*place).to_bits() == fact.len.to_bits());
            let size = largest(same().map(|(place, _)| flow.fact(*place).norm)).max(f64::MIN_POSITIVE);
            let apart = root(same().map(|(_, error)| error.absolute)) / size;
            largest(incoming.iter().map(|(_, error)| error.relative)) + apart
        }
        Kind::Sloped if !gradient => {
            let passed = given.iter().map(|&(place, error)| match slope::of(flow, place) {
                Some(slope) => slope * error.absolute / scale,
                None => error.relative,
            });
            root(passed)
        }
        Kind::Sloped if !node.is_dispatcher() => {
            let incoming =
                largest(given.iter().map(|(place, _)| flow.fact(*place).norm / len(*place).sqrt()));
            let slopes =
                saved.iter().filter(|(place, _)| !flow.side(*place).is_result()).map(|&(place, error)| {
                    match slope::curvature(flow, place) {
                        Some(curvature) => incoming * curvature * error.absolute / scale,
                        None => error.relative,
                    }
                });
            relative + root(slopes)
        }
        Kind::Sum if !gradient => joint.max(absolute / scale),
        Kind::Mean if !gradient => {
            let share = given.first().map_or(1.0, |(place, _)| len(*place) / fact.len.max(1.0));
            joint.max(absolute / share.max(1.0) / scale)
        }
        Kind::Exponential if !gradient => {
            // Behind a mask, use the error of the masked values: relative if the mask is not a number that
            // norms can hold, absolute if a smaller mask (the least float16, or -1e4) is in the norm.
            largest(given.iter().map(|(place, error)| error.absolute / len(*place).sqrt())).max(relative)
        }
        Kind::LogSoftmax if !gradient => {
            let means = largest(given.iter().map(|(place, error)| error.absolute / len(*place).sqrt()));
            if given.iter().all(|(place, _)| len(*place) <= fact.len) {
                (absolute / scale).max(means * fact.len.sqrt() / scale)
            } else {
                // A loss picks one element per row: each has the average error, or more at some positions.
                BOTH_SIDES * means * fact.len.sqrt() * rows_summed(flow, node, place.0) / scale
            }
        }
        Kind::LogSoftmax => {
            let (incoming, rest) = if node.is_dispatcher() {
                given.split_at(given.len().min(1))
            } else {
                (&given[..], &saved[..])
            };
            let probabilities =
                BOTH_SIDES * positive(flow, place) * root(rest.iter().map(|(_, error)| error.absolute));
            largest(incoming.iter().map(|(_, error)| error.relative)).max(probabilities / scale)
        }
        Kind::Power if !gradient => match exponent(flow, place.0) {
            Some(exponent) if exponent >= 1.0 => PEAKED * exponent * joint,
            _ => joint.max(ROOT * relative.sqrt()),
        },
        Kind::Logarithm if !gradient => {
            let means = given.iter().map(|(place, error)| error.absolute / len(*place).sqrt());
            joint.max(largest(means) * fact.len.sqrt() / scale)
        }
        Kind::Product if !gradient => root(given.iter().map(|(place, error)| {
            // A bias is added.
            if flow.shape(*place).len() == 1 {
                error.absolute * (fact.len / len(*place)).sqrt() / scale
            } else {
                error.relative
            }
        })),
        Kind::Multiply if !gradient => {
            let factor = factors(flow, node, place.0);
            joint.max(multiplied(flow, &given, fact.len) * factor / scale)
        }
        Kind::Divide | Kind::Root | Kind::Update if !gradient => {
            let divided = given.iter().enumerate().map(|(index, &(place, error))| {
                let last = index + 1 == given.len();
                error.relative
                    * if last && node.traits.kind != Kind::Root { magnification(flow, place) } else { 1.0 }
            });
            root(divided)
        }
        Kind::Attention if !gradient => {
            // Errors of the products under the softmax are absolute: larger products, larger errors.
            let rms = |index: usize| {
                given.get(index).map_or(0.0, |&(place, _)| flow.fact(place).norm / len(place).sqrt())
            };
            let width = given
                .first()
                .and_then(|&(place, _)| flow.shape(place).last())
                .map_or(1.0, |&size| size as f64);
            let sharpness = (rms(0) * rms(1) * width.sqrt()).clamp(1.0, 100.0);
            root(
                given
                    .iter()
                    .enumerate()
                    .map(|(index, (_, error))| error.relative * if index < 2 { sharpness } else { 1.0 }),
            )
        }
        Kind::Normalisation if !gradient => {
            let first =
                given.first().map_or(0.0, |&(place, error)| error.relative * centring(flow, node, place));
            // Normalised values have size 1, whatever scales and shifts them.
            let parameters = given.iter().skip(1).map(|&(place, error)| {
                let rows = (fact.len / len(place)).max(1.0);
                error.relative.min(error.absolute * rows.sqrt() / scale)
            });
            root(parameters.chain([first]))
        }
        // A shift does not enter any gradient; next to the scale it is small, or as large as its error says.
        Kind::Normalisation if gradient => {
            let one_row = |place: Place| flow.shape(place).len() <= 1;
            let split = |inputs: &Inputs| -> (Vec<_>, Vec<_>) {
                inputs.iter().copied().partition(|(place, _)| one_row(*place))
            };
            let ((given_rows, given), (mut rows, others)) = (split(&given), split(&saved));
            rows.extend(given_rows);
            let size = largest(rows.iter().map(|(place, _)| flow.fact(*place).norm));
            let of_rows = rows.iter().map(|(_, error)| error.relative.min(error.absolute / size));
            let incoming = largest(given.iter().map(|(_, error)| error.relative));
            incoming + largest(of_rows.chain(others.iter().map(|(_, error)| error.relative)))
        }
        // The other factor may remove most of the gradient, and none of its error.
        Kind::Multiply if gradient => {
            let places: Vec<Place> = saved.iter().map(|(place, _)| *place).collect();
            let other = size_of_other(flow, place, &places).unwrap_or(0.0);
            (relative + of_saved).max(absolute * other / scale)
        }
        // A choice may do the same.
        Kind::Lipschitz if gradient => {
            // Dispatcher ops list saved values after the gradient.
            let incoming = if node.is_dispatcher() {
                given.first().map_or(0.0, |(_, error)| error.absolute)
            } else {
                absolute
            };
            (relative + of_saved).max(SLOPE * incoming / scale)
        }
        _ if node.is_backward() => relative + of_saved,
        _ => joint,
    };
    if node.traits.chooses && (gradient || node.traits.is_gradient) {
        // A flipped choice lets an element through or not. In a dispatcher op, the gradient comes first,
        // followed by the values that the choice is based on.
        let others = largest(given.iter().skip(1).map(|(_, error)| error.relative));
        let near = of_saved.max(if node.is_dispatcher() { others } else { 0.0 });
        explained = explained.max(flipped_gates(fact.len, near));
    }
    if node.traits.kind == Kind::Root {
        explained = explained.max(ROOT * relative.sqrt());
    }
    // A flipped sign changes an element by twice its size.
    if matches!(node.base, "sign" | "sgn") {
        explained = explained.max(2.0 * flipped_gates(fact.len, relative));
    }
    explained
}

/// Returns the relative error that a gradient of this many elements gets from choices that let elements
/// through on one side only, if the values chosen by are off by `near`; 0 if hardly any flip is expected.
pub(super) fn flipped_gates(elements: f64, near: f64) -> f64 {
    if flips(elements, near) > FLIPS { near.sqrt() } else { 0.0 }
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

/// Returns the exponent of a power, if it is a number.
fn exponent(flow: &Flow<'_>, position: usize) -> Option<f64> {
    let node = &flow.nodes[position];
    if node.base == "square" {
        return Some(2.0);
    }
    node.given().find_map(|slot| match &flow.slot((position, slot))?.value {
        Value::Scalar(Scalar::Number(number)) => Some(number.as_f64()),
        _ => None,
    })
}

/// Returns the largest element of a baseline value; 0 if none is positive or if unknown.
fn positive(flow: &Flow<'_>, place: Place) -> f64 {
    let max = match flow.evidence.at(place.0, place.1).measured() {
        Some(metrics) => metrics.baseline.max,
        None => flow
            .slot(place)
            .and_then(|slot| slot.value.tensor())
            .and_then(|record| record.statistics.max().map(Number::as_f64)),
    };
    max.unwrap_or(0.0).max(0.0)
}

/// Returns true if a value may hold some of the rows of a surrounding module's input, picked by choices that
/// an error of `noise` flips: the tokens of an expert.
pub(super) fn may_select_others(flow: &Flow<'_>, place: Place, noise: f64) -> bool {
    let fact = flow.fact(place);
    let Some(&width) = flow.shape(place).last().filter(|&&width| width > 1) else { return false };
    flow.around(place.0).flat_map(|outer| flow.given(outer)).any(|whole| {
        let given = flow.fact(whole);
        let rows = given.len / width as f64;
        flow.shape(whole).last() == Some(&width)
            && given.is_float
            && !given.exact
            && given.len > fact.len
            && rows * noise * NEAR > FLIPS
    })
}

/// Returns the magnitude of the scalar factors of an element-wise product.
fn factors(flow: &Flow<'_>, node: &Node<'_>, position: usize) -> f64 {
    let numbers = node.given().filter_map(|slot| match &flow.slot((position, slot))?.value {
        Value::Scalar(Scalar::Number(number @ (Number::Int(_) | Number::Float(_)))) => {
            Some(number.as_f64().abs())
        }
        _ => None,
    });
    numbers.filter(|number| number.is_finite()).product()
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

/// Returns the largest factor by which relative noise (in l2) of a divisor may grow in a quotient: its root
/// mean square over its smallest element.
fn magnification(flow: &Flow<'_>, place: Place) -> f64 {
    let fact = flow.fact(place);
    let Some(record) = flow.slot(place).and_then(|slot| slot.value.tensor()) else { return 1.0 };
    let (min, max) = match flow.evidence.at(place.0, place.1).measured() {
        Some(metrics) => (metrics.baseline.min, metrics.baseline.max),
        None => (record.statistics.min().map(Number::as_f64), record.statistics.max().map(Number::as_f64)),
    };
    let (Some(min), Some(max)) = (min, max) else { return 1.0 };
    let smallest = if min > 0.0 { min } else { -max };
    if smallest > 0.0 { (fact.norm / fact.len.max(1.0).sqrt() / smallest).max(1.0) } else { MIXED_DIVISOR }
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

/// Returns the root of the sum of squares.
pub(super) fn root(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// Returns the largest of some errors, 0 if there are none.
pub(super) fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::{Drawn, Part};
    use crate::scale;

    const SEEDS: [u64; 3] = [3, 14, 159];

    /// The error of a result in units of the scale, and what the inputs explain of it.
    fn errors(name: &str, given: &[(Drawn, Drawn)], result: &(Drawn, Drawn)) -> (f64, f64) {
        let mut part = Part::default();
        part.op(name);
        for (at, (b, c)) in given.iter().enumerate() {
            part.tensor(&format!("input.{at}"), b, c);
        }
        part.tensor("output.0", &result.0, &result.1);
        part.flow(|flow| {
            let place = (0, given.len());
            let inputs: Vec<Place> = flow.given(0);
            let scale = scale::of(flow, place, &inputs, &[]).norm;
            let error = |place: Place| {
                let fact = flow.fact(place);
                InputError { relative: fact.relative(), absolute: fact.distance }
            };
            let inputs: Vec<_> = inputs.into_iter().map(|place| (place, error(place))).collect();
            (flow.fact(place).distance / scale, explained(flow, place, scale, &inputs, &[]))
        })
    }

    /// Holds a function of one or two tensors against its model: what the inputs explain may be up to `times` the
    /// error, and no less than half of it.
    fn hold(name: &str, operands: &[Drawn], function: impl Fn(&[Drawn]) -> Drawn, times: f64) {
        for seed in SEEDS {
            let off: Vec<Drawn> = operands
                .iter()
                .enumerate()
                .map(|(at, drawn)| drawn.off(seed + 1000 * at as u64, 1e-4))
                .collect();
            let given: Vec<(Drawn, Drawn)> = operands.iter().cloned().zip(off.iter().cloned()).collect();
            let (error, explained) = errors(name, &given, &(function(operands), function(&off)));
            assert!(
                explained >= 0.5 * error && explained <= times * error,
                "{name}: {explained:.2e} for {error:.2e}"
            );
        }
    }

    fn positive(seed: u64) -> Drawn {
        Drawn::normal(seed, &[40, 30]).map(|value| 0.3 + value.abs())
    }

    #[test]
    fn errors_pass_as_calculus_says() {
        let (x, y, w) =
            (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[40, 30]), Drawn::normal(3, &[20, 30]));
        let two = [x.clone(), y];
        hold("Functional.linear.0.forward", &[x.clone(), w], |t| t[0].linear(&t[1]), 2.0);
        hold("Torch.add.0.forward", &two, |t| t[0].with(&t[1], |a, b| a + b), 2.0);
        hold("Torch.mul.0.forward", &two, |t| t[0].with(&t[1], |a, b| a * b), 2.0);
        hold("Torch.div.0.forward", &[x.clone(), positive(4)], |t| t[0].with(&t[1], |a, b| a / b), 20.0);
        hold("Torch.tanh.0.forward", std::slice::from_ref(&x), |t| t[0].map(f64::tanh), 4.0);
        hold("Torch.square.0.forward", std::slice::from_ref(&x), |t| t[0].map(|a| a * a), 8.0);
        hold("Torch.log.0.forward", &[positive(5)], |t| t[0].map(f64::ln), 6.0);
        hold("Torch.exp.0.forward", std::slice::from_ref(&x), |t| t[0].map(f64::exp), 4.0);
        hold("Torch.lgamma.0.forward", &[positive(6).map(|a| a + 1.0)], |t| t[0].map(log_gamma), 8.0);
        hold("Torch.asin.0.forward", &[x.map(|a| (a / 8.0).clamp(-0.9, 0.9))], |t| t[0].map(f64::asin), 3.0);
    }

    /// Stirling's series behind a shift of ten, to 1e-12.
    fn log_gamma(x: f64) -> f64 {
        let shift: f64 = (0..10).map(|step| (x + f64::from(step)).ln()).sum();
        let z = x + 10.0;
        let series = 1.0 / (12.0 * z) - 1.0 / (360.0 * z.powi(3)) + 1.0 / (1260.0 * z.powi(5));
        (z - 0.5) * z.ln() - z + 0.5 * std::f64::consts::TAU.ln() + series - shift
    }

    #[test]
    fn the_gradient_of_a_distance_keeps_the_errors_of_what_it_subtracts() {
        let x = Drawn::normal(7, &[40, 30]);
        let near = x.off(8, 0.01);
        let (x_off, near_off) = (x.off(9, 1e-5), near.off(10, 1e-5));
        let gradient = |a: &Drawn, b: &Drawn| a.with(b, |a, b| 2.0 * (a - b) / 1200.0);
        let one = Drawn { shape: vec![1], values: vec![1.0] };
        let given = [(one.clone(), one), (x.clone(), x_off.clone()), (near.clone(), near_off.clone())];
        let result = (gradient(&x, &near), gradient(&x_off, &near_off));
        let relative = result.0.with(&result.1, |a, b| a - b).norm() / result.0.norm();
        assert!(relative > 1e-3, "a hundred times the errors of both: {relative:.1e}");
        let (error, explained) = errors("Aten.mse_loss_backward.0.backward", &given, &result);
        assert!(explained >= 0.5 * error && explained <= 3.0 * error, "{explained:.2e} for {error:.2e}");
        assert!(error < 3e-5, "next to what was subtracted: {error:.1e}");
    }
}
