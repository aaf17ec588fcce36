//! Selection of the steps, ranks and kinds of op to compare.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Op, OpKind};

/// Numbers given as `3`, `10-12`, or several of these separated by commas. Empty means all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NumberSet(Vec<RangeInclusive<u64>>);

/// A text that is not a [`NumberSet`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a number nor a range such as 10-12")]
pub struct SelectionError(String);

impl NumberSet {
    /// Returns true if `number` is selected.
    pub fn contains(&self, number: u64) -> bool {
        self.0.is_empty() || self.0.iter().any(|range| range.contains(&number))
    }

    /// Returns the greatest number of the set; `None` if it is unbounded.
    pub fn last(&self) -> Option<u64> {
        self.0.iter().map(|range| *range.end()).max()
    }
}

impl NumberSet {
    /// Creates a set of these numbers; of all numbers if there are none.
    pub fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        Self(numbers.into_iter().map(|number| number..=number).collect())
    }

    /// Returns the ranges as given.
    pub fn ranges(&self) -> &[RangeInclusive<u64>] {
        &self.0
    }
}

impl fmt::Display for NumberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            match (range.start(), range.end()) {
                (low, high) if low == high => write!(f, "{low}")?,
                (low, high) => write!(f, "{low}-{high}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for NumberSet {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = |part: &str| {
            let error = || SelectionError(part.to_owned());
            let number = |text: &str| text.trim().parse::<u64>().map_err(|_| error());
            let (low, high) = match part.split_once('-') {
                Some((low, high)) => (number(low)?, number(high)?),
                None => (number(part)?, number(part)?),
            };
            if low > high { Err(error()) } else { Ok(low..=high) }
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl From<NumberSet> for String {
    fn from(set: NumberSet) -> Self {
        set.to_string()
    }
}

impl TryFrom<String> for NumberSet {
    type Error = SelectionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

crate::named!(LevelFilter, "level");

/// Kinds of op to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LevelFilter {
    /// `nn.Module` calls and parameter gradients.
    Module,
    /// Torch functions and tensor methods.
    Api,
    /// Dispatcher ops (`Aten.…`).
    Op,
    /// Everything recorded.
    #[default]
    All,
}

impl LevelFilter {
    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Api => "api",
            Self::Op => "op",
            Self::All => "all",
        }
    }

    /// All filters.
    pub const ALL: [Self; 4] = [Self::Module, Self::Api, Self::Op, Self::All];

    /// Drops the ops that are not selected.
    pub fn retain(self, ops: &mut Vec<Op>) {
        let dispatched = |op: &Op| op.name.as_str().starts_with("Aten.");
        match self {
            Self::All => {}
            Self::Module => ops.retain(|op| op.name.kind() == OpKind::Module),
            Self::Api => ops.retain(|op| op.name.kind() == OpKind::Api && !dispatched(op)),
            Self::Op => ops.retain(dispatched),
        }
    }
}

impl fmt::Display for LevelFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_read() {
        let set: NumberSet = "3, 10-12".parse().unwrap();
        assert_eq!((0..14).filter(|n| set.contains(*n)).collect::<Vec<_>>(), [3, 10, 11, 12]);
        assert!(NumberSet::default().contains(7));
        for bad in ["", "a", "3-", "5-2", "1,,2", "-1"] {
            assert!(bad.parse::<NumberSet>().is_err(), "{bad:?}");
        }
    }
}
