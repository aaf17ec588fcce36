//! The data of the page as TypeScript, made from the same schemas as those of the JSON files.

use std::fmt::Write as _;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::config::model::ConfigReport;
use crate::gate::GatePage;
use crate::html::head::Comparison;
use crate::rollout::RolloutPage;

/// Returns `web/src/report.ts`: a type for each struct that a page holds.
pub fn page_types() -> String {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    generator.subschema_for::<Comparison<'static>>();
    generator.subschema_for::<ConfigReport<'static>>();
    generator.subschema_for::<GatePage<'static>>();
    generator.subschema_for::<RolloutPage<'static>>();
    let mut text = String::from(
        "// The data of the pages, made by generate-schemas. Do not edit: change the structs in crates/report.\n",
    );
    for (name, schema) in generator.take_definitions(true) {
        let about = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
        // Writing to a string cannot fail.
        _ = match schema["properties"].as_object() {
            Some(fields) => {
                write!(text, "\n/** {about} */\nexport interface {name} {}\n", interface(&schema, fields))
            }
            None => write!(text, "\n/** {about} */\nexport type {name} = {};\n", type_of(&schema)),
        };
    }
    text
}

/// Returns the fields of a struct; those that may be left out are optional.
fn interface(schema: &Value, fields: &Map<String, Value>) -> String {
    let required = |name: &String| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
    };
    let mut text = String::from("{\n");
    for (name, field) in fields {
        let optional = if required(name) { "" } else { "?" };
        let quote =
            if name.chars().all(|letter| letter.is_alphanumeric() || letter == '_') { "" } else { "\"" };
        _ = writeln!(text, "  {quote}{name}{quote}{optional}: {};", type_of(field));
    }
    text + "}"
}

fn type_of(schema: &Value) -> String {
    if let Some(place) = schema["$ref"].as_str() {
        return place.rsplit('/').next().unwrap_or_default().to_owned();
    }
    if let Some(word) = schema.get("const") {
        return word.to_string();
    }
    for key in ["enum", "anyOf", "oneOf"] {
        if let Some(choices) = schema[key].as_array() {
            let each = |choice: &Value| if key == "enum" { choice.to_string() } else { type_of(choice) };
            return choices.iter().map(each).collect::<Vec<_>>().join(" | ");
        }
    }
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(|kind| simple(kind, schema)).collect::<Vec<_>>().join(" | "),
        kind => simple(kind, schema),
    }
}

/// Returns the type of a schema that has this `type`.
fn simple(kind: &Value, schema: &Value) -> String {
    match kind.as_str() {
        Some("integer" | "number") => "number".into(),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("Record<string, {}>", type_of(&schema["additionalProperties"]))
        }
        Some("array") => {
            let item = type_of(&schema["items"]);
            match (schema["minItems"].as_u64(), schema["maxItems"].as_u64()) {
                (Some(2), Some(2)) => format!("[{item}, {item}]"),
                _ if item.contains('|') => format!("({item})[]"),
                _ => format!("{item}[]"),
            }
        }
        Some(kind @ ("string" | "boolean" | "null")) => kind.into(),
        _ => "unknown".into(),
    }
}
