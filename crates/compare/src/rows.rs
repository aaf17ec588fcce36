//! Extracts the rows that both sides have from tensors whose shapes differ in only one dimension, that of the batch.
//!
//! Sums and averages over rows are not compared, nor is anything computed from them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::collect::load;
use probe_dump::{
    Checksum, Content, Number, Op, Rank, ReadError, Scalar, TensorData, TensorRecord, TensorStore, Value,
};
use probe_measure as measure;
use probe_pair::{OpPair, Paired, shared_rows, value_key};

/// A tensor key, a dimension, and the number of indices taken along it.
type Part = (Box<str>, usize, usize);

/// Tensors of a store, and the first rows of some of them under separate names.
struct FirstRows {
    inner: Arc<dyn TensorStore>,
    taken: HashMap<Box<str>, Part>,
}

impl TensorStore for FirstRows {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        match self.taken.get(key) {
            Some((whole, dimension, rows)) => {
                self.inner.load(whole).map(|data| data.first_of(*dimension, *rows))
            }
            None => self.inner.load(key),
        }
    }

    fn expect(&self, keys: &[&str]) {
        let whole = |key: &&'_ str| {
            self.taken.get(*key).map_or_else(|| (*key).to_owned(), |(whole, _, _)| whole.to_string())
        };
        let keys: Vec<String> = keys.iter().map(whole).collect();
        self.inner.expect(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    }

    fn is_late(&self) -> bool {
        self.inner.is_late()
    }

    fn let_go(&self) {
        self.inner.let_go();
    }
}

/// Record of the treatment of a part's values.
#[derive(Default)]
struct Taken {
    /// Names of first rows, by side.
    names: [HashMap<Box<str>, Part>; 2],
    /// Measured records by name, because a tensor is in many slots.
    records: HashMap<Box<str>, TensorRecord>,
    /// Values that depend on all rows, by side.
    of_all_rows: [HashSet<u64>; 2],
    compared: usize,
    left_out: usize,
    without_data: usize,
}

/// Reduces `pairs` to the values that can be compared row by row, and replaces the tensors of both sides by those rows.
pub(super) fn take(baseline: &mut Rank, candidate: &mut Rank, pairs: &mut [OpPair]) {
    let mut taken = Taken::default();
    let stores = [Arc::clone(&baseline.store), Arc::clone(&candidate.store)];
    for pair in pairs {
        let Paired::Both(b, c) = pair.ops else { continue };
        let mut slots = pair.slots.iter().collect();
        taken.op([&mut baseline.ops[b], &mut candidate.ops[c]], &stores, &mut slots);
        pair.slots = slots.into_iter().collect();
    }
    if taken.compared + taken.left_out + taken.without_data > 0 {
        let lacking = match taken.without_data {
            0 => String::new(),
            count => format!("; {count} have no elements: record both sides with task tensor"),
        };
        baseline.notes.push(format!(
            "{} values are compared by the rows that both sides have, {} that depend on all rows are not{lacking}",
            taken.compared, taken.left_out
        ));
    }
    let [b, c] = taken.names;
    let [b_store, c_store] = stores;
    baseline.store = Arc::new(FirstRows { inner: b_store, taken: b });
    candidate.store = Arc::new(FirstRows { inner: c_store, taken: c });
}

