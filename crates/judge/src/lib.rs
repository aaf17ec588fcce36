//! Turns numbers into statements: a verdict for every tensor pair, a role for every op, the first divergence
//! and its cause.
//!
//! Knows no file format and does no arithmetic on tensors; everything is based on the
//! [`Evidence`](probe_measure::Evidence) of `measure`.

mod argument;
mod backward_only;
mod candidate;
mod choices;
mod closing;
mod collectives;
mod difference;
#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "sizes of small tensors")]
mod drawn;
mod ends;
mod evidence;
mod excess;
mod expectation;
mod expected;
mod family;
mod finding;
mod flow;
mod frames;
mod gradient_marks;
mod group;
mod hard_faults;
mod history;
mod incomplete;
mod marks;
mod median;
mod nesting;
mod noise;
mod notes;
mod one_sided;
mod ops;
mod origin;
mod outliers;
mod part;
mod pattern;
mod precision;
mod products;
mod range;
mod reference;
mod repeated;
mod replayed;
mod rulebook;
mod run;
mod scale;
mod setting;
mod slope;
mod slot;
mod slot_view;
mod structure;
mod tensor;
mod tolerance;
mod transfer;
mod unmeasured;
mod unread;
mod unwritten;
mod update;
mod user_rule;
mod value;
mod values;
mod verdict;
mod views;
mod wiring;

pub use evidence::PartEvidence;
pub use expectation::{Expectation, Expectations};
pub use finding::stack_of_op;
pub use frames::{source_line, user_frames};
pub use group::{FaultGroup, groups as fault_groups};
pub use history::History;
pub use noise::{Noise, NoiseMeter, PartNoise, measure_noise};
pub use notes::OWN_INPUTS;
pub use ops::multiplies;
pub use part::{PriorKnowledge, judge_part};
pub use reference::ReferenceErrors;
pub use replayed::Replayed;
pub use run::{Note, RunJudge};
pub use tolerance::{DTypeTolerance, Rule, RuleEntry, Rules};
pub use verdict::{Cause, Role, RunVerdict, Verdict};

use std::ops::Range;

use probe_dump::{Figure, Ordinal, Remark};
use probe_measure::{ALL_METRICS, Basis, Metric};
use probe_pair::BySlot;

/// The judgement of one pair of slots.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotJudgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The judged error, as relative l2 error (exact, estimated, or the bound that statistics prove), if
    /// known.
    pub error: Figure,
    /// The tolerance among [`PartJudgement::rules`] that decided; `None` if none was needed.
    pub rule: Option<Ordinal>,
    /// The reason in words; empty for rows that need no explanation.
    pub reason: Remark,
    /// True if it differs for one reason alone: an op is at fault, and this is the fault or follows from it. Otherwise it is close.
    pub follows: bool,
}

/// The judgement of one op.
#[derive(Debug, Clone, PartialEq)]
pub struct OpJudgement {
    /// Role of the op in the spread of error.
    pub role: Role,
    /// Kind of fault, for ops that introduce one.
    pub cause: Option<Cause>,
    /// Worst verdict among its slots.
    pub verdict: Verdict,
    /// Largest error among its inputs, if any are comparable.
    pub input_error: Figure,
    /// Largest error among its results, if any are comparable.
    pub output_error: Figure,
    /// Position in `slots` of the deciding slot, if any.
    pub worst: Option<Ordinal>,
    /// The reason in words; empty for clean ops.
    pub reason: Remark,
    /// Position in execution order of the faulty op that caused its error; `None` if there is none in this
    /// part.
    pub follows: Option<Ordinal>,
}

