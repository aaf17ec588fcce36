//! Optional remarks on ops and values.

use std::fmt;
use std::ops::Deref;

/// A usually empty text, in the memory of a pointer.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Remark(Option<Box<Box<str>>>);

impl Remark {
    /// The empty text.
    pub const NONE: Self = Self(None);

    /// Returns the text, if not empty.
    pub fn said(&self) -> Option<&str> {
        Some(&**self).filter(|text| !text.is_empty())
    }
}

impl Deref for Remark {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_deref().map_or("", |text| text)
    }
}

impl From<&str> for Remark {
    fn from(text: &str) -> Self {
        Self((!text.is_empty()).then(|| Box::new(text.into())))
    }
}

impl From<String> for Remark {
    fn from(text: String) -> Self {
        Self((!text.is_empty()).then(|| Box::new(text.into())))
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
