//! Runs of several ranks and steps: which parts pair, and which of them is named.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use probe::judge::RunVerdict;
use support::dump_builder::Task;
use support::runs::{NEVER, chain, compare_parts, module};

#[test]
fn ranks_pair_by_number() {
    let parts = [("step0/rank3", Task::Tensor), ("step0/rank4", Task::Tensor), ("step0/rank5", Task::Tensor)];
    let answer = compare_parts(&parts, |part, side| {
        let lacks = side.pick("step0/rank5", "step0/rank4");
        // Rank 4 of one side and rank 5 of the other would disagree.
        (part != lacks).then(|| chain(side, if part.ends_with('3') { NEVER } else { 1 }, 2.0))
    });
    assert_eq!(answer.summary.verdict, RunVerdict::Incomplete);
    assert_eq!(answer.first(), None);
    let places: Vec<(&str, &str)> =
        answer.summary.incomplete.iter().map(|entry| (&*entry.place, &*entry.reason)).collect();
    let only = |side| format!("only the {side} has it; not compared");
    assert_eq!(places, [("step 0 rank 4", &*only("baseline")), ("step 0 rank 5", &*only("candidate"))]);
}

#[test]
fn the_only_part_of_each_side_is_compared_and_said_so() {
    let answer =
        compare_parts(&[("step0/rank3", Task::Tensor), ("step2/rank5", Task::Tensor)], |part, side| {
            (part == side.pick("step0/rank3", "step2/rank5")).then(|| chain(side, NEVER, 1.0))
        });
    assert_eq!(answer.summary.verdict, RunVerdict::Agree);
    assert_eq!(
        answer.summary.notes,
        [
            "step 0 rank 3 of the baseline is compared with step 2 rank 5 of the candidate, the only part of each"
        ]
    );
}

#[test]
fn the_one_wrong_rank_is_named() {
    let parts = [("step0/rank0", Task::Statistics), ("step0/rank1", Task::Statistics)];
    let answer = compare_parts(&parts, |part, side| {
        Some(chain(side, if part.ends_with("rank1") { 2 } else { NEVER }, 1.01))
    });
    let first = answer.summary.first_divergence.unwrap();
    assert_eq!((first.step, first.rank, &*first.op), (0, 1, "Functional.linear.0.forward"));
    assert_eq!(answer.summary.culprits.len(), 1);
}

#[test]
fn a_fault_that_starts_later_is_named_in_its_step_and_what_it_did_to_the_next_is_not() {
    let parts = [("step0/rank0", Task::Tensor), ("step1/rank0", Task::Tensor), ("step2/rank0", Task::Tensor)];
    let answer = compare_parts(&parts, |part, side| {
        Some(match part {
            "step0/rank0" => module(side, 1.0, 1.0),
            "step1/rank0" => module(side, 1.0, 1.1),
            // Trained on the wrong gradient.
            _ => module(side, 1.01, 1.0),
        })
    });
    let first = answer.summary.first_divergence.unwrap();
    assert_eq!((first.step, &*first.op), (1, "Module.fc.Linear.parameters_grad.0"));
    assert_eq!(answer.summary.culprits.len(), 1, "{:#?}", answer.summary.culprits);
}
