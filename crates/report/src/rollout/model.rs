//! `rollout.json` as plain structs, separate from the code that prints it.
//!
//! Names and meanings are an interface: a change that an old reader would misread raises [`SCHEMA_VERSION`].

use serde::Serialize;

use crate::model::Tool;
use probe_rollout::RolloutOutcome;
use probe_rollout::cause::Finding;
use probe_rollout::measure::Measures;
use probe_rollout::outcome::{StepOutcome, WorstToken};

/// Version of the format. Raised when a field changes meaning or is removed, not when one is added.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// Most names of samples that are listed anywhere.
const LISTED: usize = 1000;

/// A rollout against its trainer.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "JSON of probe rollout", deny_unknown_fields))]
pub struct RolloutReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The answer: `agree`, `differ` or `incomplete`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["agree", "differ", "incomplete"])))]
    pub verdict: &'static str,
    /// The answer in one sentence.
    pub answer: String,
    /// The rollout as it was given.
    pub rollout: String,
    /// The trainer as it was given; null where one file holds both.
    pub trainer: Option<String>,
    /// Formats of the two; null where there is no second file.
    pub formats: [Option<&'static str>; 2],
    /// How samples of the two were joined.
    pub joined: &'static str,
    /// Number format of both sides as given; null where none was, and bfloat16 is assumed.
    pub precision: Option<&'static str>,
    /// Compared tokens.
    pub tokens: u64,
    /// Causes over all steps, the first to look at first.
    pub causes: Vec<CauseEntry>,
    /// The steps, ascending.
    pub steps: Vec<StepEntry<'a>>,
    /// Differences of probabilities by step, where the files hold nothing else.
    pub probabilities: Vec<ProbabilityEntry>,
    /// Names of samples that the trainer lacks, the first thousand.
    pub only_rollout: &'a [String],
    /// Names of samples that the rollout lacks, the first thousand.
    pub only_trainer: &'a [String],
    /// Files that could not be read, and what one side lacks.
    pub incomplete: Vec<String>,
}

/// A cause over all steps.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct CauseEntry {
    /// Its name.
    pub cause: &'static str,
    /// First step that has it.
    pub first_step: u64,
    /// Number of steps that have it.
    pub steps: usize,
    /// Suggested action.
    pub action: &'static str,
}

/// One step.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct StepEntry<'a> {
    /// Training step.
    pub step: u64,
    /// Samples.
    pub samples: usize,
    /// Differences of all compared tokens.
    pub all: Measures,
    /// Differences that no bookkeeping explains.
    pub rest: Measures,
    /// Causes, the first to look at first.
    pub findings: Vec<FindingEntry<'a>>,
    /// Remarks that are no fault.
    pub notes: &'a [String],
    /// The tokens that differ most.
    pub worst: Vec<TokenEntry<'a>>,
}

/// A cause in one step.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct FindingEntry<'a> {
    /// Its name.
    pub cause: &'static str,
    /// The measurement, in one sentence.
    pub evidence: &'a str,
    /// Share of the sum of |d| that it explains; null where there are no values.
    pub share: Option<f64>,
    /// Chance of such a statistic without the cause; null for causes that are seen and not inferred.
    pub chance: Option<f64>,
    /// Number of samples concerned; null for all.
    pub count: Option<usize>,
    /// Their names, the first thousand.
    pub samples: Vec<&'a str>,
}

/// A token that differs much.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct TokenEntry<'a> {
    /// Name of its sample.
    pub sample: &'a str,
    /// Place in the sequence, from 0.
    pub position: u32,
    /// Id; null where it was not recorded.
    pub token_id: Option<u32>,
    /// Log-probability in the engine.
    pub rollout: f32,
    /// Log-probability in the trainer.
    pub trainer: f32,
}

/// Differences of probabilities of one step.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ProbabilityEntry {
    /// Training step.
    pub step: u64,
    /// Tokens of responses.
    pub tokens: u64,
    /// Mean absolute difference.
    pub mean: f64,
    /// Largest; null where one is not a number.
    pub max: Option<f64>,
}

