//! Verdict on two scalars: arguments of an op, or results that are not tensors.

use super::Verdict;
use super::difference::{Difference, Fact};
use super::precision::Precision;
use probe_dump::{DType, Number, Scalar, TensorRecord};

/// Largest relative difference at which two float arguments count as equal: one side may print float32 values.
const SAME_FLOAT: f64 = 1e-6;

/// Significant decimal digits up to which a float looks chosen (`1e-5`, `0.125`) rather than computed.
const CHOSEN_DIGITS: usize = 5;

/// Compares two scalars. A computed scalar that differs counts as an argument fault only if nothing before it
/// could have caused the difference; that is decided later.
pub(super) fn compare(b: &Scalar, c: &Scalar, mixed_run: bool) -> Fact {
    let differs = |difference| Fact::certain(Verdict::Differs, difference, &format!("{b} against {c}"));
    match (b, c) {
        (Scalar::Device(x), Scalar::Device(y)) if x != y => Fact::certain(
            Verdict::Close,
            Difference::None,
            &format!("{x} against {y}: devices are expected to differ"),
        ),
        (Scalar::Number(x), Scalar::Number(y)) => {
            if x.same(*y) && same_kind(*x, *y) {
                return Fact::certain(Verdict::BitEqual, Difference::None, "").equal();
            }
            let ((Number::Float(_), _) | (_, Number::Float(_))) = (*x, *y) else {
                return differs(Difference::Argument);
            };
            let (x, y) = (x.as_f64(), y.as_f64());
            let error =
                if x.is_finite() && y.is_finite() { relative_difference(x, y) } else { f64::INFINITY };
            if error <= SAME_FLOAT {
                return Fact::certain(Verdict::Close, Difference::None, "").error(error);
            }
            if mixed_run && is_end_of_a_type(x) && is_end_of_a_type(y) && x.signum() * y.signum() > 0.0 {
                let said = format!("{x:e} against {y:e}: each the last number of a type");
                return Fact::certain(Verdict::Close, Difference::None, &said);
            }
            if is_chosen(x) && is_chosen(y) {
                return differs(Difference::Argument).error(error);
            }
            differs(Difference::ComputedArgument).error(error)
        }
        (Scalar::Printed(x), Scalar::Printed(y)) if x != y => {
            let float = |text: &str| DType::parse(text).is_some_and(DType::is_float);
            if mixed_run && float(&x.text) && float(&y.text) {
                return Fact::certain(
                    Verdict::Close,
                    Difference::None,
                    "the runs compute in different float types",
                );
            }
            differs(Difference::Argument)
        }
        (x, y) if x == y => Fact::certain(Verdict::BitEqual, Difference::None, "").equal(),
        _ => differs(Difference::Argument),
    }
}

/// Returns true for a tensor whose elements are all the number that the other side passes, up to the rounding of its
/// type.
pub(super) fn is_number_of(tensor: &TensorRecord, number: &Scalar) -> bool {
    let Scalar::Number(number) = number else { return false };
    let rounding = tensor.dtype.known().and_then(Precision::of).map_or(0.0, |precision| precision.unknown);
    let is_equal = |end: Option<Number>| {
        end.is_some_and(|end| {
            end.same(*number)
                || relative_difference(end.as_f64(), number.as_f64()) <= rounding.max(SAME_FLOAT)
        })
    };
    is_equal(tensor.statistics.min()) && is_equal(tensor.statistics.max())
}

/// `True` and `1` are equal numbers but not the same argument; `1` and `1.0` are.
const fn same_kind(a: Number, b: Number) -> bool {
    matches!(a, Number::Bool(_)) == matches!(b, Number::Bool(_))
}

fn relative_difference(a: f64, b: f64) -> f64 {
    let scale = a.abs().max(b.abs());
    if scale > 0.0 { (a - b).abs() / scale } else { 0.0 }
}

/// Returns true for the largest and the least number of a float type, with which programs mask.
fn is_end_of_a_type(value: f64) -> bool {
    // Of float16, bfloat16, float32 and float64.
    let of_types = [65_504.0, (2.0 - 2_f64.powi(-7)) * 2_f64.powi(127), f32::MAX.into(), f64::MAX];
    of_types.iter().any(|end| relative_difference(value.abs(), *end) <= SAME_FLOAT)
}

/// Returns true for values that a person typed: few significant digits.
fn is_chosen(value: f64) -> bool {
    let text = format!("{value:e}");
    let digits = text.split('e').next().unwrap_or_default().bytes().filter(u8::is_ascii_digit).count();
    digits <= CHOSEN_DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: f64) -> Scalar {
        Scalar::Number(Number::Float(value))
    }

    fn found(b: &Scalar, c: &Scalar) -> (Verdict, Difference) {
        let fact = compare(b, c, false);
        (fact.judgement.verdict, fact.difference)
    }

    #[test]
    fn chosen_values_are_told_from_computed_ones() {
        assert_eq!(found(&number(1e-5), &number(1e-3)), (Verdict::Differs, Difference::Argument));
        assert_eq!(found(&number(0.1), &number(f64::from(0.1_f32))), (Verdict::Close, Difference::None));
        let (a, b) = (2.345_678_901, 2.345_778_901);
        assert_eq!(found(&number(a), &number(b)), (Verdict::Differs, Difference::ComputedArgument));
        assert_eq!(found(&number(f64::NAN), &number(f64::NAN)), (Verdict::BitEqual, Difference::None));
        assert_eq!(found(&number(1.5), &number(f64::NAN)).0, Verdict::Differs);
    }

    #[test]
    fn the_ends_of_two_types_are_one_constant_in_a_mixed_pair() {
        let (b, c) = (number(f32::MIN.into()), number(-65504.0));
        assert_eq!(compare(&b, &c, true).judgement.verdict, Verdict::Close);
        assert_eq!(compare(&b, &c, false).judgement.verdict, Verdict::Differs, "in a run of one type");
        assert_eq!(compare(&b, &number(65504.0), true).judgement.verdict, Verdict::Differs, "the other end");
        assert_eq!(compare(&b, &number(-1e4), true).judgement.verdict, Verdict::Differs, "no end");
    }

    #[test]
    fn kinds_of_scalars_are_told_apart() {
        let int = |v| Scalar::Number(Number::Int(v));
        let text = |t: &str| Scalar::Text(t.into());
        let printed = |t: &str| Scalar::printed("slice", t);
        assert_eq!(found(&int(3), &int(6)), (Verdict::Differs, Difference::Argument));
        assert_eq!(found(&int(1), &Scalar::Number(Number::Bool(true))).0, Verdict::Differs);
        assert_eq!(found(&text("relu"), &text("gelu")), (Verdict::Differs, Difference::Argument));
        assert_eq!(found(&printed("[0, 1]"), &printed("[0, 2]")), (Verdict::Differs, Difference::Argument));
        let device = |t: &str| Scalar::Device(t.into());
        assert_eq!(found(&device("cuda:0"), &device("npu:0")), (Verdict::Close, Difference::None));
    }
}
