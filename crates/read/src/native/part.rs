//! Reads one part: its table, or the journal of an interrupted capture.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::rows::{OpsBuilder, Parsed};
use super::small::{Held, SmallTensors};
use super::store::NativeStore;
use super::{PartFolder, journal, stacks, table};
use crate::ReadError;
use crate::tensor_file::printable;
use probe_dump::native::columns::Column;
use probe_dump::native::{JOURNAL, OPS, RunManifest, STOPPED};
use probe_dump::{Framework, Op, Rank, SketchVersion, Task};
use probe_files::late;
use probe_files::map::FileAccess;

/// Reads the part.
///
/// # Errors
/// [`ReadError`] when none of it can be used.
pub(super) fn read(
    part: &PartFolder,
    manifest: Option<&RunManifest>,
    access: FileAccess,
) -> Result<Rank, ReadError> {
    let folder = &*part.folder;
    let mut faults = Vec::new();
    let mut notes = Vec::new();
    let table = folder.join(OPS);
    let finished = table.is_file();
    let source = if finished { table } else { folder.join(JOURNAL) };
    let size = source.metadata().map_err(|error| ReadError::io(&source, error))?.len();
    let sketch_version = manifest.map(|manifest| manifest.sketch_version);
    // A journal has no row groups for finding them again, and a copied table handed over may be gone when it is needed again.
    let keeps = !finished || late::may_be(folder);
    let mut builder = OpsBuilder::new(&source, size, sketch_version, keeps);
    let end = if finished {
        let names: Vec<&str> = Column::ALL.iter().map(|column| column.name()).collect();
        table::read(&source, &names, |batch| builder.add(batch))?;
        None
    } else {
        Some(journal::read(&source, access, |batch| builder.add(batch))?)
    };
    let Parsed { mut ops, places, tensors, elements } = builder.finish();
    let reason = stop_reason(folder);
    let cut = reason.is_some() || !matches!(end, None | Some(journal::End::Marked));
    if cut {
        faults.push(cut_short(end.as_ref(), reason.as_deref(), ops.len(), folder, &source));
    }
    if matches!(end, Some(journal::End::Marked)) {
        notes.push("read from its journal: the capture ended before the table was written".into());
    }
    let stacks = stacks::read(folder, access).unwrap_or_else(|fault| {
        faults.push(fault);
        Vec::new()
    });
    // A stack that was not written, or was lost, becomes none.
    for op in &mut ops {
        op.stack = op.stack.filter(|&stack| (stack as usize) < stacks.len());
    }
    notes.extend(manifest.into_iter().flat_map(notes_of));
    let held = if keeps { Held::All(elements) } else { Held::Groups(Mutex::default()) };
    Ok(Rank {
        key: part.key.clone(),
        framework: manifest
            .and_then(|manifest| Framework::parse(&manifest.framework.name))
            .unwrap_or_default(),
        task: manifest.map_or_else(|| task_of(&ops, &places), |manifest| manifest.task.into()),
        level: manifest.map_or("", |manifest| manifest.level.name()).into(),
        ops,
        stacks,
        store: Arc::new(NativeStore::new(source, access, places, SmallTensors::new(tensors, held))),
        faults,
        notes,
        cut,
    })
}

/// Returns the fault of a part that does not hold its whole step.
fn cut_short(
    end: Option<&journal::End>,
    reason: Option<&str>,
    ops: usize,
    folder: &Path,
    source: &Path,
) -> ReadError {
    let incomplete = incomplete(ops);
    let stopped = reason.map(|reason| format!("; {reason}")).unwrap_or_default();
    match end {
        Some(journal::End::Damaged(damage)) => {
            ReadError::format(source, format!("{incomplete}: {}{stopped}", printable(damage)))
        }
        _ => ReadError::format(folder, format!("{incomplete}{stopped}")),
    }
}

/// Returns the remarks of a manifest, and one on sketches that cannot be used.
fn notes_of(manifest: &RunManifest) -> Vec<String> {
    let mut notes = manifest.notes.clone();
    let version = manifest.sketch_version;
    if SketchVersion::of_number(version).is_none() {
        notes.push(format!(
            "its sketches are of version {version}, which this program does not know, and were left out"
        ));
    }
    notes
}

/// Returns the reason the part was given up, if it was; the first line of the file that says so.
fn stop_reason(folder: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(folder.join(STOPPED)).ok()?.take(1000).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // A full disk still has room for a file's name, but none for its content.
    Some(text.lines().next().map_or_else(|| "the capture stopped".into(), printable))
}

/// Returns the remark for a part that ends within its step.
pub(super) fn incomplete(ops: usize) -> String {
    format!("incomplete, {ops} op{}", if ops == 1 { "" } else { "s" })
}

/// Returns the task of a part without a manifest: the most that any of its tensors recorded.
fn task_of(ops: &[Op], places: &Places) -> Task {
    let records = || ops.iter().flat_map(|op| &op.slots).filter_map(|slot| slot.value.tensor());
    if !places.is_empty() {
        Task::Tensor
    } else if records().any(|record| record.sketch.is_some() || record.data.is_some()) {
        Task::Sketch
    } else if records().any(|record| record.checksum.is_some()) {
        Task::Hash
    } else {
        Task::Statistics
    }
}

/// Location of tensor data in shards, by key.
pub(super) type Places = HashMap<std::sync::Arc<str>, super::store::Place>;
