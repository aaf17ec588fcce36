//! Small tensors, which are stored in the table itself.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, BooleanArray, RecordBatch, StringArray, UInt64Array};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::{manifest, op, read_only_part, slot};
use crate::{CaptureTask, DumpWriter, SlotValue, TensorFacts};
use probe_dump::native::{OPS, rank_folder};
use probe_dump::{ALL_DTYPES, Content, DType, SlotSide, Task, TensorRef, contiguous_strides};
use probe_files::map::FileAccess;
use probe_files::seal;
use probe_measure::observe;
use probe_read::open;

/// Returns a tensor of arbitrary bits, stored verbatim.
fn small(dtype: DType, shape: &[usize], seed: u64) -> (TensorFacts, Vec<u8>) {
    let count: usize = shape.iter().product();
    let mut state = seed;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // All bits set: NaN in floats of every width.
        if state >> 60 == 0 { 0xff } else { state.to_be_bytes()[0] }
    })
    .take(count * dtype.size())
    .collect();
    let strides = contiguous_strides(shape);
    let tensor = TensorRef::strided(&bytes, dtype, shape, &strides, 0).unwrap();
    let facts = TensorFacts {
        dtype: format!("torch.{dtype}").into(),
        shape: shape.iter().map(|&size| size as u64).collect(),
        observation: Some(Arc::new(observe(tensor, Content::HASH))),
        bytes: Some(bytes.as_slice().into()),
        ..TensorFacts::default()
    };
    (facts, bytes)
}

#[test]
fn small_tensors_come_back_to_the_bit_and_are_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let mut writer = DumpWriter::create(&root, &manifest(CaptureTask::Sketch), 0).unwrap();
    writer.begin_step(3).unwrap();
    let mut wanted = Vec::new();
    for (index, dtype) in ALL_DTYPES.into_iter().enumerate() {
        for (shape, seed) in [(&[][..], 1), (&[3, 0], 2), (&[7, 5], 3)] {
            let (facts, bytes) = small(dtype, shape, seed + 10 * index as u64);
            let slots = ["input.0", "output.0"]
                .map(|path| slot(path, SlotSide::Input, SlotValue::Tensor(facts.clone())));
            writer.push(&op(&format!("A.a.{}.forward", wanted.len()), slots.into())).unwrap();
            wanted.push((dtype, bytes));
        }
    }
    writer.flush().unwrap();
    let check = || {
        let rank = read_only_part(&root);
        assert_eq!((rank.ops.len(), rank.task), (wanted.len(), Task::Sketch));
        // Read twice.
        for _ in 0..2 {
            for (op, (dtype, bytes)) in rank.ops.iter().zip(&wanted) {
                for slot in &op.slots {
                    let record = slot.value.tensor().unwrap();
                    assert!(record.sketch.is_none() && record.checksum.is_some());
                    let data = rank.store.load(record.data.as_deref().unwrap()).unwrap();
                    assert_eq!(
                        (data.dtype(), data.view().to_bytes()),
                        (*dtype, bytes.clone()),
                        "{}",
                        op.name
                    );
                }
            }
            rank.store.let_go();
        }
    };
    // From the journal of a capture in progress, and from the table.
    check();
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
    check();
    fs::remove_file(root.join("manifest.json")).unwrap();
    check();
    let table = fs::read(rank_folder(&root, 3, 0).join(OPS)).unwrap();
    let times = |bytes: &[u8]| table.windows(bytes.len()).filter(|window| *window == bytes).count();
    assert!(wanted.iter().filter(|(_, bytes)| bytes.len() >= 35).all(|(_, bytes)| times(bytes) == 1));
}

#[test]
fn small_tensors_that_were_let_go_are_read_again_with_their_row_group() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let mut writer = DumpWriter::create(&root, &manifest(CaptureTask::Sketch), 0).unwrap();
    writer.begin_step(3).unwrap();
    // Three row groups; every second op reads the output of the previous one.
    let wanted: Vec<_> = (0..6000_u64).map(|number| small(DType::F32, &[2, 2], number / 2)).collect();
    for (number, (facts, _)) in wanted.iter().enumerate() {
        let slots = ["input.0", "output.0"].map(|path| {
            let facts = TensorFacts { identity: Some(number as u64 / 2), ..facts.clone() };
            slot(path, SlotSide::Input, SlotValue::Tensor(facts))
        });
        writer.push(&op(&format!("A.a.{number}.forward"), slots.into())).unwrap();
    }
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
    let rank = read_only_part(&root);
    let load = |op: usize| {
        let key = rank.ops[op].slots[0].value.tensor().unwrap().data.clone().unwrap();
        rank.store.load(&key).map(|data| data.view().to_bytes())
    };
    let held = load(17).unwrap();
    rank.store.let_go();
    for op in [0, 17, 2047, 2048, 5999, 4095, 4096, 1] {
        assert_eq!(load(op).unwrap(), wanted[op].1, "{op}");
    }
    assert_eq!(held, wanted[17].1);
    let table = rank_folder(&root, 3, 0).join(OPS);
    rank.store.let_go();
    fs::remove_file(&table).unwrap();
    let fault = load(0).unwrap_err().to_string();
    assert!(fault.contains("ops.parquet"), "{fault}");
}

