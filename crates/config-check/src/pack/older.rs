//! Reads packs of msprobe. They have no manifest and record less than the parts here can hold: whatever is missing
//! stays empty, and empty never counts as equal.

use std::collections::BTreeMap;

use super::members::Members;
use super::native::parse;
use super::opened::{Fault, Origin, Pack};
use super::{
    Argument, Batch, BatchTensor, Content, Dataset, Env, HyperparameterSource, Hyperparameters, Package, Pip,
    Random, Record, SeedCall, Setting, Statistics, Weight, WeightStep, Weights,
};
use crate::Part;
use crate::pip_name::normalised;
use probe_read::tensor_file::printable;

/// Kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Env,
    Pip,
    Hyperparameters(&'static str),
    Dataset { step: u64, rank: u32 },
    Weights { step: u64, rank: u32 },
    Random { rank: u32 },
}

impl Kind {
    /// Returns the kind of the member called `name`.
    fn of(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split('/').collect();
        Some(match *parts.as_slice() {
            ["env"] => Self::Env,
            ["pip"] => Self::Pip,
            ["hyperparameters", "hyperparameters_static.json"] => Self::Hyperparameters("script"),
            ["hyperparameters", "hyperparameters_dynamic.json"] => Self::Hyperparameters("megatron"),
            ["dataset", step, rank, "dataset.json"] => {
                Self::Dataset { step: number(step, "step")?, rank: rank_number(rank)? }
            }
            ["weights", step, rank, "weight.json"] => {
                Self::Weights { step: number(step, "step")?, rank: rank_number(rank)? }
            }
            ["random", file] => Self::Random { rank: rank_number(file.strip_suffix(".json")?)? },
            _ => return None,
        })
    }

    const fn part(self) -> Part {
        match self {
            Self::Env => Part::Env,
            Self::Pip => Part::Pip,
            Self::Hyperparameters(_) => Part::Hyperparameters,
            Self::Dataset { .. } => Part::Dataset,
            Self::Weights { .. } => Part::Weights,
            Self::Random { .. } => Part::Random,
        }
    }

    const fn rank(self) -> u32 {
        match self {
            Self::Env | Self::Pip | Self::Hyperparameters(_) => 0,
            Self::Dataset { rank, .. } | Self::Weights { rank, .. } | Self::Random { rank } => rank,
        }
    }
}

fn number(text: &str, word: &str) -> Option<u64> {
    let digits = text.strip_prefix(word)?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

fn rank_number(text: &str) -> Option<u32> {
    number(text, "rank").and_then(|rank| u32::try_from(rank).ok())
}

/// Returns true if the pack has a member of this layout.
pub(super) fn recognises(members: &Members) -> bool {
    members.names().any(|name| Kind::of(name).is_some())
}

/// Reads every member into `pack`.
pub(super) fn read(members: &mut Members, pack: &mut Pack) {
    pack.origin = Origin::Msprobe;
    let names: Vec<String> = members.names().map(str::to_owned).collect();
    for name in names {
        let Some(kind) = Kind::of(&name) else {
            pack.notes.push(format!("member '{}' is unknown, left out", printable(&name)));
            continue;
        };
        let Some(content) = members.content(&name) else { continue };
        if let Err(reason) = content.and_then(|bytes| put(pack, kind, &bytes)) {
            pack.faults.push(Fault { part: kind.part(), rank: Some(kind.rank()), member: name, reason });
        }
    }
    for parts in pack.ranks.values_mut() {
        // Members may come in any order.
        if let Some(dataset) = &mut parts.dataset {
            dataset.steps.sort_by_key(|batch| batch.step);
        }
        if let Some(weights) = &mut parts.weights {
            weights.steps.sort_by_key(|step| step.step);
        }
    }
}

fn put(pack: &mut Pack, kind: Kind, bytes: &[u8]) -> Result<(), String> {
    let parts = pack.ranks.entry(kind.rank()).or_default();
    match kind {
        Kind::Env => {
            let record: Record = parse(bytes)?;
            let values = record.0.into_iter().map(|(name, value)| (name, value.to_string())).collect();
            parts.env = Some(Env { values, ..Env::default() });
        }
        Kind::Pip => parts.pip = Some(pip(bytes)?),
        Kind::Hyperparameters(source) => {
            let values: Record = parse(bytes)?;
            let source = HyperparameterSource { source: source.into(), name: String::new(), values };
            parts.hyperparameters.get_or_insert_with(Hyperparameters::default).sources.push(source);
        }
        Kind::Dataset { step, .. } => {
            let arguments = arguments(&parse(bytes)?);
            parts.dataset.get_or_insert_with(Dataset::default).steps.push(Batch { step, arguments });
        }
        Kind::Weights { step, .. } => {
            let tensors = weights(&parse(bytes)?)?;
            parts.weights.get_or_insert_with(Weights::default).steps.push(WeightStep { step, tensors });
        }
        Kind::Random { .. } => parts.random = Some(random(&parse(bytes)?)?),
    }
    Ok(())
}

/// Parses lines `Name=version`, in import path order: the first copy of a repeated name is the one imported.
fn pip(bytes: &[u8]) -> Result<Pip, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8 text; write the pack again".to_owned())?;
    let mut packages: Vec<Package> = Vec::new();
    let mut places = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, version) =
            line.split_once('=').ok_or("a line is not `name=version`; write the pack again")?;
        let (name, version) = (normalised(name), version.trim_start_matches('=').trim().to_owned());
        match places.get(&name) {
            None => {
                places.insert(name.clone(), packages.len());
                packages.push(Package { name, version, ..Package::default() });
            }
            Some(&place) => packages.get_mut(place).into_iter().for_each(|kept: &mut Package| {
                if kept.version != version && !kept.shadowed.contains(&version) {
                    kept.shadowed.push(version.clone());
                }
            }),
        }
    }
    Ok(Pip { packages })
}

