//! The terminal summary.

use super::fixture::{everything, full_summary, hostile_names, summary};
use crate::judge::{Incomplete, RunVerdict, Summary};
use crate::report::text::{Colour, TextOptions, answer, render};

fn options() -> TextOptions {
    TextOptions {
        written: vec!["out/result.xlsx".into(), "out/report.json".into()],
        ..TextOptions::default()
    }
}

#[test]
fn a_diverged_run() {
    let part = everything();
    insta::assert_snapshot!(render(&full_summary(&part), &options()));
}

#[test]
fn a_diverged_run_on_a_narrow_terminal_with_colours() {
    let part = everything();
    let options = TextOptions { colour: Colour::Always, width: 90, top: 3, incomplete: 1, ..options() };
    let text = render(&full_summary(&part), &options);
    insta::assert_snapshot!(text.replace('\u{1b}', "ESC"));
}

#[test]
fn a_run_that_agrees() {
    let mut summary = summary(&[&everything()]);
    summary.culprits.clear();
    let summary = Summary { verdict: RunVerdict::Agree, first_divergence: None, ..summary };
    insta::assert_snapshot!(render(&summary, &TextOptions::default()));
}

#[test]
fn a_run_that_could_not_be_compared() {
    let summary = Summary {
        verdict: RunVerdict::Incomplete,
        incomplete: vec![Incomplete { place: "step 0 rank 1".into(), reason: "dump.json: empty".into() }],
        ..summary(&[])
    };
    insta::assert_snapshot!(render(&summary, &TextOptions::default()));
}

#[test]
fn nothing_from_a_dump_reaches_the_terminal_unescaped() {
    let mut summary = full_summary(&everything());
    let mut names = hostile_names().into_iter().cycle();
    for finding in &mut summary.culprits {
        let name = names.next().unwrap();
        finding.slot.clone_from(&name);
        finding.reason.clone_from(&name);
        finding.source = Some(name.clone());
        finding.op = name;
    }
    summary.first_divergence = summary.culprits.get(1).cloned();
    for run in [&mut summary.baseline, &mut summary.candidate] {
        run.path = names.nth(1).unwrap();
        run.format = names.nth(1).unwrap();
    }
    summary.notes = hostile_names().into();
    let text = render(&summary, &options());
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "a control character got through");
    assert!(!text.contains('\u{202e}'));
    assert!(!answer(&summary).contains('\n'));
    let table = text.lines().skip_while(|line| !line.starts_with("ops at fault")).skip(1).take(7);
    assert!(table.into_iter().all(|line| line.chars().count() <= 120), "the table keeps to the width");
}
