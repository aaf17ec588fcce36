//! Packs that are damaged or made to do harm, through the program: one line or one row each, and nothing is obeyed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::pack_builder::{PackDraft, gpu, record};
use crate::support::testdata;
use crate::support::zip_builder::Zip;
use assert_cmd::Command;
use probe::config_check::pack::Setting;
use serde_json::{Value, json};

/// One run of `probe config-check`.
struct Run {
    code: i32,
    stdout: String,
    stderr: String,
    reports: PathBuf,
    _folder: tempfile::TempDir,
}

fn run(args: &[&OsStr]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let reports = folder.path().join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
    command.arg("config-check").args(args).arg("-o").arg(&reports).timeout(Duration::from_secs(60));
    let output = command.output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        reports,
        _folder: folder,
    }
}

fn pair(a: &Path, b: &Path) -> Run {
    run(&[a.as_os_str(), b.as_os_str()])
}

impl Run {
    fn json(&self) -> Value {
        serde_json::from_slice(&fs::read(self.reports.join("config.json")).unwrap()).unwrap()
    }

    /// Rows of a part.
    fn rows(&self, part: &str) -> Vec<Value> {
        self.json()["parts"][part]["rows"].as_array().unwrap().clone()
    }

    #[track_caller]
    fn failed(&self, parts: &[&str]) {
        assert_eq!((self.code, &*self.stdout), (2, ""), "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in {}", self.stderr);
        }
        assert!(!self.reports.exists(), "reports are left");
    }
}

/// A sound pack beside whatever is tried.
struct Place {
    folder: tempfile::TempDir,
    sound: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sound = gpu().write(folder.path(), "sound.zip");
        Self { folder, sound }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The sound pack with one member replaced.
    fn with_member(&self, name: &str, content: &[u8]) -> PathBuf {
        let draft = gpu();
        let manifest = serde_json::to_vec(&draft.manifest()).unwrap();
        let zip = draft
            .members()
            .iter()
            .fold(Zip::default().stored("manifest.json", manifest), |zip, (known, old)| {
                zip.deflated(known, if known == name { content } else { old })
            });
        self.file("changed.zip", &zip.bytes())
    }
}

#[test]
fn exit_codes_say_how_it_went() {
    let place = Place::new();
    let mut other = gpu();
    other.world_size = 2;
    let other = other.write(place.folder.path(), "other.zip");
    let same = pair(&place.sound, &place.sound);
    assert_eq!((same.code, &*same.stderr), (0, ""));
    assert!(same.stdout.starts_with("match: no difference that can change numerics"), "{}", same.stdout);
    let differs = pair(&place.sound, &other);
    assert_eq!(differs.code, 1);
    assert!(
        differs.stdout.starts_with("diff: 1 difference that can change numerics (distributed 1)"),
        "{}",
        differs.stdout
    );
    let damaged = place.with_member("rank0/env.json", b"{");
    let incomplete = pair(&place.sound, &damaged);
    assert_eq!(incomplete.code, 3);
    assert!(incomplete.stdout.starts_with("incomplete: 1 place could not be read"), "{}", incomplete.stdout);
    let quiet = run(&[place.sound.as_os_str(), other.as_os_str(), "-q".as_ref()]);
    assert_eq!((quiet.code, quiet.stdout.lines().count()), (1, 1));
}

#[test]
fn strict_counts_what_is_unknown() {
    let base = testdata("packs/base.zip");
    assert_eq!(pair(&base, &base).code, 0);
    let strict = run(&[base.as_os_str(), base.as_os_str(), "--strict".as_ref()]);
    assert_eq!(strict.code, 1);
    assert_eq!(strict.json()["verdict"], "diff");
    assert!(strict.stdout.starts_with("diff: what was not recorded counts"), "{}", strict.stdout);
}

