//! JSON Schema of every pack member.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::super::part::Part;
use super::{
    Dataset, Env, Hyperparameters, Manifest, Model, Optimizer, Pip, Random, Schedule, Weights, keys,
};

/// Returns the schema as committed: an object with one property per member, `manifest` and the parts. A member is
/// checked against the property of its part, such as `#/properties/env`.
pub fn pack_schema() -> String {
    let mut generator = SchemaGenerator::default();
    let mut properties = Map::new();
    properties.insert("manifest".into(), of::<Manifest>(&mut generator));
    for part in Part::ALL.into_iter().filter(|part| *part != Part::Coverage) {
        let schema = match part {
            Part::Env => of::<Env>(&mut generator),
            Part::Pip => of::<Pip>(&mut generator),
            Part::Random => of::<Random>(&mut generator),
            Part::Dataset => of::<Dataset>(&mut generator),
            Part::Model => of::<Model>(&mut generator),
            Part::Weights => of::<Weights>(&mut generator),
            Part::Optimizer => of::<Optimizer>(&mut generator),
            Part::Schedule => of::<Schedule>(&mut generator),
            Part::Hyperparameters => of::<Hyperparameters>(&mut generator),
            _ => settings(part),
        };
        properties.insert(part.name().into(), schema);
    }
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "members of a probe configuration pack, version 1",
        "description": "Each property is the schema of the member of that name.",
        "type": "object",
        "properties": properties,
        "$defs": generator.take_definitions(true),
    });
    // A schema is plain data, so serialising it cannot fail.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

/// Returns the schema of a part that is plain settings: its documented keys, nested, and any
/// others.
fn settings(part: Part) -> Value {
    let mut root = json!({ "type": "object", "properties": {} });
    for key in keys::documented(part).iter().filter(|key| !key.name.contains('*')) {
        let mut place = &mut root;
        for name in key.name.split('.') {
            let inner = &mut place["properties"][name];
            if inner.is_null() {
                *inner = json!({});
            }
            place = inner;
        }
        place["description"] = format!("{}: {}", key.kind, key.meaning).into();
        for group in groups(key.name) {
            root.pointer_mut(&group).into_iter().for_each(|group| group["type"] = "object".into());
        }
    }
    root
}

/// Returns pointers to the objects that contain `name`: for `a.b.c` those of `a` and `a.b`.
fn groups(name: &str) -> Vec<String> {
    let names: Vec<&str> = name.split('.').collect();
    (1..names.len())
        .map(|count| {
            let mut pointer = String::new();
            for name in names.iter().take(count) {
                pointer.extend(["/properties/", name]);
            }
            pointer
        })
        .collect()
}
