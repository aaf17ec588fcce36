//! Passes of an engine and a trainer that were recorded as steps of their own, with logs of the requests in each ([`RequestLog`]).
//!
//! The passes of each side become one part, as if they had been recorded in one step. Where both sides have a log, passes without a
//! request of the other side are left out.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use probe_dump::{
    Dump, Op, OpKind, OpName, PartKey, PartReader, Phase, Rank, ReadError, TensorData, TensorStore, Value,
};
use probe_read::msprobe::{RequestLog, Requests};

/// Makes one part of the passes of each side, if one of them has a log.
///
/// # Errors
/// [`ReadError`] when a log is damaged, or when the two sides share no request.
pub(crate) fn gather(baseline: Dump, candidate: Dump) -> Result<[Dump; 2], ReadError> {
    let logs = [RequestLog::of(&baseline.path)?, RequestLog::of(&candidate.path)?];
    if logs.iter().all(Option::is_none) {
        return Ok([baseline, candidate]);
    }
    let requests = logs.each_ref().map(|log| log.as_ref().map(RequestLog::all));
    let Some(first) = baseline.parts.first().cloned() else { return Ok([baseline, candidate]) };
    let merged = |side: usize, dump: Dump| {
        let other = requests[1 - side].as_ref();
        let mut seen: BTreeSet<(u64, &Requests)> = BTreeSet::new();
        let kept: Vec<PartKey> = dump
            .parts
            .iter()
            .filter(|key| {
                let Some(log) = &logs[side] else { return true };
                let Some(own) = log.of_part(key) else { return false };
                // Ranks that share the work on one request record the same pass.
                other.is_none_or(|other| own.overlap(other)) && seen.insert((key.step, own))
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
        (OpName::parse(&format!("{}.forward.{number}", name.stem())), number)
    };
    for Op { name, slots, parent, .. } in &mut rank.ops {
        let (new, number) = moved(name);
        let next = calls.entry(name.stem().to_owned()).or_default();
        *next = (*next).max(number + 1);
        *name = new;
        *parent = parent.as_deref().map(|parent| moved(&OpName::parse(parent)).0.as_str().into());
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
