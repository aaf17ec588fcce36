//! Runs the program as a user does.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// No run of these tests may take longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Exit code, standard output and standard error of the program with these arguments.
pub(crate) fn probe(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_probe")).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// One run of `probe compare`, and what it left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    folder: TempDir,
}

/// A run to be made.
#[derive(Debug, Default, Clone)]
pub(crate) struct Compare {
    args: Vec<OsString>,
}

impl Compare {
    pub(crate) fn new(baseline: impl AsRef<OsStr>, candidate: impl AsRef<OsStr>) -> Self {
        let dashed: [&OsStr; 4] = ["-b".as_ref(), baseline.as_ref(), "-c".as_ref(), candidate.as_ref()];
        Self::with_args(dashed)
    }

    /// All arguments but `--output` and `--format` as given.
    pub(crate) fn with_args(args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { args: args.into_iter().map(Into::into).collect() }
    }

    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn args(mut self, words: &str) -> Self {
        self.args.extend(words.split_whitespace().map(OsString::from));
        self
    }

    /// Runs with the reports text and json, unless `--format` is among the arguments.
    pub(crate) fn run(self) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("report");
        self.run_into(folder, &output)
    }

    /// Runs with the reports in `output`; `folder` is kept until the run is dropped.
    pub(crate) fn run_into(self, folder: TempDir, output: &Path) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
        command.arg("compare").args(&self.args).arg("--output").arg(output).timeout(PATIENCE);
        if !self.args.iter().any(|arg| arg.to_string_lossy().starts_with("--format")) {
            command.args(["--format", "text,json"]);
        }
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or_else(|| panic!("killed: {:?}", self.args));
        Run { code, stdout: text(output.stdout), stderr: text(output.stderr), folder }
    }
}

impl Run {
    /// The folder that holds the report folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn reports(&self) -> PathBuf {
        self.folder().join("report")
    }

    /// Names of the reports, sorted; empty when there is no report folder.
    pub(crate) fn report_names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.reports()) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    /// `report.json`.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&fs::read(self.reports().join("report.json")).unwrap()).unwrap()
    }

    /// Requires that the run failed as a command: nothing on standard output, no report, and one line that holds all of
    /// `parts` and nothing that steers a terminal.
    #[track_caller]
    pub(crate) fn failed(&self, parts: &[&str]) {
        assert_eq!(self.code, 2, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        let line = self.stderr.strip_suffix('\n').unwrap();
        assert!(line.starts_with("error: "), "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
        for part in parts {
            assert!(line.contains(part), "{part:?} is not in: {line}");
        }
        assert!(!self.reports().exists(), "a report folder is left: {:?}", self.report_names());
    }

    /// Requires that the run finished with something left out, and said so of a place and for a reason that hold `parts`.
    #[track_caller]
    pub(crate) fn incomplete(&self, parts: &[&str]) {
        assert_eq!((self.code, &*self.stderr), (3, ""), "{}", self.stdout);
        assert!(!self.stdout.contains(|c: char| c.is_control() && c != '\n'), "{:?}", self.stdout);
        let json = self.json();
        let entries: Vec<String> = json["incomplete"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                format!("{}: {}", entry["place"].as_str().unwrap(), entry["reason"].as_str().unwrap())
            })
            .collect();
        let told = entries.iter().any(|entry| parts.iter().all(|part| entry.contains(part)));
        assert!(told, "{parts:?} is not in: {entries:#?}");
    }
}
