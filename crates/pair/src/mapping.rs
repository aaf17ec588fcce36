//! Correspondences given by the user: modules that were moved, ops that were replaced, and values of both.
//!
//! Our own format is TOML with `[[module]]`, `[[op]]` and `[[value]]`, each with `baseline` and `candidate`, and `[[layout]]` with layouts of
//! a run on many ranks.
//! The mappings of the older tool in YAML are supported too: lines of `candidate: baseline` for cells and data, lists of
//! functions, and names of layers by class.

mod older_yaml;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use probe_dump::{Op, OpName, without_module_prefix};
use probe_files::settings::{self, SettingsError};

/// Names of the candidate, each with the baseline's.
type Renames = Vec<(Box<str>, Box<str>)>;

/// An op and its slot.
type Leaf = (Box<str>, Box<str>);

/// Correspondences; empty by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Module paths, or paths with class, of candidate and baseline, the candidate's longest first.
    modules: Renames,
    /// Whole names or stems of ops, from candidate to baseline.
    ops: HashMap<Box<str>, Box<str>>,
    /// Values, from candidate to baseline.
    values: HashMap<Leaf, Leaf>,
    /// Functions of MindSpore.
    functions: HashMap<Box<str>, Function>,
    /// Layouts of values of a run on many ranks.
    layouts: Vec<LayoutLine>,
    /// Names inside modules of a class of MindSpore, and PyTorch's names for them.
    layers: HashMap<Box<str>, Renames>,
}

/// How the values of an op lie on the ranks of the run on many.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutLine {
    /// Pattern of names of ops.
    pub op: Box<str>,
    /// Pattern of slots; all results without it.
    pub slot: Option<Box<str>>,
    /// Dimensions, and the axes over which they are cut: `b s[cp:zigzag] (heads*dim)[tp]`.
    pub dims: Box<str>,
    /// Axes of the ranks, the outermost first: `dp=2 tp=4`. Without it, those of the recorded groups.
    pub mesh: Option<Box<str>>,
}

/// A function of PyTorch that stands for one of MindSpore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Function {
    /// PyTorch's name, without call number and pass.
    pub(super) torch: Box<str>,
    /// Positions of arguments and results: MindSpore's path, PyTorch's path. Empty: all as they are.
    pub(super) slots: Renames,
}

/// Class under which a mapping of layers holds the names at the top of a model.
const TOP: &str = "TopLayer";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    module: Vec<Entry>,
    #[serde(default)]
    op: Vec<Entry>,
    #[serde(default)]
    value: Vec<Entry>,
    #[serde(default)]
    layout: Vec<LayoutLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    baseline: Box<str>,
    candidate: Box<str>,
}

impl Mapping {
    /// Reads a mapping: YAML of the older tool if the name ends in `.yaml` or `.yml`, else TOML.
    ///
    /// # Errors
    /// [`SettingsError`] with file, place and remedy.
    pub fn from_file(path: &Path) -> Result<Self, SettingsError> {
        let yaml = path.extension().is_some_and(|kind| kind == "yaml" || kind == "yml");
        settings::load(path, if yaml { Self::from_yaml } else { Self::from_toml })
    }

