//! Files of tensors in a store: only what is read of them is sent, by few requests; what did not come is never read as something else.

use std::collections::BTreeMap;

use super::*;
use probe::capture::{
    CaptureLevel, CaptureTask, DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts,
};
use probe::dump::{Content, DType, SketchVersion, SlotSide, TensorRef};
use probe::files::map::FileAccess;
use probe::inspect::{InspectOptions, Inspection, inspect};
use probe::measure::observe;
use probe::report::inspection;

/// Elements of a tensor, float32: more than lies between two that come together.
const COUNT: usize = 400_000;
const BYTES: u64 = 4 * COUNT as u64;

/// Ops of a part: functions and modules in turns.
const OPS: usize = 8;

const SHARD: &str = "tensors-00000.safetensors";

/// A dump with data and hashes; the last half of its ops is other for another `noise`.
fn write(folder: &Path, ranks: u32, noise: f32) {
    let task = CaptureTask::Tensor;
    let manifest =
        RunManifest { task, level: CaptureLevel::Mix, world_size: ranks, ..RunManifest::default() };
    for rank in 0..ranks {
        let mut writer = DumpWriter::create(folder, &manifest, rank).unwrap();
        writer.begin_step(0).unwrap();
        for op in 0..OPS {
            let name = if op % 2 == 0 {
                format!("Functional.gelu.{op}.forward")
            } else {
                format!("Module.layers.{op}.Linear.forward.0")
            };
            let scale = if op < OPS / 2 { 1.0 } else { 1.0 + noise };
            let value = |at: usize| scale * ((at * 31 + op + 7 * rank as usize) % 1009) as f32 - 300.0;
            let bytes: Vec<u8> = (0..COUNT).flat_map(|at| value(at).to_le_bytes()).collect();
            let tensor = TensorRef::strided(&bytes, DType::F32, &[COUNT], &[1], 0).unwrap();
            let seen = observe(tensor, Content { sketch: Some(SketchVersion::CURRENT), hash: true });
            let shape = [COUNT as u64];
            let data =
                writer.push_tensor(&format!("{name}/output.0"), "torch.float32", &shape, &bytes).unwrap();
            let facts = TensorFacts {
                dtype: "torch.float32".into(),
                shape: shape.to_vec(),
                observation: Some(seen.into()),
                data: Some(data),
                ..TensorFacts::default()
            };
            let value = SlotValue::Tensor(facts);
            let slot = SlotRecord { path: "output.0".into(), side: SlotSide::Output, value };
            writer.push(&OpRecord { name, slots: vec![slot], ..OpRecord::default() }).unwrap();
        }
        writer.finish_step().unwrap();
        writer.close(&[]).unwrap();
    }
}

pub(super) fn written(ranks: u32) -> (tempfile::TempDir, Lying) {
    let folder = tempfile::tempdir().unwrap();
    for (side, noise) in [("baseline", 0.0), ("candidate", 1e-3)] {
        write(&folder.path().join(side), ranks, noise);
    }
    let lying = Lying::holding(folder.path(), "runs");
    (folder, lying)
}

/// Bytes and requests of the files of tensors below `prefix` since the last time.
pub(super) fn sent(lying: &Lying, prefix: &str) -> (u64, usize) {
    let shards = |key: &str| key.starts_with(prefix) && key.ends_with(SHARD);
    let sent = std::mem::take(&mut *lying.0.sent.lock().unwrap());
    let bytes = sent.iter().filter(|(key, _)| shards(key)).map(|(_, bytes)| bytes).sum();
    let mut read = lying.0.read.lock().unwrap();
    let requests = read.iter().filter(|key| shards(key)).count();
    read.retain(|key| !shards(key));
    *lying.0.sent.lock().unwrap() = sent.into_iter().filter(|(key, _)| !shards(key)).collect();
    (bytes, requests)
}

fn inspected(lying: &Lying, typed: &str, options: &InspectOptions) -> Result<Inspection, String> {
    let mut stage = stage(lying);
    let selection = Selection::default();
    let path = stage.dump(Path::new(typed), &selection).map_err(|error| error.to_string())?;
    let options = InspectOptions { copies: stage.copies().clone(), ..options.clone() };
    let found = inspect(&path, &options);
    stage.sound().map_err(|error| error.to_string())?;
    found.map_err(|error| error.to_string())
}

fn of(op: &str) -> InspectOptions {
    InspectOptions {
        op: Some(globset::Glob::new(op).unwrap().compile_matcher()),
        ..InspectOptions::default()
    }
}

