//! A run on many ranks against one on one: reads all ranks of a part as one, and explains what is found by the layouts of the values.

mod clipped;
mod explain;
mod made_again;
mod mended;
mod parameter_cuts;
mod partial;
mod pieces;
mod places;
mod roles;
mod rounds;
mod shared;
mod strangers;
#[cfg(test)]
mod tests;
mod unsorted;
mod values;
mod words;

use std::collections::{HashMap, HashSet};
use std::slice;
use std::sync::Arc;

use rayon::prelude::*;

use self::mended::{Readers, is_fault};
use self::partial::{Groups, Terms, op_phase};
pub use self::pieces::{BETWEEN_PIECES, Pieces};
use self::places::first_inside;
use self::strangers::{Roundings, is_of_layout};
use self::words::{Said, in_words};
use super::CompareError;
use probe_dump::{Dump, OpName, PartKey, Phase, Rank, SlotSide};
use probe_judge::{Cause, Finding, OWN_INPUTS, PartJudgement, Role, SlotJudgement};
use probe_layout::{
    Declared, Dims, Folded, HeldTerms, Joined, Mesh, Misplaced, Remark, Remarks, Spread, fold, joined,
    numbered, observed, under_their_callers,
};
use probe_pair::{BySlot, Many, Mapping, OpPair, Paired, Pairing, PartMatch, PartPair};

/// Cosine from which two values are the same but for a factor.
const ALONG: f64 = 0.99;

/// Ops behind the one at fault among which what it made is looked for.
const NEAR_BY: usize = 64;

/// Ops behind the one at fault that may read what it made.
const READERS: usize = 12;

/// Least error of a shard that is more than rounding in binary32.
const LEAST: f64 = 1e-5;

/// Share of the largest error of a shard below which another agrees.
const APART: f64 = 0.25;

/// What the layouts of a part show besides.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    remarks: Remarks,
    /// Values of which no layout makes the other run's.
    apart: HashSet<(usize, usize)>,
    /// Parts of the model that ranks hold in place of others.
    misplaced: Vec<Misplaced>,
    /// The pieces of each value that the ranks hold.
    spread: HashMap<(usize, usize), Arc<Spread>>,
    /// True if distributed tensors were recorded that are still to be reduced: operators reduce them when they read them.
    reduces_itself: bool,
    /// The ranks; empty if ranks pair one to one.
    ranks: Vec<u32>,
    /// True if a run had ranks that its dump lacks: values are not whole.
    lacks_ranks: bool,
    /// Ranks of the groups that were recorded, by name.
    groups: Groups,
    /// What the ranks of the other run hold terms of.
    terms: Terms,
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
    let one = |dump: &Dump, key: &PartKey| -> Result<Rank, CompareError> {
        let mut rank = dump.reader.read(key)?;
        observed(&mut rank);
        Ok(rank)
    };
    let all = |dump: &Dump, keys: &[PartKey]| -> Result<Vec<Rank>, CompareError> {
        keys.par_iter().map(|key| one(dump, key)).collect()
    };
    match &part.many {
        None => {
            let (b, c) = rayon::join(
                || baseline.reader.read(&part.baseline),
                || candidate.reader.read(&part.candidate),
            );
            Ok((b?, c?, Layouts::default()))
        }
        Some(Many::Candidate(keys)) => {
            let (b, c) = rayon::join(|| one(baseline, &part.baseline), || all(candidate, keys));
            let (mut b, mut c) = (b?, c?);
            under_their_callers(&mut c, slice::from_mut(&mut b));
            let (rank, layouts) = Layouts::of(c, &b, numbers(keys), (candidate, false), mapping)?;
            Ok((b, rank, layouts))
        }
        Some(Many::Baseline(keys)) => {
            let (b, c) = rayon::join(|| all(baseline, keys), || one(candidate, &part.candidate));
            let (mut b, mut c) = (b?, c?);
            under_their_callers(&mut b, slice::from_mut(&mut c));
            let (rank, layouts) = Layouts::of(b, &c, numbers(keys), (baseline, true), mapping)?;
            Ok((rank, c, layouts))
        }
        Some(Many::Both(baselines, candidates)) => {
            let (b, c) = rayon::join(|| all(baseline, baselines), || all(candidate, candidates));
            let (mut b, mut c) = (b?, c?);
            under_their_callers(&mut b, &mut c);
            let told = |reason| CompareError::Nothing { reason };
            // The run that holds the whole model on each rank becomes one.
            if numbered(&mut b, &mut c).map_err(told)? {
                let Joined { rank: c, terms } = joined(c, &mut b);
                let (rank, layouts) = Layouts::of(b, &c, numbers(baselines), (baseline, true), mapping)?;
                return Ok((rank, c, layouts.beside(terms, (candidate, candidates))));
            }
            let Joined { rank: b, terms } = joined(b, &mut c);
            let (rank, layouts) = Layouts::of(c, &b, numbers(candidates), (candidate, false), mapping)?;
            Ok((b, rank, layouts.beside(terms, (baseline, baselines))))
        }
    }
}

