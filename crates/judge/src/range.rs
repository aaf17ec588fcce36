//! Bounds on a result, derived from its inputs: a result outside them is wrong whatever the noise, even after
//! the runs have drifted far apart.
//!
//! The bounds are those of interval arithmetic (R. E. Moore, Interval Analysis, 1966) on the recorded
//! extremes. A single row that a kernel got wrong is hidden in the norm of a large tensor, but not in its
//! extremes.

use super::difference::Difference;
use super::flow::{Flow, Place};
use super::ops::base;
use super::precision::Precision;
use probe_dump::{Number, Op, Scalar, Slot, Value};

/// Least fraction of the larger bound by which rounding may exceed it: products of factors rounded to the 11
/// bits of TF32 and HF32 have smaller errors.
const ROUNDING: f64 = 4e-3;

/// The same tolerance in units in the last place, for coarser types.
const UNITS: f64 = 4.0;

/// Fraction of that tolerance which the baseline may use: the difference between the sides is then more than
/// rounding.
const NEARLY: f64 = 0.25;

/// Least and greatest element.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    least: f64,
    greatest: f64,
}

const UNIT: Range = Range { least: 0.0, greatest: 1.0 };
const SIGNED: Range = Range { least: -1.0, greatest: 1.0 };
const POSITIVE: Range = Range { least: 0.0, greatest: f64::INFINITY };
const NEGATIVE: Range = Range { least: f64::NEG_INFINITY, greatest: 0.0 };

impl Range {
    fn of(value: &Value) -> Option<Self> {
        let (least, greatest) = match value {
            Value::Tensor(record) if record.dtype.known().is_some_and(|dtype| !dtype.is_complex()) => {
                (record.statistics.min()?.as_f64(), record.statistics.max()?.as_f64())
            }
            Value::Scalar(Scalar::Number(number)) => (number.as_f64(), number.as_f64()),
            _ => return None,
        };
        (least.is_finite() && greatest.is_finite()).then_some(Self { least, greatest })
    }

