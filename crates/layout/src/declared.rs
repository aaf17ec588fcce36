//! Layouts of values that the user declares, by names of ops and slots.

use globset::{Glob, GlobMatcher};

use super::dims::{Dims, Mesh};

/// Begins the placement of a value whose dimensions were written with it, as `SGLang`'s dumper does.
const RECORDED: &str = "dims ";

/// Declared layouts; none by default.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    lines: Vec<Line>,
    /// The mesh of values whose dimensions were recorded.
    mesh: Option<Mesh>,
}

/// A declared layout and the values that have it.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    name: String,
    /// The text, if it was recorded with the value.
    recorded: Option<Box<str>>,
    op: GlobMatcher,
    slot: Option<GlobMatcher>,
    pub(crate) dims: Dims,
    pub(crate) mesh: Mesh,
}

impl Declared {
    /// Returns no layouts yet, with the mesh of values whose dimensions were recorded.
    pub const fn over(mesh: Option<Mesh>) -> Self {
        Self { lines: Vec::new(), mesh }
    }

    /// Returns the layout that was recorded with a value, if it is more than replicas.
    ///
    /// # Errors
    /// The problem with its text, in words.
    pub(crate) fn recorded(&self, op: &str, placement: Option<&str>) -> Result<Option<Line>, String> {
        let Some(text) = placement.and_then(|placement| placement.strip_prefix(RECORDED)) else {
            return Ok(None);
        };
        let dims = Dims::parse(text).map_err(|why| format!("layout of {op:?}: {why}"))?;
        let Some(mesh) = self.mesh.clone().filter(|_| dims.is_spread()) else { return Ok(None) };
        Ok(Some(Line {
            name: op.to_owned(),
            recorded: Some(text.into()),
            op: Glob::new("*").map_err(|why| why.to_string())?.compile_matcher(),
            slot: None,
            dims,
            mesh,
        }))
    }

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
        self.lines.push(Line { name, recorded: None, op, slot, dims, mesh });
        Ok(())
    }

    /// Returns the first layout that is declared for a slot.
    pub(crate) fn of(&self, op: &str, slot: &str, is_result: bool) -> Option<&Line> {
        let fits = |line: &&Line| {
            line.op.is_match(op) && line.slot.as_ref().map_or(is_result, |pattern| pattern.is_match(slot))
        };
        self.lines.iter().find(fits)
    }

    /// Returns the name of the first layout that no slot has.
    pub(crate) fn unused(&self, used: &[&Line]) -> Option<&str> {
        self.lines
            .iter()
            .find(|line| !used.iter().any(|other| std::ptr::eq(*line, *other)))
            .map(|line| &*line.name)
    }
}

impl Line {
    /// Formats a problem with this layout.
    pub(crate) fn wrong(&self, why: &str) -> String {
        let own = self.recorded.as_ref().map(|text| {
            format!("; its dims {text:?} were recorded with it: correct them there, or declare its [[layout]] in the file of --mapping")
        });
        format!("layout of {:?}: {why}{}", self.name, own.unwrap_or_default())
    }
}
