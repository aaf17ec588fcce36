//! Judges one step of one rank: walks the ops in execution order, so that every op is seen with what led to it.
//!
//! An op is judged in four steps: what it was given (`inputs`), what else led to it (the forward of a backward, the
//! weights inside a module), what it made of that (`results`), and which role that gives it (`role`).

mod drift;
mod inner;
mod inputs;
mod magnification;
mod results;
mod role;

use std::collections::{HashMap, HashSet};

use super::candidate::Candidate;
use super::judged::{Agreement, Difference, JudgedSlot, Led, SlotContext, verdict};
use super::nesting::Nesting;
use super::rulebook::RuleBook;
use super::setting::{Setting, is_uninitialised};
use super::slot::judge_slot;
use super::tolerance::{DTypeTolerance, Rules};
use super::{Cause, Counts, OpJudgement, PartJudgement, Role, SlotJudgement, Verdict, finding, origin};
use crate::dump::{Op, OpKind, Phase, Slot};
use crate::measure::Evidence;
use crate::pair::{Paired, PartPair};
use drift::Drift;
use inner::Inner;
use inputs::Inputs;

/// Results of a part that are fine, by the norms of both sides, with their error. Whoever reads such a tensor, in this
/// step or the next, was given nothing new.
#[derive(Debug, Clone, Default)]
pub struct Accepted(HashMap<(u64, u64), f64>);

impl Accepted {
    fn add(&mut self, (b, c): (f64, f64), error: f64) {
        self.0.insert((b.to_bits(), c.to_bits()), error);
    }

    fn error(&self, (b, c): (f64, f64)) -> Option<f64> {
        self.0.get(&(b.to_bits(), c.to_bits())).copied().filter(|_| b > 0.0)
    }
}

/// Judges one part. `evidence` holds one entry for every slot pair, in the order of [`PartPair::ops`]; `before` is what
/// was accepted of the same rank in the step compared before, as far as it is known.
pub fn judge_part(
    pair: &PartPair,
    evidence: &[Vec<Evidence>],
    rules: &Rules,
    before: &Accepted,
) -> (PartJudgement, Accepted) {
    let mut walk = Walk::new(pair, evidence, rules, before);
    for position in 0..pair.ops.len() {
        if matches!(pair.ops[position].ops, Paired::Both(..)) {
            walk.judge_op(position);
        } else {
            walk.judge_unpaired(position);
        }
    }
    let accepted = std::mem::take(&mut walk.accepted);
    (walk.finish(), accepted)
}

/// Whether something that was accepted before is blamed on the run's inputs here, since the part was judged without
/// knowing of it.
pub fn blames_accepted(
    judged: &PartJudgement,
    pair: &PartPair,
    evidence: &[Vec<Evidence>],
    before: &Accepted,
) -> bool {
    judged.findings.iter().filter(|finding| finding.cause == Cause::Input).any(|finding| {
        let (Some(op), Some(evidence)) = (pair.ops.get(finding.order), evidence.get(finding.order)) else {
            return false;
        };
        op.slots.iter().zip(evidence).any(|(&slots, evidence)| {
            let sides = pair.slot(op, slots);
            let read = sides.0.is_some_and(|slot| !slot.side.is_result());
            read && before.error(norms(sides, Some(evidence))).is_some()
        })
    })
}

/// Where a reproducible pair of runs stops being equal to the bit.
#[derive(Debug, Clone, Copy)]
struct FirstInexact {
    /// Position of the op; `None` when its inputs already were inexact, made so by something that was not recorded.
    origin: Option<usize>,
    /// Number of ops before it.
    exact_before: usize,
}

/// What later ops need to know of an op already judged.
#[derive(Debug, Clone, Copy, Default)]
struct Judged {
    inputs: Agreement,
    results: Agreement,
    explained: f64,
    error: f64,
    norm: f64,
    distance: f64,
}

/// Things said once for a part, counted on the way.
#[derive(Debug, Default)]
struct Tally {
    foreign_parameters: usize,
    foreign_inputs: usize,
    late_checksums: usize,
    alike_non_finite: usize,
    recorded_non_finite: usize,
}

