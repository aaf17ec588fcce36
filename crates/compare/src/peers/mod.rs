//! Compares the ranks of one dump with each other: finds the rank that holds a different value while its peers agree, and the rank on which a NaN
//! originated before collectives spread it.
//!
//! No second run is needed. Replicas are looked for within the groups that the run recorded (`groups`); of a run without groups, replication is
//! inferred from the values (`classes`).

mod classes;
mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use classes::Classes;
use groups::{Groups, ZERO};
use probe_dump::{Number, NumberSet, Op, PartKey, Rank, Slot, SlotSide, TensorRecord};
use probe_files::{Copies, map::FileAccess};
use probe_pair::value_key;
use probe_read::{ReadError, open_called};

/// Prefix of the names of optimizer steps.
const OPTIMIZER: &str = "Optimizer.";

/// Functions that write infinity on purpose.
const FILLS: [&str; 8] = ["masked_fill", "full", "fill", "where", "triu", "tril", "full_like", "new_full"];

/// Fraction of the values of a kind that must agree on all ranks for all of this kind to count as replicas.
const REPLICATED: f64 = 0.9;

/// Selection of the data to check.
#[derive(Debug, Clone, Default)]
pub struct PeerOptions {
    /// Steps to check; all when empty.
    pub steps: NumberSet,
    /// Ranks to check; all when empty.
    pub ranks: NumberSet,
    /// Access method for the bytes of large files.
    pub access: FileAccess,
    /// Location of the dump, if it is read from a copy.
    pub copies: Copies,
}

/// Result of comparing the ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Peers {
    /// Path as given.
    pub path: PathBuf,
    /// Ranks that were checked.
    pub ranks: BTreeSet<u32>,
    /// Steps that were checked, with the findings of each.
    pub steps: Vec<StepPeers>,
    /// Things that could not be read.
    pub faults: Vec<String>,
}

/// Findings of one step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepPeers {
    /// Iteration.
    pub step: u64,
    /// Number of values that are the same on more than one rank.
    pub replicated: u64,
    /// Ranks that hold a different value from their peers, earliest first.
    pub odd: Vec<OddRank>,
    /// Places where NaN or infinity arose from finite values: earliest first, by the number of preceding collectives. The first is the origin.
    pub births: Vec<Birth>,
    /// Ranks that received NaN or infinity from a collective, with the first such collective.
    pub received: Vec<(u32, String)>,
}

/// A rank that differs from its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OddRank {
    /// The rank.
    pub rank: u32,
    /// The other rank, if the group consists of only these two: one of them is wrong.
    pub or: Option<u32>,
    /// Number of values in which it differs.
    pub values: u64,
    /// The first of these values, such as `Optimizer.AdamW.step.0 input.0`.
    pub first: String,
    /// Its position in execution order.
    pub order: usize,
}

/// An op that produced NaN or infinity from finite values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Birth {
    /// The rank.
    pub rank: u32,
    /// Number of collectives in which this rank took part before.
    pub collectives: usize,
    /// Position in execution order.
    pub order: usize,
    /// Name of the op.
    pub op: String,
    /// The result slot.
    pub slot: String,
    /// True for NaN, false for infinity.
    pub nan: bool,
}

impl Peers {
    /// Returns true if nothing is wrong: no odd rank, and no NaN.
    pub fn agree(&self) -> bool {
        self.steps.iter().all(|step| step.odd.is_empty() && step.births.iter().all(|birth| !birth.nan))
    }
}

/// Compares the ranks of the dump at `path`. Runs on the current rayon pool.
///
/// # Errors
/// [`ReadError`] when there is no dump, or fewer than two ranks are selected.
pub fn peers(path: &Path, options: &PeerOptions) -> Result<Peers, ReadError> {
    let dump = open_called(path, &options.copies, options.access)?;
    let mut found = Peers { path: path.into(), ..Peers::default() };
    found.faults.extend(dump.faults.iter().map(ToString::to_string));
    let mut steps: BTreeMap<u64, Vec<&PartKey>> = BTreeMap::new();
    for key in &dump.parts {
        let rank = key.rank.number();
        if options.steps.contains(key.step) && options.ranks.contains(rank.into()) {
            steps.entry(key.step).or_default().push(key);
            found.ranks.insert(rank);
        }
    }
    if found.ranks.len() < 2 {
        let message =
            format!("{} rank is selected, at least two are needed to compare ranks", found.ranks.len());
        return Err(ReadError::usage(path, message));
    }
    let groups = Groups::of(&crate::layouts::groups(&dump));
    for (step, keys) in steps {
        let read: Vec<Result<RankFacts, String>> = keys
            .par_iter()
            .map(|key| {
                dump.reader.read(key).map(|rank| RankFacts::of(&rank)).map_err(|fault| fault.to_string())
            })
            .collect();
        let mut ranks = Vec::with_capacity(read.len());
        for outcome in read {
            match outcome {
                Ok(mut facts) => {
                    found.faults.append(&mut facts.faults);
                    ranks.push(facts);
                }
                Err(fault) => found.faults.push(fault),
            }
        }
        found.steps.push(of_step(step, &ranks, &groups));
    }
    Ok(found)
}

