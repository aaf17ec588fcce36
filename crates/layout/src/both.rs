//! Two runs on many ranks each: one of them is made a run on one rank, of which the other's ranks are parts.
//!
//! Sizes tell the cuts. Where the local sizes of both runs differ, the global one is a multiple of either by as many as there are different shards.
//! Where they are equal, ranks that differ hold terms of a sum or shards of one size, and the one counts of which the other run's ranks make most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;

use probe_dump::{Op, OpKind, Phase, Rank, TensorRecord, TensorStore, Value};

use super::calls::{under_common_names, under_others_names, under_unique_names};
use super::cuts::{Cut, tiles};
use super::damage::{damage, unknown};
use super::fold::{tensor, value, values, without_reductions};
use super::infer::{self, Held, Inferred, NEAR, NEARER, classes, sizes};
use super::job::{Gathered, Job};
use super::layout::{Among, Layout};
use super::merge::merged;
use super::numbering::modules;
use super::stages::{hold_all, in_order_of_layers, under_common_numbers};
use super::store::FoldedStore;
use super::tied;

/// Most dimensions along which equal shards are put together.
const MOST_DIMENSIONS: usize = 4;

/// Brings the modules of two runs under the numbers of the whole model. Returns true if the other run is the one that holds all of it on each rank,
/// and these ranks do not.
///
/// # Errors
/// The parts that the ranks of both hold do not make one model.
///
/// # Panics
/// Without ranks.
pub fn numbered(ranks: &mut [Rank], others: &mut [Rank]) -> Result<bool, String> {
    if !under_common_numbers(ranks, others) {
        return Err("the parts of the model that the ranks of both runs hold do not make one; compare each with a run on one rank".to_owned());
    }
    Ok(hold_all(others) && !hold_all(ranks))
}

/// Name of an op, and path of a slot.
pub type ValueName = (Box<str>, Box<str>);

/// Values that ranks hold terms of, by name: the ranks, and what is made of their terms.
pub type HeldTerms = HashMap<ValueName, (Vec<u32>, Among)>;

/// Ranks of one run as one, to be compared with the ranks of another.
#[derive(Debug)]
pub struct Joined {
    /// The global values.
    pub rank: Rank,
    /// What its ranks hold terms of.
    pub terms: HeldTerms,
}

/// Makes the ranks of one step one rank, whose values are global, by what the `others` hold; these are brought under common names of calls. The
/// modules of both bear the numbers of the whole model.
///
/// # Panics
/// Without ranks.
pub fn joined(mut ranks: Vec<Rank>, others: &mut [Rank]) -> Joined {
    let held = ranks.iter().flat_map(modules).map(|(path, _)| path).collect::<BTreeSet<_>>().len();
    let split = others.iter().any(|rank| modules(rank).len() < held);
    let mut ops = if hold_all(&ranks) {
        tied::under_one_name(others, &ranks[0]);
        under_common_names(&mut ranks);
        under_others_names(others, &ranks[0], split);
        without_reductions(&mut ranks, &others[0]);
        merged(&ranks)
    } else {
        of_stages(&mut ranks, others)
    };
    ops.retain(|op| !op.name.is_collective());
    without_splits(&mut ops, others, ranks.len());
    let stores: Vec<Arc<dyn TensorStore>> = ranks.iter().map(|rank| Arc::clone(&rank.store)).collect();
    let mut gathered = Gathered::of(&mut ops, &ranks, &HashMap::new());
    let (found, damaged) = layouts(&gathered, &ops, &stores, others);
    for (job, damage) in gathered.jobs.iter_mut().zip(damaged) {
        job.damage = damage;
    }
    let unknown: Vec<bool> = found.iter().map(Option::is_none).collect();
    let first = |job: &Job| whole(&job.pieces[0].1, vec![0], Among::Replicas);
    let found = found.into_iter().zip(&gathered.jobs);
    let inferred: Vec<Inferred> = found.map(|(found, job)| found.unwrap_or_else(|| first(job))).collect();
    let (store, records) = values(&gathered, &inferred, &stores);
    let mut terms = HeldTerms::new();
    for (&(place, slot), &job) in &gathered.places {
        if let Some(held) = terms_of(&gathered.jobs[job], &inferred[job], &ranks) {
            terms
                .insert((ops[place].name.as_str().into(), ops[place].slots[slot].path.as_ref().into()), held);
        }
        let known = Value::Tensor(Arc::clone(&records[job]));
        ops[place].slots[slot].value = if unknown[job] { Value::Unsupported } else { known };
    }
    let mut first = ranks.into_iter().next().expect("a step has ranks");
    (first.ops, first.store) = (ops, Arc::new(store));
    Joined { rank: first, terms }
}

