//! The folder that a capture writes to: several ranks, runs before it, other people's files, a full disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;

use crate::support::three_ops::{push_network, write};
use probe::capture::{CaptureTask, DumpWriter, Existing, OpRecord, RunManifest, prepare};

#[test]
fn ranks_may_begin_at_the_same_moment() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("dump");
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for rank in 0..8 {
                let (root, barrier) = (&root, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let manifest = RunManifest { world_size: 8, ..RunManifest::default() };
                    let mut writer = DumpWriter::create(root, &manifest, rank).unwrap();
                    writer.begin_step(1).unwrap();
                    writer.push(&OpRecord { name: "A.a.0.forward".into(), ..OpRecord::default() }).unwrap();
                    writer.finish_step().unwrap();
                    writer.close(&[format!("note of rank {rank}")]).unwrap();
                });
            }
        });
        let dump = probe::read::open(&root, probe::files::map::FileAccess::Read).unwrap();
        assert!(dump.faults.is_empty(), "{:?}", dump.faults);
        assert_eq!(dump.parts.len(), 8);
        let part = dump.reader.read(&dump.parts[5]).unwrap();
        assert_eq!(part.notes.len(), 8, "no rank's note is lost: {:?}", part.notes);
        let names: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "the manifest and one step: {names:?}");
    }
}

#[test]
fn folders_of_others_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = RunManifest::default();
    let refused = |root: &Path, manifest: &RunManifest| {
        DumpWriter::create(root, manifest, 0).map(drop).unwrap_err().to_string()
    };
    fs::write(folder.path().join("thesis.tex"), "mine").unwrap();
    assert!(refused(folder.path(), &manifest).contains("is not empty and not a probe dump"));
    let root = folder.path().join("dump");
    write(&root, CaptureTask::Sketch, 0, &|_| (), 0.0);
    assert!(refused(&folder.path().join("thesis.tex"), &manifest).contains("cannot write"));
    let before = contents(&root);
    let said = refused(&root, &manifest);
    assert!(
        said.contains("already holds a dump") && said.contains("such as ") && said.contains("dump-2"),
        "{said}"
    );
    assert_eq!(contents(&root), before, "nothing of the old dump changes");
}

/// Every file below a folder, with its bytes.
fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_run_goes_on_in_its_own_dump_but_not_over_a_step_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let manifest = RunManifest { run: "this one".into(), ..RunManifest::default() };
    let mut writer = DumpWriter::create(&root, &manifest, 0).unwrap();
    writer.begin_step(20).unwrap();
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
    let other = RunManifest { task: CaptureTask::Tensor, ..manifest.clone() };
    let said = DumpWriter::create(&root, &other, 0).unwrap_err().to_string();
    assert!(said.contains("another task or level"), "{said}");
    let mut writer = DumpWriter::create(&root, &manifest, 0).unwrap();
    assert_eq!(writer.recorded_steps(), [20]);
    assert!(writer.begin_step(20).unwrap_err().to_string().contains("was already recorded"));
    writer.begin_step(21).unwrap();
}

#[test]
fn ranks_join_a_run_that_is_alive_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let manifest = RunManifest { world_size: 2, ..RunManifest::default() };
    // A run of another node, which has begun; its process stands for the time that it lives.
    let first = DumpWriter::create(&root, &manifest, 0);
    let mut first = first.unwrap();
    first.begin_step(0).unwrap();
    prepare(&root, Existing::Keep, "--overwrite").unwrap();
    prepare(&root, Existing::Replace, "--overwrite").unwrap();
    assert!(root.join("step0").exists(), "a run that goes on is not removed");
    DumpWriter::create(&root, &manifest, 1).unwrap();
    let said = DumpWriter::create(&root, &manifest, 0).unwrap_err().to_string();
    assert!(said.contains("holds an earlier recording of rank 0"), "{said}");
    let alone = RunManifest::default();
    let said = DumpWriter::create_over(Existing::Replace, &root, &alone, 0).unwrap_err().to_string();
    assert!(said.contains("is in use by a run that is still recording"), "{said}");
}

