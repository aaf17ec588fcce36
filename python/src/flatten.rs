//! Converts the arguments or results of a call to slots: walks tuples, lists and dicts, and names every value in
//! them.
//!
//! Runs no user code on the way: calls no `__repr__`, consumes no iterator.

use std::fmt::Write as _;

use probe::capture::{SlotRecord, SlotValue};
use probe::dump::{Number, Scalar, SlotSide};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyDict, PyFloat, PyInt, PyList, PySlice, PyTuple, PyType};

use crate::tensor::{TensorKind, Torch, text};

/// Containers below this depth are not entered.
const MAX_DEPTH: usize = 12;

/// Most values of one call that are listed.
const MAX_SLOTS: usize = 20_000;

/// Texts are truncated to this many characters.
const MAX_TEXT: usize = 1000;

/// Receives the tensors met on the way.
pub(crate) trait TensorSink<'py> {
    /// Records `tensor` under `path`; pushes one slot, or several for a tensor made of others.
    fn tensor(
        &mut self,
        tensor: &Bound<'py, PyAny>,
        kind: TensorKind,
        path: &str,
        side: SlotSide,
        slots: &mut Vec<SlotRecord>,
    );
}

/// Format of a call's values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    pub(crate) side: SlotSide,
    /// Lists of plain numbers (sizes, strides) become one value instead of one per number.
    pub(crate) join_numbers: bool,
}

/// Walks one value.
pub(crate) struct Walk<'a, S> {
    pub(crate) torch: &'a Torch,
    pub(crate) sink: &'a mut S,
    pub(crate) style: Style,
    pub(crate) slots: &'a mut Vec<SlotRecord>,
}

impl<'py, S: TensorSink<'py>> Walk<'_, S> {
    /// Adds `value` and everything in it under `path`.
    pub(crate) fn value(&mut self, value: &Bound<'py, PyAny>, path: &mut String, depth: usize) {
        if self.slots.len() >= MAX_SLOTS {
            return;
        }
        let kind = self.torch.kind(value);
        // Most non-tensors are plain values, which need no inspection.
        if kind == TensorKind::No && (value.is_none() || is_plain_number(value)) {
            self.push(path, self.scalar(value));
            return;
        }
        if kind != TensorKind::No {
            self.sink.tensor(value, kind, path, self.style.side, self.slots);
            return;
        }
        if depth < MAX_DEPTH {
            if let Ok(items) = value.cast::<PyTuple>() {
                if value.get_type().is(&self.torch.size_class) {
                    let text = shown(value);
                    let numbers = text.trim_start_matches("torch.Size(").trim_end_matches(')');
                    self.push(path, printed("torch.Size", numbers));
                } else {
                    self.items(&items.iter().collect::<Vec<_>>(), path, depth);
                }
                return;
            }
            if let Ok(items) = value.cast::<PyList>() {
                self.items(&items.iter().collect::<Vec<_>>(), path, depth);
                return;
            }
            if let Ok(map) = value.cast::<PyDict>() {
                for (key, item) in map.iter() {
                    let key = text(&key)
                        .or_else(|| key.extract::<i64>().ok().map(|key| key.to_string()))
                        .unwrap_or_else(|| class_name(&key));
                    self.below(path, &key, &item, depth);
                }
                return;
            }
            if let Some(fields) = dataclass_fields(value) {
                for field in fields {
                    if let Ok(item) = value.getattr(field.as_str()) {
                        self.below(path, &field, &item, depth);
                    }
                }
                return;
            }
        }
        self.push(path, self.scalar(value));
    }

    fn items(&mut self, items: &[Bound<'py, PyAny>], path: &mut String, depth: usize) {
        if self.style.join_numbers && !items.is_empty() && items.iter().all(is_plain_number) {
            let numbers: Vec<String> = items
                .iter()
                .map(|item| match self.scalar(item) {
                    SlotValue::Scalar(scalar) => scalar.to_string(),
                    _ => String::new(),
                })
                .collect();
            self.push(path, printed("list", &format!("[{}]", numbers.join(", "))));
            return;
        }
        for (index, item) in items.iter().enumerate() {
            self.at(path, index, item, depth);
        }
    }

    /// Adds `item` under `path.part`.
    pub(crate) fn below(&mut self, path: &mut String, part: &str, item: &Bound<'py, PyAny>, depth: usize) {
        let length = path.len();
        path.push('.');
        path.push_str(part);
        self.value(item, path, depth + 1);
        path.truncate(length);
    }

    /// Adds `item` under `path.index`.
    pub(crate) fn at(&mut self, path: &mut String, index: usize, item: &Bound<'py, PyAny>, depth: usize) {
        let length = path.len();
        // Writing to a string never fails.
        _ = write!(path, ".{index}");
        self.value(item, path, depth + 1);
        path.truncate(length);
    }

    fn push(&mut self, path: &str, value: SlotValue) {
        self.slots.push(SlotRecord { path: path.to_owned(), side: self.style.side, value });
    }

    fn scalar(&self, value: &Bound<'_, PyAny>) -> SlotValue {
        if value.is_none() {
            return SlotValue::None;
        }
        if let Some(number) = number(value) {
            return number;
        }
        if let Some(text) = text(value) {
            return SlotValue::Scalar(if is_device(&text) {
                Scalar::Device(text.into())
            } else {
                Scalar::Text(text.chars().take(MAX_TEXT).collect::<String>().into())
            });
        }
        let class = value.get_type();
        if class.is(&self.torch.device_class) {
            return SlotValue::Scalar(Scalar::Device(shown(value).into()));
        }
        if class.is(&self.torch.dtype_class) {
            return printed("torch.dtype", &shown(value));
        }
        if value.is_instance_of::<PyComplex>() {
            return printed("complex", &shown(value));
        }
        if value.is_instance_of::<PySlice>() {
            return slice(value);
        }
        if value.is(value.py().Ellipsis()) {
            return printed("ellipsis", "...");
        }
        other(value)
    }
}

