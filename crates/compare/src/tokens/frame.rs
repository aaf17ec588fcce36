//! Which token lies where in the batches of one side.

use std::collections::{HashMap, HashSet};

use probe_dump::{DType, Op, OpKind, Phase, Rank, Scalar, Slot, TensorRecord, Value};
use probe_measure::numbers;

use super::super::collect::load;

/// Most tokens of one side: as many as samples of a long context hold, and no more than fit into memory as places.
const MOST: usize = 1 << 24;

/// Stands for a token and all that precede it in its sequence.
pub(super) type Key = u128;

/// One pass of the model.
#[derive(Debug)]
pub(super) struct Pass {
    /// Sizes of its batch: tokens, or rows and tokens of each.
    pub(super) shape: Vec<u64>,
    ids: Vec<u32>,
    /// Place of each token in its sequence, where it was recorded.
    positions: Option<Vec<u32>>,
    /// False for padding, where a mask tells.
    valid: Option<Vec<bool>>,
    /// Requests of the pass, where an engine tells them, and which of them each token is of.
    requests: Option<(Vec<Box<str>>, Vec<usize>)>,
    keys: Vec<Option<Key>>,
    /// Keys of the tokens in front.
    before: Vec<Option<Key>>,
}

/// How often each module is called.
#[derive(Debug)]
struct Calls {
    by_stem: HashMap<Box<str>, u32>,
    passes: u32,
}

impl Calls {
    /// Counts calls; `stem` is called once in each pass.
    fn of(rank: &Rank, stem: &str) -> Self {
        let mut by_stem: HashMap<Box<str>, u32> = HashMap::new();
        for op in rank.ops.iter().filter(|op| is_forward(op)) {
            *by_stem.entry(op.name.stem().into()).or_default() += 1;
        }
        let passes = by_stem.get(stem).copied().unwrap_or(1);
        Self { by_stem, passes }
    }

    fn place(&self, op: &Op) -> Option<(usize, u32)> {
        let calls = self.by_stem.get(op.name.stem()).filter(|_| is_forward(op))?;
        let each = calls / self.passes;
        let call = op.name.call().unwrap_or(0);
        (each * self.passes == *calls && call < *calls).then(|| ((call / each) as usize, call % each))
    }
}

/// All passes of one side.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) passes: Vec<Pass>,
    calls: Calls,
}

impl Frame {
    /// Finds the ids of the tokens: the model's argument of that name, or the whole numbers that the first embedding reads.
    pub(super) fn of(rank: &Rank) -> Result<Self, String> {
        let reads = |of: fn(&Op) -> Option<&TensorRecord>| rank.ops.iter().find(move |op| of(op).is_some());
        let embedding = reads(embedded).or_else(|| reads(given)).ok_or(
            "holds no module that makes vectors of token ids; record modules with task tensor, the embedding among them",
        )?;
        let stem = embedding.name.stem();
        let calls = Calls::of(rank, stem);
        let mut frame = Self { passes: Vec::new(), calls };
        for op in rank.ops.iter().filter(|op| is_forward(op) && op.name.stem() == stem) {
            let ids = embedded(op)
                .or_else(|| given(op))
                .ok_or_else(|| format!("has no ids of the tokens of {}", op.name))?;
            let number = frame.passes.len();
            let of_pass: Vec<&Op> = rank
                .ops
                .iter()
                .filter(|op| frame.calls.place(op).is_some_and(|place| place.0 == number))
                .collect();
            frame.passes.push(Pass::of(rank, ids, &of_pass)?);
            if frame.count() > MOST {
                return Err(format!("has more than {MOST} tokens in one step; record fewer"));
            }
        }
        Ok(frame)
    }

    /// Returns the pass that a call of a module belongs to, and its number among the calls of this module in the pass. `None` for other
    /// ops, and for modules that are not called equally often in all passes.
    pub(super) fn place(&self, op: &Op) -> Option<(usize, u32)> {
        self.calls.place(op)
    }

    /// Returns the number of places for tokens, padding included.
    pub(super) fn count(&self) -> usize {
        self.passes.iter().map(|pass| pass.ids.len()).sum()
    }

    /// Returns true if some sequence goes on in another pass than the one that it began in.
    pub(super) fn continues(&self) -> bool {
        self.passes.iter().any(|pass| {
            (0..pass.ids.len()).any(|at| pass.begins(at) && pass.is_token(at) && pass.position(at) > Some(0))
        })
    }

