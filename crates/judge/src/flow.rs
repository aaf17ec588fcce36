//! The dataflow graph of a part: inputs and results of each op, and the ops its results depend on.
//!
//! Values are recognised by their identity (hash, or statistics, equal to the bit on each side). A backward op
//! also depends on its forward op's inputs and results, a parameter gradient on its module's inputs in both
//! passes, a module on the values made inside it.

mod phases;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::difference::{Difference, Fact, Facts, Identity, SlotFact};
use super::nesting::{MAX_NESTING, Nesting};
use super::ops::{Kind, Traits, base};
use super::rulebook::RuleBook;
use super::setting::{Setting, is_uninitialised};
use super::slot::Shared;
use super::slot_view::SlotView;
use super::tolerance::Rules;
pub(super) use super::values::Place;
use super::values::Values;
use super::{PartEvidence, Verdict};
use probe_dump::{Op, OpKind, OpName, Ordinal, Phase, Slot, SlotSide, Task};
use probe_measure::{ChecksumMatch, Evidence};
use probe_pair::{Paired, PartPair, slot_key};

/// One op of the part with the facts about its values.
pub(super) struct Node<'a> {
    /// The baseline's op, or the candidate's if only that exists.
    pub(super) op: &'a Op,
    /// Present on both sides.
    pub(super) is_paired: bool,
    pub(super) traits: Traits,
    /// Name without the parts that do not change the computation.
    pub(super) base: &'a str,
    /// One per slot, in the order of the pair's slots.
    facts: Box<[SlotFact]>,
}

impl Node<'_> {
    /// Returns true for a module call.
    pub(super) fn is_module(&self) -> bool {
        self.op.name.kind() == OpKind::Module
    }

    /// Returns true for a call of a module that does several things.
    pub(super) fn is_composite(&self) -> bool {
        self.is_module() && self.traits.kind == Kind::Other
    }

    /// Returns true for a dispatcher op: everything it reads is among its inputs, including what backward ops
    /// saved.
    pub(super) fn is_dispatcher(&self) -> bool {
        self.op.name.as_str().starts_with("Aten.")
    }

    /// Returns true if its results are gradients.
    pub(super) fn is_backward(&self) -> bool {
        matches!(self.op.name.phase(), Phase::Backward | Phase::ParameterGradient)
    }

    /// Returns true if it makes gradients by its own formula: a dispatcher op of the backward pass with its
    /// own name for it, or anything recorded under the name of its forward.
    pub(super) fn makes_gradients(&self) -> bool {
        self.is_backward() && (self.traits.is_gradient || !self.is_dispatcher())
    }

    /// Splits what a gradient is made from: the incoming gradients, and what the forward pass left. Dispatcher ops, and
    /// functions that are called for a gradient, list that among their inputs, after the gradient.
    pub(super) fn incoming<'p, T>(&self, given: &'p [T], saved: &'p [T]) -> (&'p [T], &'p [T]) {
        let lists = self.is_dispatcher() || self.traits.is_gradient;
        if lists { given.split_at(given.len().min(1)) } else { (given, saved) }
    }

    /// Number of slots.
    pub(super) const fn slot_count(&self) -> usize {
        self.facts.len()
    }

    /// Positions of its inputs.
    pub(super) fn given(&self) -> impl Iterator<Item = usize> + '_ {
        self.facts.iter().enumerate().filter(|(_, fact)| !fact.side.is_result()).map(|(slot, _)| slot)
    }

    /// Positions of its results.
    pub(super) fn results(&self) -> impl Iterator<Item = usize> + '_ {
        self.facts.iter().enumerate().filter(|(_, fact)| fact.side.is_result()).map(|(slot, _)| slot)
    }
}

