//! Reports: what they hold, and that other commands read them.

use std::fs;

use super::{Samples, causes, compared, data};
use crate::support::command::probe;

#[test]
fn reports_hold_every_sample_and_token_and_come_back() {
    let place = Samples::new();
    let out = place.folder.path().join("out");
    let file = data("bf16_rows_swapped.jsonl").display().to_string();
    let (code, said, _) = probe(&["rollout", &file, "-o", &out.display().to_string()]);
    assert_eq!(code, 1, "{said}");
    assert!(said.starts_with("differ: rows, first in step 0"), "{said}");
    let mut names: Vec<String> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(
        names,
        ["rollout.html", "rollout.json", "rollout.txt", "samples.xlsx", "scalars.jsonl", "tokens.parquet"]
    );
    // The table of tokens is a plain table of both sides, with the mask that the causes were found with.
    let (code, again) = compared(&[&out.join("tokens.parquet")]);
    assert_eq!((code, causes(&again)), (1, vec!["rows"]));
    let (_, first) = compared(&[&data("bf16_rows_swapped.jsonl")]);
    assert_eq!(again["steps"][0]["all"], first["steps"][0]["all"]);
    let scalars = out.join("scalars.jsonl").display().to_string();
    let json = out.join("rollout.json").display().to_string();
    for candidate in [&scalars, &json] {
        let (code, said, error) = probe(&["gate", "-b", &scalars, "-c", candidate, "-o", "-", "-q"]);
        assert_eq!(code, 0, "{candidate}: {said}{error}");
    }
}
