//! The part of a value that a cell is, measured against what a rank holds.

use std::ops::Range;

use probe_dump::{DType, TensorRef};
use probe_measure as measure;

use super::infer::error;
use super::layout::Cell;

/// Elements that are gathered at once.
const AT_ONCE: usize = 1 << 16;

/// Cosine from which two parts are the same but for a factor: what rounding leaves, in bfloat16 as well.
const ALONG: f64 = 0.99;

/// Most ranges of a cell, all dimensions together, of which each is measured to tell one cell from another: those of zigzag shards of some
/// sequences. Of more, the first in each dimension counts.
const FEW_RANGES: usize = 8;

/// Returns the relative error of the part of `candidate` that a cell is; both tensors are whole.
pub fn part_error(baseline: TensorRef<'_>, candidate: TensorRef<'_>, cell: &Cell) -> f64 {
    part_sums(baseline, candidate, cell).map_or(f64::INFINITY, |sums| sums.error())
}

/// Returns by how much the part of `candidate` that a cell is is a multiple of the baseline's; `None` if it is none. Both tensors are whole.
pub fn part_factor(baseline: TensorRef<'_>, candidate: TensorRef<'_>, cell: &Cell) -> Option<f64> {
    let sums = part_sums(baseline, candidate, cell)?;
    (sums.cosine() > ALONG).then(|| sums.products / sums.squares)
}

/// Least share of equal elements of whole numbers of which rounding chose some differently. Of places in another order hardly any are equal, of a rank's
/// own offsets half at most.
const MOSTLY: f64 = 0.75;

/// Returns true for whole numbers of which most elements are equal: choices (of a top-k) of which rounding made some another way.
pub fn are_mostly_equal(baseline: TensorRef<'_>, candidate: TensorRef<'_>) -> bool {
    let equal =
        || measure::compare(baseline, candidate).and_then(|metrics| metrics.within_1e3).unwrap_or(0.0);
    !baseline.dtype().is_float() && equal() >= MOSTLY
}

fn part_sums(baseline: TensorRef<'_>, candidate: TensorRef<'_>, cell: &Cell) -> Option<Sums> {
    let shape = baseline.shape();
    if shape != candidate.shape() || cell.dimensions().len() != shape.len() {
        return None;
    }
    let mut sums = Sums::default();
    each_span(shape, cell.dimensions(), 0, &mut |span| {
        for start in span.clone().step_by(AT_ONCE) {
            let range = start..span.end.min(start + AT_ONCE);
            sums.add(&gathered(baseline, range.clone()), &gathered(candidate, range));
        }
    });
    Some(sums)
}

/// Returns the relative error of a piece against the part of `whole` that a cell is; with `scaled`, what their cosine lacks of 1.
pub(crate) fn part_distance(whole: TensorRef<'_>, cell: &Cell, piece: TensorRef<'_>, scaled: bool) -> f64 {
    let ranges = |dimension: &[Range<usize>]| dimension.len();
    let several = cell.dimensions().iter().any(|dimension| ranges(dimension) > 1);
    let few = cell.dimensions().iter().map(|dimension| ranges(dimension)).product::<usize>() <= FEW_RANGES;
    if several && few && cell.dimensions().len() == whole.shape().len() {
        return of_all_ranges(whole, cell, piece, scaled);
    }
    let Some((offset, sizes)) = first_part(whole, cell) else { return f64::INFINITY };
    let b = TensorRef::strided(whole.storage(), whole.dtype(), &sizes, whole.strides(), offset);
    let c = TensorRef::strided(piece.storage(), piece.dtype(), &sizes, piece.strides(), piece.offset());
    let (Ok(b), Ok(c)) = (b, c) else { return f64::INFINITY };
    if scaled {
        return measure::compare(b, c)
            .and_then(|metrics| metrics.cosine)
            .map_or(f64::INFINITY, |cosine| 1.0 - cosine);
    }
    error(b, c)
}

