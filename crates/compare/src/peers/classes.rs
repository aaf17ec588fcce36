//! Finds the odd one among several ranks, given which of them hold the same value.
//!
//! Replicas come in groups of equal size: all ranks of a data-parallel run, or a fixed number per shard of the weights. Ranks that hold the same
//! value form a class. If all classes have the same size, the layout explains everything. Otherwise the group size is the smallest one that holds the
//! largest class and divides the number of ranks; in each group the ranks outside its class are odd.

use std::collections::BTreeMap;

/// Conclusion from the classes of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Classes {
    /// No rank is odd, or nothing can be concluded.
    Even,
    /// These ranks differ from the rest of their group, which is the majority.
    Odd(Vec<u32>),
    /// These two ranks form a group by themselves: one of them is odd.
    Pair(u32, u32),
}

/// Judges the ranks that hold a value; keys are equal if the values are.
pub(super) fn judge(values: &[(u32, u64)]) -> Classes {
    let mut by_key: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for &(rank, key) in values {
        by_key.entry(key).or_default().push(rank);
    }
    let mut classes: Vec<Vec<u32>> = by_key.into_values().collect();
    // Larger classes first, ties broken by the smallest rank, so that the keys themselves have no influence.
    for class in &mut classes {
        class.sort_unstable();
    }
    classes.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
    let (Some(largest), Some(least)) = (classes.first().map(Vec::len), classes.last().map(Vec::len)) else {
        return Classes::Even;
    };
    if largest == least {
        return Classes::Even;
    }
    let ranks = values.len();
    let Some(size) = (largest..=ranks).find(|size| ranks.is_multiple_of(*size)) else { return Classes::Even };
    let groups = ranks / size;
    let (kept, rest) = classes.split_at(groups.min(classes.len()));
    if kept.iter().all(|class| 2 * class.len() > size) {
        let mut odd: Vec<u32> = rest.iter().flatten().copied().collect();
        odd.sort_unstable();
        return Classes::Odd(odd);
    }
    // All groups but one are complete, and that one consists of two ranks that differ.
    match (kept.split_last(), rest) {
        (Some((last, whole)), [other]) if size == 2 && whole.iter().all(|class| class.len() == 2) => {
            match (&**last, &**other) {
                ([a], [b]) => Classes::Pair(*a.min(b), *a.max(b)),
                _ => Classes::Even,
            }
        }
        _ => Classes::Even,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_one_is_told_in_every_layout() {
        let of = |keys: &[u64]| {
            let values: Vec<(u32, u64)> = (0..).zip(keys.iter().copied()).collect();
            judge(&values)
        };
        let odd = |ranks: &[u32]| Classes::Odd(ranks.to_vec());
        // Data parallel, and two shards of weights with four replicas each.
        assert_eq!(of(&[1; 8]), Classes::Even);
        assert_eq!(of(&[1, 1, 1, 1, 1, 9, 1, 1]), odd(&[5]));
        assert_eq!(of(&[1, 9, 1, 1, 8, 7, 1, 1]), odd(&[1, 4, 5]));
        assert_eq!(of(&[1, 2, 1, 2, 1, 2, 1, 2]), Classes::Even);
        assert_eq!(of(&[1, 2, 1, 2, 1, 9, 1, 2]), odd(&[5]));
        assert_eq!(of(&[1, 2, 9, 2, 1, 8, 1, 2]), odd(&[2, 5]));
        // Every rank has its own value: gradients before they are reduced, or shards without replicas.
        assert_eq!(of(&[1, 2, 3, 4]), Classes::Even);
        // Two ranks that agree by chance say nothing about the rest.
        assert_eq!(of(&[1, 1, 3, 4, 5, 6, 7, 8]), Classes::Even);
        // Groups of two: it cannot be determined which rank is wrong.
        assert_eq!(of(&[1, 2, 3, 1, 2, 9]), Classes::Pair(2, 5));
        assert_eq!(of(&[1, 2]), Classes::Even);
        assert_eq!(of(&[]), Classes::Even);
        assert_eq!(of(&[1, 1, 9]), odd(&[2]));
    }
}
