//! Folds the ranks of one step into one, whose values are global.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;

use probe_dump::{Checksum, Content, DataKey, Op, OpKind, Phase, Rank, TensorRecord, TensorStore, Value};
use probe_measure as measure;

use super::arguments;
use super::bias::partial_with_bias;
use super::calls::{are_like, under_common_names, under_others_names};
use super::cuts::is_zigzag;
use super::declared::Declared;
use super::documents::by_documents;
use super::held::{self, Spread};
use super::infer::{self, Held, Inferred, NEAR, NEARER};
use super::job::{Gathered, Job, is_mostly_equal, measured};
use super::layout::Among;
use super::means::{common_factor, mean_of, share_of_mean};
use super::merge::{in_order_of, merged};
use super::numbering::{Misplaced, Numbering, under_global_numbers};
use super::record;
use super::remark::{Remark, Remarks};
use super::reordered::by_rows;
use super::spanning::without_hand_overs;
use super::store::{FoldedStore, Made};
use super::tied;
use super::usual::in_common_order;

/// Functions that pick elements by indices or a mask.
const PICKS: [&str; 3] = ["index_select", "masked_select", "__getitem__"];

/// Ranks as one.
#[derive(Debug)]
pub struct Folded {
    /// The global values.
    pub rank: Rank,
    /// What their layouts show besides.
    pub remarks: Remarks,
    /// Values, by the places of op and slot, of which no layout makes the other run's.
    pub apart: HashSet<(usize, usize)>,
    /// Placements that were recorded, each once.
    pub placements: BTreeSet<Box<str>>,
    /// Parts of the model that ranks hold in place of others.
    pub misplaced: Vec<Misplaced>,
    /// The pieces of each value that the ranks hold, by the places of op and slot.
    pub spread: HashMap<(usize, usize), Arc<Spread>>,
}

impl Gathered {
    /// Gathers the values of `ops` from the ranks; those of which nothing can be said are taken out of `ops`.
    pub(crate) fn of(ops: &mut [Op], ranks: &[Rank], others: &HashMap<&str, &Op>) -> Self {
        let by_name: Vec<HashMap<&str, &Op>> =
            ranks.iter().map(|rank| rank.ops.iter().map(|op| (op.name.as_str(), op)).collect()).collect();
        arguments::without_own(ops, &by_name);
        arguments::without_unwritten(ops);
        let address = |record: &Arc<TensorRecord>| Arc::as_ptr(record) as usize;
        let mut gathered = Self { jobs: Vec::new(), places: BTreeMap::new() };
        let mut known: HashMap<Vec<usize>, usize> = HashMap::new();
        for (place, op) in ops.iter_mut().enumerate() {
            let partner = others.get(op.name.as_str());
            let unbiased = partner.is_some_and(|partner| lacks_bias(op, partner) || lacks_bias(partner, op));
            for (slot, held) in op.slots.iter_mut().enumerate() {
                let of = |(rank, ops): (usize, &HashMap<&str, &Op>)| {
                    Some((rank, tensor(ops.get(op.name.as_str())?, &held.name.path)?))
                };
                let pieces: Vec<(usize, Arc<TensorRecord>)> =
                    by_name.iter().enumerate().filter_map(of).collect();
                if pieces.is_empty() || !matches!(held.value, Value::Tensor(_)) {
                    continue;
                }
                if (unbiased && held.side.is_result()) || pieces.iter().any(|(_, record)| masked(record)) {
                    held.value = Value::Unsupported;
                    continue;
                }
                let baseline = partner.and_then(|op| tensor(op, &held.name.path));
                let ranks = pieces.iter().flat_map(|(rank, record)| [*rank, address(record)]);
                let key = ranks.chain(baseline.as_ref().map(address)).collect();
                let job = *known.entry(key).or_insert_with(|| {
                    gathered.jobs.push(Job { pieces, baseline, damage: None });
                    gathered.jobs.len() - 1
                });
                gathered.places.insert((place, slot), job);
            }
        }
        gathered
    }

