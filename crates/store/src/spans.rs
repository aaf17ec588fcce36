//! Sets of bytes of an object.

use std::ops::Range;

/// Sorted ranges that do not touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Spans(Vec<Range<u64>>);

impl Spans {
    /// Creates spans from any ranges; ranges with at most `gap` bytes between them are joined.
    pub(super) fn joined(ranges: impl IntoIterator<Item = Range<u64>>, gap: u64) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|range| range.start < range.end).collect();
        ranges.sort_by_key(|range| (range.start, range.end));
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(gap) => {
                    last.end = last.end.max(range.end);
                }
                _ => joined.push(range),
            }
        }
        Self(joined)
    }

    pub(super) fn of(range: Range<u64>) -> Self {
        Self::joined(std::iter::once(range), 0)
    }

    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the union of both.
    pub(super) fn with(&self, other: &Self) -> Self {
        Self::joined(self.0.iter().chain(&other.0).cloned(), 0)
    }

    /// Returns the bytes that are not in `other`.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        for range in &self.0 {
            let mut start = range.start;
            // The first range that ends after the start; earlier ones are irrelevant.
            let first = other.0.partition_point(|there| there.end <= start);
            for there in other.0.iter().skip(first).take_while(|there| there.start < range.end) {
                if start < there.start {
                    left.push(start..there.start);
                }
                start = there.end;
            }
            if start < range.end {
                left.push(start..range.end);
            }
        }
        Self(left)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(ranges: &[(u64, u64)], gap: u64) -> Spans {
        Spans::joined(ranges.iter().map(|&(start, end)| start..end), gap)
    }

    #[test]
    fn ranges_that_lie_near_are_joined() {
        assert_eq!(set(&[(20, 30), (0, 10), (5, 12), (40, 40)], 0), set(&[(0, 12), (20, 30)], 0));
        assert_eq!(set(&[(0, 10), (18, 30)], 8), Spans::of(0..30));
        assert_eq!(set(&[(0, 10), (18, 30)], 7).ranges(), &[0..10, 18..30]);
        assert_eq!(set(&[(0, u64::MAX), (5, 6)], 9).bytes(), u64::MAX);
    }

    proptest! {
        #[test]
        fn sets_are_those_of_their_bytes(a in spans(), b in spans()) {
            let bytes = |spans: &Spans| spans.ranges().iter().cloned().flatten().collect::<std::collections::BTreeSet<_>>();
            let (x, y) = (bytes(&a), bytes(&b));
            prop_assert_eq!(bytes(&a.with(&b)), &x | &y);
            prop_assert_eq!(bytes(&a.without(&b)), &x - &y);
            prop_assert_eq!(a.bytes(), x.len() as u64);
            prop_assert_eq!(a.without(&b).is_empty(), x.is_subset(&y));
        }
    }

    fn spans() -> impl Strategy<Value = Spans> {
        prop::collection::vec((0..60_u64, 0..9_u64), 0..8)
            .prop_map(|ranges| Spans::joined(ranges.into_iter().map(|(start, size)| start..start + size), 0))
    }
}
