//! Plain tables in CSV, with a header. An empty cell is a value that was not recorded.

use std::path::Path;

use super::plain::{Name, Row, Rows};
use super::{Collected, EXPECTED};
use probe_files::map;
use probe_read::ReadError;

/// Columns of a plain table.
pub(super) const NAMES: [&str; 10] = [
    "sample",
    "step",
    "position",
    "token_id",
    "logprob",
    "rollout_logprob",
    "trainer_logprob",
    "mask",
    "padding",
    "version",
];

/// Returns the error for a table that lacks columns.
pub(super) fn missing(path: &Path, has: impl Fn(&str) -> bool) -> Option<ReadError> {
    let values = has("logprob") || has("rollout_logprob") || has("trainer_logprob");
    if has("sample") && values {
        return None;
    }
    let what = if has("sample") { "logprob" } else { "sample" };
    Some(ReadError::format(path, format!("the table has no column {what}; {EXPECTED}")))
}

/// Reads the file.
pub(super) fn read(path: &Path, into: &mut Collected) -> Result<(), ReadError> {
    let (file, _) = map::open_regular(path)?;
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(file);
    let damaged = |error: csv::Error| ReadError::format(path, error.to_string());
    let header = reader.headers().map_err(damaged)?.clone();
    let places = NAMES.map(|name| header.iter().position(|column| column == name));
    let place_of = |name: &str| NAMES.iter().position(|known| *known == name).and_then(|at| places[at]);
    if let Some(error) = missing(path, |name| place_of(name).is_some()) {
        return Err(error);
    }
    let mut rows = Rows::new(path, into);
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(damaged)? {
        let line = record.position().map_or(0, csv::Position::line);
        let wrong = |message: String| ReadError::format(path, format!("line {line}: {message}"));
        let cells =
            places.map(|place| place.and_then(|place| record.get(place)).filter(|cell| !cell.is_empty()));
        let [name, cells @ ..] = cells;
        let name = name.ok_or_else(|| wrong("has no sample".into()))?;
        let row = row(cells).map_err(wrong)?;
        rows.add(&Name::Text(name), &row).map_err(wrong)?;
    }
    Ok(())
}

fn row(cells: [Option<&str>; 9]) -> Result<Row, String> {
    fn parse<T: std::str::FromStr>(cell: Option<&str>, name: &str) -> Result<Option<T>, String> {
        cell.map(|cell| cell.parse().map_err(|_| format!("{name} is {cell:?}, expected a number")))
            .transpose()
    }
    let [step, position, token, logprob, rollout, trainer, mask, padding, version] = cells;
    Ok(Row {
        step: parse(step, "step")?,
        position: parse(position, "position")?,
        id: parse(token, "token_id")?,
        logprob: parse(logprob, "logprob")?,
        rollout: parse(rollout, "rollout_logprob")?,
        trainer: parse(trainer, "trainer_logprob")?,
        mask: match mask {
            Some("true" | "True" | "TRUE") => Some(true),
            Some("false" | "False" | "FALSE") => Some(false),
            other => parse::<f64>(other, "mask")?.map(|value| value > 0.0),
        },
        padding: parse(padding, "padding")?,
        version: parse(version, "version")?,
    })
}
