//! The scale of a result: its norm, or the norm it would have if nothing cancelled.
//!
//! A gradient that is zero in exact arithmetic (of a bias in front of a normalisation, of the keys of an
//! attention) is nothing but rounding: its relative error is 1 on any two devices. The rounding is as large as
//! that of a result of the usual size, so the error is compared with that size.
//!
//! Scales assume uncorrelated operands. A sum of `k` products of elements with root mean squares `a` and `b`
//! has the root mean square `sqrt(k) a b`, so the norm of `n` of them is `sqrt(n k) a b`. A sum of numbers has
//! the norm of the numbers.

use super::flow::{Flow, Place};
use super::ops::Kind;
use super::transfer;
use probe_dump::Phase;

/// Scale of a result, and the number of terms summed for each of its elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    /// Norm without cancellation.
    pub(super) norm: f64,
    /// Terms of the sums; 1 if nothing is summed or if unknown.
    pub(super) terms: f64,
    /// Norm of a sum of products whose operands are uncorrelated, as a fraction of `norm`; 1 for other results.
    /// Rounded operands leave their error in the products, so a bias, or terms that point one way, make the
    /// result larger and not the error.
    pub(super) share: f64,
    /// Number of terms that add up as if they were one; 1 if they are uncorrelated.
    pub(super) run: f64,
}

/// A factor of a product.
#[derive(Clone, Copy)]
struct Factor<'a> {
    /// Root mean square.
    rms: f64,
    len: f64,
    shape: &'a [u64],
}

impl<'a> Factor<'a> {
    fn of(flow: &Flow<'a>, place: Place) -> Option<Self> {
        let fact = flow.fact(place);
        let usable = fact.is_float && fact.norm > 0.0 && !fact.swamped;
        usable.then(|| Self { rms: fact.norm / fact.len.sqrt(), len: fact.len, shape: flow.shape(place) })
    }

    /// Returns the size of a dimension, counted from the end.
    fn size_from_end(&self, dimension: usize) -> f64 {
        self.shape.iter().rev().nth(dimension).map_or(1.0, |&size| size as f64)
    }

    fn first(&self) -> f64 {
        self.shape.first().map_or(1.0, |&size| size as f64)
    }
}

/// Returns the scale of the result at `place`, made from `given` and, for a gradient, the forward's `saved`
/// values.
pub(super) fn of(flow: &Flow<'_>, place: Place, given: &[Place], saved: &[Place]) -> Scale {
    let node = &flow.nodes[place.0];
    let fact = flow.fact(place);
    let mut scale = Scale { norm: fact.norm, terms: 1.0, share: 1.0, run: 1.0 };
    let gradient = node.makes_gradients();
    match (node.traits.kind, gradient) {
        (Kind::Product, false) => product(flow, place, given, &mut scale),
        (Kind::Product | Kind::Embedding, true) => {
            gradient_of_product(flow, place, given, saved, &mut scale);
        }
        (Kind::Normalisation | Kind::Exponential, true) => {
            gradient_that_projects(flow, place, given, saved, &mut scale);
        }
        (Kind::Sum | Kind::Mean, false) => {
            let largest = norms(flow, given).fold(0.0, f64::max);
            let terms = given.first().map_or(1.0, |&given| (flow.fact(given).len / fact.len).max(1.0));
            let parts = if node.traits.kind == Kind::Mean { terms } else { 1.0 };
            scale = Scale { norm: scale.norm.max(largest / parts), terms, share: 1.0, run: 1.0 };
        }
        // A norm is the root of a sum.
        (Kind::Root, false) => {
            scale.terms = given.first().map_or(1.0, |&given| (flow.fact(given).len / fact.len).max(1.0));
        }
        (Kind::Add, false) => scale.norm = norms(flow, given).fold(scale.norm, f64::max),
        (Kind::Normalisation, false) if place.1 > 0 && is_statistic(flow, place, given) => {
            // A saved mean or deviation: as large as the elements it was computed from.
            if let Some(x) = given.first().and_then(|&place| Factor::of(flow, place)) {
                scale.norm = scale.norm.max(x.rms * fact.len.sqrt());
            }
        }
        (Kind::Distance, true) => gradient_of_distance(flow, place, given, saved, &mut scale),
        (_, true) => {
            // A gradient with fewer elements than the incoming one is a sum: broadcasting undone, or elements
            // picked twice.
            let incoming = norms(flow, given).fold(0.0, f64::max);
            let elements = given.iter().map(|&place| flow.fact(place).len).fold(0.0, f64::max);
            if fact.len < elements {
                let factor = match node.traits.kind {
                    Kind::Multiply => other_factor(flow, place, saved).map(|factor| factor.rms),
                    Kind::Divide => by_divisor(flow, place, saved),
                    _ => None,
                };
                let incoming = incoming * factor.unwrap_or(1.0);
                scale = Scale {
                    norm: scale.norm.max(incoming),
                    terms: elements / fact.len,
                    share: 1.0,
                    run: 1.0,
                };
            }
        }
        _ => {}
    }
    if scale.norm <= 0.0 {
        // All zero: compare with the inputs, or else with the other side.
        scale.norm = norms(flow, given).fold(fact.norms.1, f64::max);
    }
    scale
}

