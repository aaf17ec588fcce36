//! Integers that ops choose: indices of sorted or picked elements, and how many of them noise flips.

use super::difference::Fact;
use super::flow::{Flow, Node, Place};
use super::ops::Kind;
use super::transfer;
use probe_dump::{DType, Number, Scalar, Value};

/// Probability below which noise is ruled out as the cause of the flipped choices: one in ten thousand,
/// because a run makes many.
const UNLIKELY: f64 = 1e-4;

/// Fewest elements that one flipped choice changes: the two that trade places.
const TRADED: f64 = 2.0;

/// Functions that return the positions of elements in order, of which equal ones may come in any order.
const ORDERING: [&str; 4] = ["sort", "argsort", "topk", "msort"];

/// Returns true if an op makes indices in an unspecified order: it sorts, picks, draws, or is unknown.
pub(super) fn may_reorder(flow: &Flow<'_>, position: usize) -> bool {
    let node = &flow.nodes[position];
    let is_open = node.traits.chooses || matches!(node.traits.kind, Kind::Other | Kind::Random);
    let is_tensor = |slot: usize| flow.fact((position, slot)).is_tensor;
    let is_list = |slot: usize| {
        let fact = flow.fact((position, slot));
        fact.len > 1.0 && fact.dtype.is_some_and(DType::is_integer)
    };
    // A range is made from numbers alone. Nothing is known of an op that only one side has.
    let reads = node.traits.kind == Kind::Random || node.given().any(is_tensor);
    is_open && (!node.is_paired || (reads && node.results().any(is_list)))
}

/// Returns true for a call that puts elements in order, of which it may return the first.
pub(super) fn orders(node: &Node<'_>) -> bool {
    ORDERING.contains(&node.base)
}

/// Returns how much nearer the elements that a choice compares are to one another than to a threshold: those of a row that is
/// sorted as a whole have neighbours in all of it.
pub(super) fn nearer(node: &Node<'_>, shape: &[u64]) -> f64 {
    let row = shape.iter().copied().max().filter(|_| matches!(node.base, "sort" | "argsort" | "msort"));
    row.map_or(1.0, |row| row.max(1) as f64)
}

/// Returns true for a call that lists where the elements lie that a condition chose.
pub(super) fn lists_positions(node: &Node<'_>) -> bool {
    matches!(node.base, "nonzero" | "argwhere" | "nonzero_static" | "nonzero_numpy")
        || (node.base == "where" && node.given().count() == 1)
}

/// Returns true if more choices differ than noise flips. Choices flipped by an error of `error` are
/// independent and rare, so their number has a Poisson distribution, whose tail from `k` on is at most
/// `exp(-m) (e m / k)^k` for a mean `m` below `k` (Chernoff).
pub(super) fn is_beyond_noise(fact: &Fact, error: f64) -> bool {
    let expected = transfer::flips(fact.len, error);
    let found = (fact.flipped * fact.len / TRADED).max(1.0);
    if expected <= 0.0 {
        return true;
    }
    found > expected && found - expected + found * (expected / found).ln() < UNLIKELY.ln()
}

/// Returns true for positions that differ only by the order of equal elements: the sorted elements agree to the
/// bit, or were not returned, and there must be equal ones among them. Torch leaves their order open unless it is
/// asked for a stable sort, and devices differ in it.
pub(super) fn is_order_of_equals(flow: &Flow<'_>, place: Place) -> bool {
    let node = &flow.nodes[place.0];
    if !orders(node) || is_stable(flow, place.0) {
        return false;
    }
    let mut values = node.results().filter(|&slot| slot != place.1).map(|slot| flow.fact((place.0, slot)));
    let sorted = node.given().find(|&slot| flow.fact((place.0, slot)).is_tensor);
    values.all(|fact| fact.exact) && sorted.is_some_and(|slot| has_equals(flow, (place.0, slot)))
}

fn is_stable(flow: &Flow<'_>, position: usize) -> bool {
    let is_true = |slot: usize| {
        flow.slot((position, slot)).is_some_and(|slot| {
            slot.path.ends_with("stable")
                && matches!(slot.value, Value::Scalar(Scalar::Number(Number::Bool(true))))
        })
    };
    flow.nodes[position].given().any(is_true)
}

/// Returns true if some elements of a tensor must be equal: more of them than there are numbers between the
/// least and the greatest (pigeonholes: integers, and numbers of 16 bits, of which there are `2^m` a binade for
/// `m` bits of mantissa), or several zeros.
fn has_equals(flow: &Flow<'_>, place: Place) -> bool {
    let Some(record) = flow.slot(place).and_then(|slot| slot.value.tensor()) else { return false };
    if record.counts.as_deref().is_some_and(|counts| counts.zeros > 1) {
        return true;
    }
    let (Some(dtype), Some(max), Some(min)) =
        (record.dtype.known(), record.statistics.max(), record.statistics.min())
    else {
        return false;
    };
    let (max, min) = (max.as_f64(), min.as_f64());
    let numbers = if dtype.is_integer() {
        max - min + 1.0
    } else {
        let (Some(bits), true) = (dtype.mantissa_bits().filter(|bits| *bits <= 10), min > 0.0) else {
            return false;
        };
        ((max / min).log2() + 1.0) * f64::from(1_u32 << bits)
    };
    flow.fact(place).len > numbers
}
