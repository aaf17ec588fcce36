//! Experts of both sides, in plain tables and in slime's arrays.

use std::fmt::Write as _;

use serde_json::json;

use super::{Samples, causes, compared, data};
use crate::support::command::probe;

/// Rows as a plain table has them in JSON Lines, with experts of both sides: those of the trainer are `moved`.
fn with_experts(moved: impl Fn(u32) -> u32) -> String {
    let mut out = String::new();
    for sample in 0..6_u32 {
        for t in 0..40_u32 {
            let own = (7 * sample + 3 * t) % 8;
            let value = -0.1 - 0.05 * f64::from(t % 7);
            let noise = if (sample + t).is_multiple_of(2) { 1e-4 } else { -1e-4 };
            _ = writeln!(
                out,
                "{}",
                json!({"sample": sample, "position": t, "token_id": 10 + t, "rollout_logprob": value, "trainer_logprob": value + noise,
                    "rollout_routed_experts": [[own, 8], [own, 9]], "trainer_routed_experts": [[own, 8], [moved(own), 9]],
                    "trainer_router_margins": [0.2, 0.3]})
            );
        }
    }
    out
}

#[test]
fn experts_of_a_plain_table_are_compared_and_written() {
    let place = Samples::new();
    let sound = place.write("sound.jsonl", &with_experts(|expert| expert));
    let (code, report) = compared(&[&sound]);
    assert_eq!(code, 0, "{report:#}");
    let wrong = place.write("wrong.jsonl", &with_experts(|expert| expert ^ 1));
    let out = place.folder.path().join("out");
    let (code, said, _) = probe(&["rollout", &wrong.display().to_string(), "-o", &out.display().to_string()]);
    assert_eq!(code, 1, "{said}");
    // The table holds the experts.
    for file in [wrong, out.join("tokens.parquet")] {
        let (code, report) = compared(&[&file]);
        assert_eq!((code, causes(&report)), (1, vec!["routing"]));
        let evidence = report["steps"][0]["findings"][0]["evidence"].as_str().unwrap();
        assert!(evidence.contains("router 1 (from 0)") && evidence.contains("0 is 1"), "{evidence}");
    }
    let other = with_experts(|expert| expert).replacen("[[", "[[99999,1],[", 1);
    let (code, _, error) =
        probe(&["rollout", &place.write("other.jsonl", &other).display().to_string(), "--format", "json"]);
    assert!(code == 2 && error.contains("line 1: 99999 is not an expert"), "{error}");
}

#[test]
fn experts_of_slime_are_arrays_of_numpy() {
    let (rollout, trainer) = (data("slime_experts_rollout_3.pt"), data("slime_experts_train_3.pt"));
    let (code, report) = compared(&[&rollout, &trainer]);
    assert_eq!(
        (code, causes(&report), &report["steps"][0]["step"]),
        (1, vec!["routing"], &json!(3)),
        "{report:#}"
    );
}
