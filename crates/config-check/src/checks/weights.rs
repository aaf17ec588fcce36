//! Values of parameters and buffers: equal, or how they differ.

use std::collections::{HashMap, HashSet};

use super::coverage::COLLECT;
use super::rows::Rows;
use crate::expectations::{Limits, Ruling};
use crate::pack::{Weight, WeightStep, Weights};
use crate::part::Verdict;
use crate::value;

/// Number of lanes in a sketch.
const LANES: usize = 256;

/// Relative distance below which a sketch of float32 lanes is uninformative.
const SKETCH_FLOOR: f64 = 3e-7;

/// Relative distance above which values are different rather than slightly changed.
const NUDGE: f64 = 0.1;

/// Returns true if the values of two ranks differ at the first step that both recorded.
pub(super) fn start_apart(rows: &Rows<'_>, a: &Weights, b: &Weights) -> bool {
    let steps = a.steps.iter().find_map(|x| Some((x, b.steps.iter().find(|y| y.step == x.step)?)));
    steps.is_some_and(|(x, y)| {
        let other: HashMap<String, &Weight> = names(rows, &y.tensors).into_iter().zip(&y.tensors).collect();
        x.tensors.iter().zip(names(rows, &x.tensors)).any(|(weight, name)| {
            let other = other.get(&name);
            other.is_some_and(|other| Relation::of(weight, other, false, rows.limits()).differs())
        })
    })
}

/// Compares the values of two ranks, step by step. `apart`: some rank's values differ at its first step, which affects the
/// gradients of all ranks.
pub(super) fn check(rows: &mut Rows<'_>, a: &Weights, b: &Weights, apart: bool) {
    let mut first: Option<u64> = None;
    // First step at which each tensor differs.
    let mut since: HashMap<String, u64> = HashMap::new();
    for step in &a.steps {
        let Some(other) = b.steps.iter().find(|other| other.step == step.step) else { continue };
        rows.at_step(Some(step.step));
        let moment = match *first.get_or_insert(step.step) < step.step {
            false => Moment::Start,
            true if apart => Moment::AfterOtherStart,
            true => Moment::AfterEqualStart,
        };
        of_step(rows, step, other, moment, &mut since);
    }
    rows.at_step(None);
    let hashed =
        |side: &Weights| side.steps.iter().flat_map(|step| &step.tensors).all(|weight| weight.hash.is_some());
    if !hashed(a) || !hashed(b) {
        let shown = |side| hashed(side).then(|| "recorded".to_owned());
        let why = "elements, shapes, element types and buffers were not recorded, so they were not compared";
        rows.push("content", shown(a), shown(b), Ruling::new(Verdict::Unknown, why).todo(COLLECT));
    }
    let shown = |side: &Weights| (!is_empty(side)).then(|| "recorded".to_owned());
    if is_empty(a) || is_empty(b) {
        let why = "no tensor held any elements when packed: the values are elsewhere and were not compared";
        rows.push("values", shown(a), shown(b), Ruling::new(Verdict::Unknown, why).todo(COLLECT));
    }
    if first.is_none() && !(a.steps.is_empty() && b.steps.is_empty()) {
        let list = |side: &Weights| {
            Some(format!(
                "steps {}",
                side.steps.iter().map(|step| step.step.to_string()).collect::<Vec<_>>().join(", ")
            ))
        };
        let ruling = Ruling::new(Verdict::Unknown, "the two sides recorded no common step");
        rows.push("steps", list(a), list(b), ruling.todo("collect the same steps on both sides"));
    }
}

/// Returns true if there are tensors and none has an element: sharded parameters may leave such placeholders.
fn is_empty(side: &Weights) -> bool {
    let mut tensors = side.steps.iter().flat_map(|step| &step.tensors).peekable();
    let empty = |weight: &Weight| weight.shape.as_ref().is_some_and(|shape| shape.contains(&0));
    tensors.peek().is_some() && tensors.all(empty)
}

