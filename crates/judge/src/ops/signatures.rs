//! Parameters of torch's functions in order, with their defaults, read from `signatures.txt` beside this file,
//! which `signatures.py` writes.

use std::collections::HashMap;
use std::sync::LazyLock;

use probe_dump::{Number, Scalar};

/// The compiled-in list: a function in each line, followed by its parameters, as `name` or `name=default`.
const TEXT: &str = include_str!("signatures.txt");

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
