//! The rows of the two tables as views of a [`PartReport`]: the content of every cell.
//!
//! Borrows everything, decides nothing, and is independent of file formats.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::columns::{OpColumn, Side, SlotColumn, Statistic};
use probe_compare::PartReport;
use probe_dump::{Counts, Number, Op, OpName, Ordinal, Phase, Scalar, Slot, TensorRecord, Value};
use probe_judge::{OpJudgement, SlotJudgement, source_line, user_frames};
use probe_measure::{Evidence, PairMetrics, RecordedComparison, TensorSummary};
use probe_pair::{OpPair, Paired};

/// Content of one cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    /// Unknown or not applicable.
    Empty,
    /// A whole number.
    Count(u64),
    /// A number; may be NaN or infinite.
    Real(f64),
    /// Boolean.
    Flag(bool),
    /// Text.
    Text(Cow<'a, str>),
}

impl<'a> Cell<'a> {
    fn real(value: Option<f64>) -> Self {
        value.map_or(Self::Empty, Self::Real)
    }

    fn word(text: &'a str) -> Self {
        if text.is_empty() { Self::Empty } else { Self::Text(Cow::Borrowed(text)) }
    }
}

/// One op of a part.
#[derive(Debug, Clone, Copy)]
pub struct OpRow<'a> {
    part: PartReport<'a>,
    order: usize,
    pair: &'a OpPair,
    ops: (Option<&'a Op>, Option<&'a Op>),
    judged: &'a OpJudgement,
}

/// Returns the ops of a part, in execution order.
pub fn op_rows<'a>(part: &PartReport<'a>) -> impl Iterator<Item = OpRow<'a>> + use<'a> {
    let part = *part;
    debug_assert_eq!(part.pair.ops.len(), part.judged.ops.len(), "a judgement for every op");
    let ops = part.pair.ops.iter().zip(&part.judged.ops);
    ops.enumerate().map(move |(order, (pair, judged))| OpRow {
        part,
        order,
        pair,
        ops: part.pair.op(pair),
        judged,
    })
}

impl<'a> OpRow<'a> {
    /// Returns the position in execution order, from 0.
    pub const fn order(&self) -> usize {
        self.order
    }

