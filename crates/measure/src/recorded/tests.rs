use super::*;
use crate::observe;
use probe_dump::{Content, DType, RecordedDType, TensorMetadata, TensorRef};

fn record(shape: &[u64], max: f64, min: f64, mean: f64, norm: f64) -> TensorRecord {
    TensorRecord {
        statistics: RecordedStatistics {
            max: Some(Number::Float(max)),
            min: Some(Number::Float(min)),
            mean: Some(mean),
            norm: Some(norm),
        }
        .into(),
        ..TensorRecord::new(RecordedDType::Known(DType::F32), shape.into())
    }
}

/// Returns population statistics of a slice, as a capture would record them.
fn recorded(values: &[f64]) -> TensorRecord {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt();
    record(&[values.len() as u64], max, min, mean, norm)
}

#[test]
fn bounds_never_exceed_the_true_errors() {
    let b: Vec<f64> = (0..1000).map(|i| (f64::from(i) * 0.37).sin()).collect();
    for (name, c) in [
        ("scale", b.iter().map(|v| v * 1.01).collect::<Vec<_>>()),
        ("bias", b.iter().map(|v| v + 0.02).collect()),
        ("one element", b.iter().enumerate().map(|(i, v)| if i == 7 { 9.0 } else { *v }).collect()),
        ("swap", b.iter().rev().copied().collect()),
    ] {
        let distance = b.iter().zip(&c).map(|(b, c)| (c - b).powi(2)).sum::<f64>().sqrt();
        let largest = b.iter().zip(&c).map(|(b, c)| (c - b).abs()).fold(0.0, f64::max);
        let norm = b.iter().map(|v| v * v).sum::<f64>().sqrt();
        let found = compare_recorded(&recorded(&b), &recorded(&c));
        let bound = found.rel_l2_at_least.get().unwrap();
        assert!(bound <= distance / norm * (1.0 + 1e-9), "{name}: {bound} > {}", distance / norm);
        assert!(found.max_abs_err_at_least.get().unwrap() <= largest * (1.0 + 1e-12), "{name}");
        if name != "swap" {
            assert!(bound > 1e-3, "{name} is seen: {bound}");
        }
    }
}

#[test]
fn statistics_of_finite_elements_meet_those_of_the_older_tool() {
    let counts = |nan, up, down| Counts {
        elements: 4,
        nan,
        positive_infinite: up,
        negative_infinite: down,
        ..Counts::default()
    };
    let own =
        |counts: Counts| TensorRecord { counts: Some(counts.into()), ..record(&[4], 2.0, -1.0, 0.5, 2.5) };
    let nan = f64::NAN;
    for (ours, theirs) in [
        (own(counts(0, 0, 0)), record(&[4], 2.0, -1.0, 0.5, 2.5)),
        (own(counts(1, 0, 0)), record(&[4], nan, nan, nan, nan)),
        (own(counts(0, 1, 0)), record(&[4], f64::INFINITY, -1.0, f64::INFINITY, f64::INFINITY)),
        (own(counts(0, 1, 1)), record(&[4], f64::INFINITY, f64::NEG_INFINITY, nan, f64::INFINITY)),
    ] {
        for (b, c) in [(&ours, &theirs), (&theirs, &ours)] {
            let found = compare_recorded(b, c);
            assert!(found.all_same, "{:?} {found:?}", ours.counts);
            assert_eq!(found.baseline_non_finite, found.candidate_non_finite);
        }
    }
    // The older tool writes the value of a 0-d tensor as its norm, and half-precision norms overflow.
    let scalar = TensorRecord { counts: Some(counts(0, 0, 0).into()), ..record(&[], -2.0, -2.0, -2.0, 2.0) };
    assert!(compare_recorded(&scalar, &record(&[], -2.0, -2.0, -2.0, -2.0)).all_same);
    let overflown = compare_recorded(&own(counts(0, 0, 0)), &record(&[4], 2.0, -1.0, 0.5, f64::INFINITY));
    assert!(overflown.norm.get().is_none() && overflown.all_same);
}

#[test]
fn other_counts_of_non_finite_elements_are_a_difference() {
    let own = |nan| TensorRecord {
        counts: Some(Counts { elements: 4, nan, ..Counts::default() }.into()),
        ..record(&[4], 2.0, -1.0, 0.5, 2.5)
    };
    let found = compare_recorded(&own(1), &own(2));
    assert!(found.counts_differ.is_some() && !found.all_same);
    assert!(compare_recorded(&own(1), &own(1)).counts_differ.is_none());
}

