//! All lines of a checkpoint by hash, and the tensors by name.

use std::collections::HashMap;
use std::path::Path;

use probe_dump::{DType, ReadError};
use rayon::prelude::*;

use crate::checkpoint::{Checkpoint, Name, Tensor};
use crate::lines::{Axis, Lines, common};

/// A line of a checkpoint. Ordered by tensor, direction and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) tensor: u32,
    pub(crate) axis: Axis,
    pub(crate) line: u32,
}

impl Place {
    /// Returns the place as one word, in the same order. Lines of a tensor are fewer than 2^31 (`MAX_WEIGHT_LINES`).
    const fn packed(self) -> u64 {
        (self.tensor as u64) << 32 | (self.axis as u64) << 31 | self.line as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes the parts apart")]
    const fn unpacked(word: u64) -> Self {
        let axis = if word >> 31 & 1 == 0 { Axis::Row } else { Axis::Column };
        Self { tensor: (word >> 32) as u32, axis, line: word as u32 & 0x7fff_ffff }
    }

    /// Returns the line `steps` further on in the same tensor.
    pub(crate) fn after(self, steps: i64) -> Option<Self> {
        let line = u32::try_from(i64::from(self.line) + steps).ok()?;
        Some(Self { line, ..self })
    }
}

/// A checkpoint with the hashes of its lines.
#[derive(Debug)]
pub(crate) struct Hashed<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// Per tensor; `None` where it could not be read.
    pub(crate) lines: Vec<Option<Lines>>,
    /// The reasons.
    pub(crate) faults: Vec<String>,
}

impl<'a> Hashed<'a> {
    /// Reads all of a checkpoint, for a comparison with tensors of the types `others`.
    pub(crate) fn of(checkpoint: &'a Checkpoint, others: &[DType]) -> Self {
        let hashed = |tensor: &Tensor| Lines::of(tensor, others);
        let read: Vec<_> = checkpoint.tensors.par_iter().map(hashed).collect();
        let named = checkpoint.tensors.iter().map(|tensor| &*tensor.name.text);
        let faults = by_file(named.zip(&read).filter_map(|(name, read)| Some((name, read.as_ref().err()?))));
        Self { checkpoint, lines: read.into_iter().map(Result::ok).collect(), faults }
    }

    pub(crate) fn name(&self, tensor: u32) -> &'a Name {
        &self.checkpoint.tensors[tensor as usize].name
    }

    pub(crate) fn dtype(&self, tensor: u32) -> DType {
        self.checkpoint.tensors[tensor as usize].dtype
    }

    pub(crate) fn lines_of(&self, tensor: u32) -> Option<&Lines> {
        self.lines[tensor as usize].as_ref()
    }

    /// Returns true if there is such a line.
    pub(crate) fn holds(&self, place: Place) -> bool {
        self.lines
            .get(place.tensor as usize)
            .and_then(Option::as_ref)
            .is_some_and(|lines| (place.line as usize) < lines.form.lines(place.axis))
    }
}

/// Returns a line for each file of which tensors could not be read: the first of them, the reason, and how many others there are.
fn by_file<'f>(faults: impl Iterator<Item = (&'f str, &'f ReadError)>) -> Vec<String> {
    let mut files: Vec<(&Path, String, usize)> = Vec::new();
    for (name, error) in faults {
        match files.iter_mut().find(|(path, ..)| *path == error.path()) {
            Some((.., others)) => *others += 1,
            None => files.push((error.path(), format!("{name}: {error}"), 0)),
        }
    }
    let told = |(_, first, others)| match others {
        0 => first,
        1 => format!("{first}; nor can another tensor of this file be read"),
        _ => format!("{first}; nor can {others} other tensors of this file be read"),
    };
    files.into_iter().map(told).collect()
}

/// The hash of a line, and its place in one word.
type Entry = (u64, u64);

/// Lines by hash.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    pub(crate) of: &'a Hashed<'a>,
    exact: Vec<(DType, Vec<Entry>)>,
    signs: Vec<Entry>,
    names: HashMap<(&'a str, &'a [u32]), u32>,
    bare: HashMap<&'a str, u32>,
}

/// Lines with fewer elements than this are not sought by their signs: others would have the same by chance.
const SIGNED: usize = 24;

