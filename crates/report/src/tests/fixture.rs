//! A hand-made comparison that holds every verdict, role and cause, and hostile names.

use std::sync::Arc;

use probe_compare::{PartReport, Pieces};
use probe_dump::{
    Checksum, DType, Framework, Number, Op, OpName, Ordinal, PartKey, Rank, RankId, ReadError, RecordedDType,
    RecordedStatistics, Scalar, Slot, SlotSide, Task, TensorData, TensorMetadata, TensorRecord, TensorStore,
    Value,
};
use probe_judge::{
    Cause, Counts, ErrorPlace, Expectation, Finding, Incomplete, LargestError, OpJudgement, PartEvidence,
    PartJudgement, ReferenceErrors, Role, RunInfo, RunVerdict, SlotJudgement, Summary, Verdict,
};
use probe_measure::{Evidence, KeptMetrics, PairMetrics, TensorSummary, Unreadable, compare_recorded};
use probe_pair::{BySlot, OpPair, Paired, PartPair, SlotPairs};

mod everything;

pub(crate) use everything::{SHARDS, everything};

/// Names that imitate something else: a formula, terminal commands, markup, Excel's own escapes, a novel.
pub(crate) fn hostile_names() -> [String; 6] {
    [
        "=cmd|'/C calc'!A0".into(),
        "\u{1b}]0;owned\u{7}\u{1b}[2J.0.forward".into(),
        "<script>alert(\"&\")</script>".into(),
        "_x001B_ and \u{202e}txt.exe".into(),
        "@SUM(1+1)*cmd\n\r\tx".into(),
        format!("Functional.{}.0.forward", "long".repeat(10_000)),
    ]
}

const STACK: [&str; 2] = [
    "File /opt/lib/python3/site-packages/torch/nn/modules/activation.py, line 9, in forward, \n F.gelu",
    "File /home/user/train.py, line 112, in forward, \n x = self.act(x)",
];

struct NoStore;

impl TensorStore for NoStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        Err(ReadError::usage(key, "the fixture has no data"))
    }
}

/// A part with everything that a [`PartReport`] borrows.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) pair: PartPair,
    pub(crate) evidence: PartEvidence,
    pub(crate) judged: PartJudgement,
    pub(crate) values: BySlot<Option<u32>>,
    pub(crate) pieces: Pieces,
    expected: Vec<((usize, usize), Expectation)>,
}