/// All ops of a part and their dependencies.
pub(super) struct Flow<'a> {
    pub(super) pair: &'a PartPair,
    pub(super) evidence: &'a PartEvidence,
    pub(super) nodes: Vec<Node<'a>>,
    facts: Facts,
    pub(super) values: Values<'a>,
    by_name: HashMap<&'a str, usize>,
    /// Parameter gradients by position, each with those of other modules that have the same parameter.
    tied: HashMap<usize, Vec<usize>>,
    /// Position of the module call around each op: the forward call of forward ops, the backward call of others.
    parents: Vec<Option<Ordinal>>,
    /// Number of inputs that were forgiven because only their checksum differed.
    pub(super) late_checksums: usize,
    /// True if only module calls and optimizer steps were recorded.
    pub(super) modules_alone: bool,
    /// True if some value requires a gradient.
    trains: bool,
    /// Keys of the values of each side that no op had made in the previous step; empty if that was not recorded.
    pub(super) arrived_before: Arc<[HashSet<u64>; 2]>,
}

impl<'a> Flow<'a> {
    pub(super) fn of(
        pair: &'a PartPair,
        evidence: &'a PartEvidence,
        setting: &Setting,
        rules: &Rules,
        book: &mut RuleBook,
    ) -> Self {
        let (mut shared, mut all) = (Shared::default(), Facts::default());
        let nodes = pair.ops.iter().enumerate().filter_map(|(position, op_pair)| {
            let (b, c) = pair.op(op_pair);
            let op = b.or(c)?;
            let facts = op_pair.slots.iter().enumerate().map(|(index, slots)| {
                let sides = pair.slot(op_pair, slots);
                let any: Option<&Slot> = sides.0.or(sides.1);
                let view = SlotView {
                    op: op.name.as_str(),
                    uninitialised: any.is_some_and(|slot| is_uninitialised(op, slot)),
                    evidence: evidence.at(position, index),
                    setting,
                    rules,
                };
                view.shared_fact(sides, book, &mut shared, &mut all)
            });
            Some(Node {
                op,
                is_paired: matches!(op_pair.ops, Paired::Both(..)),
                traits: Traits::of(op),
                base: base(op),
                facts: facts.collect(),
            })
        });
        let nodes = nodes.collect();
        let mut flow = Self {
            pair,
            evidence,
            nodes,
            facts: all,
            values: Values::of(pair),
            by_name: by_name(pair),
            tied: HashMap::new(),
            parents: Vec::new(),
            late_checksums: 0,
            modules_alone: false,
            trains: false,
            arrived_before: Arc::default(),
        };
        flow.modules_alone =
            flow.nodes.iter().all(|node| node.is_module() || node.traits.kind == Kind::Optimizer);
        flow.trains = (0..flow.nodes.len())
            .any(|op| (0..flow.nodes[op].slot_count()).any(|slot| flow.wants_gradient((op, slot))));
        let nesting = Nesting::of(pair);
        let paths = flow.modules_by_path();
        let parents = (0..flow.nodes.len()).map(|position| flow.parent_of(position, &nesting, &paths));
        flow.parents = parents.map(|parent| parent.map(Ordinal::of)).collect();
        flow.tied = flow.tied_gradients();
        flow.forgive_late_checksums();
        flow
    }

    /// Returns the positions of module calls by phase and path, in order.
    fn modules_by_path(&self) -> HashMap<(Phase, &'a str), Vec<usize>> {
        let mut paths: HashMap<(Phase, &str), Vec<usize>> = HashMap::new();
        for (position, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_paired) {
            if let Some(path) = node.op.name.module_path() {
                paths.entry((node.op.name.phase(), path)).or_default().push(position);
            }
        }
        paths
    }