fn same_inspection(lying: &Lying, folder: &Path, name: &str, options: &InspectOptions) {
    let there = inspected(lying, &format!("s3://bucket/runs/{name}"), options).unwrap();
    let here = inspect(&folder.join(name), options).unwrap();
    let text = inspection::json(&there).unwrap().replace("s3://bucket/runs", folder.to_str().unwrap());
    assert_eq!(text, inspection::json(&here).unwrap(), "{name}");
}

#[test]
fn an_inspection_is_sent_what_it_shows() {
    let (folder, lying) = written(1);
    // The record of an op is enough.
    same_inspection(&lying, folder.path(), "baseline", &of("*gelu*"));
    assert_eq!(sent(&lying, ""), (0, 0));
    // The values of one tensor.
    let tensor = Some("Functional.gelu.2.forward output.0".to_owned());
    same_inspection(&lying, folder.path(), "baseline", &InspectOptions { tensor, ..Default::default() });
    let (bytes, requests) = sent(&lying, "");
    assert!((BYTES..=BYTES + (128 << 10)).contains(&bytes), "{bytes}");
    assert_eq!(requests, 1);
    // The same file by itself has no statistics: they are measured, of the one that is request for. The header comes by itself.
    let name = format!("baseline/step0/rank0/{SHARD}");
    same_inspection(&lying, folder.path(), &name, &of("*gelu.2*"));
    let (bytes, requests) = sent(&lying, "");
    assert!((BYTES..=BYTES + (256 << 10)).contains(&bytes), "{bytes}");
    assert!(requests <= 3, "{requests}");
}

#[test]
fn a_comparison_is_sent_what_it_reads_once() {
    let (folder, lying) = written(2);
    let disk = |request: &CompareRequest| {
        on_disk(folder.path(), &request.options(&probe::files::Copies::default()).unwrap())
    };
    let check = |request: &CompareRequest| {
        let found = compared(&lying, request, &Selection::default()).unwrap();
        assert_eq!(found.verdict, RunVerdict::Diverged);
        assert_eq!(
            report(&found, "s3://bucket/runs", folder.path()),
            report(&disk(request), "s3://bucket/runs", folder.path())
        );
    };
    check(&CompareRequest::default());
    // One side of values with equal hashes is read.
    let all = OPS as u64 * BYTES;
    assert_eq!(sent(&lying, "runs/baseline"), (2 * all, 2));
    let (bytes, requests) = sent(&lying, "runs/candidate");
    assert_eq!((bytes, requests), (all, 2));
    // Every other one: what lies between two is larger than a request is worth.
    check(&CompareRequest { level: probe::dump::LevelFilter::Api, ..CompareRequest::default() });
    assert_eq!(sent(&lying, "runs/baseline"), (all, OPS));
    assert_eq!(sent(&lying, "runs/candidate"), (all / 2, OPS / 2));
    // Nothing of equal values is sent where the other side is on a disk.
    let mut stage = stage(&lying);
    let name = stage.dump(Path::new("s3://bucket/runs/baseline"), &Selection::default()).unwrap();
    let options = CompareRequest::default().options(stage.copies()).unwrap();
    let disk = folder.path().join("candidate");
    let found = compare(&name, &disk, &options, &Quiet, &mut |_| Ok(())).unwrap();
    stage.sound().unwrap();
    assert_eq!(
        report(&found, "s3://bucket/runs", folder.path()),
        report(&on_disk(folder.path(), &CompareOptions::default()), "s3://bucket/runs", folder.path())
    );
    assert_eq!(sent(&lying, ""), (all, 2));
}

