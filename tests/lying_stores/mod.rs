//! Comparisons of dumps that lie in a store: the answer is that of the same files on a disk, and what a store does wrong is an error, never another answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use probe::compare::{CompareOptions, CompareRequest, Quiet, compare};
use probe::judge::{RunVerdict, Summary};
use probe::report::json;
use probe::store::{NoStores, Selection, Stage, StageOptions, StoreError};

use lying::{Lie, Lying, PAGE};

mod commands;
mod lying;
mod ranges;
mod shards;

/// Two dumps of msprobe with two ranks, and their page of a listing and more of copies: 24 ranks.
fn case() -> (tempfile::TempDir, Lying) {
    let faults = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/faults/gpt_rank1_linear_L1_statistics");
    let folder = tempfile::tempdir().unwrap();
    for side in ["baseline", "candidate"] {
        for rank in 0..2 * PAGE + 4 {
            let from = faults.join(side).join("step0").join(format!("rank{}", rank % 2));
            let to = folder.path().join(side).join("step0").join(format!("rank{rank}"));
            fs::create_dir_all(&to).unwrap();
            fs::copy(from.join("dump.json"), to.join("dump.json")).unwrap();
        }
    }
    let lying = Lying::holding(folder.path(), "runs");
    (folder, lying)
}

fn options(bytes: u64) -> StageOptions {
    StageOptions { scratch: None, bytes, pauses: vec![Duration::ZERO; 2] }
}

fn stage(lying: &Lying) -> Stage<'_> {
    Stage::new(lying, options(1 << 30))
}

/// The machine-readable report, without what a clock says and with the names of dumps on a disk.
fn report(summary: &Summary, store: &str, disk: &Path) -> String {
    let text = json::text(&Summary { seconds: 0.0, ..summary.clone() }).unwrap();
    text.replace(store, disk.to_str().unwrap())
}

fn compared(lying: &Lying, request: &CompareRequest, selection: &Selection) -> Result<Summary, String> {
    let mut stage = stage(lying);
    let mut side = |name: &str| {
        stage
            .dump(Path::new(&format!("s3://bucket/runs/{name}")), selection)
            .map_err(|error| error.to_string())
    };
    let (baseline, candidate) = (side("baseline")?, side("candidate")?);
    let options = request.options(stage.copies()).unwrap();
    let compared = compare(&baseline, &candidate, &options, &Quiet, &mut |_| Ok(()));
    compared.map_err(|error| error.to_string())
}

fn on_disk(folder: &Path, options: &CompareOptions) -> Summary {
    let side = |name: &str| folder.join(name);
    compare(&side("baseline"), &side("candidate"), options, &Quiet, &mut |_| Ok(())).unwrap()
}

#[test]
fn the_answer_is_that_of_the_files_on_a_disk() {
    let (folder, lying) = case();
    for lie in [Lie::None, Lie::CutsShort(2), Lie::BreaksOff(2), Lie::Overloaded(2)] {
        lying.lies(lie);
        let found = compared(&lying, &CompareRequest::default(), &Selection::default()).unwrap();
        assert_eq!(found.verdict, RunVerdict::Diverged);
        assert_eq!(found.baseline.path, "s3://bucket/runs/baseline");
        let single = on_disk(folder.path(), &CompareOptions::default());
        assert_eq!(
            report(&found, "s3://bucket/runs", folder.path()),
            report(&single, "s3://bucket/runs", folder.path()),
            "{lie:?}"
        );
    }
    let most = lying.0.most.load(Ordering::SeqCst);
    assert!((2..=16).contains(&most), "{most} requests at a time");
}

#[test]
fn only_what_is_selected_is_copied_and_the_answer_is_the_same() {
    let (folder, lying) = case();
    let request = CompareRequest { ranks: Some("3,7".parse().unwrap()), ..CompareRequest::default() };
    let selection = Selection::of(request.steps.as_ref(), request.ranks.as_ref());
    let found = compared(&lying, &request, &selection).unwrap();
    let single = on_disk(folder.path(), &request.options(&probe::files::Copies::default()).unwrap());
    assert_eq!(
        report(&found, "s3://bucket/runs", folder.path()),
        report(&single, "s3://bucket/runs", folder.path())
    );
    let mut read = lying.0.read.lock().unwrap().clone();
    read.sort();
    let keys =
        ["baseline/step0/rank3", "baseline/step0/rank7", "candidate/step0/rank3", "candidate/step0/rank7"];
    assert_eq!(read, keys.map(|key| format!("runs/{key}/dump.json")));
}

