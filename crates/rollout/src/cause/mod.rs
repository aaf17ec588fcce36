//! Why the two sides differ. Each cause is decided by a statistic of its own; one that is found is taken out of the data before
//! the next is asked for, so that several are found at once.
//!
//! Bookkeeping comes first, because it leaves traces that nothing else leaves. Then come relations between the two distributions,
//! then traces of the model. What is left, and is larger than rounding explains, says that the weights differ.

mod books;
mod distribution;
mod model;
mod order;
mod penalty;
mod quantized;
mod repeats;
mod routing;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::align::{GapKind, Joined, TokenGap};
use crate::measure::Measures;
use crate::options::{Precision, RolloutOptions};
use crate::pairs::Pairs;
use crate::table::{NO_ID, Table};

/// Causes of a difference between the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The two sides have different tokens.
    Tokens,
    /// A value is not a number.
    NonFinite,
    /// The mask of the loss is moved, or covers other tokens than those that were sampled.
    Mask,
    /// The trainer lacks the end token of samples.
    EndToken,
    /// Tokens have the value 0, which says that nobody scored them.
    Unscored,
    /// Values belong to the token before or behind.
    Shift,
    /// Values belong to another sample.
    Rows,
    /// The logits of one side are divided by a temperature.
    Temperature,
    /// One side renormalises over the tokens that top-p or top-k keeps.
    Truncation,
    /// The logits of one side are bent, as by a soft cap.
    SoftCap,
    /// Tokens that occurred before have other values on one side, as after a penalty on repetition.
    Penalty,
    /// Tokens go to other experts.
    Routing,
    /// The values of one side are numbers of 16 bits.
    Precision,
    /// The error follows the padding in front of a sample.
    Padding,
    /// The error grows with the position in the sequence.
    Position,
    /// Samples of older weights differ more.
    Stale,
    /// The engine computes with quantised weights.
    Quantized,
    /// The trainer gives other values when it is asked again.
    Trainer,
    /// The weights, or the arithmetic of one side, differ.
    Weights,
}

impl Cause {
    /// Every cause, in the order in which they are looked for.
    pub const ALL: [Self; 19] = [
        Self::Tokens,
        Self::NonFinite,
        Self::Mask,
        Self::EndToken,
        Self::Unscored,
        Self::Shift,
        Self::Rows,
        Self::Truncation,
        Self::Temperature,
        Self::SoftCap,
        Self::Penalty,
        Self::Routing,
        Self::Precision,
        Self::Padding,
        Self::Position,
        Self::Stale,
        Self::Quantized,
        Self::Trainer,
        Self::Weights,
    ];

