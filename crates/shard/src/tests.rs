//! Checks that any number of shards, in any order, gives the same result as one process, and that stale, mixed or
//! missing shards are reported.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

use super::{PLAN, Plan, Shard, compare_shard, merge, plan};
use probe_capture::{DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts};
use probe_compare::{CompareOptions, CompareRequest, PartReport, Quiet, compare};
use probe_dump::{Content, DType, SlotSide, TensorRef};
use probe_files::Copies;
use probe_judge::{RunVerdict, Summary};
use probe_measure::observe;
use probe_report::{Suspects, json};

/// Writes a dump of sketches: `ranks` ranks, two steps, a chain of five ops. If `faulty`, the third op of step 1 of rank 5 is
/// wrong.
fn dump(root: &Path, ranks: u32, faulty: bool) {
    let manifest = RunManifest { world_size: ranks, run: "test".into(), ..RunManifest::default() };
    for rank in 0..ranks {
        let mut writer = DumpWriter::create(root, &manifest, rank).unwrap();
        for step in 0..2 {
            writer.begin_step(step).unwrap();
            let mut values: Vec<f32> = (0..1024_u32)
                .map(|i| ((i * 37 + rank * 11 + u32::try_from(step).unwrap()) % 101) as f32 / 7.0)
                .collect();
            for op in 0..5_u32 {
                let before = values.clone();
                for value in &mut values {
                    *value = *value * 0.75 + 0.5;
                }
                if faulty && (rank, step, op) == (5, 1, 2) {
                    for value in &mut values {
                        *value *= 1.5;
                    }
                }
                let slot = |path: &str, side, values: &[f32]| {
                    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                    let shape = [values.len()];
                    let view = TensorRef::strided(&bytes, DType::F32, &shape, &[1], 0).unwrap();
                    let facts = TensorFacts {
                        dtype: "torch.float32".into(),
                        shape: vec![1024],
                        observation: Some(observe(view, Content::SKETCH).into()),
                        ..TensorFacts::default()
                    };
                    SlotRecord { path: path.into(), side, value: SlotValue::Tensor(facts) }
                };
                let slots = vec![
                    slot("input.0", SlotSide::Input, &before),
                    slot("output.0", SlotSide::Output, &values),
                ];
                writer
                    .push(&OpRecord {
                        name: format!("Functional.f{op}.0.forward"),
                        slots,
                        ..OpRecord::default()
                    })
                    .unwrap();
            }
            writer.finish_step().unwrap();
        }
        writer.close(&[format!("rank {rank} was here")]).unwrap();
    }
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        dump(&folder.path().join("b"), 8, false);
        dump(&folder.path().join("c"), 8, true);
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn plan(&self, run: &str) -> Plan {
        plan(
            &self.path("b"),
            &self.path("c"),
            &self.path(run),
            &CompareRequest::default(),
            &Copies::default(),
        )
        .unwrap()
    }

    fn shard(&self, run: &str, index: u32, count: u32) {
        compare_shard(
            &self.path(run).join(PLAN),
            Shard::new(index, count).unwrap(),
            &Copies::default(),
            &Quiet,
        )
        .unwrap();
    }

    fn single(&self) -> (Summary, Suspects) {
        let mut suspects = Suspects::default();
        let mut sink = |part: &PartReport<'_>| {
            suspects.part(part);
            Ok(())
        };
        let options = CompareOptions::default();
        let summary = compare(&self.path("b"), &self.path("c"), &options, &Quiet, &mut sink).unwrap();
        (summary, suspects)
    }
}

/// Returns the machine-readable report without times.
fn report(summary: &Summary) -> String {
    json::text(&Summary { seconds: 0.0, ..summary.clone() }).unwrap()
}

#[test]
fn any_number_of_shards_in_any_order_is_the_single_run() {
    let place = Place::new();
    let (single, suspects) = place.single();
    assert_eq!((single.verdict, suspects.is_empty()), (RunVerdict::Diverged, false));
    let first = single.first_divergence.as_ref().unwrap();
    assert_eq!((first.step, first.rank, first.op.as_str()), (1, 5, "Functional.f2.0.forward"));
    for count in [1, 3, 16, 128] {
        let run = format!("run{count}");
        assert_eq!((place.plan(&run).groups(), place.plan(&run).parts()), (8, 16));
        // Out of order, with the first shard run twice.
        let mut order: Vec<u32> = (1..=count).rev().collect();
        order.rotate_left((count / 3) as usize);
        order.push(1);
        for index in order {
            place.shard(&run, index, count);
        }
        let merged = merge(&place.path(&run), &Copies::default()).unwrap();
        assert_eq!((merged.shards, merged.missing.len(), merged.notes.len()), (count, 0, 0));
        assert_eq!(report(&merged.summary), report(&single), "{count} shards");
        assert_eq!(merged.suspects, suspects, "{count} shards");
    }
}

