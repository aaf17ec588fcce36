//! The terminal summary.

use super::fixture::{everything, full_summary, hostile_names, summary};
use crate::text::{Colour, TextOptions, answer, render};
use probe_judge::{Cause, Incomplete, RunVerdict, Summary};

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
    summary.groups.clear();
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
    summary.first_divergence = summary.culprits.first().cloned();
    for run in [&mut summary.baseline, &mut summary.candidate] {
        run.path = names.nth(1).unwrap();
        run.format = names.nth(1).unwrap();
    }
    summary.notes = hostile_names().into();
    let text = render(&summary, &options());
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "a control character got through");
    assert!(!text.contains('\u{202e}'));
    assert!(!answer(&summary).contains('\n'));
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > options().width).collect();
    let alone = |line: &&str| line.split_whitespace().filter(|word| word.chars().count() > 20).count() == 1;
    assert!(long.iter().all(alone), "what is too long for a line stands alone: {long:#?}");
}

#[test]
fn the_answer_fits_a_narrow_terminal() {
    let mut summary = full_summary(&everything());
    let first = summary.first_divergence.as_mut().unwrap();
    first.op = "Aten._scaled_dot_product_flash_attention_for_cpu_backward.1.backward".into();
    first.source = Some("/home/user/a/folder/that/is/deep/modeling_something.py:1142".into());
    summary.culprits[0] = first.clone();
    let text = render(&summary, &TextOptions { width: 80, ..options() });
    // A command that can be copied is not broken at spaces.
    let text = text.lines().filter(|line| !line.starts_with("next ")).collect::<Vec<_>>().join("\n");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for whole in [&*summary.culprits[0].op, summary.culprits[0].source.as_deref().unwrap()] {
        assert_eq!(text.matches(whole).count(), 2, "in the answer and in the list: {text}");
    }
}

#[test]
fn a_long_list_of_ranks_is_counted() {
    let mut summary = full_summary(&everything());
    summary.groups[0].ranks = vec![0, 2, 4, 6, 8, 10, 12, 14];
    let text = render(&summary, &options());
    assert!(text.contains("8 of them"), "{text}");
    assert!(
        text.starts_with("first divergence: step 0, ranks 0, 2, 4, 6, 8, 10, 12, 14, Functional"),
        "{text}"
    );
}

#[test]
fn a_gradient_that_an_optimizer_reads_is_no_fault_of_a_backward_pass() {
    let part = everything();
    let said = |op: &str| {
        let mut summary = full_summary(&part);
        let first = summary.first_divergence.as_mut().unwrap();
        (first.op, first.cause) = (op.to_owned(), Cause::Gradient);
        let text = render(&summary, &options());
        text.lines().find_map(|line| line.strip_prefix("cause      gradient: ")).map(str::to_owned)
    };
    let read = said("Optimizer.SGD.step.0");
    assert_eq!(read.as_deref(), Some("gradients differ where the optimizer reads them"));
    let passed = said("Functional.linear.0.backward");
    assert_eq!(passed.as_deref(), Some("only the backward pass of this op differs"));
}
