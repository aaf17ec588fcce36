//! Pages built from rows of earlier comparisons: one `result.parquet` with the answer in its metadata, or the shards of a run.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::begin;
use super::head::Head;
use super::pack::{Packer, needed};
use super::page::Page;
use crate::columns::SlotColumn;
use crate::gallery::MAX_PORTRAITS;
use crate::parquet::PORTRAITS;
use crate::replays::Replay;
use crate::stored::{StoredError, StoredFile, StoredPart, StoredRun};
use probe_files::Draft;
use probe_judge::Summary;

/// Maximum number of values on a page of many shards: about as many as a browser can show.
const MAX_VALUES: usize = 600_000;

#[derive(Debug, Serialize)]
struct Stored<'a> {
    report: &'a RawValue,
    portraits: &'a RawValue,
    replays: &'a [Replay],
}

/// Makes a page of a result, with the replays beside it, to be placed at `target`.
///
/// # Errors
/// [`StoredError`] when the result is damaged or was written by a version that did not store what a page needs, or when the page
/// cannot be written.
pub fn from_result(file: &StoredFile, target: &Path) -> Result<Draft, StoredError> {
    let report = file.answer()?.to_owned();
    let report = RawValue::from_string(report).map_err(|error| file.damaged(error))?;
    let portraits = file.text(PORTRAITS).and_then(|text| RawValue::from_string(text.to_owned()).ok());
    let portraits = portraits.ok_or_else(|| file.damaged("no portraits"))?;
    let replays = file.replays()?;
    let mut draft = Draft::create(target)?;
    let mut page = begin(&mut draft)?;
    let mut packer = Packer::default();
    add(file, None, &mut packer, &mut page, &draft)?;
    page.add(packer.take()).map_err(|error| draft.refused(error))?;
    let stored = Stored { report: &report, portraits: &portraits, replays: &replays };
    let finished = page.finish(&Head::comparison(&stored));
    match finished {
        Ok(_) => Ok(draft),
        Err(error) => Err(draft.refused(error).into()),
    }
}

/// Adds rows of a file to a page.
fn add(
    file: &StoredFile,
    ranges: Option<&[Range<usize>]>,
    packer: &mut Packer,
    page: &mut Page<BufWriter<File>>,
    draft: &Draft,
) -> Result<(), StoredError> {
    let columns: Vec<SlotColumn> = needed().collect();
    let mut last = None;
    file.read(&columns, ranges, &mut |row| {
        let place = row.part().zip(row.order());
        let place = place.ok_or_else(|| file.damaged("a row without step, rank or order"))?;
        if last != Some(place) {
            if packer.is_full() {
                page.add(packer.take()).map_err(|error| draft.refused(error))?;
            }
            let ((step, rank), _) = place;
            packer.op(step, rank, |column| Some(row.cell(column)));
            last = Some(place);
        }
        packer.slot(|column| row.cell(column));
        Ok(())
    })
}

/// Adds the rows of a run to a page: all of them, or only the steps and ranks at fault if there are too many. Returns the portraits.
pub(super) fn add_run(
    run: &StoredRun,
    summary: &Summary,
    packer: &mut Packer,
    page: &mut Page<BufWriter<File>>,
    draft: &Draft,
) -> Result<Vec<Box<RawValue>>, StoredError> {
    let chosen = chosen(run, summary);
    for (number, file) in run.files.iter().enumerate() {
        let parts = || chosen.iter().filter(|part| part.file == number);
        let ranges: Vec<Range<usize>> = parts().map(|part| part.rows.clone()).collect();
        if !ranges.is_empty() {
            add(file, Some(&ranges), packer, page, draft)?;
        }
    }
    portraits(run, summary, &chosen)
}

/// Returns the parts included in the page, in file order.
fn chosen<'a>(run: &'a StoredRun, summary: &Summary) -> Vec<&'a StoredPart> {
    if run.count() <= MAX_VALUES {
        return run.parts.iter().collect();
    }
    let by_place: HashMap<(u64, u32), usize> =
        run.parts.iter().enumerate().map(|(index, part)| ((part.step, part.rank), index)).collect();
    let at_fault = summary.culprits.iter().filter_map(|finding| by_place.get(&(finding.step, finding.rank)));
    let mut in_order: Vec<usize> = (0..run.parts.len()).collect();
    in_order.sort_by_key(|&index| (run.parts[index].step, run.parts[index].rank));
    // If nothing is at fault, the first parts are taken, so that the page is not empty.
    let in_order = if summary.culprits.is_empty() { in_order } else { Vec::new() };
    let (mut taken, mut values) = (BTreeSet::new(), 0);
    for &index in at_fault.chain(&in_order) {
        let rows = run.parts[index].rows.len();
        if taken.contains(&index) || (values + rows > MAX_VALUES && values > 0) {
            continue;
        }
        taken.insert(index);
        values += rows;
    }
    taken.into_iter().map(|index| &run.parts[index]).collect()
}

/// The part that a portrait belongs to.
#[derive(Deserialize)]
struct Of {
    step: u64,
    rank: u32,
    order: u64,
}

/// Returns the portraits of the parts included in the page, those of the first findings.
fn portraits(
    run: &StoredRun,
    summary: &Summary,
    chosen: &[&StoredPart],
) -> Result<Vec<Box<RawValue>>, StoredError> {
    let places: BTreeSet<(u64, u32)> = chosen.iter().map(|part| (part.step, part.rank)).collect();
    let findings = summary.culprits.iter().enumerate();
    let weight: HashMap<(u64, u32, u64), usize> = findings
        .map(|(index, finding)| ((finding.step, finding.rank, finding.order as u64), index))
        .collect();
    let mut found = Vec::new();
    for file in &run.files {
        let text = file.text(PORTRAITS).unwrap_or("[]");
        let list: Vec<Box<RawValue>> =
            serde_json::from_str(text).map_err(|error| file.damaged(format!("portraits: {error}")))?;
        for portrait in list {
            let Of { step, rank, order } = serde_json::from_str(portrait.get())
                .map_err(|error| file.damaged(format!("portraits: {error}")))?;
            if places.contains(&(step, rank)) {
                let place = (step, rank, order);
                found.push((weight.get(&place).copied().unwrap_or(usize::MAX), place, portrait));
            }
        }
    }
    found.sort_by_key(|(weight, place, _)| (*weight, *place));
    found.truncate(MAX_PORTRAITS);
    Ok(found.into_iter().map(|(_, _, portrait)| portrait).collect())
}
