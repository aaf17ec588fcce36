//! The list of faults in the summary: each fault once, with the steps and ranks that show it.

use super::lines::Lines;
use super::number::{self, counted, thousands};
use super::paint::Style;
use super::visible::{shorten, visible};
use probe_judge::{FaultGroup, Finding, Role, Summary};
use probe_measure::Metric;

/// Maximum length of an op name in characters; real names are shorter.
pub(super) const LONGEST: usize = 200;

/// Columns before the name.
const HEADER: [&str; 5] = ["step", "rank", "cause", "rel_l2", "cosine"];

/// Minimum line width, in characters, that leaves room for the cosine; on narrower lines the name gets the space.
const ROOMY: usize = 100;

/// Spaces between columns.
const GAP: usize = 2;

/// Indentation of text that does not fit beside the numbers.
const BELOW: usize = 4;

/// Maximum length of a list of steps or ranks in characters; a longer list is replaced by its count.
const LISTED: usize = 12;

/// Returns the path of the module that calls the op, unless the op's name already contains it.
pub(super) fn module(finding: &Finding) -> Option<&str> {
    finding.module.as_deref().filter(|module| !finding.op.contains(*module))
}

/// Adds the list: at most `top` faults, on lines of `line` characters.
pub(super) fn list(lines: &mut Lines, summary: &Summary, (top, line): (usize, usize)) {
    let all = summary.groups.len();
    let shown = all.min(top);
    if shown == 0 {
        return;
    }
    lines.end();
    let head = if shown < all {
        format!("ops at fault (first {shown} of {})", thousands(all as u64))
    } else {
        "ops at fault".to_owned()
    };
    lines.line(Style::Plain, &head);
    let columns = if line < ROOMY { HEADER.len() - 1 } else { HEADER.len() };
    let faults: Vec<(&FaultGroup, &Finding)> = summary.groups[..shown]
        .iter()
        .filter_map(|group| Some((group, summary.culprits.get(group.first)?)))
        .collect();
    let rows: Vec<[String; HEADER.len()]> =
        faults.iter().map(|(group, finding)| cells(group, finding)).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.fold(HEADER[column].len(), usize::max)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let name = widths.iter().map(|width| width + GAP).sum::<usize>();
    lines.line(Style::Dim, &format!("{}op", aligned(&HEADER, &widths)));
    for (row, (group, finding)) in rows.iter().zip(faults) {
        let op = shorten(&visible(&finding.op), LONGEST).into_owned();
        let fits = name + op.chars().count() <= line;
        lines.begin(aligned(row, &widths).trim_end(), if fits { name } else { BELOW });
        lines.whole(if group.first == 0 { Style::Bad } else { Style::Plain }, &op);
        lines.whole(Style::Plain, &visible(&finding.slot));
        for (word, place) in [("in", module(finding)), ("at", finding.source.as_deref())] {
            if let Some(place) = place {
                lines.whole(Style::Plain, &format!("{word} {}", visible(place)));
            }
        }
        if let Some(below) = finding.below.first() {
            let more = if finding.below.len() > 1 {
                format!(" and {} more", finding.below.len() - 1)
            } else {
                String::new()
            };
            lines.whole(Style::Plain, &format!("in it {}{more}", visible(below)));
        }
        if let Some(caller) = &finding.caller {
            lines.whole(Style::Plain, &format!("called by {}", visible(caller)));
        }
        if finding.role == Role::Amplifies {
            lines.whole(Style::Plain, "(amplifies)");
        }
        if group.followers > 0 {
            let verb = if group.followers == 1 { "follows" } else { "follow" };
            lines.whole(Style::Plain, &format!("- {} {verb}", counted(group.followers, "op")));
        }
        lines.end();
    }
}

fn cells(group: &FaultGroup, finding: &Finding) -> [String; HEADER.len()] {
    let metric = |wanted: Metric| {
        let value =
            finding.metrics.iter().find(|(metric, _)| *metric == wanted).and_then(|(_, value)| *value);
        let sign = finding.basis.filter(|_| value.is_some()).map_or("", |basis| basis.sign(wanted));
        format!("{sign}{}", number::metric(wanted, value))
    };
    [
        numbers(&group.steps),
        numbers(&group.ranks),
        finding.cause.name().to_owned(),
        metric(Metric::RelL2),
        metric(Metric::Cosine),
    ]
}

/// Returns a range such as `0-63`, or the count if the list would be long.
fn numbers<T: Into<u64> + Copy>(list: &[T]) -> String {
    let text = number::ranges(list);
    if text.len() > LISTED { format!("{} of them", list.len()) } else { text }
}

/// Returns the cells of a row padded to their columns, with a gap after the last. Numbers are right-aligned so that their
/// magnitudes compare.
fn aligned<T: AsRef<str>>(row: &[T], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).enumerate();
    let cell = |(column, (cell, width)): (usize, (&T, &usize))| match HEADER[column] {
        "cause" => format!("{:<width$}{:GAP$}", cell.as_ref(), ""),
        _ => format!("{:>width$}{:GAP$}", cell.as_ref(), ""),
    };
    cells.map(cell).collect()
}
