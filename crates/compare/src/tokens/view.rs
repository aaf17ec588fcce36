//! The ops of one side, with values that have a row for each token.

use std::collections::HashMap;
use std::sync::Arc;

use probe_dump::{
    Checksum, Content, DType, Op, OpName, Rank, ReadError, Slot, SlotSide, TensorData, TensorRecord,
    TensorStore, Value,
};
use probe_measure as measure;

use super::frame::{Frame, Pass};

/// Order of tokens in a value of a padded batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Row after row, as the ids.
    Rows,
    /// The first token of all rows, then the second: this many rows and tokens.
    Columns(usize, usize),
}

/// A value of all passes: key and order in each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Part {
    pieces: Vec<Box<str>>,
    /// Elements of a token.
    width: usize,
    /// Those that are looked at, from the first: padding behind them is not.
    kept: usize,
}

/// A value as it is made of parts, side by side.
#[derive(Debug, Clone)]
struct Made {
    parts: Vec<(Part, Vec<Order>)>,
    dtype: DType,
    /// Sizes, that of the tokens first.
    shape: Box<[usize]>,
}

/// Tensors of a store, and values of tokens made of them.
struct Tokens {
    inner: Arc<dyn TensorStore>,
    made: HashMap<Box<str>, Made>,
    /// Pass and place of each token.
    places: Arc<[(usize, usize)]>,
}

impl TensorStore for Tokens {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let Some(made) = self.made.get(key) else { return self.inner.load(key) };
        made.load(&*self.inner, &self.places).map_err(|reason| ReadError::format(key, reason))
    }

    fn is_late(&self) -> bool {
        self.inner.is_late()
    }

    fn let_go(&self) {
        self.inner.let_go();
    }
}

impl Made {
    fn load(&self, store: &dyn TensorStore, places: &[(usize, usize)]) -> Result<TensorData, String> {
        let size = self.dtype.size();
        let row: usize = self.parts.iter().map(|(part, _)| part.kept * size).sum();
        let total = row.checked_mul(places.len()).ok_or("is too large")?;
        let (mut bytes, mut before) = (vec![0; total], 0);
        for (part, orders) in &self.parts {
            let (width, kept) = (part.width * size, part.kept * size);
            for (pass, (key, order)) in part.pieces.iter().zip(orders).enumerate() {
                let here = || places.iter().enumerate().filter(|(_, place)| place.0 == pass);
                if here().next().is_none() {
                    continue;
                }
                let data = store.load(key).map_err(|error| error.to_string())?;
                let held = data.view().to_bytes();
                if let Some(fault) = data.fault() {
                    return Err(fault);
                }
                for (at, (_, place)) in here() {
                    let from = order.of(*place) * width;
                    let found =
                        held.get(from..from + kept).ok_or("holds fewer tokens than the index says")?;
                    bytes[at * row + before..][..kept].copy_from_slice(found);
                }
            }
            before += kept;
        }
        TensorData::contiguous(Arc::new(bytes), 0..total, self.dtype, self.shape.clone())
            .map_err(|error| error.to_string())
    }
}

impl Order {
    const fn of(self, place: usize) -> usize {
        match self {
            Self::Rows => place,
            Self::Columns(rows, width) => place % width * rows + place / width,
        }
    }
}

/// Returns how a value of this shape holds the tokens of a pass, and the shape of one token's elements.
fn order<'a>(shape: &'a [u64], pass: &Pass) -> Option<(Order, &'a [u64])> {
    if let Some(rest) = shape.strip_prefix(&pass.shape[..]) {
        return Some((Order::Rows, rest));
    }
    if let [rows, width] = pass.shape[..]
        && let Some(rest) = shape.strip_prefix(&[width, rows])
    {
        let size = |size: u64| usize::try_from(size).ok();
        return Some((Order::Columns(size(rows)?, size(width)?), rest));
    }
    // Rows put behind each other; a packed batch may have a dimension of one in front.
    let count: u64 = pass.shape.iter().product();
    let flat = shape.strip_prefix(&[count]).or_else(|| shape.strip_prefix(&[1, count]))?;
    Some((Order::Rows, flat))
}

/// The ops of one side as tokens.
pub(super) struct View {
    pub(super) ops: Vec<Op>,
    store: Arc<dyn TensorStore>,
    made: HashMap<Box<str>, Made>,
    records: HashMap<Vec<Part>, TensorRecord>,
    places: Arc<[(usize, usize)]>,
    left: usize,
}

