//! Keys of tensor data.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Longest key, in bytes, that needs no allocation.
const SHORT: usize = 14;

/// A text that is usually short: table rows are numbered, and a part has hundreds of thousands.
#[derive(Clone)]
pub struct DataKey(Form);

#[derive(Clone)]
enum Form {
    /// Length and bytes of a UTF-8 text.
    Short(u8, [u8; SHORT]),
    Long(Box<Arc<str>>),
}

impl From<&str> for DataKey {
    fn from(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(short), Ok(length)) => {
                short.copy_from_slice(text.as_bytes());
                Self(Form::Short(length, bytes))
            }
            _ => Self(Form::Long(Box::new(text.into()))),
        }
    }
}

impl From<Arc<str>> for DataKey {
    fn from(text: Arc<str>) -> Self {
        if text.len() > SHORT { Self(Form::Long(Box::new(text))) } else { Self::from(&*text) }
    }
}

impl Deref for DataKey {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Form::Short(length, bytes) => {
                bytes.get(..usize::from(*length)).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or("")
            }
            Form::Long(text) => text,
        }
    }
}

impl PartialEq for DataKey {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Hash for DataKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_their_texts() {
        for text in [
            "",
            "row 4294967",
            "fourteen bytes",
            "fifteen bytes !",
            "Functional.linear.0.forward.input.0",
            "é",
        ] {
            let (key, shared) = (DataKey::from(text), DataKey::from(Arc::<str>::from(text)));
            assert_eq!((&*key, &*shared), (text, text));
            assert!(key == shared && key != DataKey::from("another"));
        }
        assert_eq!(size_of::<Option<DataKey>>(), 16);
    }
}
