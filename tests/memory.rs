//! How much memory a comparison holds.
#![cfg(all(feature = "cli", target_os = "linux"))]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::dump_builder::Tensor;

/// Elements of each side: half a gibibyte.
const COUNT: u64 = 1 << 27;

/// Most memory that a comparison of two files has held, pages of mapped files included, in bytes.
fn peak(folder: &Path, more: &[&str]) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_probe"))
        .args(["compare", "a.npy", "b.npy", "-o", "-", "--threads", "2"])
        .args(more)
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let code = loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(kibibytes.unwrap_or(0) << 10);
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        sleep(Duration::from_millis(2));
    };
    assert_eq!(code, Some(0));
    peak
}

#[test]
fn large_tensors_are_not_held() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.npy", "b.npy"] {
        Tensor::write_hole(&folder.path().join(name), COUNT);
    }
    for (more, most) in [(&[][..], 300), (&["--no-mmap"], 100)] {
        let held = peak(folder.path(), more) >> 20;
        assert!(held < most, "{more:?}: {held} MiB");
    }
}