impl View {
    /// Makes one op of the calls of a module in all passes.
    pub(super) fn of(rank: &Rank, frame: &Frame, places: Vec<(usize, usize)>) -> Self {
        let mut view = Self {
            ops: Vec::new(),
            store: Arc::clone(&rank.store),
            made: HashMap::new(),
            records: HashMap::new(),
            places: places.into(),
            left: 0,
        };
        let mut calls: HashMap<(&str, u32), Vec<&Op>> = HashMap::new();
        for op in &rank.ops {
            if let Some((_, nth)) = frame.place(op) {
                calls.entry((op.name.stem(), nth)).or_default().push(op);
            }
        }
        for op in &rank.ops {
            let Some((0, nth)) = frame.place(op) else { continue };
            let mut own = calls.remove(&(op.name.stem(), nth)).unwrap_or_default();
            own.sort_by_key(|op| op.name.call());
            match view.op(&own, nth, frame) {
                Some(op) => view.ops.push(op),
                None => view.left += own.len(),
            }
        }
        view.left += rank.ops.iter().filter(|op| frame.place(op).is_none()).count();
        view
    }

    /// Returns the number of tokens.
    pub(super) fn tokens(&self) -> usize {
        self.places.len()
    }

    /// Returns the calls of all passes as one op; `None` if no result has a row for each token.
    fn op(&mut self, calls: &[&Op], nth: u32, frame: &Frame) -> Option<Op> {
        let first = *calls.first()?;
        let mut op = Op::new(OpName::parse(&format!("{}.forward.{nth}", first.name.stem())));
        op.stack = first.stack;
        op.parent = first.parent.as_deref().map(|parent| merged(parent, frame).into());
        for slot in &first.slots {
            let value = match (&slot.value, slot.side) {
                (value, SlotSide::Parameter) => Some(value.clone()),
                (Value::Tensor(_), _) => self.value(&slot.path, calls, frame),
                (value, _) => {
                    let same = |op: &&Op| {
                        op.slots.iter().any(|other| other.path == slot.path && other.value == *value)
                    };
                    calls.iter().all(same).then(|| value.clone())
                }
            };
            op.slots.extend(value.map(|value| Slot { name: Arc::clone(&slot.name), value, identity: None }));
        }
        op.slots.iter().any(|slot| slot.side.is_result() && slot.value.tensor().is_some()).then_some(op)
    }

    /// Returns the value at `path` of all calls.
    fn value(&mut self, path: &str, calls: &[&Op], frame: &Frame) -> Option<Value> {
        let mut part = Part { pieces: Vec::new(), width: 0, kept: 0 };
        let (mut orders, mut rest) = (Vec::new(), None);
        let of = |op: &&Op| op.slots.iter().find(|slot| &*slot.path == path)?.value.tensor().cloned();
        let records: Vec<TensorRecord> = calls.iter().map(of).collect::<Option<_>>()?;
        for (record, pass) in records.iter().zip(&frame.passes) {
            let (order, sizes) = order(&record.shape, pass)?;
            if record.dtype != records[0].dtype || *rest.get_or_insert(sizes) != sizes {
                return None;
            }
            orders.push(order);
            part.pieces.push(record.data.as_deref()?.into());
        }
        let rest: Vec<usize> = rest?.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<_>>()?;
        part.width = rest.iter().product();
        part.kept = part.width;
        let dtype = records[0].dtype.known()?;
        let shape = std::iter::once(self.places.len()).chain(rest).collect();
        self.record(&records[0], Made { parts: vec![(part, orders)], dtype, shape })
    }

    /// Returns the record of a value, as a capture would have recorded it. `like` lends what does not depend on the elements.
    fn record(&mut self, like: &TensorRecord, made: Made) -> Option<Value> {
        let parts: Vec<Part> = made.parts.iter().map(|(part, _)| part.clone()).collect();
        if let Some(known) = self.records.get(&parts) {
            return Some(Value::Tensor(Arc::new(known.clone())));
        }
        let data = made.load(&*self.store, &self.places).ok()?;
        let found = measure::observe(data.view(), Content::HASH);
        let name: Box<str> =
            format!("{}, as tokens ({})", parts.first()?.pieces.first()?, self.made.len()).into();
        let mut record = like.clone();
        record.shape = made.shape.iter().map(|size| *size as u64).collect();
        (record.statistics, record.places) = (found.statistics.into(), found.places);
        record.counts = Some(found.counts.into());
        (record.checksum, record.sketch) = (found.hash.map(Checksum::of_hash), None);
        (record.strides, record.sum_error, record.data) = (None, None, Some((&*name).into()));
        self.made.insert(name, made);
        self.records.insert(parts, record.clone());
        Some(Value::Tensor(Arc::new(record)))
    }

    /// Leaves out the ops for which `keep` does not hold.
    pub(super) fn retain(&mut self, keep: impl Fn(&Op) -> bool) {
        let before = self.ops.len();
        self.ops.retain(keep);
        self.left += before - self.ops.len();
    }

