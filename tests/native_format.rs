//! The files of probe's own format, byte for byte as they were written before.

use std::path::Path;
use std::sync::Arc;

use crate::support::testdata;
use crate::support::three_ops::{COLUMNS, ROWS, push_network, slot_of, wave, write};
use probe::capture::{
    CaptureTask, Device, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, Software, TensorFacts,
};
use probe::dump::native::rank_folder;
use probe::dump::{
    Content, DType, Number, Observation, Op, PartKey, Scalar, SketchVersion, SlotSide, Stack, Task,
    TensorRecord, TensorRef, Value,
};
use probe::measure::observe;

/// Version 2 adds to version 1: small tensors as they are, and sentinels apart.
fn push_version_2(writer: &mut DumpWriter) {
    let mut mask = wave(7);
    for row in 0..ROWS {
        mask[row * COLUMNS + row + 1..(row + 1) * COLUMNS].fill(f32::MIN);
    }
    let mask: Vec<u8> = mask.iter().flat_map(|value| value.to_le_bytes()).collect();
    let half: Vec<u8> =
        [0xfbff_u16, 0x3c00, 0x7bff, 0x7c00].iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let numbers: Vec<u8> =
        [f64::NAN, -0.0, 5e-324, f64::MIN].iter().flat_map(|value| value.to_le_bytes()).collect();
    let slots = vec![
        slot_of("input.0", "float32", &[ROWS, COLUMNS], &mask, false),
        slot_of("input.1", "float16", &[2, 2], &half, true),
        slot_of("input.2", "float64", &[4], &numbers, true),
        slot_of("input.3", "float64", &[2, 2], &numbers, true),
        slot_of("input.4", "bool", &[], &[1], true),
        slot_of("input.5", "int64", &[0], &[], true),
    ];
    let name = "Functional.version2.0.forward".into();
    writer.push(&OpRecord { name, slots, ..OpRecord::default() }).unwrap();
}

/// Version 3 adds: sums that are not exact, and statistics that are not known.
fn push_version_3(writer: &mut DumpWriter) {
    let bytes: Vec<u8> = wave(8).iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut slot = slot_of("input.0", "float32", &[ROWS, COLUMNS], &bytes, false);
    if let SlotValue::Tensor(facts) = &mut slot.value {
        let mut found = Observation::clone(facts.observation.as_ref().unwrap());
        (found.sum_error, found.hash) = (Some(2.0_f64.powi(-20)), None);
        (found.statistics.min, found.statistics.norm) = (None, None);
        facts.observation = Some(Arc::new(found));
    }
    let name = "Functional.version3.0.forward".into();
    writer.push(&OpRecord { name, slots: vec![slot], ..OpRecord::default() }).unwrap();
}

/// An op with tensors of many types, and a value of every other kind.
fn push_mixed(writer: &mut DumpWriter) {
    let mut slots = Vec::new();
    for (index, (dtype, shape, bytes)) in [
        ("bool", vec![3], vec![1, 0, 1]),
        ("int64", vec![2, 1], [i64::MIN, i64::MAX].iter().flat_map(|v| v.to_le_bytes()).collect()),
        (
            "float64",
            vec![4],
            [1.5, f64::NAN, f64::INFINITY, -0.0].iter().flat_map(|v| v.to_le_bytes()).collect(),
        ),
        ("complex64", vec![1], [3.0_f32, -4.0].iter().flat_map(|v| v.to_le_bytes()).collect()),
        ("complex128", vec![], [3.0_f64, -4.0].iter().flat_map(|v| v.to_le_bytes()).collect()),
        ("float32", vec![0, 5], Vec::<u8>::new()),
    ]
    .into_iter()
    .enumerate()
    {
        let sizes: Vec<usize> = shape.iter().map(|&size: &u64| usize::try_from(size).unwrap()).collect();
        let strides = probe::dump::contiguous_strides(&sizes);
        let tensor = TensorRef::strided(&bytes, DType::parse(dtype).unwrap(), &sizes, &strides, 0).unwrap();
        let (path, dtype) = (format!("input.{index}"), format!("torch.{dtype}"));
        let name = format!("Functional.mixed.0.forward/{path}");
        let facts = TensorFacts {
            observation: Some(Arc::new(observe(tensor, Content::SKETCH))),
            data: Some(writer.push_tensor(&name, &dtype, &shape, &bytes).unwrap()),
            strides: Some(strides.iter().map(|&stride| i64::try_from(stride).unwrap()).collect()),
            requires_grad: Some(false),
            device: "cpu".into(),
            dtype: dtype.into(),
            shape,
            ..TensorFacts::default()
        };
        slots.push(SlotRecord { path, side: SlotSide::Input, value: SlotValue::Tensor(facts) });
    }
    for (path, scalar) in [
        ("kwarg.count", Scalar::Number(Number::UInt(u64::MAX))),
        ("kwarg.eps", Scalar::Number(Number::Float(1e-5))),
        ("kwarg.train", Scalar::Number(Number::Bool(true))),
        ("kwarg.mode", Scalar::Text("mean".into())),
        ("kwarg.device", Scalar::Device("cpu".into())),
        ("kwarg.slice", Scalar::printed("slice", "slice(0, 1)")),
    ] {
        slots.push(SlotRecord { path: path.into(), side: SlotSide::Input, value: SlotValue::Scalar(scalar) });
    }
    slots.push(SlotRecord { path: "output.0".into(), side: SlotSide::Output, value: SlotValue::None });
    writer
        .push(&OpRecord { name: "Functional.mixed.0.forward".into(), slots, ..OpRecord::default() })
        .unwrap();
}