    /// Returns the judgement.
    pub const fn judged(&self) -> &'a OpJudgement {
        self.judged
    }

    /// Returns which sides have the op.
    pub const fn paired(&self) -> Paired {
        self.pair.ops
    }

    /// Returns the judgements of its slots.
    pub fn judged_slots(&self) -> &'a [SlotJudgement] {
        self.part.judged.slots.get(self.order).unwrap_or(&[])
    }

    /// Returns the number of slots, counting both sides.
    pub const fn slot_count(&self) -> usize {
        self.pair.slots.len()
    }

    /// Returns which sides have each of its slots.
    pub(crate) fn paired_slots(&self) -> impl Iterator<Item = Paired> + use<'a> {
        self.pair.slots.iter()
    }

    /// Returns the op as recorded by the baseline, else by the candidate.
    fn op(&self) -> Option<&'a Op> {
        self.ops.0.or(self.ops.1)
    }

    /// Returns the full name.
    pub fn name(&self) -> &'a str {
        self.op().map_or("", |op| op.name.as_str())
    }

    /// Returns the slots, in order.
    pub fn slots(&self) -> impl Iterator<Item = SlotRow<'a>> + use<'a> {
        self.slot_rows(self.representative()).map(|row| SlotRow { measured: row.evidence.measured(), ..row })
    }

    fn slot_rows(&self, representative: Option<usize>) -> impl Iterator<Item = SlotRow<'a>> + use<'a> {
        let op = *self;
        let slots = op.pair.slots.iter().zip(op.part.evidence.of_op(op.order)).zip(op.judged_slots());
        slots.enumerate().map(move |(index, ((paired, evidence), judged))| SlotRow {
            op,
            index,
            decides: representative == Some(index),
            paired,
            slots: (
                op.ops.0.and_then(|op| op.slots.get(paired.baseline()?)),
                op.ops.1.and_then(|op| op.slots.get(paired.candidate()?)),
            ),
            evidence,
            measured: None,
            judged,
        })
    }

    /// Returns the position of the slot that represents the op: the one that decided, else the result with the largest
    /// error, else any result whose metrics are known.
    pub fn representative(&self) -> Option<usize> {
        self.judged.worst.map(Ordinal::place).or_else(|| {
            let rank = |row: &SlotRow<'_>| {
                let known = !matches!(row.evidence, Evidence::Nothing);
                (row.judged.error.get().unwrap_or(-1.0), known)
            };
            // The first of equal results should win, so the search runs from the end.
            let results: Vec<_> =
                self.slot_rows(None).enumerate().filter(|(_, row)| row.is_result_tensor()).collect();
            let worst = results.iter().rev().max_by(|(_, a), (_, b)| {
                let (a, b) = (rank(a), rank(b));
                a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
            });
            worst.map(|&(position, _)| position)
        })
    }

    /// Returns the content of a cell. `shown` is the result of [`OpRow::representative`].
    pub fn cell(&self, column: OpColumn, shown: Option<usize>) -> Cell<'a> {
        let evidence = shown.map(|position| self.part.evidence.at(self.order, position));
        match column {
            OpColumn::Step => Cell::Count(self.part.pair.step),
            OpColumn::Rank => Cell::Count(self.part.pair.rank.into()),
            OpColumn::Order => Cell::Count(self.order as u64),
            OpColumn::Op => Cell::word(self.name()),
            OpColumn::Phase => Cell::word(self.op().map_or("", |op| phase_word(op.name.phase()))),
            OpColumn::Module => self.module(),
            OpColumn::Role => Cell::word(self.judged.role.name()),
            OpColumn::Cause => Cell::word(self.judged.cause.map_or("", probe_judge::Cause::name)),
            OpColumn::Verdict => Cell::word(self.judged.verdict.name()),
            OpColumn::Slot => shown
                .and_then(|position| {
                    let (b, c) = self.part.pair.slot_at(self.order, position);
                    b.or(c)
                })
                .map_or(Cell::Empty, |slot| Cell::word(&slot.path)),
            OpColumn::Metric(metric) => Cell::real(evidence.and_then(|evidence| evidence.metric(metric))),
            OpColumn::Estimated => match evidence {
                Some(evidence @ Evidence::Recorded(_)) => Cell::Flag(evidence.is_estimate()),
                _ => Cell::Empty,
            },
            OpColumn::Basis => basis(evidence),
            OpColumn::InputError => Cell::real(self.judged.input_error.get()),
            OpColumn::OutputError => Cell::real(self.judged.output_error.get()),
            OpColumn::Slots => Cell::Count(self.pair.slots.len() as u64),
            // Nothing is replayed before it is compared.
            OpColumn::Replay => Cell::Empty,
            OpColumn::Source => self.source(),
            OpColumn::Reason => Cell::word(&self.judged.reason),
        }
    }

    /// Returns the content of a cell that describes the op; `None` for columns of values.
    pub fn shared(&self, column: SlotColumn) -> Option<Cell<'a>> {
        let follows = || self.judged.follows.map_or(Cell::Empty, |order| Cell::Count(order.place() as u64));
        Some(match column {
            SlotColumn::Step => Cell::Count(self.part.pair.step),
            SlotColumn::Rank => Cell::Count(self.part.pair.rank.into()),
            SlotColumn::Order => Cell::Count(self.order as u64),
            SlotColumn::Op => Cell::word(self.name()),
            SlotColumn::Role => Cell::word(self.judged.role.name()),
            SlotColumn::Cause => Cell::word(self.judged.cause.map_or("", probe_judge::Cause::name)),
            SlotColumn::Phase => self.cell(OpColumn::Phase, None),
            SlotColumn::Module => self.module(),
            SlotColumn::Recorded => Cell::word(match self.pair.ops {
                Paired::Both(..) => "both",
                Paired::BaselineOnly(_) => "baseline",
                Paired::CandidateOnly(_) => "candidate",
            }),
            SlotColumn::Source => self.source(),
            SlotColumn::Stack(side) => self.stack(side),
            SlotColumn::InputError => Cell::real(self.judged.input_error.get()),
            SlotColumn::OutputError => Cell::real(self.judged.output_error.get()),
            SlotColumn::OpReason => Cell::word(&self.judged.reason),
            SlotColumn::Follows => follows(),
            _ => return None,
        })
    }

    fn stack(&self, side: Side) -> Cell<'a> {
        let (op, rank) = match side {
            Side::Baseline => (self.ops.0, &self.part.pair.baseline),
            Side::Candidate => (self.ops.1, &self.part.pair.candidate),
        };
        let stack = op.and_then(|op| op.stack).and_then(|stack| rank.stacks.get(stack as usize));
        stack.map_or(Cell::Empty, |stack| Cell::Text(user_frames(stack).join("\n").into()))
    }

    fn module(&self) -> Cell<'a> {
        let Some(op) = self.op() else { return Cell::Empty };
        if let Some(path) = op.name.module_path() {
            return Cell::word(path);
        }
        let parent = op.parent.as_deref().map(OpName::parse);
        let path = parent.as_ref().and_then(OpName::module_path).map(str::to_owned);
        path.map_or(Cell::Empty, |path| Cell::Text(Cow::Owned(path)))
    }

    fn source(&self) -> Cell<'a> {
        let frames = |op: Option<&'a Op>, rank: &'a probe_dump::Rank| {
            let stack = rank.stacks.get(op?.stack? as usize)?;
            source_line(stack)
        };
        // The candidate's stack if it has one, as in the answer, because the candidate is the run to be fixed.
        frames(self.ops.1, &self.part.pair.candidate)
            .or_else(|| frames(self.ops.0, &self.part.pair.baseline))
            .map_or(Cell::Empty, |line| Cell::Text(Cow::Owned(line)))
    }
}