    /// Returns pass, place and key of each token.
    pub(super) fn tokens(&self) -> impl Iterator<Item = ((usize, usize), Key)> {
        self.passes.iter().enumerate().flat_map(|(number, pass)| {
            pass.keys.iter().enumerate().filter_map(move |(place, key)| Some(((number, place), (*key)?)))
        })
    }

    /// Returns pass and place, key, and key of the token in front, of each token in order.
    pub(super) fn chains(&self) -> impl Iterator<Item = ((usize, usize), Key, Option<Key>)> {
        self.passes.iter().enumerate().flat_map(|(number, pass)| {
            let keys = pass.keys.iter().zip(&pass.before).enumerate();
            keys.filter_map(move |(place, (key, before))| Some(((number, place), (*key)?, *before)))
        })
    }

    /// Returns the form of the batches, for people.
    pub(super) fn described(&self) -> String {
        let padded = self.passes.iter().filter(|pass| pass.is_padded()).count();
        let (form, count) = match padded {
            0 => ("packed", self.passes.len()),
            _ => ("padded", self.passes.len()),
        };
        format!("{count} {form} {}", if count == 1 { "pass" } else { "passes" })
    }

    /// Gives each token its key. Sequences that go on in another pass are told apart by their length, and by what `other` knows to
    /// follow.
    pub(super) fn name(&mut self, other: Option<&Self>) {
        let known: Option<HashSet<Key>> = other.map(|other| other.tokens().map(|(_, key)| key).collect());
        // Sequences so far, by length, and by the request that an engine names.
        let mut live: HashMap<u32, Vec<Key>> = HashMap::new();
        let mut requests: HashMap<Box<str>, (u32, Key)> = HashMap::new();
        for pass in &mut self.passes {
            let mut ends: Vec<(u32, Key)> = Vec::new();
            let mut current: Option<(u32, Key)> = None;
            for at in 0..pass.ids.len() {
                if pass.begins(at) {
                    ends.extend(current.take());
                }
                if !pass.is_token(at) {
                    continue;
                }
                let id = pass.ids[at];
                // Positions of two sequences may follow each other by chance.
                let fits = |key: Key| known.as_ref().is_none_or(|known| known.contains(&extended(key, id)));
                if let Some((_, key)) = current
                    && !fits(key)
                {
                    ends.extend(current.take());
                }
                let own = pass.request(at).and_then(|request| requests.get(request).copied());
                let before = current.or_else(|| match pass.position(at).unwrap_or(0) {
                    0 => Some((0, 0)),
                    length => {
                        // Requests of equal length may have the same token next: their names tell them apart.
                        let own = own.filter(|(known, _)| *known == length).map(|(_, key)| key);
                        taken(&mut live, length, |key| own.map_or_else(|| fits(key), |own| own == key))
                            .map(|key| (length, key))
                    }
                });
                pass.before[at] = before.map(|(_, key)| key);
                current = before.map(|(length, key)| (length + 1, extended(key, id)));
                pass.keys[at] = current.map(|(_, key)| key);
                if let (Some(request), Some(current)) = (pass.request(at), current) {
                    requests.insert(request.into(), current);
                }
            }
            ends.extend(current);
            for (length, key) in ends {
                live.entry(length).or_default().push(key);
            }
        }
    }
}

/// Takes the first sequence of this length that the token fits.
fn taken(live: &mut HashMap<u32, Vec<Key>>, length: u32, fits: impl Fn(Key) -> bool) -> Option<Key> {
    let sequences = live.get_mut(&length)?;
    let at = sequences.iter().position(|key| fits(*key))?;
    Some(sequences.remove(at))
}

/// Returns the key of a sequence that is one token longer.
fn extended(key: Key, id: u32) -> Key {
    (key ^ u128::from(id))
        .wrapping_add(1)
        .wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b_u128)
        .rotate_left(47)
}

