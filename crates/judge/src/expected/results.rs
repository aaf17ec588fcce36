//! Results of ops: their errors, and what their inputs explain of them.

use super::super::excess::COARSE;
use super::super::flow::Flow;
use super::super::ops::Kind;
use super::super::precision::{Precision, of_run, of_sum};
use super::super::scale::{self, Scale};
use super::super::transfer::{self, InputError, centring, largest};
use super::super::value::{CommonFactor, ExpectedError, Family, ValueKind};
use super::lists::Together;
use super::{CANCELS, ONE_FACTOR, Place, WITHOUT_DIRECTION, Walk, conserved, single};
use probe_dump::{DType, Phase, shared};

/// Least part of the norm of uncorrelated terms that their sum has: with 30 elements, four deviations of `1 / sqrt(60)` below it.
const UNCORRELATED: f64 = 0.5;

/// A result and what led to it.
struct Result<'r> {
    place: Place,
    given: &'r [(Place, InputError)],
    saved: &'r [(Place, InputError)],
    /// Slots of the results that are made of the same, itself among them.
    beside: &'r [usize],
    dtype: DType,
    /// Precision of the computation.
    precision: &'static Precision,
}

impl Result<'_> {
    fn inputs(&self) -> impl Iterator<Item = &(Place, InputError)> + Clone {
        self.given.iter().chain(self.saved)
    }
}

impl Walk<'_, '_> {
    /// Weighs one result and returns its error, if known.
    pub(super) fn result(
        &mut self,
        place: Place,
        Together { given, results: beside }: &Together,
        saved: &[(Place, InputError)],
    ) -> Option<f64> {
        let node = &self.flow.nodes[place.0];
        let fact = self.flow.fact(place);
        if !fact.is_tensor || fact.len < 1.0 {
            return None;
        }
        if fact.is_float && fact.swamped && (fact.statistics_only || fact.relative() < 1e-10) {
            self.hide(place, given, saved);
            return None;
        }
        let known = fact.is_measured && !fact.unwritten && !fact.difference.hides_numbers();
        let is_weighed = fact.is_float && known;
        // A sketch or data show the whole error, however a value was made.
        let path = if is_weighed && !fact.statistics_only {
            0.0
        } else {
            largest(given.iter().chain(saved).map(|(place, _)| self.path(*place)))
        };
        if !is_weighed {
            self.note_made(place, path);
            return None;
        }
        let (dtype, precision) = fact.dtype.and_then(|dtype| Some((dtype, Precision::of(dtype)?)))?;
        let precision = self.computed_in(place, beside, precision, given.iter().chain(saved));
        let made = Result { place, given, saved, beside, dtype, precision };
        let error = self.weigh(&made);
        let step = match node.traits.kind {
            Kind::Copy => 0.0,
            Kind::Product | Kind::Recurrent | Kind::Attention => self.product.max(precision.least / 2.0),
            _ => precision.least / 2.0,
        };
        let path =
            path.hypot(step).hypot(self.let_through(place, saved)).max(self.hidden_in_sum(place, given));
        self.note_made(place, if fact.statistics_only { path } else { 0.0 });
        if node.op.name.phase() == Phase::ParameterGradient {
            self.note_gradient(place);
            return None;
        }
        let raw = error.min(fact.relative());
        if fact.len > 1.0 {
            self.worst = self.worst.max(raw);
            // Where terms cancel, its errors are those of a larger value.
            let share = if fact.relative() > 0.0 { raw / fact.relative() } else { 1.0 };
            self.at_extremes = self.at_extremes.max(share * fact.likely);
        }
        Some(raw)
    }

    /// Returns the error of a gradient that statistics hide where choices let elements through on one side only: an element of
    /// size `a` changes a norm `n` by `a^2 / 2 n` alone, so that the squares of both norms are apart by its own.
    fn let_through(&self, place: Place, saved: &[(Place, InputError)]) -> f64 {
        let (node, fact) = (&self.flow.nodes[place.0], self.flow.fact(place));
        let near = largest(saved.iter().map(|(_, error)| error.relative));
        let (b, c) = fact.norms;
        let is_open = fact.statistics_only && node.is_backward() && node.traits.chooses && b > 0.0;
        if is_open && transfer::may_flip(fact.len, near) {
            ((b * b - c * c).abs().sqrt() / b).min(1.0)
        } else {
            0.0
        }
    }

    /// Returns the error that the values have together of which a sum is made: where the larger one agrees, as along a
    /// residual connection, the extremes and the norm of the sum show little of it.
    fn hidden_in_sum(&self, place: Place, given: &[(Place, InputError)]) -> f64 {
        let (node, fact) = (&self.flow.nodes[place.0], self.flow.fact(place));
        if !fact.statistics_only || node.traits.kind != Kind::Add || fact.norm <= 0.0 {
            return 0.0;
        }
        given.iter().map(|(_, error)| error.absolute / fact.norm).fold(0.0, f64::hypot).min(1.0)
    }