/// One slot of an op.
#[derive(Debug, Clone, Copy)]
pub struct SlotRow<'a> {
    op: OpRow<'a>,
    /// Position in the op.
    index: usize,
    /// True if the slot represents the op.
    decides: bool,
    paired: Paired,
    slots: (Option<&'a Slot>, Option<&'a Slot>),
    evidence: &'a Evidence,
    /// Result of [`Evidence::measured`], computed once for all cells.
    measured: Option<PairMetrics>,
    judged: &'a SlotJudgement,
}

impl<'a> SlotRow<'a> {
    /// Returns the op it belongs to.
    pub const fn op(&self) -> &OpRow<'a> {
        &self.op
    }

    /// Returns the judgement.
    pub const fn judged(&self) -> &'a SlotJudgement {
        self.judged
    }

    /// Returns which sides have the slot.
    pub const fn paired(&self) -> Paired {
        self.paired
    }

    /// Returns the evidence for the pair.
    pub const fn evidence(&self) -> &'a Evidence {
        self.evidence
    }

    fn slot(&self, side: Side) -> Option<&'a Slot> {
        match side {
            Side::Baseline => self.slots.0,
            Side::Candidate => self.slots.1,
        }
    }

    /// Returns the tensor of one side, if the value is a tensor.
    pub fn tensor(&self, side: Side) -> Option<&'a TensorRecord> {
        self.slot(side).and_then(|slot| slot.value.tensor())
    }

    fn is_result_tensor(&self) -> bool {
        let slot = self.slots.0.or(self.slots.1);
        slot.is_some_and(|slot| slot.side.is_result() && slot.value.tensor().is_some())
    }

    /// Returns the path inside the op.
    pub fn path(&self) -> &'a str {
        self.slots.0.or(self.slots.1).map_or("", |slot| &slot.path)
    }

    fn recorded(&self) -> Option<&'a RecordedComparison> {
        match self.evidence {
            Evidence::Recorded(recorded) => Some(recorded),
            _ => None,
        }
    }

    /// Returns the content of a cell.
    // One table of all columns; its length is theirs.
    pub fn cell(&self, column: SlotColumn) -> Cell<'a> {
        let expectation = || self.op.part.judged.expectations.at(self.op.order, self.index);
        match column {
            SlotColumn::Slot => Cell::word(self.path()),
            SlotColumn::Verdict => Cell::word(self.judged.verdict.name()),
            SlotColumn::DType(side) => self.slot(side).map_or(Cell::Empty, |slot| dtype(&slot.value)),
            SlotColumn::Shape(side) => {
                self.tensor(side).map_or(Cell::Empty, |tensor| Cell::Text(sizes(&tensor.shape).into()))
            }
            SlotColumn::Value(side) => self.slot(side).map_or(Cell::Empty, |slot| argument(&slot.value)),
            SlotColumn::Metric(metric) => Cell::real(self.evidence.metric_of(metric, self.measured.as_ref())),
            SlotColumn::Estimated => match self.evidence {
                Evidence::Data(_) | Evidence::Recorded(_) => Cell::Flag(self.evidence.is_estimate()),
                Evidence::Unreadable(_) | Evidence::Nothing => Cell::Empty,
            },
            SlotColumn::Basis => basis(Some(self.evidence)),
            SlotColumn::MaxAbsIndex => {
                self.measured.and_then(|data| data.max_abs_index).map_or(Cell::Empty, Cell::Count)
            }
            SlotColumn::MaxAbsPosition => self.position(),
            SlotColumn::MaxAbsValue(side) => {
                Cell::real(self.measured.and_then(|data| data.max_abs_values).map(|(b, c)| match side {
                    Side::Baseline => b,
                    Side::Candidate => c,
                }))
            }
            SlotColumn::Statistic(side, statistic) => self.statistic(side, statistic),
            SlotColumn::Difference(statistic) => Cell::real(self.difference(statistic).map(|d| d.difference)),
            SlotColumn::RelativeDifference(statistic) => {
                Cell::real(self.difference(statistic).map(|d| d.relative))
            }
            SlotColumn::Checksum(side) => self
                .tensor(side)
                .and_then(|tensor| tensor.checksum.as_ref())
                .map_or(Cell::Empty, |checksum| Cell::Text(checksum.to_string().into())),
            SlotColumn::RequiresGrad(side) => {
                self.tensor(side).and_then(|tensor| tensor.requires_grad).map_or(Cell::Empty, Cell::Flag)
            }
            SlotColumn::ReferenceError(side) => {
                let errors = self.op.part.judged.reference.at(self.op.order, self.index);
                Cell::real(errors.and_then(|errors| match side {
                    Side::Baseline => errors.baseline,
                    Side::Candidate => errors.candidate,
                }))
            }
            SlotColumn::Tolerance => self
                .judged
                .rule
                .and_then(|rule| self.op.part.judged.rules.get(rule.place()))
                .map_or(Cell::Empty, |rule| Cell::word(rule)),
            SlotColumn::Reason => Cell::word(&self.judged.reason),
            SlotColumn::Pieces => {
                let pieces = self.op.part.pieces.get(&(self.op.order, self.index));
                pieces.map_or(Cell::Empty, |pieces| Cell::word(pieces))
            }
            SlotColumn::Decides => Cell::Flag(self.decides),
            SlotColumn::JudgedError => Cell::real(expectation().map(|expectation| expectation.error)),
            SlotColumn::Floor => Cell::real(expectation().map(|expectation| expectation.floor)),
            SlotColumn::Expected => Cell::real(expectation().map(|expectation| expectation.expected)),
            SlotColumn::Identity => {
                let value = self.op.part.values.at(self.op.order, self.index).copied().flatten();
                value.map_or(Cell::Empty, |value| Cell::Count(value.into()))
            }
            SlotColumn::ExtremeIndex(side, extreme) => {
                let places = self.tensor(side).and_then(|tensor| tensor.places);
                places.map_or(Cell::Empty, |places| {
                    Cell::Count(if extreme == Statistic::Min { places.min() } else { places.max() })
                })
            }
            of_op => self.op.shared(of_op).unwrap_or(Cell::Empty),
        }
    }

    fn difference(&self, statistic: Statistic) -> Option<probe_measure::StatisticDifference> {
        let recorded = self.recorded()?;
        match statistic {
            Statistic::Max => recorded.max.get(),
            Statistic::Min => recorded.min.get(),
            Statistic::Mean => recorded.mean.get(),
            Statistic::Norm => recorded.norm.get(),
            Statistic::Nan | Statistic::PosInf | Statistic::NegInf | Statistic::Zeros => None,
        }
    }

    fn statistic(&self, side: Side, statistic: Statistic) -> Cell<'a> {
        if let Some(data) = self.measured {
            let summary = match side {
                Side::Baseline => &data.baseline,
                Side::Candidate => &data.candidate,
            };
            return measured(summary, statistic);
        }
        let Some(tensor) = self.tensor(side) else { return Cell::Empty };
        let recorded = &tensor.statistics;
        let count = |of: fn(&Counts) -> u64| {
            tensor.counts.as_ref().map_or(Cell::Empty, |counts| Cell::Count(of(counts)))
        };
        match statistic {
            Statistic::Max => Cell::real(recorded.max().map(Number::as_f64)),
            Statistic::Min => Cell::real(recorded.min().map(Number::as_f64)),
            Statistic::Mean => Cell::real(recorded.mean()),
            Statistic::Norm => Cell::real(recorded.norm()),
            Statistic::Nan => count(|counts| counts.nan),
            Statistic::PosInf => count(|counts| counts.positive_infinite),
            Statistic::NegInf => count(|counts| counts.negative_infinite),
            Statistic::Zeros => count(|counts| counts.zeros),
        }
    }

    fn position(&self) -> Cell<'a> {
        let index = self.measured.and_then(|data| data.max_abs_index);
        let at = index.and_then(|index| self.tensor(Side::Baseline)?.coordinates(index));
        at.map_or(Cell::Empty, |at| Cell::Text(sizes(&at).into()))
    }
}

