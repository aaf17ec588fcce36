//! Checks that `docs/report.md` documents everything in the reports.

use crate::Format;
use crate::columns::{OpColumn, SlotColumn, UnmatchedColumn};
use probe_judge::{Cause, Role, Verdict};

const DOCUMENT: &str = include_str!("../../../../docs/report.md");

/// Returns true if a table of the document has a row that starts with this name as code.
fn documented(name: &str) -> bool {
    DOCUMENT.lines().any(|line| line.starts_with(&format!("| `{name}` |")))
}

#[test]
fn every_column_word_and_file_is_documented() {
    let mut names: Vec<String> = SlotColumn::with_programs().iter().map(|column| column.name()).collect();
    names.extend(OpColumn::all().iter().map(|column| column.name().to_owned()));
    names.extend(UnmatchedColumn::ALL.map(|column| column.label().to_owned()));
    names.extend(Verdict::ALL.map(|verdict| verdict.name().to_owned()));
    names.extend(Role::ALL.map(|role| role.name().to_owned()));
    names.extend(Cause::ALL.map(|cause| cause.name().to_owned()));
    names.extend(Format::ALL.map(|format| format.file_name().to_owned()));
    names.extend(["run info", "summary", "tensors", "unmatched", "legend"].map(str::to_owned));
    let missing: Vec<_> = names.iter().filter(|name| !documented(name)).collect();
    assert!(missing.is_empty(), "not in docs/report.md: {missing:?}");
}

#[test]
fn every_field_of_the_schema_is_documented() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../schemas/report.schema.json")).unwrap();
    let mut objects = vec![&schema];
    objects.extend(schema["$defs"].as_object().unwrap().values());
    for object in objects {
        for name in object["properties"].as_object().into_iter().flatten().map(|(name, _)| name) {
            assert!(documented(name), "{name}");
        }
    }
}

#[test]
fn meanings_of_columns_are_those_of_the_legend() {
    for column in SlotColumn::with_programs() {
        let line = format!(
            "| `{}` | {} | {} |",
            column.name(),
            column.label(),
            column.meaning().replace('|', "\\|")
        );
        assert!(DOCUMENT.lines().any(|row| row == line), "expected the line\n{line}");
    }
    for column in OpColumn::all() {
        let meaning = column.meaning().replace('|', "\\|");
        let line = format!("| `{}` | {} | {meaning} |", column.name(), column.label());
        assert!(DOCUMENT.lines().any(|row| row == line), "expected the line\n{line}");
    }
}