fn numbers(keys: &[PartKey]) -> Vec<u32> {
    keys.iter().map(|key| key.rank.number()).collect()
}

/// Returns ranks that a run had and its dump lacks, as places and reasons.
pub(super) fn missing_ranks(pairing: &Pairing, b: &Dump, c: &Dump) -> Vec<(String, String)> {
    let of = |part: &PartMatch| -> Vec<(String, String)> {
        let (baseline, candidate) = ((b, "baseline"), (c, "candidate"));
        let step = part.baseline.step;
        let sides = match &part.many {
            None => Vec::new(),
            Some(Many::Baseline(keys)) => vec![(baseline, keys)],
            Some(Many::Candidate(keys)) => vec![(candidate, keys)],
            Some(Many::Both(baselines, candidates)) => vec![(baseline, baselines), (candidate, candidates)],
        };
        let said = |((dump, side), keys): ((&Dump, &str), &Vec<PartKey>)| {
            Some((format!("step {step} of the {side}"), missing(dump, &numbers(keys))?))
        };
        sides.into_iter().filter_map(said).collect()
    };
    pairing.matches.iter().flat_map(of).collect()
}

/// Returns the number of ranks that a run had, if it was recorded.
fn world(dump: &Dump) -> Option<usize> {
    dump.environment.get("world_size")?.parse().ok()
}

/// Says which ranks of a run its dump lacks; `None` if it has all.
fn missing(dump: &Dump, ranks: &[u32]) -> Option<String> {
    let world = u32::try_from(world(dump)?).ok()?;
    let missing: Vec<u32> = (0..world).filter(|rank| !ranks.contains(rank)).take(16).collect();
    let are = if missing.len() == 1 { "is" } else { "are" };
    (!missing.is_empty()).then(|| {
        format!(
            "{} of {world} {are} missing: global values need all ranks, so no op is named; record all, or compare single ranks with --rank",
            in_words(&missing)
        )
    })
}

/// Returns the groups that a capture recorded: `groups.tp` is `0,1`.
pub(super) fn groups(dump: &Dump) -> Groups {
    let group = |(name, ranks): (&String, &String)| {
        let name = name.strip_prefix("groups.")?;
        Some((name.to_owned(), ranks.split(',').map(|rank| rank.parse().ok()).collect::<Option<_>>()?))
    };
    dump.environment.iter().filter_map(group).collect()
}

