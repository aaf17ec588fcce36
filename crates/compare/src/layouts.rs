//! A run on many ranks against one on one: reads all ranks of a part as one, and explains what is found by the layouts of the values.

mod explain;
mod values;

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::CompareError;
use probe_dump::{Dump, OpName, PartKey, Phase, Rank, Slot, SlotSide};
use probe_judge::{Cause, Finding, OWN_INPUTS, OpJudgement, PartJudgement, Role, Verdict};
use probe_layout::{Declared, Dims, Folded, Mesh, Misplaced, Remark, Remarks, fold};
use probe_pair::{Many, Mapping, OpPair, Paired, Pairing, PartMatch, PartPair, value_key};

/// Deviation up to which a ratio of norms is a whole number: what rounding leaves of one, in bfloat16.
const WHOLE: f64 = 0.005;

/// Cosine from which two values are the same but for a factor.
const ALONG: f64 = 0.99;

/// Ops behind the one at fault among which what it made is looked for.
const NEAR_BY: usize = 64;

/// Ops behind the one at fault that may read what it made.
const READERS: usize = 12;

/// Least error of a shard that is more than rounding in binary32.
const LEAST: f64 = 1e-5;

/// Share of the largest error of a shard below which another agrees.
const APART: f64 = 0.1;

/// What the layouts of a part show besides.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    remarks: Remarks,
    /// Parts of the model that ranks hold in place of others.
    misplaced: Vec<Misplaced>,
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
    mapping: &Mapping,
) -> Result<(Rank, Rank, Layouts), CompareError> {
    let all = |dump: &Dump, keys: &[PartKey]| -> Result<Vec<Rank>, CompareError> {
        keys.par_iter().map(|key| dump.reader.read(key).map_err(CompareError::from)).collect()
    };
    let numbers = |keys: &[PartKey]| keys.iter().map(|key| key.rank.number()).collect();
    match &part.many {
        None => {
            let (b, c) = rayon::join(
                || baseline.reader.read(&part.baseline),
                || candidate.reader.read(&part.candidate),
            );
            Ok((b?, c?, Layouts::default()))
        }
        Some(Many::Candidate(keys)) => {
            let (b, c) = rayon::join(|| baseline.reader.read(&part.baseline), || all(candidate, keys));
            let b = b?;
            let (rank, layouts) = Layouts::of(c?, &b, numbers(keys), (candidate, false), mapping)?;
            Ok((b, rank, layouts))
        }
        Some(Many::Baseline(keys)) => {
            let (b, c) = rayon::join(|| all(baseline, keys), || candidate.reader.read(&part.candidate));
            let c = c?;
            let (rank, layouts) = Layouts::of(b?, &c, numbers(keys), (baseline, true), mapping)?;
            Ok((rank, c, layouts))
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
        let lacking =
            format!("ranks {} of {world} are missing: global values need all ranks", missing.join(", "));
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

/// Returns the layouts of the user's mapping; axes without a mesh are those of the recorded groups.
fn declared(mapping: &Mapping, groups: &[(String, Vec<u32>)], ranks: usize) -> Result<Declared, String> {
    let mut declared = Declared::default();
    for line in mapping.layouts() {
        let told = |why: String| format!("layout of {:?}: {why}", line.op);
        let dims = Dims::parse(&line.dims).map_err(told)?;
        let mesh = match &line.mesh {
            Some(mesh) => Mesh::parse(mesh).map_err(told)?,
            None => Mesh::of_groups(groups, ranks, dims.only_axis()).ok_or_else(|| {
                told("the recorded groups do not tell the axes; give `mesh = \"dp=2 tp=4\"`".to_owned())
            })?,
        };
        declared.add(&line.op, line.slot.as_deref(), &line.dims, mesh)?;
    }
    Ok(declared)
}

/// Returns the name of the one dimension of a mesh of `ranks` ranks that a placement names: `device_mesh [2] names ['tp'] …`.
fn mesh_name(placement: &str, ranks: usize) -> Option<String> {
    let rest = placement.strip_prefix("device_mesh [")?;
    let (sizes, rest) = rest.split_once(']')?;
    let names = rest.strip_prefix(" names ['")?.split_once(']')?.0;
    (sizes.parse() == Ok(ranks)).then(|| names.trim_end_matches('\'').to_owned())
}

impl Layouts {
    /// Folds the ranks of one side.
    fn of(
        ranks: Vec<Rank>,
        other: &Rank,
        numbers: Vec<u32>,
        (dump, of_baseline): (&Dump, bool),
        mapping: &Mapping,
    ) -> Result<(Rank, Self), CompareError> {
        let mut groups = groups(dump);
        let told = |reason: String| CompareError::Layout { reason };
        let declared = declared(mapping, &groups, numbers.len()).map_err(told)?;
        let Folded { rank, remarks, placements, misplaced } = fold(ranks, other, &declared).map_err(told)?;
        let named = placements.iter().find_map(|placement| mesh_name(placement, numbers.len()));
        groups.extend(named.map(|name| (name, numbers.clone())));
        Ok((rank, Self { remarks, misplaced, ranks: numbers, groups, of_baseline }))
    }

    /// Puts what the layouts tell in front of the reasons of findings, at the place where it began.
    pub(super) fn explain(&self, pair: &PartPair, judged: &mut PartJudgement) {
        if self.ranks.is_empty() {
            return;
        }
        let PartJudgement { ops, slots, findings, notes, counts, .. } = judged;
        findings.retain(|finding| !self.is_of_layout(pair, finding, ops));
        for (place, finding) in findings.iter_mut().enumerate() {
            let before = finding.cause;
            if let Some(said) = self.explanation(pair, finding, place == 0) {
                // Nothing is said of an arrival that turned out to be the result of an op.
                let own =
                    Some(&finding.reason).filter(|reason| !reason.is_empty() && finding.cause == before);
                finding.reason = own.map_or_else(|| said.clone(), |reason| format!("{said}; {reason}"));
            }
        }
        if findings.is_empty() {
            // Rounding of sums in another order, of values that cancel (a key's bias has no gradient), is no fault.
            let values = (0..slots.len()).filter(|&op| ops[op].role == Role::Recovers);
            for op in values.collect::<Vec<_>>() {
                for slot in 0..slots.get(op).map_or(0, <[_]>::len) {
                    if let Some(judged) =
                        slots.at_mut(op, slot).filter(|judged| judged.verdict == Verdict::Differs)
                    {
                        judged.verdict = Verdict::Close;
                        counts.verdicts[Verdict::Differs as usize] -= 1;
                        counts.verdicts[Verdict::Close as usize] += 1;
                    }
                }
            }
        }
        if !findings.iter().any(|finding| finding.cause == Cause::Input) {
            notes.retain(|note| !note.starts_with(OWN_INPUTS));
        }
    }

    /// Returns true for a call of one run alone after which nothing differs: it splits, joins or scales what ranks exchange.
    fn is_of_layout(&self, pair: &PartPair, finding: &Finding, judged: &[OpJudgement]) -> bool {
        let alone = pair.ops.get(finding.order).is_some_and(|op| !matches!(op.ops, Paired::Both(..)));
        let follows = |op: &&OpJudgement| op.follows.is_some_and(|at| at.place() == finding.order);
        let differs =
            |op: &OpJudgement| matches!(op.verdict, Verdict::Differs | Verdict::NonFinite | Verdict::Shape);
        alone && finding.cause == Cause::Structure && !judged.iter().filter(follows).any(differs)
    }

    fn explanation(&self, pair: &PartPair, finding: &mut Finding, is_first: bool) -> Option<String> {
        if is_first && let Some((order, slot, said)) = self.of_another_part(pair) {
            finding.cause = Cause::Input;
            Self::moved(pair, finding, order, slot);
            return Some(said);
        }
        if let Some((order, slot, said)) = self.misplaced(pair, finding.order) {
            Self::moved(pair, finding, order, slot);
            return Some(said);
        }
        // What the op passes on shows more than its own result, which may be partial.
        let end = pair.ops.len().min(finding.order + NEAR_BY);
        for order in first_inside(pair, finding.order)..end {
            // A call of this run alone may read terms to add them up.
            let paired = matches!(pair.ops[order].ops, Paired::Both(..));
            if paired && self.partial_of(pair, order, |side| !side.is_result()).is_some() {
                break;
            }
            let found = self.factor(pair, order);
            let found = found.or_else(|| self.biased(pair, order)).or_else(|| self.disordered(pair, order));
            let found = found.or_else(|| self.odd(pair, order));
            if let Some((slot, said)) = found {
                Self::moved(pair, finding, order, slot);
                return Some(said);
            }
        }
        matches!(pair.ops[finding.order].ops, Paired::Both(..))
            .then(|| self.unreduced(pair, finding, is_first))
            .flatten()
    }

    /// Returns the first slot of a paired op of which some ranks hold other replicas or shards than they should.
    fn odd<'p>(&self, pair: &'p PartPair, order: usize) -> Option<(&'p str, String)> {
        let op = &pair.ops[order];
        op.slots.iter().find_map(|slots| {
            let (Some(b), Some(c)) = pair.slot(op, slots) else { return None };
            let said = match self.remark(op, slots)? {
                Remark::Odd(ranks) => odd(ranks),
                Remark::Sharded(shards) => {
                    values::odd_shards(pair, (b.value.tensor()?, c.value.tensor()?), shards)?
                }
                _ => return None,
            };
            Some((&*b.path, said))
        })
    }

    /// Moves a finding to another op. A value that was found on arrival is then the result of that op.
    fn moved(pair: &PartPair, finding: &mut Finding, order: usize, slot: &str) {
        if finding.order != order {
            let op = pair.name(&pair.ops[order]);
            finding.module = OpName::parse(op).module_path().map(str::to_owned);
            op.clone_into(&mut finding.op);
            finding.order = order;
        }
        if finding.cause == Cause::Input && slot.starts_with("output") {
            finding.cause = Cause::Numerics;
            finding.role = Role::Introduces;
        }
        slot.clone_into(&mut finding.slot);
    }

    fn remark(&self, op: &OpPair, slots: Paired) -> Option<&Remark> {
        let at = if self.of_baseline {
            (op.ops.baseline()?, slots.baseline()?)
        } else {
            (op.ops.candidate()?, slots.candidate()?)
        };
        self.remarks.get(&at)
    }

    /// Returns the first value up to an op, or among the few behind it that read what it made, of which ranks hold other shards or replicas than
    /// they should.
    fn misplaced<'p>(&self, pair: &'p PartPair, order: usize) -> Option<(usize, &'p str, String)> {
        let end = pair.ops.len().min(order + READERS);
        pair.ops[..end].iter().enumerate().find_map(|(place, op)| {
            op.slots.iter().find_map(|slots| {
                let (b, c) = pair.slot(op, slots);
                let slot = b.or(c)?;
                let said = match self.remark(op, slots)? {
                    Remark::Odd(ranks) if !slot.side.is_result() => odd(ranks),
                    Remark::Order(moved) => self::order(moved),
                    Remark::Cut(zigzag) => cut(*zigzag).to_owned(),
                    _ => return None,
                };
                Some((place, &*slot.path, said))
            })
        })
    }

    /// Returns the first slot of a paired op that is a multiple of what it should be.
    fn factor<'p>(&self, pair: &'p PartPair, order: usize) -> Option<(&'p str, String)> {
        let op = &pair.ops[order];
        op.slots.iter().find_map(|slots| match pair.slot(op, slots) {
            (Some(b), Some(c)) if !matches!(self.remark(op, slots), Some(Remark::Partial(..))) => {
                Some((&*b.path, self.scaled(pair, (b, c))?))
            }
            _ => None,
        })
    }

    /// Returns the words for a result that is a multiple of what it should be.
    fn scaled(&self, pair: &PartPair, (b, c): (&Slot, &Slot)) -> Option<String> {
        let ratio = values::ratio(pair, b.value.tensor()?, c.value.tensor()?)?;
        let ratio = if self.of_baseline { 1.0 / ratio } else { ratio };
        let world = self.ranks.len() as f64;
        let whole =
            |value: f64| value > 1.5 && value <= world + 0.5 && (value / value.round() - 1.0).abs() < WHOLE;
        if whole(ratio) {
            return Some(format!("reduced twice, or a sum where a mean is due: {ratio:.3} times"));
        }
        whole(1.0 / ratio)
            .then(|| format!("averaged where a sum is due, or a term is missing: {ratio:.3} times"))
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
            let slot = if self.of_baseline { b? } else { c? };
            match self.remark(op, slots).filter(|_| wanted(slot.side))? {
                // The term of a mean that each data-parallel rank's loss is stays one.
                Remark::Partial(_, share) if *share > 1 && is_scalar(slot) => None,
                Remark::Partial(ranks, share) => Some((slot, ranks.clone(), *share)),
                _ => None,
            }
        })
    }

    /// Finds the partial value that an op at fault reads, or that is the nearest before it, and moves the finding to the op that made it.
    fn unreduced(&self, pair: &PartPair, finding: &mut Finding, is_first: bool) -> Option<String> {
        let phase = OpName::parse(&finding.op).phase();
        let read = self.partial_of(pair, finding.order, |side| !side.is_result());
        let key = read.as_ref().and_then(|(slot, ..)| value_key(slot.value.tensor()?));
        // What follows from another fault may come after a partial value that has nothing to do with it.
        if key.is_none() && !is_first {
            return None;
        }
        let reduced = self.reduced_values(pair);
        let made = (0..=finding.order).rev().find_map(|order| {
            let (slot, ranks, share) = self.partial_of(pair, order, SlotSide::is_result)?;
            let own = value_key(slot.value.tensor()?);
            let fits = if key.is_some() { own == key } else { own.is_none_or(|own| !reduced.contains(&own)) };
            (fits && (key.is_some() || op_phase(pair, &pair.ops[order]) == phase))
                .then_some((order, slot, ranks, share))
        });
        let (order, slot, ranks, share) = match (made, read) {
            (Some(made), _) => made,
            (None, Some((slot, ranks, share))) => (finding.order, slot, ranks, share),
            (None, None) => return None,
        };
        // Of the ops that show the same value, the innermost made it.
        let key = value_key(slot.value.tensor()?);
        let first = (0..=order).find_map(|place| {
            let (slot, ..) = self.partial_of(pair, place, SlotSide::is_result)?;
            (key.is_some() && slot.value.tensor().and_then(value_key) == key).then_some((place, slot))
        });
        let (order, slot) = first.unwrap_or((order, slot));
        Self::moved(pair, finding, order, &slot.path);
        Some(self.missing(&finding.op, slot, &ranks, share))
    }

    /// Returns the baseline's values that the run on many ranks holds whole somewhere.
    fn reduced_values(&self, pair: &PartPair) -> BTreeSet<u64> {
        let mut whole = BTreeSet::new();
        for op in &pair.ops {
            for slots in op.slots.iter() {
                let partial = matches!(self.remark(op, slots), Some(Remark::Partial(..)));
                if let ((Some(b), Some(_)), false) = (pair.slot(op, slots), partial)
                    && let Some(key) = b.value.tensor().and_then(value_key)
                {
                    whole.insert(key);
                }
            }
        }
        whole
    }

    fn missing(&self, op: &str, slot: &Slot, ranks: &[u32], share: u32) -> String {
        let group = self.groups.iter().find(|(_, members)| *members == ranks);
        let over = group.map_or_else(|| in_words(ranks), |(name, _)| name.clone());
        let name = OpName::parse(op);
        let subject = match (name.phase(), name.module_path(), slot.path.strip_prefix("grad.")) {
            (Phase::ParameterGradient, Some(module), Some(parameter)) => {
                format!("gradient of {module}.{parameter}")
            }
            (Phase::Backward | Phase::ParameterGradient, ..) => format!("gradient {}", slot.path),
            _ => slot.path.to_string(),
        };
        let term = if share > 1 { "its own term of a mean" } else { "a partial sum" };
        format!("{subject}: each of {} holds {term}; the all-reduce over {over} is missing", in_words(ranks))
    }
}

