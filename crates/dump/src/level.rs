//! Capture levels.

/// Level of a dump, in terms shared by both tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Module calls.
    Module,
    /// Torch functions and tensor methods.
    Api,
    /// Modules and functions.
    Mix,
    /// Dispatcher ops.
    Op,
    /// Variables that the program saved by name.
    Saved,
}

impl Level {
    /// Parses the level name of a dump: probe's own, or the older tool's (`L0`, `L1`, `debug`). `None` if the dump names no level,
    /// or one unknown to both tools.
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

    /// Returns true if dumps of the two levels share a kind of op.
    pub const fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Mix, Self::Module | Self::Api) | (Self::Module | Self::Api, Self::Mix) => true,
            _ => self as u8 == other as u8,
        }
    }
}
