//! Flattens nested checkpoint values into named entries.
//!
//! A program can refer to one list a million times, or to itself, so the traversal has limits of its own: values visited,
//! depth, and total bytes of names and texts.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::ReadError;
use crate::tensor_file::Entry;
use crate::tensor_file::pickle::{Class, Element, Heap, Item, Program, Rebuilt, Span};
use probe_dump::{Number, RecordedDType, Scalar, TensorMetadata, TensorRecord, Value};
use probe_files::limits::{MAX_DEPTH, MAX_LISTED_BYTES, MAX_LISTED_VALUES, MAX_NAME_BYTES};

/// Longest `torch.Size` that is printed in full.
const SHOWN_SIZES: usize = 64;

/// Largest number of times a program's values may be listed. Using some lists in several places is fine; a program that
/// does so over and over, each time inside the other, would list more values than any memory holds.
const MAX_REPETITION: usize = 8;

/// Entries, with the position of each one's tensor.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<Entry>,
    pub(super) of_entry: Vec<Option<u32>>,
}

/// Describes the result of a program.
pub(super) fn in_words(program: &Program<'_>) -> String {
    match program.root {
        Item::Dict(dict) => format!("a dict of {} values", program.heap.dict(dict).len()),
        Item::List(list) => format!("a list of {} values", program.heap.list(list).len()),
        Item::Tuple(tuple) => format!("a tuple of {} values", program.heap.tuple(tuple).len()),
        _ => "a value that is not a tensor".into(),
    }
}

/// Lists everything reachable from the root.
pub(super) fn list(program: &Program<'_>, path: &Path) -> Result<Listing, ReadError> {
    let mut walk = Walk {
        heap: &program.heap,
        path,
        name: String::new(),
        listing: Listing::default(),
        values: 0,
        most_values: (program.values.saturating_mul(MAX_REPETITION).saturating_add(1000))
            .min(MAX_LISTED_VALUES),
        bytes: 0,
    };
    walk.visit(program.root, 0)?;
    Ok(walk.listing)
}

struct Walk<'p, 'a> {
    heap: &'p Heap<'a>,
    path: &'p Path,
    name: String,
    listing: Listing,
    values: usize,
    most_values: usize,
    bytes: usize,
}

impl Walk<'_, '_> {
    fn visit(&mut self, item: Item<'_>, depth: usize) -> Result<(), ReadError> {
        self.values += 1;
        self.limit("number of values, with those of shared lists repeated,", self.values, self.most_values)?;
        self.limit("depth of nesting", depth, MAX_DEPTH)?;
        let heap = self.heap;
        match item {
            Item::Dict(dict) => {
                for (position, (key, value)) in heap.dict(dict).iter().enumerate() {
                    self.child(key, position, *value, depth)?;
                }
                Ok(())
            }
            Item::List(list) => self.children(heap.list(list), depth),
            Item::Tuple(tuple) => self.children(heap.tuple(tuple), depth),
            leaf => self.leaf(leaf),
        }
    }

