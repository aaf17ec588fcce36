//! History of gates: one line of JSON per gate, from which jumps and slow drift are detected.
//!
//! The folder is append-only: `history.jsonl`, and beside it a table of the modules of each run. It belongs in artifact storage or on a separate
//! branch, never beside the baseline.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::environment::fingerprint;
use super::import::Series;
use super::outcome::GateOutcome;
use probe_dump::Exact;
use probe_files::ReportError;
use probe_files::limits;
use probe_read::ReadError;

/// Name of the file in the folder.
pub const FILE: &str = "history.jsonl";

/// Folder of the tables of modules.
pub const MODULES: &str = "modules";

/// Number of runs on which a statement about slow drift is based.
pub const WINDOW: usize = 20;

/// A change is a jump if it is this many times the usual change from run to run; normally distributed changes reach that once in 1e15.
const JUMP: f64 = 8.0;

/// Standard deviations of the Mann-Kendall rank statistic beyond which a trend counts: a chance of 1 in 370 in both directions.
const TREND: f64 = 3.0;

/// One gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    /// Seconds since 1970.
    pub time: u64,
    /// The commit; absent where it is not known.
    #[serde(default)]
    pub commit: Option<String>,
    /// The answer.
    pub state: String,
    /// Identifies the candidate's environment; empty if nothing was recorded.
    pub environment: String,
    /// The first culprit: op and slot, module or scalar; absent where there is none.
    #[serde(default)]
    pub culprit: Option<String>,
    /// Scalars of the candidate.
    pub scalars: BTreeMap<String, Point>,
}

/// A scalar of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// Steps that it has.
    pub steps: u64,
    /// Mean over its steps.
    pub mean: Exact,
    /// At the last step.
    pub last: Exact,
    /// Identifies all of its values, to the bit.
    pub hash: String,
}

/// A run that differs from the previous one far more than runs usually do.
#[derive(Debug, Clone, PartialEq)]
pub struct Jump {
    /// The scalar.
    pub scalar: String,
    /// Position of the run in the history, from 0.
    pub run: usize,
    /// Relative change of the mean.
    pub change: f64,
    /// True if the environment changed.
    pub environment: bool,
}

/// A scalar that moves in one direction, run after run, without a jump.
#[derive(Debug, Clone, PartialEq)]
pub struct Drift {
    /// The scalar.
    pub scalar: String,
    /// Position of the first run of the window, from 0.
    pub from: usize,
    /// Relative change of the mean from the first to the last run of the window.
    pub change: f64,
}

/// Trends of a history.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trend {
    /// Jumps, in the order of runs.
    pub jumps: Vec<Jump>,
    /// Slow drifts.
    pub drifts: Vec<Drift>,
}

impl Entry {
    /// Returns the entry recorded for an outcome.
    pub fn of(outcome: &GateOutcome) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            time,
            commit: outcome.candidate.commit.clone(),
            state: outcome.state.name().to_owned(),
            environment: fingerprint(&outcome.environment.candidate),
            culprit: outcome.to_blame().next().map(super::outcome::Culprit::title),
            scalars: outcome
                .scalars
                .iter()
                .filter_map(|(name, series)| Some((name.clone(), point(series)?)))
                .collect(),
        }
    }
}

fn point(series: &Series) -> Option<Point> {
    let (_, last) = series.last_key_value()?;
    let mut hash = Sha256::new();
    for (step, value) in series {
        hash.update(step.to_le_bytes());
        hash.update(value.to_bits().to_le_bytes());
    }
    Some(Point {
        steps: series.len() as u64,
        mean: Exact(series.values().sum::<f64>() / series.len() as f64),
        last: Exact(*last),
        hash: super::hexadecimal(&hash.finalize(), 8),
    })
}

/// Appends a line to the history in `folder`, which is created when missing.
///
/// # Errors
/// [`ReportError::Io`] when the operating system refuses.
pub fn append(folder: &Path, entry: &Entry) -> Result<(), ReportError> {
    let path = folder.join(FILE);
    let io = |error| ReportError::io(&path, error);
    fs::create_dir_all(folder).map_err(io)?;
    let mut line = serde_json::to_vec(entry).map_err(|error| ReportError::format(&path, error))?;
    line.push(b'\n');
    // A single write, so that jobs ending at the same time do not interleave their lines.
    let mut file = OpenOptions::new().append(true).create(true).open(&path).map_err(io)?;
    file.write_all(&line).map_err(io)
}

/// Reads the history in `folder`, oldest run first.
///
/// # Errors
/// [`ReadError`] naming the line.
pub fn read(folder: &Path) -> Result<Vec<Entry>, ReadError> {
    let path = if folder.is_dir() { folder.join(FILE) } else { folder.to_path_buf() };
    let size = fs::metadata(&path).map_err(|source| ReadError::io(&path, source))?.len();
    if size > limits::MAX_SCALAR_FILE_BYTES {
        let limit = limits::MAX_SCALAR_FILE_BYTES;
        return Err(ReadError::Limit { path, what: "the size of a history", found: size, limit });
    }
    let text = fs::read_to_string(&path).map_err(|source| ReadError::io(&path, source))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line)
                .map_err(|error| ReadError::format(&path, format!("line {}: {error}", index + 1)))
        })
        .collect()
}

/// Returns the values of one scalar: position of the run, and mean.
fn values(entries: &[Entry], name: &str) -> Vec<(usize, f64)> {
    let of = |(run, entry): (usize, &Entry)| Some((run, entry.scalars.get(name)?.mean.0));
    entries.iter().enumerate().filter_map(of).collect()
}

/// Returns the names of all scalars of a history.
pub fn names(entries: &[Entry]) -> BTreeSet<&String> {
    entries.iter().flat_map(|entry| entry.scalars.keys()).collect()
}

