//! Typed equality of values: `"1e-4"` is 0.0001, `yes` is true, `torch.bfloat16` is `bf16`.

use serde::Deserialize;

use super::pack::Setting;

/// Interpretation of a setting whose form alone is ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Meaning {
    /// As its form suggests: a text that looks like a number is a number.
    #[default]
    Any,
    /// A switch: `1`, `true`, `yes`, `on`, or `0`, `false`, `no`, `off`, the empty text.
    Switch,
    /// A list of device numbers; only its length matters.
    Ids,
    /// A text, compared ignoring case.
    Word,
    /// A dtype.
    Dtype,
}

/// Relation of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sameness {
    /// Equal, in the same form.
    Equal,
    /// Equal, in different forms.
    Normalised,
    /// Different.
    Differs,
    /// Both are masked and cannot be compared.
    Hidden,
}

/// A value in normal form.
#[derive(Debug, Clone, PartialEq)]
enum Plain {
    Null,
    Bool(bool),
    Number(f64),
    /// An integer that float64 cannot represent.
    Large(i128),
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

/// Compares two values.
pub(crate) fn compare(a: &Setting, b: &Setting, meaning: Meaning) -> Sameness {
    if let (Setting::Text(a), Setting::Text(b)) = (a, b)
        && a == b
        && a.contains(super::pack::MASK)
    {
        return Sameness::Hidden;
    }
    if a == b {
        return Sameness::Equal;
    }
    if same(&plain(a, meaning), &plain(b, meaning)) { Sameness::Normalised } else { Sameness::Differs }
}

fn plain(value: &Setting, meaning: Meaning) -> Plain {
    match meaning {
        Meaning::Any => any(value),
        Meaning::Switch => switch(value).map_or_else(|| any(value), Plain::Bool),
        Meaning::Ids => Plain::Large(ids(value)),
        Meaning::Word => Plain::Text(value.to_string().trim().to_lowercase()),
        Meaning::Dtype => Plain::Text(dtype(&value.to_string())),
    }
}

/// Interprets a value as a switch.
pub(crate) fn switch(value: &Setting) -> Option<bool> {
    match value {
        Setting::Null | Setting::Integer(0) => Some(false),
        Setting::Bool(value) => Some(*value),
        Setting::Integer(1) => Some(true),
        Setting::Text(text) => match &*text.trim().to_ascii_lowercase() {
            "1" | "true" | "yes" | "on" | "y" | "t" => Some(true),
            "" | "0" | "false" | "no" | "off" | "n" | "f" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the number of devices in a list of visible ones. CUDA stops at the first negative
/// number.
fn ids(value: &Setting) -> i128 {
    let text = value.to_string();
    let visible = text.split(',').map(str::trim).take_while(|id| !id.is_empty() && !id.starts_with('-'));
    i128::try_from(visible.count()).unwrap_or(i128::MAX)
}

/// Returns torch's name of a dtype.
pub(crate) fn dtype(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let bare = text.strip_prefix("torch.").unwrap_or(&text);
    match bare {
        "bf16" => "bfloat16",
        "fp16" | "half" | "f16" => "float16",
        "fp32" | "float" | "f32" => "float32",
        "fp64" | "double" | "f64" => "float64",
        other => other,
    }
    .to_owned()
}

fn any(value: &Setting) -> Plain {
    match value {
        Setting::Null => Plain::Null,
        Setting::Bool(value) => Plain::Bool(*value),
        Setting::Integer(value) => integer(*value),
        Setting::Float(value) => Plain::Number(*value),
        Setting::Text(text) => of_text(text),
        Setting::List(items) => Plain::List(items.iter().map(any).collect()),
        Setting::Map(record) => {
            let mut entries: Vec<_> =
                record.0.iter().map(|(name, value)| (name.clone(), any(value))).collect();
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            Plain::Map(entries)
        }
    }
}

fn integer(value: i128) -> Plain {
    // Integers up to 2^53 are exact in float64.
    const EXACT: i128 = 1 << 53;
    if (-EXACT..=EXACT).contains(&value) { Plain::Number(exact(value)) } else { Plain::Large(value) }
}

#[expect(clippy::cast_precision_loss, reason = "the caller has checked that it is exact")]
const fn exact(value: i128) -> f64 {
    value as f64
}

fn of_text(text: &str) -> Plain {
    let text = text.trim();
    match text {
        "None" | "null" | "none" => return Plain::Null,
        "NaN" | "nan" => return Plain::Number(f64::NAN),
        _ => {}
    }
    match &*text.to_ascii_lowercase() {
        "true" | "yes" | "on" => return Plain::Bool(true),
        "false" | "no" | "off" => return Plain::Bool(false),
        _ => {}
    }
    if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        || text.ends_with("Infinity")
    {
        if let Ok(value) = text.parse::<i128>() {
            return integer(value);
        }
        if let Ok(value) = text.parse::<f64>() {
            return Plain::Number(value);
        }
    }
    let list = text
        .strip_prefix(['[', '('])
        .and_then(|rest| rest.strip_suffix([']', ')']))
        .filter(|inner| !inner.contains(['[', '(', '{']));
    if let Some(inner) = list {
        let items = inner.split(',').map(str::trim).filter(|item| !item.is_empty());
        return Plain::List(items.map(|item| of_text(item.trim_matches(['\'', '"']))).collect());
    }
    let bare = dtype(text);
    // Only dtype names lose their prefix; other texts keep their case.
    if bare.starts_with("float") || bare.starts_with("bfloat") || text.starts_with("torch.") {
        return Plain::Text(bare);
    }
    Plain::Text(text.to_owned())
}

/// Compares two normal forms; two NaNs are equal.
fn same(a: &Plain, b: &Plain) -> bool {
    match (a, b) {
        (Plain::Number(a), Plain::Number(b)) => number_same(*a, *b),
        (Plain::List(a), Plain::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Plain::Map(a), Plain::Map(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((x, a), (y, b))| x == y && same(a, b))
        }
        // A flag that is present (`--bf16`) equals one that is set (`bf16=1`).
        (Plain::Bool(flag), Plain::Number(number)) | (Plain::Number(number), Plain::Bool(flag)) => {
            number_same(*number, if *flag { 1.0 } else { 0.0 })
        }
        _ => a == b,
    }
}

fn number_same(a: f64, b: f64) -> bool {
    a.total_cmp(&b).is_eq() || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Setting {
        text.into()
    }

    #[test]
    fn values_are_typed() {
        for (a, b) in [
            (text("1e-4"), Setting::Float(0.0001)),
            (text("True"), Setting::Bool(true)),
            (text("None"), Setting::Null),
            (text("torch.bfloat16"), text("bfloat16")),
            (text("[0.9, 0.95]"), Setting::List(vec![Setting::Float(0.9), Setting::Float(0.95)])),
            (Setting::Integer(2), Setting::Float(2.0)),
            (text("NaN"), Setting::Float(f64::NAN)),
        ] {
            assert_eq!(compare(&a, &b, Meaning::Any), Sameness::Normalised, "{a} {b}");
        }
        for (a, b) in [
            (text("1e-4"), Setting::Float(0.001)),
            (text("a"), text("A")),
            (Setting::Null, Setting::Bool(false)),
            (Setting::Integer(i128::from(u64::MAX)), Setting::Integer(i128::from(u64::MAX - 1))),
            (text("1.10"), text("1.1.0")),
        ] {
            assert_eq!(compare(&a, &b, Meaning::Any), Sameness::Differs, "{a} {b}");
        }
    }

    #[test]
    fn meanings_decide() {
        assert_eq!(compare(&text("1"), &text("true"), Meaning::Switch), Sameness::Normalised);
        assert_eq!(compare(&text("0,1"), &text("4,5"), Meaning::Ids), Sameness::Normalised);
        assert_eq!(compare(&text("0"), &text("0,1"), Meaning::Ids), Sameness::Differs);
        assert_eq!(ids(&text("0,1,-1,2")), 2);
        assert_eq!(compare(&text("fp16"), &text("torch.float16"), Meaning::Dtype), Sameness::Normalised);
        assert_eq!(compare(&text("***"), &text("***"), Meaning::Any), Sameness::Hidden);
    }
}