#[test]
fn what_goes_wrong_with_a_range_is_an_error_and_never_another_answer() {
    let (_folder, lying) = written(1);
    let shard = format!("s3://bucket/runs/baseline/step0/rank0/{SHARD}: ");
    for (lie, message) in [
        (Lie::CutsShort(9), "the response ended after "),
        (Lie::BreaksOff(9), "the response broke off after "),
        (Lie::Overloaded(9), "503 Slow Down; tried several times, try again later"),
        (Lie::GoesOn, "requested bytes arrived; the store cannot be trusted"),
        (Lie::Grows, "; something still writes it, or the store cannot be trusted"),
        (Lie::Changes, "changed while it was copied; wait until nothing writes it"),
        (Lie::Elsewhere, "arrived; the store cannot be trusted"),
        (Lie::Forgets, "was listed, but is no longer there"),
        (Lie::Forbidden, "403 Forbidden: AccessDenied"),
    ] {
        lying.lies(Lie::None);
        let mut stage = stage(&lying);
        let path = stage.dump(Path::new("s3://bucket/runs/baseline"), &Selection::default()).unwrap();
        let dump = probe::read::open_called(&path, stage.copies(), FileAccess::Map).unwrap();
        let rank = dump.reader.read(&dump.parts[0]).unwrap();
        let key = |op: usize| rank.ops[op].slots[0].value.tensor().unwrap().data.as_deref().unwrap();
        let first = rank.store.load(key(0)).unwrap();
        stage.sound().unwrap();
        // It begins to lie between two ranges of one object.
        lying.lies(lie);
        let kept = lying.0.objects.lock().unwrap().clone();
        if lie == Lie::Forgets {
            lying.0.objects.lock().unwrap().clear();
        }
        rank.store.expect(&[key(2)]);
        let error = rank.store.load(key(2)).unwrap_err().to_string();
        assert!(error.contains(message), "{lie:?}: {error}");
        // Earlier bytes are still there, and nothing more comes; the first error is told.
        lying.lies(Lie::None);
        *lying.0.objects.lock().unwrap() = kept;
        assert_eq!(rank.store.load(key(0)).unwrap().view().to_bytes(), first.view().to_bytes());
        assert!(rank.store.load(key(5)).is_err());
        let told = stage.sound().unwrap_err().to_string();
        assert!(told.starts_with(&shard) && told.contains(message), "{lie:?}: {told}");
        assert_eq!(told.lines().count(), 1);
    }
    for lie in [Lie::CutsShort(2), Lie::BreaksOff(2), Lie::Overloaded(2)] {
        lying.lies(lie);
        assert_eq!(
            compared(&lying, &CompareRequest::default(), &Selection::default()).unwrap().verdict,
            RunVerdict::Diverged
        );
    }
}

#[test]
fn a_size_that_is_only_claimed_takes_no_memory() {
    let (_folder, lying) = written(1);
    let shard = format!("s3://bucket/runs/baseline/step0/rank0/{SHARD}");
    for size in [u64::MAX, 1 << 60, OPS as u64 * BYTES, 9] {
        lying.lies(Lie::Claims(size));
        let error = inspected(&lying, &shard, &InspectOptions::default()).unwrap_err();
        assert!(error.starts_with(&shard) && error.lines().count() == 1, "{size}: {error}");
    }
    // All of an object that claims to have more than the budget.
    lying.lies(Lie::Claims(1 << 60));
    let mut stage = stage(&lying);
    let path = stage.dump(Path::new(&shard), &Selection::default()).unwrap();
    assert!(probe::files::map::open(&stage.copies().place(&path), FileAccess::Map).is_err());
    assert!(matches!(stage.sound().unwrap_err(), StoreError::Budget { bytes, .. } if bytes == 1 << 60));
}

