//! The four mappings of the older tool, in the YAML that it reads.
//!
//! ```yaml
//! fc2.Dense: fc2.Linear            # cells, and values by their whole names
//!
//! - ms_api: Functional.conv2d      # functions; positions of arguments and results are optional
//!   pt_api: Torch.conv2d
//!   ms_args: [0, 1]
//!   pt_args: [0, 1]
//!
//! ParallelAttention:               # names inside layers of a class; TopLayer for the top of the model
//!   qkv: query_key_value
//! ```

use super::{Function, Mapping, split_leaf};

/// Keys of a function that hold positions, with the slot that they number.
const POSITIONS: [(&str, &str, &str); 2] =
    [("ms_args", "pt_args", "input"), ("ms_output", "pt_output", "output")];

/// A line without comment.
struct Line<'a> {
    number: usize,
    indented: bool,
    text: &'a str,
}

impl Line<'_> {
    fn error(&self, message: impl std::fmt::Display) -> String {
        format!("line {}: {message}", self.number)
    }

    /// Splits `key: value`; the value may be empty.
    fn entry(&self) -> Result<(String, String), String> {
        let text = self.text.strip_prefix("- ").unwrap_or(self.text);
        let found = text.split_once(": ").or_else(|| Some((text.strip_suffix(':')?, "")));
        let (key, value) = found.ok_or_else(|| {
            self.error("expected `name in the candidate: name in the baseline`; write anything else as TOML")
        })?;
        let plain = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
        Ok((plain(key), plain(value)))
    }
}

/// Reads a mapping.
///
/// # Errors
/// The problem, with the line.
pub(super) fn read(text: &str) -> Result<Mapping, String> {
    let lines = text.lines().enumerate().map(|(at, line)| {
        let line = line.split(" #").next().unwrap_or_default();
        Line { number: at + 1, indented: line.starts_with([' ', '\t']), text: line.trim() }
    });
    let meant = |line: &Line<'_>| {
        !(line.text.is_empty() || line.text.starts_with('#') || matches!(line.text, "---" | "{}"))
    };
    let lines: Vec<Line<'_>> = lines.filter(meant).collect();
    if lines.first().is_some_and(|line| line.text.starts_with("- ")) {
        return functions(&lines);
    }
    let mut mapping = Mapping::default();
    let mut class: Option<String> = None;
    for line in &lines {
        if line.text.starts_with('-') {
            return Err(line.error("a list is not expected here; write anything else as TOML"));
        }
        let (candidate, baseline) = line.entry()?;
        match (&class, line.indented, baseline.is_empty()) {
            (_, false, true) => class = Some(candidate),
            (Some(class), true, false) => {
                let names = mapping.layers.entry(class.as_str().into()).or_default();
                if names.iter().any(|(known, _)| **known == *candidate) {
                    return Err(line.error(format!("{candidate:?} appears twice in {class}")));
                }
                names.push((candidate.into(), baseline.into()));
            }
            (_, false, false) => {
                let add =
                    if split_leaf(&candidate).is_some() { Mapping::add_value } else { Mapping::add_module };
                add(&mut mapping, &candidate, &baseline).map_err(|message| line.error(message))?;
                class = None;
            }
            _ => {
                return Err(line.error(
                    "expected `name in the candidate: name in the baseline`; write anything else as TOML",
                ));
            }
        }
    }
    Ok(mapping)
}

/// Reads a list of functions.
fn functions(lines: &[Line<'_>]) -> Result<Mapping, String> {
    let mut mapping = Mapping::default();
    let starts = lines.iter().enumerate().filter(|(_, line)| line.text.starts_with("- ")).map(|(at, _)| at);
    let starts: Vec<usize> = starts.chain([lines.len()]).collect();
    for block in starts.windows(2) {
        let block = &lines[block[0]..block[1]];
        let entries: Vec<(String, String)> = block.iter().map(Line::entry).collect::<Result<_, _>>()?;
        let value =
            |key: &str| entries.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
        let (Some(own), Some(torch)) = (value("ms_api"), value("pt_api")) else {
            return Err(block[0].error("an entry needs ms_api and pt_api"));
        };
        let mut slots = Vec::new();
        for (ms, pt, side) in POSITIONS {
            let numbers = |key: &str| {
                positions(value(key).unwrap_or_default()).map_err(|message| block[0].error(message))
            };
            let (ms, pt) = (numbers(ms)?, numbers(pt)?);
            if ms.len() != pt.len() {
                return Err(block[0].error(format!(
                    "{own} has {} positions of {side} for {} in PyTorch",
                    ms.len(),
                    pt.len()
                )));
            }
            slots.extend(
                ms.iter()
                    .zip(&pt)
                    .map(|(ms, pt)| (format!("{side}.{ms}").into(), format!("{side}.{pt}").into())),
            );
        }
        if mapping.functions.insert(own.into(), Function { torch: torch.into(), slots }).is_some() {
            return Err(block[0].error(format!("{own} appears twice")));
        }
    }
    Ok(mapping)
}

/// Reads `[0, 1]`.
fn positions(text: &str) -> Result<Vec<usize>, String> {
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    let numbers = inner.split(',').map(str::trim).filter(|text| !text.is_empty());
    numbers
        .map(|text| {
            text.parse().map_err(|_| format!("{text:?} is not a position; expected a list such as [0, 1]"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_positions() {
        let text = "- ms_api: Functional.conv2d\n  pt_api: Torch.conv2d\n  ms_args: [0, 2]\n  pt_args: [0, 1]\n- ms_api: Mint.add\n  pt_api: Torch.add\n";
        let mapping = read(text).unwrap();
        let conv = mapping.function("Functional.conv2d").unwrap();
        assert_eq!(&*conv.torch, "Torch.conv2d");
        assert_eq!(conv.slots[1], ("input.2".into(), "input.1".into()));
        assert_eq!(mapping.function("Mint.add").unwrap().slots, []);
    }

    #[test]
    fn layers_are_renamed_inside_their_class_alone() {
        let text = "TopLayer:\n  network: module\nAttention:\n  qkv: query_key_value\n  core.dense: proj\n";
        let mapping = read(text).unwrap();
        let class = |path: &str| path.ends_with("attn").then_some("Attention");
        for (own, torch) in [
            ("network.attn.qkv", "module.attn.query_key_value"),
            ("network.attn.core.dense", "module.attn.proj"),
            ("network.mlp.qkv", "module.mlp.qkv"),
        ] {
            assert_eq!(mapping.layers(own, class), torch);
        }
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, part) in [
            ("- ms_api: a\n", "line 1: an entry needs"),
            ("# x\n- ms_api: a\n  pt_api: b\n  ms_args: [0]\n", "line 2: a has 1 positions"),
            ("- ms_api: a\n  pt_api: b\n  ms_args: [x]\n  pt_args: [1]\n", "is not a position"),
            ("A:\n  b: c\n  b: d\n", "line 3"),
            ("x: y\n  z: w\n", "line 2"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
