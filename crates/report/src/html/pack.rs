//! Columns of ops and values, packed for the page.
//!
//! A piece has two blobs, so that the page can show ops before it has unpacked all values: `ops` holds new texts and the columns of
//! ops, `values` the columns of slots and of numbers. Texts are numbered across all pieces, and each is stored in the first piece that
//! needs it. Identical rows of slot numbers are stored once: about half of all slots hold a tensor that was seen before.
//!
//! A blob is the length of a header as 4 bytes, the header as JSON, and the columns one after the other. Each column stores the first
//! byte of all its cells, then the second byte, and so on, because similar bytes compress well. Everything is little-endian.

use std::collections::HashMap;

use serde::Serialize;
use twox_hash::XxHash3_128;

use crate::columns::{Side, SlotColumn, Statistic};
use crate::rows::Cell;
use probe_measure::ALL_METRICS;

/// Approximate limits on the ops and slots of a piece, which is held in memory.
const MAX_OPS: usize = 4096;
const MAX_SLOTS: usize = 32_768;

/// Maximum number of distinct rows of numbers that are deduplicated; beyond it, some rows are stored twice. With this many rows, a chance
/// collision of 64-bit hashes occurs once in 3e7 pages.
const MAX_KNOWN: usize = 1 << 20;

/// Maximum number of characters of a text, which is cut beyond it: nobody reads more, and a name may be a megabyte
/// long.
const MAX_TEXT: usize = 2000;

/// An empty cell.
const NOTHING: u32 = u32::MAX;

/// Mantissa bits kept for metrics: 4 digits.
const METRIC_BITS: u32 = 14;

/// Mantissa bits kept for statistics: 6 digits, all that the first 4 bytes of a binary64 hold.
const STATISTIC_BITS: u32 = 20;

/// Encoding of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Index of a text, in 4 bytes.
    Text,
    /// Integer or boolean in 4 bytes.
    Count,
    /// The first 4 bytes of a binary64, rounded to this many mantissa bits.
    Real(u32),
    /// Binary64, exact for element counts.
    Whole,
}

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Count => "count",
            Self::Real(_) => "real",
            Self::Whole => "whole",
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Text | Self::Count | Self::Real(_) => 4,
            Self::Whole => 8,
        }
    }
}

/// Columns of the ops.
const OPS: [(SlotColumn, Form); 14] = [
    (SlotColumn::Order, Form::Count),
    (SlotColumn::Op, Form::Text),
    (SlotColumn::Phase, Form::Text),
    (SlotColumn::Module, Form::Text),
    (SlotColumn::Recorded, Form::Text),
    (SlotColumn::Role, Form::Text),
    (SlotColumn::Cause, Form::Text),
    (SlotColumn::Source, Form::Text),
    (SlotColumn::Stack(Side::Baseline), Form::Text),
    (SlotColumn::Stack(Side::Candidate), Form::Text),
    (SlotColumn::OpReason, Form::Text),
    (SlotColumn::Follows, Form::Count),
    (SlotColumn::InputError, Form::Real(METRIC_BITS)),
    (SlotColumn::OutputError, Form::Real(METRIC_BITS)),
];

/// Columns of the slot that represents an op, stored with the columns of the op; the curve is drawn from them.
const DECIDING: [(SlotColumn, Form); 4] = [
    (SlotColumn::JudgedError, Form::Real(METRIC_BITS)),
    (SlotColumn::Floor, Form::Real(METRIC_BITS)),
    (SlotColumn::Expected, Form::Real(METRIC_BITS)),
    (SlotColumn::Verdict, Form::Text),
];

/// Columns of the slots.
const SLOTS: [(SlotColumn, Form); 15] = [
    (SlotColumn::Slot, Form::Text),
    (SlotColumn::Verdict, Form::Text),
    (SlotColumn::Basis, Form::Text),
    (SlotColumn::DType(Side::Baseline), Form::Text),
    (SlotColumn::DType(Side::Candidate), Form::Text),
    (SlotColumn::Shape(Side::Baseline), Form::Text),
    (SlotColumn::Shape(Side::Candidate), Form::Text),
    (SlotColumn::Value(Side::Baseline), Form::Text),
    (SlotColumn::Value(Side::Candidate), Form::Text),
    (SlotColumn::RequiresGrad(Side::Baseline), Form::Count),
    (SlotColumn::RequiresGrad(Side::Candidate), Form::Count),
    (SlotColumn::Tolerance, Form::Text),
    (SlotColumn::Reason, Form::Text),
    (SlotColumn::Pieces, Form::Text),
    (SlotColumn::Identity, Form::Count),
];

