//! The tensors of folded ranks: views over the tensors of each.

use std::collections::HashMap;
use std::sync::Arc;

use probe_dump::{ReadError, TensorData, TensorStore};

use super::layout::Layout;
use super::pieces;

/// Where the pieces of a value are: rank and key of each, in the order of the layout's cells.
pub(crate) struct Made {
    pub(crate) layout: Layout,
    pub(crate) pieces: Vec<(usize, Box<str>)>,
}

/// Tensors of all ranks, and the global values that they make.
pub(crate) struct FoldedStore {
    pub(crate) ranks: Vec<Arc<dyn TensorStore>>,
    pub(crate) made: HashMap<Box<str>, Made>,
}

impl TensorStore for FoldedStore {
    fn load(&self, key: &str) -> Result<TensorData, ReadError> {
        let Some(made) = self.made.get(key) else {
            return Err(ReadError::format(key, "no rank holds this value"));
        };
        let load = |(rank, key): &(usize, Box<str>)| self.ranks[*rank].load(key);
        let mut pieces = made.pieces.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        if made.layout.is_one_piece() {
            return Ok(pieces.swap_remove(0));
        }
        pieces::view(&made.layout, pieces).map_err(|error| ReadError::format(key, error.to_string()))
    }

    fn expect(&self, keys: &[&str]) {
        let mut wanted: Vec<Vec<&str>> = vec![Vec::new(); self.ranks.len()];
        for (rank, key) in keys.iter().filter_map(|key| self.made.get(*key)).flat_map(|made| &made.pieces) {
            wanted[*rank].push(key);
        }
        for (store, keys) in self.ranks.iter().zip(wanted) {
            store.expect(&keys);
        }
    }

    fn let_go(&self) {
        self.ranks.iter().for_each(|store| store.let_go());
    }

    fn is_late(&self) -> bool {
        self.ranks.iter().any(|store| store.is_late())
    }
}
