//! Colours of the terminal.

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colour {
    /// Plain text.
    #[default]
    Never,
    /// ANSI colours.
    Always,
}

/// What a piece of text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Good,
    Warn,
    Bad,
    Dim,
}

/// Puts colours around text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint(pub(super) Colour);

impl Paint {
    /// `text` in the colour of `style`, or as it is.
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