fn of_step(
    rows: &mut Rows<'_>,
    a: &WeightStep,
    b: &WeightStep,
    moment: Moment,
    since: &mut HashMap<String, u64>,
) {
    let (names_a, names_b) = (names(rows, &a.tensors), names(rows, &b.tensors));
    let index: HashMap<&str, &Weight> = names_b.iter().map(|name| &**name).zip(&b.tensors).collect();
    let known: HashSet<&str> = names_a.iter().map(|name| &**name).collect();
    let mut alone_b: Vec<(&String, &Weight)> =
        names_b.iter().zip(&b.tensors).filter(|(name, _)| !known.contains(&***name)).collect();
    let mut alone_a = Vec::new();
    for (name, weight) in names_a.iter().zip(&a.tensors) {
        let Some(other) = index.get(&**name) else {
            alone_a.push((name, weight));
            continue;
        };
        let relation = Relation::of(weight, other, moment != Moment::Start, rows.limits());
        let ruling = match since.get(name) {
            Some(step) if relation.differs() => {
                Ruling::new(Verdict::Note, format!("differs since step {step}: {}", relation.words()))
            }
            _ => relation.ruling(rows, moment),
        };
        if relation.differs() {
            since.entry(name.clone()).or_insert(a.step);
        }
        rows.push(name, Some(describe(weight)), Some(describe(other)), ruling);
    }
    for (name, weight) in alone_a {
        // Same bytes and shape under a different name.
        let same = |(_, other): &(&String, &Weight)| {
            weight.hash.is_some()
                && weight.hash == other.hash
                && weight.dtype == other.dtype
                && weight.shape == other.shape
        };
        match alone_b.iter().position(same).map(|place| alone_b.remove(place)) {
            Some((other_name, other)) => {
                let ruling = Ruling::new(Verdict::Note, "renamed: the same content under a different name")
                    .todo(format!("read {name} of the baseline as {other_name} of the candidate"));
                rows.push(
                    &format!("{name} -> {other_name}"),
                    Some(describe(weight)),
                    Some(describe(other)),
                    ruling,
                );
            }
            None => one_sided(rows, name, Some(describe(weight)), None),
        }
    }
    for (name, weight) in alone_b {
        one_sided(rows, name, None, Some(describe(weight)));
    }
}

/// Returns the names of tensors in terms of both sides.
fn names(rows: &Rows<'_>, side: &[Weight]) -> Vec<String> {
    side.iter().map(|weight| rows.common_name(&weight.name)).collect()
}

/// Adds a row for a tensor that one side lacks.
fn one_sided(rows: &mut Rows<'_>, name: &str, a: Option<String>, b: Option<String>) {
    let is_buffer = name.ends_with("running_mean") || name.ends_with("running_var");
    if rows.pair().across_frameworks && is_buffer {
        let why = "a parameter in MindSpore, a buffer in PyTorch, whose pack may hold parameters alone";
        rows.push(name, a, b, Ruling::new(Verdict::Note, why));
    } else {
        rows.one_sided(name, a, b);
    }
}

fn describe(weight: &Weight) -> String {
    let mut facts = Vec::new();
    facts.extend(
        weight
            .kind
            .filter(|kind| *kind != super::super::pack::TensorKind::Parameter)
            .map(|kind| kind.name().to_owned()),
    );
    facts.extend(weight.dtype.clone());
    facts.extend(weight.shape.as_ref().map(|shape| format!("{shape:?}")));
    match (&weight.hash, &weight.statistics) {
        (Some(hash), _) => facts.push(format!("hash {}", hash.chars().take(12).collect::<String>())),
        (None, Some(statistics)) => facts.push(statistics.to_string()),
        (None, None) => facts.push("nothing recorded".into()),
    }
    facts.join(" ")
}

/// Time at which two tensors are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Before the first step.
    Start,
    /// After steps that began with equal weights.
    AfterEqualStart,
    /// After steps that began with some weights different.
    AfterOtherStart,
}

/// Relation of two tensors with the same name.
#[derive(Debug, Clone, PartialEq)]
enum Relation {
    /// Same bytes.
    Equal { nan: bool },
    /// Statistics agree; nothing more was recorded.
    StatisticsAgree { nan: bool },
    /// Both sides recorded nothing comparable.
    Unrecorded,
    /// Sharded over ranks differently.
    OtherShards,
    /// A parameter on one side, a buffer on the other.
    OtherKind,
    /// Different shapes.
    Shape,
    /// Same values, one side rounded to this dtype.
    Cast { to: String },
    /// Different dtypes, and values that no cast explains.
    Dtype,
    /// Same elements in a different order.
    Permuted,
    /// Slightly changed values; the relative distance if known, and a description of the evidence.
    Nudged { distance: Option<f64>, words: String },
    /// Different values.
    Other { words: String },
}

