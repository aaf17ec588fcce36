//! Batches of a Parquet table, taken column by column where their types are those that writers use: a tenth of the time of row by row.
//!
//! A batch that has anything else, or a value that is none, is left to the reader of rows, which says what is wrong with which row.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::DataType;

use super::fields::narrow;
use super::parquet::{Names, Numbers};
use super::plain::{Row, Rows};
use crate::table::{COUNTED, NO_ID, ROLLOUT, Side, TRAINER, Tokens};

/// Tokens of a batch and the rows at which samples begin, kept for the next batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    tokens: Tokens,
    /// Rows whose sample or step is not that of the row before; the first is always among them.
    starts: Vec<usize>,
}

impl Batch {
    /// Adds a batch to `rows`. Returns false, with nothing added, if it has to be read row by row.
    pub(super) fn add(&mut self, batch: &RecordBatch, rows: &mut Rows<'_>) -> bool {
        batch.num_rows() > 0 && self.fill(batch, rows).is_some()
    }

    fn fill(&mut self, batch: &RecordBatch, rows: &mut Rows<'_>) -> Option<()> {
        let of = |name: &str| batch.column_by_name(name);
        let names = Names::of(batch).ok()?;
        self.starts.clear();
        self.starts.push(0);
        changes(of("sample")?, &mut self.starts)?;
        of("step").map_or(Some(()), |steps| changes(steps, &mut self.starts))?;
        self.starts.sort_unstable();
        self.starts.dedup();
        self.columns(batch, rows.side())?;
        let number = |name: &str| Numbers::of(batch, name).ok();
        let (step, padding, version) = (number("step")?, number("padding")?, number("version")?);
        let heads = self.starts.iter().map(|&row| {
            let whole = |numbers: &Numbers<'_>| numbers.whole(row, "").ok();
            let head = Row {
                step: match whole(&step)? {
                    Some(step) => Some(u64::try_from(step).ok()?),
                    None => None,
                },
                padding: match whole(&padding)? {
                    Some(padding) => u32::try_from(u64::try_from(padding).ok()?).ok(),
                    None => None,
                },
                version: whole(&version)?,
                ..Row::default()
            };
            Some((row, names.get(row).ok()?, head))
        });
        let heads = heads.collect::<Option<Vec<_>>>()?;
        let has_positions = of("position").is_some();
        rows.extend(&heads, &mut self.tokens, has_positions)
    }

    /// Takes the columns of tokens. Positions stay empty where the table has none.
    fn columns(&mut self, batch: &RecordBatch, side: Side) -> Option<()> {
        let of = |name: &str| batch.column_by_name(name);
        let count = batch.num_rows();
        let Tokens { ids, positions, rollout, trainer, flags, .. } = &mut self.tokens;
        ids.clear();
        positions.clear();
        flags.clear();
        flags.resize(count, 0);
        match of("token_id") {
            Some(column) => self::ids(column, ids)?,
            None => ids.resize(count, NO_ID),
        }
        if let Some(column) = of("position") {
            whole(column, positions)?;
        }
        // A value of the file's own side takes the place of the named one, row by row.
        let own = of("logprob");
        for (column, values, flag, is_own) in [
            ("rollout_logprob", rollout, ROLLOUT, side == Side::Rollout),
            ("trainer_logprob", trainer, TRAINER, side == Side::Trainer),
        ] {
            values.clear();
            match (of(column), own.filter(|_| is_own)) {
                (Some(_), Some(_)) => return None,
                (Some(column), None) | (None, Some(column)) => logprobs(column, values, flags, flag)?,
                (None, None) => values.resize(count, 0.0),
            }
        }
        match of("mask") {
            Some(mask) => counted(mask, flags)?,
            None => flags.iter_mut().for_each(|flags| *flags |= u8::from(*flags != 0) * COUNTED),
        }
        Some(())
    }
}

