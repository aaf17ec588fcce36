//! Faults, each said once for all of its tensors, and tensors of the baseline that the candidate lacks.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::checkpoint::{Checkpoint, Name};
use crate::index::{Hashed, Index};
use crate::lines::Axis;
use crate::place::sought;
use crate::placed::{Placed, Verdict};
use crate::plan::Plan;

/// A fault, of one or several tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The tensors, by their names in the candidate; in the baseline for [`FindingKind::Missing`].
    pub tensors: Vec<String>,
    /// The fault in a sentence.
    pub text: String,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Two tensors, layers, experts or ranks in each other's place.
    Swapped,
    /// Right values in the wrong place or order.
    Moved,
    /// An older state.
    Stale,
    /// Other values.
    Changed,
    /// Nothing in the candidate is this tensor of the baseline.
    Missing,
    /// Nothing in the baseline is this tensor of the candidate.
    Extra,
}

impl FindingKind {
    /// Returns the word for it in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Swapped => "swapped",
            Self::Moved => "moved",
            Self::Stale => "stale",
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Extra => "extra",
        }
    }
}

/// The parts of a tensor of the baseline that the candidate uses, in the right place or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Used {
    /// All of it.
    All,
    /// The rows before this one.
    Until(usize),
    /// Nothing, or parts.
    Less,
}

/// Returns the part of every tensor of the baseline that the candidate uses.
pub(crate) fn used(side: &Hashed<'_>, placed: &[Placed]) -> Vec<Used> {
    let mut used: Vec<[Vec<bool>; 2]> = vec![[Vec::new(), Vec::new()]; side.lines.len()];
    for plan in placed.iter().flat_map(|placed| placed.plan.iter().chain(&placed.instead)) {
        for place in plan.places.iter().flatten() {
            let lines = &mut used[place.tensor as usize][place.axis as usize];
            if lines.len() <= place.line as usize {
                lines.resize(place.line as usize + 1, false);
            }
            lines[place.line as usize] = true;
        }
    }
    let extent = |(lines, used): (&Option<crate::lines::Lines>, [Vec<bool>; 2])| {
        // An unreadable tensor is a fault already.
        let Some(lines) = lines else { return Used::All };
        let without_gaps = |axis: Axis| used[axis as usize].iter().all(|&used| used);
        let whole = |axis: Axis| used[axis as usize].len() == lines.form.lines(axis) && without_gaps(axis);
        let rows = used[Axis::Row as usize].len();
        match rows {
            _ if Axis::ALL.into_iter().any(whole) => Used::All,
            rows if rows > 0 && without_gaps(Axis::Row) => Used::Until(rows),
            _ => Used::Less,
        }
    };
    side.lines.iter().zip(used).map(extent).collect()
}

/// Returns true if all of a checkpoint was read. What lies in the rest is not known.
fn is_whole(side: &Hashed<'_>) -> bool {
    side.checkpoint.faults.is_empty() && side.lines.iter().all(Option::is_some)
}

/// Returns true if the rows from `start` on are all the same, as those that pad a vocabulary.
fn is_padding(side: &Hashed<'_>, tensor: u32, start: usize) -> bool {
    let rows = side
        .lines_of(tensor)
        .and_then(|lines| lines.exact.first())
        .and_then(|(_, [rows, _])| rows.get(start..));
    rows.is_some_and(|rows| rows.windows(2).all(|pair| pair[0] == pair[1]))
}

/// Collects findings and notes.
pub(crate) fn collect(
    index: &Index<'_>,
    own: &Hashed<'_>,
    placed: &[Placed],
    snapshots: &[Checkpoint],
) -> (Vec<Finding>, Vec<String>) {
    let mut findings = swapped(own, placed);
    let [beyond, lacking] = [("baseline", index.of), ("candidate", own)].map(|(side, hashed)| {
        let of_it = if is_whole(hashed) { side.to_owned() } else { format!("{side} that could be read") };
        format!("nothing in the {of_it} has these values")
    });
    let in_pairs: BTreeSet<String> = findings.iter().flat_map(|finding| finding.tensors.clone()).collect();
    let mut groups: Vec<(FindingKind, String, Vec<&Name>)> = Vec::new();
    for (tensor, placed) in own.checkpoint.tensors.iter().zip(placed) {
        let name = &tensor.name;
        let (kind, text) = match &placed.verdict {
            Verdict::Equal | Verdict::Unread => continue,
            Verdict::Moved(_) if in_pairs.contains(&*name.text) => continue,
            Verdict::Moved(text) => (FindingKind::Moved, text.clone()),
            Verdict::Stale(at) => {
                let snapshot = snapshots.get(*at).map(|snapshot| snapshot.path.display().to_string());
                let text = format!("equal to the snapshot {}: not updated", snapshot.unwrap_or_default());
                (FindingKind::Stale, text)
            }
            Verdict::Changed(difference) => (FindingKind::Changed, difference.to_string()),
            Verdict::Extra => (FindingKind::Extra, beyond.clone()),
        };
        add(&mut groups, kind, text, name);
    }
    let mut notes = Vec::new();
    let all = used(index.of, placed);
    let is_held = |tensor: u32| matches!(all[tensor as usize], Used::All);
    for (tensor, used) in (0_u32..).zip(&all) {
        let name = index.of.name(tensor);
        let text = match used {
            Used::All => continue,
            Used::Until(row) if is_padding(index.of, tensor, *row) => {
                notes.push(format!(
                    "{}: the rows from {row} on are padding that the candidate lacks",
                    name.text
                ));
                continue;
            }
            Used::Until(row) => format!("rows from {row} on: {lacking}"),
            Used::Less => lacking.clone(),
        };
        match tied(index, tensor, is_held) {
            Some(other) => notes.push(format!("{} is not in the candidate; it equals {other}", name.text)),
            None => add(&mut groups, FindingKind::Missing, text, name),
        }
    }
    findings.extend(groups.into_iter().map(|(kind, text, names)| Finding {
        kind,
        text: format!("{}: {text}", together(&names)),
        tensors: names.iter().map(|name| name.text.to_string()).collect(),
    }));
    (findings, notes)
}

