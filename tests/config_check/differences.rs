//! One thing differs: its own part says so.

use super::*;

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

/// One table of everything that can differ; its length is theirs.
fn cases() -> Vec<Case> {
    use Part::{
        Coverage, Dataloader, Dataset, Distributed, Env, Flags, Hyperparameters, Model, Optimizer, Pip,
        Platform, Random, Scaler, Schedule, Source,
    };
    use Verdict::{Diff, Expected, Match, Note, Unknown};
    vec![
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
        case("hash seed", Env, Diff, "PYTHONHASHSEED", "iterated", |d| env(d, "PYTHONHASHSEED", "1")),
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
        case(
            "torch-npu does not fit",
            Pip,
            Diff,
            "torch-npu for torch",
            "a different version of torch",
            |d| {
                package(d, "torch-npu", "2.6.0");
            },
        ),
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
            "the same 4 samples in a different order, from sample 1",
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
        case("scalar argument", Dataset, Diff, "kwargs.scale", "a different argument", |d| {
            arguments(d, 0)[2].content = Content::Value { value: Setting::Float(0.25) };
        }),
        case("scalar as text", Dataset, Match, "kwargs.scale", "a different form", |d| {
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
        case("dropout", Model, Diff, "drop", "has different settings", |d| {
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
        case("order", Model, Diff, "order of modules", "a different order", |d| {
            d.parts().model.as_mut().unwrap().modules.swap(1, 2);
        }),
        case("renamed module", Model, Note, "fc1 -> fc_one", "a different name", |d| {
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
        case("different values", Part::Weights, Diff, "fc1.weight", "different values", |d| {
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
        case("reshaped", Part::Weights, Diff, "fc1.weight", "different shapes", |d| {
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
        case("argument as text", Hyperparameters, Match, "learning_rate", "a different form", |d| {
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
    ]
}

#[test]
fn each_difference_is_found_by_its_own_part() {
    use Verdict::Diff;

    for Case { name, part, verdict, key, reason, change } in cases() {
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
