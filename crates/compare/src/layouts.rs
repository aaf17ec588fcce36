//! A run on many ranks against one on one: reads all ranks of a part as one, and explains what is found by the layouts of the values.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::CompareError;
use super::collect::load;
use probe_dump::{Dump, OpName, PartKey, Phase, Rank, Slot, SlotSide, TensorRecord};
use probe_judge::Finding;
use probe_layout::{Remark, Remarks, fold};
use probe_measure as measure;
use probe_pair::{Many, Pairing, PartMatch, PartPair, value_key};

/// Deviation up to which a ratio of norms is a whole number: what rounding leaves of one, in bfloat16.
const WHOLE: f64 = 0.02;

/// Cosine from which two values are the same but for a factor.
const ALONG: f64 = 0.99;

/// What the layouts of a part show besides.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    remarks: Remarks,
    /// The ranks; empty if ranks pair one to one.
    ranks: Vec<u32>,
    /// Ranks of the groups that were recorded, by name.
    groups: Vec<(String, Vec<u32>)>,
    /// True if the baseline is the run on many ranks.
    of_baseline: bool,
}

/// Reads both sides of a part, ranks of one side as one.
pub(super) fn read(
    part: &PartMatch,
    baseline: &Dump,
    candidate: &Dump,
) -> Result<(Rank, Rank, Layouts), CompareError> {
    let all = |dump: &Dump, keys: &[PartKey]| -> Result<Vec<Rank>, CompareError> {
        keys.par_iter().map(|key| dump.reader.read(key).map_err(CompareError::from)).collect()
    };
    let numbers = |keys: &[PartKey]| keys.iter().map(|key| key.rank.number()).collect();
    match &part.many {
        None => {
            let (b, c) =
                rayon::join(|| baseline.reader.read(&part.baseline), || candidate.reader.read(&part.candidate));
            Ok((b?, c?, Layouts::default()))
        }
        Some(Many::Candidate(keys)) => {
            let (b, c) = rayon::join(|| baseline.reader.read(&part.baseline), || all(candidate, keys));
            let b = b?;
            let folded = fold(c?, &b);
            let layouts =
                Layouts { remarks: folded.remarks, ranks: numbers(keys), groups: groups(candidate), of_baseline: false };
            Ok((b, folded.rank, layouts))
        }
        Some(Many::Baseline(keys)) => {
            let (b, c) = rayon::join(|| all(baseline, keys), || candidate.reader.read(&part.candidate));
            let c = c?;
            let folded = fold(b?, &c);
            let layouts =
                Layouts { remarks: folded.remarks, ranks: numbers(keys), groups: groups(baseline), of_baseline: true };
            Ok((folded.rank, c, layouts))
        }
    }
}

/// Returns ranks that a run had and its dump lacks, as places and reasons.
pub(super) fn missing_ranks(pairing: &Pairing, b: &Dump, c: &Dump) -> Vec<(String, String)> {
    let of = |part: &PartMatch| {
        let (dump, side, keys) = match part.many.as_ref()? {
            Many::Baseline(keys) => (b, "baseline", keys),
            Many::Candidate(keys) => (c, "candidate", keys),
        };
        let world: u32 = dump.environment.get("world_size")?.parse().ok()?;
        let missing: Vec<String> = (0..world)
            .filter(|rank| keys.iter().all(|key| key.rank.number() != *rank))
            .map(|rank| rank.to_string())
            .take(16)
            .collect();
        let place = format!("step {} of the {side}", part.baseline.step);
        let lacking = format!("ranks {} of {world} are missing: global values need all ranks", missing.join(", "));
        (!missing.is_empty()).then_some((place, lacking))
    };
    pairing.matches.iter().filter_map(of).collect()
}

/// Returns the groups that a capture recorded: `groups.tp` is `0,1`.
fn groups(dump: &Dump) -> Vec<(String, Vec<u32>)> {
    let group = |(name, ranks): (&String, &String)| {
        let name = name.strip_prefix("groups.")?;
        Some((name.to_owned(), ranks.split(',').map(|rank| rank.parse().ok()).collect::<Option<_>>()?))
    };
    dump.environment.iter().filter_map(group).collect()
}

