//! Call stacks of a part.

use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt32Type;

use super::rows::{Budget, text_column};
use super::{journal, table};
use crate::ReadError;
use probe_dump::Stack;
use probe_dump::native::columns::STACK_COLUMNS;
use probe_dump::native::{STACKS, STACKS_JOURNAL};
use probe_files::map::FileAccess;

/// Reads the stacks of the part in `folder`, from its table or, if there is none, from its journal.
///
/// # Errors
/// [`ReadError`] when there is neither, or it is damaged.
pub(super) fn read(folder: &Path, access: FileAccess) -> Result<Vec<Stack>, ReadError> {
    let path = folder.join(STACKS);
    if path.exists() {
        let mut stacks = Stacks::new(&path);
        table::read(&path, &STACK_COLUMNS, |batch| stacks.add(batch))?;
        return Ok(stacks.finish());
    }
    let path = folder.join(STACKS_JOURNAL);
    let mut stacks = Stacks::new(&path);
    // The ending does not matter: stacks were written before the ops of the last batch.
    journal::read(&path, access, |batch| stacks.add(batch))?;
    Ok(stacks.finish())
}

struct Stacks<'p> {
    path: &'p Path,
    budget: Budget,
    done: Vec<Stack>,
    open: Vec<Box<str>>,
    /// True once the missing number of the stack without frames was passed.
    skipped: bool,
}

impl<'p> Stacks<'p> {
    fn new(path: &'p Path) -> Self {
        Self { path, budget: Budget::default(), done: Vec::new(), open: Vec::new(), skipped: false }
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), ReadError> {
        let [stack, frame] = STACK_COLUMNS;
        let numbers = batch.column_by_name(stack).and_then(|column| column.as_primitive_opt::<UInt32Type>());
        let frames = text_column(batch, frame);
        let (Some(numbers), Some(frames)) = (numbers, frames) else {
            return Err(ReadError::format(self.path, "has other columns than a table of stacks"));
        };
        for row in 0..batch.num_rows() {
            let number = numbers.values().get(row).copied().unwrap_or_default() as usize;
            // Stacks are written in order; each row belongs to the open one or begins the next.
            if number == self.done.len() + 1 {
                self.done.push(std::mem::take(&mut self.open).into());
            } else if number == self.done.len() + 2 && !self.skipped {
                // Earlier recorders numbered the stack without frames, which has no row. There is at most one.
                self.skipped = true;
                self.done.push(std::mem::take(&mut self.open).into());
                self.done.push([].into());
            } else if number != self.done.len() {
                return Err(ReadError::format(self.path, format!("stack {number} is out of order")));
            }
            let text = frames.get(row).unwrap_or_default();
            self.budget.take(self.path, text)?;
            self.open.push(text.into());
        }
        Ok(())
    }

    fn finish(mut self) -> Vec<Stack> {
        if !self.open.is_empty() {
            self.done.push(self.open.into());
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{StringArray, UInt32Array};

    use super::*;
    use probe_dump::native::columns::stacks_schema;

    fn lengths(numbers: &[u32]) -> Result<Vec<usize>, ReadError> {
        let frames = StringArray::from(vec!["File /a.py, line 1, in f"; numbers.len()]);
        let columns: Vec<arrow_array::ArrayRef> =
            vec![Arc::new(UInt32Array::from(numbers.to_vec())), Arc::new(frames)];
        let mut stacks = Stacks::new(Path::new("stacks.parquet"));
        stacks.add(&RecordBatch::try_new(stacks_schema(), columns).unwrap())?;
        Ok(stacks.finish().iter().map(|stack| stack.len()).collect())
    }

    #[test]
    fn the_number_of_one_stack_without_frames_may_be_left_out() {
        assert_eq!(lengths(&[0, 0, 1]).unwrap(), [2, 1]);
        assert_eq!(lengths(&[0, 0, 2, 3]).unwrap(), [2, 0, 1, 1]);
        assert_eq!(lengths(&[1, 2]).unwrap(), [0, 1, 1]);
        for damaged in [&[0, 2, 4][..], &[0, 3], &[0, 1, 0], &[0, u32::MAX]] {
            let error = lengths(damaged).unwrap_err().to_string();
            assert!(error.contains("is out of order"), "{damaged:?}: {error}");
        }
    }
}
