//! Parts made of drawn numbers, for tests of formulas: every tensor is there on both sides, and measured.

use std::sync::Arc;

use super::evidence::PartEvidence;
use super::flow::Flow;
use super::rulebook::RuleBook;
use super::setting::Setting;
use super::tolerance::Rules;
use super::{BySlot, History, Noise, PartJudgement, PriorKnowledge, Replayed, judge_part};
use probe_dump::{
    Content, DType, ExtremePlaces, Number, Op, OpName, PartKey, Rank, RankId, ReadError, RecordedDType,
    RecordedStatistics, Scalar, Sketch, SketchVersion, Slot, SlotSide, Task, TensorData, TensorRecord,
    TensorRef, TensorStore, Value,
};
use probe_measure::{Evidence, KeptMetrics, compare, compare_recorded, observe};
use probe_pair::{Alignment, Mapping, PartPair, align, substitutions};

/// A tensor of one side.
#[derive(Debug, Clone)]
pub(super) struct Drawn {
    pub(super) shape: Vec<u64>,
    pub(super) values: Vec<f64>,
}

impl Drawn {
    /// Draws numbers of about a normal distribution (sums of twelve, by a linear congruential generator).
    pub(super) fn normal(seed: u64, shape: &[u64]) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let count = shape.iter().product::<u64>();
        let values = (0..count).map(|_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0).collect();
        Self { shape: shape.to_vec(), values }
    }

    /// Returns the result of a function of each element.
    pub(super) fn map(&self, function: impl Fn(f64) -> f64) -> Self {
        Self { shape: self.shape.clone(), values: self.values.iter().map(|&value| function(value)).collect() }
    }

    /// Returns the result of a function of each element and that of another tensor of the same shape.
    pub(super) fn with(&self, other: &Self, function: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = self.values.iter().zip(&other.values);
        Self { shape: self.shape.clone(), values: pairs.map(|(&a, &b)| function(a, b)).collect() }
    }

    /// Returns the same with uncorrelated errors of this relative size.
    pub(super) fn off(&self, seed: u64, error: f64) -> Self {
        let noise = Self::normal(seed, &self.shape);
        let rms = self.norm() / (self.values.len() as f64).sqrt();
        self.with(&noise, |value, noise| value + error * rms * noise)
    }

    /// Returns the product with the transposed `weight`, as `linear` computes it.
    pub(super) fn linear(&self, weight: &Self) -> Self {
        let (rows, inner, columns) =
            (self.shape[0] as usize, self.shape[1] as usize, weight.shape[0] as usize);
        let cell = |row: usize, column: usize| {
            let x = &self.values[row * inner..(row + 1) * inner];
            let w = &weight.values[column * inner..(column + 1) * inner];
            x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>()
        };
        let values = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        Self {
            shape: vec![self.shape[0], weight.shape[0]],
            values: values.map(|(row, column)| cell(row, column)).collect(),
        }
    }

    pub(super) fn norm(&self) -> f64 {
        self.values.iter().map(|value| value * value).sum::<f64>().sqrt()
    }

    fn record(&self) -> TensorRecord {
        let mut record = TensorRecord::new(RecordedDType::Known(DType::F64), self.shape.clone().into());
        let (min, max) = self
            .values
            .iter()
            .fold((f64::MAX, f64::MIN), |(min, max), &value| (min.min(value), max.max(value)));
        record.statistics = RecordedStatistics {
            min: Some(Number::Float(min)),
            max: Some(Number::Float(max)),
            mean: Some(self.values.iter().sum::<f64>() / self.values.len() as f64),
            norm: Some(self.norm()),
        }
        .into();
        let place = |wanted: f64| self.values.iter().position(|value| value.total_cmp(&wanted).is_eq());
        record.places =
            place(max).zip(place(min)).and_then(|(max, min)| ExtremePlaces::new(max as u64, min as u64));
        record
    }

    /// Returns the sketch of its numbers.
    pub(super) fn sketch(&self) -> Arc<Sketch> {
        let bytes: Vec<u8> = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let shape = [self.values.len()];
        let tensor = TensorRef::strided(&bytes, DType::F64, &shape, &[1], 0).unwrap();
        let content = Content { sketch: Some(SketchVersion::CURRENT), hash: false };
        Arc::new(observe(tensor, content).sketch.unwrap())
    }

    fn evidence(&self, other: &Self, dtype: DType) -> Evidence {
        if self.shape != other.shape {
            return Evidence::Nothing;
        }
        let bytes = |drawn: &Self| -> Vec<u8> {
            match dtype {
                DType::F32 => drawn.values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
                _ => drawn.values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            }
        };
        let shape: Vec<usize> = self.shape.iter().map(|&size| size as usize).collect();
        let mut strides = vec![1; shape.len()];
        for at in (1..shape.len()).rev() {
            strides[at - 1] = strides[at] * shape[at];
        }
        let (b, c) = (bytes(self), bytes(other));
        let tensor = |bytes| TensorRef::strided(bytes, dtype, &shape, &strides, 0).unwrap();
        match compare(tensor(&b), tensor(&c)) {
            Some(metrics) => Evidence::Data(KeptMetrics::from(&metrics)),
            None => Evidence::Nothing,
        }
    }
}

