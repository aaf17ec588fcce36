//! Steps that the two runs split into unlike numbers of micro-batches: gradient accumulation for a larger batch.
//!
//! The calls on parts of a batch and those on the whole compute different things, so none of them can be held against
//! another; the gradients that the optimizer reads can, and what it makes of them is judged as in any other run.

use std::collections::{HashMap, HashSet};

use super::Structure;
use super::options::other_option;
use crate::Cause;
use crate::candidate::{Beyond, Candidate};
use crate::difference::Difference;
use crate::excess::BEYOND;
use crate::flow::{Flow, Place};
use crate::median::median;
use crate::ops::Kind;
use probe_dump::{Scalar, Slot, Value};

/// Largest usual error of gradients, as a multiple of the error that one op leaves: rounding adds up as the root of the
/// number of ops that a gradient passed through, and 256 of them give 16.
const DEEP: f64 = 16.0;

/// Unit roundoff of products in TF32 and HF32: half of 2^-10. The products of a batch and of its parts cannot be held
/// against one another, so what shows that a device rounds them is missing.
const COARSE: f64 = 1.0 / 2048.0;

/// Calls of equal sizes for each resized one, up to which a batch may have been split. Small models have more of the former than of the
/// latter; a step under context parallelism had 160, of which the latter only packed its tokens otherwise.
const USUAL: usize = 10;

/// Errors from which gradients may share a factor.
const PLAIN: f64 = 0.1;

/// Numbers of micro-batches of one step, of the baseline and of the candidate; one of them is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MicroBatches([u64; 2]);

impl MicroBatches {
    /// Returns the numbers, if the sides split a batch differently: most of what differs in shape is so many times as long
    /// on one side, the other side makes most of these calls again, and they are more than a few among those of equal sizes.
    pub(super) fn of(flow: &Flow<'_>) -> Option<Self> {
        let (ratio, larger) = ratio_of_batches(flow)?;
        let called = |op: usize| <[_; 2]>::from(flow.pair.op(&flow.pair.ops[op]))[1 - larger].is_some();
        let ops = || (0..flow.nodes.len()).filter(|&op| !flow.nodes[op].traits.optimizes);
        let unpaired = ops().filter(|&op| !flow.nodes[op].is_paired && called(op));
        let again: HashSet<&str> = unpaired.map(|op| flow.nodes[op].base).collect();
        let is_resized = |op: usize| flow.facts(op).any(|fact| fact.difference == Difference::Shape);
        let resized = ops().filter(|&op| flow.nodes[op].is_paired && is_resized(op));
        let (repeated, once): (Vec<usize>, Vec<usize>) =
            resized.partition(|&op| again.contains(flow.nodes[op].base));
        let is_float = |op: usize, slot: usize| {
            let fact = flow.fact((op, slot));
            fact.is_float && fact.len > 1.0
        };
        let kept = ops().filter(|&op| {
            let node = &flow.nodes[op];
            let makes = node.results().any(|slot| is_float(op, slot));
            node.is_paired && !node.is_backward() && makes && !is_resized(op)
        });
        let mut counts = [1, 1];
        counts[1 - larger] = ratio;
        (repeated.len() > once.len().max(kept.count() / USUAL)).then_some(Self(counts))
    }

    /// Judges the step by the gradients that its optimizer reads, and removes from `candidates` what follows from the
    /// sizes. `rounding` is the error that one op leaves. `None` if no optimizer was recorded.
    pub(super) fn judged(
        self,
        flow: &Flow<'_>,
        rounding: f64,
        candidates: &mut Vec<Candidate>,
    ) -> Option<Structure> {
        let gradients = Gradients::of(flow)?;
        let of_update = |op: usize| flow.nodes[op].traits.optimizes;
        let is_chosen = |candidate: &Candidate| {
            candidate.cause == Cause::Argument
                && asked(flow, candidate.op)
                && !self.explains_arguments(flow, candidate.op)
        };
        candidates.retain(|candidate| of_update(candidate.op) || is_chosen(candidate));
        let rewritten: HashSet<usize> = (0..flow.nodes.len()).filter(|&op| !of_update(op)).collect();
        let is_named = candidates.iter().any(|candidate| candidate.cause == Cause::Argument);
        let argument = || self.argument(flow, gradients.usual() > DEEP * rounding);
        let fault =
            (!is_named).then(|| argument().or_else(|| gradients.fault(flow, rounding, self))).flatten();
        if fault.is_some() {
            candidates.clear();
        }
        let agree = fault.is_none() && candidates.is_empty();
        let excuse = "one side computes it for a micro-batch, the other for the batch";
        Some(Structure { note: Some(self.remark(agree)), fault, rewritten, other_call: None, excuse })
    }

