//! Golden files written by torch, `NumPy` and safetensors: see `testdata/tensor_files/make.py`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Entry, TensorFile, load_single, open};
use probe_dump::{TensorData, Value};
use probe_files::map::FileAccess;

#[derive(Deserialize)]
struct Expected {
    format: String,
    values: Vec<ExpectedValue>,
}

#[derive(Deserialize)]
struct ExpectedValue {
    name: String,
    /// Printed form of a value that is not a tensor.
    value: Option<String>,
    dtype: Option<String>,
    shape: Option<Vec<usize>>,
    bytes: Option<String>,
    error: Option<String>,
    #[serde(default)]
    requires_grad: bool,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tensor_files")
}

fn expected() -> BTreeMap<String, Expected> {
    serde_json::from_slice(&fs::read(folder().join("expected.json")).unwrap()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn check_tensor(label: &str, found: &TensorData, expected: &ExpectedValue) {
    assert_eq!(found.dtype().name(), expected.dtype.as_deref().unwrap(), "{label}");
    assert_eq!(found.shape(), expected.shape.as_deref().unwrap(), "{label}");
    assert_eq!(hex(&found.view().to_bytes()), expected.bytes.as_deref().unwrap(), "{label}");
}

fn check_entry(label: &str, file: &dyn TensorFile, index: usize, entry: &Entry, expected: &ExpectedValue) {
    assert_eq!(&*entry.name, expected.name, "{label}");
    match &entry.value {
        Value::Tensor(record) => {
            assert_eq!(record.dtype.to_string(), expected.dtype.as_deref().unwrap(), "{label}");
            let shape: Vec<u64> = expected.shape.iter().flatten().map(|&size| size as u64).collect();
            assert_eq!(*record.shape, shape, "{label}");
            assert_eq!(record.requires_grad.unwrap_or(false), expected.requires_grad, "{label}");
            match (file.load(index), &expected.error) {
                (Ok(tensor), None) => check_tensor(label, &tensor, expected),
                (Err(error), Some(part)) => {
                    let text = error.to_string();
                    assert!(text.contains(part) && !text.contains('\n'), "{label}: {text}");
                }
                (Ok(_), Some(part)) => panic!("{label}: loaded, should fail with '{part}'"),
                (Err(error), None) => panic!("{label}: {error}"),
            }
        }
        other => {
            let text = match other {
                Value::Scalar(scalar) => scalar.to_string(),
                Value::None => "none".into(),
                _ => "unsupported".into(),
            };
            assert_eq!(Some(text), expected.value, "{label}");
            assert!(file.load(index).is_err(), "{label}");
        }
    }
}

#[test]
fn golden_files_read_as_their_writers_meant_them() {
    for (name, expected) in expected() {
        for access in [FileAccess::Map, FileAccess::Read] {
            let file = open(&folder().join(&name), access).unwrap();
            assert_eq!(file.format(), expected.format, "{name}");
            let names = |entries: &[Entry]| entries.iter().map(|e| e.name.to_string()).collect::<Vec<_>>();
            assert_eq!(file.entries().len(), expected.values.len(), "{name}: {:?}", names(file.entries()));
            for (index, (entry, expected)) in file.entries().iter().zip(&expected.values).enumerate() {
                check_entry(&format!("{name} {}", entry.name), &*file, index, entry, expected);
            }
            assert!(file.load(expected.values.len()).is_err(), "{name}: there is no such tensor");
        }
    }
}

#[test]
fn single_tensors_load_without_listing() {
    for (name, expected) in expected() {
        let loaded = load_single(&folder().join(&name), FileAccess::Map);
        match &*expected.values {
            [only] if only.name.is_empty() && only.error.is_none() => {
                check_tensor(&name, &loaded.unwrap(), only);
            }
            _ => {
                let error = loaded.unwrap_err().to_string();
                assert!(!error.contains('\n'), "{error}");
            }
        }
    }
}

#[test]
fn every_golden_file_is_expected() {
    let expected = expected();
    for entry in fs::read_dir(folder()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let golden = entry.file_type().unwrap().is_file() && !matches!(&*name, "expected.json" | "make.py");
        assert!(!golden || expected.contains_key(&name), "{name} has no expectation");
    }
}
