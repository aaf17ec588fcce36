//! Dumps of the dumper of `SGLang` against a trainer.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::data;
use crate::support::command::probe;

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