#[test]
fn what_a_store_does_wrong_is_an_error_that_names_the_object() {
    let (_folder, lying) = case();
    for (lie, at, message) in [
        (Lie::CutsShort(9), "/dump.json", "the response ended after "),
        (Lie::BreaksOff(9), "/dump.json", "the response broke off after "),
        (Lie::Overloaded(9), "", "503 Slow Down; tried several times, try again later"),
        (Lie::GoesOn, "/dump.json", "requested bytes arrived; the store cannot be trusted"),
        (Lie::Grows, "/dump.json", "; something still writes it, or the store cannot be trusted"),
        (Lie::Changes, "/dump.json", "changed while it was copied; wait until nothing writes it"),
        (Lie::Elsewhere, "/dump.json", "arrived; the store cannot be trusted"),
        (Lie::Claims(1_000_000), "/dump.json", "the response ended after "),
        (Lie::Claims(1 << 40), "", "bytes to copy, 1073741824 are left of the 1073741824 allowed"),
        (Lie::Claims(u64::MAX), "", "bytes to copy, 1073741824 are left"),
        (Lie::LosesPage, "", "its listing changed, from 14 objects to "),
        (Lie::LosesPageOnce, "", "its listing changed, from 14 objects to 24; wait until"),
        (Lie::Escapes, "", "whose key \"runs/baseline/../../etc/passwd\" has a part \"..\"; rename it"),
        (Lie::Forgets, "/dump.json", "was listed, but is no longer there"),
        (Lie::Forbidden, "", "403 Forbidden: AccessDenied"),
    ] {
        let (_again, fresh) =
            if lie == Lie::Forgets { case() } else { (tempfile::tempdir().unwrap(), lying.clone()) };
        fresh.lies(lie);
        let error = compared(&fresh, &CompareRequest::default(), &Selection::default()).unwrap_err();
        assert!(
            error.starts_with("s3://bucket/runs/baseline") && error.contains(message),
            "{lie:?}: {error}"
        );
        assert_eq!(error.contains("/dump.json: "), !at.is_empty(), "{lie:?}: {error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_store_that_hides_the_end_of_every_object_makes_the_answer_incomplete() {
    let (_folder, lying) = case();
    lying.lies(Lie::Claims(1000));
    let found = compared(&lying, &CompareRequest::default(), &Selection::default()).unwrap();
    assert_eq!((found.verdict, found.incomplete.len()), (RunVerdict::Incomplete, 48));
    let reason = &found.incomplete[0].reason;
    assert!(reason.starts_with("s3://bucket/runs/baseline/step0/rank0/dump.json: ends early"), "{reason}");
}

#[test]
fn copies_go_with_the_command_and_never_pass_their_budget() {
    let (folder, lying) = case();
    let place = tempfile::tempdir().unwrap();
    let size = fs::metadata(folder.path().join("baseline/step0/rank0/dump.json")).unwrap().len()
        + fs::metadata(folder.path().join("baseline/step0/rank1/dump.json")).unwrap().len();
    let ranks = Selection { ranks: "0-1".parse().unwrap(), ..Selection::default() };
    for (bytes, enough) in [(size, true), (size - 1, false)] {
        let options = StageOptions { scratch: Some(place.path().into()), ..options(bytes) };
        let mut stage = Stage::new(&lying, options);
        let copied = stage.dump(Path::new("s3://bucket/runs/baseline"), &ranks);
        assert_eq!(copied.is_ok(), enough);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        if let Err(error) = copied {
            assert!(matches!(error, StoreError::Budget { bytes, .. } if bytes == size), "{error}");
        }
        drop(stage);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
    let mut stage = Stage::new(&lying, options(1));
    for (typed, message) in [
        ("s3://bucket/runs/none", "no such object, and nothing below it"),
        ("s3://bucket/run", "no such object, and nothing below it"),
    ] {
        let error = stage.dump(Path::new(typed), &Selection::default()).unwrap_err().to_string();
        assert_eq!(error, format!("{typed}: {message}"));
    }
    // Paths of this machine are none of its business.
    assert_eq!(stage.dump(Path::new("gpu_dump"), &Selection::default()).unwrap(), Path::new("gpu_dump"));
    assert_eq!(stage.file(Path::new("file:///data/a")).unwrap(), Path::new("/data/a"));
}

#[test]
fn a_build_without_stores_says_how_to_get_one_that_has_them() {
    let mut stage = Stage::new(&NoStores, StageOptions::default());
    for typed in ["s3://bucket/run", "gs://bucket/run", "az://bucket/run"] {
        let error = stage.dump(Path::new(typed), &Selection::default()).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!(
                "{typed}: this build of probe cannot read object stores; build probe-stores"
            )),
            "{error}"
        );
    }
}

#[test]
fn one_file_comes_with_what_belongs_to_it_and_parts_with_the_manifest_of_their_dump() {
    let (_folder, lying) = case();
    let add = |key: &str, bytes: &[u8]| {
        lying.0.objects.lock().unwrap().insert(key.into(), bytes.to_vec());
    };
    add("w/model.safetensors", b"abc");
    add("w/other.safetensors", b"abcd");
    add("d/manifest.json", b"{}");
    add("d/step0/rank0/ops.parquet", b"x");
    add("d/step0/", b"");
    add("d/step0/rank1/ops.parquet", b"y");
    let copied = |typed: &str| {
        let mut stage = stage(&lying);
        let name = stage.dump(Path::new(typed), &Selection::default()).unwrap();
        let mut files = Vec::new();
        let mut open = vec![stage.copies().place(Path::new("s3://bucket"))];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.path().is_dir() {
                    open.push(entry.path());
                } else {
                    files.push(stage.copies().name(&entry.path()).to_str().unwrap().to_owned());
                }
            }
        }
        files.sort();
        assert_eq!(name, PathBuf::from(typed.trim_end_matches('/')));
        files.join(" ").replace("s3://bucket/", "")
    };
    assert_eq!(copied("s3://bucket/w/model.safetensors"), "w/model.safetensors");
    assert_eq!(copied("s3://bucket/w/"), "w/model.safetensors w/other.safetensors");
    assert_eq!(copied("s3://bucket/d/step0/rank0/ops.parquet"), "d/manifest.json d/step0/rank0/ops.parquet");
    assert_eq!(copied("s3://bucket/d/step0/rank1"), "d/manifest.json d/step0/rank1/ops.parquet");
    assert_eq!(
        copied("s3://bucket/d"),
        "d/manifest.json d/step0/rank0/ops.parquet d/step0/rank1/ops.parquet"
    );
}

#[test]
fn what_is_written_is_put_and_looked_at() {
    let lying = Lying::default();
    let mut first = stage(&lying);
    let name = first.output(Path::new("s3://bucket/out/run")).unwrap();
    let files = ["b", "a"].map(|file| first.copies().place(&name.join(file)));
    for file in &files {
        fs::write(file, "some text").unwrap();
    }
    let names = first.deliver(&files).unwrap();
    assert_eq!(names, [PathBuf::from("s3://bucket/out/run/b"), PathBuf::from("s3://bucket/out/run/a")]);
    assert_eq!(*lying.0.changed.lock().unwrap(), ["out/run/b", "out/run/a"]);
    lying.lies(Lie::PutsHalf);
    let error = first.deliver(&files).unwrap_err().to_string();
    assert_eq!(error, "s3://bucket/out/run/b: 9 bytes were uploaded, but it has 4; upload it again");
    lying.lies(Lie::Forbidden);
    let error = stage(&lying).output(Path::new("s3://bucket/out")).unwrap_err().to_string();
    assert_eq!(error, "s3://bucket/out: 403 Forbidden: AccessDenied");
}
