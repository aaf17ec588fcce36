//! Contents of a dump or a tensor file, for people and programs: ops and slots as recorded, and the values of one tensor.
//!
//! Reads and measures; `report::inspection` lays out the result. Nothing is compared here.

mod element;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use globset::GlobMatcher;
use rayon::prelude::*;

use probe_dump::{
    Content, Dump, ExtremePlaces, NumberSet, Op, PartKey, Rank, Slot, TensorRecord, coordinates,
};
use probe_files::{Copies, map::FileAccess};
use probe_measure::{self as measure, Histogram, TensorSummary};
use probe_read::{ReadError, open_called};

/// Bins of a histogram.
const BINS: usize = 20;

/// Number of elements shown from each end of a tensor.
const EDGE: usize = 8;

/// Selection of the contents to inspect.
#[derive(Debug, Clone, Default)]
pub struct InspectOptions {
    /// Ops to list, by name; all when `None`.
    pub op: Option<GlobMatcher>,
    /// A single tensor to show instead of a list: `OP SLOT`, or the name of a tensor in a file.
    pub tensor: Option<String>,
    /// Steps to inspect; all when empty.
    pub steps: NumberSet,
    /// Ranks to inspect; all when empty.
    pub ranks: NumberSet,
    /// Location of the dump, if it is read from a copy.
    pub copies: Copies,
}

/// Result of an inspection.
#[derive(Debug)]
pub struct Inspection {
    /// Path as given.
    pub path: PathBuf,
    /// Format in words.
    pub format: &'static str,
    /// Every step in the dump, including those not inspected.
    pub steps: BTreeSet<u64>,
    /// Every rank in the dump.
    pub ranks: BTreeSet<u32>,
    /// The inspected parts, in order of step, then rank.
    pub parts: Vec<InspectedPart>,
    /// Things that could not be read, including tensors with their place.
    pub faults: Vec<String>,
}

/// One step of one rank.
#[derive(Debug)]
pub struct InspectedPart {
    /// The recorded rank.
    pub rank: Rank,
    /// The requested ops, in execution order; empty if a single tensor was requested.
    pub ops: Vec<InspectedOp>,
    /// The requested tensor.
    pub tensor: Option<InspectedTensor>,
}

/// One op of a list.
#[derive(Debug)]
pub struct InspectedOp {
    /// Index into [`Rank::ops`].
    pub op: usize,
    /// Measurement of each slot, for tensors without recorded statistics.
    pub measured: Vec<Measured>,
}

/// Facts about a tensor that its record lacks.
#[derive(Debug, Clone, PartialEq)]
pub enum Measured {
    /// Nothing: the record is complete, or there is no data.
    Nothing,
    /// Statistics, measured from the data.
    Summary(TensorSummary),
    /// Reason why the data could not be read.
    Unreadable(String),
}

/// One tensor by itself.
#[derive(Debug)]
pub struct InspectedTensor {
    /// Indices of op and slot.
    pub place: (usize, usize),
    /// Its values, or the reason why the data could not be read; `None` if no data was recorded.
    pub values: Option<Result<Values, String>>,
}

/// The values of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// Element type as stored.
    pub dtype: probe_dump::DType,
    /// Sizes of the dimensions as stored.
    pub shape: Vec<usize>,
    /// The first elements in row-major order, as text; all elements if there are few.
    pub first: Vec<String>,
    /// The last elements; empty if `first` holds all of them.
    pub last: Vec<String>,
    /// Statistics and distribution.
    pub histogram: Histogram,
    /// Positions of the largest and the smallest element; `None` if no element is finite.
    pub places: Option<ExtremePlaces>,
}

impl Values {
    /// Returns the indices in each dimension of the smallest and the largest element.
    pub fn extremes(&self) -> [Option<Vec<u64>>; 2] {
        let sizes: Vec<u64> = self.shape.iter().map(|&size| size as u64).collect();
        [self.places.map(ExtremePlaces::min), self.places.map(ExtremePlaces::max)]
            .map(|place| place.and_then(|place| coordinates(place, &sizes)))
    }
}

impl Inspection {
    /// Returns every op that was read, requested or not.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.parts.iter().flat_map(|part| &part.rank.ops)
    }

    /// Returns true if nothing requested was found.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.ops.is_empty() && part.tensor.is_none())
    }
}