/// Returns the ranks that hold terms of a value, and what is made of these; `None` for a value of which each holds a part or all, and for one of
/// which the program itself keeps account.
fn terms_of(job: &Job, found: &Inferred, ranks: &[Rank]) -> Option<(Vec<u32>, Among)> {
    let placed = job.pieces.iter().any(|(_, record)| record.placement.is_some());
    let numbers = || found.picks.iter().map(|&pick| ranks[job.pieces[pick].0].key.rank.number()).collect();
    (found.layout.among != Among::Replicas && !placed).then(|| (numbers(), found.layout.among))
}

/// Returns the ops of ranks that hold parts of the model, and brings the calls of the others under their names.
fn of_stages(ranks: &mut [Rank], others: &mut [Rank]) -> Vec<Op> {
    under_unique_names(ranks);
    let ops = in_order_of_layers(ranks);
    let own = std::mem::replace(&mut ranks[0].ops, ops);
    under_others_names(others, &ranks[0], true);
    let mut ops = std::mem::replace(&mut ranks[0].ops, own);
    let known: HashSet<&str> = others.iter().flat_map(|rank| &rank.ops).map(|op| op.name.as_str()).collect();
    // What is called for the parameters of a stage alone has another number of calls in other stages.
    let outside = |op: &Op| op.parent.as_deref().is_none_or(|parent| parent.starts_with("Optimizer."));
    ops.retain(|op| op.name.kind() != OpKind::Api || !outside(op) || known.contains(op.name.as_str()));
    ops
}

/// Takes out calls that split a value into as many parts as there are ranks, which both runs make differently.
fn without_splits(ops: &mut Vec<Op>, others: &mut [Rank], ranks: usize) {
    let parts = |op: &Op| op.slots.iter().filter(|slot| slot.side.is_result()).count();
    let count = others.len();
    let all = others.iter().flat_map(|rank| &rank.ops);
    let theirs: HashMap<&str, usize> = all.map(|op| (op.name.as_str(), parts(op))).collect();
    let differs = |op: &&Op| {
        let own = parts(op);
        let their = theirs.get(op.name.as_str()).copied().unwrap_or(own);
        own != their && own > 0 && their > 0 && ranks.is_multiple_of(own) && count.is_multiple_of(their)
    };
    let split: HashSet<String> = ops.iter().filter(differs).map(|op| op.name.as_str().to_owned()).collect();
    ops.retain(|op| !split.contains(op.name.as_str()));
    for rank in others {
        rank.ops.retain(|op| !split.contains(op.name.as_str()));
    }
}

/// Returns the layouts of all values; `None` for what no layout of both runs explains: each rank has it for itself. Beside them stand the reasons why
/// values cannot be read on a rank.
fn layouts(
    gathered: &Gathered,
    ops: &[Op],
    stores: &[Arc<dyn TensorStore>],
    others: &[Rank],
) -> (Vec<Option<Inferred>>, Vec<Option<Box<str>>>) {
    let by_name: Vec<HashMap<&str, &Op>> =
        others.iter().map(|rank| rank.ops.iter().map(|op| (op.name.as_str(), op)).collect()).collect();
    let mut theirs: Vec<Vec<(usize, Arc<TensorRecord>)>> = vec![Vec::new(); gathered.jobs.len()];
    for (&(place, slot), &job) in &gathered.places {
        // One value has several places, at some of which the other run may hold parts of it: the whole says more.
        let is_cut = |held: &[(usize, Arc<TensorRecord>)]| {
            held.first().is_none_or(|(_, record)| record.shape != gathered.jobs[job].pieces[0].1.shape)
        };
        if is_cut(&theirs[job]) {
            let (name, path) = (ops[place].name.as_str(), &ops[place].slots[slot].path);
            let of = |(rank, ops): (usize, &HashMap<&str, &Op>)| Some((rank, tensor(ops.get(name)?, path)?));
            let held: Vec<(usize, Arc<TensorRecord>)> = by_name.iter().enumerate().filter_map(of).collect();
            if theirs[job].is_empty() || !is_cut(&held) {
                theirs[job] = held;
            }
        }
    }
    let sides: Vec<Sides<'_>> = gathered
        .jobs
        .iter()
        .zip(&theirs)
        .map(|(job, theirs)| Sides {
            job,
            stores,
            own: job.pieces.iter().map(|(rank, record)| (&**record, &*stores[*rank])).collect(),
            theirs: theirs.iter().map(|(rank, record)| (&**record, &*others[*rank].store)).collect(),
        })
        .collect();
    // Shards of zeros or ones are equal on all ranks: they are cut as others are.
    let mut counts: HashMap<(usize, usize), usize> = HashMap::new();
    for found in sides.iter().filter_map(|side| side.counts().filter(|_| side.is_cut())) {
        *counts.entry(found).or_default() += 1;
    }
    let usual =
        counts.into_iter().max_by_key(|((own, theirs), count)| (*count, *own, *theirs)).map(|(of, _)| of);
    let mut found: Vec<Option<Inferred>> = sides.par_iter().map(|side| side.explained(usual)).collect();
    as_in_other_layers(gathered, ops, &mut found);
    as_parameters(gathered, ops, &sides, &mut found);
    let damaged: Vec<Option<Box<str>>> = sides.par_iter().map(|side| damage(&side.own)).collect();
    for ((found, side), own) in found.iter_mut().zip(&sides).zip(&damaged) {
        // The other run's pieces are marked where they are folded.
        if own.is_some() || (found.is_none() && damage(&side.theirs).is_some()) {
            *found = Some(unknown(side.own[0].0));
        }
    }
    (found, damaged)
}

