//! Bounds of values: the outputs of modules, by kind of call.
//!
//! Calls of one kind round alike, and a policy with a rule for each call of each module would be unreadable. So all calls of a kind (class and
//! phase of a module, name and phase of a function) share a bound: the one of the call that differs most.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::{FACTOR, LEAST, literal, rounded_up};
use crate::GateError;
use crate::baseline::{BoundaryValue, ValuePart};
use crate::cases::is_boundary;
use crate::import::Scalars;
use crate::side::{SideContent, Values};
use crate::values as lines;
use probe_compare::{CompareOptions, PartReport, Progress, compare_dumps};
use probe_dump::{Dump, NumberSet, OpKind, OpName, Phase};
use probe_files::map::FileAccess;
use probe_judge::Verdict;

/// Smallest relative error that distinguishes two values of baselines, with room for twice as much: norms in lines have 24 bits, and both sides
/// are off by half a unit in the last place.
const RESOLUTION: f64 = 1.0 / (1_u64 << 21) as f64;

/// One run: its scalars, and its values if it has any.
#[derive(Debug)]
pub struct Run {
    /// Paths as given.
    pub paths: Vec<PathBuf>,
    /// Its scalars.
    pub scalars: Scalars,
    values: Option<Dump>,
    parts: Vec<ValuePart>,
}

impl Run {
    /// Opens the files of a run. Runs on the current rayon pool.
    ///
    /// # Errors
    /// [`GateError`] when any of them cannot be read.
    pub fn open(paths: &[PathBuf], access: FileAccess) -> Result<Self, GateError> {
        let mut side = SideContent::open(paths, None, access)?;
        let everything = NumberSet::default();
        let parts = side.lines(&everything, &everything);
        if let Some(entry) = side.incomplete.first() {
            return Err(GateError::Usage(format!(
                "{}: {}; calibrate with complete runs",
                entry.place, entry.reason
            )));
        }
        let values = match side.values {
            Values::None => None,
            Values::Dump(dump) => Some(*dump),
            Values::Lines(parts) => Some(lines::as_dump(&paths[0], parts)),
        };
        Ok(Self { paths: paths.to_vec(), scalars: side.scalars, values, parts })
    }

    /// Returns true if it has values of modules.
    pub const fn has_values(&self) -> bool {
        self.values.is_some()
    }

    /// Returns its values, one line each.
    pub fn parts(&self) -> &[ValuePart] {
        &self.parts
    }
}

/// Measurements of the calls of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueSpread {
    /// Pattern that matches op and slot of these calls.
    pub pattern: String,
    /// Number of runs compared with one another.
    pub runs: usize,
    /// Number of values of this kind per run.
    pub values: usize,
    /// Largest relative l2 error of a value between two runs; `None` if all are bit-equal.
    pub relative: Option<f64>,
    /// The value that differs most; empty if none differs.
    pub largest: String,
}

impl ValueSpread {
    /// Returns the largest `rel_l2` allowed; 0 if values must be equal.
    pub fn bound(&self) -> f64 {
        self.relative.map_or(0.0, bound)
    }
}

/// The spreads of values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ValueSpreads {
    /// Spread of each kind of call that a baseline keeps: modules, or functions if there are no modules.
    pub kinds: Vec<ValueSpread>,
    /// Spread of everything else in dumps: functions inside modules, optimizers. Only a gate of two dumps sees them.
    pub others: Option<f64>,
}

impl ValueSpreads {
    /// Returns true if the runs hold no values.
    pub const fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns the largest `rel_l2` allowed for values of no known kind.
    fn widest(&self) -> f64 {
        let others = self.others.map_or(0.0, bound);
        self.kinds.iter().map(ValueSpread::bound).fold(others, f64::max)
    }
}

/// Returns the bound for values that differ by this much between runs.
fn bound(relative: f64) -> f64 {
    rounded_up((relative * FACTOR).max(RESOLUTION))
}

/// Returns the spread of every kind of call over all pairs of runs; empty if the runs hold no values. Runs on the current rayon
/// pool.
///
/// # Errors
/// [`GateError`] when runs cannot be compared, or a value has no spread because it is not finite, has a different type or shape, or
/// exists in one run only.
pub fn value_spreads(runs: &[Run], progress: &dyn Progress) -> Result<ValueSpreads, GateError> {
    let dumps: Vec<&Dump> = runs.iter().filter_map(|run| run.values.as_ref()).collect();
    if dumps.is_empty() {
        return Ok(ValueSpreads::default());
    }
    if dumps.len() < runs.len() || dumps.len() < LEAST {
        return Err(GateError::Usage(format!(
            "{} of {} runs have values of modules; give them for every run, DUMP,LOSSES",
            dumps.len(),
            runs.len()
        )));
    }
    let mut found: BTreeMap<(bool, String), ValueSpread> = BTreeMap::new();
    let mut refused = None;
    for (index, a) in dumps.iter().enumerate() {
        for (offset, b) in dumps.iter().skip(index + 1).enumerate() {
            let first = index == 0 && offset == 0;
            compare_dumps(a, b, &CompareOptions::default(), progress, &mut |part| {
                if let Err(message) = measure(part, runs.len(), first, &mut found) {
                    refused.get_or_insert(message);
                }
                Ok(())
            })?;
        }
    }
    if let Some(message) = refused {
        return Err(GateError::Usage(message));
    }
    let mut spreads = ValueSpreads::default();
    for ((kept, _), spread) in found {
        if kept {
            spreads.kinds.push(spread);
        } else {
            spreads.others = spreads.others.into_iter().chain(spread.relative).reduce(f64::max);
        }
    }
    // If some values differ from run to run, others may differ in the next run. Only a program whose values are all bit-equal must stay
    // bit-equal.
    if spreads.others.is_some() || spreads.kinds.iter().any(|spread| spread.relative.is_some()) {
        for spread in &mut spreads.kinds {
            spread.relative.get_or_insert(0.0);
        }
    }
    Ok(spreads)
}