/// Returns the other factor of a product if `place` is the gradient of the first or the second.
fn other_factor<'a>(flow: &Flow<'a>, place: Place, saved: &[Place]) -> Option<Factor<'a>> {
    Factor::of(flow, other(flow, place, saved)?)
}

fn other(flow: &Flow<'_>, place: Place, saved: &[Place]) -> Option<Place> {
    let other = match &*flow.slot(place)?.path {
        "output.0" => "input.1",
        "output.1" => "input.0",
        _ => return None,
    };
    saved.iter().copied().find(|&place| flow.slot(place).is_some_and(|slot| &*slot.path == other))
}

/// Returns what the incoming gradient of a quotient is multiplied by in the gradient of what is divided, or of the divisor.
fn by_divisor(flow: &Flow<'_>, place: Place, saved: &[Place]) -> Option<f64> {
    let rms = |path: &str| {
        let found = saved.iter().find(|&&place| flow.slot(place).is_some_and(|slot| &*slot.path == path))?;
        Factor::of(flow, *found).map(|factor| factor.rms)
    };
    match &*flow.slot(place)?.path {
        "output.0" => Some(1.0 / rms("input.1")?),
        "output.1" => Some(rms("output.0")? / rms("input.1")?),
        _ => None,
    }
}

/// Returns the size of the other factor if `place` is the gradient of one of two: its root mean square, or its largest
/// element where each element of the gradient is a sum, in which most of the error may stand at the large ones.
pub(super) fn size_of_other(flow: &Flow<'_>, place: Place, saved: &[Place]) -> Option<f64> {
    let other = other(flow, place, saved)?;
    let factor = Factor::of(flow, other)?;
    Some(if flow.fact(place).len < factor.len { flow.fact(other).largest } else { factor.rms })
}

/// Returns the norms of the float values, without sentinels.
fn norms<'f>(flow: &'f Flow<'_>, places: &'f [Place]) -> impl Iterator<Item = f64> + 'f {
    places
        .iter()
        .map(|&place| flow.fact(place))
        .filter(|fact| fact.is_float && !fact.swamped)
        .map(|fact| fact.norm)
}

/// Returns true for a result with fewer elements than the first input.
fn is_statistic(flow: &Flow<'_>, place: Place, given: &[Place]) -> bool {
    given.first().is_some_and(|&first| flow.fact(place).len < flow.fact(first).len)
}

fn sum_of_products(scale: &mut Scale, len: f64, terms: f64, a: Factor<'_>, b: Factor<'_>) {
    if terms >= 1.0 {
        let uncorrelated = (len * terms).sqrt() * a.rms * b.rms;
        scale.terms = terms;
        scale.norm = scale.norm.max(uncorrelated);
        scale.share = uncorrelated / scale.norm;
    }
}

/// Returns the two factors of a product: the first two tensors with more than one dimension.
fn factors<'a>(flow: &Flow<'a>, places: &[Place]) -> Option<(Factor<'a>, Factor<'a>)> {
    let mut found = places
        .iter()
        .filter(|&&place| flow.shape(place).len() > 1)
        .filter_map(|&place| Factor::of(flow, place));
    Some((found.next()?, found.next()?))
}

