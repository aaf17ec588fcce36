//! Frameworks whose programs are recorded.

use std::borrow::Cow;

/// A framework, as far as it decides what names and dtypes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Framework {
    /// PyTorch, and `mindtorch`, which offers PyTorch's functions under their names.
    #[default]
    PyTorch,
    /// MindSpore.
    MindSpore,
}

impl Framework {
    /// Parses the name that a dump gives its framework. Old dumps of PyTorch have none. `None` for a framework that is
    /// not known.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "" | "pytorch" | "torch" | "mindtorch" => Self::PyTorch,
            "mindspore" => Self::MindSpore,
            _ => return None,
        })
    }

    /// Returns the name that dumps of msprobe use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorch",
            Self::MindSpore => "mindspore",
        }
    }
}

/// MindSpore's names of parameters and buffers that PyTorch calls otherwise, by the last part of their name.
const PARAMETERS: [(&str, &str); 5] = [
    ("gamma", "weight"),
    ("beta", "bias"),
    ("embedding_table", "weight"),
    ("moving_mean", "running_mean"),
    ("moving_variance", "running_var"),
];

/// Returns the dotted name of a parameter of MindSpore as PyTorch has it.
pub fn torch_parameter(name: &str) -> Cow<'_, str> {
    let last = name.rsplit_once('.').map_or(name, |(_, last)| last);
    match PARAMETERS.iter().find(|(own, _)| *own == last) {
        Some((_, torch)) => Cow::Owned(format!("{}{torch}", &name[..name.len() - last.len()])),
        None => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_a_parameter_decides() {
        assert_eq!(torch_parameter("bn.moving_mean"), "bn.running_mean");
        assert_eq!(torch_parameter("gamma"), "weight");
        assert_eq!(torch_parameter("gamma.kernel"), "gamma.kernel");
    }
}
