//! Terminal colours.

/// Use of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colour {
    /// Plain text.
    #[default]
    Never,
    /// ANSI colours.
    Always,
}

/// Meaning of a piece of text, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Good,
    Warn,
    Bad,
    Dim,
}

/// Wraps text in colour codes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint(pub(super) Colour);

impl Paint {
    /// Returns `text` in the colour of `style`, or unchanged.
    pub(super) fn on(self, style: Style, text: &str) -> String {
        let code = match style {
            _ if self.0 == Colour::Never || text.is_empty() => return text.to_owned(),
            Style::Plain => return text.to_owned(),
            Style::Good => "1;32",
            Style::Warn => "33",
            Style::Bad => "1;31",
            Style::Dim => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
