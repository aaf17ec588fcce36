//! A checkpoint: named tensors, each made of the pieces that files hold.
//!
//! Opening reads headers only. Tensors of torch distributed checkpoints are whole here, wherever their pieces lie. The files of Megatron's
//! ranks are not joined: `mp_rank_01/` before a name says whose tensor it is, and its place in the whole one is found by content.

mod names;
mod ranks;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::GlobMatcher;
use probe_dump::{DType, ReadError, RecordedDType, Scalar, TensorData, TensorStore, Value, element_count};
use probe_files::map::FileAccess;
use probe_measure::numbers;
use probe_read::tensor_file::distributed;

use names::Held;
pub use names::Name;

/// The tensors of a model.
#[derive(Debug)]
pub struct Checkpoint {
    /// The path as given.
    pub path: PathBuf,
    /// Name of the format, such as `sharded checkpoint`.
    pub format: &'static str,
    /// Tensors in file order.
    pub tensors: Vec<Tensor>,
    /// Files and tensors that could not be opened.
    pub faults: Vec<String>,
}

/// A tensor of a checkpoint.
pub struct Tensor {
    /// Its name, and the numbers in it.
    pub name: Name,
    /// Element type.
    pub dtype: DType,
    /// Sizes of the dimensions.
    pub shape: Box<[usize]>,
    /// The pieces that make it up, without gaps.
    pub(crate) pieces: Vec<Piece>,
}

/// A part of a tensor that lies in one place.
pub(crate) struct Piece {
    /// Index of its first element in the tensor, per dimension.
    pub(crate) offsets: Box<[usize]>,
    store: Arc<dyn TensorStore>,
    key: Box<str>,
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {:?}", self.name.text, self.dtype, self.shape)
    }
}

impl Piece {
    /// Opens the piece.
    ///
    /// # Errors
    /// [`ReadError`] when it cannot be read, or is not of the recorded size or type.
    pub(crate) fn load(&self) -> Result<TensorData, ReadError> {
        self.store.load(&self.key)
    }
}

/// Which tensors take part: all but those that a pattern leaves out.
#[derive(Debug, Default)]
pub struct Selected {
    /// Only these names, if there are any.
    pub only: Vec<GlobMatcher>,
    /// Not these.
    pub skip: Vec<GlobMatcher>,
}

impl Selected {
    fn holds(&self, name: &str) -> bool {
        let any = |patterns: &[GlobMatcher]| patterns.iter().any(|pattern| pattern.is_match(name));
        (self.only.is_empty() || any(&self.only)) && !any(&self.skip)
    }
}

impl Checkpoint {
    /// Opens what is at `path`: a tensor file, an index, a folder of them, a torch distributed checkpoint or a checkpoint of
    /// Megatron.
    ///
    /// # Errors
    /// [`ReadError`] when nothing there holds weights.
    pub fn open(path: &Path, selected: &Selected, access: FileAccess) -> Result<Self, ReadError> {
        let mut checkpoint = Self { path: path.into(), format: "", tensors: Vec::new(), faults: Vec::new() };
        if path.is_dir()
            && let Some(ranks) = ranks::find(path)?
        {
            checkpoint.format = "Megatron checkpoint";
            for (label, file) in ranks {
                checkpoint.add(&file, &label, access)?;
            }
        } else if distributed::recognises(path) {
            checkpoint.format = "torch distributed checkpoint";
            checkpoint.add_distributed(path, access)?;
        } else if distributed::lacks_index(path) {
            let message = "holds .distcp files without .metadata, which says what is in them; copy it too, or save again: the first rank writes it last";
            return Err(ReadError::usage(path, message));
        } else {
            checkpoint.add(path, "", access)?;
        }
        // A tensor without elements has nothing to be compared.
        checkpoint.tensors.retain(|tensor| {
            tensor.bytes() > 0 && selected.holds(&tensor.name.text) && !tensor.is_causal_mask()
        });
        if checkpoint.tensors.is_empty() {
            let message = "holds no weights that are selected; `probe inspect` lists what it holds";
            return Err(ReadError::usage(path, message));
        }
        Ok(checkpoint)
    }

