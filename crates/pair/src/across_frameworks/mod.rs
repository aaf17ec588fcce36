//! Compares a dump of PyTorch with one of MindSpore: the ops of MindSpore are given the names, parameters and argument
//! positions of PyTorch, so that everything behind sees two dumps of one kind.
//!
//! `api_mapping.toml` holds the names. What only one framework records is left out, with a note.

mod arguments;
mod fold;
mod gradients;
mod table;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Alignment, Mapping, Paired, align, pair_slots};
use probe_dump::{
    DType, Framework, Op, OpKind, OpName, Phase, Rank, Scalar, Slot, SlotName, Value, torch_parameter,
};
use table::Table;

/// Returns PyTorch's name of a class of modules, or of a function without its prefix, if MindSpore has another.
pub fn torch_name(op: &OpName) -> Option<&'static str> {
    match op.kind() {
        OpKind::Module => Table::get().class(op.api()),
        _ => Table::get().named(op.stem()).map(last),
    }
}

fn last(stem: &str) -> &str {
    stem.rsplit_once('.').map_or(stem, |(_, last)| last)
}

/// Two parts in PyTorch's terms.
#[derive(Debug)]
pub struct CommonTerms<'a> {
    /// The user's mapping as given, for functions of MindSpore.
    given: &'a Mapping,
    /// The user's mapping with MindSpore's names replaced.
    mapping: Mapping,
    /// MindSpore's stems of the ops that were renamed, by their new names.
    own: HashMap<Box<str>, Box<str>>,
    mindspore_is_baseline: bool,
}

impl<'a> CommonTerms<'a> {
    /// Renames the ops and slots of the side that MindSpore recorded, and removes what only one side can record. Notes on
    /// the baseline's side say so. `later`: the weights have been updated before this part.
    pub fn of(baseline: &mut Rank, candidate: &mut Rank, given: &'a Mapping, later: bool) -> Self {
        let mindspore_is_baseline = baseline.framework == Framework::MindSpore;
        let (mindspore, torch) = sides(baseline, candidate, mindspore_is_baseline);
        let before = mindspore.ops.len();
        fold::fold(&mut mindspore.ops);
        let folded = before - mindspore.ops.len();
        let names = rename(&mut mindspore.ops, &torch.ops, given);
        let mapping = given.renamed(mindspore_is_baseline, |name| in_torch_terms(name, &names));
        let own = names.iter().map(|(old, new)| (new.clone(), OpName::parse(old).stem().into())).collect();
        let steps = without_optimizer(torch, mindspore);
        let views = without_views(mindspore, torch);
        let mut several = gradients::without_composites(&mut torch.ops);
        several.extend(gradients::without_composites(&mut mindspore.ops));
        let mut notes = conventions(baseline, candidate, later);
        notes.push(
            "PyTorch against MindSpore: MindSpore's names are given as PyTorch's, and arguments that only one framework records are left out"
                .into(),
        );
        for (count, what) in [
            (folded, "primitives of MindSpore count as part of the function that they belong to"),
            (
                views,
                "views, casts, sizes and counters are left out: only one framework's capture records them",
            ),
            (steps, "ops of PyTorch's optimizers are left out: MindSpore's are not recorded"),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        }
        if !several.is_empty() {
            let several: Vec<&str> = several.into_iter().collect();
            notes.push(format!(
                "gradients of {} are not compared: PyTorch records those of its last autograd node, which are not those of the arguments; compare those of modules instead",
                several.join(", ")
            ));
        }
        baseline.notes.extend(notes);
        Self { given, mapping, own, mindspore_is_baseline }
    }

    /// Pairs the ops, and the slots that both have.
    pub fn align(&self, baseline: &mut Rank, candidate: &mut Rank) -> Alignment {
        let Alignment { mut ops, notes } = align(baseline, candidate, &self.mapping);
        for pair in &mut ops {
            let Paired::Both(b, c) = pair.ops else { continue };
            let (b, c) = (&mut baseline.ops[b], &mut candidate.ops[c]);
            self.arrange(b, c);
            let slots = pair_slots(b, c, &self.mapping);
            pair.slots = slots.iter().filter(|slots| matches!(slots, Paired::Both(..))).collect();
            for slots in pair.slots.iter() {
                if let Paired::Both(b_slot, c_slot) = slots {
                    let (b, c) = (&mut b.slots[b_slot], &mut c.slots[c_slot]);
                    let (mindspore, torch) = sides(b, c, self.mindspore_is_baseline);
                    share_gradient(mindspore, torch);
                }
            }
        }
        Alignment { ops, notes }
    }

