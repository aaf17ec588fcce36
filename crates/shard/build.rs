//! Tells the library which sources decide its answers: shards of a comparison are made by one build, on whatever machines.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "how a build script speaks to cargo, which shows why it fails"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that decide what is measured, how it is judged, and what of it is handed from shards to the merge.
const CRATES: [&str; 9] = ["dump", "files", "measure", "read", "pair", "judge", "compare", "report", "shard"];

fn main() {
    let crates = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("..");
    let mut sources = Sources::default();
    for name in CRATES {
        sources.add(&crates.join(name).join("src"));
    }
    // 64 bits of FNV-1a: it tells builds apart by mistake, not those that somebody made to look alike.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for path in sources.files.difference(&sources.tests) {
        let name = path.strip_prefix(&crates).unwrap().to_string_lossy().replace('\\', "/");
        add(name.as_bytes());
        add(without_tests(&fs::read_to_string(path).unwrap().replace("\r\n", "\n")).as_bytes());
        // One by one: in a folder, tests would count too. A file that is new or gone is declared in another, which changes.
        println!("cargo:rerun-if-changed={}", path.display());
    }
    println!("cargo:rustc-env=PROBE_SOURCES={hash:016x}");
    println!("cargo:rerun-if-changed=build.rs");
}

/// Code, and the tables that are embedded.
#[derive(Default)]
struct Sources {
    files: BTreeSet<PathBuf>,
    /// Those of `files` that only tests are built from.
    tests: BTreeSet<PathBuf>,
}

impl Sources {
    fn add(&mut self, folder: &Path) {
        let mut test_folders = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().unwrap() != "tests" {
                    self.add(&path);
                }
            } else if path.extension().is_some_and(|kind| kind == "rs" || kind == "toml") {
                if path.extension().unwrap() == "rs" {
                    let modules = path.parent().unwrap().to_path_buf();
                    let stem = path.file_stem().unwrap();
                    let own = if stem == "mod" || stem == "lib" { modules } else { modules.join(stem) };
                    for module in test_modules(&fs::read_to_string(&path).unwrap()) {
                        self.tests.insert(own.join(format!("{module}.rs")));
                        test_folders.push(own.join(module));
                    }
                }
                self.files.insert(path);
            }
        }
        let only_tests = |path: &PathBuf| test_folders.iter().any(|folder| path.starts_with(folder));
        self.tests.extend(self.files.iter().filter(|path| only_tests(path)).cloned().collect::<Vec<_>>());
    }
}

/// Names of the modules in files of their own that only tests have.
fn test_modules(text: &str) -> Vec<&str> {
    let declared = text.split("#[cfg(test)]").skip(1);
    declared
        .filter_map(|rest| rest.trim_start().strip_prefix("mod ")?.split_once(';'))
        .map(|(name, _)| name)
        .filter(|name| !name.contains(' '))
        .collect()
}

/// Code without the unit tests at its end.
fn without_tests(text: &str) -> &str {
    text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(code, _)| code)
}
