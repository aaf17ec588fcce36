//! Scalars by step from files of other tools: golden values of Megatron-LM, loss texts of torchtitan, event files of `TensorBoard`, CSV,
//! JSON Lines, `trainer_state.json`, `rollout.json` of `probe rollout`.
//!
//! Nothing is invented: a value missing from a file stays missing, and NaN and infinities are preserved.

mod json;
mod loss_text;
mod megatron;
mod rollout;
mod table;
mod tensorboard;
mod trainer_state;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;

use serde_json::Value;

use probe_files::limits;
use probe_read::ReadError;

/// Values of one scalar by step. NaN and infinities are kept.
pub type Series = BTreeMap<u64, f64>;

/// Scalars by name.
pub type Scalars = BTreeMap<String, Series>;

/// A file format that scalars are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarFormat {
    /// Golden values of Megatron-LM: one object per metric, with `start_step`, `step_interval` and `values`.
    Megatron,
    /// Lines of step and loss, as torchtitan writes them.
    LossText,
    /// Event files of `TensorBoard`, or a folder of them.
    TensorBoard,
    /// A table with a header, separated by commas, semicolons or tabs.
    Csv,
    /// One object per line, or a list of objects.
    JsonLines,
    /// `trainer_state.json` of Hugging Face's trainer.
    TrainerState,
    /// `rollout.json` of `probe rollout`.
    Rollout,
}

impl ScalarFormat {
    /// Every format.
    pub const ALL: [Self; 7] = [
        Self::Megatron,
        Self::LossText,
        Self::TensorBoard,
        Self::Csv,
        Self::JsonLines,
        Self::TrainerState,
        Self::Rollout,
    ];

    /// Returns the word used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Megatron => "megatron",
            Self::LossText => "losses",
            Self::TensorBoard => "tensorboard",
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            Self::TrainerState => "trainer-state",
            Self::Rollout => "rollout",
        }
    }

    /// Returns the description for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Megatron => "golden values of Megatron-LM",
            Self::LossText => "lines of step and loss",
            Self::TensorBoard => "TensorBoard events",
            Self::Csv => "table",
            Self::JsonLines => "JSON Lines",
            Self::TrainerState => "trainer_state.json",
            Self::Rollout => "rollout.json",
        }
    }
}

impl fmt::Display for ScalarFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ScalarFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|format| format.name()).collect();
            format!("unknown format {text:?}; choose from {}", names.join(", "))
        })
    }
}

/// Content imported from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// Form of the file.
    pub format: ScalarFormat,
    /// Its scalars; at least one has a value.
    pub scalars: Scalars,
    /// Descriptions of values that were left out or overwritten.
    pub notes: Vec<String>,
}

/// Result of the reader of one format.
#[derive(Debug, Default)]
struct ReadScalars {
    scalars: Scalars,
    notes: Vec<String>,
    /// Number of values that replaced another one of the same step.
    replaced: u64,
}

impl ReadScalars {
    /// Adds a value; a later value of the same step replaces the earlier one.
    fn add(&mut self, name: &str, step: u64, value: f64) {
        let series = match self.scalars.get_mut(name) {
            Some(series) => series,
            None => self.scalars.entry(name.to_owned()).or_default(),
        };
        self.replaced += u64::from(series.insert(step, value).is_some());
    }
}

/// Reads the scalars of the file, or of the folder of event files, at `path`. The format is detected from the content if none is
/// given.
///
/// # Errors
/// [`ReadError`] naming file and place.
pub fn import(path: &Path, format: Option<ScalarFormat>) -> Result<Imported, ReadError> {
    let metadata = fs::metadata(path).map_err(|source| ReadError::io(path, source))?;
    if metadata.is_dir() {
        return finished(path, ScalarFormat::TensorBoard, tensorboard::folder(path)?);
    }
    let bytes = content(path)?;
    let format = match format {
        Some(format) => format,
        None => detect(path, &bytes)?,
    };
    finished(path, format, read(path, &bytes, format)?)
}

/// Reads scalars from the bytes of a file; `path` is used in errors.
///
/// # Errors
/// [`ReadError`] naming the place.
pub fn import_bytes(path: &Path, bytes: &[u8], format: Option<ScalarFormat>) -> Result<Imported, ReadError> {
    let format = match format {
        Some(format) => format,
        None => detect(path, bytes)?,
    };
    finished(path, format, read(path, bytes, format)?)
}

