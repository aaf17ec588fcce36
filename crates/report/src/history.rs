//! A history of gates: a small table, a plot, and the modules of each run as a table for programs.

use std::fmt::Write as _;

use serde::Serialize;

use super::model::Tool;
use super::number;
use super::visible::{shorten, visible};
use probe_dump::Exact;
use probe_gate::history::{Entry, Trend, names};

/// Version of the output of `probe history --format json`. Raised when a field changes meaning or is removed, not when one is
/// added.
pub const SCHEMA_VERSION: u32 = 1;

/// A history for programs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "output of probe history", deny_unknown_fields))]
pub struct HistoryReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// Every gate, the oldest first; a run is named by its place in this list, from 0.
    pub runs: &'a [Entry],
    /// Runs that differ from the one before by far more than runs do, in order.
    pub jumps: Vec<JumpEntry<'a>>,
    /// Scalars that move to one side over the last runs.
    pub drifts: Vec<DriftEntry<'a>>,
}

/// One jump.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct JumpEntry<'a> {
    /// The scalar.
    pub scalar: &'a str,
    /// The run.
    pub run: u64,
    /// Its commit; null if unknown.
    pub commit: Option<&'a str>,
    /// Relative change of the mean.
    pub change: Exact,
    /// True if the environment differs from that of the run before.
    pub environment: bool,
}

/// One slow drift.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct DriftEntry<'a> {
    /// The scalar.
    pub scalar: &'a str,
    /// The first run of the window.
    pub from: u64,
    /// Relative change of the mean from the first to the last run of the window.
    pub change: Exact,
}

impl<'a> HistoryReport<'a> {
    /// Describes a history and its trend.
    pub fn of(entries: &'a [Entry], trend: &'a Trend) -> Self {
        let jump = |jump: &'a probe_gate::history::Jump| JumpEntry {
            scalar: &jump.scalar,
            run: jump.run as u64,
            commit: entries.get(jump.run).and_then(|entry| entry.commit.as_deref()),
            change: Exact(jump.change),
            environment: jump.environment,
        };
        let drift = |drift: &'a probe_gate::history::Drift| DriftEntry {
            scalar: &drift.scalar,
            from: drift.from as u64,
            change: Exact(drift.change),
        };
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            runs: entries,
            jumps: trend.jumps.iter().map(jump).collect(),
            drifts: trend.drifts.iter().map(drift).collect(),
        }
    }

    /// Returns the document as printed.
    ///
    /// # Errors
    /// None in practice: every value can be written as JSON.
    pub fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