#[test]
fn what_is_no_pack_is_named_on_one_line() {
    let place = Place::new();
    let sound = place.sound.clone();
    let whole = gpu().zip().bytes();
    pair(&sound, &place.folder.path().join("nowhere.zip")).failed(&["nowhere.zip", "candidate"]);
    pair(&place.file("a.txt", b"hello"), &sound).failed(&["a.txt", "not a zip file"]);
    pair(&place.file("empty.zip", b""), &sound).failed(&["empty.zip", "not a zip file"]);
    pair(&sound, &place.file("cut.zip", &whole[..whole.len() / 2])).failed(&["cut.zip", "cut short"]);
    pair(&sound, &place.file("none.zip", &Zip::default().bytes()))
        .failed(&["none.zip", "not a configuration pack"]);
    let photo = Zip::default().stored("photo.jpg", b"x").bytes();
    pair(&sound, &place.file("photos.zip", &photo)).failed(&[
        "photos.zip",
        "not a configuration pack",
        "photo.jpg",
    ]);
    pair(&sound, place.folder.path()).failed(&[]);
    let mut manifest = gpu().manifest();
    manifest.version = 2;
    let later = Zip::default().stored("manifest.json", serde_json::to_vec(&manifest).unwrap()).bytes();
    pair(&sound, &place.file("later.zip", &later)).failed(&["later.zip", "pack format 2", "newer probe"]);
    let rules = place.file("rules.toml", b"[[rule]]\nkey = 1\n");
    run(&[sound.as_os_str(), sound.as_os_str(), "--rules".as_ref(), rules.as_os_str()])
        .failed(&["rules.toml", "line 2"]);
}

#[test]
fn packs_without_a_common_part_are_an_error() {
    let place = Place::new();
    let only = |keep_env: bool, name: &str| {
        let mut draft = gpu();
        let parts = std::mem::take(draft.parts());
        if keep_env {
            draft.parts().env = parts.env;
        } else {
            draft.parts().pip = parts.pip;
        }
        draft.write(place.folder.path(), name)
    };
    pair(&only(true, "e.zip"), &only(false, "p.zip")).failed(&[
        "nothing was compared",
        "e.zip holds env",
        "p.zip holds pip",
    ]);
}

#[test]
fn a_damaged_member_is_a_row_of_its_part_and_the_rest_is_checked() {
    let place = Place::new();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (member, part, content, reason) in [
        ("rank0/env.json", "env", &b"{\"values\": {"[..], "is cut off"),
        ("rank0/pip.json", "pip", b"{\"packages\": [", "is cut off"),
        ("rank0/flags.json", "flags", b"not json", "invalid JSON"),
        ("rank0/weights.json", "weights", b"{\"steps\": 7}", "does not have the type"),
        ("rank0/random.json", "random", b"\xff\xfe", "invalid JSON"),
        ("rank0/pip.json", "pip", b"{\"packages\": [{\"name\": \"a\"}]}", "missing field `version`"),
        (
            "rank0/env.json",
            "env",
            b"{\"values\": {\"A\": \"hf_SECRETSECRET\", \"B\": 1}}",
            "does not have the type",
        ),
        ("rank0/source.json", "source", deep.as_bytes(), "does not have the type"),
    ] {
        let run = pair(&place.sound, &place.with_member(member, content));
        assert_eq!(run.code, 3, "{member}: {}", run.stdout);
        let rows = run.rows(part);
        let row =
            rows.iter().find(|row| row["key"] == member).unwrap_or_else(|| panic!("{member}: {rows:#?}"));
        assert_eq!(row["verdict"], "unknown");
        assert!(row["reason"].as_str().unwrap().contains(reason), "{member}: {row:#}");
        assert!(!run.stdout.contains("SECRETSECRET"));
        let others = run.json()["parts"]
            .as_object()
            .unwrap()
            .values()
            .filter(|part| part["verdict"] == "match")
            .count();
        assert!(others >= 10, "{member}: only {others} parts match");
    }
}