/// Returns a number of Python's own types; `None` for anything else.
fn number(value: &Bound<'_, PyAny>) -> Option<SlotValue> {
    let number = |number| Some(SlotValue::Scalar(Scalar::Number(number)));
    if value.is_exact_instance_of::<PyBool>() {
        return number(Number::Bool(value.is_truthy().unwrap_or(false)));
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().map_or_else(|_| Some(unsupported(value)), |v| number(Number::Float(v)));
    }
    if !value.is_exact_instance_of::<PyInt>() {
        return None;
    }
    if let Ok(v) = value.extract::<i64>() {
        return number(Number::Int(v));
    }
    match value.extract::<u64>() {
        Ok(v) => number(Number::UInt(v)),
        Err(_) => Some(printed("int", &shown(value))),
    }
}

fn slice(value: &Bound<'_, PyAny>) -> SlotValue {
    let py = value.py();
    let part = |name| {
        let part = value.getattr(name).ok()?;
        part.extract::<i64>().ok().map(|v| v.to_string())
    };
    let parts = [intern!(py, "start"), intern!(py, "stop"), intern!(py, "step")]
        .map(|name| part(name).unwrap_or_else(|| "None".into()));
    printed("slice", &format!("[{}]", parts.join(", ")))
}

/// Returns a value of a class that is known by name only. No methods are called on objects of unknown classes: a call on a
/// torch.fx proxy would end up in the program's graph, and asking a symbolic size for its number would fix it.
fn other(value: &Bound<'_, PyAny>) -> SlotValue {
    let py = value.py();
    let number = |number| SlotValue::Scalar(Scalar::Number(number));
    let name = class_name(value);
    let module = value.get_type().getattr(intern!(py, "__module__")).ok().and_then(|module| text(&module));
    if module.as_deref() == Some("numpy") {
        if let Ok(v) = value.call_method0(intern!(py, "__index__")).and_then(|v| v.extract::<i64>()) {
            return number(Number::Int(v));
        }
        if let Ok(v) = value.call_method0(intern!(py, "__float__")).and_then(|v| v.extract::<f64>()) {
            return number(Number::Float(v));
        }
    }
    match name.as_str() {
        "SymInt" | "SymFloat" | "SymBool" => printed(&format!("torch.{name}"), &shown(value)),
        // These belong to torch, and their text is complete: memory formats, layouts, generators' devices, enums.
        "memory_format" | "layout" => {
            printed(&format!("torch.{name}"), shown(value).trim_start_matches("torch."))
        }
        _ => unsupported(value),
    }
}

fn shown(value: &Bound<'_, PyAny>) -> String {
    value.str().map(|text| text.to_string()).unwrap_or_default()
}

fn printed(kind: &str, text: &str) -> SlotValue {
    SlotValue::Scalar(Scalar::printed(kind, text))
}

fn unsupported(value: &Bound<'_, PyAny>) -> SlotValue {
    SlotValue::Unsupported(class_name(value))
}

/// Returns the class name of `value`.
pub(crate) fn class_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map(|name| name.to_string()).unwrap_or_default()
}

fn is_plain_number(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
}

/// Returns the field names if `value` is a dataclass instance (the outputs of many models are).
fn dataclass_fields(value: &Bound<'_, PyAny>) -> Option<Vec<String>> {
    if value.is_instance_of::<PyType>() {
        return None;
    }
    let fields = value.get_type().getattr(intern!(value.py(), "__dataclass_fields__")).ok()?;
    Some(fields.cast::<PyDict>().ok()?.keys().iter().filter_map(|key| text(&key)).collect())
}

/// Returns true for torch's device names.
fn is_device(text: &str) -> bool {
    let (kind, index) = text.split_once(':').unwrap_or((text, "0"));
    matches!(kind, "cpu" | "cuda" | "npu" | "xpu" | "mps" | "meta" | "hpu" | "mlu")
        && !index.is_empty()
        && index.bytes().all(|b| b.is_ascii_digit())
}
