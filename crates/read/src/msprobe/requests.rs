//! Logs of the requests in each recorded pass, as msprobe's guide for verl and vLLM has them: `dispatch_log.jsonl` of the engine,
//! `update_actor_log.jsonl` of the trainer. A line has the step and rank of a pass, and the ids of its requests.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::ReadError;
use probe_dump::PartKey;
use probe_files::limits::{MAX_FOLDER_ENTRIES, MAX_INDEX_BYTES};

/// Names of the logs.
const LOGS: [&str; 2] = ["dispatch_log.jsonl", "update_actor_log.jsonl"];

/// A line of either log.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    rank: u32,
    step: u64,
    #[serde(default)]
    requests: Vec<Request>,
    #[serde(default)]
    request_ids: Vec<String>,
}

#[derive(Deserialize)]
struct Request {
    request_id: String,
}

/// Ids of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requests(BTreeSet<String>);

/// Requests of the passes of one side, by step and rank.
#[derive(Debug)]
pub struct RequestLog {
    passes: HashMap<(u64, u32), Requests>,
}

impl RequestLog {
    /// Reads the logs beside a dump, and those in the folders of its processes; `None` if there is none.
    ///
    /// # Errors
    /// [`ReadError`] when a log cannot be read or is damaged.
    pub fn of(folder: &Path) -> Result<Option<Self>, ReadError> {
        let mut folders = vec![folder.to_path_buf()];
        if let Ok(entries) = fs::read_dir(folder) {
            let entries = entries.take(MAX_FOLDER_ENTRIES).filter_map(Result::ok).map(|entry| entry.path());
            folders.extend(entries.filter(|path| path.is_dir()));
        }
        let mut passes = HashMap::new();
        for path in
            folders.iter().flat_map(|folder| LOGS.map(|name| folder.join(name))).filter(|path| path.is_file())
        {
            Self::read(&path, &mut passes)?;
        }
        Ok((!passes.is_empty()).then_some(Self { passes }))
    }

    fn read(path: &Path, passes: &mut HashMap<(u64, u32), Requests>) -> Result<(), ReadError> {
        let found = fs::metadata(path).map_err(|error| ReadError::io(path, error))?.len();
        if found > MAX_INDEX_BYTES {
            return Err(ReadError::Limit {
                path: path.into(),
                what: "the size in bytes",
                found,
                limit: MAX_INDEX_BYTES,
            });
        }
        let text = fs::read_to_string(path).map_err(|error| ReadError::io(path, error))?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let line: Line = serde_json::from_str(line).map_err(|error| {
                ReadError::format(
                    path,
                    format!("line {}: {error}; expected step, rank and requests", number + 1),
                )
            })?;
            let ids = line.requests.into_iter().map(|request| request.request_id).chain(line.request_ids);
            passes.entry((line.step, line.rank)).or_default().0.extend(ids);
        }
        Ok(())
    }

    /// Returns the requests of a pass.
    pub fn of_part(&self, key: &PartKey) -> Option<&Requests> {
        self.passes.get(&(key.step, key.rank.number()))
    }

    /// Returns the requests of all passes.
    pub fn all(&self) -> Requests {
        Requests(self.passes.values().flat_map(|requests| &requests.0).cloned().collect())
    }
}

/// Returns the id that a caller gave to a request: vLLM from 0.14 on appends a hyphen and eight hexadecimal digits.
fn as_given(id: &str) -> &str {
    let digits = |tail: &str| tail.len() == 8 && tail.bytes().all(|byte| byte.is_ascii_hexdigit());
    id.rsplit_once('-').filter(|(head, tail)| !head.is_empty() && digits(tail)).map_or(id, |(head, _)| head)
}

impl Requests {
    /// Returns true if both have a request, whichever of them has suffixes.
    pub fn overlap(&self, other: &Self) -> bool {
        self.0.iter().any(|id| other.0.contains(id) || other.0.contains(as_given(id)))
            || other.0.iter().any(|id| self.0.contains(as_given(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_an_engine_are_no_part_of_a_request() {
        let set = |ids: &[&str]| Requests(ids.iter().map(ToString::to_string).collect());
        let id = "f1f254c04e0c443b85ea1e7359e842dc";
        let longer = format!("{id}-12345678");
        assert_eq!((as_given(&longer), as_given(id)), (id, id));
        assert!(set(&[&longer]).overlap(&set(&[id, "x"])) && set(&[id]).overlap(&set(&[&longer])));
        assert!(!set(&[&longer]).overlap(&set(&["12345678", "f1f2"])));
        assert_eq!(as_given("chat-1"), "chat-1");
    }
}
