//! Regions of what only one side computes, joined where they overlap.

use std::collections::{BTreeSet, HashMap, HashSet};

use probe_pair::Substitution;

use super::converging::Agreement;
use super::unpaired::{computes, is_single};

/// Names of functions, of each side.
type Functions<'a> = [BTreeSet<&'a str>; 2];

/// Groups of ops, of which those are one whose regions overlap.
struct Joined {
    /// For each group one that it is joined with, or itself.
    parents: Vec<usize>,
    /// A group in whose region an op lies.
    owners: HashMap<usize, usize>,
}

impl Joined {
    fn of(regions: &[Option<HashSet<usize>>]) -> Self {
        let mut joined = Self { parents: (0..regions.len()).collect(), owners: HashMap::new() };
        for (group, region) in regions.iter().enumerate() {
            for &op in region.iter().flatten() {
                let owner = *joined.owners.entry(op).or_insert(group);
                let (other, root) = (joined.root(owner), joined.root(group));
                joined.parents[root] = other;
            }
        }
        joined
    }

    /// Returns the group that stands for those joined with this one.
    fn root(&self, mut group: usize) -> usize {
        while self.parents[group] != group {
            group = self.parents[group];
        }
        group
    }

    /// Returns the group that stands for those in whose regions an op lies.
    fn root_of(&self, op: usize) -> Option<usize> {
        self.owners.get(&op).map(|&group| self.root(group))
    }
}

impl<'a> Agreement<'_, 'a> {
    /// Returns the regions of groups of ops that only one side has. A single function that one side alone computes
    /// in a region, and in those that it overlaps, is no other way of writing it, however small the effect.
    pub(super) fn regions(&self, groups: &[Substitution]) -> Vec<Option<HashSet<usize>>> {
        let ops = |group: &Substitution| [&*group.baseline, &*group.candidate].concat();
        let reached = self.reached(&groups.iter().flat_map(ops).collect::<Vec<usize>>());
        let mut regions: Vec<Option<HashSet<usize>>> =
            groups.iter().map(|group| self.region_among(&ops(group), &reached)).collect();
        let joined = Joined::of(&regions);
        let mut functions = vec![Functions::default(); groups.len()];
        self.add_forward(&joined, &mut functions);
        self.add_backward(&joined, &mut functions);
        for (group, region) in regions.iter_mut().enumerate() {
            if is_single(&functions[joined.root(group)]) {
                *region = None;
            }
        }
        regions
    }

    /// Iterates over the ops in regions that only one side has: position, root of the region, and side.
    fn unpaired<'j>(&'j self, joined: &'j Joined) -> impl Iterator<Item = (usize, usize, usize)> + 'j {
        joined.owners.iter().filter_map(|(&op, &group)| {
            let node = &self.flow.nodes[op];
            let side = usize::from(self.flow.pair.op(&self.flow.pair.ops[op]).0.is_none());
            (!node.is_paired && computes(node) && !node.is_module()).then(|| (op, joined.root(group), side))
        })
    }

    /// Adds the functions that only one record has, side by side.
    fn add_forward(&self, joined: &Joined, functions: &mut [Functions<'a>]) {
        for (op, root, side) in self.unpaired(joined).filter(|(op, ..)| !self.flow.nodes[*op].is_backward()) {
            functions[root][side].insert(self.flow.nodes[op].base);
            // One that reads what differs already is the other half of what both sides compute there.
            let made =
                self.sides(op, false).into_iter().flat_map(|(side, op, slot)| self.makers(side, op, slot));
            let other = made
                .map(|maker| maker.0)
                .find(|&maker| self.flow.nodes[maker].is_paired && joined.root_of(maker) == Some(root));
            functions[root][1 - side].extend(other.map(|other| self.flow.nodes[other].base));
        }
    }

    /// Adds the backward functions that need a reason of their own. The backward pass follows from forward calls: where
    /// both sides have these, or where they are excused, it needs none.
    fn add_backward(&self, joined: &Joined, functions: &mut [Functions<'a>]) {
        let excused: Vec<bool> = functions.iter().map(|functions| !is_single(functions)).collect();
        for (op, root, side) in self.unpaired(joined).filter(|(op, ..)| self.flow.nodes[*op].is_backward()) {
            let follows = |forward: usize| {
                self.flow.nodes[forward].is_paired
                    || joined.root_of(forward).is_some_and(|root| excused[root])
            };
            let node = &self.flow.nodes[op];
            // Autograd adds up the gradients of a value that several calls read.
            let adds_up = node.is_dispatcher() && node.base == "add";
            if !adds_up && !self.forward_of(op).is_some_and(follows) {
                functions[root][side].insert(node.base);
            }
        }
    }
}
