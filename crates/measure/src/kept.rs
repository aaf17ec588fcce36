//! Compact metrics, as a comparison keeps them until they are reported: a part may have a hundred thousand
//! pairs of tensors.

use super::metric::{PairMetrics, TensorSummary};

/// The metrics of a pair in less than half the memory: only the words that are present and not zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptMetrics(
    /// Bits, lowest first: a presence bit for each optional word, and flags; then the words.
    Box<[u64]>,
);

impl KeptMetrics {
    /// Returns the metrics.
    pub fn metrics(&self) -> PairMetrics {
        let mut words = self.0.iter().copied();
        let mut from = Reader { present: words.next().unwrap_or(0), words };
        let mut metrics = PairMetrics::default();
        walk(&mut metrics, &mut from);
        relative(&mut metrics, u64::wrapping_add);
        metrics
    }
}

impl From<&PairMetrics> for KeptMetrics {
    fn from(metrics: &PairMetrics) -> Self {
        let mut metrics = *metrics;
        relative(&mut metrics, u64::wrapping_sub);
        let mut to = Writer { next: 1, words: vec![0] };
        walk(&mut metrics, &mut to);
        Self(to.words.as_slice().into())
    }
}

/// Usually all elements are finite, and all or none differ: relative to the number of elements, these counts
/// are zero.
fn relative(metrics: &mut PairMetrics, apply: fn(u64, u64) -> u64) {
    let elements = metrics.baseline.count;
    for count in [&mut metrics.candidate.count, &mut metrics.both_finite, &mut metrics.different] {
        *count = apply(*count, elements);
    }
}

/// Visits every word of the metrics, always in the same order.
fn walk(metrics: &mut PairMetrics, words: &mut impl Words) {
    for side in [&mut metrics.baseline, &mut metrics.candidate] {
        let TensorSummary { count, min, max, mean, norm, zeros, nan, pos_inf, neg_inf } = side;
        for count in [count, zeros, nan, pos_inf, neg_inf] {
            words.count(count);
        }
        for value in [min, max, mean] {
            words.real(value);
        }
        words.number(norm);
    }
    let PairMetrics {
        baseline: _,
        candidate: _,
        both_finite,
        bit_equal,
        different,
        non_finite_mismatch,
        zero_baseline,
        cosine,
        max_abs_err,
        max_abs_index,
        max_abs_values,
        mean_abs_err,
        max_rel_err,
        mean_rel_err,
        rmse,
        euclidean,
        rel_l2,
        within_1e3,
        within_5e3,
        max_ulp,
        overlap,
    } = metrics;
    for count in [both_finite, different, non_finite_mismatch, zero_baseline] {
        words.count(count);
    }
    words.flag(bit_equal);
    let errors = [max_abs_err, mean_abs_err, max_rel_err, mean_rel_err, rmse, euclidean, rel_l2];
    for value in errors.into_iter().chain([cosine, within_1e3, within_5e3]) {
        words.real(value);
    }
    for word in [max_abs_index, max_ulp] {
        words.word(word);
    }
    words.both(max_abs_values, |words, (baseline, candidate)| {
        words.number(baseline);
        words.number(candidate);
    });
    words.both(overlap, |words, overlap| {
        for count in [&mut overlap.rows, &mut overlap.apart, &mut overlap.shared] {
            words.count(count);
        }
    });
}

/// Operation on the words: each is taken out of the metrics or put into them.
trait Words: Sized {
    /// A word that may be missing.
    fn word(&mut self, word: &mut Option<u64>);

    /// A count, usually zero.
    fn count(&mut self, count: &mut u64) {
        let mut word = Some(*count).filter(|&count| count > 0);
        self.word(&mut word);
        *count = word.unwrap_or(0);
    }

    /// A single bit without a word.
    fn flag(&mut self, flag: &mut bool);

    fn number(&mut self, number: &mut f64) {
        let mut bits = number.to_bits();
        self.count(&mut bits);
        *number = f64::from_bits(bits);
    }

