//! The HTML page of a rollout: the answer, and the tokens of the first step that has a cause.

use std::io;

use serde::Serialize;

use super::model::RolloutReport;
use crate::html;
use probe_rollout::RolloutOutcome;
use probe_rollout::outcome::StepOutcome;
use probe_rollout::table::{COUNTED, ROLLOUT, TRAINER};

/// Most tokens on a page: more dots than that hide one another.
const MAX_TOKENS: usize = 4000;

/// Data of the page of a rollout.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct RolloutPage<'a> {
    report: RolloutReport<'a>,
    /// Null if the files hold no log-probabilities.
    tokens: Option<StepTokens>,
}

/// Tokens of one step that both sides have a finite value of; of many, every n-th. A list entry for each.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct StepTokens {
    step: u64,
    /// Places of their samples in the step.
    samples: Vec<u32>,
    positions: Vec<u32>,
    /// Log-probabilities in the engine.
    rollout: Vec<f32>,
    /// The trainer's log-probability minus the engine's.
    d: Vec<f32>,
    /// Number of tokens that are not in the lists.
    left_out: usize,
}

impl StepTokens {
    fn of(step: &StepOutcome, outcome: &RolloutOutcome) -> Self {
        const ALL: u8 = COUNTED | ROLLOUT | TRAINER;
        let tokens = &outcome.table.tokens;
        let samples = &outcome.table.samples[step.samples.clone()];
        let is_drawn = |at: &usize| {
            tokens.flags[*at] & ALL == ALL && (tokens.trainer[*at] - tokens.rollout[*at]).is_finite()
        };
        let places = || {
            (0_u32..)
                .zip(samples)
                .flat_map(|(sample, of)| of.range.clone().filter(is_drawn).map(move |at| (sample, at)))
        };
        let count = places().count();
        let drawn: Vec<(u32, usize)> = places().step_by(count.div_ceil(MAX_TOKENS).max(1)).collect();
        Self {
            step: step.step,
            samples: drawn.iter().map(|(sample, _)| *sample).collect(),
            positions: drawn.iter().map(|(_, at)| tokens.positions[*at]).collect(),
            rollout: drawn.iter().map(|(_, at)| tokens.rollout[*at]).collect(),
            d: drawn.iter().map(|(_, at)| tokens.trainer[*at] - tokens.rollout[*at]).collect(),
            left_out: count - drawn.len(),
        }
    }
}

/// Returns the page.
///
/// # Errors
/// None in practice: every value can be written as JSON.
pub(super) fn document(outcome: &RolloutOutcome) -> io::Result<Vec<u8>> {
    let first = outcome.steps.iter().find(|step| !step.findings.is_empty()).or(outcome.steps.first());
    let page = RolloutPage {
        report: RolloutReport::from(outcome),
        tokens: first.map(|step| StepTokens::of(step, outcome)),
    };
    html::document("rollout", &page)
}
