//! Chunks from the runtime: interleaved, lost, too long, to a full disk, of more files than allowed.

use tempfile::{TempDir, tempdir};

use super::*;
use probe_read::tensor_file::TensorFile as _;

fn file() -> Vec<u8> {
    fs::read("../../testdata/cann/good/ND.matmul_padded.3.7.1700000000000000").unwrap()
}

/// Returns a folder, its part, and the receiver of its files.
fn begun() -> (TempDir, PathBuf, CannFiles) {
    let root = tempdir().unwrap();
    let mut files = CannFiles::new(root.path()).unwrap();
    let folder = files.begin(3, 1).unwrap();
    (root, folder, files)
}

const fn chunk<'a>(name: &'a str, data: &'a [u8], offset: Option<u64>, last: bool) -> Chunk<'a> {
    Chunk { name, last, offset, data: Some(data) }
}

/// Returns the file names in a folder, without folders.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let mut names: Vec<String> =
        files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn name(number: usize) -> String {
    format!("Add.add_{number}.{number}.7.1700000000000000")
}

#[test]
fn files_are_the_same_however_their_pieces_arrive() {
    let whole = file();
    for size in [1, 7, 64, whole.len()] {
        let (_root, folder, mut files) = begun();
        let below = folder.join("20241124120000").join("0");
        let path = |number| below.join(name(number)).to_str().unwrap().to_owned();
        let (a, b) = (path(1), path(2));
        let count = whole.chunks(size).count();
        for (at, piece) in whole.chunks(size).enumerate() {
            let last = at + 1 == count;
            // One by appending, the other by offset.
            for (name, offset) in [(&a, None), (&b, Some((at * size) as u64))] {
                let fate = files.receive(chunk(name, piece, offset, last)).unwrap();
                assert_eq!(fate, if last { Fate::Complete } else { Fate::Taken });
                assert_eq!(Path::new(name).exists(), last, "a file has its name when it is complete");
            }
        }
        assert_eq!(names(&below), [name(1), name(2)]);
        assert!(fs::read(a).unwrap() == whole && fs::read(b).unwrap() == whole);
        assert_eq!(files.unfinished().len(), 0);
    }
}

#[test]
fn a_file_without_its_last_piece_is_put_down_and_the_reader_says_what_is_missing() {
    let whole = file();
    let (_root, folder, mut files) = begun();
    assert_eq!(files.receive(chunk(&name(1), &whole[..whole.len() - 40], None, false)).unwrap(), Fate::Taken);
    assert_eq!((files.unfinished(), names(&folder).len()), (vec![&*name(1)], 1));
    assert!(cann::is_draft(&names(&folder)[0]));
    files.finish().unwrap();
    assert_eq!(names(&folder), [name(1)]);
    let cut = DumpFile::open(&folder.join(name(1)), FileAccess::Read).unwrap();
    assert!(cut.load(0).is_ok(), "the input has come");
    let error = cut.load(1).unwrap_err().to_string();
    assert!(error.contains("output.0: its bytes"), "{error}");
}

#[test]
fn a_piece_that_lies_or_leaves_a_gap_ends_its_file_and_no_other() {
    let whole = file();
    let (_root, folder, mut files) = begun();
    let (first, second) = (name(1), name(2));
    files.receive(chunk(&first, &whole[..100], None, false)).unwrap();
    files.receive(chunk(&second, &whole[..100], None, false)).unwrap();
    let lie = Chunk { data: None, ..chunk(&first, &[], None, false) };
    assert_eq!(files.receive(lie).unwrap(), Fate::Refused("has fewer bytes than its header states".into()));
    // Later data would end up at the wrong offset.
    assert_eq!(files.receive(chunk(&first, &whole[200..], None, true)).unwrap(), Fate::Ignored);
    let gap = files.receive(chunk(&second, &whole[101..], Some(101), true)).unwrap();
    assert_eq!(gap, Fate::Refused("is for byte 101 of a file with 100 bytes so far".into()));
    for name in [&first, &second] {
        assert_eq!(fs::read(folder.join(name)).unwrap(), whole[..100]);
    }
    assert_eq!((files.spoiled.len(), files.open.len()), (0, 0));
    // A last chunk of a file that is not a dump.
    let short = files.receive(chunk(&name(3), &whole[..20], None, true)).unwrap();
    assert!(matches!(&short, Fate::Damaged(why) if why.contains("the header should have")), "{short:?}");
    let huge = files.receive(chunk(&name(4), &[1], Some(0), false)).unwrap();
    assert_eq!(huge, Fate::Taken);
    let fourth = name(4);
    let far = chunk(&fourth, &[1], Some(u64::MAX), false);
    assert!(matches!(files.receive(far).unwrap(), Fate::Refused(_)));
}

