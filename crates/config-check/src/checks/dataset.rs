//! Inputs of the model.

use std::collections::{BTreeMap, HashMap};

use super::coverage::COLLECT;
use super::rows::Rows;
use super::settings::{HIDDEN, NORMALISED};
use crate::expectations::Ruling;
use crate::pack::{Batch, BatchTensor, Content, Dataset};
use crate::part::Verdict;
use crate::value;
use crate::value::{Meaning, Sameness};

/// Compares the batches of two ranks.
pub(super) fn check(rows: &mut Rows<'_>, a: &Dataset, b: &Dataset) {
    let mut common = 0;
    for batch in &a.steps {
        let Some(other) = b.steps.iter().find(|other| other.step == batch.step) else { continue };
        common += 1;
        rows.at_step(Some(batch.step));
        let index = |batch: &Batch| -> HashMap<String, Content> {
            batch.arguments.iter().map(|argument| (argument.path.clone(), argument.content.clone())).collect()
        };
        let theirs = index(other);
        for argument in &batch.arguments {
            match theirs.get(&argument.path) {
                Some(content) => pair(rows, &argument.path, &argument.content, content),
                None => lacking(rows, &argument.path, Some(&argument.content), None),
            }
        }
        let ours = index(batch);
        for argument in other.arguments.iter().filter(|argument| !ours.contains_key(&argument.path)) {
            lacking(rows, &argument.path, None, Some(&argument.content));
        }
    }
    rows.at_step(None);
    let hashed = |side: &Dataset| {
        let mut tensors = side.steps.iter().flat_map(|batch| &batch.arguments).filter_map(|argument| {
            match &argument.content {
                Content::Tensor(tensor) => Some(tensor),
                _ => None,
            }
        });
        tensors.all(|tensor| tensor.hash.is_some())
    };
    if !hashed(a) || !hashed(b) {
        let shown = |side| hashed(side).then(|| "recorded".to_owned());
        let why = "order of samples, shapes and element types were not recorded, so they were not compared";
        rows.push("content", shown(a), shown(b), Ruling::new(Verdict::Unknown, why).todo(COLLECT));
    }
    if common == 0 && !(a.steps.is_empty() && b.steps.is_empty()) {
        let list = |side: &Dataset| {
            Some(format!(
                "steps {}",
                side.steps.iter().map(|batch| batch.step.to_string()).collect::<Vec<_>>().join(", ")
            ))
        };
        let ruling = Ruling::new(Verdict::Unknown, "the two sides recorded no common step");
        rows.push("steps", list(a), list(b), ruling.todo("collect the same steps on both sides"));
    }
    files(rows, a, b);
}

fn describe(content: &Content) -> String {
    match content {
        Content::Tensor(tensor) => {
            let mut facts = vec![tensor.dtype.clone().unwrap_or_else(|| "tensor".into())];
            facts.extend(tensor.shape.as_ref().map(|shape| format!("{shape:?}")));
            match (&tensor.hash, &tensor.statistics) {
                (Some(hash), _) => facts.push(format!("hash {}", hash.chars().take(12).collect::<String>())),
                (None, Some(statistics)) => facts.push(statistics.to_string()),
                (None, None) => {}
            }
            facts.join(" ")
        }
        Content::Value { value } => value.to_string(),
        Content::Object { class } => format!("object of {class}"),
        Content::Unrecorded => "not recorded".into(),
    }
}

fn lacking(rows: &mut Rows<'_>, path: &str, a: Option<&Content>, b: Option<&Content>) {
    let ruling = Ruling::new(Verdict::Diff, "one side passes an argument that the other does not")
        .todo("call the model with the same arguments on both sides");
    rows.push(path, a.map(describe), b.map(describe), ruling);
}

fn pair(rows: &mut Rows<'_>, path: &str, a: &Content, b: &Content) {
    let (shown_a, shown_b) = (Some(describe(a)), Some(describe(b)));
    let ruling = match (a, b) {
        (Content::Tensor(a), Content::Tensor(b)) => tensors(rows, a, b),
        (Content::Value { value: a }, Content::Value { value: b }) => {
            match value::compare(a, b, Meaning::Any) {
                Sameness::Equal => Ruling::new(Verdict::Match, ""),
                Sameness::Normalised => Ruling::new(Verdict::Match, NORMALISED),
                Sameness::Hidden => Ruling::new(Verdict::Note, HIDDEN),
                Sameness::Differs => {
                    Ruling::new(Verdict::Diff, "the model is called with a different argument")
                        .todo("call the model with the same arguments on both sides")
                }
            }
        }
        (Content::Object { class: a }, Content::Object { class: b }) if a == b => {
            Ruling::new(Verdict::Match, "the same class; its content was not recorded")
        }
        (Content::Unrecorded, _) | (_, Content::Unrecorded) => {
            Ruling::new(Verdict::Unknown, "the value of this argument was not recorded").todo(COLLECT)
        }
        _ => Ruling::new(Verdict::Diff, "the two sides pass arguments of different kinds")
            .todo("call the model with the same arguments on both sides"),
    };
    rows.push(path, shown_a, shown_b, ruling);
}

