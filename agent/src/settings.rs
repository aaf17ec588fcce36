//! Settings from `probe capture --runtime acl`, passed in an environment variable.

use std::path::PathBuf;
use std::sync::LazyLock;

use probe_capture::{CaptureTask, Existing};
use probe_dump::{Content, NumberSet};
use serde::Deserialize;

use crate::notes;

/// Variable that holds the order.
const VARIABLE: &str = "PROBE_RUNTIME";

/// Default size of the pinned memory between streams and writer.
const RING: usize = 256 << 20;
/// Default size of the pinned memory for the tensors of graphs.
const GRAPH_MEMORY: usize = 256 << 20;
/// Seconds that a launch waits for room in the ring.
const PATIENCE_SECONDS: u64 = 60;

/// Settings of a recording. Unknown keys come from a newer command and are ignored.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    /// Folder of the dump, absolute.
    pub(crate) output: PathBuf,
    #[serde(rename = "steps")]
    steps_text: String,
    #[serde(skip)]
    pub(crate) steps: Steps,
    pub(crate) task: CaptureTask,
    /// Ranks that record, in the format of `steps`.
    ranks: String,
    /// Identity of the run.
    pub(crate) run: String,
    /// True to record the dumps that CANN makes itself instead of launches.
    dumps: bool,
    /// Operator whose launch ends a step: `aclnnAdd`, or `aclopAdd` for one of the older kind.
    pub(crate) step_on: Option<String>,
    /// Operators to record; empty means all.
    pub(crate) include: Vec<String>,
    /// Operators not to record.
    pub(crate) exclude: Vec<String>,
    /// Most bytes of a tensor; larger ones are recorded without values.
    pub(crate) max_tensor: Option<usize>,
    /// Size of the ring in bytes.
    pub(crate) ring: usize,
    /// Bytes for copies of tensors in graphs, which stay there as long as the graph.
    pub(crate) graph_memory: usize,
    /// Seconds that a launch waits for room in the ring, or a replay for the previous one to be read.
    pub(crate) patience: u64,
    pub(crate) overwrite: bool,
    pub(crate) quiet: bool,
}

/// Steps to record.
#[derive(Debug, Default)]
pub(crate) struct Steps(Option<NumberSet>);

impl Steps {
    pub(crate) fn contains(&self, step: u64) -> bool {
        self.0.as_ref().is_none_or(|set| set.contains(step))
    }

    /// Returns true if any step from `first` to `last` is in the set.
    pub(crate) fn meets(&self, first: u64, last: u64) -> bool {
        let Some(set) = &self.0 else { return true };
        let ranges = set.ranges();
        ranges.is_empty() || ranges.iter().any(|range| *range.start() <= last && first <= *range.end())
    }

    /// Returns the last step; `None` if there is none.
    pub(crate) fn last(&self) -> Option<u64> {
        self.0.as_ref().and_then(NumberSet::last)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            output: PathBuf::new(),
            steps_text: String::new(),
            steps: Steps::default(),
            task: CaptureTask::default(),
            ranks: String::new(),
            run: String::new(),
            dumps: false,
            step_on: None,
            include: Vec::new(),
            exclude: Vec::new(),
            max_tensor: None,
            ring: RING,
            graph_memory: GRAPH_MEMORY,
            patience: PATIENCE_SECONDS,
            overwrite: false,
            quiet: false,
        }
    }
}

static SETTINGS: LazyLock<Option<Settings>> = LazyLock::new(|| {
    let text = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty())?;
    match Settings::read(&text) {
        Ok(settings) => {
            let ranks = set_of(&settings.ranks).ok()?;
            ranks.is_none_or(|ranks| ranks.contains(u64::from(rank()))).then_some(settings)
        }
        Err(reason) => {
            notes::say(&format!(
                "nothing is recorded: {VARIABLE} in the environment cannot be read: {reason}"
            ));
            None
        }
    }
});

impl Settings {
    /// Returns the requested settings; `None` if there are none, or they are for other ranks.
    pub(crate) fn get() -> Option<&'static Self> {
        SETTINGS.as_ref()
    }

    fn read(text: &str) -> Result<Self, String> {
        let mut settings: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        settings.steps = Steps(set_of(&settings.steps_text)?);
        Ok(settings)
    }

    /// Returns true if CANN's own dumps are wanted.
    pub(crate) fn dumps() -> bool {
        Self::get().is_some_and(|settings| settings.dumps)
    }

    /// Returns true if launches end steps.
    pub(crate) const fn counts_launches(&self) -> bool {
        self.step_on.is_some()
    }

    /// Returns true if the launch of an operator ends a step; `kind` is `aclnn` or `aclop`.
    pub(crate) fn ends_step(&self, kind: &str, operator: &str) -> bool {
        self.step_on.as_deref().and_then(|name| name.strip_prefix(kind)) == Some(operator)
    }

    /// Content measured for each tensor.
    pub(crate) const fn content(&self) -> Content {
        match self.task {
            CaptureTask::Statistics => Content::STATISTICS,
            CaptureTask::Hash => Content::HASH,
            CaptureTask::Sketch | CaptureTask::Tensor => Content::SKETCH,
        }
    }

    /// Handling of an existing dump in the folder.
    pub(crate) const fn existing(&self) -> Existing {
        if self.overwrite { Existing::Replace } else { Existing::Keep }
    }

    /// Returns true if launches of an operator are recorded.
    pub(crate) fn wants(&self, operator: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(bare(pattern), operator));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
}

/// Parses numbers in the format of `probe`; `None` for all.
fn set_of(text: &str) -> Result<Option<NumberSet>, String> {
    if text.is_empty() || text == "all" {
        return Ok(None);
    }
    text.replace('|', ",").parse().map(Some).map_err(|error: probe_dump::SelectionError| error.to_string())
}

/// Returns the name of an operator without the prefixes that tools add.
fn bare(name: &str) -> &str {
    ["aclnn", "Aclnn.", "aclop", "Aclop."]
        .into_iter()
        .find_map(|start| name.strip_prefix(start))
        .unwrap_or(name)
}

/// Returns true if a name matches a pattern in which `*` matches anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    rest.is_empty() || (0..=name.len()).filter_map(|at| name.get(at..)).any(|name| matches(rest, name))
}

/// Returns the number of this process in a distributed run, from the variables set by launchers.
pub(crate) fn rank() -> u32 {
    number("RANK").or_else(|| number("RANK_ID")).or_else(|| number("OMPI_COMM_WORLD_RANK")).unwrap_or(0)
}

/// Returns the number of processes in the run.
pub(crate) fn world_size() -> u32 {
    number("WORLD_SIZE")
        .or_else(|| number("RANK_SIZE"))
        .or_else(|| number("OMPI_COMM_WORLD_SIZE"))
        .unwrap_or(1)
        .max(1)
}

fn number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}
