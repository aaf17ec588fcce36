//! `probe inspect`: what a dump or a tensor file holds.

use std::fmt::Write as _;

use anyhow::{Context, bail};
use globset::{Glob, GlobMatcher};
use rayon::prelude::*;

use super::Exit;
use super::args::InspectArgs;
use super::terminal;
use crate::dump::{
    Checksum, DType, Dump, Number, Op, PartKey, Rank, Slot, TensorData, TensorRecord, TensorRef, Value,
};
use crate::measure::{self, TensorSummary, decode};
use crate::read::{self, map::FileAccess};
use crate::report::visible::visible;

/// Bars of a histogram, and the width of the longest.
const BINS: usize = 20;
const BAR: usize = 50;

/// Elements printed of one tensor, from each end.
const EDGE: usize = 8;

/// Runs the subcommand.
pub(super) fn run(args: InspectArgs) -> anyhow::Result<Exit> {
    let dump = read::open(&args.path, FileAccess::Map)?;
    let pattern = match &args.op {
        Some(pattern) => Some(Glob::new(pattern).context("--op")?.compile_matcher()),
        None => None,
    };
    let steps = args.step.unwrap_or_default();
    let ranks = args.rank.unwrap_or_default();
    let wanted = |key: &&PartKey| steps.contains(key.step) && ranks.contains(u64::from(key.rank.number()));
    let parts: Vec<&PartKey> = dump.parts.iter().filter(wanted).collect();
    if parts.is_empty() {
        bail!("{}: no part of it is selected; it has {}", args.path.display(), places(&dump));
    }
    let mut faults: Vec<String> = dump.faults.iter().map(ToString::to_string).collect();
    let mut out = format!("{}: {}, {}\n", args.path.display(), dump.format, places(&dump));
    let mut found = false;
    for key in parts {
        let part = match dump.reader.read(key) {
            Ok(part) => part,
            Err(fault) => {
                faults.push(fault.to_string());
                continue;
            }
        };
        faults.extend(part.faults.iter().map(ToString::to_string));
        if let Some(name) = &args.tensor {
            found |= show_tensor(&mut out, &part, name)?;
        } else {
            list(&mut out, &part, pattern.as_ref());
        }
    }
    if let (Some(name), false) = (&args.tensor, found) {
        bail!("{}: no tensor {name:?}; `probe inspect PATH` lists what there is", args.path.display());
    }
    terminal::print(&out)?;
    for fault in &faults {
        terminal::error(&anyhow::anyhow!("{fault}"));
    }
    Ok(if faults.is_empty() { Exit::Agree } else { Exit::Incomplete })
}

fn places(dump: &Dump) -> String {
    let steps: std::collections::BTreeSet<u64> = dump.parts.iter().map(|key| key.step).collect();
    let ranks: std::collections::BTreeSet<u32> = dump.parts.iter().map(|key| key.rank.number()).collect();
    let shown = |numbers: Vec<String>| numbers.join(", ");
    format!(
        "steps {}; ranks {}",
        shown(steps.iter().map(ToString::to_string).collect()),
        shown(ranks.iter().map(ToString::to_string).collect())
    )
}

fn list(out: &mut String, part: &Rank, pattern: Option<&GlobMatcher>) {
    let level = if part.level.is_empty() { String::new() } else { format!(", level {}", part.level) };
    _ = writeln!(
        out,
        "\nstep {} {}: task {}{level}, {} ops",
        part.key.step,
        part.key.rank,
        part.task,
        part.ops.len()
    );
    let wanted = |op: &&Op| pattern.is_none_or(|pattern| pattern.is_match(op.name.as_str()));
    let ops: Vec<&Op> = part.ops.iter().filter(wanted).collect();
    let texts: Vec<String> = ops.par_iter().map(|op| describe_op(part, op)).collect();
    for text in texts {
        out.push_str(&text);
    }
    for note in &part.notes {
        _ = writeln!(out, "note: {}", visible(note));
    }
}

fn describe_op(part: &Rank, op: &Op) -> String {
    let mut out = visible(op.name.as_str()).into_owned();
    let marks = [(op.recomputed, "recomputed"), (op.raised, "ended in an exception")];
    let words = marks.iter().filter(|(holds, _)| *holds).map(|(_, word)| *word);
    for word in words.chain(op.note.as_deref()) {
        _ = write!(out, " ({})", visible(word));
    }
    out.push('\n');
    for slot in &op.slots {
        _ = write!(out, "  {:<18} ", visible(&slot.path));
        match &slot.value {
            Value::Tensor(record) => describe_tensor(&mut out, part, record),
            Value::Scalar(scalar) => _ = writeln!(out, "{}", visible(&scalar.to_string())),
            Value::None => out.push_str("None\n"),
            Value::Unsupported => out.push_str("not recorded\n"),
        }
    }
    out
}

