//! `suspects.toml`: settings with which `probe capture --config` records the ops at fault once more, with the data that replaying them needs.
//!
//! With them come the ops that made what they read or read what they made, and the other phase of their call. What the largest recorded sizes
//! say bounds the list, and the same bound is in the file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::command::typed;
use super::number::counted;
use super::visible::visible;
use probe_compare::PartReport;
use probe_dump::{Op, OpKind, Phase};
use probe_files::{Draft, ReportError};
use probe_judge::Summary;

/// Name of the file beside the reports.
pub(super) const SUSPECTS: &str = "suspects.toml";

/// Data that a step of one rank may take, as in the file and in bytes.
const BUDGET: (&str, u64) = ("1GB", 1_000_000_000);

/// Ops at fault of one part that are looked at, the first in execution order: those behind them follow from them more often.
const MOST_OF_PART: usize = 64;

/// Ops that read one result and are taken, the first in execution order.
const READERS: usize = 2;

/// Ops at fault and their neighbours, gathered part after part, or from shards that gathered theirs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Entry>", into = "Vec<Entry>")]
pub struct Suspects {
    /// By step, rank and place in execution order: the op, then its neighbours; empty for one that is no call of a function.
    found: BTreeMap<(u64, u32, usize), Vec<Wanted>>,
}

/// One op at fault as a file holds it.
type Entry = ((u64, u32, usize), Vec<Wanted>);

impl From<Vec<Entry>> for Suspects {
    fn from(entries: Vec<Entry>) -> Self {
        Self { found: entries.into_iter().collect() }
    }
}

impl From<Suspects> for Vec<Entry> {
    fn from(suspects: Suspects) -> Self {
        suspects.found.into_iter().collect()
    }
}

/// An op whose data is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Its names in the two runs, or the module that it is.
    names: BTreeSet<String>,
    /// Bytes of its tensors.
    bytes: u64,
}

/// The content of the file.
#[derive(Debug, Default)]
struct Chosen {
    steps: BTreeSet<u64>,
    ranks: BTreeSet<u32>,
    /// Names, and which are of ops at fault.
    tensors: BTreeMap<String, bool>,
    /// Number of ops at fault for which there was no room.
    left: u64,
}

impl Suspects {
    /// Returns true if no op is at fault.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds those of other parts.
    pub fn absorb(&mut self, mut other: Self) {
        self.found.append(&mut other.found);
    }

    /// Gathers the ops at fault of one part.
    pub fn part(&mut self, part: &PartReport<'_>) {
        if part.judged.findings.is_empty() {
            return;
        }
        let uses = Uses::of(part);
        for finding in part.judged.findings.iter().take(MOST_OF_PART) {
            // A step of an optimizer cannot be replayed, and has no neighbours either.
            let own = wanted(part, finding.order);
            let around = own.as_ref().map(|_| uses.around(part, finding.order)).unwrap_or_default();
            let around = around.into_iter().filter_map(|place| wanted(part, place));
            let wanted: Vec<Wanted> = own.into_iter().chain(around).collect();
            self.found.insert((finding.step, finding.rank, finding.order), wanted);
        }
    }

