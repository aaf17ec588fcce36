//! The groups that a run recorded, and which ranks of them hold one value.
//!
//! A group of rank 0 tells an axis: its size, and the distance between its members. All ranks lie along it as rank 0 does. A value is replicated
//! over some of the axes if the ranks that differ only along these hold the same.

use std::collections::BTreeMap;

use super::classes::Classes;

/// Most axes of which products are looked at.
const MOST_AXES: usize = 5;

/// Key of a value that is zero: such values are equal without being replicas, as the gradients of experts that got no tokens.
pub(super) const ZERO: u64 = 0;

/// Partitions of the ranks into blocks that may hold replicas, the largest blocks first.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups(Vec<Blocks>);

/// One partition: the ranks that differ only along these axes lie in one block.
#[derive(Debug, Clone)]
struct Blocks {
    axes: Vec<Axis>,
    /// True if one of the axes distributes layers or experts: names then stand for other parts of the model.
    of_parts: bool,
}

/// Distance between neighbours, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    stride: u32,
    size: u32,
}

impl Groups {
    /// Makes the partitions of recorded groups, by name; groups that lie across others, or not evenly, are left out.
    pub(super) fn of(recorded: &[(String, Vec<u32>)]) -> Self {
        let mut axes: Vec<(Axis, bool)> = Vec::new();
        for (name, members) in recorded {
            let [0, next, ..] = **members else { continue };
            let axis = Axis { stride: next, size: u32::try_from(members.len()).unwrap_or(0) };
            let even = next > 0
                && members
                    .iter()
                    .zip(0_u32..)
                    .all(|(member, place)| Some(*member) == place.checked_mul(next));
            if even && axes.len() < MOST_AXES && axes.iter().all(|(other, _)| other.is_beside(axis)) {
                let parts = name.split('_').any(|word| ["ep", "pp", "EXPERT", "PIPELINE"].contains(&word));
                axes.push((axis, parts));
            }
        }
        let chosen = |mask: usize| {
            axes.iter().enumerate().filter(move |(at, _)| mask >> at & 1 == 1).map(|(_, axis)| *axis)
        };
        let mut all: Vec<Blocks> = (1..1_usize << axes.len())
            .map(|mask| Blocks {
                axes: chosen(mask).map(|(axis, _)| axis).collect(),
                of_parts: chosen(mask).any(|(_, of_parts)| of_parts),
            })
            .collect();
        all.sort_by_key(|blocks| std::cmp::Reverse(blocks.size()));
        Self(all)
    }

    /// Returns true if no groups were recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Judges the ranks that hold a value. `kept` says of a partition, by its place, whether nearly all values of this kind are replicas over it.
    pub(super) fn judge(&self, values: &[(u32, u64)], kept: impl Fn(usize) -> bool) -> Classes {
        for (place, blocks) in self.0.iter().enumerate() {
            let Some(held) = blocks.of(values) else { continue };
            let classes: Vec<BTreeMap<u64, Vec<u32>>> = held.iter().map(|block| by_key(block)).collect();
            if classes.iter().all(|block| block.len() == 1) {
                return Classes::Even;
            }
            let most = |block: &BTreeMap<u64, Vec<u32>>| {
                block
                    .iter()
                    .max_by_key(|(_, ranks)| ranks.len())
                    .map(|(key, ranks)| (*key, 2 * ranks.len() > blocks.size()))
            };
            let majorities: Option<Vec<u64>> = classes
                .iter()
                .map(|block| {
                    most(block).and_then(|(key, strict)| {
                        (strict && (key != ZERO || block.len() == 1)).then_some(key)
                    })
                })
                .collect();
            if let Some(majorities) = majorities {
                let outside = classes.iter().zip(majorities).flat_map(|(block, own)| {
                    block
                        .iter()
                        .filter(move |(key, _)| **key != own)
                        .flat_map(|(_, ranks)| ranks.iter().copied())
                });
                let mut odd: Vec<u32> = outside.collect();
                odd.sort_unstable();
                return Classes::Odd(odd);
            }
            let split: Vec<&Vec<(u32, u64)>> = held
                .iter()
                .zip(&classes)
                .filter(|(_, block)| block.len() > 1)
                .map(|(block, _)| block)
                .collect();
            if let [pair] = split[..]
                && let [(a, _), (b, _)] = pair[..]
                && (held.len() > 1 || (kept(place) && !blocks.of_parts))
            {
                return Classes::Pair(a.min(b), a.max(b));
            }
        }
        Classes::Even
    }

