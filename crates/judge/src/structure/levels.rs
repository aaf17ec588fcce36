//! Differences behind unpaired groups that the precision of products explains.

use std::collections::HashMap;

use super::unpaired::ALONE;
use crate::candidate::Candidate;
use crate::difference::{Difference, Fact};
use crate::flow::Flow;
use crate::ops::Kind;
use crate::precision::Precision;
use probe_pair::Substitution;

/// Names of both sides' product ops: groups with the same ones compute in the same precision, such as the
/// attention of every layer.
type Products<'a> = [Vec<&'a str>; 2];

/// Smallest error of any group with the same products.
pub(super) struct Levels<'a>(HashMap<Products<'a>, f64>);

impl<'a> Levels<'a> {
    pub(super) fn of(flow: &Flow<'a>) -> Self {
        let mut levels: HashMap<Products<'_>, f64> = HashMap::new();
        for group in &flow.pair.substitutions {
            let Some(products) = Self::products(flow, group) else { continue };
            let facts = group.boundary.iter().map(|&place| flow.fact(place)).filter(|fact| fact.is_measured);
            if let Some(error) = facts.map(Fact::relative).reduce(f64::max) {
                levels.entry(products).and_modify(|least| *least = least.min(error)).or_insert(error);
            }
        }
        Self(levels)
    }

    /// Returns `None` if a group has no products.
    fn products(flow: &Flow<'a>, group: &Substitution) -> Option<Products<'a>> {
        let multiplies = |op: &&usize| {
            matches!(flow.nodes[**op].traits.kind, Kind::Product | Kind::Recurrent | Kind::Attention)
        };
        let names =
            |ops: &[usize]| ops.iter().filter(multiplies).map(|&op| flow.nodes[op].op.name.stem()).collect();
        let products: Products<'_> = [names(&group.baseline), names(&group.candidate)];
        products.iter().any(|names| !names.is_empty()).then_some(products)
    }

    /// Returns true if another precision of a group's products explains the difference behind it: all groups
    /// with the same products then have it.
    pub(super) fn explain(&self, flow: &Flow<'a>, group: &Substitution, candidate: &Candidate) -> bool {
        let Some((slot, products)) = candidate.slot.zip(Self::products(flow, group)) else { return false };
        let fact = flow.fact(candidate.seen.unwrap_or((candidate.op, slot)));
        let product = fact.dtype.and_then(Precision::of).map_or(0.0, |precision| precision.product);
        let level = self.0.get(&products).map_or(product, |least| ALONE * least);
        fact.difference == Difference::Numbers && fact.relative() <= product.min(level)
    }

    /// Returns true if a group has as many products on both sides, and others with the same ones agree within their precision where
    /// this one does not. It is then no other way of writing the same.
    pub(super) fn stands_out(&self, flow: &Flow<'a>, group: &Substitution) -> bool {
        let products = Self::products(flow, group).filter(|[b, c]| b.len() == c.len());
        let Some(least) = products.and_then(|products| self.0.get(&products)) else { return false };
        let facts = group.boundary.iter().map(|&place| flow.fact(place)).filter(|fact| fact.is_measured);
        facts.into_iter().any(|fact| {
            let product = fact.dtype.and_then(Precision::of).map_or(0.0, |precision| precision.product);
            *least <= product && fact.relative() > ALONE * least
        })
    }
}
