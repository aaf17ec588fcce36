//! Steps and samples that one side lacks.

use serde_json::json;

use super::{Samples, compared};
use crate::support::command::probe;

#[test]
fn a_step_that_one_side_lacks_is_not_compared() {
    let place = Samples::new();
    // The name of a file says its step where the rows do not.
    let side = |folder: &str, steps: &[u32]| {
        for step in steps {
            let rows = Samples::rows(|sample, t, token, value| {
                format!("{sample},{t},{},{value}\n", token + 100 * step)
            });
            place.write(
                &format!("{folder}/step{step}.csv"),
                &format!("sample,position,token_id,logprob\n{rows}"),
            );
        }
        place.folder.path().join(folder)
    };
    let (all, some) = (side("all", &[1, 2, 3]), side("some", &[1, 3]));
    for (rollout, trainer, lacks) in [(&all, &some, "trainer"), (&some, &all, "rollout")] {
        let (code, report) = compared(&[rollout, trainer]);
        assert_eq!((code, &report["verdict"], &report["tokens"]), (3, &json!("incomplete"), &json!(30)));
        let answer = format!("incomplete: the {lacks} has nothing of step 2 (30 tokens in 2 steps)");
        assert_eq!(report["answer"], json!(answer));
        let line = format!("step 2: the {lacks} has no log-probabilities of it; not compared");
        assert_eq!(report["incomplete"], json!([line]));
    }
    let (code, _) = compared(&[&all, &all]);
    assert_eq!(code, 0);
    let other = side("other", &[2]).display().to_string();
    let (code, _, error) = probe(&["rollout", &some.display().to_string(), &other, "--format", "json"]);
    assert!(code == 2 && error.contains("it has 2, the rollout 1, 3; record both of one step"), "{error}");
}

#[test]
fn a_sample_without_values_of_one_side_is_not_compared() {
    let place = Samples::new();
    let rows = Samples::rows(|sample, t, token, value| {
        let trainer = if sample == 1 { String::new() } else { value.to_string() };
        format!("{sample},{t},{token},{value},{trainer}\n")
    });
    let file =
        place.write("a.csv", &format!("sample,position,token_id,rollout_logprob,trainer_logprob\n{rows}"));
    let (code, report) = compared(&[&file]);
    let line = "step 0: the trainer has no log-probabilities of sample 1; not compared";
    assert_eq!((code, &report["incomplete"]), (3, &json!([line])));
    let (_, said, _) = probe(&["rollout", &file.display().to_string(), "-o", "-"]);
    assert!(said.starts_with("incomplete: 1 sample of one side alone, first in step 0 (11 tokens"), "{said}");
    assert!(said.contains("lacking   step 0: the trainer has no log-probabilities of sample 1;"), "{said}");
}