impl Part {
    pub(crate) fn report(&self) -> PartReport<'_> {
        PartReport {
            pair: &self.pair,
            evidence: &self.evidence,
            judged: &self.judged,
            values: &self.values,
            pieces: &self.pieces,
            portraits: &[],
            parts: 1,
        }
    }

    /// Creates an empty part.
    pub(crate) fn new(step: u64, task: Task) -> Self {
        let rank = || Rank {
            key: PartKey { step, rank: RankId::Rank(0), label: "rank0".into() },
            framework: Framework::default(),
            task,
            level: "mix".into(),
            ops: Vec::new(),
            stacks: vec![STACK.map(Into::into).into()],
            store: Arc::new(NoStore),
            faults: Vec::new(),
            notes: Vec::new(),
            cut: false,
        };
        Self {
            pair: PartPair {
                step,
                rank: 0,
                since: None,
                baseline: rank(),
                candidate: rank(),
                ops: Vec::new(),
                substitutions: Vec::new(),
            },
            evidence: PartEvidence::default(),
            values: BySlot::default(),
            pieces: Pieces::new(),
            expected: Vec::new(),
            judged: PartJudgement {
                rules: vec!["float32 default: rel_l2 <= 6.1e-5 (sqrt(n) roundings)".into()],
                ..PartJudgement::default()
            },
        }
    }

    /// Adds an op whose slots are given as baseline value, candidate value, evidence and verdict.
    pub(crate) fn push(&mut self, name: &str, role: Role, cause: Option<Cause>, slots: Vec<SlotSpec>) {
        let (mut b, mut c, mut pairs, mut evidence, mut judged) = (vec![], vec![], vec![], vec![], vec![]);
        for spec in slots {
            let slot = |value: Value| Slot::new(spec.path, spec.side, value);
            pairs.push(match (&spec.baseline, &spec.candidate) {
                (Some(_), Some(_)) => Paired::Both(b.len(), c.len()),
                (Some(_), None) => Paired::BaselineOnly(b.len()),
                _ => Paired::CandidateOnly(c.len()),
            });
            b.extend(spec.baseline.map(slot));
            c.extend(spec.candidate.map(slot));
            let place = (self.pair.ops.len(), judged.len());
            let slot = judgement(spec.verdict, &spec.evidence);
            let expected = |error| Expectation { error, floor: 3e-7, expected: 4e-7 };
            self.expected.extend(slot.error.get().map(|error| (place, expected(error))));
            judged.push(slot);
            evidence.push(spec.evidence);
        }
        let paired = self.push_op(name, role, (b, c));
        let error = |result: bool| {
            let of = judged.iter().zip(&pairs).filter(|(_, pair)| {
                self.slot(paired, **pair).is_some_and(|slot| slot.side.is_result() == result)
            });
            of.filter_map(|(judged, _)| judged.error.get()).reduce(f64::max).into()
        };
        let (input_error, output_error) = (error(false), error(true));
        let worst = judged
            .iter()
            .enumerate()
            .filter(|(_, slot)| !slot.verdict.is_fine())
            .max_by_key(|(_, slot)| slot.verdict)
            .map(|(position, _)| position);
        self.count(paired, role, &judged);
        let reason = if role == Role::Clean { "" } else { "inputs bit-equal, rel_l2 1.0e-2, cosine 0.99995" };
        if let Some(cause) = cause {
            let slot = worst.and_then(|position| self.slot(paired, pairs[position]));
            let slot = slot.map(|slot| slot.path.to_string()).unwrap_or_default();
            let shown = worst.map_or(&Evidence::Nothing, |position| &evidence[position]);
            let finding =
                Finding { op: name.into(), slot, role, reason: reason.into(), ..self.finding(cause, shown) };
            self.judged.findings.push(finding);
        }
        self.judged.ops.push(OpJudgement {
            role,
            cause,
            verdict: judged.iter().map(|slot| slot.verdict).max().unwrap_or(Verdict::Unknown),
            input_error,
            output_error,
            worst: worst.map(Ordinal::of),
            reason: reason.into(),
            follows: None,
        });
        self.judged.slots.push(judged);
        self.judged.expectations = self.expected.iter().copied().collect();
        self.evidence.push(evidence);
        self.values.push((0_u32..).take(pairs.len()).map(Some));
        self.pair.ops.push(OpPair { ops: paired, slots: pairs.into_iter().collect() });
    }

    /// Adds an op to the sides that have it.
    fn push_op(&mut self, name: &str, role: Role, (b, c): (Vec<Slot>, Vec<Slot>)) -> Paired {
        let both_empty = b.is_empty() && c.is_empty();
        let op = |slots: Vec<Slot>| Op {
            slots,
            parent: Some("Module.layers.0.mlp.MLP.forward.0".into()),
            stack: Some(0),
            ..Op::new(OpName::parse(name))
        };
        let (bo, co) = (self.pair.baseline.ops.len(), self.pair.candidate.ops.len());
        let paired = match (role, b.is_empty() && !both_empty) {
            (Role::Unpaired, true) => Paired::CandidateOnly(co),
            (Role::Unpaired, false) => Paired::BaselineOnly(bo),
            _ => Paired::Both(bo, co),
        };
        if paired.baseline().is_some() {
            self.pair.baseline.ops.push(op(b));
        }
        if paired.candidate().is_some() {
            self.pair.candidate.ops.push(op(c));
        }
        paired
    }

    /// Returns a slot as the baseline has it, else the candidate.
    fn slot(&self, op: Paired, slot: Paired) -> Option<&Slot> {
        let (b, c) = self.pair.slot(&OpPair { ops: op, slots: SlotPairs::in_order(0) }, slot);
        b.or(c)
    }

    fn count(&mut self, op: Paired, role: Role, slots: &[SlotJudgement]) {
        for slot in slots {
            self.judged.counts.verdicts[slot.verdict as usize] += 1;
        }
        self.judged.counts.roles[role as usize] += 1;
        match op {
            Paired::Both(..) => self.judged.counts.ops_paired += 1,
            Paired::BaselineOnly(_) => self.judged.counts.ops_baseline_only += 1,
            Paired::CandidateOnly(_) => self.judged.counts.ops_candidate_only += 1,
        }
    }

    /// Returns a finding on the next op, without name, slot, role and reason.
    fn finding(&self, cause: Cause, shown: &Evidence) -> Finding {
        Finding {
            step: self.pair.step,
            rank: self.pair.rank,
            order: self.pair.ops.len(),
            op: String::new(),
            slot: String::new(),
            cause,
            role: Role::Clean,
            metrics: shown.metrics(),
            basis: shown.basis(),
            reference: ReferenceErrors::default(),
            place: matches!(shown, Evidence::Data(_)).then(|| ErrorPlace {
                shape: vec![4, 8, 16],
                largest: Some(LargestError { index: vec![0, 3, 1], baseline: 1.5, candidate: 1.53 }),
                extremes: None,
                region: Some(vec![0..4, 3..4, 0..16]),
            }),
            reason: String::new(),
            followers: 0,
            stack: vec!["File /home/user/train.py, line 112, in forward, x = self.act(x)".into()],
            source: (cause != Cause::Structure).then(|| "train.py:112".into()),
            module: Some("layers.0.mlp".into()),
            below: Vec::new(),
            caller: None,
            collectives: 0,
        }
    }
}

