//! Failures of the recording: counted, and reported once on standard error.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// Reason why something was not recorded, or not properly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Count {
    /// All stubs were handed out.
    WithoutStub,
    /// The arguments of a call could not be read: no executor was found among them.
    Unscanned,
    /// Launched with an executor whose creation was not seen.
    UnknownExecutor,
    /// The arguments of a call do not match the table of parameters.
    OtherLayout,
    /// No table entry tells inputs from outputs: determined by what changed.
    ByDifference,
    /// Tensors in a format or dtype that is not measured.
    UnknownFormat,
    /// No room in the ring in time.
    Dropped,
    /// Tensors above the limit, or larger than the ring.
    TooLarge,
    /// The device refused a copy.
    CopyFailed,
    /// Operators of graphs whose replays are not recorded.
    InGraph,
    /// Replays that are not recorded.
    Replayed,
    /// No room in the memory for graphs.
    GraphFull,
    /// Operators of graphs that the program gives new arguments.
    Grouped,
    /// The program received a CANN function that this library cannot intercept.
    OtherProvider,
    /// Pieces of CANN's dumps that were not accepted.
    Refused,
    /// Files of CANN's dumps whose last piece did not come.
    Unfinished,
    /// Files of CANN's dumps that are not complete dumps.
    Damaged,
    /// A fault of this library.
    Fault,
}

impl Count {
    /// Returns one line that describes the event to users; the example follows it.
    pub(crate) const fn line(self) -> &'static str {
        match self {
            Self::WithoutStub => "operator functions beyond the agent's limit; these are not recorded",
            Self::Unscanned => "arguments could not be read; such calls are recorded without values",
            Self::UnknownExecutor => {
                "launched with executors made before the recording; recorded without values"
            }
            Self::OtherLayout => {
                "called differently from the table of parameters; inputs and outputs inferred from what changed"
            }
            Self::ByDifference => {
                "not in the table of parameters; inputs and outputs inferred from what changed"
            }
            Self::UnknownFormat => "tensors in formats or types that are not measured",
            Self::Dropped => "launches were not recorded: the writer did not keep up",
            Self::TooLarge => "tensors were larger than the limit or the ring; recorded without values",
            Self::CopyFailed => "tensors could not be copied from the device",
            Self::InGraph => "operators in replays of graphs (NPUGraph, aclgraph) are NOT RECORDED",
            Self::Replayed => "replays of graphs are NOT RECORDED",
            Self::GraphFull => {
                "operators of graphs did not fit into the memory for graphs (--graph-memory); recorded without values"
            }
            Self::Grouped => {
                "operators of graphs get different arguments from the program (task groups); recorded without values"
            }
            Self::OtherProvider => {
                "functions also come from a second library; calls to that one are not seen"
            }
            Self::Refused => "pieces of dump files were refused; these files end before them",
            Self::Unfinished => "dump files never got their last piece; they are kept as far as received",
            Self::Damaged => "dump files are damaged",
            Self::Fault => "faults of the recorder",
        }
    }

    /// Returns the key in the report of `probe doctor --runtime`.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::WithoutStub => "without_stub",
            Self::Unscanned => "unscanned",
            Self::UnknownExecutor => "unknown_executor",
            Self::OtherLayout => "other_layout",
            Self::ByDifference => "by_difference",
            Self::UnknownFormat => "unknown_format",
            Self::Dropped => "dropped",
            Self::TooLarge => "too_large",
            Self::CopyFailed => "copy_failed",
            Self::InGraph => "in_graph",
            Self::Replayed => "replayed",
            Self::GraphFull => "graph_full",
            Self::Grouped => "grouped",
            Self::OtherProvider => "other_provider",
            Self::Refused => "refused",
            Self::Unfinished => "unfinished",
            Self::Damaged => "damaged",
            Self::Fault => "fault",
        }
    }
}

/// Number of occurrences, and the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) first: String,
}

static TALLIES: Mutex<BTreeMap<Count, Tally>> = Mutex::new(BTreeMap::new());

/// Counts an event with an example. Reports the first occurrence on standard error.
pub(crate) fn count(what: Count, example: &str) {
    count_many(what, 1, example);
}

/// Counts an event that occurred `times` times at once.
pub(crate) fn count_many(what: Count, times: u64, example: &str) {
    let first = {
        let mut tallies = TALLIES.lock().unwrap_or_else(PoisonError::into_inner);
        let tally = tallies.entry(what).or_insert_with(|| Tally { count: 0, first: example.to_owned() });
        tally.count += times;
        tally.count == times
    };
    if first {
        say(&format!("{}: {example} (further ones are counted)", what.line()));
    }
}

/// Runs work that must not end the program, even if it panics.
pub(crate) fn guarded<T>(what: &str, work: impl FnOnce() -> T) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    if done.is_err() {
        count(Count::Fault, what);
    }
    done.ok()
}

/// Returns all counts.
pub(crate) fn all() -> BTreeMap<Count, Tally> {
    TALLIES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Prints one line on standard error, like the Python package.
pub(crate) fn say(text: &str) {
    // The program may have closed it.
    _ = writeln!(std::io::stderr(), "probe: runtime: {text}");
}
