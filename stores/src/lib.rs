//! Object stores for `probe`: the crate `object_store` behind [`probe::store::Bucket`], whose calls block.
//!
//! All asynchronous code of the project is here. What is asked of a store, and what of its answers is believed, is `probe::store`'s to decide.

mod body;
mod bucket;
mod open;

#[cfg(test)]
mod tests;

pub use open::ObjectStores;