/// Returns the number of terms of a product of `x` and `w`.
fn terms(base: &str, x: Factor<'_>, w: Factor<'_>) -> f64 {
    if is_convolution(base) { w.len / w.first() } else { x.size_from_end(0) }
}

pub(super) fn is_convolution(base: &str) -> bool {
    base.to_ascii_lowercase().contains("conv") && base != "Conv1D"
}

fn product(flow: &Flow<'_>, place: Place, given: &[Place], scale: &mut Scale) {
    let Some((x, w)) = factors(flow, given) else { return };
    let base = flow.nodes[place.0].base;
    sum_of_products(scale, flow.fact(place).len, terms(base, x, w), x, w);
}

fn gradient_of_product(flow: &Flow<'_>, place: Place, given: &[Place], saved: &[Place], scale: &mut Scale) {
    let fact = flow.fact(place);
    let node = &flow.nodes[place.0];
    let (incoming, saved) = node.incoming(given, saved);
    let Some(g) = incoming
        .iter()
        .filter_map(|&place| Factor::of(flow, place))
        .max_by(|a, b| (a.len * a.rms * a.rms).total_cmp(&(b.len * b.rms * b.rms)))
    else {
        return;
    };
    let shape = flow.shape(place);
    if shape.len() <= 1 {
        // The gradient of a bias is a sum of the incoming one: as large where terms are uncorrelated.
        let incoming = g.rms * g.len.sqrt();
        scale.run = (scale.norm / incoming).powi(2).max(1.0);
        scale.norm = scale.norm.max(incoming);
        scale.terms = (g.len / fact.len).max(1.0);
        return;
    }
    if node.traits.kind == Kind::Embedding {
        scale.norm = scale.norm.max(g.rms * g.len.sqrt());
        return;
    }
    let Some((x, w)) = factors(flow, saved) else { return };
    let of_weight = shape == w.shape || node.op.name.phase() == Phase::ParameterGradient;
    if of_weight && shape != x.shape {
        let rows = if is_linear(node.base) || is_convolution(node.base) {
            g.len / w.first()
        } else {
            x.len / x.size_from_end(0)
        };
        sum_of_products(scale, fact.len, rows, g, x);
    } else {
        let columns =
            if is_linear(node.base) || is_convolution(node.base) { w.first() } else { g.size_from_end(0) };
        sum_of_products(scale, fact.len, columns, g, w);
    }
}

/// Returns true for products whose weight has a row for each feature of the result.
fn is_linear(base: &str) -> bool {
    base.eq_ignore_ascii_case("linear") || base.ends_with("Linear")
}

/// Raises the scale of the gradient of a squared distance, `2 g (x - y)`, over `n` for a mean: two values that
/// nearly agree leave little of themselves and all of their rounding, so the scale is that of the larger one.
fn gradient_of_distance(flow: &Flow<'_>, place: Place, given: &[Place], saved: &[Place], scale: &mut Scale) {
    let node = &flow.nodes[place.0];
    let (incoming, saved) = node.incoming(given, saved);
    let Some(g) = incoming.iter().find_map(|&place| Factor::of(flow, place)) else { return };
    let len = flow.fact(place).len;
    let same = saved.iter().filter(|&&saved| flow.fact(saved).len.to_bits() == len.to_bits());
    let largest = same.map(|&saved| flow.fact(saved).norm).fold(0.0, f64::max);
    let parts = if g.len > 1.0 || transfer::sums_rows(flow, place.0) { 1.0 } else { len };
    scale.norm = scale.norm.max(2.0 * g.rms * largest / parts);
}

