//! Experts that tokens went to, by layer, on one side.

use std::fmt;

use probe_files::limits::MAX_ROLLOUT_ROUTES;

/// Stands for a token whose experts were not recorded.
const NONE: u32 = u32::MAX;

/// Experts of tokens, and how clearly the router chose them. Held apart from the columns of tokens, as most files have none.
#[derive(Clone, Default, PartialEq)]
pub struct Routes {
    layers: usize,
    chosen: usize,
    /// Row of each token, as far as some token behind it has one.
    rows: Vec<u32>,
    experts: Vec<u16>,
    /// By row and layer; empty where no file told them.
    margins: Vec<f32>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Routes({} rows of {} layers with {} experts)", self.len(), self.layers, self.chosen)
    }
}

/// The experts of one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Route<'a> {
    /// Number of layers.
    pub layers: usize,
    /// Experts of all layers, those of one layer together, the likeliest of each first as frameworks have them.
    pub experts: &'a [u16],
    /// Of each layer, by how much the router's probability of the last chosen expert exceeds that of the first left out, 0 to 1; empty
    /// where it was not recorded.
    pub margins: &'a [f32],
}

impl<'a> Route<'a> {
    /// Returns the experts of a layer.
    pub fn layer(&self, layer: usize) -> &'a [u16] {
        let chosen = self.experts.len() / self.layers.max(1);
        self.experts.get(layer * chosen..(layer + 1) * chosen).unwrap_or_default()
    }
}

impl Routes {
    /// Returns the number of tokens with experts.
    pub const fn len(&self) -> usize {
        if self.experts.is_empty() { 0 } else { self.experts.len() / (self.layers * self.chosen) }
    }

    /// Returns true if no token has experts.
    pub const fn is_empty(&self) -> bool {
        self.experts.is_empty()
    }

    /// Returns layers, and experts of each.
    pub const fn sizes(&self) -> (usize, usize) {
        (self.layers, self.chosen)
    }

    /// Returns true if margins were recorded.
    pub const fn has_margins(&self) -> bool {
        !self.margins.is_empty()
    }

    /// Returns the experts of the token at `index` of the columns.
    pub fn get(&self, index: usize) -> Option<Route<'_>> {
        let row = *self.rows.get(index).filter(|row| **row != NONE)? as usize;
        let width = self.layers * self.chosen;
        let experts = self.experts.get(row * width..(row + 1) * width)?;
        let margins = self.margins.get(row * self.layers..(row + 1) * self.layers).unwrap_or_default();
        Some(Route { layers: self.layers, experts, margins })
    }

    /// Sets the experts of the token at `index`.
    ///
    /// # Errors
    /// The reason why they are not those of a token of this table.
    pub fn set(&mut self, index: usize, route: &Route<'_>) -> Result<(), String> {
        let (layers, count) = (route.layers, route.experts.len());
        if layers == 0 || count == 0 || !count.is_multiple_of(layers) {
            return Err(format!("has {count} experts for {layers} layers"));
        }
        let sizes = (layers, count / layers);
        if self.is_empty() {
            (self.layers, self.chosen) = sizes;
        } else if self.sizes() != sizes {
            return Err(format!(
                "has {} experts in each of {layers} layers, other tokens {} in each of {}",
                sizes.1, self.chosen, self.layers
            ));
        }
        if (self.experts.len() + count) as u64 > MAX_ROLLOUT_ROUTES {
            return Err(format!("there are more than {MAX_ROLLOUT_ROUTES} experts, the limit of one side"));
        }
        let row = self.len();
        if !(route.margins.is_empty() || route.margins.len() == layers) {
            return Err(format!("has {} margins for {layers} layers", route.margins.len()));
        }
        if self.has_margins() || !route.margins.is_empty() {
            self.margins.resize(row * layers, f32::NAN);
            self.margins.extend(route.margins);
            self.margins.resize((row + 1) * layers, f32::NAN);
        }
        self.experts.extend(route.experts);
        if self.rows.len() <= index {
            self.rows.resize(index + 1, NONE);
        }
        self.rows[index] = u32::try_from(row).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Puts the tokens into another order: the new token at a place is the old one at `places` of it.
    pub(crate) fn reorder(&mut self, places: impl Iterator<Item = Option<usize>>) {
        if self.is_empty() {
            return;
        }
        let old = std::mem::take(&mut self.rows);
        self.rows =
            places.map(|place| place.and_then(|place| old.get(place)).copied().unwrap_or(NONE)).collect();
    }
}
