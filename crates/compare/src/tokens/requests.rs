//! Passes of an engine and a trainer that were recorded as steps of their own, with logs of the requests in each, as msprobe's guide for
//! verl and vLLM has them: `dispatch_log.jsonl` of the engine, `update_actor_log.jsonl` of the trainer.
//!
//! The passes of each side become one part, as if they had been recorded in one step. Where both sides have a log, passes without a
//! request of the other side are left out.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use probe_dump::{
    Dump, Op, OpKind, OpName, PartKey, PartReader, Phase, Rank, ReadError, TensorData, TensorStore, Value,
};
use probe_files::limits::{MAX_FOLDER_ENTRIES, MAX_INDEX_BYTES};
use serde::Deserialize;

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

/// Requests of the passes of one side, by step and rank.
struct Log {
    passes: HashMap<(u64, u32), BTreeSet<String>>,
}

impl Log {
    /// Reads the logs beside a dump, and those in the folders of its processes.
    fn of(folder: &Path) -> Result<Option<Self>, ReadError> {
        let mut folders = vec![folder.to_path_buf()];
        if let Ok(entries) = fs::read_dir(folder) {
            let entries = entries.take(MAX_FOLDER_ENTRIES).filter_map(Result::ok).map(|entry| entry.path());
            folders.extend(entries.filter(|path| path.is_dir()));
        }
        let mut passes: HashMap<(u64, u32), BTreeSet<String>> = HashMap::new();
        for path in
            folders.iter().flat_map(|folder| LOGS.map(|name| folder.join(name))).filter(|path| path.is_file())
        {
            Self::read(&path, &mut passes)?;
        }
        Ok((!passes.is_empty()).then_some(Self { passes }))
    }

    fn read(path: &Path, passes: &mut HashMap<(u64, u32), BTreeSet<String>>) -> Result<(), ReadError> {
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
            passes.entry((line.step, line.rank)).or_default().extend(ids);
        }
        Ok(())
    }

    fn of_part(&self, key: &PartKey) -> Option<&BTreeSet<String>> {
        self.passes.get(&(key.step, key.rank.number()))
    }
}

/// Returns the id that a caller gave to a request: vLLM from 0.14 on appends a hyphen and eight hexadecimal digits.
fn as_given(id: &str) -> &str {
    let digits = |tail: &str| tail.len() == 8 && tail.bytes().all(|byte| byte.is_ascii_hexdigit());
    id.rsplit_once('-').filter(|(head, tail)| !head.is_empty() && digits(tail)).map_or(id, |(head, _)| head)
}

/// Returns true if both sets have a request, whichever of them has suffixes.
fn overlap(a: &BTreeSet<String>, b: &BTreeSet<String>) -> bool {
    let has = |all: &BTreeSet<String>, id: &str| all.contains(id);
    a.iter().any(|id| has(b, id) || has(b, as_given(id))) || b.iter().any(|id| has(a, as_given(id)))
}

/// Makes one part of the passes of each side, if one of them has a log.
///
/// # Errors
/// [`ReadError`] when a log is damaged, or when the two sides share no request.
pub(crate) fn gather(baseline: Dump, candidate: Dump) -> Result<[Dump; 2], ReadError> {
    let logs = [Log::of(&baseline.path)?, Log::of(&candidate.path)?];
    if logs.iter().all(Option::is_none) {
        return Ok([baseline, candidate]);
    }
    let all = |log: &Option<Log>| -> Option<BTreeSet<String>> {
        Some(log.as_ref()?.passes.values().flatten().cloned().collect())
    };
    let requests = [all(&logs[0]), all(&logs[1])];
    let Some(first) = baseline.parts.first().cloned() else { return Ok([baseline, candidate]) };
    let merged = |side: usize, dump: Dump| {
        let other = requests[1 - side].as_ref();
        let mut seen: BTreeSet<(u64, Vec<String>)> = BTreeSet::new();
        let kept: Vec<PartKey> = dump
            .parts
            .iter()
            .filter(|key| {
                let Some(log) = &logs[side] else { return true };
                let Some(own) = log.of_part(key) else { return false };
                // Ranks that share the work on one request record the same pass.
                other.is_none_or(|other| overlap(own, other))
                    && seen.insert((key.step, own.iter().cloned().collect()))
            })
            .cloned()
            .collect();
        if kept.is_empty() {
            let what = if logs[side].is_some() { "request" } else { "part" };
            return Err(ReadError::usage(
                &*dump.path,
                format!("no pass has a {what} of the other side; record the same requests on both"),
            ));
        }
        Ok(one_part(dump, kept, &first))
    };
    Ok([merged(0, baseline)?, merged(1, candidate)?])
}

