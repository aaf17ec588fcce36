//! Layouts that the user declares, in the notation of `SGLang`: `b s[cp:zigzag,sp] (heads*dim)[tp] d`.
//!
//! Dimensions stand in order, apart by blanks; a product in brackets is one dimension. In square brackets stand the axes of the mesh over which
//! a dimension is cut, the outer cut first. `partial` makes the values of an axis terms of a sum. What follows `#` is a comment, in which
//! `ep:replicated` says what holds anyway for axes that no dimension names.

use std::fmt;
use std::ops::Range;

use super::layout::{Among, Cell, Layout};

/// What ranks along one axis do with a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Contiguous,
    Zigzag,
    Partial,
    Replicated,
}

/// A dimension, and the axes over which it is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dimension {
    name: String,
    axes: Vec<(String, Way)>,
}

/// The layout of a value as its dimensions tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dims {
    text: String,
    dimensions: Vec<Dimension>,
}

/// Axes of ranks, the outermost first, with the number of ranks along each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mesh(Vec<(String, usize)>);

impl Mesh {
    /// Reads `dp=2 cp=2 tp=2`: ranks that differ by 1 are neighbours along the last axis.
    ///
    /// # Errors
    /// The problem, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let axis = |part: &str| {
            let (name, count) = part.split_once('=')?;
            let count = count.parse().ok().filter(|count| (1..=1 << 20).contains(count))?;
            (!name.is_empty()).then(|| (name.to_owned(), count))
        };
        let read = |part| {
            axis(part)
                .ok_or_else(|| format!("mesh {text:?}: expected axes such as `dp=2 tp=4`, found {part:?}"))
        };
        text.split_whitespace().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Makes the mesh of `ranks` ranks of the groups to which rank 0 belongs, or of the one axis `only` if there are none; `None` if the groups do
    /// not make up all ranks.
    pub fn of_groups(groups: &[(String, Vec<u32>)], ranks: usize, only: Option<&str>) -> Option<Self> {
        // Distance between neighbours along each axis.
        let mut axes: Vec<(u32, String, usize)> = groups
            .iter()
            .filter_map(|(name, members)| match **members {
                [0, next, ..] => Some((next, name.clone(), members.len())),
                _ => None,
            })
            .collect();
        axes.sort_by_key(|axis| std::cmp::Reverse(axis.0));
        let mesh = Self(axes.into_iter().map(|(_, name, count)| (name, count)).collect());
        match only {
            Some(only) if mesh.0.is_empty() => Some(Self(vec![(only.to_owned(), ranks)])),
            _ => (mesh.ranks() == Some(ranks)).then_some(mesh),
        }
    }

    /// Returns the number of ranks; `None` if it is more than can be counted.
    pub fn ranks(&self) -> Option<usize> {
        self.0.iter().try_fold(1_usize, |all, (_, count)| all.checked_mul(*count))
    }

    /// Returns the number of ranks along an axis, and the place of a rank there.
    fn place(&self, axis: &str, rank: usize) -> Option<(usize, usize)> {
        let at = self.0.iter().position(|(name, _)| name == axis)?;
        let inner: usize = self.0[at + 1..].iter().map(|(_, count)| count).product();
        Some((self.0[at].1, rank / inner % self.0[at].1))
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.0.iter().map(|(axis, count)| format!("{axis}={count}")).collect();
        write!(f, "\"{}\"", axes.join(" "))
    }
}

