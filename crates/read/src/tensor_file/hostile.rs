//! Hostile and damaged files, written by `testdata/hostile/make.py`: each must produce a one-line error with the file name
//! and the problem, without harm, delay or large allocations.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{load_single, open};
use crate::ReadError;
use probe_files::map::FileAccess;

/// Every file with part of its error message, on opening or at the first tensor that cannot be loaded.
const CASES: &[(&str, &str)] = &[
    ("ckpt_absurd_length.ckpt", "byte 0: a field of 4611686018427387904 bytes in a message with 26 left"),
    ("ckpt_absurd_shape.ckpt", "8 bytes for [4611686018427387904, 4611686018427387904] elements of float32"),
    ("ckpt_control_characters.ckpt", "8 bytes for [3] elements of float32"),
    ("ckpt_inner_length.ckpt", "byte 5: a field of 1099511627776 bytes in a message with 9 left"),
    ("ckpt_many_dimensions.ckpt", "'w' has more than 64 dimensions"),
    ("ckpt_not_utf8.ckpt", "byte 4: the name of a parameter is not UTF-8"),
    ("ckpt_short.ckpt", "bytes in a message with"),
    ("ckpt_table.ckpt", "'w' has no tensor; hash tables of parameters are not read"),
    ("ckpt_trailing.ckpt", "byte 28: a value of the checkpoint was expected"),
    ("ckpt_unknown_element.ckpt", "element type Int4 is not supported"),
    ("ckpt_wrong_size.ckpt", "8 bytes for [3] elements of float32"),
    ("npy_absurd_shape.npy", "the shape [4611686018427387904, 8] has more elements than can be addressed"),
    ("npy_code.npy", "should have a quoted name at byte 10"),
    ("npy_header_4gib.npy", "header should be 4294967295 bytes long, but only 65 bytes follow"),
    ("npy_header_beyond_file.npy", "header should be 65535 bytes long, but only 2 bytes follow"),
    ("npy_huge_size.npy", "a size this machine can address at byte 71"),
    ("npy_magic_only.npy", "ends inside the npy preamble"),
    ("npy_many_dimensions.npy", "100 dimensions, at most 64"),
    ("npy_negative_shape.npy", "should have a size at byte 51"),
    ("npy_trailing.npy", "float32 of shape [1] needs 4 bytes of data, 8 are there"),
    ("npy_truncated.npy", "float32 of shape [3] needs 12 bytes of data, 8 are there"),
    ("npy_version9.npy", "npy format version [9, 0] is unknown"),
    ("npz_bomb_declared.npz", "expansion of a compressed array (a bomb"),
    ("npz_bomb_hidden.npz", "array 'a.npy': cannot be expanded: File is larger than its declared"),
    ("npz_broken_header.npz", "array 'a.npy': does not begin with the npy magic number"),
    ("npz_broken_stream.npz", "array 'a.npy': cannot be expanded"),
    ("npz_checksum.npz", "array 'a.npy': cannot be expanded: Invalid checksum"),
    ("npz_short.npz", "array 'a.npy': should expand to 4000 bytes but gives 77"),
    ("pickle_call_storage.pt", "byte 23: the program calls a class that torch checkpoints only name"),
    ("pickle_control_characters.pt", "class \\u{1b}[31mevil.na\\rme is not a tensor type"),
    ("pickle_cycle.pt", "depth of nesting is 201, more than the limit of 200"),
    ("pickle_deep.pt", "depth of nesting is 201, more than the limit of 200"),
    ("pickle_empty_stack.pt", "byte 2: the program takes a value from an empty stack"),
    ("pickle_eval.pt", "byte 2: class builtins.eval is not a tensor type"),
    ("pickle_extension.pt", "byte 2: opcode 0x82 is not used by torch checkpoints"),
    ("pickle_instance.pt", "byte 3: opcode 0x69 is not used by torch checkpoints"),
    ("pickle_long_text.pt", "asks for 2147483647 bytes, 4 are left"),
    ("pickle_memo_bomb.pt", "with those of shared lists repeated, is 4625, more than the limit of 4624"),
    ("pickle_memo_gap.pt", "makes more values than the limit"),
    ("pickle_negative_size.pt", "the shape or strides of a tensor contain -2"),
    ("pickle_nested_type.pt", "not described by the arguments that torch writes"),
    ("pickle_no_stop.pt", "asks for 1 bytes, 0 are left"),
    ("pickle_os_system.pt", "data.pkl, byte 2: class os.system is not a tensor type"),
    ("pickle_protocol0.pt", "data.pkl, byte 0: class os.system is not a tensor type"),
    ("pickle_stack_global.pt", "class builtins.print is not a tensor type"),
    ("pickle_text_storage.pt", "a persistent id is not a tuple"),
    ("pickle_trailing.pt", "12 bytes follow the end of the program"),
    ("pt_absurd_count.pt", "should hold 4611686018427387904 elements of float32 but has 8 bytes"),
    ("pt_absurd_expansion.pt", "the shape [1125899906842624] repeats 2 stored elements beyond the limit"),
    ("pt_absurd_size.pt", "the shape [4611686018427387904] repeats 2 stored elements beyond the limit"),
    ("pt_bare_pickle.pt", "is a bare pickle"),
    ("pt_byteorder.pt", "byte order 'middle'"),
    ("pt_deflated.pt", "archive member 'x/data.pkl' is compressed"),
    ("pt_empty.pt", "is empty"),
    ("pt_key_leaves_folder.pt", "the archive has no member 'x/data/../../../etc/passwd'"),
    ("pt_legacy.pt", "in the format that torch wrote before 1.6; load it with torch"),
    ("pt_missing_storage.pt", "the archive has no member 'x/data/7'"),
    ("pt_not_a_zip.pt", "is not a tensor file"),
    ("pt_outside_storage.pt", "storage 'x/data/0': the layout needs 4004 bytes, the storage has 8"),
    ("pt_tar.pt", "is a tar archive"),
    ("pt_truncated.pt", "has no end record; the file is cut short"),
    ("pt_two_programs.pt", "more than one data.pkl"),
    ("pt_wrong_storage_size.pt", "storage 'x/data/0' should hold 3 elements of float32 but has 8 bytes"),
    ("pt_zeros.pt", "begins with zeros"),
    ("st_absurd_offset.safetensors", "tensor 'a' begins at byte 18446744073709551612"),
    (
        "st_absurd_shape.safetensors",
        "tensor 'a' has a shape, [4611686018427387904, 4611686018427387904], of more",
    ),
    ("st_beyond_file.safetensors", "describes 4000 bytes of tensors, 4 are there"),
    (
        "st_control_characters.safetensors",
        "tensor 'a\\n\\u{1b}[31mb' needs 4 bytes as float32 of shape [1], but has 8",
    ),
    ("st_deep.safetensors", "the header is not what safetensors writes"),
    ("st_duplicate.safetensors", "two tensors named 'a'"),
    ("st_gap.safetensors", "tensor 'b' begins at byte 8 of the data, leaving a gap after byte 4"),
    ("st_header_beyond_file.safetensors", "the header should have 1152921504606846976 bytes, but 2 follow"),
    ("st_many_dimensions.safetensors", "tensor 'a' has 100 dimensions, at most 64"),
    ("st_negative.safetensors", "tensor 'a': invalid value: integer `-1`"),
    ("st_not_json.safetensors", "the header is not what safetensors writes"),
    ("st_not_utf8.safetensors", "the header is not UTF-8 at byte 2"),
    (
        "st_overlap.safetensors",
        "tensor 'b' begins at byte 2 of the data, inside the tensor before it, which ends at 4",
    ),
    ("st_reversed.safetensors", "tensor 'a' ends at byte 0 of the data, before it begins at 4"),
    ("st_short.safetensors", "has 3 bytes, too few for a safetensors file"),
    ("st_trailing.safetensors", "describes 4 bytes of tensors, 5 are there"),
    ("st_wrong_size.safetensors", "tensor 'a' needs 8 bytes as float32 of shape [2], but has 4"),
    ("zip_absolute.npz", "member name '/etc/a.npy' points outside the archive"),
    ("zip_directory_elsewhere.pt", "directory that does not end where its end record begins"),
    ("zip_dotdot.npz", "member name '../../a.npy' points outside the archive"),
    ("zip_dotdot.pt", "member name 'x/../../y' points outside the archive"),
    ("zip_drive.npz", "member name 'C:\\a.npy' points outside the archive"),
    ("zip_duplicate.npz", "archive repeats names of members (1 of them)"),
    ("zip_encrypted.npz", "member 'a.npy' is encrypted; save the file without a password"),
    ("zip_encrypted.pt", "member 'x/data/0' is encrypted; save the file without a password"),
    ("zip_foreign.pt", "neither data.pkl (torch) nor only .npy members (npz)"),
    ("zip_local_differs.pt", "member 'x/data.pkl' is described differently in the archive's directory"),
    ("zip_member_beyond_end.pt", "member 'x/data/0' reaches beyond the end of the archive's data"),
    ("zip_overlap.pt", "member 'x/data/0' overlaps another member"),
    ("zip_too_many_members.pt", "damaged directory"),
    ("zip_two_truths.pt", "two end records that contradict each other"),
    ("zip_wide_end_elsewhere.pt", "64-bit end record should be at bytes 9223372036854775808"),
    ("zip_wide_without_numbers.pt", "member 'x/data/0' reaches beyond the end"),
];

