//! Commands with URLs, as they are typed: what they write to a store is what they write to a disk.

use std::ffi::OsString;

use super::ranges::{sent, written};
use super::*;
use probe::cli::{Exit, run_with};

fn run(lying: &Lying, line: &[&str]) -> Exit {
    run_with(["probe"].iter().chain(line).map(OsString::from), lying)
}

/// Keys below a prefix, without it, and their bytes.
fn objects(lying: &Lying, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let objects = lying.0.objects.lock().unwrap();
    let below =
        objects.iter().filter_map(|(key, bytes)| Some((key.strip_prefix(prefix)?.to_owned(), bytes.clone())));
    below.collect()
}

#[test]
fn a_dump_is_converted_from_a_store_into_one() {
    let (folder, lying) = written(2);
    let disk = folder.path().join("disk");
    let source = folder.path().join("baseline");
    let typed = ["convert", source.to_str().unwrap(), "-q", "--to", "safetensors", "--rank", "1", "-o"];
    assert_eq!(run(&lying, &[&typed[..], &[disk.to_str().unwrap()]].concat()), Exit::Agree);
    let wanted = Lying::holding(&disk, "out");
    let stored = ["convert", "s3://bucket/runs/baseline", "-q", "--to", "safetensors", "--rank", "1"];
    assert_eq!(run(&lying, &[&stored[..], &["-o", "s3://bucket/out"]].concat()), Exit::Agree);
    assert!(!objects(&wanted, "out/").is_empty());
    assert!(objects(&lying, "out/") == objects(&wanted, "out/"));
    // Objects of the requested rank alone.
    assert!(lying.0.read.lock().unwrap().iter().all(|key| !key.contains("rank0")));
    // Nothing is put to what is there; what cannot be put leaves nothing.
    assert_eq!(run(&lying, &[&stored[..], &["-o", "s3://bucket/out"]].concat()), Exit::Failed);
    lying.lies(Lie::PutsHalf);
    assert_eq!(run(&lying, &[&stored[..], &["-o", "s3://bucket/other"]].concat()), Exit::Failed);
    assert!(objects(&lying, "other/").is_empty());
    lying.lies(Lie::None);
    // A dump of probe's own is there when its manifest is, which is put last.
    lying.0.changed.lock().unwrap().clear();
    let native = ["convert", "s3://bucket/runs/baseline", "-q", "-o", "s3://bucket/native"];
    assert_eq!(run(&lying, &native), Exit::Agree);
    assert_eq!(lying.0.changed.lock().unwrap().last().map(String::as_str), Some("native/manifest.json"));
    let compared = ["compare", "s3://bucket/native", "s3://bucket/runs/baseline", "-q", "-o", "-"];
    assert_eq!(run(&lying, &compared), Exit::Agree);
}

#[test]
fn noise_is_measured_of_runs_in_a_store() {
    let (folder, lying) = written(1);
    let (b, c) = (folder.path().join("baseline"), folder.path().join("candidate"));
    let toml = folder.path().join("noise.toml");
    let disk = [&*b, &*c, &*toml].map(|path| path.to_str().unwrap());
    assert_eq!(run(&lying, &["calibrate", disk[0], disk[1], "-q", "-o", disk[2]]), Exit::Agree);
    let stored = ["s3://bucket/runs/baseline", "s3://bucket/runs/candidate", "s3://bucket/kept/noise.toml"];
    assert_eq!(run(&lying, &["calibrate", stored[0], stored[1], "-q", "-o", stored[2]]), Exit::Agree);
    let [(_, found)] = &objects(&lying, "kept/noise.toml")[..] else { panic!("no file") };
    let found =
        std::str::from_utf8(found).unwrap().replace("s3://bucket/runs", folder.path().to_str().unwrap());
    assert_eq!(found, fs::read_to_string(&toml).unwrap());
    assert!(found.contains("gelu"), "{found}");
}

#[test]
fn ranks_of_a_dump_in_a_store_are_compared_without_its_tensors() {
    let (folder, lying) = written(2);
    let disk = folder.path().join("baseline");
    let here = run(&lying, &["peers", disk.to_str().unwrap()]);
    assert_eq!(run(&lying, &["peers", "s3://bucket/runs/baseline"]), here);
    assert_ne!(here, Exit::Failed);
    assert_eq!(sent(&lying, ""), (0, 0));
    assert_eq!(run(&lying, &["peers", "s3://bucket/none"]), Exit::Failed);
}
