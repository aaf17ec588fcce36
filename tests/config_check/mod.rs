//! Two packs: every difference is found by its own part, and nothing else is called one.

mod differences;
mod frameworks;
mod weights;

use crate::support::pack_builder::{PackDraft, gpu, hash, npu, record, sketch, weight};
use crate::support::testdata;
use probe::config_check::pack::{
    Argument, Content, HyperparameterSource, Package, SeedCall, Setting, TensorKind, Weights,
};
use probe::config_check::{ConfigOptions, Outcome, Part, Verdict, check};
use serde_json::json;

fn compare(a: &PackDraft, b: &PackDraft) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (a.write(folder.path(), "a.zip"), b.write(folder.path(), "b.zip"));
    check(&a, &b, &ConfigOptions::default()).unwrap()
}

/// Everything that is no match, for messages.
fn found(outcome: &Outcome) -> Vec<String> {
    outcome
        .parts
        .iter()
        .flat_map(|part| part.rows.iter().map(move |row| (part.part, row)))
        .filter(|(_, row)| row.verdict > Verdict::Expected)
        .map(|(part, row)| {
            format!(
                "{} {part} {} {:?} {:?} {}",
                row.verdict, row.key, row.baseline, row.candidate, row.reason
            )
        })
        .collect()
}

#[test]
fn a_pack_matches_itself() {
    let outcome = compare(&gpu(), &gpu());
    assert_eq!(outcome.count(Verdict::Diff) + outcome.count(Verdict::Unknown), 0, "{:#?}", found(&outcome));
    for part in &outcome.parts {
        let wanted = if part.part == Part::Env { Verdict::Note } else { Verdict::Match };
        assert_eq!(part.verdict, wanted, "{}: {:#?}", part.part, found(&outcome));
    }
}

#[test]
fn an_aligned_gpu_and_npu_have_no_difference() {
    for (a, b) in [(gpu(), npu()), (npu(), gpu())] {
        let outcome = compare(&a, &b);
        assert_eq!(outcome.count(Verdict::Diff), 0, "{:#?}", found(&outcome));
        assert_eq!(outcome.count(Verdict::Unknown), 0, "{:#?}", found(&outcome));
        let verdict = |part| outcome.part(part).unwrap().verdict;
        for part in [
            Part::Pip,
            Part::Flags,
            Part::Random,
            Part::Model,
            Part::Weights,
            Part::Optimizer,
            Part::Distributed,
        ] {
            assert_eq!(verdict(part), Verdict::Expected, "{part}: {:#?}", found(&outcome));
        }
    }
}

fn env(draft: &mut PackDraft, name: &str, value: &str) {
    draft.parts().env.as_mut().unwrap().values.insert(name.into(), value.into());
}

fn package(draft: &mut PackDraft, name: &str, version: &str) {
    let packages = &mut draft.parts().pip.as_mut().unwrap().packages;
    packages.retain(|package| package.name != name);
    packages.push(Package { name: name.into(), version: version.into(), ..Package::default() });
}

fn weights(draft: &mut PackDraft) -> &mut Weights {
    draft.parts().weights.as_mut().unwrap()
}

/// Draws more numbers from a generator, from a mark on.
fn draw(draft: &mut PackDraft, generator: &str, from: usize) {
    for mark in draft.parts().random.as_mut().unwrap().marks.iter_mut().skip(from) {
        let state = mark.generators.get_mut(generator).unwrap();
        state.draws = state.draws.map(|draws| draws + 3);
        state.state = Some(hash(&format!("{generator} {:?} more", state.draws)));
    }
}

fn arguments(draft: &mut PackDraft, step: usize) -> &mut Vec<Argument> {
    &mut draft.parts().dataset.as_mut().unwrap().steps[step].arguments
}

fn option(draft: &mut PackDraft, key: &str, value: Setting) {
    let options = &mut draft.parts().optimizer.as_mut().unwrap().groups[0].options;
    options.0.retain(|(name, _)| name != key);
    options.0.push((key.into(), value));
}

fn argument_value(draft: &mut PackDraft, key: &str, value: Setting) {
    let values = &mut draft.parts().hyperparameters.as_mut().unwrap().sources[0].values;
    values.0.retain(|(name, _)| name != key);
    values.0.push((key.into(), value));
}

fn samples(content: &mut Content, change: fn(&mut Vec<String>)) {
    let Content::Tensor(tensor) = content else { panic!("a tensor") };
    change(tensor.samples.as_mut().unwrap());
    tensor.hash = Some(hash(&tensor.samples.as_ref().unwrap().concat()));
}

