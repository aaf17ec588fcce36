//! Request for a comparison: its options as a command line, a driver or a plan gives them. The files they name have not been read yet.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::{Deserialize, Serialize};

use probe_dump::{Dump, LevelFilter, Named, NumberSet, by_name, of_name};
use probe_files::settings::SettingsError;
use probe_files::{Copies, map::FileAccess};
use probe_judge::{Replayed, Rules};
use probe_pair::Mapping;
use probe_read::{ReadError, open_called};

// The doc comments of the fields are the help of the command line. A doc comment on the struct would be shown there too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, as on the command line")]
#[expect(missing_docs, reason = "see above")]
pub struct CompareRequest {
    /// Kinds of op to compare: module calls, torch functions, dispatcher ops, or all.
    #[arg(short, long, default_value_t = LevelFilter::All, value_parser = level())]
    #[serde(serialize_with = "by_name", deserialize_with = "of_name")]
    pub level: LevelFilter,

    /// Steps to compare, such as 3 or 0,10-12 [default: all].
    #[arg(long = "step", value_name = "STEPS")]
    pub steps: Option<NumberSet>,

    /// Ranks to compare, such as 0 or 0-7 [default: all].
    #[arg(long = "rank", value_name = "RANKS")]
    pub ranks: Option<NumberSet>,

    /// TOML file of tolerance rules: pattern and bounds, the first match wins.
    #[arg(long, value_name = "FILE")]
    pub tolerance: Option<PathBuf>,

    /// File of names to pair with each other: TOML, or msprobe's YAML of cells, data, APIs or layers.
    #[arg(long, aliases = ["cell_mapping", "data_mapping", "api_mapping", "layer_mapping"], value_name = "FILE")]
    pub mapping: Option<PathBuf>,

    /// A second run of the baseline, or a file from `probe calibrate`: differences of that size are not faults; repeatable.
    #[arg(long, value_name = "DUMP")]
    pub noise: Vec<PathBuf>,

    /// A run of the same program in float32 or float64: values as close to it as the baseline's are not at fault.
    #[arg(long, value_name = "DUMP")]
    pub reference: Option<PathBuf>,

    /// Compare dumps of different tasks by the data that both recorded.
    #[arg(long)]
    pub any_task: bool,

    /// Compare dumps of different levels by the kinds of op that both recorded.
    #[arg(long)]
    pub any_level: bool,

    /// Compare batches of different sizes by the rows that both have: forward pass only, task tensor.
    #[arg(long)]
    pub rows: bool,

    /// Compare an engine's packed batches and decode steps with a trainer's padded batch, token by token: modules, task tensor.
    #[arg(long, conflicts_with = "rows")]
    pub tokens: bool,

    /// Read files in pieces instead of mapping them: for network file systems and dumps still being written.
    #[arg(long)]
    pub no_mmap: bool,
}

/// Options of a comparison, with the content of the files that the request names.
#[derive(Debug, Clone, Default)]
pub struct CompareOptions {
    /// The request.
    pub request: CompareRequest,
    /// The user's tolerance rules.
    pub rules: Rules,
    /// Names to pair with each other although they differ.
    pub mapping: Mapping,
    /// Calls of both sides that were replayed in float64.
    pub replayed: Replayed,
    /// Locations of dumps that are read from a copy.
    pub copies: Copies,
}

impl CompareOptions {
    /// Opens a dump.
    ///
    /// # Errors
    /// As for [`open`](probe_read::open).
    pub fn open(&self, path: &Path) -> Result<Dump, ReadError> {
        open_called(path, &self.copies, self.request.access())
    }
}

fn level() -> impl TypedValueParser<Value = LevelFilter> {
    PossibleValuesParser::new(LevelFilter::ALL.map(LevelFilter::name))
        .map(|word| LevelFilter::of_word(&word).unwrap_or_default())
}

impl CompareRequest {
    /// Returns true if this step and rank are to be compared.
    pub fn selects(&self, step: u64, rank: u32) -> bool {
        let contains = |set: &Option<NumberSet>, number| set.as_ref().is_none_or(|set| set.contains(number));
        contains(&self.steps, step) && contains(&self.ranks, rank.into())
    }

    /// Returns the access method for the bytes of large files.
    pub const fn access(&self) -> FileAccess {
        if self.no_mmap { FileAccess::Read } else { FileAccess::Map }
    }

    /// Returns the options, with the content of the files they name. Paths of copied data are looked up in `copies`.
    ///
    /// # Errors
    /// [`SettingsError`] when a file cannot be used.
    pub fn options(&self, copies: &Copies) -> Result<CompareOptions, SettingsError> {
        Ok(CompareOptions {
            request: self.clone(),
            rules: settings(self.tolerance.as_deref(), copies, Rules::from_file)?,
            mapping: settings(self.mapping.as_deref(), copies, Mapping::from_file)?,
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
    fn steps_and_ranks_select_parts() {
        let request: CompareRequest =
            serde_json::from_str(r#"{"steps": "3,5-6", "level": "module", "no_mmap": true}"#).unwrap();
        assert!(request.selects(5, 9) && !request.selects(4, 9));
        assert_eq!((request.level, request.access()), (LevelFilter::Module, FileAccess::Read));
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<CompareRequest>(&text).unwrap(), request);
    }

    #[test]
    fn a_request_that_cannot_be_met_is_refused() {
        for (text, message) in [
            (r#"{"ranks": "x"}"#, "`x` is neither a number nor a range"),
            (r#"{"level": "modul"}"#, "unknown level \"modul\"; choose module, api, op or all"),
            (r#"{"step": "3"}"#, "unknown field `step`"),
        ] {
            let error = serde_json::from_str::<CompareRequest>(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        let request = CompareRequest { tolerance: Some("/none.toml".into()), ..CompareRequest::default() };
        let error = request.options(&Copies::default()).unwrap_err().to_string();
        assert!(error.starts_with("/none.toml: No such file"), "{error}");
    }

    #[test]
    fn files_and_dumps_are_told_apart() {
        let request = CompareRequest {
            tolerance: Some("t.toml".into()),
            noise: vec!["n.toml".into(), "second_run".into()],
            reference: Some("f64".into()),
            ..CompareRequest::default()
        };
        let texts =
            |paths: Vec<&Path>| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(texts(request.files().collect()), ["t.toml", "n.toml"]);
        assert_eq!(texts(request.dumps().collect()), ["second_run", "f64"]);
        let moved = request.with_paths(|path| Ok::<_, ()>(Path::new("/w").join(path))).unwrap();
        assert_eq!(texts(moved.dumps().collect()), ["/w/second_run", "/w/f64"]);
    }
}