/// Returns the columns of the numbers of slots.
fn numbers() -> Vec<(SlotColumn, Form)> {
    let metric = |metric| (SlotColumn::Metric(metric), Form::Real(METRIC_BITS));
    let mut all: Vec<(SlotColumn, Form)> = ALL_METRICS.into_iter().map(metric).collect();
    all.push((SlotColumn::MaxAbsIndex, Form::Whole));
    for side in Side::ALL {
        all.push((SlotColumn::MaxAbsValue(side), Form::Real(STATISTIC_BITS)));
        all.extend(Statistic::ALL.map(|statistic| {
            let is_real = Statistic::RECORDED.contains(&statistic);
            let form = if is_real { Form::Real(STATISTIC_BITS) } else { Form::Whole };
            (SlotColumn::Statistic(side, statistic), form)
        }));
        all.push((SlotColumn::ReferenceError(side), Form::Real(METRIC_BITS)));
    }
    all.extend(
        [SlotColumn::JudgedError, SlotColumn::Floor, SlotColumn::Expected]
            .map(|column| (column, Form::Real(METRIC_BITS))),
    );
    all
}

/// Returns every column that a page is built from.
pub(super) fn needed() -> impl Iterator<Item = SlotColumn> {
    let places = [SlotColumn::Step, SlotColumn::Rank, SlotColumn::Decides];
    let packed = OPS.into_iter().chain(DECIDING).chain(SLOTS).chain(numbers()).map(|(column, _)| column);
    let mut all: Vec<SlotColumn> = places.into_iter().chain(packed).collect();
    let mut seen = std::collections::HashSet::new();
    all.retain(|column| seen.insert(*column));
    all.into_iter()
}

/// Names and encodings of the columns, in order.
#[derive(Debug, Serialize)]
pub(super) struct ColumnNames {
    ops: Vec<(String, &'static str)>,
    slots: Vec<(String, &'static str)>,
    values: Vec<(String, &'static str)>,
}

/// Returns the column names that the page needs to read pieces.
pub(super) fn columns() -> ColumnNames {
    let named = |columns: &[(SlotColumn, Form)]| -> Vec<(String, &'static str)> {
        columns.iter().map(|(column, form)| (column.name(), form.name())).collect()
    };
    let mut ops = named(&OPS);
    ops.extend(named(&DECIDING));
    ops.extend([("decides".to_owned(), "count"), ("slots".to_owned(), "count")]);
    let mut slots = named(&SLOTS);
    slots.push(("numbers".to_owned(), "count"));
    ColumnNames { ops, slots, values: named(&numbers()) }
}

/// A finished piece, not yet compressed.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) ops: Vec<u8>,
    pub(super) values: Vec<u8>,
}

/// Consecutive ops of one step and rank.
#[derive(Debug, Serialize)]
struct Run {
    step: u64,
    rank: u32,
    ops: usize,
}

#[derive(Debug, Serialize)]
struct OpsHeader<'a> {
    runs: &'a [Run],
    ops: usize,
    texts: usize,
    text_bytes: usize,
}

#[derive(Debug, Serialize)]
struct ValuesHeader {
    slots: usize,
    numbers: usize,
}

/// Collects ops and slots until there are enough for a piece.
#[derive(Debug)]
pub(super) struct Packer {
    texts: Texts,
    runs: Vec<Run>,
    /// Cells are stored row by row; [`planes`] transposes them.
    ops: Table,
    slots: Table,
    numbers: Table,
    columns: Vec<(SlotColumn, Form)>,
    /// Rows of numbers by hash, across all pieces.
    known: HashMap<u64, u32>,
    /// Number of rows of numbers in all pieces.
    rows: u32,
    scratch: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Self {
        let widths = |columns: &[(SlotColumn, Form)], more: usize| -> Vec<usize> {
            let cells = columns.iter().map(|(_, form)| form.bytes());
            cells.chain(std::iter::repeat_n(4, more)).collect()
        };
        let columns = numbers();
        let deciding: Vec<usize> = widths(&DECIDING, 2);
        Self {
            texts: Texts::default(),
            runs: Vec::new(),
            ops: Table::of([widths(&OPS, 0), deciding].concat()),
            slots: Table::of(widths(&SLOTS, 1)),
            numbers: Table::of(widths(&columns, 0)),
            columns,
            known: HashMap::new(),
            rows: 0,
            scratch: Vec::new(),
        }
    }
}

impl Packer {
    /// Adds an op, whose slots follow; `cell` returns the content of a column of the op.
    pub(super) fn op<'a>(&mut self, step: u64, rank: u32, cell: impl Fn(SlotColumn) -> Option<Cell<'a>>) {
        match self.runs.last_mut() {
            Some(run) if (run.step, run.rank) == (step, rank) => run.ops += 1,
            _ => self.runs.push(Run { step, rank, ops: 1 }),
        }
        for (column, form) in OPS {
            let cell = cell(column).unwrap_or(Cell::Empty);
            // Op names hardly ever repeat, so they are not looked up.
            let number = match &cell {
                Cell::Text(text) if column == SlotColumn::Op => self.texts.add(text),
                _ => coded(&mut self.texts, form, &cell),
            };
            self.ops.cells.extend(number.to_le_bytes());
        }
        // Filled in by the slots.
        for _ in DECIDING {
            self.ops.cells.extend(NOTHING.to_le_bytes());
        }
        self.ops.cells.extend(NOTHING.to_le_bytes());
        self.ops.cells.extend(0_u32.to_le_bytes());
    }