#[test]
fn full_names_of_arguments_come_before_last_names() {
    let mut candidate = gpu();
    let values = &mut candidate.parts().hyperparameters.as_mut().unwrap().sources[0].values;
    values.0.retain(|(name, _)| name != "learning_rate");
    let outcome = compare(&gpu(), &candidate);
    let part = outcome.part(Part::Hyperparameters).unwrap();
    let row = part.rows.iter().find(|row| row.key == "learning_rate").unwrap();
    // `data.lr` is another argument, whatever its last name says.
    assert_eq!((row.verdict, &row.candidate), (Verdict::Unknown, &None));
    assert_eq!(part.rows.iter().find(|row| row.key == "data.lr").unwrap().verdict, Verdict::Match);
}

#[test]
fn programs_without_arguments_are_a_note() {
    let without = || {
        let mut draft = gpu();
        draft.parts().hyperparameters.as_mut().unwrap().sources.clear();
        draft
    };
    let outcome = compare(&without(), &without());
    let part = outcome.part(Part::Hyperparameters).unwrap();
    assert_eq!((part.verdict, part.rows.len()), (Verdict::Note, 1), "{part:#?}");
}

#[test]
fn the_same_argument_from_another_source_is_found() {
    let mut candidate = gpu();
    let hyperparameters = candidate.parts().hyperparameters.as_mut().unwrap();
    let values = std::mem::take(&mut hyperparameters.sources[0].values);
    hyperparameters.sources =
        vec![HyperparameterSource { source: "yaml".into(), name: "a.yaml".into(), values }];
    let outcome = compare(&gpu(), &candidate);
    assert_eq!(
        outcome.part(Part::Hyperparameters).unwrap().count(Verdict::Unknown),
        0,
        "{:#?}",
        found(&outcome)
    );
}

#[test]
fn several_ranks_that_agree_make_one_row() {
    let several = || {
        let mut draft = gpu();
        for rank in 1..8 {
            let other = gpu().ranks.remove(&0).unwrap();
            draft.ranks.insert(rank, other);
        }
        draft
    };
    let mut candidate = several();
    candidate.ranks.get_mut(&3).unwrap().weights.as_mut().unwrap().steps[0].tensors[0].hash =
        Some(hash("other"));
    let outcome = compare(&several(), &candidate);
    let rows = &outcome.part(Part::Weights).unwrap().rows;
    let rows: Vec<_> = rows.iter().filter(|row| row.key == "emb.weight" && row.step == Some(0)).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].ranks, [0, 1, 2, 4, 5, 6, 7]);
    assert_eq!((rows[1].ranks.as_slice(), rows[1].verdict), (&[3][..], Verdict::Diff));
}

#[test]
fn parts_left_out_on_purpose_are_notes_and_others_unknown() {
    let without = |reason: Option<&str>| {
        let mut draft = gpu();
        draft.parts().scaler = None;
        if let Some(reason) = reason {
            draft.absent.insert("scaler".into(), reason.into());
        }
        draft
    };
    for (reason, verdict) in [(None, Verdict::Unknown), (Some("no scaler was given"), Verdict::Note)] {
        let outcome = compare(&without(reason), &without(reason));
        assert_eq!(outcome.part(Part::Scaler).unwrap().verdict, verdict);
    }
    let outcome = compare(&gpu(), &without(Some("no scaler was given")));
    let part = outcome.part(Part::Scaler).unwrap();
    assert_eq!(part.verdict, Verdict::Unknown);
    assert!(part.rows[0].reason.contains("no scaler was given"), "{part:#?}");
}

#[test]
fn a_generator_that_neither_side_seeded_is_no_difference_until_it_is_used() {
    let with_numpy = |state: &str, untouched: bool| {
        let mut draft = gpu();
        let random = draft.parts().random.as_mut().unwrap();
        random.seeds.remove("numpy");
        random.calls.retain(|call| !call.function.starts_with("numpy"));
        for mark in &mut random.marks {
            let numpy = mark.generators.get_mut("numpy").unwrap();
            (numpy.state, numpy.draws, numpy.untouched) = (Some(hash(state)), None, untouched);
        }
        draft
    };
    for (untouched, verdict, reason) in [
        (true, Verdict::Note, "nothing was drawn from it so far"),
        (false, Verdict::Diff, "neither side seeded it, and numbers were drawn from it"),
    ] {
        let outcome = compare(&with_numpy("a", untouched), &with_numpy("b", untouched));
        let part = outcome.part(Part::Random).unwrap();
        let row = part.rows.iter().find(|row| row.key.starts_with("numpy at")).unwrap();
        assert_eq!((part.verdict, row.verdict), (verdict, verdict), "{part:#?}");
        assert!(row.reason.contains(reason), "{row:#?}");
    }
}

