//! Progress of a long comparison, on a terminal only.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

use crate::compare::Progress;

/// A bar over the pairs of values to be measured.
#[derive(Debug)]
pub(super) struct Bar(ProgressBar);

impl Bar {
    /// A bar when standard error is a terminal.
    pub(super) fn on_terminal() -> Option<Self> {
        if !io::stderr().is_terminal() {
            return None;
        }
        let style =
            ProgressStyle::with_template("{bar:40} {percent:>3}% of {len} values, {elapsed}, {eta} left")
                .ok()?;
        Some(Self(ProgressBar::new(0).with_style(style)))
    }
}

impl Progress for Bar {
    fn expect(&self, slots: u64) {
        self.0.inc_length(slots);
    }

    fn advance(&self, slots: u64) {
        self.0.inc(slots);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