    /// Adds a slot of the last op; `cell` returns the content of a column.
    pub(super) fn slot<'a>(&mut self, cell: impl Fn(SlotColumn) -> Cell<'a>) {
        for (column, form) in SLOTS {
            let number = coded(&mut self.texts, form, &cell(column));
            self.slots.cells.extend(number.to_le_bytes());
        }
        self.scratch.clear();
        for &(column, form) in &self.columns {
            let cell = cell(column);
            match form {
                Form::Whole => self.scratch.extend(whole(&cell).to_le_bytes()),
                _ => self.scratch.extend(coded(&mut self.texts, form, &cell).to_le_bytes()),
            }
        }
        let row = *self.known.entry(half_hash(&self.scratch)).or_insert_with(|| {
            self.numbers.cells.extend(&self.scratch);
            self.rows += 1;
            self.rows - 1
        });
        self.slots.cells.extend(row.to_le_bytes());
        if self.known.len() > MAX_KNOWN {
            self.known.clear();
        }
        self.tell_op(cell);
    }

    /// Adds the slot to the count of its op, and stores the deciding columns if the slot represents the op.
    fn tell_op<'a>(&mut self, cell: impl Fn(SlotColumn) -> Cell<'a>) {
        let end = self.ops.cells.len();
        let Some((_, tail)) =
            self.ops.cells.split_at_mut_checked(end.saturating_sub(4 * (DECIDING.len() + 2)))
        else {
            return;
        };
        let (cells, _) = tail.as_chunks_mut::<4>();
        let [.., decides, slots] = cells else { return };
        let index = u32::from_le_bytes(*slots);
        *slots = (index + 1).to_le_bytes();
        if cell(SlotColumn::Decides) != Cell::Flag(true) {
            return;
        }
        *decides = index.to_le_bytes();
        for ((column, form), place) in DECIDING.into_iter().zip(cells) {
            *place = coded(&mut self.texts, form, &cell(column)).to_le_bytes();
        }
    }

    /// Returns true if there is enough for a piece.
    pub(super) fn is_full(&self) -> bool {
        self.ops.rows() >= MAX_OPS || self.slots.rows() >= MAX_SLOTS
    }

    /// Takes the collected values; `None` if there are none.
    pub(super) fn take(&mut self) -> Option<Piece> {
        let runs = std::mem::take(&mut self.runs);
        let Texts { lengths, bytes, .. } = &mut self.texts;
        let header = OpsHeader {
            runs: &runs,
            ops: self.ops.rows(),
            texts: lengths.len() / 4,
            text_bytes: bytes.len(),
        };
        let mut ops = header_of(&header);
        planes(&mut ops, lengths, &[4]);
        ops.append(bytes);
        self.ops.drain_to(&mut ops);
        lengths.clear();
        let mut values = header_of(&ValuesHeader { slots: self.slots.rows(), numbers: self.numbers.rows() });
        self.slots.drain_to(&mut values);
        self.numbers.drain_to(&mut values);
        (!runs.is_empty()).then_some(Piece { ops, values })
    }
}

/// Returns half of a 128-bit hash.
fn half_hash(bytes: &[u8]) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the other half is not needed")]
    let half = XxHash3_128::oneshot(bytes) as u64;
    half
}

fn header_of(header: &impl Serialize) -> Vec<u8> {
    // The header holds only numbers, so it can always be written as JSON.
    let json = serde_json::to_vec(header).unwrap_or_default();
    let length = u32::try_from(json.len()).unwrap_or(0);
    let mut out = length.to_le_bytes().to_vec();
    out.extend(json);
    out
}

/// Rows of cells with fixed widths.
#[derive(Debug)]
struct Table {
    widths: Vec<usize>,
    cells: Vec<u8>,
}

impl Table {
    fn of(widths: Vec<usize>) -> Self {
        Self { widths, cells: Vec::new() }
    }

    fn rows(&self) -> usize {
        self.cells.len() / self.widths.iter().sum::<usize>()
    }

    fn drain_to(&mut self, out: &mut Vec<u8>) {
        planes(out, &self.cells, &self.widths);
        self.cells.clear();
    }
}