#[test]
fn an_old_dump_makes_room_when_that_is_wanted_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    write(&root, CaptureTask::Tensor, 0, &|_| (), 0.0);
    write(&root.join("noise"), CaptureTask::Tensor, 0, &|_| (), 0.0);
    for place in ["step20/rank0/notes.txt", "step20/notes.txt", "notes.txt"] {
        fs::write(root.join(place), "mine").unwrap();
        let before = contents(&root);
        let said = prepare(&root, Existing::Replace, "--overwrite").unwrap_err().to_string();
        assert!(said.contains(&format!("{place}: is not part of a probe dump")), "{said}");
        assert_eq!(contents(&root), before);
        fs::remove_file(root.join(place)).unwrap();
    }
    let manifest = RunManifest::default();
    let mut writer = DumpWriter::create_over(Existing::Replace, &root, &manifest, 0).unwrap();
    assert!(!root.join("step20").exists() && !root.join("noise").exists());
    writer.begin_step(20).unwrap();
    drop(writer);
    fs::create_dir(folder.path().join("mine")).unwrap();
    fs::write(folder.path().join("mine/manifest.json"), "{\"name\": \"an extension\"}").unwrap();
    let said =
        prepare(&folder.path().join("mine"), Existing::Replace, "--overwrite").unwrap_err().to_string();
    assert!(said.contains("is not the manifest of a probe dump"), "{said}");
}

#[test]
fn a_run_that_recorded_nothing_leaves_its_folder_free() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let manifest = RunManifest { started: "yesterday".into(), ..RunManifest::default() };
    DumpWriter::create(&root, &manifest, 0).unwrap().close(&[]).unwrap();
    DumpWriter::create(&root, &RunManifest { started: "today".into(), ..manifest }, 0).unwrap();
    assert!(fs::read_to_string(root.join("manifest.json")).unwrap().contains("today"));
}

/// Body of the process that [`a_full_disk_is_an_error_and_what_was_written_stays`] starts with a limit on the size of files.
#[test]
#[ignore = "run by another test, under a limit"]
fn writes_until_the_disk_is_full() {
    let root = std::path::PathBuf::from(std::env::var_os("PROBE_TEST_ROOT").unwrap());
    let mut writer = DumpWriter::create(&root, &RunManifest::default(), 0).unwrap();
    writer.begin_step(1).unwrap();
    push_network(&mut writer, CaptureTask::Sketch, &|_| (), 0.0);
    writer.finish_step().unwrap();
    writer.begin_step(2).unwrap();
    let error = (0..10_000)
        .find_map(|index| {
            let name = format!("Functional.relu.{index}.forward");
            let bytes = [0_u8; 4096];
            let pushed = writer.push_tensor(&name, "torch.uint8", &[4096], &bytes);
            let pushed = pushed.and_then(|_| writer.push(&OpRecord { name, ..OpRecord::default() }));
            pushed.and_then(|()| if index % 50 == 49 { writer.flush() } else { Ok(()) }).err()
        })
        .expect("the limit is reached");
    assert!(error.to_string().starts_with("cannot write"), "{error}");
    let again = writer.push(&OpRecord::default()).unwrap_err().to_string();
    assert!(again.starts_with("capture stopped: cannot write"), "{again}");
    writer.abandon(&error.to_string()).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_what_was_written_stays() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    // A limit on the size of a file, in units of 1024 bytes, stands for the end of the disk.
    let status = Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "capture_folder::writes_until_the_disk_is_full"])
        .env("PROBE_TEST_ROOT", &root)
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
    let dump = probe::read::open(&root, probe::files::map::FileAccess::Read).unwrap();
    assert!(dump.faults[0].to_string().contains("the capture stopped before its end"), "{:?}", dump.faults);
    let [whole, broken] = dump.parts.as_slice() else { panic!("{:?}", dump.parts) };
    let whole = dump.reader.read(whole).unwrap();
    assert!(whole.faults.is_empty() && whole.ops.len() == 3, "{:?}", whole.faults);
    let broken = dump.reader.read(broken).unwrap();
    assert!(!broken.ops.is_empty());
    let fault = broken.faults[0].to_string();
    assert!(
        fault.contains("step2/rank0: incomplete") && fault.contains("capture stopped: cannot write"),
        "{fault}"
    );
}