impl Relation {
    fn of(a: &Weight, b: &Weight, trained: bool, limits: &Limits) -> Self {
        if matches!((a.kind, b.kind), (Some(x), Some(y)) if x != y) {
            return Self::OtherKind;
        }
        if a.shard != b.shard {
            return Self::OtherShards;
        }
        if matches!((&a.shape, &b.shape), (Some(x), Some(y)) if x != y) {
            return Self::Shape;
        }
        let nan =
            [a, b].into_iter().any(|side| side.statistics.is_some_and(|statistics| statistics.has_nan()));
        let types = match (&a.dtype, &b.dtype) {
            (Some(x), Some(y)) => Some((value::dtype(x), value::dtype(y))),
            _ => None,
        };
        match (&a.hash, &b.hash, types) {
            (_, _, Some((x, y))) if x != y => of_types(a, b, &x, &y, limits),
            (Some(x), Some(y), _) if x == y => Self::Equal { nan },
            (Some(_), Some(_), _) => of_content(a, b, trained, limits),
            _ => match (&a.statistics, &b.statistics) {
                (Some(x), Some(y)) => match x.difference(y, limits.statistic_ulps) {
                    None => Self::StatisticsAgree { nan },
                    Some(words) => Self::of_statistics(a, b, words),
                },
                _ => Self::Unrecorded,
            },
        }
    }

    /// Tensors known only by their statistics, which differ.
    fn of_statistics(a: &Weight, b: &Weight, words: String) -> Self {
        let distance = a.statistics.zip(b.statistics).and_then(|(x, y)| x.distance(&y));
        match distance {
            Some(distance) if distance > NUDGE => Self::Other { words },
            // Statistics give only a lower bound of the distance.
            _ => Self::Nudged { distance: None, words },
        }
    }

    const fn differs(&self) -> bool {
        !matches!(
            self,
            Self::Equal { .. } | Self::StatisticsAgree { .. } | Self::Unrecorded | Self::OtherShards
        )
    }

    fn words(&self) -> String {
        match self {
            Self::Equal { nan: true } => "the same bytes, including NaN".into(),
            Self::Equal { nan: false } => String::new(),
            Self::StatisticsAgree { nan } => format!(
                "the statistics agree{}; elements, shape and element type were not recorded",
                if *nan { ", NaN on both sides" } else { "" }
            ),
            Self::Unrecorded => "nothing that both sides recorded can be compared".into(),
            Self::OtherShards => {
                "the tensor is sharded differently over the ranks, so its pieces cannot be compared".into()
            }
            Self::OtherKind => "a parameter on one side, a buffer on the other".into(),
            Self::Shape => "different shapes".into(),
            Self::Cast { to } => format!("cast: the same values, rounded to {to} on one side"),
            Self::Dtype => "different element types, and values that differ by more than rounding".into(),
            Self::Permuted => "permuted: the same elements in a different order".into(),
            Self::Nudged { words, .. } => format!("nudged: {words}"),
            Self::Other { words } => format!("different values: {words}"),
        }
    }

    fn ruling(&self, rows: &Rows<'_>, moment: Moment) -> Ruling {
        let words = self.words();
        let trained = moment == Moment::AfterEqualStart;
        match self {
            Self::Equal { .. } | Self::StatisticsAgree { .. } => return Ruling::new(Verdict::Match, words),
            Self::Unrecorded | Self::OtherShards => {
                return Ruling::new(Verdict::Unknown, words)
                    .todo("collect hashes and statistics on both sides, sharded the same way");
            }
            _ => {}
        }
        if let Self::Nudged { distance, .. } = self
            && trained
            && distance.is_none_or(|distance| distance <= rows.limits().trained_weights)
        {
            let verdict = if rows.pair().is_same() { Verdict::Note } else { Verdict::Expected };
            return Ruling::new(
                verdict,
                format!("{words}; equal before, so this is the effect of rounding on a training step"),
            );
        }
        if moment == Moment::AfterOtherStart {
            let why = format!(
                "{words}; equal before, but other weights differed from the start, and gradients depend on all"
            );
            return Ruling::new(Verdict::Note, why);
        }
        let default = rows.default_ruling(true);
        if trained {
            let why = format!("{words}; equal before, so the training steps differ");
            return Ruling::new(Verdict::Diff, why)
                .todo("check optimizer, clipping, flags and data first; then compare dumps of this step with `probe compare`");
        }
        Ruling { why: format!("{words}: {}", default.why), ..default }
    }
}