fn add<'a>(
    groups: &mut Vec<(FindingKind, String, Vec<&'a Name>)>,
    kind: FindingKind,
    text: String,
    name: &'a Name,
) {
    match groups.iter_mut().find(|(other, said, _)| (*other, said) == (kind, &text)) {
        Some((_, _, names)) => names.push(name),
        None => groups.push((kind, text, vec![name])),
    }
}

/// Returns the name of another tensor of the baseline that equals this one: tied weights, which some formats store once.
fn tied<'a>(index: &Index<'a>, tensor: u32, is_held: impl Fn(u32) -> bool) -> Option<&'a str> {
    let own = sought(index.of, tensor)?;
    let places = index.equal(own.dtype, own.lines, Axis::Row, 0);
    let rows = own.lines.form.lines(Axis::Row);
    let equal = |place: &&crate::index::Place| {
        place.tensor != tensor
            && is_held(place.tensor)
            && place.line == 0
            && place.axis == Axis::Row
            && index.of.lines_of(place.tensor).is_some_and(|lines| lines.form == own.lines.form)
            && Plan::whole(place.tensor, rows).equal_lines(index, own).iter().all(|&equal| equal)
    };
    places.iter().find(equal).map(|place| &*index.of.name(place.tensor).text)
}

/// Finds pairs of tensors in each other's place, and names them by the parts in which their names differ.
fn swapped(own: &Hashed<'_>, placed: &[Placed]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut said: Vec<String> = Vec::new();
    let moved: Vec<usize> = (0..placed.len()).filter(|&at| placed[at].instead.is_some()).collect();
    for (position, &a) in moved.iter().enumerate() {
        for &b in &moved[position + 1..] {
            if placed[a].plan != placed[b].instead || placed[a].instead != placed[b].plan {
                continue;
            }
            let names = [a, b].map(|at| &own.checkpoint.tensors[at].name);
            let tensors = names.map(|name| name.text.to_string());
            let text = pair(names);
            if let Some(at) = said.iter().position(|other| *other == text) {
                findings[at].tensors.extend(tensors);
            } else {
                said.push(text.clone());
                findings.push(Finding { kind: FindingKind::Swapped, tensors: tensors.into(), text });
            }
        }
    }
    for finding in &mut findings {
        if finding.tensors.len() > 2 {
            // Writing to a string cannot fail.
            _ = write!(finding.text, " ({} tensors)", finding.tensors.len());
        }
    }
    findings
}

/// Names a swap: `layers.3.experts 4 and 5 swapped`.
fn pair([a, b]: [&Name; 2]) -> String {
    // A weight and its bias are said together.
    let stems = [a, b].map(|name| name.text.rsplit_once('.').unwrap_or((&name.text, "")));
    let whole = match stems {
        [(a, kind), (b, other)] if kind == other => format!("{a} and {b} swapped"),
        _ => format!("{} and {} swapped", a.text, b.text),
    };
    if a.template != b.template {
        return whole;
    }
    let mut differing = (0..a.numbers.len()).filter(|&at| a.numbers[at] != b.numbers[at]);
    let (Some(at), None) = (differing.next(), differing.next()) else { return whole };
    let (start, _) = a.parts(at);
    let word = start.trim_end_matches(['.', '_', '/']);
    format!("{word} {} and {} swapped", a.numbers[at], b.numbers[at])
}

/// Names tensors together: one name, a common beginning, or a few names and a count.
fn together(names: &[&Name]) -> String {
    const NAMED: usize = 3;
    let Some(first) = names.first() else { return String::new() };
    if names.len() == 1 {
        return first.text.to_string();
    }
    let same = names.iter().all(|name| name.template == first.template);
    let differing: Vec<usize> = (0..first.numbers.len())
        .filter(|&at| names.iter().any(|name| name.numbers.get(at) != first.numbers.get(at)))
        .collect();
    if let (true, [at]) = (same, differing.as_slice()) {
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.numbers.get(*at).copied()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        let (start, end) = first.parts(*at);
        return format!("{start}{{{}}}{end}", numbers.join(","));
    }
    let common = names.iter().fold(first.text.len(), |length, name| {
        let same = first.text.bytes().zip(name.text.bytes()).take_while(|(a, b)| a == b).count();
        length.min(same)
    });
    if let Some(end) = first.text.get(..common).and_then(|start| start.rfind('.'))
        && first.text[..end].contains(|c: char| c.is_ascii_digit())
    {
        return format!("{}.* ({} tensors)", &first.text[..end], names.len());
    }
    let some: Vec<&str> = names.iter().take(NAMED).map(|name| &*name.text).collect();
    let more = names.len().saturating_sub(NAMED);
    if more > 0 { format!("{} and {more} more", some.join(", ")) } else { some.join(", ") }
}