    /// Returns the first op that both sides call with another option; where the gradients are `off`, with any other argument.
    fn argument(self, flow: &Flow<'_>, off: bool) -> Option<Candidate> {
        other_option(flow).or_else(|| {
            let differs = |op: usize| flow.facts(op).any(|fact| fact.difference == Difference::Argument);
            let mut paired = (0..flow.nodes.len()).filter(|&op| off && asked(flow, op) && differs(op));
            let op = paired.find(|&op| !self.explains_arguments(flow, op))?;
            Some(Candidate::at(op, flow.nodes[op].results().next(), Cause::Argument))
        })
    }

    /// Returns true if the arguments in which two calls differ are those of another size, or of another number of
    /// micro-batches; those of a copy say which rows it takes.
    fn explains_arguments(self, flow: &Flow<'_>, op: usize) -> bool {
        if flow.nodes[op].traits.kind == Kind::Copy {
            return true;
        }
        let [of_b, of_c] = self.0.map(|count| count as f64);
        // Whole numbers, so products are exact.
        let same = |x: f64, y: f64| x.to_bits() == y.to_bits();
        let of_size =
            |(&b, &c): (&f64, &f64)| same(b, c) || same(b * of_b, c * of_c) || same(b * of_c, c * of_b);
        flow.nodes[op].given().all(|slot| {
            let (b, c) = flow.pair.slot_at(op, slot);
            match flow.fact((op, slot)).difference {
                Difference::Argument => match (numbers(b), numbers(c)) {
                    (Some(b), Some(c)) => b.len() == c.len() && b.iter().zip(&c).all(of_size),
                    _ => false,
                },
                Difference::Missing => b.or(c).is_some_and(|slot| slot.value.tensor().is_some()),
                _ => true,
            }
        })
    }

    fn remark(self, agree: bool) -> String {
        let [baseline, candidate] = self.0;
        let (side, count) =
            if baseline > candidate { ("baseline", baseline) } else { ("candidate", candidate) };
        let end = if agree {
            "the gradients that the optimizer reads agree"
        } else {
            "its gradients and updates are"
        };
        format!(
            "the {side} computes the step in {count} micro-batches, the other side in one: their values are not compared (--rows compares the rows that both sides have); {end}"
        )
    }
}

/// The gradients that optimizers read, of both sides.
struct Gradients {
    /// Places and relative errors.
    errors: Vec<(Place, f64)>,
    /// Largest norm: what a gradient that cancels was a sum of.
    largest: f64,
}

impl Gradients {
    fn of(flow: &Flow<'_>) -> Option<Self> {
        let mut found = Self { errors: Vec::new(), largest: 0.0 };
        for (op, node) in flow.nodes.iter().enumerate() {
            let is_step = node.is_paired && node.op.name.stem().starts_with("Optimizer.");
            for slot in node.given().filter(|_| is_step) {
                let fact = flow.fact((op, slot));
                let path = flow.slot((op, slot)).map_or("", |slot| &*slot.path);
                if path.starts_with("input.grad.") && (fact.is_measured || fact.exact) {
                    found.errors.push(((op, slot), fact.relative()));
                    found.largest = found.largest.max(fact.norm);
                }
            }
        }
        (!found.errors.is_empty()).then_some(found)
    }

    /// Returns the median error.
    fn usual(&self) -> f64 {
        median(&mut self.errors.iter().map(|(_, error)| *error).collect::<Vec<f64>>())
    }

