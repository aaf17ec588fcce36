//! Dumps of the older tool, written again in probe's own format: the data is measured as a capture would.

use std::path::Path;
use std::sync::Arc;

use probe::capture::{
    CaptureLevel, CaptureTask, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts,
};
use probe::dump::{Content, Rank, TensorRecord, Value};
use probe::files::map::FileAccess;
use probe::measure::observe;
use probe::read::open;

/// Every task.
pub(crate) const TASKS: [CaptureTask; 4] =
    [CaptureTask::Statistics, CaptureTask::Sketch, CaptureTask::Hash, CaptureTask::Tensor];

const fn content(task: CaptureTask) -> Content {
    match task {
        CaptureTask::Statistics => Content::STATISTICS,
        CaptureTask::Hash => Content::HASH,
        CaptureTask::Sketch | CaptureTask::Tensor => Content::SKETCH,
    }
}

/// Writes the dump at `from`, which has the data of every tensor, as a dump of task `task` at `to`.
pub(crate) fn convert(from: &Path, to: &Path, task: CaptureTask) {
    let dump = open(from, FileAccess::Read).unwrap();
    let manifest = RunManifest { task, world_size: 2, run: "one".into(), ..RunManifest::default() };
    for key in &dump.parts {
        let part = dump.reader.read(key).unwrap();
        let level = if &*part.level == "debug" { CaptureLevel::Saved } else { CaptureLevel::Mix };
        let manifest = RunManifest { level, ..manifest.clone() };
        let mut writer = DumpWriter::create(to, &manifest, key.rank.number()).unwrap();
        writer.begin_step(key.step).unwrap();
        for op in &part.ops {
            let stack = op.stack.and_then(|stack| part.stacks.get(stack as usize));
            let slots = op.slots.iter().map(|slot| SlotRecord {
                path: slot.path.to_string(),
                side: slot.side,
                value: value(&mut writer, &part, &format!("{}/{}", op.name, slot.path), &slot.value, task),
            });
            let slots = slots.collect();
            let record = OpRecord {
                name: op.name.to_string(),
                scope: op.parent.as_deref().map(Into::into),
                stack: stack.and_then(|frames| writer.push_stack(frames).unwrap()),
                slots,
                ..OpRecord::default()
            };
            writer.push(&record).unwrap();
        }
        writer.finish_step().unwrap();
        writer.close(&[]).unwrap();
    }
}

fn value(writer: &mut DumpWriter, part: &Rank, name: &str, value: &Value, task: CaptureTask) -> SlotValue {
    match value {
        Value::Tensor(record) => SlotValue::Tensor(facts(writer, part, name, record, task)),
        Value::Scalar(scalar) => SlotValue::Scalar(scalar.clone()),
        Value::None => SlotValue::None,
        Value::Unsupported => SlotValue::Unsupported("not recorded".into()),
    }
}

fn facts(
    writer: &mut DumpWriter,
    part: &Rank,
    name: &str,
    record: &TensorRecord,
    task: CaptureTask,
) -> TensorFacts {
    let data = record.data.as_deref().and_then(|key| part.store.load(key).ok());
    let dtype = format!("torch.{}", record.dtype);
    TensorFacts {
        shape: record.shape.to_vec(),
        device: "cpu".into(),
        requires_grad: record.requires_grad,
        placement: record.placement.as_deref().map(Into::into),
        observation: data.as_ref().map(|data| Arc::new(observe(data.view(), content(task)))),
        data: data
            .filter(|_| task == CaptureTask::Tensor)
            .map(|data| writer.push_tensor(name, &dtype, &record.shape, &data.view().to_bytes()).unwrap()),
        dtype: dtype.into(),
        ..TensorFacts::default()
    }
}