/// Returns the side of a slot by its path.
fn side_of(path: &str) -> SlotSide {
    match path.split('.').next() {
        Some("output") => SlotSide::Output,
        Some("parameter") => SlotSide::Parameter,
        Some("grad") => SlotSide::Gradient,
        _ => SlotSide::Input,
    }
}

struct NoStore;

impl TensorStore for NoStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        Err(ReadError::usage(key, "no data"))
    }
}

/// A part being made, op by op.
#[derive(Debug, Default)]
pub(super) struct Part {
    sides: [Vec<Op>; 2],
    values: Vec<(Drawn, Drawn)>,
    by_statistics: bool,
    /// All elements are rounded to binary32.
    is_single: bool,
    step: u64,
    /// Steps since the one recorded before.
    since: Option<u64>,
}

impl Part {
    /// Begins a part of which statistics were recorded, and no elements.
    pub(super) fn of_statistics() -> Self {
        Self { by_statistics: true, ..Self::default() }
    }

    /// Begins a part of which all tensors are of binary32.
    pub(super) fn of_binary32() -> Self {
        Self { is_single: true, ..Self::default() }
    }

    /// Begins a part of a step behind the first, of which nothing earlier was recorded.
    pub(super) fn of_later_step() -> Self {
        Self::default().later()
    }

    /// Makes it one of a step behind the first.
    pub(super) fn later(mut self) -> Self {
        self.step = 1;
        self
    }

    /// Makes it the step behind one that was recorded.
    pub(super) fn next(mut self) -> Self {
        (self.step, self.since) = (1, Some(1));
        self
    }

    /// Adds an op of both sides.
    pub(super) fn op(&mut self, name: &str) -> &mut Self {
        for ops in &mut self.sides {
            ops.push(Op::new(OpName::parse(name)));
        }
        self
    }

    /// Adds a tensor to the last op: the baseline's and the candidate's.
    pub(super) fn tensor(&mut self, path: &str, baseline: &Drawn, candidate: &Drawn) -> &mut Self {
        for (ops, drawn) in self.sides.iter_mut().zip([baseline, candidate]) {
            let value = Value::Tensor(Arc::new(drawn.record()));
            ops.last_mut().unwrap().slots.push(Slot::new(path, side_of(path), value));
        }
        self.values.push((baseline.clone(), candidate.clone()));
        if self.is_single { self.binary32() } else { self }
    }

    /// Gives the last tensor its sketch, on both sides.
    pub(super) fn sketched(&mut self) -> &mut Self {
        let sketches = self.values.last().map(|(b, c)| [b.sketch(), c.sketch()]);
        for (ops, sketch) in self.sides.iter_mut().zip(sketches.into_iter().flatten()) {
            let slot = ops.last_mut().and_then(|op| op.slots.last_mut());
            if let Some(Value::Tensor(record)) = slot.map(|slot| &mut slot.value) {
                Arc::make_mut(record).sketch = Some(sketch);
            }
        }
        self
    }

    /// Adds a tensor that the baseline alone has to the last op.
    pub(super) fn tensor_of_one(&mut self, path: &str, baseline: &Drawn) -> &mut Self {
        let value = Value::Tensor(Arc::new(baseline.record()));
        self.sides[0].last_mut().unwrap().slots.push(Slot::new(path, side_of(path), value));
        self
    }

    /// Says that the tensors of the last op require a gradient.
    pub(super) fn requires_grad(&mut self) -> &mut Self {
        self.require([true, true])
    }

    /// Says that the tensors of the last op require a gradient in the candidate, and none in the baseline.
    pub(super) fn trained_on_one_side(&mut self) -> &mut Self {
        self.require([false, true])
    }

    fn require(&mut self, sides: [bool; 2]) -> &mut Self {
        for (ops, requires) in self.sides.iter_mut().zip(sides) {
            for slot in ops.last_mut().into_iter().flat_map(|op| &mut op.slots) {
                if let Value::Tensor(record) = &mut slot.value {
                    Arc::make_mut(record).requires_grad = Some(requires);
                }
            }
        }
        self
    }

    /// Makes the candidate's last tensor one of integers.
    pub(super) fn integers_of_one(&mut self) -> &mut Self {
        self.integers_of(&[1])
    }

    /// Makes the last tensor of these sides one of integers.
    pub(super) fn integers_of(&mut self, sides: &[usize]) -> &mut Self {
        self.in_type(sides, DType::I64)
    }

    /// Makes the last tensor of both sides one of binary32.
    pub(super) fn binary32(&mut self) -> &mut Self {
        self.in_type(&[0, 1], DType::F32)
    }

    /// Makes the last tensor of both sides one of complex numbers of two binary32.
    pub(super) fn complex64(&mut self) -> &mut Self {
        self.in_type(&[0, 1], DType::C64)
    }

    /// Makes the last tensor of both sides one of binary16.
    pub(super) fn binary16(&mut self) -> &mut Self {
        self.in_type(&[0, 1], DType::F16)
    }

