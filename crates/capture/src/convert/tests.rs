//! Dumps of each kind are converted and read back: same ops, same bits.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Conversion, ConvertDraft, ConvertError, ConvertOptions, Target, convert};
use probe_dump::{Dump, Rank};
use probe_files::map::FileAccess;
use probe_read as read;

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

fn to(target: Target, path: &Path, output: &Path) -> Result<Conversion, ConvertError> {
    let draft = ConvertDraft::create(output)?;
    let counts = convert(path, &draft, &ConvertOptions { target, ..ConvertOptions::default() })?;
    draft.place()?;
    Ok(counts)
}

fn parts(dump: &Dump) -> Vec<Rank> {
    dump.parts.iter().map(|key| dump.reader.read(key).unwrap()).collect()
}

/// Returns names of tensors with shape and bytes, in order.
fn tensors(rank: &Rank) -> Vec<(String, Vec<u64>, Vec<u8>)> {
    let slots = rank.ops.iter().flat_map(|op| op.slots.iter().map(move |slot| (op, slot)));
    slots
        .filter_map(|(op, slot)| {
            let record = slot.value.tensor()?;
            let data = rank.store.load(record.data.as_ref()?).ok()?;
            Some((super::tensor_name(op.name.as_str(), slot), record.shape.to_vec(), data.view().to_bytes()))
        })
        .collect()
}

#[test]
fn native_dumps_hold_the_same_ops_and_bits() {
    let place = tempfile::tempdir().unwrap();
    for name in ["cann/candidate", "gpu_dump", "cann/good"] {
        let output = place.path().join(name.replace('/', "_"));
        let counts = to(Target::Native, &testdata(name), &output).unwrap();
        assert_eq!(counts.left_out, [""; 0], "{name}");
        let (before, after) = (
            parts(&read::open(&testdata(name), FileAccess::Map).unwrap()),
            parts(&read::open(&output, FileAccess::Map).unwrap()),
        );
        assert_eq!((before.len(), counts.parts), (after.len(), after.len() as u64));
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(
                (before.key.step, before.key.rank.number()),
                (after.key.step, after.key.rank.number())
            );
            let names = |rank: &Rank| rank.ops.iter().map(|op| op.name.to_string()).collect::<Vec<_>>();
            assert_eq!(names(before), names(after));
            let found = tensors(before);
            assert!(!found.is_empty());
            assert_eq!(found, tensors(after), "{name}");
        }
    }
}

#[test]
fn tensor_files_hold_the_same_bits_under_safe_names() {
    let place = tempfile::tempdir().unwrap();
    let source = &parts(&read::open(&testdata("cann/good"), FileAccess::Map).unwrap())[0];
    let mut expected = tensors(source);
    expected.sort();
    let safetensors = place.path().join("safetensors");
    to(Target::Safetensors, &testdata("cann/good"), &safetensors).unwrap();
    let part = read::open(&safetensors.join("step0/rank0"), FileAccess::Map).unwrap();
    let mut found = tensors(&parts(&part)[0]);
    found.sort();
    // One type is missing in the format and is stored as bytes.
    let bytes = |all: &[(String, Vec<u64>, Vec<u8>)]| {
        all.iter().map(|(name, _, bytes)| (name.clone(), bytes.clone())).collect::<Vec<_>>()
    };
    assert_eq!(bytes(&found), bytes(&expected));

    let npy = place.path().join("npy");
    let counts = to(Target::Npy, &testdata("cann/good"), &npy).unwrap();
    assert_eq!(counts.widened, 6, "bfloat16 twice, four floats of 8 bits");
    let part = read::open(&npy.join("step0/rank0"), FileAccess::Map).unwrap();
    let found = tensors(&parts(&part)[0]);
    assert_eq!(found.len(), expected.len());
    let mut same = 0;
    for (name, shape, bytes) in &expected {
        let (_, found_shape, found_bytes) = found.iter().find(|found| found.0 == *name).unwrap();
        assert_eq!(found_shape, shape, "{name}");
        same += u64::from(found_bytes == bytes);
    }
    // Two of the widened ones have a type unknown elsewhere and are widened on reading.
    assert_eq!(same + counts.widened - 2, expected.len() as u64);
}

#[test]
fn a_used_folder_is_refused_and_a_failure_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let used = place.path().join("used");
    fs::create_dir(&used).unwrap();
    fs::write(used.join("mine"), "").unwrap();
    let error = to(Target::Npy, &testdata("gpu_dump"), &used).unwrap_err().to_string();
    assert_eq!(error, format!("{}: is not empty; name a folder that does not exist yet", used.display()));
    let error = to(Target::Npy, &testdata("gpu_dump"), &used.join("mine")).unwrap_err().to_string();
    assert!(error.ends_with("is a file; name a folder that does not exist yet"), "{error}");
    // Statistics alone yield no tensors; a path without a dump yields nothing at all.
    for (source, message) in [("edge/statistics/baseline", "holds no tensor data"), ("packs", "no dump here")]
    {
        let error = to(Target::Npy, &testdata(source), &place.path().join("new")).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["used"]);
    let empty = place.path().join("empty");
    fs::create_dir(&empty).unwrap();
    to(Target::Npy, &testdata("gpu_dump"), &empty).unwrap();
    assert!(empty.join("step0/rank0/names.json").is_file());
}
