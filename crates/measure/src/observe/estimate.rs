//! Tests how well the distance of two sketches estimates the distance of their tensors: bounds as stated in
//! `docs/formats.md`.

use crate::sketch::{mix, sketch_distance};
use probe_dump::{Content, DType, Sketch, SketchVersion, TensorRef};

use super::observe;

/// Only the sketch.
const SKETCH: Content = Content { sketch: Some(SketchVersion::CURRENT), hash: false };

fn sketch(values: &[f32]) -> Sketch {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = [values.len()];
    observe(TensorRef::strided(&bytes, DType::F32, &shape, &[1], 0).unwrap(), SKETCH).sketch.unwrap()
}

/// Returns approximately normal noise, mean 0, deviation 1; a function of seed and index.
fn noise(seed: u64, index: usize) -> f32 {
    let draw = |salt: u64| (mix((seed << 40) ^ ((index as u64) << 4) ^ salt) >> 40) as f32 / (1 << 24) as f32;
    (0..12).map(draw).sum::<f32>() - 6.0
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum::<f64>().sqrt()
}

/// Returns the ratio of the estimated to the true effect of `change` on a tensor of `count` elements.
fn ratio(count: usize, change: impl Fn(usize, f32) -> f32) -> f64 {
    let a: Vec<f32> = (0..count).map(|index| noise(1, index)).collect();
    let b: Vec<f32> = a.iter().enumerate().map(|(index, &value)| change(index, value)).collect();
    sketch_distance(&sketch(&a), &sketch(&b)) / distance(&a, &b)
}

#[track_caller]
fn within(what: &str, ratio: f64, bound: f64) {
    assert!((ratio - 1.0).abs() <= bound, "{what}: estimate is {ratio:.3} of the truth");
}

#[test]
fn tensors_of_no_more_elements_than_lanes_are_compared_exactly() {
    for count in [1, 2, 10, 100, 250, 251] {
        within("noise", ratio(count, |index, value| value + 1e-2 * noise(2, index)), 1e-5);
        within(
            "one",
            ratio(count, |index, value| if index == count / 2 { value + 1.0 } else { value }),
            1e-6,
        );
    }
}

#[test]
fn one_element_is_found_to_the_rounding_of_the_lanes() {
    for count in [1000, 100_000] {
        for place in [0, 300, count - 1] {
            let found = ratio(count, |index, value| if index == place { value + 1.0 } else { value });
            within("one element", found, 1e-5);
        }
    }
}

#[test]
fn dense_differences_are_estimated_within_a_fifth() {
    for count in [300, 1000, 5000, 65_536, 300_000] {
        within("noise", ratio(count, |index, value| value + 1e-3 * noise(2, index)), 0.2);
        within("bias", ratio(count, |_, value| value + 1e-2), 0.2);
        within("scale", ratio(count, |_, value| value * 1.01), 0.2);
        within("bfloat16", ratio(count, |_, value| f32::from_bits(value.to_bits() & 0xffff_0000)), 0.2);
        within("signs", ratio(count, |index, value| if index % 3 == 0 { -value } else { value }), 0.2);
    }
}

#[test]
fn structured_differences_are_estimated_within_a_fifth() {
    let (count, columns) = (1 << 18, 512);
    let part = |what: &str, select: &dyn Fn(usize, usize) -> bool| {
        let change = |index: usize, value: f32| {
            if select(index / columns, index % columns) { value + 0.5 * noise(3, index) } else { value }
        };
        within(what, ratio(count, change), 0.2);
        let bias = |index: usize, value: f32| {
            if select(index / columns, index % columns) { value + 0.5 } else { value }
        };
        within(what, ratio(count, bias), 0.2);
    };
    part("row", &|row, _| row == 77);
    part("column", &|_, column| column == 33);
    part("block", &|row, column| (64..96).contains(&row) && (128..160).contains(&column));
    part("half", &|row, _| row >= 256);
    // Two rows swap places.
    let values: Vec<f32> = (0..count).map(|index| noise(1, index)).collect();
    let swapped = |index: usize, value: f32| match index / columns {
        10 => values[index + 90 * columns],
        100 => values[index - 90 * columns],
        _ => value,
    };
    within("rows swapped", ratio(count, swapped), 0.2);
}

fn check_strides(count: usize, strides: impl Iterator<Item = usize>) {
    let a: Vec<f32> = (0..count).map(|index| noise(1, index)).collect();
    let base = sketch(&a);
    for stride in strides {
        for bias in [true, false] {
            let mut b = a.clone();
            for index in (0..count).step_by(stride) {
                b[index] += if bias { 0.5 } else { noise(4, index) };
            }
            let found = sketch_distance(&base, &sketch(&b)) / distance(&a, &b);
            within(&format!("stride {stride}, bias {bias}"), found, 0.25);
        }
    }
}

#[test]
fn no_stride_falls_into_few_lanes() {
    check_strides(
        1 << 18,
        [1, 2, 3, 7, 64, 100, 128, 250, 252, 255, 256, 257, 512, 768, 1000, 1024].into_iter(),
    );
}

#[test]
#[ignore = "takes a minute"]
fn no_stride_up_to_4096_falls_into_few_lanes() {
    check_strides(1 << 20, 1..=4096);
}

#[test]
#[ignore = "takes a minute"]
fn large_tensors_are_estimated_as_well_as_small_ones() {
    within("noise", ratio(10_000_000, |index, value| value + 1e-4 * noise(2, index)), 0.2);
    within("bias", ratio(10_000_000, |_, value| value + 1e-3), 0.2);
}

#[test]
fn the_spread_of_estimates_is_as_stated() {
    // Mean and deviation over many differences; with few differing elements single estimates are worse.
    for (differing, deviation, worst) in [(1000, 0.06, 0.2), (100, 0.06, 0.25), (5, 0.2, 1.0)] {
        let count = 65_536;
        let zero = sketch(&vec![0.0; count]);
        let ratios: Vec<f64> = (0..60)
            .map(|trial| {
                let mut d = vec![0.0; count];
                for k in 0..differing {
                    let place = mix((trial << 32) + k) % count as u64;
                    let place = usize::try_from(place).unwrap();
                    d[place] = noise(trial + 9, place);
                }
                sketch_distance(&zero, &sketch(&d)) / distance(&vec![0.0; count], &d)
            })
            .collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let variance = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / ratios.len() as f64;
        let extreme = ratios.iter().map(|r| (r - 1.0).abs()).fold(0.0, |a, b| if b > a { b } else { a });
        println!("{differing}: mean {mean:.4} deviation {:.4} extreme {extreme:.3}", variance.sqrt());
        assert!((mean - 1.0).abs() < 0.05 && variance.sqrt() < deviation && extreme < worst, "{differing}");
    }
}

#[test]
fn lanes_beyond_binary32_say_that_nothing_is_known() {
    // Complex numbers have no sentinels.
    let bytes: Vec<u8> = [f32::MAX; 600].iter().flat_map(|value| value.to_le_bytes()).collect();
    let tensor = TensorRef::strided(&bytes, DType::C64, &[300], &[1], 0).unwrap();
    let a = observe(tensor, SKETCH).sketch.unwrap();
    assert!(a.lanes.iter().any(|lane| lane.is_nan()) && a.lanes.iter().all(|lane| !lane.is_infinite()));
    assert!(sketch_distance(&a, &a).is_nan());
}