/// Adds the differences of a pair of runs in one step of one rank. `first` is true for the first pair, on which values are
/// counted.
fn measure(
    part: &PartReport<'_>,
    runs: usize,
    first: bool,
    found: &mut BTreeMap<(bool, String), ValueSpread>,
) -> Result<(), String> {
    let any_module = part.pair.ops.iter().any(|op| is_boundary(part.pair.name(op)));
    for (op, judged) in part.pair.ops.iter().zip(part.judged.slots.iter()) {
        let name = part.pair.name(op);
        // A baseline has no lines for an op without tensor results.
        if !op.slots.iter().any(|slots| {
            let (x, y) = part.pair.slot(op, slots);
            x.or(y).is_some_and(|slot| slot.side.is_result() && slot.value.tensor().is_some())
        }) {
            continue;
        }
        for (slots, judgement) in op.slots.iter().zip(judged) {
            let (x, y) = part.pair.slot(op, slots);
            // Inputs are included, because a rule for the op also applies to them.
            let Some(slot) = x.or(y).filter(|slot| slot.value.tensor().is_some()) else { continue };
            let whole = || format!("step {} rank {} {name} {}", part.pair.step, part.pair.rank, slot.path);
            let kept = is_boundary(name) || !any_module;
            let spread = found.entry((kept, kind(name))).or_insert_with_key(|(_, pattern)| ValueSpread {
                pattern: pattern.clone(),
                runs,
                values: 0,
                relative: None,
                largest: String::new(),
            });
            spread.values += usize::from(first);
            if judgement.verdict == Verdict::BitEqual {
                continue;
            }
            let error = judgement.error.get().filter(|error| {
                error.is_finite() && matches!(judgement.verdict, Verdict::Close | Verdict::Differs)
            });
            let Some(error) = error else {
                return Err(format!(
                    "{}: {} between two of the runs, so no bound can hold there; are these runs of one commit?",
                    whole(),
                    judgement.verdict.name()
                ));
            };
            if spread.relative.is_none_or(|most| error > most) {
                spread.relative = Some(error);
                spread.largest = whole();
            }
        }
    }
    Ok(())
}

/// Returns the pattern for all calls like this one.
fn kind(op: &str) -> String {
    let name = OpName::parse(op);
    let phase = match name.phase() {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::ParameterGradient => "parameters_grad",
        Phase::None => return format!("{}*", literal(op)),
    };
    match (name.kind(), name.module_path()) {
        (OpKind::Module, Some(path)) if !path.is_empty() => {
            let class = name.stem().rsplit('.').next().unwrap_or_default();
            format!("Module.*.{}.{phase}.*", literal(class))
        }
        (OpKind::Module, _) => format!("{}.{phase}.*", literal(name.stem())),
        _ => format!("{}.*.{phase}.*", literal(name.stem())),
    }
}

/// Returns the policy rules for these spreads, each annotated with the measurements behind it; the last rule is for
/// values that no run had.
pub fn value_rules(spreads: &ValueSpreads) -> String {
    let mut text = String::new();
    if spreads.is_empty() {
        return text;
    }
    let rule = |pattern: &str, bound: f64, remark: &str| {
        let bound = if bound > 0.0 { format!("rel_l2 = {bound:e}") } else { "exact = true".to_owned() };
        format!("\n[[value]]\npattern = {}\n{bound}  # {remark}\n", toml::Value::String(pattern.to_owned()))
    };
    let values: usize = spreads.kinds.iter().map(|spread| spread.values).sum();
    let runs = spreads.kinds.first().map_or(0, |spread| spread.runs);
    let widest = spreads.widest();
    if widest > 0.0 {
        for spread in &spreads.kinds {
            let remark = match spread.relative {
                None => format!("{runs} runs bit-equal in {} values", spread.values),
                Some(relative) => {
                    format!("{runs} runs, {} values, largest spread {relative:.3e}", spread.values)
                }
            };
            text.push_str(&rule(&spread.pattern, spread.bound(), &remark));
        }
        text.push_str(&rule("*", widest, "anything else: the widest of the bounds above"));
    } else {
        _ = write!(text, "{}", rule("*", 0.0, &format!("{runs} runs bit-equal in {values} values")));
    }
    text
}

/// Returns the lines of a run with one value of this kind moved by twice its bound, or with different bits if it must be equal, and the name of that
/// value. `None` if all values of the kind are 0 or cannot be moved.
pub fn moved(parts: &[ValuePart], spread: &ValueSpread) -> Option<(Vec<ValuePart>, String)> {
    let pattern = globset::Glob::new(&spread.pattern).ok()?.compile_matcher();
    let mut parts = parts.to_vec();
    let is_of = |line: &BoundaryValue| {
        line.split().is_some_and(|(op, slot)| pattern.is_match(format!("{op}.{slot}")))
            && line.norm.is_some_and(|norm| norm.is_finite() && norm > 0.0)
            && line.hash.is_some()
    };
    let part = parts.iter_mut().find(|part| part.values.iter().any(is_of))?;
    let line = part.values.iter_mut().find(|line| is_of(line))?;
    let factor = 2.0f64.mul_add(spread.bound(), 1.0);
    for number in [&mut line.max, &mut line.min, &mut line.mean, &mut line.norm].into_iter().flatten() {
        *number *= factor;
    }
    let other = |hash: &String| hash.chars().map(|digit| if digit == '0' { '1' } else { '0' }).collect();
    line.hash = line.hash.as_ref().map(other);
    let name = line.name.clone();
    Some((parts, name))
}
