//! Files with log-probabilities of tokens become tables. The format is detected from the content.
//!
//! | format | what it holds | sides |
//! |---|---|---|
//! | `NeMo-RL` | `train_data_step{N}.jsonl`, a line a sample | both |
//! | slime | `.pt` of a rollout, or of a rank of the trainer | rollout, or both |
//! | miles | `rank_*.json` with `logprob_entries` | one |
//! | verl | tensors of a batch as safetensors, `.pt` or `.npz` | both |
//! | msprobe | `prob_diff_step_N.npy` and `prob_mask_step_N.npy` | their difference |
//! | responses | JSON Lines of vLLM, `SGLang` and other servers | one |
//! | plain | a row a token: Parquet, CSV, JSON Lines | one or both |
//!
//! Slime, verl and plain tables may hold experts of tokens as well.

mod batch;
mod columns;
mod differences;
mod fields;
mod folder;
mod lines;
mod miles;
mod nemo;
mod pages;
mod parquet;
mod plain;
mod responses;
mod slime;
mod text;
mod verl;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use probe_files::map::{self, FileAccess};
use probe_read::{ReadError, tensor_file};

use crate::table::{Builder, Side, Table};
pub use differences::Differences;
pub(crate) use fields::narrow;

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Lines of `NeMo-RL`.
    NemoRl,
    /// Checkpoints of slime.
    Slime,
    /// Entries of miles.
    Miles,
    /// Tensors of verl.
    Verl,
    /// Differences of probabilities that msprobe saved.
    Msprobe,
    /// Responses of a server.
    Responses,
    /// A row a token.
    Plain,
}

impl Format {
    /// Returns the name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NemoRl => "NeMo-RL",
            Self::Slime => "slime",
            Self::Miles => "miles",
            Self::Verl => "verl",
            Self::Msprobe => "msprobe",
            Self::Responses => "responses",
            Self::Plain => "plain table",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Formats that can be read, for errors.
const EXPECTED: &str = "expected lines of NeMo-RL, .pt of slime, rank_*.json of miles, tensors of verl (safetensors, .pt, .npz), \
    prob_diff_step_N.npy of msprobe, responses with logprobs (JSON Lines), or a table with sample, position, token_id and logprob";

/// Content of one side.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Samples and tokens; empty for [`Format::Msprobe`].
    pub table: Table,
    /// Differences of probabilities, of [`Format::Msprobe`] alone.
    pub differences: Vec<Differences>,
    /// The format.
    pub format: Option<Format>,
    /// Files that were read.
    pub files: Vec<PathBuf>,
    /// Files that could not be read.
    pub faults: Vec<ReadError>,
}

/// Collects the files of one side.
#[derive(Debug)]
struct Collected {
    side: Side,
    builder: Builder,
    differences: Vec<Differences>,
}

/// Reads a file, or all files of a folder. A file that holds one log-probability of each token is taken for those of `side`.
///
/// # Errors
/// [`ReadError`] when nothing can be read, and when files of a folder have several formats.
pub fn open(path: &Path, side: Side) -> Result<Recorded, ReadError> {
    let files = folder::files(path)?;
    let mut collected = Collected { side, builder: Builder::default(), differences: Vec::new() };
    let mut recorded = Recorded::default();
    for file in files {
        match read(&file, &mut collected, path != file) {
            Ok(format) if recorded.format.is_some_and(|before| before != format) => {
                return Err(ReadError::usage(
                    path,
                    format!(
                        "holds files of {} and of {format}; give the files of one of them, or a folder for each",
                        recorded.format.map_or("", Format::name)
                    ),
                ));
            }
            Ok(format) => {
                recorded.format = Some(format);
                recorded.files.push(file);
            }
            Err(error) => recorded.faults.push(error),
        }
    }
    if recorded.files.is_empty() {
        return Err(match recorded.faults.into_iter().next() {
            Some(fault) => fault,
            None => ReadError::usage(path, format!("holds no log-probabilities; {EXPECTED}")),
        });
    }
    let Collected { builder, differences, .. } = collected;
    recorded.table = builder.finish().map_err(|message| ReadError::format(path, message))?;
    recorded.differences = differences;
    if recorded.table.samples.is_empty() && recorded.differences.is_empty() {
        return Err(ReadError::format(path, "holds no sample with log-probabilities"));
    }
    Ok(recorded)
}

/// Reads one file; `of_many` is true in a folder, where files name samples of other files.
fn read(path: &Path, into: &mut Collected, of_many: bool) -> Result<Format, ReadError> {
    let head = text::head(path)?;
    let first = head.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    if head.starts_with(b"PAR1") {
        return parquet::read(path, into).map(|()| Format::Plain);
    }
    if head.starts_with(b"\x93NUMPY") {
        return differences::read(path, into).map(|()| Format::Msprobe);
    }
    if matches!(first, Some(b'{' | b'[')) && !is_safetensors(&head) {
        return lines::read(path, into, of_many);
    }
    if head.starts_with(b"PK") || is_safetensors(&head) || !text::is_text(&head) {
        let file = tensor_file::open(path, FileAccess::Map)?;
        let origin = Origin { path, of_many };
        return if slime::recognises(&*file) {
            slime::read(origin, &*file, into).map(|()| Format::Slime)
        } else {
            verl::read(origin, &*file, into).map(|()| Format::Verl)
        };
    }
    columns::read(path, into).map(|()| Format::Plain)
}

/// The file that samples come from.
#[derive(Debug, Clone, Copy)]
struct Origin<'a> {
    path: &'a Path,
    /// True if other files are read too, so that a place in this one is no name.
    of_many: bool,
}

impl Origin<'_> {
    /// Returns the name of the sample at `place` of a file that does not name its samples.
    fn name(self, place: usize) -> Box<str> {
        if !self.of_many {
            return place.to_string().into();
        }
        let file = self.path.file_stem().unwrap_or_default().to_string_lossy();
        format!("{file}:{place}").into()
    }
}

/// Returns true for the first bytes of a safetensors file: the length of a header that begins with a brace.
fn is_safetensors(head: &[u8]) -> bool {
    head.get(8) == Some(&b'{') && head.get(4..8) == Some(&[0; 4])
}

/// Returns the step that a file's name states, as in `train_data_step12.jsonl` and `prob_diff_step_3.npy`; 0 if it states none.
fn step_of(path: &Path) -> u64 {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let number = |text: &str| {
        let digits = text.trim_start_matches(['_', '-', '=', '.']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits.get(..end)?.parse().ok()
    };
    let named = |word: &str| name.rfind(word).and_then(|at| number(name.get(at + word.len()..)?));
    named("step").or_else(|| named("rollout")).or_else(|| name.parse().ok()).unwrap_or(0)
}

/// Opens the whole file.
fn content(path: &Path) -> Result<probe_dump::Storage, ReadError> {
    map::open(path, FileAccess::Map)
}