/// Most lines of one hash that are considered; constant lines may be as many as the model has.
const ALIKE: usize = 64;

impl<'a> Index<'a> {
    pub(crate) fn of(hashed: &'a Hashed<'a>) -> Self {
        let mut exact: Vec<(DType, Vec<Entry>)> = Vec::new();
        let mut signs = Vec::new();
        let (mut names, mut bare) = (HashMap::new(), HashMap::new());
        for (tensor, lines) in (0..).zip(&hashed.lines) {
            let name = hashed.name(tensor);
            names.entry((&*name.template, &*name.numbers)).or_insert(tensor);
            bare.entry(name.bare()).or_insert(tensor);
            let Some(lines) = lines else { continue };
            let places = |axis| (0..).map(move |line| Place { tensor, axis, line }.packed());
            for axis in Axis::ALL {
                for (dtype, of) in &lines.exact {
                    let at = exact.iter().position(|(known, _)| known == dtype).unwrap_or_else(|| {
                        exact.push((*dtype, Vec::new()));
                        exact.len() - 1
                    });
                    exact[at].1.extend(of[axis as usize].iter().copied().zip(places(axis)));
                }
                if lines.form.length(axis) >= SIGNED {
                    let of = lines.signs[axis as usize].iter().copied().zip(places(axis));
                    signs.extend(of.filter(|(hash, _)| *hash != 0));
                }
            }
        }
        for (_, entries) in &mut exact {
            entries.par_sort_unstable();
        }
        signs.par_sort_unstable();
        Self { of: hashed, exact, signs, names, bare }
    }

    /// Returns the tensor whose name has this template and these numbers.
    pub(crate) fn named(&self, template: &str, numbers: &[u32]) -> Option<u32> {
        self.names.get(&(template, numbers)).copied()
    }

    /// Returns the tensor of the same name, wrappers left out.
    pub(crate) fn called(&self, name: &Name) -> Option<u32> {
        self.bare.get(name.bare()).copied()
    }

    /// Returns lines that equal line `line` of another tensor, some of them if there are many.
    pub(crate) fn equal(&self, dtype: DType, lines: &Lines, axis: Axis, line: usize) -> Vec<Place> {
        let mut found = Vec::new();
        for (of, entries) in &self.exact {
            let Some(hash) = lines.hash(*of, axis, line) else { continue };
            found.extend(
                with_hash(entries, hash)
                    .filter(|place| common(dtype, self.of.dtype(place.tensor)).contains(of)),
            );
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns lines that have the same signs as line `line` of another tensor, or all the opposite ones.
    pub(crate) fn alike(&self, lines: &Lines, axis: Axis, line: usize) -> Vec<Place> {
        match lines.signs[axis as usize].get(line) {
            Some(&hash) if hash != 0 && lines.form.length(axis) >= SIGNED => {
                with_hash(&self.signs, hash).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns true if a line equals the one at `place`.
    pub(crate) fn is_equal(
        &self,
        dtype: DType,
        lines: &Lines,
        axis: Axis,
        line: usize,
        place: Place,
    ) -> bool {
        let Some(theirs) = self.of.lines.get(place.tensor as usize).and_then(Option::as_ref) else {
            return false;
        };
        common(dtype, self.of.dtype(place.tensor)).iter().any(|&of| {
            let hash = lines.hash(of, axis, line);
            hash.is_some() && hash == theirs.hash(of, place.axis, place.line as usize)
        })
    }
}

fn with_hash(entries: &[Entry], hash: u64) -> impl Iterator<Item = Place> {
    let start = entries.partition_point(|(other, _)| *other < hash);
    entries[start..]
        .iter()
        .take_while(move |(other, _)| *other == hash)
        .take(ALIKE)
        .map(|(_, place)| Place::unpacked(*place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_of_one_file_that_cannot_be_read_are_one_line() {
        let [gone, short] = [("a.distcp", "is not there"), ("b.distcp", "is cut short")]
            .map(|(file, why)| ReadError::format(file, why));
        let told = by_file([("q", &gone), ("norm", &short), ("k", &gone), ("v", &gone)].into_iter());
        assert_eq!(
            told,
            [
                "q: a.distcp: is not there; nor can 2 other tensors of this file be read",
                "norm: b.distcp: is cut short"
            ]
        );
    }
}
