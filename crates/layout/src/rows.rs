//! Rows that routing has put into another order: an expert's tokens come in the order of the ranks that sent them, and a rank's tokens are some of
//! all.

use std::ops::Range;

use probe_dump::{TensorData, TensorRef};
use probe_measure::numbers;

use super::infer::{Held, Inferred, NEAR, distance};
use super::layout::{Among, Cell, Layout};

/// Most rows that are looked for.
const MOST_ROWS: usize = 4096;

/// Most elements of a value whose rows are looked for.
const MOST_ELEMENTS: usize = 1 << 24;

/// Rows of a matrix.
struct Rows {
    width: usize,
    values: Vec<f64>,
    /// Product of each row with a fixed vector.
    marks: Vec<f64>,
}

impl Rows {
    /// Returns what a tensor holds at each index of a dimension.
    fn of(tensor: TensorRef<'_>, dimension: usize) -> Option<Self> {
        let rows = *tensor.shape().get(dimension)?;
        if rows == 0 || rows > MOST_ROWS || tensor.len() > MOST_ELEMENTS {
            return None;
        }
        let width = tensor.len() / rows;
        let mut values: Vec<f64> = numbers(tensor.dtype(), &tensor.to_bytes());
        if width == 0 || values.len() != rows * width {
            return None;
        }
        if dimension > 0 {
            let inner: usize = tensor.shape()[dimension + 1..].iter().product();
            let blocks = |row: usize| values.chunks(inner).skip(row).step_by(rows).flatten().copied();
            values = (0..rows).flat_map(blocks).collect();
        }
        // Multiples of the golden ratio, of which no two are alike.
        let weight = |column: usize| (column as f64 * 0.618_033_988_749_895).fract() - 0.5;
        let mark = |row: &[f64]| row.iter().enumerate().map(|(column, value)| value * weight(column)).sum();
        let marks = values.chunks(width).map(mark).collect();
        Some(Self { width, values, marks })
    }

    fn row(&self, number: usize) -> &[f64] {
        &self.values[number * self.width..(number + 1) * self.width]
    }
}

