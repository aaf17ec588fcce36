//! Request for a comparison: the options as written by a command line, a driver or a plan. The files they name have not been read yet.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CompareOptions;
use probe_dump::{LevelFilter, NumberSet, SelectionError};
use probe_files::settings::SettingsError;
use probe_files::{Copies, map::FileAccess};
use probe_judge::{Replayed, Rules};
use probe_pair::Mapping;

/// Options of a comparison, as strings and paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, as on the command line")]
pub struct Asked {
    /// Steps such as `3` or `0,10-12`; all when `None`.
    pub steps: Option<String>,
    /// Ranks, in the same format.
    pub ranks: Option<String>,
    /// Name of a [`LevelFilter`].
    pub level: Option<String>,
    /// TOML file of tolerance rules.
    pub tolerance: Option<PathBuf>,
    /// File of names to pair with each other.
    pub mapping: Option<PathBuf>,
    /// Dumps of repeated runs of the baseline, and noise files.
    pub noise: Vec<PathBuf>,
    /// A run of higher precision.
    pub reference: Option<PathBuf>,
    /// See [`CompareOptions::any_task`].
    pub any_task: bool,
    /// See [`CompareOptions::any_level`].
    pub any_level: bool,
    /// See [`CompareOptions::rows`].
    pub rows: bool,
    /// True if files are read in pieces instead of being mapped.
    pub no_mmap: bool,
}

/// Reasons why options cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskedError {
    /// Not a set of numbers.
    #[error(transparent)]
    Numbers(#[from] SelectionError),
    /// Unknown level.
    #[error("no level {0:?}; choose module, api, op or all")]
    Level(String),
    /// A settings file cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl Asked {
    /// Returns steps and ranks.
    ///
    /// # Errors
    /// [`AskedError::Numbers`].
    pub fn numbers(&self) -> Result<[NumberSet; 2], AskedError> {
        let read =
            |text: &Option<String>| text.as_deref().map_or_else(|| Ok(NumberSet::default()), str::parse);
        Ok([read(&self.steps)?, read(&self.ranks)?])
    }

    /// Returns the level; all kinds of op if none was requested.
    ///
    /// # Errors
    /// [`AskedError::Level`].
    pub fn level(&self) -> Result<LevelFilter, AskedError> {
        let Some(word) = &self.level else { return Ok(LevelFilter::default()) };
        let found = LevelFilter::ALL.into_iter().find(|known| known.name() == word);
        found.ok_or_else(|| AskedError::Level(word.clone()))
    }

    /// Returns the options, with the content of the files they name. Paths of copied data are looked up in `copies`.
    ///
    /// # Errors
    /// [`AskedError`] when a word is unknown or a file cannot be used.
    pub fn options(&self, copies: &Copies) -> Result<CompareOptions, AskedError> {
        let [steps, ranks] = self.numbers()?;
        Ok(CompareOptions {
            steps,
            ranks,
            level: self.level()?,
            rules: settings(self.tolerance.as_deref(), copies, Rules::from_file)?,
            access: if self.no_mmap { FileAccess::Read } else { FileAccess::Map },
            any_task: self.any_task,
            any_level: self.any_level,
            rows: self.rows,
            mapping: settings(self.mapping.as_deref(), copies, Mapping::from_file)?,
            noise: self.noise.clone(),
            reference: self.reference.clone(),
            replayed: Replayed::default(),
            copies: copies.clone(),
        })
    }

    /// Returns the files that are read whole: their content is part of the request.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let noise = self.noise.iter().filter(|path| is_noise_file(path));
        self.tolerance.iter().chain(&self.mapping).chain(noise).map(PathBuf::as_path)
    }

    /// Returns the dumps beside the two that are compared.
    pub fn dumps(&self) -> impl Iterator<Item = &Path> {
        self.noise.iter().filter(|path| !is_noise_file(path)).chain(&self.reference).map(PathBuf::as_path)
    }

    /// Returns the same options with every path transformed by `change`.
    ///
    /// # Errors
    /// The first error of `change`.
    pub fn with_paths<E>(mut self, mut change: impl FnMut(&Path) -> Result<PathBuf, E>) -> Result<Self, E> {
        let paths = self.tolerance.iter_mut().chain(&mut self.mapping).chain(&mut self.noise);
        for path in paths.chain(&mut self.reference) {
            *path = change(path)?;
        }
        Ok(self)
    }
}

/// Returns true if `path` is a file written by `probe calibrate` rather than a dump.
pub fn is_noise_file(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == "toml")
}

fn settings<T: Default>(
    path: Option<&Path>,
    copies: &Copies,
    read: impl FnOnce(&Path) -> Result<T, SettingsError>,
) -> Result<T, SettingsError> {
    path.map_or_else(
        || Ok(T::default()),
        |path| read(&copies.place(path)).map_err(|error| error.called(copies)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options_and_unknown_ones_are_told() {
        let asked = Asked {
            steps: Some("3,5-6".into()),
            level: Some("module".into()),
            no_mmap: true,
            ..Asked::default()
        };
        let options = asked.options(&Copies::default()).unwrap();
        assert!(options.steps.contains(5) && !options.steps.contains(4) && options.ranks.contains(9));
        assert_eq!((options.level, options.access), (LevelFilter::Module, FileAccess::Read));
        for (asked, message) in [
            (Asked { ranks: Some("x".into()), ..Asked::default() }, "`x` is neither a number nor a range"),
            (Asked { level: Some("modul".into()), ..Asked::default() }, "no level \"modul\"; choose module"),
            (Asked { tolerance: Some("/none.toml".into()), ..Asked::default() }, "/none.toml: No such file"),
        ] {
            let error = asked.options(&Copies::default()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn files_and_dumps_are_told_apart() {
        let asked = Asked {
            tolerance: Some("t.toml".into()),
            noise: vec!["n.toml".into(), "second_run".into()],
            reference: Some("f64".into()),
            ..Asked::default()
        };
        let texts =
            |paths: Vec<&Path>| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(texts(asked.files().collect()), ["t.toml", "n.toml"]);
        assert_eq!(texts(asked.dumps().collect()), ["second_run", "f64"]);
        let moved = asked.with_paths(|path| Ok::<_, ()>(Path::new("/w").join(path))).unwrap();
        assert_eq!(texts(moved.dumps().collect()), ["/w/second_run", "/w/f64"]);
    }
}
