//! Calls of one run alone, which split, join or scale what ranks exchange.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use probe_dump::{DType, OpKind, Phase, Slot};
use probe_judge::{Cause, Finding, OpJudgement, Role, SlotJudgement, Verdict};
use probe_layout::Remark;
use probe_pair::{BySlot, OpPair, Paired, PartPair};

use super::mended::{Readers, is_fault};
use super::{Layouts, values};
use crate::median::median;

/// Roundings that a sum over ranks and what is made of it may differ by: 2.9 were seen in sound pairs in bfloat16, 3.6 where one rank's results
/// were off by 2 %.
pub(super) const ROUNDINGS: f64 = 3.0;

/// The same for gradients of parameters, which are sums over all tokens, and what optimizers make of them: 17 were seen, in squares of gradients.
const ROUNDINGS_OF_GRADIENTS: f64 = 18.0;

/// Number of values before one that show how far rounding has carried.
const BEFORE: usize = 64;

/// Returns true for a call of one run alone after which nothing differs: it splits, joins or scales what ranks exchange.
pub(super) fn is_of_layout(pair: &PartPair, finding: &Finding, judged: &[OpJudgement]) -> bool {
    let alone = pair.ops.get(finding.order).is_some_and(|op| !matches!(op.ops, Paired::Both(..)));
    let follows = |op: &&OpJudgement| op.follows.is_some_and(|at| at.place() == finding.order);
    let differs =
        |op: &OpJudgement| matches!(op.verdict, Verdict::Differs | Verdict::NonFinite | Verdict::Shape);
    alone && finding.cause == Cause::Structure && !judged.iter().filter(follows).any(differs)
}

/// Returns the first op of both runs that chose otherwise although what it read agrees: rounding decided. The judge says what is beyond it.
fn first_choice(pair: &PartPair, slots: &BySlot<SlotJudgement>) -> Option<usize> {
    (0..pair.ops.len()).find(|&place| {
        let op = &pair.ops[place];
        let mut chose = false;
        let agrees = op.slots.iter().enumerate().all(|(at, slots_of)| {
            let Some(slot) = pair.slot(op, slots_of).0 else { return true };
            let Some(dtype) = slot.value.tensor().and_then(|record| record.dtype.known()) else {
                return true;
            };
            let differs = slots.at(place, at).is_some_and(|slot| is_fault(slot.verdict));
            let choice = slot.side.is_result() && !dtype.is_float();
            chose |= choice && differs;
            choice || !differs
        });
        let reads = |slots_of: Paired| {
            let slot = pair.slot(op, slots_of).0.filter(|slot| !slot.side.is_result());
            let dtype = slot.and_then(|slot| slot.value.tensor()?.dtype.known());
            dtype.is_some_and(DType::is_float)
        };
        chose && agrees && matches!(op.ops, Paired::Both(..)) && op.slots.iter().any(reads)
    })
}

