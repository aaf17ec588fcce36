//! `statistic.csv`: the statistics of each input and output of each operator, one a line.
//!
//! Columns go by their names, because `statistic_category` chooses which are there. `Shape` is quoted, as it has commas; nothing
//! else can have one. Written by MindSpore on GPU and Ascend; on a CPU it refuses `saved_data` other than `tensor`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use crate::{ReadError, collection};
use probe_dump::{
    Counts, DType, Number, Op, RecordedDType, RecordedStatistics, TensorMetadata, TensorRecord, Value,
};
use probe_files::limits::MAX_LISTED_VALUES;

/// Name of the file.
pub(crate) const FILE: &str = "statistic.csv";

/// Columns that every file has.
const REQUIRED: [&str; 6] = ["op type", "op name", "io", "slot", "data type", "shape"];

/// Most bytes of a line: names of operators have hundreds.
const MAX_LINE_BYTES: u64 = 1 << 16;

/// Most dimensions of a tensor.
const MAX_DIMENSIONS: usize = 64;

/// Reads the file as ops with one slot each, in the order of its lines.
///
/// # Errors
/// [`ReadError`] that names the line, for anything but a whole file.
pub(super) fn read(path: &Path) -> Result<Vec<Op>, ReadError> {
    let file = std::fs::File::open(path).map_err(|error| ReadError::io(path, error))?;
    let mut lines = Lines { path, file: BufReader::new(file), number: 0 };
    let header =
        lines.next()?.ok_or_else(|| ReadError::format(path, "is empty; dump this iteration again"))?;
    let mut places = HashMap::new();
    for (place, column) in fields(&header).into_iter().enumerate() {
        places.insert(column.trim().to_ascii_lowercase(), place);
    }
    if let Some(missing) = REQUIRED.iter().find(|column| !places.contains_key(**column)) {
        return Err(ReadError::format(
            path,
            format!("line 1 has no column {missing:?}; is this a statistic.csv of MindSpore?"),
        ));
    }
    let mut ops: Vec<Op> = Vec::new();
    let mut times: HashMap<String, usize> = HashMap::new();
    while let Some(line) = lines.next()? {
        if line.trim().is_empty() {
            continue;
        }
        if ops.len() >= MAX_LISTED_VALUES {
            return Err(ReadError::Limit {
                path: path.into(),
                what: "number of lines",
                found: ops.len() as u64 + 1,
                limit: MAX_LISTED_VALUES as u64,
            });
        }
        let row = Row { fields: fields(&line), places: &places };
        let (name, value) = row
            .value()
            .ok_or_else(|| lines.fault("is cut off or has no valid operator, slot, data type and shape"))?;
        // An operator of a loop comes again and again.
        let time = times.entry(name.clone()).or_insert(0);
        *time += 1;
        let name = if *time == 1 { name } else { format!("{name}#{time}") };
        ops.push(collection::op(&name, value));
    }
    Ok(ops)
}

/// Lines of a file, of bounded length.
struct Lines<'a> {
    path: &'a Path,
    file: BufReader<std::fs::File>,
    number: u64,
}

impl Lines<'_> {
    fn next(&mut self) -> Result<Option<String>, ReadError> {
        let mut bytes = Vec::new();
        let mut limited = std::io::Read::take(&mut self.file, MAX_LINE_BYTES);
        let length =
            limited.read_until(b'\n', &mut bytes).map_err(|error| ReadError::io(self.path, error))?;
        self.number += 1;
        if length == 0 {
            return Ok(None);
        }
        if length as u64 == MAX_LINE_BYTES && !bytes.ends_with(b"\n") {
            return Err(self.fault("is too long"));
        }
        let text = String::from_utf8(bytes).map_err(|_| self.fault("is not UTF-8"))?;
        Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
    }

    fn fault(&self, what: &str) -> ReadError {
        ReadError::format(self.path, format!("line {} {what}; dump this iteration again", self.number))
    }
}

/// Splits a line at its commas, but for those in quotes.
fn fields(line: &str) -> Vec<&str> {
    let mut quoted = false;
    line.split(|character| {
        quoted ^= character == '"';
        character == ',' && !quoted
    })
    .map(|field| field.trim().trim_matches('"'))
    .collect()
}

/// One line by columns.
struct Row<'a> {
    fields: Vec<&'a str>,
    places: &'a HashMap<String, usize>,
}

