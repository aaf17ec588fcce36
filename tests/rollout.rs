//! `probe rollout` on files as frameworks write them: formats, joins, causes, reports, exit codes, input that is wrong.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

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

#[test]
fn real_pairs_have_their_cause_and_nothing_else() {
    for (name, code, expected) in [
        ("bf16_good.jsonl", 0, &[][..]),
        ("bf16_temperature_not_in_trainer.jsonl", 1, &["temperature"]),
        ("bf16_logprobs_off_by_one.jsonl", 1, &["shift"]),
        ("bf16_rows_swapped.jsonl", 1, &["rows"]),
        ("bf16_eos_dropped.jsonl", 1, &["end-token"]),
        ("bf16_stale_10_steps_lr_1e-4.jsonl", 1, &["weights"]),
        ("bf16_soft_cap.parquet", 1, &["soft-cap"]),
        ("bf16_penalty.parquet", 1, &["penalty"]),
    ] {
        let (exit, report) = compared(&[&data(name)]);
        assert_eq!((exit, &causes(&report)[..]), (code, expected), "{name}");
    }
    let (_, report) = compared(&[&data("bf16_temperature_not_in_trainer.jsonl")]);
    let evidence = report["steps"][0]["findings"][0]["evidence"].as_str().unwrap();
    assert!(evidence.contains("rollout = trainer at temperature 0.71"), "{evidence}");
}

