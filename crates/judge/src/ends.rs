//! The ends of a step: where all of them agree, what differs before them was computed in another way.
//!
//! The gradient of each parameter depends on all that the loss is made of. If those of every parameter agree, and the
//! losses, then no op that one side alone has changes what is learned, whatever the values in between are.

use std::collections::{HashMap, HashSet};

use super::Cause;
use super::candidate::Candidate;
use super::choices;
use super::difference::{Difference, Fact};
use super::excess::UNJUDGED;
use super::expected::ExpectedErrors;
use super::family::shows_own;
use super::flow::{Flow, Node, Place};
use super::history::ANOTHER;
use super::ops::Kind;
use super::precision::Precision;
use super::products::is_large;
use super::setting::Setting;
use super::structure::writes;
use super::value::ExpectedError;
use super::wiring;
use probe_dump::{Number, Phase, Scalar, Slot, SlotSide, Value};

/// Multiple of what one op leaves by which the ends of a step may be off: twice the 3 bits that each op may be off by.
pub(super) const ADDED_UP: f64 = 64.0;

/// Largest error of an end that still agrees.
const LARGEST: f64 = 0.03;

/// Error, relative to the largest gradient beside it, that binary32 leaves in one of which nearly all cancels: 8 roundings.
const CANCELLED: f64 = 8.0 * Precision::BINARY32.unknown;

/// Multiple of what the ends may be off by from which on a difference would show there, had nothing undone it: a residual
/// connection passes on a part of it.
const UNDONE: f64 = 64.0;

/// Fewest gradients of which all agree: those of a few parameters may do so by chance.
const FEWEST: usize = 4;

/// Reason for values that are excused.
const REASON: &str = "computed in another way, and all gradients agree";

/// Removes candidates that are about the way in which something is computed, if there are no others and all ends agree,
/// or did in an earlier step and are no plainly other ones now: a program takes the same way in every step, and later ends
/// carry what the optimizer made of noise. Returns a remark on them, and adds their ops by name to `ways`; `known` are those of earlier steps.
pub(super) fn settle(
    flow: &mut Flow<'_>,
    candidates: &mut Vec<Candidate>,
    expected: &ExpectedErrors,
    setting: &Setting,
    (known, ways): (&HashSet<Box<str>>, &mut HashSet<Box<str>>),
) -> Option<String> {
    let first = candidates.iter().min_by_key(|candidate| candidate.op)?;
    let ends: Vec<Place> = gradients(flow).collect();
    let last = ends.last()?.0;
    let is_told = ends.len() >= FEWEST && candidates.iter().all(|candidate| candidate.op < last);
    let is_alone = |node: &Node<'_>| node.op.name.phase() == Phase::ParameterGradient && !node.is_paired;
    if !is_told || flow.nodes.iter().any(is_alone) {
        return None;
    }
    let bound = bound(flow, &ends, &expected.values, setting);
    let name = |candidate: &Candidate| flow.nodes[candidate.op].op.name.as_str();
    let is_known = candidates.iter().all(|candidate| known.contains(name(candidate)));
    let are_of_way = candidates.iter().all(|candidate| is_of_way(flow, candidate, bound));
    if !are_of_way || !agree(flow, &ends, if is_known { ANOTHER } else { bound }) {
        return None;
    }
    ways.extend(candidates.iter().map(|candidate| Box::from(name(candidate))));
    let said = format!(
        "the runs compute {} in another way, but the gradients of all parameters agree",
        flow.nodes[first.op].op.name.as_str()
    );
    candidates.clear();
    // What becomes of the gradients behind the backward pass is no longer a matter of how they were computed.
    let changed = |op| wiring::changed_gradient(flow, setting, &expected.gradients, op);
    candidates.extend((last..flow.nodes.len()).find_map(changed));
    let end = if candidates.is_empty() { flow.nodes.len() } else { last + 1 };
    let differing: HashSet<usize> = (0..end).filter(|&op| flow.facts(op).any(Fact::differs)).collect();
    flow.excuse(&differing, REASON);
    Some(said)
}

/// Returns the error up to which ends agree.
fn bound(flow: &Flow<'_>, ends: &[Place], values: &[ExpectedError], setting: &Setting) -> f64 {
    // Where the difference reaches every product, nothing tells what rounding leaves.
    (ADDED_UP * rounding(flow, ends, values, setting)).min(LARGEST)
}

