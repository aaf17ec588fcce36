//! Numbers as stored in files: the shortest digits that round-trip, or a word for non-finite numbers.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A number that may be NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exact(pub f64);

impl Exact {
    /// Returns the word for a non-finite number.
    pub const fn word(self) -> Option<&'static str> {
        if self.0.is_nan() {
            Some("NaN")
        } else if self.0.is_infinite() {
            Some(if self.0 > 0.0 { "Infinity" } else { "-Infinity" })
        } else {
            None
        }
    }
}

impl fmt::Display for Exact {
    /// Formats the number as in the file, so that it can be searched for there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.word() {
            Some(word) => f.write_str(word),
            None => f.write_str(&serde_json::to_string(&self.0).unwrap_or_default()),
        }
    }
}

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.word() {
            Some(word) => serializer.serialize_str(word),
            None => serializer.serialize_f64(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExactVisitor)
    }
}

struct ExactVisitor;

impl Visitor<'_> for ExactVisitor {
    type Value = Exact;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"NaN\", \"Infinity\" or \"-Infinity\"")
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Exact, E> {
        Ok(Exact(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Exact, E> {
        Ok(Exact(value as f64))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Exact, E> {
        Ok(Exact(value as f64))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Exact, E> {
        match text {
            "NaN" => Ok(Exact(f64::NAN)),
            "Infinity" => Ok(Exact(f64::INFINITY)),
            "-Infinity" => Ok(Exact(f64::NEG_INFINITY)),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Exact {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Exact".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A number, or a word if it is not finite.",
            "anyOf": [{ "type": "number" }, { "enum": ["NaN", "Infinity", "-Infinity"] }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_to_the_bit() {
        for value in [0.1, 1.0 / 3.0, 5e-324, f64::MAX, -0.0, 10.83373, f64::from(0.1_f32), f64::INFINITY] {
            let text = serde_json::to_string(&Exact(value)).unwrap();
            let back: Exact = serde_json::from_str(&text).unwrap();
            assert_eq!(back.0.to_bits(), value.to_bits(), "{text}");
            assert_eq!(Exact(value).to_string(), text.trim_matches('"'));
        }
        let nan: Exact = serde_json::from_str("\"NaN\"").unwrap();
        assert!(nan.0.is_nan());
        assert!(serde_json::from_str::<Exact>("\"1.0\"").is_err());
    }
}
