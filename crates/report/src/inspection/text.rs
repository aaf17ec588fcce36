//! The inspection laid out for people.

use std::fmt::{Display, Write as _};

use crate::number::counted;
use crate::visible::visible;
use probe_compare::inspect::{InspectedOp, InspectedPart, InspectedTensor, Inspection, Measured, Values};
use probe_dump::{Checksum, ExtremePlaces, Number, TensorRecord, Value};
use probe_measure::{Histogram, TensorSummary};

/// Width of the longest bar of a histogram.
const BAR: f64 = 50.0;

/// Returns the inspection as text, ending in a line break.
pub fn render(inspection: &Inspection) -> String {
    let mut out = format!(
        "{}: {}, steps {}; ranks {}\n",
        visible(&inspection.path.display().to_string()),
        inspection.format,
        joined(&inspection.steps),
        joined(&inspection.ranks)
    );
    for part in &inspection.parts {
        match &part.tensor {
            Some(tensor) => show_tensor(&mut out, part, tensor),
            None => list(&mut out, part),
        }
    }
    out
}

fn joined<T: Display>(numbers: impl IntoIterator<Item = T>) -> String {
    numbers.into_iter().map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
}

fn list(out: &mut String, part: &InspectedPart) {
    let rank = &part.rank;
    let level =
        if rank.level.is_empty() { String::new() } else { format!(", level {}", visible(&rank.level)) };
    _ = writeln!(
        out,
        "\nstep {} {}: task {}{level}, {}",
        rank.key.step,
        rank.key.rank,
        rank.task,
        counted(rank.ops.len() as u64, "op")
    );
    for op in &part.ops {
        describe_op(out, part, op);
    }
    for note in &rank.notes {
        _ = writeln!(out, "note: {}", visible(note));
    }
}

fn describe_op(out: &mut String, part: &InspectedPart, inspected: &InspectedOp) {
    let op = &part.rank.ops[inspected.op];
    out.push_str(&visible(op.name.as_str()));
    let marks = [(op.recomputed, "recomputed"), (op.raised, "ended in an exception")];
    let words = marks.iter().filter(|(holds, _)| *holds).map(|(_, word)| *word);
    for word in words.chain(op.note.said()) {
        _ = write!(out, " ({})", visible(word));
    }
    out.push('\n');
    for (slot, measured) in op.slots.iter().zip(&inspected.measured) {
        _ = write!(out, "  {:<18} ", visible(&slot.path));
        match &slot.value {
            Value::Tensor(record) => describe_tensor(out, record, measured),
            Value::Scalar(scalar) => _ = writeln!(out, "{}", visible(&scalar.to_string())),
            Value::None => out.push_str("None\n"),
            Value::Unsupported => out.push_str("not recorded\n"),
        }
    }
}

fn describe_tensor(out: &mut String, record: &TensorRecord, measured: &Measured) {
    _ = write!(out, "{:<10} {:<18}", record.dtype, format!("{:?}", record.shape));
    let recorded = &record.statistics;
    if !recorded.is_empty() {
        let number = |value: Option<Number>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{:.6e}", value.as_f64()))
        };
        let float = |value: Option<f64>| number(value.map(Number::Float));
        let place =
            |of: fn(ExtremePlaces) -> u64| record.places.and_then(|places| record.coordinates(of(places)));
        let [min_at, max_at] = at([place(ExtremePlaces::min), place(ExtremePlaces::max)]);
        _ = write!(
            out,
            " min {}{min_at} max {}{max_at} mean {} norm {}",
            number(recorded.min()),
            number(recorded.max()),
            float(recorded.mean()),
            float(recorded.norm())
        );
    }
    match measured {
        Measured::Nothing => {}
        Measured::Summary(found) => _ = write!(out, " {}", summary(found, [None, None])),
        Measured::Unreadable(reason) => _ = write!(out, " unreadable: {}", visible(reason)),
    }
    if let Some(counts) = &record.counts {
        let kinds = [
            (counts.zeros, "zero"),
            (counts.nan, "NaN"),
            (counts.positive_infinite, "+Inf"),
            (counts.negative_infinite, "-Inf"),
            (counts.sentinels.unwrap_or(0), "beyond 2^100"),
        ];
        write_counts(out, kinds);
    }
    match &record.checksum {
        Some(hash @ Checksum::Xxh3(_)) => _ = write!(out, " hash {hash}"),
        Some(checksum) => _ = write!(out, " checksum {}", visible(&checksum.to_string())),
        None => {}
    }
    for (holds, word) in [(record.sketch.is_some(), "sketch"), (record.data.is_some(), "data")] {
        if holds {
            _ = write!(out, " +{word}");
        }
    }
    let remarks = [("placed", record.placement.as_deref()), ("note:", record.note.as_deref())];
    for (word, text) in [("on", record.device.as_deref())].into_iter().chain(remarks) {
        if let Some(text) = text {
            _ = write!(out, " {word} {}", visible(text));
        }
    }
    out.push('\n');
}

