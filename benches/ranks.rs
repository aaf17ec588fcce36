//! A comparison of many ranks in shards: how long planning, all shards and the merge take, and how much memory they need.
//!
//! `cargo bench --bench ranks -- 10000` compares two dumps of so many ranks, each with one step of 40 ops whose tensors have sketches; one rank in a hundred is wrong.
//! The files of all ranks are two files under many names, so that the disk is no part of it but its directories are. The merge writes all reports.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on fails, and says what it found"
)]

mod clock;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use probe::capture::{DumpWriter, OpRecord, RunManifest, SlotRecord, SlotValue, TensorFacts};
use probe::compare::{CompareRequest, Quiet};
use probe::dump::{Content, DType, SlotSide, TensorRef};
use probe::files::Copies;
use probe::judge::Summary;
use probe::measure::observe;
use probe::report::{Extent, Format, ReportSet};
use probe::shard::{PLAN, Shard, compare_shard, merge, plan};

use clock::cpu_seconds;

/// Ops of a rank.
const OPS: u32 = 40;

/// The first rank that is wrong; of each hundred the one with this number is.
const WRONG: u32 = 7;

/// Shards of a run.
const SHARDS: u32 = 64;

fn main() {
    let ranks: u32 = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(1000);
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    for side in ["baseline", "candidate"] {
        dump(&path(side), ranks, side == "candidate");
    }
    let run = path("run");
    let timed = |what: &str, work: &mut dyn FnMut()| {
        let started = (Instant::now(), cpu_seconds());
        work();
        let (wall, cpu) = (started.0.elapsed().as_secs_f64(), cpu_seconds() - started.1);
        println!("{what}: {wall:.2} s, {cpu:.2} s of CPU, {} MB at most so far", peak() >> 10);
    };
    timed("plan", &mut || {
        let made =
            plan(&path("baseline"), &path("candidate"), &run, &CompareRequest::default(), &Copies::default())
                .unwrap();
        println!("{} ranks, {} parts, {} bytes", made.groups(), made.parts(), made.bytes());
    });
    timed("all shards", &mut || {
        for index in 1..=SHARDS {
            compare_shard(&run.join(PLAN), Shard::new(index, SHARDS).unwrap(), &Copies::default(), &Quiet)
                .unwrap();
        }
    });
    timed("merge", &mut || {
        let merged = merge(&run, &Copies::default()).unwrap();
        let formats = [Format::Text, Format::Xlsx, Format::Json, Format::Html];
        let reports = ReportSet::create(&run, &formats, Extent::Selection).unwrap();
        let written = reports.finish_stored(&merged.rows, &merged.summary).unwrap();
        let Summary { verdict, counts, culprits, .. } = &merged.summary;
        println!("{verdict}, {} parts, {} ops at fault", counts.parts, culprits.len());
        for report in written {
            println!("{}: {} KB", report.display(), fs::metadata(&report).unwrap().len() / 1000);
        }
    });
}

/// A dump whose ranks are links to two: one that is sound, and one that is wrong, if it is the candidate's.
fn dump(root: &Path, ranks: u32, candidate: bool) {
    rank(root, 0, candidate, false);
    rank(root, WRONG, candidate, candidate);
    let step = root.join("step0");
    for rank in (1..ranks).filter(|rank| *rank != WRONG) {
        let folder = step.join(format!("rank{rank}"));
        fs::create_dir(&folder).unwrap();
        let template = if rank % 100 == WRONG { WRONG } else { 0 };
        for entry in fs::read_dir(step.join(format!("rank{template}"))).unwrap() {
            let entry = entry.unwrap();
            fs::hard_link(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
}

/// Writes a rank.
fn rank(root: &Path, rank: u32, candidate: bool, wrong: bool) {
    let manifest = RunManifest { run: "ranks".into(), world_size: 2, ..RunManifest::default() };
    let mut writer = DumpWriter::create(root, &manifest, rank).unwrap();
    writer.begin_step(0).unwrap();
    for op in 0..OPS {
        // An input is what the op before made, which is right up to the first wrong one.
        let slot = |path: &str, side, shift: u32| {
            let scale = match (candidate, wrong && op + shift > OPS / 2) {
                (_, true) => 1.01,
                (true, _) => 1.0 + 1e-7,
                (false, _) => 1.0,
            };
            let values = (0..1024_u32).map(|i| ((i * 31 + op + shift) % 97) as f32 * scale);
            let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
            let view = TensorRef::strided(&bytes, DType::F32, &[1024], &[1], 0).unwrap();
            let observation = Some(Arc::new(observe(view, Content::SKETCH)));
            let facts = TensorFacts {
                dtype: "torch.float32".into(),
                shape: vec![1024],
                observation,
                ..TensorFacts::default()
            };
            SlotRecord { path: path.into(), side, value: SlotValue::Tensor(facts) }
        };
        let slots = vec![slot("input.0", SlotSide::Input, 0), slot("output.0", SlotSide::Output, 1)];
        let name = format!("Functional.f{}.{}.forward", op % 20, op / 20);
        writer.push(&OpRecord { name, slots, ..OpRecord::default() }).unwrap();
    }
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
}

/// Most memory that the process held, in KiB; 0 where the system does not say.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