fn describe_tensor(out: &mut String, part: &Rank, record: &TensorRecord) {
    _ = write!(out, "{:<10} {:<18}", record.dtype, format!("{:?}", record.shape));
    let recorded = &record.statistics;
    if !recorded.is_empty() {
        let number = |value: Option<Number>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{:.6e}", value.as_f64()))
        };
        let float = |value: Option<f64>| number(value.map(Number::Float));
        _ = write!(
            out,
            " min {} max {} mean {} norm {}",
            number(recorded.min),
            number(recorded.max),
            float(recorded.mean),
            float(recorded.norm)
        );
    } else if let Some(key) = &record.data {
        match part.store.load(key) {
            Ok(data) => _ = write!(out, " {}", summary(&measure::summarize(data.view()))),
            Err(error) => _ = write!(out, " unreadable: {}", visible(&error.to_string())),
        }
    }
    if let Some(counts) = &record.counts {
        let kinds = [
            (counts.zeros, "zero"),
            (counts.nan, "NaN"),
            (counts.positive_infinite, "+Inf"),
            (counts.negative_infinite, "-Inf"),
        ];
        write_counts(out, kinds);
    }
    match &record.checksum {
        Some(hash @ Checksum::Xxh3(_)) => _ = write!(out, " hash {hash}"),
        Some(checksum) => _ = write!(out, " checksum {checksum}"),
        None => {}
    }
    for (holds, word) in [(record.sketch.is_some(), "sketch"), (record.data.is_some(), "data")] {
        if holds {
            _ = write!(out, " +{word}");
        }
    }
    for (word, text) in [("on", &record.device), ("placed", &record.placement), ("note:", &record.note)] {
        if let Some(text) = text {
            _ = write!(out, " {word} {}", visible(text));
        }
    }
    out.push('\n');
}

fn summary(summary: &TensorSummary) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.6e}"));
    let mut text = format!(
        "min {} max {} mean {} norm {:.6e}",
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

fn write_counts(text: &mut String, kinds: [(u64, &str); 4]) {
    for (count, word) in kinds {
        if count > 0 {
            _ = write!(text, ", {count} {word}");
        }
    }
}

/// Shows the tensor called `name` of one part; false when the part has none of that name.
fn show_tensor(out: &mut String, part: &Rank, name: &str) -> anyhow::Result<bool> {
    let matches = |op: &Op, slot: &Slot| {
        op.name.as_str() == name
            || name
                .strip_prefix(op.name.as_str())
                .is_some_and(|rest| rest.trim_start_matches([' ', '.']) == &*slot.path)
    };
    let all = part.ops.iter().flat_map(|op| op.slots.iter().map(move |slot| (op, slot)));
    let Some((op, slot)) =
        all.filter(|(op, slot)| matches(op, slot)).find(|(_, slot)| slot.value.tensor().is_some())
    else {
        return Ok(false);
    };
    let Some(record) = slot.value.tensor() else { return Ok(false) };
    _ = writeln!(
        out,
        "\nstep {} {} {} {}",
        part.key.step,
        part.key.rank,
        visible(op.name.as_str()),
        slot.path
    );
    let Some(key) = &record.data else {
        describe_tensor(out, part, record);
        _ = writeln!(out, "the dump holds no data of this tensor (task {})", part.task);
        return Ok(true);
    };
    let data = part.store.load(key)?;
    _ = writeln!(out, "{} {:?}", data.dtype(), data.shape());
    show_values(out, &data);
    Ok(true)
}

fn show_values(out: &mut String, data: &TensorData) {
    let view = data.view();
    let count = view.len();
    let histogram = measure::histogram(view, BINS);
    _ = writeln!(out, "{} elements, {}", count, summary(&histogram.summary));
    let one = |index: usize| element(view, index);
    let shown: Vec<String> = if count <= 2 * EDGE {
        (0..count).map(one).collect()
    } else {
        (0..EDGE).map(one).chain(["…".to_owned()]).chain((count - EDGE..count).map(one)).collect()
    };
    _ = writeln!(out, "[{}]", shown.join(", "));
    let (Some(low), Some(high)) = (histogram.summary.min, histogram.summary.max) else { return };
    let most = histogram.counts.iter().copied().max().unwrap_or(0).max(1);
    let width = (high - low) / histogram.counts.len().max(1) as f64;
    for (bin, &count) in histogram.counts.iter().enumerate() {
        let bar = (count as f64 / most as f64 * BAR as f64).ceil();
        // At most BAR, so the cast is exact.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to BAR")]
        let bar = "#".repeat(bar as usize);
        _ = writeln!(out, "{:>13.5e}  {count:>10}  {bar}", low + width * bin as f64);
    }
}

/// One element as text.
#[expect(clippy::cast_possible_truncation, reason = "`raw` fills narrow types with zeros")]
fn element(view: TensorRef<'_>, index: usize) -> String {
    let size = view.dtype().size();
    let mut bytes = vec![0; size];
    view.gather(index..index + 1, &mut bytes);
    let raw = |range: std::ops::Range<usize>| {
        let mut wide = [0_u8; 8];
        let part = bytes.get(range).unwrap_or_default();
        wide[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(wide)
    };
    let low = raw(0..size.min(8));
    let signed = |bits: u32| (low << (64 - bits)).cast_signed() >> (64 - bits);
    match view.dtype() {
        DType::F64 => format!("{:?}", f64::from_bits(low)),
        DType::Bool => (low != 0).to_string(),
        DType::I8 => signed(8).to_string(),
        DType::I16 => signed(16).to_string(),
        DType::I32 => signed(32).to_string(),
        DType::I64 => signed(64).to_string(),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => low.to_string(),
        DType::F32 => format!("{:?}", float32(low)),
        DType::F16 => format!("{:?}", decode::f32_of_f16(low as u16)),
        DType::Bf16 => format!("{:?}", decode::f32_of_bf16(low as u16)),
        DType::F8E4M3 => format!("{:?}", decode::f32_of_f8e4m3(low as u8)),
        DType::F8E5M2 => format!("{:?}", decode::f32_of_f8e5m2(low as u8)),
        DType::C64 => format!("{:?}{:+?}j", float32(low), float32(low >> 32)),
        DType::C128 => format!("{:?}{:+?}j", f64::from_bits(low), f64::from_bits(raw(8..16))),
    }
}

/// The lower half of `bits` as binary32.
#[expect(clippy::cast_possible_truncation, reason = "the upper half is not meant")]
fn float32(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}