fn tensors(rows: &Rows<'_>, a: &BatchTensor, b: &BatchTensor) -> Ruling {
    let default = rows.default_ruling(true);
    let differ = |what: String| Ruling { why: format!("{what}: {}", default.why), ..default.clone() };
    if let (Some(x), Some(y)) = (&a.dtype, &b.dtype)
        && value::dtype(x) != value::dtype(y)
    {
        let are_integers = [x, y].into_iter().all(|dtype| dtype.trim_start_matches('u').starts_with("int"));
        if rows.pair().across_frameworks
            && are_integers
            && a.shape == b.shape
            && let (Some(x), Some(y)) = (&a.statistics, &b.statistics)
            && x.difference(y, rows.limits().statistic_ulps).is_none()
        {
            let why = "integers of another width whose statistics agree; their order was not compared";
            return Ruling::new(Verdict::Note, why);
        }
        return differ("different element types".into());
    }
    let shapes_differ = matches!((&a.shape, &b.shape), (Some(x), Some(y)) if x != y);
    if let (Some(x), Some(y)) = (&a.hash, &b.hash) {
        if x == y && !shapes_differ {
            return Ruling::new(Verdict::Match, "");
        }
        if let (Some(x), Some(y)) = (&a.samples, &b.samples) {
            return samples(rows, x, y, a, b, differ);
        }
        if shapes_differ {
            return differ("different shapes".into());
        }
        return slightly(rows, a, b).unwrap_or_else(|| differ("different content".into()));
    }
    if shapes_differ {
        return differ("different shapes".into());
    }
    match (&a.statistics, &b.statistics) {
        (Some(x), Some(y)) => match x.difference(y, rows.limits().statistic_ulps) {
            None => Ruling::new(
                Verdict::Match,
                "the statistics agree; order, element type and shape were not recorded",
            ),
            Some(_) if x.differs_by_cut_mean(y, rows.limits().statistic_ulps) => Ruling::new(
                Verdict::Match,
                "the statistics agree; the pack of MindSpore cuts the mean of integers to an integer",
            ),
            Some(what) => differ(what),
        },
        _ => Ruling::new(Verdict::Unknown, "neither content nor statistics were recorded on both sides"),
    }
}

/// Compares two batches by their samples: same samples reordered, some different, or all different.
fn samples(
    rows: &Rows<'_>,
    a: &[String],
    b: &[String],
    tensor_a: &BatchTensor,
    tensor_b: &BatchTensor,
    differ: impl Fn(String) -> Ruling,
) -> Ruling {
    let mut counts: HashMap<&str, i64> = HashMap::new();
    for sample in a {
        *counts.entry(sample).or_default() += 1;
    }
    for sample in b {
        *counts.entry(sample).or_default() -= 1;
    }
    let missing: i64 = counts.values().filter(|count| **count > 0).sum();
    let (missing, all) = (usize::try_from(missing).unwrap_or(usize::MAX), a.len());
    if missing == 0 && a.len() == b.len() {
        let place = a.iter().zip(b).position(|(x, y)| x != y).unwrap_or(0);
        let ruling = differ(format!("the same {all} samples in a different order, from sample {place} on"));
        return ruling.todo("shuffle identically: same sampler, generator seed and epoch");
    }
    let shared = all.saturating_sub(missing);
    if shared == 0 && a.len() == b.len() {
        return slightly(rows, tensor_a, tensor_b).unwrap_or_else(|| differ("no common sample".into()));
    }
    let lengths =
        if a.len() == b.len() { String::new() } else { format!(" ({all} against {} samples)", b.len()) };
    differ(format!("{shared} of {all} samples are the same{lengths}"))
}

/// Recognises floats that differ slightly in every sample: a different decoder or resizer.
fn slightly(rows: &Rows<'_>, a: &BatchTensor, b: &BatchTensor) -> Option<Ruling> {
    let float = a.dtype.as_deref().is_some_and(|dtype| dtype.contains("float"));
    let (x, y) = (a.statistics.as_ref()?, b.statistics.as_ref()?);
    let distance = x.distance(y)?;
    // Statistics that agree to the last digit belong to the same elements in a different order; no decoder does that.
    (float && distance > 1e-14 && distance <= rows.limits().decoded_batches).then(|| {
        Ruling::new(
            Verdict::Note,
            format!("floats differ slightly in every sample (statistics by {distance:.1e}): a different decoder or resizer"),
        )
        .todo("use the same version of the library that prepares the data, or compare with prepared data")
    })
}

fn files(rows: &mut Rows<'_>, a: &Dataset, b: &Dataset) {
    let index = |side: &Dataset| -> BTreeMap<String, (u64, Option<String>)> {
        side.files.iter().map(|file| (file.name.clone(), (file.bytes, file.sha256.clone()))).collect()
    };
    let (a, b) = (index(a), index(b));
    let shown = |(bytes, hash): &(u64, Option<String>)| {
        let hash = hash.as_deref().map_or("content not recorded".into(), |hash| {
            format!("SHA-256 {}", hash.chars().take(12).collect::<String>())
        });
        format!("{bytes} bytes, {hash}")
    };
    for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
        let key = format!("file {name}");
        match (a.get(name), b.get(name)) {
            (Some(x), Some(y)) => {
                let hashes = matches!((&x.1, &y.1), (Some(x), Some(y)) if x == y);
                let ruling = if x.0 != y.0 || matches!((&x.1, &y.1), (Some(x), Some(y)) if x != y) {
                    rows.default_ruling(true)
                } else if hashes {
                    Ruling::new(Verdict::Match, "")
                } else {
                    Ruling::new(Verdict::Unknown, "the same size; the content was not recorded on both sides")
                };
                rows.push(&key, Some(shown(x)), Some(shown(y)), ruling);
            }
            (x, y) => rows.one_sided(&key, x.map(shown), y.map(shown)),
        }
    }
}