    /// Returns the place of the op of this module.
    pub(super) fn find(&self, path: &str) -> Option<usize> {
        self.ops.iter().position(|op| op.name.module_path() == Some(path))
    }

    /// Puts the results of the ops at `places` side by side, in the op that is first of them, under the name of `fused`. Parameters
    /// are left out.
    pub(super) fn join(&mut self, places: &[usize], fused: &OpName) -> Option<()> {
        let result = |op: &Op| {
            op.slots.iter().find(|slot| slot.side.is_result()).and_then(|slot| slot.value.tensor().cloned())
        };
        let records: Vec<TensorRecord> =
            places.iter().map(|at| result(&self.ops[*at])).collect::<Option<_>>()?;
        let made: Vec<Made> = records
            .iter()
            .map(|record| self.made.get(record.data.as_deref()?).cloned())
            .collect::<Option<_>>()?;
        let mut whole = made.first()?.clone();
        for next in &made[1..] {
            if next.dtype != whole.dtype || next.shape.len() != 2 || whole.shape.len() != 2 {
                return None;
            }
            whole.shape[1] += next.shape[1];
            whole.parts.extend(next.parts.iter().cloned());
        }
        let value = self.record(&records[0], whole)?;
        let first = *places.iter().min()?;
        let mut op = self.ops[first].clone();
        op.name = fused.clone();
        op.slots.retain(|slot| slot.side == SlotSide::Input);
        op.slots.push(Slot::new("output.0", SlotSide::Output, value));
        self.ops[first] = op;
        let mut at = 0;
        self.ops.retain(|_| {
            at += 1;
            at - 1 == first || !places.contains(&(at - 1))
        });
        Some(())
    }

    /// Keeps the first `kept` elements of each token of a result, and drops the op's parameters.
    pub(super) fn narrow(&mut self, at: usize, path: &str, kept: usize) -> Option<()> {
        let is_it = |slot: &&mut Slot| &*slot.path == path;
        let record = self.ops.get_mut(at)?.slots.iter_mut().find(is_it)?.value.tensor()?.clone();
        let mut made = self.made.get(record.data.as_deref()?)?.clone();
        let [(part, _)] = &mut made.parts[..] else { return None };
        part.kept = kept;
        *made.shape.last_mut()? = kept;
        let value = self.record(&record, made)?;
        let op = self.ops.get_mut(at)?;
        op.slots.retain(|slot| slot.side != SlotSide::Parameter);
        op.slots.iter_mut().find(is_it)?.value = value;
        Some(())
    }

    /// Returns the elements of each token of a value with one dimension more, and their type.
    pub(super) fn rows(&self, op: &Op, path: &str) -> Option<(Vec<Vec<f64>>, DType)> {
        let record = op.slots.iter().find(|slot| &*slot.path == path)?.value.tensor()?;
        let made = self.made.get(record.data.as_deref()?)?;
        let [tokens, width] = made.shape[..] else { return None };
        let data = made.load(&*self.store, &self.places).ok()?;
        if !made.dtype.is_float() || tokens == 0 || width == 0 {
            return None;
        }
        let bytes = data.view().to_bytes();
        let rows =
            bytes.chunks(width * made.dtype.size()).map(|row| measure::numbers(made.dtype, row)).collect();
        Some((rows, made.dtype))
    }

    /// Gives ops of `other` the names that the modules at the same paths have here: an engine has classes of its own.
    pub(super) fn rename(&self, other: &mut Self) {
        let by_path = |op: &Op| Some(((op.name.module_path()?.to_owned(), op.name.call()), op.name.clone()));
        let names: HashMap<(String, Option<u32>), OpName> = self.ops.iter().filter_map(by_path).collect();
        let own = |name: &OpName| names.get(&(name.module_path()?.to_owned(), name.call())).cloned();
        for op in &mut other.ops {
            if let Some(name) = own(&op.name) {
                op.name = name;
            }
            if let Some(name) = op.parent.as_deref().map(OpName::parse).and_then(|parent| own(&parent)) {
                op.parent = Some(name.as_str().into());
            }
        }
    }

    /// Puts the ops and their tensors in place of those of `rank`, and returns the number of calls that are left out.
    pub(super) fn put_into(&mut self, rank: &mut Rank) -> usize {
        rank.ops = std::mem::take(&mut self.ops);
        let (inner, made) = (Arc::clone(&self.store), std::mem::take(&mut self.made));
        rank.store = Arc::new(Tokens { inner, made, places: Arc::clone(&self.places) });
        self.left
    }
}

/// Returns the name of the op that a call is part of.
fn merged(name: &str, frame: &Frame) -> String {
    let op = Op::new(OpName::parse(name));
    frame.place(&op).map_or_else(|| name.to_owned(), |(_, nth)| format!("{}.forward.{nth}", op.name.stem()))
}
