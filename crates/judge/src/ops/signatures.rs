//! Parameters of torch's functions in order, with their defaults, read from `signatures.txt` beside this file,
//! which `signatures.py` writes.

use std::collections::HashMap;
use std::sync::LazyLock;

use probe_dump::{Number, Scalar};

/// The compiled-in list: a function in each line, followed by its parameters, as `name` or `name=default`.
const TEXT: &str = include_str!("signatures.txt");

/// Names of parameters that are dimensions; `signatures.py` writes every function that has one.
const DIMENSIONS: [&str; 12] = [
    "dim",
    "dims",
    "dim0",
    "dim1",
    "dim2",
    "axis",
    "axis0",
    "axis1",
    "start_dim",
    "end_dim",
    "source",
    "destination",
];

type Parameters = Vec<(&'static str, Option<&'static str>)>;

/// Returns the name of a parameter by the path of its slot: `kwarg.alpha`, or `input.2` for the third one of a
/// function whose parameters are known. `None` for a part of an argument, and for an unknown position.
pub(crate) fn parameter<'p>(function: &str, path: &'p str) -> Option<&'p str> {
    if let Some(name) = path.strip_prefix("kwarg.") {
        return (!name.contains('.')).then_some(name);
    }
    let place: usize = path.strip_prefix("input.")?.parse().ok()?;
    table().get(function)?.get(place).map(|(name, _)| *name)
}

/// Returns true for a dimension, or one of several: of `permute(2, 0, 1)` all numbers are.
pub(crate) fn is_dimension(function: &str, path: &str) -> bool {
    if let Some(name) = path.strip_prefix("kwarg.") {
        return DIMENSIONS.contains(&name.split('.').next().unwrap_or(name));
    }
    let place = path.strip_prefix("input.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    let found = table().get(function).zip(place);
    let name =
        found.and_then(|(known, place)| known.get(place).or(known.last().filter(|last| last.0 == "dims")));
    name.is_some_and(|(name, _)| DIMENSIONS.contains(name))
}

/// Returns true if a function has a parameter with a default other than None.
pub(crate) fn has_defaults(function: &str) -> bool {
    let is_default = |(_, default): &(&str, Option<&str>)| default.is_some_and(|default| default != "None");
    table().get(function).is_some_and(|known| known.iter().any(is_default))
}

/// Returns true if a value is the default of a parameter; `None` if the default is not known.
pub(crate) fn is_default(function: &str, parameter: &str, value: &Scalar) -> Option<bool> {
    let (_, default) = table().get(function)?.iter().find(|(name, _)| *name == parameter)?;
    let default = (*default)?;
    Some(match value {
        Scalar::Number(Number::Bool(value)) => default.eq_ignore_ascii_case(&value.to_string()),
        Scalar::Number(number) => {
            default.parse().is_ok_and(|default: f64| number.same(Number::Float(default)))
        }
        Scalar::Text(text) => **text == *default,
        _ => false,
    })
}

fn table() -> &'static HashMap<&'static str, Parameters> {
    static TABLE: LazyLock<HashMap<&str, Parameters>> = LazyLock::new(|| {
        let functions = TEXT.lines().filter_map(|line| line.split_once(' '));
        let parameter = |text: &'static str| match text.split_once('=') {
            Some((name, default)) => (name, Some(default)),
            None => (text, None),
        };
        functions.map(|(name, rest)| (name, rest.split(' ').map(parameter).collect())).collect()
    });
    &TABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_by_place_and_name() {
        assert_eq!(parameter("layer_norm", "input.4"), Some("eps"));
        assert_eq!(parameter("layer_norm", "kwarg.eps"), Some("eps"));
        assert_eq!(parameter("layer_norm", "input.1.0"), None, "a part of an argument");
        assert_eq!(parameter("of_nobody", "input.1"), None);
    }

    #[test]
    fn dimensions_are_told_from_other_numbers() {
        for (function, path) in [
            ("permute", "input.3"),
            ("transpose", "input.2"),
            ("sum", "kwarg.dim"),
            ("roll", "input.2.1"),
            ("mean", "kwarg.dim.0"),
        ] {
            assert!(is_dimension(function, path), "{function} {path}");
        }
        for (function, path) in [
            ("roll", "input.1"),
            ("roll", "input.1.0"),
            ("getitem", "input.1"),
            ("narrow", "input.2"),
            ("sum", "kwarg.keepdim"),
        ] {
            assert!(!is_dimension(function, path), "{function} {path}");
        }
    }

    #[test]
    fn a_default_is_one_whatever_its_type() {
        let float = |value| Scalar::Number(Number::Float(value));
        assert_eq!(is_default("layer_norm", "eps", &float(1e-5)), Some(true));
        assert_eq!(is_default("layer_norm", "eps", &float(1e-3)), Some(false));
        assert_eq!(is_default("add", "alpha", &float(1.0)), Some(true));
        assert_eq!(is_default("gelu", "approximate", &Scalar::Text("tanh".into())), Some(false));
        assert_eq!(is_default("dropout", "training", &Scalar::Number(Number::Bool(true))), Some(true));
        assert_eq!(is_default("elu", "input", &float(1.0)), None, "has none");
        assert_eq!(is_default("of_nobody", "alpha", &float(1.0)), None);
    }
}