fn judgement(verdict: Verdict, evidence: &Evidence) -> SlotJudgement {
    SlotJudgement {
        verdict,
        error: evidence.metric(probe_measure::Metric::RelL2).into(),
        rule: matches!(verdict, Verdict::Close | Verdict::Differs).then(|| Ordinal::of(0)),
        reason: if verdict.is_fine() { "".into() } else { format!("made {verdict}").into() },
        follows: false,
    }
}

/// Description of a slot to create.
pub(crate) struct SlotSpec {
    pub(crate) path: &'static str,
    pub(crate) side: SlotSide,
    pub(crate) baseline: Option<Value>,
    pub(crate) candidate: Option<Value>,
    pub(crate) evidence: Evidence,
    pub(crate) verdict: Verdict,
}

/// Describes a slot that both sides have.
pub(crate) fn both(path: &'static str, value: Value, evidence: Evidence, verdict: Verdict) -> SlotSpec {
    let side = match path.split('.').next() {
        Some("output") => SlotSide::Output,
        Some("parameter") => SlotSide::Parameter,
        Some("grad") => SlotSide::Gradient,
        _ => SlotSide::Input,
    };
    SlotSpec { path, side, baseline: Some(value.clone()), candidate: Some(value), evidence, verdict }
}

pub(crate) fn record(norm: f64) -> TensorRecord {
    TensorRecord {
        statistics: RecordedStatistics {
            max: Some(Number::Float(3.25 + norm * 1e-3)),
            min: Some(Number::Float(-3.0)),
            mean: Some(0.012_345_678_901_234_5),
            norm: Some(norm),
        }
        .into(),
        ..TensorRecord::from(TensorMetadata {
            requires_grad: Some(true),
            ..TensorMetadata::new(RecordedDType::Known(DType::F32), [4, 8, 16].into())
        })
    }
}

pub(crate) fn tensor() -> Value {
    Value::Tensor(Arc::new(record(22.5)))
}

/// Returns evidence from data with this relative error.
pub(crate) fn data(rel_l2: f64) -> Evidence {
    let side = TensorSummary {
        count: 512,
        min: Some(-3.0),
        max: Some(3.25),
        mean: Some(0.012_345_678_901_234_5),
        norm: 22.5,
        zeros: 7,
        ..TensorSummary::default()
    };
    Evidence::Data(KeptMetrics::from(&PairMetrics {
        baseline: side,
        candidate: TensorSummary { nan: 2, pos_inf: 1, neg_inf: 3, ..side },
        both_finite: 506,
        bit_equal: rel_l2.to_bits() == 0,
        different: 400,
        cosine: Some(1.0 - rel_l2 * rel_l2 / 2.0),
        max_abs_err: Some(rel_l2 * 3.0),
        max_abs_index: Some(17 + 16 * 3),
        max_abs_values: Some((1.5, 1.5 + rel_l2 * 3.0)),
        mean_abs_err: Some(rel_l2 * 0.8),
        max_rel_err: Some(f64::INFINITY),
        mean_rel_err: Some(rel_l2 * 2.0),
        rmse: Some(rel_l2),
        euclidean: Some(rel_l2 * 22.5),
        rel_l2: Some(rel_l2),
        within_1e3: Some(0.75),
        within_5e3: Some(1.0),
        max_ulp: Some(u64::MAX),
        ..PairMetrics::default()
    }))
}

fn run(path: &str) -> RunInfo {
    RunInfo {
        path: path.into(),
        format: "msprobe dump".into(),
        task: "tensor".into(),
        level: "mix".into(),
        steps: vec![0, 1, 2, 5],
        ranks: vec![0],
        ops: 612,
    }
}

/// Returns the summary of `parts`.
pub(crate) fn summary(parts: &[&Part]) -> Summary {
    let mut counts = Counts::default();
    let mut culprits = Vec::new();
    for part in parts {
        counts.add(&part.judged.counts);
        culprits.extend(part.judged.findings.iter().cloned());
    }
    let verdict = if culprits.is_empty() { RunVerdict::Agree } else { RunVerdict::Diverged };
    counts.bytes = if counts.parts == 0 { 0 } else { 3 << 29 };
    Summary {
        verdict,
        first_divergence: culprits.first().cloned(),
        groups: probe_judge::fault_groups(&culprits),
        culprits,
        counts,
        incomplete: Vec::new(),
        notes: Vec::new(),
        baseline: run("gpu_dump"),
        candidate: run("npu_dump"),
        seconds: 1.234,
    }
}

/// Returns the summary of [`everything`], with notes and places that could not be compared.
pub(crate) fn full_summary(part: &Part) -> Summary {
    Summary {
        incomplete: (0..7)
            .map(|index| Incomplete {
                place: format!("step 0 rank 0 Tensor.mul.0.forward output.{index}\u{1b}[31m"),
                reason: "x.pt: truncated at byte 17".into(),
            })
            .collect(),
        notes: vec!["the candidate runs in bfloat16 throughout".into()],
        ..summary(&[part])
    }
}