struct Walk<'a> {
    pair: &'a PartPair,
    evidence: &'a [Vec<Evidence>],
    rules: &'a Rules,
    setting: Setting,
    book: RuleBook,
    by_name: HashMap<&'a str, usize>,
    nesting: Nesting<'a>,
    /// How well the weights inside each module agree, and the largest error of them: inputs of the module as well.
    inner_weights: Inner<'a, (Agreement, f64)>,
    /// Bounds of the coarsest float type of what the ops inside each module produce.
    inner_types: Inner<'a, DTypeTolerance>,
    /// Inputs judged ahead of their op, because an earlier entry depended on them.
    inputs: Vec<Option<Inputs>>,
    done: Vec<Option<Judged>>,
    ops: Vec<OpJudgement>,
    /// Largest error among fine results so far: what rounding has grown to.
    carried: f64,
    /// Largest error that accumulated rounding explains, raised where a choice between near-equal values flipped.
    limit: f64,
    /// Rounding has flipped a choice: single elements may be off by their whole magnitude from here on.
    flipped: bool,
    /// Baseline norms of results that are rounding and nothing else, with their relative error.
    noise: HashMap<u64, f64>,
    /// What was accepted of the step before.
    before: &'a Accepted,
    accepted: Accepted,
    /// What was noise in the step before.
    drift: Drift,
    /// Some result differs already, or some input of the run.
    diverged: bool,
    /// Norms of what the ops without partner produced, on the baseline and on the candidate.
    unpaired: [HashSet<u64>; 2],
    candidates: Vec<Candidate>,
    first_inexact: Option<FirstInexact>,
    exact_ops: usize,
    tally: Tally,
}

impl<'a> Walk<'a> {
    fn new(
        pair: &'a PartPair,
        evidence: &'a [Vec<Evidence>],
        rules: &'a Rules,
        before: &'a Accepted,
    ) -> Self {
        let named = pair.ops.iter().enumerate().map(|(position, op)| (pair.name(op), position));
        let setting = Setting::of(pair);
        let coarsest = setting.coarsest;
        Self {
            pair,
            evidence,
            rules,
            limit: coarsest.map_or(0.0, |coarsest| coarsest.accumulated),
            setting,
            book: RuleBook::default(),
            by_name: named.collect(),
            nesting: Nesting::of(pair),
            inner_weights: Inner::new(|a, b| (a.0.max(b.0), a.1.max(b.1))),
            inner_types: Inner::new(DTypeTolerance::coarser),
            inputs: pair.ops.iter().map(|_| None).collect(),
            done: vec![None; pair.ops.len()],
            ops: Vec::with_capacity(pair.ops.len()),
            carried: 0.0,
            flipped: false,
            noise: HashMap::new(),
            before,
            accepted: Accepted::default(),
            drift: pair.since.map_or_else(Drift::default, |since| Drift::of(pair, evidence, coarsest, since)),
            diverged: false,
            unpaired: Default::default(),
            candidates: Vec::new(),
            first_inexact: None,
            exact_ops: 0,
            tally: Tally::default(),
        }
    }

