//! Converts dumps to lines of a baseline and lines to a dump, so that both sides of a comparison have the same form.
//!
//! A line is a value at the boundary of a module. An input of a module that another line produced is not written again but referenced by its
//! hash; when read back, such a value is the same tensor, by which the judge follows the data from module to module.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::baseline::{BoundaryValue, NonFinite, ValuePart};
use probe_dump::{
    Checksum, Content, Counts, Dump, Framework, Number, Op, OpKind, OpName, PartKey, PartReader, Rank,
    RankId, ReadError, RecordedDType, RecordedStatistics, SeenAs, Slot, SlotSide, Task, TensorData,
    TensorRecord, TensorStore, Value,
};
use probe_judge::Incomplete;
use probe_measure as measure;

/// Relative error of mean and norm in a line, relative to the norm: they have 24 bits.
const ROUNDING: f64 = 1.0 / (1_u64 << 23) as f64;

/// Digits of a hash: half of xxh3-128, enough to distinguish the values of one run.
const DIGITS: usize = 16;

/// Returns the lines of every selected part of a dump, and everything that could not be read.
pub(super) fn lines(
    dump: &Dump,
    wanted: impl Fn(&PartKey) -> bool + Sync,
) -> (Vec<ValuePart>, Vec<Incomplete>) {
    let keys: Vec<&PartKey> = dump.parts.iter().filter(|key| wanted(key)).collect();
    let read: Vec<_> = keys.par_iter().map(|key| (*key, dump.reader.read(key))).collect();
    let (mut parts, mut incomplete) = (Vec::new(), Vec::new());
    for fault in &dump.faults {
        incomplete.push(Incomplete { place: fault.path().display().to_string(), reason: fault.reason() });
    }
    for (key, rank) in read {
        let place = format!("step {} {}", key.step, key.rank);
        match rank {
            Ok(rank) => {
                let faults = rank.faults.iter().map(ToString::to_string);
                let cut = rank.cut.then(|| "the program ended inside this step".to_owned());
                incomplete
                    .extend(faults.chain(cut).map(|reason| Incomplete { place: place.clone(), reason }));
                let (values, unread) = of_rank(&rank);
                incomplete.extend(
                    unread
                        .into_iter()
                        .map(|(name, reason)| Incomplete { place: format!("{place} {name}"), reason }),
                );
                let exact = proves_equality(rank.task);
                parts.push(ValuePart { exact, step: key.step, rank: key.rank.number(), values });
            }
            Err(error) => incomplete.push(Incomplete { place, reason: error.to_string() }),
        }
    }
    (parts, incomplete)
}

/// Returns true if a capture recorded hashes to prove bit equality. Other tasks record them as well, and there a difference in the hash
/// alone is the effect of rounding.
const fn proves_equality(task: Task) -> bool {
    matches!(task, Task::Checksum | Task::Xor | Task::Hash)
}

/// Name of a value, and the reason why it could not be read.
type Unread = (String, String);

fn of_rank(rank: &Rank) -> (Vec<BoundaryValue>, Vec<Unread>) {
    let at_boundary = |op: &&Op| op.name.kind() != OpKind::Api;
    // A dump of functions only has no modules; its functions are used instead.
    let any = rank.ops.iter().any(|op| at_boundary(&op));
    let ops: Vec<&Op> = rank.ops.iter().filter(|op| !any || at_boundary(op)).collect();
    let measured: Vec<(&Op, Vec<Measured<'_>>)> = ops
        .par_iter()
        .map(|op| (*op, op.slots.iter().filter_map(|slot| measured(slot, rank)).collect()))
        .collect();
    let mut known: HashSet<String> = HashSet::new();
    let (mut lines, mut unread) = (Vec::new(), Vec::new());
    for (op, slots) in measured {
        if !slots.iter().any(|found| found.slot.side.is_result()) {
            continue;
        }
        let mut inputs = Vec::new();
        let mut own: Vec<BoundaryValue> = Vec::new();
        let mut first_result = None;
        for Measured { slot, line, fault } in slots {
            let name = format!("{} {}", op.name, slot.path);
            unread.extend(fault.map(|reason| (name.clone(), reason)));
            if !slot.side.is_result()
                && let Some(hash) = line.hash.as_ref().filter(|hash| known.contains(*hash))
            {
                inputs.push(input(&slot.path, hash));
                continue;
            }
            if slot.side.is_result() {
                first_result.get_or_insert(own.len());
            }
            own.push(BoundaryValue { name, ..line });
        }
        known.extend(own.iter().filter_map(|line| line.hash.clone()));
        if let Some(line) = first_result.and_then(|index| own.get_mut(index)) {
            line.inputs = inputs;
        }
        lines.extend(own);
    }
    (lines, unread)
}

/// The slot of the single input of most modules, which is not written.
const FIRST_INPUT: &str = "input.0";

/// Returns the text for an input slot whose value another line has.
fn input(path: &str, hash: &str) -> String {
    if path == FIRST_INPUT && !hash.contains('=') { hash.to_owned() } else { format!("{path}={hash}") }
}

/// A slot with a tensor, and the facts about it.
struct Measured<'a> {
    slot: &'a Slot,
    line: BoundaryValue,
    fault: Option<String>,
}

