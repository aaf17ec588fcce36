//! Input that is wrong: one line says the place and the repair.

use std::fs;

use serde_json::json;

use super::{Samples, compared, data};
use crate::support::command::probe;

/// Requires that each file, given by name and text, is refused in one line that has all parts.
fn refused(files: &[(&str, &str, &[&str])]) {
    let place = Samples::new();
    for (name, text, parts) in files {
        let path = place.write(name, text);
        let (code, said, error) = probe(&["rollout", &path.display().to_string(), "--format", "json"]);
        assert_eq!((code, &*said, error.lines().count()), (2, "", 1), "{name}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{name}: {error}");
    }
}

fn lines_of_nemo() -> String {
    fs::read_to_string(data("bf16_good.jsonl")).unwrap()
}

#[test]
fn tables_say_the_line_and_the_column() {
    const ONE_SIDE: &str = "sample,position,token_id,logprob";
    const BOTH: &str = "sample,position,token_id,rollout_logprob,trainer_logprob";
    let of = |columns: &str, rows: &str| format!("{columns}\n{rows}\n");
    refused(&[
        ("words.csv", "hello\n", &["has no column sample", "expected lines of NeMo-RL"]),
        ("one.csv", &of(ONE_SIDE, "0,1,5,-1.0"), &["holds log-probabilities of one side", "second argument"]),
        (
            "twice.csv",
            &of(ONE_SIDE, "0,1,5,-1\n0,1,5,-1"),
            &["sample 0 of step 0 has position 1 twice", "name of its own"],
        ),
        ("text.csv", &of(ONE_SIDE, "0,1,5,low"), &["line 2: logprob is \"low\", expected a number"]),
        (
            "far.csv",
            &of(ONE_SIDE, "0,18446744073709551615,5,-1\n0,,5,-1"),
            &["line 2: position 18446744073709551615 is not a place in a sequence"],
        ),
        (
            "masked.csv",
            &of(&format!("{BOTH},mask"), "a,0,5,-1,-1,0"),
            &["nothing was compared: no token is in the loss on both sides; check the mask"],
        ),
        (
            "losses.csv",
            &of(BOTH, "a,0,5,-1,1\na,1,6,-2,2"),
            &["2 of 2 values of the trainer are above 0", "instead of losses"],
        ),
    ]);
}

#[test]
fn lines_of_json_say_the_field() {
    let nemo = lines_of_nemo();
    let mut cut = nemo.lines().next().unwrap().to_owned();
    cut.truncate(500);
    let short = nemo.replacen("\"input_lengths\": [20]", "\"input_lengths\": [2000]", 1);
    refused(&[
        ("cut.jsonl", &cut, &["cut.jsonl: is not complete JSON: EOF", "column 500; record it again"]),
        ("short.jsonl", &short, &["line 1: input_lengths says 2000, but token_ids has 57"]),
        (
            "failed.jsonl",
            "{\"choices\": [{\"logprobs\": {\"content\": [{\"logprob\": -1}]}}]}\n{\"error\": \"busy\"}\n",
            &["line 2: has neither choices nor meta_info; leave out requests that failed"],
        ),
    ]);
}

#[test]
fn entries_of_miles_say_their_place() {
    refused(&[
        (
            "rank_0.json",
            "{\"logprob_entries\": [[], [{\"global_position\": 0, \"token_id\": 5}]]}",
            &["rank_0.json: logprob_entries[1][0]: missing field `logprob`", "record them again"],
        ),
        (
            "rank_1.json",
            "{\"logprob_entries\": [[{\"global_position\": \"a\", \"token_id\": 5, \"logprob\": -1}]]}",
            &["logprob_entries[0][0]: invalid type: string \"a\", expected a whole number of 0 or more"],
        ),
    ]);
}

#[test]
fn files_of_no_known_format_are_named() {
    refused(&[
        ("empty.jsonl", "", &["empty.jsonl: is empty"]),
        ("other.json", "{\"a\": 1}", &["holds no log-probabilities that are known here"]),
        ("bare.npy", "\u{93}NUMPY", &["bare.npy"]),
    ]);
}

#[test]
fn one_bad_file_of_a_folder_is_told_and_the_rest_is_compared() {
    let (place, nemo) = (Samples::new(), lines_of_nemo());
    place.write("folder/train_data_step1.jsonl", &nemo);
    place.write("folder/train_data_step2.jsonl", &nemo[..700]);
    let (code, report) = compared(&[&place.folder.path().join("folder")]);
    assert_eq!((code, &report["verdict"], &report["tokens"]), (3, &json!("incomplete"), &json!(251)));
}

#[test]
fn differences_without_their_mask_name_the_file_that_is_expected() {
    let place = Samples::new();
    for (has, lacks) in
        [("prob_diff_step_1.npy", "prob_mask_step_1.npy"), ("prob_mask_step_1.npy", "prob_diff_step_1.npy")]
    {
        let folder = place.folder.path().join(has);
        fs::create_dir(&folder).unwrap();
        fs::copy(data(has), folder.join(has)).unwrap();
        for path in [folder.join(has), folder.clone()] {
            let (code, said, error) = probe(&["rollout", &path.display().to_string(), "--format", "json"]);
            let expected = format!("{has}: {lacks} is not beside it; copy it there");
            assert_eq!((code, &*said, error.lines().count()), (2, "", 1), "{error}");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
