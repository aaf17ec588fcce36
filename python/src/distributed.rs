//! Comparisons in shards, for a driver that hands them to a cluster: plan, one shard, merge. Only texts and numbers cross, and the interpreter
//! lock is released.

use std::path::PathBuf;

use probe::compare::{CompareOptions, Quiet};
use probe::judge::Rules;
use probe::pair::Mapping;
use probe::read::map::FileAccess;
use probe::report::{Extent, Format, ReportSet, json};
use probe::shard::{self, PLAN, PlanError, PlanOptions, Shard};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Deserialize;

/// What `probe plan` takes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, as on the command line")]
struct Options {
    steps: Option<String>,
    ranks: Option<String>,
    level: Option<String>,
    tolerance: Option<PathBuf>,
    mapping: Option<PathBuf>,
    noise: Vec<PathBuf>,
    reference: Option<PathBuf>,
    any_task: bool,
    any_level: bool,
    rows: bool,
    no_mmap: bool,
}

fn failed(error: PlanError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn misused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

impl Options {
    fn plan(self) -> PyResult<PlanOptions> {
        let mut compare = CompareOptions::default();
        let numbers = |text: &Option<String>| text.as_deref().map(str::parse).transpose().map_err(misused);
        compare.steps = numbers(&self.steps)?.unwrap_or_default();
        compare.ranks = numbers(&self.ranks)?.unwrap_or_default();
        if let Some(level) = &self.level {
            let known = probe::compare::LevelFilter::ALL.into_iter().find(|known| known.name() == level);
            compare.level =
                known.ok_or_else(|| misused(format!("no level {level:?}; choose module, api, op or all")))?;
        }
        if let Some(path) = &self.tolerance {
            compare.rules = Rules::from_file(path).map_err(misused)?;
        }
        if let Some(path) = &self.mapping {
            compare.mapping = Mapping::from_file(path).map_err(misused)?;
        }
        compare.noise = self.noise;
        compare.reference = self.reference;
        compare.any_task = self.any_task;
        compare.any_level = self.any_level;
        compare.rows = self.rows;
        if self.no_mmap {
            compare.access = FileAccess::Read;
        }
        let mut options = PlanOptions::default();
        options.compare = compare;
        options.steps = self.steps;
        options.ranks = self.ranks;
        options.tolerance = self.tolerance;
        options.mapping = self.mapping;
        Ok(options)
    }
}

/// The program, as plans know it.
#[pyfunction]
pub(crate) fn build_id() -> String {
    shard::build_id()
}

/// Writes the plan of a comparison into the folder `run`; `options` is a JSON object. Returns the path of the plan, and its groups, parts and bytes.
#[pyfunction]
pub(crate) fn plan(
    py: Python<'_>,
    baseline: PathBuf,
    candidate: PathBuf,
    run: PathBuf,
    options: &str,
) -> PyResult<(String, usize, usize, u64)> {
    let options: Options = serde_json::from_str(options).map_err(misused)?;
    let options = options.plan()?;
    let made = py.detach(|| shard::plan(&baseline, &candidate, &run, &options)).map_err(failed)?;
    Ok((run.join(PLAN).display().to_string(), made.groups(), made.parts(), made.bytes()))
}

/// Compares one shard of a plan with so many threads. Returns its number of parts, whether it was done before, and its first op at fault.
#[pyfunction]
pub(crate) fn compare_shard(
    py: Python<'_>,
    plan: PathBuf,
    index: u32,
    count: u32,
    threads: usize,
) -> PyResult<(usize, bool, Option<String>)> {
    let wanted =
        Shard::new(index, count).ok_or_else(|| misused(format!("there is no shard {index} of {count}")))?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(misused)?;
    let done = py.detach(|| pool.install(|| shard::compare_shard(&plan, wanted, &Quiet))).map_err(failed)?;
    Ok((done.parts, done.was_done, done.first))
}

/// Folds the shards in the folder `run` and writes the reports there. Returns `report.json` as text, and the shards that are missing.
#[pyfunction]
pub(crate) fn merge(py: Python<'_>, run: PathBuf) -> PyResult<(String, Vec<u32>)> {
    py.detach(|| {
        let found = shard::merge(&run).map_err(failed)?;
        let reports = ReportSet::create(&run, &FORMATS, Extent::Selection).map_err(unwritable)?;
        reports.finish_stored(&found.rows, &found.summary).map_err(unwritable)?;
        Ok((json::text(&found.summary).map_err(misused)?, found.missing))
    })
}

/// Reports of a merge; rows stay in the shards.
const FORMATS: [Format; 4] = [Format::Text, Format::Xlsx, Format::Json, Format::Html];

fn unwritable(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
