//! Dump files written by `testdata/make/cann.py` with another protobuf encoder, and the same bytes corrupted in every
//! way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{DumpFile, find_parts, open, recognises};
use crate::ReadError;
use crate::tensor_file::TensorFile;
use probe_dump::{Rank, Value};
use probe_files::map::FileAccess;

/// Expected tensor.
#[derive(Debug, Deserialize)]
struct Expected {
    dtype: String,
    shape: Vec<u64>,
    bytes: String,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

fn read(path: &Path, access: FileAccess) -> Rank {
    let dump = open(path, find_parts(path).unwrap(), access);
    assert_eq!((dump.parts.len(), dump.faults.len()), (1, 0));
    dump.reader.read(&dump.parts[0]).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn every_type_and_layout_becomes_the_tensor_that_was_dumped() {
    let text = fs::read_to_string(folder("cann/expected.json")).unwrap();
    let expected: BTreeMap<String, BTreeMap<String, Expected>> = serde_json::from_str(&text).unwrap();
    for access in [FileAccess::Map, FileAccess::Read] {
        let rank = read(&folder("cann/good"), access);
        assert_eq!(rank.faults.len(), 0, "{:?}", rank.faults);
        let mut seen = 0;
        for (file, slots) in &expected {
            let (op_type, rest) = file.split_once('.').unwrap();
            let op_name = rest.split_once('.').unwrap().0;
            let named = |op: &&probe_dump::Op| {
                op.parent.as_deref() == Some(op_name)
                    || (op.parent.as_deref() == Some("MatMul_1") && op_type == "ND")
            };
            let op = rank.ops.iter().find(|op| op.name.stem() == format!("Kernel.{op_type}") && named(op));
            let op = op.unwrap_or_else(|| panic!("{file}"));
            for (path, expected) in slots {
                let slot = op.slots.iter().find(|slot| *slot.path == **path).unwrap();
                let record = slot.value.tensor().unwrap();
                assert_eq!(
                    (record.dtype.to_string(), &*record.shape),
                    (expected.dtype.clone(), &*expected.shape),
                    "{file} {path}"
                );
                let data = rank.store.load(record.data.as_deref().unwrap()).unwrap();
                let (found, wanted) = (hex(&data.view().to_bytes()), &expected.bytes);
                if expected.dtype == "hifloat8" {
                    // All NaNs are equivalent.
                    assert_eq!(
                        found.replace("0000c0ff", "0000c07f"),
                        wanted.replace("0000c0ff", "0000c07f"),
                        "{file} {path}"
                    );
                } else {
                    assert_eq!(found, *wanted, "{file} {path}");
                }
                seen += 1;
            }
        }
        assert!(seen > 45, "{seen}");
    }
}

#[test]
fn ops_are_numbered_by_stream_and_listed_by_time() {
    let rank = read(&folder("cann/candidate/step1"), FileAccess::Map);
    let names: Vec<&str> = rank.ops.iter().map(|op| op.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "Kernel.MatMulV2.0.forward",
            "Kernel.Add.0.forward",
            "Kernel.MatMulV2.1.forward",
            "Kernel.Add.1.forward",
            "Kernel.Cast.0.forward",
            "Kernel.Cast.1.forward"
        ]
    );
    assert_eq!((rank.key.step, rank.key.rank.number()), (1, 0));
    assert_eq!(rank.ops[3].parent.as_deref(), Some("add_1"));
}

#[test]
fn overflows_are_told_with_the_op_that_they_belong_to() {
    let rank = read(&folder("cann/overflow"), FileAccess::Map);
    assert_eq!(rank.ops.len(), 1);
    assert_eq!(rank.key.rank.number(), 2);
    assert_eq!(rank.ops[0].note.said(), Some("overflow (AI Core)"));
    let [first, vector, cpu, sdma, old] = &rank.notes[..] else { panic!("{:?}", rank.notes) };
    assert!(
        first.starts_with("overflow in Kernel.Mul.0.forward: AI Core: model_id 1, stream_id 7, task_id 21"),
        "{first}"
    );
    assert!(first.contains("pc_start 0x12c0") && first.contains("status 0x10, status_1 0x0"), "{first}");
    assert!(
        vector.starts_with("overflow in an op that was not dumped (stream 7, task 99): vector core"),
        "{vector}"
    );
    assert!(cpu.contains("AI CPU") && sdma.contains("src_addr 0xa0"), "{cpu} {sdma}");
    assert!(old.contains("kernel_code 5, block_idx 1, status 0x8"), "{old}");
}

#[test]
fn buffers_and_names_of_every_form_are_read() {
    let rank = read(&folder("cann/good"), FileAccess::Map);
    let op = |name: &str| rank.ops.iter().find(|op| op.parent.as_deref() == Some(name)).unwrap();
    assert_eq!(
        op("nine_fields").note.said(),
        Some("L1 buffer of 64 bytes, not compared; workspace of 3, 1 bytes, not compared")
    );
    assert!(op("four_fields").note.is_empty());
    assert!(recognises(&folder("cann/good")) && recognises(&folder("cann")));
    for other in ["gpu_dump", "faults", "native", "tensor_files", "packs"] {
        assert!(!recognises(&folder(other)), "{other}");
    }
}

#[test]
fn absent_arguments_are_no_tensors() {
    // An input of size 0 without a shape: tag, length, type.
    let mut bytes = 4_u64.to_le_bytes().to_vec();
    bytes.extend([0x22, 0x02, 0x08, 0x01]);
    let file = DumpFile::of_bytes(Path::new("a"), Arc::new(bytes)).unwrap();
    assert_eq!(file.entries()[0].value, Value::None);
    assert!(file.load(0).unwrap_err().to_string().contains("input.0: was not given"));
}

/// Every damaged file with part of its error message, on opening or at the first tensor that cannot be loaded.
const CASES: &[(&str, &str)] = &[
    ("control_characters", "damaged header: byte 16: wire type 3 of field 1 is not in use"),
    ("edge_chip", "is a dump of an edge chip"),
    ("empty", "0 bytes are not a dump of an operator"),
    ("field_zero", "damaged header: byte 8: 0 is not the number of a field"),
    (
        "fractal_z_groups",
        "stored as FRACTAL_Z [2, 2, 16, 16] of 4 groups, which does not follow from its shape [8, 4, 1, 1]",
    ),
    ("group_end", "wire type 4 of field 1 is not in use"),
    ("group_start", "wire type 3 of field 1 is not in use"),
    (
        "hd5_does_not_follow",
        "stored as NC1HWC0 [1, 1, 2, 2, 16], which does not follow from its shape [1, 3, 9, 9]",
    ),
    ("header_beyond_file", "the header should have 1000 bytes, but 3 follow"),
    ("header_cut", "bytes, but 32 follow; the file is cut short"),
    ("header_huge", "the header should have 18446744073709551615 bytes, but 3 follow"),
    ("length_beyond_message", "damaged header: byte 8: a field of 127 bytes in a message with 2 left"),
    ("length_huge", "damaged header: byte 8: a field of 18446744073709551615 bytes"),
    ("long_name", "a name of more than 4096 bytes"),
    ("many_dimensions", "a shape of more than 64 dimensions"),
    ("many_tensors", "more than 100000 tensors"),
    ("nested_beyond_message", "byte 10: a field of 9 bytes in a message with 2 left"),
    ("nz_block_of_zero", "stored as FRACTAL_NZ [0, 1, 16, 0], which does not follow from its shape [0, 0]"),
    (
        "nz_does_not_follow",
        "stored as FRACTAL_NZ [1, 1, 16, 16], which does not follow from its shape [3, 40]",
    ),
    ("only_length", "8 bytes are not a dump of an operator"),
    ("payload_missing", "input.0: its bytes"),
    ("payload_short", "output.0: its bytes"),
    ("seven_bytes", "7 bytes are not a dump of an operator"),
    ("shape_beyond_payload", "input.0: 600 elements of float32 need 2400 bytes, its payload has 24"),
    ("shape_overflow", "has more elements than can be addressed"),
    ("shape_overflow_empty", "has more elements than can be addressed"),
    ("sizes_overflow", "add up to more than any file can hold"),
    ("type_without_decoder", "input.0: elements of type float4_e2m1 are not decoded"),
    ("varint_eleven_bytes", "a number has more than ten bytes"),
    ("varint_open", "a number is cut off at the end of its message"),
    ("varint_too_wide", "a number has more than 64 bits"),
    ("wire_type_six", "wire type 6 of field 1 is not in use"),
];

/// Time limit per file, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens a file and loads all of it; returns the first error, including unknown layouts.
fn read_all(path: &Path, access: FileAccess) -> Result<(), ReadError> {
    let file = DumpFile::open(path, access)?;
    for (index, entry) in file.entries().iter().enumerate() {
        let Some(record) = entry.value.tensor() else { continue };
        file.load(index)?;
        if record.layout.is_some() {
            return Err(ReadError::format(path, record.note.clone().unwrap_or_default()));
        }
    }
    Ok(())
}

fn case(name: &str) -> PathBuf {
    folder("hostile/cann").join(format!("{name}.op.1.7.1700000000000000"))
}

#[test]
fn every_damaged_file_is_refused_in_one_line() {
    for (name, part) in CASES {
        for access in [FileAccess::Map, FileAccess::Read] {
            let start = Instant::now();
            let text = read_all(&case(name), access).expect_err(name).to_string();
            assert!(text.contains(part), "{name}: {text}");
            assert!(text.starts_with(&*case(name).to_string_lossy()), "{text}");
            assert!(!text.contains(char::is_control), "{text:?}");
            assert!(start.elapsed() < PATIENCE, "{name} took {:?}", start.elapsed());
        }
    }
    for entry in fs::read_dir(folder("hostile/cann")).unwrap() {
        let path = entry.unwrap().path();
        assert!(CASES.iter().any(|(name, _)| case(name) == path), "{} has no case", path.display());
    }
}

#[test]
fn one_bad_tensor_or_file_leaves_the_others() {
    let file = DumpFile::open(&case("payload_short"), FileAccess::Map).unwrap();
    assert_eq!(file.load(0).unwrap().shape(), [3, 2]);
    assert!(file.load(1).is_err());
    let rank = read(&folder("hostile/cann"), FileAccess::Map);
    assert!(
        rank.ops.len() >= 8 && rank.faults.len() > 15,
        "{} ops, {} faults",
        rank.ops.len(),
        rank.faults.len()
    );
    assert!(rank.faults.iter().all(|fault| !fault.to_string().contains(char::is_control)));
}

#[test]
fn no_change_of_a_byte_and_no_cut_does_harm() {
    for name in [
        "ND.matmul_padded.3.7.1700000000000000",
        "Hd5.nchw.1.8.1700000000000300",
        "Nz.case_4.4.8.1700000000000204",
    ] {
        let whole = fs::read(folder("cann/good").join(name)).unwrap();
        let touch = |bytes: Vec<u8>| {
            let Ok(file) = DumpFile::of_bytes(Path::new("a"), Arc::new(bytes)) else { return };
            for index in 0..file.entries().len() {
                if let Ok(data) = file.load(index) {
                    assert_eq!(data.view().to_bytes().len(), data.view().len() * data.dtype().size());
                }
            }
        };
        // All of the header, and the start of the payload.
        for at in 0..whole.len().min(200) {
            for value in [0, 1, 0x7F, 0x80, 0xFF, whole[at].wrapping_add(1), whole[at] ^ 0x20] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                touch(bytes);
            }
            touch(whole[..at].to_vec());
        }
    }
}
