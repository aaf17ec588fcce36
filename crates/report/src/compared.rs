//! `report.junit.xml` and `report.md` of a comparison, built on the writers shared by all commands.

use std::io::Write as _;
use std::path::Path;

use super::gate::test_of;
use super::junit::{self, Suite};
use super::markdown::Page;
use super::text::answer;
use super::{ReportWriter, number};
use probe_compare::PartReport;
use probe_files::{Draft, ReportError};
use probe_gate::cases;
use probe_judge::Summary;
use probe_measure::Metric;

/// Writer of `report.junit.xml`: a suite per step and rank, a case per module call and per op at fault.
#[derive(Debug)]
pub struct JunitReport {
    draft: Draft,
    suites: Vec<Suite>,
}

impl JunitReport {
    /// Creates the file that will become `path`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        Ok(Self { draft: Draft::create(path)?, suites: Vec::new() })
    }
}

impl ReportWriter for JunitReport {
    fn part(&mut self, part: &PartReport<'_>) -> Result<(), ReportError> {
        let tests = cases::of_part(part).iter().map(|case| test_of(case, false)).collect();
        let name = format!("step {} rank {}", part.pair.step, part.pair.rank);
        self.suites.push(Suite { name, properties: Vec::new(), tests });
        Ok(())
    }

    fn finish(mut self: Box<Self>, summary: &Summary) -> Result<Draft, ReportError> {
        if !summary.incomplete.is_empty() {
            self.suites.push(Suite {
                name: "not compared".into(),
                properties: Vec::new(),
                tests: summary.incomplete.iter().map(super::gate::unread).collect(),
            });
        }
        let bytes = junit::document("probe compare", summary.seconds, &self.suites)
            .map_err(|error| ReportError::format(self.draft.target(), error))?;
        self.draft.file().write_all(&bytes).map_err(|error| self.draft.refused(error))?;
        Ok(self.draft)
    }
}

/// Writer of `report.md`: a page for the summary of a CI job.
#[derive(Debug)]
pub struct MarkdownReport {
    draft: Draft,
}

impl MarkdownReport {
    /// Creates the file that will become `path`.
    ///
    /// # Errors
    /// [`ReportError::Io`] when the folder cannot be written.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        Ok(Self { draft: Draft::create(path)? })
    }
}

impl ReportWriter for MarkdownReport {
    fn part(&mut self, _: &PartReport<'_>) -> Result<(), ReportError> {
        Ok(())
    }

    fn finish(mut self: Box<Self>, summary: &Summary) -> Result<Draft, ReportError> {
        self.draft.file().write_all(page(summary).as_bytes()).map_err(|error| self.draft.refused(error))?;
        Ok(self.draft)
    }
}

/// Returns the page of a comparison, at most 40 lines.
pub fn page(summary: &Summary) -> String {
    let rows = summary.groups.iter().filter_map(|group| {
        let finding = summary.culprits.get(group.first)?;
        let value =
            finding.metrics.iter().find(|(metric, _)| *metric == Metric::RelL2).and_then(|(_, value)| *value);
        let sign = finding.basis.filter(|_| value.is_some()).map_or("", |basis| basis.sign(Metric::RelL2));
        Some(vec![
            format!("{} {}", finding.op, finding.slot),
            finding.cause.name().to_owned(),
            format!("{sign}{}", number::metric(Metric::RelL2, value)),
            finding.source.clone().or_else(|| finding.module.clone()).unwrap_or_default(),
            finding.reason.clone(),
        ])
    });
    let unread =
        summary.incomplete.iter().map(|entry| format!("not compared: {}: {}", entry.place, entry.reason));
    Page {
        title: answer(summary),
        facts: vec![
            ("baseline".to_owned(), summary.baseline.path.clone()),
            ("candidate".to_owned(), summary.candidate.path.clone()),
        ],
        columns: vec!["op", "cause", "rel_l2", "where", "why"],
        rows: rows.collect(),
        notes: unread.chain(summary.notes.iter().cloned()).collect(),
        next: format!("probe compare {} {} -v", summary.baseline.path, summary.candidate.path),
    }
    .text()
}
