//! Data model of a dump: [`Dump`] > step > [`Rank`] > [`Op`] > [`Slot`] > [`Value`].
//!
//! Plain data, filled by `read` and used by every later stage. Nothing here accesses files; tensor bytes are
//! fetched through the [`TensorStore`] that a reader attaches to each rank.

mod dtype;
mod error;
mod exact;
mod figure;
mod framework;
mod gather;
mod key;
mod level;
mod name;
pub mod native;
mod observation;
mod op;
mod ordinal;
mod remark;
mod repeated;
mod selection;
mod statistics;
mod tensor;
mod value;
mod word;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use dtype::{ALL_DTYPES, DType, RecordedDType};
pub use error::ReadError;
pub use exact::Exact;
pub use figure::Figure;
pub use framework::{Framework, torch_parameter};
pub use key::DataKey;
pub use level::Level;
pub use name::{OpKind, OpName, Phase, without_module_prefix};
pub use observation::{
    Content, Counts, ExtremePlaces, Observation, SKETCH_LANES, SMALL_TENSOR, Sketch, SketchVersion,
};
pub use op::{CALLED_IN, Op, SeenAs, Slot, SlotName, SlotSide};
pub use ordinal::Ordinal;
pub use remark::Remark;
pub use repeated::{Repeated, shared};
pub use selection::{LevelFilter, NumberSet, SelectionError};
pub use statistics::{KeptStatistics, Number, RecordedStatistics};
pub use tensor::{
    Bytes, LayoutError, MAX_DIMS, Storage, TensorData, TensorRef, contiguous_strides, element_count,
    is_row_major,
};
pub use value::{
    Checksum, Hash128, NO_DATA, Printed, Scalar, TensorMetadata, TensorRecord, Value, coordinates,
};
pub use word::{Named, Word, by_name, of_name};

/// Name of the program, which files record as their writer.
pub const PROGRAM: &str = "probe";

/// Process of a run that wrote a part of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RankId {
    /// A process of a run that is not distributed, or whose rank is unknown; counts as rank 0.
    Single,
    /// Rank of a distributed run.
    Rank(u32),
}

impl RankId {
    /// Returns the number shown and written to reports.
    pub const fn number(self) -> u32 {
        match self {
            Self::Single => 0,
            Self::Rank(rank) => rank,
        }
    }
}

impl fmt::Display for RankId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.number())
    }
}

/// Address of one part of a dump: the records of one rank in one step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartKey {
    /// Iteration, from 0. A part given alone, without a step folder, is step 0.
    pub step: u64,
    /// Process.
    pub rank: RankId,
    /// Name of the folder or file it was found under (`proc1234`, `rank0`), to distinguish parts with the same step and
    /// rank.
    pub label: Box<str>,
}

/// Kind of data recorded for tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Statistics only.
    Statistics,
    /// Statistics and CRC-32 of the bytes.
    Checksum,
    /// XOR of the bytes, instead of statistics.
    Xor,
    /// Statistics, sketch and hash.
    Sketch,
    /// Statistics and an order-sensitive hash of the bytes.
    Hash,
    /// The data, with statistics if the format has them.
    Tensor,
    /// Names and nesting only.
    Structure,
}

impl Task {
    /// Returns true if dumps of this task hold statistics of every tensor.
    pub const fn has_statistics(self) -> bool {
        match self {
            Self::Statistics | Self::Checksum | Self::Sketch | Self::Hash | Self::Tensor => true,
            Self::Xor | Self::Structure => false,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Statistics => "statistics",
            Self::Checksum => "md5",
            Self::Xor => "xor",
            Self::Sketch => "sketch",
            Self::Hash => "hash",
            Self::Tensor => "tensor",
            Self::Structure => "structure",
        })
    }
}

/// Source of the bytes of a rank's tensors.
pub trait TensorStore: Send + Sync {
    /// Opens the tensor recorded under `key`.
    ///
    /// # Errors
    /// [`ReadError`] that names the file and the problem; the caller marks the tensor unreadable and continues.
    fn load(&self, key: &str) -> Result<TensorData, ReadError>;

    /// Announces tensors that will be loaded soon, if that can save time: late files are then fetched together. Failures are reported
    /// on loading.
    fn expect(&self, _keys: &[&str]) {}

    /// Announces that all tensors were measured, so that caches can be dropped. Tensors can still be loaded, but more slowly.
    fn let_go(&self) {}

    /// Returns true if tensors come from a source where [`expect`](Self::expect) saves time.
    fn is_late(&self) -> bool {
        false
    }
}

/// Call stack of an op in the user's program: frames, innermost first, as recorded.
pub type Stack = Box<[Box<str>]>;

/// Records of one rank in one step.
pub struct Rank {
    /// Address within the dump.
    pub key: PartKey,
    /// The framework that was recorded.
    pub framework: Framework,
    /// Kind of data recorded for tensors.
    pub task: Task,
    /// Level as the capture tool names it (`L0`, `L1`, `mix`, `debug`); empty for collections.
    pub level: Box<str>,
    /// Ops in execution order.
    pub ops: Vec<Op>,
    /// Call stacks, without duplicates.
    pub stacks: Vec<Stack>,
    /// Access to the tensors' bytes.
    pub store: Arc<dyn TensorStore>,
    /// Pieces of this part that could not be read although the rest could (a truncated index, a damaged stack
    /// file).
    pub faults: Vec<ReadError>,
    /// Remarks on this part that do not affect its completeness (tensor files that no index names).
    pub notes: Vec<String>,
    /// True if the program ended inside the step, or was killed: ops missing at the end mean nothing.
    pub cut: bool,
}

impl fmt::Debug for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rank")
            .field("key", &self.key)
            .field("task", &self.task)
            .field("ops", &self.ops.len())
            .finish_non_exhaustive()
    }
}

/// [`Dump::format`] of dumps in probe's own format.
pub const NATIVE: &str = "probe dump";

/// An opened dump: its parts are known, their content is read on demand.
pub struct Dump {
    /// Path given by the user.
    pub path: PathBuf,
    /// Name of the format, such as `msprobe dump` or `safetensors`.
    pub format: &'static str,
    /// Parts in order of step, then rank.
    pub parts: Vec<PartKey>,
    /// Reads one part.
    pub reader: Box<dyn PartReader>,
    /// Pieces that could not be read at all (a step folder without dump.json, say).
    pub faults: Vec<ReadError>,
    /// Facts about the run's set-up by name (`torch`, `device`, `world_size`), as far as the format records them.
    pub environment: BTreeMap<String, String>,
}

/// Reads the parts of a dump; one implementation per format.
pub trait PartReader: Send + Sync {
    /// Reads the part `key`, which is one of [`Dump::parts`].
    ///
    /// # Errors
    /// [`ReadError`] when nothing of the part can be used. A partially usable part is returned with
    /// [`Rank::faults`] filled.
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError>;

    /// Returns the file or folder that opens the part `key` alone, without the rest of the dump; `None` if there is none.
    fn place(&self, _key: &PartKey) -> Option<&Path> {
        None
    }
}

impl fmt::Debug for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dump")
            .field("path", &self.path)
            .field("format", &self.format)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}
