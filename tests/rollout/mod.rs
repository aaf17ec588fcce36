//! `probe rollout` on files as frameworks write them.

mod causes;
mod experts;
mod formats;
mod incomplete;
mod reports;
mod sglang;
mod wrong_input;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::command::probe;
use crate::support::testdata;

fn data(name: &str) -> PathBuf {
    testdata("rollout").join(name)
}

/// Exit code, and the document that is printed.
fn compared(args: &[&Path]) -> (i32, Value) {
    let mut words = vec!["rollout".to_owned()];
    words.extend(args.iter().map(|path| path.display().to_string()));
    words.extend(["--format".to_owned(), "json".to_owned()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (code, said, error) = probe(&words);
    (code, serde_json::from_str(&said).unwrap_or_else(|_| panic!("{words:?}: {said}{error}")))
}

fn causes(report: &Value) -> Vec<&str> {
    report["causes"].as_array().unwrap().iter().map(|cause| cause["cause"].as_str().unwrap()).collect()
}

/// Three samples as each side of each format has them.
struct Samples {
    folder: tempfile::TempDir,
}

const TOKENS: [&[u32]; 3] =
    [&[5, 6, 7, 8, 9, 10, 11, 12], &[20, 21, 22, 23, 24, 25], &[30, 31, 32, 33, 34, 35, 36]];
/// Tokens of the prompt.
const PROMPT: usize = 2;

fn logprob(sample: usize, t: usize) -> f64 {
    -0.1 - 0.3 * ((7 * sample + 3 * t) % 5) as f64
}

impl Samples {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Each row: sample, position, token, value.
    fn rows(mut each: impl FnMut(usize, usize, u32, f64) -> String) -> String {
        let mut out = String::new();
        for (sample, tokens) in TOKENS.iter().enumerate() {
            for (t, token) in tokens.iter().enumerate().skip(PROMPT) {
                out += &each(sample, t, *token, logprob(sample, t));
            }
        }
        out
    }
}