    /// Returns the word that names it in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::NonFinite => "non-finite",
            Self::Mask => "mask",
            Self::EndToken => "end-token",
            Self::Unscored => "unscored",
            Self::Shift => "shift",
            Self::Rows => "rows",
            Self::Temperature => "temperature",
            Self::Truncation => "truncation",
            Self::SoftCap => "soft-cap",
            Self::Penalty => "penalty",
            Self::Routing => "routing",
            Self::Precision => "precision",
            Self::Padding => "padding",
            Self::Position => "position",
            Self::Stale => "stale",
            Self::Quantized => "quantized",
            Self::Trainer => "trainer",
            Self::Weights => "weights",
        }
    }

    /// Returns what to do about it.
    pub const fn action(self) -> &'static str {
        match self {
            Self::Tokens => {
                "pass the engine's token ids to the trainer instead of text that is made tokens again"
            }
            Self::NonFinite => "find the operator that makes them: capture both sides and run probe compare",
            Self::Mask => "compare where each side begins to count: the response, or the token before it",
            Self::EndToken => "keep the token that ends a response in the trainer's sequence and mask",
            Self::Unscored => "score every token of the response: an entry that was never written is 0",
            Self::Shift => {
                "logits at t score token t + 1: check where one side cuts off the first or last entry"
            }
            Self::Rows => "join the two sides by the id of the sample, after every sort, filter and gather",
            Self::Temperature => {
                "divide the trainer's logits by the sampling temperature, and let the engine report processed values \
                 (vLLM: logprobs_mode=processed_logprobs)"
            }
            Self::Truncation => {
                "train on samples drawn with top_p=1 and top_k=-1, or let the engine report values before truncation"
            }
            Self::SoftCap => "apply the final soft cap of the logits on both sides (final_logit_softcapping)",
            Self::Penalty => {
                "sample without repetition, presence and frequency penalty, or apply the same to the trainer's logits"
            }
            Self::Routing => {
                "compare the weights and the bias of that router, and the numbers of its experts, on both sides; where rounding decides, \
                 replay the engine's choices in the trainer"
            }
            Self::Precision => "compute logits and log_softmax of that side in float32",
            Self::Padding => {
                "check attention mask and position ids of padded rows; then compare activations of one of them"
            }
            Self::Position => {
                "check rotary base, its scaling and the context length of both sides; then compare activations"
            }
            Self::Stale => "update the engine's weights before it samples, or correct for the age of samples",
            Self::Quantized => {
                "correct for it (importance weights), keep sensitive layers in full precision, or train with the engine's quantisation"
            }
            Self::Trainer => {
                "put the trainer into eval mode while it scores (dropout), and compare two of its passes"
            }
            Self::Weights => {
                "save the weights of both sides and run probe weights on the two; if they agree, compare activations"
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A cause that was found in one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// One sentence: what was measured.
    pub evidence: String,
    /// Share of the sum of |d| that it explains, 0 to 1; null where the tokens have no values to compare.
    pub share: Option<f64>,
    /// Chance of such a statistic without the cause; null for causes that are seen and not inferred.
    pub chance: Option<f64>,
    /// Places of the samples concerned, ascending; empty for all.
    pub samples: Vec<usize>,
}

/// Findings of one step.
#[derive(Debug)]
pub(crate) struct Explained {
    pub(crate) findings: Vec<Finding>,
    pub(crate) notes: Vec<String>,
    /// Measures of all compared tokens, before anything is explained.
    pub(crate) measures: Measures,
    /// Measures of the tokens that no bookkeeping and no relation of the distributions explains.
    pub(crate) rest: Measures,
    /// The compared tokens.
    pub(crate) pairs: Arc<Pairs>,
}

/// Data that the tests of a step work on.
pub(crate) struct Case<'a> {
    pub(crate) table: &'a Table,
    pub(crate) samples: Range<usize>,
    /// Tokens that are still unexplained; all of them, and not a copy, as long as nothing is explained.
    pub(crate) pairs: Arc<Pairs>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) notes: Vec<String>,
    /// Mean of |d| up to which rounding explains a difference.
    pub(crate) bound: f64,
    /// The same as it is assumed of a type.
    pub(crate) assumed: f64,
    /// Sum of |d| of all tokens, before anything is explained.
    total: f64,
}

impl Case<'_> {
    /// Adds a finding that explained what was `before` in the sum of |d|.
    fn found(
        &mut self,
        cause: Cause,
        before: f64,
        evidence: String,
        chance: Option<f64>,
        samples: Vec<usize>,
    ) {
        let share = (self.total > 0.0).then(|| ((before - self.pairs.total()) / self.total).clamp(0.0, 1.0));
        self.findings.push(Finding { cause, evidence, share, chance, samples });
    }

    /// Keeps the unexplained tokens for which `keep` holds, given the token's place in their columns.
    fn keep(&mut self, keep: impl Fn(&Pairs, usize) -> bool) {
        Arc::make_mut(&mut self.pairs).retain(keep);
    }

    /// Leaves no token unexplained.
    fn clear(&mut self) {
        self.pairs = Arc::new(self.pairs.emptied());
    }

    /// Returns up to three names of samples, for a sentence.
    fn names(&self, samples: &[usize]) -> String {
        let name = |sample: &usize| self.table.samples.get(*sample).map_or("?", |sample| &*sample.name);
        let shown: Vec<&str> = samples.iter().take(3).map(name).collect();
        match samples.len().saturating_sub(3) {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }
}

