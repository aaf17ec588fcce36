//! The rules that decided something in one part, each stored once, so that rows can refer to them.

use std::collections::HashMap;

use probe_dump::{DType, Ordinal};

/// Identity of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RuleKey {
    /// Floor, rounded to a half power of two; whether it was measured between runs of the baseline; whether
    /// inputs explain more than it.
    Floor(DType, i32, bool, bool),
    Exact,
    Checksum,
    User(usize),
}

/// Numbers the rules as they come into use.
#[derive(Debug, Default)]
pub(super) struct RuleBook {
    texts: Vec<Box<str>>,
    known: HashMap<RuleKey, Ordinal>,
}

impl RuleBook {
    /// Returns the number of a rule; its text is made once.
    pub(super) fn index(&mut self, key: RuleKey, text: impl FnOnce() -> String) -> Ordinal {
        *self.known.entry(key).or_insert_with(|| {
            self.texts.push(text().into());
            Ordinal::of(self.texts.len() - 1)
        })
    }

    /// Returns the number of the rule that compares a value with its floor, which may be measured between runs
    /// of the baseline, or with what its inputs explain if that is more.
    pub(super) fn floor(
        &mut self,
        dtype: DType,
        (floor, is_measured): (f64, bool),
        explained: f64,
    ) -> Ordinal {
        #[expect(clippy::cast_possible_truncation, reason = "a logarithm of a positive double is below 2048")]
        let step = (2.0 * floor.max(f64::MIN_POSITIVE).log2()).round() as i32;
        let led = explained > floor;
        self.index(RuleKey::Floor(dtype, step, is_measured, led), || {
            let shown = (f64::from(step) / 2.0).exp2();
            let more = if led { ", and what its inputs explain" } else { "" };
            let source = if is_measured { ", measured between runs of the baseline" } else { "" };
            format!("{dtype}: error of the op itself up to about {shown:.1e}{source}{more}")
        })
    }

    /// Returns the texts, in order of number.
    pub(super) fn into_texts(self) -> Vec<Box<str>> {
        self.texts
    }
}