    /// Returns the layouts of all values, and remarks on those that no layout explains.
    fn layouts(
        &self,
        ops: &[Op],
        stores: &[Arc<dyn TensorStore>],
        (other, split): (&Rank, bool),
        numbers: &[u32],
        declared: &Declared,
    ) -> Result<(Vec<Inferred>, HashMap<usize, Remark>), String> {
        let jobs = &self.jobs;
        let mut inferred: Vec<Inferred> = jobs.par_iter().map(|job| explained(job, stores, other)).collect();
        let routed = by_rows(jobs, &mut inferred, stores, other, split);
        self.as_declared(ops, &mut inferred, (stores, other), numbers, declared)?;
        let contiguous = by_documents(jobs, &mut inferred, stores, other);
        let mut said = in_common_order(jobs, &mut inferred, numbers, &routed);
        said.extend(contiguous.into_iter().map(|job| (job, Remark::Cut(false))));
        said.extend(partial_with_bias(self, ops, &inferred, (stores, other), numbers));
        let is_gradient =
            |place: usize| matches!(ops[place].name.phase(), Phase::Backward | Phase::ParameterGradient);
        let gradients = self.places.iter().filter(|((place, _), _)| is_gradient(*place));
        let gradients: HashSet<usize> = gradients.map(|(_, job)| *job).collect();
        let terms = match mean_of(ops, &self.places, &inferred) {
            1 => common_factor(jobs, &inferred, &gradients, stores, other),
            terms => terms,
        };
        let used = self.read_by_optimizers(ops);
        let micro = if split { self.micro_batches(ops, (&used, &inferred), stores, other) } else { 1 };
        if terms > 1 || micro > 1 {
            let found = inferred.par_iter_mut().enumerate();
            let found = found.filter(|(job, _)| gradients.contains(job) && !used.contains(job));
            found.for_each(|(job, found)| share_of_mean(&jobs[job], found, (terms, micro), stores, other));
        }
        if inferred.iter().any(|found| is_zigzag(&found.layout)) {
            self.gathered(ops, &mut inferred, stores, other);
        }
        Ok((inferred, said))
    }

    /// Returns the values that calls pick by indices or a mask which are those of each rank's own part: ranks hold their rows in orders of their own.
    fn picked(&self, ops: &[Op], is_own: impl Fn(usize) -> bool, inferred: &[Inferred]) -> HashSet<usize> {
        let mut found = HashSet::new();
        let calls = ops.iter().enumerate().filter(|(_, op)| PICKS.contains(&op.name.api()));
        for (place, op) in calls.filter(|(_, op)| op.name.phase() == Phase::Forward) {
            let jobs = |results: bool| {
                let slots =
                    op.slots.iter().enumerate().filter(move |(_, slot)| slot.side.is_result() == results);
                slots.filter_map(move |(slot, _)| self.places.get(&(place, slot)).copied())
            };
            let by_own = jobs(false).any(|job| {
                let number = self.jobs[job].pieces[0].1.dtype.known().is_some_and(|dtype| !dtype.is_float());
                number && (is_own(job) || !inferred[job].layout.is_whole())
            });
            found.extend(jobs(true).filter(|_| by_own));
        }
        found
    }