impl Layouts {
    /// Puts what the layouts tell in front of the reasons of findings, at the place where it began.
    pub(super) fn explain(&self, pair: &PartPair, findings: &mut [Finding]) {
        if self.ranks.is_empty() {
            return;
        }
        for finding in findings {
            if let Some(said) = self.explanation(pair, finding) {
                finding.reason = if finding.reason.is_empty() { said } else { format!("{said}; {}", finding.reason) };
            }
        }
    }

    fn explanation(&self, pair: &PartPair, finding: &mut Finding) -> Option<String> {
        let op = pair.ops.get(finding.order)?;
        let slots: Vec<_> = op.slots.iter().map(|slots| (pair.slot(op, slots), slots)).collect();
        let own = slots.iter().find(|((b, c), _)| b.or(*c).is_some_and(|slot| *slot.path == *finding.slot));
        if let Some(((Some(b), Some(c)), paired)) = own {
            let at = (op.ops.candidate()?, paired.candidate()?);
            let at = if self.of_baseline { (op.ops.baseline()?, paired.baseline()?) } else { at };
            match self.remarks.get(&at) {
                Some(Remark::Odd(ranks)) => return Some(odd(ranks)),
                Some(Remark::Order(moved)) => return Some(order(moved)),
                Some(Remark::Sharded(ranks)) if !self.reads_partial(pair, finding.order) => {
                    return shares(pair, (b, c), ranks);
                }
                _ => {}
            }
            if let Some(said) = self.scaled(pair, (b, c)) {
                return Some(said);
            }
        }
        self.unreduced(pair, finding)
    }

    /// Returns the words for a result that is a multiple of what it should be.
    fn scaled(&self, pair: &PartPair, (b, c): (&Slot, &Slot)) -> Option<String> {
        let ratio = ratio(pair, b.value.tensor()?, c.value.tensor()?)?;
        let ratio = if self.of_baseline { 1.0 / ratio } else { ratio };
        let world = self.ranks.len() as f64;
        let whole = |value: f64| value > 1.5 && value <= world + 0.5 && (value / value.round() - 1.0).abs() < WHOLE;
        if whole(ratio) {
            return Some(format!("reduced twice, or a sum where a mean is due: {ratio:.3} times"));
        }
        whole(1.0 / ratio).then(|| format!("averaged where a sum is due, or a term is missing: {ratio:.3} times"))
    }

    fn reads_partial(&self, pair: &PartPair, order: usize) -> bool {
        self.partial_of(pair, order, |side| !side.is_result()).is_some()
    }

