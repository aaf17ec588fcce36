//! What the layout of a value shows besides.

use std::collections::HashMap;

use super::layout::{Among, Cell};

/// A statement about one value of the folded run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// These ranks hold something else than the others.
    Odd(Vec<u32>),
    /// Each of these ranks holds a value that is still to be combined with the others'.
    Partial(Vec<u32>, Among),
    /// These ranks hold one value, and should hold different shards.
    Alike(Vec<u32>),
    /// Ranks hold other shards than in all other values: rank, the shard it holds, the shard it should hold.
    Order(Vec<(u32, usize, usize)>),
    /// The shards are contiguous where those of all other values are zigzag (false), or the other way round (true).
    Cut(bool),
    /// The value is made of shards: each rank, and the part that it holds.
    Sharded(Vec<(u32, Cell)>),
}

/// Remarks by the places of op and slot in the folded run.
pub type Remarks = HashMap<(usize, usize), Remark>;
