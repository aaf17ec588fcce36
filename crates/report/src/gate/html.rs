//! The HTML page of a gate: its findings, and the history of gates that led to them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::model::GateReport;
use crate::html;
use probe_dump::Exact;
use probe_gate::history::{Entry, names};
use probe_gate::past::{Past, Worst};
use probe_gate::{Case, GateOutcome, Status};

/// Maximum number of cases on a page; passed cases are dropped first.
const MAX_CASES: usize = 20_000;

/// Maximum number of scalars, and of modules, whose history is on a page.
const MAX_SERIES: usize = 400;

/// Data of the page of a gate.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct GatePage<'a> {
    gate: GateReport<'a>,
    cases: Vec<&'a Case>,
    cases_left_out: usize,
    /// Null if no history is kept.
    history: Option<History<'a>>,
}

/// Gate after gate; runs are numbered over the whole history.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct History<'a> {
    /// Number of the first run included here.
    first: usize,
    runs: Vec<HistoryRun<'a>>,
    scalars: Vec<Scalar<'a>>,
    jumps: Vec<Jump<'a>>,
    drifts: Vec<Drift<'a>>,
    modules: Vec<Module<'a>>,
    scalars_left_out: usize,
    modules_left_out: usize,
    faults: &'a [String],
}

/// A gate of the history.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct HistoryRun<'a> {
    time: u64,
    commit: Option<&'a str>,
    state: &'a str,
    environment: &'a str,
    culprit: Option<&'a str>,
}

/// A scalar by run; null where a run does not have it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Scalar<'a> {
    name: &'a str,
    means: Vec<Option<Exact>>,
    lasts: Vec<Option<Exact>>,
}

/// A scalar that has jumped.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Jump<'a> {
    scalar: &'a str,
    run: usize,
    change: Exact,
    environment: bool,
}

/// A scalar that drifts.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Drift<'a> {
    scalar: &'a str,
    from: usize,
    change: Exact,
}

/// A module by run; null where a run does not have it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Module<'a> {
    name: &'a str,
    errors: Vec<Option<Exact>>,
    statuses: Vec<Option<&'a str>>,
}

/// Returns the page. `past` holds the history, with this gate as its last run.
pub(super) fn document(outcome: &GateOutcome, past: Option<&Past>) -> std::io::Result<Vec<u8>> {
    let (passed, told): (Vec<&Case>, Vec<&Case>) =
        outcome.cases.iter().partition(|case| case.status == Status::Passed);
    let cases: Vec<&Case> = told.into_iter().chain(passed).take(MAX_CASES).collect();
    let page = GatePage {
        gate: outcome.into(),
        cases_left_out: outcome.cases.len() - cases.len(),
        cases,
        history: past.map(History::of),
    };
    html::document("gate", &page)
}

impl<'a> History<'a> {
    fn of(past: &'a Past) -> Self {
        let first = past.first_shown();
        let entries = past.entries.get(first..).unwrap_or_default();
        let all = names(entries);
        let scalars = all.iter().take(MAX_SERIES).map(|name| Scalar::of(name, entries)).collect();
        let jumps = past.trend.jumps.iter().filter(|jump| jump.run >= first);
        let by_name = by_name(past, first);
        let mut modules: Vec<Module<'_>> =
            by_name.iter().map(|(name, runs)| Module::of(name, runs, entries.len(), first)).collect();
        // The most informative come first: failures, then the largest errors.
        modules.sort_by(|a, b| b.weight().partial_cmp(&a.weight()).unwrap_or(std::cmp::Ordering::Equal));
        let modules_left_out = modules.len().saturating_sub(MAX_SERIES);
        modules.truncate(MAX_SERIES);
        Self {
            first,
            runs: entries.iter().map(HistoryRun::of).collect(),
            scalars,
            jumps: jumps
                .map(|jump| Jump {
                    scalar: &jump.scalar,
                    run: jump.run,
                    change: Exact(jump.change),
                    environment: jump.environment,
                })
                .collect(),
            drifts: past
                .trend
                .drifts
                .iter()
                .map(|drift| Drift { scalar: &drift.scalar, from: drift.from, change: Exact(drift.change) })
                .collect(),
            modules,
            scalars_left_out: all.len().saturating_sub(MAX_SERIES),
            modules_left_out,
            faults: &past.faults,
        }
    }
}

/// Returns the modules of the runs from `first` on.
fn by_name(past: &Past, first: usize) -> BTreeMap<&str, BTreeMap<usize, &Worst>> {
    let shown = past.modules.range(first..);
    let names: BTreeSet<&str> =
        shown.clone().flat_map(|(_, modules)| modules.keys().map(String::as_str)).collect();
    let runs_of =
        |name: &str| shown.clone().filter_map(|(run, modules)| Some((*run, modules.get(name)?))).collect();
    names.into_iter().map(|name| (name, runs_of(name))).collect()
}

impl<'a> HistoryRun<'a> {
    fn of(entry: &'a Entry) -> Self {
        let Entry { time, commit, state, environment, culprit, .. } = entry;
        Self { time: *time, commit: commit.as_deref(), state, environment, culprit: culprit.as_deref() }
    }
}

impl<'a> Scalar<'a> {
    fn of(name: &'a str, entries: &[Entry]) -> Self {
        let points = || entries.iter().map(|entry| entry.scalars.get(name));
        Self {
            name,
            means: points().map(|point| point.map(|point| point.mean)).collect(),
            lasts: points().map(|point| point.map(|point| point.last)).collect(),
        }
    }
}

impl<'a> Module<'a> {
    fn of(name: &'a str, runs: &BTreeMap<usize, &'a Worst>, count: usize, first: usize) -> Self {
        let of_run = |run: usize| runs.get(&(run + first));
        Self {
            name,
            errors: (0..count).map(|run| of_run(run).and_then(|worst| worst.error.map(Exact))).collect(),
            statuses: (0..count).map(|run| of_run(run).map(|worst| &*worst.status)).collect(),
        }
    }

    /// Returns whether it failed in the last run, how often it failed, and its largest error.
    fn weight(&self) -> (bool, usize, f64) {
        let known = || self.statuses.iter().flatten();
        let failed = known().filter(|status| **status == "failed").count();
        let last = known().next_back().is_some_and(|status| *status == "failed");
        let largest =
            self.errors.iter().flatten().fold(0.0, |most: f64, error| {
                if error.0.is_nan() { f64::INFINITY } else { most.max(error.0) }
            });
        (last, failed, largest)
    }
}
