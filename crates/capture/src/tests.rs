//! Written data is read back; truncated data is read as far as it goes; hostile data causes an error.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{
    CaptureLevel, CaptureTask, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts,
};
use probe_dump::native::{JOURNAL, OPS, STACKS, STACKS_JOURNAL, STOPPED, rank_folder};
use probe_dump::{
    Checksum, Counts, DType, Dump, ExtremePlaces, Number, Observation, Rank, RankId, RecordedDType,
    RecordedStatistics, SKETCH_LANES, Scalar, SeenAs, Sketch, SketchVersion, SlotSide, Task, TensorRecord,
    TensorRef, Value,
};
use probe_files::map::FileAccess;
use probe_read::{ReadError, open};

mod small;

fn manifest(task: CaptureTask) -> RunManifest {
    RunManifest { task, level: CaptureLevel::Mix, world_size: 2, ..RunManifest::default() }
}

fn observation(seed: f32) -> Observation {
    let mut lanes = Box::new([0.0; SKETCH_LANES]);
    for (index, lane) in lanes.iter_mut().enumerate() {
        *lane = seed + index as f32 * 0.5;
    }
    Observation {
        statistics: RecordedStatistics {
            min: Some(Number::Float(-1.5)),
            max: Some(Number::Float(f64::from(seed))),
            mean: Some(0.1),
            norm: Some(3.25),
        },
        places: ExtremePlaces::new(5, 3),
        counts: Counts {
            elements: 6,
            zeros: 1,
            nan: 2,
            positive_infinite: 3,
            negative_infinite: 4,
            sentinels: Some(5),
        },
        sketch: Some(Sketch { lanes, version: SketchVersion::CURRENT }),
        hash: Some(u128::MAX / 3 + u128::from(seed.to_bits())),
        sum_error: Some(1e-6),
    }
}

fn facts(observation: Option<Arc<Observation>>) -> TensorFacts {
    TensorFacts {
        dtype: "torch.float32".into(),
        shape: vec![2, 3],
        strides: Some(vec![1, -2]),
        device: "cuda:1".into(),
        requires_grad: Some(true),
        placement: Some("[Shard(dim=0)]".into()),
        observation,
        data: None,
        bytes: None,
        identity: Some(7),
        note: Some("beyond the byte budget".into()),
    }
}

fn slot(path: &str, side: SlotSide, value: SlotValue) -> SlotRecord {
    SlotRecord { path: path.into(), side, value }
}

fn op(name: &str, slots: Vec<SlotRecord>) -> OpRecord {
    OpRecord { name: name.into(), slots, ..OpRecord::default() }
}

/// Writes a step of `ops` ops, each with a shared input and an output of its own.
fn write_step(writer: &mut DumpWriter, step: u64, ops: usize) {
    writer.begin_step(step).unwrap();
    let shared = Arc::new(observation(0.5));
    for index in 0..ops {
        let stack =
            writer.push_stack(&[format!("File /a.py, line {}, in f", index % 3), "main".into()]).unwrap();
        let mut record = op(
            &format!("Functional.gelu.{index}.forward"),
            vec![
                slot("input.0", SlotSide::Input, SlotValue::Tensor(facts(Some(shared.clone())))),
                slot(
                    "output.0",
                    SlotSide::Output,
                    SlotValue::Tensor(facts(Some(Arc::new(observation(index as f32))))),
                ),
            ],
        );
        record.stack = stack;
        writer.push(&record).unwrap();
    }
}

fn read_only_part(path: &Path) -> Rank {
    let dump = open(path, FileAccess::Read).unwrap();
    assert_eq!(dump.parts.len(), 1, "{:?}", dump.faults);
    dump.reader.read(&dump.parts[0]).unwrap()
}

fn part_of(dump: &Dump, step: u64, rank: u32) -> Rank {
    let key = dump.parts.iter().find(|key| (key.step, key.rank.number()) == (step, rank)).unwrap();
    dump.reader.read(key).unwrap()
}

