//! Lines of a step and its measurements, as torchtitan writes them: `1 8.048324584960938`, or more columns, named by a comment above them: `# step
//! loss grad_norm`.

use std::collections::HashSet;

use super::{ReadScalars, STEP_NAMES, number, step};

/// Name of the only scalar if no comment names it.
const NAME: &str = "loss";

/// Returns true if the first lines have this form.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(bytes.get(..bytes.len().min(4096)).unwrap_or_default());
    let mut lines = head.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next().is_some_and(|line| row(line).is_some())
}

pub(super) fn scalars(text: &str) -> Result<ReadScalars, String> {
    let mut found = ReadScalars::default();
    let mut names: Option<Vec<&str>> = None;
    let mut begun = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        if let Some(remark) = line.strip_prefix('#') {
            if !begun {
                names = header(remark).or(names);
            }
            continue;
        }
        begun = true;
        let named = names.is_some();
        let names = names.as_deref().unwrap_or(&[NAME]);
        let (step, values) =
            row(line).filter(|(_, values)| values.len() == names.len()).ok_or_else(|| {
                let wanted = format!(
                    "line {}: expected a step and {}, found {:?}",
                    index + 1,
                    names.join(", "),
                    cut(line)
                );
                if named {
                    wanted
                } else {
                    wanted + "; a comment above names more columns, as in \"# step loss grad_norm\""
                }
            })?;
        for (name, value) in names.iter().zip(values) {
            found.add(name, step, value);
        }
    }
    Ok(found)
}

/// Returns the names of the columns after the step, if the comment is a header.
fn header(remark: &str) -> Option<Vec<&str>> {
    let mut words = remark.split_ascii_whitespace();
    words.next().filter(|first| STEP_NAMES.contains(first))?;
    let names: Vec<&str> = words.collect();
    let distinct: HashSet<&&str> = names.iter().collect();
    (!names.is_empty() && distinct.len() == names.len()).then_some(names)
}

/// Returns the step and the values of a line, at least one.
fn row(line: &str) -> Option<(u64, Vec<f64>)> {
    let mut words = line.split_ascii_whitespace();
    let at = step(words.next()?)?;
    let values: Vec<f64> = words.map(number).collect::<Option<_>>()?;
    (!values.is_empty()).then_some((at, values))
}

fn cut(line: &str) -> String {
    line.chars().take(60).collect()
}