    /// Replaces layouts by those that the user declared.
    fn as_declared(
        &self,
        ops: &[Op],
        inferred: &mut [Inferred],
        (stores, other): (&[Arc<dyn TensorStore>], &Rank),
        numbers: &[u32],
        declared: &Declared,
    ) -> Result<(), String> {
        let mut used = Vec::new();
        for (&(place, slot), &job) in &self.places {
            let (op, slot) = (&ops[place], &ops[place].slots[slot]);
            let (held, found) = (&self.jobs[job], &mut inferred[job]);
            let line = declared.of(op.name.as_str(), &slot.path, slot.side.is_result());
            used.extend(line);
            let placement = held.pieces[0].1.placement.as_deref();
            let recorded = declared.recorded(op.name.as_str(), placement)?;
            let Some(line) = line.or(recorded.as_ref()) else { continue };
            let Some(baseline) = &held.baseline else { continue };
            let ranks: Vec<(usize, Vec<usize>)> = held
                .pieces
                .iter()
                .map(|(rank, record)| (numbers[*rank] as usize, infer::sizes(record)))
                .collect();
            let wrong = |why: String| line.wrong(&format!("{why} ({} {})", op.name.as_str(), slot.path));
            let layout = line.dims.layout(&infer::sizes(baseline), &line.mesh, &ranks).map_err(wrong)?;
            let picks = (0..held.pieces.len()).collect();
            let mut said = Inferred {
                layout,
                picks,
                odd: Vec::new(),
                distance: None,
                by_content: false,
                of_term: false,
            };
            let (own, seen) = (measured(held, &said, stores, other), measured(held, found, stores, other));
            if seen < NEAR && seen < NEARER * own && own > NEAR {
                return Err(wrong(
                    "the sizes fit, but the values are those of another layout, which was found without it"
                        .to_owned(),
                ));
            }
            said.distance = Some(own);
            *found = said;
        }
        declared
            .unused(&used)
            .map_or(Ok(()), |name| Err(format!("layout of {name:?}: no value of all ranks has this name")))
    }
}

/// Folds the ranks of one step, in order of rank, into one. `other` is the run to be compared with: where layouts leave a choice, the values of
/// its ops of the same names decide.
///
/// # Errors
/// What does not fit of a declared layout, in words.
///
/// # Panics
/// Without ranks.
pub fn fold(mut ranks: Vec<Rank>, other: &Rank, declared: &Declared) -> Result<Folded, String> {
    let Numbering { split, misplaced } = under_global_numbers(&mut ranks, other);
    if split {
        tied::under_one_name(&mut ranks, other);
    }
    let told = split || are_like(&ranks, other);
    let unequal = if told { Vec::new() } else { under_common_names(&mut ranks) };
    under_others_names(&mut ranks, other, split);
    let unlike = unlike_collectives(&ranks, other);
    without_reductions(&mut ranks, other);
    if split {
        arguments::without_lists_of_parts(&mut ranks, other);
        without_hand_overs(&mut ranks, other);
    }
    let numbers: Vec<u32> = ranks.iter().map(|rank| rank.key.rank.number()).collect();
    let others: HashMap<&str, &Op> = other.ops.iter().map(|op| (op.name.as_str(), op)).collect();
    let mut ops = if split { in_order_of(&ranks, other) } else { merged(&ranks) };
    only_collectives_of(&mut ops, &others, &unlike);
    arguments::without_parts_of_ranks(&mut ops, &others, ranks.len());
    let stores: Vec<Arc<dyn TensorStore>> = ranks.iter().map(|rank| Arc::clone(&rank.store)).collect();
    let mut gathered = Gathered::of(&mut ops, &ranks, &others);
    let (mut inferred, mut orders) = gathered.layouts(&ops, &stores, (other, split), &numbers, declared)?;
    for job in gathered.without_damaged(&mut inferred, &stores, other) {
        orders.remove(&job);
    }
    let (store, records) = values(&gathered, &inferred, &stores);
    let far: Vec<bool> = gathered
        .jobs
        .par_iter()
        .zip(&inferred)
        .map(|(job, found)| is_apart(job, found, &stores, other))
        .collect();
    let apart = gathered.places.iter().filter(|(_, job)| far[**job]).map(|(place, _)| *place).collect();
    // A value may stand at many places: it is read once.
    let chosen: Vec<bool> = gathered
        .jobs
        .par_iter()
        .zip(&inferred)
        .map(|(job, found)| is_of_order(job, found, true) && is_mostly_equal(job, found, &stores, other))
        .collect();
    let of_order = |job: usize, routed: bool| {
        !orders.contains_key(&job) && !chosen[job] && is_of_order(&gathered.jobs[job], &inferred[job], routed)
    };
    let picked: HashSet<usize> = gathered.picked(&ops, |job| of_order(job, false), &inferred);
    let held = held::of_jobs(&gathered.jobs, &inferred, &stores, &numbers);
    let mut spread = HashMap::new();
    let mut remarks = Remarks::new();
    for (&(place, slot), &job) in &gathered.places {
        let is_call = ops[place].name.kind() == OpKind::Api;
        let said = orders.get(&job);
        if (far[job] && picked.contains(&job)) || of_order(job, split && is_call) {
            ops[place].slots[slot].value = Value::Unsupported;
            continue;
        }
        ops[place].slots[slot].value = Value::Tensor(Arc::clone(&records[job]));
        spread.insert((place, slot), Arc::clone(&held[job]));
        if let Some(said) = said.cloned().or_else(|| remark(&gathered.jobs[job], &inferred[job], &numbers)) {
            remarks.insert((place, slot), said);
        }
    }
    arguments::whole(&mut ops, &others, &remarks);
    let recorded = gathered.jobs.iter().flat_map(|job| &job.pieces);
    let placements = recorded.filter_map(|(_, record)| record.placement.clone()).collect();
    let mut first = ranks.into_iter().next().expect("a step has ranks");
    (first.ops, first.store) = (ops, Arc::new(store));
    if let Some(function) = unequal.first() {
        let more = if unequal.len() > 1 { format!(" and {} more", unequal.len() - 1) } else { String::new() };
        let note = format!("the ranks call {function}{more} unequally often; these calls are not compared");
        first.notes.push(note);
    }
    Ok(Folded { rank: first, remarks, apart, placements, misplaced, spread })
}