fn every_scalar() -> [Scalar; 8] {
    [
        Scalar::Number(Number::Int(i64::MIN)),
        Scalar::Number(Number::UInt(u64::MAX)),
        Scalar::Number(Number::Float(0.1)),
        Scalar::Number(Number::Float(f64::NEG_INFINITY)),
        Scalar::Number(Number::Bool(true)),
        Scalar::Text("a \"b\"\n\u{1b} ü".into()),
        Scalar::Device("npu:0".into()),
        Scalar::printed("slice", "slice(0, 1)"),
    ]
}

/// An observation of integers, with places beyond the six elements.
fn integers() -> Observation {
    Observation {
        statistics: RecordedStatistics {
            min: Some(Number::Int(9_007_199_254_740_993)),
            max: Some(Number::UInt(u64::MAX)),
            mean: None,
            norm: None,
        },
        places: ExtremePlaces::new(6, 0),
        sketch: None,
        hash: None,
        ..observation(0.0)
    }
}

/// Writes an op with values of every kind, one without values, and one with every scalar. Data is returned only if it matches
/// the recorded `hash`.
fn write_every_kind(root: &Path, data: &[u8], hash: u128) {
    let mut writer = DumpWriter::create(root, &manifest(CaptureTask::Tensor), 1).unwrap();
    writer.begin_step(20).unwrap();
    let measured = Arc::new(Observation { hash: Some(hash), ..observation(1.0) });
    let location = writer.push_tensor("A.a.0.forward/input.0", "torch.float32", &[2, 3], data).unwrap();
    let again = writer.push_tensor("A.a.0.forward/input.0", "torch.complex128", &[1], &data[..16]).unwrap();
    let with = |dtype: &str, change: &dyn Fn(&mut TensorFacts)| {
        let mut facts =
            TensorFacts { dtype: dtype.to_owned().into(), shape: vec![1], ..TensorFacts::default() };
        change(&mut facts);
        SlotValue::Tensor(facts)
    };
    let mut first = op(
        "Module.layers.0.mlp.MLP.forward.3",
        vec![
            slot(
                "input.0",
                SlotSide::Input,
                SlotValue::Tensor(TensorFacts { data: Some(location), ..facts(Some(measured.clone())) }),
            ),
            slot("parameter.weight", SlotSide::Parameter, SlotValue::Tensor(facts(Some(measured)))),
            slot("input.1", SlotSide::Input, with("torch.complex128", &|f| f.data = Some(again.clone()))),
            slot(
                "input.2",
                SlotSide::Input,
                with("torch.uint64", &|f| f.observation = Some(Arc::new(integers()))),
            ),
            slot("input.3", SlotSide::Input, with("torch.quint8", &|_| {})),
            slot("output.0", SlotSide::Output, SlotValue::None),
            slot("output.1", SlotSide::Output, SlotValue::Unsupported("a generator".into())),
        ],
    );
    first.scope = Some("Module.layers.0.Block.forward.3".into());
    (first.recomputed, first.raised, first.note) = (true, true, Some("compiled region".into()));
    writer.push(&first).unwrap();
    writer.push(&op("Tensor.empty.0.forward", Vec::new())).unwrap();
    let scalar_slots =
        every_scalar().map(|scalar| slot("grad.x", SlotSide::Gradient, SlotValue::Scalar(scalar))).into();
    writer.push(&op("x_grad.0.debug", scalar_slots)).unwrap();
    writer.finish_step().unwrap();
    writer.close(&["a remark".into()]).unwrap();
}

