//! Enums that files hold as words.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An enum whose variants have names.
pub trait Named: Copy + 'static {
    /// Noun for a value, for messages: `cause`.
    const KIND: &'static str;
    /// Every value.
    const VALUES: &'static [Self];

    /// Returns the name used in files and reports.
    fn word(self) -> &'static str;

    /// Returns the value called `word`.
    fn of_word(word: &str) -> Option<Self> {
        Self::VALUES.iter().copied().find(|value| value.word() == word)
    }
}

/// Implements [`Named`] for a type that has a constant `ALL` and a function `name`.
#[macro_export]
macro_rules! named {
    ($type:ty, $kind:literal) => {
        impl $crate::Named for $type {
            const KIND: &'static str = $kind;
            const VALUES: &'static [Self] = &Self::ALL;

            fn word(self) -> &'static str {
                self.name()
            }
        }
    };
}

/// Serializes a value as its name, for `serialize_with`.
///
/// # Errors
/// As the serializer.
pub fn by_name<T: Named, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.word())
}

/// Deserializes a value from its name, for `deserialize_with`.
///
/// # Errors
/// When it is not the name of a value; the message lists the names.
pub fn of_name<'de, T: Named, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let word = Cow::<str>::deserialize(deserializer)?;
    T::of_word(&word).ok_or_else(|| {
        let mut names: Vec<&str> = T::VALUES.iter().map(|value| value.word()).collect();
        let last = names.pop().unwrap_or_default();
        let names = names.join(", ");
        de::Error::custom(format!("unknown {} {word:?}; choose {names} or {last}", T::KIND))
    })
}

/// A value that is stored as its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<T: Named> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        by_name(&self.0, serializer)
    }
}

impl<'de, T: Named> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        of_name(deserializer).map(Self)
    }
}

#[cfg(feature = "schema")]
impl<T: Named> schemars::JsonSchema for Word<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::KIND.into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let words: Vec<&str> = T::VALUES.iter().map(|value| value.word()).collect();
        schemars::json_schema!({ "type": "string", "enum": words })
    }
}