/// Cuts gradients as their parameters are cut, where sums explain them too: of an embedding that stages share, each rank holds terms of its own shard.
fn as_parameters(gathered: &Gathered, ops: &[Op], sides: &[Sides<'_>], found: &mut [Option<Inferred>]) {
    let named = |place: usize, slot: usize| parameter_of(&ops[place], &ops[place].slots[slot].path);
    let all = || gathered.places.iter().filter_map(|(&(place, slot), &job)| Some((named(place, slot)?, job)));
    let parameters: HashMap<String, usize> =
        all().filter(|((_, is_gradient), _)| !is_gradient).map(|((name, _), job)| (name, job)).collect();
    let open = |job: usize| found[job].as_ref().is_none_or(|way| way.layout.among != Among::Replicas);
    let told: Vec<(usize, Inferred)> = all()
        .filter(|((_, is_gradient), job)| *is_gradient && open(*job))
        .filter_map(|((name, _), job)| {
            let of = *parameters.get(&name)?;
            let way = found[of].as_ref().filter(|way| !way.layout.is_whole())?;
            let pieces =
                |job: usize| gathered.jobs[job].pieces.iter().map(|(rank, record)| (*rank, &record.shape));
            (pieces(job).eq(pieces(of)) && sides[job].distance(way) < NEAR).then(|| (job, way.clone()))
        })
        .collect();
    for (job, way) in told {
        found[job] = Some(way);
    }
}

/// Explains values that no layout fits, as behind a fault or where a weight is wrong, as most values of this name in other layers and calls.
fn as_in_other_layers(gathered: &Gathered, ops: &[Op], found: &mut [Option<Inferred>]) {
    let shapes = |job: usize| gathered.jobs[job].pieces.iter().map(|(_, record)| &*record.shape).collect();
    let mut named: BTreeMap<(String, Vec<&[u64]>), BTreeSet<usize>> = BTreeMap::new();
    for (&(place, slot), &job) in &gathered.places {
        let name = format!("{} {}", ops[place].name.as_str(), ops[place].slots[slot].path);
        let name = name.chars().filter(|of| !of.is_ascii_digit()).collect();
        named.entry((name, shapes(job))).or_default().insert(job);
    }
    let mut told: Vec<(usize, Inferred)> = Vec::new();
    for jobs in named.into_values() {
        let mut ways: Vec<(usize, usize)> = Vec::new();
        let explained = || jobs.iter().filter_map(|&job| Some((job, found[job].as_ref()?)));
        for (job, way) in explained() {
            let same = |(first, _): &&mut (usize, usize)| {
                found[*first].as_ref().is_some_and(|of| of.layout == way.layout)
            };
            match ways.iter_mut().find(same) {
                Some((_, count)) => *count += 1,
                None => ways.push((job, 1)),
            }
        }
        let usual = ways.iter().max_by_key(|(first, count)| (*count, Reverse(*first)));
        let Some(usual) = usual.and_then(|(first, _)| found[*first].as_ref()) else { continue };
        told.extend(jobs.iter().filter(|&&job| found[job].is_none()).map(|&job| (job, usual.clone())));
    }
    told.sort_by_key(|(job, _)| *job);
    for (job, usual) in told {
        found[job].get_or_insert(usual);
    }
}

/// Returns the parameter that an optimizer changes, or whose gradient a slot holds, and true for a gradient.
fn parameter_of(op: &Op, path: &str) -> Option<(String, bool)> {
    if op.name.phase() == Phase::ParameterGradient {
        return Some((format!("{}.{}", op.name.module_path()?, path.strip_prefix("grad.")?), true));
    }
    if !op.name.as_str().starts_with("Optimizer.") {
        return None;
    }
    let gradient = path.strip_prefix("input.grad.");
    let name = gradient.or_else(|| path.strip_prefix("parameter."))?;
    Some((name.to_owned(), gradient.is_some()))
}

/// The pieces of a value in both runs.
struct Sides<'a> {
    job: &'a Job,
    stores: &'a [Arc<dyn TensorStore>],
    own: Vec<Held<'a>>,
    theirs: Vec<Held<'a>>,
}

