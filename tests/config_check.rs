//! Two packs: every difference is found by its own part, and nothing else is called one.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use probe::config_check::pack::{
    Argument, Content, HyperparameterSource, Package, SeedCall, Setting, TensorKind, Weights,
};
use probe::config_check::{ConfigOptions, Outcome, Part, Verdict, check};
use serde_json::json;
use support::pack_builder::{PackDraft, gpu, hash, npu, record, sketch, weight};
use support::testdata;

/// One thing that is changed in the candidate, and how it must be found.
struct Case {
    name: &'static str,
    part: Part,
    verdict: Verdict,
    /// The row that must say so, and what its reason must hold.
    key: &'static str,
    reason: &'static str,
    change: fn(&mut PackDraft),
}

const fn case(
    name: &'static str,
    part: Part,
    verdict: Verdict,
    key: &'static str,
    reason: &'static str,
    change: fn(&mut PackDraft),
) -> Case {
    Case { name, part, verdict, key, reason, change }
}

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
fn each_difference_is_found_by_its_own_part() {
    use Part::{
        Coverage, Dataloader, Dataset, Distributed, Env, Flags, Hyperparameters, Model, Optimizer, Pip,
        Platform, Random, Scaler, Schedule, Source,
    };
    use Verdict::{Diff, Expected, Match, Note, Unknown};
    let cases = [
        case("driver", Platform, Diff, "gpu.driver", "driver", |d| {
            d.set(Platform, "gpu.driver", json!("570.1"));
        }),
        case("python", Platform, Note, "python", "minor", |d| d.set(Platform, "python", json!("3.10.9"))),
        case("devices", Platform, Diff, "device.count", "number of devices", |d| d.device.count = 2),
        case("other product", Platform, Note, "device.names", "", |d| {
            d.device.names = vec!["NVIDIA A100".into()];
        }),
        case("tf32 override", Env, Diff, "NVIDIA_TF32_OVERRIDE", "TF32", |d| {
            env(d, "NVIDIA_TF32_OVERRIDE", "1");
        }),
        case("cublas workspace", Env, Diff, "CUBLAS_WORKSPACE_CONFIG", "deterministic", |d| {
            env(d, "CUBLAS_WORKSPACE_CONFIG", ":16:8");
        }),
        case("hash seed", Env, Diff, "PYTHONHASHSEED", "walked", |d| env(d, "PYTHONHASHSEED", "1")),
        case("library path", Env, Note, "LD_LIBRARY_PATH", "libraries", |d| {
            env(d, "LD_LIBRARY_PATH", "/opt");
        }),
        case("visible devices", Env, Diff, "CUDA_VISIBLE_DEVICES", "number", |d| {
            env(d, "CUDA_VISIBLE_DEVICES", "0,1");
        }),
        case("other device", Env, Match, "CUDA_VISIBLE_DEVICES", "same number", |d| {
            env(d, "CUDA_VISIBLE_DEVICES", "1");
        }),
        case("default written out", Env, Match, "CUDA_LAUNCH_BLOCKING", "", |d| {
            env(d, "CUDA_LAUNCH_BLOCKING", "0");
        }),
        case("blocking", Env, Note, "CUDA_LAUNCH_BLOCKING", "waits", |d| env(d, "CUDA_LAUNCH_BLOCKING", "1")),
        case("time-out", Env, Expected, "NCCL_TIMEOUT", "time-outs", |d| env(d, "NCCL_TIMEOUT", "1")),
        case("unknown variable", Env, Note, "NOT_ASCENDING", "no effect", |d| {
            d.parts().env.as_mut().unwrap().names.push("NOT_ASCENDING".into());
        }),
        case("torch", Pip, Diff, "torch", "framework", |d| package(d, "torch", "2.6.0+cu126")),
        case("local version", Pip, Expected, "torch", "local part", |d| package(d, "torch", "2.7.1+cpu")),
        case("decoder", Pip, Diff, "pillow", "decoders", |d| package(d, "pillow", "12.0.0")),
        case("other package", Pip, Note, "tqdm", "not known", |d| package(d, "tqdm", "4.1")),
        case("letter case", Pip, Match, "pillow", "", |d| {
            d.parts().pip.as_mut().unwrap().packages.retain(|package| package.name != "pillow");
            package(d, "Pillow", "13.0.0");
        }),
        case("imported copy", Pip, Diff, "numpy", "computation", |d| {
            d.parts().pip.as_mut().unwrap().packages[1].imported = Some("1.26.4".into());
        }),
        case("commit", Pip, Diff, "transformers", "computation", |d| {
            d.parts().pip.as_mut().unwrap().packages[3].commit = Some("abc".into());
            d.parts().pip.as_mut().unwrap().packages[3].version = "4.51.4".into();
        }),
        case("torch-npu does not fit", Pip, Diff, "torch-npu for torch", "another version of torch", |d| {
            package(d, "torch-npu", "2.6.0");
        }),
        case("determinism", Flags, Diff, "deterministic_algorithms", "every run", |d| {
            d.set(Flags, "deterministic_algorithms", json!(false));
        }),
        case("tf32", Flags, Diff, "cuda.matmul.allow_tf32", "fewer bits", |d| {
            d.set(Flags, "cuda.matmul.allow_tf32", json!(true));
        }),
        case("matmul precision", Flags, Diff, "float32_matmul_precision", "fewer bits", |d| {
            d.set(Flags, "float32_matmul_precision", json!("high"));
        }),
        case("autocast off", Flags, Diff, "autocast.enabled", "lower precision", |d| {
            d.set(Flags, "autocast.enabled", json!(false));
        }),
        case("autocast dtype", Flags, Diff, "autocast.dtype", "largest", |d| {
            d.set(Flags, "autocast.dtype", json!("torch.float16"));
        }),
        case("dtype spelling", Flags, Match, "autocast.dtype", "", |d| {
            d.set(Flags, "autocast.dtype", json!("torch.bfloat16"));
        }),
        case("attention kernel", Flags, Note, "sdp.flash", "attention", |d| {
            d.set(Flags, "sdp.flash", json!(false));
        }),
        case("a flag nobody knows", Flags, Unknown, "new.flag", "one side only", |d| {
            d.set(Flags, "new", json!({"flag": 2}));
        }),
        case("seed", Random, Diff, "seed of numpy", "", |d| {
            d.parts().random.as_mut().unwrap().seeds.insert("numpy".into(), Some(4321));
            draw(d, "numpy", 0);
        }),
        case(
            "extra draw",
            Random,
            Diff,
            "torch at step 0",
            "from model to step 0 the baseline drew 24 numbers, the candidate 27",
            |d| draw(d, "torch", 2),
        ),
        case("extra seed call", Random, Note, "calls of torch.manual_seed", "more often", |d| {
            let call = SeedCall {
                function: "torch.manual_seed".into(),
                value: Some(1234),
                count: 1,
                place: Some("train.py:99 f".into()),
            };
            d.parts().random.as_mut().unwrap().calls.push(call);
        }),
        case("drawn on the device", Random, Note, "device_init", "by design", |d| {
            d.parts().random.as_mut().unwrap().device_init = Some(true);
        }),
        case(
            "shuffled batch",
            Dataset,
            Diff,
            "args.0",
            "the same 4 samples in another order, from sample 1",
            |d| {
                samples(&mut arguments(d, 1)[0].content, |samples| samples.swap(1, 2));
            },
        ),
        case("dropped sample", Dataset, Diff, "args.0", "3 of 4 samples are the same", |d| {
            samples(&mut arguments(d, 0)[0].content, |samples| {
                samples.remove(0);
                samples.push("0".repeat(32));
            });
        }),
        case("scalar argument", Dataset, Diff, "kwargs.scale", "another argument", |d| {
            arguments(d, 0)[2].content = Content::Value { value: Setting::Float(0.25) };
        }),
        case("scalar as text", Dataset, Match, "kwargs.scale", "another form", |d| {
            arguments(d, 0)[2].content = Content::Value { value: "5e-1".into() };
        }),
        case("missing argument", Dataset, Diff, "kwargs.scale", "does not", |d| _ = arguments(d, 0).pop()),
        case("other decoder", Dataset, Note, "kwargs.pixels", "decoder", |d| {
            let Content::Tensor(tensor) = &mut arguments(d, 0)[1].content else { panic!("a tensor") };
            tensor.samples = Some((0..4).map(|index| hash(&format!("decoded {index}"))).collect());
            tensor.hash = Some(hash("decoded"));
            tensor.statistics.as_mut().unwrap().mean = Some(49.500_001);
        }),
        case("tokenizer", Dataset, Diff, "file tokenizer.json", "", |d| {
            d.parts().dataset.as_mut().unwrap().files[0].bytes = 999;
        }),
        case("batch size", Dataloader, Diff, "batch_size", "", |d| d.set(Dataloader, "batch_size", json!(8))),
        case("pinned memory", Dataloader, Expected, "pin_memory", "", |d| {
            d.set(Dataloader, "pin_memory", json!(false));
        }),
        case("dropout", Model, Diff, "drop", "set up otherwise", |d| {
            d.parts().model.as_mut().unwrap().modules[4].extra = "p=0.2, inplace=False".into();
        }),
        case("fused layer norm", Model, Expected, "norm", "fused", |d| {
            d.parts().model.as_mut().unwrap().modules[3].class = "FusedLayerNorm".into();
        }),
        case("wrapped model", Model, Match, "modules", "", |d| {
            for module in &mut d.parts().model.as_mut().unwrap().modules {
                module.name = format!("module.{}", module.name).trim_end_matches('.').into();
            }
        }),
        case("evaluation", Model, Diff, "drop mode", "dropout", |d| {
            d.parts().model.as_mut().unwrap().modules[4].training = Some(false);
        }),
        case("order", Model, Diff, "order of modules", "another order", |d| {
            d.parts().model.as_mut().unwrap().modules.swap(1, 2);
        }),
        case("renamed module", Model, Note, "fc1 -> fc_one", "another name", |d| {
            d.parts().model.as_mut().unwrap().modules[2].name = "fc_one".into();
        }),
        case("frozen", Model, Diff, "fc1.weight", "trains it", |d| {
            d.parts().model.as_mut().unwrap().tensors[1].requires_grad = false;
        }),
        case("untied", Model, Diff, "tied weights", "gradient", |d| {
            d.parts().model.as_mut().unwrap().tied.clear();
        }),
        case(
            "nudged",
            Part::Weights,
            Diff,
            "fc1.weight",
            "nudged: by less than 3e-7 of its norm, the sum of its elements by 1.0e-7",
            |d| {
                let weight = &mut weights(d).steps[0].tensors[1];
                weight.hash = Some(hash("nudged"));
                weight.unordered_hash = Some(hash("nudged")[..16].into());
                weight.statistics.as_mut().unwrap().mean = Some(0.125 + 1e-7 / 256.0);
            },
        ),
        case("nudged more", Part::Weights, Diff, "fc1.weight", "nudged: by 6.2e-4 of its norm", |d| {
            let weight = &mut weights(d).steps[0].tensors[1];
            weight.hash = Some(hash("nudged"));
            weight.unordered_hash = Some(hash("nudged")[..16].into());
            weight.cast_hashes.clear();
            weight.sketch = Some(sketch(1.01));
        }),
        case("other values", Part::Weights, Diff, "fc1.weight", "other values", |d| {
            let weight = &mut weights(d).steps[0].tensors[1];
            weight.hash = Some(hash("other"));
            weight.unordered_hash = Some(hash("other")[..16].into());
            weight.cast_hashes.clear();
            weight.sketch = Some(sketch(20.0));
        }),
        case("permuted", Part::Weights, Diff, "fc1.weight", "permuted", |d| {
            weights(d).steps[0].tensors[1].hash = Some(hash("permuted"));
        }),
        case("cast", Part::Weights, Diff, "fc1.weight", "cast: the same values, rounded to bfloat16", |d| {
            let weight = &mut weights(d).steps[0].tensors[1];
            weight.hash = weight.cast_hashes.get("bfloat16").cloned();
            weight.dtype = Some("bfloat16".into());
            weight.cast_hashes.clear();
        }),
        case("buffer", Part::Weights, Diff, "norm.running_mean", "", |d| {
            weights(d).steps[0].tensors[3].hash = Some(hash("other"));
        }),
        case("renamed", Part::Weights, Note, "fc1.weight -> fc_one.weight", "renamed", |d| {
            for step in &mut weights(d).steps {
                step.tensors[1].name = "fc_one.weight".into();
            }
        }),
        case("missing", Part::Weights, Diff, "fc1.bias", "one side only", |d| {
            _ = weights(d).steps[0].tensors.remove(2);
        }),
        case("reshaped", Part::Weights, Diff, "fc1.weight", "another shape", |d| {
            weights(d).steps[0].tensors[1].shape = Some(vec![256]);
        }),
        case("learning rate", Optimizer, Diff, "group 0.lr", "updated", |d| {
            option(d, "lr", Setting::Float(2e-3));
        }),
        case("betas", Optimizer, Diff, "group 0.betas", "", |d| {
            option(d, "betas", Setting::List(vec![Setting::Float(0.9), Setting::Float(0.95)]));
        }),
        case("weight decay", Optimizer, Diff, "group 0.weight_decay", "", |d| {
            option(d, "weight_decay", Setting::Float(0.1));
        }),
        case("fused", Optimizer, Expected, "group 0.fused", "one kernel", |d| {
            option(d, "fused", Setting::Bool(true));
        }),
        case("optimizer", Optimizer, Diff, "class", "", |d| {
            d.parts().optimizer.as_mut().unwrap().class = "Adam".into();
        }),
        case("group", Optimizer, Diff, "group 0 parameters", "", |d| {
            _ = d.parts().optimizer.as_mut().unwrap().groups[0].parameters.pop();
        }),
        case("state", Optimizer, Diff, "state exp_avg", "", |d| {
            d.parts().optimizer.as_mut().unwrap().state_dtypes.insert("exp_avg".into(), "bfloat16".into());
        }),
        case("clip norm", Optimizer, Diff, "clipping", "", |d| {
            d.parts()
                .optimizer
                .as_mut()
                .unwrap()
                .clipping
                .as_mut()
                .unwrap()
                .iter_mut()
                .for_each(|clip| clip.limit = 0.5);
        }),
        case("no clipping", Optimizer, Diff, "clipping", "", |d| {
            d.parts().optimizer.as_mut().unwrap().clipping = Some(Vec::new());
        }),
        case("accumulation", Optimizer, Diff, "accumulation", "", |d| {
            d.parts().optimizer.as_mut().unwrap().accumulation.as_mut().unwrap()[0].optimizer = 0;
        }),
        case("schedule", Schedule, Diff, "rates", "from step 1 on", |d| {
            d.parts().schedule.as_mut().unwrap().rates[1] = vec![9.9e-4];
        }),
        case("schedule class", Schedule, Diff, "class", "", |d| {
            d.parts().schedule.as_mut().unwrap().class = "StepLR".into();
        }),
        case("scaler interval", Scaler, Diff, "growth_interval", "", |d| {
            d.set(Scaler, "growth_interval", json!(100));
        }),
        case("no scaler", Scaler, Diff, "class", "", |d| d.set(Scaler, "class", json!(null))),
        case("world size", Distributed, Diff, "world_size", "", |d| d.world_size = 2),
        case("wrapper", Distributed, Diff, "wrapper.kind", "", |d| {
            d.set(Distributed, "wrapper.kind", json!("FSDP"));
        }),
        case("reduction", Distributed, Diff, "reduce_dtype", "", |d| {
            d.set(Distributed, "reduce_dtype", json!("bfloat16"));
        }),
        case("argument", Hyperparameters, Diff, "hidden_size", "", |d| {
            argument_value(d, "hidden-size", Setting::Integer(32));
        }),
        case("argument as text", Hyperparameters, Match, "learning_rate", "another form", |d| {
            argument_value(d, "learning_rate", "1e-3".into());
        }),
        case("alias", Hyperparameters, Match, "learning_rate / lr", "", |d| {
            argument_value(d, "lr", Setting::Float(1e-3));
            d.parts().hyperparameters.as_mut().unwrap().sources[0]
                .values
                .0
                .retain(|(name, _)| name != "learning_rate");
        }),
        case("output folder", Hyperparameters, Note, "output_dir", "results", |d| {
            argument_value(d, "output_dir", "~/npu".into());
        }),
        case("compute dtype", Hyperparameters, Diff, "compute dtype", "largest", |d| {
            argument_value(d, "bf16", Setting::Bool(false));
            argument_value(d, "fp32", Setting::Bool(true));
        }),
        case("one-sided argument", Hyperparameters, Unknown, "rope_theta", "one side only", |d| {
            argument_value(d, "rope_theta", Setting::Integer(1));
        }),
        case("source", Source, Note, "entry.sha256", "code", |d| d.set(Source, "entry.sha256", json!("bb"))),
        case("fewer steps", Coverage, Unknown, "steps", "only the baseline has 1", |d| {
            d.parts().dataset.as_mut().unwrap().steps.pop();
            weights(d).steps.pop();
        }),
        case("missing part", Coverage, Unknown, "parts", "only the baseline has schedule", |d| {
            d.parts().schedule = None;
        }),
        case("missing rank", Coverage, Unknown, "ranks", "only the candidate has 1", |d| {
            let other = gpu().ranks.remove(&0).unwrap();
            d.ranks.insert(1, other);
        }),
    ];
    for Case { name, part, verdict, key, reason, change } in cases {
        let mut candidate = gpu();
        change(&mut candidate);
        let outcome = compare(&gpu(), &candidate);
        let rows = &outcome.part(part).unwrap().rows;
        let of_key = || rows.iter().filter(|row| row.key == key);
        let worst = of_key().map(|row| row.verdict).max();
        let row = of_key()
            .filter(|row| Some(row.verdict) == worst)
            .max_by_key(|row| row.reason.contains(reason))
            .unwrap_or_else(|| {
                panic!("{name}: no row {key}: {:#?}", rows.iter().map(|row| &row.key).collect::<Vec<_>>())
            });
        assert_eq!(row.verdict, verdict, "{name}: {row:#?}");
        assert!(row.reason.contains(reason), "{name}: {row:#?}");
        if verdict == Diff {
            assert!(
                !row.reason.is_empty() && !row.action.is_empty(),
                "{name}: a difference without reason or advice: {row:#?}"
            );
            let others: Vec<Part> = outcome
                .parts
                .iter()
                .filter(|other| other.verdict == Diff && other.part != part)
                // How often gradients are accumulated decides how many samples a step of the optimizer sees.
                .filter(|other| !(name.starts_with("accumulation") && other.part == Part::Dataloader))
                .map(|other| other.part)
                .collect();
            assert!(others.is_empty(), "{name}: also found by {others:?}: {:#?}", found(&outcome));
        } else {
            assert_eq!(outcome.count(Diff), 0, "{name}: {:#?}", found(&outcome));
        }
    }
}

