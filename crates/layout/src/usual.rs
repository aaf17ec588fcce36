//! The order of shards that nearly all values share.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::cuts::{is_zigzag, other_way};
use super::infer::{Inferred, NEAR};
use super::job::Job;
use super::layout::{Among, Cell, Layout};
use super::remark::Remark;

/// Values of an order that are fewer than this part of the usual one differ from it.
const RARE: usize = 4;

/// Sizes of a value and of its shards.
type Sizes = (Box<[usize]>, Vec<Vec<usize>>);

/// Cells of a value, and the number of values that have them.
type Frequent = (Box<[Cell]>, usize);

/// Returns for each piece of a sharded value the number of its shard. Dimensions count in the order of the ranks that share their parts, so that a
/// transposed value has the same numbers.
fn shards(layout: &Layout) -> Vec<usize> {
    let mut starts: Vec<Vec<usize>> = layout.cells.iter().map(Cell::start).collect();
    let sharing = |dimension: usize| -> Vec<Option<usize>> {
        let start = |cell: &Vec<usize>| cell[dimension];
        starts.iter().map(|own| starts.iter().position(|other| start(other) == start(own))).collect()
    };
    let mut dimensions: Vec<usize> = (0..layout.shape.len()).collect();
    dimensions.sort_by_cached_key(|&dimension| sharing(dimension));
    starts =
        starts.iter().map(|cell| dimensions.iter().map(|&dimension| cell[dimension]).collect()).collect();
    let cells = starts.clone();
    starts.sort();
    starts.dedup();
    cells.iter().map(|start| starts.binary_search(start).unwrap_or(0)).collect()
}

/// Puts shards that content finds in another order than nearly all other values into the order of these, so that they differ; returns
/// remarks on them. The rows of the `routed` ones lie in an order of their own.
pub(crate) fn in_common_order(
    jobs: &[Job],
    inferred: &mut [Inferred],
    numbers: &[u32],
    routed: &HashSet<usize>,
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
    as_usual(inferred, told, routed);
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
            counts.iter().filter(|((of, _), _)| *of == partition).max_by_key(|(of, count)| (**count, *of))
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

/// Gives shards that are none of the other run's the cells that most values of the same sizes have: ranks that should hold different ones may hold
/// the same, and a wrong result lies as the right ones do.
fn as_usual(inferred: &mut [Inferred], told: impl Fn(&Inferred) -> bool, routed: &HashSet<usize>) {
    // By sizes: weights are cut over other ranks than activations.
    let mut counts: HashMap<Sizes, Vec<Frequent>> = HashMap::new();
    let is_far = |found: &Inferred| found.distance.is_some_and(|distance| distance >= NEAR);
    let is_cut = |found: &Inferred| !found.layout.is_whole() && found.layout.among == Among::Replicas;
    let is_known = |found: &Inferred| told(found) || (!is_far(found) && found.distance.is_some());
    for found in inferred.iter().filter(|found| is_cut(found) && is_known(found)) {
        let alike = counts.entry(sizes(&found.layout)).or_default();
        match alike.iter_mut().find(|(cells, _)| *cells == found.layout.cells) {
            Some((_, count)) => *count += 1,
            None => alike.push((found.layout.cells.clone(), 1)),
        }
    }
    let open =
        inferred.iter_mut().enumerate().filter(|(job, _)| !routed.contains(job)).map(|(_, found)| found);
    for found in open.filter(|found| is_cut(found) && is_far(found) && !told(found)) {
        let alike = counts.get(&sizes(&found.layout)).into_iter().flatten();
        // Of several that are as frequent, the first.
        if let Some((cells, _)) = alike.min_by_key(|(_, count)| Reverse(*count)) {
            found.layout.cells.clone_from(cells);
        }
    }
}

/// Returns the sizes of a value and of its shards.
fn sizes(layout: &Layout) -> Sizes {
    let size = |ranges: &[Range<usize>]| ranges.iter().map(ExactSizeIterator::len).sum();
    let of = |cell: &Cell| cell.dimensions().iter().map(|ranges| size(ranges)).collect();
    (layout.shape.clone(), layout.cells.iter().map(of).collect())
}
