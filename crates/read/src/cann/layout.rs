//! Converts the NPU's storage order of elements to the program's order.
//!
//! Private formats cut one axis into blocks of C0 elements and pad it, and the last two axes of a matrix to whole fractals. In all of them
//! the position of an element is a sum of one term per logical axis, so one loop serves all. Shapes must fit exactly: an axis that could
//! not have led to the stored sizes means that something else was stored.

use super::types::{format, format_name};
use probe_dump::{contiguous_strides, element_count};

/// Conversion of the stored elements to the logical tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Layout {
    /// In order: row-major, with the stored shape.
    Same(Box<[usize]>),
    /// To be gathered.
    Gather(Gather),
    /// No known conversion, with the reason.
    Unknown(String),
}

/// Logical axes, outermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gather {
    /// The logical shape, with as many elements as `axes`.
    pub(super) shape: Box<[usize]>,
    axes: Vec<Axis>,
}

/// Positions of the elements of a logical axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    size: usize,
    /// Distance from one index to the next within a block, in elements.
    step: usize,
    /// Length of a block, and distance from one block to the next, in elements.
    blocks: Option<(usize, usize)>,
}

impl Axis {
    const fn whole(size: usize, step: usize) -> Self {
        Self { size, step, blocks: None }
    }

    const fn cut(size: usize, block: usize, between: usize) -> Self {
        Self { size, step: 1, blocks: Some((block, between)) }
    }

    const fn place(&self, index: usize) -> usize {
        match self.blocks {
            None => index * self.step,
            Some((block, between)) => index / block * between + index % block * self.step,
        }
    }
}

/// Stored tensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored<'a> {
    pub(super) format: u64,
    pub(super) shape: &'a [usize],
    /// Empty if missing in the file.
    pub(super) original: &'a [usize],
    /// Format of the original shape, if known.
    pub(super) original_format: Option<u64>,
    pub(super) groups: u64,
}

/// Finds the conversion from the stored to the logical tensor. The product of the stored shape must have been
/// checked.
pub(super) fn layout(stored: Stored<'_>) -> Layout {
    let Stored { format, shape, original, .. } = stored;
    let private = match format {
        format::FRACTAL_NZ => matrix(shape, original),
        format::NC1HWC0 => channels(stored),
        format::FRACTAL_Z => filter(stored),
        format::NDC1HWC0 => volume(shape, original),
        format::NHWC if original.len() == 4 && original != shape => last_to_second(shape, original),
        format::NDHWC if original.len() == 5 && original != shape => last_to_second(shape, original),
        format::NCHW
        | format::NHWC
        | format::ND
        | format::HWCN
        | format::NDHWC
        | format::NCDHW
        | format::DHWCN
        // Reserved, and the end mark: no format, stored as is.
        | 40
        | 255 => return Layout::Same(shape.into()),
        other => {
            return Layout::Unknown(format!("stored as {}, which is not read yet", format_name(other)));
        }
    };
    let name = || format_name(format);
    match private {
        Some(gather) => Layout::Gather(gather),
        // A public format with a different shape: the stored shape counts.
        None if matches!(format, format::NHWC | format::NDHWC) => Layout::Same(shape.into()),
        None if original.is_empty() => {
            Layout::Unknown(format!("stored as {} {shape:?}, its logical shape is not in the file", name()))
        }
        None => {
            let groups =
                if stored.groups > 1 { format!(" of {} groups", stored.groups) } else { String::new() };
            Layout::Unknown(format!(
                "stored as {} {shape:?}{groups}, which does not follow from its shape {original:?}",
                name()
            ))
        }
    }
}

/// Returns true if an axis of `size` was cut into `blocks` of `block`.
const fn cut_into(size: usize, blocks: usize, block: usize) -> bool {
    block > 0 && size.div_ceil(block) == blocks
}

/// Converts `[.., C1, No, Ni, C0]` to `[.., rows, columns]`.
fn matrix(shape: &[usize], original: &[usize]) -> Option<Gather> {
    let (batch, &[c1, no, ni, c0]) = shape.split_last_chunk()?;
    let (outer, rows, columns) = match original {
        [] => return None,
        [columns] => (&[][..], 1, *columns),
        [outer @ .., rows, columns] => (outer, *rows, *columns),
    };
    let batches = element_count(outer)?;
    if element_count(batch)? != batches || !cut_into(columns, c1, c0) || !cut_into(rows, no, ni) {
        return None;
    }
    let between = no * ni * c0;
    let axes =
        vec![Axis::whole(batches, c1 * between), Axis::whole(rows, c0), Axis::cut(columns, c0, between)];
    Some(Gather { shape: original.into(), axes })
}