fn read(path: &Path, bytes: &[u8], format: ScalarFormat) -> Result<ReadScalars, ReadError> {
    if format == ScalarFormat::TensorBoard {
        let mut found = ReadScalars::default();
        tensorboard::events(path, bytes, &mut found)?;
        return Ok(found);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        ReadError::format(
            path,
            format!("byte {} is not UTF-8 text; expected {}", error.valid_up_to(), format.words()),
        )
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let found = match format {
        ScalarFormat::Megatron => megatron::scalars(text),
        ScalarFormat::LossText => loss_text::scalars(text),
        ScalarFormat::Csv => table::scalars(text),
        ScalarFormat::JsonLines => json::lines(text),
        ScalarFormat::TrainerState => trainer_state::scalars(text),
        ScalarFormat::Rollout => rollout::scalars(text),
        ScalarFormat::TensorBoard => Ok(ReadScalars::default()),
    };
    found.map_err(|message| ReadError::format(path, message))
}

fn finished(path: &Path, format: ScalarFormat, found: ReadScalars) -> Result<Imported, ReadError> {
    let ReadScalars { mut scalars, mut notes, replaced } = found;
    scalars.retain(|_, series| !series.is_empty());
    if scalars.is_empty() {
        return Err(ReadError::format(path, format!("contains no scalar (read as {})", format.words())));
    }
    if replaced > 0 {
        notes.push(format!("{replaced} values repeat a step; the last one counts"));
    }
    Ok(Imported { format, scalars, notes })
}

/// Returns the bytes of a file, within the size limit.
fn content(path: &Path) -> Result<Vec<u8>, ReadError> {
    let file = fs::File::open(path).map_err(|source| ReadError::io(path, source))?;
    let mut bytes = Vec::new();
    let limit = limits::MAX_SCALAR_FILE_BYTES;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|source| ReadError::io(path, source))?;
    if bytes.len() as u64 > limit {
        return Err(ReadError::Limit {
            path: path.into(),
            what: "the size of a file of scalars",
            found: bytes.len() as u64,
            limit,
        });
    }
    Ok(bytes)
}

/// Detects the format of a file from its content and, if that is ambiguous, from its name.
fn detect(path: &Path, bytes: &[u8]) -> Result<ScalarFormat, ReadError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    if name.contains("tfevents") || tensorboard::is_record(bytes) {
        return Ok(ScalarFormat::TensorBoard);
    }
    let start = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
    let ends_with = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    match first {
        None => Err(ReadError::format(path, "the file is empty")),
        Some(b'{' | b'[') => Ok(json_format(start)),
        Some(_) if ends_with(&[".csv", ".tsv"]) => Ok(ScalarFormat::Csv),
        Some(_) if loss_text::is_one(start) => Ok(ScalarFormat::LossText),
        Some(_) if table::is_one(start) => Ok(ScalarFormat::Csv),
        Some(_) => Err(ReadError::format(
            path,
            "not a file of scalars: expected golden values of Megatron-LM, lines of step and loss, TensorBoard events, a table with a header, \
             JSON Lines, trainer_state.json or rollout.json; name the format with --from",
        )),
    }
}

/// Returns the format of a JSON file, judging by its content.
fn json_format(bytes: &[u8]) -> ScalarFormat {
    match json::value(bytes) {
        Ok(Value::Object(keys)) if keys.contains_key("log_history") => ScalarFormat::TrainerState,
        Ok(Value::Object(keys)) if keys.values().any(|value| value.get("values").is_some()) => {
            ScalarFormat::Megatron
        }
        Ok(document) if rollout::is_one(&document) => ScalarFormat::Rollout,
        _ => ScalarFormat::JsonLines,
    }
}

/// Parses a number as logs write it, including words for non-finite numbers.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    // Rust rejects `1_000` and hexadecimal too; it accepts `infinity` and `nan` in any case.
    text.parse().ok()
}

/// Parses a step as logs write it: a whole number, possibly as `10.0`.
fn step(text: &str) -> Option<u64> {
    let text = text.trim();
    text.parse().ok().or_else(|| whole(text.parse().ok()?))
}

/// Converts a whole number that a float represents exactly.
fn whole(value: f64) -> Option<u64> {
    const LIMIT: f64 = 9_007_199_254_740_992.0; // 2^53
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range checked")]
    let cast = value as u64;
    ((0.0..=LIMIT).contains(&value) && value.fract().abs().to_bits() == 0).then_some(cast)
}

/// Names that logs use for the step; the first one present wins.
const STEP_NAMES: [&str; 8] = [
    "step",
    "global_step",
    "iteration",
    "iter",
    "steps",
    "train/global_step",
    "trainer/global_step",
    "_step",
];

/// Columns that count epochs or time beside the steps and are not results of the training.
const COUNTERS: [&str; 6] = ["epoch", "epochs", "timestamp", "wall_time", "_timestamp", "_runtime"];