/// Returns the global values: their tensors, and their records in the order of the jobs.
pub(crate) fn values(
    gathered: &Gathered,
    inferred: &[Inferred],
    stores: &[Arc<dyn TensorStore>],
) -> (FoldedStore, Vec<Arc<TensorRecord>>) {
    let jobs = gathered.jobs.par_iter().zip(inferred).enumerate();
    let made: Vec<(TensorRecord, Option<Made>)> =
        jobs.map(|(number, (job, found))| value(number, job, found, stores)).collect();
    let mut store = FoldedStore { ranks: stores.to_vec(), made: HashMap::new() };
    let mut records: Vec<Arc<TensorRecord>> = Vec::new();
    for (record, made) in made {
        if let (Some(key), Some(made)) = (record.data.as_deref(), made) {
            store.made.insert(key.into(), made);
        }
        records.push(Arc::new(record));
    }
    (store, records)
}

/// Returns the functions of collectives that these ranks and the other run call another number of times: those of one name are different calls. A
/// program calls some over groups of one rank too.
fn unlike_collectives(ranks: &[Rank], other: &Rank) -> HashSet<String> {
    let counts = |rank: &Rank| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for op in rank.ops.iter().filter(|op| op.name.is_collective() && op.name.phase() == Phase::Forward) {
            *counts.entry(op.name.stem().to_owned()).or_default() += 1;
        }
        counts
    };
    let theirs = counts(other);
    let unlike = |(stem, count): (String, usize)| (theirs.get(&stem) != Some(&count)).then_some(stem);
    ranks.iter().flat_map(counts).filter_map(unlike).collect()
}

/// Takes out collectives that the other run lacks: they are what makes one run of many ranks, and their effects are in the layouts. Of the `unlike`
/// ones, the values are taken out.
fn only_collectives_of(ops: &mut Vec<Op>, others: &HashMap<&str, &Op>, unlike: &HashSet<String>) {
    ops.retain(|op| !op.name.is_collective() || others.contains_key(op.name.as_str()));
    for op in ops.iter_mut().filter(|op| op.name.is_collective() && unlike.contains(op.name.stem())) {
        op.slots.iter_mut().for_each(|slot| slot.value = Value::Unsupported);
    }
}