    /// The op of a pair as the baseline has it, or the candidate's where only that exists.
    fn op(&self, position: usize) -> Option<&'a Op> {
        let (b, c) = self.pair.op(self.pair.ops.get(position)?);
        b.or(c)
    }

    fn evidence_of(&self, position: usize, slot: usize) -> Option<&'a Evidence> {
        self.evidence.get(position)?.get(slot)
    }

    /// Judges one slot in the light of what led to it.
    fn judge_slot(&mut self, position: usize, slot: usize, led: Led) -> JudgedSlot {
        let op_pair = &self.pair.ops[position];
        let (b, c) = self.pair.slot(op_pair, op_pair.slots[slot]);
        let (Some(op), Some(any)) = (self.op(position), b.or(c)) else {
            return verdict(Verdict::Unknown, Difference::None, "");
        };
        let context = SlotContext {
            led: Led { flips: led.flips || self.flipped, ..led },
            coarsest: self.setting.coarsest,
            inside: self.computed_in(op),
            mixed_run: self.setting.mixed.is_some(),
            exact_task: self.setting.exact_task,
            uninitialised: is_uninitialised(op, any),
        };
        let evidence = self.evidence_of(position, slot).unwrap_or(&Evidence::Nothing);
        let judged = judge_slot(op.name.as_str(), (b, c), evidence, context, self.rules, &mut self.book);
        if judged.difference != Difference::NonFinite {
            match evidence {
                Evidence::Data(metrics) if metrics.baseline.non_finite() > 0 => {
                    self.tally.alike_non_finite += 1;
                }
                Evidence::Recorded(recorded) if recorded.baseline_non_finite && recorded.sketch.is_none() => {
                    self.tally.recorded_non_finite += 1;
                }
                _ => {}
            }
        }
        judged
    }

    /// Norm of a baseline tensor, from data or record; 0 where it is not known.
    fn norm(&self, position: usize, slot: usize) -> f64 {
        self.norms(position, slot).0
    }

    /// Norms of both sides.
    fn norms(&self, position: usize, slot: usize) -> (f64, f64) {
        let op_pair = &self.pair.ops[position];
        let sides = self.pair.slot(op_pair, op_pair.slots[slot]);
        norms(sides, self.evidence_of(position, slot))
    }

    /// Bounds of the coarsest type in which an op computes, where its results do not show it: inside a module, and in
    /// the backward pass, whose gradients may be of a finer type than what they were made from.
    fn computed_in(&self, op: &Op) -> Option<DTypeTolerance> {
        let inside = (op.name.kind() == OpKind::Module).then(|| self.inner_types.inside(op)).flatten();
        let own = (op.name.phase() != Phase::Forward).then_some(self.setting.coarsest).flatten();
        inside.into_iter().chain(own).reduce(DTypeTolerance::coarser)
    }

    /// Whether a slot holds, on either side, what an op without partner produced on that side.
    fn is_of_unpaired(&self, position: usize, slot: usize) -> bool {
        let op_pair = &self.pair.ops[position];
        let (b, c) = self.pair.slot(op_pair, op_pair.slots[slot]);
        [b, c].into_iter().zip(&self.unpaired).any(|(slot, norms)| {
            let norm = recorded_norm(slot);
            norm > 0.0 && norms.contains(&norm.to_bits())
        })
    }

    fn judge_op(&mut self, position: usize) {
        let Some(op) = self.op(position) else { return };
        self.judge_inputs(position);
        let mut inputs = self.inputs[position].take().unwrap_or_default();
        self.add_what_led_here(op, &mut inputs);
        let results = self.judge_results(position, op, &inputs);
        if results.agreement == Agreement::Exact {
            self.forgive_late_checksums(position, &mut inputs);
        }
        let (role, cause, worst) = self.decide(position, op, &inputs, &results);
        self.note_exactness(position, &inputs, &results);
        self.done[position] = Some(Judged {
            inputs: inputs.agreement,
            results: results.agreement,
            explained: inputs.explained.max(if results.agreement.is_fine() {
                results.error.unwrap_or(0.0)
            } else {
                self.carried
            }),
            error: inputs.error.unwrap_or(0.0).max(results.error.unwrap_or(0.0)),
            norm: inputs.norm,
            distance: inputs.distance,
        });
        self.diverged |= !results.agreement.is_fine();
        self.note_types(position, op);
        let (input_error, output_error) = (inputs.error, results.error);
        let mut slots: Vec<(usize, SlotJudgement)> = inputs
            .judged
            .into_iter()
            .chain(results.judged)
            .map(|(index, slot)| (index, slot.judgement))
            .collect();
        slots.sort_unstable_by_key(|(index, _)| *index);
        let slots: Vec<SlotJudgement> = slots.into_iter().map(|(_, judgement)| judgement).collect();
        let verdict = slots.iter().map(|slot| slot.verdict).max().unwrap_or(Verdict::Unknown);
        self.ops.push(OpJudgement {
            role,
            cause,
            verdict,
            input_error,
            output_error,
            worst,
            reason: Box::default(),
            slots,
        });
    }

    /// Remembers in which types an op computes, for the modules around it.
    fn note_types(&mut self, position: usize, op: &'a Op) {
        let op_pair = &self.pair.ops[position];
        let results = op_pair.slots.iter().filter_map(|&slots| self.pair.slot(op_pair, slots).0);
        let types = results
            .filter(|slot| slot.side.is_result())
            .filter_map(|slot| slot.value.tensor()?.dtype.known())
            .filter_map(DTypeTolerance::of);
        if let Some(coarsest) = types.reduce(DTypeTolerance::coarser) {
            self.inner_types.add(&self.nesting, op, coarsest);
        }
    }

    fn judge_unpaired(&mut self, position: usize) {
        let op_pair = &self.pair.ops[position];
        for &slots in &op_pair.slots {
            let (b, c) = self.pair.slot(op_pair, slots);
            for (slot, norms) in [b, c].into_iter().zip(&mut self.unpaired) {
                if slot.is_some_and(|slot| slot.side.is_result()) {
                    norms.insert(recorded_norm(slot).to_bits());
                }
            }
        }
        let count = op_pair.slots.len();
        let slots =
            (0..count).map(|slot| self.judge_slot(position, slot, Led::default()).judgement).collect();
        self.ops.push(OpJudgement {
            role: Role::Unpaired,
            cause: None,
            verdict: Verdict::Missing,
            input_error: None,
            output_error: None,
            worst: None,
            reason: Box::default(),
            slots,
        });
    }

    fn finish(mut self) -> PartJudgement {
        // A part that could only be read to some point misses the rest for that reason.
        let truncated = !self.pair.baseline.faults.is_empty() || !self.pair.candidate.faults.is_empty();
        let unpaired = self.pair.ops.iter().position(|op| !matches!(op.ops, Paired::Both(..)));
        if let Some(op) = unpaired.filter(|_| !truncated) {
            self.candidates.push(Candidate {
                op,
                slot: None,
                cause: Cause::Structure,
                arrived: false,
                seen: None,
            });
        }
        let mut candidates = origin::of_candidates(self.pair, &self.nesting, &self.candidates, &mut self.ops);
        if let Some(FirstInexact { origin: Some(position), exact_before }) = self.first_inexact {
            origin::walk_back(&mut candidates, position, exact_before, &self.ops);
        }
        let mut notes = self.notes(&candidates);
        notes.extend(self.pair.baseline.notes.iter().chain(&self.pair.candidate.notes).cloned());
        candidates.sort_by_key(|candidate| candidate.op);
        let findings: Vec<_> = candidates
            .iter()
            .map(|candidate| finding::describe(self.pair, self.evidence, &self.ops, candidate))
            .collect();
        for finding in &findings {
            if let Some(op) = self.ops.get_mut(finding.order) {
                op.reason = finding.reason.as_str().into();
                op.cause = Some(finding.cause);
            }
        }
        let counts = count(self.pair, &self.ops);
        PartJudgement { ops: self.ops, rules: self.book.into_texts(), findings, notes, counts }
    }

    fn notes(&self, candidates: &[Candidate]) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some((b, c, count)) = self.setting.mixed {
            notes.push(format!(
                "mixed-precision pair: the baseline computes in {b}, the candidate in {c} ({count} tensors); errors are judged at the precision of the coarser type"
            ));
        }
        let collection = self.pair.baseline.ops.first().is_some_and(|op| op.name.kind() == OpKind::Tensor);
        if candidates.iter().any(|candidate| candidate.cause == Cause::Input) && !collection {
            notes.push(format!(
                "the run's own inputs or weights already differ ({} parameters, {} inputs); each op is judged by its output error relative to its input error",
                self.tally.foreign_parameters, self.tally.foreign_inputs
            ));
        }
        if self.drift.len() > 0 {
            notes.push(format!(
                "{} of {} weights and inputs have drifted since the step compared before, by up to {:.1e}, while most agree: rounding noise in gradients, which an optimizer that divides by their size turns into full steps; it is no fault of an op",
                self.drift.len(),
                self.drift.tensors,
                self.drift.largest()
            ));
        }
        if self.tally.late_checksums > 0 {
            notes.push(format!(
                "the hash of {} inputs differs although their statistics and all results of their ops agree: the capture took it late, from memory already written to",
                self.tally.late_checksums
            ));
        }
        if self.tally.alike_non_finite > 0 {
            notes.push(format!(
                "{} tensors hold non-finite values on both sides alike; their other elements were compared",
                self.tally.alike_non_finite
            ));
        }
        if self.tally.recorded_non_finite > 0 {
            notes.push(format!(
                "{} tensors hold non-finite values on both sides; at which places, and what else they hold, their statistics cannot tell",
                self.tally.recorded_non_finite
            ));
        }
        notes
    }
}