/// Inspects the dump or file at `path`. Runs on the current rayon pool.
///
/// # Errors
/// [`ReadError`] when nothing there can be read as a dump, or no part of it is selected.
pub fn inspect(path: &Path, options: &InspectOptions) -> Result<Inspection, ReadError> {
    let dump = open_called(path, &options.copies, FileAccess::Map)?;
    let mut found = Inspection {
        path: path.to_path_buf(),
        format: dump.format,
        steps: dump.parts.iter().map(|key| key.step).collect(),
        ranks: dump.parts.iter().map(|key| key.rank.number()).collect(),
        parts: Vec::new(),
        faults: dump.faults.iter().map(ToString::to_string).collect(),
    };
    let wanted = |key: &&PartKey| {
        options.steps.contains(key.step) && options.ranks.contains(u64::from(key.rank.number()))
    };
    let mut selected = dump.parts.iter().filter(wanted).peekable();
    if selected.peek().is_none() && !dump.parts.is_empty() {
        let message = format!(
            "--step and --rank select nothing; it has steps {:?} and ranks {:?}",
            found.steps, found.ranks
        );
        return Err(ReadError::usage(path, message));
    }
    for key in selected {
        read_part(&dump, key, options, &mut found);
    }
    Ok(found)
}

fn read_part(dump: &Dump, key: &PartKey, options: &InspectOptions, found: &mut Inspection) {
    let rank = match dump.reader.read(key) {
        Ok(rank) => rank,
        Err(fault) => return found.faults.push(fault.to_string()),
    };
    found.faults.extend(rank.faults.iter().map(ToString::to_string));
    let tensor = options.tensor.as_ref().and_then(|name| tensor(&rank, name));
    let ops = if options.tensor.is_some() { Vec::new() } else { list(&rank, options.op.as_ref()) };
    let unreadable = |(op, slot, reason): (usize, usize, &String)| {
        let op = &rank.ops[op];
        format!("step {} {} {} {}: {reason}", key.step, key.rank, op.name, op.slots[slot].path)
    };
    let of_list = ops.iter().flat_map(|op| {
        let slots = op.measured.iter().enumerate();
        slots.filter_map(|(slot, measured)| match measured {
            Measured::Unreadable(reason) => Some((op.op, slot, reason)),
            _ => None,
        })
    });
    let of_tensor = tensor.iter().filter_map(|tensor| match &tensor.values {
        Some(Err(reason)) => Some((tensor.place.0, tensor.place.1, reason)),
        _ => None,
    });
    found.faults.extend(of_list.chain(of_tensor).map(unreadable));
    found.parts.push(InspectedPart { rank, ops, tensor });
}

fn list(rank: &Rank, pattern: Option<&GlobMatcher>) -> Vec<InspectedOp> {
    let wanted = |op: &Op| pattern.is_none_or(|pattern| pattern.is_match(op.name.as_str()));
    let ops: Vec<usize> = (0..rank.ops.len()).filter(|&op| wanted(&rank.ops[op])).collect();
    let slots = ops.iter().flat_map(|&op| &rank.ops[op].slots);
    rank.store.expect(&slots.filter_map(to_measure).collect::<Vec<_>>());
    ops.into_par_iter()
        .map(|op| InspectedOp {
            op,
            measured: rank.ops[op].slots.iter().map(|slot| measured(rank, slot)).collect(),
        })
        .collect()
}

/// Returns the data of a slot without recorded statistics.
fn to_measure(slot: &Slot) -> Option<&str> {
    let unknown = |record: &&TensorRecord| record.statistics.is_empty();
    slot.value.tensor().filter(unknown)?.data.as_deref()
}

fn measured(rank: &Rank, slot: &Slot) -> Measured {
    let Some(key) = to_measure(slot) else { return Measured::Nothing };
    match rank.store.load(key) {
        Ok(data) => Measured::Summary(measure::summarize(data.view())),
        Err(error) => Measured::Unreadable(error.to_string()),
    }
}

/// Returns the tensor called `name` of one part.
fn tensor(rank: &Rank, name: &str) -> Option<InspectedTensor> {
    let matches = |op: &Op, slot: &Slot| {
        let op = op.name.as_str();
        op == name
            || name.strip_prefix(op).is_some_and(|rest| rest.trim_start_matches([' ', '.']) == &*slot.path)
    };
    let (place, record) = rank.ops.iter().enumerate().find_map(|(at, op)| {
        let slot = op.slots.iter().position(|slot| matches(op, slot) && slot.value.tensor().is_some())?;
        Some(((at, slot), op.slots[slot].value.tensor()?))
    })?;
    let values = record.data.as_ref().map(|key| match rank.store.load(key) {
        Ok(data) => Ok(values(&data)),
        Err(error) => Err(error.to_string()),
    });
    Some(InspectedTensor { place, values })
}

fn values(data: &probe_dump::TensorData) -> Values {
    let view = data.view();
    let count = view.len();
    let texts = |range: std::ops::Range<usize>| range.map(|index| element::text(view, index)).collect();
    let (first, last) = if count <= 2 * EDGE {
        (texts(0..count), Vec::new())
    } else {
        (texts(0..EDGE), texts(count - EDGE..count))
    };
    Values {
        dtype: data.dtype(),
        shape: data.shape().to_vec(),
        first,
        last,
        histogram: measure::histogram(view, BINS),
        places: measure::observe(view, Content::STATISTICS).places,
    }
}