/// The judgement of one step of one rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartJudgement {
    /// In the order of [`PartPair::ops`](probe_pair::PartPair::ops).
    pub ops: Vec<OpJudgement>,
    /// Judgements of the slots.
    pub slots: BySlot<SlotJudgement>,
    /// Errors and expected errors; empty for values judged by other means.
    pub expectations: Expectations,
    /// Texts of the tolerance rules that slots refer to: `float32 default: rel_l2 <= 6.1e-5 (...)`.
    pub rules: Vec<Box<str>>,
    /// Ops that are at fault, in execution order.
    pub findings: Vec<Finding>,
    /// Statements about the whole part, each made once (run-wide dtype, inputs that already differ).
    pub notes: Vec<String>,
    /// Values that a capture could not measure.
    pub incomplete: Vec<Incomplete>,
    /// Errors against the reference run; empty without one.
    pub reference: BySlot<ReferenceErrors>,
    /// Tallies.
    pub counts: Counts,
}

/// An op at fault, with everything that a report says about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Iteration.
    pub step: u64,
    /// Rank.
    pub rank: u32,
    /// Place of the op in execution order within its part, from 0.
    pub order: usize,
    /// Full op name.
    pub op: String,
    /// Path of the slot that shows the fault; empty for an op without partner.
    pub slot: String,
    /// Kind of fault.
    pub cause: Cause,
    /// Role of the op.
    pub role: Role,
    /// Metrics of the slot, in column order; `None` where undefined or unknown.
    pub metrics: [(Metric, Option<f64>); ALL_METRICS.len()],
    /// Basis of the metrics; `None` if there are none.
    pub basis: Option<Basis>,
    /// Errors of the slot against the reference run.
    pub reference: ReferenceErrors,
    /// Position of the error in the tensor, or of the extremes if elements were not compared; `None` if
    /// neither is known.
    pub place: Option<ErrorPlace>,
    /// The reason in words: `inputs bit-equal, rel_l2 1.0e-2, cosine 0.99995`.
    pub reason: String,
    /// Ops of its part that differ because of it.
    pub followers: u64,
    /// Call stack, innermost first, without framework frames; empty if not recorded.
    pub stack: Vec<String>,
    /// Source line of the innermost user frame as `file:line`; `None` if not recorded.
    pub source: Option<String>,
    /// Path of the module it belongs to, if known.
    pub module: Option<String>,
    /// Operators that it launched, as submitted to the candidate's runtime; empty if not recorded.
    pub below: Vec<String>,
    /// For operators recorded in the runtime: the framework op that launched it.
    pub caller: Option<String>,
    /// Number of collectives before it in its part.
    pub collectives: u64,
}

impl Finding {
    /// True when the metrics are estimates or lower bounds.
    pub const fn is_estimated(&self) -> bool {
        matches!(self.basis, Some(Basis::Sketch | Basis::Statistics))
    }

    /// Adds the slot's errors against the reference run.
    fn compare_with(&mut self, reference: Option<ReferenceErrors>) {
        self.reference = reference.unwrap_or_default();
        let said = self.reference.text();
        if !said.is_empty() {
            let separator = if self.reason.is_empty() { "" } else { ", " };
            self.reason = format!("{}{separator}{said}", self.reason);
        }
    }
}

/// Position of an error in a tensor. Indices refer to the baseline's shape.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorPlace {
    /// Sizes of the dimensions.
    pub shape: Vec<u64>,
    /// The largest error among the elements that are finite on both sides; `None` if they are equal or were
    /// not compared.
    pub largest: Option<LargestError>,
    /// The greatest and the least element of both sides, if elements were not compared but the positions of
    /// these were recorded.
    pub extremes: Option<Box<Extremes>>,
    /// For each dimension, the range that holds 99 % of the elements that are NaN or infinite on one side
    /// only, or else of the squared error; `None` if it was not computed.
    pub region: Option<Vec<Range<u64>>>,
}

/// The first of the greatest and of the least finite elements, in the baseline and in the candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Extremes {
    /// The greatest.
    pub greatest: [Located; 2],
    /// The least.
    pub least: [Located; 2],
}

/// An element and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// Its index in each dimension.
    pub index: Vec<u64>,
    /// Its value; the modulus, for complex.
    pub value: f64,
}

