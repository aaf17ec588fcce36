//! Records of pieces, folded into the record of the global value: counts, extremes, mean and norm are exact.

use std::sync::Arc;

use probe_dump::{Counts, Number, RecordedStatistics, Sketch, TensorRecord};

use super::layout::{Among, Layout};

/// Returns the record of the global value whose pieces have the records `pieces`. It has no data.
pub(crate) fn fold(layout: &Layout, pieces: &[&TensorRecord]) -> TensorRecord {
    if let [piece] = pieces
        && layout.is_one_piece()
    {
        return TensorRecord { data: None, ..(*piece).clone() };
    }
    let shape: Vec<u64> = layout.shape.iter().map(|&size| size as u64).collect();
    let mut folded = pieces[0].clone();
    (folded.data, folded.checksum, folded.places, folded.sketch, folded.counts) =
        (None, None, None, None, None);
    let metadata = &mut *folded;
    // Autograd tracks distributed tensors, not the local ones in them.
    metadata.requires_grad = None;
    (metadata.strides, metadata.placement, metadata.shape) = (None, None, shape.into());
    folded.sum_error = pieces.iter().filter_map(|piece| piece.sum_error).reduce(f64::max);
    let partition = layout.partition();
    let firsts: Vec<&TensorRecord> = pieces
        .iter()
        .enumerate()
        .filter(|(place, _)| partition[*place] == *place)
        .map(|(_, piece)| *piece)
        .collect();
    match layout.among {
        // Shards of a multiple of the value.
        Among::Sum(share) if firsts.len() == pieces.len() => {
            folded.statistics = scaled(joined(&firsts), f64::from(share)).into();
            folded.counts = counts(&firsts).map(Arc::new);
            folded.sketch = summed(pieces, f64::from(share)).filter(|_| firsts.len() == 1).map(Arc::new);
        }
        Among::Replicas => {
            folded.statistics = joined(&firsts).into();
            folded.counts = counts(&firsts).map(Arc::new);
        }
        Among::Sum(share) => {
            let share = f64::from(share);
            let means: Option<f64> = pieces.iter().map(|piece| piece.statistics.mean()).sum();
            let mean = means.map(|sum| sum / share / firsts.len().max(1) as f64);
            folded.statistics = RecordedStatistics { mean, ..RecordedStatistics::default() }.into();
            folded.sketch = summed(pieces, share).filter(|_| firsts.len() == 1).map(Arc::new);
        }
        // The largest of the largest is the largest; nothing is known of what lies between.
        among @ (Among::Max | Among::Min) => {
            let all = joined(pieces);
            let (max, min) = if among == Among::Max { (all.max, None) } else { (None, all.min) };
            folded.statistics = RecordedStatistics { max, min, ..RecordedStatistics::default() }.into();
        }
    }
    folded
}

/// Returns the statistics of disjoint pieces together.
fn joined(pieces: &[&TensorRecord]) -> RecordedStatistics {
    let all = |of: &dyn Fn(&TensorRecord) -> Option<Number>, pick: fn(f64, f64) -> bool| {
        let mut found: Option<Number> = None;
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let number = of(piece)?;
            if found.is_none_or(|best| pick(number.as_f64(), best.as_f64())) {
                found = Some(number);
            }
        }
        found
    };
    let elements: f64 = pieces.iter().map(|piece| piece.len() as f64).sum();
    let mean: Option<f64> =
        pieces.iter().map(|piece| Some(piece.statistics.mean()? * piece.len() as f64)).sum();
    let square: Option<f64> =
        pieces.iter().map(|piece| piece.statistics.norm().map(|norm| norm * norm)).sum();
    RecordedStatistics {
        max: all(&|piece| piece.statistics.max(), |a, b| a > b),
        min: all(&|piece| piece.statistics.min(), |a, b| a < b),
        mean: mean.map(|sum| sum / elements.max(1.0)),
        norm: square.map(f64::sqrt),
    }
}

/// Returns the statistics of the value divided by `share`.
fn scaled(of: RecordedStatistics, share: f64) -> RecordedStatistics {
    let divided = |number: Number| Number::Float(number.as_f64() / share);
    RecordedStatistics {
        max: of.max.map(divided),
        min: of.min.map(divided),
        mean: of.mean.map(|mean| mean / share),
        norm: of.norm.map(|norm| norm / share),
    }
}

fn counts(pieces: &[&TensorRecord]) -> Option<Counts> {
    let mut all = Counts { sentinels: Some(0), ..Counts::default() };
    for piece in pieces {
        let counts = piece.counts.as_deref()?;
        all.elements += counts.elements;
        all.zeros += counts.zeros;
        all.nan += counts.nan;
        all.positive_infinite += counts.positive_infinite;
        all.negative_infinite += counts.negative_infinite;
        all.sentinels = all.sentinels.zip(counts.sentinels).map(|(a, b)| a + b);
    }
    Some(all)
}

/// Returns the sketch of the sum of the pieces over `share`: sketches are linear.
fn summed(pieces: &[&TensorRecord], share: f64) -> Option<Sketch> {
    let first = pieces.first()?.sketch.as_deref()?;
    let mut lanes = [0.0_f64; probe_dump::SKETCH_LANES];
    for piece in pieces {
        let sketch = piece.sketch.as_deref().filter(|sketch| sketch.version == first.version)?;
        for (sum, lane) in lanes.iter_mut().zip(sketch.lanes.iter()) {
            *sum += f64::from(*lane);
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "sketches are binary32")]
    let lanes = lanes.map(|sum| (sum / share) as f32);
    Some(Sketch { lanes: Box::new(lanes), version: first.version })
}