    /// Writes the file into `folder`, or returns `None` if there is nothing to record again; a file of an earlier comparison is then removed.
    pub(super) fn draft(&self, folder: &Path, summary: &Summary) -> Result<Option<Draft>, ReportError> {
        let path = folder.join(SUSPECTS);
        let Some(text) = self.text(&path, summary) else {
            return match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(ReportError::io(&path, error))
                }
                _ => Ok(None),
            };
        };
        let mut draft = Draft::create(&path)?;
        draft.file().write_all(text.as_bytes()).map_err(|error| draft.refused(error))?;
        Ok(Some(draft))
    }

    /// Takes the ops at fault in the order of the summary, each with its neighbours, while there is room.
    fn chosen(&self, summary: &Summary) -> Chosen {
        let mut chosen = Chosen::default();
        let Chosen { steps, ranks, tensors, left } = &mut chosen;
        let mut used = 0_u64;
        for group in &summary.groups {
            let Some(first) = summary.culprits.get(group.first) else { continue };
            let Some(wanted) = self.found.get(&(first.step, first.rank, first.order)) else {
                *left += 1;
                continue;
            };
            let new = wanted.iter().filter(|op| !op.names.iter().all(|name| tensors.contains_key(name)));
            let bytes = new.map(|op| op.bytes).fold(0, u64::saturating_add);
            if used > 0 && bytes > BUDGET.1 - used.min(BUDGET.1) {
                *left += 1;
                continue;
            }
            for (place, name) in wanted
                .iter()
                .enumerate()
                .flat_map(|(place, op)| op.names.iter().map(move |name| (place, name)))
            {
                *tensors.entry(name.clone()).or_default() |= place == 0;
            }
            if !wanted.is_empty() {
                used = used.saturating_add(bytes);
                steps.insert(first.step);
                ranks.insert(first.rank);
            }
        }
        chosen
    }

    fn text(&self, path: &Path, summary: &Summary) -> Option<String> {
        let level = level(&summary.candidate.level)?;
        let Chosen { steps, ranks, tensors, left } = self.chosen(summary);
        if tensors.is_empty() {
            return None;
        }
        let numbers = |list: Vec<String>| list.join(",");
        let mut text = String::from(
            "# The ops at fault and those that they exchange data with. Record both runs again with their data, and replay them:\n",
        );
        for run in ["BASELINE", "CANDIDATE"] {
            _ = writeln!(
                text,
                "#   probe capture --config {} -o {run} -- python train.py",
                typed(&visible(&path.display().to_string()))
            );
        }
        text.push_str("#   probe compare BASELINE CANDIDATE --confirm\n");
        if left > 0 {
            let faults = counted(left, "op");
            _ = writeln!(
                text,
                "# {faults} more at fault would take more than {} of data, or follow many others.",
                BUDGET.0
            );
        }
        _ = writeln!(text, "steps = \"{}\"", numbers(steps.iter().map(u64::to_string).collect()));
        _ = writeln!(text, "ranks = \"{}\"", numbers(ranks.iter().map(u32::to_string).collect()));
        _ = writeln!(text, "level = \"{level}\"\nmax_bytes = \"{}\"\ntensors = [", BUDGET.0);
        for (name, at_fault) in &tensors {
            let mark = if *at_fault { "  # at fault" } else { "" };
            _ = writeln!(text, "    {},{mark}", quoted(name));
        }
        text.push_str("]\n");
        Some(text)
    }
}

/// Returns the level that records the calls: those of functions inside modules, too. `None` for dumps that no capture of a program makes.
fn level(recorded: &str) -> Option<&'static str> {
    match recorded {
        "module" | "L0" | "mix" => Some("mix"),
        "api" | "L1" => Some("api"),
        "op" => Some("op"),
        _ => None,
    }
}

/// Returns the text as TOML has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => _ = write!(quoted, "\\u{:04X}", u32::from(letter)),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn wanted(part: &PartReport<'_>, place: usize) -> Option<Wanted> {
    let (baseline, candidate) = part.pair.op(part.pair.ops.get(place)?);
    let sides = [baseline, candidate].into_iter().flatten();
    let names: BTreeSet<String> = sides.clone().filter_map(pattern).collect();
    let bytes = sides.map(bytes).max().unwrap_or(0);
    (!names.is_empty()).then_some(Wanted { names, bytes })
}

/// Returns what chooses an op: of a module its path, which stands for all that runs in it. `None` for what is no call of a function: steps of
/// optimizers, whose parts are recorded at level `op`, and saved values.
fn pattern(op: &Op) -> Option<String> {
    match op.name.kind() {
        OpKind::Module => op.name.module_path().map(str::to_owned),
        OpKind::Api if !op.name.as_str().starts_with("Optimizer.") => Some(op.name.to_string()),
        _ => None,
    }
}

