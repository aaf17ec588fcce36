//! How the values of many ranks make global ones: a run on many ranks becomes one that can be compared with a run on one device.
//!
//! A layout says for each rank which part of a value it holds (contiguous or zigzag shards of any dimensions, uneven or padded at the end),
//! and whether equal parts are replicas or terms of a sum that is still to be reduced. It is inferred for each value: from shapes and
//! hashes, and where these leave a choice, from what the other run holds. Values are views over the pieces; statistics are folded.
//!
//! Layers of pipeline stages and experts bear the numbers that they have in the whole model ([`Misplaced`] says where a rank holds others).
//!
//! Nothing here judges. What the layouts show besides (a replica that differs, shards in another order, values that are still partial) is
//! returned as remarks, which explain what a judge finds.

mod arguments;
mod bias;
mod both;
mod callers;
mod calls;
mod cuts;
mod damage;
mod declared;
mod dims;
mod documents;
mod fold;
mod held;
mod infer;
mod job;
mod layout;
mod means;
mod merge;
mod numbering;
mod observed;
mod order;
mod parts;
mod pieces;
mod record;
mod remark;
mod reordered;
mod rows;
mod spanning;
mod stages;
mod store;
#[cfg(test)]
mod tests;
mod tied;
mod usual;

pub use both::{HeldTerms, Joined, ValueName, joined, numbered};
pub use callers::under_their_callers;
pub use declared::Declared;
pub use dims::{Dims, Mesh};
pub use fold::{Folded, fold};
pub use held::{Holding, Piece, Spread};
pub use layout::{Among, Cell, Layout};
pub use numbering::Misplaced;
pub use observed::observed;
pub use order::chunk_order;
pub use parts::{are_mostly_equal, part_error, part_factor};
pub use remark::{Remark, Remarks};