/// Returns the first op that ran in a module call, or the place of the op itself.
fn first_inside(pair: &PartPair, order: usize) -> usize {
    let name = pair.name(&pair.ops[order]);
    let inside = |op: &OpPair| {
        let (b, c) = pair.op(op);
        b.or(c).is_some_and(|op| op.parent.as_deref() == Some(name))
    };
    let start = order.saturating_sub(NEAR_BY);
    (start..order).find(|&place| inside(&pair.ops[place])).unwrap_or(order)
}

fn is_scalar(slot: &Slot) -> bool {
    slot.value.tensor().is_some_and(|record| record.shape.is_empty())
}

fn op_phase(pair: &PartPair, op: &OpPair) -> Phase {
    OpName::parse(pair.name(op)).phase()
}

fn odd(ranks: &[u32]) -> String {
    match ranks {
        [rank] => format!("rank {rank}'s replica differs"),
        _ => format!("the replicas of {} differ", in_words(ranks)),
    }
}

fn order(moved: &[(u32, usize, usize)]) -> String {
    let one =
        |(rank, held, due): &(u32, usize, usize)| format!("rank {rank} holds shard {held}, expected {due}");
    format!("{} (as in the other values)", moved.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn cut(zigzag: bool) -> &'static str {
    if zigzag {
        "the ranks hold zigzag shards, expected contiguous ones (as in the other values)"
    } else {
        "the ranks hold contiguous shards, expected zigzag ones (as in the other values)"
    }
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
