//! JSON as the older tool writes it: with bare `NaN`, `Infinity` and `-Infinity`, which strict parsers reject.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use probe_dump::Number;

/// Replacement texts for bare tokens after [`quote_bare_numbers`]. They keep the length of the token, so
/// that positions in error messages match the file.
const NAN: &str = "";
const INFINITY: &str = "I";
const NEG_INFINITY: &str = "-I";

/// Replaces bare `NaN`, `Infinity` and `-Infinity` outside strings by short strings of the same width.
pub(super) fn quote_bare_numbers(bytes: &mut [u8]) {
    // Most files have none; two fast searches confirm that.
    if memchr::memmem::find(bytes, b"NaN").is_none() && memchr::memmem::find(bytes, b"Infinity").is_none() {
        return;
    }
    let mut at = 0;
    while let Some(step) = memchr::memchr3(b'"', b'N', b'I', bytes.get(at..).unwrap_or_default()) {
        let found = at + step;
        at = match bytes[found] {
            b'"' => end_of_string(bytes, found + 1),
            _ => match token_at(bytes, found) {
                Some((start, end, text)) => {
                    let target = &mut bytes[start..end];
                    target.fill(b' ');
                    target[0] = b'"';
                    target[1..=text.len()].copy_from_slice(text.as_bytes());
                    target[text.len() + 1] = b'"';
                    end
                }
                None => found + 1,
            },
        };
    }
}

/// Returns `bytes` with bare `NaN`, `Infinity` and `-Infinity` outside strings put in quotes, for readers that accept these
/// words as numbers. Positions after them shift.
pub fn with_quoted_numbers(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut out: Vec<u8> = Vec::new();
    let (mut kept, mut at) = (0, 0);
    while let Some(step) = memchr::memchr3(b'"', b'N', b'I', bytes.get(at..).unwrap_or_default()) {
        let found = at + step;
        at = match bytes[found] {
            b'"' => end_of_string(bytes, found + 1),
            _ => match token_at(bytes, found) {
                Some((start, end, _)) => {
                    out.extend([&bytes[kept..start], b"\"", &bytes[start..end], b"\""].concat());
                    kept = end;
                    end
                }
                None => found + 1,
            },
        };
    }
    if kept == 0 {
        return Cow::Borrowed(bytes);
    }
    out.extend(&bytes[kept..]);
    Cow::Owned(out)
}

/// Returns start, end and replacement of the bare token whose `N` or `I` is at `found`.
fn token_at(bytes: &[u8], found: usize) -> Option<(usize, usize, &'static str)> {
    let rest = bytes.get(found..)?;
    if rest.starts_with(b"NaN") {
        return Some((found, found + 3, NAN));
    }
    if rest.starts_with(b"Infinity") {
        let negative = found > 0 && bytes[found - 1] == b'-';
        let (start, text) = if negative { (found - 1, NEG_INFINITY) } else { (found, INFINITY) };
        return Some((start, found + 8, text));
    }
    None
}

fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(step) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        let found = at + step;
        if bytes[found] == b'"' {
            return found + 1;
        }
        at = found + 2;
    }
    bytes.len()
}

/// Returns the number that a replacement text stands for.
pub(super) fn bare_number(text: &str) -> Option<f64> {
    match text {
        NAN => Some(f64::NAN),
        INFINITY => Some(f64::INFINITY),
        NEG_INFINITY => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Any JSON value; strings without escapes are borrowed from the input.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node<'a> {
    Null,
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    Map(Vec<(Cow<'a, str>, Self)>),
}

impl Node<'_> {
    /// Returns the value as a number: a plain one, or a bare token.
    pub(super) fn number(&self) -> Option<Number> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => bare_number(text).map(Number::Float),
            _ => None,
        }
    }
}

