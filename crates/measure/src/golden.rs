//! Tests every metric against exact arithmetic, on every body: `testdata/golden/make.py` made the
//! expectations.

use serde_json::Value;

use probe_dump::{DType, TensorRef};

use super::simd::Body;
use super::sketch::mix;
use super::{PairMetrics, TensorSummary, compare_on, summarize_on};

/// Returns the bits of one part of both sides; the twin of `pattern` in the script.
#[expect(clippy::cast_possible_truncation, reason = "sizes and remainders are small")]
fn pattern(dtype: DType, mode: &str, r1: u64, r2: u64) -> (u64, u64) {
    let bits = 8 * dtype.size() as u32;
    let mask = u64::MAX >> (64 - bits);
    if dtype == DType::Bool {
        return (r1 % 3, r2 % 3);
    }
    let nudged = |b: u64| b.wrapping_add(r2 % 5).wrapping_sub(2) & mask;
    let one_in_four = |shift: u32| (r2 >> shift).is_multiple_of(4);
    let Some(mantissa) = dtype.mantissa_bits() else {
        let b = r1 & mask;
        let c = if mode == "near" || mode == "zeros" { nudged(b) } else { r2 & mask };
        let zeros = mode == "zeros";
        return (if zeros && one_in_four(8) { 0 } else { b }, if zeros && one_in_four(16) { 0 } else { c });
    };
    if mode == "wild" {
        return (r1 & mask, r2 & mask);
    }
    let sign = 1 << (bits - 1);
    let (bias, inf, largest, nan) = match dtype {
        DType::F64 => (1023, 0x7ff0 << 48, (0x7ff0 << 48) - 1, 0x7ff8 << 48),
        DType::F32 => (127, 0x7f80_0000, 0x7f7f_ffff, 0x7fc0_0000),
        DType::F16 => (15, 0x7c00, 0x7bff, 0x7e00),
        DType::Bf16 => (127, 0x7f80, 0x7f7f, 0x7fc0),
        DType::F8E4M3 => (7, 0x7f, 0x7e, 0x7f),
        _ => (15, 0x7c, 0x7b, 0x7e),
    };
    let exponent = bias - 4 + (r1 >> 52) % 8;
    let mut b = ((r1 >> 63) * sign) | (exponent << mantissa) | (r1 & ((1 << mantissa) - 1));
    let mut c = nudged(b);
    if mode == "zeros" {
        b = if one_in_four(8) { (r2 >> 63) * sign } else { b };
        c = if one_in_four(16) { ((r2 >> 62) & 1) * sign } else { c };
    }
    if mode == "special" {
        let table = [0, sign, inf, inf | sign, nan, 1, largest, largest | sign];
        b = if one_in_four(8) { table[((r2 >> 16) % 8) as usize] } else { b };
        c = if one_in_four(24) { table[((r2 >> 32) % 8) as usize] } else { c };
    }
    (b, c)
}

/// Returns the bytes of baseline and candidate.
pub(super) fn tensors(dtypes: [DType; 2], mode: &str, seed: u64, count: usize) -> [Vec<u8>; 2] {
    [0, 1].map(|side| {
        let (part, parts) = match dtypes[side] {
            DType::C64 => (DType::F32, 2),
            DType::C128 => (DType::F64, 2),
            real => (real, 1),
        };
        (0..(count * parts) as u64)
            .flat_map(|p| {
                let (r1, r2) = (mix((seed << 32) + 2 * p), mix((seed << 32) + 2 * p + 1));
                let (b, c) = pattern(part, mode, r1, r2);
                let bits = if side == 0 { b } else { c };
                bits.to_le_bytes().into_iter().take(part.size())
            })
            .collect()
    })
}

/// Measures raw bytes on a body.
pub(super) fn measure(body: Body, dtypes: [DType; 2], bytes: &[Vec<u8>; 2]) -> PairMetrics {
    let shape = [bytes[0].len() / dtypes[0].size()];
    let [b, c] = [0, 1].map(|side| TensorRef::strided(&bytes[side], dtypes[side], &shape, &[1], 0).unwrap());
    let found = compare_on(body, b, c).unwrap();
    assert_eq!(found.baseline, summarize_on(body, b), "a summary must not depend on company");
    assert_eq!(found.candidate, summarize_on(body, c), "a summary must not depend on company");
    found
}

fn number(value: &Value) -> Option<f64> {
    value.as_str().map(|text| text.parse().unwrap())
}

