//! The text of a baseline: sorted keys, one value per line, and the same bytes for the same content.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Baseline, FORMAT, FORMAT_VERSION};
use probe_dump::Exact;

impl Baseline {
    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        let mut out = String::from("{\n\"environment\": ");
        let settings: Vec<String> =
            self.environment.iter().map(|(name, value)| format!("{}: {}", json(name), json(value))).collect();
        block(&mut out, ['{', '}'], &settings);
        _ = write!(
            out,
            ",\n\"format\": {},\n\"format_version\": {FORMAT_VERSION},\n\"provenance\": ",
            json(FORMAT)
        );
        block(&mut out, ['[', ']'], &self.provenance.iter().map(json).collect::<Vec<_>>());
        out.push_str(",\n\"scalars\": ");
        let scalars: Vec<String> = self
            .scalars
            .iter()
            .map(|(name, series)| {
                let mut text = format!("{}: ", json(name));
                let values: Vec<String> = series
                    .iter()
                    .map(|(step, value)| format!("\"{step}\": {}", json(&Exact(*value))))
                    .collect();
                block(&mut text, ['{', '}'], &values);
                text
            })
            .collect();
        block(&mut out, ['{', '}'], &scalars);
        _ = write!(out, ",\n\"sketches\": {},\n\"values\": ", json(&self.sketches));
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|part| {
                let mut text = String::from("{");
                // Most captures have no such task; their baselines omit it.
                if part.exact {
                    text.push_str("\"exact\": true, ");
                }
                _ = write!(text, "\"rank\": {}, \"step\": {}, \"values\": ", part.rank, part.step);
                block(&mut text, ['[', ']'], &part.values.iter().map(json).collect::<Vec<_>>());
                text.push('}');
                text
            })
            .collect();
        block(&mut out, ['[', ']'], &parts);
        out.push_str("\n}\n");
        out
    }
}

/// Writes items between brackets, one per line.
fn block(out: &mut String, [open, close]: [char; 2], items: &[String]) {
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        out.push_str(item);
    }
    if !items.is_empty() {
        out.push('\n');
    }
    out.push(close);
}

/// Returns compact JSON; every type used here can be serialized.
fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
