//! Output of `--format json` for commands whose result is a file or a list: plans, shards, noise, conversions, pages, bounds that grew.
//!
//! Names and meanings here are an interface: a change that an old reader would misread raises [`SCHEMA_VERSION`].

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::compare::Calibration;
use crate::convert::{Conversion, Target};
use crate::gate::policy::Growth;
use crate::report::model::{Place, Tool};
use crate::shard::{Plan, Shard, ShardOutcome};

/// Version of these documents. Raised when a field changes its meaning or is removed; not for new
/// fields.
pub const SCHEMA_VERSION: u32 = 1;

/// Output of one of these commands.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "output of commands that write files"))]
#[serde(untagged)]
pub enum CommandReport<'a> {
    /// Output of `probe plan`.
    Planned(PlanReport),
    /// Output of `probe compare --plan --shard`.
    Shard(ShardReport<'a>),
    /// Output of `probe calibrate`.
    Noise(NoiseReport<'a>),
    /// Output of `probe convert`.
    Converted(ConversionReport<'a>),
    /// Output of `probe report`.
    Page(PageReport),
    /// Output of `probe gate --explain-policy-diff`.
    PolicyDiff(PolicyDiffReport<'a>),
}

impl CommandReport<'_> {
    /// Returns the printed text.
    ///
    /// # Errors
    /// None in practice: every value can be represented in JSON.
    pub fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

/// A comparison that was planned.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct PlanReport {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The plan.
    pub plan: String,
    /// Steps of ranks that are compared.
    pub parts: u64,
    /// Ranks that are compared; as many shards have something to do.
    pub ranks: u64,
    /// Bytes of both sides, as far as file sizes are known.
    pub bytes: u64,
}

impl<'a> CommandReport<'a> {
    /// Reports a plan written to `path`.
    pub fn of_plan(path: &Path, plan: &Plan) -> Self {
        Self::Planned(PlanReport {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            plan: path.display().to_string(),
            parts: plan.parts() as u64,
            ranks: plan.groups() as u64,
            bytes: plan.bytes(),
        })
    }

    /// Reports a compared shard.
    pub fn of_shard(shard: Shard, outcome: &'a ShardOutcome) -> Self {
        Self::Shard(ShardReport {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            shard: shard.index(),
            of: shard.count(),
            folder: outcome.folder.display().to_string(),
            was_done: outcome.was_done,
            parts: outcome.parts as u64,
            not_compared: outcome.not_compared as u64,
            first: outcome.first.as_deref(),
        })
    }

    /// Reports noise written to `path`.
    pub fn of_noise(path: &Path, found: &'a Calibration) -> Self {
        Self::Noise(NoiseReport {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            written: path.display().to_string(),
            families: found.noise.families() as u64,
            notes: &found.said,
            incomplete: found.incomplete.iter().map(Place::from).collect(),
        })
    }

    /// Reports a dump converted to `target` in `folder`.
    pub fn of_conversion(folder: &Path, target: Target, found: &'a Conversion) -> Self {
        let Conversion { parts, ops, tensors, bytes, without_data, without_counts: _, widened, left_out } =
            found;
        Self::Converted(ConversionReport {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            written: folder.display().to_string(),
            form: match target {
                Target::Native => "native",
                Target::Npy => "npy",
                Target::Safetensors => "safetensors",
            },
            parts: *parts,
            ops: *ops,
            tensors: *tensors,
            bytes: *bytes,
            without_data: *without_data,
            widened: *widened,
            left_out,
        })
    }

    /// Reports a page and a workbook that were `written`.
    pub fn of_pages(written: &[PathBuf]) -> Self {
        let [workbook, page] = [true, false].map(|is_workbook| {
            let mut paths = written.iter();
            let found = paths.find(|path| path.extension().is_some_and(|end| end == "xlsx") == is_workbook);
            found.map(|path| path.display().to_string())
        });
        Self::Page(PageReport { schema_version: SCHEMA_VERSION, tool: Tool::THIS, page, workbook })
    }

    /// Reports the bounds that grew.
    pub fn of_growth(grown: &'a [Growth]) -> Self {
        Self::PolicyDiff(PolicyDiffReport {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            grown: grown.iter().map(|Growth { what, old, new }| GrowthEntry { what, old, new }).collect(),
        })
    }
}

/// A shard of a plan that was compared.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ShardReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The shard, from 1.
    pub shard: u32,
    /// Shards that there are.
    pub of: u32,
    /// Its folder.
    pub folder: String,
    /// True if it was already done and nothing was compared now.
    pub was_done: bool,
    /// Steps of ranks in it.
    pub parts: u64,
    /// Places in it that could not be compared; `probe merge` lists them.
    pub not_compared: u64,
    /// First op at fault in it, with its step and rank; null if there is none. Another shard may have an earlier one.
    pub first: Option<&'a str>,
}

/// Noise that was measured.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct NoiseReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The file with the level of each family of calls.
    pub written: String,
    /// Families in it.
    pub families: u64,
    /// Result of each run.
    pub notes: &'a [String],
    /// Everything that could not be read.
    pub incomplete: Vec<Place<'a>>,
}

/// A dump that was written in another form.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ConversionReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The folder.
    pub written: String,
    /// Its format.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["native", "npy", "safetensors"])))]
    pub form: &'static str,
    /// Steps of ranks.
    pub parts: u64,
    /// Ops.
    pub ops: u64,
    /// Tensors whose elements were written.
    pub tensors: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Tensors whose elements nobody recorded.
    pub without_data: u64,
    /// Tensors that became float32, exactly, since the form lacks their type.
    pub widened: u64,
    /// Everything that could not be read, with its place and the reason.
    pub left_out: &'a [String],
}

/// A page that was made of an earlier result.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct PageReport {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The page; null if only a workbook was asked for.
    pub page: Option<String>,
    /// The workbook; null if there is none.
    pub workbook: Option<String>,
}

/// Bounds of a policy that are looser than in an older one.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct PolicyDiffReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// Bounds that are looser than they were.
    pub grown: Vec<GrowthEntry<'a>>,
}

/// A bound that is looser than it was.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct GrowthEntry<'a> {
    /// The bound: `scalar "loss" rtol`.
    pub what: &'a str,
    /// As it was.
    pub old: &'a str,
    /// As it is.
    pub new: &'a str,
}

/// Returns the JSON Schema of these commands' output, as committed.
#[cfg(feature = "schema")]
pub fn commands_schema() -> String {
    let schema = schemars::schema_for!(CommandReport<'static>);
    // A schema is plain data, so serialising it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