#[test]
fn names_cannot_lead_out_of_the_dump() {
    let (root, folder, mut files) = begun();
    let whole = file();
    let resolved = root.path().canonicalize().unwrap();
    for name in ["..", "/", ".hidden.1.2.1700000000000000", "a\nb"] {
        let fate = files.receive(chunk(name, &whole, None, true)).unwrap();
        assert!(matches!(fate, Fate::Refused(_)), "{name}: {fate:?}");
    }
    let inside = format!("{}/../../x", folder.display());
    assert!(matches!(files.receive(chunk(&inside, &whole, None, true)).unwrap(), Fate::Refused(_)));
    // A path that is not below the dump: only the file name counts.
    let elsewhere = format!("/nowhere/at/all/{}", name(7));
    assert_eq!(files.receive(chunk(&elsewhere, &whole, None, true)).unwrap(), Fate::Complete);
    assert_eq!(names(&folder), [name(7)]);
    assert_eq!(names(&resolved), Vec::<String>::new());
    // Too long for a file system: a short name, and the list that the reader knows.
    let long = format!("Add.{}.3.7.1700000000000000", "x".repeat(400));
    assert_eq!(files.receive(chunk(&long, &whole, None, true)).unwrap(), Fate::Complete);
    let list = fs::read_to_string(folder.join("mapping.csv")).unwrap();
    let (short, full) = list.trim().split_once(',').unwrap();
    assert_eq!((full, fs::read(folder.join(short)).unwrap()), (&*long, whole));
}

#[test]
fn more_files_than_may_be_open_are_taken_all_the_same() {
    let whole = file();
    let (_root, folder, mut files) = begun();
    let count = MAX_CANN_OPEN_FILES + 100;
    for number in 0..count {
        files.receive(chunk(&name(number), &whole[..50], None, false)).unwrap();
        assert!(files.open.values().filter(|open| open.file.is_some()).count() <= MAX_CANN_HELD_FILES);
    }
    assert_eq!(files.unfinished().len(), MAX_CANN_OPEN_FILES);
    assert!(folder.join(name(0)).exists(), "the one that waited longest was put down");
    for number in 0..count {
        assert_eq!(files.receive(chunk(&name(number), &whole[50..], None, true)).unwrap(), Fate::Complete);
    }
    assert_eq!(names(&folder).len(), count);
    for number in 0..count {
        assert!(fs::read(folder.join(name(number))).unwrap() == whole, "{number}");
    }
}

/// Stands in for a full disk with a device that is always full.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_and_leaves_no_half_of_a_file() {
    let (root, folder, mut files) = begun();
    files.receive(chunk(&name(5), &file(), None, true)).unwrap();
    files.receive(chunk(&name(1), &[1; 10], None, false)).unwrap();
    let draft = folder.join(&names(&folder)[0]);
    fs::remove_file(&draft).unwrap();
    std::os::unix::fs::symlink("/dev/full", &draft).unwrap();
    // Forces it to be reopened.
    files.open.values_mut().for_each(|open| open.file = None);
    let error = files.receive(chunk(&name(1), &[1; 10], None, true)).unwrap_err().to_string();
    assert!(error.contains(&name(1)) && error.contains("No space left on device"), "{error}");
    assert_eq!(names(&folder), [name(5)]);
    files.give_up(&error);
    assert_eq!(names(&folder), [&*name(5), "stopped.txt"]);
    let dump = probe_read::open(root.path(), FileAccess::Read).unwrap();
    assert_eq!(dump.parts.len(), 1);
    let faults: Vec<String> = dump.faults.iter().map(ToString::to_string).collect();
    assert!(
        faults.iter().any(|fault| fault.contains("not all of this part was recorded: cannot write")),
        "{faults:?}"
    );
}

#[test]
fn only_a_dump_of_the_runtime_is_replaced() {
    let (root, folder, mut files) = begun();
    files.receive(chunk(&name(1), &file(), None, true)).unwrap();
    files.receive(chunk(&name(2), &[1], None, false)).unwrap();
    let taken = prepare_cann(root.path(), Existing::Keep, "--overwrite").unwrap_err().to_string();
    assert!(taken.contains("already holds a dump; record into another folder"), "{taken}");
    fs::write(folder.join("notes.txt"), "mine").unwrap();
    let foreign = prepare_cann(root.path(), Existing::Replace, "--overwrite").unwrap_err().to_string();
    assert!(foreign.contains("notes.txt: is not part of a CANN dump"), "{foreign}");
    assert!(folder.join(name(1)).exists());
    fs::remove_file(folder.join("notes.txt")).unwrap();
    prepare_cann(root.path(), Existing::Replace, "--overwrite").unwrap();
    assert_eq!(list(root.path()).unwrap().len(), 0);
    prepare_cann(&root.path().join("new"), Existing::Keep, "--overwrite").unwrap();
}