impl Layouts {
    /// Returns true if an op of both runs makes something in this range that differs by more than rounding, and that neither is partial nor mended.
    pub(super) fn differs_between(
        &self,
        pair: &PartPair,
        range: Range<usize>,
        slots: &BySlot<SlotJudgement>,
        (roundings, readers): (&Roundings, &mut Readers<'_>),
    ) -> bool {
        range.filter(|&place| matches!(pair.ops[place].ops, Paired::Both(..))).any(|place| {
            let op = &pair.ops[place];
            op.slots.iter().enumerate().any(|(at, slots_of)| {
                let is_result = pair.slot(op, slots_of).0.is_some_and(|slot| slot.side.is_result());
                let judged = slots.at(place, at).filter(|slot| is_result && is_fault(slot.verdict));
                judged.is_some_and(|judged| {
                    !roundings.explain(pair, (place, at), judged)
                        && !matches!(self.remark(op, slots_of), Some(Remark::Partial(..)))
                        && !readers.is_mended_slot(pair, (place, at))
                })
            })
        })
    }

    /// Moves findings on calls of one run alone to the first op behind them that differs by more than rounding, and that is not partial if there
    /// is another; without one in front of the first choice that rounding decided, there is no fault.
    pub(super) fn behind_strangers(
        &self,
        pair: &PartPair,
        findings: &mut Vec<Finding>,
        slots: &BySlot<SlotJudgement>,
        roundings: &Roundings,
    ) {
        let is_alone = |place: usize| !matches!(pair.ops[place].ops, Paired::Both(..));
        let end = first_choice(pair, slots).unwrap_or(pair.ops.len());
        let first = |from: usize, partial: bool| {
            (from..end).filter(|&place| !is_alone(place)).find_map(|place| {
                let op = &pair.ops[place];
                let differs = |(at, slots_of): (usize, Paired)| {
                    let judged = slots.at(place, at).filter(|slot| is_fault(slot.verdict))?;
                    let skipped = roundings.explain(pair, (place, at), judged)
                        || (!partial && matches!(self.remark(op, slots_of), Some(Remark::Partial(..))));
                    pair.slot(op, slots_of).0.filter(|_| !skipped).map(|slot| (place, slot))
                };
                op.slots.iter().enumerate().find_map(differs)
            })
        };
        findings.retain_mut(|finding| {
            let from = finding.order;
            if finding.cause != Cause::Structure || from >= pair.ops.len() || !is_alone(from) {
                return true;
            }
            let Some((place, slot)) = first(from, false).or_else(|| first(from, true)) else { return false };
            (finding.cause, finding.role) = if slot.side.is_result() {
                (Cause::Numerics, Role::Introduces)
            } else {
                (Cause::Input, finding.role)
            };
            Self::moved(pair, finding, place, &slot.path);
            let at = pair.ops[place].slots.iter().position(|slots| {
                pair.slot(&pair.ops[place], slots).0.is_some_and(|own| own.path == slot.path)
            });
            let told = at.and_then(|at| slots.at(place, at)).map(|slot| slot.reason.to_string());
            finding.reason = told.unwrap_or_default();
            true
        });
        findings.sort_by_key(|finding| finding.order);
        findings.dedup_by(|next, first| next.order == first.order);
    }
}

/// Errors that are some roundings of the terms of sums over ranks.
pub(super) struct Roundings {
    /// Error that rounding leaves at each op: the unit of the type, or the median of the results before it, as noise grows with depth.
    usual: Vec<f64>,
    /// Errors that had to be measured, by the places of op and slot: several findings ask for one, and each reads both tensors.
    measured: RefCell<HashMap<(usize, usize), Option<f64>>>,
}

impl Roundings {
    pub(super) fn of(pair: &PartPair, slots: &BySlot<SlotJudgement>) -> Self {
        let unit = unit(pair);
        let mut last: VecDeque<f64> = VecDeque::with_capacity(BEFORE);
        let usual_at = |(place, op): (usize, &OpPair)| {
            // It is asked for where values differ alone.
            let differs = |slot: usize| slots.at(place, slot).is_some_and(|slot| is_fault(slot.verdict));
            let is_asked = last.len() == BEFORE && (0..op.slots.len()).any(differs);
            let usual = if is_asked { median(last.make_contiguous()) } else { 0.0 };
            for (slot, slots_of) in op.slots.iter().enumerate() {
                let is_result = pair.slot(op, slots_of).0.is_some_and(|slot| slot.side.is_result());
                let error = slots.at(place, slot).and_then(|slot| slot.error.get());
                if let Some(error) = error.filter(|_| is_result) {
                    last.truncate(BEFORE - 1);
                    last.push_front(error);
                }
            }
            usual.max(unit)
        };
        let usual = pair.ops.iter().enumerate().map(usual_at).collect();
        Self { usual, measured: RefCell::default() }
    }