#[test]
fn copies_that_nobody_reads_make_room_and_a_part_without_room_is_an_error() {
    let (folder, lying) = written(6);
    let place = tempfile::tempdir().unwrap();
    let compared = |bytes: u64| {
        let mut stage =
            Stage::new(&lying, StageOptions { scratch: Some(place.path().into()), ..options(bytes) });
        let mut side = |name: &str| {
            stage.dump(Path::new(&format!("s3://bucket/runs/{name}")), &Selection::default()).unwrap()
        };
        let (baseline, candidate) = (side("baseline"), side("candidate"));
        let options = CompareRequest::default().options(stage.copies()).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let found = pool.install(|| compare(&baseline, &candidate, &options, &Quiet, &mut |_| Ok(())));
        stage.sound().map(|()| found.unwrap())
    };
    // Tables, and the data of two of six ranks: one is handed on while the next is read.
    let size = |side: &str, rank: usize, file: &str| {
        fs::metadata(folder.path().join(side).join(format!("step0/rank{rank}/{file}")))
            .map_or(0, |about| about.len())
    };
    let tables: u64 = (0..6).map(|rank| 2 * (size("baseline", rank, "ops.parquet") + 100_000)).sum();
    let part = OPS as u64 * BYTES * 3 / 2;
    let found = compared(tables + 2 * part).unwrap();
    let single = on_disk(folder.path(), &CompareOptions::default());
    assert_eq!(
        report(&found, "s3://bucket/runs", folder.path()),
        report(&single, "s3://bucket/runs", folder.path())
    );
    let error = compared(tables + part / 2).unwrap_err();
    assert!(matches!(error, StoreError::Budget { .. }), "{error}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_file_for_each_tensor_is_sent_when_it_is_read() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let lying = Lying::default();
    for side in ["gpu_dump", "npu_dump"] {
        lying.add(&testdata.join(side), &format!("runs/{side}"));
    }
    let files = |lying: &Lying| {
        let mut read: BTreeMap<String, usize> = BTreeMap::new();
        for key in lying.0.read.lock().unwrap().drain(..).filter(|key| key.contains("dump_tensor_data")) {
            *read.entry(key).or_default() += 1;
        }
        read
    };
    same_inspection(&lying, &testdata, "gpu_dump", &of("*conv2d*"));
    assert_eq!(files(&lying).len(), 0);
    let side = |name: &str| PathBuf::from(format!("s3://bucket/runs/{name}"));
    let mut stage = stage(&lying);
    let selection = Selection::default();
    let [b, c] = ["gpu_dump", "npu_dump"].map(|name| stage.dump(&side(name), &selection).unwrap());
    let options = CompareRequest::default().options(stage.copies()).unwrap();
    let found = compare(&b, &c, &options, &Quiet, &mut |_| Ok(())).unwrap();
    stage.sound().unwrap();
    let disk = CompareOptions::default();
    let [b, c] = ["gpu_dump", "npu_dump"].map(|name| testdata.join(name));
    let single = compare(&b, &c, &disk, &Quiet, &mut |_| Ok(())).unwrap();
    assert_eq!(report(&found, "s3://bucket/runs", &testdata), report(&single, "s3://bucket/runs", &testdata));
    let read = files(&lying);
    assert!(read.len() > 300 && read.values().all(|times| *times == 1), "{read:?}");
}

#[test]
fn every_kind_of_tensor_file_is_read_as_from_a_disk() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tensor_files");
    let lying = Lying::holding(&folder, "runs");
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if [".pt", ".npy", ".npz", ".safetensors"].iter().any(|kind| name.ends_with(kind)) {
            same_inspection(&lying, &folder, &name, &InspectOptions::default());
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn threads_that_read_one_file_get_its_bytes_and_each_comes_once() {
    let lying = Lying::default();
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 65_521 % 251) as u8).collect();
    lying.0.objects.lock().unwrap().insert("runs/a.bin".into(), content.clone());
    let mut stage = stage(&lying);
    let path = stage.dump(Path::new("s3://bucket/runs/a.bin"), &Selection::default()).unwrap();
    let place = stage.copies().place(&path);
    // A read that does not go through the late file finds nothing at all.
    assert_eq!(fs::read(&place).unwrap(), b"");
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (place, content) = (&place, &content);
            scope.spawn(move || {
                let source = probe::files::map::Source::open(place, FileAccess::Map).unwrap();
                assert_eq!(source.len(), content.len() as u64);
                let mut state = thread + 1;
                for _ in 0..40 {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let start = (state >> 33) % source.len();
                    let end = (start + (state >> 50)).min(source.len());
                    let section = source.section(start..end, "some").unwrap();
                    let [start, end] = [start, end].map(|at| usize::try_from(at).unwrap());
                    assert!(section.bytes() == &content[start..end]);
                }
            });
        }
    });
    stage.sound().unwrap();
    let sent: u64 = lying.0.sent.lock().unwrap().values().sum();
    assert!(sent <= content.len() as u64, "{sent}");
    let whole = probe::files::map::open(&place, FileAccess::Map).unwrap();
    assert!(whole.in_memory().unwrap() == content);
    assert_eq!(lying.0.sent.lock().unwrap().values().sum::<u64>(), content.len() as u64);
}

#[test]
fn many_threads_have_no_more_requests_under_way_than_one_store_takes() {
    const THREADS: u64 = 64;
    const BLOCK: u64 = 64 << 10;
    let lying = Lying::default();
    lying
        .0
        .objects
        .lock()
        .unwrap()
        .insert("runs/a.bin".into(), vec![7; (THREADS * BLOCK).try_into().unwrap()]);
    let mut stage = stage(&lying);
    let path = stage.dump(Path::new("s3://bucket/runs/a.bin"), &Selection::default()).unwrap();
    let place = stage.copies().place(&path);
    let together = std::sync::Barrier::new(THREADS.try_into().unwrap());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (place, together) = (&place, &together);
            scope.spawn(move || {
                let source = probe::files::map::Source::open(place, FileAccess::Map).unwrap();
                together.wait();
                let section = source.section(thread * BLOCK..(thread + 1) * BLOCK, "a block").unwrap();
                assert!(section.bytes().iter().all(|byte| *byte == 7));
            });
        }
    });
    let most = lying.0.most.load(Ordering::SeqCst);
    assert!((2..=32).contains(&most), "{most} requests at a time");
}
