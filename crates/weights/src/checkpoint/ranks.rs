//! The files of Megatron's ranks: `mp_rank_TP` or `mp_rank_TP_PP`, each with one file of weights.

use std::fs;
use std::path::{Path, PathBuf};

use probe_dump::ReadError;
use probe_files::limits::MAX_FOLDER_ENTRIES;

/// Names of the file of weights, in order of preference.
const FILES: [&str; 2] = ["model_optim_rng.pt", "model_rng.pt"];

/// File that names the newest iteration.
const LATEST: &str = "latest_checkpointed_iteration.txt";

/// Returns the folder names and files of weights of all ranks, in order; `None` if the folder is no checkpoint of Megatron.
///
/// # Errors
/// [`ReadError`] when the folder cannot be listed, or a rank's folder has no file of weights.
pub(super) fn find(folder: &Path) -> Result<Option<Vec<(String, PathBuf)>>, ReadError> {
    let folder = newest(folder)?.unwrap_or_else(|| folder.into());
    let mut ranks = Vec::new();
    let entries = fs::read_dir(&folder).map_err(|error| ReadError::io(&*folder, error))?;
    for entry in entries.take(MAX_FOLDER_ENTRIES) {
        let entry = entry.map_err(|error| ReadError::io(&*folder, error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("mp_rank_") && entry.path().is_dir() {
            ranks.push((name, entry.path()));
        }
    }
    ranks.sort();
    let file = |(label, rank): (String, PathBuf)| {
        let file = FILES.iter().map(|name| rank.join(name)).find(|file| file.is_file());
        file.map(|file| (label, file)).ok_or_else(|| {
            let message = "has no model_optim_rng.pt; the checkpoint is incomplete, copy or write it again";
            ReadError::usage(&*rank, message)
        })
    };
    if ranks.is_empty() {
        return Ok(None);
    }
    ranks.into_iter().map(file).collect::<Result<_, _>>().map(Some)
}

/// Returns the folder of the newest iteration, if the folder is one of iterations.
fn newest(folder: &Path) -> Result<Option<PathBuf>, ReadError> {
    let latest = folder.join(LATEST);
    if !latest.is_file() {
        return Ok(None);
    }
    let size = fs::metadata(&latest).map_err(|error| ReadError::io(&*latest, error))?.len();
    let text = if size < 64 { fs::read_to_string(&latest) } else { Ok(String::new()) };
    let text = text.map_err(|error| ReadError::io(&*latest, error))?;
    let name = match text.trim() {
        "release" => "release".to_owned(),
        number => {
            let Ok(number) = number.parse::<u64>() else {
                let message = "names no iteration; give the path of an iter_ folder instead";
                return Err(ReadError::format(&*latest, message));
            };
            format!("iter_{number:07}")
        }
    };
    Ok(Some(folder.join(name)))
}
