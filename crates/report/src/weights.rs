//! Output of `probe weights`: text, and JSON as plain structs.
//!
//! Names and meanings of the JSON are an interface: a change that an old reader would misread raises [`SCHEMA_VERSION`].

use std::fmt::Write as _;

use serde::Serialize;

use super::model::Tool;
use super::number::counted;
use super::visible::visible;
use probe_weights::{Checkpoint, Layout, Verdict, Weights};

/// Version of the format. Raised when a field changes meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The weights of two checkpoints against one another.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(title = "JSON of probe weights", deny_unknown_fields))]
pub struct WeightsReport<'a> {
    /// Version of this format.
    pub schema_version: u32,
    /// Program that wrote it.
    pub tool: Tool,
    /// The answer: `agree` (equal up to the mapping), `differ` or `incomplete`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["agree", "differ", "incomplete"])))]
    pub verdict: &'static str,
    /// The trusted checkpoint.
    pub baseline: SideEntry<'a>,
    /// The checkpoint under test.
    pub candidate: SideEntry<'a>,
    /// Faults, each with its tensors.
    pub findings: Vec<FindingEntry<'a>>,
    /// The tensors of the candidate, in its order.
    pub tensors: Vec<TensorEntry<'a>>,
    /// Remarks that are no fault.
    pub notes: &'a [String],
    /// Things that could not be read.
    pub incomplete: &'a [String],
}

/// A checkpoint.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct SideEntry<'a> {
    /// The path as it was given.
    pub path: String,
    /// Name of the format.
    pub format: &'a str,
    /// Number of tensors.
    pub tensors: usize,
}

/// A fault.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct FindingEntry<'a> {
    /// Its kind.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["swapped", "moved", "stale", "changed", "missing", "extra"])))]
    pub kind: &'static str,
    /// The tensors, by their names in the candidate; in the baseline for `missing`.
    pub tensors: &'a [String],
    /// The fault in a sentence.
    pub text: &'a str,
}

/// A tensor of the candidate.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct TensorEntry<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its element type, such as `bfloat16`.
    pub dtype: &'static str,
    /// Sizes of its dimensions.
    pub shape: &'a [usize],
    /// The decision: `equal`, `moved`, `stale`, `changed`, `extra` or `unread`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["equal", "moved", "stale", "changed", "extra", "unread"])))]
    pub verdict: &'static str,
    /// The tensors of the baseline that it is made of, or should be.
    pub sources: Vec<SourceEntry<'a>>,
    /// How, in words; empty if it is only renamed.
    pub layout: String,
}

/// Sources of a tensor.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct SourceEntry<'a> {
    /// Its name in the baseline.
    pub name: &'a str,
    /// Direction of the lines: `rows` or `columns`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["rows", "columns"])))]
    pub lines: &'static str,
    /// The first line in use, from 0.
    pub first: usize,
    /// The number of lines in use.
    pub count: usize,
    /// Their order in words; `in order` if it is kept.
    pub order: String,
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Equal => "equal",
        Verdict::Moved(_) => "moved",
        Verdict::Stale(_) => "stale",
        Verdict::Changed(_) => "changed",
        Verdict::Extra => "extra",
        Verdict::Unread => "unread",
    }
}

fn answer(found: &Weights) -> &'static str {
    match (found.faults.is_empty(), found.agree()) {
        (false, _) => "incomplete",
        (true, false) => "differ",
        (true, true) => "agree",
    }
}

fn side(checkpoint: &Checkpoint) -> SideEntry<'_> {
    let path = checkpoint.path.display().to_string();
    SideEntry { path, format: checkpoint.format, tensors: checkpoint.tensors.len() }
}

fn sources<'a>(layout: &Layout, baseline: &'a Checkpoint) -> Vec<SourceEntry<'a>> {
    let source = |source: &probe_weights::Source| SourceEntry {
        name: &baseline.tensors[source.tensor].name.text,
        lines: source.axis.word(2),
        first: source.first,
        count: source.count,
        order: source.order.to_string(),
    };
    layout.sources.iter().map(source).collect()
}

/// Returns the document as printed.
///
/// # Errors
/// None in practice: every value can be written as JSON.
pub fn json(baseline: &Checkpoint, candidate: &Checkpoint, found: &Weights) -> serde_json::Result<String> {
    let findings = found.findings.iter().map(|finding| FindingEntry {
        kind: finding.kind.name(),
        tensors: &finding.tensors,
        text: &finding.text,
    });
    let tensors = candidate.tensors.iter().zip(&found.placed).map(|(tensor, placed)| TensorEntry {
        name: &tensor.name.text,
        dtype: tensor.dtype.name(),
        shape: &tensor.shape,
        verdict: word(&placed.verdict),
        sources: placed.layout.as_ref().map_or_else(Vec::new, |layout| sources(layout, baseline)),
        layout: placed.layout.as_ref().map_or_else(String::new, Layout::text),
    });
    let report = WeightsReport {
        schema_version: SCHEMA_VERSION,
        tool: Tool::THIS,
        verdict: answer(found),
        baseline: side(baseline),
        candidate: side(candidate),
        findings: findings.collect(),
        tensors: tensors.collect(),
        notes: &found.notes,
        incomplete: &found.faults,
    };
    let mut text = serde_json::to_string_pretty(&report)?;
    text.push('\n');
    Ok(text)
}