    /// Returns the gradient that is furthest off, if rounding does not explain it.
    fn fault(&self, flow: &Flow<'_>, rounding: f64, batches: MicroBatches) -> Option<Candidate> {
        let usual = self.usual().clamp(rounding, DEEP * rounding.max(COARSE));
        let is_off = |&&(place, error): &&(Place, f64)| {
            let cancels = flow.fact(place).distance <= usual * self.largest;
            error > BEYOND * usual && !cancels
        };
        let off: Vec<&(Place, f64)> = self.errors.iter().filter(is_off).collect();
        let &&((op, slot), error) = off.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let said = match self.factor(flow) {
            Some(factor) => format!(
                "the gradients are {factor:.3} times the baseline's: with {} micro-batches against {}, each loss is divided by their number",
                batches.0[1], batches.0[0]
            ),
            None => "the gradients of the whole step differ; a mean over micro-batches of unlike numbers of tokens is not that of the batch".to_owned(),
        };
        let beyond = Some(Beyond { error, expected: usual });
        Some(Candidate { said, beyond, ..Candidate::at(op, Some(slot), Cause::Gradient) })
    }

    /// Returns the factor that most gradients share, from their norms, if it is none of rounding.
    fn factor(&self, flow: &Flow<'_>) -> Option<f64> {
        let ratios = self.errors.iter().map(|(place, _)| flow.fact(*place).norms);
        let ratios = ratios.filter(|(b, c)| *b > 0.0 && *c > 0.0).map(|(b, c)| c / b);
        let mut ratios: Vec<f64> = ratios.collect();
        let factor = median(&mut ratios);
        let alike = ratios.iter().filter(|ratio| (*ratio / factor - 1.0).abs() < 1e-3).count();
        (2 * alike > ratios.len() && (factor - 1.0).abs() > PLAIN).then_some(factor)
    }
}

/// Returns how many times as long one side's tensors are in their first dimension, and the side that has the longer ones,
/// if that is the usual difference in shape.
fn ratio_of_batches(flow: &Flow<'_>) -> Option<(u64, usize)> {
    let mut counts: HashMap<(u64, usize), usize> = HashMap::new();
    let mut all = 0_usize;
    let paired = flow.nodes.iter().enumerate().filter(|(_, node)| node.is_paired);
    for place in paired.flat_map(|(op, node)| (0..node.slot_count()).map(move |slot| (op, slot))) {
        if flow.fact(place).difference != Difference::Shape {
            continue;
        }
        all += 1;
        let (b, c) = flow.pair.slot_at(place.0, place.1);
        let (Some((b, b_row)), Some((c, c_row))) = (rows(b), rows(c)) else { continue };
        let (long, short, side) = if b > c { (b, c, 0) } else { (c, b, 1) };
        if b_row == c_row && short > 0 && long > short && long % short == 0 {
            *counts.entry((long / short, side)).or_default() += 1;
        }
    }
    let (&found, &count) = counts.iter().max_by_key(|(found, count)| (**count, **found))?;
    (2 * count > all).then_some(found)
}

/// Returns the numbers of an argument: its value, or those of a printed list.
fn numbers(slot: Option<&Slot>) -> Option<Vec<f64>> {
    match &slot?.value {
        Value::Scalar(Scalar::Number(number)) => Some(vec![number.as_f64()]),
        Value::Scalar(Scalar::Printed(printed)) => {
            let list = printed.text.trim_matches(['[', ']', '(', ')']);
            list.split(',').map(|number| number.trim().parse().ok()).collect()
        }
        _ => None,
    }
}

/// Returns the first dimension of a tensor, and the others.
fn rows(slot: Option<&Slot>) -> Option<(u64, &[u64])> {
    slot?.value.tensor()?.shape.split_first().map(|(first, others)| (*first, others))
}

/// Returns true for an op whose arguments are compared: the order of the backward pass pairs ops of the dispatcher across
/// micro-batches.
fn asked(flow: &Flow<'_>, op: usize) -> bool {
    let node = &flow.nodes[op];
    node.is_paired && !(node.is_dispatcher() && node.is_backward())
}
