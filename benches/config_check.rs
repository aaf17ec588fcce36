//! Speed of the configuration check on two packs of a model of 300 parameters, two steps each: goal 50 ms of wall time for the
//! whole command, which is this and the start of a process.
//!
//! `cargo bench --bench config_check`.
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

#[path = "../tests/support/pack_builder.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod pack_builder;
#[path = "../tests/support/zip_builder.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod zip_builder;

use std::hint::black_box;

use criterion::Criterion;
use probe::config_check::{ConfigOptions, check};

/// Parameters of the model.
const PARAMETERS: usize = 300;

fn main() {
    let mut draft = pack_builder::gpu();
    for step in &mut draft.parts().weights.as_mut().unwrap().steps {
        let number = step.step;
        step.tensors = (0..PARAMETERS)
            .map(|index| pack_builder::weight(&format!("layers.{index}.weight"), number))
            .collect();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = draft.write(folder.path(), "pack.zip");
    let mut criterion = Criterion::default().configure_from_args();
    criterion.bench_function("two packs of 300 parameters", |bencher| {
        bencher.iter(|| black_box(check(&path, &path, &ConfigOptions::default()).unwrap()));
    });
    criterion.final_summary();
}
