//! Describes a faulty op in words and numbers.

use super::candidate::{Beyond, Candidate};
use super::{
    Cause, ErrorPlace, Extremes, Finding, LargestError, Located, OpJudgement, PartEvidence, ReferenceErrors,
    SlotJudgement, frames, repeated,
};
use probe_dump::{Number, Op, OpKind, OpName, Phase, Rank, Slot, Stack, TensorRecord, Value};
use probe_measure::{Evidence, Metric, SketchEstimate};
use probe_pair::{BySlot, OpPair, Paired, PartPair};

/// Describes a candidate.
pub(super) fn describe(
    pair: &PartPair,
    evidence: &PartEvidence,
    (ops, slots): (&[OpJudgement], &BySlot<SlotJudgement>),
    candidate: &Candidate,
) -> Finding {
    let op_pair = &pair.ops[candidate.op];
    let (b, c) = pair.op(op_pair);
    let judged = &ops[candidate.op];
    let slot_pair = candidate.slot.map(|slot| pair.slot_at(candidate.op, slot));
    let slot_evidence = candidate.slot.map_or(&Evidence::Nothing, |slot| evidence.at(candidate.op, slot));
    let slot = slot_pair.and_then(|(b, c)| b.or(c)).map_or_else(String::new, |slot| slot.path.to_string());
    let reason = match candidate.seen {
        Some(seen) => hidden(pair, evidence, slots, seen, candidate.beyond),
        None => reason(pair, candidate, (judged, &slots[candidate.op]), slot_evidence, &slot),
    };
    let recorded = stack_of(pair, op_pair.ops);
    let stack = recorded.map_or_else(Vec::new, |stack| frames::user_frames(stack));
    let source = recorded.and_then(|stack| frames::source_line(stack));
    let name = b.or(c).map(|op| &op.name);
    Finding {
        step: pair.step,
        rank: pair.rank,
        order: candidate.op,
        op: name.map_or_else(String::new, ToString::to_string),
        slot,
        cause: candidate.cause,
        role: judged.role,
        metrics: slot_evidence.metrics(),
        basis: slot_evidence.basis(),
        reference: ReferenceErrors::default(),
        place: slot_pair.and_then(|(b, c)| place(slot_evidence, b?, c?)),
        reason,
        followers: 0,
        stack,
        source,
        module: b.or(c).and_then(module_of),
        below: Vec::new(),
        caller: None,
        collectives: 0,
    }
}

impl Finding {
    /// Takes the numbers of the slot that it names now, after it was moved there.
    pub fn measure(&mut self, pair: &PartPair, evidence: &PartEvidence) {
        let Some(op) = pair.ops.get(self.order) else { return };
        let sides = op.slots.iter().map(|slots| pair.slot(op, slots));
        let named =
            |(b, c): (Option<&Slot>, Option<&Slot>)| b.or(c).is_some_and(|slot| *slot.path == *self.slot);
        let Some((slot, (b, c))) = sides.enumerate().find(|(_, sides)| named(*sides)) else { return };
        let shown = evidence.at(self.order, slot);
        (self.metrics, self.basis) = (shown.metrics(), shown.basis());
        self.place = b.zip(c).and_then(|(b, c)| place(shown, b, c));
    }
}

/// Text for an error that cannot be related to the baseline's size.
pub(super) const ALL_ZERO: &str = "the baseline is all zero, the candidate is not";

/// Describes a fault that shows at an inner op but not in the op's own results.
fn hidden(
    pair: &PartPair,
    evidence: &PartEvidence,
    slots: &BySlot<SlotJudgement>,
    (op, slot): (usize, usize),
    beyond: Option<Beyond>,
) -> String {
    let op_pair = &pair.ops[op];
    let (b, c) = pair.slot_at(op, slot);
    let path = b.or(c).map_or("", |slot| &*slot.path);
    let said = slots.at(op, slot).map_or("", |slot| &*slot.reason);
    let shown = evidence.at(op, slot);
    format!(
        "inputs agree, but what it passes to {} {path} differs, {}; computed between its submodules, which this level does not record",
        pair.name(op_pair),
        numbers(shown, said, beyond)
    )
}

