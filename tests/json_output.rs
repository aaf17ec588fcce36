//! `--format json`: every command that answers prints one document to standard output, as its schema says, and nothing there where it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::testdata;
use serde_json::Value;

/// Commands without an answer of their own, and what they have in its place.
const WITHOUT: [(&str, &str); 3] = [
    ("capture", "standard output is that of the program that is captured"),
    ("completions", "the script of a shell"),
    ("man", "nothing is printed"),
];

/// Commands that run Python; `python/tests/test_gate.py` holds their documents against the schema.
const ELSEWHERE: [&str; 1] = ["narrow"];

/// Lines of each command in an order in which they can be run, the schema of what they print, and their exit code.
const LINES: &[(&str, &str, i32)] = &[
    ("compare GPU NPU", "report", 1),
    ("compare GPU NPU -q", "report", 1),
    ("plan GPU NPU -o run", "commands", 0),
    ("compare --plan run/plan.json --shard 1/1", "commands", 0),
    ("merge run", "report", 1),
    ("merge -q run", "report", 1),
    ("peers RANKS", "peers", 0),
    ("weights TENSORS SHARDED", "weights", 1),
    ("calibrate GPU NPU -o noise.toml", "commands", 0),
    ("calibrate GPU NPU -o noise.toml -q", "commands", 0),
    ("config-check PACK NUDGED", "config", 1),
    ("baseline import a.txt -o i.probe.json", "baseline-report", 0),
    ("baseline save GPU a.txt -o s.probe.json --reason x -q", "baseline-report", 0),
    ("baseline show s.probe.json", "baseline-report", 0),
    ("baseline diff a.txt b.txt", "baseline-report", 1),
    ("baseline update i.probe.json b.txt --accept --reason y", "baseline-report", 0),
    ("baseline calibrate a.txt b.txt c.txt -o p.toml", "baseline-report", 0),
    ("gate -b a.txt -c b.txt --history gates", "gate", 1),
    ("gate -b a.txt -c b.txt -q", "gate", 1),
    ("gate --policy p.toml --explain-policy-diff exact.toml", "commands", 1),
    ("gate --policy p.toml --explain-policy-diff p.toml", "commands", 0),
    ("history gates", "history", 0),
    ("convert GPU -o converted", "commands", 0),
    ("convert GPU -o arrays --to npy -q", "commands", 0),
    ("inspect GPU", "inspection", 0),
    ("inspect GPU --tensor Functional.gelu.1.forward+output.0", "inspection", 0),
    ("rollout TOKENS", "rollout", 1),
    ("rollout TOKENS -q", "rollout", 1),
    ("weights TENSORS TENSORS", "weights", 0),
    ("report stored", "commands", 0),
    ("report stored/result.parquet -o page.html -q", "commands", 0),
];