impl<'a> StepEntry<'a> {
    fn of(step: &'a StepOutcome, outcome: &'a RolloutOutcome) -> Self {
        let name = |sample: usize| outcome.table.samples.get(sample).map_or("", |sample| &*sample.name);
        let finding = |finding: &'a Finding| FindingEntry {
            cause: finding.cause.name(),
            evidence: &finding.evidence,
            share: finding.share,
            chance: finding.chance,
            count: (!finding.samples.is_empty()).then_some(finding.samples.len()),
            samples: finding.samples.iter().take(LISTED).map(|sample| name(*sample)).collect(),
        };
        let token = |token: &WorstToken| TokenEntry {
            sample: name(token.sample),
            position: token.position,
            token_id: token.id,
            rollout: token.rollout,
            trainer: token.trainer,
        };
        Self {
            step: step.step,
            samples: step.samples.len(),
            all: step.measures,
            rest: step.rest,
            findings: step.findings.iter().map(finding).collect(),
            notes: &step.notes,
            worst: step.worst.iter().map(token).collect(),
        }
    }
}

impl<'a> From<&'a RolloutOutcome> for RolloutReport<'a> {
    fn from(outcome: &'a RolloutOutcome) -> Self {
        let first = |names: &'a [String]| names.get(..LISTED.min(names.len())).unwrap_or_default();
        let causes = outcome.causes().into_iter().map(|(cause, first_step, steps)| CauseEntry {
            cause: cause.name(),
            first_step,
            steps,
            action: cause.action(),
        });
        let probabilities = outcome.differences.iter().map(|step| ProbabilityEntry {
            step: step.step,
            tokens: step.tokens(),
            mean: step.mean(),
            max: Some(step.max()).filter(|max| max.is_finite()),
        });
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            verdict: outcome.verdict().name(),
            answer: super::answer(outcome),
            rollout: outcome.path.display().to_string(),
            trainer: outcome.trainer.as_ref().map(|path| path.display().to_string()),
            formats: outcome.formats.map(|format| format.map(probe_rollout::read::Format::name)),
            joined: outcome.joined.words(),
            precision: outcome.precision.map(probe_rollout::Precision::name),
            tokens: outcome.tokens(),
            causes: causes.collect(),
            steps: outcome.steps.iter().map(|step| StepEntry::of(step, outcome)).collect(),
            probabilities: probabilities.collect(),
            only_rollout: first(&outcome.only_rollout),
            only_trainer: first(&outcome.only_trainer),
            incomplete: outcome.incomplete(),
        }
    }
}

/// Returns the document as written.
///
/// # Errors
/// None in practice: every value can be written as JSON.
pub fn json(outcome: &RolloutOutcome) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(&RolloutReport::from(outcome))?;
    text.push('\n');
    Ok(text)
}

/// A step as `probe gate` reads scalars.
#[derive(Serialize)]
struct Scalars {
    step: u64,
    rollout: ScalarValues,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ScalarValues {
    Tokens { mean_abs: f64, mean_exp_abs: f64, k3: f64, effective: f64, clipped: f64, causes: usize },
    Probabilities { mean_probability: f64 },
}

/// Returns a line of JSON for each step.
///
/// # Errors
/// None in practice: every value can be written as JSON.
pub(super) fn scalars(outcome: &RolloutOutcome) -> serde_json::Result<String> {
    let mut text = String::new();
    for step in &outcome.steps {
        let of = &step.measures;
        let rollout = ScalarValues::Tokens {
            mean_abs: of.mean_abs,
            mean_exp_abs: of.mean_exp_abs,
            k3: of.k3,
            effective: of.effective,
            clipped: of.clipped,
            causes: step.findings.len(),
        };
        text += &(serde_json::to_string(&Scalars { step: step.step, rollout })? + "\n");
    }
    for step in &outcome.differences {
        let rollout = ScalarValues::Probabilities { mean_probability: step.mean() };
        text += &(serde_json::to_string(&Scalars { step: step.step, rollout })? + "\n");
    }
    Ok(text)
}

/// Returns the committed JSON Schema of the document.
#[cfg(feature = "schema")]
pub fn rollout_schema() -> String {
    let schema = schemars::schema_for!(RolloutReport<'static>);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