/// Raises the scale of gradients of softmax and normalisations: they are what remains of the incoming gradient
/// after removing its mean, or its part along the result.
fn gradient_that_projects(
    flow: &Flow<'_>,
    place: Place,
    given: &[Place],
    saved: &[Place],
    scale: &mut Scale,
) {
    let node = &flow.nodes[place.0];
    let fact = flow.fact(place);
    let (incoming, saved) = node.incoming(given, saved);
    let Some(g) = incoming.first().and_then(|&place| Factor::of(flow, place)) else { return };
    let incoming = g.rms * g.len.sqrt();
    if fact.len < g.len {
        // Gradients of its weight and bias: sums over all rows.
        scale.norm = scale.norm.max(incoming);
        scale.terms = g.len / fact.len;
        return;
    }
    let same_size = |place: &&Place| flow.fact(**place).len.to_bits() == g.len.to_bits();
    let Some(x) = saved.iter().find(same_size) else { return };
    let Some(factor) = Factor::of(flow, *x) else { return };
    scale.norm = scale.norm.max(match node.traits.kind {
        Kind::Exponential => {
            // The result of the softmax follows its input.
            let weights = saved.iter().rfind(same_size).and_then(|&place| Factor::of(flow, place));
            incoming * weights.unwrap_or(factor).rms
        }
        // Divided by the deviation, which is at most the root mean square.
        _ => incoming / factor.rms,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::{Drawn, Part};

    /// Rounds to a mantissa of 10 bits, as devices do with the factors of a product.
    fn rounded(value: f64) -> f64 {
        let step = (value.abs().log2().floor() - 10.0).exp2();
        (value / step).round() * step
    }

    /// The scale of `x w' + bias`, and the error that rounded factors leave relative to it.
    fn product(x: &Drawn, w: &Drawn, bias: f64) -> (Scale, f64) {
        let (exact, other) = (
            x.linear(w).map(|value| value + bias),
            x.map(rounded).linear(&w.map(rounded)).map(|value| value + bias),
        );
        let mut part = Part::default();
        part.op("Functional.linear.0.forward").tensor("input.0", x, x).tensor("input.1", w, w);
        part.tensor("output.0", &exact, &other);
        part.flow(|flow| {
            let scale = of(flow, (0, 2), &flow.given(0), &[]);
            (scale, flow.fact((0, 2)).distance / scale.norm)
        })
    }

    #[test]
    fn the_gradient_of_a_divisor_is_a_sum_of_quotients() {
        let (x, g) = (Drawn::normal(3, &[40, 64]), Drawn::normal(4, &[40, 64]));
        let sum = |rows: &Drawn| Drawn {
            shape: vec![40, 1],
            values: rows.values.chunks(64).map(|row| row.iter().sum()).collect(),
        };
        for size in [0.03, 1.0, 20.0] {
            let divisor = Drawn::normal(5, &[40, 1]).map(|value| size * (1.0 + 0.1 * value));
            let by = |x: &Drawn, power: i32| Drawn {
                shape: x.shape.clone(),
                values: x
                    .values
                    .iter()
                    .enumerate()
                    .map(|(at, x)| x / divisor.values[at / 64].powi(power))
                    .collect(),
            };
            let made = sum(&by(&x.with(&g, |x, g| -x * g), 2));
            let mut part = Part::default();
            part.op("Tensor.div.0.forward").tensor("input.0", &x, &x).tensor("input.1", &divisor, &divisor);
            part.tensor("output.0", &by(&x, 1), &by(&x, 1));
            part.op("Tensor.div.0.backward").tensor("input.0", &g, &g).tensor(
                "output.0",
                &by(&g, 1),
                &by(&g, 1),
            );
            part.tensor("output.1", &made, &made);
            let scale = part.flow(|flow| of(flow, (1, 2), &flow.given(1), &flow.saved(1)));
            let ratio = scale.norm / made.norm();
            assert!((0.99..2.0).contains(&ratio), "{ratio} for a divisor of {size}");
        }
    }

    #[test]
    fn rounded_factors_leave_the_error_of_their_products_alone() {
        let (x, w) = (Drawn::normal(1, &[64, 48]), Drawn::normal(2, &[32, 48]));
        for bias in [0.0, 50.0] {
            let (scale, error) = product(&x, &w, bias);
            let own = error / scale.share;
            assert!((2.0e-4..4.0e-4).contains(&own), "2.9e-4 predicted, {own:.1e} with a bias of {bias}");
        }
        // Rows that are alike sum up to more than uncorrelated ones.
        let (scale, error) = product(&x, &x, 0.0);
        assert!(
            scale.share < 0.9 && (2.0e-4..4.0e-4).contains(&(error / scale.share)),
            "{scale:?} {error:.1e}"
        );
    }
}
