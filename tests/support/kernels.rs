//! A dump of kernels, written again under the names of the functions that would have launched them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use probe::capture::{
    CaptureLevel, CaptureTask, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts,
};
use probe::dump::Content;
use probe::files::map::FileAccess;
use probe::measure::observe;
use probe::read;

/// Sketches of every op of the dump at `source`: `MatMulV2` as `Functional.linear`, `Add` as `Tensor.add`, and a `Functional.dropout` that nobody else has.
pub(crate) fn as_functions(source: &Path, output: &Path) -> PathBuf {
    let dump = read::open(source, FileAccess::Map).unwrap();
    let manifest =
        RunManifest { task: CaptureTask::Sketch, level: CaptureLevel::Api, ..RunManifest::default() };
    let mut writer = DumpWriter::create(output, &manifest, 0).unwrap();
    for key in &dump.parts {
        let rank = dump.reader.read(key).unwrap();
        writer.begin_step(key.step).unwrap();
        writer
            .push(&OpRecord { name: "Functional.dropout.0.forward".into(), ..OpRecord::default() })
            .unwrap();
        for op in &rank.ops {
            let name = op.name.as_str();
            let name =
                name.replace("Kernel.MatMulV2", "Functional.linear").replace("Kernel.Add", "Tensor.add");
            let slots = op.slots.iter().map(|slot| {
                let record = slot.value.tensor().unwrap();
                let data = rank.store.load(record.data.as_deref().unwrap()).unwrap();
                let facts = TensorFacts {
                    dtype: data.dtype().torch_name().into(),
                    shape: record.shape.to_vec(),
                    observation: Some(Arc::new(observe(data.view(), Content::SKETCH))),
                    ..TensorFacts::default()
                };
                SlotRecord { path: slot.path.to_string(), side: slot.side, value: SlotValue::Tensor(facts) }
            });
            let slots = slots.collect();
            writer.push(&OpRecord { name, slots, ..OpRecord::default() }).unwrap();
        }
        writer.finish_step().unwrap();
    }
    writer.close(&[]).unwrap();
    output.into()
}
