//! The order of shards that nearly all values share.

use std::collections::HashMap;

use super::cuts::{is_zigzag, other_way};
use super::infer::Inferred;
use super::job::Job;
use super::layout::{Among, Layout};
use super::remark::Remark;

/// Values of an order that are fewer than this part of the usual one differ from it.
const RARE: usize = 4;

/// Returns for each piece of a sharded value the number of its shard.
fn shards(layout: &Layout) -> Vec<usize> {
    let mut starts: Vec<Vec<usize>> = layout.cells.iter().map(super::layout::Cell::start).collect();
    let cells = starts.clone();
    starts.sort();
    starts.dedup();
    cells.iter().map(|start| starts.binary_search(start).unwrap_or(0)).collect()
}

/// Puts shards that content finds in another order than nearly all other values into the order of these, so that they differ; returns
/// remarks on them.
pub(crate) fn in_common_order(
    jobs: &[Job],
    inferred: &mut [Inferred],
    numbers: &[u32],
) -> HashMap<usize, Remark> {
    let told = |found: &Inferred| {
        found.by_content && !found.layout.is_whole() && found.layout.among == Among::Replicas
    };
    let mut counts: HashMap<(Vec<usize>, Vec<usize>), usize> = HashMap::new();
    // By partition: contiguous and zigzag ones.
    let mut ways: HashMap<Vec<usize>, [usize; 2]> = HashMap::new();
    for found in inferred.iter().filter(|found| told(found)) {
        *counts.entry((found.layout.partition(), shards(&found.layout))).or_default() += 1;
        ways.entry(found.layout.partition()).or_default()[usize::from(is_zigzag(&found.layout))] += 1;
    }
    let mut remarks = HashMap::new();
    for (number, found) in inferred.iter_mut().enumerate().filter(|(_, found)| told(found)) {
        let (partition, order) = (found.layout.partition(), shards(&found.layout));
        let zigzag = is_zigzag(&found.layout);
        let [own, others] = [zigzag, !zigzag].map(|way| ways[&partition][usize::from(way)]);
        if own * RARE < others
            && let Some(cells) = other_way(&found.layout)
        {
            remarks.insert(number, Remark::Cut(zigzag));
            found.layout.cells = cells;
            continue;
        }
        let Some(((_, usual), &most)) =
            counts.iter().filter(|((of, _), _)| *of == partition).max_by_key(|(_, count)| **count)
        else {
            continue;
        };
        let own = counts.get(&(partition, order.clone())).copied().unwrap_or(0);
        if *usual == order || own * RARE > most {
            continue;
        }
        let cell_of = |shard: usize| {
            order.iter().position(|&of| of == shard).map(|place| found.layout.cells[place].clone())
        };
        let Some(cells) = usual.iter().map(|&shard| cell_of(shard)).collect::<Option<Vec<_>>>() else {
            continue;
        };
        let rank = |place: usize| numbers[jobs[number].pieces[place].0];
        let moved = (0..order.len()).filter(|&place| order[place] != usual[place]);
        let moved = moved.map(|place| (rank(place), order[place], usual[place])).collect();
        remarks.insert(number, Remark::Order(moved));
        found.layout.cells = cells.into();
    }
    remarks
}
