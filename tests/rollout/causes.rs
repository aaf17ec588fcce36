//! What is named: real pairs, tokens that differ, and a trainer that gives other values each time.

use std::path::Path;

use super::{Samples, causes, compared, data};

#[test]
fn real_pairs_have_their_cause_and_nothing_else() {
    for (name, code, expected) in [
        ("bf16_good.jsonl", 0, &[][..]),
        ("bf16_temperature_not_in_trainer.jsonl", 1, &["temperature"]),
        ("bf16_logprobs_off_by_one.jsonl", 1, &["shift"]),
        ("bf16_rows_swapped.jsonl", 1, &["rows"]),
        ("bf16_eos_dropped.jsonl", 1, &["end-token"]),
        ("bf16_stale_10_steps_lr_1e-4.jsonl", 1, &["weights"]),
        ("bf16_soft_cap.parquet", 1, &["soft-cap"]),
        ("bf16_penalty.parquet", 1, &["penalty"]),
    ] {
        let (exit, report) = compared(&[&data(name)]);
        assert_eq!((exit, &causes(&report)[..]), (code, expected), "{name}");
    }
    let (_, report) = compared(&[&data("bf16_temperature_not_in_trainer.jsonl")]);
    let evidence = report["steps"][0]["findings"][0]["evidence"].as_str().unwrap();
    assert!(evidence.contains("rollout = trainer at temperature 0.71"), "{evidence}");
}

#[test]
fn tokens_that_differ_are_shown_in_place() {
    let place = Samples::new();
    let header = "sample,position,token_id,logprob\n";
    let ours = Samples::rows(|sample, t, token, value| format!("{sample},{t},{token},{value}\n"));
    let theirs = Samples::rows(|sample, t, token, value| {
        let token = if (sample, t) == (0, 4) { 99 } else { token };
        // The trainer drops the last token of the third sample.
        if (sample, t) == (2, 6) { String::new() } else { format!("{sample},{t},{token},{value}\n") }
    });
    let (ours, theirs) = (
        place.write("a.csv", &format!("{header}{ours}")),
        place.write("b.csv", &format!("{header}{theirs}")),
    );
    let (code, report) = compared(&[&ours, &theirs]);
    assert_eq!((code, causes(&report)), (1, vec!["tokens", "end-token"]));
    let evidence = report["steps"][0]["findings"][0]["evidence"].as_str().unwrap();
    assert!(
        evidence.contains("sample 0 at position 4, where the rollout has 9 and the trainer 99"),
        "{evidence}"
    );
    let evidence = report["steps"][0]["findings"][1]["evidence"].as_str().unwrap();
    assert!(evidence.contains("1 of 3 samples (2), id 36"), "{evidence}");
}

#[test]
fn a_trainer_that_does_not_repeat_itself_is_named() {
    let place = Samples::new();
    let side = |name: &str, off: f64| {
        let rows = Samples::rows(|sample, t, token, value| {
            let sign = if (sample + t).is_multiple_of(2) { off } else { -off };
            format!("{sample},{t},{token},{}\n", value + sign)
        });
        place.write(name, &format!("sample,position,token_id,logprob\n{rows}"))
    };
    let (rollout, trainer) = (side("a.csv", 0.0), side("b.csv", 0.06));
    for (second, expected) in [(side("same.csv", 0.06), "weights"), (side("other.csv", -0.05), "trainer")] {
        let (code, report) = compared(&[&rollout, &trainer, Path::new("--again"), &second]);
        assert_eq!((code, causes(&report)), (1, vec![expected]));
    }
}

#[test]
fn two_passes_of_the_trainer_show_how_far_rounding_goes() {
    let place = Samples::new();
    let side = |name: &str, off: f64, from: usize| {
        let rows = Samples::rows(|sample, t, token, value| {
            let sign = if (sample + t).is_multiple_of(2) { off } else { -off };
            let moved = if t >= from { value + sign } else { value + sign.signum() * 0.02 };
            format!("{sample},{t},{token},{moved}\n")
        });
        place.write(name, &format!("sample,position,token_id,logprob\n{rows}"))
    };
    let (rollout, trainer) = (side("a.csv", 0.0, 0), side("b.csv", 0.02, 0));
    let (code, report) = compared(&[&rollout, &trainer]);
    assert_eq!((code, causes(&report)), (0, vec![]), "bfloat16 is assumed to leave 0.03");
    let second = |off: f64, from: usize| side(&format!("{off}-{from}.csv"), off, from);
    let none: Vec<&str> = Vec::new();
    let equal_but_two = second(0.05, 7);
    for (second, expected) in [
        (second(0.016, 0), vec!["weights"]),
        (second(0.032, 0), none.clone()),
        (second(0.02, 0), none.clone()),
        (equal_but_two, none),
    ] {
        let (code, report) = compared(&[&rollout, &trainer, Path::new("--again"), &second]);
        assert_eq!(
            (code, causes(&report)),
            (i32::from(!expected.is_empty()), expected),
            "{}",
            second.display()
        );
    }
}

#[test]
fn a_few_tokens_at_the_edge_of_top_p_are_rounding() {
    let place = Samples::new();
    let side = |name: &str, lost: usize| {
        let row = |at: usize| {
            let (sample, t) = (at / 40, at % 40);
            let value = super::logprob(sample, t);
            let value = if at % 13 == 5 && at / 13 < lost { "-inf".to_owned() } else { value.to_string() };
            format!("{sample},{t},{},{value}\n", 5 + at % 90)
        };
        let rows: String = (0..560).map(row).collect();
        place.write(name, &format!("sample,position,token_id,logprob\n{rows}"))
    };
    let rollout = side("rollout.csv", 0);
    for (lost, expected) in [(4, vec![]), (7, vec![]), (12, vec!["truncation"]), (40, vec!["truncation"])] {
        let (_, report) = compared(&[&rollout, &side("trainer.csv", lost)]);
        assert_eq!(causes(&report), expected, "{lost} of 560");
    }
}