#[test]
fn a_bomb_is_refused_before_it_goes_off() {
    let place = Place::new();
    let zeros = vec![b' '; 64 << 20];
    let run = pair(&place.sound, &place.with_member("rank0/source.json", &zeros));
    assert_eq!(run.code, 3);
    assert!(run.stdout.contains("a bomb"), "{}", run.stdout);
}

#[test]
fn names_that_lead_out_of_the_pack_are_refused() {
    let place = Place::new();
    for name in ["../../evil.json", "/etc/evil.json", "rank0/../../evil.json", "C:\\evil.json"] {
        let hostile = place.file("hostile.zip", &gpu().zip().stored(name, b"{}").bytes());
        let run = pair(&place.sound, &hostile);
        assert_eq!(run.code, 3, "{name}");
        assert!(run.stdout.contains("points outside the archive"), "{name}: {}", run.stdout);
    }
}

#[test]
fn of_repeated_members_the_last_counts_and_unknown_ones_are_noted() {
    let place = Place::new();
    let draft = gpu();
    let (name, content) = draft.members().into_iter().find(|(name, _)| name == "rank0/env.json").unwrap();
    let manifest = serde_json::to_vec(&draft.manifest()).unwrap();
    let zip = draft
        .members()
        .iter()
        .filter(|(known, _)| *known != name)
        .fold(Zip::default().stored("manifest.json", manifest), |zip, (name, content)| {
            zip.stored(name, content)
        })
        .stored(&name, b"{\"values\": {\"OMP_NUM_THREADS\": \"99\"}}")
        .stored("rank0/new_part.json", b"{}")
        .stored(&name, content);
    let run = pair(&place.sound, &place.file("twice.zip", &zip.bytes()));
    assert_eq!(run.code, 0, "{}", run.stdout);
    let coverage = run.rows("coverage");
    for text in ["names of members are repeated (1 of them)", "'rank0/new_part.json' is not part"] {
        assert!(
            coverage.iter().any(|row| row["reason"].as_str().unwrap().contains(text)),
            "{text}: {coverage:#?}"
        );
    }
}

#[test]
fn a_changed_or_missing_member_is_told() {
    let place = Place::new();
    let run =
        pair(&place.sound, &place.with_member("rank0/source.json", b"{\"git\": {\"commit\": \"zzz\"}}"));
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert!(run.rows("coverage").iter().any(|row| row["key"] == "checksum" && row["verdict"] == "unknown"));
    let draft = gpu();
    let manifest = serde_json::to_vec(&draft.manifest()).unwrap();
    let zip = draft
        .members()
        .iter()
        .filter(|(name, _)| name != "rank0/source.json")
        .fold(Zip::default().stored("manifest.json", manifest), |zip, (name, content)| {
            zip.stored(name, content)
        });
    let run = pair(&place.sound, &place.file("lacking.zip", &zip.bytes()));
    assert_eq!(run.code, 3);
    assert!(run.stdout.contains("the manifest lists it, but the pack lacks it"), "{}", run.stdout);
}

