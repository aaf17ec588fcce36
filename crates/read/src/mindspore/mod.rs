//! Dumps that MindSpore itself writes of a graph (`common_dump_settings`): `rank_0/NET/GRAPH/ITERATION`, with a `.npy` file for each input and
//! output of each operator, or their statistics in `statistic.csv`.
//!
//! An iteration is a step. The graphs that it ran are one part, in the order of their numbers. Where there are both, the
//! elements are taken, of which the statistics follow.

pub(crate) mod name;

mod folders;
mod statistics;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ReadError, collection, no_such_part};
use probe_dump::{Dump, Framework, PartKey, PartReader, Rank, Task, TensorData, TensorStore};
use probe_files::map::FileAccess;

pub(super) use folders::find_parts;
pub(super) use statistics::FILE as STATISTICS;

/// Folders of one step and rank.
pub(super) type Parts = BTreeMap<PartKey, Vec<PathBuf>>;

/// Opens the parts that [`find_parts`] found.
pub(super) fn open(path: &Path, parts: Parts, access: FileAccess) -> Dump {
    Dump {
        path: path.into(),
        format: "dump of MindSpore",
        parts: parts.keys().cloned().collect(),
        reader: Box::new(Reader { parts, access }),
        faults: Vec::new(),
        environment: BTreeMap::new(),
    }
}

struct Reader {
    parts: Parts,
    access: FileAccess,
}

impl PartReader for Reader {
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError> {
        let folders = self.parts.get(key).ok_or_else(|| no_such_part(key))?;
        let (mut files, mut ops) = (Vec::new(), Vec::new());
        for folder in folders {
            if collection::folder_holds_tensors(folder) {
                files.extend(collection::list(folder)?);
            } else {
                ops.extend(statistics::read(&folder.join(STATISTICS))?);
            }
        }
        let mut part = Rank {
            key: key.clone(),
            framework: Framework::MindSpore,
            task: if files.is_empty() { Task::Statistics } else { Task::Tensor },
            level: "".into(),
            ops,
            stacks: Vec::new(),
            store: Arc::new(NoData),
            notes: Vec::new(),
            cut: false,
            faults: Vec::new(),
        };
        if !files.is_empty() {
            let (store, faults) = collection::open_files(&files, self.access)?;
            part.ops.extend(collection::ops(&store));
            part.faults = faults;
            part.store = Arc::new(store);
        }
        Ok(part)
    }

    fn place(&self, key: &PartKey) -> Option<&Path> {
        match self.parts.get(key)?.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// The store of a part of statistics.
struct NoData;

impl TensorStore for NoData {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        Err(ReadError::usage(PathBuf::from(key), "the dump holds statistics, not elements"))
    }
}
