//! The table of names, read from `api_mapping.toml` beside this file.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use serde::Deserialize;

use probe_dump::{Number, Scalar, without_module_prefix};

/// The compiled-in table.
const TEXT: &str = include_str!("api_mapping.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    prefixes: HashMap<String, String>,
    functions: HashMap<String, String>,
    classes: HashMap<String, String>,
    composite: Functions,
    views: Functions,
    signature: Vec<SignatureEntry>,
    convention: Vec<Convention>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Functions {
    functions: HashSet<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureEntry {
    torch: String,
    arguments: Vec<String>,
    mindspore: HashMap<String, Vec<String>>,
}

/// A setting that the frameworks define differently.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Convention {
    /// Classes of modules, by PyTorch's names, that have it; none for what shows after an update of the weights.
    pub(super) classes: Vec<String>,
    /// The remark.
    pub(super) says: String,
}

/// One argument of a function.
#[derive(Debug, PartialEq)]
pub(super) struct Argument {
    /// Keyword in the function's own framework.
    pub(super) keyword: String,
    /// Position in PyTorch's function; `None` without a counterpart there.
    pub(super) place: Option<usize>,
    /// The default, if it is a number, a truth value or a text.
    pub(super) default: Option<Scalar>,
}

/// Arguments of one function in both frameworks.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) torch: Vec<Argument>,
    mindspore: HashMap<String, Vec<Argument>>,
}

impl Signature {
    /// Returns the arguments of a function of MindSpore.
    pub(super) fn mindspore(&self, stem: &str) -> Option<&[Argument]> {
        self.mindspore.get(&*without_attribute(stem)).map(Vec::as_slice)
    }
}

/// The table, with signatures by PyTorch's name.
pub(super) struct Table {
    prefixes: HashMap<String, String>,
    functions: HashMap<String, String>,
    classes: HashMap<String, String>,
    composite: HashSet<String>,
    views: HashSet<String>,
    signatures: HashMap<String, Signature>,
    pub(super) conventions: Vec<Convention>,
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
        let signatures = file.signature.into_iter().map(|entry| {
            let torch: Vec<Argument> =
                entry.arguments.iter().enumerate().map(|(at, text)| argument(text, |_| Some(at))).collect();
            let place = |name: &str| torch.iter().position(|argument| argument.keyword == name);
            let of = |texts: Vec<String>| texts.iter().map(|text| argument(text, place)).collect();
            let mindspore = entry.mindspore.into_iter().map(|(name, texts)| (name, of(texts))).collect();
            (entry.torch, Signature { torch, mindspore })
        });
        Self {
            signatures: signatures.collect(),
            prefixes: file.prefixes,
            functions: file.functions,
            classes: file.classes,
            composite: file.composite.functions,
            views: file.views.functions,
            conventions: file.convention,
        }
    }

    /// Returns PyTorch's name of a function of MindSpore.
    pub(super) fn named(&self, stem: &str) -> Option<&str> {
        self.functions.get(&*without_attribute(stem)).map(String::as_str)
    }

    /// Returns the stem of a function of MindSpore as PyTorch names it.
    pub(super) fn function<'a>(&'a self, stem: &'a str) -> Cow<'a, str> {
        if let Some(name) = self.named(stem) {
            return Cow::Borrowed(name);
        }
        match stem.split_once('.').and_then(|(prefix, api)| Some((self.prefixes.get(prefix)?, api))) {
            Some((prefix, api)) => Cow::Owned(format!("{prefix}.{api}")),
            None => Cow::Borrowed(stem),
        }
    }

    /// Returns the path and class of a module of MindSpore, without prefix, as PyTorch names the class.
    pub(super) fn module<'a>(&'a self, stem: &'a str) -> Cow<'a, str> {
        let stem = without_module_prefix(stem);
        match stem.rsplit_once('.').and_then(|(path, class)| Some((path, self.classes.get(class)?))) {
            Some((path, class)) => Cow::Owned(format!("{path}.{class}")),
            None => Cow::Borrowed(stem),
        }
    }

    /// Returns PyTorch's name of a class of modules, if it is another.
    pub(super) fn class(&self, class: &str) -> Option<&str> {
        self.classes.get(class).map(String::as_str)
    }

    /// Returns the function's name if PyTorch's backward pass of it has several nodes.
    pub(super) fn composite(&self, api: &str) -> Option<&str> {
        self.composite.get(api).map(String::as_str)
    }

    /// Returns true if a function of PyTorch changes no element, or reads sizes alone.
    pub(super) fn is_view(&self, api: &str) -> bool {
        self.views.contains(api)
    }

    /// Returns the arguments of a function, by PyTorch's name.
    pub(super) fn signature(&self, torch: &str) -> Option<&Signature> {
        self.signatures.get(torch)
    }
}