    /// Returns the recorded call around an op. If its nesting or the calls around it were not recorded (the
    /// older tool has no backward of modules in place), returns the next call of a module on its path, because
    /// a module ends after its contents.
    fn parent_of(
        &self,
        position: usize,
        nesting: &Nesting<'_>,
        paths: &HashMap<(Phase, &str), Vec<usize>>,
    ) -> Option<usize> {
        let node = &self.nodes[position];
        let phase = if node.is_backward() { Phase::Backward } else { Phase::Forward };
        let mut outermost: Option<OpName> = None;
        let of_baseline = self.pair.op(&self.pair.ops[position]).0.is_some();
        for name in nesting.ancestors(node.op, of_baseline) {
            let outer = OpName::parse(name);
            // An optimizer step has no phase.
            let is_in_it = outer.phase() == phase || outer.phase() == Phase::None;
            let name = if is_in_it { Some(name.to_owned()) } else { outer.in_phase(phase) };
            let found = name.and_then(|name| self.named(&name)).filter(|&outer| outer != position);
            if found.is_some() {
                return found;
            }
            outermost = Some(outer);
        }
        let mut path = outermost.as_ref().unwrap_or(&node.op.name).module_path()?;
        while let Some((outer, _)) = path.rsplit_once('.') {
            path = outer;
            let calls = paths.get(&(phase, path)).map_or(&[][..], Vec::as_slice);
            let next = calls.partition_point(|&call| call <= position);
            if let Some(&call) = calls.get(next) {
                return Some(call);
            }
        }
        None
    }

    /// Forgives inputs that differ only in their checksum at an op whose results are all equal: they were
    /// hashed after something had written to them. The older tool sometimes does so for in-place ops.
    fn forgive_late_checksums(&mut self) {
        // In probe's own dumps, hashes are taken together with the statistics.
        if [&self.pair.baseline, &self.pair.candidate].iter().any(|side| side.task == Task::Hash) {
            return;
        }
        for position in 0..self.nodes.len() {
            let late = |slot: usize, fact: &Fact| {
                fact.difference == Difference::Checksum
                    && matches!(self.evidence.at(position, slot), Evidence::Recorded(recorded)
                        if recorded.checksum == Some(ChecksumMatch::Different)
                            && recorded.rel_l2_at_least.get().is_some_and(|error| error <= 0.0))
            };
            let node = &self.nodes[position];
            let has_results = node.results().next().is_some();
            let equal = has_results && node.results().all(|slot| self.fact((position, slot)).exact);
            let forgivable = |slot: usize| {
                let fact = self.fact((position, slot));
                fact.difference.is_open() || late(slot, fact)
            };
            if !equal || !node.given().all(forgivable) {
                continue;
            }
            for slot in 0..node.slot_count() {
                if self.fact((position, slot)).difference != Difference::Checksum {
                    continue;
                }
                let fact = self.fact_mut((position, slot));
                fact.difference = Difference::None;
                fact.exact = true;
                fact.judgement.verdict = Verdict::Close;
                fact.judgement.reason =
                    "the hash differs, but its statistics and all results of the op agree: computed late"
                        .into();
                self.late_checksums += 1;
            }
        }
    }

    /// Returns the fact about a value.
    pub(super) fn fact(&self, (op, slot): Place) -> &Fact {
        &self.facts[self.nodes[op].facts[slot].fact]
    }

    /// Accepts what differs in these ops of both sides, for a reason.
    pub(super) fn excuse(&mut self, rewritten: &HashSet<usize>, reason: &str) {
        let ops = rewritten.iter().filter(|&&op| self.nodes[op].is_paired);
        let places = ops.flat_map(|&op| (0..self.nodes[op].slot_count()).map(move |slot| (op, slot)));
        let differing: Vec<Place> = places.filter(|&place| self.fact(place).differs()).collect();
        for place in differing {
            let fact = self.fact_mut(place);
            fact.allowed = true;
            fact.judgement.verdict = Verdict::Unknown;
            fact.judgement.reason = reason.into();
        }
    }

    /// Returns true if no input of an op has as many elements as its first result.
    pub(super) fn resizes(&self, op: usize) -> bool {
        let len = |slot: usize| self.fact((op, slot)).len.to_bits();
        let node = &self.nodes[op];
        node.results().next().is_some_and(|made| node.given().all(|given| len(given) != len(made)))
    }

    /// Returns the fact about a value, for changes.
    pub(super) fn fact_mut(&mut self, (op, slot): Place) -> &mut Fact {
        self.facts.own(&mut self.nodes[op].facts[slot])
    }

