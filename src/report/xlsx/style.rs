//! The looks of cells: one enum, and the style sheet made of it.

use std::fmt::Write as _;

use crate::judge::{Role, RunVerdict, Verdict};

/// How a cell looks. The discriminant is the index of the format in the style sheet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Text and whole numbers.
    Plain,
    /// Head of a column.
    Header,
    /// The answer.
    Title,
    /// Label of a line or a section.
    Bold,
    /// Name that leads to another sheet.
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
    /// Whole number or word in the middle of its column, so that it keeps off its neighbours.
    Centre,
    /// The run agrees.
    Agree,
    /// A check that passes.
    Passes,
    /// A check that does not.
    Fails,
}

impl Style {
    const ALL: [Self; 20] = [
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
    ];

    /// Index in the style sheet.
    pub(super) const fn index(self) -> u8 {
        self as u8
    }

    /// The look of a metric or an error.
    pub(super) fn metric(value: f64) -> Self {
        match Self::number(value) {
            Self::ScientificLong => Self::Scientific,
            other => other,
        }
    }

    /// The look of a value of a tensor.
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
            Role::Propagates => Self::Warn,
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

    /// Number format, font (colour, bold, size), fill and alignment.
    const fn look(self) -> Look {
        let look = Look { format: 0, colour: "FF000000", bold: false, size: 11, fill: None, align: "" };
        match self {
            Self::Plain => look,
            Self::Header => Look {
                colour: "FFFFFFFF",
                bold: true,
                fill: Some("FF1F3864"),
                align: " horizontal=\"center\"",
                ..look
            },
            Self::Title => Look { bold: true, size: 14, ..look },
            Self::Bold => Look { bold: true, ..look },
            Self::Link => Look { colour: "FF0563C1", ..look },
            Self::LinkAtFault => Look { colour: "FFC00000", bold: true, ..look },
            Self::Fixed => Look { format: FIXED, ..look },
            Self::Scientific => Look { format: SCIENTIFIC, ..look },
            Self::ScientificLong => Look { format: SCIENTIFIC_LONG, ..look },
            Self::NonFinite => {
                Look { colour: "FFC00000", bold: true, align: " horizontal=\"right\"", ..look }
            }
            Self::Good => Look { colour: "FF548235", ..look },
            Self::Info => Look { colour: "FF1F4E79", fill: Some("FFDDEBF7"), ..look },
            Self::Warn => Look { colour: "FF7F6000", fill: Some("FFFFF2CC"), ..look },
            Self::Hot => Look { colour: "FF843C0C", fill: Some("FFF8CBAD"), ..look },
            Self::Bad => Look { colour: "FF9C0006", bold: true, fill: Some("FFFFC7CE"), ..look },
            Self::Muted => Look { colour: "FF595959", fill: Some("FFEDEDED"), ..look },
            Self::Centre => Look { align: " horizontal=\"center\"", ..look },
            Self::Agree => Look { colour: "FF375623", bold: true, fill: Some("FFE2F0D9"), ..look },
            Self::Passes => Look { format: TRUTH, align: " horizontal=\"center\"", ..Self::Good.look() },
            Self::Fails => Look { format: TRUTH, align: " horizontal=\"center\"", ..Self::Bad.look() },
        }
    }

    /// Name of the colour, for the legend; empty where colour says nothing.
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

    /// What the colour of the cell says, for the legend; empty where colour says nothing.
    pub(super) const fn meaning(self) -> &'static str {
        match self {
            Self::Good => "fine",
            Self::Info => "differs on the way in, agrees on the way out",
            Self::Warn => "worth a look, but not where the fault is",
            Self::Hot => "makes an error that it was given much larger",
            Self::Bad => "at fault, or beyond tolerance",
            Self::Muted => "nothing to compare",
            _ => "",
        }
    }

    /// The styles whose colour says something.
    pub(super) const COLOURS: [Self; 6] =
        [Self::Good, Self::Info, Self::Warn, Self::Hot, Self::Bad, Self::Muted];
}