#[test]
fn one_pair_has_the_same_size_in_every_format() {
    let (code, slime) = compared(&[&data("slime_train_0_0.pt")]);
    assert_eq!((code, &slime["formats"][0]), (0, &json!("slime")));
    let (code, differences) = compared(&[&data("prob_diff_step_1.npy")]);
    assert_eq!(code, 0);
    assert_eq!(differences["probabilities"][0]["tokens"], slime["tokens"]);
    let (mean, other) =
        (&differences["probabilities"][0]["mean"], &slime["steps"][0]["all"]["mean_probability"]);
    assert!((mean.as_f64().unwrap() - other.as_f64().unwrap()).abs() < 1e-6, "{mean} {other}");
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

#[test]
fn every_one_sided_format_joins_with_every_other() {
    let place = Samples::new();
    let csv = Samples::rows(|sample, t, token, value| format!("{sample},{t},{token},{value}\n"));
    let plain = Samples::rows(|sample, t, token, value| {
        format!("{}\n", json!({"sample": sample, "position": t, "token_id": token, "logprob": value}))
    });
    let values = |sample: usize| (PROMPT..TOKENS[sample].len()).map(move |t| logprob(sample, t));
    let chat: Vec<String> = (0..3)
        .map(|sample| {
            let content: Vec<Value> = values(sample).map(|value| json!({"token": "x", "logprob": value})).collect();
            let body = json!({"prompt_token_ids": &TOKENS[sample][..PROMPT],
                "choices": [{"index": 0, "token_ids": &TOKENS[sample][PROMPT..], "logprobs": {"content": content}}]});
            format!("{}\n", json!({"custom_id": sample.to_string(), "response": {"status_code": 200, "body": body}}))
        })
        .collect();
    let native: Vec<String> = (0..3)
        .map(|sample| {
            let triples: Vec<Value> = values(sample)
                .zip(&TOKENS[sample][PROMPT..])
                .map(|(value, token)| json!([value, token, null]))
                .collect();
            let info =
                json!({"prompt_tokens": PROMPT, "output_token_logprobs": triples, "weight_version": "3"});
            format!("{}\n", json!({"text": "", "meta_info": info}))
        })
        .collect();
    let miles: Vec<Value> = (0..3)
        .map(|sample| {
            let entry = |t: usize| {
                json!({"global_position": t, "token_id": TOKENS[sample][t], "logprob": logprob(sample, t), "is_valid": true})
            };
            (PROMPT..TOKENS[sample].len()).map(entry).collect()
        })
        .collect();
    let files = [
        place.write("a.csv", &format!("sample,position,token_id,logprob\n{csv}")),
        place.write("b.jsonl", &plain),
        place.write("c.jsonl", &chat.concat()),
        place.write("d.jsonl", &native.concat()),
        place.write("rank_0.json", &json!({"logprob_entries": miles}).to_string()),
    ];
    for rollout in &files {
        for trainer in &files {
            let (code, report) = compared(&[rollout, trainer]);
            let label = format!("{} {}", rollout.display(), trainer.display());
            assert_eq!((code, &report["tokens"]), (0, &json!(15)), "{label}: {report:#}");
            assert!(report["steps"][0]["all"]["max_abs"].as_f64().unwrap() < 1e-6, "{label}");
        }
    }
}

#[test]
fn ranks_that_share_a_context_are_put_together() {
    let place = Samples::new();
    let entries = |rank: usize| {
        let all: Vec<Value> = (0..3)
            .map(|sample| {
                (PROMPT..TOKENS[sample].len())
                    .filter(|t| t % 2 == rank)
                    .map(|t| json!({"global_position": t, "token_id": TOKENS[sample][t], "logprob": logprob(sample, t)}))
                    .collect()
            })
            .collect();
        json!({"logprob_entries": all}).to_string()
    };
    for rank in 0..2 {
        place.write(&format!("train/rank_{rank}.json"), &entries(rank));
    }
    let csv = Samples::rows(|sample, t, token, value| format!("{sample},{t},{token},{value}\n"));
    let rollout = place.write("rollout.csv", &format!("sample,position,token_id,logprob\n{csv}"));
    let (code, report) = compared(&[&rollout, &place.folder.path().join("train")]);
    assert_eq!((code, &report["tokens"]), (0, &json!(15)), "{report:#}");
}

#[test]
fn tokens_that_differ_are_shown_in_place() {
    let place = Samples::new();
    let header = "sample,position,token_id,logprob\n";
    let ours = Samples::rows(|sample, t, token, value| format!("{sample},{t},{token},{value}\n"));
    let theirs = Samples::rows(|sample, t, token, value| {
        let token = if (sample, t) == (0, 4) { 99 } else { token };
        // The trainer drops the last token of the third sample.
        if (sample, t) == (2, 6) { String::new() } else { format!("{sample},{t},{token},{value}\n") }
    });
    let (ours, theirs) = (
        place.write("a.csv", &format!("{header}{ours}")),
        place.write("b.csv", &format!("{header}{theirs}")),
    );
    let (code, report) = compared(&[&ours, &theirs]);
    assert_eq!((code, causes(&report)), (1, vec!["tokens", "end-token"]));
    let evidence = report["steps"][0]["findings"][0]["evidence"].as_str().unwrap();
    assert!(
        evidence.contains("sample 0 at position 4, where the rollout has 9 and the trainer 99"),
        "{evidence}"
    );
    let evidence = report["steps"][0]["findings"][1]["evidence"].as_str().unwrap();
    assert!(evidence.contains("1 of 3 samples (2), id 36"), "{evidence}");
}

#[test]
fn a_trainer_that_does_not_repeat_itself_is_named() {
    let place = Samples::new();
    let side = |name: &str, off: f64| {
        let rows = Samples::rows(|sample, t, token, value| {
            let sign = if (sample + t).is_multiple_of(2) { off } else { -off };
            format!("{sample},{t},{token},{}\n", value + sign)
        });
        place.write(name, &format!("sample,position,token_id,logprob\n{rows}"))
    };
    let (rollout, trainer) = (side("a.csv", 0.0), side("b.csv", 0.06));
    for (second, expected) in [(side("same.csv", 0.06), "weights"), (side("other.csv", -0.05), "trainer")] {
        let (code, report) = compared(&[&rollout, &trainer, Path::new("--again"), &second]);
        assert_eq!((code, causes(&report)), (1, vec![expected]));
    }
}

/// Rows as a plain table has them in JSON Lines, with experts of both sides: those of the trainer are `moved`.
fn with_experts(moved: impl Fn(u32) -> u32) -> String {
    let mut out = String::new();
    for sample in 0..6_u32 {
        for t in 0..40_u32 {
            let own = (7 * sample + 3 * t) % 8;
            let value = -0.1 - 0.05 * f64::from(t % 7);
            let noise = if (sample + t).is_multiple_of(2) { 1e-4 } else { -1e-4 };
            _ = writeln!(
                out,
                "{}",
                json!({"sample": sample, "position": t, "token_id": 10 + t, "rollout_logprob": value, "trainer_logprob": value + noise,
                    "rollout_routed_experts": [[own, 8], [own, 9]], "trainer_routed_experts": [[own, 8], [moved(own), 9]],
                    "trainer_router_margins": [0.2, 0.3]})
            );
        }
    }
    out
}

#[test]
fn experts_of_a_plain_table_are_compared_and_written() {
    let place = Samples::new();
    let sound = place.write("sound.jsonl", &with_experts(|expert| expert));
    let (code, report) = compared(&[&sound]);
    assert_eq!(code, 0, "{report:#}");
    let wrong = place.write("wrong.jsonl", &with_experts(|expert| expert ^ 1));
    let out = place.folder.path().join("out");
    let (code, said, _) = probe(&["rollout", &wrong.display().to_string(), "-o", &out.display().to_string()]);
    assert_eq!(code, 1, "{said}");
    // The table holds the experts.
    for file in [wrong, out.join("tokens.parquet")] {
        let (code, report) = compared(&[&file]);
        assert_eq!((code, causes(&report)), (1, vec!["routing"]));
        let evidence = report["steps"][0]["findings"][0]["evidence"].as_str().unwrap();
        assert!(evidence.contains("router 1 (from 0)") && evidence.contains("0 is 1"), "{evidence}");
    }
    let other = with_experts(|expert| expert).replacen("[[", "[[99999,1],[", 1);
    let (code, _, error) =
        probe(&["rollout", &place.write("other.jsonl", &other).display().to_string(), "--format", "json"]);
    assert!(code == 2 && error.contains("line 1: 99999 is not an expert"), "{error}");
}

#[test]
fn experts_of_slime_are_arrays_of_numpy() {
    let (rollout, trainer) = (data("slime_experts_rollout_3.pt"), data("slime_experts_train_3.pt"));
    let (code, report) = compared(&[&rollout, &trainer]);
    assert_eq!(
        (code, causes(&report), &report["steps"][0]["step"]),
        (1, vec!["routing"], &json!(3)),
        "{report:#}"
    );
}

#[test]
fn dumps_of_sglang_are_compared_with_a_trainer() {
    let folder = tempfile::tempdir().unwrap();
    let (trainer, engine) = (data("sglang/trainer"), data("sglang/engine"));
    let asked = |engine: &Path, out: &str| {
        let out = folder.path().join(out);
        let words = [
            "compare",
            "-b",
            &trainer.display().to_string(),
            "-c",
            &engine.display().to_string(),
            "--tokens",
        ];
        let more = ["-o", &out.display().to_string(), "--format", "json", "-q"];
        let (code, said, error) = probe(&[&words[..], &more].concat());
        let report = fs::read_to_string(out.join("report.json")).unwrap_or_else(|_| panic!("{said}{error}"));
        (code, serde_json::from_str::<Value>(&report).unwrap())
    };
    let (code, report) = asked(&engine, "sound");
    assert_eq!((code, &report["first_divergence"]), (0, &Value::Null), "{report:#}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("16 tokens are compared"), "{notes}");
    // The padded head is compared by the words.
    assert!(
        fs::read_dir(&engine).unwrap().any(|file| file
            .unwrap()
            .file_name()
            .to_string_lossy()
            .contains("lm_head"))
    );
    let wrong = folder.path().join("engine");
    fs::create_dir(&wrong).unwrap();
    let files: Vec<String> =
        fs::read_dir(&engine).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    let named = |step: &str, name: &str| {
        let is = |file: &&String| {
            file.starts_with(step) && file.contains(&format!("name=non_intrusive__{name}__"))
        };
        files.iter().find(is).unwrap_or_else(|| panic!("{step} {name}"))
    };
    for file in &files {
        let step = file.split("___").next().unwrap();
        // The results of the last projection are those of another.
        let from = if file.contains("mlp.down_proj.output__") {
            named(&format!("{step}___"), "model.layers.0.self_attn.o_proj.output")
        } else {
            file
        };
        fs::copy(engine.join(from), wrong.join(file)).unwrap();
    }
    let (code, report) = asked(&wrong, "wrong");
    let op = report["first_divergence"]["op"].as_str().unwrap_or("none");
    assert!(code == 1 && op.contains("layers.0.mlp.down_proj"), "{op}");
}

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

#[test]
fn wrong_input_is_one_line_with_place_and_repair() {
    let place = Samples::new();
    let csv = "sample,position,token_id,logprob\n";
    let nemo = fs::read_to_string(data("bf16_good.jsonl")).unwrap();
    let mut cut = nemo.lines().next().unwrap().to_owned();
    cut.truncate(500);
    let short = nemo.replacen("\"input_lengths\": [20]", "\"input_lengths\": [2000]", 1);
    for (name, text, parts) in [
        ("empty.jsonl", String::new(), &["empty.jsonl: is empty"][..]),
        ("words.csv", "hello\n".into(), &["has no column sample", "expected lines of NeMo-RL"]),
        (
            "one.csv",
            format!("{csv}0,1,5,-1.0\n"),
            &["holds log-probabilities of one side", "second argument"],
        ),
        (
            "twice.csv",
            format!("{csv}0,1,5,-1\n0,1,5,-1\n"),
            &["sample 0 of step 0 has position 1 twice", "name of its own"],
        ),
        ("text.csv", format!("{csv}0,1,5,low\n"), &["line 2: logprob is \"low\", expected a number"]),
        ("cut.jsonl", cut, &["cut.jsonl: is not complete JSON: EOF", "column 500; record it again"]),
        ("short.jsonl", short, &["line 1: input_lengths says 2000, but token_ids has 57"]),
        ("other.json", "{\"a\": 1}".into(), &["holds no log-probabilities that are known here"]),
        ("bare.npy", "\u{93}NUMPY".into(), &["bare.npy"]),
        (
            "far.csv",
            format!("{csv}0,18446744073709551615,5,-1\n0,,5,-1\n"),
            &["line 2: position 18446744073709551615 is not a place in a sequence"],
        ),
        (
            "rank_0.json",
            "{\"logprob_entries\": [[], [{\"global_position\": 0, \"token_id\": 5}]]}".into(),
            &["rank_0.json: logprob_entries[1][0]: missing field `logprob`", "record them again"],
        ),
        (
            "rank_1.json",
            "{\"logprob_entries\": [[{\"global_position\": \"a\", \"token_id\": 5, \"logprob\": -1}]]}"
                .into(),
            &["logprob_entries[0][0]: invalid type: string \"a\", expected a whole number of 0 or more"],
        ),
        (
            "masked.csv",
            "sample,position,token_id,rollout_logprob,trainer_logprob,mask\na,0,5,-1,-1,0\n".into(),
            &["nothing was compared: no token is in the loss on both sides; check the mask"],
        ),
        (
            "losses.csv",
            "sample,position,token_id,rollout_logprob,trainer_logprob\na,0,5,-1,1\na,1,6,-2,2\n".into(),
            &["2 of 2 values of the trainer are above 0", "instead of losses"],
        ),
        (
            "failed.jsonl",
            "{\"choices\": [{\"logprobs\": {\"content\": [{\"logprob\": -1}]}}]}\n{\"error\": \"busy\"}\n"
                .into(),
            &["line 2: has neither choices nor meta_info; leave out requests that failed"],
        ),
    ] {
        let path = place.write(name, &text);
        let (code, said, error) = probe(&["rollout", &path.display().to_string(), "--format", "json"]);
        assert_eq!((code, &*said, error.lines().count()), (2, "", 1), "{name}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{name}: {error}");
    }
    // One bad file of a folder is told, and the rest is compared.
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

#[test]
fn a_step_that_one_side_lacks_is_not_compared() {
    let place = Samples::new();
    // The name of a file says its step where the rows do not.
    let side = |folder: &str, steps: &[u32]| {
        for step in steps {
            let rows = Samples::rows(|sample, t, token, value| {
                format!("{sample},{t},{},{value}\n", token + 100 * step)
            });
            place.write(
                &format!("{folder}/step{step}.csv"),
                &format!("sample,position,token_id,logprob\n{rows}"),
            );
        }
        place.folder.path().join(folder)
    };
    let (all, some) = (side("all", &[1, 2, 3]), side("some", &[1, 3]));
    for (rollout, trainer, lacks) in [(&all, &some, "trainer"), (&some, &all, "rollout")] {
        let (code, report) = compared(&[rollout, trainer]);
        assert_eq!((code, &report["verdict"], &report["tokens"]), (3, &json!("incomplete"), &json!(30)));
        let answer = format!("incomplete: the {lacks} has nothing of step 2 (30 tokens in 2 steps)");
        assert_eq!(report["answer"], json!(answer));
        let line = format!("step 2: the {lacks} has no log-probabilities of it; not compared");
        assert_eq!(report["incomplete"], json!([line]));
    }
    let (code, _) = compared(&[&all, &all]);
    assert_eq!(code, 0);
    let other = side("other", &[2]).display().to_string();
    let (code, _, error) = probe(&["rollout", &some.display().to_string(), &other, "--format", "json"]);
    assert!(code == 2 && error.contains("it has 2, the rollout 1, 3; record both of one step"), "{error}");
}

#[test]
fn a_sample_without_values_of_one_side_is_not_compared() {
    let place = Samples::new();
    let rows = Samples::rows(|sample, t, token, value| {
        let trainer = if sample == 1 { String::new() } else { value.to_string() };
        format!("{sample},{t},{token},{value},{trainer}\n")
    });
    let file =
        place.write("a.csv", &format!("sample,position,token_id,rollout_logprob,trainer_logprob\n{rows}"));
    let (code, report) = compared(&[&file]);
    let line = "step 0: the trainer has no log-probabilities of sample 1; not compared";
    assert_eq!((code, &report["incomplete"]), (3, &json!([line])));
    let (_, said, _) = probe(&["rollout", &file.display().to_string(), "-o", "-"]);
    assert!(said.starts_with("incomplete: 1 sample of one side alone, first in step 0 (11 tokens"), "{said}");
    assert!(said.contains("lacking   step 0: the trainer has no log-probabilities of sample 1;"), "{said}");
}
