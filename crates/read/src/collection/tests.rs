//! Collections of golden files, and folders created by the tests.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use probe_dump::{DType, Scalar, TensorData, Value};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tensor_files").join(name)
}

fn rank(path: &Path) -> (Dump, Rank) {
    let dump = open(path, FileAccess::Map).unwrap();
    assert_eq!(dump.parts.len(), 1);
    let rank = dump.reader.read(&dump.parts[0]).unwrap();
    (dump, rank)
}

fn names(rank: &Rank) -> Vec<&str> {
    rank.ops.iter().map(|op| op.name.as_str()).collect()
}

fn load(rank: &Rank, name: &str) -> Result<TensorData, ReadError> {
    let op = rank.ops.iter().find(|op| op.name.as_str() == name).unwrap();
    rank.store.load(op.slots[0].value.tensor().unwrap().data.as_deref().unwrap())
}

#[test]
fn a_state_dict_is_one_op_a_tensor() {
    let (dump, rank) = rank(&golden("pt_state_dict.pt"));
    assert_eq!((dump.format, rank.task, dump.faults.len()), ("torch checkpoint", Task::Tensor, 0));
    assert_eq!(names(&rank)[..3], ["0.weight", "0.bias", "1.weight"]);
    assert!(rank.ops.iter().all(|op| op.slots.len() == 1 && &*op.slots[0].path == "value"));
    assert_eq!(load(&rank, "0.weight").unwrap().shape(), [2, 3]);
}

#[test]
fn scalars_and_tensors_that_cannot_load_stay_listed() {
    let (_, optimizer) = rank(&golden("pt_optimizer.pt"));
    let lr = optimizer.ops.iter().find(|op| op.name.as_str() == "param_groups.0.lr").unwrap();
    assert!(matches!(&lr.slots[0].value, Value::Scalar(Scalar::Number(_))));
    let (_, odd) = rank(&golden("pt_unsupported.pt"));
    assert!(load(&odd, "half").unwrap_err().to_string().contains("complex32"));
    assert!(load(&odd, "last").is_ok());
}

#[test]
fn a_bare_tensor_has_a_name_that_does_not_depend_on_the_file() {
    for file in ["pt_scalar.pt", "npy_f4.npy"] {
        assert_eq!(names(&rank(&golden(file)).1), ["tensor"]);
    }
}

#[test]
fn shards_are_found_by_index_and_without_it() {
    let expected = ["a.bias", "a.weight", "b.weight"];
    let folder = golden("sharded");
    for path in [folder.clone(), folder.join("model.safetensors.index.json")] {
        let (dump, rank) = rank(&path);
        assert_eq!(dump.format, "sharded checkpoint");
        let mut found = names(&rank);
        found.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(load(&rank, "b.weight").unwrap().dtype(), DType::Bf16);
    }
    let copy = tempfile::tempdir().unwrap();
    for shard in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        fs::copy(folder.join(shard), copy.path().join(shard)).unwrap();
    }
    let (dump, rank) = rank(copy.path());
    assert_eq!((dump.format, rank.ops.len()), ("folder of tensor files", 3));
}

#[test]
fn an_index_is_checked_against_its_shards() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    let shard = "model-00001-of-00002.safetensors";
    fs::copy(golden("sharded").join(shard), folder.path().join(shard)).unwrap();
    let map =
        format!(r#"{{"weight_map": {{"a.bias": "{shard}", "x": "{shard}", "b": "gone.safetensors"}}}}"#);
    fs::write(&index, map).unwrap();
    let (dump, rank) = rank(folder.path());
    assert_eq!(rank.ops.len(), 2);
    let faults: Vec<String> = dump.faults.iter().map(ToString::to_string).collect();
    assert!(faults.iter().any(|f| f.contains("gone.safetensors: the index names this file")), "{faults:?}");
    assert!(faults.iter().any(|f| f.contains("lacks 1 of the tensors") && f.contains("'x'")), "{faults:?}");
    for name in ["../x", "/x", "", "a\\b", "..", "c:x"] {
        fs::write(&index, serde_json::json!({"weight_map": {"a": name}}).to_string()).unwrap();
        let error = open(&index, FileAccess::Map).unwrap_err().to_string();
        assert!(error.contains("not the name of a file"), "{error}");
    }
    fs::write(&index, "{}").unwrap();
    assert!(open(&index, FileAccess::Map).unwrap_err().to_string().contains("weight_map"));
}

#[test]
fn one_bad_file_of_a_folder_leaves_the_others() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("npy_f4.npy"), folder.path().join("10.npy")).unwrap();
    fs::copy(golden("npy_f8.npy"), folder.path().join("2.npy")).unwrap();
    fs::write(folder.path().join("3.npy"), "garbage").unwrap();
    fs::write(folder.path().join("notes.txt"), "x").unwrap();
    assert!(folder_holds_tensors(folder.path()));
    let (dump, rank) = rank(folder.path());
    assert_eq!(names(&rank), ["2", "10"]);
    assert_eq!(dump.faults.len(), 1);
    assert!(dump.faults[0].to_string().contains("3.npy: is not a tensor file"), "{}", dump.faults[0]);
}

#[test]
fn equal_names_in_two_files_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.pt", "b.pt"] {
        fs::copy(golden("pt_shared.pt"), folder.path().join(name)).unwrap();
    }
    fs::copy(golden("npy_f4.npy"), folder.path().join("c.npy")).unwrap();
    let (_, rank) = rank(folder.path());
    assert_eq!(names(&rank), ["a.all", "a.tail", "a.pairs", "b.all", "b.tail", "b.pairs", "c"]);
    assert_eq!(load(&rank, "b.tail").unwrap().shape(), [3]);
}

#[test]
fn files_beyond_those_held_open_are_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let content = fs::read(golden("npy_scalar.npy")).unwrap();
    let count = probe_files::limits::MAX_HELD_FILES + 2;
    for at in 0..count {
        fs::write(folder.path().join(format!("{at}.npy")), &content).unwrap();
    }
    let (_, rank) = rank(folder.path());
    assert_eq!(rank.ops.len(), count);
    let last = (count - 1).to_string();
    assert!(load(&rank, &last).is_ok());
    fs::copy(golden("npy_f4.npy"), folder.path().join(format!("{last}.npy"))).unwrap();
    assert!(load(&rank, &last).unwrap_err().to_string().contains("has changed"));
}

#[test]
fn nothing_to_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!folder_holds_tensors(folder.path()));
    assert!(open(folder.path(), FileAccess::Map).unwrap_err().to_string().contains("no tensor files"));
    fs::write(folder.path().join("x.pt"), "").unwrap();
    assert!(open(folder.path(), FileAccess::Map).unwrap_err().to_string().contains("is empty"));
    assert!(open(&folder.path().join("none"), FileAccess::Map).is_err());
}
