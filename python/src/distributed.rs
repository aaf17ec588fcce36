//! Sharded comparisons, for a driver that distributes them over a cluster: plan, one shard, merge. Only texts and
//! numbers cross the boundary, and the interpreter lock is released.

use std::path::{Path, PathBuf};

use probe::compare::{CompareRequest, Quiet};
use probe::report::json;
use probe::shard::{self, Plan, Shard};
use probe::store::{Stage, StageOptions, Stores};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// The object stores of this build.
pub(crate) fn stores() -> &'static dyn Stores {
    #[cfg(feature = "stores")]
    {
        static STORES: std::sync::LazyLock<probe_stores::ObjectStores> =
            std::sync::LazyLock::new(Default::default);
        &*STORES
    }
    #[cfg(not(feature = "stores"))]
    &probe::store::NoStores
}

fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn misused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Build id of the program, as recorded in plans.
#[pyfunction]
pub(crate) fn build_id() -> String {
    shard::build_id()
}

/// Writes the plan of a comparison into the folder `run`; `options` is a JSON object. Each dump named in `seen` is
/// listed at the path beside its name. Returns the path of the plan, and its groups, parts and bytes.
#[pyfunction]
pub(crate) fn plan(
    py: Python<'_>,
    baseline: PathBuf,
    candidate: PathBuf,
    run: PathBuf,
    options: &str,
    seen: Vec<(PathBuf, PathBuf)>,
) -> PyResult<(String, usize, usize, u64)> {
    let request: CompareRequest = serde_json::from_str(options).map_err(misused)?;
    let stage = Stage::new(stores(), StageOptions::default());
    let mut stage = seen.into_iter().fold(stage, |stage, (name, place)| stage.with_copy(name, place));
    let planned = py.detach(|| shard::plan_staged(&mut stage, &baseline, &candidate, &run, &request));
    let (made, path) = planned.map_err(failed)?;
    Ok((path.display().to_string(), made.groups(), made.parts(), made.bytes()))
}

/// Returns the ranks of each of `count` shards of a plan.
#[pyfunction]
pub(crate) fn shard_ranks(py: Python<'_>, plan: &str, count: u32) -> PyResult<Vec<Vec<u32>>> {
    let mut stage = Stage::new(stores(), StageOptions::default());
    py.detach(|| {
        let path = stage.file(Path::new(plan)).map_err(failed)?;
        Ok(Plan::read(&path, stage.copies()).map_err(failed)?.ranks(count))
    })
}

/// Compares one shard of a plan on this many threads. Returns its number of parts, whether it was done before, and
/// its first op at fault.
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
    let mut stage = Stage::new(stores(), StageOptions::default());
    let compared =
        py.detach(|| pool.install(|| shard::compare_shard_staged(&mut stage, &plan, wanted, &Quiet)));
    let done = compared.map_err(failed)?;
    Ok((done.parts, done.was_done, done.first))
}

/// Folds the shards in the folder `run` and writes the reports there. Returns `report.json` as text, and the missing
/// shards.
#[pyfunction]
pub(crate) fn merge(py: Python<'_>, run: PathBuf) -> PyResult<(String, Vec<u32>)> {
    let mut stage = Stage::new(stores(), StageOptions::default());
    py.detach(|| {
        let (found, _) = shard::merge_staged(&mut stage, &run, None).map_err(failed)?;
        Ok((json::text(&found.summary).map_err(misused)?, found.missing))
    })
}
