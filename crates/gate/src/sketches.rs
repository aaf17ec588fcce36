//! Layer 2 of a baseline: the tables of a dump, with the sketches of every op, in one file named by its hash.
//!
//! A zip file with `manifest.json` and `step<N>/rank<R>/{ops,stacks}.parquet`. It is unpacked into a temporary folder for reading, within size
//! limits; a member with any other name is refused, so that no member name can lead elsewhere.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::GateError;
use probe_dump::native::{CaptureTask, MANIFEST, OPS, RunManifest, STACKS, numbered};
use probe_dump::{Dump, NATIVE};
use probe_files::limits;
use probe_files::map::{FileAccess, Source};
use probe_files::{Draft, ReportError};
use probe_read::archive::Zipped;
use probe_read::{self as read, ReadError};

/// Suffix of the file's name.
const ENDING: &str = "sketches.zip";

/// Number of hash digits in the file's name.
const DIGITS: usize = 16;

/// Packs the tables of the dump at `path` into `folder`, under a name that begins with `name`. Returns the file name.
///
/// # Errors
/// [`GateError`] when the dump is not probe's own, or has data instead of sketches.
pub fn pack(path: &Path, folder: &Path, name: &str) -> Result<String, GateError> {
    let dump = read::open(path, FileAccess::Read)?;
    if dump.format != NATIVE || !path.join(MANIFEST).is_file() {
        let message = "sketches are packed from the root folder of a dump of probe; leave out --sketches for other dumps";
        return Err(ReadError::usage(path, message).into());
    }
    let manifest: Option<RunManifest> =
        fs::read(path.join(MANIFEST)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if manifest.is_some_and(|manifest| manifest.task == CaptureTask::Tensor) {
        let message =
            "a dump of task tensor holds data, which is too large for a baseline; capture with --task sketch";
        return Err(ReadError::usage(path, message).into());
    }
    let io = |path: &Path, error: std::io::Error| GateError::Read(ReadError::io(path, error));
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    // No timestamps, so that the same tables give the same bytes. Sketches do not compress.
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut members = vec![PathBuf::from(MANIFEST)];
    for part in &dump.parts {
        let rank = PathBuf::from(format!("step{}", part.step)).join(format!("rank{}", part.rank.number()));
        members.extend([OPS, STACKS].map(|table| rank.join(table)));
    }
    for member in members {
        let file = path.join(&member);
        if !file.is_file() {
            // A part whose capture did not finish cannot be a baseline.
            if file.ends_with(OPS) {
                return Err(ReadError::usage(
                    file,
                    "is missing: the capture did not finish this step; capture it again",
                )
                .into());
            }
            continue;
        }
        let bytes = fs::read(&file).map_err(|error| io(&file, error))?;
        let name = member.to_string_lossy().replace('\\', "/");
        writer.start_file(name, options).map_err(|error| io(&file, error.into()))?;
        writer.write_all(&bytes).map_err(|error| io(&file, error))?;
    }
    let bytes = writer.finish().map_err(|error| io(path, error.into()))?.into_inner();
    let file = format!("{name}.{}.{ENDING}", hash(&bytes));
    let mut draft = Draft::create(&folder.join(&file))?;
    draft.file().write_all(&bytes).map_err(|error| ReportError::io(folder.join(&file), error))?;
    draft.place()?;
    Ok(file)
}

/// A dump of sketches, and the temporary folder that holds it while it is read.
#[derive(Debug)]
pub struct Unpacked {
    pub(super) dump: Dump,
    folder: tempfile::TempDir,
}

impl Unpacked {
    /// Returns the path of the dump, which is removed when this value is dropped.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Unpacks the file at `path`, whose content must match the hash in its name.
///
/// # Errors
/// [`GateError`] when it does not match, or cannot be read.
pub fn open(path: &Path, access: FileAccess) -> Result<Unpacked, GateError> {
    let wrong = |message: String| GateError::Read(ReadError::format(path, message));
    let size = fs::metadata(path).map_err(|source| ReadError::io(path, source))?.len();
    if size > limits::MAX_SKETCHES_BYTES {
        let limit = limits::MAX_SKETCHES_BYTES;
        return Err(ReadError::Limit {
            path: path.into(),
            what: "the size of a file of sketches",
            found: size,
            limit,
        }
        .into());
    }
    let bytes = fs::read(path).map_err(|source| ReadError::io(path, source))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let named = name.strip_suffix(&format!(".{ENDING}")).and_then(|rest| rest.rsplit('.').next());
    if named != Some(&*hash(&bytes)) {
        return Err(wrong(
            "its content does not match its name; fetch it again, or save the baseline again".into(),
        ));
    }
    drop(bytes);
    let archive = Zipped::open(Source::open(path, FileAccess::Read)?, limits::MAX_PACK_MEMBERS)?;
    archive.check_names()?;
    let folder = tempfile::tempdir().map_err(|source| ReadError::io(std::env::temp_dir(), source))?;
    let mut left = limits::MAX_SKETCHES_BYTES;
    for member in archive.members() {
        let name = String::from_utf8_lossy(member.name_raw()).into_owned();
        if !is_member(&name) {
            return Err(wrong(format!("member {name:?} does not belong in a file of sketches")));
        }
        let content =
            archive.content(member, left).map_err(|reason| wrong(format!("member {name:?} {reason}")))?;
        left = left.saturating_sub(content.len() as u64);
        let target = folder.path().join(&name);
        let written =
            target.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&target, content));
        written.map_err(|source| ReadError::io(&target, source))?;
    }
    Ok(Unpacked { dump: read::open(folder.path(), access)?, folder })
}

/// Returns true for `manifest.json`, and for `step<N>/rank<R>/` followed by the name of a table.
fn is_member(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    match *parts.as_slice() {
        [MANIFEST] => true,
        [step, rank, OPS | STACKS] => numbered(step, "step").is_some() && numbered(rank, "rank").is_some(),
        _ => false,
    }
}

fn hash(bytes: &[u8]) -> String {
    super::hexadecimal(&Sha256::digest(bytes), DIGITS / 2)
}