    /// Reads a mapping in TOML.
    ///
    /// # Errors
    /// The problem, in words.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let file: File =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().replace('\n', " "))?;
        let mut mapping = Self::default();
        for Entry { baseline, candidate } in file.module {
            mapping.add_module(&candidate, &baseline)?;
        }
        for Entry { baseline, candidate } in file.op {
            mapping.add_op(&candidate, &baseline)?;
        }
        for Entry { baseline, candidate } in file.value {
            mapping.add_value(&candidate, &baseline)?;
        }
        mapping.layouts = file.layout;
        Ok(mapping)
    }

    /// Reads a mapping of the older tool: of cells, data, APIs or layers.
    ///
    /// # Errors
    /// The problem, with the line.
    pub fn from_yaml(text: &str) -> Result<Self, String> {
        older_yaml::read(text)
    }

    /// Returns true if nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
            && self.ops.is_empty()
            && self.values.is_empty()
            && self.functions.is_empty()
            && self.layouts.is_empty()
            && self.layers.is_empty()
    }

    fn add_module(&mut self, candidate: &str, baseline: &str) -> Result<(), String> {
        let path = |name: &str| Box::from(without_module_prefix(name).trim_matches('.'));
        let (candidate, baseline): (Box<str>, Box<str>) = (path(candidate), path(baseline));
        if candidate.is_empty() || self.modules.iter().any(|(other, _)| *other == candidate) {
            return Err(format!("module {candidate:?} is empty or appears twice"));
        }
        self.modules.push((candidate, baseline));
        self.modules.sort_by_key(|(candidate, _)| std::cmp::Reverse(candidate.len()));
        Ok(())
    }

    fn add_op(&mut self, candidate: &str, baseline: &str) -> Result<(), String> {
        let whole = |name: &str| OpName::parse(name).call().is_some();
        if whole(candidate) != whole(baseline) {
            return Err(format!(
                "op {candidate:?}: give both names with call number and pass, or both without"
            ));
        }
        match self.ops.insert(candidate.into(), baseline.into()) {
            None => Ok(()),
            Some(_) => Err(format!("op {candidate:?} appears twice")),
        }
    }

    fn add_value(&mut self, candidate: &str, baseline: &str) -> Result<(), String> {
        let split = |name: &str| {
            split_leaf(name).ok_or_else(|| {
                format!("value {name:?}: expected an op and its slot, such as `Functional.gelu.0.forward output.0`")
            })
        };
        let ((op, slot), partner) = (split(candidate)?, split(baseline)?);
        self.ops.entry(op.clone()).or_insert_with(|| partner.0.clone());
        match self.values.insert((op, slot), partner) {
            None => Ok(()),
            Some(_) => Err(format!("value {candidate:?} appears twice")),
        }
    }

    /// Returns the mapping with the names of one side replaced, the baseline's or the candidate's.
    pub(super) fn renamed<'a>(&'a self, of_baseline: bool, name: impl Fn(&'a str) -> Cow<'a, str>) -> Self {
        let sides = |candidate: &'a str, baseline: &'a str| -> (Box<str>, Box<str>) {
            if of_baseline {
                (candidate.into(), name(baseline).into())
            } else {
                (name(candidate).into(), baseline.into())
            }
        };
        let leaves = |(candidate, baseline): (&'a Leaf, &'a Leaf)| {
            let (op, partner) = sides(&candidate.0, &baseline.0);
            ((op, candidate.1.clone()), (partner, baseline.1.clone()))
        };
        Self {
            modules: self.modules.iter().map(|(candidate, baseline)| sides(candidate, baseline)).collect(),
            ops: self.ops.iter().map(|(candidate, baseline)| sides(candidate, baseline)).collect(),
            values: self.values.iter().map(leaves).collect(),
            functions: HashMap::new(),
            layouts: Vec::new(),
            layers: HashMap::new(),
        }
    }

    /// Returns the layouts of a run on many ranks.
    pub fn layouts(&self) -> &[LayoutLine] {
        &self.layouts
    }

    /// Returns the user's partner of a function of MindSpore.
    pub(super) fn function(&self, stem: &str) -> Option<&Function> {
        self.functions.get(stem)
    }

    /// Returns the path of a module of MindSpore with PyTorch's names. `class` gives the class of the module at a path.
    pub(super) fn layers<'a>(&self, path: &'a str, class: impl Fn(&str) -> Option<&'a str>) -> Cow<'a, str> {
        if self.layers.is_empty() {
            return Cow::Borrowed(path);
        }
        let mut renamed: Vec<&str> = Vec::new();
        let mut at = 0;
        while let Some(rest) = path.get(at..).filter(|rest| !rest.is_empty()) {
            let around = if at == 0 { Some(TOP) } else { class(&path[..at - 1]) };
            let names = around.and_then(|class| self.layers.get(class)).map_or(&[][..], Vec::as_slice);
            let part = rest.split('.').next().unwrap_or(rest);
            let is_here = |own: &str| {
                rest.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let known = names.iter().filter(|(own, _)| is_here(own)).max_by_key(|(own, _)| own.len());
            let (own, torch) = known.map_or((part, part), |(own, torch)| (&**own, &**torch));
            renamed.push(torch);
            at += own.len() + 1;
        }
        renamed.retain(|part| !part.is_empty());
        Cow::Owned(renamed.join("."))
    }

    /// Returns the baseline's name of a candidate op that is mapped one to one.
    pub(super) fn op(&self, op: &Op) -> Option<&str> {
        self.ops.get(op.name.as_str()).map(|name| &**name)
    }

    /// Returns the stem of a candidate op in the baseline's terms, without `Module.`.
    pub(super) fn stem<'a>(&'a self, stem: &'a str, is_module: bool) -> Cow<'a, str> {
        if let Some(stem) = self.ops.get(stem) {
            return Cow::Borrowed(stem);
        }
        if !is_module {
            return Cow::Borrowed(stem);
        }
        for (candidate, baseline) in &self.modules {
            let Some(rest) = stem.strip_prefix(&**candidate) else { continue };
            if rest.is_empty() || rest.starts_with('.') {
                let joined = format!("{baseline}{rest}");
                return Cow::Owned(joined.trim_start_matches('.').to_owned());
            }
        }
        Cow::Borrowed(stem)
    }

    /// Returns the baseline's path of a slot of a candidate op that is paired with the op named `baseline`.
    pub(super) fn slot(&self, op: &Op, path: &str, baseline: &str) -> Option<&str> {
        if self.values.is_empty() {
            return None;
        }
        let partner = self.values.get(&(op.name.as_str().into(), path.into()))?;
        (*partner.0 == *baseline).then_some(&*partner.1)
    }
}