fn measured<'a>(slot: &'a Slot, rank: &Rank) -> Option<Measured<'a>> {
    let record = slot.value.tensor()?;
    let mut fault = record.unmeasured().map(|reason| format!("not measured: {reason}"));
    let bare = record.statistics.is_empty() || record.checksum.is_none();
    // Formats without statistics or hashes have the data instead.
    let own = match record.data.as_deref().filter(|_| bare) {
        Some(key) => match measure_data(rank, key, record) {
            Ok(own) => Some(own),
            Err(reason) => {
                fault.get_or_insert(reason);
                None
            }
        },
        None => None,
    };
    Some(Measured { slot, line: line(own.as_ref().unwrap_or(record)), fault })
}

fn measure_data(rank: &Rank, key: &str, record: &TensorRecord) -> Result<TensorRecord, String> {
    let data = rank.store.load(key).map_err(|error| error.to_string())?;
    let found = measure::observe(data.view(), Content::HASH);
    if let Some(reason) = data.fault() {
        return Err(format!("{key}: {reason}"));
    }
    let mut own = record.clone();
    (own.statistics, own.places) = (found.statistics.into(), found.places);
    own.counts = Some(found.counts.into());
    own.checksum = found.hash.map(Checksum::of_hash);
    Ok(own)
}

fn line(record: &TensorRecord) -> BoundaryValue {
    let number = |number: Option<Number>| number.map(Number::as_f64);
    let statistics = &record.statistics;
    let nonfinite = record.counts.as_deref().map_or(NonFinite::Unknown, |counts| {
        NonFinite::Counted([counts.nan, counts.positive_infinite, counts.negative_infinite])
    });
    BoundaryValue {
        name: String::new(),
        dtype: record.dtype.to_string(),
        shape: record.shape.to_vec(),
        hash: record.checksum.as_ref().map(short_hash),
        max: number(statistics.max()),
        min: number(statistics.min()),
        mean: statistics.mean().map(rounded),
        norm: statistics.norm().map(rounded),
        nonfinite,
        inputs: Vec::new(),
    }
}

fn short_hash(checksum: &Checksum) -> String {
    let text = checksum.to_string();
    match checksum {
        Checksum::Xxh3(_) => text.get(..DIGITS).unwrap_or(&text).to_owned(),
        _ => text,
    }
}

/// Rounds to 24 bits; numbers beyond the range of binary32 are unchanged.
fn rounded(value: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, reason = "rounding is the purpose")]
    let narrow = f64::from(value as f32);
    if narrow.is_finite() { narrow } else { value }
}

/// Converts lines to a dump of modules.
pub(super) fn as_dump(path: &Path, parts: Vec<ValuePart>) -> Dump {
    let keyed: BTreeMap<PartKey, ValuePart> = parts
        .into_iter()
        .map(|part| {
            let label = format!("step{}/rank{}", part.step, part.rank).into();
            (PartKey { step: part.step, rank: RankId::Rank(part.rank), label }, part)
        })
        .collect();
    Dump {
        path: path.to_path_buf(),
        format: "baseline",
        parts: keyed.keys().cloned().collect(),
        reader: Box::new(Lines(keyed)),
        faults: Vec::new(),
        environment: BTreeMap::new(),
    }
}