/// Explains the differences of `samples`, those of one step. `passes` are what a second pass of the trainer showed, and a pass with
/// quantised weights, of this table's samples.
pub(crate) fn explain(
    joined: &Joined,
    samples: Range<usize>,
    passes: (Option<&Again>, Option<&Table>),
    options: &RolloutOptions,
) -> Explained {
    let table = &joined.table;
    let assumed = options.precision.map_or(Precision::Bfloat16.bound(), Precision::bound);
    let pairs = Arc::new(Pairs::of(table, samples.clone()));
    let mut case = Case {
        table,
        samples: samples.clone(),
        total: pairs.total(),
        pairs,
        findings: Vec::new(),
        notes: Vec::new(),
        bound: assumed,
        assumed,
    };
    let gaps: Vec<&TokenGap> = joined.gaps.iter().filter(|gap| samples.contains(&gap.sample)).collect();
    tokens(&mut case, &gaps);
    books::non_finite(&mut case);
    repeats::note(&mut case);
    case.total = case.pairs.total();
    let (all, measures) = (Arc::clone(&case.pairs), Measures::of(&case.pairs.g, &case.pairs.p));
    let seen = case.findings.len();
    books::mask(&mut case);
    order::shift(&mut case);
    order::rows(&mut case);
    books::unscored(&mut case);
    // Each explanation leaves a finding.
    let explained = case.findings.len() > seen;
    let rest = if explained { Measures::of(&case.pairs.g, &case.pairs.p) } else { measures };
    let related = distribution::precision(&mut case, &rest)
        || distribution::truncation(&mut case, &rest)
        || distribution::temperature(&mut case, &rest)
        || penalty::penalty(&mut case, &rest);
    if let Some(again) = passes.0 {
        model::trainer(&mut case, again, &rest);
    }
    if let Some(second) = passes.1 {
        quantized::quantized(&mut case, second, &rest);
    }
    if !routing::routing(&mut case, &rest) && !related {
        // The quantised pass may have taken the trainer's place.
        let left = if passes.1.is_some() { Measures::of(&case.pairs.g, &case.pairs.p) } else { rest };
        model::explain(&mut case, &left);
    }
    let Case { mut findings, notes, .. } = case;
    // The order of `Cause::ALL` goes from what is seen to what is inferred.
    findings.sort_by_key(|finding| Cause::ALL.iter().position(|cause| *cause == finding.cause));
    Explained { findings, notes, measures, rest, pairs: all }
}

/// Differences between two passes of the trainer over one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Again {
    /// Training step.
    pub(crate) step: u64,
    /// Mean absolute difference of the log-probabilities.
    pub(crate) mean_abs: f64,
    /// Median of the same.
    pub(crate) median_abs: f64,
    /// Tokens that both passes have.
    pub(crate) tokens: u64,
}

/// Reports tokens that the two sides do not share.
fn tokens(case: &mut Case<'_>, gaps: &[&TokenGap]) {
    let ends =
        |gap: &&&TokenGap| gap.kind == GapKind::End && gap.trainer.is_empty() && gap.rollout.len() == 1;
    let (ended, other): (Vec<&TokenGap>, Vec<&TokenGap>) = (
        gaps.iter().filter(ends).copied().collect(),
        gaps.iter().filter(|gap| !ends(gap)).copied().collect(),
    );
    if let Some(first) = ended.first() {
        let samples: Vec<usize> = ended.iter().map(|gap| gap.sample).collect();
        let evidence = format!(
            "the trainer's sequence lacks the last token of {} of {} samples ({}), id {}",
            samples.len(),
            case.samples.len(),
            case.names(&samples),
            first.rollout.first().map_or(String::new(), ToString::to_string)
        );
        case.findings.push(Finding { cause: Cause::EndToken, evidence, share: None, chance: None, samples });
    }
    let Some(first) = other.first() else { return };
    let mut samples: Vec<usize> = other.iter().map(|gap| gap.sample).collect();
    samples.dedup();
    let ids = |ids: &[u32]| {
        let ids: Vec<String> = ids.iter().filter(|id| **id != NO_ID).map(ToString::to_string).collect();
        if ids.is_empty() { "nothing".to_owned() } else { ids.join(" ") }
    };
    let what = match first.kind {
        GapKind::End => "the sequences end at different tokens",
        GapKind::Start => {
            "one side has more tokens at the start, such as one that begins a sequence or a part of the chat template"
        }
        GapKind::Replaced => "tokens are replaced by as many others",
        GapKind::Retokenised => "the text was made tokens a second time",
        GapKind::Inserted => "one side has tokens that the other lacks",
        GapKind::Sample => "the whole sample is another one",
    };
    let owner = first
        .belongs_to
        .as_ref()
        .map_or(String::new(), |name| format!(", which are those of the trainer's sample {name}"));
    let evidence = format!(
        "{} of {} samples have other tokens: {what}; first in sample {} at position {}, where the rollout has {}{owner} and the trainer {}",
        samples.len(),
        case.samples.len(),
        case.names(&[first.sample]),
        first.position,
        ids(&first.rollout),
        ids(&first.trainer)
    );
    let cause = if first.belongs_to.is_some() { Cause::Rows } else { Cause::Tokens };
    case.findings.push(Finding { cause, evidence, share: None, chance: None, samples });
}