/// Asserts that `found` is within `tolerance` of `scale`, or of the expected value if that is larger.
fn near(what: &str, found: Option<f64>, expected: Option<f64>, tolerance: f64, scale: f64) {
    let (Some(found), Some(expected)) = (found, expected) else {
        assert_eq!(found, expected, "{what}");
        return;
    };
    let equal = found.to_bits() == expected.to_bits();
    let scale = if expected.abs() > scale { expected.abs() } else { scale };
    assert!(equal || (found - expected).abs() <= tolerance * scale, "{what}: {found:e}, not {expected:e}");
}

fn check_summary(found: &TensorSummary, expected: &Value, what: &str, rounding: f64) {
    assert_eq!(found.zeros, expected["zeros"], "{what} zeros");
    assert_eq!(found.nan, expected["nan"], "{what} nan");
    assert_eq!(found.pos_inf, expected["pos_inf"], "{what} +inf");
    assert_eq!(found.neg_inf, expected["neg_inf"], "{what} -inf");
    near(&format!("{what} min"), found.min, number(&expected["min"]).map(|x| x + 0.0), rounding, 0.0);
    near(&format!("{what} max"), found.max, number(&expected["max"]).map(|x| x + 0.0), rounding, 0.0);
    near(&format!("{what} norm"), Some(found.norm), number(&expected["norm"]), 1e-12, 0.0);
    let root_mean_square = found.norm / (found.count as f64).sqrt();
    near(&format!("{what} mean"), found.mean, number(&expected["mean"]), 1e-12, root_mean_square);
}

fn check(found: &PairMetrics, expected: &Value, rounding: f64) {
    check_summary(&found.baseline, &expected["baseline"], "baseline", rounding);
    check_summary(&found.candidate, &expected["candidate"], "candidate", rounding);
    assert_eq!(found.both_finite, expected["both_finite"], "both finite");
    assert_eq!(found.bit_equal, expected["bit_equal"], "bit equal");
    assert_eq!(found.different, expected["different"], "different");
    assert_eq!(found.non_finite_mismatch, expected["non_finite_mismatch"], "mismatch");
    assert_eq!(found.zero_baseline, expected["zero_baseline"], "zero baseline");
    assert_eq!(found.max_abs_index, expected["max_abs_index"].as_u64(), "index");
    assert_eq!(found.max_ulp, expected["max_ulp"].as_u64(), "ulp");
    let values = expected["max_abs_values"].as_array();
    let values = values.map(|values| (number(&values[0]).unwrap(), number(&values[1]).unwrap()));
    assert_eq!(found.max_abs_values, values, "values");
    let share = |name: &str| Some(expected[name].as_u64()? as f64 / found.both_finite as f64);
    assert_eq!(found.within_1e3, share("within_1e3"));
    assert_eq!(found.within_5e3, share("within_5e3"));
    for (name, value, tolerance, scale) in [
        ("max_abs_err", found.max_abs_err, rounding, 0.0),
        ("max_rel_err", found.max_rel_err, rounding, 0.0),
        ("mean_abs_err", found.mean_abs_err, 1e-12, 0.0),
        ("mean_rel_err", found.mean_rel_err, 1e-12, 0.0),
        ("rmse", found.rmse, 1e-12, 0.0),
        ("euclidean", found.euclidean, 1e-12, 0.0),
        ("rel_l2", found.rel_l2, 1e-12, 0.0),
        ("cosine", found.cosine, 1e-12, 1.0),
    ] {
        near(name, value, number(&expected[name]), tolerance, scale);
    }
}

#[test]
fn metrics_match_exact_arithmetic() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../../testdata/golden/metrics.json")).unwrap();
    assert!(cases.len() > 300);
    for case in &cases {
        let tensors_of = &case["tensors"];
        let dtype = |side: &str| DType::parse(tensors_of[side].as_str().unwrap()).unwrap();
        let dtypes = [dtype("baseline"), dtype("candidate")];
        let count = usize::try_from(tensors_of["count"].as_u64().unwrap()).unwrap();
        let mode = tensors_of["mode"].as_str().unwrap();
        let bytes = tensors(dtypes, mode, tensors_of["seed"].as_u64().unwrap(), count);
        // The modulus of a complex number is rounded more than once.
        let rounding = if dtypes.iter().any(|dtype| dtype.is_complex()) { 1e-15 } else { 0.0 };
        for body in Body::ALL.into_iter().filter(|body| body.is_supported()) {
            println!("{tensors_of} on {body:?}");
            check(&measure(body, dtypes, &bytes), &case["metrics"], rounding);
        }
    }
}
