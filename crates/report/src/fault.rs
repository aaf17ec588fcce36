//! The list of faults in the summary: each once, with the steps and ranks that show it.

use super::lines::Lines;
use super::number::{self, counted, thousands};
use super::paint::Style;
use super::text::TextOptions;
use super::visible::{shorten, visible};
use probe_judge::{FaultGroup, Finding, Role, Summary};
use probe_measure::Metric;

/// Most characters of an op's name; real names are shorter.
pub(super) const LONGEST: usize = 200;

/// Columns before the name.
const HEADER: [&str; 5] = ["step", "rank", "cause", "rel_l2", "cosine"];

/// The cosine gives way to the name on lines of fewer characters.
const ROOMY: usize = 100;

/// Blanks between columns.
const GAP: usize = 2;

/// Column of what does not fit beside the numbers.
const BELOW: usize = 4;

/// Characters of a list of steps or ranks; a longer one is counted.
const LISTED: usize = 12;

/// Path of the module the op is called in, where its own name does not say it.
pub(super) fn module(finding: &Finding) -> Option<&str> {
    finding.module.as_deref().filter(|module| !finding.op.contains(*module))
}

/// Adds the list.
pub(super) fn list(lines: &mut Lines, summary: &Summary, options: &TextOptions) {
    let all = summary.groups.len();
    let shown = all.min(options.top);
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
    let columns = if options.width < ROOMY { HEADER.len() - 1 } else { HEADER.len() };
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
        let fits = name + op.chars().count() <= options.width;
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

/// `0-63`, or how many there are where the list would be long.
fn numbers<T: Into<u64> + Copy>(list: &[T]) -> String {
    let text = number::ranges(list);
    if text.len() > LISTED { format!("{} of them", list.len()) } else { text }
}

/// The cells of a row in their columns, with the gap after the last. Numbers to the right, so that their magnitudes compare.
fn aligned<T: AsRef<str>>(row: &[T], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).enumerate();
    let cell = |(column, (cell, width)): (usize, (&T, &usize))| match HEADER[column] {
        "cause" => format!("{:<width$}{:GAP$}", cell.as_ref(), ""),
        _ => format!("{:>width$}{:GAP$}", cell.as_ref(), ""),
    };
    cells.map(cell).collect()
}
