//! A pack of PyTorch against one of MindSpore: what the frameworks name or have differently is no difference, what the user set is.

use super::{compare, found};
use crate::support::pack_builder::{PackDraft, gpu, hash, npu, record};
use probe::config_check::pack::{Content, GeneratorState, Package};
use probe::config_check::{Part, Verdict};
use serde_json::json;

/// The run of [`npu`] in MindSpore.
fn mindspore() -> PackDraft {
    const NAMES: [(&str, &str); 2] =
        [("emb.weight", "emb.embedding_table"), ("norm.running_mean", "norm.moving_mean")];
    let own = |name: &mut String| {
        if let Some((_, own)) = NAMES.iter().find(|(torch, _)| name == torch) {
            (*own).clone_into(name);
        }
    };
    let mut draft = npu();
    draft.framework = Some("mindspore".into());
    let parts = draft.parts();
    let packages = &mut parts.pip.as_mut().unwrap().packages;
    packages.retain(|package| !package.name.starts_with("torch"));
    packages.push(Package { name: "mindspore".into(), version: "2.10.0".into(), ..Package::default() });
    parts.flags = Some(record(json!({
        "deterministic_algorithms": true, "compute_dtype": "float32", "mindspore": {"mode": "PYNATIVE"},
        "npu": {"matmul": {"allow_hf32": false}, "conv": {"allow_hf32": false}},
    })));
    let random = parts.random.as_mut().unwrap();
    let seeds = ["python", "numpy", "mindspore", "mindspore.generator"];
    random.seeds = seeds.map(|name| (name.to_owned(), Some(1234))).into();
    for mark in &mut random.marks {
        mark.generators.retain(|name, _| matches!(&**name, "python" | "numpy"));
        for name in ["mindspore", "mindspore.generator"] {
            let state = GeneratorState { seed: Some(1234), ..GeneratorState::default() };
            mark.generators.insert(name.into(), state);
        }
    }
    let model = parts.model.as_mut().unwrap();
    for module in &mut model.modules {
        match &*module.class {
            "Linear" => {
                module.class = "Dense".into();
                module.extra = "in_channels=16, out_channels=16, has_bias=True".into();
            }
            "LayerNorm" => module.extra = "normalized_shape=(16,), begin_norm_axis=-1, epsilon=1e-05".into(),
            _ => module.extra = String::new(),
        }
    }
    model.tensors.iter_mut().for_each(|tensor| own(&mut tensor.name));
    model.tied.iter_mut().flatten().for_each(&own);
    for step in &mut parts.weights.as_mut().unwrap().steps {
        step.tensors.iter_mut().for_each(|tensor| own(&mut tensor.name));
    }
    for step in &mut parts.dataset.as_mut().unwrap().steps {
        if let Content::Tensor(tokens) = &mut step.arguments[0].content {
            tokens.dtype = Some("int32".into());
            tokens.hash = Some(hash("in 32 bits"));
        }
    }
    let optimizer = parts.optimizer.as_mut().unwrap();
    optimizer.groups[0].options = record(
        json!({"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "amsgrad": false}),
    );
    optimizer.groups[0].parameters.iter_mut().for_each(own);
    optimizer.state_dtypes = [("moments1".to_owned(), "float32".to_owned())].into();
    optimizer.accumulation = None;
    draft
}

#[test]
fn aligned_packs_of_two_frameworks_have_no_difference() {
    for (a, b) in [(gpu(), mindspore()), (mindspore(), gpu())] {
        let outcome = compare(&a, &b);
        assert_eq!(outcome.count(Verdict::Diff), 0, "{:#?}", found(&outcome));
        assert_eq!(outcome.count(Verdict::Unknown), 0, "{:#?}", found(&outcome));
        for (part, reason) in [
            (Part::Model, "MindSpore's name for PyTorch's Linear"),
            (Part::Random, "each framework has a generator of its own"),
            (Part::Flags, "a switch of one framework alone"),
            (Part::Dataset, "integers of another width"),
        ] {
            let rows = &outcome.part(part).unwrap().rows;
            assert!(rows.iter().any(|row| row.reason.contains(reason)), "{part}: {rows:#?}");
        }
        let weights = &outcome.part(Part::Weights).unwrap();
        assert!(weights.verdict <= Verdict::Expected, "{:#?}", found(&outcome));
    }
}

#[test]
fn what_differs_in_the_program_is_found_across_frameworks() {
    type Change = fn(&mut PackDraft);
    let changes: [(Part, &str, Change); 6] = [
        (Part::Weights, "emb.weight", |pack| {
            let step = &mut pack.parts().weights.as_mut().unwrap().steps[0];
            step.tensors[0].hash = Some(hash("other"));
        }),
        (Part::Random, "seed of torch", |pack| {
            pack.parts().random.as_mut().unwrap().seeds.insert("mindspore".into(), Some(7));
        }),
        (Part::Flags, "deterministic_algorithms", |pack| {
            let flags = json!({"deterministic_algorithms": false, "compute_dtype": "float32"});
            pack.parts().flags = Some(record(flags));
        }),
        (Part::Model, "norm", |pack| {
            pack.parts().model.as_mut().unwrap().modules[3].extra = "epsilon=1e-07".into();
        }),
        (Part::Model, "fc1.bias", |pack| pack.parts().model.as_mut().unwrap().tensors[2].shape = vec![8]),
        (Part::Optimizer, "group 0.lr", |pack| {
            let options = json!({"lr": 2e-3, "eps": 1e-8});
            pack.parts().optimizer.as_mut().unwrap().groups[0].options = record(options);
        }),
    ];
    for (part, key, change) in changes {
        let mut pack = mindspore();
        change(&mut pack);
        let outcome = compare(&gpu(), &pack);
        let rows = outcome.part(part).unwrap().rows.iter();
        let differing: Vec<&str> =
            rows.filter(|row| row.verdict == Verdict::Diff).map(|row| &*row.key).collect();
        assert_eq!(differing, [key], "{part}: {:#?}", found(&outcome));
    }
}

#[test]
fn two_packs_of_mindspore_are_compared_by_their_own_names() {
    let outcome = compare(&mindspore(), &mindspore());
    assert_eq!(outcome.count(Verdict::Diff) + outcome.count(Verdict::Unknown), 0, "{:#?}", found(&outcome));
    let mut graph = mindspore();
    let flags = json!({"deterministic_algorithms": true, "mindspore": {"mode": "GRAPH"}});
    graph.parts().flags = Some(record(flags));
    let outcome = compare(&mindspore(), &graph);
    let rows = outcome.part(Part::Flags).unwrap().rows.iter();
    assert!(rows.clone().any(|row| row.key == "mindspore.mode" && row.verdict == Verdict::Diff));
}