/// Writes rows of cells with these widths column by column, and each column one byte position at a time.
fn planes(out: &mut Vec<u8>, cells: &[u8], widths: &[usize]) {
    let width: usize = widths.iter().sum();
    for byte in 0..width {
        out.extend(cells.iter().skip(byte).step_by(width));
    }
}

/// Texts by index.
#[derive(Debug, Default)]
struct Texts {
    numbers: HashMap<Box<str>, u32>,
    count: u32,
    /// Byte length of each text of this piece, in 4 bytes.
    lengths: Vec<u8>,
    bytes: Vec<u8>,
}

impl Texts {
    /// Returns the index of a text, adding it if it is new.
    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.add(text);
        self.numbers.insert(text.into(), number);
        number
    }

    /// Adds a new text.
    fn add(&mut self, text: &str) -> u32 {
        let cut = text.char_indices().nth(MAX_TEXT).map(|(end, _)| end);
        let start = self.bytes.len();
        self.bytes.extend(&text.as_bytes()[..cut.unwrap_or(text.len())]);
        if cut.is_some() {
            self.bytes.extend("…".as_bytes());
        }
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(0);
        self.lengths.extend(length.to_le_bytes());
        self.count += 1;
        self.count - 1
    }
}

/// Returns the 4 bytes of a cell.
fn coded(texts: &mut Texts, form: Form, cell: &Cell<'_>) -> u32 {
    match (form, cell) {
        (Form::Text, Cell::Text(text)) => texts.number(text),
        (Form::Count, Cell::Count(count)) => u32::try_from(*count).unwrap_or(NOTHING),
        (Form::Count, Cell::Flag(flag)) => u32::from(*flag),
        (Form::Real(bits), Cell::Real(value)) => rounded(*value, bits),
        (Form::Real(bits), Cell::Count(count)) => rounded(*count as f64, bits),
        _ => NOTHING,
    }
}

/// Returns the bits of a count as binary64, or of a NaN if there is no count.
fn whole(cell: &Cell<'_>) -> u64 {
    match cell {
        Cell::Count(count) => (*count as f64).to_bits(),
        _ => u64::MAX,
    }
}

/// Returns the upper half of the bits of `value`, rounded to nearest with this many mantissa bits. A finite value stays
/// finite.
fn rounded(value: f64, bits: u32) -> u32 {
    const MANTISSA: u32 = f64::MANTISSA_DIGITS - 1;
    if value.is_nan() {
        return 0x7ff8_0000;
    }
    let dropped = MANTISSA - bits;
    let exact = value.to_bits();
    let nearest = exact + (1 << (dropped - 1));
    let kept = if value.is_finite() && f64::from_bits(nearest).is_finite() { nearest } else { exact };
    u32::try_from((kept >> dropped << dropped) >> 32).unwrap_or(NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: u32) -> f64 {
        f64::from_bits(u64::from(code) << 32)
    }

    #[test]
    fn numbers_keep_their_digits_and_what_they_are() {
        for value in [1.0, -3.25, 6.52e-4, 1e-300, 1e300, f64::MAX, f64::MIN_POSITIVE, std::f64::consts::PI] {
            let (metric, statistic) =
                (read(rounded(value, METRIC_BITS)), read(rounded(value, STATISTIC_BITS)));
            assert!((metric / value - 1.0).abs() <= 1.0 / 32_768.0, "{value} became {metric}");
            assert!((statistic / value - 1.0).abs() <= 1.0 / 1_048_576.0, "{value} became {statistic}");
        }
        assert_eq!(read(rounded(0.0, METRIC_BITS)).to_bits(), 0.0_f64.to_bits());
        assert_eq!(read(rounded(-0.0, METRIC_BITS)).to_bits(), (-0.0_f64).to_bits());
        assert!(read(rounded(f64::NAN, METRIC_BITS)).is_nan());
        assert_eq!(read(rounded(f64::NEG_INFINITY, METRIC_BITS)).to_bits(), f64::NEG_INFINITY.to_bits());
        assert_ne!(rounded(f64::NAN, STATISTIC_BITS), NOTHING);
    }

    #[test]
    fn a_text_stands_once_and_a_long_one_is_cut() {
        let mut texts = Texts::default();
        assert_eq!([texts.number("a"), texts.number("é"), texts.number("a")], [0, 1, 0]);
        texts.number(&"é".repeat(1_000_000));
        assert_eq!(texts.bytes.len(), 3 + 2 * MAX_TEXT + "…".len());
    }

    #[test]
    fn planes_are_columns_byte_by_byte() {
        let mut out = Vec::new();
        planes(&mut out, &[1, 2, 3, 10, 20, 30], &[1, 2]);
        assert_eq!(out, [1, 10, 2, 20, 3, 30]);
    }
}