impl Pass {
    fn of(rank: &Rank, ids: &TensorRecord, ops: &[&Op]) -> Result<Self, String> {
        let shape = ids.shape.to_vec();
        let numbers = |record: &TensorRecord| whole(rank, record);
        let like_ids = |slot: &&Slot| {
            slot.value
                .tensor()
                .is_some_and(|record| record.len() == ids.len() && record.shape.last() == ids.shape.last())
        };
        let slots = || ops.iter().flat_map(|op| op.slots.iter()).filter(like_ids);
        let named =
            |word: &str| slots().filter(|slot| slot.path.contains(word)).find_map(|slot| slot.value.tensor());
        let is_mask = |record: &&TensorRecord| record.dtype.known().is_some_and(|dtype| !dtype.is_float());
        let own: Vec<u32> = numbers(ids)?;
        let positions = match named("position") {
            Some(record) => Some(numbers(record)?),
            None => unnamed_positions(rank, slots, ids, &own)?,
        };
        let valid = match named("attention_mask").filter(is_mask) {
            Some(record) => Some(numbers(record)?.into_iter().map(|value| value != 0).collect()),
            None => None,
        };
        Ok(Self {
            keys: vec![None; own.len()],
            before: vec![None; own.len()],
            ids: own,
            requests: positions.as_deref().and_then(|positions| requests(rank, ops, positions)),
            positions,
            valid,
            shape,
        })
    }

    /// Returns the request of a token.
    fn request(&self, at: usize) -> Option<&str> {
        let (names, of) = self.requests.as_ref()?;
        names.get(*of.get(at)?).map(|name| &**name)
    }

    fn is_padded(&self) -> bool {
        self.shape.len() == 2 && self.shape[0] > 1
    }

    /// Returns the number of tokens of a row.
    fn width(&self) -> usize {
        let width = self.shape.last().copied().unwrap_or(1);
        usize::try_from(width).unwrap_or(usize::MAX).max(1)
    }

    fn is_token(&self, at: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid[at])
    }

    fn position(&self, at: usize) -> Option<u32> {
        Some(self.positions.as_ref()?[at])
    }

    /// Returns true if the token does not go on with the sequence of the place before it.
    fn begins(&self, at: usize) -> bool {
        at.is_multiple_of(self.width())
            || !self.is_token(at)
            || !self.is_token(at - 1)
            || self.requests.as_ref().is_some_and(|(_, of)| of[at] != of[at - 1])
            || self
                .positions
                .as_ref()
                .is_some_and(|positions| positions[at] != positions[at - 1].wrapping_add(1))
    }
}

/// Returns the names of the requests of a packed pass (`rids` of `SGLang`), and which of them each token is of. `None` where none are told,
/// or others than the positions fit.
fn requests(rank: &Rank, ops: &[&Op], positions: &[u32]) -> Option<(Vec<Box<str>>, Vec<usize>)> {
    let slots = || ops.iter().flat_map(|op| op.slots.iter());
    let name = |slot: &Slot| match &slot.value {
        Value::Scalar(Scalar::Text(name)) if slot.path.starts_with("kwarg.rids.") => Some(name.clone()),
        _ => None,
    };
    let names: Vec<Box<str>> = slots().filter_map(name).collect();
    let lengths = slots().find(|slot| &*slot.path == "kwarg.seq_lens")?.value.tensor()?;
    let lengths = whole(rank, lengths).ok().filter(|lengths| lengths.len() == names.len())?;
    Some((names, owners(positions, &lengths)?))
}

/// Returns which request each token is of. `lengths` are the tokens that each has after the pass, so its last token here has the position
/// before. `None` where they do not fit the positions.
fn owners(positions: &[u32], lengths: &[u32]) -> Option<Vec<usize>> {
    let (mut of, mut request, mut next) = (Vec::with_capacity(positions.len()), 0, None);
    for position in positions {
        let length = *lengths.get(request)?;
        if next.is_some_and(|next| next != *position) || *position >= length {
            return None;
        }
        of.push(request);
        next = (position + 1 < length).then_some(position + 1);
        request += usize::from(next.is_none());
    }
    (request == lengths.len()).then_some(of)
}

/// Returns positions that have no name of their own, as arguments by place have none: the whole numbers, as many as ids and not the ids,
/// that grow by one from place to place somewhere and begin at 0 or go on.
fn unnamed_positions<'a, I: Iterator<Item = &'a Slot>>(
    rank: &Rank,
    slots: impl Fn() -> I,
    ids: &TensorRecord,
    own: &[u32],
) -> Result<Option<Vec<u32>>, String> {
    let mut seen: HashSet<&str> = HashSet::new();
    for record in slots().filter(|slot| !slot.side.is_result()).filter_map(|slot| slot.value.tensor()) {
        let key = record.data.as_deref().unwrap_or("");
        let whole_numbers = record.dtype.known().is_some_and(DType::is_integer);
        if !whole_numbers || record.data == ids.data || !seen.insert(key) {
            continue;
        }
        let values = whole(rank, record)?;
        let steps = values.windows(2).filter(|pair| pair[1] == pair[0].wrapping_add(1)).count();
        // Sequences of one token show no steps: then any tensor unlike the ids will do.
        let one_each = values.len() == 1 || steps == 0;
        if values != own && (2 * steps >= values.len().saturating_sub(1) || one_each) {
            return Ok(Some(values));
        }
    }
    Ok(None)
}