/// A dump with every kind of value, as committed in `testdata/native/version3`.
fn write_sample(root: &Path) {
    let manifest = RunManifest {
        task: CaptureTask::Tensor,
        started: "2026-11-21T12:00:00Z".into(),
        tool: Software { name: "probe".into(), version: "0.1.0".into() },
        framework: Software { name: "torch".into(), version: "2.9.0".into() },
        device: Device { kind: "cpu".into(), name: String::new(), count: 1 },
        config: serde_json::json!({ "steps": [7] }),
        ..RunManifest::default()
    };
    let mut writer = DumpWriter::create(root, &manifest, 0).unwrap();
    writer.begin_step(7).unwrap();
    push_network(&mut writer, CaptureTask::Tensor, &|_| (), 0.0);
    push_mixed(&mut writer);
    push_version_2(&mut writer);
    push_version_3(&mut writer);
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
}

/// Everything that one part holds, and the bytes of its tensors.
type Read = (PartKey, Task, Box<str>, Vec<Op>, Vec<Stack>, Vec<Vec<u8>>);

fn read_first_part(root: &Path) -> Read {
    let dump = probe::read::open(root, probe::files::map::FileAccess::Read).unwrap();
    let part = dump.reader.read(&dump.parts[0]).unwrap();
    assert!(dump.faults.is_empty() && part.faults.is_empty());
    let data =
        part.ops.iter().flat_map(|op| &op.slots).filter_map(|slot| slot.value.tensor()?.data.as_deref());
    let bytes: Vec<Vec<u8>> = data.map(|key| part.store.load(key).unwrap().view().to_bytes()).collect();
    (part.key, part.task, part.level, part.ops, part.stacks, bytes)
}

fn records(ops: &mut [Op]) -> impl Iterator<Item = &mut TensorRecord> {
    ops.iter_mut().flat_map(|op| &mut op.slots).filter_map(|slot| match &mut slot.value {
        Value::Tensor(record) => Some(Arc::make_mut(record)),
        _ => None,
    })
}

#[test]
fn the_committed_dumps_read_as_one_written_now() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::env::var_os("PROBE_WRITE_SAMPLE")
        .map_or_else(|| folder.path().join("dump"), std::path::PathBuf::from);
    write_sample(&made);
    let mut now = read_first_part(&made);
    // Dumps of version 3 began without places, which are a column that readers may do without.
    let places: Vec<_> = records(&mut now.3)
        .map(|record| record.places.take().map(|places| (places.max(), places.min())))
        .collect();
    assert!(places.contains(&Some((1, 0))) && places.contains(&None), "{places:?}");
    assert!(now == read_first_part(&testdata("native/version3")), "a dump of version 3 reads otherwise now");
    // Version 2 has none of what is new, and sketches by another function.
    assert_eq!(now.3.pop().unwrap().name.as_str(), "Functional.version3.0.forward");
    sketch_as_before(&made, &mut now.3);
    reads_as_version_2(&now);
    // Version 1 has none of what is new.
    assert_eq!(now.3.pop().unwrap().name.as_str(), "Functional.version2.0.forward");
    now.5.truncate(now.5.len() - 5);
    let mut before = read_first_part(&testdata("native/version1"));
    for record in records(&mut before.3).chain(records(&mut now.3)) {
        if let Some(counts) = &mut record.counts {
            Arc::make_mut(counts).sentinels = None;
        }
    }
    assert!(now == before, "a dump of version 1 reads otherwise now");
}

/// Replaces the sketches by those of the first function, where there is data to make them of.
fn sketch_as_before(dump: &Path, ops: &mut [Op]) {
    let dump = probe::read::open(dump, probe::files::map::FileAccess::Read).unwrap();
    let part = dump.reader.read(&dump.parts[0]).unwrap();
    let first = Content { sketch: Some(SketchVersion::First), hash: false };
    for record in records(ops).filter(|record| record.sketch.is_some()) {
        record.sketch = record.data.as_deref().and_then(|key| {
            let data = part.store.load(key).unwrap();
            observe(data.view(), first).sketch.map(Arc::new)
        });
    }
}

fn reads_as_version_2(now: &Read) {
    let mut version_2 = read_first_part(&testdata("native/version2"));
    for record in records(&mut version_2.3).filter(|record| record.data.is_none()) {
        record.sketch = None;
    }
    // It took the least number of float16 for a sentinel, and not the greatest.
    let half = |ops: &mut Vec<Op>| match &mut ops.last_mut().unwrap().slots[1].value {
        Value::Tensor(record) => {
            (record.counts.as_ref().unwrap().sentinels, std::mem::take(&mut Arc::make_mut(record).statistics))
        }
        other => panic!("{other:?}"),
    };
    let (mut ours, mut theirs) = (now.3.clone(), version_2.3.clone());
    assert_eq!((half(&mut ours).0, half(&mut theirs).0), (Some(2), Some(1)));
    assert_eq!(half(&mut now.3.clone()).1.max(), half(&mut version_2.3.clone()).1.max());
    if let Value::Tensor(record) = &mut ours.last_mut().unwrap().slots[1].value {
        Arc::make_mut(Arc::make_mut(record).counts.as_mut().unwrap()).sentinels = Some(1);
    }
    assert!(ours == theirs && now.5 == version_2.5, "a dump of version 2 reads otherwise now");
}

#[test]
fn shards_are_safetensors_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    write(&root, CaptureTask::Tensor, 0, &|_| (), 0.0);
    let shard = rank_folder(&root, 20, 0).join("tensors-00000.safetensors");
    let file = probe::read::tensor_file::open(&shard, probe::files::map::FileAccess::Read).unwrap();
    let names: Vec<&str> = file.entries().iter().map(|entry| &*entry.name).collect();
    assert_eq!(names[1], "Functional.linear.0.forward/output.0");
    let values: Vec<u8> = wave(1).iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(file.load(1).unwrap().view().to_bytes(), values);
}