struct Lines(BTreeMap<PartKey, ValuePart>);

impl PartReader for Lines {
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError> {
        let part =
            self.0.get(key).ok_or_else(|| ReadError::usage(&*key.label, "no such part in this baseline"))?;
        Ok(rank_of(key, part))
    }
}

/// Store without data, because lines have none.
struct NoData;

impl TensorStore for NoData {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        Err(ReadError::usage(key, "a baseline holds no data"))
    }
}

fn rank_of(key: &PartKey, part: &ValuePart) -> Rank {
    let mut ops: Vec<Op> = Vec::new();
    let mut by_hash: HashMap<&str, (Option<SeenAs>, &BoundaryValue)> = HashMap::new();
    for value in &part.values {
        let Some((op, path)) = value.split() else { continue };
        let next = SeenAs::new(by_hash.len() as u64);
        let identity = value.hash.as_deref().and_then(|hash| by_hash.entry(hash).or_insert((next, value)).0);
        if ops.last().is_none_or(|last| last.name.as_str() != op) {
            ops.push(Op::new(name_of(op, path)));
        }
        let Some(last) = ops.last_mut() else { continue };
        for input in &value.inputs {
            let (path, hash) = input.split_once('=').unwrap_or((FIRST_INPUT, input));
            let Some(&(identity, made)) = by_hash.get(hash) else { continue };
            last.slots.push(slot(path, made, identity));
        }
        last.slots.push(slot(path, value, identity));
    }
    for op in &mut ops {
        op.slots.sort_by_key(|slot| slot.side);
    }
    Rank {
        key: key.clone(),
        framework: Framework::default(),
        task: if part.exact { Task::Hash } else { Task::Statistics },
        level: "".into(),
        ops,
        stacks: Vec::new(),
        store: Arc::new(NoData),
        faults: Vec::new(),
        notes: Vec::new(),
        cut: false,
    }
}

/// Parses a hash written by [`short_hash`]. Hashes of different kinds cannot be compared, so the kind is recognized from
/// the form.
fn checksum(text: &str) -> Checksum {
    let digits = |digits: &str, count: usize| {
        (digits.len() == count && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .then(|| u64::from_str_radix(digits, 16).ok())
            .flatten()
    };
    if let Some(value) = digits(text, DIGITS) {
        return Checksum::of_hash(value.into());
    }
    if let Some(value) = digits(text, 8).and_then(|value| u32::try_from(value).ok()) {
        return Checksum::Crc32(value);
    }
    if let Some(value) = text.strip_prefix("0x").and_then(|rest| digits(rest, 16)) {
        return Checksum::Xor(value);
    }
    Checksum::Text(text.into())
}

fn name_of(op: &str, path: &str) -> OpName {
    // The only slot of a tensor of a collection.
    if path == "value" && op.rsplit('.').next() != Some("debug") {
        OpName::tensor(op)
    } else {
        OpName::parse(op)
    }
}

fn slot(path: &str, value: &BoundaryValue, identity: Option<SeenAs>) -> Slot {
    let side = match path.split('.').next().unwrap_or_default() {
        "input" | "kwarg" => SlotSide::Input,
        "parameter" => SlotSide::Parameter,
        "grad" => SlotSide::Gradient,
        _ => SlotSide::Output,
    };
    let mut record = TensorRecord::new(RecordedDType::parse(&value.dtype), value.shape.clone().into());
    record.statistics = RecordedStatistics {
        max: value.max.map(Number::Float),
        min: value.min.map(Number::Float),
        mean: value.mean,
        norm: value.norm,
    }
    .into();
    record.checksum = value.hash.as_deref().map(checksum);
    record.sum_error = Some(ROUNDING);
    if let NonFinite::Counted([nan, positive_infinite, negative_infinite]) = value.nonfinite {
        let elements = record.len();
        let counts =
            Counts { elements, zeros: 0, nan, positive_infinite, negative_infinite, sentinels: None };
        record.counts = Some(counts.into());
    }
    Slot { identity, ..Slot::new(path, side, Value::Tensor(Arc::new(record))) }
}