#[test]
fn every_kind_of_value_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let data: Vec<u8> = (0..24).collect();
    let hash = probe_measure::hash(TensorRef::strided(&data, DType::U8, &[24], &[1], 0).unwrap());
    write_every_kind(&root, &data, hash);

    let rank = read_only_part(&root);
    assert_eq!((rank.key.step, rank.key.rank, rank.task), (20, RankId::Rank(1), Task::Tensor));
    assert_eq!((&*rank.level, rank.notes.as_slice()), ("mix", ["a remark".to_owned()].as_slice()));
    assert!(rank.faults.is_empty(), "{:?}", rank.faults);
    let [a, b, c] = rank.ops.as_slice() else { panic!("{:?}", rank.ops) };
    assert_eq!(a.name.as_str(), "Module.layers.0.mlp.MLP.forward.3");
    assert_eq!(a.parent.as_deref(), Some("Module.layers.0.Block.forward.3"));
    assert_eq!((a.recomputed, a.raised, a.note.said()), (true, true, Some("compiled region")));
    assert_eq!((b.name.as_str(), b.slots.len()), ("Tensor.empty.0.forward", 0));
    let back: Vec<&Value> = c.slots.iter().map(|slot| &slot.value).collect();
    let wanted: Vec<Value> = every_scalar().map(Value::Scalar).into();
    assert_eq!(back, wanted.iter().collect::<Vec<_>>());
    assert!(c.slots.iter().all(|slot| slot.side == SlotSide::Gradient && &*slot.path == "grad.x"));

    let identities: Vec<_> = a.slots.iter().map(|slot| slot.identity.map(SeenAs::number)).collect();
    assert_eq!(identities, [Some(7), Some(7), None, None, None, None, None]);
    let measured = [&a.slots[0], &a.slots[1]].map(|slot| slot.value.tensor().unwrap());
    are_as_observed(measured, &Observation { hash: Some(hash), ..observation(1.0) });
    let record = a.slots[3].value.tensor().unwrap();
    assert_eq!((record.statistics.get(), record.places), (integers().statistics, None));
    assert_eq!(a.slots[4].value.tensor().unwrap().dtype, RecordedDType::Other("quint8".into()));
    assert_eq!((&a.slots[5].value, &a.slots[6].value), (&Value::None, &Value::Unsupported));
    let load = |slot: usize| {
        let record = a.slots[slot].value.tensor().unwrap();
        rank.store.load(record.data.as_deref().unwrap()).unwrap()
    };
    assert_eq!(load(0).view().to_bytes(), data);
    assert_eq!((load(2).dtype(), load(2).view().to_bytes()), (DType::C128, data[..16].to_vec()));
}

fn are_as_observed(records: [&TensorRecord; 2], expected: &Observation) {
    for record in records {
        assert_eq!((record.statistics.get(), record.places), (expected.statistics, expected.places));
        assert_eq!(record.counts.as_deref(), Some(&expected.counts));
        assert_eq!(record.checksum, expected.hash.map(Checksum::of_hash));
        assert_eq!(record.sketch.as_deref(), expected.sketch.as_ref());
        assert_eq!(
            (record.strides.as_deref(), record.device.as_deref()),
            (Some([1, -2].as_slice()), Some("cuda:1"))
        );
        assert_eq!(record.placement.as_deref(), Some("[Shard(dim=0)]"));
        assert_eq!(
            (record.requires_grad, record.note.as_deref()),
            (Some(true), Some("beyond the byte budget"))
        );
    }
    let [first, second] = records.map(|record| record.sketch.as_ref().unwrap());
    assert!(Arc::ptr_eq(first, second), "stored once");
}

#[test]
fn a_part_is_found_from_any_depth() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    for rank in 0..2 {
        let mut writer = DumpWriter::create(&root, &manifest(CaptureTask::Sketch), rank).unwrap();
        for step in [3, 12] {
            write_step(&mut writer, step, 5);
            writer.finish_step().unwrap();
        }
        assert_eq!(writer.recorded_steps(), [3, 12]);
        assert!(writer.begin_step(3).unwrap_err().to_string().contains("was already recorded"));
        writer.close(&[]).unwrap();
    }
    let whole = open(&root, FileAccess::Read).unwrap();
    let places: Vec<_> = whole.parts.iter().map(|key| (key.step, key.rank.number())).collect();
    assert_eq!(places, [(3, 0), (3, 1), (12, 0), (12, 1)]);
    assert_eq!(part_of(&whole, 12, 1).stacks.len(), 3);
    let step = open(&root.join("step12"), FileAccess::Read).unwrap();
    assert_eq!(step.parts.len(), 2);
    assert!(step.parts.iter().all(|key| key.step == 12));
    for path in [rank_folder(&root, 12, 1), rank_folder(&root, 12, 1).join(OPS)] {
        let rank = read_only_part(&path);
        assert_eq!((rank.key.step, rank.key.rank.number(), rank.task), (12, 1, Task::Sketch));
        assert_eq!(rank.ops.len(), 5);
    }
    // A dump without its manifest is still a dump.
    fs::remove_file(root.join("manifest.json")).unwrap();
    assert_eq!(part_of(&open(&root, FileAccess::Read).unwrap(), 3, 0).task, Task::Sketch);
}

