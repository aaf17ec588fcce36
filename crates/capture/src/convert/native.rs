//! A dump in probe's own format, using the writer of captures. Equal tensors are stored once.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Conversion, ConvertError, Elements, Sink, bytes_of, elements};
use crate::{
    CaptureLevel, CaptureTask, DataLocation, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue,
    TensorFacts,
};
use probe_dump::{
    Checksum, Content, DType, Dump, Framework, Level, Observation, PartKey, Rank, SeenAs, SketchVersion,
    Slot, Task, TensorRecord, Value,
};
use probe_measure as measure;

/// Identity by which the ranks of the output recognise their run.
const RUN: &str = "converted";

/// Writes one rank after another.
pub(super) struct NativeSink {
    root: PathBuf,
    manifest: RunManifest,
    open: Option<(u32, DumpWriter)>,
    notes: Vec<String>,
    /// True once the manifest has the task and level of the first part.
    described: bool,
}

/// Written tensors of a part, by hash, dtype and shape.
type Written = HashMap<(u128, DType, Box<[usize]>), (Arc<Observation>, DataLocation)>;

impl NativeSink {
    pub(super) fn new(root: &Path, dump: &Dump, keys: &[&PartKey]) -> Self {
        let ranks: BTreeSet<u32> = keys.iter().map(|key| key.rank.number()).collect();
        let manifest = RunManifest {
            world_size: u32::try_from(ranks.len()).unwrap_or(u32::MAX),
            run: RUN.into(),
            ..RunManifest::default()
        };
        let notes = vec![format!("converted from a {}", dump.format)];
        Self { root: root.into(), manifest, open: None, notes, described: false }
    }

    fn writer(&mut self, rank: &Rank) -> Result<&mut DumpWriter, ConvertError> {
        if !self.described {
            self.manifest.task = task_of(rank.task);
            self.manifest.level = level_of(&rank.level);
            if rank.framework != Framework::default() {
                self.manifest.framework.name = rank.framework.name().into();
            }
            self.described = true;
        }
        let number = rank.key.rank.number();
        if self.open.as_ref().is_some_and(|(open, _)| *open != number) {
            self.close()?;
        }
        let (_, writer) = match &mut self.open {
            Some(open) => open,
            none => none.insert((number, DumpWriter::create(&self.root, &self.manifest, number)?)),
        };
        Ok(writer)
    }

    fn close(&mut self) -> Result<(), ConvertError> {
        let notes = std::mem::take(&mut self.notes);
        self.open.take().map_or(Ok(()), |(_, writer)| writer.close(&notes)).map_err(Into::into)
    }
}

impl Sink for NativeSink {
    fn part(&mut self, rank: &Rank, counts: &mut Conversion) -> Result<(), ConvertError> {
        let (step, place) = (rank.key.step, format!("step {} {}", rank.key.step, rank.key.rank));
        let notes: Vec<String> = rank.notes.iter().map(|note| format!("{place}: {note}")).collect();
        let keep_data = task_of(rank.task) == CaptureTask::Tensor;
        let writer = self.writer(rank)?;
        writer.begin_step(step)?;
        let mut stacks = Vec::with_capacity(rank.stacks.len());
        for stack in &rank.stacks {
            stacks.push(writer.push_stack(stack)?);
        }
        let mut written = Written::new();
        let before = counts.without_counts;
        for op in &rank.ops {
            let name = op.name.as_str();
            let mut record = OpRecord {
                name: name.to_owned(),
                scope: op.parent.as_deref().map(str::to_owned),
                stack: op.stack.and_then(|stack| stacks.get(stack as usize).copied().flatten()),
                recomputed: op.recomputed,
                raised: op.raised,
                note: op.note.said().map(str::to_owned),
                slots: Vec::with_capacity(op.slots.len()),
            };
            for slot in &op.slots {
                let value = match &slot.value {
                    Value::Tensor(found) => {
                        let mut facts = facts(found);
                        facts.identity = slot.identity.map(SeenAs::number);
                        let part = Part { rank, op: name, slot, keep_data };
                        part.fill(&mut facts, found, writer, &mut written, counts)?;
                        SlotValue::Tensor(facts)
                    }
                    Value::Scalar(scalar) => SlotValue::Scalar(scalar.clone()),
                    Value::None => SlotValue::None,
                    Value::Unsupported => SlotValue::Unsupported("not recorded".into()),
                };
                record.slots.push(SlotRecord { path: slot.path.to_string(), side: slot.side, value });
            }
            writer.push(&record)?;
        }
        let lost = counts.without_counts - before;
        if lost > 0 {
            counts.left_out.push(format!(
                "{place}: statistics of {lost} tensors, which another tool recorded without counts and data; compare the dump as it is"
            ));
        }
        if rank.cut {
            writer.cut_step(None, "it ended inside this step when it was recorded")?;
        } else {
            writer.finish_step()?;
        }
        self.notes.extend(notes);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ConvertError> {
        self.close()
    }
}

/// A slot being converted.
struct Part<'a> {
    rank: &'a Rank,
    op: &'a str,
    slot: &'a Slot,
    keep_data: bool,
}