/// A pack of the older tool.
fn older(weights: &str) -> Vec<u8> {
    let env = json!({"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "=1+cmd|' /C calc'!A0", "EVIL": "a\u{1b}[31m"});
    Zip::default()
        .deflated("env", env.to_string())
        .deflated("pip", "torch=2.7.1\n=strange\n")
        .deflated("weights/step0/rank0/weight.json", weights)
        .deflated("dataset/step0/rank0/dataset.json", r#"{"args": {"0": {"max": NaN, "min": -Infinity, "mean": null, "norm": 1}}, "kwargs": {"x": ""}}"#)
        .bytes()
}

#[test]
fn bare_nan_and_wild_values_of_the_older_tool_are_read() {
    let place = Place::new();
    let weights = r#"{"w": {"max": NaN, "min": NaN, "mean": NaN, "norm": Infinity}}"#;
    let a = place.file("a.zip", &older(weights));
    let run = pair(&a, &a);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let rows = run.rows("weights");
    assert!(
        rows[0]["verdict"] == "match" && rows[0]["reason"].as_str().unwrap().contains("NaN on both sides"),
        "{rows:#?}"
    );
    let b = place.file("b.zip", &older(&weights.replacen("NaN", "1.0", 1)));
    assert_eq!(pair(&a, &b).code, 1);
    let bad = place.file("bad.zip", &older("{\"w\": 5}"));
    assert_eq!(pair(&a, &bad).code, 3);
}

#[test]
fn texts_are_harmless_in_every_report() {
    let place = Place::new();
    let mut candidate = gpu();
    let env = candidate.parts().env.as_mut().unwrap();
    env.values.insert("OMP_NUM_THREADS".into(), "=HYPERLINK(\"http://x\")".into());
    env.values.insert("MKL_NUM_THREADS".into(), "a\u{1b}[31mred\u{202e}\n".into());
    env.values.insert("PYTHONHASHSEED".into(), "x".repeat(100_000));
    let candidate = candidate.write(place.folder.path(), "wild.zip");
    let run = run(&[
        place.sound.as_os_str(),
        candidate.as_os_str(),
        "--format".as_ref(),
        "text,xlsx,json,junit".as_ref(),
        "-v".as_ref(),
    ]);
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("a\\x1b[31mred\\u{202e}\\n"), "{}", run.stdout);
    for name in ["config.txt", "config.json", "config.junit.xml"] {
        let text = fs::read_to_string(run.reports.join(name)).unwrap();
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{name}");
        assert!(text.len() < 200_000, "{name}: {}", text.len());
    }
    let junit = fs::read_to_string(run.reports.join("config.junit.xml")).unwrap();
    assert!(
        junit.contains(
            "<testcase name=\"env\" classname=\"config-check\">\n            <failure message=\"1 diff\" type=\"diff\">"
        ),
        "{junit}"
    );
}

/// Everything that ends up in reports and on the terminal.
fn everything(run: &Run) -> String {
    let mut all = format!("{}{}", run.stdout, run.stderr);
    for entry in fs::read_dir(&run.reports).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "xlsx") {
            all.push_str(&workbook_text(&path));
        } else {
            all.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    all
}

fn workbook_text(path: &Path) -> String {
    use calamine::Reader as _;
    let mut book = calamine::open_workbook_auto(path).unwrap();
    let mut text = String::new();
    for (_, sheet) in book.worksheets() {
        for row in sheet.rows() {
            text.extend(row.iter().map(|cell| format!("{cell}\n")));
        }
    }
    text
}

#[test]
fn no_secret_of_an_older_pack_reaches_a_report() {
    let run = run(&[
        testdata("packs/base.zip").as_os_str(),
        testdata("packs/secrets.zip").as_os_str(),
        "-v".as_ref(),
        "--format".as_ref(),
        "text,json,junit,xlsx".as_ref(),
    ]);
    assert_eq!(run.code, 0, "{}", run.stdout);
    let all = everything(&run);
    for secret in ["hf_FAKEFAKEFAKE", "wk_FAKE", "aws_FAKE", "u:pw", "postgres", "/home/user"] {
        assert!(!all.contains(secret), "{secret}");
    }
    for name in ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL"] {
        assert!(all.contains(name), "{name}");
    }
}

#[test]
fn no_secret_of_any_part_reaches_a_report() {
    let place = Place::new();
    let planted = |draft: &mut PackDraft| {
        let parts = draft.parts();
        parts.hyperparameters.as_mut().unwrap().sources[0].values = record(json!({
            "api_key": "PLANTED1", "url": "https://user:PLANTED2@host/x", "nested": {"password": "PLANTED3"},
            "cmd": "run --api-key PLANTED4 --lr 1", "note": "hf_PLANTED5PLANTED5",
        }));
        parts.source.as_mut().unwrap().0.push((
            "argv".into(),
            Setting::List(["--hf-token", "PLANTED6", "--token=PLANTED7"].map(Setting::from).into()),
        ));
        let env = parts.env.as_mut().unwrap();
        env.values.insert("NCCL_SECRET_TOKEN".into(), "PLANTED8".into());
        env.values.insert("MY_VARIABLE".into(), "PLANTED9".into());
        env.values.insert("TORCH_HOME".into(), "s3://id:PLANTED10@bucket".into());
    };
    let mut draft = gpu();
    planted(&mut draft);
    let planted = draft.write(place.folder.path(), "planted.zip");
    for (a, b) in [(&place.sound, &planted), (&planted, &place.sound), (&planted, &planted)] {
        let run = run(&[
            a.as_os_str(),
            b.as_os_str(),
            "-v".as_ref(),
            "--format".as_ref(),
            "text,json,junit,xlsx".as_ref(),
        ]);
        let all = everything(&run);
        assert!(
            !all.contains("PLANTED"),
            "{}",
            &all[all.find("PLANTED").unwrap().saturating_sub(200)..][..300]
        );
    }
}

#[test]
fn the_report_follows_its_schema() {
    let schema: Value =
        serde_json::from_str(&fs::read_to_string("schemas/config.schema.json").unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let place = Place::new();
    let damaged = place.with_member("rank0/env.json", b"{");
    for (a, b, verdict) in [
        (place.sound.clone(), place.sound.clone(), "match"),
        (testdata("packs/base.zip"), testdata("packs/weight_nudge_1e-3.zip"), "diff"),
        (place.sound, damaged, "incomplete"),
    ] {
        let json = pair(&a, &b).json();
        let errors: Vec<String> =
            validator.iter_errors(&json).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        assert_eq!(json["verdict"], verdict);
        assert_eq!(json["parts"].as_object().unwrap().len(), 16);
    }
}

#[test]
fn members_of_a_pack_follow_their_schema() {
    let schema: Value =
        serde_json::from_str(&fs::read_to_string("schemas/pack.schema.json").unwrap()).unwrap();
    let draft = gpu();
    let manifest = ("manifest.json".to_owned(), serde_json::to_vec(&draft.manifest()).unwrap());
    for (name, content) in draft.members().into_iter().chain([manifest]) {
        let part = name.rsplit('/').next().unwrap().trim_end_matches(".json");
        let mut own = schema["properties"][part].clone();
        assert!(own.is_object(), "{part}");
        own["$defs"] = schema["$defs"].clone();
        let validator = jsonschema::validator_for(&own).unwrap();
        let value: Value = serde_json::from_slice(&content).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        assert!(!validator.is_valid(&json!(7)), "{name}");
    }
}

#[test]
fn the_workbook_has_a_summary_and_a_sheet_a_part() {
    use calamine::{Data, Reader as _};
    let run = pair(&testdata("packs/base.zip"), &testdata("packs/weight_nudge_1e-3.zip"));
    assert_eq!(run.code, 1);
    let mut book = calamine::open_workbook_auto(run.reports.join("result.xlsx")).unwrap();
    let summary = book.worksheet_range("summary").unwrap();
    let rows: Vec<Vec<Data>> = summary.rows().map(<[Data]>::to_vec).collect();
    assert_eq!(rows[0][..2], [Data::String("filename".into()), Data::String("pass_check".into())]);
    let passes = |name: &str| rows.iter().find(|row| row[0] == Data::String(name.into())).unwrap()[1].clone();
    assert_eq!(passes("weights"), Data::Bool(false));
    for name in ["env", "pip", "dataset", "random", "optimizer", "coverage"] {
        assert_eq!(passes(name), Data::Bool(true), "{name}");
    }
    let weights = book.worksheet_range("weights").unwrap();
    let head: Vec<String> = weights.rows().next().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(head, ["key", "step", "ranks", "baseline", "candidate", "verdict", "reason", "action"]);
    assert!(
        weights
            .rows()
            .any(|row| row[0] == Data::String("fc1.weight".into()) && row[5] == Data::String("diff".into()))
    );
}
