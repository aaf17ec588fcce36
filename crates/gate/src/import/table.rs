//! Tables with a header: a column of steps, and one column per scalar.

use super::{COUNTERS, ReadScalars, STEP_NAMES, number, step};

/// Candidate separators; the first one found in the header wins.
const SEPARATORS: [u8; 3] = [b'\t', b';', b','];

/// Returns true if the first line is the header of such a table.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(bytes.get(..bytes.len().min(4096)).unwrap_or_default());
    let line = head.lines().next().unwrap_or_default();
    SEPARATORS.iter().any(|&separator| {
        let names: Vec<&str> = line.split(char::from(separator)).map(plain).collect();
        names.len() > 1 && step_column(&names).is_some()
    })
}

pub(super) fn scalars(text: &str) -> Result<ReadScalars, String> {
    let header = text.lines().next().unwrap_or_default();
    let separator = SEPARATORS.into_iter().find(|&byte| header.as_bytes().contains(&byte)).unwrap_or(b',');
    let mut reader =
        csv::ReaderBuilder::new().delimiter(separator).trim(csv::Trim::All).from_reader(text.as_bytes());
    let said = |error: &csv::Error| error.to_string().replace('\n', " ");
    let names: Vec<String> =
        reader.headers().map_err(|error| said(&error))?.iter().map(str::to_owned).collect();
    let plain_names: Vec<&str> = names.iter().map(|name| plain(name)).collect();
    let steps = step_column(&plain_names)
        .ok_or_else(|| format!("line 1: no step column; name one {}", STEP_NAMES[..4].join(", ")))?;
    let mut found = ReadScalars::default();
    // The first non-numeric cell of each column; such a column is not a scalar, unless other cells of it are numbers.
    let mut texts: Vec<Option<(u64, String)>> = vec![None; names.len()];
    for row in reader.records() {
        let row = row.map_err(|error| said(&error))?;
        let line = row.position().map_or(0, csv::Position::line);
        let cell = row.get(steps).unwrap_or_default();
        let at = step(cell).ok_or_else(|| format!("line {line}: {cell:?} is not a step"))?;
        for (column, cell) in row.iter().enumerate() {
            if column == steps || cell.is_empty() || COUNTERS.contains(&plain_names[column]) {
                continue;
            }
            match number(cell) {
                Some(value) => found.add(&names[column], at, value),
                None => {
                    texts[column].get_or_insert_with(|| (line, cell.chars().take(40).collect()));
                }
            }
        }
    }
    for (name, text) in names.iter().zip(texts) {
        let Some((line, text)) = text else { continue };
        if found.scalars.contains_key(name) {
            return Err(format!("line {line}: column {name:?} holds {text:?} among its numbers"));
        }
        found.notes.push(format!("column {name:?} holds no numbers and was left out"));
    }
    Ok(found)
}

fn step_column(names: &[&str]) -> Option<usize> {
    STEP_NAMES.iter().find_map(|wanted| names.iter().position(|name| name.eq_ignore_ascii_case(wanted)))
}

fn plain(name: &str) -> &str {
    name.trim().trim_matches('"').trim_start_matches('\u{feff}')
}