    fn children(&mut self, items: &[Item<'_>], depth: usize) -> Result<(), ReadError> {
        for (position, item) in items.iter().enumerate() {
            self.child(&Item::None, position, *item, depth)?;
        }
        Ok(())
    }

    /// Visits a value under its key, or under its position if the key has no text.
    fn child(
        &mut self,
        key: &Item<'_>,
        position: usize,
        value: Item<'_>,
        depth: usize,
    ) -> Result<(), ReadError> {
        let length = self.name.len();
        if depth > 0 {
            self.name.push('.');
        }
        // Writing to a string cannot fail.
        let _ = match key {
            Item::Text(text) => {
                self.limit("length of a name", length + text.len(), MAX_NAME_BYTES)?;
                self.name.push_str(text);
                Ok(())
            }
            Item::Int(number) => write!(self.name, "{number}"),
            Item::Bool(truth) => write!(self.name, "{truth}"),
            Item::Float(number) => write!(self.name, "{number:?}"),
            _ => write!(self.name, "{position}"),
        };
        self.visit(value, depth + 1)?;
        self.name.truncate(length);
        Ok(())
    }

    fn leaf(&mut self, item: Item<'_>) -> Result<(), ReadError> {
        let number = |number| Value::Scalar(Scalar::Number(number));
        let mut tensor = None;
        let value = match item {
            Item::None => Value::None,
            Item::Bool(truth) => number(Number::Bool(truth)),
            Item::Int(value) => number(Number::Int(value)),
            Item::Float(value) => number(Number::Float(value)),
            Item::BigInt(bytes) => big_integer(bytes),
            Item::Text(text) => {
                self.draw(text.len())?;
                Value::Scalar(Scalar::Text(text.into()))
            }
            Item::Tensor(at) => match self.heap.tensors.get(at as usize) {
                Some(rebuilt) => {
                    tensor = Some(at);
                    self.draw(8 * rebuilt.shape.len())?;
                    Value::Tensor(Arc::new(record(rebuilt)))
                }
                None => Value::Unsupported,
            },
            Item::Class(Class::DType(element)) => {
                let name = match element {
                    Element::Known(dtype) => dtype.name(),
                    Element::Other(name) => name,
                };
                printed("torch.dtype", format!("torch.{name}"))
            }
            Item::Size(sizes) => self.sizes(sizes),
            Item::Device(device) => match self.heap.tuple(device) {
                [Item::Text(text)] => Value::Scalar(Scalar::Device((*text).into())),
                [Item::Text(text), Item::Int(index)] => {
                    Value::Scalar(Scalar::Device(format!("{text}:{index}").into()))
                }
                _ => Value::Unsupported,
            },
            _ => Value::Unsupported,
        };
        self.draw(self.name.len())?;
        self.listing.entries.push(Entry { name: self.name.as_str().into(), value });
        self.listing.of_entry.push(tensor);
        Ok(())
    }

    fn sizes(&self, sizes: Span) -> Value {
        let sizes = self.heap.tuple(sizes);
        let numbers = sizes.iter().take(SHOWN_SIZES).map(|item| match item {
            Item::Int(size) => Some(size.to_string()),
            _ => None,
        });
        match numbers.collect::<Option<Vec<_>>>() {
            Some(numbers) if sizes.len() <= SHOWN_SIZES => {
                printed("torch.Size", format!("[{}]", numbers.join(", ")))
            }
            _ => Value::Unsupported,
        }
    }

    fn draw(&mut self, bytes: usize) -> Result<(), ReadError> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.limit("size of all names and texts", self.bytes, MAX_LISTED_BYTES)
    }

    fn limit(&self, what: &'static str, found: usize, limit: usize) -> Result<(), ReadError> {
        if found <= limit {
            return Ok(());
        }
        Err(ReadError::Limit { path: self.path.into(), what, found: found as u64, limit: limit as u64 })
    }
}

fn printed(kind: &str, text: String) -> Value {
    Value::Scalar(Scalar::printed(kind, text))
}

fn big_integer(bytes: &[u8]) -> Value {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xFF } else { 0 }; 16];
    if bytes.len() > wide.len() {
        return Value::Unsupported;
    }
    wide.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    let value = i128::from_le_bytes(wide);
    match u64::try_from(value) {
        Ok(value) => Value::Scalar(Scalar::Number(Number::UInt(value))),
        Err(_) => printed("int", value.to_string()),
    }
}

fn record(tensor: &Rebuilt) -> TensorRecord {
    let dtype = match tensor.element {
        Element::Known(dtype) => RecordedDType::Known(dtype),
        Element::Other(name) => RecordedDType::Other(name.into()),
    };
    let shape = tensor.shape.iter().map(|&size| size as u64).collect();
    TensorMetadata { requires_grad: Some(tensor.requires_grad), ..TensorMetadata::new(dtype, shape) }.into()
}