    /// Gives the slots of two functions the same positions.
    fn arrange(&self, b: &mut Op, c: &mut Op) {
        let (mindspore, torch) = sides(b, c, self.mindspore_is_baseline);
        if torch.name.kind() != OpKind::Api {
            return;
        }
        let own = self.own.get(mindspore.name.as_str()).map_or(mindspore.name.stem(), |own| own).to_owned();
        if torch.name.phase() == Phase::Backward {
            return gradients::arrange(torch, mindspore, &own);
        }
        match self.given.function(&own) {
            Some(function) => arguments::as_mapped(mindspore, function),
            None => arguments::arrange(torch, mindspore, &own),
        }
    }
}

/// Returns MindSpore's side and PyTorch's.
fn sides<'a, T>(b: &'a mut T, c: &'a mut T, mindspore_is_baseline: bool) -> (&'a mut T, &'a mut T) {
    if mindspore_is_baseline { (b, c) } else { (c, b) }
}

/// Gives the ops of MindSpore PyTorch's names, and numbers calls of one name in order. `torch` are the ops of the other
/// side: the same function may be called through another prefix there. Returns the new names by the old ones.
fn rename(ops: &mut [Op], torch: &[Op], mapping: &Mapping) -> HashMap<Box<str>, Box<str>> {
    let known: HashSet<&str> = torch.iter().map(|op| op.name.stem()).collect();
    let mut calls: HashMap<String, u32> = HashMap::new();
    let mut names: HashMap<Box<str>, Box<str>> = HashMap::new();
    let classes = classes(ops);
    for op in ops.iter_mut() {
        let old = op.name.clone();
        let word = |phase| old.in_phase(phase);
        let renamed = match (old.kind(), old.phase()) {
            (OpKind::Module, _) => {
                let path = old.module_path().unwrap_or_default();
                let path = mapping.layers(path, |path| classes.get(path).map(|class| &**class));
                let end = old.as_str().get(old.stem().len()..).unwrap_or_default();
                let class = Table::get().class(old.api()).unwrap_or(old.api());
                Some(format!("Module.{path}.{class}{end}"))
            }
            (OpKind::Api, Phase::Backward) => {
                let forward = word(Phase::Forward).and_then(|forward| names.get(&*forward).cloned());
                forward.and_then(|forward| OpName::parse(&forward).in_phase(Phase::Backward))
            }
            (OpKind::Api, Phase::Forward) => {
                let stem = match mapping.function(old.stem()) {
                    Some(function) => function.torch.to_string(),
                    None if fold::is_linear(op) => as_called("Functional.linear", &known),
                    None => as_called(&Table::get().function(old.stem()), &known),
                };
                let call = calls.entry(stem.clone()).or_default();
                *call += 1;
                Some(format!("{stem}.{}.forward", *call - 1))
            }
            (OpKind::Tensor, _) => Some(torch_parameter(old.as_str()).into_owned()),
            _ => None,
        };
        if let Some(renamed) = renamed.filter(|renamed| **renamed != *old.as_str()) {
            op.note = format!("{} in MindSpore", old.as_str()).into();
            let parse = if old.kind() == OpKind::Tensor { OpName::tensor } else { OpName::parse };
            op.name = parse(&renamed);
        }
        names.insert(old.as_str().into(), op.name.as_str().into());
        for slot in &mut op.slots {
            rename_slot(slot);
        }
    }
    for op in ops {
        op.parent = op.parent.as_ref().map(|parent| in_torch_terms(parent, &names).as_ref().into());
    }
    names
}

/// Returns the classes of the recorded modules by path.
fn classes(ops: &[Op]) -> HashMap<String, String> {
    let modules = ops.iter().filter(|op| op.name.phase() == Phase::Forward);
    modules.filter_map(|op| Some((op.name.module_path()?.to_owned(), op.name.api().to_owned()))).collect()
}

/// Returns the name of a module with PyTorch's prefix and class.
fn module(name: &str, stem: &str) -> Option<String> {
    Some(format!("Module.{}{}", Table::get().module(stem), name.get(stem.len()..)?))
}

/// Returns a name of MindSpore, whole or without call number, as PyTorch has it.
fn in_torch_terms<'a>(name: &'a str, names: &'a HashMap<Box<str>, Box<str>>) -> Cow<'a, str> {
    if let Some(known) = names.get(name) {
        return Cow::Borrowed(known);
    }
    let parsed = OpName::parse(name);
    match parsed.kind() {
        OpKind::Module => module(name, parsed.stem()).map_or(Cow::Borrowed(name), Cow::Owned),
        _ if parsed.call().is_none() => match Table::get().function(name) {
            Cow::Borrowed(same) if same == name => Table::get().module(name),
            other => other,
        },
        _ => Cow::Borrowed(name),
    }
}

