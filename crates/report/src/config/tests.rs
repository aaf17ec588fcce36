//! Checks that `docs/config-check.md` documents everything in the reports, and that the workbook can be read back.

use super::ConfigFormat;
use probe_config_check::{Part, Verdict};

const DOCUMENT: &str = include_str!("../../../../docs/config-check.md");

/// Returns true if a table of the document has a row that starts with this name as code.
fn documented(name: &str) -> bool {
    DOCUMENT.lines().any(|line| line.starts_with(&format!("| `{name}` |")))
}

#[test]
fn every_part_verdict_and_file_is_documented() {
    let mut names: Vec<&str> = Part::ALL.map(Part::name).into();
    names.extend(Verdict::ALL.map(Verdict::name));
    names.extend(ConfigFormat::ALL.map(ConfigFormat::file_name));
    let missing: Vec<_> = names.iter().filter(|name| !documented(name)).collect();
    assert!(missing.is_empty(), "not in docs/config-check.md: {missing:?}");
}

#[test]
fn every_field_of_the_schema_is_documented() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../schemas/config.schema.json")).unwrap();
    let mut objects = vec![&schema];
    objects.extend(schema["$defs"].as_object().unwrap().values());
    let fields: std::collections::BTreeSet<&String> = objects
        .into_iter()
        .filter_map(|object| object["properties"].as_object())
        .flat_map(serde_json::Map::keys)
        .collect();
    let missing: Vec<_> = fields.iter().filter(|name| !DOCUMENT.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in docs/config-check.md: {missing:?}");
}

#[test]
fn formats_are_told_by_their_words() {
    for format in ConfigFormat::ALL {
        assert_eq!(format.name().parse(), Ok(format));
    }
    assert!(
        "parquet"
            .parse::<ConfigFormat>()
            .unwrap_err()
            .to_string()
            .contains("text, xlsx, json, html, junit, markdown")
    );
}
