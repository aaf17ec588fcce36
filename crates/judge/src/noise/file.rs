//! Levels of families as a file that people can read and edit: written by `probe calibrate`, read by
//! `--noise`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use super::level::{Level, number};
use crate::value::{Family, ValueKind};
use probe_dump::{DType, Phase};
use probe_files::settings::{self, SettingsError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    family: Vec<FamilyEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FamilyEntry {
    function: Option<Box<str>>,
    module: Option<Box<str>>,
    phase: String,
    slot: Box<str>,
    dtype: String,
    error: f64,
}

/// Passes and their names, as in op names.
const PHASES: [(Phase, &str); 4] = [
    (Phase::Forward, "forward"),
    (Phase::Backward, "backward"),
    (Phase::ParameterGradient, "parameters_grad"),
    (Phase::None, "none"),
];

/// Reads the levels of the file at `path`.
pub(super) fn read(path: &Path) -> Result<HashMap<Family, Level>, SettingsError> {
    settings::load(path, parse)
}

fn parse(text: &str) -> Result<HashMap<Family, Level>, String> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        format!("line {line}: {}", error.message().replace('\n', " "))
    })?;
    let mut levels = HashMap::new();
    for (index, entry) in file.family.into_iter().enumerate() {
        let at = |message: String| format!("family {}: {message}", index + 1);
        let (family, level) = entry.validate().map_err(at)?;
        match levels.entry(family) {
            Entry::Vacant(place) => _ = place.insert(level),
            Entry::Occupied(known) => {
                return Err(at(format!("{:?} appears twice; keep one of the two", known.key().name)));
            }
        }
    }
    Ok(levels)
}

impl FamilyEntry {
    fn validate(self) -> Result<(Family, Level), String> {
        let (name, is_module) = match (self.function, self.module) {
            (Some(name), None) => (name, false),
            (None, Some(name)) => (name, true),
            _ => return Err("give either function or module".to_owned()),
        };
        let phase = PHASES.iter().find(|(_, word)| *word == self.phase).map(|(phase, _)| *phase);
        let phase = phase.ok_or_else(|| {
            let words = PHASES.map(|(_, word)| word).join(", ");
            format!("phase = {:?} is not one of {words}", self.phase)
        })?;
        let dtype = DType::parse(&self.dtype).filter(|dtype| dtype.is_float());
        let dtype = dtype.ok_or_else(|| {
            format!("dtype = {:?} is not a float type; use one such as float32 or bfloat16", self.dtype)
        })?;
        if !(self.error > 0.0 && self.error < 1.0) {
            return Err(format!(
                "error = {} is not a relative error; give a number above 0 and below 1",
                self.error
            ));
        }
        let (name, slot) = (name.into(), self.slot.into());
        let family = Family { role: ValueKind::Result, name, is_module, phase, slot, dtype };
        Ok((family, Level { median: self.error, largest: self.error, calls: 0 }))
    }
}

/// Returns levels as TOML, the largest first. `made_of` is a line that names the runs they come from.
pub(super) fn to_toml(levels: &HashMap<Family, Level>, made_of: &str) -> String {
    let mut levels: Vec<(&Family, &Level)> = levels.iter().collect();
    levels.sort_by(|(a, x), (b, y)| y.of_any().total_cmp(&x.of_any()).then_with(|| order(a).cmp(&order(b))));
    let mut text = format!(
        "# Noise of functions, for `probe compare --noise FILE`. Written by `probe calibrate` of probe {}:\n\
             # {}\n\
             #\n\
             # error: by how much a call may be off on its own, beyond what its inputs explain: norm of the difference over norm of\n\
             # the result. It is the median of the calls whose inputs explain less than half of their errors, and at least a quarter\n\
             # of the largest. A fault has to be 8 times as large to be named. Functions that were bit-equal are left out;\n\
             # they are judged as without this file.\n",
        env!("CARGO_PKG_VERSION"),
        made_of.escape_debug()
    );
    for (family, level) in levels {
        let key = if family.is_module { "module" } else { "function" };
        let phase = PHASES.iter().find(|(phase, _)| *phase == family.phase).map_or("none", |(_, word)| word);
        let quoted = |text: &str| toml::Value::from(text).to_string();
        _ = write!(
            text,
            "\n[[family]]\n{key} = {}\nphase = \"{phase}\"\nslot = {}\ndtype = \"{}\"\nerror = {:.2e}  # {}: median {:.1e}, largest {:.1e}\n",
            quoted(&family.name),
            quoted(&family.slot),
            family.dtype,
            level.of_any(),
            number(level.calls, "call"),
            level.median,
            level.largest
        );
    }
    text
}

fn order(family: &Family) -> (&str, bool, Phase, &str, &'static str) {
    (&family.name, family.is_module, family.phase, &family.slot, family.dtype.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GELU: &str = "[[family]]\nfunction = \"gelu\"\nphase = \"forward\"\nslot = \"output\"\ndtype = \"float32\"\nerror = 2.4e-5\n";

    #[test]
    fn what_is_written_is_read_again() {
        let mut levels = parse(GELU).unwrap();
        let odd = Family { is_module: true, ..levels.keys().next().unwrap().clone() };
        levels.insert(
            Family { name: "a \"b\"\n".into(), ..odd },
            Level { median: 1e-7, largest: 8e-7, calls: 3 },
        );
        let text = to_toml(&levels, "gpu\n[[family]]");
        let again = parse(&text).unwrap();
        assert_eq!(again.len(), 2, "{text}");
        for (family, level) in &levels {
            let read = again[family];
            assert!(
                (read.median / level.of_any() - 1.0).abs() < 0.01 && read.of_any() <= read.largest,
                "{text}"
            );
        }
        assert!(text.find("gelu") < text.find("module = "), "the largest first: {text}");
    }

    #[test]
    fn mistakes_are_named_on_one_line() {
        let with = |old: &str, new: &str| GELU.replace(old, new);
        for (text, expected) in [
            (with("error", "eror"), "line 6: unknown field `eror`"),
            (with("phase = \"forward\"\n", ""), "line 1: missing field `phase`"),
            (with("[[family]]", "[[rule]]"), "line 1: unknown field `rule`"),
            (
                with("\"forward\"", "\"forwards\""),
                "family 1: phase = \"forwards\" is not one of forward, backward",
            ),
            (with("float32", "int64"), "family 1: dtype = \"int64\" is not a float type"),
            (with("2.4e-5", "-1"), "family 1: error = -1 is not a relative error"),
            (with("2.4e-5", "nan"), "family 1: error = NaN is not a relative error"),
            (with("function", "module = \"GELU\"\nfunction"), "family 1: give either function or module"),
            (format!("{GELU}{GELU}"), "family 2: \"gelu\" appears twice"),
        ] {
            let message = parse(&text).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