impl Sides<'_> {
    /// Returns true if the local sizes differ.
    fn is_cut(&self) -> bool {
        let [own, theirs] =
            [&self.own, &self.theirs].map(|pieces| pieces.first().map(|(record, _)| sizes(record)));
        matches!((own, theirs), (Some(own), Some(theirs)) if own != theirs && own.len() == theirs.len())
    }

    /// Returns the numbers of different pieces in both runs; `None` if one lacks the value, or if its pieces have several sizes.
    fn counts(&self) -> Option<(usize, usize)> {
        let of = |pieces: &[Held<'_>]| {
            let first = sizes(pieces.first()?.0);
            pieces.iter().all(|(record, _)| sizes(record) == first).then(|| classes(pieces).len())
        };
        Some((of(&self.own)?, of(&self.theirs)?))
    }

    fn explained(&self, usual: Option<(usize, usize)>) -> Option<Inferred> {
        let alone = || Some(self.whole(vec![0], Among::Replicas));
        let Some(counts) = self.counts() else { return alone() };
        if self.is_cut() {
            let constant = |(record, _): &Held<'_>| record.statistics.min() == record.statistics.max();
            let equal = || self.cut(usual.filter(|_| self.own.iter().all(constant))?);
            return self.cut(counts).or_else(|| self.padded(counts)).or_else(equal);
        }
        if counts.0 == 1 { alone() } else { self.by_trial() }
    }

    /// Explains pieces of which all have the size of the whole.
    fn whole(&self, picks: Vec<usize>, among: Among) -> Inferred {
        whole(self.own[0].0, picks, among)
    }

    /// Explains pieces as shards: `own` different ones, of which as many times the local size is `theirs` times the other run's.
    fn cut(&self, (own, theirs): (usize, usize)) -> Option<Inferred> {
        let [local, other] = [self.own[0].0, self.theirs[0].0].map(sizes);
        let splits: Vec<usize> =
            (0..local.len()).filter(|&dimension| local[dimension] != other[dimension]).collect();
        let shape = multiples(&local, &other, &splits, (own, theirs))?;
        let splits: Vec<usize> =
            splits.into_iter().filter(|&dimension| shape[dimension] != local[dimension]).collect();
        self.sharded(&shape, &splits)
    }

    /// Explains pieces as shards that reach beyond the end of a value of which the other run's ranks hold the whole: a vocabulary is padded so that ranks
    /// have parts of one size.
    fn padded(&self, (own, theirs): (usize, usize)) -> Option<Inferred> {
        let [local, whole] = [self.own[0].0, self.theirs[0].0].map(sizes);
        let splits: Vec<usize> = (0..local.len()).filter(|&of| local[of] != whole[of]).collect();
        let [dimension] = *splits else { return None };
        let (part, size) = (local[dimension], whole[dimension]);
        let fits = theirs == 1 && part > 0 && part < size && size.div_ceil(part) == own;
        self.sharded(&whole, &splits).filter(|_| fits)
    }

    /// Explains pieces as contiguous shards of a value of this shape, in the order of the ranks.
    fn sharded(&self, shape: &[usize], splits: &[usize]) -> Option<Inferred> {
        let Some(&dimension) = splits.first() else { return Some(self.whole(vec![0], Among::Replicas)) };
        let cells = tiles(shape, &sizes(self.own[0].0), splits, Cut { dimension, blocks: 1, zigzag: false })?;
        let classes = classes(&self.own);
        let count = self.own.len();
        if !count.is_multiple_of(cells.len()) {
            return None;
        }
        let place = |piece: usize| {
            if classes.len() == cells.len() {
                classes.iter().position(|class| class.contains(&piece))
            } else {
                Some(piece / (count / cells.len()))
            }
        };
        let held = (0..count).map(|piece| cells.get(place(piece)?).cloned()).collect::<Option<_>>()?;
        let layout = Layout { shape: shape.into(), cells: held, among: Among::Replicas };
        let picks = (0..count).collect();
        Some(Inferred { layout, picks, odd: Vec::new(), distance: None, by_content: false, of_term: false })
    }

    /// Explains pieces of equal sizes that differ: the other run's must be parts, terms or replicas of what they make.
    fn by_trial(&self) -> Option<Inferred> {
        let firsts: Vec<usize> = classes(&self.own).iter().map(|class| class[0]).collect();
        let count = u32::try_from(firsts.len()).unwrap_or(1);
        let local = sizes(self.own[0].0);
        let put_together = (0..local.len().min(MOST_DIMENSIONS)).filter_map(|dimension| {
            let mut shape = local.clone();
            shape[dimension] = shape[dimension].checked_mul(firsts.len())?;
            self.sharded(&shape, &[dimension])
        });
        let mut ways = vec![self.whole(vec![0], Among::Replicas)];
        // Terms of which the other run has the same are also shards of what they make, of which more is known than of sums. If the other run must
        // add some of its own up to make them, both hold terms.
        ways.extend(put_together.filter(|way| self.found(way).0.layout.among == Among::Replicas));
        ways.extend([1, count].map(|share| self.whole(firsts.clone(), Among::Sum(share))));
        let mut best: Option<(f64, Inferred)> = None;
        for way in ways {
            let distance = self.distance(&way);
            // Of explanations that are as good, the first counts.
            if best.as_ref().is_none_or(|(least, _)| distance < NEARER * least && *least > NEAR * NEAR) {
                best = Some((distance, way));
            }
        }
        best.filter(|(distance, _)| *distance < NEAR).map(|(_, way)| way)
    }

    /// Returns the distance at which the other run's pieces make the value that an explanation makes of these.
    fn distance(&self, way: &Inferred) -> f64 {
        self.found(way).1
    }

    /// Returns the layout in which the other run's pieces make the value that an explanation makes of these, and the distance.
    fn found(&self, way: &Inferred) -> (Inferred, f64) {
        let (record, made) = value(0, self.job, way, self.stores);
        let made = record.data.as_deref().map(Box::from).zip(made);
        let store = FoldedStore { ranks: self.stores.to_vec(), made: made.into_iter().collect() };
        let whole: Held<'_> = (&record, &store);
        let found = infer::infer(&self.theirs, Some(whole));
        let distance = infer::measured(&self.theirs, whole, &found);
        (found, distance)
    }
}