#[test]
fn damage_to_a_small_tensor_is_seen_and_names_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dump");
    let mut writer = DumpWriter::create(&root, &manifest(CaptureTask::Sketch), 0).unwrap();
    writer.begin_step(3).unwrap();
    let (facts, bytes) = small(DType::F32, &[50], 9);
    let slots = vec![slot("output.0", SlotSide::Output, SlotValue::Tensor(facts))];
    writer.push(&op("A.a.0.forward", slots)).unwrap();
    writer.finish_step().unwrap();
    writer.close(&[]).unwrap();
    let path = rank_folder(&root, 3, 0).join(OPS);
    let mut table = fs::read(&path).unwrap();
    let at = table.windows(bytes.len()).position(|window| window == bytes).unwrap();
    table[at + 17] ^= 4;
    // A table without a seal, as of an earlier version: neither its key nor its value is known.
    for word in [seal::KEY, "xxh3_128:"] {
        let at = table.windows(word.len()).rposition(|window| window == word.as_bytes()).unwrap();
        table[at] = b'-';
    }
    fs::write(&path, table).unwrap();
    let rank = read_only_part(&root);
    let key = rank.ops[0].slots[0].value.tensor().unwrap().data.clone().unwrap();
    let fault = rank.store.load(&key).unwrap_err().to_string();
    assert!(
        fault.contains("ops.parquet: tensor \"row 0\"") && fault.contains("do not match the recorded hash"),
        "{fault}"
    );
}

#[test]
fn small_tensors_take_no_more_memory_than_the_table_has_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(OPS);
    // One long value repeated in every row, at a few bits each.
    let rows = 5000;
    let value = vec![7_u8; 100_000];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("order", Arc::new(UInt64Array::from_iter_values(0..rows))),
        ("op", Arc::new(StringArray::from_iter_values((0..rows).map(|_| "A.a.0.forward")))),
        ("recomputed", Arc::new((0..rows).map(|_| Some(false)).collect::<BooleanArray>())),
        ("raised", Arc::new((0..rows).map(|_| Some(false)).collect::<BooleanArray>())),
        ("slot", Arc::new(StringArray::from_iter_values((0..rows).map(|_| "output.0")))),
        ("kind", Arc::new(StringArray::from_iter_values((0..rows).map(|_| "tensor")))),
        ("shape", Arc::new(StringArray::from_iter_values((0..rows).map(|_| "[100000]")))),
        ("data", Arc::new(BinaryArray::from_iter_values((0..rows).map(|_| &value)))),
    ];
    let write = |path: &Path, columns: Vec<(&str, ArrayRef)>| {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder().set_dictionary_page_size_limit(1 << 30).build();
        let file = fs::File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    write(&path, columns.clone());
    assert!(fs::metadata(&path).unwrap().len() < 1_000_000);
    let dump = open(&path, FileAccess::Read).unwrap();
    let fault = dump.reader.read(&dump.parts[0]).unwrap_err().to_string();
    assert!(fault.contains("its small tensors have more bytes than the file"), "{fault}");
    // Rows that refer to another row for their bytes are not counted, and are rejected when their group is read.
    let of = |row| (row > 0).then_some(0_u64);
    let more: Vec<(&str, ArrayRef)> = vec![
        ("dtype", Arc::new(StringArray::from_iter_values((0..rows).map(|_| "torch.uint8")))),
        ("same_as", Arc::new((0..rows).map(of).collect::<UInt64Array>())),
    ];
    write(&path, columns.into_iter().chain(more).collect());
    let dump = open(&path, FileAccess::Read).unwrap();
    let rank = dump.reader.read(&dump.parts[0]).unwrap();
    let fault = rank.store.load("row 0").unwrap_err().to_string();
    assert!(fault.contains("its small tensors have more bytes than the file"), "{fault}");
}
