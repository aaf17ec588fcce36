//! Global batch of one optimizer step: samples per rank times accumulation steps times data-parallel
//! ranks.

use super::rows::Rows;
use crate::expectations::Ruling;
use crate::pack::{Manifest, Parts, Setting};
use crate::part::Verdict;

/// Adds a row if both sides recorded all three factors.
pub(super) fn global_batch(
    rows: &mut Rows<'_>,
    a: (&Parts, Option<&Manifest>),
    b: (&Parts, Option<&Manifest>),
) {
    let (Some(x), Some(y)) = (size(a.0, a.1), size(b.0, b.1)) else { return };
    let text = |[samples, accumulated, ranks]: [i128; 3]| {
        let product = samples.saturating_mul(accumulated).saturating_mul(ranks);
        (product, format!("{product} = {samples} samples x {accumulated} accumulated x {ranks} ranks"))
    };
    let ((product_x, x), (product_y, y)) = (text(x), text(y));
    let ruling = match (product_x == product_y, x == y) {
        (true, true) => Ruling::new(Verdict::Match, ""),
        (true, false) => Ruling::new(
            Verdict::Note,
            "the same batch, put together differently: gradients are summed in a different order",
        ),
        _ => Ruling::new(Verdict::Diff, "an optimizer step sees a different number of samples")
            .todo("choose batch size, accumulation and number of ranks so that their product is the same"),
    };
    rows.push("global batch", Some(x), Some(y), ruling);
}

fn size(parts: &Parts, manifest: Option<&Manifest>) -> Option<[i128; 3]> {
    let integer = |value: &Setting| match value {
        Setting::Integer(value) => Some(*value),
        _ => None,
    };
    let samples = integer(parts.dataloader.as_ref()?.get("batch_size")?)?;
    let watched = parts.optimizer.as_ref()?.accumulation.as_ref()?;
    let (backward, steps) = watched.iter().fold((0_u64, 0_u64), |(backward, steps), step| {
        (backward.saturating_add(step.backward), steps.saturating_add(step.optimizer))
    });
    // A window that ends in the middle of an accumulation tells nothing.
    let accumulated =
        backward.checked_div(steps).filter(|times| times.checked_mul(steps) == Some(backward))?;
    let data_parallel = parts.distributed.as_ref().and_then(|record| match record.get("groups") {
        Some(Setting::Map(groups)) => groups.get("data").and_then(integer),
        _ => None,
    });
    let ranks = data_parallel.or_else(|| manifest.map(|manifest| i128::from(manifest.world_size)))?;
    Some([samples, i128::from(accumulated), ranks])
}