    /// Returns slot and remark of a value of an op that is still partial.
    fn partial_of<'p>(
        &self,
        pair: &'p PartPair,
        order: usize,
        wanted: impl Fn(SlotSide) -> bool,
    ) -> Option<(&'p Slot, Vec<u32>, u32)> {
        let op = pair.ops.get(order)?;
        op.slots.iter().find_map(|slots| {
            let (b, c) = pair.slot(op, slots);
            let (at, slot) = if self.of_baseline {
                ((op.ops.baseline()?, slots.baseline()?), b?)
            } else {
                ((op.ops.candidate()?, slots.candidate()?), c?)
            };
            match self.remarks.get(&at).filter(|_| wanted(slot.side))? {
                Remark::Partial(ranks, share) => Some((slot, ranks.clone(), *share)),
                _ => None,
            }
        })
    }

    /// Finds the partial value that an op at fault reads, or that is the nearest before it, and moves the finding to the op that made it.
    fn unreduced(&self, pair: &PartPair, finding: &mut Finding) -> Option<String> {
        let phase = OpName::parse(&finding.op).phase();
        let read = self.partial_of(pair, finding.order, |side| !side.is_result());
        let key = read.as_ref().and_then(|(slot, ..)| value_key(slot.value.tensor()?));
        let reduced = self.reduced_values(pair);
        let made = (0..=finding.order).rev().find_map(|order| {
            let (slot, ranks, share) = self.partial_of(pair, order, SlotSide::is_result)?;
            let own = value_key(slot.value.tensor()?);
            let fits = if key.is_some() { own == key } else { own.is_none_or(|own| !reduced.contains_key(&own)) };
            let name = OpName::parse(pair.name(&pair.ops[order]));
            (fits && name.phase() == phase).then_some((order, slot, ranks, share))
        });
        let (order, slot, ranks, share) = match (made, read) {
            (Some(made), _) => made,
            (None, Some((slot, ranks, share))) => (finding.order, slot, ranks, share),
            (None, None) => return None,
        };
        // Of the ops that show the same value, the innermost made it.
        let key = value_key(slot.value.tensor()?);
        let first = (0..order).find(|&place| {
            self.partial_of(pair, place, SlotSide::is_result)
                .is_some_and(|(slot, ..)| key.is_some() && slot.value.tensor().and_then(value_key) == key)
        });
        let order = first.unwrap_or(order);
        finding.order = order;
        pair.name(&pair.ops[order]).clone_into(&mut finding.op);
        (*slot.path).clone_into(&mut finding.slot);
        Some(self.missing(slot, &ranks, share, phase))
    }

    /// Returns the baseline's values that the run on many ranks holds whole somewhere.
    fn reduced_values(&self, pair: &PartPair) -> BTreeMap<u64, ()> {
        let mut whole = BTreeMap::new();
        for op in &pair.ops {
            for slots in op.slots.iter() {
                let at = if self.of_baseline {
                    op.ops.baseline().zip(slots.baseline())
                } else {
                    op.ops.candidate().zip(slots.candidate())
                };
                let partial = at.is_some_and(|at| matches!(self.remarks.get(&at), Some(Remark::Partial(..))));
                if let ((Some(b), Some(_)), false) = (pair.slot(op, slots), partial)
                    && let Some(key) = b.value.tensor().and_then(value_key)
                {
                    whole.insert(key, ());
                }
            }
        }
        whole
    }

    fn missing(&self, slot: &Slot, ranks: &[u32], share: u32, phase: Phase) -> String {
        let group = self.groups.iter().find(|(_, members)| *members == ranks);
        let over = group.map_or_else(|| format!("over {}", in_words(ranks)), |(name, _)| format!("over {name}"));
        let gradient = matches!(phase, Phase::Backward | Phase::ParameterGradient);
        let kind = if gradient { "gradient" } else { "value" };
        let terms = if share > 1 { "its own term of a mean" } else { "a partial sum" };
        format!("each of {} holds {terms} of this {kind} ({}); the all-reduce {over} is missing", in_words(ranks), slot.path)
    }
}

fn odd(ranks: &[u32]) -> String {
    match ranks {
        [rank] => format!("rank {rank}'s replica differs"),
        _ => format!("the replicas of {} differ", in_words(ranks)),
    }
}

fn order(moved: &[(u32, usize, usize)]) -> String {
    let one = |(rank, held, due): &(u32, usize, usize)| format!("rank {rank} holds shard {held}, expected {due}");
    format!("{} (as in the other values)", moved.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Returns which ranks' shards differ, if some agree.
fn shares(pair: &PartPair, (b, c): (&Slot, &Slot), ranks: &[u32]) -> Option<String> {
    let _ = (pair, b, c, ranks);
    None
}

/// Returns the factor between two values that are the same but for one; `None` if they are not.
fn ratio(pair: &PartPair, b: &TensorRecord, c: &TensorRecord) -> Option<f64> {
    let norms = || Some(c.statistics.norm()? / b.statistics.norm().filter(|norm| *norm > 0.0)?);
    let (Some(b_key), Some(c_key)) = (&b.data, &c.data) else { return norms() };
    let x = load((b, &*pair.baseline.store), b_key).ok()?;
    let y = load((c, &*pair.candidate.store), c_key).ok()?;
    let metrics = measure::compare(x.view(), y.view())?;
    norms().filter(|_| metrics.cosine.is_some_and(|cosine| cosine > ALONG))
}

/// Formats ranks: `rank 3`, `ranks 0-3`, `ranks 0, 2, 5`.
fn in_words(ranks: &[u32]) -> String {
    let consecutive = ranks.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match ranks {
        [rank] => format!("rank {rank}"),
        [first, .., last] if consecutive => format!("ranks {first}-{last}"),
        _ => format!("ranks {}", ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