/// Facts kept for a rank: little data, however many ops it has.
struct RankFacts {
    rank: u32,
    /// Values that may be replicated, by op and slot: position in execution order, key of the value, and kind.
    values: Vec<(String, usize, u64, Kind)>,
    births: Vec<Birth>,
    received: Option<String>,
    faults: Vec<String>,
}

impl RankFacts {
    fn of(part: &Rank) -> Self {
        let rank = part.key.rank.number();
        let mut facts = Self {
            rank,
            values: Vec::new(),
            births: Vec::new(),
            received: None,
            faults: part.faults.iter().map(ToString::to_string).collect(),
        };
        let mut collectives = 0;
        for (order, op) in part.ops.iter().enumerate() {
            let name = op.name.as_str();
            let collective = op.name.is_collective();
            let step = name.starts_with(OPTIMIZER);
            for slot in &op.slots {
                let Some(record) = slot.value.tensor() else { continue };
                let kind = match slot.side {
                    SlotSide::Parameter => Kind::Weight,
                    _ if step => Kind::Update,
                    SlotSide::Gradient => Kind::Gradient,
                    _ if collective && slot.side.is_result() => Kind::Exchanged,
                    _ => continue,
                };
                let zero = record.statistics.norm() == Some(0.0);
                if let Some(key) = value_key(record).map(|key| if zero { ZERO } else { key }) {
                    facts.values.push((format!("{name} {}", slot.path), order, key, kind));
                }
            }
            facts.look_for_birth(op, order, collectives, collective);
            collectives += usize::from(collective);
        }
        facts
    }

    /// Records an op whose results are not finite although its inputs are.
    fn look_for_birth(&mut self, op: &Op, order: usize, collectives: usize, collective: bool) {
        if op.name.only_allocates() {
            return;
        }
        let flaws = |result: bool| {
            let slots = op.slots.iter().filter(move |slot| slot.side.is_result() == result);
            slots.filter_map(|slot| Some((slot, flaw(slot.value.tensor()?)?)))
        };
        // NaN from NaN and infinity from infinity did not originate here; NaN from infinity did.
        let worst_given = flaws(false).map(|(_, nan)| nan).max();
        let made = flaws(true)
            .max_by_key(|(slot, nan): &(&Slot, bool)| (*nan, std::cmp::Reverse(slot.path.clone())));
        let Some((slot, nan)) = made.filter(|(_, nan)| worst_given.is_none_or(|given| *nan && !given)) else {
            return;
        };
        if collective {
            self.received.get_or_insert_with(|| op.name.to_string());
            return;
        }
        let told = !nan && FILLS.contains(&op.name.api().trim_matches('_'));
        // Only the first of each kind: later ones are consequences or indistinguishable from them.
        if !told && self.received.is_none() && self.births.iter().all(|birth| nan && !birth.nan) {
            let (op, slot) = (op.name.to_string(), slot.path.to_string());
            self.births.push(Birth { rank: self.rank, collectives, order, op, slot, nan });
        }
    }
}

/// Returns `true` if a tensor holds NaN, `false` if it holds infinity; `None` if it is finite or nothing is known.
fn flaw(record: &TensorRecord) -> Option<bool> {
    if let Some(counts) = &record.counts {
        let infinite = counts.positive_infinite + counts.negative_infinite > 0;
        return if counts.nan > 0 { Some(true) } else { infinite.then_some(false) };
    }
    let found = &record.statistics;
    let numbers = [found.min().map(Number::as_f64), found.max().map(Number::as_f64), found.norm()];
    let mut numbers = numbers.into_iter().flatten();
    if numbers.clone().any(f64::is_nan) { Some(true) } else { numbers.any(f64::is_infinite).then_some(false) }
}