/// Adds the rows at which a column without missing values changes.
fn changes(column: &ArrayRef, starts: &mut Vec<usize>) -> Option<()> {
    fn each<T: ArrowPrimitiveType>(column: &ArrayRef, starts: &mut Vec<usize>) {
        let values = column.as_primitive::<T>().values();
        starts.extend((1..values.len()).filter(|&row| values[row - 1] != values[row]));
    }
    if column.null_count() > 0 {
        return None;
    }
    match column.data_type() {
        DataType::Dictionary(..) => {
            let keys = column.as_dictionary_opt::<Int32Type>()?.keys().values();
            starts.extend((1..keys.len()).filter(|&row| keys[row - 1] != keys[row]));
        }
        DataType::Int8 => each::<Int8Type>(column, starts),
        DataType::Int16 => each::<Int16Type>(column, starts),
        DataType::Int32 => each::<Int32Type>(column, starts),
        DataType::Int64 => each::<Int64Type>(column, starts),
        DataType::UInt8 => each::<UInt8Type>(column, starts),
        DataType::UInt16 => each::<UInt16Type>(column, starts),
        DataType::UInt32 => each::<UInt32Type>(column, starts),
        DataType::UInt64 => each::<UInt64Type>(column, starts),
        _ => return None,
    }
    Some(())
}

/// Takes whole numbers of 32 bits, none of which is missing.
fn whole(column: &ArrayRef, into: &mut Vec<u32>) -> Option<()> {
    if column.null_count() > 0 {
        return None;
    }
    match column.data_type() {
        DataType::UInt32 => into.extend_from_slice(column.as_primitive::<UInt32Type>().values()),
        DataType::Int32 => converted(column.as_primitive::<Int32Type>().values(), into)?,
        DataType::Int64 => converted(column.as_primitive::<Int64Type>().values(), into)?,
        DataType::UInt64 => converted(column.as_primitive::<UInt64Type>().values(), into)?,
        _ => return None,
    }
    Some(())
}

/// Adds the numbers; `None` if one of them does not fit.
fn converted<T: Copy>(values: &[T], into: &mut Vec<u32>) -> Option<()>
where
    u32: TryFrom<T>,
{
    let mut fits = true;
    into.extend(values.iter().map(|value| {
        u32::try_from(*value).unwrap_or_else(|_| {
            fits = false;
            0
        })
    }));
    fits.then_some(())
}

/// Takes ids; one that is missing is [`NO_ID`].
fn ids(column: &ArrayRef, into: &mut Vec<u32>) -> Option<()> {
    if column.null_count() == 0 {
        whole(column, into)?;
        return (!into.contains(&NO_ID)).then_some(());
    }
    let numbers = Numbers::of_column(column, "token_id").ok()?;
    for row in 0..column.len() {
        into.push(numbers.real(row).map_or(Some(NO_ID), |id| super::fields::id(id).ok())?);
    }
    Some(())
}

/// Takes log-probabilities, and flags the tokens that have one.
fn logprobs(column: &ArrayRef, into: &mut Vec<f32>, flags: &mut [u8], flag: u8) -> Option<()> {
    match column.data_type() {
        DataType::Float32 => into.extend_from_slice(column.as_primitive::<Float32Type>().values()),
        DataType::Float64 => {
            into.extend(column.as_primitive::<Float64Type>().values().iter().map(|value| narrow(*value)));
        }
        _ => return None,
    }
    match column.nulls() {
        None => flags.iter_mut().for_each(|flags| *flags |= flag),
        Some(valid) => {
            for ((value, flags), is_valid) in into.iter_mut().zip(flags).zip(valid) {
                (*value, *flags) = if is_valid { (*value, *flags | flag) } else { (0.0, *flags) };
            }
        }
    }
    Some(())
}