    /// Returns the facts about an op's values, slot by slot.
    pub(super) fn facts(&self, op: usize) -> impl ExactSizeIterator<Item = &Fact> {
        self.nodes[op].facts.iter().map(|slot| &self.facts[slot.fact])
    }

    /// Returns a value's role in its op.
    pub(super) fn side(&self, (op, slot): Place) -> SlotSide {
        self.nodes[op].facts[slot].side
    }

    /// Returns the slot at a place: the baseline's, or the candidate's if only that exists.
    pub(super) fn slot(&self, (op, slot): Place) -> Option<&'a Slot> {
        let (b, c) = self.pair.slot_at(op, slot);
        b.or(c)
    }

    /// Returns the tensor numbers assigned by the captures, if both have one: equal if the same tensor
    /// appeared again, whatever its contents.
    pub(super) fn numbered(&self, (op, slot): Place) -> Option<Identity> {
        let (b, c) = self.pair.slot_at(op, slot);
        b?.identity.zip(c?.identity).map(|(b, c)| Identity::new(b.number(), c.number()))
    }

    /// Returns the least and the greatest element of a baseline value, if known.
    pub(super) fn extremes(&self, (op, slot): Place) -> Option<(f64, f64)> {
        if let Some(metrics) = self.evidence.at(op, slot).measured() {
            return metrics.baseline.min.zip(metrics.baseline.max);
        }
        let statistics = &self.slot((op, slot))?.value.tensor()?.statistics;
        Some((statistics.min()?.as_f64(), statistics.max()?.as_f64()))
    }

    /// Returns the baseline's shape of a tensor.
    pub(super) fn shape(&self, place: Place) -> &'a [u64] {
        self.slot(place).and_then(|slot| slot.value.tensor()).map_or(&[], |record| &record.shape)
    }

    /// Returns true if a value that no recorded op made is a weight: a module parameter, or a value that a
    /// forward function reads and that requires a gradient, unless it is the first factor of a product or what a softmax
    /// or a loss of it is taken of.
    pub(super) fn is_weight(&self, place: Place) -> bool {
        let node = &self.nodes[place.0];
        let multiplied = || {
            matches!(node.traits.kind, Kind::Product | Kind::Attention | Kind::Recurrent | Kind::LogSoftmax)
                // `addmm` and its variants add a bias, which comes first.
                && !node.base.contains("add")
                && self.slot(place).is_some_and(|slot| &*slot.path == "input.0")
        };
        self.side(place) == SlotSide::Parameter
            || (node.op.name.phase() == Phase::Forward
                && !self.modules_alone
                && self.wants_gradient(place)
                && !multiplied())
    }

    /// Returns true if a tensor is a trained leaf, or was computed from one.
    pub(super) fn wants_gradient(&self, place: Place) -> bool {
        self.slot(place).and_then(|slot| slot.value.tensor()?.requires_grad) == Some(true)
    }

    /// Returns true if a value that no recorded op made was there before the step: a weight, a buffer, data. Where
    /// functions are recorded, only what requires a gradient may come from one that was not (a kernel in an
    /// `autograd.Function`), and all may in a step without gradients.
    pub(super) fn comes_from_outside(&self, place: Place) -> bool {
        let requires = self.slot(place).and_then(|slot| slot.value.tensor()?.requires_grad);
        !self.modules_alone && (self.is_weight(place) || (self.trains && requires == Some(false)))
    }

    /// Returns true for a tensor that one side alone has.
    pub(super) fn is_of_one_side(&self, place: Place) -> bool {
        let is_tensor = self.slot(place).is_some_and(|slot| slot.value.tensor().is_some());
        is_tensor && self.fact(place).difference == Difference::Missing
    }

    /// Returns the fraction of zero elements on each side, if known.
    pub(super) fn zero_shares(&self, (op, slot): Place) -> [Option<f64>; 2] {
        if let Evidence::Data(kept) = self.evidence.at(op, slot) {
            let (metrics, len) = (kept.metrics(), self.fact((op, slot)).len);
            return [&metrics.baseline, &metrics.candidate].map(|side| Some(side.zeros as f64 / len));
        }
        let (b, c) = self.pair.slot_at(op, slot);
        [b, c].map(|slot| {
            let counts = slot?.value.tensor()?.counts.as_deref()?;
            Some(counts.zeros as f64 / counts.elements as f64)
        })
    }

    /// Frees the tables of [`Values`]: what follows needs memory and no index.
    pub(super) fn forget_values(&mut self) {
        self.values = Values::of(self.pair);
    }

    /// Returns true if an unpaired op of either side made the value at a place before it is read there.
    pub(super) fn is_made_unpaired(&self, place: Place) -> bool {
        self.unpaired_makers(place).next().is_some()
    }

    /// Returns true if a side read this value already in the previous step, where no op had made it.
    pub(super) fn is_old(&self, side: usize, slot: &Slot) -> bool {
        slot_key(slot).is_some_and(|key| self.arrived_before[side].contains(&key))
    }

    /// Returns true if an op of one side alone made a value by copying another's elements, in whatever order.
    pub(super) fn is_copied_unpaired(&self, place: Place) -> bool {
        let copies = |maker: usize| {
            let node = &self.nodes[maker];
            node.traits.kind == Kind::Copy && !node.traits.rearranges
        };
        self.unpaired_makers(place).any(copies)
    }

    /// Iterates over the places before an op where its value was made, on either side.
    pub(super) fn makers_of_both(&self, (op, slot): Place) -> impl Iterator<Item = Place> + '_ {
        let (b, c) = self.pair.slot_at(op, slot);
        let sides = [b, c].into_iter().enumerate().filter_map(|(side, slot)| Some((side, slot?)));
        sides.flat_map(|(side, slot)| self.values.makers(side, slot)).filter(move |maker| maker.0 < op)
    }

    /// Returns the ops of one side alone that made the value at a place, on either side.
    pub(super) fn unpaired_makers(&self, (op, slot): Place) -> impl Iterator<Item = usize> + '_ {
        let (b, c) = self.pair.slot_at(op, slot);
        let sides = [b, c].into_iter().enumerate();
        let makers = sides.filter_map(|(side, slot)| self.values.made_unpaired(side, slot?));
        makers.filter(move |maker| *maker < op)
    }

    /// Returns the position of the paired op with this name.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied().filter(|&position| self.nodes[position].is_paired)
    }

    /// Returns the position of the innermost module call around an op.
    pub(super) fn parent(&self, position: usize) -> Option<usize> {
        self.parents[position].map(Ordinal::place)
    }

    /// Iterates over the module calls around an op, innermost first.
    pub(super) fn around(&self, position: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.parent(position), |&outer| self.parent(outer)).take(MAX_NESTING)
    }

    /// Returns true for a value of more than one dimension, but for those of size one.
    pub(super) fn is_matrix(&self, place: Place) -> bool {
        self.shape(place).iter().filter(|size| **size > 1).count() > 1
    }

    /// Returns the results of the ops inside a module call.
    pub(super) fn within(&self, outer: usize) -> impl Iterator<Item = Place> + '_ {
        let inner = (0..outer).filter(move |&op| self.around(op).any(|around| around == outer));
        inner.flat_map(|op| self.nodes[op].results().map(move |slot| (op, slot)))
    }
}

/// Returns the positions of ops by name. Where an op of the candidate alone has the name of one that both sides have, as
/// calls that checkpointing makes again do, the latter counts.
fn by_name(pair: &PartPair) -> HashMap<&str, usize> {
    let is_paired = |position: &usize| matches!(pair.ops[*position].ops, Paired::Both(..));
    let (both, one): (Vec<usize>, Vec<usize>) = (0..pair.ops.len()).partition(is_paired);
    one.into_iter().chain(both).map(|position| (pair.name(&pair.ops[position]), position)).collect()
}
