//! Which ops a capture recorded.

/// The level of a dump, in the terms that both tools share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Module calls.
    Module,
    /// Torch functions and tensor methods.
    Api,
    /// Modules and functions.
    Mix,
    /// Ops of the dispatcher.
    Op,
    /// Variables that the program saved by name.
    Saved,
}

impl Level {
    /// Reads the word of a dump: probe's own, or the older tool's (`L0`, `L1`, `debug`). `None` for a dump that names no level, and
    /// for a word of neither tool.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "module" | "L0" => Self::Module,
            "api" | "L1" => Self::Api,
            "mix" => Self::Mix,
            "op" => Self::Op,
            "saved" | "debug" => Self::Saved,
            _ => return None,
        })
    }

    /// Whether dumps of the two levels hold some ops of one kind.
    pub const fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Mix, Self::Module | Self::Api) | (Self::Module | Self::Api, Self::Mix) => true,
            _ => self as u8 == other as u8,
        }
    }
}