#[test]
fn pairs_of_gpu_and_npu_settings_are_held_against_one_another() {
    type Edit = fn(&mut PackDraft, &mut PackDraft);
    let cases: [(&str, Verdict, Edit); 6] = [
        ("cuda.matmul.allow_tf32 / npu.matmul.allow_hf32", Verdict::Diff, |a, _| {
            a.set(Part::Flags, "cuda.matmul.allow_tf32", json!(true));
        }),
        ("cuda.matmul.allow_tf32 / npu.matmul.allow_hf32", Verdict::Expected, |a, b| {
            a.set(Part::Flags, "cuda.matmul.allow_tf32", json!(true));
            b.set(Part::Flags, "npu.matmul.allow_hf32", json!(true));
        }),
        ("cudnn.allow_tf32 / npu.conv.allow_hf32", Verdict::Diff, |_, b| {
            b.set(Part::Flags, "npu.conv.allow_hf32", json!(true));
        }),
        ("npu.internal_format", Verdict::Note, |_, b| b.set(Part::Flags, "npu.internal_format", json!(true))),
        ("INF_NAN_MODE_ENABLE", Verdict::Diff, |_, b| env(b, "INF_NAN_MODE_ENABLE", "0")),
        ("NCCL_DETERMINISTIC / HCCL_DETERMINISTIC", Verdict::Diff, |_, b| {
            env(b, "HCCL_DETERMINISTIC", "false");
        }),
    ];
    for (key, verdict, change) in cases {
        let (mut a, mut b) = (gpu(), npu());
        change(&mut a, &mut b);
        let outcome = compare(&a, &b);
        let row = outcome
            .parts
            .iter()
            .flat_map(|part| &part.rows)
            .find(|row| row.key == key)
            .unwrap_or_else(|| panic!("{key}"));
        assert_eq!(row.verdict, verdict, "{row:#?}");
    }
}