/// Prints compact JSON, as used for arguments of unusual types.
impl fmt::Display for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("None"),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => match bare_number(text) {
                Some(number) => write!(f, "{number:?}"),
                None => f.write_str(text),
            },
            Self::List(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("{")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key}: {value}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Node::Number(Number::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Node::Number(Number::Int(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Node::Number(i64::try_from(value).map_or(Number::UInt(value), Number::Int)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Node::Number(Number::Float(value)))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Owned(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = Vec::new();
        while let Some(Key(key)) = entries.next_key()? {
            map.push((key, entries.next_value()?));
        }
        Ok(Node::Map(map))
    }
}

/// The common values of a tensor's record. Anything else counts as null.
pub(super) enum Token {
    /// A number, or a bare token.
    Number(Number),
    /// A list of non-negative integers.
    Sizes(Vec<u64>),
    /// Null.
    Null,
}

impl Token {
    pub(super) fn number(self) -> Option<Number> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    pub(super) fn sizes(self) -> Option<Vec<u64>> {
        if let Self::Sizes(sizes) = self { Some(sizes) } else { None }
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TokenVisitor;
        impl<'de> Visitor<'de> for TokenVisitor {
            type Value = Token;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a list of sizes or null")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Token::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
                Ok(Token::Number(Number::Bool(value)))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(Token::Number(Number::Int(value)))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(Token::Number(i64::try_from(value).map_or(Number::UInt(value), Number::Int)))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
                Ok(Token::Number(Number::Float(value)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
                Ok(bare_number(value).map_or(Token::Null, |number| Token::Number(Number::Float(number))))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut sizes = Some(Vec::new());
                while let Some(item) = items.next_element::<Self::Value>()? {
                    let size = match item {
                        Token::Number(Number::Int(size)) => u64::try_from(size).ok(),
                        _ => None,
                    };
                    match (&mut sizes, size) {
                        (Some(sizes), Some(size)) => sizes.push(size),
                        _ => sizes = None,
                    }
                }
                Ok(sizes.map_or(Token::Null, Token::Sizes))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Token::Null)
            }
        }
        deserializer.deserialize_any(TokenVisitor)
    }
}

/// A map key, borrowed if it has no escapes (serde's own `Cow` always copies).
pub(super) struct Key<'a>(pub(super) Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(value)))
            }

            fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(value.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Node<'static> {
        let bytes = text.as_bytes().to_vec().leak();
        quote_bare_numbers(bytes);
        serde_json::from_slice::<Node<'_>>(bytes).unwrap()
    }

    #[test]
    fn bare_tokens_become_numbers_outside_strings_only() {
        let Node::List(items) =
            parse(r#"[NaN, Infinity,-Infinity, "NaN", "a \" Infinity", 1, {"NaN": NaN}]"#)
        else {
            panic!("a list")
        };
        assert!(items[0].number().unwrap().as_f64().is_nan());
        assert_eq!(items[1].number(), Some(Number::Float(f64::INFINITY)));
        assert_eq!(items[2].number(), Some(Number::Float(f64::NEG_INFINITY)));
        assert_eq!(items[3], Node::Text("NaN".into()));
        assert_eq!(items[4], Node::Text("a \" Infinity".into()));
        assert_eq!(items[6].to_string(), "{NaN: NaN}");
    }

    #[test]
    fn other_text_is_left_alone() {
        for text in [r#"{"a": "NaN", "b": "-Infinity\" NaN"}"#, r#"{"a": 1}"#, r#"{"a": "unended NaN"#] {
            let mut bytes = text.as_bytes().to_vec();
            quote_bare_numbers(&mut bytes);
            assert_eq!(bytes, text.as_bytes());
        }
    }

    #[test]
    fn bare_tokens_can_be_put_in_quotes() {
        let quoted =
            |text: &str| String::from_utf8(with_quoted_numbers(text.as_bytes()).into_owned()).unwrap();
        assert_eq!(
            quoted(r#"{"a NaN": [NaN,-Infinity, Infinity], "b": "\" NaN"}"#),
            r#"{"a NaN": ["NaN","-Infinity", "Infinity"], "b": "\" NaN"}"#
        );
        assert!(matches!(with_quoted_numbers(b"[1]"), Cow::Borrowed(_)));
    }

    #[test]
    fn integers_keep_all_bits() {
        assert_eq!(parse("9223372036854775807").number(), Some(Number::Int(i64::MAX)));
        assert_eq!(parse("18446744073709551615").number(), Some(Number::UInt(u64::MAX)));
    }
}