/// Returns the layouts of the user's mapping; axes without a mesh are those of the recorded groups. The run had `world` ranks, of which the dump
/// has `ranks`.
fn declared(
    mapping: &Mapping,
    groups: &[(String, Vec<u32>)],
    (ranks, world): (usize, usize),
) -> Result<Declared, String> {
    let mut declared = Declared::over(Mesh::of_groups(groups, ranks, None));
    for line in mapping.layouts() {
        let told = |why: String| format!("layout of {:?}: {why}", line.op);
        let dims = Dims::parse(&line.dims).map_err(told)?;
        let mesh = match &line.mesh {
            Some(mesh) => Mesh::parse(mesh).map_err(told)?,
            None => Mesh::of_groups(groups, ranks, dims.only_axis()).ok_or_else(|| {
                told("the recorded groups do not tell the axes; give `mesh = \"dp=2 tp=4\"`".to_owned())
            })?,
        };
        if mesh.ranks() != Some(world) {
            return Err(told(format!("the mesh {mesh} does not have the {world} ranks that were recorded")));
        }
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
        let world = world(dump).unwrap_or(0).max(numbers.len());
        let declared = declared(mapping, &groups, (numbers.len(), world)).map_err(told)?;
        let Folded { rank, remarks, apart, placements, misplaced, spread } =
            fold(ranks, other, &declared).map_err(told)?;
        let reduces_itself = placements.iter().any(|placement| placement.contains("'P"));
        let named = placements.iter().find_map(|placement| mesh_name(placement, numbers.len()));
        groups.extend(named.map(|name| (name, numbers.clone())));
        let ranks = numbers;
        let lacks_ranks = missing(dump, &ranks).is_some();
        let terms = Terms::default();
        Ok((
            rank,
            Self {
                remarks,
                apart,
                misplaced,
                spread,
                reduces_itself,
                ranks,
                lacks_ranks,
                groups,
                terms,
                of_baseline,
            },
        ))
    }

    /// Adds what is known of the other run, if that is spread too.
    fn beside(self, terms: HeldTerms, (dump, keys): (&Dump, &[PartKey])) -> Self {
        let lacks_ranks = self.lacks_ranks || missing(dump, &numbers(keys)).is_some();
        Self { terms: Terms::of(terms, dump), lacks_ranks, ..self }
    }

    /// Returns true if the ranks of a side were read as one.
    pub(super) const fn is_of_all_ranks(&self) -> bool {
        !self.ranks.is_empty()
    }

    /// Puts what the layouts tell in front of the reasons of findings, at the place where it began.
    fn explain(&self, pair: &PartPair, judged: &mut PartJudgement, readers: &mut Readers<'_>) {
        if self.lacks_ranks {
            judged.findings.clear();
            return;
        }
        readers.settle(pair, judged);
        let first = self.multiplied(pair, judged, readers);
        let first = first.or_else(|| Self::leaks_padding(pair, judged));
        let PartJudgement { ops, slots, findings, notes, .. } = judged;
        let roundings = Roundings::of(pair, slots);
        // Of calls of one run alone, the first op behind them that differs is looked for, up to the first other finding: what is in front of that does
        // not follow from it.
        let others = findings.iter().filter(|finding| !is_of_layout(pair, finding, ops));
        if let Some(end) = others.map(|finding| finding.order).min() {
            findings.retain(|finding| {
                !is_of_layout(pair, finding, ops)
                    || self.differs_between(pair, finding.order..end, slots, (&roundings, readers))
            });
        }
        self.behind_strangers(pair, findings, slots, &roundings);
        if let Some(first) = first {
            findings.insert(0, first);
        }
        let mut moved = Vec::new();
        for (place, finding) in findings.iter_mut().enumerate() {
            let (before, from) = (finding.cause, finding.order);
            if let Some(said) = self.explanation(pair, (finding, place == 0), slots, &roundings) {
                let is_layout = matches!(said, Said::Layout(_));
                let said = said.into_words();
                // Nothing is said of an arrival that turned out to be the result of an op.
                let own =
                    Some(&finding.reason).filter(|reason| !reason.is_empty() && finding.cause == before);
                finding.reason = own.map_or_else(|| said.clone(), |reason| format!("{said}; {reason}"));
                if is_layout {
                    finding.cause = Cause::Layout;
                }
            }
            moved.extend((finding.order != from).then_some((from, finding.order)));
        }
        drop_moved_in_front(findings, &mut moved);
        if findings.is_empty() && !self.reduces_itself {
            findings.extend(self.unreduced_update(pair, slots));
        }
        if !findings.iter().any(|finding| finding.cause == Cause::Input) {
            notes.retain(|note| !note.starts_with(OWN_INPUTS));
        }
        roles::tell(pair, judged, &moved);
        Readers::settle_rest(pair, judged, &roundings);
    }

    fn explanation(
        &self,
        pair: &PartPair,
        (finding, is_first): (&mut Finding, bool),
        slots: &BySlot<SlotJudgement>,
        roundings: &Roundings,
    ) -> Option<Said> {
        if is_first && let Some((order, slot, said)) = self.of_another_part(pair) {
            finding.cause = Cause::Input;
            Self::moved(pair, finding, order, slot);
            return Some(Said::Layout(said));
        }
        if is_first && let Some((order, slot, said)) = self.cut_unlike_others(pair, finding.order) {
            finding.cause = Cause::Input;
            Self::moved(pair, finding, order, slot);
            return Some(Said::Layout(said));
        }
        if is_first && let Some(said) = self.clipped(pair, finding.order) {
            return Some(Said::Layout(match self.unreduced(pair, (finding, is_first), slots) {
                Some(unreduced) => format!("{said}; {}", unreduced.into_words()),
                None => said,
            }));
        }
        if is_first && let Some((order, slot, said)) = self.not_shared(pair, finding) {
            finding.cause = Cause::Gradient;
            Self::moved(pair, finding, order, slot);
            return Some(Said::Layout(said));
        }
        // What is made of too large a value differs among the ranks.
        if is_first && let Some((slot, said)) = explain::leaked(pair, finding.order) {
            Self::moved(pair, finding, finding.order, &slot.path);
            return Some(Said::Layout(said));
        }
        if let Some((order, slot, said)) = self.misplaced(pair, finding.order) {
            // A rank's own weights are wrong before anything is computed with them.
            if finding.cause == Cause::Structure || slot.starts_with("parameter.") {
                (finding.cause, finding.role) = (Cause::Input, Role::Introduces);
            }
            Self::moved(pair, finding, order, slot);
            return Some(said);
        }
        if finding.cause == Cause::Numerics
            && let Some(said) = self.unsorted(pair, finding.order)
        {
            return Some(Said::Layout(said));
        }
        // What a call was given arose there.
        let stays = finding.cause == Cause::Argument;
        let passed_on = self.of_passed_on(pair, finding.order, slots);
        if let Some((order, slot, said)) = passed_on.filter(|found| !stays || found.0 == finding.order) {
            Self::moved(pair, finding, order, slot);
            return Some(said);
        }
        let op = &pair.ops[finding.order];
        // What a missing reduction leaves is no rounding.
        let differs = |at: usize| {
            let judged = slots.at(finding.order, at).filter(|slot| is_fault(slot.verdict));
            judged.is_some_and(|judged| !roundings.explain(pair, (finding.order, at), judged))
        };
        // The error of an update is that of its gradient.
        let differs = || {
            matches!(finding.cause, Cause::Optimizer | Cause::Gradient) || (0..op.slots.len()).any(differs)
        };
        let fault = matches!(op.ops, Paired::Both(..)) && !stays && differs();
        fault.then(|| self.unreduced(pair, (finding, is_first), slots)).flatten()
    }

    /// Returns a value of which something is known, among those that an op passes on: they show more than its own result, which may be partial.
    fn of_passed_on<'p>(
        &self,
        pair: &'p PartPair,
        from: usize,
        judged: &BySlot<SlotJudgement>,
    ) -> Option<(usize, &'p str, Said)> {
        let end = pair.ops.len().min(from + NEAR_BY);
        let phase = op_phase(pair, &pair.ops[from]);
        for order in first_inside(pair, from)..end {
            // Gradients have factors of their own, which say nothing about the forward pass.
            if phase == Phase::Forward && op_phase(pair, &pair.ops[order]) != phase {
                break;
            }
            // A call of this run alone may read terms to add them up, and a copy hands them on.
            let paired = matches!(pair.ops[order].ops, Paired::Both(..));
            let terms = |results: bool| self.partial_of(pair, order, |side| side.is_result() == results);
            if paired
                && let Some(read) = terms(false)
                && terms(true).is_none_or(|made| made.key() != read.key())
            {
                break;
            }
            let padded = explain::padded(pair, order).map(|(slot, _, said)| (slot, said));
            let found = padded.or_else(|| self.factor(pair, order));
            let found = found.or_else(|| self.biased(pair, order)).or_else(|| self.disordered(pair, order));
            let found = found.map(|(slot, said)| (slot, Said::Layout(said)));
            if let Some((slot, said)) = found.or_else(|| self.odd(pair, order, judged)) {
                return Some((order, slot, said));
            }
        }
        None
    }

    /// Moves a finding to another op. A value that was found on arrival is then the result of that op.
    fn moved(pair: &PartPair, finding: &mut Finding, order: usize, slot: &str) {
        if finding.order != order {
            let op = pair.name(&pair.ops[order]);
            let (b, c) = pair.op(&pair.ops[order]);
            let inside = b.or(c).and_then(|op| op.parent.as_deref()).map(OpName::parse);
            let of = |name: &OpName| name.module_path().map(str::to_owned);
            finding.module = of(&OpName::parse(op)).or_else(|| of(&inside?));
            op.clone_into(&mut finding.op);
            finding.order = order;
        }
        if finding.cause == Cause::Input && slot.starts_with("output") {
            finding.cause = Cause::Numerics;
            finding.role = Role::Introduces;
        }
        // An update shows what its gradient lacks, and so does what a backward pass computes of it by calls of its own.
        let backward =
            matches!(OpName::parse(&finding.op).phase(), Phase::Backward | Phase::ParameterGradient);
        if matches!(finding.cause, Cause::Optimizer | Cause::Numerics)
            && (backward || slot.starts_with("input.grad."))
        {
            (finding.cause, finding.role) = (Cause::Gradient, Role::Introduces);
        }
        slot.clone_into(&mut finding.slot);
    }

    fn remark(&self, op: &OpPair, slots: Paired) -> Option<&Remark> {
        self.remarks.get(&self.place(op, slots)?)
    }

    /// Returns the places of an op and a slot in the run on many ranks.
    fn place(&self, op: &OpPair, slots: Paired) -> Option<(usize, usize)> {
        if self.of_baseline {
            Some((op.ops.baseline()?, slots.baseline()?))
        } else {
            Some((op.ops.candidate()?, slots.candidate()?))
        }
    }

    /// Returns the first value up to an op, or among the few behind it that read what it made, of which ranks hold other shards or replicas than
    /// they should.
    fn misplaced<'p>(&self, pair: &'p PartPair, order: usize) -> Option<(usize, &'p str, Said)> {
        let end = pair.ops.len().min(order + READERS);
        pair.ops[..end].iter().enumerate().find_map(|(place, op)| {
            op.slots.iter().find_map(|slots| {
                let (b, c) = pair.slot(op, slots);
                let slot = b.or(c)?;
                let said = match self.remark(op, slots)? {
                    Remark::Odd(ranks) if !slot.side.is_result() => Said::OfRank(words::odd(ranks)),
                    Remark::Odd(ranks) if is_dropout(pair, op) => Said::Layout(words::dropped(ranks)),
                    Remark::Order(moved) => Said::Layout(words::order(moved)),
                    Remark::Cut(zigzag) => Said::Layout(words::cut(*zigzag).to_owned()),
                    Remark::Sharded(shards) if slot.side == SlotSide::Parameter => {
                        let (b, c) = (b?.value.tensor()?, c?.value.tensor()?);
                        let said = values::odd_shards(pair, (b, c), shards);
                        Said::OfRank(said.filter(|_| b.checksum != c.checksum)?)
                    }
                    _ => return None,
                };
                Some((place, &*slot.path, said))
            })
        })
    }
}

fn is_dropout(pair: &PartPair, op: &OpPair) -> bool {
    let name = OpName::parse(pair.name(op));
    name.phase() == Phase::Forward && name.api().contains("dropout")
}

/// Drops findings that were moved in front of the first one: what is found behind that has not begun before it. `moved` holds the places from which and to
/// which findings were moved.
fn drop_moved_in_front(findings: &mut Vec<Finding>, moved: &mut Vec<(usize, usize)>) {
    let Some(first) = findings.first().map(|finding| finding.order) else { return };
    let is_dropped = |&(from, to): &(usize, usize)| from >= first && to < first;
    findings.retain(|finding| !moved.iter().any(|of| of.1 == finding.order && is_dropped(of)));
    moved.retain(|of| !is_dropped(of));
}