    fn add_distributed(&mut self, folder: &Path, access: FileAccess) -> Result<(), ReadError> {
        let found = distributed::open(folder, access)?;
        self.faults.extend(found.faults.iter().map(ToString::to_string));
        let names = names::weights(
            found
                .tensors
                .iter()
                .map(|tensor| (&*tensor.name, Held::of(&tensor.dtype, tensor.shape.is_empty()))),
        );
        for (tensor, name) in found.tensors.into_iter().zip(names) {
            let Some(name) = name else { continue };
            let RecordedDType::Known(dtype) = tensor.dtype else {
                let folder = folder.display();
                self.faults.push(format!("{folder}: {name}: element type {} is not supported", tensor.dtype));
                continue;
            };
            let piece = |(offsets, key): (Box<[usize]>, String)| Piece {
                offsets,
                store: found.store.clone(),
                key: key.into(),
            };
            let pieces = tensor.pieces.into_iter().map(piece).collect();
            self.tensors.push(Tensor { name: Name::new(&name), dtype, shape: tensor.shape, pieces });
        }
        Ok(())
    }

    /// Adds the tensors of a file or folder; `label` and a slash come before their names.
    fn add(&mut self, path: &Path, label: &str, access: FileAccess) -> Result<(), ReadError> {
        let dump = probe_read::open(path, access)?;
        let [part] = dump.parts.as_slice() else {
            let message =
                format!("is no checkpoint but a dump ({}); use `probe compare` for dumps", dump.format);
            return Err(ReadError::usage(path, message));
        };
        if label.is_empty() {
            self.format = dump.format;
        }
        self.faults.extend(dump.faults.iter().map(ToString::to_string));
        let rank = dump.reader.read(part)?;
        self.faults.extend(rank.faults.iter().map(ToString::to_string));
        let mut values = Vec::new();
        for op in &rank.ops {
            let [slot] = op.slots.as_slice() else { continue };
            if &*slot.path != "value" {
                let message =
                    format!("is no checkpoint but a dump ({}); use `probe compare` for dumps", dump.format);
                return Err(ReadError::usage(path, message));
            }
            values.push((op.name.as_str(), &slot.value));
        }
        let held = |value: &Value| match value {
            Value::Tensor(record) => Held::of(&record.dtype, record.shape.is_empty()),
            Value::Scalar(Scalar::Text(text)) => Held::Text(text.clone()),
            _ => Held::Other,
        };
        let renamed = names::weights(values.iter().map(|(name, value)| (*name, held(value))));
        for ((_, value), name) in values.iter().zip(renamed) {
            let (Some(name), Value::Tensor(record)) = (name, value) else { continue };
            let Some(key) = &record.data else { continue };
            let name = if label.is_empty() { name } else { format!("{label}/{name}") };
            let shape: Option<Box<[usize]>> =
                record.shape.iter().map(|&size| usize::try_from(size).ok()).collect();
            match (&record.dtype, shape) {
                (RecordedDType::Known(dtype), Some(shape)) if element_count(&shape).is_some() => {
                    let offsets = vec![0; shape.len()].into();
                    let pieces =
                        vec![Piece { offsets, store: Arc::clone(&rank.store), key: key.to_string().into() }];
                    self.tensors.push(Tensor { name: Name::new(&name), dtype: *dtype, shape, pieces });
                }
                (dtype, _) => {
                    let unsupported =
                        || format!("{}: {name}: element type {dtype} is not supported", path.display());
                    // The damage of an array names its file.
                    self.faults.push(record.damage.as_deref().map_or_else(unsupported, str::to_owned));
                }
            }
        }
        Ok(())
    }
}

impl Tensor {
    /// Returns the size of the elements in bytes.
    pub fn bytes(&self) -> u64 {
        element_count(&self.shape).unwrap_or(0) as u64 * self.dtype.size() as u64
    }

    /// Returns true for a buffer that says which positions see which, under whatever name: 1 up to the diagonal, 0 behind it. Its first
    /// dimensions, of batch and heads, are 1.
    fn is_causal_mask(&self) -> bool {
        let ([first @ .., rows, columns], [piece]) = (&*self.shape, self.pieces.as_slice()) else {
            return false;
        };
        if first.is_empty() || first.iter().any(|&size| size != 1) || rows != columns || *rows < 2 {
            return false;
        }
        let Ok(data) = piece.load() else { return false };
        let mut bytes = vec![0; columns * self.dtype.size()];
        let is_masked = (0..*rows).all(|row| {
            data.view().gather(row * columns..(row + 1) * columns, &mut bytes);
            let due = |at: usize| if at <= row { 1.0_f64 } else { 0.0 };
            numbers(self.dtype, &bytes)
                .iter()
                .enumerate()
                .all(|(at, number)| number.total_cmp(&due(at)).is_eq())
        });
        is_masked && data.fault().is_none()
    }
}