/// Time limit per file of this folder, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/hostile")
}

/// Opens a file and loads all of it; returns the first error.
fn read_all(path: &Path, access: FileAccess) -> Result<(), ReadError> {
    let file = open(path, access)?;
    for (index, entry) in file.entries().iter().enumerate() {
        if entry.value.tensor().is_some() {
            file.load(index)?;
        }
    }
    Ok(())
}

#[test]
fn every_file_is_refused_in_one_line() {
    for (name, part) in CASES {
        let path = folder().join(name);
        for access in [FileAccess::Map, FileAccess::Read] {
            let start = Instant::now();
            let text = read_all(&path, access).expect_err(name).to_string();
            assert!(text.contains(part), "{text}");
            assert!(text.starts_with(&*path.to_string_lossy()), "{text}");
            assert!(!text.contains(char::is_control), "{text:?}");
            let text = load_single(&path, access).expect_err(name).to_string();
            assert!(!text.contains(char::is_control), "{text:?}");
            assert!(start.elapsed() < PATIENCE, "{name} took {:?}", start.elapsed());
        }
    }
}

#[test]
fn programs_that_want_to_act_are_told_that_they_did_not() {
    for name in ["pickle_os_system.pt", "pickle_eval.pt", "pickle_stack_global.pt", "pickle_protocol0.pt"] {
        let text = read_all(&folder().join(name), FileAccess::Map).unwrap_err().to_string();
        assert!(text.ends_with("nothing in this file was executed"), "{text}");
    }
}

#[test]
fn every_file_has_a_case() {
    for entry in fs::read_dir(folder()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let known = name == "make.py" || entry.file_type().unwrap().is_dir();
        assert!(known || CASES.iter().any(|(case, _)| *case == name), "{name} has no case");
    }
}

#[test]
fn one_bad_tensor_leaves_the_others_of_its_file() {
    let file = open(&folder().join("npz_broken_header.npz"), FileAccess::Map).unwrap();
    assert_eq!(file.entries().len(), 2);
    assert!(file.load(0).is_err());
    assert_eq!(file.load(1).unwrap().shape(), [2]);
}

#[cfg(unix)]
#[test]
fn files_without_permission_give_the_reason_of_the_system() {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser may read everything.
    if fs::File::open(file.path()).is_err() {
        assert!(matches!(open(file.path(), FileAccess::Map), Err(ReadError::Io { .. })));
    }
}