fn basis(evidence: Option<&Evidence>) -> Cell<'static> {
    evidence.and_then(Evidence::basis).map_or(Cell::Empty, |basis| Cell::word(basis.name()))
}

fn measured<'a>(summary: &TensorSummary, statistic: Statistic) -> Cell<'a> {
    match statistic {
        Statistic::Max => Cell::real(summary.max),
        Statistic::Min => Cell::real(summary.min),
        Statistic::Mean => Cell::real(summary.mean),
        Statistic::Norm => Cell::Real(summary.norm),
        Statistic::Nan => Cell::Count(summary.nan),
        Statistic::PosInf => Cell::Count(summary.pos_inf),
        Statistic::NegInf => Cell::Count(summary.neg_inf),
        Statistic::Zeros => Cell::Count(summary.zeros),
    }
}

const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::ParameterGradient => "gradient",
        Phase::None => "",
    }
}

fn dtype(value: &Value) -> Cell<'_> {
    match value {
        Value::Tensor(record) => match &record.dtype {
            probe_dump::RecordedDType::Known(dtype) => Cell::word(dtype.name()),
            probe_dump::RecordedDType::Other(text) => Cell::word(text),
        },
        Value::Scalar(scalar) => Cell::word(match scalar {
            Scalar::Number(Number::Int(_) | Number::UInt(_)) => "int",
            Scalar::Number(Number::Float(_)) => "float",
            Scalar::Number(Number::Bool(_)) => "bool",
            Scalar::Text(_) => "str",
            Scalar::Device(_) => "device",
            Scalar::Printed(printed) => &printed.kind,
        }),
        Value::None => Cell::word("None"),
        Value::Unsupported => Cell::word("unsupported"),
    }
}

fn argument(value: &Value) -> Cell<'_> {
    match value {
        Value::Tensor(_) | Value::Unsupported => Cell::Empty,
        Value::Scalar(Scalar::Printed(printed)) => Cell::word(&printed.text),
        Value::Scalar(scalar) => Cell::Text(scalar.to_string().into()),
        Value::None => Cell::word("None"),
    }
}

/// Formats a shape such as `[4, 128, 768]`.
fn sizes(shape: &[u64]) -> String {
    let mut text = String::with_capacity(2 + 5 * shape.len());
    text.push('[');
    for (axis, size) in shape.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{size}", if axis == 0 { "" } else { ", " });
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_lists() {
        assert_eq!(sizes(&[4, 128, 768]), "[4, 128, 768]");
        assert_eq!(sizes(&[]), "[]");
    }
}
