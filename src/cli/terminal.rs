//! Output to the terminal, and the terminal's properties.

use std::io::{self, IsTerminal, Write};

use super::Exit;
use crate::report::text::Colour;

/// Range of layout widths.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=200;

/// Prints to standard output. A closed pipe (`| head`) ends quietly.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints a note on one line of standard error.
pub(super) fn note(text: &str) {
    // If standard error is closed, nobody wants to know.
    _ = writeln!(io::stderr(), "probe: {text}");
}

/// Prints what could not be read, and returns how the command ends.
pub(super) fn ended(faults: &[impl std::fmt::Display], agree: bool) -> Exit {
    for fault in faults {
        error(&anyhow::anyhow!("{fault}"));
    }
    match (faults.is_empty(), agree) {
        (false, _) => Exit::Incomplete,
        (true, false) => Exit::Differ,
        (true, true) => Exit::Agree,
    }
}

/// Prints an error on one line of standard error.
pub(super) fn error(error: &anyhow::Error) {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Most errors of this crate include their source already.
        if !text.ends_with(&cause) {
            text.extend([if text.is_empty() { "" } else { ": " }, &cause]);
        }
    }
    let text = text.replace('\n', " ");
    let safe: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    // If standard error is gone, there is nobody left to tell.
    _ = writeln!(io::stderr(), "error: {safe}");
}

/// Uses colours if standard output is a terminal and the user has not disabled them.
pub(super) fn colour() -> Colour {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted && io::stdout().is_terminal() { Colour::Always } else { Colour::Never }
}

/// Returns the line width in characters: `COLUMNS`, else the width of the terminal. `None` if there is
/// neither.
pub(super) fn width() -> Option<usize> {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || {
        let (width, _) = terminal_size::terminal_size().filter(|_| io::stdout().is_terminal())?;
        Some(usize::from(width.0))
    };
    asked.or_else(of_terminal).map(|width| width.clamp(*WIDTHS.start(), *WIDTHS.end()))
}