#[test]
fn a_stack_without_frames_leaves_the_others_readable() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let mut writer = DumpWriter::create(&root, &manifest(CaptureTask::Sketch), 0).unwrap();
    writer.begin_step(0).unwrap();
    for (index, frames) in [&["a"][..], &[], &["b", "main"]].into_iter().enumerate() {
        let stack = writer.push_stack(frames).unwrap();
        assert_eq!(stack.is_some(), !frames.is_empty());
        let mut record = op(&format!("A.a.{index}.forward"), Vec::new());
        record.stack = stack;
        writer.push(&record).unwrap();
    }
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
    let rank = read_only_part(&root);
    let frames: Vec<_> =
        rank.ops.iter().map(|op| op.stack.map(|stack| rank.stacks[stack as usize].to_vec())).collect();
    assert_eq!(frames, [Some(vec!["a".into()]), None, Some(vec!["b".into(), "main".into()])]);
}

/// Returns the folder of an interrupted step of `ops` ops, flushed after each `every`.
fn interrupted(root: &Path, ops: usize, every: usize) -> PathBuf {
    let mut writer = DumpWriter::create(root, &manifest(CaptureTask::Sketch), 0).unwrap();
    writer.begin_step(20).unwrap();
    for index in 0..ops {
        let stack = writer.push_stack(&[format!("frame {index}")]).unwrap();
        let value = SlotValue::Tensor(facts(Some(Arc::new(observation(index as f32)))));
        let mut record = op(&format!("A.a.{index}.forward"), vec![slot("output.0", SlotSide::Output, value)]);
        record.stack = stack;
        writer.push(&record).unwrap();
        if (index + 1) % every == 0 {
            writer.flush().unwrap();
        }
    }
    writer.close(&[]).unwrap();
    rank_folder(root, 20, 0)
}

#[test]
fn a_journal_cut_anywhere_is_read_up_to_its_last_whole_batch() {
    let folder = tempfile::tempdir().unwrap();
    let part = interrupted(&folder.path().join("dump"), 6, 2);
    let path = part.join(JOURNAL);
    let whole = fs::read(&path).unwrap();
    let mut seen = Vec::new();
    for length in 0..=whole.len() {
        // Every byte near a border, every 13th within a batch.
        if length % 13 != 0 && length + 40 < whole.len() && length > 600 {
            continue;
        }
        fs::write(&path, &whole[..length]).unwrap();
        let rank = read_only_part(&part);
        let [fault] = rank.faults.as_slice() else { panic!("{length}: {:?}", rank.faults) };
        assert!(fault.to_string().contains(&format!("rank0: incomplete, {} ops", rank.ops.len())), "{fault}");
        assert!(
            rank.ops
                .iter()
                .all(|op| op.stack.is_some() && op.slots[0].value.tensor().unwrap().sketch.is_some())
        );
        seen.push(rank.ops.len());
    }
    assert!(seen.is_sorted(), "more bytes, more ops");
    seen.dedup();
    assert_eq!(seen, [0, 2, 4, 6]);
}

#[test]
fn a_step_that_was_not_turned_into_tables_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let part = interrupted(&root, 6, 2);
    let mut journal = fs::read(part.join(JOURNAL)).unwrap();
    journal.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    fs::write(part.join(JOURNAL), journal).unwrap();
    let rank = read_only_part(&root);
    assert!(rank.faults.is_empty(), "{:?}", rank.faults);
    assert_eq!((rank.ops.len(), rank.stacks.len()), (6, 6));
    assert!(rank.notes[0].contains("read from its journal"), "{:?}", rank.notes);
}