    fn in_type(&mut self, sides: &[usize], dtype: DType) -> &mut Self {
        for &side in sides {
            let slot = self.sides[side].last_mut().and_then(|op| op.slots.last_mut());
            if let Some(Value::Tensor(record)) = slot.map(|slot| &mut slot.value) {
                Arc::make_mut(record).dtype = RecordedDType::Known(dtype);
            }
        }
        self
    }

    /// Says in which call of a module the last op ran.
    pub(super) fn in_module(&mut self, call: &str) -> &mut Self {
        for ops in &mut self.sides {
            ops.last_mut().unwrap().parent = Some(call.into());
        }
        self
    }

    /// Says that checkpointing made the candidate's last op again.
    pub(super) fn computed_again(&mut self) -> &mut Self {
        self.sides[1].last_mut().unwrap().recomputed = true;
        self
    }

    /// Adds an op that one side alone has (1 for the candidate), which makes `made` of `read`.
    pub(super) fn op_of(&mut self, of: usize, name: &str, read: &Drawn, made: &Drawn) -> &mut Self {
        let mut op = Op::new(OpName::parse(name));
        for (path, side, drawn) in [("input.0", SlotSide::Input, read), ("output.0", SlotSide::Output, made)]
        {
            op.slots.push(Slot::new(path, side, Value::Tensor(Arc::new(drawn.record()))));
        }
        self.sides[of].push(op);
        self
    }

    /// Adds a number to the last op, on the sides that have one.
    pub(super) fn number(&mut self, path: &str, sides: [Option<f64>; 2]) -> &mut Self {
        for (ops, number) in self.sides.iter_mut().zip(sides) {
            let slot = number.map(|number| Value::Scalar(Scalar::Number(Number::Float(number))));
            ops.last_mut().unwrap().slots.extend(slot.map(|value| Slot::new(path, SlotSide::Input, value)));
        }
        self
    }

    /// Adds an integer to the last op, on the sides that have one.
    pub(super) fn integer(&mut self, path: &str, sides: [Option<i64>; 2]) -> &mut Self {
        for (ops, number) in self.sides.iter_mut().zip(sides) {
            let value = number.map(|number| Value::Scalar(Scalar::Number(Number::Int(number))));
            ops.last_mut().unwrap().slots.extend(value.map(|value| Slot::new(path, SlotSide::Input, value)));
        }
        self
    }

    fn pair(&self) -> (PartPair, PartEvidence) {
        let rank = |ops: &[Op]| Rank {
            framework: probe_dump::Framework::default(),
            key: PartKey { step: 0, rank: RankId::Single, label: "".into() },
            task: Task::Tensor,
            level: "api".into(),
            ops: ops.to_vec(),
            stacks: Vec::new(),
            store: Arc::new(NoStore),
            faults: Vec::new(),
            notes: Vec::new(),
            cut: false,
        };
        let [baseline, candidate] = [rank(&self.sides[0]), rank(&self.sides[1])];
        let Alignment { ops, .. } = align(&baseline, &candidate, &Mapping::default());
        let substitutions = substitutions(&baseline, &candidate, &ops);
        let pair =
            PartPair { step: self.step, rank: 0, since: self.since, baseline, candidate, ops, substitutions };
        let mut evidence = PartEvidence::default();
        let mut values = self.values.iter();
        for op in &pair.ops {
            let of_slot = |slots| match pair.slot(op, slots) {
                (Some(b), Some(c)) if b.value.tensor().and(c.value.tensor()).is_some() => {
                    values.next().map_or(Evidence::Nothing, |(b, c)| {
                        if self.by_statistics {
                            Evidence::Recorded(Box::new(compare_recorded(&b.record(), &c.record())))
                        } else {
                            b.evidence(c, if self.is_single { DType::F32 } else { DType::F64 })
                        }
                    })
                }
                _ => Evidence::Nothing,
            };
            evidence.push(op.slots.iter().map(of_slot).collect::<Vec<_>>());
        }
        (pair, evidence)
    }

    /// Passes the flow of the part to `look`.
    pub(super) fn flow<T>(&self, look: impl FnOnce(&Flow<'_>) -> T) -> T {
        let (pair, evidence) = self.pair();
        let setting = Setting::of(&pair);
        look(&Flow::of(&pair, &evidence, &setting, &Rules::default(), &mut RuleBook::default()))
    }

    /// Judges the part under these rules.
    pub(super) fn judged(&self, rules: &str) -> PartJudgement {
        self.judged_after(&History::default(), rules).0
    }

    /// Judges the part behind earlier steps; also returns what it leaves to the next.
    pub(super) fn judged_after(&self, history: &History, rules: &str) -> (PartJudgement, History) {
        let (pair, evidence) = self.pair();
        let (rules, noise) = (Rules::parse(rules).unwrap(), Noise::default());
        let (reference, replayed) = (BySlot::default(), Replayed::default());
        let known =
            PriorKnowledge { rules: &rules, noise: &noise, reference: &reference, replayed: &replayed };
        judge_part(&pair, &evidence, known, history, |_| ())
    }
}
