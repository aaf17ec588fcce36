//! Configuration packs of probe's own format, from the types that define it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use probe::config_check::Part;
use probe::config_check::pack::{
    Accumulated, Argument, Batch, BatchTensor, Clip, Content, DataFile, Dataset, Declared, Device,
    DeviceKind, Env, FORMAT, GeneratorState, Group, HyperparameterSource, Hyperparameters, MANIFEST,
    Manifest, Mark, MemberDigest, Model, Module, Optimizer, Package, Parts, Pip, Random, Record, Schedule,
    SeedCall, Setting, Statistics, TensorKind, Tool, VERSION, Weight, WeightStep, Weights, member_name,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::zip_builder::Zip;

/// A pack before it is written.
#[derive(Debug)]
pub(crate) struct PackDraft {
    pub(crate) framework: Option<String>,
    pub(crate) device: Device,
    pub(crate) world_size: u32,
    pub(crate) absent: BTreeMap<String, String>,
    pub(crate) ranks: BTreeMap<u32, Parts>,
}

/// A record from JSON.
pub(crate) fn record(value: Value) -> Record {
    serde_json::from_value(value).unwrap()
}

/// 32 hexadecimal digits that depend on `text`.
pub(crate) fn hash(text: &str) -> String {
    hex(&Sha256::digest(text)[..16])
}

/// Sketch with one value in every lane, `first` in the first.
pub(crate) fn sketch(first: f32) -> String {
    let lanes = std::iter::once(first).chain(std::iter::repeat_n(1.0, 255));
    hex(&lanes.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
}

/// A float32 parameter of one step.
pub(crate) fn weight(name: &str, step: u64) -> Weight {
    let of = |what: &str| hash(&format!("{name} {step} {what}"));
    Weight {
        name: name.into(),
        kind: Some(TensorKind::Parameter),
        dtype: Some("float32".into()),
        shape: Some(vec![16, 16]),
        hash: Some(of("bytes")),
        unordered_hash: Some(of("elements")[..16].to_owned()),
        cast_hashes: [("bfloat16".to_owned(), of("bf16")), ("float16".to_owned(), of("f16"))].into(),
        statistics: Some(Statistics {
            count: Some(256),
            min: Some(-2.0),
            max: Some(2.0),
            mean: Some(0.125),
            norm: Some(16.0),
            nan: Some(0),
            infinite: Some(0),
        }),
        sketch: Some(sketch(1.0)),
        shard: None,
    }
}

fn weight_step(step: u64) -> WeightStep {
    let mut tensors: Vec<Weight> =
        ["emb.weight", "fc1.weight", "fc1.bias"].map(|name| weight(name, step)).into();
    tensors.push(Weight { kind: Some(TensorKind::Buffer), ..weight("norm.running_mean", step) });
    WeightStep { step, tensors }
}

fn batch(step: u64) -> Batch {
    let samples: Vec<String> = (0..4).map(|index| hash(&format!("sample {step} {index}"))).collect();
    let tensor = BatchTensor {
        dtype: Some("int64".into()),
        shape: Some(vec![4, 8]),
        hash: Some(hash(&samples.concat())),
        samples: Some(samples),
        statistics: Some(Statistics {
            count: Some(32),
            min: Some(0.0),
            max: Some(99.0),
            mean: Some(49.5),
            norm: Some(300.0),
            nan: Some(0),
            infinite: Some(0),
        }),
    };
    let pixels = BatchTensor {
        dtype: Some("float32".into()),
        samples: Some((0..4).map(|index| hash(&format!("pixels {step} {index}"))).collect()),
        hash: Some(hash(&format!("pixels {step}"))),
        ..tensor.clone()
    };
    Batch {
        step,
        arguments: vec![
            Argument { path: "args.0".into(), content: Content::Tensor(tensor) },
            Argument { path: "kwargs.pixels".into(), content: Content::Tensor(pixels) },
            Argument { path: "kwargs.scale".into(), content: Content::Value { value: Setting::Float(0.5) } },
        ],
    }
}

fn mark(name: &str, draws: u64) -> Mark {
    let state = |generator: &str| GeneratorState {
        state: Some(hash(&format!("{generator} {draws}"))),
        draws: Some(draws),
        ..GeneratorState::default()
    };
    let mut generators: BTreeMap<String, GeneratorState> =
        ["python", "numpy", "torch"].map(|generator| (generator.to_owned(), state(generator))).into();
    let device = GeneratorState {
        state: Some(hash("device")),
        seed: Some(1234),
        offset: Some(0),
        ..GeneratorState::default()
    };
    generators.insert("device.0".into(), device);
    Mark { mark: name.into(), generators }
}

fn packages() -> Vec<Package> {
    let versions = [
        ("torch", "2.7.1+cu126"),
        ("numpy", "2.4.6"),
        ("pillow", "13.0.0"),
        ("transformers", "4.51.3"),
        ("triton", "3.3.1"),
        ("nvidia-nccl-cu12", "2.26.2"),
        ("tqdm", "4.70.1"),
    ];
    versions
        .map(|(name, version)| Package { name: name.into(), version: version.into(), ..Package::default() })
        .into()
}

fn model() -> Model {
    let module = |name: &str, class: &str, extra: &str| Module {
        name: name.into(),
        class: class.into(),
        training: Some(true),
        extra: extra.into(),
    };
    let declared = |name: &str, kind| Declared {
        name: name.into(),
        kind,
        dtype: "float32".into(),
        shape: vec![16, 16],
        requires_grad: kind == TensorKind::Parameter,
    };
    Model {
        modules: vec![
            module("", "Tiny", ""),
            module("emb", "Embedding", "100, 16"),
            module("fc1", "Linear", "in_features=16, out_features=16, bias=True"),
            module("norm", "LayerNorm", "(16,), eps=1e-05, elementwise_affine=True"),
            module("drop", "Dropout", "p=0.1, inplace=False"),
        ],
        tensors: vec![
            declared("emb.weight", TensorKind::Parameter),
            declared("fc1.weight", TensorKind::Parameter),
            declared("fc1.bias", TensorKind::Parameter),
            declared("norm.running_mean", TensorKind::Buffer),
        ],
        tied: vec![vec!["emb.weight".into(), "head.weight".into()]],
        compiled: None,
    }
}

fn optimizer() -> Optimizer {
    let options = record(json!({
        "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "foreach": null, "fused": null,
    }));
    let parameters = ["emb.weight", "fc1.weight", "fc1.bias"].map(str::to_owned).into();
    Optimizer {
        class: "AdamW".into(),
        groups: vec![Group { options, parameters }],
        state_dtypes: [("exp_avg".to_owned(), "float32".to_owned())].into(),
        clipping: Some(
            [0, 1]
                .map(|step| Clip {
                    step,
                    function: "clip_grad_norm_".into(),
                    limit: 1.0,
                    norm_type: Some(Setting::Float(2.0)),
                })
                .into(),
        ),
        accumulation: Some([0, 1].map(|step| Accumulated { step, backward: 1, optimizer: 1 }).into()),
        outside: None,
    }
}

/// One record of everything that a pack can hold; its length is theirs.
fn parts() -> Parts {
    Parts {
        platform: Some(record(json!({
            "python": "3.11.9", "os": "Linux", "arch": "x86_64", "libc": "glibc 2.35",
            "threads": {"intra_op": 8, "inter_op": 4}, "gpu": {"driver": "560.35", "cuda": "12.6", "cudnn": "90501", "nccl": "2.26.2"},
        }))),
        env: Some(Env {
            values: [("CUDA_VISIBLE_DEVICES", "0"), ("NCCL_DETERMINISTIC", "true"), ("OMP_NUM_THREADS", "1")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            names: ["HOME", "PATH"].map(str::to_owned).into(),
            hidden: BTreeMap::new(),
        }),
        pip: Some(Pip { packages: packages() }),
        flags: Some(record(json!({
            "deterministic_algorithms": true, "deterministic_warn_only": false, "fill_uninitialized_memory": true,
            "float32_matmul_precision": "highest", "default_dtype": "float32", "compute_dtype": "float32",
            "autocast": {"enabled": true, "dtype": "bfloat16", "device": "cuda"},
            "cudnn": {"enabled": true, "benchmark": false, "deterministic": true, "allow_tf32": false},
            "cuda": {"matmul": {"allow_tf32": false, "allow_bf16_reduced_precision_reduction": true}},
            "sdp": {"flash": true, "math": true},
        }))),
        random: Some(Random {
            seeds: [("python", 1234), ("numpy", 1234), ("torch", 1234), ("device.0", 1234)]
                .map(|(name, seed)| (name.to_owned(), Some(seed)))
                .into(),
            calls: vec![SeedCall {
                function: "torch.manual_seed".into(),
                value: Some(1234),
                count: 1,
                place: Some("train.py:15 seed_everything".into()),
            }],
            marks: vec![mark("seeded", 0), mark("model", 1000), mark("step 0", 1024), mark("step 1", 1048)],
            device_init: Some(false),
        }),
        dataset: Some(Dataset {
            steps: vec![batch(0), batch(1)],
            files: vec![DataFile {
                name: "tokenizer.json".into(),
                bytes: 1000,
                sha256: Some(hash("tokenizer")),
            }],
        }),
        dataloader: Some(record(json!({
            "class": "DataLoader", "batch_size": 4, "shuffle": true, "sampler": "RandomSampler", "drop_last": true,
            "num_workers": 2, "generator_seed": 7, "pin_memory": true, "collate_fn": "default_collate",
        }))),
        model: Some(model()),
        weights: Some(Weights { steps: vec![weight_step(0), weight_step(1)] }),
        optimizer: Some(optimizer()),
        schedule: Some(Schedule {
            class: "CosineAnnealingLR".into(),
            state: record(json!({"T_max": 10, "eta_min": 0.0, "last_epoch": 0})),
            rates: vec![vec![1e-3], vec![9.8e-4], vec![9.1e-4]],
        }),
        scaler: Some(record(json!({
            "class": "GradScaler", "enabled": true, "scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5,
            "growth_interval": 2000,
        }))),
        distributed: Some(record(json!({
            "initialized": true, "backend": "nccl", "world_size": 1, "groups": {"data": 1, "tensor": 1},
            "wrapper": {"kind": "DDP", "bucket_cap_mb": 25}, "reduce_dtype": "float32",
        }))),
        hyperparameters: Some(Hyperparameters {
            sources: vec![HyperparameterSource {
                source: "argparse".into(),
                name: "args".into(),
                values: record(json!({
                    "learning_rate": 1e-3, "bf16": true, "hidden-size": 16, "output_dir": "~/gpu", "seed": 1234,
                    "data": {"lr": 5},
                })),
            }],
        }),
        source: Some(record(json!({
            "git": {"commit": "abc", "dirty": false, "changed": []}, "entry": {"name": "train.py", "sha256": "aa"},
            "argv": ["train.py", "--bf16"],
        }))),
    }
}

/// A GPU run of two steps in which everything is recorded.
pub(crate) fn gpu() -> PackDraft {
    PackDraft {
        framework: None,
        device: Device { kind: DeviceKind::Gpu, names: vec!["NVIDIA H100 80GB HBM3".into()], count: 1 },
        world_size: 1,
        absent: BTreeMap::new(),
        ranks: [(0, parts())].into(),
    }
}

/// The same run on an NPU, as well aligned as the two can be.
pub(crate) fn npu() -> PackDraft {
    let mut draft = gpu();
    draft.device = Device { kind: DeviceKind::Npu, names: vec!["Ascend910B3".into()], count: 1 };
    let parts = draft.parts();
    let platform = json!({
        "python": "3.11.9", "os": "Linux", "arch": "aarch64", "libc": "glibc 2.34",
        "threads": {"intra_op": 8, "inter_op": 4}, "npu": {"driver": "24.1.rc3", "cann": "8.1.RC1", "hccl": "8.1.RC1"},
    });
    parts.platform = Some(record(platform));
    let env = parts.env.as_mut().unwrap();
    env.values = [
        ("ASCEND_RT_VISIBLE_DEVICES", "3"),
        ("HCCL_DETERMINISTIC", "True"),
        ("OMP_NUM_THREADS", "1"),
        ("TASK_QUEUE_ENABLE", "1"),
        ("ASCEND_LAUNCH_BLOCKING", "0"),
        ("HCCL_CONNECT_TIMEOUT", "1200"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let pip = parts.pip.as_mut().unwrap();
    pip.packages.retain(|package| !package.name.starts_with("nvidia") && package.name != "triton");
    pip.packages[0].version = "2.7.1+cpu".into();
    pip.packages.push(Package {
        name: "torch-npu".into(),
        version: "2.7.1.post2".into(),
        ..Package::default()
    });
    pip.packages.push(Package { name: "MindSpeed".into(), version: "0.9".into(), ..Package::default() });
    let flags = json!({
        "deterministic_algorithms": true, "deterministic_warn_only": false, "fill_uninitialized_memory": true,
        "float32_matmul_precision": "highest", "default_dtype": "float32", "compute_dtype": "float32",
        "autocast": {"enabled": true, "dtype": "bfloat16", "device": "npu"},
        "npu": {"matmul": {"allow_hf32": false}, "conv": {"allow_hf32": false}, "jit_compile": false, "internal_format": false},
        "sdp": {"flash": false, "math": true},
    });
    parts.flags = Some(record(flags));
    for mark in &mut parts.random.as_mut().unwrap().marks {
        mark.generators.get_mut("device.0").unwrap().state = Some(hash("npu state"));
    }
    let distributed = json!({
        "initialized": true, "backend": "hccl", "world_size": 1, "groups": {"data": 1, "tensor": 1},
        "wrapper": {"kind": "DDP", "bucket_cap_mb": 25}, "reduce_dtype": "float32",
    });
    parts.distributed = Some(record(distributed));
    parts.optimizer.as_mut().unwrap().class = "NpuFusedAdamW".into();
    parts.model.as_mut().unwrap().modules[3].class = "FusedLayerNorm".into();
    // A step of training rounds otherwise on the other device.
    let later = &mut parts.weights.as_mut().unwrap().steps[1].tensors[1];
    later.hash = Some(hash("rounded otherwise"));
    later.unordered_hash = Some(hash("rounded otherwise")[..16].to_owned());
    later.sketch = Some(sketch(1.001));
    draft
}

impl PackDraft {
    /// The parts of rank 0.
    pub(crate) fn parts(&mut self) -> &mut Parts {
        self.ranks.get_mut(&0).unwrap()
    }

    /// Sets a value of a part that is plain settings; dots stand for nesting.
    pub(crate) fn set(&mut self, part: Part, key: &str, value: Value) {
        let parts = self.parts();
        let place = match part {
            Part::Platform => &mut parts.platform,
            Part::Flags => &mut parts.flags,
            Part::Dataloader => &mut parts.dataloader,
            Part::Scaler => &mut parts.scaler,
            Part::Distributed => &mut parts.distributed,
            Part::Source => &mut parts.source,
            other => panic!("{other} is no plain part"),
        };
        set_in(place.as_mut().unwrap(), key, value);
    }

    /// Every member but the manifest: name and content.
    pub(crate) fn members(&self) -> Vec<(String, Vec<u8>)> {
        let mut members = Vec::new();
        for (rank, parts) in &self.ranks {
            let mut add = |part: Part, value: Option<Value>| {
                if let Some(value) = value {
                    members.push((member_name(part, *rank), serde_json::to_vec(&value).unwrap()));
                }
            };
            add(Part::Env, json_of(parts.env.as_ref()));
            add(Part::Pip, json_of(parts.pip.as_ref()));
            add(Part::Random, json_of(parts.random.as_ref()));
            add(Part::Dataset, json_of(parts.dataset.as_ref()));
            add(Part::Model, json_of(parts.model.as_ref()));
            add(Part::Weights, json_of(parts.weights.as_ref()));
            add(Part::Optimizer, json_of(parts.optimizer.as_ref()));
            add(Part::Schedule, json_of(parts.schedule.as_ref()));
            add(Part::Hyperparameters, json_of(parts.hyperparameters.as_ref()));
            for part in
                [Part::Platform, Part::Flags, Part::Dataloader, Part::Scaler, Part::Distributed, Part::Source]
            {
                add(part, json_of(parts.settings(part)));
            }
        }
        members
    }

    /// The manifest that belongs to the members.
    pub(crate) fn manifest(&self) -> Manifest {
        let digest = |content: &[u8]| MemberDigest {
            sha256: hex(&Sha256::digest(content)),
            bytes: content.len() as u64,
        };
        let steps = |parts: &Parts| -> Vec<u64> {
            parts.dataset.iter().flat_map(|dataset| &dataset.steps).map(|batch| batch.step).collect()
        };
        Manifest {
            format: FORMAT.into(),
            version: VERSION,
            tool: Tool { name: "test".into(), version: "1".into() },
            created: Some("2026-11-21T15:27:00Z".into()),
            framework: self.framework.clone(),
            device: self.device.clone(),
            world_size: self.world_size,
            ranks: self.ranks.keys().copied().collect(),
            steps: self.ranks.values().next().map(steps).unwrap_or_default(),
            members: self.members().iter().map(|(name, content)| (name.clone(), digest(content))).collect(),
            absent: self.absent.clone(),
        }
    }

    /// The pack as a zip.
    pub(crate) fn zip(&self) -> Zip {
        let manifest = serde_json::to_vec(&self.manifest()).unwrap();
        let zip = Zip::default().deflated(MANIFEST, manifest);
        self.members().iter().fold(zip, |zip, (name, content)| zip.deflated(name, content))
    }

    /// Writes the pack and returns its path.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, self.zip().bytes()).unwrap();
        path
    }
}

fn json_of<T: serde::Serialize>(part: Option<&T>) -> Option<Value> {
    part.map(|part| serde_json::to_value(part).unwrap())
}

fn set_in(record: &mut Record, key: &str, value: Value) {
    let (name, rest) = key.split_once('.').map_or((key, None), |(name, rest)| (name, Some(rest)));
    let place = record.0.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        record.0.push((name.to_owned(), Setting::Map(Record::default())));
        record.0.len() - 1
    });
    match (rest, &mut record.0[place].1) {
        (Some(rest), Setting::Map(inner)) => set_in(inner, rest, value),
        (Some(_), _) => panic!("{key}: {name} is no group"),
        (None, old) => *old = serde_json::from_value(value).unwrap(),
    }
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}
