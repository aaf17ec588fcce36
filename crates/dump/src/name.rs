//! Names of recorded ops, and the information they encode.
//!
//! The field's convention encodes everything in one dotted text:
//!
//! | kind | pattern |
//! |---|---|
//! | API | `{Type}.{api}.{n}.{forward or backward}`; MindSpore's `Primitive.{attribute}.{Class}.{n}.…` |
//! | module | `Module.{path}.{Class}.{forward, backward or parameters_grad}.{n}`; `Cell.…` in MindSpore |
//! | step of an optimizer | `Optimizer.{Class}.step.{n}` |
//! | saved variable | `{name}.{n}.debug` |
//! | tensor of a collection | any text |
//!
//! Paths contain dots, and a parameter may be called `forward`, so names are always split from the right.

use std::fmt;

/// Kind of thing an op name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpKind {
    /// A call of an `nn.Module`, or of a `Cell` of MindSpore.
    Module,
    /// A call of a function, tensor method, primitive or dispatcher op.
    Api,
    /// A variable the user saved by name.
    Saved,
    /// A tensor of a collection (checkpoint, safetensors, npz): a name without a call.
    Tensor,
}

/// Pass in which an op ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Forward pass.
    Forward,
    /// Backward pass: inputs are gradients of outputs, outputs are gradients of inputs.
    Backward,
    /// Gradient that reached a module's own parameters.
    ParameterGradient,
    /// No pass: saved variables and collections.
    None,
}

/// Name of an op with the positions of its parts.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpName {
    text: Box<str>,
    kind: OpKind,
    phase: Phase,
    call: Option<u32>,
    /// Length of the leading part without phase and call number.
    stem: u32,
}

/// Prefixes of the names of modules: in PyTorch, and in MindSpore.
const MODULE_PREFIXES: [&str; 2] = ["Module.", "Cell."];

