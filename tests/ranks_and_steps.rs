//! Runs of several ranks and steps: which parts pair, and which of them is named.

use crate::support::dump_builder::{Task, Tensor, op};
use crate::support::runs::{NEVER, chain, compare, compare_parts, module};
use probe::judge::RunVerdict;
use probe::report::text::{TextOptions, render};

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
fn the_same_fault_of_many_ranks_and_steps_is_one() {
    let names: Vec<String> =
        (0..3).flat_map(|step| (0..64).map(move |rank| format!("step{step}/rank{rank}"))).collect();
    let parts: Vec<(&str, Task)> = names.iter().map(|name| (&**name, Task::Statistics)).collect();
    // Rank 7 has another fault beside it.
    let answer = compare_parts(&parts, |part, side| {
        let mut ops = chain(side, 2, 1.01);
        if part == "step1/rank7" {
            let wave = Tensor::wave(50, 64);
            ops.push(op("Functional.silu.0.forward").input(&wave).output(side.scaled(&wave, 1.02)));
        }
        Some(ops)
    });
    let told: Vec<(&str, &[u64], usize, u64, u64)> = answer
        .summary
        .groups
        .iter()
        .map(|group| {
            let op = &*answer.summary.culprits[group.first].op;
            (op, &*group.steps, group.ranks.len(), group.findings, group.followers)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("Functional.linear.0.forward", &[0, 1, 2][..], 64, 192, 2 * 192),
            ("Functional.silu.0.forward", &[1][..], 1, 1, 0)
        ]
    );
    let text = render(&answer.summary, &TextOptions::default());
    assert!(
        text.starts_with("first divergence: steps 0-2, ranks 0-63, Functional.linear.0.forward output.0\n"),
        "{text}"
    );
    let (_, list) = text.split_once("\nops at fault\n").unwrap();
    let rows: Vec<Vec<&str>> = list.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..3], ["0-2", "0-63", "numerics"], "{text}");
    assert!(rows[0].ends_with(&["-", "384", "ops", "follow"]), "{text}");
    assert_eq!(rows[1][..3], ["1", "7", "numerics"], "{text}");
}

#[test]
fn where_the_error_lies_is_told() {
    let answer = compare(Task::Tensor, &|side| {
        let given =
            Tensor::new("float32", &[8, 16], &(0..128).map(|x| f64::from(x).sin()).collect::<Vec<_>>());
        let made = given.map(|x| x * 2.0);
        let wrong = (48..64).fold(made.clone(), |tensor, index| tensor.with(index, 3.0));
        vec![op("Functional.linear.0.forward").input(given).output(side.pick(made, wrong))]
    });
    let place = answer.summary.first_divergence.as_ref().unwrap().place.clone().unwrap();
    assert_eq!(
        (&*place.shape, &*place.largest.unwrap().index),
        (&[8, 16][..], &[3, 7][..]),
        "sin 55 is nearly -1"
    );
    assert_eq!(place.region, Some(vec![3..4, 0..16]));
    let options = TextOptions { width: 200, ..TextOptions::default() };
    let text = render(&answer.summary, &options);
    let line = text.lines().find(|line| line.starts_with("where ")).unwrap();
    assert!(line.starts_with("where      largest error at [3, 7] of [8, 16]: -1.99951"), "{line}");
    assert!(line.ends_with(" against 3; nearly all of the error is in [3, :]"), "{line}");
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