    fn real(&mut self, real: &mut Option<f64>) {
        let mut word = real.map(f64::to_bits);
        self.word(&mut word);
        *real = word.map(f64::from_bits);
    }

    /// Words that are all present or all missing.
    fn both<T: Default>(&mut self, value: &mut Option<T>, each: impl Fn(&mut Self, &mut T)) {
        let mut is_there = value.is_some();
        self.flag(&mut is_there);
        if is_there {
            each(self, value.get_or_insert_default());
        }
    }
}

struct Writer {
    /// Bit of the next word.
    next: u64,
    words: Vec<u64>,
}

impl Words for Writer {
    fn word(&mut self, word: &mut Option<u64>) {
        if let Some(word) = *word {
            self.words[0] |= self.next;
            self.words.push(word);
        }
        self.next <<= 1;
    }

    fn flag(&mut self, flag: &mut bool) {
        if *flag {
            self.words[0] |= self.next;
        }
        self.next <<= 1;
    }
}

struct Reader<I> {
    /// Presence bits of the remaining words.
    present: u64,
    words: I,
}

impl<I: Iterator<Item = u64>> Words for Reader<I> {
    fn word(&mut self, word: &mut Option<u64>) {
        let mut is_there = false;
        self.flag(&mut is_there);
        *word = if is_there { self.words.next() } else { None };
    }

    fn flag(&mut self, flag: &mut bool) {
        *flag = self.present & 1 == 1;
        self.present >>= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Overlap;

    fn summary() -> impl Strategy<Value = TensorSummary> {
        let numbers = any::<[Option<f64>; 3]>();
        (any::<[u64; 2]>(), numbers, any::<f64>(), proptest::array::uniform4(0..3_u64)).prop_map(
            |([count, _], [min, max, mean], norm, [zeros, nan, pos_inf, neg_inf])| TensorSummary {
                count,
                min,
                max,
                mean,
                norm,
                zeros,
                nan,
                pos_inf,
                neg_inf,
            },
        )
    }

    proptest! {
        #[test]
        fn metrics_come_back_to_the_bit(
            baseline in summary(),
            candidate in summary(),
            counts in proptest::array::uniform4(any::<u64>()),
            bit_equal: bool,
            reals in proptest::array::uniform10(any::<Option<f64>>()),
            words in any::<[Option<u64>; 2]>(),
            max_abs_values: Option<(f64, f64)>,
            overlap in any::<Option<[u64; 3]>>(),
        ) {
            let metrics = PairMetrics {
                baseline,
                candidate,
                both_finite: counts[0],
                bit_equal,
                different: counts[1],
                non_finite_mismatch: counts[2],
                zero_baseline: counts[3],
                cosine: reals[0],
                max_abs_err: reals[1],
                max_abs_index: words[0],
                max_abs_values,
                mean_abs_err: reals[2],
                max_rel_err: reals[3],
                mean_rel_err: reals[4],
                rmse: reals[5],
                euclidean: reals[6],
                rel_l2: reals[7],
                within_1e3: reals[8],
                within_5e3: reals[9],
                max_ulp: words[1],
                overlap: overlap.map(|[rows, apart, shared]| Overlap { rows, apart, shared }),
            };
            let kept = KeptMetrics::from(&metrics);
            // NaN and signed zeros too.
            prop_assert_eq!(format!("{:?}", kept.metrics()), format!("{metrics:?}"));
        }
    }

    #[test]
    fn what_is_zero_or_missing_takes_nothing() {
        let side = TensorSummary {
            count: 64,
            min: Some(-1.0),
            max: Some(1.0),
            mean: Some(0.5),
            norm: 3.0,
            ..TensorSummary::default()
        };
        let metrics = PairMetrics {
            baseline: side,
            candidate: side,
            both_finite: 64,
            different: 64,
            ..PairMetrics::default()
        };
        assert_eq!(KeptMetrics::from(&metrics).0.len(), 1 + 1 + 2 * 4);
    }
}
