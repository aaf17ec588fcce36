//! What is wrong with a value, or with the weights of a rank, in words.

use std::ops::Range;

use probe_dump::{Op, OpKind, OpName, Phase, Slot, SlotSide, TensorRecord};
use probe_judge::{Cause, Finding, PartJudgement, SlotJudgement, Verdict};
use probe_layout::{Misplaced, Remark};
use probe_pair::{BySlot, OpPair, Paired, PartPair, value_key};

use super::mended::{APART, Readers};
use super::partial::{finding, op_phase};
use super::pieces::slice;
use super::strangers::is_of_layout;
use super::values::Padding;
use super::{Layouts, Said, in_words, values, words};

/// Deviation up to which a ratio of norms is a whole number: what rounding leaves of one, in bfloat16.
const WHOLE: f64 = 0.005;

impl Layouts {
    /// Returns a finding on the first module call of which all that it reads agrees and what it returns is a multiple of what it should be, if no
    /// finding is before it. The judge takes it for a precision if the call is repeated, as by micro-batches, and each is off by as much.
    pub(super) fn multiplied(
        &self,
        pair: &PartPair,
        judged: &PartJudgement,
        readers: &mut Readers<'_>,
    ) -> Option<Finding> {
        let others = judged.findings.iter().filter(|finding| !is_of_layout(pair, finding, &judged.ops));
        let end = others.map(|finding| finding.order).min().unwrap_or(pair.ops.len());
        (0..end).find_map(|order| {
            let op = &pair.ops[order];
            let name = OpName::parse(pair.name(op));
            if name.kind() != OpKind::Module || name.phase() != Phase::Forward {
                return None;
            }
            let slots: Vec<_> = op.slots.iter().enumerate().collect();
            let error = |at: usize| judged.slots.at(order, at).and_then(|slot| slot.error.get());
            let is_result = |slots: Paired| pair.slot(op, slots).0.map(|slot| slot.side.is_result());
            let agree = slots.iter().all(|&(at, slots)| {
                is_result(slots) != Some(false) || error(at).is_none_or(|error| error < APART)
            });
            slots.iter().filter(|_| agree).find_map(|&(at, slots)| {
                let off = is_result(slots) == Some(true) && error(at).is_some_and(|error| error >= APART);
                if !off || readers.is_mended_slot(pair, (order, at)) {
                    return None;
                }
                let (path, _) = self.factor(pair, order)?;
                let slot = pair.slot(op, slots).0.filter(|slot| &*slot.path == path)?;
                Some(finding(pair, order, slot, Cause::Numerics))
            })
        })
    }

    /// Returns a finding on the first value of the forward pass that one run pads, if the op that reads it does not cut it off and no finding is
    /// before it. The judge takes other sizes for those of another choice, where whole numbers differ before them.
    pub(super) fn leaks_padding(pair: &PartPair, judged: &PartJudgement) -> Option<Finding> {
        let end = judged.findings.iter().map(|finding| finding.order).min().unwrap_or(pair.ops.len());
        let leaked = |order: usize| Some(finding(pair, order, leaked(pair, order)?.0, Cause::Input));
        (0..end).filter(|&order| op_phase(pair, &pair.ops[order]) == Phase::Forward).find_map(leaked)
    }