fn bytes(op: &Op) -> u64 {
    let tensors = op.slots.iter().filter_map(|slot| slot.value.tensor());
    let sizes = tensors.map(|tensor| {
        let size = tensor.dtype.known().map_or(8, probe_dump::DType::size);
        tensor.len().saturating_mul(size as u64)
    });
    sizes.fold(0, u64::saturating_add)
}

/// Places in execution order where functions of a part make and read values, and where each of them is.
#[derive(Debug, Default)]
struct Uses<'a> {
    made: HashMap<u32, Vec<usize>>,
    read: HashMap<u32, Vec<usize>>,
    places: HashMap<&'a str, usize>,
}

impl<'a> Uses<'a> {
    fn of(part: &PartReport<'a>) -> Self {
        let mut uses = Self::default();
        for (place, op) in part.pair.ops.iter().enumerate() {
            // A module passes on what the functions in it make, and stands for all of them.
            let (baseline, candidate) = part.pair.op(op);
            if baseline.or(candidate).is_none_or(|op| op.name.kind() != OpKind::Api) {
                continue;
            }
            uses.places.entry(part.pair.name(op)).or_insert(place);
            for (number, is_result) in values(part, place) {
                let places = if is_result { &mut uses.made } else { &mut uses.read };
                places.entry(number).or_default().push(place);
            }
        }
        uses
    }

    /// Returns the places of the calls that made what an op reads, of the first that read what it made, and of its other phase.
    fn around(&self, part: &PartReport<'_>, place: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        for (number, is_result) in values(part, place) {
            let places = if is_result { &self.read } else { &self.made };
            let places = places.get(&number).map_or(&[][..], Vec::as_slice);
            if is_result {
                found.extend(places.iter().filter(|&&other| other > place).take(READERS));
            } else {
                found.extend(places.iter().rev().find(|&&other| other < place));
            }
        }
        let (baseline, candidate) = part.pair.ops.get(place).map_or((None, None), |op| part.pair.op(op));
        if let Some(op) = baseline.or(candidate) {
            let phases =
                [Phase::Forward, Phase::Backward].into_iter().filter_map(|phase| op.name.in_phase(phase));
            found.extend(phases.filter_map(|name| self.places.get(name.as_str())));
        }
        found.remove(&place);
        found
    }
}

/// Returns the numbers of an op's values, and which are results.
fn values(part: &PartReport<'_>, place: usize) -> Vec<(u32, bool)> {
    let slots = part.pair.ops.get(place).map_or(0, |op| op.slots.len());
    let value = |slot| {
        let (baseline, candidate) = part.pair.slot_at(place, slot);
        Some(((*part.values.at(place, slot)?)?, baseline.or(candidate)?.side.is_result()))
    };
    (0..slots).filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture::{everything, full_summary};

    /// The list for a summary whose ops at fault have so many bytes of data each.
    fn listed(bytes: u64, names: impl Fn(usize) -> String) -> (usize, String) {
        let mut summary = full_summary(&everything());
        summary.candidate.level = "L1".into();
        let mut suspects = Suspects::default();
        for (number, culprit) in summary.culprits.iter().enumerate() {
            let wanted = Wanted { names: [names(number)].into(), bytes };
            suspects.found.insert((culprit.step, culprit.rank, culprit.order), vec![wanted]);
        }
        (summary.groups.len(), suspects.text(Path::new("out/suspects.toml"), &summary).unwrap())
    }

    #[test]
    fn the_first_op_is_taken_whatever_its_size_and_others_while_there_is_room() {
        let name = |number| format!("Torch.f.{number}.forward");
        let (all, text) = listed(10, name);
        assert!(all > 1);
        assert_eq!(text.matches("# at fault").count(), all);
        let (_, text) = listed(2_000_000_000, name);
        assert_eq!(text.matches("# at fault").count(), 1);
        let left = counted(all as u64 - 1, "op");
        assert!(text.contains(&format!("# {left} more at fault would take more than 1GB of data")), "{text}");
    }

    #[test]
    fn names_are_escaped_as_toml_has_it() {
        assert_eq!(quoted("layers.\"0\\\u{1b}[31m\n"), r#""layers.\"0\\\u001B[31m\u000A""#);
    }
}