/// Returns a name without the prefix that marks modules.
pub fn without_module_prefix(name: &str) -> &str {
    MODULE_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

/// Functions that return memory without writing to it.
const ALLOCATING: [&str; 7] = [
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "empty_with_format",
    "new_empty",
    "new_empty_strided",
];

impl OpName {
    /// Returns true for a function that returns memory without writing to it: what it returns holds whatever was there.
    pub fn only_allocates(&self) -> bool {
        self.kind == OpKind::Api && ALLOCATING.contains(&self.api())
    }

    /// Returns true if the op is a collective: a function that the program calls, or a dispatcher op from the namespaces `c10d` and
    /// `_c10d_functional`.
    pub fn is_collective(&self) -> bool {
        let space = self.as_str().split('.').next().unwrap_or("");
        matches!(space, "Distributed" | "MintDistributed") || space.to_ascii_lowercase().contains("c10d")
    }

    /// Parses the name of a dump entry. Text that follows no pattern becomes an API without phase.
    pub fn parse(text: &str) -> Self {
        let (kind, phase, call, stem) = Self::split(text);
        // No reader returns a name longer than 4 GiB; saturating avoids a panic.
        Self { text: text.into(), kind, phase, call, stem: u32::try_from(stem).unwrap_or(u32::MAX) }
    }

    /// Names a tensor of a collection.
    pub fn tensor(text: &str) -> Self {
        let stem = u32::try_from(text.len()).unwrap_or(u32::MAX);
        Self { text: text.into(), kind: OpKind::Tensor, phase: Phase::None, call: None, stem }
    }

    fn split(text: &str) -> (OpKind, Phase, Option<u32>, usize) {
        let is_module = MODULE_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
        let kind = if is_module { OpKind::Module } else { OpKind::Api };
        let Some((head, last)) = text.rsplit_once('.') else {
            return (kind, Phase::None, None, text.len());
        };
        // `parameters_grad` of older dumps has no call number.
        if let Some(phase) = phase_word(last) {
            let (stem, call) = match head.rsplit_once('.') {
                Some((stem, number)) if phase != Phase::ParameterGradient => match number.parse() {
                    Ok(call) => (stem, Some(call)),
                    Err(_) => (head, None),
                },
                _ => (head, None),
            };
            return (kind, phase, call, stem.len());
        }
        if last == "debug"
            && let Some((stem, number)) = head.rsplit_once('.')
            && let Ok(call) = number.parse()
        {
            return (OpKind::Saved, Phase::None, Some(call), stem.len());
        }
        if let Ok(call) = last.parse()
            && let Some((stem, word)) = head.rsplit_once('.')
            && let Some(phase) = phase_word(word)
        {
            return (kind, phase, Some(call), stem.len());
        }
        if text.starts_with("Optimizer.")
            && let Ok(call) = last.parse()
        {
            return (kind, Phase::None, Some(call), head.len());
        }
        (kind, Phase::None, None, text.len())
    }

    /// Returns the whole name.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the kind of the op.
    pub const fn kind(&self) -> OpKind {
        self.kind
    }

    /// Returns the pass it ran in.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the number of this call within the step, from 0.
    pub const fn call(&self) -> Option<u32> {
        self.call
    }

    /// Returns the name without phase and call number: `Functional.conv2d`,
    /// `Module.layers.0.mlp.MLP`.
    pub fn stem(&self) -> &str {
        self.text.get(..self.stem as usize).unwrap_or(&self.text)
    }

    /// Returns the API or class name alone: `conv2d`, `MLP`; the whole text for a tensor of a
    /// collection.
    pub fn api(&self) -> &str {
        match self.kind {
            OpKind::Tensor => &self.text,
            _ => self.stem().rsplit_once('.').map_or(self.stem(), |(_, last)| last),
        }
    }

    /// Returns the path of the module (`layers.0.mlp`), without its prefix and class. `None` for all
    /// but modules.
    pub fn module_path(&self) -> Option<&str> {
        if self.kind != OpKind::Module {
            return None;
        }
        without_module_prefix(self.stem()).rsplit_once('.').map(|(path, _)| path)
    }

    /// Returns the name that the same call of the same op has in another phase.
    pub fn in_phase(&self, phase: Phase) -> Option<String> {
        let word = match phase {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::ParameterGradient => "parameters_grad",
            Phase::None => return None,
        };
        let call = self.call.unwrap_or(0);
        match self.kind {
            OpKind::Module => Some(format!("{}.{word}.{call}", self.stem())),
            OpKind::Api => Some(format!("{}.{call}.{word}", self.stem())),
            OpKind::Saved | OpKind::Tensor => None,
        }
    }
}

fn phase_word(word: &str) -> Option<Phase> {
    match word {
        "forward" => Some(Phase::Forward),
        "backward" => Some(Phase::Backward),
        "parameters_grad" => Some(Phase::ParameterGradient),
        _ => None,
    }
}

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpName({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_only_allocates_is_told_by_its_name() {
        let allocates = |name: &str| OpName::parse(name).only_allocates();
        assert!(
            ["Torch.empty.0.forward", "Aten.empty_strided.3.forward", "Tensor.new_empty.0.forward"]
                .map(allocates)
                == [true; 3]
        );
        assert!(["Torch.zeros.0.forward", "Module.empty.Empty.forward.0"].map(allocates) == [false; 2]);
    }

    #[test]
    fn names_are_split_from_the_right() {
        let parts = |text: &str| {
            let name = OpName::parse(text);
            (name.kind(), name.phase(), name.call(), name.stem().to_owned(), name.api().to_owned())
        };
        let expect =
            |kind, phase, call, stem: &str, api: &str| (kind, phase, call, stem.to_owned(), api.to_owned());
        assert_eq!(
            parts("Tensor.__add__.3.backward"),
            expect(OpKind::Api, Phase::Backward, Some(3), "Tensor.__add__", "__add__")
        );
        assert_eq!(
            parts("Module.net.forward.0.act.ReLU.forward.12"),
            expect(OpKind::Module, Phase::Forward, Some(12), "Module.net.forward.0.act.ReLU", "ReLU")
        );
        assert_eq!(
            parts("Module.fc.Linear.parameters_grad"),
            expect(OpKind::Module, Phase::ParameterGradient, None, "Module.fc.Linear", "Linear")
        );
        assert_eq!(
            parts("Module.fc.Linear.parameters_grad.0"),
            expect(OpKind::Module, Phase::ParameterGradient, Some(0), "Module.fc.Linear", "Linear")
        );
        assert_eq!(parts("x_grad.0.debug"), expect(OpKind::Saved, Phase::None, Some(0), "x_grad", "x_grad"));
        assert_eq!(
            parts("Optimizer.AdamW.step.2"),
            expect(OpKind::Api, Phase::None, Some(2), "Optimizer.AdamW.step", "step")
        );
        assert_eq!(
            parts("Cell.net.0.fc.Dense.forward.1"),
            expect(OpKind::Module, Phase::Forward, Some(1), "Cell.net.0.fc.Dense", "Dense")
        );
        assert_eq!(
            parts("Primitive.bn_train.BatchNorm.2.backward"),
            expect(OpKind::Api, Phase::Backward, Some(2), "Primitive.bn_train.BatchNorm", "BatchNorm")
        );
        assert_eq!(OpName::parse("Cell.net.0.fc.Dense.forward.1").module_path(), Some("net.0.fc"));
        assert_eq!(parts("odd"), expect(OpKind::Api, Phase::None, None, "odd", "odd"));
        assert_eq!(OpName::parse("Module.layers.0.fc.Linear.backward.0").module_path(), Some("layers.0.fc"));
        assert_eq!(
            OpName::parse("Module.fc.Linear.parameters_grad").in_phase(Phase::Forward).as_deref(),
            Some("Module.fc.Linear.forward.0")
        );
    }
}