/// Finds jumps of each scalar, and drifts over the last [`WINDOW`] runs.
pub fn trend(entries: &[Entry]) -> Trend {
    let mut found = Trend::default();
    for name in names(entries) {
        if super::policy::is_of_speed(name) {
            continue;
        }
        let values = values(entries, name);
        let changes: Vec<(usize, f64)> =
            values.windows(2).map(|pair| (pair[1].0, relative(pair[0].1, pair[1].1))).collect();
        let mut sizes: Vec<f64> = changes.iter().map(|(_, change)| change.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        // The median change, which a jump does not move.
        let usual = sizes.get(sizes.len() / 2).copied().unwrap_or(0.0);
        let is_jump = |change: f64| change.is_nan() || change.abs() > JUMP * usual.max(f64::EPSILON);
        for (run, change) in &changes {
            if is_jump(*change) {
                found.jumps.push(Jump {
                    scalar: name.clone(),
                    run: *run,
                    change: *change,
                    environment: *run > 0 && entries[*run].environment != entries[run - 1].environment,
                });
            }
        }
        // Only runs after the last jump; a jump is reported separately.
        let start = changes.iter().rposition(|(_, change)| is_jump(*change)).map_or(0, |index| index + 1);
        let window = &values[start.max(values.len().saturating_sub(WINDOW))..];
        if let (Some(first), Some(last)) = (window.first(), window.last())
            && has_trend(window)
        {
            found.drifts.push(Drift {
                scalar: name.clone(),
                from: first.0,
                change: relative(first.1, last.1),
            });
        }
    }
    found.jumps.sort_by_key(|jump| jump.run);
    found
}

fn relative(from: f64, to: f64) -> f64 {
    let difference = to - from;
    if difference.abs() > 0.0 || difference.is_nan() { difference / from.abs() } else { 0.0 }
}

/// Returns true if later values are larger, or smaller, more often than by chance (Mann 1945, Kendall 1975).
fn has_trend(values: &[(usize, f64)]) -> bool {
    let count = values.len();
    if count < 8 {
        return false;
    }
    let mut score: f64 = 0.0;
    for (index, (_, earlier)) in values.iter().enumerate() {
        for (_, later) in &values[index + 1..] {
            score += match later.partial_cmp(earlier) {
                Some(std::cmp::Ordering::Greater) => 1.0,
                Some(std::cmp::Ordering::Less) => -1.0,
                _ => 0.0,
            };
        }
    }
    let n = count as f64;
    let deviation = (n * (n - 1.0) * 2.0f64.mul_add(n, 5.0) / 18.0).sqrt();
    score.abs() > TREND * deviation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(means: &[f64]) -> Vec<Entry> {
        let entry = |(run, mean): (usize, &f64)| Entry {
            time: run as u64,
            commit: Some(format!("{run:040}")),
            state: "pass".into(),
            environment: if run < 30 { "a" } else { "b" }.into(),
            culprit: None,
            scalars: [("loss".to_owned(), point(&Series::from([(0, *mean)])).unwrap())].into(),
        };
        means.iter().enumerate().map(entry).collect()
    }

    /// Noise without a trend, from a fixed sequence.
    fn noise(run: usize) -> f64 {
        let mixed = (run as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1_u64 << 53) as f64
            - 0.5
    }

    #[test]
    fn the_first_commit_of_a_jump_is_found_with_and_without_noise() {
        let exact =
            history(&(0..40).map(|run| if run < 17 { 2.5 } else { 2.5 * (1.0 + 1e-6) }).collect::<Vec<_>>());
        let found = trend(&exact);
        assert_eq!(found.jumps.iter().map(|jump| jump.run).collect::<Vec<_>>(), [17]);
        assert!((found.jumps[0].change - 1e-6).abs() < 1e-12 && found.drifts.is_empty());
        let step = |run: usize| if run < 25 { 0.0 } else { 1e-2 };
        let noisy =
            history(&(0..40).map(|run| 2.5 * (1.0 + step(run) + 1e-4 * noise(run))).collect::<Vec<_>>());
        let found = trend(&noisy);
        assert_eq!(found.jumps.iter().map(|jump| jump.run).collect::<Vec<_>>(), [25]);
        assert!(trend(&history(&vec![2.5; 40])).jumps.is_empty());
        let moved = history(&(0..40).map(|run| if run < 30 { 2.5 } else { 2.6 }).collect::<Vec<_>>());
        assert!(trend(&moved).jumps[0].environment);
    }

    #[test]
    fn slow_drift_is_told_from_noise() {
        let drifting = history(
            &(0..40).map(|run| 2.5 * (1.0 + 1e-4 * run as f64 + 1e-4 * noise(run))).collect::<Vec<_>>(),
        );
        let found = trend(&drifting);
        assert!(found.jumps.is_empty(), "{:?}", found.jumps);
        assert_eq!(found.drifts.len(), 1);
        assert!(found.drifts[0].change > 1e-3 && found.drifts[0].from == 20);
        let still = history(&(0..40).map(|run| 2.5 * (1.0 + 1e-4 * noise(run))).collect::<Vec<_>>());
        assert_eq!(trend(&still), Trend::default());
    }

    #[test]
    fn lines_are_appended_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let entries = history(&[2.5, f64::NAN]);
        for entry in &entries {
            append(folder.path(), entry).unwrap();
        }
        let back = read(folder.path()).unwrap();
        assert_eq!(back[0], entries[0]);
        assert!(back[1].scalars["loss"].mean.0.is_nan());
        fs::write(folder.path().join(FILE), "{}\n").unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("line 1"));
    }
}
