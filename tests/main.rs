//! All integration tests, as one program: each program of its own would be another minute of compiling and linking.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bad_input;
mod cann;
mod capture_folder;
mod config_check;
mod config_check_input;
mod corpus;
mod damaged_tables;
mod edge;
mod exit_codes;
mod fused;
mod gate;
mod hostile_input;
mod json_output;
mod layouts;
mod loose_ends;
mod lying_stores;
mod memory;
mod mindspore;
mod native;
mod native_format;
mod noise;
mod places;
mod ranks_and_steps;
mod reference;
mod report_files;
mod rollout;
mod shards;
mod stores;
mod support;
mod suspects;
mod under_noise;
mod unmeasured;
mod verdicts;

use std::fs;

/// A file that nobody names here would not be compiled, and its tests would pass for good.
#[test]
fn every_file_is_part_of_this_program() {
    let named = include_str!("main.rs");
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let path = entry.unwrap().path();
        let is_module =
            path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").exists();
        let module = path.file_stem().unwrap().to_str().unwrap();
        let line = format!("\nmod {module};\n");
        assert!(
            !is_module || module == "main" || named.contains(&line),
            "tests/main.rs lacks `mod {module};`"
        );
    }
}
