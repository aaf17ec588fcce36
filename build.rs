//! Tells the library which sources it is built from: shards of a comparison are made by one build, on whatever machines.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "how a build script speaks to cargo, which shows why it fails"
)]

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    files.sort();
    // 64 bits of FNV-1a: it tells builds apart by mistake, not those that somebody made to look alike.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for path in &files {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(path).unwrap();
        add(name.as_bytes());
        add(text.replace("\r\n", "\n").as_bytes());
    }
    println!("cargo:rustc-env=PROBE_SOURCES={hash:016x}");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=build.rs");
}

/// All files that decide what is measured and how it is judged: code, and the tables that are embedded.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs" || kind == "toml") {
            files.push(path);
        }
    }
}