/// Splits `OP SLOT`, or a name of the older tool that joins both with a dot, into op and slot.
fn split_leaf(name: &str) -> Option<Leaf> {
    let (op, slot) = name.split_once(' ').or_else(|| {
        let marks = [".input.", ".output.", ".kwargs.", ".parameters."];
        let at = marks.iter().filter_map(|mark| name.rfind(mark)).max()?;
        Some((&name[..at], &name[at + 1..]))
    })?;
    let slot = match slot.split_once('.') {
        Some(("kwargs", rest)) => format!("kwarg.{rest}"),
        Some(("parameters", rest)) => format!("parameter.{rest}"),
        _ => slot.to_owned(),
    };
    (!op.is_empty() && !slot.is_empty()).then(|| (op.into(), slot.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_renamed_at_whole_parts_of_their_paths_the_longest_first() {
        let mapping = Mapping::from_toml(
            "[[module]]\nbaseline = 'layers'\ncandidate = 'model.blocks'\n\
             [[module]]\nbaseline = 'layers.0.mlp.Mlp'\ncandidate = 'model.blocks.0.mlp.FusedMlp'\n",
        )
        .unwrap();
        for (candidate, baseline) in [
            ("model.blocks.3.fc.Linear", "layers.3.fc.Linear"),
            ("model.blocks.0.mlp.FusedMlp", "layers.0.mlp.Mlp"),
            ("model.blocks2.fc.Linear", "model.blocks2.fc.Linear"),
        ] {
            assert_eq!(mapping.stem(candidate, true), baseline);
        }
        assert_eq!(mapping.stem("model.blocks", false), "model.blocks");
    }

    #[test]
    fn mappings_of_the_older_tool_are_read() {
        let text = "# cells\nfc2.Dense: fc2.Linear\n\"NPU.npu_add.0.forward.output.0\": 'Torch.add.0.forward.output.0' # a value\n";
        let mapping = Mapping::from_yaml(text).unwrap();
        assert_eq!(mapping.stem("fc2.Dense", true), "fc2.Linear");
        let op = Op::new(OpName::parse("NPU.npu_add.0.forward"));
        assert_eq!(mapping.op(&op), Some("Torch.add.0.forward"));
        assert_eq!(mapping.slot(&op, "output.0", "Torch.add.0.forward"), Some("output.0"));
        for (text, part) in [("a:\n  - b: c", "line 2"), ("x: y\nx: z", "line 2"), ("x: y\n  z: w", "line 2")]
        {
            let message = Mapping::from_yaml(text).unwrap_err();
            assert!(message.starts_with(part), "{message}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (text, part) in [
            ("[[modul]]\nbaseline = 'a'\ncandidate = 'b'", "modul"),
            ("[[op]]\nbaseline = 'Torch.add'\ncandidate = 'NPU.npu_add.0.forward'", "call number"),
            ("[[value]]\nbaseline = 'Torch.add'\ncandidate = 'NPU.npu_add'", "expected an op and its slot"),
            ("[[module]]\nbaseline = 'a'", "candidate"),
        ] {
            let message = Mapping::from_toml(text).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