fn of_step(step: u64, ranks: &[RankFacts], groups: &Groups) -> StepPeers {
    let mut found = StepPeers { step, ..StepPeers::default() };
    let mut values: BTreeMap<&str, Value> = BTreeMap::new();
    for facts in ranks {
        for (name, order, key, kind) in &facts.values {
            let value =
                values.entry(name).or_insert_with(|| Value { order: *order, kind: *kind, keys: Vec::new() });
            value.order = value.order.min(*order);
            value.keys.push((facts.rank, *key));
        }
    }
    values.retain(|_, value| value.keys.len() > 1);
    let kept = kept(&values, groups);
    let mut odd: BTreeMap<(u32, Option<u32>), OddRank> = BTreeMap::new();
    let mut tell = |rank: u32, or: Option<u32>, name: &str, order: usize| {
        let entry = odd.entry((rank, or)).or_insert_with(|| OddRank {
            rank,
            or,
            values: 0,
            first: name.into(),
            order,
        });
        entry.values += 1;
        if order < entry.order {
            (entry.first, entry.order) = (name.into(), order);
        }
    };
    for (name, value) in &values {
        let distinct: BTreeSet<u64> = value.keys.iter().map(|(_, key)| *key).collect();
        found.replicated += u64::from(distinct.len() < value.keys.len());
        let judged = if groups.is_empty() {
            match classes::judge(&value.keys) {
                // If nearly all weights are the same on two ranks, one that differs is a fault of either rank.
                Classes::Even if value.kind == Kind::Weight && kept.contains(&(Kind::Weight, 0)) => {
                    value.pair()
                }
                judged => judged,
            }
        } else {
            groups.judge(&value.keys, |place| kept.contains(&(value.kind, place)))
        };
        match judged {
            Classes::Odd(ranks) => ranks.into_iter().for_each(|rank| tell(rank, None, name, value.order)),
            Classes::Pair(a, b) => tell(a, Some(b), name, value.order),
            Classes::Even => {}
        }
    }
    found.odd = odd.into_values().collect();
    found.odd.sort_by_key(|odd| (odd.order, odd.rank));
    found.births = ranks.iter().flat_map(|facts| facts.births.iter().cloned()).collect();
    // Collectives synchronize all ranks: anything before a collective on one rank precedes anything after it on every other
    // rank.
    found.births.sort_by_key(|birth| (!birth.nan, birth.collectives, birth.order, birth.rank));
    found.received = ranks.iter().filter_map(|facts| Some((facts.rank, facts.received.clone()?))).collect();
    found
}

/// Returns kinds of values of which nearly all are replicas, each with the place of the partition over which they are; without groups, over all
/// ranks and under the place 0.
fn kept(values: &BTreeMap<&str, Value>, groups: &Groups) -> BTreeSet<(Kind, usize)> {
    let mut counts: BTreeMap<(Kind, usize), (u64, u64)> = BTreeMap::new();
    for value in values.values() {
        let replicated = if groups.is_empty() {
            vec![Some(value.keys.windows(2).all(|pair| pair[0].1 == pair[1].1))]
        } else {
            groups.replicated(&value.keys)
        };
        for (place, same) in
            replicated.into_iter().enumerate().filter_map(|(place, same)| Some((place, same?)))
        {
            let count = counts.entry((value.kind, place)).or_default();
            *count = (count.0 + 1, count.1 + u64::from(same));
        }
    }
    counts.retain(|_, (all, same)| *same as f64 >= REPLICATED * *all as f64);
    counts.into_keys().collect()
}

/// Where a value that may be replicated stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Weight,
    Gradient,
    /// Values that an optimizer reads and writes.
    Update,
    /// The result of a collective.
    Exchanged,
}

/// One value on the ranks that have it.
struct Value {
    order: usize,
    kind: Kind,
    keys: Vec<(u32, u64)>,
}

