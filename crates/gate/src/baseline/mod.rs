//! `NAME.probe.json`: the reference for later runs, as text that people can review and merge.
//!
//! Layer 1 of a baseline: scalars by step, and the outputs of each module call, one value per line. Lines are sorted by name (scalars) or in
//! execution order (values of modules), so that the same content gives the same bytes and a diff shows which modules moved. Layer 2, sketches of
//! every op, is a separate file beside it, named by its hash ([`Baseline::sketches`]); a gate can decide without it, but then names a module
//! instead of an op.

mod change;
mod text;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use change::{Comparison, Moved};
pub use value::{BoundaryValue, NonFinite, ValuePart};

use super::import::{Scalars, Series};
use probe_files::limits;
use probe_files::{Draft, ReportError};
use probe_read::ReadError;

/// Value of `format` in every baseline.
pub const FORMAT: &str = "probe baseline";

/// Version of the format that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Suffix of baseline file names.
pub const ENDING: &str = ".probe.json";

/// Facts about the environment of a run, by name: `torch`, `device`, `cann`, `flags.deterministic_algorithms`.
pub type Environment = BTreeMap<String, String>;

/// A baseline.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Baseline {
    /// The environment of the run; empty if it was not recorded.
    pub environment: Environment,
    /// Who recorded and changed the baseline and why, oldest entry first.
    pub provenance: Vec<Provenance>,
    /// Scalars by name and step.
    pub scalars: Scalars,
    /// Outputs of module calls, by step and rank.
    pub parts: Vec<ValuePart>,
    /// Name of the file with sketches of every op, beside the baseline or in artifact storage; `None` if there is none.
    pub sketches: Option<String>,
}

/// One entry of the history of a baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The action: `import`, `save`, `update`.
    pub action: String,
    /// Who did it.
    pub by: String,
    /// Why.
    pub reason: String,
    /// The commit of the run; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Names of the files that the numbers come from.
    pub from: Vec<String>,
    /// Reason for recording NaN and infinities; absent if there are none or no reason was required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonfinite: Option<String>,
    /// Changes made by an update: the largest one of each scalar and module.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Moved>,
}

/// The file as it is read; the text is written by hand, a value a line.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "NAME.probe.json, a baseline of probe gate"))]
#[serde(deny_unknown_fields)]
struct File {
    /// `probe baseline`.
    #[serde(rename = "format")]
    _format: String,
    /// Version of the format: 1.
    #[serde(rename = "format_version")]
    _format_version: u32,
    /// The set-up of the run.
    environment: Environment,
    /// Who recorded and changed it, and why.
    provenance: Vec<Provenance>,
    /// Values by name and step.
    scalars: BTreeMap<String, BTreeMap<String, probe_dump::Exact>>,
    /// Values that module calls returned: a list of lines for each step and rank.
    values: Vec<ValuePart>,
    /// File of the sketches of every op; null if there is none.
    sketches: Option<String>,
}

/// The part of a file that identifies its format.
#[derive(Deserialize)]
struct Head {
    format: String,
    format_version: u32,
}

impl Baseline {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`ReadError`] with line and column.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let file = fs::File::open(path).map_err(|source| ReadError::io(path, source))?;
        let limit = limits::MAX_BASELINE_BYTES;
        let mut text = Vec::new();
        file.take(limit + 1).read_to_end(&mut text).map_err(|source| ReadError::io(path, source))?;
        if text.len() as u64 > limit {
            let found = text.len() as u64;
            return Err(ReadError::Limit { path: path.into(), what: "the size of a baseline", found, limit });
        }
        Self::parse(&text).map_err(|message| ReadError::format(path, message))
    }

    /// Reads a baseline from its text.
    ///
    /// # Errors
    /// A one-line description of the problem.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let head: Head = serde_json::from_slice(text).map_err(|error| {
            let merged = text.windows(7).any(|bytes| bytes == b"<<<<<<<");
            let hint = if merged { "; it holds markers of an unfinished merge" } else { "" };
            format!("is not a baseline of probe: {error}{hint}")
        })?;
        if head.format != FORMAT {
            return Err(format!("is not a baseline of probe: its format is {:?}", head.format));
        }
        if head.format_version > FORMAT_VERSION {
            return Err(format!(
                "is of format version {}, this program reads up to {FORMAT_VERSION}; use a newer probe",
                head.format_version
            ));
        }
        let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let mut scalars = Scalars::new();
        for (name, values) in file.scalars {
            let step = |(step, value): (String, probe_dump::Exact)| match step.parse::<u64>() {
                Ok(number) if number.to_string() == step => Ok((number, value.0)),
                _ => Err(format!("scalar {name:?}: {step:?} is not a step")),
            };
            let series: Series = values.into_iter().map(step).collect::<Result<_, _>>()?;
            scalars.insert(name, series);
        }
        if let Some(name) = &file.sketches
            && !is_plain_name(name)
        {
            return Err(format!("sketches: {name:?} is not a file name"));
        }
        for part in &file.values {
            part.check()?;
        }
        Ok(Self {
            environment: file.environment,
            provenance: file.provenance,
            scalars,
            parts: file.values,
            sketches: file.sketches,
        })
    }

    /// Returns true if the file at `path` claims to be a baseline, of any version.
    pub fn is_one(path: &Path) -> bool {
        let mut start = Vec::new();
        let head = fs::File::open(path).and_then(|file| file.take(1 << 16).read_to_end(&mut start));
        // The keys are sorted, so the format may come after the environment.
        head.is_ok()
            && (path.to_string_lossy().ends_with(ENDING)
                || start.windows(FORMAT.len() + 2).any(|bytes| bytes == format!("{FORMAT:?}").as_bytes()))
            && start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
    }

    /// Writes the file atomically, replacing any existing one.
    ///
    /// # Errors
    /// [`ReportError`] when the operating system refuses.
    pub fn write(&self, path: &Path) -> Result<PathBuf, ReportError> {
        let mut draft = Draft::create(path)?;
        draft.file().write_all(self.to_text().as_bytes()).map_err(|error| draft.refused(error))?;
        draft.place()
    }

    /// Returns the number of values: points of scalars plus values of modules.
    pub fn len(&self) -> usize {
        let points: usize = self.scalars.values().map(BTreeMap::len).sum();
        points + self.parts.iter().map(|part| part.values.len()).sum::<usize>()
    }

    /// Returns true if it holds nothing at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns names and places of values that are NaN or infinite.
    pub fn nonfinite(&self) -> Vec<String> {
        let scalars = self.scalars.iter().flat_map(|(name, series)| {
            let wrong = series.iter().filter(|(_, value)| !value.is_finite());
            wrong.map(move |(step, value)| format!("{name} step {step}: {}", probe_dump::Exact(*value)))
        });
        let values = self.parts.iter().flat_map(|part| {
            let wrong = part.values.iter().filter(|value| value.holds_nonfinite());
            wrong.map(move |value| format!("step {} rank {} {}", part.step, part.rank, value.name))
        });
        scalars.chain(values).collect()
    }
}

/// Returns true if the name can only refer to a file beside the baseline.
fn is_plain_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    !name.is_empty() && name.chars().all(plain) && !name.starts_with('.')
}

/// Returns the committed JSON Schema of `NAME.probe.json`.
#[cfg(feature = "schema")]
pub fn baseline_schema() -> String {
    let schema = schemars::schema_for!(File);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
