//! How long the reports of a large comparison take. Run by hand, optimised:
//! `PROBE_ROWS=13000 cargo test --release --lib report::tests::timing -- --ignored --nocapture`

use std::time::Instant;

use super::fixture::{Part, both, data, record, summary};
use crate::dump::{Number, Scalar, Task, TensorRecord, Value};
use crate::judge::{Cause, Role, Verdict};
use crate::measure::{Evidence, compare_recorded};
use crate::report::{Format, ReportSet};

/// A part like those of a transformer's training step: a third of the slots are arguments, the rest are tensors.
fn part(rows: usize, with_data: bool) -> Part {
    let mut part = Part::new(0, if with_data { Task::Tensor } else { Task::Statistics });
    let mut noise = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        (noise >> 11) as f64 / (1_u64 << 53) as f64
    };
    for index in 0..rows.div_ceil(6) {
        let mut slot = |path, verdict| {
            let norm = 10.0 + next();
            let (b, c) = (record(norm), record(norm * (1.0 + 1e-4 * next())));
            let mut mean = |record: TensorRecord| {
                let mut record = record;
                record.statistics.mean = Some(next());
                Value::Tensor(Box::new(record))
            };
            let evidence = if with_data {
                data(1e-4 * norm)
            } else {
                Evidence::Recorded(Box::new(compare_recorded(&b, &c)))
            };
            let mut spec = both(path, mean(b), evidence, verdict);
            spec.candidate = Some(mean(c));
            spec
        };
        let dim = Value::Scalar(Scalar::Number(Number::Int(-1)));
        let slots = vec![
            slot("input.0", Verdict::Close),
            slot("input.1", Verdict::Close),
            both("input.2", dim.clone(), Evidence::Nothing, Verdict::BitEqual),
            both("kwarg.dim", dim, Evidence::Nothing, Verdict::BitEqual),
            slot("parameter.weight", Verdict::Close),
            slot("output.0", if index % 50 == 49 { Verdict::Differs } else { Verdict::Close }),
        ];
        let (role, cause) = match index % 50 {
            49 if index == 49 => (Role::Introduces, Some(Cause::Numerics)),
            49 => (Role::Propagates, None),
            _ => (Role::Clean, None),
        };
        let name =
            format!("Module.model.layers.{}.self_attn.q_proj.Linear.forward.{}", index / 40, index % 40);
        part.push(&name, role, cause, slots);
    }
    part.judged.counts.parts = 1;
    part
}

#[test]
#[ignore = "measures, decides nothing"]
fn reports_are_written_quickly() {
    let rows = std::env::var("PROBE_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(13_000);
    let all: Vec<Format> = Format::ALL.into_iter().filter(|format| format.is_built()).collect();
    for with_data in [false, true] {
        let part = part(rows, with_data);
        let summary = summary(&[&part]);
        let mut sets: Vec<Vec<Format>> = all.iter().map(|&format| vec![format]).collect();
        sets.push(all.clone());
        for formats in sets {
            let folder = tempfile::tempdir().unwrap();
            let mut best = f64::INFINITY;
            for _ in 0..5 {
                let start = Instant::now();
                let mut set = ReportSet::create(folder.path(), &formats).unwrap();
                set.part(&part.report()).unwrap();
                set.finish(&summary).unwrap();
                best = best.min(start.elapsed().as_secs_f64());
            }
            let bytes: u64 = std::fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().metadata().unwrap().len())
                .sum();
            let names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
            println!(
                "{rows} rows, data {with_data}: {:<24} {:>7.1} ms {bytes:>9} bytes",
                names.join("+"),
                best * 1e3
            );
            if let Some(keep) = std::env::var_os("PROBE_KEEP_REPORTS") {
                let keep = std::path::Path::new(&keep).join(if with_data { "data" } else { "statistics" });
                let mut set = ReportSet::create(&keep, &formats).unwrap();
                set.part(&part.report()).unwrap();
                set.finish(&summary).unwrap();
            }
        }
    }
}
