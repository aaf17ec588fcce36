//! Earlier gates as the page of a gate shows them: the lines of the history, and the worst result of each module in
//! each run.

use std::collections::BTreeMap;
use std::path::Path;

use super::history::{self, Entry, Trend};
use super::outcome::{Case, GateOutcome, Kind};

/// Number of runs that a page shows, the latest ones.
pub const RUNS: usize = 500;

/// Number of module tables that are read, the latest ones.
const TABLES: usize = 100;

/// Maximum number of rows of a module table; a larger table is skipped.
const MAX_ROWS: i64 = 1 << 22;

/// Gates in chronological order; the last is the one being reported.
#[derive(Debug, Clone, Default)]
pub struct Past {
    /// The gates.
    pub entries: Vec<Entry>,
    /// Jumps and slow drifts of all of them.
    pub trend: Trend,
    /// The worst result of each module, by run and by name. Runs without a table have no entry.
    pub modules: BTreeMap<usize, BTreeMap<String, Worst>>,
    /// Problems in reading the history.
    pub faults: Vec<String>,
}

/// The worst result of a module over the steps and ranks of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Worst {
    /// Its status: `passed`, `failed`, `follows`, `waived` or `unverified`.
    pub status: String,
    /// Largest relative error; absent if nothing comparable was recorded.
    pub error: Option<f64>,
}

impl Past {
    /// Returns the contents of the history in `folder`, with `entry` of `outcome` as its last run. A history that cannot be
    /// read is reported in [`Past::faults`]: it is no reason to withhold a result.
    pub fn of(folder: &Path, entry: Entry, outcome: &GateOutcome) -> Self {
        let mut past = Self::default();
        if folder.join(history::FILE).exists() {
            match history::read(folder) {
                Ok(entries) => past.entries = entries,
                Err(error) => past.faults.push(error.to_string()),
            }
        }
        past.read_modules(folder);
        past.entries.push(entry);
        past.trend = history::trend(&past.entries);
        let cases = outcome.cases.iter().filter(|case| case.kind != Kind::Scalar);
        let mut modules = BTreeMap::new();
        for Case { name, status, error, .. } in cases {
            add(&mut modules, name, status.name(), error.map(|error| error.0));
        }
        if !modules.is_empty() {
            past.modules.insert(past.entries.len() - 1, modules);
        }
        past
    }

    /// Returns the first run that is shown.
    pub fn first_shown(&self) -> usize {
        self.entries.len().saturating_sub(RUNS)
    }

    /// Reads the tables of the latest runs.
    fn read_modules(&mut self, folder: &Path) {
        let mut tables = tables(&folder.join(history::MODULES));
        let wanted = self.entries.len().saturating_sub(TABLES);
        for (run, entry) in self.entries.iter().enumerate().skip(wanted) {
            // If two gates of one commit ended in the same second, either may come first.
            let Some(paths) = tables.get_mut(&table_name(entry)) else { continue };
            let Some(path) = paths.pop() else { continue };
            match read_table(&path) {
                Ok(modules) => _ = self.modules.insert(run, modules),
                Err(reason) => self.faults.push(format!("{}: {reason}", path.display())),
            }
        }
    }
}

/// Returns the name of the module table of a run, without the suffix that distinguishes jobs of the same second.
pub fn table_name(entry: &Entry) -> String {
    let commit: String = entry.commit.as_deref().unwrap_or("unknown").chars().take(12).collect();
    format!("{}-{commit}", entry.time)
}

/// Returns the severity of a status: for a module in many steps and ranks, the worst status is shown.
fn severity(status: &str) -> usize {
    ["passed", "waived", "follows", "unverified"].iter().position(|known| *known == status).unwrap_or(4)
}

fn add(modules: &mut BTreeMap<String, Worst>, name: &str, status: &str, error: Option<f64>) {
    let Some(worst) = modules.get_mut(name) else {
        modules.insert(name.to_owned(), Worst { status: status.to_owned(), error });
        return;
    };
    if severity(status) > severity(&worst.status) {
        status.clone_into(&mut worst.status);
    }
    // NaN is worse than any number.
    let is_worse = |new: f64, old: f64| new.is_nan() || new > old;
    if let Some(error) = error
        && worst.error.is_none_or(|old| is_worse(error, old))
    {
        worst.error = Some(error);
    }
}

/// Returns the module tables by the time and commit in their names.
fn tables(folder: &Path) -> BTreeMap<String, Vec<std::path::PathBuf>> {
    let mut found: BTreeMap<String, Vec<std::path::PathBuf>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.rsplit_once('-'));
        if let Some((run, _)) = name {
            found.entry(run.to_owned()).or_default().push(path);
        }
    }
    for paths in found.values_mut() {
        paths.sort();
        paths.reverse();
    }
    found
}

/// Reads a table of modules.
///
/// # Errors
/// The reason why it cannot be read.
fn read_table(path: &Path) -> Result<BTreeMap<String, Worst>, String> {
    probe_files::guarded(|| rows_of(path)).unwrap_or_else(|| Err("is damaged".into()))
}

fn rows_of(path: &Path) -> Result<BTreeMap<String, Worst>, String> {
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::Float64Type;
    use parquet::arrow::ProjectionMask;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    let damaged = |error: &dyn std::fmt::Display| format!("is not a table of modules: {error}");
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(&error))?;
    let rows = builder.metadata().file_metadata().num_rows();
    if !(0..=MAX_ROWS).contains(&rows) {
        return Err(format!("claims {rows} rows, more than {MAX_ROWS}"));
    }
    let mask = ProjectionMask::columns(builder.parquet_schema(), ["name", "status", "error"]);
    let batches = builder.with_projection(mask).build().map_err(|error| damaged(&error))?;
    let mut modules = BTreeMap::new();
    for batch in batches {
        let batch = batch.map_err(|error| damaged(&error))?;
        let text = |name: &str| batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
        let errors =
            batch.column_by_name("error").and_then(|column| column.as_primitive_opt::<Float64Type>());
        let (Some(names), Some(statuses), Some(errors)) = (text("name"), text("status"), errors) else {
            return Err(damaged(&"a column is missing"));
        };
        for row in 0..batch.num_rows() {
            let error = errors.is_valid(row).then(|| errors.value(row));
            add(&mut modules, names.value(row), statuses.value(row), error);
        }
    }
    Ok(modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_module_the_worst_is_kept() {
        let mut modules = BTreeMap::new();
        for (status, error) in
            [("passed", Some(1e-7)), ("follows", Some(1e-3)), ("passed", None), ("passed", Some(1e-5))]
        {
            add(&mut modules, "layers.0", status, error);
        }
        assert_eq!(modules["layers.0"], Worst { status: "follows".into(), error: Some(1e-3) });
        add(&mut modules, "layers.0", "failed", Some(f64::NAN));
        add(&mut modules, "layers.0", "unverified", Some(1.0));
        assert_eq!(modules["layers.0"].status, "failed");
        assert!(modules["layers.0"].error.unwrap().is_nan());
    }
}
