//! How weights that differ are told apart.

use super::*;

#[test]
fn weights_that_part_in_training_are_judged_by_how_far() {
    for (first, verdict) in [(1.01, Verdict::Note), (8.0, Verdict::Diff)] {
        let mut candidate = gpu();
        let weight = &mut weights(&mut candidate).steps[1].tensors[0];
        (weight.hash, weight.unordered_hash, weight.sketch) = (Some(hash("x")), None, Some(sketch(first)));
        let outcome = compare(&gpu(), &candidate);
        assert_eq!(outcome.part(Part::Weights).unwrap().verdict, verdict, "{:#?}", found(&outcome));
    }
}

#[test]
fn weights_that_start_apart_explain_those_that_part_later() {
    let two_ranks = || {
        let mut draft = gpu();
        draft.ranks.insert(1, gpu().ranks.remove(&0).unwrap());
        draft
    };
    let part = |draft: &mut PackDraft, rank: u32, step: usize| {
        let tensors = &mut draft.ranks.get_mut(&rank).unwrap().weights.as_mut().unwrap().steps[step].tensors;
        (tensors[0].hash, tensors[0].unordered_hash, tensors[0].sketch) =
            (Some(hash("x")), None, Some(sketch(8.0)));
    };
    let mut candidate = two_ranks();
    part(&mut candidate, 0, 1);
    let verdicts = |candidate: &PackDraft| -> Vec<(Option<u64>, Vec<u32>, Verdict)> {
        let outcome = compare(&two_ranks(), candidate);
        let rows = outcome.part(Part::Weights).unwrap().rows.iter();
        rows.filter(|row| row.verdict != Verdict::Match)
            .map(|row| (row.step, row.ranks.clone(), row.verdict))
            .collect()
    };
    assert_eq!(verdicts(&candidate), [(Some(1), vec![0], Verdict::Diff)]);
    // Another rank had other weights before: the first thing that is said, and the cause of the rest.
    part(&mut candidate, 1, 0);
    assert_eq!(verdicts(&candidate), [(Some(0), vec![1], Verdict::Diff), (Some(1), vec![0], Verdict::Note)]);
}

#[test]
fn nan_on_both_sides_is_a_match_that_says_so() {
    let mut both = [gpu(), gpu()];
    for draft in &mut both {
        weights(draft).steps[0].tensors[0].statistics.as_mut().unwrap().nan = Some(2);
    }
    let outcome = compare(&both[0], &both[1]);
    let row = outcome.part(Part::Weights).unwrap().rows[0].clone();
    assert_eq!((row.verdict, &*row.reason), (Verdict::Match, "the same bytes, including NaN"));
}

#[test]
fn tensors_without_elements_are_no_match() {
    let emptied = || {
        let mut draft = gpu();
        for tensor in weights(&mut draft).steps.iter_mut().flat_map(|step| &mut step.tensors) {
            (tensor.shape, tensor.hash) = (Some(vec![0]), Some(hash("nothing")));
        }
        draft
    };
    let outcome = compare(&emptied(), &emptied());
    let part = outcome.part(Part::Weights).unwrap();
    assert_eq!(part.verdict, Verdict::Unknown, "{part:#?}");
    assert!(part.rows.iter().any(|row| row.reason.contains("no tensor held any elements")));
}