struct Look {
    format: u16,
    colour: &'static str,
    bold: bool,
    size: u8,
    fill: Option<&'static str>,
    align: &'static str,
}

/// Custom number formats begin at 164.
const FIXED: u16 = 164;
const SCIENTIFIC: u16 = 165;
const SCIENTIFIC_LONG: u16 = 166;
/// Says the truth in words where a program would show 1 and 0.
const TRUTH: u16 = 167;

/// The part `xl/styles.xml`.
pub(super) fn style_sheet() -> String {
    // One font and one fill a style keeps the indices equal; fills 0 and 1 are fixed by the format.
    let (mut fonts, mut fills, mut cells) = (String::new(), String::new(), String::new());
    let mut fill_count = 2;
    for (index, style) in Style::ALL.into_iter().enumerate() {
        let Look { format, colour, bold, size, fill, align } = style.look();
        let bold = if bold { "<b/>" } else { "" };
        _ = write!(
            fonts,
            "<font>{bold}<sz val=\"{size}\"/><color rgb=\"{colour}\"/><name val=\"Calibri\"/><family val=\"2\"/></font>"
        );
        let fill_index = match fill {
            None => 0,
            Some(rgb) => {
                _ = write!(
                    fills,
                    "<fill><patternFill patternType=\"solid\"><fgColor rgb=\"{rgb}\"/><bgColor indexed=\"64\"/></patternFill></fill>"
                );
                fill_count += 1;
                fill_count - 1
            }
        };
        _ = write!(
            cells,
            "<xf numFmtId=\"{format}\" fontId=\"{index}\" fillId=\"{fill_index}\" borderId=\"0\" xfId=\"0\" \
             applyNumberFormat=\"1\" applyFont=\"1\" applyFill=\"1\" applyAlignment=\"1\""
        );
        _ = if align.is_empty() { write!(cells, "/>") } else { write!(cells, "><alignment{align}/></xf>") };
    }
    let count = Style::ALL.len();
    format!(
        "{XML}<styleSheet xmlns=\"{MAIN}\">\
         <numFmts count=\"4\"><numFmt numFmtId=\"{FIXED}\" formatCode=\"0.000000\"/>\
         <numFmt numFmtId=\"{SCIENTIFIC}\" formatCode=\"0.00E+00\"/>\
         <numFmt numFmtId=\"{SCIENTIFIC_LONG}\" formatCode=\"0.0000E+00\"/>\
         <numFmt numFmtId=\"{TRUTH}\" formatCode=\"&quot;TRUE&quot;;&quot;TRUE&quot;;&quot;FALSE&quot;\"/></numFmts>\
         <fonts count=\"{count}\">{fonts}</fonts>\
         <fills count=\"{fill_count}\"><fill><patternFill patternType=\"none\"/></fill>\
         <fill><patternFill patternType=\"gray125\"/></fill>{fills}</fills>\
         <borders count=\"1\"><border><left/><right/><top/><bottom/><diagonal/></border></borders>\
         <cellStyleXfs count=\"1\"><xf numFmtId=\"0\" fontId=\"0\" fillId=\"0\" borderId=\"0\"/></cellStyleXfs>\
         <cellXfs count=\"{count}\">{cells}</cellXfs>\
         <cellStyles count=\"1\"><cellStyle name=\"Normal\" xfId=\"0\" builtinId=\"0\"/></cellStyles>\
         <dxfs count=\"0\"/><tableStyles count=\"0\" defaultTableStyle=\"TableStyleMedium9\" \
         defaultPivotStyle=\"PivotStyleLight16\"/></styleSheet>"
    )
}

/// Declaration at the front of every part.
pub(super) const XML: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n";
/// Namespace of spreadsheets.
pub(super) const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_position() {
        for (position, style) in Style::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(style.index()), position);
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