    /// Returns the first op that reads a weight of a part of the model that ranks hold in place of another.
    pub(super) fn of_another_part<'p>(&self, pair: &'p PartPair) -> Option<(usize, &'p str, String)> {
        self.misplaced.iter().find_map(|part| {
            let (_, due) = part.held.iter().zip(&part.due).find(|(held, due)| held != due)?;
            let inside =
                if part.list.is_empty() { format!("{due}.") } else { format!("{}.{due}.", part.list) };
            pair.ops.iter().enumerate().find_map(|(place, op)| {
                if !matches!(op.ops, Paired::Both(..))
                    || !probe_dump::without_module_prefix(pair.name(op)).starts_with(&inside)
                {
                    return None;
                }
                let weight = op.slots.iter().find_map(|slots| {
                    pair.slot(op, slots).0.filter(|slot| slot.side == SlotSide::Parameter)
                })?;
                Some((place, &*weight.path, self::part(part)))
            })
        })
    }

    /// Returns the first slot of a paired op that is a multiple of what it should be.
    pub(super) fn factor<'p>(&self, pair: &'p PartPair, order: usize) -> Option<(&'p str, String)> {
        let op = &pair.ops[order];
        let bias = bias_of(pair, op);
        op.slots.iter().find_map(|slots| match pair.slot(op, slots) {
            (Some(b), Some(c)) if !matches!(self.remark(op, slots), Some(Remark::Partial(..))) => {
                let said = self.scaled(pair, op, (b, c), bias)?;
                let of = parameter_of(pair, b).filter(|_| !b.side.is_result());
                Some((&*b.path, of.map_or(said.clone(), |name| format!("gradient of {name}: {said}"))))
            }
            _ => None,
        })
    }

    /// Returns the words for a result that is a multiple of what it should be.
    fn scaled(
        &self,
        pair: &PartPair,
        op: &OpPair,
        (b, c): (&Slot, &Slot),
        bias: Option<&TensorRecord>,
    ) -> Option<String> {
        let world = self.ranks.len() as f64;
        // A loss that is not divided by the number of its calls is as many times too large.
        let whole =
            |value: f64| is_whole(value) && (value <= world + 0.5 || value <= calls_of(pair, op) + 0.5);
        let ratio = values::ratio(pair, b.value.tensor()?, c.value.tensor()?);
        let ratio = ratio.filter(|ratio| whole(*ratio) || whole(1.0 / ratio));
        // A bias is added behind the reduction.
        let ratio =
            ratio.or_else(|| values::ratio_without(pair, (b, c), bias.filter(|_| b.side.is_result())?))?;
        let ratio = if self.of_baseline { 1.0 / ratio } else { ratio };
        if whole(ratio) {
            return Some(format!("reduced twice, or a sum where a mean is due: {ratio:.3} times"));
        }
        whole(1.0 / ratio)
            .then(|| format!("averaged where a sum is due, or a term is missing: {ratio:.3} times"))
    }

    /// Returns a result that has the bias more often than once.
    pub(super) fn biased<'p>(&self, pair: &'p PartPair, order: usize) -> Option<(&'p str, String)> {
        let op = &pair.ops[order];
        let Some(bias) = bias_of(pair, op) else { return self.off_by_one_vector(pair, op) };
        op.slots.iter().map(|slots| (slots, pair.slot(op, slots))).find_map(|(at, slots)| {
            let (Some(b), Some(c)) = slots else { return None };
            let (b, c) = if self.of_baseline { (c, b) } else { (b, c) };
            if !b.side.is_result() || b.value.tensor()?.shape.last() != bias.shape.last() {
                return None;
            }
            let sides = if self.of_baseline { (c, b) } else { (b, c) };
            let times = values::times_the_bias(pair, sides, bias)?;
            let times = if self.of_baseline { 2.0 - times } else { times };
            let most = self.ranks.len() as f64;
            if !(1.5..most + 0.5).contains(&times) {
                return None;
            }
            let ranks = match self.remark(op, at) {
                Some(Remark::Partial(ranks, _)) => ranks,
                _ => &self.ranks,
            };
            let said = format!(
                "{}: the bias is added on each of {}, and so {times:.3} times; add it once, after the all-reduce",
                b.path,
                in_words(ranks)
            );
            Some((&*b.path, said))
        })
    }

    /// Returns a result of a module without a recorded bias whose rows are all off by one vector.
    fn off_by_one_vector<'p>(&self, pair: &'p PartPair, op: &OpPair) -> Option<(&'p str, String)> {
        let name = OpName::parse(pair.name(op));
        let is_module = name.kind() == OpKind::Module && name.phase() == Phase::Forward;
        op.slots.iter().filter(|_| is_module).find_map(|slots| {
            let (Some(b), Some(c)) = pair.slot(op, slots) else { return None };
            let is_whole = b.side.is_result() && self.remark(op, slots).is_none();
            let said = || {
                let ranks = in_words(&self.ranks);
                let path = &b.path;
                (&*b.path, format!("{path}: all rows are off by one vector, as where the bias is added on each of {ranks} in front of the all-reduce"))
            };
            (is_whole && values::are_off_by_one_vector(pair, (b, c))).then(said)
        })
    }

    /// Returns the first slot of a paired op of which some ranks hold other replicas or shards than they should. What was not judged, as memory that
    /// nobody wrote, may hold anything.
    pub(super) fn odd<'p>(
        &self,
        pair: &'p PartPair,
        order: usize,
        judged: &BySlot<SlotJudgement>,
    ) -> Option<(&'p str, Said)> {
        let op = &pair.ops[order];
        let is_judged = |at: usize| judged.at(order, at).is_none_or(|slot| slot.verdict != Verdict::Unknown);
        op.slots.iter().enumerate().filter(|(at, _)| is_judged(*at)).find_map(|(_, slots)| {
            let (Some(b), Some(c)) = pair.slot(op, slots) else { return None };
            let said = match self.remark(op, slots)? {
                Remark::Odd(ranks) => Said::OfRank(words::odd(ranks)),
                Remark::Alike(ranks) => Said::Layout(self.alike(ranks)),
                Remark::Sharded(shards) => {
                    let (b, c) = (b.value.tensor()?, c.value.tensor()?);
                    Said::OfRank(values::odd_shards(pair, (b, c), shards)?)
                }
                _ => return None,
            };
            Some((&*b.path, said))
        })
    }

    /// Returns a value whose chunks lie in another order.
    pub(super) fn disordered<'p>(&self, pair: &'p PartPair, order: usize) -> Option<(&'p str, String)> {
        let op = &pair.ops[order];
        // Of one replica that differs, the rank is told.
        let both = |slots: Paired| {
            let (b, c) = pair.slot(op, slots);
            Some((b?, c?)).filter(|_| !matches!(self.remark(op, slots), Some(Remark::Odd(_))))
        };
        let chunks = op.slots.iter().filter_map(both).find_map(|(b, c)| {
            let (dimension, order) = values::chunks(pair, b, c, self.ranks.len())?;
            Some((&*c.path, disorder(c, dimension, &order)))
        });
        chunks.or_else(|| {
            let held = self.held_in_turn(op)?;
            op.slots.iter().filter_map(both).find_map(|(b, c)| {
                let dimension = values::lies_in(pair, b, c, &held.concat())?;
                let parts: Vec<String> = held.iter().map(|ranges| format!("[{}]", slice(ranges))).collect();
                let path = &*c.path;
                let said = format!(
                    "{path}: dimension {dimension} lies in the order in which the ranks hold it, {}: zigzag is not undone",
                    parts.join(", ")
                );
                Some((path, said))
            })
        })
    }

    /// Returns the ranges of a dimension that the ranks hold of a value of an op, rank by rank, if all hold several. Ranks that share another dimension
    /// hold the same.
    fn held_in_turn(&self, op: &OpPair) -> Option<Vec<Vec<Range<usize>>>> {
        op.slots.iter().find_map(|slots| {
            let spread = self.spread.get(&self.place(op, slots)?)?;
            let dimensions = spread.pieces.first()?.cell.dimensions().len();
            let of = |dimension: usize| {
                let mut held: Vec<Vec<Range<usize>>> = Vec::new();
                for piece in &spread.pieces {
                    let ranges = piece.cell.dimensions()[dimension].to_vec();
                    if !held.contains(&ranges) {
                        held.push(ranges);
                    }
                }
                held
            };
            (0..dimensions).map(of).find(|held| held.len() > 1 && held.iter().all(|ranges| ranges.len() > 1))
        })
    }
}