fn reason(
    pair: &PartPair,
    candidate: &Candidate,
    (judged, slots): (&OpJudgement, &[SlotJudgement]),
    evidence: &Evidence,
    slot: &str,
) -> String {
    let op_pair = &pair.ops[candidate.op];
    let said = candidate.slot.and_then(|slot| slots.get(slot)).map_or("", |slot| &*slot.reason);
    let numbers = numbers(evidence, said, candidate.beyond);
    let mut parts: Vec<String> = Vec::new();
    match candidate.cause {
        Cause::Structure if !matches!(op_pair.ops, Paired::Both(..)) || candidate.slot.is_none() => {
            parts.extend([structure(op_pair.ops), candidate.said.clone()]);
        }
        Cause::Argument | Cause::Optimizer if !candidate.said.is_empty() => {
            parts.push(candidate.said.clone());
        }
        Cause::Argument => {
            parts.extend(arguments(pair, candidate, slots));
            if !slot.starts_with("input") && !slot.starts_with("kwarg") {
                parts.push(numbers);
            } else {
                parts.push("the outputs agree".to_owned());
            }
        }
        Cause::Input => {
            let is_weight = slot.starts_with("parameter");
            parts.extend(is_weight.then(|| "the weight itself differs".to_owned()));
            parts.push(
                if is_weight || !candidate.said.is_empty() {
                    &candidate.said
                } else if follows_modules_alone(pair, candidate.op) {
                    "differs on arrival, no recorded op caused it, but functions between modules are recorded only at levels mix, api and op"
                } else {
                    "differs on arrival, no recorded op caused it"
                }
                .to_owned(),
            );
            parts.push(numbers);
        }
        Cause::NonFinite | Cause::Gradient if candidate.arrived => {
            parts
                .push("its incoming gradient differs although every op recorded before it agrees".to_owned());
            parts.push(if candidate.cause == Cause::NonFinite { said.to_owned() } else { numbers });
        }
        Cause::Structure | Cause::Gradient if !candidate.said.is_empty() && slot.starts_with("input") => {
            parts.extend([candidate.said.clone(), numbers]);
        }
        Cause::NonFinite | Cause::DType | Cause::Structure => {
            let inputs = inputs(pair, candidate.op, (judged, slots), evidence);
            parts.extend([inputs, said.to_owned(), candidate.said.clone()]);
        }
        // A cause `Layout` is given behind this, by the layouts of a run on many ranks.
        Cause::Numerics | Cause::Gradient | Cause::Optimizer | Cause::Layout => {
            parts.extend([
                inputs(pair, candidate.op, (judged, slots), evidence),
                numbers,
                candidate.said.clone(),
            ]);
            if let Some(hint) = random_hint(pair.name(op_pair)) {
                parts.push(hint.to_owned());
            }
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// Returns true if only modules were recorded before this op: arriving values may have been made between them.
fn follows_modules_alone(pair: &PartPair, position: usize) -> bool {
    let kind = |op_pair: &OpPair| {
        let (b, c) = pair.op(op_pair);
        b.or(c).map(|op| op.name.kind())
    };
    let before = &pair.ops[..position];
    !before.is_empty() && before.iter().all(|op| kind(op) == Some(OpKind::Module))
}

/// Describes how well the inputs agree.
fn inputs(
    pair: &PartPair,
    position: usize,
    (judged, slots): (&OpJudgement, &[SlotJudgement]),
    evidence: &Evidence,
) -> String {
    let agree = match judged.input_error.get() {
        None => return "no comparable inputs".to_owned(),
        Some(error) if error > 0.0 => format!("inputs agree to {error:.1e}"),
        Some(_) if evidence.is_estimate() && !hashed(evidence) => "inputs have equal statistics".to_owned(),
        Some(_) => "inputs bit-equal".to_owned(),
    };
    match &*repeated::inputs(pair, position, slots) {
        [] => agree,
        paths => {
            format!(
                "{agree} except for the shapes of {}, which one side repeats with extra ops",
                paths.join(" and ")
            )
        }
    }
}

/// Returns true if hashes can prove equality of bits.
fn hashed(evidence: &Evidence) -> bool {
    matches!(evidence, Evidence::Recorded(recorded) if recorded.sketch.is_some() && recorded.checksum.is_some())
}

/// Returns the most telling metrics, with the expected error, and the verdict's reason if the metrics do not
/// state it.
fn numbers(evidence: &Evidence, said: &str, beyond: Option<Beyond>) -> String {
    let rel_l2 = evidence.metric(Metric::RelL2);
    let resolved = |sketch: &SketchEstimate| sketch.is_resolved();
    // A user bound on the number that is already shown.
    let more = if said.starts_with("rel_l2") { "" } else { said };
    let mut parts = Vec::new();
    match evidence {
        Evidence::Data(kept) => {
            let metrics = kept.metrics();
            parts.extend(errors(rel_l2, ["", ""], beyond));
            parts.extend(metrics.cosine.map(|cosine| format!("cosine {cosine:.6}")));
            if metrics.both_finite == 1
                && let Some((b, c)) = metrics.max_abs_values
            {
                parts.push(format!("{b:e} against {c:e}"));
            }
            parts.push(more.to_owned());
        }
        Evidence::Recorded(recorded) if recorded.sketch.as_deref().is_some_and(resolved) => {
            parts.extend(errors(rel_l2, ["≈", " from its sketch"], beyond));
            parts.extend(evidence.metric(Metric::Cosine).map(|cosine| format!("cosine ≈{cosine:.6}")));
            parts.push(more.to_owned());
        }
        Evidence::Recorded(_) if rel_l2.is_some_and(|error| error > 0.0) => {
            parts.extend(errors(rel_l2, ["at least ", " from its statistics"], beyond));
        }
        Evidence::Recorded(_) | Evidence::Unreadable(_) | Evidence::Nothing => {
            parts.push(said.to_owned());
            parts.extend(beyond.map(|beyond| beyond.to_string()));
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

/// Formats the relative error, with a prefix and a suffix, and the expected error. If the judged error differs
/// because it is relative to another scale, both are given.
fn errors(rel_l2: Option<f64>, [sign, basis]: [&str; 2], beyond: Option<Beyond>) -> Vec<String> {
    let text = |error: f64| format!("{error:.1e}");
    match rel_l2 {
        Some(error) if error.is_infinite() => vec![ALL_ZERO.to_owned()],
        Some(error) if error.is_finite() => {
            let shown = format!("rel_l2 {sign}{}{basis}", text(error));
            match beyond {
                Some(beyond) if (0.9..1.1).contains(&(beyond.error / error)) => {
                    vec![format!("{shown} ({} expected)", text(beyond.expected))]
                }
                _ => [Some(shown), beyond.map(|beyond| beyond.to_string())].into_iter().flatten().collect(),
            }
        }
        _ => beyond.map(|beyond| beyond.to_string()).into_iter().collect(),
    }
}

/// Locates the error in tensors of more than one element that differ, or the extremes if elements were not
/// compared.
fn place(evidence: &Evidence, baseline: &Slot, candidate: &Slot) -> Option<ErrorPlace> {
    let record = baseline.value.tensor().filter(|record| record.len() > 1)?;
    let metrics = match evidence {
        Evidence::Data(kept) => Some(kept.metrics()).filter(|metrics| metrics.different > 0)?,
        Evidence::Recorded(_) => {
            let extremes = Some(Box::new(extremes([record, candidate.value.tensor()?])?));
            return Some(ErrorPlace { shape: record.shape.to_vec(), largest: None, extremes, region: None });
        }
        _ => return None,
    };
    let largest = || {
        metrics.max_abs_err.filter(|&error| error > 0.0)?;
        let (baseline, candidate) = metrics.max_abs_values?;
        Some(LargestError { index: record.coordinates(metrics.max_abs_index?)?, baseline, candidate })
    };
    Some(ErrorPlace { shape: record.shape.to_vec(), largest: largest(), extremes: None, region: None })
}

/// Returns the extremes of both sides, as indices in the baseline's shape; `None` if their positions are
/// unknown.
fn extremes(sides: [&TensorRecord; 2]) -> Option<Extremes> {
    let located = |place: u64, value: Option<Number>| {
        Some(Located { index: sides[0].coordinates(place)?, value: value?.as_f64() })
    };
    let [b, c] = sides.map(|record| {
        let (places, statistics) = (record.places?, &record.statistics);
        let greatest = located(places.max(), statistics.max())?;
        Some((greatest, located(places.min(), statistics.min())?))
    });
    let ((b_greatest, b_least), (c_greatest, c_least)) = (b?, c?);
    Some(Extremes { greatest: [b_greatest, c_greatest], least: [b_least, c_least] })
}

fn arguments(pair: &PartPair, candidate: &Candidate, judged: &[SlotJudgement]) -> Vec<String> {
    let op_pair = &pair.ops[candidate.op];
    let differing = op_pair.slots.iter().zip(judged).filter_map(|(slots, judgement)| {
        let (b, c) = pair.slot(op_pair, slots);
        let slot = b.or(c)?;
        let is_argument = !slot.side.is_result() && !judgement.verdict.is_fine() && !both_tensors(b, c);
        is_argument.then(|| format!("{} {}", slot.path, judgement.reason))
    });
    differing.take(3).collect()
}

fn both_tensors(b: Option<&Slot>, c: Option<&Slot>) -> bool {
    [b, c].iter().flatten().all(|slot| matches!(slot.value, Value::Tensor(_)))
}

/// Says which side calls an op that the other lacks.
fn structure(ops: Paired) -> String {
    match ops {
        Paired::BaselineOnly(_) => "only the baseline calls this op here".to_owned(),
        Paired::CandidateOnly(_) => "only the candidate calls this op here".to_owned(),
        Paired::Both(..) => String::new(),
    }
}

/// Hint for random ops: draws differ between devices and generators because of seeds, not arithmetic.
fn random_hint(name: &str) -> Option<&'static str> {
    const RANDOM: [&str; 9] = [
        "dropout",
        "rand",
        "bernoulli",
        "normal_",
        "uniform_",
        "multinomial",
        "exponential_",
        "rrelu",
        "gumbel",
    ];
    let name = OpName::parse(name);
    RANDOM
        .iter()
        .any(|word| name.api().contains(word))
        .then_some("a random op: compare with dropout off or with the same random numbers")
}

fn module_of(op: &Op) -> Option<String> {
    if let Some(path) = op.name.module_path() {
        return Some(path.to_owned());
    }
    OpName::parse(op.parent.as_deref()?).module_path().map(str::to_owned)
}

/// Returns the stack of the op, or of its forward call if it has none. The candidate's comes first: it is the
/// side to fix.
fn stack_of(pair: &PartPair, ops: Paired) -> Option<&Stack> {
    let sides = [(&pair.candidate, ops.candidate()), (&pair.baseline, ops.baseline())];
    sides.into_iter().find_map(|(rank, index)| stack_of_op(rank, rank.ops.get(index?)?))
}

/// Returns the stack of an op; outside the forward pass, only the forward call may have one.
pub fn stack_of_op<'a>(rank: &'a Rank, op: &Op) -> Option<&'a Stack> {
    let forward = || {
        let name = (op.name.phase() != Phase::Forward).then(|| op.name.in_phase(Phase::Forward)).flatten()?;
        rank.ops.iter().find(|other| other.name.as_str() == name)?.stack
    };
    rank.stacks.get(op.stack.or_else(forward)? as usize)
}
