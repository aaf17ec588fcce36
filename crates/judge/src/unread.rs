//! Differences in rows that nothing reads. For padding, one attention kernel produces zeros and another one
//! numbers; both are right, because masks and labels keep these rows out of the loss and of every gradient.
//! All values computed from them differ as well.
//!
//! The backward pass tells. A gradient that reaches a product is zero in the rows that nothing reads, and the
//! gradient of the product's weight is a sum over the others alone. So a difference is in rows that nothing
//! reads if
//!
//! - one side has zeros there, in the share of the rows that has no gradient either;
//! - the difference consists of the other side's values there and nothing else: its square is the difference
//!   of the squared norms (Pythagoras);
//! - two weight gradients agree, that of the first product that reads the difference and that of the last
//!   product: errors in rows that are read would show there.

use super::Verdict;
use super::difference::{Difference, Fact, Identities};
use super::flow::{Flow, Place};
use super::ops::Kind;
use super::precision::Precision;
use super::transfer::largest;
use probe_dump::{Phase, SlotSide};

/// A product has not read the difference if the error of its weight gradient is smaller by more than this
/// factor than the error of its input.
const UNREAD: f64 = 4.0;

/// The last gradient agrees if its error is at most this multiple of rounding, or of the error that led to the
/// difference: errors add up on the way.
const AGREE: f64 = 16.0;

/// Estimates of distances are within a fifth, their squares within this.
const ESTIMATE: f64 = 0.5;

/// Fraction of the zeros that must have no gradient: elements may be zero by chance.
const ZEROS: f64 = 0.99;

/// Excludes differences in rows that nothing reads from the judgement; returns a remark on them, if there are
/// any.
pub(super) fn set_aside(flow: &mut Flow<'_>) -> Option<String> {
    let products = Product::all(flow);
    // All errors of the forward pass that are read come together here.
    let level = products.iter().max_by_key(|product| product.forward)?.gradient;
    let differs = |read: f64| read > UNREAD * level;
    let unread = |product: &&Product| differs(product.read) && UNREAD * product.gradient < product.read;
    // Drifted weights and rounding are far below.
    let least =
        products.iter().filter(unread).map(|product| product.read).reduce(f64::max)? / (UNREAD * UNREAD);
    let computed = Computed::of(flow);
    let places: Vec<Place> = (0..flow.nodes.len())
        .filter(|&op| is_forward(flow, op))
        .flat_map(|op| (0..flow.nodes[op].slot_count()).map(move |slot| (op, slot)))
        .filter(|&place| is_known(flow.fact(place)) && differs(flow.fact(place).relative()))
        .filter(|&place| computed.has(flow, place))
        .skip_while(|&place| flow.fact(place).relative() < least)
        .collect();
    let first = *places.first()?;
    let before = (0..first.0).filter(|&op| is_forward(flow, op));
    let before =
        largest(before.flat_map(|op| flow.facts(op)).filter(|fact| is_known(fact)).map(Fact::relative));
    let rounding = flow.fact(first).dtype.and_then(Precision::of)?.unknown;
    if level > AGREE * before.max(rounding) {
        return None;
    }
    let behind = products.iter().filter(unread).filter(|product| product.forward >= first.0);
    let reader = behind.min_by_key(|product| product.forward)?;
    if !is_left_out(flow, first, reader) {
        return None;
    }
    let most = largest(places.iter().map(|&place| flow.fact(place).relative()));
    for &place in &places {
        let fact = flow.fact_mut(place);
        fact.distance = level * fact.norm;
        fact.allowed = true;
        fact.judgement.verdict = Verdict::Close;
        fact.judgement.reason = "differs only in rows that nothing reads: they have no gradient".into();
    }
    let (op, path) = (&flow.nodes[first.0].op.name, flow.slot(first).map_or("", |slot| &*slot.path));
    Some(format!(
        "{} values differ by up to {most:.1e} in rows that nothing reads, such as padding: one side has zeros there and no gradient reaches them; first: {} {path}",
        places.len(),
        op.as_str()
    ))
}

/// Values that the forward pass computed: all except weights and data.
struct Computed {
    made: Identities,
}

