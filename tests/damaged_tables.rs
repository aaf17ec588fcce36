//! Tables with a changed byte. Whatever decodes Parquet or Arrow returns, with an error or without; what a seal covers is
//! an error.

use std::fs;
use std::path::Path;

use crate::support::command::{Compare, probe};
use crate::support::testdata;
use crate::support::three_ops::{push_network, write};
use probe::capture::{CaptureTask, DumpWriter, RunManifest};
use probe::files::map::FileAccess;
use probe::judge::Summary;
use probe::read::ReadError;
use probe::report::{Extent, Format, ReportSet, StoredFile, html::from_result};

/// Calls `reads` with the file changed in one byte: in some 400 places all over it, and in 400 of its last 2,000 bytes,
/// where Parquet has its metadata.
fn with_each_change(path: &Path, mut reads: impl FnMut(usize)) {
    let sound = fs::read(path).unwrap();
    let metadata = sound.len().saturating_sub(2000);
    let places = (0..metadata).step_by((metadata / 400).max(1)).chain((metadata..sound.len()).step_by(5));
    for place in places {
        let mut changed = sound.clone();
        changed[place] ^= 1 << (place % 8);
        fs::write(path, changed).unwrap();
        reads(place);
    }
    fs::write(path, sound).unwrap();
}

/// Reads every part and tensor of a dump. Returns the first error.
fn read_all(dump: &Path) -> Result<(), ReadError> {
    let dump = probe::read::open(dump, FileAccess::Map)?;
    for key in &dump.parts {
        let mut part = dump.reader.read(key)?;
        let slots = part.ops.iter().flat_map(|op| &op.slots).filter_map(|slot| slot.value.tensor());
        for tensor in slots {
            tensor.data.as_deref().map_or(Ok(()), |key| part.store.load(key).map(drop))?;
        }
        part.faults.pop().map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// Copies the dump of a program before there were seals.
fn unsealed(to: &Path) {
    let from = testdata("native/version3/step7/rank0");
    fs::create_dir_all(to.join("step7/rank0")).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join("step7/rank0").join(entry.file_name())).unwrap();
    }
}

#[test]
fn tables_without_a_seal_are_read_or_refused() {
    let place = tempfile::tempdir().unwrap();
    unsealed(place.path());
    read_all(place.path()).unwrap();
    // The stacks are a small file.
    for (name, least) in [("ops.parquet", 100), ("stacks.parquet", 20)] {
        let mut refused = 0;
        with_each_change(&place.path().join("step7/rank0").join(name), |_| {
            refused += u32::from(read_all(place.path()).is_err());
        });
        assert!(refused > least, "{name}: {refused} refused");
    }
}

#[test]
fn a_changed_byte_of_a_sealed_table_is_told_wherever_it_is() {
    let place = tempfile::tempdir().unwrap();
    write(place.path(), CaptureTask::Sketch, 0, &|_| (), 0.0);
    read_all(place.path()).unwrap();
    for name in ["ops.parquet", "stacks.parquet"] {
        let path = place.path().join("step20/rank0").join(name);
        with_each_change(&path, |byte| {
            let error = read_all(place.path()).expect_err(&format!("{name}, byte {byte}")).to_string();
            assert!(error.contains(name) && error.contains("capture it again"), "byte {byte}: {error}");
        });
        read_all(place.path()).unwrap();
    }
}

#[test]
fn a_dump_without_seals_gets_them_when_it_is_converted() {
    let place = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| place.path().join(name));
    unsealed(&old);
    let (code, _, said) = probe(&["convert", old.to_str().unwrap(), "-o", new.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    let table = new.join("step7/rank0/ops.parquet");
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&table, bytes).unwrap();
    let error = read_all(&new).unwrap_err().to_string();
    assert!(error.contains("ops.parquet") && error.contains("capture it again"), "{error}");
}

#[test]
fn a_step_with_a_changed_table_is_not_compared() {
    let place = tempfile::tempdir().unwrap();
    let [sound, changed] = ["sound", "changed"].map(|name| place.path().join(name));
    for root in [&sound, &changed] {
        let other = root.with_extension("rank1");
        write(root, CaptureTask::Sketch, 0, &|_| (), 0.0);
        write(&other, CaptureTask::Sketch, 1, &|_| (), 0.0);
        fs::rename(other.join("step20/rank1"), root.join("step20/rank1")).unwrap();
    }
    // A byte of a sketch decodes, to another number.
    let table = changed.join("step20/rank0/ops.parquet");
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes).unwrap();
    let parts =
        ["step 20 rank 0: ", "ops.parquet: has changed since it was written", "copy it or capture it again"];
    Compare::new(&sound, &changed).run().incomplete(&parts);
}

#[test]
fn journals_are_read_or_refused() {
    let place = tempfile::tempdir().unwrap();
    let mut writer = DumpWriter::create(place.path(), &RunManifest::default(), 0).unwrap();
    writer.begin_step(20).unwrap();
    push_network(&mut writer, CaptureTask::Sketch, &|_| (), 0.0);
    // As after kill -9.
    writer.flush().unwrap();
    std::mem::forget(writer);
    for name in ["journal.arrows", "stacks.arrows"] {
        with_each_change(&place.path().join("step20/rank0").join(name), |_| _ = read_all(place.path()));
    }
    let error = read_all(place.path()).unwrap_err().to_string();
    assert!(error.contains("incomplete, 3 ops"), "{error}");
}

/// Gives the words of a seal others, as in a file of an earlier version.
fn remove_seal(table: &Path) {
    let mut bytes = fs::read(table).unwrap();
    for word in [&b"probe_seal"[..], b"xxh3_128:"] {
        let place = bytes.windows(word.len()).rposition(|window| window == word).unwrap();
        bytes[place] = b'_';
    }
    fs::write(table, bytes).unwrap();
}

#[test]
fn results_are_read_or_refused() {
    let place = tempfile::tempdir().unwrap();
    let native = |version: &str| testdata(&format!("native/{version}"));
    let run = Compare::new(native("version3"), native("version2")).args("--format parquet").run();
    let result = place.path().join("result.parquet");
    fs::copy(run.reports().join("result.parquet"), &result).unwrap();
    let page = place.path().join("page.html");
    let made = || StoredFile::open(&result).and_then(|file| from_result(&file, &page));
    made().unwrap();
    with_each_change(&result, |byte| {
        let error = made().expect_err(&format!("byte {byte}")).to_string();
        assert!(error.contains("has changed since it was written"), "byte {byte}: {error}");
    });
    remove_seal(&result);
    made().unwrap();
    let mut refused = 0;
    with_each_change(&result, |_| {
        refused += u32::from(made().is_err());
        // As the shards of a run.
        let formats = [Format::Xlsx, Format::Html];
        let set = ReportSet::create(place.path(), &formats, Extent::Selection).unwrap();
        _ = set.finish_stored(std::slice::from_ref(&result), &Summary::empty());
    });
    assert!(refused > 100, "{refused} refused");
}
