//! Collects the rows of a part.

use super::context::Context;
use crate::expectations::{Expectations, Limits, Ruling, Subject};
use crate::outcome::Row;
use crate::pair::DevicePair;
use crate::part::{Part, Verdict};
use probe_dump::torch_parameter;

/// Rows of one part, with the context that decides their verdicts.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    context: &'a Context<'a>,
    part: Part,
    step: Option<u64>,
    found: Vec<Row>,
}

impl<'a> Rows<'a> {
    /// Creates an empty list of rows for `part`.
    pub(super) const fn new(context: &'a Context<'a>, part: Part) -> Self {
        Self { context, part, step: None, found: Vec::new() }
    }

    pub(super) const fn part(&self) -> Part {
        self.part
    }

    pub(super) const fn pair(&self) -> DevicePair {
        self.context.pair
    }

    pub(super) const fn expectations(&self) -> &'a Expectations {
        self.context.expectations
    }

    /// Returns the path of a module, tensor or parameter in terms of both sides: without names added by wrappers, and if the
    /// frameworks differ, as PyTorch calls it.
    pub(super) fn common_name(&self, name: &str) -> String {
        let bare = self.context.expectations.bare_name(name);
        if self.pair().across_frameworks { torch_parameter(&bare).into_owned() } else { bare }
    }

    pub(super) const fn limits(&self) -> &'a Limits {
        self.context.expectations.limits()
    }

    pub(super) fn into_rows(self) -> Vec<Row> {
        self.found
    }

    /// Sets the step of the rows added from now on.
    pub(super) const fn at_step(&mut self, step: Option<u64>) {
        self.step = step;
    }

    /// Adds a finished row.
    pub(super) fn add(&mut self, row: Row) {
        self.found.push(row);
    }

    /// Adds a row.
    pub(super) fn push(
        &mut self,
        key: &str,
        baseline: Option<String>,
        candidate: Option<String>,
        ruling: Ruling,
    ) {
        self.found.push(Row {
            key: key.to_owned(),
            step: self.step,
            ranks: Vec::new(),
            baseline,
            candidate,
            verdict: ruling.verdict,
            reason: ruling.why,
            action: ruling.todo,
        });
    }

    /// Adds a row for two equal values; `reason` may be empty.
    pub(super) fn equal(&mut self, key: &str, baseline: &str, candidate: &str, reason: &str) {
        self.push(
            key,
            Some(baseline.to_owned()),
            Some(candidate.to_owned()),
            Ruling::new(Verdict::Match, reason),
        );
    }

    /// Adds a row for two different values; the table decides its verdict.
    pub(super) fn differ(&mut self, key: &str, baseline: String, candidate: String) {
        let ruling = self.ruling_of_difference(key, Some(&baseline), Some(&candidate));
        self.push(key, Some(baseline), Some(candidate), ruling);
    }

    /// Adds a row for two values compared as text.
    pub(super) fn text(&mut self, key: &str, baseline: &str, candidate: &str) {
        if baseline == candidate {
            self.equal(key, baseline, candidate, "");
        } else {
            self.differ(key, baseline.to_owned(), candidate.to_owned());
        }
    }

    /// Adds a row for two optional values; none if both are missing.
    pub(super) fn fact(&mut self, key: &str, baseline: Option<&str>, candidate: Option<&str>) {
        match (baseline, candidate) {
            (Some(a), Some(b)) => self.text(key, a, b),
            (None, None) => {}
            (a, b) => self.one_sided(key, a.map(str::to_owned), b.map(str::to_owned)),
        }
    }

    /// Adds a row for a value that one side lacks; the table decides its verdict.
    pub(super) fn one_sided(&mut self, key: &str, baseline: Option<String>, candidate: Option<String>) {
        let ruling = self.ruling_of_difference(key, baseline.as_deref(), candidate.as_deref());
        self.push(key, baseline, candidate, ruling);
    }

    /// Returns the table's ruling on a difference: a rule, else the default of the part.
    pub(super) fn ruling_of_difference(
        &self,
        key: &str,
        baseline: Option<&str>,
        candidate: Option<&str>,
    ) -> Ruling {
        self.rule(key, baseline, candidate)
            .unwrap_or_else(|| self.default_ruling(baseline.is_some() && candidate.is_some()))
    }

    /// Returns the table's rule for a row.
    pub(super) fn rule(&self, key: &str, baseline: Option<&str>, candidate: Option<&str>) -> Option<Ruling> {
        self.expectations().ruling(self.pair(), Subject { part: self.part, key, baseline, candidate })
    }

    /// Returns the default ruling of the part.
    pub(super) fn default_ruling(&self, both: bool) -> Ruling {
        let default = self.expectations().default_of(self.part);
        if both {
            Ruling::new(default.differs, default.why).todo(default.todo)
        } else if default.one_sided == Verdict::Unknown {
            Ruling::new(Verdict::Unknown, "recorded on one side only").todo("record it on both sides")
        } else {
            Ruling::new(default.one_sided, format!("on one side only: {}", default.why)).todo(default.todo)
        }
    }
}