#[test]
fn a_shard_is_the_same_bytes_whoever_makes_it() {
    let place = Place::new();
    let read = |run: &str| {
        let folder = place.path(run).join(place.plan(run).name()).join("3/2");
        (fs::read(folder.join("part.json")).unwrap(), fs::read(folder.join("result.parquet")).unwrap())
    };
    for run in ["one", "other"] {
        place.plan(run);
        place.shard(run, 2, 3);
    }
    assert!(read("one") == read("other"));
}

#[test]
fn missing_stale_and_mixed_shards_are_told_and_never_counted_twice() {
    let place = Place::new();
    let single = place.single().0;
    let run = place.path("run");
    place.plan("run");
    let error = merge(&run, &Copies::default()).unwrap_err().to_string();
    assert!(error.contains("no shard of it is done; run: probe compare --plan"), "{error}");
    for index in [1, 2, 4] {
        place.shard("run", index, 4);
    }
    let merged = merge(&run, &Copies::default()).unwrap();
    assert_eq!((merged.missing.clone(), merged.summary.verdict), (vec![3], RunVerdict::Incomplete));
    let told = &merged.summary.incomplete[0];
    assert_eq!(told.place, "shard 3/4");
    assert_eq!(
        told.reason,
        format!("not done; run: probe compare --plan {} --shard 3/4", run.join(PLAN).display())
    );
    // Shards of another count lie beside them.
    place.shard("run", 1, 2);
    place.shard("run", 3, 4);
    let merged = merge(&run, &Copies::default()).unwrap();
    assert_eq!(report(&merged.summary), report(&single));
    assert!(merged.notes[0].contains("run in 4 shards; those of 2 are ignored"), "{:?}", merged.notes);
    // Another plan in the same folder, to which the shards of the first do not belong.
    let request = CompareRequest { steps: Some("1".parse().unwrap()), ..CompareRequest::default() };
    plan(&place.path("b"), &place.path("c"), &run, &request, &Copies::default()).unwrap();
    place.shard("run", 1, 1);
    let merged = merge(&run, &Copies::default()).unwrap();
    assert_eq!(merged.summary.counts.parts, 8);
    assert!(merged.notes[0].contains("shards of other plans, ignored"), "{:?}", merged.notes);
}

#[test]
fn a_plan_that_was_changed_or_made_by_another_build_is_refused() {
    let place = Place::new();
    place.plan("run");
    let path = place.path("run").join(PLAN);
    let text = fs::read_to_string(&path).unwrap();
    let one = Shard::new(1, 1).unwrap();
    for (from, to, message) in [
        ("\"any_task\":false", "\"any_task\":true", "was changed after it was made"),
        (
            &*format!("\"build\":\"{}\"", super::build_id()),
            "\"build\":\"probe 9.9\"",
            "was made by probe 9.9, this is probe",
        ),
        ("\"probe plan\"", "\"something\"", "is a something of version 1"),
        ("{", "", "is not a plan of probe"),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = compare_shard(&path, one, &Copies::default(), &Quiet).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert!(merge(&place.path("run"), &Copies::default()).unwrap_err().to_string().contains(message));
    }
    // A part that has disappeared when a shard runs is reported as missing, and the rest is compared.
    fs::write(&path, &text).unwrap();
    fs::remove_dir_all(place.path("c").join("step0/rank3")).unwrap();
    place.shard("run", 1, 1);
    let merged = merge(&place.path("run"), &Copies::default()).unwrap();
    assert_eq!((merged.summary.verdict, merged.summary.counts.parts), (RunVerdict::Incomplete, 15));
    assert_eq!(merged.summary.incomplete[0].place, "step 0 rank 3");
    // A shard whose file names another shard was copied by hand.
    let name = place.plan("fresh").name().to_owned();
    place.shard("fresh", 1, 2);
    let folder = place.path("fresh").join(name).join("2");
    fs::create_dir_all(folder.join("2")).unwrap();
    fs::copy(folder.join("1/part.json"), folder.join("2/part.json")).unwrap();
    let error = merge(&place.path("fresh"), &Copies::default()).unwrap_err().to_string();
    assert!(error.contains("is shard 1/2 of plan"), "{error}");
    // A damaged shard does not count as done.
    fs::write(folder.join("2/part.json"), "{").unwrap();
    assert_eq!(merge(&place.path("fresh"), &Copies::default()).unwrap().missing, [2]);
}
