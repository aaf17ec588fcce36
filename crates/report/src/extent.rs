//! Amount of a comparison in the reports for people.

/// Amount of a large comparison that the reports for people hold. Reports for programs hold everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// Ops at fault with their surroundings, and ops that differ.
    #[default]
    Selection,
    /// Every op and every value.
    Full,
}
