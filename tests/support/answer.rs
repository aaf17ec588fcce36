//! Compares through the library and keeps everything that was decided.

use std::path::Path;

use probe::compare::{CompareOptions, Quiet, compare};
use probe::judge::{Cause, Finding, Role, Summary, Verdict};
use probe::measure::Metric;

/// A judged slot.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) op: String,
    pub(crate) slot: String,
    pub(crate) verdict: Verdict,
    /// Role of its op.
    pub(crate) role: Role,
    pub(crate) reason: String,
    /// Text of the tolerance that decided, where one did.
    pub(crate) rule: Option<String>,
    pub(crate) metrics: Vec<(Metric, Option<f64>)>,
}

impl Row {
    pub(crate) fn metric(&self, metric: Metric) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| *known == metric).and_then(|(_, value)| *value)
    }
}

/// The answer for a pair of dumps, with its rows.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) summary: Summary,
    pub(crate) rows: Vec<Row>,
}

impl Answer {
    pub(crate) fn of(baseline: &Path, candidate: &Path) -> Self {
        Self::with(baseline, candidate, &CompareOptions::default())
    }

    pub(crate) fn with(baseline: &Path, candidate: &Path, options: &CompareOptions) -> Self {
        let mut rows = Vec::new();
        let summary = compare(baseline, candidate, options, &Quiet, &mut |part| {
            for (order, (pair, judged)) in part.pair.ops.iter().zip(&part.judged.ops).enumerate() {
                let slots = pair.slots.iter().zip(&part.judged.slots[order]);
                for ((slots, slot), evidence) in slots.zip(part.evidence.of_op(order)) {
                    let (b, c) = part.pair.slot(pair, slots);
                    rows.push(Row {
                        op: part.pair.name(pair).to_owned(),
                        slot: b.or(c).unwrap().path.to_string(),
                        verdict: slot.verdict,
                        role: judged.role,
                        reason: slot.reason.to_string(),
                        rule: slot.rule.map(|rule| part.judged.rules[rule.place()].to_string()),
                        metrics: evidence.metrics().to_vec(),
                    });
                }
            }
            Ok(())
        });
        Self { summary: summary.unwrap(), rows }
    }

    pub(crate) fn row(&self, op: &str, slot: &str) -> &Row {
        let found = self.rows.iter().find(|row| row.op == op && row.slot == slot);
        found.unwrap_or_else(|| panic!("no row {op} {slot}"))
    }

    /// Fields of an op at fault.
    pub(crate) fn culprit(&self, op: &str) -> Option<&Finding> {
        self.summary.culprits.iter().find(|culprit| culprit.op == op)
    }

    /// The first divergence in three words: op, slot, cause.
    pub(crate) fn first(&self) -> Option<(&str, &str, Cause)> {
        self.summary.first_divergence.as_ref().map(|first| (&*first.op, &*first.slot, first.cause))
    }
}