/// Returns the positions of the extremes as text to follow their values; empty if unknown, or if both are the same element, because
/// then all elements are equal.
fn at(places: [Option<Vec<u64>>; 2]) -> [String; 2] {
    let is_one = places[0] == places[1];
    places.map(|place| place.filter(|_| !is_one).map_or_else(String::new, |index| format!(" at {index:?}")))
}

/// `places`: positions of the smallest and the largest element.
fn summary(summary: &TensorSummary, places: [Option<Vec<u64>>; 2]) -> String {
    let [min_at, max_at] = at(places);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.6e}"));
    let mut text = format!(
        "min {}{min_at} max {}{max_at} mean {} norm {:.6e}",
        number(summary.min),
        number(summary.max),
        number(summary.mean),
        summary.norm
    );
    let kinds =
        [(summary.zeros, "zero"), (summary.nan, "NaN"), (summary.pos_inf, "+Inf"), (summary.neg_inf, "-Inf")];
    write_counts(&mut text, kinds);
    text
}

fn write_counts<const N: usize>(text: &mut String, kinds: [(u64, &str); N]) {
    for (count, word) in kinds {
        if count > 0 {
            _ = write!(text, ", {count} {word}");
        }
    }
}

fn show_tensor(out: &mut String, part: &InspectedPart, tensor: &InspectedTensor) {
    let rank = &part.rank;
    let op = &rank.ops[tensor.place.0];
    let slot = &op.slots[tensor.place.1];
    _ = writeln!(
        out,
        "\nstep {} {} {} {}",
        rank.key.step,
        rank.key.rank,
        visible(op.name.as_str()),
        visible(&slot.path)
    );
    if let Some(Ok(values)) = &tensor.values {
        return show_values(out, values);
    }
    if let Value::Tensor(record) = &slot.value {
        describe_tensor(out, record, &Measured::Nothing);
    }
    match &tensor.values {
        Some(Err(reason)) => _ = writeln!(out, "unreadable: {}", visible(reason)),
        _ => _ = writeln!(out, "the dump holds no data for this tensor (task {})", rank.task),
    }
}

fn show_values(out: &mut String, values: &Values) {
    let Values { dtype, shape, first, last, histogram, places: _ } = values;
    _ = writeln!(out, "{dtype} {shape:?}");
    _ = writeln!(
        out,
        "{} elements, {}",
        histogram.summary.count,
        summary(&histogram.summary, values.extremes())
    );
    let between = (!last.is_empty()).then_some("…");
    let shown: Vec<&str> =
        first.iter().map(String::as_str).chain(between).chain(last.iter().map(String::as_str)).collect();
    _ = writeln!(out, "[{}]", shown.join(", "));
    bars(out, histogram);
}

fn bars(out: &mut String, histogram: &Histogram) {
    let (Some(low), Some(high)) = (histogram.summary.min, histogram.summary.max) else { return };
    let most = histogram.counts.iter().copied().max().unwrap_or(0).max(1);
    let width = (high - low) / histogram.counts.len().max(1) as f64;
    for (bin, &count) in histogram.counts.iter().enumerate() {
        let bar = (count as f64 / most as f64 * BAR).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to BAR")]
        let bar = "#".repeat(bar as usize);
        _ = writeln!(out, "{:>13.5e}  {count:>10}  {bar}", low + width * bin as f64);
    }
}