impl Computed {
    fn of(flow: &Flow<'_>) -> Self {
        let ops = (0..flow.nodes.len()).filter(|&op| is_forward(flow, op));
        let results = ops.flat_map(|op| flow.nodes[op].results().map(move |slot| (op, slot)));
        let made = results.filter_map(|place| flow.fact(place).identity).collect();
        Self { made }
    }

    fn has(&self, flow: &Flow<'_>, place: Place) -> bool {
        if flow.modules_alone {
            // Between modules hardly anything is recorded.
            return flow.side(place) != SlotSide::Parameter;
        }
        let made = flow.fact(place).identity.is_some_and(|identity| self.made.contains(&identity));
        made || flow.is_made_unpaired(place)
    }
}

/// A product in both passes.
struct Product {
    /// Position of its forward call.
    forward: usize,
    /// Position of the op that made its weight gradient.
    backward: usize,
    /// Error of the value multiplied with the weight.
    read: f64,
    /// Error of the weight gradient.
    gradient: f64,
}

impl Product {
    /// Returns all products for which this is known.
    fn all(flow: &Flow<'_>) -> Vec<Self> {
        let positions = (0..flow.nodes.len()).filter(|&op| {
            let node = &flow.nodes[op];
            node.is_paired && node.is_backward() && !node.is_dispatcher() && node.traits.kind == Kind::Product
        });
        positions.filter_map(|backward| Self::of(flow, backward)).collect()
    }

    fn of(flow: &Flow<'_>, backward: usize) -> Option<Self> {
        let saved = flow.saved(backward);
        let input = |place: &&Place| flow.side(**place) == SlotSide::Input && is_known(flow.fact(**place));
        let inputs = || saved.iter().filter(input);
        let data: Vec<Place> = inputs().copied().filter(|&place| !flow.is_weight(place)).collect();
        let is_of_weight = |slot: usize| {
            let path = flow.slot((backward, slot)).map_or("", |slot| &*slot.path);
            let weight = |number: &str| {
                let mut weights = inputs().filter(|&&place| flow.is_weight(place));
                weights.any(|&place| {
                    flow.slot(place).is_some_and(|slot| slot.path.strip_prefix("input.") == Some(number))
                })
            };
            // Bias gradients do not depend on the input.
            flow.shape((backward, slot)).len() > 1
                && path.strip_prefix("output.").map_or_else(|| path.starts_with("grad."), weight)
        };
        let gradients = flow.nodes[backward].results().filter(|&slot| is_of_weight(slot));
        let gradients = gradients
            .map(|slot| flow.fact((backward, slot)))
            .filter(|fact| is_known(fact) && fact.norm > 0.0);
        Some(Self {
            forward: data.first()?.0,
            backward,
            read: largest(data.iter().map(|&place| flow.fact(place).relative())),
            gradient: gradients.map(Fact::relative).reduce(f64::max)?,
        })
    }
}

/// Returns true if a value is zero on one side where it has no gradient, and there is no other difference.
fn is_left_out(flow: &Flow<'_>, place: Place, reader: &Product) -> bool {
    let fact = flow.fact(place);
    let [b, c] = flow.zero_shares(place).map(|share| share.unwrap_or(0.0));
    let given = flow.given(reader.backward).into_iter().filter(|&place| flow.fact(place).is_float);
    let without_gradient = given.filter_map(|place| {
        let [b, c] = flow.zero_shares(place);
        Some(b?.min(c?))
    });
    let share = without_gradient.reduce(f64::max).unwrap_or(0.0);
    let zeros = b.max(c);
    let (b, c) = fact.norms;
    let (found, expected) = (fact.distance.powi(2), (b * b - c * c).abs());
    zeros > 0.0 && share >= ZEROS * zeros && (found - expected).abs() <= ESTIMATE * found
}

/// Returns true for a paired op of the forward pass.
fn is_forward(flow: &Flow<'_>, op: usize) -> bool {
    let node = &flow.nodes[op];
    node.is_paired && node.op.name.phase() == Phase::Forward && !node.traits.optimizes
}

/// Returns true if the error of a value is known, and not just a lower bound.
fn is_known(fact: &Fact) -> bool {
    fact.is_float
        && fact.is_measured
        && !fact.statistics_only
        && !fact.swamped
        && matches!(fact.difference, Difference::None | Difference::Numbers)
}
