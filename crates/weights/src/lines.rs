//! Hashes of the lines of tensors: of every row and every column, as they are and rounded to shorter types, and of their signs.
//!
//! A line x of n elements has the hash Σ k(i)·x(i) mod 2^64 over the bits of its elements, with fixed odd pseudo-random k (multilinear
//! hashing, Carter and Wegman 1979). Unlike other hashes, it does not ask for elements in order, so that one pass in the order of storage
//! hashes rows and columns alike, and pieces of a tensor are added where they lie.

use probe_dump::{DType, ReadError, TensorData};
use probe_files::limits::MAX_WEIGHT_LINES;
use probe_measure::round;

use crate::checkpoint::Tensor;

/// Direction of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// Along the last dimension.
    Row,
    /// Along the last dimension but one.
    Column,
}

impl Axis {
    /// Both directions.
    pub(crate) const ALL: [Self; 2] = [Self::Row, Self::Column];

    /// Returns the word for `count` lines of this direction.
    pub const fn word(self, count: usize) -> &'static str {
        match (self, count) {
            (Self::Row, 1) => "row",
            (Self::Row, _) => "rows",
            (Self::Column, 1) => "column",
            (Self::Column, _) => "columns",
        }
    }
}

/// A tensor as matrices, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    matrices: usize,
    rows: usize,
    columns: usize,
}

/// Last dimensions shorter than this are those of a convolution: an expert's matrix has more columns.
const KERNEL: usize = 16;

impl Form {
    /// A vector is a row. Three dimensions are a stack of matrices (layers, experts). Those of convolutions are joined behind the first.
    pub(crate) fn of(shape: &[usize]) -> Self {
        match *shape {
            _ if shape.contains(&0) => Self { matrices: 0, rows: 0, columns: 0 },
            [] => Self { matrices: 1, rows: 1, columns: 1 },
            [columns] => Self { matrices: 1, rows: 1, columns },
            [rows, columns] => Self { matrices: 1, rows, columns },
            [matrices, rows, columns] if columns >= KERNEL => Self { matrices, rows, columns },
            [rows, ref rest @ ..] => Self { matrices: 1, rows, columns: rest.iter().product() },
        }
    }

    /// Returns the number of lines along `axis`.
    pub(crate) const fn lines(self, axis: Axis) -> usize {
        self.matrices
            * match axis {
                Axis::Row => self.rows,
                Axis::Column => self.columns,
            }
    }

    /// Returns the number of elements of a line along `axis`.
    pub(crate) const fn length(self, axis: Axis) -> usize {
        match axis {
            Axis::Row => self.columns,
            Axis::Column => self.rows,
        }
    }

    /// Returns the position of element `at` of line `line`, in row-major order.
    pub(crate) const fn element(self, axis: Axis, line: usize, at: usize) -> usize {
        match axis {
            Axis::Row => line * self.columns + at,
            Axis::Column => {
                let (matrix, column) = (line / self.columns, line % self.columns);
                (matrix * self.rows + at) * self.columns + column
            }
        }
    }
}

/// Hashes of all lines of a tensor.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) form: Form,
    /// By type, the tensor's own first, and direction.
    pub(crate) exact: Vec<(DType, [Vec<u64>; 2])>,
    /// By direction; 0 if all signs are equal.
    pub(crate) signs: [Vec<u64>; 2],
}

/// Elements that are hashed at a time.
const CHUNK: usize = 1 << 16;