/// Returns the error that one op leaves in this part: that of the coarsest type, or of coarse products.
fn rounding(flow: &Flow<'_>, ends: &[Place], values: &[ExpectedError], setting: &Setting) -> f64 {
    let by_type = setting.coarsest.unwrap_or(&Precision::BINARY32).unknown;
    // Statistics do not tell what coarse products leave from what a difference makes.
    if ends.iter().any(|&place| flow.fact(place).statistics_only) {
        return by_type;
    }
    // A product behind a difference shows what that makes, and the finest of the others what all of them leave.
    let forward = values.iter().filter(|value| value.family.phase == Phase::Forward && is_large(value));
    let products = forward.filter(|value| value.is_product() && shows_own(value));
    let finest = products.map(|value| value.error).fold(f64::INFINITY, f64::min);
    let by_products = if finest.is_finite() { finest } else { 0.0 };
    by_type.max(by_products).hypot(drift(flow))
}

/// Returns what earlier steps have left in the weights: the root mean square of their errors, which add up in squares.
/// Where a module or an optimizer says what its parameters are, these count: what requires a gradient may also be a view
/// that nobody recorded, and as far off as what is judged.
fn drift(flow: &Flow<'_>) -> f64 {
    let paired = || flow.nodes.iter().enumerate().filter(|(_, node)| node.is_paired);
    let read = || paired().flat_map(|(op, node)| node.given().map(move |slot| (op, slot)));
    let parameters =
        read().filter(|&place| flow.side(place) == SlotSide::Parameter && is_one_kind(flow, place));
    let error = root_mean_square(flow, parameters)
        .or_else(|| root_mean_square(flow, read().filter(|&place| is_weight(flow, place))));
    error.unwrap_or(0.0)
}

/// Returns true if a value requires a gradient on both sides or on neither: a weight that is trained is not the same one as
/// a copy that follows it.
fn is_one_kind(flow: &Flow<'_>, (op, slot): Place) -> bool {
    let (b, c) = flow.pair.slot_at(op, slot);
    let requires = |slot: Option<&Slot>| slot?.value.tensor()?.requires_grad;
    requires(b) == requires(c)
}

/// Returns the root mean square of the errors at these places; `None` if there are none.
fn root_mean_square(flow: &Flow<'_>, places: impl Iterator<Item = Place>) -> Option<f64> {
    let (sum, count) = places.fold((0.0, 0.0), |(sum, count), place| {
        let error = flow.fact(place).relative();
        (error.mul_add(error, sum), count + 1.0)
    });
    (count > 0.0).then(|| f64::sqrt(sum / count))
}

/// Returns true for a weight, and not for what an op made and that requires a gradient.
fn is_weight(flow: &Flow<'_>, place: Place) -> bool {
    flow.is_weight(place) && flow.makers_of_both(place).next().is_none()
}

/// Returns true for an op that one side alone has, that reads another value there, or that was called with other sizes or
/// dimensions, unless it changes memory that a later step reads.
fn is_of_way(flow: &Flow<'_>, candidate: &Candidate, bound: f64) -> bool {
    let node = &flow.nodes[candidate.op];
    // The module around is named for what arrives between its functions.
    let shown = candidate.shown();
    // A user's limit holds whatever comes of it.
    let arrives = || {
        shown.is_some_and(|place| {
            let differs = matches!(
                flow.fact(place).difference,
                Difference::Numbers | Difference::Shape | Difference::Missing
            );
            differs && !is_weight(flow, place) && !flow.side(place).is_result()
        })
    };
    let is_other = match candidate.cause {
        Cause::Structure => true,
        Cause::Input => arrives(),
        // Where both sides have the same ops, what a module makes of equal inputs is its own, unless so much cannot be
        // lost on the way to the gradients.
        Cause::Numerics => {
            let is_large = || shown.is_some_and(|place| flow.fact(place).relative() > UNDONE * bound);
            candidate.seen.is_some() && (!flow.pair.substitutions.is_empty() || is_large()) && arrives()
        }
        Cause::Gradient => arrives() || is_other_factor(flow, candidate.op),
        Cause::Argument => {
            // How many of the largest are taken is chosen.
            (is_of_sizes(flow, candidate.op) && !choices::orders(node))
                || is_other_factor(flow, candidate.op)
                || reads_what_one_side_made(flow, candidate.op)
        }
        _ => false,
    };
    is_other && !node.traits.optimizes && !writes(node)
}