#[test]
fn what_follows_from_a_difference_is_no_difference_of_its_own() {
    let mut candidate = gpu();
    draw(&mut candidate, "torch", 1);
    for step in &mut weights(&mut candidate).steps {
        step.tensors[1].hash = Some(hash("other"));
    }
    let outcome = compare(&gpu(), &candidate);
    let row = |part, key: &str, step| {
        let rows = &outcome.part(part).unwrap().rows;
        rows.iter().find(|row| row.key == key && row.step == step).unwrap().clone()
    };
    assert_eq!(row(Part::Random, "torch at model", None).verdict, Verdict::Diff);
    assert_eq!(
        row(Part::Random, "torch at step 1", Some(1)).reason,
        "differs since model, and both have moved on"
    );
    assert_eq!(row(Part::Weights, "fc1.weight", Some(0)).verdict, Verdict::Diff);
    let later = row(Part::Weights, "fc1.weight", Some(1));
    assert!(later.verdict == Verdict::Note && later.reason.starts_with("differs since step 0"), "{later:?}");
}

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
fn nan_on_both_sides_is_a_match_that_says_so() {
    let mut both = [gpu(), gpu()];
    for draft in &mut both {
        weights(draft).steps[0].tensors[0].statistics.as_mut().unwrap().nan = Some(2);
    }
    let outcome = compare(&both[0], &both[1]);
    let row = outcome.part(Part::Weights).unwrap().rows[0].clone();
    assert_eq!((row.verdict, &*row.reason), (Verdict::Match, "the same bytes, NaN among them"));
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
    assert!(part.rows.iter().any(|row| row.reason.contains("no tensor held an element")));
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
    let mut options = ConfigOptions::default();
    options.rules = Some(rules);
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
    // What such a pack does not hold is never equal.
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