/// As [`part_distance`], of a cell whose ranges lie inside the whole.
fn of_all_ranges(whole: TensorRef<'_>, cell: &Cell, piece: TensorRef<'_>, scaled: bool) -> f64 {
    let size = |dimension: &[Range<usize>]| dimension.iter().map(ExactSizeIterator::len).sum::<usize>();
    if piece.shape().len() != cell.dimensions().len()
        || !cell.dimensions().iter().zip(piece.shape()).all(|(ranges, &local)| size(ranges) == local)
        || !cell
            .dimensions()
            .iter()
            .zip(whole.shape())
            .all(|(ranges, &size)| ranges.iter().all(|range| range.end <= size))
    {
        return f64::INFINITY;
    }
    let (mut sums, mut at) = (Sums::default(), 0);
    // Ranges are in local order, and so are the elements of the piece.
    each_span(whole.shape(), cell.dimensions(), 0, &mut |span| {
        for start in span.clone().step_by(AT_ONCE) {
            let range = start..span.end.min(start + AT_ONCE);
            let local = at..at + range.len();
            at = local.end;
            sums.add(&gathered(whole, range), &gathered(piece, local));
        }
    });
    if scaled { 1.0 - sums.cosine() } else { sums.error() }
}

fn gathered(tensor: TensorRef<'_>, range: Range<usize>) -> Vec<f64> {
    let mut bytes = vec![0; range.len() * tensor.dtype().size()];
    tensor.gather(range, &mut bytes);
    // Of complex numbers, both parts.
    let dtype = match tensor.dtype() {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        real => real,
    };
    measure::numbers(dtype, &bytes)
}

/// Calls `take` for each run of elements of a cell, in row-major order of the whole, whose sizes are `shape` from here on.
fn each_span(
    shape: &[usize],
    dimensions: &[Box<[Range<usize>]>],
    base: usize,
    take: &mut dyn FnMut(Range<usize>),
) {
    let (Some((ranges, rest)), Some((&size, inner))) = (dimensions.split_first(), shape.split_first()) else {
        return take(base..base + 1);
    };
    let width: usize = inner.iter().product();
    let whole = rest.iter().zip(inner).all(|(ranges, &size)| is_all(ranges, size));
    for range in ranges {
        // The last shard may reach beyond the whole.
        let range = range.start.min(size)..range.end.min(size);
        if whole {
            take(base + range.start * width..base + range.end * width);
            continue;
        }
        for index in range {
            each_span(inner, rest, base + index * width, take);
        }
    }
}

/// Returns true for the ranges of a dimension that is not cut.
fn is_all(ranges: &[Range<usize>], size: usize) -> bool {
    ranges.len() == 1 && ranges[0] == (0..size)
}

/// Sums over two tensors.
#[derive(Debug, Default)]
struct Sums {
    difference: f64,
    squares: f64,
    others: f64,
    products: f64,
}

impl Sums {
    fn add(&mut self, baseline: &[f64], candidate: &[f64]) {
        for (&b, &c) in baseline.iter().zip(candidate) {
            if b.to_bits() == c.to_bits() || (b.is_nan() && c.is_nan()) {
                let square = if b.is_finite() { b * b } else { 0.0 };
                (self.squares, self.others, self.products) =
                    (self.squares + square, self.others + square, self.products + square);
                continue;
            }
            self.difference += if b.is_finite() && c.is_finite() { (b - c) * (b - c) } else { f64::INFINITY };
            self.squares += if b.is_finite() { b * b } else { 0.0 };
            self.others += if c.is_finite() { c * c } else { 0.0 };
            self.products += if b.is_finite() && c.is_finite() { b * c } else { 0.0 };
        }
    }

    fn error(&self) -> f64 {
        if self.difference == 0.0 { 0.0 } else { (self.difference / self.squares).sqrt() }
    }

    fn cosine(&self) -> f64 {
        let norms = (self.squares * self.others).sqrt();
        if norms > 0.0 { self.products / norms } else { f64::NEG_INFINITY }
    }
}