/// Takes out what only these ranks call behind the backward pass, outside of all modules: it reduces gradients.
pub(crate) fn without_reductions(ranks: &mut [Rank], other: &Rank) {
    let others: HashSet<&str> = other.ops.iter().map(|op| op.name.as_str()).collect();
    for rank in ranks {
        let last = rank.ops.iter().rposition(|op| op.name.phase() == Phase::Backward).unwrap_or(0);
        let mut place = 0;
        rank.ops.retain(|op| {
            place += 1;
            let outside = op.name.kind() == OpKind::Api && op.parent.is_none();
            place <= last + 1 || !outside || others.contains(op.name.as_str())
        });
    }
}

/// Returns true for a value that no layout makes the other run's. What only some ranks recorded is measured here.
fn is_apart(job: &Job, found: &Inferred, stores: &[Arc<dyn TensorStore>], other: &Rank) -> bool {
    let Some(baseline) = &job.baseline else { return false };
    let same = |(_, record): &(usize, Arc<TensorRecord>)| record.checksum == baseline.checksum;
    let distance = found.distance.or_else(|| {
        let some = job.pieces.len() < stores.len() && !job.pieces.iter().all(same);
        some.then(|| measured(job, found, stores, other))
    });
    distance.is_some_and(|distance| distance >= NEAR)
}

pub(crate) fn tensor(op: &Op, path: &str) -> Option<Arc<TensorRecord>> {
    op.slots.iter().find(|slot| &*slot.path == path).and_then(|slot| match &slot.value {
        Value::Tensor(record) => Some(Arc::clone(record)),
        _ => None,
    })
}

/// Returns true for a linear call without the bias that the other run's has: the bias is added once, behind the reduction.
fn lacks_bias(op: &Op, partner: &Op) -> bool {
    let linear =
        op.name.kind() == OpKind::Api && op.name.api() == "linear" && op.name.phase() == Phase::Forward;
    linear
        && ["input.2", "kwarg.bias"]
            .iter()
            .any(|path| tensor(partner, path).is_some() && tensor(op, path).is_none())
}

/// Returns true for a lookup in a sharded table before the rows that are not in a rank's shard are masked: it holds anything there.
fn masked(record: &TensorRecord) -> bool {
    record.placement.as_deref().is_some_and(|placement| placement.contains("'MaskP'"))
}

/// Returns true for shards that fit no part of the other run's, if they are whole numbers (places in an order of tokens that each rank has for
/// itself), or `routed`: buffers of tokens of another size or of a size of each rank's own, and numbers of tokens that each rank sends and gets.
fn is_of_order(job: &Job, found: &Inferred, routed: bool) -> bool {
    let Some(baseline) = &job.baseline else { return false };
    let number = baseline.dtype.known().is_some_and(|dtype| !dtype.is_float());
    let own = |(place, (_, record)): (usize, &(usize, Arc<TensorRecord>))| {
        job.pieces[..place].iter().all(|(_, other)| other.checksum != record.checksum)
    };
    let counts = routed && number && job.pieces.len() > 1 && job.pieces.iter().enumerate().all(own);
    let shards = counts || job.pieces.iter().any(|(_, record)| record.shape != baseline.shape);
    let uneven = job.pieces.iter().any(|(_, record)| record.shape != job.pieces[0].1.shape);
    (number || (routed && (uneven || found.layout.is_whole())))
        && shards
        && found.distance.is_none_or(|distance| distance >= NEAR)
}

fn explained(job: &Job, stores: &[Arc<dyn TensorStore>], other: &Rank) -> Inferred {
    let pieces: Vec<Held<'_>> =
        job.pieces.iter().map(|(rank, record)| (&**record, &*stores[*rank])).collect();
    let baseline = job.baseline.as_ref().map(|record| (&**record, &*other.store));
    infer::infer(&pieces, baseline)
}

