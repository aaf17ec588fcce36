//! The styles of cells, as one enum.

use rust_xlsxwriter::{Format, FormatAlign};

use probe_judge::{Role, RunVerdict, Verdict};

/// Style of a cell. The discriminant is its position in [`Style::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Text and whole numbers.
    Plain,
    /// Column header.
    Header,
    /// The answer.
    Title,
    /// Label of a line or a section.
    Bold,
    /// Name that links to another sheet.
    Link,
    /// The same for an op at fault.
    LinkAtFault,
    /// Number between a thousandth and a million: six decimals.
    Fixed,
    /// Other metrics: three digits.
    Scientific,
    /// Other values of tensors: five digits.
    ScientificLong,
    /// NaN or an infinity as a word.
    NonFinite,
    /// Fine.
    Good,
    /// Worth knowing.
    Info,
    /// Worth a look.
    Warn,
    /// Close to the fault.
    Hot,
    /// The fault.
    Bad,
    /// Nothing to compare.
    Muted,
    /// Integer or word centred in its column, so that it keeps away from its neighbours.
    Centre,
    /// The run agrees.
    Agree,
    /// A check that passes.
    Passes,
    /// A check that fails.
    Fails,
    /// Line that explains a sheet.
    Remark,
    /// Text of several lines.
    Wrapped,
    /// Text beside a number that it would otherwise touch.
    Indented,
}

impl Style {
    /// Every style.
    pub(super) const ALL: [Self; 23] = [
        Self::Plain,
        Self::Header,
        Self::Title,
        Self::Bold,
        Self::Link,
        Self::LinkAtFault,
        Self::Fixed,
        Self::Scientific,
        Self::ScientificLong,
        Self::NonFinite,
        Self::Good,
        Self::Info,
        Self::Warn,
        Self::Hot,
        Self::Bad,
        Self::Muted,
        Self::Centre,
        Self::Agree,
        Self::Passes,
        Self::Fails,
        Self::Remark,
        Self::Wrapped,
        Self::Indented,
    ];

    /// Returns the style of a metric or an error.
    pub(super) fn metric(value: f64) -> Self {
        match Self::number(value) {
            Self::ScientificLong => Self::Scientific,
            other => other,
        }
    }

    /// Returns the style of a value of a tensor.
    pub(super) fn number(value: f64) -> Self {
        let magnitude = value.abs();
        if super::super::number::is_whole(value) && magnitude < 1e9 {
            Self::Plain
        } else if (1e-3..1e6).contains(&magnitude) {
            Self::Fixed
        } else {
            Self::ScientificLong
        }
    }

    pub(super) const fn verdict(verdict: Verdict) -> Self {
        match verdict {
            Verdict::BitEqual | Verdict::Close => Self::Good,
            Verdict::Unknown => Self::Muted,
            Verdict::DType | Verdict::Missing | Verdict::Unreadable => Self::Warn,
            Verdict::Differs | Verdict::NonFinite | Verdict::Shape => Self::Bad,
        }
    }

    pub(super) const fn role(role: Role) -> Self {
        match role {
            Role::Clean => Self::Good,
            Role::Recovers => Self::Info,
            Role::Propagates | Role::Unknown => Self::Warn,
            Role::Amplifies => Self::Hot,
            Role::Introduces => Self::Bad,
            Role::Unpaired => Self::Muted,
        }
    }

    pub(super) const fn run(verdict: RunVerdict) -> Self {
        match verdict {
            RunVerdict::Agree => Self::Agree,
            RunVerdict::Diverged => Self::Bad,
            RunVerdict::Incomplete => Self::Warn,
        }
    }

    /// Returns the cell format of the style.
    pub(super) fn format(self) -> Format {
        let format = Format::new();
        match self {
            Self::Plain => format,
            Self::Header => format
                .set_bold()
                .set_font_color(0x00FF_FFFF)
                .set_background_color(0x001F_3864)
                .set_align(FormatAlign::Center)
                // Single-line names are placed above the filter arrow, not under it.
                .set_align(FormatAlign::Top)
                .set_text_wrap(),
            Self::Title => Self::Wrapped.format().set_bold().set_font_size(14),
            Self::Bold => format.set_bold(),
            Self::Link => format.set_font_color(0x0005_63C1),
            Self::LinkAtFault => format.set_font_color(0x00C0_0000).set_bold(),
            Self::Fixed => format.set_num_format("0.000000"),
            Self::Scientific => format.set_num_format("0.00E+00"),
            Self::ScientificLong => format.set_num_format("0.0000E+00"),
            Self::NonFinite => format.set_font_color(0x00C0_0000).set_bold().set_align(FormatAlign::Right),
            Self::Good => format.set_font_color(0x0054_8235),
            Self::Info => format.set_font_color(0x001F_4E79).set_background_color(0x00DD_EBF7),
            Self::Warn => format.set_font_color(0x007F_6000).set_background_color(0x00FF_F2CC),
            Self::Hot => format.set_font_color(0x0084_3C0C).set_background_color(0x00F8_CBAD),
            Self::Bad => format.set_font_color(0x009C_0006).set_bold().set_background_color(0x00FF_C7CE),
            Self::Muted => format.set_font_color(0x0059_5959).set_background_color(0x00ED_EDED),
            Self::Centre => format.set_align(FormatAlign::Center),
            Self::Agree => format.set_font_color(0x0037_5623).set_bold().set_background_color(0x00E2_F0D9),
            Self::Passes => Self::Good.format().set_num_format(TRUTH).set_align(FormatAlign::Center),
            Self::Fails => Self::Bad.format().set_num_format(TRUTH).set_align(FormatAlign::Center),
            Self::Remark => format.set_italic().set_font_color(0x0059_5959),
            Self::Indented => format.set_indent(1),
            Self::Wrapped => format.set_text_wrap().set_align(FormatAlign::Top),
        }
    }

    /// Returns the name of the colour for the legend; empty if the colour has no meaning.
    pub(super) const fn colour_name(self) -> &'static str {
        match self {
            Self::Good => "green letters",
            Self::Info => "blue",
            Self::Warn => "yellow",
            Self::Hot => "orange",
            Self::Bad => "red",
            Self::Muted => "grey",
            _ => "",
        }
    }

    /// Returns the meaning of the colour for the legend; empty if the colour has no meaning.
    pub(super) const fn meaning(self) -> &'static str {
        match self {
            Self::Good => "fine",
            Self::Info => "inputs differ, outputs agree",
            Self::Warn => "worth a look, but not where the fault is",
            Self::Hot => "makes the error of its inputs much larger",
            Self::Bad => "at fault, or beyond tolerance",
            Self::Muted => "nothing to compare",
            _ => "",
        }
    }

    /// The styles whose colour has a meaning.
    pub(super) const COLOURS: [Self; 6] =
        [Self::Good, Self::Info, Self::Warn, Self::Hot, Self::Bad, Self::Muted];
}

/// Number format that shows booleans as words where a program would show 1 and 0.
const TRUTH: &str = "\"TRUE\";\"TRUE\";\"FALSE\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_position() {
        for (position, style) in Style::ALL.into_iter().enumerate() {
            assert_eq!(style as usize, position);
        }
    }

    #[test]
    fn the_look_of_a_number_follows_its_size() {
        assert_eq!(Style::metric(1.0), Style::Plain);
        assert_eq!(Style::metric(0.0), Style::Plain);
        assert_eq!(Style::metric(0.999_95), Style::Fixed);
        assert_eq!(Style::metric(-1.2e-5), Style::Scientific);
        assert_eq!(Style::number(1.5e12), Style::ScientificLong);
    }
}
