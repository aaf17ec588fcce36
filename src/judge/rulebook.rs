//! The rules that decided something in one part, each once, so that rows can point at them.

use std::collections::HashMap;

use crate::dump::DType;

/// Identity of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RuleKey {
    Default(Option<DType>),
    Growth(Option<DType>),
    Bias(Option<DType>),
    Sparse(Option<DType>),
    Exact,
    Checksum,
    User(usize),
}

/// Numbers rules as they come into use.
#[derive(Debug, Default)]
pub(super) struct RuleBook {
    texts: Vec<Box<str>>,
    known: HashMap<RuleKey, u32>,
}

impl RuleBook {
    /// Number of a rule; its text is made once.
    pub(super) fn index(&mut self, key: RuleKey, text: impl FnOnce() -> String) -> u32 {
        *self.known.entry(key).or_insert_with(|| {
            self.texts.push(text().into());
            u32::try_from(self.texts.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// The texts, in order of number.
    pub(super) fn into_texts(self) -> Vec<Box<str>> {
        self.texts
    }
}

/// Name of a dtype in the text of a rule.
pub(super) fn dtype_name(dtype: Option<DType>) -> &'static str {
    dtype.map_or("other types", DType::name)
}