/// Returns the record of a global value, and where its pieces are.
pub(crate) fn value(
    number: usize,
    job: &Job,
    found: &Inferred,
    stores: &[Arc<dyn TensorStore>],
) -> (TensorRecord, Option<Made>) {
    let picked: Vec<&(usize, Arc<TensorRecord>)> =
        found.picks.iter().map(|&pick| &job.pieces[pick]).collect();
    if found.layout.shape.contains(&0) || job.damage.is_some() {
        let mut record = TensorRecord::clone(&picked[0].1);
        record.damage.clone_from(&job.damage);
        record.shape = found.layout.shape.iter().map(|&size| size as u64).collect();
        (record.data, record.strides, record.placement, record.requires_grad) = (None, None, None, None);
        return (record, None);
    }
    let keys = picked.iter().map(|(rank, record)| Some((*rank, record.data.as_deref()?.into())));
    let pieces: Option<Vec<(usize, Box<str>)>> = keys.collect();
    let made = pieces.map(|pieces| Made { layout: found.layout.clone(), pieces });
    let name = || Some(DataKey::from(&*format!("value {number} of all ranks")));
    if let [(_, record)] = *picked
        && found.layout.is_one_piece()
    {
        let mut record = TensorRecord::clone(record);
        record.data = record.data.and(name());
        (record.placement, record.requires_grad) = (None, None);
        return (record, made);
    }
    let records: Vec<&TensorRecord> = picked.iter().map(|(_, record)| &**record).collect();
    let mut folded = record::fold(&found.layout, &records);
    let Some(made) = made else { return (folded, None) };
    let key = "value";
    let store = FoldedStore { ranks: stores.to_vec(), made: HashMap::from([(key.into(), made)]) };
    if let Ok(data) = store.load(key) {
        let seen = measure::observe(data.view(), Content::HASH);
        if data.fault().is_none() {
            (folded.statistics, folded.places) = (seen.statistics.into(), seen.places);
            (folded.counts, folded.sketch, folded.sum_error) = (Some(seen.counts.into()), None, None);
            folded.checksum = seen.hash.map(Checksum::of_hash);
            folded.data = name();
        }
    }
    let made = store.made.into_values().next().filter(|_| folded.data.is_some());
    (folded, made)
}

fn remark(job: &Job, found: &Inferred, numbers: &[u32]) -> Option<Remark> {
    let rank = |&pick: &usize| numbers[job.pieces[pick].0];
    if !found.odd.is_empty() {
        return Some(Remark::Odd(found.odd.iter().map(rank).collect()));
    }
    let ranks: Vec<u32> = found.picks.iter().map(rank).collect();
    if let Some(alike) = alike_shards(job, found) {
        return Some(Remark::Alike(alike.iter().map(|&place| ranks[place]).collect()));
    }
    match found.layout.among {
        Among::Sum(_) if found.of_term => None,
        among @ (Among::Sum(_) | Among::Max | Among::Min) => {
            let partition = found.layout.partition();
            let terms = ranks.iter().zip(&partition).filter(|(_, first)| **first == partition[0]);
            Some(Remark::Partial(terms.map(|(rank, _)| *rank).collect(), among))
        }
        Among::Replicas if !found.layout.is_whole() => {
            Some(Remark::Sharded(ranks.into_iter().zip(found.layout.cells.iter().cloned()).collect()))
        }
        Among::Replicas => None,
    }
}

/// Returns places of equal pieces that should be different shards, of a value that no layout explains.
fn alike_shards(job: &Job, found: &Inferred) -> Option<Vec<usize>> {
    let cells = &found.layout.cells;
    if found.layout.is_whole() || found.distance.is_none_or(|distance| distance < NEAR) {
        return None;
    }
    let checksum = |place: usize| job.pieces[found.picks[place]].1.checksum.as_ref();
    let same = |a: usize, b: usize| checksum(a).is_some() && checksum(a) == checksum(b);
    let first = (0..cells.len())
        .find(|&a| (0..a).chain(a + 1..cells.len()).any(|b| same(a, b) && cells[a] != cells[b]))?;
    Some((0..cells.len()).filter(|&place| same(first, place)).collect())
}
