//! Layouts of values that the user declares, by names of ops and slots.

use globset::{Glob, GlobMatcher};

use super::dims::{Dims, Mesh};

/// Declared layouts; none by default.
#[derive(Debug, Clone, Default)]
pub struct Declared(Vec<Line>);

/// A declared layout and the values that have it.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    name: String,
    op: GlobMatcher,
    slot: Option<GlobMatcher>,
    pub(crate) dims: Dims,
    pub(crate) mesh: Mesh,
}

impl Declared {
    /// Adds the layout of the values whose op and slot match these patterns (`*` stands for anything); without a slot, of all results.
    ///
    /// # Errors
    /// The problem, in words.
    pub fn add(&mut self, op: &str, slot: Option<&str>, dims: &str, mesh: Mesh) -> Result<(), String> {
        let name = slot.map_or_else(|| op.to_owned(), |slot| format!("{op} {slot}"));
        let told = |why: String| format!("layout of {name:?}: {why}");
        let glob = |pattern: &str| {
            Glob::new(pattern).map(|glob| glob.compile_matcher()).map_err(|why| told(why.to_string()))
        };
        let (op, slot) = (glob(op)?, slot.map(glob).transpose()?);
        let dims = Dims::parse(dims).map_err(told)?;
        self.0.push(Line { name, op, slot, dims, mesh });
        Ok(())
    }

    /// Returns the first layout that is declared for a slot.
    pub(crate) fn of(&self, op: &str, slot: &str, is_result: bool) -> Option<&Line> {
        let fits = |line: &&Line| {
            line.op.is_match(op) && line.slot.as_ref().map_or(is_result, |pattern| pattern.is_match(slot))
        };
        self.0.iter().find(fits)
    }

    /// Returns the name of the first layout that no slot has.
    pub(crate) fn unused(&self, used: &[&Line]) -> Option<&str> {
        self.0
            .iter()
            .find(|line| !used.iter().any(|other| std::ptr::eq(*line, *other)))
            .map(|line| &*line.name)
    }
}

impl Line {
    /// Formats a problem with this layout.
    pub(crate) fn wrong(&self, why: &str) -> String {
        format!("layout of {:?}: {why}", self.name)
    }
}