impl Dims {
    /// Reads the text of a layout.
    ///
    /// # Errors
    /// The problem, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let own = text.split('#').next().unwrap_or_default();
        let dimensions: Vec<Dimension> = own
            .split_whitespace()
            .map(|part| dimension(part).map_err(|why| format!("dims {text:?}: {why}")))
            .collect::<Result<_, _>>()?;
        let cut = dimensions.iter().flat_map(|dimension| &dimension.axes);
        let mut seen: Vec<&str> = Vec::new();
        for (axis, _) in cut {
            if seen.contains(&axis.as_str()) {
                return Err(format!("dims {text:?}: axis {axis} appears twice"));
            }
            seen.push(axis);
        }
        Ok(Self { text: text.to_owned(), dimensions })
    }

    /// Returns true if ranks hold other parts or terms along an axis.
    pub(crate) fn is_spread(&self) -> bool {
        self.dimensions.iter().flat_map(|dimension| &dimension.axes).any(|(_, way)| *way != Way::Replicated)
    }

    /// Returns the axis that the dimensions name, if they name one alone.
    pub fn only_axis(&self) -> Option<&str> {
        let mut axes = self.dimensions.iter().flat_map(|dimension| &dimension.axes);
        let (axis, _) = axes.next()?;
        axes.next().is_none().then_some(axis)
    }

    /// Returns the layout of a value of the global sizes `shape`, of which each of `ranks` recorded the local sizes given with it.
    ///
    /// # Errors
    /// What does not fit, in words: the number of dimensions, an axis that the mesh lacks, a size.
    pub fn layout(
        &self,
        shape: &[usize],
        mesh: &Mesh,
        ranks: &[(usize, Vec<usize>)],
    ) -> Result<Layout, String> {
        let wrong = |why: String| format!("dims {:?} do not fit: {why}", self.text);
        if self.dimensions.len() != shape.len() {
            return Err(wrong(format!(
                "they have {} dimensions, the value has {}: {shape:?}",
                self.dimensions.len(),
                shape.len()
            )));
        }
        let world = mesh.ranks().unwrap_or(usize::MAX);
        let mut cells = Vec::new();
        for (rank, local) in ranks {
            if *rank >= world {
                return Err(wrong(format!("rank {rank} lies outside the mesh of {world}")));
            }
            let mut cell = Cell::whole(shape);
            for (place, dimension) in self.dimensions.iter().enumerate() {
                let ranges = dimension.cut(shape[place], mesh, *rank).map_err(wrong)?;
                cell = cell.with(place, ranges.into());
            }
            let made: Vec<usize> = cell
                .dimensions()
                .iter()
                .map(|ranges| ranges.iter().map(ExactSizeIterator::len).sum())
                .collect();
            if made != *local {
                return Err(wrong(format!("rank {rank} should hold {made:?}, and recorded {local:?}")));
            }
            cells.push(cell);
        }
        let ways = self.dimensions.iter().flat_map(|dimension| &dimension.axes);
        let partial = ways.filter(|(_, way)| *way == Way::Partial).count() > 0;
        let among = if partial { Among::Sum(1) } else { Among::Replicas };
        Ok(Layout { shape: shape.into(), cells: cells.into(), among })
    }
}

impl Dimension {
    /// Returns the global indices that a rank holds.
    fn cut(&self, size: usize, mesh: &Mesh, rank: usize) -> Result<Vec<Range<usize>>, String> {
        let mut held: Vec<Range<usize>> = std::iter::once(0..size).collect();
        for (axis, way) in &self.axes {
            let (count, place) = mesh
                .place(axis, rank)
                .ok_or_else(|| format!("the mesh has no axis {axis}; give it as `mesh`"))?;
            let chunks = match way {
                Way::Contiguous => count,
                Way::Zigzag => 2 * count,
                Way::Partial | Way::Replicated => continue,
            };
            let own: usize = held.iter().map(ExactSizeIterator::len).sum();
            if !own.is_multiple_of(chunks) {
                return Err(format!(
                    "{own} elements of dimension {} are no multiple of {chunks} ({axis})",
                    self.name
                ));
            }
            let chunk = |number: usize| part(&held, number * (own / chunks)..(number + 1) * (own / chunks));
            held = match way {
                Way::Zigzag => joined([chunk(place), chunk(chunks - 1 - place)].concat()),
                _ => chunk(place),
            };
        }
        Ok(held)
    }
}

