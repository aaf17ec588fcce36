//! The tokens of one step that both sides have a value of.

use std::ops::Range;

use crate::table::{COUNTED, ROLLOUT, Sample, TRAINER, Table};

/// One sample of the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Place of the sample in the table.
    pub(crate) sample: usize,
    /// Places of its tokens in the columns.
    pub(crate) range: Range<usize>,
}

/// Columns of the compared tokens of one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pairs {
    pub(crate) rows: Vec<Row>,
    /// The engine's log-probabilities.
    pub(crate) g: Vec<f32>,
    /// The trainer's.
    pub(crate) p: Vec<f32>,
    /// Places of the tokens in the table.
    pub(crate) place: Vec<usize>,
}

impl Pairs {
    /// Returns the tokens of `samples` that are in the loss and that both sides have a value of.
    pub(crate) fn of(table: &Table, samples: Range<usize>) -> Self {
        const ALL: u8 = COUNTED | ROLLOUT | TRAINER;
        let mut pairs = Self::default();
        let tokens = &table.tokens;
        let all: usize = table.samples[samples.clone()].iter().map(|sample| sample.range.len()).sum();
        pairs.g.reserve(all);
        pairs.p.reserve(all);
        pairs.place.reserve(all);
        for (sample, Sample { range, .. }) in samples.clone().zip(&table.samples[samples]) {
            let start = pairs.g.len();
            if tokens.flags[range.clone()].iter().all(|flags| flags & ALL == ALL) {
                pairs.g.extend_from_slice(&tokens.rollout[range.clone()]);
                pairs.p.extend_from_slice(&tokens.trainer[range.clone()]);
                pairs.place.extend(range.clone());
            } else {
                for place in range.clone().filter(|place| tokens.flags[*place] & ALL == ALL) {
                    pairs.g.push(tokens.rollout[place]);
                    pairs.p.push(tokens.trainer[place]);
                    pairs.place.push(place);
                }
            }
            pairs.rows.push(Row { sample, range: start..pairs.g.len() });
        }
        pairs
    }

    pub(crate) fn len(&self) -> usize {
        self.g.len()
    }

    /// Returns both columns of a row.
    pub(crate) fn row(&self, row: &Row) -> (&[f32], &[f32]) {
        (&self.g[row.range.clone()], &self.p[row.range.clone()])
    }

    /// Keeps the tokens for which `keep` holds, given the token's place in these columns.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Self, usize) -> bool) {
        let kept: Vec<bool> = (0..self.len()).map(|at| keep(self, at)).collect();
        if kept.iter().all(|kept| *kept) {
            return;
        }
        let mut next = 0;
        for row in &mut self.rows {
            let start = next;
            for at in row.range.clone().filter(|at| kept[*at]) {
                (self.g[next], self.p[next], self.place[next]) = (self.g[at], self.p[at], self.place[at]);
                next += 1;
            }
            row.range = start..next;
        }
        self.g.truncate(next);
        self.p.truncate(next);
        self.place.truncate(next);
    }

    /// Returns the rows without any token.
    pub(crate) fn emptied(&self) -> Self {
        let empty = |row: &Row| Row { sample: row.sample, range: 0..0 };
        Self { rows: self.rows.iter().map(empty).collect(), ..Self::default() }
    }

    /// Returns the mean of |p - g| of a row; 0 for one without tokens.
    pub(crate) fn error(&self, row: &Row) -> f64 {
        let (g, p) = self.row(row);
        mean_distance(g, p)
    }

    /// Returns the sum of |p - g| of all tokens.
    pub(crate) fn total(&self) -> f64 {
        self.g.iter().zip(&self.p).map(|(g, p)| f64::from((p - g).abs())).sum()
    }
}

/// Returns the mean absolute difference of two series, as far as both go; 0 if one is empty.
pub(crate) fn mean_distance(g: &[f32], p: &[f32]) -> f64 {
    let count = g.len().min(p.len());
    let sum: f64 = g.iter().zip(p).map(|(g, p)| f64::from((p - g).abs())).sum();
    if count == 0 { 0.0 } else { sum / count as f64 }
}