#[test]
fn integers_are_the_same_whatever_order_their_norm_was_computed_in() {
    let truth_values = |zeros, mean, norm| {
        let counts = Counts { elements: 96, zeros, ..Counts::default() };
        TensorRecord { counts: Some(counts.into()), ..record(&[96], 1.0, 0.0, mean, norm) }
    };
    let host = truth_values(26, 70.0 / 96.0, 70.0_f64.sqrt());
    let device = truth_values(26, 70.0 / 96.0, 70.0_f64.sqrt() * (1.0 - f64::EPSILON));
    assert!(compare_recorded(&host, &device).same_integers);
    let other = truth_values(25, 71.0 / 96.0, 71.0_f64.sqrt());
    assert!(!compare_recorded(&host, &other).same_integers);
}

#[test]
fn sums_of_a_device_prove_no_more_than_they_say_of_themselves() {
    let on_host = |norm| TensorRecord {
        counts: Some(Counts { elements: 100, ..Counts::default() }.into()),
        ..record(&[100], 2.0, -1.0, 0.1, norm)
    };
    let on_device = |norm| {
        let mut record = on_host(norm);
        record.sum_error = Some(1e-6);
        record
    };
    let host = on_host(5.0);
    let near = compare_recorded(&host, &on_device(5.0 * (1.0 + 9e-7)));
    assert!(near.rel_l2_at_least.get().unwrap() <= 0.0 && !near.all_same && near.same_integers, "{near:?}");
    // Both sides may be off.
    assert!(
        compare_recorded(&on_device(5.0), &on_device(5.0 * (1.0 + 1.9e-6))).rel_l2_at_least.get().unwrap()
            <= 0.0
    );
    let off = compare_recorded(&host, &on_device(5.0 * (1.0 + 3e-6)));
    assert!(off.rel_l2_at_least.get().unwrap() > 1e-6 && !off.same_integers, "{off:?}");
    // A difference between exact sums of integers counts.
    let off = compare_recorded(&host, &on_host(5.0 * (1.0 + 9e-7)));
    assert!(!off.same_integers, "{off:?}");
}

#[test]
fn lanes_of_integers_are_exact_while_binary32_holds_their_sums() {
    let of = |values: &[i32], sum_error| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let shape = [values.len()];
        let tensor = TensorRef::strided(&bytes, DType::I32, &shape, &[1], 0).unwrap();
        let found = observe(tensor, Content::SKETCH);
        TensorRecord {
            statistics: found.statistics.into(),
            counts: Some(found.counts.into()),
            sketch: found.sketch.map(std::sync::Arc::new),
            ..TensorRecord::from(TensorMetadata {
                sum_error,
                ..TensorMetadata::new(RecordedDType::Known(DType::I32), [values.len() as u64].into())
            })
        }
    };
    for (scale, seen) in [(20, true), (50_000, false)] {
        let values: Vec<i32> = (0..20_000).map(|index| index % 997 * scale).collect();
        let mut other = values.clone();
        other[7000] += 1;
        let found = compare_recorded(&of(&values, None), &of(&other, Some(1e-6)));
        assert_eq!(found.same_integers, !seen, "{scale}");
        assert!(compare_recorded(&of(&values, None), &of(&values, Some(1e-6))).same_integers);
    }
}

/// Returns binary32 elements as a capture records them.
fn observed(values: &[f32]) -> TensorRecord {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = [values.len()];
    let tensor = TensorRef::strided(&bytes, DType::F32, &shape, &[1], 0).unwrap();
    let found = observe(tensor, Content::STATISTICS);
    TensorRecord {
        statistics: found.statistics.into(),
        places: found.places,
        counts: Some(found.counts.into()),
        ..TensorRecord::new(RecordedDType::Known(DType::F32), [values.len() as u64].into())
    }
}

#[test]
fn elements_in_other_places_are_told_from_other_elements() {
    for count in [3_u64, 4000, 700_000] {
        // All positive, of very uneven sizes: sums round most.
        let values: Vec<f32> =
            (0..count).map(|index| ((index * 7919 % count) as f32 / count as f32).powi(9) + 1e-3).collect();
        let mut other = values.clone();
        other.reverse();
        let found = compare_recorded(&observed(&values), &observed(&other));
        assert!(found.moved && found.rearranged && !found.all_same, "{count} {found:?}");
        assert!(found.rel_l2_at_least.get().unwrap() <= 0.0);
        let same = compare_recorded(&observed(&values), &observed(&values));
        assert!(!same.moved && !same.rearranged && same.all_same);
        // One element off by one rounding: with 700,000 elements the sums do not show it.
        let middle = values.iter().position(|value| *value > 1.01e-3).unwrap();
        let mut off = values.clone();
        off[middle] = off[middle].next_up();
        off.reverse();
        let found = compare_recorded(&observed(&values), &observed(&off));
        assert!(found.moved && (count > 100_000 || !found.rearranged), "{count} {found:?}");
    }
}

