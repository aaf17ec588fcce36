//! Converts a dump, or part of one, to another format: probe's own, or one file per tensor in a common format.
//!
//! Elements keep their bits, except if the format lacks the type: `.npy` has neither bfloat16 nor 8-bit floats, which become float32,
//! exactly. Everything is written to a folder next to the target, which is renamed once complete.

mod name;
mod native;
mod npy;
mod tensors;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::CaptureError;
use probe_dump::{DType, Dump, NumberSet, PartKey, Rank, ReadError, Slot, TensorData};
use probe_files::{Copies, map::FileAccess};
use probe_read::open_called;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Target {
    /// A dump in probe's own format, with everything the source holds.
    #[default]
    Native,
    /// One `.npy` file per tensor.
    Npy,
    /// Safetensors files of at most 4 GiB.
    Safetensors,
}

/// Options of a conversion.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// Output format.
    pub target: Target,
    /// Steps to convert; all when empty.
    pub steps: NumberSet,
    /// Ranks to convert; all when empty.
    pub ranks: NumberSet,
    /// Access to the bytes of large files.
    pub access: FileAccess,
    /// Location of the dump, if it is read from a copy.
    pub copies: Copies,
}

/// Counts of converted items.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conversion {
    /// Number of parts: pairs of step and rank.
    pub parts: u64,
    /// Number of ops.
    pub ops: u64,
    /// Number of tensors whose elements were written.
    pub tensors: u64,
    /// Number of their bytes.
    pub bytes: u64,
    /// Number of tensors whose elements were not recorded; only their other properties can be written.
    pub without_data: u64,
    /// Number of these whose statistics cannot be stored in a native dump, because their elements were not
    /// counted.
    pub without_counts: u64,
    /// Number of tensors widened to float32.
    pub widened: u64,
    /// Items that could not be read, with their place.
    pub left_out: Vec<String>,
}

/// Errors that prevent a conversion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The dump cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] CaptureError),
    /// The system refused a file or folder of the output.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The output folder is in use.
    #[error("{}: {message}", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
        /// Its content.
        message: String,
    },
    /// The dump has nothing that the target can hold.
    #[error("{}: {message}", path.display())]
    Nothing {
        /// The dump.
        path: PathBuf,
        /// Its content, and the advice.
        message: String,
    },
}

impl ConvertError {
    fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }
}

/// A folder being filled, next to the target. Dropping it before it is placed removes it with its content.
#[derive(Debug)]
pub struct ConvertDraft {
    output: PathBuf,
    folder: PathBuf,
    placed: bool,
}

impl ConvertDraft {
    /// Creates the folder.
    ///
    /// # Errors
    /// [`ConvertError::Occupied`] when `output` exists and is not an empty folder, [`ConvertError::Io`] when nothing can be written next to it.
    pub fn create(output: &Path) -> Result<Self, ConvertError> {
        let occupied =
            |message: &str| ConvertError::Occupied { path: output.into(), message: message.into() };
        match fs::read_dir(output) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(occupied("is not empty; name a folder that does not exist yet"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(occupied("is a file; name a folder that does not exist yet"));
            }
            Err(error) => return Err(ConvertError::io(output, error)),
        }
        let name = output
            .file_name()
            .ok_or_else(|| occupied("has no name; name a folder that does not exist yet"))?;
        let parent =
            output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(|error| ConvertError::io(parent, error))?;
        let name = format!(".{}.part-{}", name.to_string_lossy(), std::process::id());
        let folder = parent.join(name);
        fs::create_dir(&folder).map_err(|error| ConvertError::io(&folder, error))?;
        Ok(Self { output: output.into(), folder, placed: false })
    }