/// Explains the pieces as rows of the baseline in another order, but for a whole factor: gradients of each rank's own term of a mean are as many
/// times as large as there are ranks. `None` if they are not.
pub(crate) fn matched(pieces: &[Held<'_>], baseline: Held<'_>) -> Option<Inferred> {
    let shape = super::infer::sizes(baseline.0);
    let rows: Vec<Box<[Range<usize>]>> = found_along(pieces, baseline, 0, factor(pieces, baseline))?
        .iter()
        .map(|rows| in_ranges(rows))
        .collect();
    explained(pieces, baseline, layout(&shape, &rows))
}

/// Returns the number of times that the norm of all pieces is that of the baseline, if that is a whole number; otherwise 1.
fn factor(pieces: &[Held<'_>], baseline: Held<'_>) -> f64 {
    let norm = |(record, _): &Held<'_>| record.statistics.norm();
    let ratio = pieces.iter().map(norm).try_fold(0.0, |sum, norm| Some(f64::hypot(sum, norm?)));
    let ratio = ratio.zip(norm(&baseline)).map_or(1.0, |(all, whole)| all / whole);
    if ratio.is_finite() && (ratio - ratio.round()).abs() < NEAR * ratio { ratio.round() } else { 1.0 }
}

/// Returns for each piece the indices of the baseline, in a dimension, that it holds, `factor` times: each index is in one piece. `None` if the pieces
/// are not the baseline in another order.
pub(crate) fn found_along(
    pieces: &[Held<'_>],
    baseline: Held<'_>,
    dimension: usize,
    factor: f64,
) -> Option<Vec<Vec<usize>>> {
    let load = |(record, store): &Held<'_>| store.load(record.data.as_deref()?).ok();
    let whole: TensorData = load(&baseline)?;
    let inner = |shape: &[usize]| -> Option<Vec<usize>> {
        shape.get(dimension)?;
        let others = shape.iter().enumerate().filter(|(place, _)| *place != dimension);
        Some(others.map(|(_, size)| *size).collect())
    };
    let own = inner(whole.view().shape())?;
    if !baseline.0.dtype.known().is_some_and(probe_dump::DType::is_float) {
        return None;
    }
    let mut due = Rows::of(whole.view(), dimension)?;
    due.values.iter_mut().chain(&mut due.marks).for_each(|value| *value *= factor);
    let mut order: Vec<usize> = (0..due.marks.len()).collect();
    order.sort_by(|&a, &b| due.marks[a].total_cmp(&due.marks[b]));
    let mut taken = vec![false; order.len()];
    let mut rows = Vec::new();
    for piece in pieces {
        let piece = load(piece)?;
        if inner(piece.view().shape())? != own {
            return None;
        }
        let found = Rows::of(piece.view(), dimension)?;
        let of = (0..found.marks.len()).map(|row| taken_row(&due, &order, &mut taken, &found, row));
        rows.push(of.collect::<Option<Vec<usize>>>()?);
    }
    taken.iter().all(|taken| *taken).then_some(rows)
}

/// Returns the row that a piece's row is, and takes it. Of equal rows, any will do.
fn taken_row(due: &Rows, order: &[usize], taken: &mut [bool], found: &Rows, row: usize) -> Option<usize> {
    let own = found.row(row);
    let norm = own.iter().map(|value| value * value).sum::<f64>().sqrt();
    let within = NEAR * norm;
    // The fixed vector is no longer than half the root of the width.
    let reach = within * (found.width as f64).sqrt() * 0.5;
    let start = order.partition_point(|&other| due.marks[other] < found.marks[row] - reach);
    let near = order[start..].iter().take_while(|&&other| due.marks[other] <= found.marks[row] + reach);
    let distance = |other: usize| {
        let squares = due.row(other).iter().zip(own).map(|(a, b)| (a - b) * (a - b));
        squares.sum::<f64>().sqrt()
    };
    let best = near
        .filter(|&&other| !taken[other])
        .map(|&other| (distance(other), other))
        .filter(|(distance, _)| *distance <= within)
        .min_by(|a, b| a.0.total_cmp(&b.0))?;
    taken[best.1] = true;
    Some(best.1)
}

/// Returns indices as ranges, in their order.
pub(crate) fn in_ranges(rows: &[usize]) -> Box<[Range<usize>]> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for &row in rows {
        match ranges.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges.into()
}

/// Returns the layout of pieces that hold these rows.
fn layout(shape: &[usize], rows: &[Box<[Range<usize>]>]) -> Layout {
    let cells = rows.iter().map(|rows| Cell::whole(shape).with(0, rows.clone()));
    Layout { shape: shape.into(), cells: cells.collect(), among: Among::Replicas }
}

fn explained(pieces: &[Held<'_>], baseline: Held<'_>, layout: Layout) -> Option<Inferred> {
    let picks = (0..pieces.len()).collect();
    let mut found =
        Inferred { layout, picks, odd: Vec::new(), distance: None, by_content: false, of_term: false };
    let measured = distance(pieces, baseline, &found);
    found.distance = Some(measured);
    measured.is_finite().then_some(found)
}

/// Explains the pieces by the order of rows of other values.
pub(crate) fn as_others(pieces: &[Held<'_>], baseline: Held<'_>, others: &[Layout]) -> Option<Inferred> {
    let shape = super::infer::sizes(baseline.0);
    let fits = |other: &&Layout| {
        other.cells.len() == pieces.len()
            && other.shape.first() == shape.first()
            && pieces.iter().zip(&other.cells).all(|((record, _), cell)| {
                let rows: usize = cell.dimensions()[0].iter().map(ExactSizeIterator::len).sum();
                let local = super::infer::sizes(record);
                local.first() == Some(&rows) && local.get(1..) == shape.get(1..)
            })
    };
    let moved = |other: &Layout| {
        let cell = |cell: &Cell| Cell::whole(&shape).with(0, cell.dimensions()[0].clone());
        let layout = Layout {
            shape: shape.as_slice().into(),
            cells: other.cells.iter().map(cell).collect(),
            among: Among::Replicas,
        };
        explained(pieces, baseline, layout)
    };
    let found = others.iter().filter(fits).take(MOST_ORDERS).filter_map(moved);
    found.min_by(|a, b| a.distance.unwrap_or(f64::INFINITY).total_cmp(&b.distance.unwrap_or(f64::INFINITY)))
}

/// Most orders of other values that are tried.
const MOST_ORDERS: usize = 16;
