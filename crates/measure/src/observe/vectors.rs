//! Tests observations against an independent implementation: `testdata/make/sketch_vectors.py` made the
//! expectations.

use serde_json::Value;

use crate::golden::tensors;
use crate::simd::Body;
use probe_dump::{Content, DType, Number, SKETCH_LANES, SketchVersion, TensorRef};

use super::observe_on;

fn sizes(value: &Value) -> Vec<usize> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Reads a number as Python prints it.
fn number(value: &Value) -> Number {
    let text = value.as_str().unwrap();
    match text {
        "True" => Number::Bool(true),
        "False" => Number::Bool(false),
        _ => (text.parse().map(Number::Int).or_else(|_| text.parse().map(Number::UInt)))
            .unwrap_or_else(|_| Number::Float(text.parse().unwrap())),
    }
}

/// Returns the bits of the lanes, eight hexadecimal digits each.
fn lanes(value: &Value) -> [u32; SKETCH_LANES] {
    let text = value.as_str().unwrap();
    std::array::from_fn(|lane| u32::from_str_radix(&text[8 * lane..8 * lane + 8], 16).unwrap())
}

/// Returns true if equal, or as near as two ways of rounding allow.
fn near(found: f64, expected: f64, tolerance: f64, scale: f64) -> bool {
    found.to_bits() == expected.to_bits()
        || (found - expected).abs() <= tolerance * if scale > expected.abs() { scale } else { expected.abs() }
}

#[test]
fn observations_match_numpy() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../../../testdata/sketch/vectors.json")).unwrap();
    assert!(cases.len() > 100);
    for case in &cases {
        let tensor = &case["tensor"];
        let dtype = DType::parse(tensor["dtype"].as_str().unwrap()).unwrap();
        let count = usize::try_from(tensor["count"].as_u64().unwrap()).unwrap();
        let mode = tensor["mode"].as_str().unwrap();
        let [storage, _] = tensors([dtype, dtype], mode, tensor["seed"].as_u64().unwrap(), count);
        let (shape, strides) = (sizes(&case["shape"]), sizes(&case["strides"]));
        let offset = usize::try_from(case["offset"].as_u64().unwrap()).unwrap();
        let view = TensorRef::strided(&storage, dtype, &shape, &strides, offset).unwrap();
        for body in Body::ALL.into_iter().filter(|body| body.is_supported()) {
            let found = observe_on(body, view, Content::SKETCH);
            let counts = &case["counts"];
            assert_eq!(found.counts.elements, counts["elements"], "{tensor}");
            assert_eq!(found.counts.zeros, counts["zeros"], "{tensor}");
            assert_eq!(found.counts.nan, counts["nan"], "{tensor}");
            assert_eq!(found.counts.positive_infinite, counts["positive"], "{tensor}");
            assert_eq!(found.counts.negative_infinite, counts["negative"], "{tensor}");
            assert_eq!(found.counts.sentinels, counts["sentinels"].as_u64(), "{tensor}");
            let hash = u128::from_str_radix(case["hash"].as_str().unwrap(), 16).unwrap();
            assert_eq!(found.hash, Some(hash), "{tensor}");
            let first = Content { sketch: Some(SketchVersion::First), hash: false };
            for (key, found) in [("sketch", &found), ("sketch_1", &observe_on(body, view, first))] {
                let found = found.sketch.as_ref().unwrap();
                assert_eq!(found.lanes.map(f32::to_bits), lanes(&case[key]), "{tensor} {body:?} {key}");
            }
            let (known, expected) = (found.statistics, &case["statistics"]);
            if expected.is_null() {
                assert!(known.is_empty(), "{tensor}");
                continue;
            }
            for (found, expected) in [(known.min, &expected["min"]), (known.max, &expected["max"])] {
                let (found, expected) = (found.unwrap(), number(expected));
                // The modulus of a complex number is rounded more than once.
                let close = dtype.is_complex() && near(found.as_f64(), expected.as_f64(), 1e-15, 0.0);
                assert!(close || found.same(expected), "{tensor} {found} {expected}");
            }
            let elements = found.counts.elements as f64;
            let (norm, expected_norm) = (known.norm.unwrap(), number(&expected["norm"]).as_f64());
            assert!(near(norm, expected_norm, 1e-12, 0.0), "{tensor} norm {norm:e} {expected_norm:e}");
            assert_eq!(known.mean.is_none(), expected["mean"].is_null(), "{tensor}");
            let Some(mean) = known.mean else { continue };
            let (scale, expected_mean) =
                (expected_norm / elements.sqrt(), number(&expected["mean"]).as_f64());
            assert!(near(mean, expected_mean, 1e-12, scale), "{tensor} mean {mean:e} {expected_mean:e}");
        }
    }
}