    /// Returns the smallest range that contains both.
    fn hull(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), greatest: self.greatest.max(other.greatest) }
    }

    /// Returns the range that both allow.
    fn intersection(self, other: Self) -> Self {
        Self { least: self.least.max(other.least), greatest: self.greatest.min(other.greatest) }
    }

    fn with_zero(self) -> Self {
        self.hull(Self { least: 0.0, greatest: 0.0 })
    }

    fn plus(self, other: Self) -> Self {
        Self { least: self.least + other.least, greatest: self.greatest + other.greatest }
    }

    fn less(self, other: Self) -> Self {
        Self { least: self.least - other.greatest, greatest: self.greatest - other.least }
    }

    fn times(self, other: Self) -> Self {
        let ends = [
            self.least * other.least,
            self.least * other.greatest,
            self.greatest * other.least,
            self.greatest * other.greatest,
        ];
        Self {
            least: ends.into_iter().fold(f64::INFINITY, f64::min),
            greatest: ends.into_iter().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    fn size(self) -> f64 {
        self.least.abs().max(self.greatest.abs())
    }
}

/// Bounds of a function's result.
struct Bounds {
    range: Range,
    /// Size that rounding is relative to, besides the bound itself: the largest value added or averaged. For
    /// functions of single elements, a hundredth of the largest input: smaller violations of a bound of 0 make
    /// no difference.
    size: f64,
}

impl Bounds {
    /// Describes the bound that a result breaks; `rounding` is the tolerance relative to it.
    fn broken_by(&self, made: Range, rounding: f64) -> Option<String> {
        let allowed = self.range;
        let slack = |bound: f64| rounding * bound.abs().max(self.size);
        let (element, reached, word, bound) = if made.least < allowed.least - slack(allowed.least) {
            ("smallest", made.least, "less", allowed.least)
        } else if made.greatest > allowed.greatest + slack(allowed.greatest) {
            ("largest", made.greatest, "more", allowed.greatest)
        } else {
            return None;
        };
        Some(format!(
            "its {element} element is {reached:.2e}, but from these inputs it cannot be {word} than {bound:.2e}"
        ))
    }
}

/// Describes the bound that the candidate's first result breaks. If the baseline's result breaks its own bound
/// too, or nearly so, the function is not what its name suggests.
pub(super) fn beyond(flow: &Flow<'_>, place: Place) -> Option<String> {
    let node = &flow.nodes[place.0];
    let fact = flow.fact(place);
    let open = fact.difference == Difference::Numbers && !fact.allowed && !fact.is_granted() && fact.is_float;
    if !open || node.is_backward() || node.results().next() != Some(place.1) {
        return None;
    }
    let precision = Precision::of(fact.dtype?)?;
    let (b, c) = flow.pair.op(&flow.pair.ops[place.0]);
    let (b_slot, c_slot) = flow.pair.slot_at(place.0, place.1);
    let rounding = ROUNDING.max(UNITS * precision.unit);
    let breach = |op: Option<&Op>, slot: Option<&Slot>, share: f64| {
        Some(possible(op?)?.broken_by(Range::of(&slot?.value)?, share * rounding))
    };
    // The candidate first: violations are rare.
    let said = breach(c, c_slot, 1.0)??;
    breach(b, b_slot, NEARLY)?.is_none().then_some(said)
}

/// Returns the bounds of a function's result; `None` for functions without such bounds, or if the extremes are
/// unknown.
fn possible(op: &Op) -> Option<Bounds> {
    let given = || op.slots.iter().filter(|slot| !slot.side.is_result());
    let ranges = || given().filter(|slot| is_float(slot)).map(|slot| Range::of(&slot.value));
    let first = || ranges().next().flatten();
    let all = || ranges().reduce(|a, b| Some(a?.hull(b?))).flatten();
    let element_wise = |range: Range| Some(Bounds { range, size: first()?.size() / 100.0 });
    // The result lies between the input and zero, and not below `least`.
    let shrinks = |least: f64| element_wise(first()?.with_zero().intersection(Range { least, ..POSITIVE }));
    let averages = |range: Range| Some(Bounds { range, size: range.size() });
    // Two operands and no other argument: no factor, no rounding mode.
    let both = |combine: fn(Range, Range) -> Range| {
        let mut operands = given();
        let (a, b) = (Range::of(&operands.next()?.value)?, Range::of(&operands.next()?.value)?);
        let alone = operands.next().is_none() && !op.name.api().starts_with("__r");
        let range = combine(a, b);
        alone.then_some(Bounds { range, size: a.size().max(b.size()).max(range.size()) })
    };
    // Functions, methods and module classes are spelled differently.
    let name = base(op).replace('_', "").to_ascii_lowercase();
    match name.as_str() {
        "relu" => shrinks(0.0),
        "relu6" => element_wise(first()?.with_zero().intersection(Range { least: 0.0, greatest: 6.0 })),
        // The least values are rounded down: -0.16997 for the exact function, -0.17004 with tanh, -0.16361 for
        // the quick one.
        "gelu"
        | "fastgelu"
        | "quickgelu"
        | "npugelu"
        | "npufastgelu"
        | "geluactivation"
        | "newgeluactivation"
        | "pytorchgelutanh"
        | "gelutanh"
        | "fastgeluactivation"
        | "quickgeluactivation" => shrinks(-0.17005),
        "silu" | "npusilu" | "siluactivation" => shrinks(-0.27847),
        "mish" => shrinks(-0.30885),
        "hardswish" => shrinks(-0.375),
        "tanh" | "softsign" => element_wise(first()?.with_zero().intersection(SIGNED)),
        "erf" | "sin" | "cos" => element_wise(SIGNED),
        "sigmoid" | "hardsigmoid" | "softmax" | "softmin" | "safesoftmax" | "expit" => element_wise(UNIT),
        "exp" | "exp2" | "sqrt" | "rsqrt" | "square" | "softplus" => element_wise(POSITIVE),
        "logsoftmax" => Some(Bounds { range: NEGATIVE, size: first()?.size() }),
        "maxpool1d"
        | "maxpool2d"
        | "maxpool3d"
        | "maxpool2dwithindices"
        | "maxpool3dwithindices"
        | "adaptivemaxpool1d"
        | "adaptivemaxpool2d"
        | "amax"
        | "amin"
        | "max"
        | "min"
        | "maximum"
        | "minimum"
        | "mean"
        | "embedding"
        | "upsamplenearest1d"
        | "upsamplenearest2d"
        | "upsamplenearest3d"
        | "upsamplelinear1d"
        | "upsamplebilinear2d"
        | "upsampletrilinear3d" => averages(all()?),
        // Padding is averaged too.
        "avgpool1d" | "avgpool2d" | "avgpool3d" | "adaptiveavgpool1d" | "adaptiveavgpool2d"
        | "adaptiveavgpool3d" => averages(all()?.with_zero()),
        "add" => both(Range::plus),
        "sub" | "subtract" => both(Range::less),
        "mul" | "multiply" => both(Range::times),
        attention if attention.starts_with("scaleddotproduct") => {
            // Values are averaged with weights that sum to 1, or to 0 if everything is masked. Dropout scales
            // what it keeps.
            let is_scale = |slot: &Slot| &*slot.path == "kwarg.scale";
            let drops = given().any(|slot| !is_scale(slot) && is_positive_float(&slot.value));
            let values = given().filter(|slot| slot.value.tensor().is_some()).nth(2)?;
            if drops { None } else { averages(Range::of(&values.value)?.with_zero()) }
        }
        _ => None,
    }
}

/// Returns true for a tensor of floating-point or complex numbers.
pub(super) fn is_float(slot: &Slot) -> bool {
    let dtype = slot.value.tensor().and_then(|record| record.dtype.known());
    dtype.is_some_and(|dtype| dtype.is_float() || dtype.is_complex())
}

fn is_positive_float(value: &Value) -> bool {
    matches!(value, Value::Scalar(Scalar::Number(number @ Number::Float(_))) if number.as_f64() > 0.0)
}