    /// Passes on the error of the inputs below a sentinel that swamps the norm of a result.
    fn hide(&mut self, place: Place, given: &[(Place, InputError)], saved: &[(Place, InputError)]) {
        let floats = given.iter().chain(saved).filter(|(place, _)| self.flow.fact(*place).is_float);
        let error = InputError {
            relative: largest(floats.clone().map(|(_, error)| error.relative)),
            absolute: largest(floats.map(|(_, error)| error.absolute)),
        };
        if let Some(identity) = self.flow.fact(place).identity {
            self.hidden.insert(identity, error);
        }
        self.note_made(place, error.relative);
    }

    fn note_gradient(&mut self, place: Place) {
        let op = &self.flow.nodes[place.0].op;
        if let (Some(module), Some(slot)) = (op.name.module_path(), self.flow.slot(place)) {
            let parameter = slot.path.strip_prefix("grad.").unwrap_or(&slot.path);
            let error = self.flow.fact(place).relative();
            self.out.gradients.insert((module.into(), parameter.into()), error);
        }
    }

    /// Weighs a result whose error is known, and returns that error relative to the scale.
    fn weigh(&mut self, result: &Result<'_>) -> f64 {
        let (flow, place) = (self.flow, result.place);
        let (node, fact) = (&flow.nodes[place.0], flow.fact(place));
        let places =
            |inputs: &[(Place, InputError)]| inputs.iter().map(|(place, _)| *place).collect::<Vec<_>>();
        let scale = scale::of(flow, place, &places(result.given), &places(result.saved));
        let norm = scale.norm.max(self.unread_inside[place.0]).max(f64::MIN_POSITIVE);
        let error = (fact.distance / norm).min(f64::MAX);
        let unseen = self.unseen_gradient(place, result.given);
        // What an op does not conserve shows on its own side, however far apart the sides are.
        let changed = conserved::changed(flow, place);
        let explained = if changed.is_some() { 0.0 } else { self.explained(result, &scale, norm, unseen) };
        let error = changed.map_or(error, |changed| error.max(changed.error));
        let by = fact.identity.and_then(|identity| self.made.get(&identity)).map(|made| made.by.place());
        let again = by.is_some() && node.is_module();
        let leads = !result.given.is_empty() || !result.saved.is_empty();
        if again || !(leads || node.op.name.phase() != Phase::ParameterGradient) {
            return error;
        }
        let family = Family {
            role: ValueKind::Result,
            name: self.names.text(node.base),
            is_module: node.is_module(),
            phase: node.op.name.phase(),
            slot: self.names.text(slot_family(flow, place)),
            dtype: result.dtype,
        };
        let precision = result.precision;
        let growth = conditioned(flow, result) * of_sum(scale.terms).max(of_run(scale.run));
        let nothing = sums_zeros(flow, result);
        let equal = result.inputs().all(|(place, _)| {
            let fact = flow.fact(*place);
            fact.exact || !fact.is_tensor || !fact.differs()
        });
        let rounded = single(fact, precision)
            .hypot(precision.least * growth)
            .hypot(precision.spacing / 2.0 * fact.len.sqrt() / norm);
        let (least, unknown) =
            changed.map_or((rounded, precision.unknown * growth), |changed| (changed.least, changed.least));
        let takes_part = node.traits.kind == Kind::Copy && flow.resizes(place.0);
        self.out.values.push(ExpectedError {
            place,
            family: shared(&mut self.families, family),
            kind: node.traits.kind,
            precision,
            error,
            explained,
            least,
            unknown,
            call: by.filter(|_| node.op.name.phase() != Phase::Forward && !fact.exact).unwrap_or(place.0),
            clean: changed.is_some() || equal && unseen.is_none() && !nothing,
            statistics_only: fact.statistics_only && changed.is_none(),
            elements: fact.len,
            terms: if nothing { 1.0 } else { scale.terms },
            share: scale.share * scale.norm / norm,
            is_directed: false,
            gain: self
                .common_factor(result, norm, (error, explained))
                .filter(|_| unseen.is_none())
                .map(Box::new),
            remnant: None,
            // A part of a value has extremes of its own: those of the whole tell nothing of them.
            extremes: if takes_part { 0.0 } else { fact.extremes * fact.norm / norm },
        });
        error
    }

