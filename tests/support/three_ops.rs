//! One step of three ops, written in probe's own format.

use std::path::Path;
use std::sync::Arc;

use probe::capture::{CaptureTask, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts};
use probe::dump::{Content, DType, SlotSide, TensorRef};
use probe::measure::observe;

/// Rows and columns of the tensors.
pub(crate) const ROWS: usize = 64;
pub(crate) const COLUMNS: usize = 96;

/// Values like activations, other ones for every seed.
pub(crate) fn wave(seed: u32) -> Vec<f32> {
    let mut state = u64::from(seed) + 1;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    (0..ROWS * COLUMNS).map(|_| uniform() + uniform() + uniform()).collect()
}

fn facts(writer: &mut DumpWriter, name: &str, values: &[f32], task: CaptureTask) -> TensorFacts {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (shape, strides) = ([ROWS, COLUMNS], [COLUMNS, 1]);
    let tensor = TensorRef::strided(&bytes, DType::F32, &shape, &strides, 0).unwrap();
    let content = match task {
        CaptureTask::Statistics => Content::STATISTICS,
        CaptureTask::Hash => Content::HASH,
        CaptureTask::Sketch | CaptureTask::Tensor => Content::SKETCH,
    };
    let shape = vec![ROWS as u64, COLUMNS as u64];
    let data = (task == CaptureTask::Tensor)
        .then(|| writer.push_tensor(name, "torch.float32", &shape, &bytes).unwrap());
    TensorFacts {
        dtype: "torch.float32".into(),
        shape,
        device: "cpu".into(),
        observation: Some(Arc::new(observe(tensor, content))),
        data,
        ..TensorFacts::default()
    }
}

/// Ops of a small network; `change` may alter what the gelu makes.
pub(crate) fn write(root: &Path, task: CaptureTask, rank: u32, change: &dyn Fn(&mut [f32]), noise: f32) {
    let mut writer = DumpWriter::create(root, &RunManifest { task, ..RunManifest::default() }, rank).unwrap();
    writer.begin_step(20).unwrap();
    push_network(&mut writer, task, change, noise);
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
}

pub(crate) fn push_network(
    writer: &mut DumpWriter,
    task: CaptureTask,
    change: &dyn Fn(&mut [f32]),
    noise: f32,
) {
    let names = ["linear.0", "gelu.1", "linear.2"];
    for (index, name) in names.iter().enumerate() {
        let value = |seed: usize| {
            let mut values = wave(u32::try_from(seed).unwrap());
            if noise > 0.0 {
                for (value, other) in values.iter_mut().zip(wave(100 + u32::try_from(seed).unwrap())) {
                    *value += noise * other;
                }
            }
            if seed >= 2 {
                change(&mut values);
            }
            values
        };
        let name = format!("Functional.{name}.forward");
        let stack =
            writer.push_stack(&[format!("File /home/user/train.py, line {}, in forward", 10 + index)]);
        let mut record = OpRecord { name: name.clone(), stack: stack.unwrap(), ..OpRecord::default() };
        for (path, side, values) in
            [("input.0", SlotSide::Input, value(index)), ("output.0", SlotSide::Output, value(index + 1))]
        {
            let facts = facts(writer, &format!("{name}/{path}"), &values, task);
            record.slots.push(SlotRecord { path: path.into(), side, value: SlotValue::Tensor(facts) });
        }
        writer.push(&record).unwrap();
    }
}

/// A tensor that is stored in the table, or measured with a sketch.
pub(crate) fn slot_of(path: &str, dtype: &str, shape: &[usize], bytes: &[u8], stored: bool) -> SlotRecord {
    let strides = probe::dump::contiguous_strides(shape);
    let tensor = TensorRef::strided(bytes, DType::parse(dtype).unwrap(), shape, &strides, 0).unwrap();
    let content = if stored { Content::HASH } else { Content::SKETCH };
    let facts = TensorFacts {
        dtype: format!("torch.{dtype}").into(),
        shape: shape.iter().map(|&size| size as u64).collect(),
        strides: Some(strides.iter().map(|&stride| i64::try_from(stride).unwrap()).collect()),
        device: "cpu".into(),
        observation: Some(Arc::new(observe(tensor, content))),
        bytes: stored.then(|| bytes.into()),
        ..TensorFacts::default()
    };
    SlotRecord { path: path.into(), side: SlotSide::Input, value: SlotValue::Tensor(facts) }
}