/// Returns true for a dispatcher op of the backward pass that has another number as argument: which one follows from what
/// the forward pass did.
fn is_other_factor(flow: &Flow<'_>, op: usize) -> bool {
    let node = &flow.nodes[op];
    let is_other = |slot| {
        matches!(flow.fact((op, slot)).difference, Difference::Argument | Difference::ComputedArgument)
    };
    node.is_dispatcher() && node.is_backward() && node.given().any(is_other)
}

/// Returns true for an op that is given what an op of one side alone made: its arguments say what that is, such as the
/// logarithm of a target.
fn reads_what_one_side_made(flow: &Flow<'_>, op: usize) -> bool {
    flow.nodes[op].given().any(|slot| flow.is_made_unpaired((op, slot)))
}

/// Returns true if all arguments of an op that differ are whole numbers: sizes and dimensions.
fn is_of_sizes(flow: &Flow<'_>, op: usize) -> bool {
    let is_whole = |slot: Option<&Slot>| match slot.map(|slot| &slot.value) {
        Some(Value::Scalar(Scalar::Number(number))) => matches!(number, Number::Int(_) | Number::UInt(_)),
        Some(Value::Scalar(Scalar::Text(_))) => false,
        _ => true,
    };
    let node = &flow.nodes[op];
    let differs =
        |slot: &usize| !matches!(flow.fact((op, *slot)).difference, Difference::None | Difference::Numbers);
    node.given().filter(differs).all(|slot| {
        let (b, c) = flow.pair.slot_at(op, slot);
        is_whole(b) && is_whole(c)
    })
}

/// Returns the gradients of parameters that both sides have, in execution order.
pub(super) fn gradients(flow: &Flow<'_>) -> impl Iterator<Item = Place> {
    let nodes = flow.nodes.iter().enumerate().filter(|(_, node)| node.is_paired);
    let nodes = nodes.filter(|(_, node)| node.op.name.phase() == Phase::ParameterGradient);
    nodes.flat_map(|(op, node)| node.results().map(move |slot| (op, slot)))
}

/// Returns true for a value that nothing reads: a loss, a gradient of a parameter.
pub(super) fn is_end(flow: &Flow<'_>, place: Place) -> bool {
    let (b, c) = flow.pair.slot_at(place.0, place.1);
    let sides = [b, c].into_iter().enumerate().filter_map(|(side, slot)| Some((side, slot?)));
    let readers = sides.flat_map(|(side, slot)| flow.values.readers(side, slot));
    // With a constant in the shape of the loss the backward pass begins.
    let mut readers = readers.filter(|&(reader, _)| flow.nodes[reader].traits.kind != Kind::Shaped);
    let node = &flow.nodes[place.0];
    let last = node.op.name.phase() == Phase::ParameterGradient || readers.all(|reader| reader.0 <= place.0);
    last && !node.traits.optimizes
}

/// Returns true if these gradients and the losses agree up to `bound`.
fn agree(flow: &Flow<'_>, gradients: &[Place], bound: f64) -> bool {
    let norm = |place: &Place| flow.fact(*place).norm;
    let size = gradients.iter().map(norm).fold(0.0, f64::max);
    // What cancels was made of what the gradients of its neighbours are made of: an embedding's may be a thousand times as large.
    let mut beside: HashMap<&str, f64> = HashMap::new();
    for place in gradients {
        let largest = beside.entry(around(flow, *place)).or_default();
        *largest = largest.max(norm(place));
    }
    let is_near = |place: &Place| {
        let fact = flow.fact(*place);
        match fact.difference {
            Difference::None => fact.exact || fact.is_measured,
            // One that is zero in exact arithmetic is noise, of the size that larger ones leave. What makes it cancel, as
            // keys do in front of a softmax, shifts whole rows: it is a vector. A matrix is off by what one op leaves.
            Difference::Numbers => {
                let error = fact.distance.max(fact.likely * fact.norm);
                let left = if flow.shape(*place).len() > 1 { bound / ADDED_UP } else { bound };
                let is_noise = error > UNJUDGED * fact.norm && error <= left * size;
                let cancels = beside.get(around(flow, *place)).is_some_and(|size| error <= CANCELLED * size);
                error <= bound * fact.norm || is_noise || cancels
            }
            _ => fact.allowed,
        }
    };
    let last = gradients.last().map_or(0, |place| place.0);
    size > 0.0 && gradients.iter().all(is_near) && losses(flow, last).all(|place| is_near(&place))
}

