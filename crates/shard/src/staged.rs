//! Plan, shards and merge for dumps or runs in object stores: each step first copies the data it needs, and finally uploads its output. For local
//! paths, these functions do the same as [`plan`], [`compare_shard`](super::compare_shard) and [`merge`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::share::{compare_shard_if, folder_of, read_done};
use super::{Merged, PART, PLAN, Plan, PlanError, Shard, ShardOutcome, merge, plan};
use probe_compare::{CompareError, CompareRequest, Progress};
use probe_report::{Extent, Format, ReportSet};
use probe_store::{Selection, Stage};

/// Plans a comparison into the folder `run`. For dumps in stores, only the names and sizes of parts are fetched.
///
/// # Errors
/// [`PlanError`] as for [`plan`], and when something cannot be copied from or put into its store.
pub fn plan_staged(
    stage: &mut Stage<'_>,
    baseline: &Path,
    candidate: &Path,
    run: &Path,
    request: &CompareRequest,
) -> Result<(Plan, PathBuf), PlanError> {
    let listed = Selection { list_only: true, ..Selection::default() };
    let run = stage.output(run)?;
    let (baseline, candidate) = (stage.dump(baseline, &listed)?, stage.dump(candidate, &listed)?);
    let request = stage.request(request, &listed)?;
    let made = plan(&baseline, &candidate, &run, &request, stage.copies());
    stage.sound()?;
    let made = made?;
    let path = run.join(PLAN);
    stage.deliver(&[stage.copies().place(&path)])?;
    Ok((made, path))
}

/// Compares a shard of the plan given as `typed`. For dumps in stores, only its ranks and steps are copied; `part.json` is
/// uploaded last.
///
/// # Errors
/// [`PlanError`] as for [`compare_shard`](super::compare_shard), and when something cannot be copied from or put into its
/// store.
pub fn compare_shard_staged(
    stage: &mut Stage<'_>,
    typed: &Path,
    shard: Shard,
    progress: &dyn Progress,
) -> Result<ShardOutcome, PlanError> {
    let path = stage.file(typed)?;
    let plan = Plan::read(&path, stage.copies())?;
    let folder = folder_of(path.parent().unwrap_or(Path::new("")), &plan, shard);
    let part = folder.join(PART);
    stage.file_if_there(&part)?;
    let done = read_done(&folder, &plan, plan.hash(), shard, stage.copies())?;
    if !done.is_some_and(|done| done.fold.run.incomplete.is_empty()) {
        stage.output(&folder)?;
        let needs = plan.needs(shard);
        for file in &needs.files {
            stage.file(file)?;
        }
        for (dumps, or_all) in [(needs.sides, false), (needs.references, true)] {
            for (dump, steps, ranks) in dumps {
                stage.dump(&dump, &Selection { steps, ranks, or_all, list_only: false })?;
            }
        }
    }
    let sound = || Ok(stage.sound()?);
    let outcome = compare_shard_if(&path, shard, stage.copies(), progress, &sound);
    sound()?;
    let outcome = outcome?;
    if !outcome.was_done {
        // The `part.json` of an earlier attempt is removed before its rows are replaced.
        stage.remove(&part)?;
        let place = stage.copies().place(&folder);
        let rows = place.join(Format::Parquet.file_name());
        let written = [rows, place.join(PART)];
        let there: Vec<PathBuf> = written.into_iter().filter(|file| file.is_file()).collect();
        stage.deliver(&there)?;
    }
    Ok(outcome)
}

/// Default reports of a run of shards. Rows stay in the shards.
const FORMATS: [Format; 4] = [Format::Text, Format::Xlsx, Format::Json, Format::Html];

/// Folds the shards in the folder `run` and writes the reports there; without `formats` the usual ones and the list of ops to record again.
/// Returns the names of the reports.
///
/// # Errors
/// [`PlanError`] as for [`merge`], and when a report cannot be written or something cannot be copied from or put into its
/// store.
pub fn merge_staged(
    stage: &mut Stage<'_>,
    run: &Path,
    formats: Option<&[Format]>,
) -> Result<(Merged, Vec<PathBuf>), PlanError> {
    let path = stage.file(&run.join(PLAN))?;
    let plan = Plan::read(&path, stage.copies())?;
    let shards = format!("{}/", plan.name());
    let run = stage.folder(run, |key| key.starts_with(&shards) && key.ends_with(&format!("/{PART}")))?;
    let mut found = merge(&run, stage.copies())?;
    let wanted: BTreeSet<&Path> = found.rows.iter().filter_map(|row| row.strip_prefix(&run).ok()).collect();
    stage.folder(&run, |key| wanted.contains(Path::new(key)))?;
    let run = stage.output(&run)?;
    let rows: Vec<PathBuf> = found.rows.iter().map(|row| stage.copies().place(row)).collect();
    let place = stage.copies().place(&run);
    let mut reports = ReportSet::create(&place, formats.unwrap_or(&FORMATS), Extent::Selection)
        .map_err(CompareError::from)?;
    if formats.is_none() {
        reports = reports.with_suspects(std::mem::take(&mut found.suspects));
    }
    let written = reports.finish_stored(&rows, &found.summary)?;
    let written = stage.deliver(&written)?;
    Ok((found, written))
}