/// The element with the largest absolute error.
#[derive(Debug, Clone, PartialEq)]
pub struct LargestError {
    /// Its index in each dimension.
    pub index: Vec<u64>,
    /// The baseline's value there (the real part, for complex).
    pub baseline: f64,
    /// The candidate's value there.
    pub candidate: f64,
}

/// Tallies of a part or a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Parts (one step of one rank) compared.
    pub parts: u64,
    /// Ops present on both sides.
    pub ops_paired: u64,
    /// Ops in the baseline only.
    pub ops_baseline_only: u64,
    /// Ops in the candidate only.
    pub ops_candidate_only: u64,
    /// Slots by verdict, in the order of [`Verdict::ALL`].
    pub verdicts: [u64; Verdict::ALL.len()],
    /// Ops by role, in the order of [`Role::ALL`].
    pub roles: [u64; Role::ALL.len()],
    /// Bytes of tensor data read, both sides together.
    pub bytes: u64,
}

impl Counts {
    /// Adds the tallies of another part.
    pub fn add(&mut self, other: &Self) {
        self.parts += other.parts;
        self.ops_paired += other.ops_paired;
        self.ops_baseline_only += other.ops_baseline_only;
        self.ops_candidate_only += other.ops_candidate_only;
        self.bytes += other.bytes;
        for (sum, more) in self.verdicts.iter_mut().zip(other.verdicts) {
            *sum += more;
        }
        for (sum, more) in self.roles.iter_mut().zip(other.roles) {
            *sum += more;
        }
    }

    /// Returns the number of slots whose two sides were compared.
    pub fn compared(&self) -> u64 {
        let idle =
            [Verdict::Missing, Verdict::Unknown, Verdict::Unreadable].map(|verdict| self.verdict(verdict));
        self.verdicts.iter().sum::<u64>() - idle.iter().sum::<u64>()
    }

    /// Returns the number of slots with this verdict.
    pub fn verdict(&self, verdict: Verdict) -> u64 {
        self.verdicts[verdict as usize]
    }

    /// Returns the number of ops with this role.
    pub fn role(&self, role: Role) -> u64 {
        self.roles[role as usize]
    }
}

/// Something that could not be compared, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incomplete {
    /// The place: a file, a part, or `step 0 rank 1 Functional.gelu.0.forward output.0`.
    pub place: String,
    /// The reason, and the remedy if there is one.
    pub reason: String,
}

/// Description of a run for the head of the report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunInfo {
    /// Path as the user gave it.
    pub path: String,
    /// Format, in words.
    pub format: String,
    /// Task; empty if there is none.
    pub task: String,
    /// Level; empty if there is none.
    pub level: String,
    /// Steps found.
    pub steps: Vec<u64>,
    /// Ranks found.
    pub ranks: Vec<u32>,
    /// Ops read, over all parts.
    pub ops: u64,
}

/// The result of the whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The verdict; decides the exit code.
    pub verdict: RunVerdict,
    /// The earliest op at fault.
    pub first_divergence: Option<Finding>,
    /// Ops at fault, ranked: the first divergence, then the others by step, origin before consequence.
    pub culprits: Vec<Finding>,
    /// The culprits again, each fault once with the steps and ranks that show it, in the same order.
    pub groups: Vec<FaultGroup>,
    /// Tallies over all parts.
    pub counts: Counts,
    /// Everything that could not be read or compared.
    pub incomplete: Vec<Incomplete>,
    /// Statements about the whole run, each made once.
    pub notes: Vec<String>,
    /// The baseline run.
    pub baseline: RunInfo,
    /// The candidate run.
    pub candidate: RunInfo,
    /// Wall time of the comparison, in seconds.
    pub seconds: f64,
}

impl Summary {
    /// Returns the summary of an empty comparison.
    pub fn empty() -> Self {
        RunJudge::default().finish(RunInfo::default(), RunInfo::default(), 0.0)
    }
}