impl Taken {
    fn op(&mut self, ops: [&mut Op; 2], stores: &[Arc<dyn TensorStore>; 2], slots: &mut Vec<Paired>) {
        let [b, c] = ops;
        let both = |slots: &Paired| match *slots {
            Paired::Both(x, y) => Some((x, y)),
            _ => None,
        };
        let records = |b: &Op, c: &Op, x: usize, y: usize| {
            Some((b.slots[x].value.tensor()?.clone(), c.slots[y].value.tensor()?.clone()))
        };
        let tensors: Vec<(usize, usize, TensorRecord, TensorRecord)> = slots
            .iter()
            .filter_map(both)
            .filter_map(|(x, y)| records(b, c, x, y).map(|(b, c)| (x, y, b, c)))
            .collect();
        let other_batch = tensors.iter().any(|(_, _, b, c)| shared_rows(b, c).is_some());
        let on_all_rows = tensors.iter().any(|(x, _, b_record, c_record)| {
            !b.slots[*x].side.is_result() && self.rests_on_all_rows(b_record, c_record)
        });
        let mut gone: HashSet<(usize, usize)> = HashSet::new();
        for (x, y, b_record, c_record) in tensors {
            let result = b.slots[x].side.is_result();
            let rows = shared_rows(&b_record, &c_record);
            // Parameters, and tensors without rows in common, have the same shapes on both sides.
            let of_all = self.rests_on_all_rows(&b_record, &c_record)
                || (result && (on_all_rows || (other_batch && rows.is_none())));
            if of_all {
                self.of_all_rows[0].extend(value_key(&b_record));
                self.of_all_rows[1].extend(value_key(&c_record));
                self.left_out += 1;
                gone.insert((x, y));
                continue;
            }
            let Some(rows) = rows else { continue };
            let (first_b, first_c) = (
                self.first_rows(0, &b_record, &stores[0], rows),
                self.first_rows(1, &c_record, &stores[1], rows),
            );
            if let (Some(first_b), Some(first_c)) = (first_b, first_c) {
                b.slots[x].value = Value::Tensor(Arc::new(first_b));
                c.slots[y].value = Value::Tensor(Arc::new(first_c));
                self.compared += 1;
            } else {
                self.without_data += 1;
                gone.insert((x, y));
            }
        }
        slots.retain(|slots| {
            let Some((x, y)) = both(slots) else { return true };
            let size = |value: &Value| {
                matches!(value, Value::Scalar(Scalar::Number(Number::Int(_)) | Scalar::Printed(_)))
            };
            // Sizes that the program derives from the batch.
            let sized = other_batch && size(&b.slots[x].value) && size(&c.slots[y].value);
            !gone.contains(&(x, y)) && !sized
        });
    }

    fn rests_on_all_rows(&self, b: &TensorRecord, c: &TensorRecord) -> bool {
        let known = |side: usize, record: &TensorRecord| {
            value_key(record).is_some_and(|key| self.of_all_rows[side].contains(&key))
        };
        known(0, b) && known(1, c)
    }

    /// Returns the first rows of a tensor, as a capture would have recorded them, or the record itself if it has no more rows.
    /// `None` if its elements cannot be read.
    fn first_rows(
        &mut self,
        side: usize,
        record: &TensorRecord,
        store: &Arc<dyn TensorStore>,
        (dimension, rows): (usize, u64),
    ) -> Option<TensorRecord> {
        let key = record.data.as_deref()?;
        if record.shape[dimension] == rows {
            return Some(record.clone());
        }
        let side_name = if side == 0 { "baseline" } else { "candidate" };
        let name: Box<str> =
            format!("{key}, the first {rows} of dimension {dimension} in the {side_name}").into();
        if let Some(known) = self.records.get(&name) {
            return Some(known.clone());
        }
        let count = usize::try_from(rows).ok()?;
        let data = load((record, &**store), key).ok()?.first_of(dimension, count);
        let found = measure::observe(data.view(), Content::HASH);
        if data.fault().is_some() {
            return None;
        }
        let mut first = record.clone();
        Arc::make_mut(&mut first.shape)[dimension] = rows;
        (first.statistics, first.places) = (found.statistics.into(), found.places);
        first.counts = Some(found.counts.into());
        (first.checksum, first.sketch) = (found.hash.map(Checksum::of_hash), None);
        (first.strides, first.sum_error, first.data) = (None, None, Some((&*name).into()));
        self.names[side].insert(name.clone(), (key.into(), dimension, count));
        self.records.insert(name, first.clone());
        Some(first)
    }
}
