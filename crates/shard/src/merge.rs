//! Folds the shards of a plan.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::share::{Done, folder_of, read_done};
use super::{PLAN, Plan, PlanError, Shard};
use probe_compare::Fold;
use probe_files::Copies;
use probe_judge::Summary;
use probe_report::Suspects;

/// Maximum number of missing shards that are listed one by one.
const LISTED: usize = 50;

/// The answer, and the shards missing from it.
#[derive(Debug)]
pub struct Merged {
    /// The answer from the shards that are done.
    pub summary: Summary,
    /// Number of shards.
    pub shards: u32,
    /// Shards that are not done, by number.
    pub missing: Vec<u32>,
    /// Names of the files of rows, one for each shard that is done.
    pub rows: Vec<PathBuf>,
    /// Remarks about shards of other plans and of other shard counts, which were ignored.
    pub notes: Vec<String>,
    /// The ops at fault and their neighbours, to record again.
    pub suspects: Suspects,
}

/// Folds the shards of the plan in the folder called `run`.
///
/// If the plan was run with several shard counts, the one with the largest fraction done is used, the smallest among equals, because mixing two would
/// count parts twice.
///
/// # Errors
/// [`PlanError`] when there is no plan, no shard is done, a shard cannot be read, or the options forbid to compare the existing
/// data.
pub fn merge(run: &Path, copies: &Copies) -> Result<Merged, PlanError> {
    let started = Instant::now();
    let path = run.join(PLAN);
    let plan = Plan::read(&path, copies)?;
    let (count, mut notes) = count(run, &plan, copies)?;
    let mut fold = plan.prologue();
    let (mut missing, mut rows, mut suspects) = (Vec::new(), Vec::new(), Suspects::default());
    for index in 1..=count {
        let Some(shard) = Shard::new(index, count) else { continue };
        let folder = folder_of(run, &plan, shard);
        match read_done(&folder, &plan, plan.hash(), shard, copies)? {
            Some(Done { fold: found, suspects: more }) => {
                fold.absorb(found);
                suspects.absorb(more);
                rows.push(folder.join(probe_report::Format::Parquet.file_name()));
            }
            // A missing shard without any parts is no loss.
            None if plan.matches(shard).is_empty() => {}
            None => missing.push(index),
        }
    }
    if let Some((_, reason)) = fold.refused.take() {
        return Err(PlanError::Refused(reason));
    }
    tell_missing(&mut fold, &missing, count, &path);
    if rows.is_empty() {
        let message =
            format!("none of its {count} shards is done; run: {}", command(&path, &format!("1/{count}")));
        return Err(PlanError::Misuse { path, message });
    }
    let summary = fold.finish(plan.sides(), plan.level(), started.elapsed().as_secs_f64())?;
    notes.extend(others(run, &plan, copies));
    Ok(Merged { summary, shards: count, missing, rows, notes, suspects })
}

fn tell_missing(fold: &mut Fold, missing: &[u32], count: u32, plan: &Path) {
    for index in missing.iter().take(LISTED) {
        let shard = format!("{index}/{count}");
        fold.run
            .add_incomplete(format!("shard {shard}"), format!("not done; run: {}", command(plan, &shard)));
    }
    if missing.len() > LISTED {
        let numbers: Vec<String> = missing.iter().skip(LISTED).map(ToString::to_string).collect();
        fold.run.add_incomplete(
            format!("{} more shards", numbers.len()),
            format!(
                "not done: {} of {count}; run each with: {}",
                numbers.join(","),
                command(plan, "N/COUNT")
            ),
        );
    }
}

fn command(plan: &Path, shard: &str) -> String {
    format!("probe compare --plan {} --shard {shard}", plan.display())
}

/// Returns the shard count to use.
fn count(run: &Path, plan: &Plan, copies: &Copies) -> Result<(u32, Vec<String>), PlanError> {
    let folder = run.join(plan.name());
    let none = || PlanError::Misuse {
        path: run.join(PLAN),
        message: format!("no shard of it is done; run: {}", command(&run.join(PLAN), "1/1")),
    };
    let entries = fs::read_dir(copies.place(&folder)).map_err(|_| none())?;
    let mut found: Vec<(usize, u32)> = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let Some(count) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let done = (1..=count).filter_map(|index| Shard::new(index, count)).filter(|&shard| {
            copies.place(&folder_of(run, plan, shard).join(super::PART)).is_file()
                || plan.matches(shard).is_empty()
        });
        let missing = count as usize - done.count();
        found.push((missing, count));
    }
    // The same number of missing shards is a smaller fraction of a larger count.
    found.sort_by(|a, b| {
        (a.0 as u64 * u64::from(b.1)).cmp(&(b.0 as u64 * u64::from(a.1))).then(a.1.cmp(&b.1))
    });
    let (_, count) = *found.first().ok_or_else(none)?;
    let others: Vec<String> = found.iter().skip(1).map(|(_, other)| other.to_string()).collect();
    let note =
        format!("{}: run in {count} shards; those of {} are ignored", folder.display(), others.join(" and "));
    Ok((count, if others.is_empty() { Vec::new() } else { vec![note] }))
}

/// Returns a remark about shards of other plans.
fn others(run: &Path, plan: &Plan, copies: &Copies) -> Option<String> {
    let is_plan =
        |name: &str| name.len() == plan.name().len() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let entries = fs::read_dir(copies.place(run)).ok()?;
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_plan(name) && name != plan.name())
        .collect();
    names.sort();
    let list = names.join(", ");
    (!names.is_empty()).then(|| format!("{}: shards of other plans, ignored: {list}", run.display()))
}