/// Returns the dump with one part, of all passes in `kept`, in the place of `first`.
fn one_part(dump: Dump, kept: Vec<PartKey>, first: &PartKey) -> Dump {
    let label = format!("{} passes", kept.len()).into();
    let key = PartKey { step: first.step, rank: first.rank, label };
    let reader = Merged { inner: dump.reader, key: key.clone(), passes: kept };
    Dump { parts: vec![key], reader: Box::new(reader), ..dump }
}

struct Merged {
    inner: Box<dyn PartReader>,
    key: PartKey,
    passes: Vec<PartKey>,
}

impl PartReader for Merged {
    fn read(&self, key: &PartKey) -> Result<Rank, ReadError> {
        if *key != self.key {
            return Err(ReadError::usage(PathBuf::from(&*key.label), "no such part in this dump"));
        }
        let mut whole: Option<Rank> = None;
        let mut stores: Vec<Arc<dyn TensorStore>> = Vec::new();
        let mut calls: HashMap<String, u32> = HashMap::new();
        let mut faults = Vec::new();
        for pass in &self.passes {
            let mut rank = match self.inner.read(pass) {
                Ok(rank) => rank,
                Err(error) => {
                    faults.push(error);
                    continue;
                }
            };
            renumber(&mut rank, stores.len(), &mut calls);
            stores.push(Arc::clone(&rank.store));
            match &mut whole {
                None => whole = Some(rank),
                Some(whole) => {
                    // Stacks are numbered by pass.
                    rank.ops.iter_mut().for_each(|op| op.stack = None);
                    whole.ops.append(&mut rank.ops);
                    whole.faults.append(&mut rank.faults);
                    whole.notes.append(&mut rank.notes);
                }
            }
        }
        let Some(mut whole) = whole else {
            return Err(faults
                .pop()
                .unwrap_or_else(|| ReadError::usage(PathBuf::from(&*key.label), "no pass")));
        };
        whole.faults.append(&mut faults);
        whole.key = self.key.clone();
        whole.store = Arc::new(Stores(stores));
        Ok(whole)
    }
}

/// Leaves the forward calls of modules, gives them numbers behind those of earlier passes, and marks their data with the pass.
fn renumber(rank: &mut Rank, pass: usize, calls: &mut HashMap<String, u32>) {
    rank.ops.retain(|op| op.name.kind() == OpKind::Module && op.name.phase() == Phase::Forward);
    let before = calls.clone();
    let moved = |name: &OpName| {
        let number = name.call().unwrap_or(0) + before.get(name.stem()).copied().unwrap_or(0);
        OpName::parse(&format!("{}.forward.{number}", name.stem()))
    };
    for Op { name, slots, parent, .. } in &mut rank.ops {
        let number = name.call().unwrap_or(0) + before.get(name.stem()).copied().unwrap_or(0);
        let next = calls.entry(name.stem().to_owned()).or_default();
        *next = (*next).max(number + 1);
        *name = moved(name);
        *parent = parent.as_deref().map(|parent| moved(&OpName::parse(parent)).as_str().into());
        for slot in slots {
            slot.identity = None;
            if let Value::Tensor(record) = &mut slot.value {
                let record = Arc::make_mut(record);
                record.data = record.data.as_deref().map(|key| (&*format!("{pass}:{key}")).into());
            }
        }
    }
}

/// Stores of the passes; keys begin with the number of the pass.
struct Stores(Vec<Arc<dyn TensorStore>>);

impl Stores {
    fn of<'k>(&self, key: &'k str) -> Option<(&dyn TensorStore, &'k str)> {
        let (pass, key) = key.split_once(':')?;
        Some((&**self.0.get(pass.parse::<usize>().ok()?)?, key))
    }
}

impl TensorStore for Stores {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let (store, key) = self
            .of(key)
            .ok_or_else(|| ReadError::usage(PathBuf::from(key), "no such tensor in this dump"))?;
        store.load(key)
    }

    fn is_late(&self) -> bool {
        self.0.iter().any(|store| store.is_late())
    }

    fn let_go(&self) {
        self.0.iter().for_each(|store| store.let_go());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_of_an_engine_are_no_part_of_a_request() {
        let set = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let id = "f1f254c04e0c443b85ea1e7359e842dc";
        let longer = format!("{id}-12345678");
        assert_eq!((as_given(&longer), as_given(id)), (id, id));
        assert!(overlap(&set(&[&longer]), &set(&[id, "x"])) && overlap(&set(&[id]), &set(&[&longer])));
        assert!(!overlap(&set(&[&longer]), &set(&["12345678", "f1f2"])));
        assert_eq!(as_given("chat-1"), "chat-1");
    }
}
