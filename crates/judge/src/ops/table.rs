//! The names, read from `traits.toml` beside this file.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use serde::Deserialize;

use super::Kind;

/// The table that is compiled in.
const TEXT: &str = include_str!("traits.toml");

/// The table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    functions: HashMap<Kind, Vec<String>>,
    modules: HashMap<Kind, Vec<String>>,
    chooses: Chooses,
    optimizes: Optimizes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chooses {
    functions: HashSet<String>,
    modules: HashSet<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Optimizes {
    functions: HashSet<String>,
}

/// The table by name.
pub(super) struct Table {
    functions: HashMap<String, Kind>,
    modules: HashMap<String, Kind>,
    chooses: Chooses,
    optimizes: Optimizes,
}

impl Table {
    /// The one of this build.
    pub(super) fn get() -> &'static Self {
        // The text is compiled in, and a test reads it.
        static TABLE: LazyLock<Table> =
            LazyLock::new(|| Table::of(toml::from_str(TEXT).expect("the table of this build can be read")));
        &TABLE
    }

    fn of(file: File) -> Self {
        Self {
            functions: by_name(file.functions),
            modules: by_name(file.modules),
            chooses: file.chooses,
            optimizes: file.optimizes,
        }
    }

    /// Kind of a function; `Other` for one that is not known.
    pub(super) fn function(&self, name: &str) -> Kind {
        self.functions.get(name).copied().unwrap_or(Kind::Other)
    }

    /// Kind of a class of modules; `Other` for one that is not known or does several things. Models name classes of their own
    /// after what they are (`LlamaRMSNorm`, `ChatGLMLayerNorm`).
    pub(super) fn module(&self, name: &str) -> Kind {
        let by_ending = || match name {
            _ if name.ends_with("Norm") || name.ends_with("Norm2d") => Kind::Normalisation,
            _ => Kind::Other,
        };
        self.modules.get(name).copied().unwrap_or_else(by_ending)
    }

    /// Whether the function or module chooses between values.
    pub(super) fn chooses(&self, name: &str, is_module: bool) -> bool {
        let names = if is_module { &self.chooses.modules } else { &self.chooses.functions };
        names.contains(name)
    }

    /// Whether optimizers are made of this function and models hardly ever.
    pub(super) fn optimizes(&self, name: &str) -> bool {
        self.optimizes.functions.contains(name)
    }
}

fn by_name(kinds: HashMap<Kind, Vec<String>>) -> HashMap<String, Kind> {
    kinds.into_iter().flat_map(|(kind, names)| names.into_iter().map(move |name| (name, kind))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_once_and_bare() {
        let file: File = toml::from_str(TEXT).unwrap();
        for kinds in [file.functions, file.modules] {
            let names: Vec<String> = kinds.values().flatten().cloned().collect();
            assert_eq!(by_name(kinds).len(), names.len(), "a name stands twice");
            assert!(names.iter().all(|name| name.trim_matches('_') == name));
        }
    }
}
