//! Writes `samples.xlsx`: a row a sample, the causes, and the meaning of the columns.

use std::io;
use std::path::Path;

use super::book;
use super::pairs::Pairs;
use super::rows::Rows;
use super::sheet::{Head, Layout, MAX_ROWS, Sheet};
use super::style::Style;
use crate::model::Tool;
use crate::rollout::answer;
use probe_files::Draft;
use probe_rollout::RolloutOutcome;
use probe_rollout::cause::Cause;
use probe_rollout::outcome::{SampleOutcome, StepOutcome};

/// Columns of the samples: label, width, meaning.
const SAMPLES: [(&str, u16, &str); 9] = [
    ("step", 8, "training step"),
    ("sample", 24, "name in the file, or place in it"),
    ("tokens", 10, "compared tokens: in the loss, with a value on both sides"),
    ("mean |d|", 12, "mean absolute difference of the log-probabilities"),
    ("max |d|", 12, "largest absolute difference"),
    ("position", 10, "position of the largest"),
    ("mean rollout", 14, "mean log-probability in the engine"),
    ("mean trainer", 14, "mean log-probability in the trainer"),
    ("causes", 40, "causes that name this sample; those of a whole step are on the first sheet"),
];

/// Columns of the causes.
const CAUSES: [(&str, u16); 6] =
    [("step", 8), ("cause", 14), ("samples", 10), ("share", 10), ("evidence", 100), ("action", 70)];

/// Rows that are held at once before they are compressed.
const AT_ONCE: usize = 10_000;

/// Writes the workbook into `draft`.
pub(crate) fn write(draft: &mut Draft, outcome: &RolloutOutcome) -> io::Result<()> {
    let folder = draft.folder().to_owned();
    let mut sheets = vec![causes(outcome, &folder)?];
    sheets.extend(samples(outcome, &folder)?);
    sheets.push(about(outcome, &folder)?);
    book::save(sheets, draft.file())
}

fn causes(outcome: &RolloutOutcome, folder: &Path) -> io::Result<Sheet> {
    let labels = CAUSES.map(|(label, _)| label.to_owned()).into();
    let layout = Layout {
        name: "causes".into(),
        widths: CAUSES.map(|(_, width)| width).into(),
        head: Some(Head { labels, frozen: 2, notice: None }),
        tab: None,
    };
    let mut sheet = Sheet::create(layout, folder)?;
    let mut rows = sheet.below();
    let findings =
        outcome.steps.iter().flat_map(|step| step.findings.iter().map(move |finding| (step, finding)));
    for (step, finding) in findings.take(MAX_ROWS as usize - 2) {
        rows.count(Style::Centre, step.step);
        rows.text(Style::Bad, finding.cause.name());
        let count = if finding.samples.is_empty() { step.samples.len() } else { finding.samples.len() };
        rows.count(Style::Centre, count as u64);
        match finding.share {
            Some(share) => rows.real(Style::metric(share), share),
            None => rows.skip(),
        }
        rows.text(Style::Plain, &finding.evidence);
        rows.text(Style::Plain, finding.cause.action());
        rows.end_row();
    }
    sheet.append(rows)?;
    if outcome.causes().is_empty() {
        sheet.remark("no cause was found")?;
    }
    Ok(sheet)
}

/// Returns the sheet of the samples, or several if there are more than rows in a sheet.
fn samples(outcome: &RolloutOutcome, folder: &Path) -> io::Result<Vec<Sheet>> {
    let begin = |number: usize| {
        let labels = SAMPLES.map(|(label, _, _)| label.to_owned()).into();
        let layout = Layout {
            name: if number == 0 { "samples".into() } else { format!("samples {}", number + 1) },
            widths: SAMPLES.map(|(_, width, _)| width).into(),
            head: Some(Head { labels, frozen: 2, notice: None }),
            tab: None,
        };
        Sheet::create(layout, folder)
    };
    let mut sheets = vec![begin(0)?];
    for step in &outcome.steps {
        let mut rest = &step.rows[..];
        while !rest.is_empty() {
            if sheets[sheets.len() - 1].rows() >= MAX_ROWS {
                sheets.push(begin(sheets.len())?);
            }
            let last = sheets.len() - 1;
            let sheet = &mut sheets[last];
            let room = (MAX_ROWS - sheet.rows()) as usize;
            let (some, more) = rest.split_at(rest.len().min(room).min(AT_ONCE));
            let mut rows = sheet.below();
            for row in some {
                sample(&mut rows, outcome, step, row);
            }
            sheet.append(rows)?;
            rest = more;
        }
    }
    Ok(sheets)
}

fn sample(rows: &mut Rows, outcome: &RolloutOutcome, step: &StepOutcome, row: &SampleOutcome) {
    rows.count(Style::Centre, step.step);
    rows.text(Style::Plain, outcome.table.samples.get(row.sample).map_or("", |sample| &*sample.name));
    rows.count(Style::Centre, row.tokens);
    for value in [row.mean_abs, row.max_abs] {
        rows.real(Style::metric(value), value);
    }
    match row.position {
        Some(position) => rows.count(Style::Centre, position.into()),
        None => rows.skip(),
    }
    for value in [row.rollout, row.trainer] {
        rows.real(Style::number(value), value);
    }
    let causes: Vec<&str> = row.causes.iter().map(|cause| cause.name()).collect();
    if causes.is_empty() {
        rows.skip();
    } else {
        rows.text(Style::Bad, &causes.join(", "));
    }
    rows.end_row();
}

fn about(outcome: &RolloutOutcome, folder: &Path) -> io::Result<Sheet> {
    let mut page = Pairs::create("about", [22, 120], folder)?;
    page.entry(Style::Bold, "answer", &answer(outcome));
    page.entry(Style::Plain, "rollout", &outcome.path.display().to_string());
    if let Some(trainer) = &outcome.trainer {
        page.entry(Style::Plain, "trainer", &trainer.display().to_string());
    }
    for fault in &outcome.faults {
        page.entry(Style::Warn, "not read", fault);
    }
    for lacking in &outcome.lacking {
        page.entry(Style::Warn, "lacking", &lacking.to_string());
    }
    page.entry(Style::Plain, "tool", &format!("{} {}", Tool::THIS.name, Tool::THIS.version));
    page.section("columns");
    for (label, _, meaning) in SAMPLES {
        page.entry(Style::Plain, label, meaning);
    }
    page.section("causes");
    for cause in Cause::ALL {
        page.entry(Style::Plain, cause.name(), cause.action());
    }
    page.finish()
}