/// Returns a function's stem with the prefix through which the other side calls it.
fn as_called(stem: &str, known: &HashSet<&str>) -> String {
    let api = last(stem);
    let prefixes = ["Torch", "Functional", "Tensor", "NPU"].map(|prefix| format!("{prefix}.{api}"));
    let operators = [format!("Tensor.__{api}__"), format!("Tensor.__true{api}__")];
    let others = prefixes.into_iter().chain(operators);
    if known.contains(stem) {
        return stem.to_owned();
    }
    others.into_iter().find(|name| known.contains(&**name)).unwrap_or_else(|| stem.to_owned())
}

/// Gives a slot PyTorch's name of the parameter, and a dtype PyTorch's text. In MindSpore every tensor that a
/// differentiated function is given needs a gradient, and a cast parameter does not: that says nothing here.
fn rename_slot(slot: &mut Slot) {
    if let Value::Tensor(record) = &mut slot.value
        && record.requires_grad.is_some()
    {
        Arc::make_mut(&mut Arc::make_mut(record).metadata).requires_grad = None;
    }
    if let Some((side @ ("parameter" | "grad"), name)) = slot.path.split_once('.')
        && let Cow::Owned(name) = torch_parameter(name)
    {
        slot.name = SlotName { path: format!("{side}.{name}").into(), side: slot.side }.into();
    }
    if let Value::Scalar(Scalar::Printed(printed)) = &slot.value
        && &*printed.kind == "mindspore.dtype"
        && let Some(dtype) = DType::parse(&printed.text)
    {
        slot.value = Value::Scalar(Scalar::printed("torch.dtype", dtype.torch_name()));
    }
}

/// Gives a tensor of MindSpore what PyTorch says of its partner: that it needs a gradient tells weights from other values.
fn share_gradient(mindspore: &mut Slot, torch: &Slot) {
    if let (Value::Tensor(record), Some(torch)) = (&mut mindspore.value, torch.value.tensor())
        && torch.requires_grad.is_some()
    {
        Arc::make_mut(&mut Arc::make_mut(record).metadata).requires_grad = torch.requires_grad;
    }
}

/// Removes what follows PyTorch's backward pass, if nothing follows MindSpore's: its optimizers run below what is
/// recorded. Returns the number of ops.
fn without_optimizer(torch: &mut Rank, mindspore: &Rank) -> usize {
    let is_backward = |op: &Op| matches!(op.name.phase(), Phase::Backward | Phase::ParameterGradient);
    let end = |ops: &[Op]| ops.iter().rposition(is_backward).map_or(0, |last| last + 1);
    let (end_of_torch, end_of_mindspore) = (end(&torch.ops), end(&mindspore.ops));
    if end_of_torch == 0 || end_of_mindspore < mindspore.ops.len() {
        return 0;
    }
    let before = torch.ops.len();
    torch.ops.truncate(end_of_torch);
    before - end_of_torch
}

/// Removes views, casts and sizes that PyTorch's side did not record, as captures leave them out there, and PyTorch's counts
/// of batches, which MindSpore does not keep. Returns the number of ops. What a view does wrong shows in its readers.
fn without_views(mindspore: &mut Rank, torch: &mut Rank) -> usize {
    let known: HashSet<&str> = torch.ops.iter().map(|op| op.name.stem()).collect();
    let before = mindspore.ops.len() + torch.ops.len();
    mindspore.ops.retain(|op| {
        let is_view = op.name.kind() == OpKind::Api && Table::get().is_view(op.name.api());
        !is_view || known.contains(op.name.stem())
    });
    torch.ops.retain(|op| !counts(op));
    before - mindspore.ops.len() - torch.ops.len()
}

/// Returns true if an op adds to an integer in place.
fn counts(op: &Op) -> bool {
    let mut tensors = op.slots.iter().filter_map(|slot| slot.value.tensor()).peekable();
    matches!(op.name.stem(), "Tensor.add_" | "Tensor.__iadd__")
        && tensors.peek().is_some()
        && tensors
            .all(|record| record.shape.is_empty() && record.dtype.known().is_some_and(DType::is_integer))
}

/// Returns the differences in definition between the frameworks, each once.
fn conventions(baseline: &Rank, candidate: &Rank, later: bool) -> Vec<String> {
    let classes: HashSet<&str> = baseline
        .ops
        .iter()
        .chain(&candidate.ops)
        .filter(|op| op.name.kind() == OpKind::Module)
        .map(|op| op.name.api())
        .collect();
    let conventions = Table::get().conventions.iter();
    let mut said: Vec<String> = conventions
        .filter(|convention| match convention.classes.as_slice() {
            [] => later,
            classes_of => classes_of.iter().any(|class| classes.contains(&**class)),
        })
        .map(|convention| convention.says.clone())
        .collect();
    said.dedup();
    said
}