fn arguments(record: &Record) -> Vec<Argument> {
    let mut arguments = Vec::new();
    for (name, value) in &record.0 {
        argument(name.clone(), value, &mut arguments);
    }
    arguments
}

fn argument(path: String, value: &Setting, out: &mut Vec<Argument>) {
    match value {
        Setting::Map(record) => match statistics(record) {
            Some(statistics) => {
                let tensor = BatchTensor { statistics: Some(statistics), ..BatchTensor::default() };
                out.push(Argument { path, content: Content::Tensor(tensor) });
            }
            None => {
                for (name, value) in &record.0 {
                    argument(format!("{path}.{name}"), value, out);
                }
            }
        },
        Setting::List(items) => {
            for (index, value) in items.iter().enumerate() {
                argument(format!("{path}.{index}"), value, out);
            }
        }
        // Anything but a tensor is an empty text.
        _ => out.push(Argument { path, content: Content::Unrecorded }),
    }
}

fn weights(record: &Record) -> Result<Vec<Weight>, String> {
    let tensor = |(name, value): &(String, Setting)| match value {
        Setting::Map(record) => {
            Ok(Weight { name: name.clone(), statistics: statistics(record), ..Weight::default() })
        }
        _ => Err("a weight is not an object of max, min, mean and norm; write the pack again".to_owned()),
    };
    record.0.iter().map(tensor).collect()
}

/// Returns the four numbers; `None` if `record` is something else.
fn statistics(record: &Record) -> Option<Statistics> {
    let [max, min, mean, norm] = ["max", "min", "mean", "norm"].map(|name| record.get(name).and_then(float));
    (record.0.len() == 4 && ["max", "min", "mean", "norm"].iter().all(|name| record.get(name).is_some()))
        .then_some(Statistics { min, max, mean, norm, ..Statistics::default() })
}

#[expect(clippy::cast_precision_loss, reason = "the recorded numbers are float32")]
fn float(value: &Setting) -> Option<f64> {
    match value {
        Setting::Integer(value) => Some(*value as f64),
        Setting::Float(value) => Some(*value),
        Setting::Text(word) => {
            ["NaN", "Infinity", "-Infinity"].contains(&&**word).then(|| word.parse().ok()).flatten()
        }
        _ => None,
    }
}

/// Reads call stacks by function. They do not contain seed values.
fn random(record: &Record) -> Result<Random, String> {
    let mut calls = Vec::new();
    for (function, entries) in &record.0 {
        let Setting::List(entries) = entries else {
            return Err("a function has no list of calls; write the pack again".into());
        };
        for entry in entries {
            let Setting::Map(entry) = entry else {
                return Err("a call is not an object; write the pack again".into());
            };
            let count = match entry.get("count") {
                Some(Setting::Integer(count)) => u64::try_from(*count).unwrap_or(1),
                _ => 1,
            };
            let innermost = match entry.get("stack") {
                Some(Setting::List(stack)) => stack.last().and_then(Setting::text),
                _ => None,
            };
            calls.push(SeedCall {
                function: function.clone(),
                value: None,
                count,
                place: innermost.map(place),
            });
        }
    }
    Ok(Random { calls, ..Random::default() })
}

/// Turns `File /a/b/train.py, line 15, in seed_everything, CODE` into `train.py:15 seed_everything`: folders and code may
/// reveal too much.
fn place(frame: &str) -> String {
    let mut fields = frame.split(", ");
    let file = fields.next().unwrap_or_default().trim_start_matches("File ");
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let line = fields.next().unwrap_or_default().trim_start_matches("line ");
    let function = fields.next().unwrap_or_default().trim_start_matches("in ");
    printable(&format!("{file}:{line} {function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_told_by_their_exact_names() {
        assert_eq!(Kind::of("weights/step3/rank12/weight.json"), Some(Kind::Weights { step: 3, rank: 12 }));
        assert_eq!(Kind::of("random/rank0.json"), Some(Kind::Random { rank: 0 }));
        for name in [
            "env.json",
            "dataset/step/rank0/dataset.json",
            "dataset/step+1/rank0/dataset.json",
            "weights/step0/weight.json",
        ] {
            assert_eq!(Kind::of(name), None, "{name}");
        }
    }

    #[test]
    fn the_first_copy_of_a_package_is_the_one_imported() {
        let pip = pip(b"Pillow=10.0.0\nnumpy=2.4.6\npillow=13.0.0\n").unwrap();
        assert_eq!(pip.packages.len(), 2);
        assert_eq!((&*pip.packages[0].name, &*pip.packages[0].version), ("pillow", "10.0.0"));
        assert_eq!(pip.packages[0].shadowed, ["13.0.0"]);
    }

    #[test]
    fn frames_lose_folders_and_code() {
        let frame =
            "File /home/user/cfg/train.py, line 15, in seed_everything, random.seed(seed); x = 'secret'";
        assert_eq!(place(frame), "train.py:15 seed_everything");
    }
}
