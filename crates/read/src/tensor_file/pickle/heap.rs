//! Values built by a pickle program, and their storage.

use std::ops::Range;

use super::{Class, Element};

/// A value; containers are positions in the [`Heap`], so that values are small and cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::tensor_file) enum Item<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// Integer of more than 64 bits: two's complement, little endian.
    BigInt(&'a [u8]),
    Float(f64),
    Text(&'a str),
    Tuple(Span),
    List(u32),
    Dict(u32),
    /// A record: a dict of its fields.
    Record(u32),
    Class(Class),
    Storage(u32),
    Tensor(u32),
    /// `torch.Size` of the arguments in the tuple.
    Size(Span),
    /// `torch.device` of the arguments in the tuple.
    Device(Span),
    /// Bytes of the program.
    Bytes(Inline),
    /// Element type of an array, by its position in the heap.
    ArrayType(u32),
    /// A value of which only the existence is known.
    Opaque,
}

/// A tuple: a run of items of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::tensor_file) struct Span {
    start: u32,
    len: u32,
}

/// Bytes that lie in the program itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tensor_file) struct Inline {
    pub(in crate::tensor_file) at: u32,
    pub(in crate::tensor_file) length: u32,
    /// True for text whose characters are the bytes.
    pub(in crate::tensor_file) is_text: bool,
}

/// Reference to a storage in a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::tensor_file) struct StorageId<'a> {
    /// Element type; `None` for bytes.
    pub(in crate::tensor_file) element: Option<Element>,
    /// Name of the archive member below `data/`.
    pub(in crate::tensor_file) key: &'a str,
    /// Number of elements, or of bytes if there is no element type.
    pub(in crate::tensor_file) count: u64,
}

/// A tensor as described by a program; nothing about its storage has been checked.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::tensor_file) struct Rebuilt {
    /// Position in [`Heap::storages`]; `None` if the tensor has no readable storage.
    pub(in crate::tensor_file) storage: Option<u32>,
    /// Its elements, if they lie in the program.
    pub(in crate::tensor_file) inline: Option<Inline>,
    pub(in crate::tensor_file) element: Element,
    /// In elements, as are the strides.
    pub(in crate::tensor_file) offset: usize,
    pub(in crate::tensor_file) shape: Box<[usize]>,
    pub(in crate::tensor_file) strides: Box<[usize]>,
    pub(in crate::tensor_file) requires_grad: bool,
    /// Reason the tensor cannot be used although the file is valid.
    pub(in crate::tensor_file) fault: Option<&'static str>,
}

/// All values of a program.
#[derive(Debug, Default)]
pub(in crate::tensor_file) struct Heap<'a> {
    tuples: Vec<Item<'a>>,
    lists: Vec<Vec<Item<'a>>>,
    dicts: Vec<Vec<(Item<'a>, Item<'a>)>>,
    pub(in crate::tensor_file) storages: Vec<StorageId<'a>>,
    pub(in crate::tensor_file) tensors: Vec<Rebuilt>,
    /// Element types of arrays.
    pub(super) array_types: Vec<Element>,
}

impl<'a> Heap<'a> {
    pub(in crate::tensor_file) fn tuple(&self, span: Span) -> &[Item<'a>] {
        let range = span.start as usize..(span.start as usize).saturating_add(span.len as usize);
        self.tuples.get(range).unwrap_or_default()
    }

    pub(in crate::tensor_file) fn list(&self, list: u32) -> &[Item<'a>] {
        self.lists.get(list as usize).map_or(&[], Vec::as_slice)
    }

    pub(in crate::tensor_file) fn dict(&self, dict: u32) -> &[(Item<'a>, Item<'a>)] {
        self.dicts.get(dict as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn new_tuple(&mut self, items: impl Iterator<Item = Item<'a>>) -> Item<'a> {
        let start = index(self.tuples.len());
        self.tuples.extend(items);
        let Range { start, end } = start..index(self.tuples.len());
        Item::Tuple(Span { start, len: end - start })
    }

    pub(super) fn new_list(&mut self) -> Item<'a> {
        self.lists.push(Vec::new());
        Item::List(index(self.lists.len() - 1))
    }

    /// Returns the number of fields that a state sets.
    pub(super) fn fields_of(&self, state: Item<'a>) -> usize {
        match state {
            Item::Dict(dict) => self.dict(dict).len(),
            Item::Tuple(span) => self.tuple(span).len(),
            _ => 0,
        }
    }

    /// Sets the fields of a record: those of a dict, or those of a tuple under their positions.
    pub(super) fn set_fields(&mut self, record: u32, state: Item<'a>) {
        let fields: Vec<(Item<'a>, Item<'a>)> = match state {
            Item::Dict(dict) => self.dict(dict).to_vec(),
            Item::Tuple(span) => (0..).map(Item::Int).zip(self.tuple(span).iter().copied()).collect(),
            _ => Vec::new(),
        };
        self.extend_dict(record, fields.into_iter().flat_map(|(key, value)| [key, value]));
    }

    /// Returns the field `name` of a record.
    pub(in crate::tensor_file) fn field(&self, item: Item<'a>, name: &str) -> Option<Item<'a>> {
        let Item::Record(record) = item else { return None };
        self.dict(record).iter().find(|(key, _)| *key == Item::Text(name)).map(|(_, value)| *value)
    }

    pub(super) fn new_dict(&mut self) -> Item<'a> {
        self.dicts.push(Vec::new());
        Item::Dict(index(self.dicts.len() - 1))
    }

    pub(super) fn extend_list(&mut self, list: u32, items: impl Iterator<Item = Item<'a>>) {
        if let Some(list) = self.lists.get_mut(list as usize) {
            list.extend(items);
        }
    }

    pub(super) fn extend_dict(&mut self, dict: u32, mut items: impl Iterator<Item = Item<'a>>) {
        if let Some(dict) = self.dicts.get_mut(dict as usize) {
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                dict.push((key, value));
            }
        }
    }

    pub(super) fn new_tensor(&mut self, tensor: Rebuilt) -> Item<'a> {
        self.tensors.push(tensor);
        Item::Tensor(index(self.tensors.len() - 1))
    }

    /// Reads a persistent id: `('storage', class, key, location, count)`.
    pub(super) fn storage(&mut self, id: Item<'a>) -> Result<Item<'a>, String> {
        let Item::Tuple(span) = id else {
            return Err("a persistent id is not a tuple, as torch writes it".into());
        };
        match *self.tuple(span) {
            [
                Item::Text("storage"),
                Item::Class(Class::Storage(element)),
                Item::Text(key),
                _,
                Item::Int(count),
                ..,
            ] => {
                let count = u64::try_from(count).map_err(|_| format!("a storage has {count} elements"))?;
                self.storages.push(StorageId { element, key, count });
                Ok(Item::Storage(index(self.storages.len() - 1)))
            }
            _ => {
                Err("a persistent id is not ('storage', class, key, location, count), as torch writes it"
                    .into())
            }
        }
    }
}

/// Converts to `u32`; the budget of values is far below its limit.
pub(super) fn index(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}
