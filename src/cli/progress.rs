//! Progress of long-running work.

use std::io::{self, IsTerminal};
use std::sync::Once;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::compare::Progress;

/// Duration below which no bar is shown.
const PATIENCE: Duration = Duration::from_millis(500);

/// Elapsed time and fraction of the work from which the remaining time is shown.
const FORETOLD: (Duration, f64) = (Duration::from_secs(2), 0.05);

/// Interval at which a line updates its time.
const TICK: Duration = Duration::from_millis(200);

/// A bar over the pairs of values to measure.
#[derive(Debug)]
pub(super) struct Bar {
    line: ProgressBar,
    started: Instant,
    shown: Once,
}

impl Bar {
    /// Creates a bar if standard error is a terminal; it appears once the work has taken a while.
    pub(super) fn on_terminal() -> Option<Self> {
        if !io::stderr().is_terminal() {
            return None;
        }
        let style =
            ProgressStyle::with_template("{bar:40} {percent:>3}% of {len} values, {elapsed}{left}").ok()?;
        let left = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            if let Some(left) = rest(state.elapsed(), state.pos(), state.len().unwrap_or_default()) {
                _ = write!(text, ", {} left", HumanDuration(left));
            }
        };
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        Some(Self {
            line: bar.with_style(style.with_key("left", left)),
            started: Instant::now(),
            shown: Once::new(),
        })
    }
}

/// A bar over the bytes being copied.
#[derive(Debug)]
pub(super) struct ByteBar {
    line: ProgressBar,
    started: Instant,
}

impl ByteBar {
    /// Creates a bar if standard error is a terminal; it appears once the work has taken a while.
    pub(super) fn on_terminal() -> Option<Self> {
        if !io::stderr().is_terminal() {
            return None;
        }
        let template = "{bar:40} {percent:>3}% of {total_bytes} copied, {binary_bytes_per_sec}";
        let style = ProgressStyle::with_template(template).ok()?;
        let line = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden()).with_style(style);
        Some(Self { line, started: Instant::now() })
    }

    /// Updates the bar to `done` of `total` bytes.
    pub(super) fn show(&self, done: u64, total: u64) {
        if self.line.is_hidden() && self.started.elapsed() >= PATIENCE {
            self.line.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.line.set_length(total);
        self.line.set_position(done);
        if done == total {
            self.line.set_draw_target(ProgressDrawTarget::hidden());
        }
    }
}

/// A line with the current work and its duration so far; if standard error is not a terminal, one line per item.
#[derive(Debug)]
pub(super) struct Line {
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Nothing,
    Lines,
    Spinner(ProgressBar),
}

impl Line {
    /// Creates a line, which stays silent if `quiet`.
    pub(super) fn new(quiet: bool) -> Self {
        let shown = match (quiet, io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (false, false) => Shown::Lines,
            (false, true) => {
                let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
                if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
                    spinner.set_style(style);
                }
                Shown::Spinner(spinner)
            }
        };
        Self { shown }
    }

    /// Sets the current work.
    pub(super) fn say(&self, text: &str) {
        match &self.shown {
            Shown::Nothing => {}
            Shown::Lines => super::terminal::note(text),
            Shown::Spinner(spinner) => {
                spinner.set_draw_target(ProgressDrawTarget::stderr());
                spinner.enable_steady_tick(TICK);
                spinner.reset_elapsed();
                spinner.set_message(text.to_owned());
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Shown::Spinner(spinner) = &self.shown {
            spinner.finish_and_clear();
        }
    }
}

/// Returns the remaining time at the speed so far; `None` while that is unreliable.
fn rest(elapsed: Duration, done: u64, all: u64) -> Option<Duration> {
    let share = done as f64 / all as f64;
    let told = elapsed >= FORETOLD.0 && share >= FORETOLD.1;
    told.then(|| Duration::try_from_secs_f64(elapsed.as_secs_f64() * (1.0 / share - 1.0)).ok()).flatten()
}

impl Progress for Bar {
    fn expect(&self, pairs: u64) {
        self.line.inc_length(pairs);
    }

    fn advance(&self, pairs: u64) {
        if self.started.elapsed() >= PATIENCE {
            self.shown.call_once(|| self.line.set_draw_target(ProgressDrawTarget::stderr()));
        }
        self.line.inc(pairs);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_foretold_when_there_is_something_to_go_by() {
        let seconds = Duration::from_secs;
        assert_eq!(rest(seconds(1), 50, 100), None);
        assert_eq!(rest(seconds(60), 1, 1_000_000), None);
        assert_eq!(rest(seconds(10), 0, 0), None);
        assert_eq!(rest(seconds(10), 25, 100), Some(seconds(30)));
    }
}