/// Returns a stem of MindSpore without the attribute that holds a primitive.
pub(super) fn without_attribute(stem: &str) -> Cow<'_, str> {
    match stem.strip_prefix("Primitive.").and_then(|rest| rest.rsplit_once('.')) {
        Some((_, class)) => Cow::Owned(format!("Primitive.{class}")),
        None => Cow::Borrowed(stem),
    }
}

/// Reads `keyword`, `keyword:name` or either with `=default`.
fn argument(text: &str, place: impl Fn(&str) -> Option<usize>) -> Argument {
    let (names, default) =
        text.split_once('=').map_or((text, None), |(names, default)| (names, Some(default)));
    let (keyword, name) = names.split_once(':').unwrap_or((names, names));
    let place = if name == "_" { None } else { place(name) };
    Argument { keyword: keyword.into(), place, default: default.map(scalar) }
}

fn scalar(text: &str) -> Scalar {
    let number = match text {
        "True" => Some(Number::Bool(true)),
        "False" => Some(Number::Bool(false)),
        _ => text.parse().map(Number::Int).ok().or_else(|| text.parse().map(Number::Float).ok()),
    };
    number.map_or_else(|| Scalar::Text(text.into()), Scalar::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_has_a_place_or_says_that_it_has_none() {
        let file: File = toml::from_str(TEXT).unwrap();
        let names: HashSet<_> = file.signature.iter().map(|entry| entry.torch.clone()).collect();
        assert_eq!(names.len(), file.signature.len(), "a function stands twice");
        for entry in &file.signature {
            let keywords: Vec<&str> = entry
                .arguments
                .iter()
                .map(|text| text.split(['=', ':']).next().unwrap_or_default())
                .collect();
            for text in entry.mindspore.values().flatten() {
                let names = text.split('=').next().unwrap_or_default();
                let name = names.split_once(':').map_or(names, |(_, name)| name);
                assert!(name == "_" || keywords.contains(&name), "{}: {text}", entry.torch);
            }
        }
    }

    #[test]
    fn names_are_given_as_pytorch_has_them() {
        let table = Table::get();
        for (mindspore, torch) in [
            ("Primitive.bn_train.BatchNorm", "Functional.batch_norm"),
            ("MintFunctional.softmax", "Functional.softmax"),
            ("Mint.matmul", "Torch.matmul"),
            ("Functional.matmul", "Torch.matmul"),
            ("Functional.gelu", "Functional.gelu"),
            ("Tensor.__add__", "Tensor.__add__"),
        ] {
            assert_eq!(table.function(mindspore), torch);
        }
        assert_eq!(table.module("Cell.text.layers.0.mlp.fc1.Dense"), "text.layers.0.mlp.fc1.Linear");
    }

    #[test]
    fn arguments_have_keyword_place_and_default() {
        let signature = Table::get().signature("Functional.layer_norm").unwrap();
        let own = signature.mindspore("Functional.layer_norm").unwrap();
        assert_eq!((own[2].keyword.as_str(), own[2].place), ("gamma", Some(2)));
        assert_eq!(own[4].place, None);
        assert_eq!(own[6].default, Some(Scalar::Number(Number::Float(1e-5))));
    }
}