impl Part<'_> {
    /// Adds the known facts about the elements: the data, or the measurements at capture.
    fn fill(
        &self,
        facts: &mut TensorFacts,
        record: &TensorRecord,
        writer: &mut DumpWriter,
        written: &mut Written,
        counts: &mut Conversion,
    ) -> Result<(), ConvertError> {
        let (op, slot) = (self.op, self.slot);
        let data = match elements(self.rank, op, slot, counts) {
            Elements::Here(data) => data,
            Elements::NotRecorded => {
                facts.observation = recorded(record).map(Arc::new);
                counts.without_counts +=
                    u64::from(facts.observation.is_none() && !record.statistics.is_empty());
                return Ok(());
            }
            Elements::Unreadable => {
                let reason = counts.left_out.last().cloned();
                facts.note = facts.note.take().or(reason);
                return Ok(());
            }
        };
        let Some(bytes) = bytes_of(&data, op, slot, counts) else { return Ok(()) };
        if record.dtype.known().is_none() {
            facts.note.get_or_insert_with(|| format!("{} when it was recorded", record.dtype));
        }
        facts.dtype = data.dtype().torch_name().into();
        if !self.keep_data {
            // Small tensors in a dump of sketches are stored instead of their sketch.
            facts.observation = Some(Arc::new(measure::observe(data.view(), Content::HASH)));
            facts.bytes = Some(bytes.into());
            return Ok(());
        }
        let key = (measure::hash(data.view()), data.dtype(), data.shape().into());
        if let Some((observation, location)) = written.get(&key) {
            (facts.observation, facts.data) = (Some(observation.clone()), Some(location.clone()));
            return Ok(());
        }
        let observation = Arc::new(measure::observe(data.view(), Content::HASH));
        let name = format!("{op}/{}", slot.path);
        let location = writer.push_tensor(&name, data.dtype().torch_name(), &facts.shape, &bytes)?;
        written.insert(key, (observation.clone(), location.clone()));
        (facts.observation, facts.data) = (Some(observation), Some(location));
        Ok(())
    }
}

fn facts(record: &TensorRecord) -> TensorFacts {
    TensorFacts {
        dtype: record
            .dtype
            .known()
            .map_or_else(|| record.dtype.to_string().into(), |dtype| dtype.torch_name().into()),
        shape: record.shape.to_vec(),
        strides: record.strides.as_ref().map(|strides| strides.to_vec()),
        device: record.device.as_deref().unwrap_or("").to_owned().into(),
        requires_grad: record.requires_grad,
        placement: record.placement.as_deref().map(str::to_owned),
        note: record.note.as_deref().map(str::to_owned),
        ..TensorFacts::default()
    }
}

/// Returns the measurements at capture; `None` if elements were not counted, since the format requires counts.
fn recorded(record: &TensorRecord) -> Option<Observation> {
    Some(Observation {
        statistics: record.statistics.get(),
        places: record.places,
        counts: record.counts.as_deref().copied()?,
        sketch: record.sketch.as_deref().filter(|sketch| sketch.version == SketchVersion::CURRENT).cloned(),
        hash: match record.checksum {
            Some(Checksum::Xxh3(hash)) => Some(hash.bits()),
            _ => None,
        },
        sum_error: record.sum_error,
    })
}

const fn task_of(task: Task) -> CaptureTask {
    match task {
        Task::Tensor => CaptureTask::Tensor,
        Task::Sketch => CaptureTask::Sketch,
        Task::Hash => CaptureTask::Hash,
        Task::Statistics | Task::Checksum | Task::Xor | Task::Structure => CaptureTask::Statistics,
    }
}

fn level_of(word: &str) -> CaptureLevel {
    if word == CaptureLevel::Runtime.name() {
        return CaptureLevel::Runtime;
    }
    match Level::parse(word) {
        Some(Level::Module) => CaptureLevel::Module,
        Some(Level::Api) => CaptureLevel::Api,
        Some(Level::Mix) => CaptureLevel::Mix,
        Some(Level::Saved) => CaptureLevel::Saved,
        // Dispatcher ops launch kernels.
        Some(Level::Op) | None => CaptureLevel::Op,
    }
}
