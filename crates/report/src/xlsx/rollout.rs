//! Writes `samples.xlsx`: a row a sample, the causes, and the meaning of the columns.

use std::io;

use super::book::Book;
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

/// Writes the workbook into `draft`.
pub(crate) fn write(draft: &mut Draft, outcome: &RolloutOutcome) -> io::Result<()> {
    let mut book = Book::create(draft.folder())?;
    let mut sheets = vec![causes(outcome, &mut book)?];
    sheets.extend(samples(outcome, &mut book)?);
    sheets.push(about(outcome, &mut book)?);
    book.save(sheets, draft.file())
}

fn causes(outcome: &RolloutOutcome, book: &mut Book) -> io::Result<Sheet> {
    let labels = CAUSES.map(|(label, _)| label.to_owned()).into();
    let mut sheet = book.sheet(&Layout {
        name: "causes".into(),
        widths: CAUSES.map(|(_, width)| width).into(),
        head: Some(Head { labels, frozen: 2, notice: None }),
        tab: None,
    })?;
    let findings =
        outcome.steps.iter().flat_map(|step| step.findings.iter().map(move |finding| (step, finding)));
    for (step, finding) in findings.take(MAX_ROWS as usize - 2) {
        sheet.count(Style::Centre, step.step);
        sheet.text(Style::Bad, finding.cause.name());
        let count = if finding.samples.is_empty() { step.samples.len() } else { finding.samples.len() };
        sheet.count(Style::Centre, count as u64);
        match finding.share {
            Some(share) => sheet.real(Style::metric(share), share),
            None => sheet.skip(),
        }
        sheet.text(Style::Plain, &finding.evidence);
        sheet.text(Style::Plain, finding.cause.action());
        sheet.end_row()?;
    }
    if outcome.causes().is_empty() {
        sheet.remark("no cause was found")?;
    }
    Ok(sheet)
}

fn samples(outcome: &RolloutOutcome, book: &mut Book) -> io::Result<Vec<Sheet>> {
    let mut begin = |number: usize| {
        let labels = SAMPLES.map(|(label, _, _)| label.to_owned()).into();
        book.sheet(&Layout {
            name: if number == 0 { "samples".into() } else { format!("samples {}", number + 1) },
            widths: SAMPLES.map(|(_, width, _)| width).into(),
            head: Some(Head { labels, frozen: 2, notice: None }),
            tab: None,
        })
    };
    let mut full = Vec::new();
    let mut sheet = begin(0)?;
    for step in &outcome.steps {
        for row in &step.rows {
            if sheet.row() > MAX_ROWS {
                let next = begin(full.len() + 1)?;
                full.push(std::mem::replace(&mut sheet, next));
            }
            sample(&mut sheet, outcome, step, row)?;
        }
    }
    full.push(sheet);
    Ok(full)
}

fn sample(
    sheet: &mut Sheet,
    outcome: &RolloutOutcome,
    step: &StepOutcome,
    row: &SampleOutcome,
) -> io::Result<()> {
    sheet.count(Style::Centre, step.step);
    sheet.text(Style::Plain, outcome.table.samples.get(row.sample).map_or("", |sample| &*sample.name));
    sheet.count(Style::Centre, row.tokens);
    for value in [row.mean_abs, row.max_abs] {
        sheet.real(Style::metric(value), value);
    }
    match row.position {
        Some(position) => sheet.count(Style::Centre, position.into()),
        None => sheet.skip(),
    }
    for value in [row.rollout, row.trainer] {
        sheet.real(Style::number(value), value);
    }
    let causes: Vec<&str> = row.causes.iter().map(|cause| cause.name()).collect();
    if causes.is_empty() {
        sheet.skip();
    } else {
        sheet.text(Style::Bad, &causes.join(", "));
    }
    sheet.end_row()
}

fn about(outcome: &RolloutOutcome, book: &mut Book) -> io::Result<Sheet> {
    let layout = Layout { name: "about".into(), widths: vec![22, 120], ..Layout::default() };
    let mut sheet = book.sheet(&layout)?;
    let mut pair = |style: Style, key: &str, text: &str| -> io::Result<()> {
        sheet.text(style, key);
        sheet.text(Style::Plain, text);
        sheet.end_row()
    };
    pair(Style::Bold, "answer", &answer(outcome))?;
    pair(Style::Plain, "rollout", &outcome.path.display().to_string())?;
    if let Some(trainer) = &outcome.trainer {
        pair(Style::Plain, "trainer", &trainer.display().to_string())?;
    }
    for fault in &outcome.faults {
        pair(Style::Warn, "not read", fault)?;
    }
    pair(Style::Plain, "tool", &format!("{} {}", Tool::THIS.name, Tool::THIS.version))?;
    pair(Style::Bold, "columns", "")?;
    for (label, _, meaning) in SAMPLES {
        pair(Style::Plain, label, meaning)?;
    }
    pair(Style::Bold, "causes", "")?;
    for cause in Cause::ALL {
        pair(Style::Plain, cause.name(), cause.action())?;
    }
    Ok(sheet)
}