/// Returns offset and sizes of the first range of a cell in each dimension, as far as the whole has it.
fn first_part(whole: TensorRef<'_>, cell: &Cell) -> Option<(usize, Vec<usize>)> {
    let mut offset = whole.offset();
    let mut sizes = Vec::new();
    for ((ranges, stride), &size) in cell.dimensions().iter().zip(whole.strides()).zip(whole.shape()) {
        let range = ranges.first()?;
        offset += range.start * stride;
        sizes.push(range.end.min(size).checked_sub(range.start)?);
    }
    Some((offset, sizes))
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a cell of one range is one of several")]
mod tests {
    use super::*;

    const SHAPE: [usize; 3] = [2, 8, 3];

    /// Returns a tensor of consecutive numbers, of which one was changed.
    fn numbered(changed: Option<usize>) -> Vec<u8> {
        let number = |at: usize| if Some(at) == changed { 100.0 } else { 1.0 + at as f32 };
        (0..48).flat_map(|at| number(at).to_le_bytes()).collect()
    }

    fn view(bytes: &[u8]) -> TensorRef<'_> {
        TensorRef::strided(bytes, DType::F32, &SHAPE, &[24, 3, 1], 0).unwrap()
    }

    fn second(ranges: &[Range<usize>]) -> Cell {
        Cell::whole(&SHAPE).with(1, ranges.into())
    }

    #[test]
    fn an_error_in_any_range_of_a_cell_is_its_own() {
        let zigzag = [second(&[0..2, 6..8]), second(&[2..4, 4..6])];
        // In the last chunk, of the first rank, behind the first range.
        let (b, c) = (numbered(None), numbered(Some(7 * 3)));
        let errors = zigzag.each_ref().map(|cell| part_error(view(&b), view(&c), cell));
        assert!(errors[0] > 0.1 && errors[1] < 1e-12, "{errors:?}");
        let turns: Vec<Cell> = (0..2)
            .map(|rank| second(&(0..4).map(|turn| 2 * turn + rank..2 * turn + rank + 1).collect::<Vec<_>>()))
            .collect();
        let errors: Vec<f64> = turns.iter().map(|cell| part_error(view(&b), view(&c), cell)).collect();
        assert!(errors[0] < 1e-12 && errors[1] > 0.1, "{errors:?}");
    }

    #[test]
    fn a_piece_is_measured_in_all_ranges_of_its_cell() {
        let (b, cell) = (numbered(None), second(&[0..2, 6..8]));
        let rows: Vec<u8> = b
            .chunks(12)
            .enumerate()
            .filter(|(row, _)| [0, 1, 6, 7].contains(&(row % 8)))
            .flat_map(|(_, row)| row.to_vec())
            .collect();
        let piece =
            |bytes: &'static [u8]| TensorRef::strided(bytes, DType::F32, &[2, 4, 3], &[12, 3, 1], 0).unwrap();
        let rows: &'static [u8] = rows.leak();
        assert!(part_distance(view(&b), &cell, piece(rows), false) < 1e-12);
        assert!(part_distance(view(&b), &cell, piece(rows), true) < 1e-12);
        // The first range alone does not tell them apart.
        let other = second(&[0..2, 4..6]);
        assert!(part_distance(view(&b), &other, piece(rows), false) > 0.1);
    }

    #[test]
    fn a_multiple_of_a_part_is_told_from_another_value() {
        let b = numbered(None);
        let half: Vec<u8> = b
            .as_chunks::<4>()
            .0
            .iter()
            .flat_map(|&number| (0.5 * f32::from_le_bytes(number)).to_le_bytes())
            .collect();
        let zigzag = second(&[0..2, 6..8]);
        assert_eq!(part_factor(view(&b), view(&half), &zigzag), Some(0.5));
        let c = numbered(Some(7 * 3));
        assert_eq!(part_factor(view(&b), view(&c), &zigzag), None);
    }

    #[test]
    fn what_lies_beyond_the_whole_is_no_part_of_it() {
        let (b, c) = (numbered(None), numbered(Some(47)));
        assert!(part_error(view(&b), view(&c), &second(&[6..10])) > 0.1);
        assert!(part_error(view(&b), view(&c), &second(&[0..6])) < 1e-12);
    }
}
