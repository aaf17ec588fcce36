//! Pair of device kinds: GPU and NPU may differ in ways that two GPUs may not. The frameworks are part of it: PyTorch and
//! MindSpore may differ in more.

use std::fmt;

use super::pack::DeviceKind;

/// The class of pairs of one framework and the other.
const FRAMEWORKS: &str = "pytorch-mindspore";

/// Device kinds of both sides, if known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DevicePair {
    /// Kind of the baseline.
    pub baseline: Option<DeviceKind>,
    /// Kind of the candidate.
    pub candidate: Option<DeviceKind>,
    /// One side runs PyTorch, the other MindSpore.
    pub across_frameworks: bool,
}

impl DevicePair {
    /// Returns true if both kinds are known and differ.
    pub fn is_mixed(self) -> bool {
        matches!((self.baseline, self.candidate), (Some(a), Some(b)) if a != b)
    }

    /// Returns true if both kinds are known and equal.
    pub fn is_same(self) -> bool {
        matches!((self.baseline, self.candidate), (Some(a), Some(b)) if a == b)
    }

    /// Returns true if the pair belongs to class `word`: `mixed`, `same`, two kinds in either order (`gpu-npu`),
    /// or `pytorch-mindspore`.
    pub fn is(self, word: &str) -> bool {
        match word {
            "mixed" => self.is_mixed(),
            "same" => self.is_same(),
            FRAMEWORKS => self.across_frameworks,
            _ => word.split_once('-').is_some_and(|(one, other)| {
                let names = (name(self.baseline), name(self.candidate));
                names == (one, other) || names == (other, one)
            }),
        }
    }

    /// Returns true if `word` names a class of pairs.
    pub(super) fn is_class(word: &str) -> bool {
        let kind = |word| ["gpu", "npu", "cpu"].contains(&word);
        matches!(word, "mixed" | "same" | FRAMEWORKS)
            || word.split_once('-').is_some_and(|(a, b)| kind(a) && kind(b))
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