/// Returns the layout of pieces that have the size of the whole.
fn whole(record: &TensorRecord, picks: Vec<usize>, among: Among) -> Inferred {
    let layout = Layout::same(&sizes(record), picks.len(), among);
    Inferred { layout, picks, odd: Vec::new(), distance: None, by_content: false, of_term: false }
}

/// Returns the global sizes: `own` times the local size in the dimensions `splits` together, and `theirs` times the other run's.
fn multiples(
    local: &[usize],
    other: &[usize],
    splits: &[usize],
    (own, theirs): (usize, usize),
) -> Option<Vec<usize>> {
    let Some((&dimension, rest)) = splits.split_first() else {
        return (own == 1 && theirs == 1).then(|| local.to_vec());
    };
    let factors = (1..=own).filter(|factor| own.is_multiple_of(*factor));
    factors.into_iter().find_map(|factor| {
        let size = local[dimension].checked_mul(factor)?;
        let of_theirs =
            size.checked_div(other[dimension]).filter(|times| times * other[dimension] == size)?;
        if of_theirs == 0 || !theirs.is_multiple_of(of_theirs) {
            return None;
        }
        let mut shape = multiples(local, other, rest, (own / factor, theirs / of_theirs))?;
        shape[dimension] = size;
        Some(shape)
    })
}