    /// Returns for each partition whether all of its blocks hold one value each; `None` for one that these ranks do not fill.
    pub(super) fn replicated(&self, values: &[(u32, u64)]) -> Vec<Option<bool>> {
        let one = |blocks: &Blocks| Some(blocks.of(values)?.iter().all(|block| by_key(block).len() == 1));
        self.0.iter().map(one).collect()
    }
}

impl Axis {
    /// Returns true if ranks may lie along both axes: neither begins inside the other.
    fn is_beside(self, other: Self) -> bool {
        let (a, b) = if self.stride <= other.stride { (self, other) } else { (other, self) };
        a.stride.checked_mul(a.size).is_some_and(|reach| reach <= b.stride && b.stride.is_multiple_of(reach))
    }
}

impl Blocks {
    fn size(&self) -> usize {
        self.axes.iter().map(|axis| axis.size as usize).product()
    }

    /// Returns the values of each block; `None` if a block lacks a rank.
    fn of(&self, values: &[(u32, u64)]) -> Option<Vec<Vec<(u32, u64)>>> {
        let first = |rank: u32| {
            self.axes.iter().fold(rank, |rank, axis| rank - rank / axis.stride % axis.size * axis.stride)
        };
        let mut blocks: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
        for &(rank, key) in values {
            blocks.entry(first(rank)).or_default().push((rank, key));
        }
        let blocks: Vec<_> = blocks.into_values().collect();
        blocks.iter().all(|block| block.len() == self.size()).then_some(blocks)
    }
}

fn by_key(block: &[(u32, u64)]) -> BTreeMap<u64, Vec<u32>> {
    let mut classes: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for &(rank, key) in block {
        classes.entry(key).or_default().push(rank);
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(recorded: &[(&str, &[u32])]) -> Groups {
        let named = recorded.iter().map(|(name, ranks)| ((*name).to_owned(), ranks.to_vec()));
        Groups::of(&named.collect::<Vec<_>>())
    }

    fn judged(groups: &Groups, keys: &[u64], kept: bool) -> Classes {
        let values: Vec<(u32, u64)> = (0..).zip(keys.iter().copied()).collect();
        groups.judge(&values, |_| kept)
    }

    #[test]
    fn replicas_are_looked_for_within_groups() {
        let odd = |ranks: &[u32]| Classes::Odd(ranks.to_vec());
        let mesh = groups(&[("dp", &[0, 2]), ("tp", &[0, 1])]);
        // Replicas on all ranks, shards over tp, shards over dp.
        for keys in [[1, 1, 1, 1], [1, 2, 1, 2], [1, 1, 2, 2], [1, 2, 3, 4]] {
            assert_eq!(judged(&mesh, &keys, false), Classes::Even);
        }
        assert_eq!(judged(&mesh, &[1, 1, 1, 9], false), odd(&[3]));
        assert_eq!(judged(&mesh, &[1, 2, 1, 9], false), Classes::Pair(1, 3));
        // Without the groups, two of four experts without tokens look like replicas.
        assert_eq!(
            super::super::classes::judge(&[(0, ZERO), (1, ZERO), (2, 3), (3, 4)]),
            Classes::Pair(2, 3)
        );
        let experts = groups(&[("ep", &[0, 1, 2, 3])]);
        assert_eq!(judged(&experts, &[ZERO, ZERO, 3, 4], true), Classes::Even);
        assert_eq!(judged(&experts, &[ZERO, ZERO, ZERO, 4], true), Classes::Even);
        // Two ranks: nearly all values of the kind must be replicas.
        let two = groups(&[("dp", &[0, 1])]);
        assert_eq!(judged(&two, &[1, 2], false), Classes::Even);
        assert_eq!(judged(&two, &[1, 2], true), Classes::Pair(0, 1));
        assert!(groups(&[("odd", &[0, 3, 5])]).is_empty());
    }
}
