//! The names, read from `traits.toml` beside this file.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use serde::Deserialize;

use super::kind::Kind;

/// The compiled-in table.
const TEXT: &str = include_str!("traits.toml");

/// The table as written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    functions: HashMap<Kind, Vec<String>>,
    modules: HashMap<Kind, Vec<String>>,
    chooses: Chooses,
    optimizes: Functions,
    rearranges: Functions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chooses {
    functions: HashSet<String>,
    modules: HashSet<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Functions {
    functions: HashSet<String>,
}

/// The table indexed by name.
pub(super) struct Table {
    functions: HashMap<String, Kind>,
    modules: HashMap<String, Kind>,
    chooses: Chooses,
    optimizes: Functions,
    rearranges: Functions,
}

impl Table {
    /// Returns the table of this build.
    pub(super) fn get() -> &'static Self {
        // The text is compiled in, and a test parses it.
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
            rearranges: file.rearranges,
        }
    }

    /// Returns the kind of a function; `Other` if unknown.
    pub(super) fn function(&self, name: &str) -> Kind {
        self.functions.get(name).copied().unwrap_or(Kind::Other)
    }

    /// Returns the kind of a module class; `Other` if unknown or if it does several things. Models name their
    /// own classes after what they are (`LlamaRMSNorm`, `BartScaledWordEmbedding`).
    pub(super) fn module(&self, name: &str) -> Kind {
        let by_ending = || match name {
            _ if name.ends_with("Norm") || name.ends_with("Norm2d") => Kind::Normalisation,
            _ if name.ends_with("WordEmbedding") || name.ends_with("LearnedPositionalEmbedding") => {
                Kind::Embedding
            }
            _ => Kind::Other,
        };
        self.modules.get(name).copied().unwrap_or_else(by_ending)
    }

    /// Returns true if the function or module chooses between values.
    pub(super) fn chooses(&self, name: &str, is_module: bool) -> bool {
        let names = if is_module { &self.chooses.modules } else { &self.chooses.functions };
        names.contains(name)
    }

    /// Returns true for functions that optimizers use and models hardly ever do.
    pub(super) fn optimizes(&self, name: &str) -> bool {
        self.optimizes.functions.contains(name)
    }

    /// Returns true for functions that copy all elements, in another type, shape or order.
    pub(super) fn rearranges(&self, name: &str) -> bool {
        self.rearranges.functions.contains(name)
    }
}

fn by_name(kinds: HashMap<Kind, Vec<String>>) -> HashMap<String, Kind> {
    kinds.into_iter().flat_map(|(kind, names)| names.into_iter().map(move |name| (name, kind))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_models_name_themselves_are_known_by_their_ending() {
        let kind = |name| Table::get().module(name);
        assert_eq!(kind("LlamaRMSNorm"), Kind::Normalisation);
        assert_eq!(kind("BartLearnedPositionalEmbedding"), Kind::Embedding);
        assert_eq!(kind("BartScaledWordEmbedding"), Kind::Embedding);
        assert_eq!(kind("LlamaRotaryEmbedding"), Kind::Other);
    }

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