impl Value {
    /// Returns the two ranks that hold different values, if there are no others.
    fn pair(&self) -> Classes {
        match self.keys[..] {
            [(a, x), (b, y)] if x != y => Classes::Pair(a.min(b), a.max(b)),
            _ => Classes::Even,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use probe_dump::{
        Counts, DType, OpName, RankId, RecordedDType, RecordedStatistics, Task, TensorData, TensorStore,
        Value as Recorded,
    };

    struct NoData;

    impl TensorStore for NoData {
        fn load(&self, _: &str) -> Result<TensorData, ReadError> {
            unreachable!("nothing is loaded")
        }
    }

    /// Returns a slot: `seed` represents the value; `nan` and `infinite` are counts.
    fn slot(path: &str, side: SlotSide, seed: u32, nan: u64, infinite: u64) -> Slot {
        let mut record = TensorRecord::new(RecordedDType::Known(DType::F32), [8].into());
        let number = |value: f64| Some(Number::Float(value));
        record.statistics = RecordedStatistics {
            min: number(-1.0),
            max: number(f64::from(seed)),
            mean: None,
            norm: Some(2.0),
        }
        .into();
        record.counts =
            Some(Counts { elements: 8, nan, positive_infinite: infinite, ..Counts::default() }.into());
        Slot::new(path, side, Recorded::Tensor(Arc::new(record)))
    }

    fn op(name: &str, slots: Vec<Slot>) -> Op {
        Op { slots, ..Op::new(OpName::parse(name)) }
    }

    fn part(rank: u32, ops: Vec<Op>) -> RankFacts {
        RankFacts::of(&Rank {
            key: PartKey { step: 3, rank: RankId::Rank(rank), label: "".into() },
            framework: probe_dump::Framework::default(),
            task: Task::Statistics,
            level: "mix".into(),
            ops,
            stacks: Vec::new(),
            store: std::sync::Arc::new(NoData),
            faults: Vec::new(),
            notes: Vec::new(),
            cut: false,
        })
    }

    /// Simulates a step of a data-parallel run: a layer on each rank's own data, a reduction, an update. Rank `nan` produces a NaN, and rank
    /// `odd` a different update.
    fn run(ranks: u32, nan: Option<u32>, odd: Option<u32>) -> StepPeers {
        let facts: Vec<RankFacts> = (0..ranks)
            .map(|rank| {
                let bad = u64::from(nan == Some(rank));
                let all = u64::from(nan.is_some());
                let (input, output) = (SlotSide::Input, SlotSide::Output);
                part(
                    rank,
                    vec![
                        op(
                            "Tensor.masked_fill.0.forward",
                            vec![slot("input.0", input, 9, 0, 0), slot("output.0", output, 9, 0, 3)],
                        ),
                        op(
                            "Module.fc.Linear.forward.0",
                            vec![slot("parameter.weight", SlotSide::Parameter, 5, 0, 0)],
                        ),
                        op(
                            "Functional.exp.0.forward",
                            vec![
                                slot("input.0", input, 100 + rank, 0, 0),
                                slot("output.0", output, 200 + rank, bad, 0),
                            ],
                        ),
                        op(
                            "Functional.mul.0.forward",
                            vec![
                                slot("input.0", input, 200 + rank, bad, 0),
                                slot("output.0", output, 300 + rank, bad, 0),
                            ],
                        ),
                        op(
                            "Distributed.all_reduce.0.forward",
                            vec![
                                slot("input.0", input, 300 + rank, bad, 0),
                                slot("output.0", output, 7, all, 0),
                            ],
                        ),
                        op(
                            "Optimizer.SGD.step.0",
                            vec![
                                slot("input.0", input, 7, all, 0),
                                slot("output.0", output, if odd == Some(rank) { 99 } else { 8 }, all, 0),
                            ],
                        ),
                    ],
                )
            })
            .collect();
        of_step(3, &facts, &Groups::default())
    }

    #[test]
    fn a_sound_run_has_nothing_to_tell() {
        for ranks in [2, 3, 8] {
            let found = run(ranks, None, None);
            assert_eq!((found.odd, found.births, found.received), (vec![], vec![], vec![]));
            assert_eq!(found.replicated, 4);
        }
    }

    #[test]
    fn the_rank_where_a_nan_was_born_is_told_not_the_reduction_that_spread_it() {
        let found = run(4, Some(2), None);
        let [birth] = &found.births[..] else { panic!("{:?}", found.births) };
        assert_eq!(
            (birth.rank, birth.op.as_str(), birth.slot.as_str(), birth.nan),
            (2, "Functional.exp.0.forward", "output.0", true)
        );
        let through = |rank| (rank, "Distributed.all_reduce.0.forward".to_owned());
        assert_eq!(found.received, [0, 1, 3].map(through));
    }

    #[test]
    fn a_rank_that_updates_otherwise_is_told_with_its_first_value() {
        let found = run(4, None, Some(1));
        let [odd] = &found.odd[..] else { panic!("{:?}", found.odd) };
        assert_eq!(
            (odd.rank, odd.or, odd.values, odd.first.as_str()),
            (1, None, 1, "Optimizer.SGD.step.0 output.0")
        );
        // If two ranks differ in something that is not a weight, nothing can be concluded: the value may legitimately
        // be each rank's own.
        assert_eq!(run(2, None, Some(1)).odd, []);
    }
}