/// Returns the types in which values of two types are compared: after a cast from one to the other, the target. Both are tried for
/// binary16 and bfloat16, since either may have been cast.
pub(crate) fn common(a: DType, b: DType) -> &'static [DType] {
    use DType::{Bf16, F16, F32, F64};
    const fn own(dtype: DType) -> &'static [DType] {
        match dtype {
            DType::F64 => &[DType::F64],
            DType::F32 => &[DType::F32],
            DType::F16 => &[DType::F16],
            DType::Bf16 => &[DType::Bf16],
            DType::F8E4M3 => &[DType::F8E4M3],
            DType::F8E5M2 => &[DType::F8E5M2],
            DType::I8 => &[DType::I8],
            DType::I16 => &[DType::I16],
            DType::I32 => &[DType::I32],
            DType::I64 => &[DType::I64],
            DType::U8 => &[DType::U8],
            DType::U16 => &[DType::U16],
            DType::U32 => &[DType::U32],
            DType::U64 => &[DType::U64],
            DType::Bool => &[DType::Bool],
            DType::C64 => &[DType::C64],
            DType::C128 => &[DType::C128],
        }
    }
    match (a, b) {
        _ if a == b => own(a),
        (F16, Bf16) | (Bf16, F16) => &[Bf16, F16],
        (F64 | F32, F16) | (F16, F64 | F32) => own(F16),
        (F64 | F32, Bf16) | (Bf16, F64 | F32) => own(Bf16),
        (F64, F32) | (F32, F64) => own(F32),
        _ => &[],
    }
}

impl Lines {
    /// Hashes a tensor, also rounded to the precision it has in [`common`] with `others`.
    ///
    /// # Errors
    /// [`ReadError`] when a piece cannot be read.
    pub(crate) fn of(tensor: &Tensor, others: &[DType]) -> Result<Self, ReadError> {
        let form = Form::of(&tensor.shape);
        let mut types = vec![tensor.dtype];
        for &dtype in others.iter().flat_map(|&other| common(tensor.dtype, other)) {
            if !types.contains(&dtype) {
                types.push(dtype);
            }
        }
        let count = form.lines(Axis::Row).saturating_add(form.lines(Axis::Column));
        if count > MAX_WEIGHT_LINES {
            return Err(ReadError::Limit {
                path: (&*tensor.name.text).into(),
                what: "number of rows and columns",
                found: count as u64,
                limit: MAX_WEIGHT_LINES as u64,
            });
        }
        let empty = || Axis::ALL.map(|axis| vec![0; form.lines(axis)]);
        let exact = types.into_iter().map(|dtype| (dtype, empty())).collect();
        let mut lines = Self { form, exact, signs: empty() };
        let keys: Vec<u64> = (0..form.rows.max(form.columns)).map(key).collect();
        for piece in &tensor.pieces {
            lines.add(&piece.load()?, tensor, &piece.offsets, &keys)?;
        }
        lines.finish(&keys);
        Ok(lines)
    }

    /// Adds a piece whose first element is at `offsets`.
    fn add(
        &mut self,
        data: &TensorData,
        whole: &Tensor,
        offsets: &[usize],
        keys: &[u64],
    ) -> Result<(), ReadError> {
        let view = data.view();
        let last = data.shape().last().copied().unwrap_or(1);
        if view.is_empty() {
            return Ok(());
        }
        // Runs of elements that are adjacent in the tensor: rows of the piece, or of it all if it is not cut in the last dimension.
        let run = if whole.pieces.len() == 1 { self.form.columns } else { last };
        let size = data.dtype().size();
        let group = (CHUNK / run.max(1)).max(1) * run;
        let mut bytes = vec![0; group.min(view.len()) * size];
        let mut words = Words::default();
        for start in (0..view.len()).step_by(group) {
            let range = start..view.len().min(start + group);
            let bytes = &mut bytes[..range.len() * size];
            view.gather(range.clone(), bytes);
            view.used(range.len());
            for slot in 0..=self.exact.len() {
                let dtype = self.exact.get(slot).map(|(dtype, _)| *dtype);
                words.read(data.dtype(), dtype, bytes);
                let into = self.exact.get_mut(slot).map_or(&mut self.signs, |(_, into)| into);
                for (at, words) in words.words.chunks(run).enumerate() {
                    let from = position(data.shape(), &whole.shape, offsets, start + at * run);
                    add_run(self.form, into, from, words, keys);
                }
            }
        }
        data.fault().map_or(Ok(()), |fault| Err(ReadError::format(&*whole.name.text, fault)))
    }