/// Returns the committed JSON Schema of the document.
#[cfg(feature = "schema")]
pub fn weights_schema() -> String {
    let schema = schemars::schema_for!(WeightsReport<'static>);
    // A schema is plain data; serializing it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// Findings that are printed.
const LISTED: usize = 40;

/// A line of the table: tensors of one name, apart from numbers, that are made alike.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    candidate: String,
    baseline: String,
    layout: String,
}

/// Returns the answer for people: the first line, the faults, and the mapping as a table.
pub fn text(baseline: &Checkpoint, candidate: &Checkpoint, found: &Weights) -> String {
    let equal = found.placed.iter().filter(|placed| placed.verdict == Verdict::Equal).count();
    let mut out = String::new();
    let verdict = match answer(found) {
        "agree" => "the weights are equal up to the mapping",
        "differ" => "the weights differ",
        _ => "incomplete",
    };
    let read = found.placed.iter().filter(|placed| placed.verdict != Verdict::Unread).count();
    let of = counted(read as u64, "tensor");
    let is_whole = read == found.placed.len() && candidate.faults.is_empty();
    let which = if is_whole { "of the candidate" } else { "that could be read of the candidate" };
    _ = writeln!(out, "{verdict}: {equal} of {of} {which} are equal");
    for finding in found.findings.iter().take(LISTED) {
        _ = writeln!(out, "  {}", visible(&finding.text));
    }
    if found.findings.len() > LISTED {
        _ = writeln!(out, "  and {} more; --format json lists all", found.findings.len() - LISTED);
    }
    for note in found.notes.iter().take(LISTED) {
        _ = writeln!(out, "note: {}", visible(note));
    }
    table(&mut out, baseline, candidate, found);
    out
}

fn table(out: &mut String, baseline: &Checkpoint, candidate: &Checkpoint, found: &Weights) {
    let mut rows: Vec<(Row, usize)> = Vec::new();
    for (tensor, placed) in candidate.tensors.iter().zip(&found.placed) {
        let (Some(layout), Verdict::Equal) = (&placed.layout, &placed.verdict) else { continue };
        let mut names: Vec<&str> = Vec::new();
        for source in &layout.sources {
            let name = &*baseline.tensors[source.tensor].name.template;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut words = layout.text();
        if let Some(first) = layout.sources.first() {
            let theirs = baseline.tensors[first.tensor].dtype;
            if theirs != tensor.dtype {
                let comma = if words.is_empty() { "" } else { ", " };
                _ = write!(words, "{comma}cast from {theirs} to {}", tensor.dtype);
            }
        }
        let template = visible(&tensor.name.template).into_owned();
        let row =
            Row { candidate: template, baseline: visible(&together(&names)).into_owned(), layout: words };
        match rows.iter_mut().find(|(other, _)| *other == row) {
            Some((_, count)) => *count += 1,
            None => rows.push((row, 1)),
        }
    }
    if rows.is_empty() {
        return;
    }
    let width = |of: fn(&Row) -> &str| rows.iter().map(|(row, _)| of(row).chars().count()).max().unwrap_or(0);
    let (own, theirs) = (width(|row| &row.candidate).max(9), width(|row| &row.baseline).max(8));
    _ = writeln!(out, "\n{:>7}  {:own$}  {:theirs$}  layout", "tensors", "candidate", "baseline");
    for (row, count) in &rows {
        let line = format!("{count:>7}  {:own$}  {:theirs$}  {}", row.candidate, row.baseline, row.layout);
        _ = writeln!(out, "{}", line.trim_end());
    }
}

/// Joins names that differ in one part: `layers.{}.{q_proj, k_proj, v_proj}.weight`.
fn together(names: &[&str]) -> String {
    let parts: Vec<Vec<&str>> = names.iter().map(|name| name.split('.').collect()).collect();
    let (Some(first), true) = (parts.first(), parts.len() > 1) else { return names.concat() };
    let differs = |at: usize| parts.iter().any(|other| other.get(at) != first.get(at));
    let mut differing = (0..first.len()).filter(|&at| differs(at));
    match (differing.next(), differing.next()) {
        (Some(at), None) if parts.iter().all(|other| other.len() == first.len()) => {
            let each: Vec<&str> = parts.iter().filter_map(|parts| parts.get(at).copied()).collect();
            let each = format!("{{{}}}", each.join(", "));
            let mut joined = first.clone();
            joined[at] = &each;
            joined.join(".")
        }
        _ => names.join(" + "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_one_part_are_joined() {
        assert_eq!(together(&["l.{}.q.weight", "l.{}.k.weight"]), "l.{}.{q, k}.weight");
        assert_eq!(together(&["a.q", "b.k"]), "a.q + b.k");
        assert_eq!(together(&["a.q", "a.q.r"]), "a.q + a.q.r");
        assert_eq!(together(&["a"]), "a");
    }
}