/// Returns true for a whole number from 2 on, but for rounding.
pub(super) fn is_whole(value: f64) -> bool {
    value > 1.5 && (value / value.round() - 1.0).abs() < WHOLE
}

/// Returns how often the function of an op is called in the backward pass, where gradients have their factor; 0 elsewhere.
fn calls_of(pair: &PartPair, op: &OpPair) -> f64 {
    let name = OpName::parse(pair.name(op));
    if name.phase() != Phase::Backward || name.kind() != OpKind::Api {
        return 0.0;
    }
    let same = |op: &&Op| op.name.phase() == Phase::Backward && op.name.stem() == name.stem();
    pair.baseline.ops.iter().filter(same).count() as f64
}

/// Returns the name of the parameter whose gradient a value is, as an optimizer reads it.
fn parameter_of<'p>(pair: &'p PartPair, slot: &Slot) -> Option<&'p str> {
    let key = value_key(slot.value.tensor()?)?;
    let steps = pair.baseline.ops.iter().filter(|op| op.name.as_str().starts_with("Optimizer."));
    steps.flat_map(|op| &op.slots).find_map(|held| {
        let name = held.path.strip_prefix("input.grad.")?;
        (value_key(held.value.tensor()?) == Some(key)).then_some(name)
    })
}

/// Returns a value that is the other run's and some padding behind it, the dimension, and the words.
pub(super) fn padded(pair: &PartPair, order: usize) -> Option<(&str, usize, String)> {
    let op = &pair.ops[order];
    op.slots.iter().find_map(|slots| {
        let (Some(b), Some(c)) = pair.slot(op, slots) else { return None };
        let Padding { dimension, due, held } = values::padding(pair, b, c)?;
        let said = format!(
            "{}: dimension {dimension} is padded from {due} to {held}, and the padding is not cut off",
            b.path
        );
        Some((&*b.path, dimension, said))
    })
}