    /// Replaces sums by hashes that know the length of the line, and sums of signs by the same value for a line and its negative.
    fn finish(&mut self, keys: &[u64]) {
        for axis in Axis::ALL {
            let length = self.form.length(axis);
            let all = keys.iter().take(length).fold(0_u64, |sum, &key| sum.wrapping_add(key));
            for sum in &mut self.signs[axis as usize] {
                *sum = (*sum).min(all.wrapping_sub(*sum));
                if *sum != 0 {
                    *sum = mixed(*sum ^ mixed(length as u64));
                }
            }
            for (_, sums) in &mut self.exact {
                for sum in &mut sums[axis as usize] {
                    *sum = mixed(*sum ^ mixed(length as u64));
                }
            }
        }
    }

    /// Returns the hash of a line in a type, if it has one.
    pub(crate) fn hash(&self, dtype: DType, axis: Axis, line: usize) -> Option<u64> {
        let (_, lines) = self.exact.iter().find(|(own, _)| *own == dtype)?;
        lines[axis as usize].get(line).copied()
    }
}

/// Returns the row-major position in the whole tensor of element `at` of a piece.
fn position(piece: &[usize], whole: &[usize], offsets: &[usize], at: usize) -> usize {
    let (mut rest, mut position, mut stride) = (at, 0, 1);
    for ((&size, &of), &offset) in piece.iter().zip(whole).zip(offsets).rev() {
        position += (rest % size.max(1) + offset) * stride;
        rest /= size.max(1);
        stride *= of;
    }
    position
}

/// Adds adjacent elements of one row, the first of which is at `from`.
fn add_run(form: Form, into: &mut [Vec<u64>; 2], from: usize, words: &[u32], keys: &[u64]) {
    let (row, column) = (from / form.columns, from % form.columns);
    let (matrix, in_matrix) = (row / form.rows, row % form.rows);
    let [rows, columns] = into;
    let start = matrix * form.columns + column;
    let key_of_row = keys[in_matrix];
    let columns = &mut columns[start..start + words.len()];
    let mut sum = 0_u64;
    for ((&word, column), &key) in words.iter().zip(columns).zip(&keys[column..]) {
        let word = u64::from(word);
        sum = sum.wrapping_add(key.wrapping_mul(word));
        *column = column.wrapping_add(key_of_row.wrapping_mul(word));
    }
    rows[row] = rows[row].wrapping_add(sum);
}

/// Elements as words of 32 bits.
#[derive(Default)]
struct Words {
    words: Vec<u32>,
    rounded: Vec<u8>,
}

impl Words {
    /// Reads elements in type `to`; their signs if there is none.
    fn read(&mut self, from: DType, to: Option<DType>, bytes: &[u8]) {
        let mut bytes = bytes;
        let dtype = to.unwrap_or(from);
        if dtype != from {
            round(from, bytes, dtype, &mut self.rounded);
            bytes = &self.rounded;
        }
        let words = &mut self.words;
        words.clear();
        match dtype.size() {
            1 => words.extend(bytes.iter().map(|&byte| u32::from(byte))),
            2 => words.extend(bytes.as_chunks().0.iter().map(|&word| u32::from(u16::from_le_bytes(word)))),
            4 => words.extend(bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word))),
            _ if to.is_none() => {
                let top = bytes.chunks(dtype.size()).filter_map(|word| word.last_chunk().copied());
                words.extend(top.map(u32::from_le_bytes));
            }
            size => words.extend(bytes.chunks(size).map(|word| {
                let parts = word.as_chunks().0.iter().map(|&part| u64::from_le_bytes(part));
                let whole = parts.fold(0, |sum, part| mixed(sum ^ part));
                #[expect(clippy::cast_possible_truncation, reason = "half of the bits are kept")]
                let half = whole as u32;
                half
            })),
        }
        if to.is_none() {
            let top = 8 * dtype.size().min(4) - 1;
            for word in words.iter_mut() {
                *word = *word >> top & 1;
            }
        }
    }
}

/// Returns the factor of element `at` of a line: odd, so that two lines that differ in one element have different hashes.
fn key(at: usize) -> u64 {
    mixed((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1
}

/// Mixes all bits (the finaliser of `SplitMix64`: Steele, Lea and Flood 2014).
const fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
