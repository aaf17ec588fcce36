//! Handles signals that end the command early: no half-written files remain.

use std::path::PathBuf;
#[cfg(unix)]
use std::sync::{Arc, Mutex, PoisonError};

/// From now on, a signal that ends the process (Ctrl-C, `kill`, a closed terminal) first removes the reports being written, and
/// then those of `folders` that are empty, innermost first. Signals that the process was started to ignore, as under `nohup`,
/// stay ignored.
pub(super) fn leave_nothing_behind(folders: Vec<PathBuf>) -> anyhow::Result<()> {
    before_the_end(move || {
        // Held to the end, so that no new draft is begun.
        let stopped = crate::files::discard_drafts();
        for folder in &folders {
            // A folder with other content cannot be removed this way.
            _ = std::fs::remove_dir(folder);
        }
        super::terminal::error(&anyhow::anyhow!("interrupted; no report was written"));
        std::mem::forget(stopped);
    })
}

/// Like [`leave_nothing_behind`], for a command that fills `folder`, which is removed with its
/// content.
pub(super) fn leave_no_tree_behind(folder: PathBuf) -> anyhow::Result<()> {
    before_the_end(move || {
        // Files written in the meantime may keep a folder from being removed.
        while std::fs::remove_dir_all(&folder)
            .is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound)
        {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        super::terminal::error(&anyhow::anyhow!("interrupted; nothing was written"));
    })
}

/// From now on, a signal that ends the process first removes the copies from object stores.
pub(super) fn leave_no_copies_behind() -> anyhow::Result<()> {
    before_the_end(crate::store::discard_scratch)
}

/// Tasks to run before the process ends, in order.
type Work = Vec<Box<dyn FnOnce() + Send>>;

/// All pending tasks; `None` before signals are watched.
#[cfg(unix)]
static WORK: Mutex<Option<Work>> = Mutex::new(None);

/// Runs `work` when a signal ends the process, after earlier tasks, and then lets it end.
#[cfg(unix)]
fn before_the_end(work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let mut all = WORK.lock().unwrap_or_else(PoisonError::into_inner);
    if all.is_none() {
        watch()?;
    }
    all.get_or_insert_default().push(Box::new(work));
    Ok(())
}

/// Starts watching for signals.
#[cfg(unix)]
fn watch() -> anyhow::Result<()> {
    use anyhow::Context as _;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

    // A write beyond `ulimit -f` would end the process; with any handler installed it fails like one to a full disk.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot watch for signals")?;
    let ignored = ignored();
    let heeded = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = signal_hook::iterator::Signals::new(heeded).context("cannot watch for signals")?;
    let watch = move || {
        let Some(signal) = signals.forever().next() else { return };
        let work = WORK.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.into_iter().flatten().for_each(|work| work());
        // Ends as without a handler, so that the parent process sees the signal.
        _ = signal_hook::low_level::emulate_default_handler(signal);
    };
    std::thread::Builder::new().name("probe-signals".into()).spawn(watch).context("cannot start a thread")?;
    Ok(())
}

/// Returns bit `n - 1` for every signal `n` that this process ignores; none if the system does not
/// say.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(not(unix))]
fn before_the_end(_: impl FnOnce()) -> anyhow::Result<()> {
    Ok(())
}
