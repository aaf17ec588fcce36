//! Formats, and how the files of both sides are joined.

use serde_json::{Value, json};

use super::{PROMPT, Samples, TOKENS, compared, data, logprob};

#[test]
fn one_pair_has_the_same_size_in_every_format() {
    let (code, slime) = compared(&[&data("slime_train_0_0.pt")]);
    assert_eq!((code, &slime["formats"][0]), (0, &json!("slime")));
    let (code, differences) = compared(&[&data("prob_diff_step_1.npy")]);
    assert_eq!(code, 0);
    assert_eq!(differences["probabilities"][0]["tokens"], slime["tokens"]);
    let (mean, other) =
        (&differences["probabilities"][0]["mean"], &slime["steps"][0]["all"]["mean_probability"]);
    assert!((mean.as_f64().unwrap() - other.as_f64().unwrap()).abs() < 1e-6, "{mean} {other}");
}

#[test]
fn every_one_sided_format_joins_with_every_other() {
    let place = Samples::new();
    let csv = Samples::rows(|sample, t, token, value| format!("{sample},{t},{token},{value}\n"));
    let plain = Samples::rows(|sample, t, token, value| {
        format!("{}\n", json!({"sample": sample, "position": t, "token_id": token, "logprob": value}))
    });
    let values = |sample: usize| (PROMPT..TOKENS[sample].len()).map(move |t| logprob(sample, t));
    let chat: Vec<String> = (0..3)
        .map(|sample| {
            let content: Vec<Value> = values(sample).map(|value| json!({"token": "x", "logprob": value})).collect();
            let body = json!({"prompt_token_ids": &TOKENS[sample][..PROMPT],
                "choices": [{"index": 0, "token_ids": &TOKENS[sample][PROMPT..], "logprobs": {"content": content}}]});
            format!("{}\n", json!({"custom_id": sample.to_string(), "response": {"status_code": 200, "body": body}}))
        })
        .collect();
    let native: Vec<String> = (0..3)
        .map(|sample| {
            let triples: Vec<Value> = values(sample)
                .zip(&TOKENS[sample][PROMPT..])
                .map(|(value, token)| json!([value, token, null]))
                .collect();
            let info =
                json!({"prompt_tokens": PROMPT, "output_token_logprobs": triples, "weight_version": "3"});
            format!("{}\n", json!({"text": "", "meta_info": info}))
        })
        .collect();
    let miles: Vec<Value> = (0..3)
        .map(|sample| {
            let entry = |t: usize| {
                json!({"global_position": t, "token_id": TOKENS[sample][t], "logprob": logprob(sample, t), "is_valid": true})
            };
            (PROMPT..TOKENS[sample].len()).map(entry).collect()
        })
        .collect();
    let files = [
        place.write("a.csv", &format!("sample,position,token_id,logprob\n{csv}")),
        place.write("b.jsonl", &plain),
        place.write("c.jsonl", &chat.concat()),
        place.write("d.jsonl", &native.concat()),
        place.write("rank_0.json", &json!({"logprob_entries": miles}).to_string()),
    ];
    for rollout in &files {
        for trainer in &files {
            let (code, report) = compared(&[rollout, trainer]);
            let label = format!("{} {}", rollout.display(), trainer.display());
            assert_eq!((code, &report["tokens"]), (0, &json!(15)), "{label}: {report:#}");
            assert!(report["steps"][0]["all"]["max_abs"].as_f64().unwrap() < 1e-6, "{label}");
        }
    }
}

#[test]
fn ranks_that_share_a_context_are_put_together() {
    let place = Samples::new();
    let entries = |rank: usize| {
        let all: Vec<Value> = (0..3)
            .map(|sample| {
                (PROMPT..TOKENS[sample].len())
                    .filter(|t| t % 2 == rank)
                    .map(|t| json!({"global_position": t, "token_id": TOKENS[sample][t], "logprob": logprob(sample, t)}))
                    .collect()
            })
            .collect();
        json!({"logprob_entries": all}).to_string()
    };
    for rank in 0..2 {
        place.write(&format!("train/rank_{rank}.json"), &entries(rank));
    }
    let csv = Samples::rows(|sample, t, token, value| format!("{sample},{t},{token},{value}\n"));
    let rollout = place.write("rollout.csv", &format!("sample,position,token_id,logprob\n{csv}"));
    let (code, report) = compared(&[&rollout, &place.folder.path().join("train")]);
    assert_eq!((code, &report["tokens"]), (0, &json!(15)), "{report:#}");
}
