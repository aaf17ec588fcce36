//! `probe capture --twin`: runs the program, and then once more moved by one rounding, so that the dump holds its own noise.
//!
//! The step itself cannot be run twice: it is code of the program's loop, and no closure of it exists. A program that repeats
//! itself arrives at the same state in a second run.

use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

use anyhow::Context as _;

use super::compare::pool;
use super::program::become_program;
use super::{Exit, terminal};
use crate::capture::{self, Existing};
use crate::compare::{CompareOptions, Quiet, calibrate};
use crate::dump::native::MANIFEST;

/// Runs `plain`, which records into `dump`, then `moved`, which records into its folder `noise`. Ends as `plain` ended; if that
/// failed, there is no second run.
pub(super) fn run(
    plain: &Command,
    moved: impl FnOnce() -> anyhow::Result<Command>,
    [dump, noise]: [&Path; 2],
    quiet: bool,
) -> anyhow::Result<Exit> {
    // Ctrl-C reaches the program by itself; this process then has its end to tell.
    #[cfg(unix)]
    {
        let told = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, told).context("cannot watch for signals")?;
    }
    let program = plain.get_program().to_owned();
    let status = as_itself(plain).status().with_context(|| program.display().to_string())?;
    if status.success() && dump.join(MANIFEST).is_file() {
        if !quiet {
            terminal::note(
                "the program runs once more, moved by one rounding (--twin); its output is not shown",
            );
        }
        let output = as_itself(&moved()?).stdin(Stdio::null()).output();
        let output = output.with_context(|| program.display().to_string())?;
        match measured(&output, dump, noise) {
            Ok(said) if !quiet => terminal::note(&said),
            Ok(_) => {}
            Err(reason) => {
                terminal::note(&format!("no noise was recorded (--twin): {reason:#}"));
                capture::prepare(noise, Existing::Replace, "--overwrite")?;
                // Gone already if nothing was recorded.
                _ = std::fs::remove_dir(noise);
            }
        }
    }
    end_as(status)
}

/// Holds the second run against the first, as a comparison will, and returns what it shows.
fn measured(output: &Output, dump: &Path, noise: &Path) -> anyhow::Result<String> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        // The recorder has the last word, on its own recording.
        let mut lines = said.lines().filter(|line| !line.is_empty() && !line.starts_with("probe: "));
        let last = lines.next_back().unwrap_or("no output");
        anyhow::bail!("the second run ended with {}: {last}", output.status);
    }
    let noise = noise.to_path_buf();
    let found = pool(None)?.install(|| calibrate(dump, &[noise], &CompareOptions::default(), &Quiet));
    found.map(|found| found.said.join("; ")).context("the program does not repeat itself")
}

/// Returns the command in a shell that becomes it, because the program is told its own process id.
fn as_itself(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "PROBE_CAPTURE_PID=$$ exec \"$@\"", "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// Ends this process as the program ended, by the same code or signal.
fn end_as(status: ExitStatus) -> anyhow::Result<Exit> {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal: Option<i32> = None;
    let end = match signal {
        Some(signal) => format!("kill -{signal} $$"),
        None => format!("exit {}", status.code().unwrap_or(1)),
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", &end]);
    become_program(shell, "sh".as_ref())
}