/// Returns the path of the module around that of a gradient; what has no path has none around it.
fn around<'f>(flow: &'f Flow<'_>, place: Place) -> &'f str {
    let module = flow.nodes[place.0].op.name.module_path().unwrap_or_default();
    module.rsplit_once('.').map_or("", |(around, _)| around)
}

/// Returns the numbers of the forward pass that no op reads, up to the last gradient: what is computed behind it (norms in
/// an optimizer) is judged as an update.
fn losses(flow: &Flow<'_>, last: usize) -> impl Iterator<Item = Place> {
    let nodes = flow.nodes.iter().enumerate().take(last).filter(|(_, node)| node.is_paired);
    let forward = nodes.filter(|(_, node)| node.op.name.phase() == Phase::Forward);
    let results = forward.flat_map(|(op, node)| node.results().map(move |slot| (op, slot)));
    results.filter(|&place| {
        let fact = flow.fact(place);
        fact.is_float && fact.len <= 1.0 && is_end(flow, place)
    })
}

#[cfg(test)]
mod tests {
    use super::{LARGEST, agree, drift, gradients};
    use crate::drawn::{Drawn, Part};

    #[test]
    fn a_vector_may_be_zero_in_exact_arithmetic_and_a_matrix_is_not() {
        let large = Drawn::normal(5, &[40, 30]);
        let agrees = |shape: &[u64]| {
            let small = Drawn::normal(6, shape).map(|value| 0.02 * value);
            let mut part = Part::default();
            part.op("Module.first.Linear.parameters_grad.0").tensor("grad.weight", &large, &large);
            part.tensor("grad.other", &small, &small.map(|value| 2.0 * value));
            part.flow(|flow| agree(flow, &gradients(flow).collect::<Vec<_>>(), LARGEST))
        };
        assert!(agrees(&[900]));
        assert!(!agrees(&[30, 30]));
    }

    #[test]
    fn rounding_that_cancels_is_measured_by_the_gradients_beside() {
        let (table, small) =
            (Drawn::normal(5, &[40, 30]), Drawn::normal(6, &[30, 30]).map(|value| 5e-4 * value));
        let agrees = |beside: &str| {
            let mut part = Part::default();
            part.op(&format!("Module.{beside}.Embedding.parameters_grad.0"));
            part.tensor("grad.weight", &table, &table);
            part.op("Module.model.block.query.Linear.parameters_grad.0");
            part.tensor("grad.weight", &small, &small.off(7, 3e-3));
            part.flow(|flow| agree(flow, &gradients(flow).collect::<Vec<_>>(), 1e-4))
        };
        assert!(agrees("model.block.table"));
        assert!(!agrees("model.table"));
    }

    #[test]
    fn what_a_module_says_of_its_parameters_is_the_drift() {
        let (x, w) = (Drawn::normal(1, &[40, 30]), Drawn::normal(2, &[30, 30]));
        let drift = |says: bool| {
            let mut part = Part::default();
            if says {
                part.op("Module.first.Linear.forward.0").tensor("parameter.weight", &w, &w.off(3, 1e-6));
            }
            // It may also be a view that nobody recorded.
            part.op("Torch.sin.0.forward").tensor("input.0", &x, &x.off(4, 0.01)).requires_grad();
            part.flow(drift)
        };
        assert!((drift(true) / 1e-6 - 1.0).abs() < 0.1, "{}", drift(true));
        assert!((drift(false) / 0.01 - 1.0).abs() < 0.1, "{}", drift(false));
    }

    #[test]
    fn a_weight_that_is_trained_on_one_side_alone_is_another_one() {
        let w = Drawn::normal(2, &[30, 30]);
        let mut part = Part::default();
        part.op("Module.first.Linear.forward.0").tensor("parameter.weight", &w, &w.off(3, 1e-6));
        part.op("Module.slow.Linear.forward.0").tensor("parameter.weight", &w, &w.off(4, 1e-2));
        part.trained_on_one_side();
        let drift = part.flow(drift);
        assert!((drift / 1e-6 - 1.0).abs() < 0.1, "{drift}");
    }
}