    /// Returns true for an error of some roundings: sums of terms that each rank has rounded.
    pub(super) fn explain(
        &self,
        pair: &PartPair,
        (place, at): (usize, usize),
        judged: &SlotJudgement,
    ) -> bool {
        let op = &pair.ops[place];
        let Some(slots) = op.slots.get(at) else { return false };
        let (Some(b), Some(c)) = pair.slot(op, slots) else { return false };
        if judged.verdict != Verdict::Differs {
            return false;
        }
        let measured =
            || *self.measured.borrow_mut().entry((place, at)).or_insert_with(|| values::distance(pair, b, c));
        let most = if is_of_parameter(pair, op, b) { ROUNDINGS_OF_GRADIENTS } else { ROUNDINGS };
        judged.error.get().or_else(measured).is_some_and(|error| error <= most * self.usual[place])
    }
}

/// Returns the rounding unit of the shortest float type that the part's values have: longer ones are made of these.
pub(super) fn unit(pair: &PartPair) -> f64 {
    let slots = pair.baseline.ops.iter().flat_map(|op| &op.slots);
    let floats = slots.filter_map(|slot| slot.value.tensor()?.dtype.known()).filter(|dtype| dtype.is_float());
    let bits = floats.filter_map(DType::mantissa_bits).filter(|bits| *bits > 3).min().unwrap_or(52);
    0.5_f64.powi(i32::try_from(bits).unwrap_or(0) + 1)
}

/// Returns true for the gradient of a parameter, and for what is made of it outside of all modules.
fn is_of_parameter(pair: &PartPair, op: &OpPair, slot: &Slot) -> bool {
    let Some(op) = pair.op(op).0 else { return false };
    match op.name.phase() {
        Phase::ParameterGradient => true,
        Phase::Backward => {
            slot.side.is_result() && op.name.kind() == OpKind::Api && &*slot.path != "output.0"
        }
        _ => {
            op.parent
                .as_deref()
                .map_or(op.name.kind() == OpKind::Api, |parent| parent.starts_with("Optimizer."))
                || op.name.as_str().starts_with("Optimizer.")
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use probe_dump::{
        Content, Framework, Op, OpName, PartKey, Rank, RankId, ReadError, RecordedDType, SlotSide, Task,
        TensorData, TensorRecord, TensorStore, Value,
    };
    use probe_pair::SlotPairs;

    use super::*;

    /// Holds one value, and counts how often it is read.
    struct Counted(f32, AtomicUsize);

    impl TensorStore for Counted {
        fn load(&self, _: &str) -> Result<TensorData, ReadError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let bytes = Arc::new(self.0.to_le_bytes().to_vec());
            TensorData::contiguous(bytes, 0..4, DType::F32, [1].into())
                .map_err(|error| ReadError::format("value", error.to_string()))
        }
    }

    fn rank(name: &str, store: &Arc<Counted>) -> Rank {
        let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), [1].into());
        record.data = Some("value".into());
        let seen = probe_measure::observe(store.load("value").unwrap().view(), Content::HASH);
        record.statistics = seen.statistics.into();
        let mut op = Op::new(OpName::parse(name));
        op.slots.push(Slot::new("output.0", SlotSide::Output, Value::Tensor(record.into())));
        Rank {
            framework: Framework::default(),
            key: PartKey { step: 0, rank: RankId::Rank(0), label: "".into() },
            task: Task::Tensor,
            level: "mix".into(),
            ops: vec![op],
            stacks: Vec::new(),
            store: Arc::<Counted>::clone(store),
            faults: Vec::new(),
            notes: Vec::new(),
            cut: false,
        }
    }

    /// A part with an op that reads a value of which nothing is known, and makes one of both sides.
    pub(in super::super) fn part(name: &str, values: [f32; 2]) -> PartPair {
        let [baseline, candidate] = values.map(|value| {
            let mut rank = rank(name, &Arc::new(Counted(value, AtomicUsize::new(0))));
            let record = TensorRecord::new(RecordedDType::Known(DType::F32), [1].into());
            let read = Slot::new("input.0", SlotSide::Input, Value::Tensor(record.into()));
            rank.ops[0].slots.insert(0, read);
            rank
        });
        let ops = vec![OpPair { ops: Paired::Both(0, 0), slots: SlotPairs::in_order(2) }];
        PartPair { step: 0, rank: 0, since: None, baseline, candidate, ops, substitutions: Vec::new() }
    }

    #[test]
    fn a_value_is_read_once_however_often_its_error_is_asked_for() {
        let stores = [1.0, 1.000_000_1].map(|value| Arc::new(Counted(value, AtomicUsize::new(0))));
        let ops = vec![OpPair { ops: Paired::Both(0, 0), slots: SlotPairs::in_order(1) }];
        let (baseline, candidate) =
            (rank("Functional.f.0.forward", &stores[0]), rank("Functional.f.0.forward", &stores[1]));
        let pair =
            PartPair { step: 0, rank: 0, since: None, baseline, candidate, ops, substitutions: Vec::new() };
        let judged = SlotJudgement {
            verdict: Verdict::Differs,
            error: None.into(),
            rule: None,
            reason: "".into(),
            follows: false,
        };
        let roundings = Roundings::of(&pair, &BySlot::default());
        // Its statistics were taken of it.
        let made = 1;
        for _ in 0..3 {
            assert!(roundings.explain(&pair, (0, 0), &judged));
        }
        assert_eq!(stores.each_ref().map(|store| store.1.load(Ordering::Relaxed) - made), [1, 1]);
    }

    #[test]
    fn an_error_is_rounding_if_it_is_as_large_as_those_before_it() {
        let mut pair = part("Module.down.Row.forward.0", [1.0, 1.01]);
        pair.ops =
            (0..=BEFORE).map(|_| OpPair { ops: Paired::Both(0, 0), slots: SlotPairs::in_order(2) }).collect();
        let judged = |error: f64| SlotJudgement {
            verdict: Verdict::Differs,
            error: Some(error).into(),
            rule: None,
            reason: "".into(),
            follows: false,
        };
        let explained = |before: f64| {
            let slots = (0..=BEFORE).map(|_| vec![judged(0.0), judged(before)]).collect();
            Roundings::of(&pair, &slots).explain(&pair, (BEFORE, 1), &judged(0.01))
        };
        assert!(explained(0.005));
        assert!(!explained(0.002));
    }
}