/// Norms of both sides of a pair of slots, from data or record; 0 where not known. Tensors are known again by them.
fn norms((b, c): (Option<&Slot>, Option<&Slot>), evidence: Option<&Evidence>) -> (f64, f64) {
    match evidence {
        Some(Evidence::Data(metrics)) => (metrics.baseline.norm, metrics.candidate.norm),
        _ => (recorded_norm(b), recorded_norm(c)),
    }
}

/// Norm of a tensor as recorded; 0 where it is not known.
fn recorded_norm(slot: Option<&Slot>) -> f64 {
    let record = slot.and_then(|slot| slot.value.tensor());
    let norm = record.and_then(|record| record.statistics.norm).map_or(0.0, f64::abs);
    if norm.is_finite() { norm } else { 0.0 }
}

fn count(pair: &PartPair, ops: &[OpJudgement]) -> Counts {
    let mut counts = Counts { parts: 1, ..Counts::default() };
    for (op_pair, judged) in pair.ops.iter().zip(ops) {
        match op_pair.ops {
            Paired::Both(..) => counts.ops_paired += 1,
            Paired::BaselineOnly(_) => counts.ops_baseline_only += 1,
            Paired::CandidateOnly(_) => counts.ops_candidate_only += 1,
        }
        counts.roles[judged.role as usize] += 1;
        for slot in &judged.slots {
            counts.verdicts[slot.verdict as usize] += 1;
        }
    }
    counts
}

/// The larger of two errors, of which either may be unknown.
fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    [a, b].into_iter().flatten().reduce(f64::max)
}