/// A mistake in each command, which ends it with 2.
const MISTAKES: &[&str] = &[
    "compare GPU nowhere",
    "compare --plan nowhere.json --shard 1/1",
    "plan GPU nowhere -o other",
    "merge nowhere",
    "peers nowhere",
    "weights nowhere TENSORS",
    "calibrate GPU nowhere -o other.toml",
    "config-check PACK nowhere.zip",
    "baseline import nowhere -o other.probe.json",
    "baseline save nowhere -o other.probe.json --reason x",
    "baseline show nowhere",
    "baseline diff a.txt nowhere",
    "baseline update nowhere b.txt --accept --reason y",
    "baseline calibrate a.txt b.txt nowhere -o other.toml",
    "gate -b a.txt -c nowhere",
    "gate --policy p.toml --explain-policy-diff nowhere",
    "history nowhere",
    "convert nowhere -o other",
    "inspect nowhere",
    "rollout nowhere",
    "report nowhere",
    "narrow --baseline nowhere --candidate-cmd true",
];

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for (name, size) in [("a.txt", 0.0), ("b.txt", 1e-4), ("c.txt", -1e-4)] {
            let text: String = (0..10).fold(String::new(), |text, step| {
                let off = if step % 2 == 0 { size } else { -size };
                text + &format!("{step} {}\n", 8.0 / f64::from(step + 1) * (1.0 + off))
            });
            place.write(name, &text);
        }
        place.write("exact.toml", "version = 1\n[[scalar]]\nname = \"loss\"\nexact = true\n");
        let (code, ..) = place.probe("compare GPU NPU -o stored -q");
        assert_eq!(code, 1);
        place
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    /// Exit code, standard output, standard error.
    fn probe(&self, line: &str) -> (i32, String, String) {
        let word = |word: &str| match word {
            "GPU" => testdata("gpu_dump").display().to_string(),
            "NPU" => testdata("npu_dump").display().to_string(),
            "TENSORS" => testdata("tensor_files/st_all.safetensors").display().to_string(),
            "SHARDED" => testdata("tensor_files/sharded").display().to_string(),
            "RANKS" => testdata("faults/gpt_rank1_linear_L1_statistics/baseline").display().to_string(),
            "PACK" => testdata("packs/base.zip").display().to_string(),
            "NUDGED" => testdata("packs/weight_nudge_1e-3.zip").display().to_string(),
            "TOKENS" => testdata("rollout/bf16_rows_swapped.jsonl").display().to_string(),
            word => word.replace('+', " "),
        };
        let output = Command::new(env!("CARGO_BIN_EXE_probe"))
            .args(line.split_ascii_whitespace().map(word))
            .current_dir(self.0.path())
            .env_remove("GITHUB_STEP_SUMMARY")
            .env("GITHUB_SHA", "0123456789abcdef0123456789abcdef01234567")
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

/// The commands that can be typed, with the manual page of each, which are made of clap's own tree.
fn commands(place: &Place) -> BTreeMap<String, String> {
    let (code, said, error) = place.probe("man pages");
    assert_eq!((code, &*said, &*error), (0, "", ""));
    let pages: BTreeMap<String, String> = fs::read_dir(place.0.path().join("pages"))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    let ends = |name: &str| !pages.keys().any(|other| other.starts_with(&format!("{name}-")));
    let command = |name: &str| {
        let name = name.strip_prefix("probe-").unwrap();
        // The one that has commands of its own.
        name.strip_prefix("baseline-").map_or_else(|| name.to_owned(), |sub| format!("baseline {sub}"))
    };
    pages.iter().filter(|(name, _)| ends(name)).map(|(name, page)| (command(name), page.clone())).collect()
}

/// Returns true if `line` is one of `command`.
fn is_of(line: &str, command: &str) -> bool {
    line.strip_prefix(command).is_some_and(|rest| rest.starts_with(' '))
}

#[test]
fn every_command_is_held_against_this() {
    let place = Place::new();
    let commands = commands(&place);
    assert!(commands.len() >= 20, "{:?}", commands.keys());
    for (command, page) in &commands {
        let lines = LINES.iter().filter(|(line, ..)| is_of(line, command)).count();
        let has_format = page.contains("\\-\\-format\\fR");
        if WITHOUT.iter().any(|(without, _)| without == command) {
            assert!(!has_format && lines == 0, "{command} has an answer");
            continue;
        }
        assert!(has_format && page.contains("json"), "probe {command} lacks --format json");
        let elsewhere = ELSEWHERE.contains(&command.as_str());
        assert!(
            (lines > 0) != elsewhere,
            "probe {command}: no line of LINES says what it prints with --format json"
        );
        assert!(MISTAKES.iter().any(|line| is_of(line, command)), "probe {command}: MISTAKES has none of it");
    }
    let known: BTreeSet<&str> = commands.keys().map(String::as_str).collect();
    let named = WITHOUT.iter().map(|(name, _)| *name).chain(ELSEWHERE);
    assert!(named.clone().all(|name| known.contains(name)), "{known:?}");
    for line in LINES.iter().map(|(line, ..)| line).chain(MISTAKES) {
        assert!(known.iter().any(|command| is_of(line, command)), "{line}");
    }
}

#[test]
fn each_prints_one_document_that_follows_its_schema() {
    let place = Place::new();
    let mut printed = BTreeMap::new();
    for (line, schema, expected) in LINES {
        let (code, said, error) = place.probe(&format!("{line} --format json"));
        assert_eq!(code, *expected, "{line}: {said}{error}");
        // One document, and nothing before or after it.
        let document: Value =
            serde_json::from_str(&said).unwrap_or_else(|error| panic!("{line}: {error}\n{said}"));
        assert!(said.ends_with("}\n"), "{line}");
        assert_eq!(
            (&document["schema_version"], &document["tool"]["name"]),
            (&1.into(), &"probe".into()),
            "{line}"
        );
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/{schema}.schema.json"));
        let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        jsonschema::validate(&schema, &document).unwrap_or_else(|error| panic!("{line}: {error}"));
        printed.insert(*line, document);
    }
    let of = |line: &str| &printed[line];
    assert_eq!(of("baseline import a.txt -o i.probe.json")["points"], 10);
    let saved = of("baseline save GPU a.txt -o s.probe.json --reason x -q");
    assert!(saved["values"].as_u64() > Some(10) && saved["bytes"].as_u64() > Some(1000), "{saved}");
    assert_eq!(of("baseline show s.probe.json")["scalars"]["loss"]["first"][0], 0);
    assert_eq!(of("baseline diff a.txt b.txt")["moved"][0]["name"], "loss");
    let updated = of("baseline update i.probe.json b.txt --accept --reason y");
    assert_eq!(updated["moved"]["different"], 10);
    let calibrated = of("baseline calibrate a.txt b.txt c.txt -o p.toml");
    assert_eq!((&calibrated["sound"], &calibrated["scalars"][0]["runs"]), (&true.into(), &3.into()));
    assert_eq!(of("history gates")["runs"][0]["state"], "regression");
    let grown = of("gate --policy p.toml --explain-policy-diff exact.toml");
    assert_eq!(grown["grown"].as_array().map(Vec::is_empty), Some(false));
    assert_eq!(of("plan GPU NPU -o run")["ranks"], 1);
    let shard = of("compare --plan run/plan.json --shard 1/1");
    assert_eq!((&shard["was_done"], &shard["shard"]), (&false.into(), &1.into()));
    assert_eq!(shard["first"], "step 0 rank 0 Functional.gelu.1.forward");
    let (one, many) = (of("compare GPU NPU"), of("merge run"));
    assert_eq!(one["first_divergence"], many["first_divergence"]);
    let converted = of("convert GPU -o arrays --to npy -q");
    assert_eq!((&converted["form"], converted["tensors"].as_u64() > Some(100)), (&"npy".into(), true));
    for written in
        ["run/report.json", "noise.toml", "stored/result.html", "page.html", "converted/manifest.json"]
    {
        assert!(place.0.path().join(written).exists(), "{written}");
    }
}

#[test]
fn where_it_fails_nothing_is_printed_but_one_line_on_standard_error() {
    let place = Place::new();
    place.probe("baseline calibrate a.txt b.txt c.txt -o p.toml");
    for line in MISTAKES {
        let (code, said, error) = place.probe(&format!("{line} --format json"));
        assert_eq!((code, &*said), (2, ""), "{line}: {error}");
        assert!(error.starts_with("error: ") && error.lines().count() == 1, "{line}: {error}");
        assert!(error.contains("nowhere"), "{line}: {error}");
    }
    let (code, said, error) = place.probe("compare --plan p.toml --shard 1/1 --format json,html");
    assert_eq!((code, &*said), (2, ""));
    assert!(error.contains("a shard takes --format json"), "{error}");
}