/// Relates tensors of different dtypes.
fn of_types(a: &Weight, b: &Weight, x: &str, y: &str, limits: &Limits) -> Relation {
    let is = |hashes: &std::collections::BTreeMap<String, String>, to: &str, hash: &Option<String>| {
        hash.is_some() && hashes.get(to) == hash.as_ref()
    };
    if is(&a.cast_hashes, y, &b.hash) {
        return Relation::Cast { to: y.to_owned() };
    }
    if is(&b.cast_hashes, x, &a.hash) {
        return Relation::Cast { to: x.to_owned() };
    }
    let narrow = [x, y].into_iter().find(|name| name.ends_with("float16"));
    let limit = match narrow {
        Some("bfloat16") => limits.cast_bfloat16,
        Some(_) => limits.cast_float16,
        None => return Relation::Dtype,
    };
    // If the cast hashes disagree, the values differ; the distance is used only without cast hashes.
    let silent = a.cast_hashes.is_empty() && b.cast_hashes.is_empty();
    let distance =
        sketch_distance(a, b).or_else(|| a.statistics.zip(b.statistics).and_then(|(x, y)| x.distance(&y)));
    match distance {
        Some(distance) if silent && distance <= limit => {
            Relation::Cast { to: format!("{} (by their statistics)", narrow.unwrap_or(y)) }
        }
        _ => Relation::Dtype,
    }
}

/// Relates tensors of the same dtype whose bytes differ.
fn of_content(a: &Weight, b: &Weight, trained: bool, limits: &Limits) -> Relation {
    if a.unordered_hash.is_some() && a.unordered_hash == b.unordered_hash {
        return Relation::Permuted;
    }
    let sketched = sketch_distance(a, b).filter(|distance| *distance > SKETCH_FLOOR);
    let statistics = a.statistics.zip(b.statistics);
    // Each bound on the distance from the statistics holds by itself.
    let bound = statistics.and_then(|(x, y)| x.distance(&y));
    let mut words = Vec::new();
    match (sketched, bound) {
        (Some(distance), _) => words.push(format!("by {distance:.1e} of its norm (estimated)")),
        (None, Some(bound)) if a.sketch.is_none() || b.sketch.is_none() => {
            words.push(format!("by at least {bound:.1e} of its magnitude (its statistics show no more)"));
        }
        (None, _) if a.sketch.is_some() && b.sketch.is_some() => {
            words.push(format!("by less than {SKETCH_FLOOR:.0e} of its norm"));
        }
        _ => words.push("by an unrecorded amount".into()),
    }
    if let Some(sum) = statistics.and_then(|(x, y)| {
        let count = x.count?;
        #[expect(clippy::cast_precision_loss, reason = "counts of elements are far below 2^53")]
        let sum = (y.mean? - x.mean?) * count as f64;
        (sum.abs() > 0.0 && sum.is_finite()).then_some(sum)
    }) {
        words.push(format!("the sum of its elements by {sum:.1e}"));
    }
    let rounded: Vec<&str> = ["bfloat16", "float16"]
        .into_iter()
        .filter(|name| a.cast_hashes.get(*name).is_some_and(|hash| b.cast_hashes.get(*name) == Some(hash)))
        .collect();
    let distance = sketched.or(bound);
    if let Some(to) = rounded.first() {
        words.push(format!("equal when rounded to {to}"));
        let limit = if *to == "bfloat16" { limits.cast_bfloat16 } else { limits.cast_float16 };
        // Rounding moves the whole tensor by about a quarter of a unit; changing one element moves it far less.
        // After a training step a distance of that size is normal.
        if !trained && sketched.is_some_and(|distance| distance > limit / 32.0) {
            return Relation::Cast { to: format!("{to} and back ({})", words.join(", ")) };
        }
    }
    let words = words.join(", ");
    match distance {
        Some(distance) if distance > NUDGE => Relation::Other { words },
        None if a.sketch.is_none() && statistics.is_none() => Relation::Other { words },
        _ => Relation::Nudged {
            distance: sketched.or_else(|| a.sketch.as_ref().and(b.sketch.as_ref()).map(|_| 0.0)),
            words,
        },
    }
}

/// Estimates the distance of two tensors, relative to the norm of the first, from their sketches.
fn sketch_distance(a: &Weight, b: &Weight) -> Option<f64> {
    let (x, y) = (lanes(a.sketch.as_deref()?)?, lanes(b.sketch.as_deref()?)?);
    let squares: f64 = x.iter().zip(&y).map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum();
    let own: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
    let norm = a
        .statistics
        .and_then(|statistics| statistics.norm)
        .filter(|norm| norm.is_finite())
        .unwrap_or_else(|| own.sqrt());
    let distance = squares.sqrt() / norm;
    if squares > 0.0 { distance.is_finite().then_some(distance) } else { Some(0.0) }
}

/// Decodes the lanes of a sketch; `None` if the text is not a sketch.
fn lanes(text: &str) -> Option<Vec<f32>> {
    let digits = text.as_bytes();
    if digits.len() != LANES * 8 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> = digits
        .chunks_exact(2)
        .map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.last()?)?))
        .collect();
    bytes?.chunks_exact(4).map(|four| Some(f32::from_le_bytes(four.try_into().ok()?))).collect()
}