    /// Returns the part of a result's error that its inputs explain, relative to `norm`. `unseen` is the error of
    /// an incoming gradient that was not recorded.
    fn explained(&self, result: &Result<'_>, scale: &Scale, norm: f64, unseen: Option<f64>) -> f64 {
        let (flow, place) = (self.flow, result.place);
        let (node, fact) = (&flow.nodes[place.0], flow.fact(place));
        let mut explained = transfer::explained(flow, place, norm, result.given, result.saved);
        // Choices in the inputs, made inside, or made along with this result.
        let flipped = largest(result.inputs().map(|(place, _)| self.flipped(*place)))
            .max(self.flipped_inside[place.0])
            .max(largest(result.beside.iter().map(|&slot| self.flipped((place.0, slot)))));
        explained = explained.max(transfer::picked(flipped));
        if result.inputs().any(|(place, _)| flow.fact(*place).difference.hides_numbers()) {
            explained = explained.max(1.0);
        }
        if self.may_be_one_choice(place, result.given, result.saved)
            || self.is_rounded_to_the_next(place, result.given)
        {
            explained = explained.max(fact.distance / norm);
        }
        explained = explained.max(unseen.unwrap_or(0.0));
        // Ops of the dispatcher sum the rows in an op of its own, which may keep their dimension.
        let sums = node.makes_gradients() || node.is_backward() && node.traits.kind == Kind::Sum;
        let of_bias = sums && !flow.is_matrix(place);
        if of_bias && (fact.norm < UNCORRELATED * scale.norm || flow.pair.step > 0) {
            // The remainder of a cancelling sum is the common error of all its terms; drifted weights make one in all rows.
            explained *= scale.terms.sqrt();
        }
        if node.op.name.phase() == Phase::ParameterGradient {
            // Functions of the module make it, some of which may choose. Where they are not recorded, the gradient that
            // they pass on shows what they make of the incoming one.
            let calls = flow.calls(node.op, Phase::Backward).into_iter();
            let passed_on = |call: usize| {
                let results = flow.nodes[call].results().map(move |slot| flow.fact((call, slot)).relative());
                largest(results.filter(|_| flow.modules_alone && node.is_composite()))
            };
            explained = explained.max(largest(calls.map(|call| self.inside[call].max(passed_on(call)))));
        }
        if node.is_module() { explained.max(self.inside[place.0]) } else { explained }
    }

    /// Returns the common factor of a result of many elements, if nearly all of its error is one.
    fn common_factor(
        &self,
        result: &Result<'_>,
        norm: f64,
        (error, explained): (f64, f64),
    ) -> Option<CommonFactor> {
        let place = result.place;
        let (node, fact) = (&self.flow.nodes[place.0], self.flow.fact(place));
        // Rows of padding are all the same, and so are the deviations that are kept of them.
        let is_smaller =
            || result.given.iter().take(1).any(|(given, _)| self.flow.fact(*given).len > fact.len);
        let is_kept =
            node.traits.kind == Kind::Normalisation && !node.is_backward() && place.1 > 0 && is_smaller();
        let hides_it = fact.statistics_only
            && (self.has_few_directions(place) || self.reads_drifted_weight(result.given));
        let is_open = !node.is_composite()
            && !is_kept
            && !hides_it
            && fact.norm >= CANCELS * norm
            && fact.len >= WITHOUT_DIRECTION;
        let gain = CommonFactor {
            error: fact.gain().abs() * fact.norm / norm,
            explained: self.gain_explained(place, result.given, result.saved, explained),
            is_of_norm: fact.scales_norm_alone(),
        };
        Some(gain).filter(|gain| is_open && gain.error >= ONE_FACTOR * error)
    }

    /// Returns the error of a result's incoming gradient if that was not recorded, for example because an
    /// in-place op overwrites it: the error of the gradients that reached the readers of the forward result,
    /// or else the largest so far. `None` if it was recorded.
    fn unseen_gradient(&self, place: Place, given: &[(Place, InputError)]) -> Option<f64> {
        if !self.flow.lacks_gradient(place.0, given.iter().map(|(place, _)| *place)) {
            return None;
        }
        let made = || self.flow.saved(place.0).into_iter().filter(|&place| self.flow.side(place).is_result());
        let read = made().filter_map(|place| self.readers.get(&self.flow.fact(place).identity?)).flatten();
        let reached = read.filter_map(|&reader| self.passed_on(self.flow.backward_of(reader)?));
        Some(reached.reduce(f64::max).unwrap_or_else(|| {
            // The gradient of what was made has as many elements as that, and more than one of a parameter.
            let elements = largest(made().chain([place]).map(|place| self.flow.fact(place).len));
            self.worst.max(if self.gates { transfer::flipped_gates(elements, self.worst) } else { 0.0 })
        }))
    }