/// Flags the tokens in the loss: those that the mask tells of, else those with a value.
fn counted(mask: &ArrayRef, flags: &mut [u8]) -> Option<()> {
    if let (DataType::Boolean, None) = (mask.data_type(), mask.nulls()) {
        for (flags, counted) in flags.iter_mut().zip(mask.as_boolean().values()) {
            *flags |= u8::from(counted) * COUNTED;
        }
        return Some(());
    }
    let numbers = Numbers::of_column(mask, "mask").ok()?;
    for (row, flags) in flags.iter_mut().enumerate() {
        let counted = numbers.real(row).map_or(*flags != 0, |mask| mask > 0.0);
        *flags |= u8::from(counted) * COUNTED;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{BooleanArray, DictionaryArray, Float32Array, Float64Array, Int64Array, UInt32Array};

    use super::super::Collected;
    use super::super::parquet;
    use super::*;
    use crate::table::{Builder, Table};

    fn read(batches: &[RecordBatch], by_columns: bool) -> Option<Table> {
        let mut into =
            Collected { side: Side::Trainer, builder: Builder::default(), differences: Vec::new() };
        let mut rows = Rows::new(Path::new("table.parquet"), &mut into);
        let mut whole = Batch::default();
        for batch in batches {
            if by_columns {
                whole.add(batch, &mut rows).then_some(())?;
            } else {
                parquet::add(batch, &mut rows).ok()?;
            }
        }
        into.builder.finish().ok()
    }

    fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(
            columns.iter().map(|(name, values)| (*name, Arc::clone(values), true)),
        )
        .unwrap()
    }

    fn both(batches: &[RecordBatch]) -> Table {
        let [columns, rows] = [true, false].map(|by_columns| read(batches, by_columns).unwrap());
        assert_eq!((&columns.samples, &columns.tokens), (&rows.samples, &rows.tokens));
        columns
    }

    #[test]
    fn columns_give_what_rows_give() {
        let names: DictionaryArray<Int32Type> = ["a", "a", "b", "b", "b"].into_iter().collect();
        let first: [(&str, ArrayRef); 6] = [
            ("sample", Arc::new(names)),
            ("position", Arc::new(Int64Array::from(vec![4, 5, 0, 1, 2]))),
            ("token_id", Arc::new(UInt32Array::from(vec![Some(7), None, Some(0), Some(1), Some(2)]))),
            ("logprob", Arc::new(Float64Array::from(vec![Some(-1.0), Some(-2.5), None, Some(-0.1), None]))),
            ("mask", Arc::new(BooleanArray::from(vec![true, false, true, true, false]))),
            ("version", Arc::new(Int64Array::from(vec![Some(1), Some(1), None, None, None]))),
        ];
        // The sample goes on in the next batch, where the dictionary is another one.
        let names: DictionaryArray<Int32Type> = ["b", "c"].into_iter().collect();
        let mut second = first.clone().map(|(name, values)| (name, values.slice(0, 2)));
        (second[0].1, second[1].1) = (Arc::new(names), Arc::new(Int64Array::from(vec![3, 0])));
        let table = both(&[batch(&first), batch(&second)]);
        let ranges: Vec<_> =
            table.samples.iter().map(|sample| (&*sample.name, sample.range.clone())).collect();
        assert_eq!(ranges, [("a", 0..2), ("b", 2..6), ("c", 6..7)]);
        assert_eq!(table.samples[0].version, Some(1));
    }

    #[test]
    fn positions_are_counted_where_there_are_none() {
        let columns = |names: Vec<i64>, steps: Vec<i64>| -> RecordBatch {
            let values = Float32Array::from(vec![-1.0; names.len()]);
            batch(&[
                ("sample", Arc::new(Int64Array::from(names))),
                ("step", Arc::new(Int64Array::from(steps))),
                ("rollout_logprob", Arc::new(values.clone())),
                ("trainer_logprob", Arc::new(values)),
            ])
        };
        let table = both(&[columns(vec![1, 1, 2], vec![0; 3]), columns(vec![2, 2, 2], vec![0, 1, 1])]);
        assert_eq!(table.tokens.positions, [0, 1, 0, 1, 0, 1]);
        assert_eq!(table.samples.len(), 3);
        assert!(table.tokens.ids.iter().all(|id| *id == NO_ID));
    }

    #[test]
    fn what_is_no_table_is_left_to_the_reader_of_rows() {
        let with = |position: i64, id: i64| {
            batch(&[
                ("sample", Arc::new(Int64Array::from(vec![1, 1])) as ArrayRef),
                ("position", Arc::new(Int64Array::from(vec![0, position]))),
                ("token_id", Arc::new(Int64Array::from(vec![0, id]))),
                ("logprob", Arc::new(Float32Array::from(vec![-1.0, -1.0]))),
            ])
        };
        assert!(read(&[with(1, 1)], true).is_some());
        for (position, id) in [(-1, 1), (1, -1), (1, i64::from(u32::MAX)), (1 << 40, 1)] {
            assert!(read(&[with(position, id)], true).is_none(), "{position} {id}");
            assert!(read(&[with(position, id)], false).is_none(), "{position} {id}");
        }
    }
}