#[test]
fn parameters_that_are_trained_and_not_packed_are_told() {
    let row = |outside: Option<u64>| {
        let mut draft = gpu();
        draft.parts().optimizer.as_mut().unwrap().outside = outside;
        let outcome = compare(&draft, &gpu());
        let rows = &outcome.part(Part::Optimizer).unwrap().rows;
        rows.iter().find(|row| row.key == "outside of the model").cloned()
    };
    let told = row(Some(3)).unwrap();
    assert_eq!(
        (told.verdict, told.baseline.as_deref(), told.candidate),
        (Verdict::Unknown, Some("3 parameters"), None)
    );
    assert!(row(Some(0)).is_none() && row(None).is_none());
}

#[test]
fn rules_of_the_user_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    let text = "[[rule]]\npart = \"optimizer\"\nkey = \"group *.lr\"\nverdict = \"expected\"\nwhy = \"we sweep it\"\n";
    std::fs::write(&rules, text).unwrap();
    let mut candidate = gpu();
    option(&mut candidate, "lr", Setting::Float(2e-3));
    let (a, b) = (gpu().write(folder.path(), "a.zip"), candidate.write(folder.path(), "b.zip"));
    let options = ConfigOptions { rules: Some(rules), ..ConfigOptions::default() };
    let outcome = check(&a, &b, &options).unwrap();
    let row = outcome
        .part(Part::Optimizer)
        .unwrap()
        .rows
        .iter()
        .find(|row| row.key == "group 0.lr")
        .unwrap()
        .clone();
    assert_eq!((row.verdict, &*row.reason), (Verdict::Expected, "we sweep it"));
    assert_eq!(outcome.count(Verdict::Diff), 0);
}

#[test]
fn packs_of_the_older_tool_are_checked_as_far_as_they_go() {
    let of = |name: &str| testdata("packs").join(name);
    let compare = |a: &str, b: &str| check(&of(a), &of(b), &ConfigOptions::default()).unwrap();
    let aligned = compare("base.zip", "npu_aligned.zip");
    assert_eq!(aligned.count(Verdict::Diff), 0, "{:#?}", found(&aligned));
    assert_eq!(aligned.pair.to_string(), "GPU and NPU");
    // Things that such a pack does not hold are never equal.
    for part in [Part::Weights, Part::Dataset, Part::Random, Part::Flags, Part::Optimizer, Part::Model] {
        assert_eq!(aligned.part(part).unwrap().verdict, Verdict::Unknown, "{part}");
    }
    let nudged = compare("base.zip", "weight_nudge_1e-3.zip");
    let rows: Vec<_> =
        nudged.part(Part::Weights).unwrap().rows.iter().filter(|row| row.verdict == Verdict::Diff).collect();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!((&*rows[0].key, rows[0].step), ("fc1.weight", Some(0)));
    assert_eq!(nudged.count(Verdict::Diff), 1, "{:#?}", found(&nudged));
    let secret = compare("base.zip", "secrets.zip");
    assert_eq!(secret.count(Verdict::Diff), 0, "{:#?}", found(&secret));
    assert!(secret.part(Part::Env).unwrap().rows.iter().any(|row| row.key == "HF_TOKEN"));
}

#[test]
fn a_pack_of_each_tool_can_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    let ours = gpu().write(folder.path(), "ours.zip");
    let outcome = check(&testdata("packs").join("base.zip"), &ours, &ConfigOptions::default()).unwrap();
    assert_eq!(outcome.part(Part::Flags).unwrap().verdict, Verdict::Unknown);
    assert!(
        outcome
            .part(Part::Pip)
            .unwrap()
            .rows
            .iter()
            .any(|row| row.key == "numpy" && row.verdict == Verdict::Match)
    );
}

#[test]
fn names_of_our_builder_are_those_of_the_format() {
    assert_eq!(weight("w", 0).kind, Some(TensorKind::Parameter));
    assert!(record(json!({"a": 1})).get("a").is_some());
}