/// Converts `[N, C1, H, W, C0]` to the axis order of the original shape.
#[expect(clippy::many_single_char_names, reason = "the axes, by the letters that name the layouts")]
fn channels(stored: Stored<'_>) -> Option<Gather> {
    let (&[n, c1, h, w, c0], &[a, b, c, d]) = (stored.shape, stored.original) else { return None };
    let orders = [
        (format::NCHW, [a, c, d], b, [0, 3, 1, 2]),
        (format::NHWC, [a, b, c], d, [0, 1, 2, 3]),
        (format::HWCN, [d, a, b], c, [1, 2, 3, 0]),
    ];
    let fits = |&&(_, rest, channels, _): &&(u64, [usize; 3], usize, [usize; 4])| {
        rest == [n, h, w] && cut_into(channels, c1, c0)
    };
    let said = orders.iter().find(|order| Some(order.0) == stored.original_format).filter(fits);
    let &(_, _, channels, order) = said.or_else(|| orders.iter().find(fits))?;
    let plane = h * w * c0;
    let of = [
        Axis::whole(n, c1 * plane),
        Axis::whole(h, w * c0),
        Axis::whole(w, c0),
        Axis::cut(channels, c0, plane),
    ];
    Some(Gather { shape: stored.original.into(), axes: order.map(|axis| of[axis]).to_vec() })
}

/// Converts `[C1 H W, No, Ni, C0]` to `[N, C, H, W]` or `[H, W, C, N]`.
#[expect(clippy::many_single_char_names, reason = "the axes, by the letters that name the layouts")]
fn filter(stored: Stored<'_>) -> Option<Gather> {
    let (&[outer, no, ni, c0], &[a, b, c, d]) = (stored.shape, stored.original) else { return None };
    if stored.groups > 1 {
        return None;
    }
    let fits = |n: usize, channels: usize, h: usize, w: usize| {
        let all = channels.div_ceil(c0.max(1)).checked_mul(h).and_then(|count| count.checked_mul(w));
        c0 > 0 && all == Some(outer) && cut_into(n, no, ni)
    };
    let tile = no * ni * c0;
    let axes = |n, channels, h: usize, w: usize| {
        let plane = h * w * tile;
        [Axis::whole(n, c0), Axis::cut(channels, c0, plane), Axis::whole(h, w * tile), Axis::whole(w, tile)]
    };
    let last = fits(d, c, a, b);
    let axes = if fits(a, b, c, d) && !(last && stored.original_format == Some(format::HWCN)) {
        axes(a, b, c, d).to_vec()
    } else if last {
        let [n, c, h, w] = axes(d, c, a, b);
        vec![h, w, c, n]
    } else {
        return None;
    };
    Some(Gather { shape: stored.original.into(), axes })
}

/// Converts `[N, D, C1, H, W, C0]` to `[N, C, D, H, W]`.
#[expect(clippy::many_single_char_names, reason = "the axes, by the letters that name the layouts")]
fn volume(shape: &[usize], original: &[usize]) -> Option<Gather> {
    let (&[n, d, c1, h, w, c0], &[on, c, od, oh, ow]) = (shape, original) else { return None };
    if [on, od, oh, ow] != [n, d, h, w] || !cut_into(c, c1, c0) {
        return None;
    }
    let plane = h * w * c0;
    let axes = vec![
        Axis::whole(n, d * c1 * plane),
        Axis::cut(c, c0, plane),
        Axis::whole(d, c1 * plane),
        Axis::whole(h, w * c0),
        Axis::whole(w, c0),
    ];
    Some(Gather { shape: original.into(), axes })
}

/// Converts channels-last storage of a tensor whose shape has channels second.
fn last_to_second(shape: &[usize], original: &[usize]) -> Option<Gather> {
    let last = shape.len().checked_sub(1)?;
    let order: Vec<usize> = [0, last].into_iter().chain(1..last).collect();
    let steps = contiguous_strides(shape);
    let axes: Vec<Axis> = order
        .iter()
        .map(|&axis| Some(Axis::whole(*shape.get(axis)?, *steps.get(axis)?)))
        .collect::<Option<_>>()?;
    let fits = axes.iter().map(|axis| axis.size).eq(original.iter().copied());
    fits.then(|| Gather { shape: original.into(), axes })
}

impl Gather {
    /// Returns the elements of `stored`, `size` bytes each, in logical order. `stored` holds at least the stored shape.
    ///
    /// Returns `None` if an element lies outside, which cannot happen with fitting shapes.
    pub(super) fn collect(&self, stored: &[u8], size: usize) -> Option<Vec<u8>> {
        let count = element_count(&self.shape)?;
        let mut out = Vec::with_capacity(count.checked_mul(size)?);
        let (last, outer) = self.axes.split_last()?;
        if count == 0 {
            return Some(out);
        }
        let mut index = vec![0; outer.len()];
        loop {
            let start: usize = outer.iter().zip(&index).map(|(axis, &at)| axis.place(at)).sum();
            match last.blocks {
                // Blocks of contiguous elements.
                Some((block, between)) => {
                    for (number, first) in (0..last.size).step_by(block).enumerate() {
                        let from = (start + number * between) * size;
                        let length = block.min(last.size - first) * size;
                        out.extend_from_slice(stored.get(from..from + length)?);
                    }
                }
                None => {
                    for at in 0..last.size {
                        let from = (start + at * last.step) * size;
                        out.extend_from_slice(stored.get(from..from + size)?);
                    }
                }
            }
            // Advance to the next row like an odometer.
            let mut axis = outer.len();
            loop {
                let Some(before) = axis.checked_sub(1) else { return Some(out) };
                axis = before;
                index[axis] += 1;
                if index[axis] < outer[axis].size {
                    break;
                }
                index[axis] = 0;
            }
        }
    }
}
