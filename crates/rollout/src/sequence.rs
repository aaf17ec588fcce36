//! Two sequences of token ids, aligned: equal runs, and the gaps between them.

use std::ops::Range;

/// Kind of difference between the tokens of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GapKind {
    /// The trainer's sequence ends before the rollout's.
    End,
    /// One side has more tokens at the start, such as a token that begins a sequence.
    Start,
    /// As many other tokens in the same place.
    Replaced,
    /// Another number of tokens in the same place: the text was made tokens a second time.
    Retokenised,
    /// Tokens that one side alone has.
    Inserted,
    /// The whole sample is another one.
    Sample,
}

/// Tokens between two runs of equal ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) left: Range<usize>,
    pub(crate) right: Range<usize>,
    pub(crate) kind: GapKind,
}

/// Most tokens of both sides together that a gap may have before a run is searched no further.
const REACH: usize = 256;
/// Equal tokens that end a gap.
const RUN: usize = 3;
/// Tokens by which the start of one sequence is searched in the other.
const START: usize = 8;

/// Returns the pairs of equal tokens, in order, and the gaps. Sequences with less than half of the shorter in common are not
/// aligned at all.
pub(crate) fn matched(left: &[u32], right: &[u32]) -> (Vec<(usize, usize)>, Vec<Gap>) {
    if left == right {
        return ((0..left.len()).map(|place| (place, place)).collect(), Vec::new());
    }
    let (mut pairs, mut gaps) = (Vec::with_capacity(left.len()), Vec::new());
    let (mut i, mut j) = start(left, right);
    if i + j > 0 {
        gaps.push(Gap { left: 0..i, right: 0..j, kind: GapKind::Start });
    }
    while i < left.len() && j < right.len() {
        if left[i] == right[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
            continue;
        }
        let Some((more, most)) = resumed(&left[i..], &right[j..]) else { break };
        let kind = match (more, most) {
            (0, _) | (_, 0) => GapKind::Inserted,
            (a, b) if a == b => GapKind::Replaced,
            _ => GapKind::Retokenised,
        };
        gaps.push(Gap { left: i..i + more, right: j..j + most, kind });
        (i, j) = (i + more, j + most);
    }
    if i < left.len() || j < right.len() {
        let kind = if j == right.len() || i == left.len() { GapKind::End } else { GapKind::Retokenised };
        gaps.push(Gap { left: i..left.len(), right: j..right.len(), kind });
    }
    if pairs.len() * 2 < left.len().min(right.len()) {
        return (Vec::new(), vec![Gap { left: 0..left.len(), right: 0..right.len(), kind: GapKind::Sample }]);
    }
    (pairs, gaps)
}

/// Returns where the common part begins: one of the two may lack the prompt, or its start.
fn start(left: &[u32], right: &[u32]) -> (usize, usize) {
    let begins = |long: &[u32], short: &[u32]| {
        let head = &short[..short.len().min(START)];
        long.windows(head.len().max(1)).position(|window| window == head)
    };
    if left.is_empty() || right.is_empty() {
        return (0, 0);
    }
    match (begins(left, right), begins(right, left)) {
        (Some(0), _) | (_, Some(0)) | (None, None) => (0, 0),
        (Some(at), _) => (at, 0),
        (None, Some(at)) => (0, at),
    }
}

/// Returns how many tokens of each side to leave out until a run of equal tokens follows, or both end.
fn resumed(left: &[u32], right: &[u32]) -> Option<(usize, usize)> {
    (1..=REACH).find_map(|both| {
        (0..=both).map(|more| (more, both - more)).find(|&(a, b)| {
            let (Some(left), Some(right)) = (left.get(a..), right.get(b..)) else { return false };
            let run = left.len().min(right.len()).min(RUN);
            let ends = left.len() == right.len() && run < RUN;
            (run == RUN || ends) && left[..run] == right[..run] && (run > 0 || ends)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(left: &[u32], right: &[u32]) -> Vec<(GapKind, Range<usize>, Range<usize>)> {
        matched(left, right).1.into_iter().map(|gap| (gap.kind, gap.left, gap.right)).collect()
    }

    #[test]
    fn gaps_are_found_in_place() {
        let text: Vec<u32> = (10..40).collect();
        let with = |at: usize, remove: usize, add: &[u32]| {
            let mut other = text.clone();
            other.splice(at..at + remove, add.iter().copied());
            other
        };
        assert_eq!(gaps(&text, &text), []);
        assert_eq!(gaps(&text, &text[..29]), [(GapKind::End, 29..30, 29..29)]);
        assert_eq!(gaps(&text, &with(12, 1, &[1])), [(GapKind::Replaced, 12..13, 12..13)]);
        assert_eq!(gaps(&text, &with(12, 2, &[1])), [(GapKind::Retokenised, 12..14, 12..13)]);
        assert_eq!(gaps(&text, &with(12, 0, &[1])), [(GapKind::Inserted, 12..12, 12..13)]);
        assert_eq!(gaps(&text, &with(0, 0, &[1])), [(GapKind::Start, 0..0, 0..1)]);
        assert_eq!(gaps(&text[20..], &text), [(GapKind::Start, 0..0, 0..20)]);
        assert_eq!(gaps(&text, &with(29, 1, &[1])), [(GapKind::Replaced, 29..30, 29..30)]);
    }

    #[test]
    fn every_pair_is_equal_and_none_is_lost() {
        let left: Vec<u32> = (0..200).map(|i| i * i % 97).collect();
        let mut right = left.clone();
        right.splice(50..53, [900, 901]);
        right.splice(120..121, [902]);
        let (pairs, gaps) = matched(&left, &right);
        assert!(pairs.iter().all(|(i, j)| left[*i] == right[*j]));
        assert_eq!((pairs.len(), gaps.len()), (196, 2));
    }

    #[test]
    fn another_sample_is_not_aligned() {
        let (pairs, gaps) = matched(&[1, 2, 3, 4, 5, 6], &[7, 8, 9, 10, 11, 6]);
        assert!(pairs.is_empty());
        assert_eq!(gaps[0].kind, GapKind::Sample);
    }
}