#[test]
fn elements_in_other_places_need_exact_sums_and_equal_counts() {
    let values: Vec<f32> = (0..500).map(|index| (index as f32 * 0.37).sin()).collect();
    let mut other = values.clone();
    other.reverse();
    let (b, c) = (observed(&values), observed(&other));
    assert!(compare_recorded(&b, &c).rearranged);
    let zeros = Counts { zeros: 7, ..*c.counts.clone().unwrap() };
    let mut on_device = c.clone();
    on_device.sum_error = Some(1e-6);
    for changed in [
        TensorRecord { counts: Some(zeros.into()), ..c.clone() },
        on_device,
        TensorRecord { counts: None, ..c.clone() },
    ] {
        let found = compare_recorded(&b, &changed);
        assert!(found.moved && !found.rearranged, "{found:?}");
    }
    // A device, or a capture made before positions were recorded, provides no positions.
    let found = compare_recorded(&b, &TensorRecord { places: None, ..c.clone() });
    assert!(!found.moved && !found.rearranged);
    let mut wide = c;
    wide.dtype = RecordedDType::Known(DType::F64);
    assert!(!compare_recorded(&b, &wide).moved);
}

/// Returns a mask of -3.4e38 over other numbers; `apart` is the count of a capture that counts sentinels.
fn masked(apart: Option<u64>, norm: f64) -> TensorRecord {
    TensorRecord {
        counts: Some(Counts { elements: 4, sentinels: apart, ..Counts::default() }.into()),
        ..record(&[4], 2.0, f64::from(f32::MIN), norm / 2.0, norm)
    }
}

#[test]
fn sentinels_that_one_side_has_in_its_norm_and_the_other_has_not_prove_nothing() {
    let (old, new) = (masked(None, 3.4e38), masked(Some(1), 2.5));
    for (b, c) in [(&old, &new), (&new, &old)] {
        let found = compare_recorded(b, c);
        assert!(found.norm.get().or(found.mean.get()).is_none() && found.all_same, "{found:?}");
    }
    // A difference that the mask would hide shows if the mask is excluded.
    let off = compare_recorded(&new, &masked(Some(1), 2.6));
    assert!((off.rel_l2_at_least.get().unwrap() - 0.04).abs() < 1e-9, "{off:?}");
    assert!(compare_recorded(&new, &new).all_same);
}

#[test]
fn sentinels_on_one_side_alone_are_a_difference() {
    let found = compare_recorded(&masked(Some(1), 2.5), &masked(Some(2), 2.5));
    assert!(found.sentinels_differ.as_deref() == Some(&(1, 2)) && !found.all_same);
}

#[test]
fn another_sentinel_is_held_against_itself() {
    let mut other = masked(Some(1), 2.5);
    // The least number of float32 converted to bfloat16.
    other.statistics = RecordedStatistics {
        min: Some(Number::Float(-3.389_531_389_251_535_5e38)),
        ..other.statistics.get()
    }
    .into();
    let found = compare_recorded(&masked(Some(1), 2.5), &other);
    let bound = found.rel_l2_at_least.get().unwrap();
    assert!(bound > 0.003 && bound < 0.004 && !found.all_same, "{bound}");
    // In a bfloat16 tensor it is the least number.
    other.dtype = RecordedDType::Known(DType::Bf16);
    let found = compare_recorded(&masked(Some(1), 2.5), &other);
    assert!(found.rel_l2_at_least.get().unwrap().to_bits() == 0, "{found:?}");
}

#[test]
fn a_mean_near_zero_is_judged_against_the_norm() {
    let found =
        compare_recorded(&record(&[100], 1.0, -1.0, 1e-12, 5.0), &record(&[100], 1.0, -1.0, -1e-9, 5.0));
    assert!(found.rel_l2_at_least.get().unwrap() < 1e-8);
}

#[test]
fn finite_state_and_zero_baselines_are_infinite_differences() {
    let nan = compare_recorded(
        &record(&[2], 1.0, 0.0, 0.5, 1.0),
        &record(&[2], f64::NAN, f64::NAN, f64::NAN, f64::NAN),
    );
    assert!(nan.candidate_non_finite && !nan.baseline_non_finite);
    assert!(nan.max.get().unwrap().relative.is_infinite());
    assert_eq!(
        (nan.rel_l2_at_least, nan.max_abs_err_at_least),
        (Figure::NONE, Figure::NONE),
        "metrics are of finite elements"
    );
    let zero = compare_recorded(&record(&[2], 0.0, 0.0, 0.0, 0.0), &record(&[2], 1.0, 0.0, 0.5, 1.0));
    assert!(zero.rel_l2_at_least.get().unwrap().is_infinite());
    let same = record(&[2], f64::INFINITY, 1.0, f64::INFINITY, f64::INFINITY);
    assert!(compare_recorded(&same, &same).all_same);
}