/// Returns the part of ranges that lies at these places of all of them.
fn part(ranges: &[Range<usize>], places: Range<usize>) -> Vec<Range<usize>> {
    let mut before = 0;
    let mut found = Vec::new();
    for range in ranges {
        let (from, to) = (places.start.max(before), places.end.min(before + range.len()));
        if from < to {
            found.push(range.start + from - before..range.start + to - before);
        }
        before += range.len();
    }
    found
}

/// Joins neighbouring ranges.
fn joined(ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match found.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => found.push(range),
        }
    }
    found
}

fn dimension(text: &str) -> Result<Dimension, String> {
    let (name, axes) = match text.split_once('[') {
        None => (text, None),
        Some((name, rest)) => {
            (name, Some(rest.strip_suffix(']').ok_or_else(|| format!("{text:?} lacks a closing bracket"))?))
        }
    };
    let plain = name.strip_prefix('(').map_or(Some(name), |rest| rest.strip_suffix(')'));
    let named = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !plain.is_some_and(|plain| plain.split('*').all(named)) {
        return Err(format!("{name:?} is no dimension: expected a name, or a product such as `(heads*dim)`"));
    }
    let axes = axes.map_or_else(|| Ok(Vec::new()), |axes| axes.split(',').map(axis).collect())?;
    Ok(Dimension { name: name.to_owned(), axes })
}

fn axis(text: &str) -> Result<(String, Way), String> {
    let (name, way) = text.split_once(':').map_or((text, "contiguous"), |(name, way)| (name, way));
    let way = match way.trim() {
        "contiguous" | "natural" | "sharded" => Way::Contiguous,
        "zigzag" => Way::Zigzag,
        "partial" => Way::Partial,
        "replicated" => Way::Replicated,
        other => return Err(format!("{other:?} is not known; known are zigzag, partial and replicated")),
    };
    let name = name.trim();
    if name.is_empty() { Err(format!("{text:?} names no axis")) } else { Ok((name.to_owned(), way)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(
        dims: &str,
        shape: &[usize],
        mesh: &str,
        (local, count): (&[usize], usize),
    ) -> Result<Layout, String> {
        let ranks: Vec<(usize, Vec<usize>)> = (0..count).map(|rank| (rank, local.to_vec())).collect();
        Dims::parse(dims)?.layout(shape, &Mesh::parse(mesh)?, &ranks)
    }

    #[test]
    fn dimensions_are_cut_over_axes_from_left_to_right() {
        let layout = held(
            "b s[cp:zigzag,sp] (heads*dim)[tp] d # ep:replicated",
            &[2, 16, 8, 3],
            "cp=2 sp=2 tp=2",
            (&[2, 4, 4, 3], 8),
        )
        .unwrap();
        let rows = |rank: usize| layout.cells[rank].dimensions()[1].to_vec();
        for (rank, due) in [(0, 0..4), (2, 12..16), (4, 4..8), (6, 8..12)] {
            assert_eq!(rows(rank).first(), Some(&due));
            assert_eq!(rows(rank).len(), 1);
        }
        assert_eq!(layout.cells[1].dimensions()[2].first(), Some(&(4..8)));
        assert_eq!(layout.among, Among::Replicas);
        assert_eq!(held("t h[tp:partial]", &[4, 8], "tp=2", (&[4, 8], 2)).unwrap().among, Among::Sum(1));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        for (dims, mesh, part) in [
            ("b s", "tp=2", "2 dimensions, the value has 3"),
            ("b s h[tp]", "dp=2", "no axis tp"),
            ("b s h[tp]", "tp=3", "no multiple of 3"),
            ("b s[tp] h", "tp=2", "should hold [2, 2, 8], and recorded [2, 4, 4]"),
            ("b s[tp h", "tp=2", "closing bracket"),
            ("b s h[tp:zigzig]", "tp=2", "zigzig"),
            ("b s[tp] h[tp]", "tp=2", "appears twice"),
            ("b s (h*)", "tp=2", "no dimension"),
            ("b s h", "tp", "expected axes"),
        ] {
            let message = held(dims, &[2, 4, 8], mesh, (&[2, 4, 4], 2)).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