fn whole(rank: &Rank, record: &TensorRecord) -> Result<Vec<u32>, String> {
    let key =
        record.data.as_deref().ok_or("has token ids without their elements; record it with task tensor")?;
    let data = load((record, &*rank.store), key)
        .map_err(|reason| format!("has ids that cannot be read: {reason}"))?;
    let bytes = data.view().to_bytes();
    if let Some(fault) = data.fault() {
        return Err(format!("has ids that cannot be read: {fault}"));
    }
    if data.dtype().is_complex() {
        return Err(format!("has complex numbers in place of ids in {key}"));
    }
    // Numbers below 0 stand for padding in some programs.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
    Ok(numbers(data.dtype(), &bytes).into_iter().map(|number| number as u32).collect())
}

fn is_forward(op: &Op) -> bool {
    op.name.kind() == OpKind::Module && op.name.phase() == Phase::Forward && !op.recomputed
}

/// Returns the ids among a module's named arguments.
fn given(op: &Op) -> Option<&TensorRecord> {
    let named = |slot: &&Slot| !slot.side.is_result() && slot.path.ends_with("input_ids");
    let ids = op.slots.iter().find(named)?.value.tensor()?;
    (is_forward(op) && ids.dtype.known().is_some_and(DType::is_integer) && matches!(ids.shape.len(), 1 | 2))
        .then_some(ids)
}

/// Returns the ids of an op that makes a vector of each.
fn embedded(op: &Op) -> Option<&TensorRecord> {
    let tensor = |result: bool| {
        op.slots
            .iter()
            .filter(move |slot| slot.side.is_result() == result)
            .find_map(|slot| slot.value.tensor())
    };
    let (ids, vectors) = (tensor(false)?, tensor(true)?);
    let is_whole = ids.dtype.known().is_some_and(DType::is_integer);
    let is_float = vectors.dtype.known().is_some_and(DType::is_float);
    let (_, lead) = vectors.shape.split_last()?;
    // A function of a whole model makes logits of ids as well; the embedding has a table.
    let is_table = op.name.api().contains("Embedding");
    (is_forward(op) && is_table && is_whole && is_float && *lead == *ids.shape && matches!(lead.len(), 1 | 2))
        .then_some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(ids: &[u32], positions: &[u32], requests: &[&str], lengths: &[u32]) -> Pass {
        let names = requests.iter().map(|name| (*name).into()).collect();
        Pass {
            shape: vec![ids.len() as u64],
            ids: ids.to_vec(),
            positions: Some(positions.to_vec()),
            valid: None,
            requests: owners(positions, lengths).map(|of| (names, of)),
            keys: vec![None; ids.len()],
            before: vec![None; ids.len()],
        }
    }

    #[test]
    fn requests_of_equal_length_and_equal_next_tokens_are_told_apart() {
        let of = |passes: Vec<Pass>| {
            let calls = Calls { by_stem: HashMap::new(), passes: 1 };
            let mut frame = Frame { passes, calls };
            frame.name(None);
            frame.passes.pop().unwrap().keys
        };
        let whole = of(vec![pass(&[1, 2, 9, 3, 4, 9], &[0, 1, 2, 0, 1, 2], &["a", "b"], &[3, 3])]);
        let prompts = || pass(&[1, 2, 3, 4], &[0, 1, 0, 1], &["a", "b"], &[2, 2]);
        // The engine sorted its batch between the two passes.
        let decoded = of(vec![prompts(), pass(&[9, 9], &[2, 2], &["b", "a"], &[3, 3])]);
        assert_eq!(decoded, [whole[5], whole[2]]);
    }

    #[test]
    fn lengths_that_do_not_fit_tell_nothing() {
        assert_eq!(owners(&[0, 1, 2, 5], &[3, 6]), Some(vec![0, 0, 0, 1]));
        for (positions, lengths) in
            [(&[0, 1][..], &[1, 1][..]), (&[0, 1], &[3]), (&[0, 2], &[3]), (&[0], &[1, 1]), (&[0, 1], &[])]
        {
            assert_eq!(owners(positions, lengths), None, "{positions:?} {lengths:?}");
        }
    }
}