/// Returns a value that an op reads, and the words, if one run pads its last dimension and the op does not cut it off. A batch may be padded, or
/// larger; what is padded in its last dimension is a vocabulary.
pub(super) fn leaked(pair: &PartPair, order: usize) -> Option<(&Slot, String)> {
    let op = &pair.ops[order];
    let (path, dimension, said) = padded(pair, order)?;
    let slot = |slots: Paired| pair.slot(op, slots).0;
    let slot = op.slots.iter().filter_map(slot).find(|slot| &*slot.path == path)?;
    let is_last = slot.value.tensor().is_some_and(|record| dimension + 1 == record.shape.len());
    (is_last && dimension > 0 && !slot.side.is_result() && !is_cut_off(pair, op)).then_some((slot, said))
}

/// Returns true if an op makes results of one size on both sides, of as many dimensions as what it reads in two sizes.
fn is_cut_off(pair: &PartPair, op: &OpPair) -> bool {
    let sizes = |slots: Paired| {
        let (b, c) = pair.slot(op, slots);
        let (b, c) = (b?, c?);
        Some((b.side.is_result(), b.value.tensor()?.shape.clone(), c.value.tensor()?.shape.clone()))
    };
    let all: Vec<_> = op.slots.iter().filter_map(sizes).collect();
    let padded =
        |dimensions: usize| all.iter().any(|(is_result, b, c)| !is_result && b != c && b.len() == dimensions);
    all.iter().any(|(is_result, b, c)| *is_result && b == c && padded(b.len()))
}

/// Returns the baseline's bias of an op.
pub(super) fn bias_of<'p>(pair: &'p PartPair, op: &OpPair) -> Option<&'p TensorRecord> {
    op.slots.iter().find_map(|slots| {
        let slot = pair.slot(op, slots).0?;
        let record = slot.value.tensor()?;
        let named = slot.path.contains("bias") || &*slot.path == "input.2";
        (named && !slot.side.is_result() && record.shape.len() == 1).then_some(record)
    })
}

fn disorder(slot: &Slot, dimension: usize, order: &[usize]) -> String {
    let why = if is_zigzag(order) { ": zigzag is not undone" } else { "" };
    let order = order.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    format!("{}: the chunks of dimension {dimension} lie in the order {order}{why}", slot.path)
}

/// Returns true for the order in which ranks hold zigzag chunks (0, 3, 1, 2), and for what comes of undoing it wrongly.
fn is_zigzag(order: &[usize]) -> bool {
    let ranks = order.len() / 2;
    let held: Vec<usize> = (0..ranks).flat_map(|rank| [rank, 2 * ranks - 1 - rank]).collect();
    let twice: Vec<usize> = held.iter().filter_map(|&chunk| held.get(chunk).copied()).collect();
    order.len().is_multiple_of(2) && (order == held || order == twice)
}

/// Formats which part of the model ranks hold: `stage 1 (rank 1) holds layers 0-1, expected 2-3`.
fn part(part: &Misplaced) -> String {
    let list = part.list.rsplit('.').find(|name| name.parse::<u32>().is_err()).unwrap_or("modules");
    let (held, due) = (numbers(&part.held), numbers(&part.due));
    let ranks = in_words(&part.ranks);
    let verb = if part.ranks.len() == 1 { "holds" } else { "hold" };
    let list = if part.held.len() == 1 { list.strip_suffix('s').unwrap_or(list) } else { list };
    if part.list.contains("expert") {
        return format!("{ranks} {verb} {list} {held}, expected {due} (of {})", part.list);
    }
    format!("stage {} ({ranks}) holds {list} {held}, expected {due}", part.part)
}

/// Formats numbers: `0-7`, or `3, 2`.
fn numbers(all: &[u32]) -> String {
    match all {
        [first, .., last] if all.windows(2).all(|pair| pair[1] == pair[0] + 1) => format!("{first}-{last}"),
        _ => all.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}
