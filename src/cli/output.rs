//! Output folders of reports.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::interrupt::leave_nothing_behind;

/// Runs `work`, which creates `folder`. If it fails or is interrupted, nothing is reported, and folders that did not exist before are
/// removed.
pub(super) fn in_new_folder<T>(folder: &Path, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let made: Vec<PathBuf> =
        folder.ancestors().take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect();
    leave_nothing_behind(made.clone())?;
    let outcome = work();
    if outcome.is_err() {
        // A folder with other content cannot be removed this way.
        for folder in made {
            _ = std::fs::remove_dir(folder);
        }
    }
    outcome
}

/// Returns the one report printed to standard output instead of a folder, if requested: with `-o -`, or with `--format json` alone and no
/// `-o`. `printable` are the text formats, the first of which is the default of `-o -`.
pub(super) fn to_print<F: Copy + PartialEq + Display>(
    output: Option<&Path>,
    formats: Option<&[F]>,
    printable: &[F],
    json: F,
) -> anyhow::Result<Option<F>> {
    if output.is_none() {
        return Ok((formats == Some(&[json])).then_some(json));
    }
    if output != Some(Path::new("-")) {
        return Ok(None);
    }
    match formats {
        None => Ok(printable.first().copied()),
        Some([one]) if printable.contains(one) => Ok(Some(*one)),
        Some([one]) => bail!("-o -: a report of format {one} is not text; give a folder with -o"),
        Some(_) => {
            let words: Vec<String> = printable.iter().map(ToString::to_string).collect();
            bail!("-o -: one report can be printed, choose --format {}", words.join(" or "))
        }
    }
}
