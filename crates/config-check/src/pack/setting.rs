//! A setting value of any type: JSON values, with integers distinct from floats.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Replacement for a secret.
pub(crate) const MASK: &str = "***";

/// Selects the environment variables whose values a pack keeps; of the others it keeps only the names.
pub trait AllowedVariables {
    /// Returns true if the value of a variable may be shown.
    fn allows(&self, variable: &str) -> bool;
}

/// A setting's value.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Setting {
    /// Nothing, or Python's `None`.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// Another number. NaN and infinities are written as the words `NaN`, `Infinity`, `-Infinity`.
    Float(f64),
    /// Text.
    Text(String),
    /// A list or tuple.
    List(Vec<Self>),
    /// Names and values, in order.
    Map(Record),
}

/// Settings by name, in the order they were recorded in.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record(pub Vec<(String, Setting)>);

impl Record {
    /// Returns the value called `key`; of several, the last.
    pub fn get(&self, key: &str) -> Option<&Setting> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns true if nothing was recorded.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns every value that is not a map, under its full name: names joined by dots. An empty map or list counts as a
    /// value. Lists stay whole, except lists that hold maps.
    pub fn leaves(&self) -> Vec<(String, &Setting)> {
        let mut leaves = Vec::new();
        self.collect("", &mut leaves);
        leaves
    }

    fn collect<'a>(&'a self, prefix: &str, leaves: &mut Vec<(String, &'a Setting)>) {
        for (name, value) in &self.0 {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            value.collect(key, leaves);
        }
    }
}

impl Setting {
    fn collect<'a>(&'a self, key: String, leaves: &mut Vec<(String, &'a Self)>) {
        match self {
            Self::Map(record) if !record.is_empty() => record.collect(&key, leaves),
            Self::List(items) if items.iter().any(|item| matches!(item, Self::Map(_))) => {
                for (index, item) in items.iter().enumerate() {
                    item.collect(format!("{key}.{index}"), leaves);
                }
            }
            _ => leaves.push((key, self)),
        }
    }

    /// Returns the text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<&str> for Setting {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Prints as Python does, but without quotes around a bare text.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("None"),
            Self::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) if value.is_nan() => f.write_str("NaN"),
            Self::Float(value) if value.is_infinite() => {
                f.write_str(if *value > 0.0 { "Infinity" } else { "-Infinity" })
            }
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(text) => f.write_str(text),
            Self::List(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Map(record) => {
                f.write_str("{")?;
                for (index, (name, value)) in record.0.iter().enumerate() {
                    write!(f, "{}{name}: {value}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(small), _) => serializer.serialize_i64(small),
                (_, Ok(large)) => serializer.serialize_u64(large),
                _ => serializer.serialize_str(&value.to_string()),
            },
            Self::Float(value) if value.is_finite() => serializer.serialize_f64(*value),
            Self::Float(_) => serializer.serialize_str(&self.to_string()),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Map(record) => record.serialize(serializer),
        }
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SettingVisitor)
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RecordVisitor)
    }
}

struct SettingVisitor;

impl<'de> Visitor<'de> for SettingVisitor {
    type Value = Setting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Setting, E> {
        Ok(Setting::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Setting, E> {
        Ok(Setting::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Setting, E> {
        Ok(Setting::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Setting, E> {
        Ok(Setting::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Setting, E> {
        Ok(Setting::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Setting, E> {
        Ok(Setting::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Setting, E> {
        Ok(Setting::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Setting, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Setting::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Setting, A::Error> {
        RecordVisitor.visit_map(entries).map(Setting::Map)
    }
}

struct RecordVisitor;

impl<'de> Visitor<'de> for RecordVisitor {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Record, A::Error> {
        let mut record = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            record.push(entry);
        }
        Ok(Record(record))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Setting {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Setting".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Any value; numbers that are not finite are the words NaN, Infinity, -Infinity.",
            "type": ["null", "boolean", "number", "string", "array", "object"],
        })
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Record {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Record".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "description": "Settings by name.", "type": "object" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_type_both_ways() {
        let text = r#"{"a":1,"b":{"c":[0.1,"x",null],"d":{}},"e":[{"f":true}],"g":18446744073709551615}"#;
        let record: Record = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        let leaves: Vec<String> =
            record.leaves().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(leaves, ["a=1", "b.c=[0.1, x, None]", "b.d={}", "e.0.f=True", "g=18446744073709551615"]);
    }

    #[test]
    fn numbers_that_json_cannot_say_are_words() {
        let text = serde_json::to_string(&Setting::Float(f64::NEG_INFINITY)).unwrap();
        assert_eq!(text, "\"-Infinity\"");
    }
}