impl Row<'_> {
    fn text(&self, column: &str) -> Option<&str> {
        self.fields.get(*self.places.get(column)?).copied().filter(|text| !text.is_empty())
    }

    fn number(&self, column: &str) -> Option<f64> {
        self.text(column)?.parse().ok()
    }

    fn count(&self, column: &str) -> Option<u64> {
        self.text(column)?.parse().ok()
    }

    /// Returns name and record of the tensor; `None` if the line lacks what every line has.
    fn value(&self) -> Option<(String, Value)> {
        let [kind, op, io, slot, dtype, shape] = REQUIRED.map(|column| self.text(column));
        let io = io.filter(|io| matches!(*io, "input" | "output"))?;
        let slot: u32 = slot?.parse().ok()?;
        let shape: Arc<[u64]> = shape_of(shape?)?.into();
        let record = TensorRecord {
            statistics: self.statistics().into(),
            counts: self.counts(&shape).map(Arc::new),
            ..TensorRecord::from(TensorMetadata::new(RecordedDType::parse(dtype?), shape))
        };
        Some((format!("{}.{}.{io}.{slot}", kind?, op?), Value::Tensor(Arc::new(record))))
    }

    fn statistics(&self) -> RecordedStatistics {
        let is_integer = self.text("data type").and_then(DType::parse).is_some_and(|dtype| !dtype.is_float());
        let extreme = |column| match self.text(column)?.parse::<i64>() {
            Ok(whole) if is_integer => Some(Number::Int(whole)),
            _ => self.number(column).map(Number::Float),
        };
        RecordedStatistics {
            max: extreme("max value"),
            min: extreme("min value"),
            mean: self.number("avg value"),
            norm: self.number("l2norm value"),
        }
    }

    /// Returns the counts, if all of them were chosen.
    fn counts(&self, shape: &[u64]) -> Option<Counts> {
        let elements = match self.count("count") {
            Some(count) => count,
            None => shape.iter().try_fold(1_u64, |all, size| all.checked_mul(*size))?,
        };
        Some(Counts {
            elements,
            zeros: self.count("zero count")?,
            nan: self.count("nan count")?,
            positive_infinite: self.count("positive inf count")?,
            negative_infinite: self.count("negative inf count")?,
            sentinels: None,
        })
    }
}

/// Reads `(5,4)`, `(5,)` or `()`.
fn shape_of(text: &str) -> Option<Vec<u64>> {
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'))?;
    let sizes: Vec<&str> = inner.split(',').map(str::trim).filter(|size| !size.is_empty()).collect();
    if sizes.len() > MAX_DIMENSIONS {
        return None;
    }
    sizes.into_iter().map(|size| size.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "Op Type,Op Name,IO,Slot,Data Type,Shape,Max Value,Min Value";

    fn read_text(text: &[u8]) -> Result<Vec<Op>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::fs::write(&path, text).unwrap();
        read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_go_by_name_and_a_second_time_is_told() {
        let row = "Add,Default_Add-op0,output,0,int64,\"(2,3)\",9007199254740993,-1";
        let ops = read_text(format!("{HEADER},\n{row},\n{row},\n").as_bytes()).unwrap();
        let names: Vec<&str> = ops.iter().map(|op| op.name.as_str()).collect();
        assert_eq!(names, ["Add.Default_Add-op0.output.0", "Add.Default_Add-op0.output.0#2"]);
        let record = ops[0].slots[0].value.tensor().unwrap();
        assert_eq!(*record.shape, [2, 3]);
        assert_eq!(record.statistics.max(), Some(Number::Int(9_007_199_254_740_993)));
        assert_eq!((record.statistics.norm(), record.counts.is_none()), (None, true));
    }

    #[test]
    fn a_bad_file_is_one_error_that_names_the_line() {
        let long = "x".repeat(1 << 17);
        let rows: [(&[u8], &str); 7] = [
            (b"", "is empty"),
            (b"a,b\n", "line 1 has no column \"op type\""),
            (long.as_bytes(), "line 1 is too long"),
            (b"\xff\xfe\n", "line 1 is not UTF-8"),
            (b"Add,op,output,0,int64", "line 2 is cut off"),
            (b"Add,op,output,-1,int64,\"()\",1,1", "line 2 is cut off"),
            (b"Add,op,output,0,int64,\"(99999999999999999999)\",1,1", "line 2 is cut off"),
        ];
        for (at, (row, said)) in rows.into_iter().enumerate() {
            let text = if at < 4 { row.to_vec() } else { [HEADER.as_bytes(), b"\n", row].concat() };
            let error = read_text(&text).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{error}");
        }
    }
}