#[test]
fn an_abandoned_step_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let mut writer = DumpWriter::create(&root, &manifest(CaptureTask::Sketch), 0).unwrap();
    write_step(&mut writer, 1, 4);
    writer.abandon("no space left on device").unwrap();
    let dump = open(&root, FileAccess::Read).unwrap();
    assert!(dump.faults[0].to_string().contains("stopped before its end: rank 0: no space left on device"));
    let rank = part_of(&dump, 1, 0);
    assert_eq!(rank.ops.len(), 4);
    assert!(
        rank.faults[0].to_string().contains("incomplete, 4 ops; the capture stopped: no space left"),
        "{:?}",
        rank.faults
    );
    // As a full disk leaves it.
    fs::write(rank_folder(&root, 1, 0).join(STOPPED), "").unwrap();
    let rank = part_of(&dump, 1, 0);
    assert!(
        rank.faults[0].to_string().ends_with("incomplete, 4 ops; the capture stopped"),
        "{:?}",
        rank.faults
    );
}

/// Reads the part in every way; it only has to finish in time and without an escaping panic.
fn read_quietly(part: &Path) -> Result<Rank, ReadError> {
    let dump = open(part, FileAccess::Read)?;
    let rank = dump.reader.read(&dump.parts[0])?;
    for key in
        rank.ops.iter().flat_map(|op| &op.slots).filter_map(|slot| slot.value.tensor()?.data.as_deref())
    {
        rank.store.load(key).ok();
    }
    Ok(rank)
}

#[test]
fn damaged_tables_and_journals_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let part = interrupted(&root, 4, 2);
    let finished = {
        let mut writer = DumpWriter::create(&root, &manifest(CaptureTask::Sketch), 1).unwrap();
        write_step(&mut writer, 20, 3);
        writer.finish_step().unwrap();
        writer.close(&[]).unwrap();
        rank_folder(&root, 20, 1)
    };
    for (part, name) in [(&part, JOURNAL), (&part, STACKS_JOURNAL), (&finished, OPS), (&finished, STACKS)] {
        let path = part.join(name);
        let whole = fs::read(&path).unwrap();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..400 {
            let mut bytes = whole.clone();
            for _ in 0..=round % 4 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // The descriptions lie at both ends, which get half of the hits.
                let length = bytes.len() as u64;
                let at = match state % 4 {
                    0 => state / 4 % length.min(1200),
                    1 => length - 1 - state / 4 % length.min(4000),
                    _ => state / 4 % length,
                };
                bytes[usize::try_from(at).unwrap()] = state.to_le_bytes()[7];
            }
            fs::write(&path, &bytes).unwrap();
            read_quietly(part).ok();
        }
        for length in (0..whole.len()).step_by(97) {
            fs::write(&path, &whole[..length]).unwrap();
            let read = read_quietly(part);
            if name == OPS {
                assert!(read.is_err(), "a table cut at {length} is no table");
            }
        }
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn manifests_are_believed_only_as_far_as_they_make_sense() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let mut writer = DumpWriter::create(&root, &manifest(CaptureTask::Sketch), 0).unwrap();
    write_step(&mut writer, 1, 2);
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
    let path = root.join("manifest.json");
    let sound = fs::read_to_string(&path).unwrap();
    let newer = sound.replace("\"format_version\": 3", "\"format_version\": 4");
    assert_ne!(newer, sound);
    fs::write(&path, newer).unwrap();
    assert!(open(&root, FileAccess::Read).unwrap_err().to_string().contains("use a newer probe"));
    for damaged in ["", "{", "[]", "{\"format\": \"probe dump\", \"format_version\": 1}", "\u{0}"] {
        fs::write(&path, damaged).unwrap();
        let dump = open(&root, FileAccess::Read).unwrap();
        assert_eq!(dump.faults.len(), 1, "{damaged:?}");
        assert_eq!(part_of(&dump, 1, 0).ops.len(), 2);
    }
    fs::write(&path, sound.replacen('{', "{\"unknown\": [1, {}],", 1)).unwrap();
    assert!(open(&root, FileAccess::Read).unwrap().faults.is_empty(), "unknown keys are ignored");
}
