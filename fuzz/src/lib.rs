//! Every fuzz target opens its bytes as a tensor file, and reads all that opens.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use probe_files::map::FileAccess;
use probe_read::cann::{Chunk, DumpFile};
use probe_read::tensor_file::{TensorFile, load_single_bytes, open_bytes};

/// Elements up to which a tensor is read to its last byte; expanded tensors may have billions.
const READ_ELEMENTS: usize = 1 << 16;

/// Reads everything; an error is a fine result, a panic is not.
pub fn read_all(name: &str, bytes: Vec<u8>) {
    let bytes = Arc::new(bytes);
    let path = Path::new(name);
    if let Ok(tensor) = load_single_bytes(path, bytes.clone()) {
        touch(&tensor);
    }
    let Ok(file) = open_bytes(path, bytes) else { return };
    for (index, entry) in file.entries().iter().enumerate() {
        match file.load(index) {
            Ok(tensor) => touch(&tensor),
            Err(error) => assert!(!error.to_string().contains(char::is_control), "{error:?} of {entry:?}"),
        }
    }
}

/// As [`read_all`], for a dump file of CANN; and as a piece of one, as its callback hands it over.
pub fn read_all_of_cann(bytes: &[u8]) {
    if let Ok(chunk) = Chunk::read(bytes) {
        assert!(!chunk.name.is_empty() && chunk.data.is_none_or(|data| data.len() < bytes.len()));
    }
    let Ok(file) = DumpFile::of_bytes(Path::new("fuzz"), Arc::new(bytes.to_vec())) else { return };
    for (index, entry) in file.entries().iter().enumerate() {
        match file.load(index) {
            Ok(tensor) => touch(&tensor),
            Err(error) => assert!(!error.to_string().contains(char::is_control), "{error:?} of {entry:?}"),
        }
    }
}

/// Reads a part of a dump of probe that holds these files, with its tensors.
pub fn read_all_of_part(files: &[(&str, &[u8])]) {
    let root = scratch();
    let folder = root.join("step0/rank0");
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).expect("a temporary file");
    }
    let Ok(dump) = probe_read::open(&root, FileAccess::Map) else { return };
    for key in &dump.parts {
        let Ok(part) = dump.reader.read(key) else { continue };
        let records = part.ops.iter().flat_map(|op| &op.slots).filter_map(|slot| slot.value.tensor());
        for tensor in records.filter_map(|record| part.store.load(record.data.as_deref()?).ok()) {
            touch(&tensor);
        }
    }
}

/// Makes a page of a result.
pub fn page_of(bytes: &[u8]) {
    let root = scratch();
    fs::create_dir_all(&root).expect("a temporary folder");
    let result = root.join("result.parquet");
    fs::write(&result, bytes).expect("a temporary file");
    let file = probe_report::StoredFile::open(&result);
    _ = file.and_then(|file| probe_report::html::from_result(&file, &root.join("result.html")));
}

/// A folder of this process.
fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("probe-fuzz-{}", std::process::id()))
}

fn touch(tensor: &probe_dump::TensorData) {
    let view = tensor.view();
    if view.len() <= READ_ELEMENTS {
        assert_eq!(view.to_bytes().len(), view.len() * view.dtype().size());
    }
}

/// A torch archive around a pickle program, with one storage of 64 bytes.
pub fn torch_archive(program: &[u8]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in [("x/data.pkl", program), ("x/data/0", &[1; 64])] {
        let size = u32::try_from(data.len()).expect("small input").to_le_bytes();
        let name_len = u16::try_from(name.len()).expect("short name").to_le_bytes();
        let offset = u32::try_from(out.len()).expect("small archive").to_le_bytes();
        let common = [&[20, 0][..], &[0; 12], &size, &size, &name_len, &[0, 0]].concat();
        directory.extend([b"PK\x01\x02\x14\x00", &common[..], &[0; 10], &offset, name.as_bytes()].concat());
        out.extend([b"PK\x03\x04", &common[..], name.as_bytes(), data].concat());
    }
    let start = u32::try_from(out.len()).expect("small archive").to_le_bytes();
    let length = u32::try_from(directory.len()).expect("small directory").to_le_bytes();
    out.extend(directory);
    out.extend([b"PK\x05\x06\0\0\0\0\x02\0\x02\0", &length[..], &start, &[0, 0]].concat());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_around_a_program_is_sound() {
        let file = open_bytes(Path::new("x.pt"), Arc::new(torch_archive(b"\x80\x02K\x07."))).expect("opens");
        assert_eq!(file.entries().len(), 1);
    }
}