/// Returns the committed JSON Schema of the output of `probe history`.
#[cfg(feature = "schema")]
pub fn history_schema() -> String {
    let schema = schemars::schema_for!(HistoryReport<'static>);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// Number of characters shown of a commit.
const COMMIT: usize = 10;

fn commit(entry: &Entry) -> String {
    entry.commit.as_deref().unwrap_or("-").chars().take(COMMIT).collect()
}

/// Returns the table of the last `top` runs, and the trends of the history.
pub fn text(entries: &[Entry], trend: &Trend, scalar: Option<&str>, top: usize) -> String {
    let mut out = format!(
        "{:>4}  {:COMMIT$}  {:10}  {:>14}  culprit\n",
        "run",
        "commit",
        "state",
        scalar.unwrap_or("-")
    );
    let from = entries.len().saturating_sub(top);
    for (run, entry) in entries.iter().enumerate().skip(from) {
        let mean = scalar.and_then(|name| entry.scalars.get(name)).map_or_else(
            || "-".to_owned(),
            |point| match point.mean.word() {
                Some(word) => word.to_owned(),
                None => format!("{:.8e}", point.mean.0),
            },
        );
        let culprit = entry.culprit.as_deref().unwrap_or_default();
        let line = format!(
            "{run:>4}  {:COMMIT$}  {:10}  {mean:>14}  {}",
            commit(entry),
            entry.state,
            shorten(&visible(culprit), 60)
        );
        _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
    for jump in &trend.jumps {
        let by = if jump.environment { ", together with the environment" } else { "" };
        _ = writeln!(
            out,
            "jump: {} by {:.3e} in run {} at {}{by}",
            visible(&jump.scalar),
            jump.change,
            jump.run,
            commit(&entries[jump.run])
        );
    }
    for drift in &trend.drifts {
        let runs = entries.len() - drift.from;
        _ = writeln!(
            out,
            "slow drift: {} by {:.3e} over the last {}, since {}; no single run shows it",
            visible(&drift.scalar),
            drift.change,
            number::counted(runs as u64, "run"),
            commit(&entries[drift.from])
        );
    }
    if trend.jumps.is_empty() && trend.drifts.is_empty() {
        _ = writeln!(out, "no jump and no drift in {}", number::counted(entries.len() as u64, "run"));
    }
    out
}

/// Size of one plot and its margins.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 90.0;
const EDGE: f64 = 24.0;

/// Plots every scalar, one plot below the other: the mean of each run, failed runs in red, jumps with their commit.
pub fn svg(entries: &[Entry], trend: &Trend) -> String {
    let names: Vec<&String> = names(entries).into_iter().collect();
    let height = HEIGHT * names.len().max(1) as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for (row, name) in names.into_iter().enumerate() {
        plot(&mut out, entries, trend, name, row as f64 * HEIGHT);
    }
    out.push_str("</svg>\n");
    out
}

/// Place of runs and means in a plot.
struct Axes {
    /// Upper edge of the plot.
    top: f64,
    /// Position of the last run.
    last: f64,
    low: f64,
    high: f64,
}

impl Axes {
    fn x(&self, run: usize) -> f64 {
        LEFT + (WIDTH - LEFT - EDGE) * run as f64 / self.last
    }

    fn y(&self, mean: f64) -> f64 {
        let Self { top, low, high, .. } = *self;
        let share = if high > low { (mean - low) / (high - low) } else { 0.5 };
        top + HEIGHT - EDGE - (HEIGHT - 2.0 * EDGE) * share
    }
}

fn plot(out: &mut String, entries: &[Entry], trend: &Trend, name: &str, top: f64) {
    let points: Vec<(usize, f64)> = entries
        .iter()
        .enumerate()
        .filter_map(|(run, entry)| Some((run, entry.scalars.get(name)?.mean.0)))
        .filter(|(_, mean)| mean.is_finite())
        .collect();
    _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>",
        top + 15.0,
        escaped(name)
    );
    if points.is_empty() {
        return;
    }
    let axes = Axes {
        top,
        last: entries.len().saturating_sub(1).max(1) as f64,
        low: points.iter().map(|(_, mean)| *mean).fold(f64::INFINITY, f64::min),
        high: points.iter().map(|(_, mean)| *mean).fold(f64::NEG_INFINITY, f64::max),
    };
    for value in [axes.high, axes.low] {
        let place = axes.y(value);
        _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{place:.1}\" y2=\"{place:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - EDGE,
            LEFT - 6.0,
            place + 4.0,
            escaped(&format!("{value:.5e}"))
        );
    }
    let line: Vec<String> =
        points.iter().map(|(run, mean)| format!("{:.1},{:.1}", axes.x(*run), axes.y(*mean))).collect();
    _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"#3366aa\"/>", line.join(" "));
    for (run, mean) in &points {
        dot(out, &axes, &entries[*run], (*run, *mean));
    }
    for jump in trend.jumps.iter().filter(|jump| jump.scalar == name) {
        _ = writeln!(
            out,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\" stroke=\"#cc2222\" stroke-dasharray=\"3 3\"/>\
             <text x=\"{0:.1}\" y=\"{3:.1}\" text-anchor=\"middle\" fill=\"#cc2222\">{4}</text>",
            axes.x(jump.run),
            top + EDGE,
            top + HEIGHT - EDGE,
            top + HEIGHT - 8.0,
            escaped(&commit(&entries[jump.run]))
        );
    }
}

/// Plots the mean of one run.
fn dot(out: &mut String, axes: &Axes, entry: &Entry, (run, mean): (usize, f64)) {
    let failed = entry.state != "pass";
    let title = format!("run {run} {} {}: {}", commit(entry), entry.state, Exact(mean));
    _ = writeln!(
        out,
        "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{}\" fill=\"{}\"><title>{}</title></circle>",
        axes.x(run),
        axes.y(mean),
        if failed { 4 } else { 2 },
        if failed { "#cc2222" } else { "#3366aa" },
        escaped(&title)
    );
}

/// Returns text escaped for XML.
fn escaped(text: &str) -> String {
    visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Writes the modules of one run as a parquet table, one row each with step, rank, name, state and error.
///
/// # Errors
/// [`probe_files::ReportError`] when the table cannot be written.
pub fn modules(
    path: &std::path::Path,
    outcome: &probe_gate::GateOutcome,
) -> Result<(), probe_files::ReportError> {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
    use parquet::arrow::ArrowWriter;

    use probe_gate::Kind;

    let mut draft = probe_files::Draft::create(path)?;
    let cases: Vec<&probe_gate::Case> =
        outcome.cases.iter().filter(|case| case.kind != Kind::Scalar).collect();
    let commit = outcome.candidate.commit.as_deref();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("commit", Arc::new(cases.iter().map(|_| commit).collect::<StringArray>())),
        ("step", Arc::new(cases.iter().map(|case| case.step).collect::<UInt64Array>())),
        ("rank", Arc::new(cases.iter().map(|case| case.rank).collect::<UInt32Array>())),
        ("name", Arc::new(StringArray::from_iter_values(cases.iter().map(|case| &case.name)))),
        ("status", Arc::new(StringArray::from_iter_values(cases.iter().map(|case| case.status.name())))),
        ("message", Arc::new(StringArray::from_iter_values(cases.iter().map(|case| &case.message)))),
        (
            "error",
            Arc::new(cases.iter().map(|case| case.error.map(|error| error.0)).collect::<Float64Array>()),
        ),
    ];
    let refused = |error: &dyn std::fmt::Display| probe_files::ReportError::format(path, error);
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )
    .map_err(|error| refused(&error))?;
    let mut writer =
        ArrowWriter::try_new(draft.file(), batch.schema(), None).map_err(|error| refused(&error))?;
    writer.write(&batch).map_err(|error| refused(&error))?;
    writer.close().map_err(|error| refused(&error))?;
    draft.place()?;
    Ok(())
}