    /// Returns the folder of the files until they are complete.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Renames the folder to its final name.
    ///
    /// # Errors
    /// [`ConvertError::Io`] when something was put there in the meantime; the written files are then removed.
    pub fn place(mut self) -> Result<(), ConvertError> {
        // Replaces an empty folder of that name, but not one filled in the meantime.
        fs::rename(&self.folder, &self.output).map_err(|error| ConvertError::io(&self.output, error))?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for ConvertDraft {
    fn drop(&mut self) {
        if !self.placed {
            _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Receives the parts of a dump, in order of rank, then step.
trait Sink {
    /// Writes one part.
    fn part(&mut self, rank: &Rank, counts: &mut Conversion) -> Result<(), ConvertError>;

    /// Ends the output.
    fn finish(self: Box<Self>) -> Result<(), ConvertError>;
}

/// Converts the dump at `path` into the folder of `draft`, which must then be [placed](ConvertDraft::place). Unreadable items are left out and
/// listed.
///
/// # Errors
/// [`ConvertError`] when the dump cannot be read at all, none of it is selected, the target can hold none of it, or the output cannot be written; the
/// folder is then left as it was.
pub fn convert(
    path: &Path,
    draft: &ConvertDraft,
    options: &ConvertOptions,
) -> Result<Conversion, ConvertError> {
    let dump = open_called(path, &options.copies, options.access)?;
    let keys = selected(&dump, options)?;
    let folder = draft.folder();
    let mut sink: Box<dyn Sink> = match options.target {
        Target::Native => Box::new(native::NativeSink::new(folder, &dump, &keys)),
        Target::Npy => Box::new(npy::NpySink::new(folder)),
        Target::Safetensors => Box::new(tensors::SafetensorsSink::new(folder)),
    };
    let mut counts = Conversion::default();
    counts.left_out.extend(dump.faults.iter().map(ToString::to_string));
    let mut done: Vec<(u64, u32)> = Vec::new();
    for key in keys {
        let place = (key.step, key.rank.number());
        if done.contains(&place) {
            counts.left_out.push(format!(
                "{}: a second part of step {} {}; convert it separately",
                key.label, key.step, key.rank
            ));
            continue;
        }
        match dump.reader.read(key) {
            Ok(rank) => {
                counts.left_out.extend(rank.faults.iter().map(ToString::to_string));
                counts.parts += 1;
                counts.ops += rank.ops.len() as u64;
                let slots = rank.ops.iter().flat_map(|op| &op.slots);
                let records = slots.filter_map(|slot| slot.value.tensor());
                rank.store.expect(&records.filter_map(|record| record.data.as_deref()).collect::<Vec<_>>());
                sink.part(&rank, &mut counts)?;
                done.push(place);
            }
            Err(fault) => counts.left_out.push(fault.to_string()),
        }
    }
    sink.finish()?;
    let nothing = |message: String| ConvertError::Nothing { path: path.into(), message };
    if counts.parts == 0 {
        let reason = counts.left_out.first().map_or("it holds no part", |reason| reason);
        return Err(nothing(format!("nothing could be converted: {reason}")));
    }
    if counts.tensors == 0 && options.target != Target::Native {
        return Err(nothing(
            "holds no tensor data; --format native keeps everything else that was recorded".into(),
        ));
    }
    Ok(counts)
}

/// Returns the selected parts, by rank and then step.
fn selected<'a>(dump: &'a Dump, options: &ConvertOptions) -> Result<Vec<&'a PartKey>, ConvertError> {
    let wanted = |key: &&PartKey| {
        options.steps.contains(key.step) && options.ranks.contains(u64::from(key.rank.number()))
    };
    let mut keys: Vec<&PartKey> = dump.parts.iter().filter(wanted).collect();
    if keys.is_empty() && !dump.parts.is_empty() {
        let message = "--step and --rank select nothing; `probe inspect` lists what there is".into();
        return Err(ConvertError::Nothing { path: dump.path.clone(), message });
    }
    keys.sort_by(|a, b| (a.rank.number(), a.step, &a.label).cmp(&(b.rank.number(), b.step, &b.label)));
    Ok(keys)
}

/// Elements of a slot.
enum Elements {
    /// Available.
    Here(TensorData),
    /// Not recorded.
    NotRecorded,
    /// Unreadable, which was noted.
    Unreadable,
}

/// Loads the elements of a slot, if it is a tensor, and counts them.
fn elements(rank: &Rank, op: &str, slot: &Slot, counts: &mut Conversion) -> Elements {
    let Some(record) = slot.value.tensor() else { return Elements::NotRecorded };
    let Some(key) = &record.data else {
        counts.without_data += u64::from(!record.is_empty());
        return Elements::NotRecorded;
    };
    // Elements whose order is unknown would be mistaken for the tensor.
    let loaded = match (&record.layout, &record.note) {
        (Some(layout), note) => {
            Err(note.as_deref().map_or_else(|| format!("stored as {layout}"), str::to_owned))
        }
        (None, _) => rank.store.load(key).map_err(|error| error.to_string()),
    };
    match loaded.and_then(|data| data.fault().map_or(Ok(data), Err)) {
        Ok(data) => {
            counts.tensors += 1;
            // The reader decoded a type that does not exist here.
            counts.widened += u64::from(record.dtype.known().is_none() && data.dtype() == DType::F32);
            counts.bytes += (data.view().len() * data.dtype().size()) as u64;
            Elements::Here(data)
        }
        Err(reason) => {
            let PartKey { step, rank, .. } = &rank.key;
            counts.left_out.push(format!("step {step} {rank} {op} {}: {reason}", slot.path));
            Elements::Unreadable
        }
    }
}

/// Returns row-major bytes. A fault while reading them is noted.
fn bytes_of(data: &TensorData, op: &str, slot: &Slot, counts: &mut Conversion) -> Option<Vec<u8>> {
    let bytes = data.view().to_bytes();
    match data.fault() {
        None => Some(bytes),
        Some(fault) => {
            counts.tensors -= 1;
            counts.bytes -= bytes.len() as u64;
            counts.left_out.push(format!("{op} {}: {fault}", slot.path));
            None
        }
    }
}

/// Returns the name of a tensor in files: op and slot, or only the op's name if it is that of a tensor.
fn tensor_name(op: &str, slot: &Slot) -> String {
    if &*slot.path == "value" { op.to_owned() } else { format!("{op}.{}", slot.path) }
}

/// Creates the folder of a part in outputs of tensor files.
fn part_folder(root: &Path, key: &PartKey) -> Result<PathBuf, ConvertError> {
    let folder = root.join(format!("step{}", key.step)).join(format!("rank{}", key.rank.number()));
    fs::create_dir_all(&folder).map_err(|error| ConvertError::io(&folder, error))?;
    Ok(folder)
}

#[cfg(test)]
mod tests;