    /// Returns the error of the gradient that a backward op makes and that was not recorded: that of those which reached
    /// it, or of the choices by which it lets them through.
    pub(super) fn passed_on(&self, backward: usize) -> Option<f64> {
        let node = &self.flow.nodes[backward];
        let gradients =
            || node.given().map(|slot| (backward, slot)).filter(|&place| self.flow.fact(place).is_float);
        let error = gradients().map(|place| self.error(place).relative).reduce(f64::max)?;
        let near = largest(self.errors(self.flow.saved(backward)).iter().map(|(_, error)| error.relative));
        let elements = largest(gradients().map(|place| self.flow.fact(place).len));
        Some(if node.traits.chooses { error.max(transfer::flipped_gates(elements, near)) } else { error })
    }

    /// Returns the precision in which a result was computed, as far as dtypes show it: the coarsest of its
    /// inputs.
    fn computed_in<'x>(
        &self,
        place: Place,
        beside: &[usize],
        own: &'static Precision,
        inputs: impl Iterator<Item = &'x (Place, InputError)>,
    ) -> &'static Precision {
        let node = &self.flow.nodes[place.0];
        let of = |place: Place| {
            let fact = self.flow.fact(place);
            fact.dtype.filter(|_| fact.is_float && fact.len > 1.0).and_then(Precision::of)
        };
        let results = beside.iter().filter_map(|&slot| of((place.0, slot)));
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

/// Returns the factor by which rounding inside an op is larger than relative to its result.
fn conditioned(flow: &Flow<'_>, result: &Result<'_>) -> f64 {
    let node = &flow.nodes[result.place.0];
    if node.traits.kind == Kind::Normalisation && !node.is_backward() {
        return result.given.first().map_or(1.0, |(place, _)| centring(flow, node, *place));
    }
    if node.traits.kind == Kind::LogSoftmax && node.makes_gradients() {
        // At the label it is a probability less 1.
        let norm = flow.fact(result.place).norm.max(f64::MIN_POSITIVE);
        return (size_at_labels(flow, result).unwrap_or(0.0) / norm).max(1.0);
    }
    if scale::is_convolution(node.base) && node.makes_gradients() && result.precision.unit >= COARSE {
        return (overlaps(flow, result).unwrap_or(0.0) / 2.0).sqrt().max(1.0);
    }
    if node.base.contains("ctc_loss") && node.is_backward() {
        // Probabilities are kept as logarithms: rounding is relative to these, and a probability is off by as much
        // relative to itself.
        let kept = result.inputs().map(|(place, _)| flow.fact(*place)).filter(|fact| fact.is_float);
        return largest(kept.map(|fact| fact.largest)).max(1.0);
    }
    1.0
}

/// Returns the norm of the gradient of a classification whose labels have no probability yet: a mean gives each row its
/// part of the incoming gradient, a sum all of it.
fn size_at_labels(flow: &Flow<'_>, result: &Result<'_>) -> Option<f64> {
    let (op, slot) = result.place;
    let (incoming, _) = flow.nodes[op].incoming(result.given, result.saved);
    let incoming = flow.fact(incoming.first()?.0);
    if incoming.len > 1.0 {
        return Some(incoming.norm);
    }
    let classes = flow.shape((op, slot)).get(1).map_or(flow.fact((op, slot)).len, |&size| size as f64);
    let rows = flow.fact((op, slot)).len / classes.max(1.0);
    Some(if transfer::sums_rows(flow, op) {
        incoming.norm * rows.sqrt()
    } else {
        incoming.norm / rows.sqrt()
    })
}

/// Returns how many places of a kernel add to an element of the gradient of a convolution's input; `None` for its other gradients.
/// A device may add them up in a coarse type: `n` partial sums of uncorrelated terms, each rounded, leave `sqrt(n / 2)` times
/// what rounding the result leaves. With a stride, fewer places meet each element; a transposed convolution's gradient is a product.
fn overlaps(flow: &Flow<'_>, result: &Result<'_>) -> Option<f64> {
    let node = &flow.nodes[result.place.0];
    let (incoming, read) = node.incoming(result.given, result.saved);
    let input = read.first()?.0;
    let kernel = read.iter().skip(1).map(|&(place, _)| place).find(|&place| flow.shape(place).len() > 2)?;
    let is_of_input = flow.shape(result.place) == flow.shape(input);
    let is_transposed = node.base.to_ascii_lowercase().contains("transpose");
    let places = |place: Place| flow.shape(place).iter().skip(2).map(|&size| size as f64).product::<f64>();
    let each = places(incoming.first()?.0) / places(input).max(1.0);
    (is_of_input && !is_transposed).then(|| places(kernel) * each.min(1.0))
}

/// Returns true for sums of zeros, which say nothing about the summation; a zero bias does not matter.
fn sums_zeros(flow: &Flow<'_>, result: &Result<'_>) -> bool {
    result.given.iter().any(|(place, _)| {
        let fact = flow.fact(*place);
        fact.is_float && fact.norm <= 0.0 && flow.shape(*place).len() > 1
    })
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
