//! Which kinds of device are compared: what may differ between GPU and NPU may not differ between two GPUs.

use std::fmt;

use super::pack::DeviceKind;

/// The kinds of device of both sides, where known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DevicePair {
    /// Of the baseline.
    pub baseline: Option<DeviceKind>,
    /// Of the candidate.
    pub candidate: Option<DeviceKind>,
}

impl DevicePair {
    /// True when both kinds are known and differ.
    pub fn is_mixed(self) -> bool {
        matches!((self.baseline, self.candidate), (Some(a), Some(b)) if a != b)
    }

    /// True when both kinds are known and the same.
    pub fn is_same(self) -> bool {
        matches!((self.baseline, self.candidate), (Some(a), Some(b)) if a == b)
    }

    /// Whether the pair is of the class `word`: `mixed`, `same`, or two kinds in any order (`gpu-npu`).
    pub fn is(self, word: &str) -> bool {
        match word {
            "mixed" => self.is_mixed(),
            "same" => self.is_same(),
            _ => word.split_once('-').is_some_and(|(one, other)| {
                let names = (name(self.baseline), name(self.candidate));
                names == (one, other) || names == (other, one)
            }),
        }
    }

    /// Whether `word` names a class of pairs at all.
    pub(super) fn is_class(word: &str) -> bool {
        let kind = |word| ["gpu", "npu", "cpu"].contains(&word);
        matches!(word, "mixed" | "same") || word.split_once('-').is_some_and(|(a, b)| kind(a) && kind(b))
    }
}

const fn name(kind: Option<DeviceKind>) -> &'static str {
    match kind {
        Some(DeviceKind::Gpu) => "gpu",
        Some(DeviceKind::Npu) => "npu",
        Some(DeviceKind::Cpu) => "cpu",
        None => "",
    }
}

impl fmt::Display for DevicePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |kind: Option<DeviceKind>| kind.map_or("unknown device", DeviceKind::name);
        write!(f, "{} and {}", word(self.baseline), word(self.candidate))
    }
}
