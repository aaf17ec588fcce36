//! Arrays of `NumPy` in a program: an empty one is made first, and its sizes, type and elements are set as its state.
//!
//! Protocol 2 has no bytes: they are written as text, a character for each, that a codec turns back.

use super::classes::ArrayPart;
use super::code::Code;
use super::heap::index;
use super::{Element, Heap, Inline, Item, Rebuilt, Span};
use crate::tensor_file::npy::element_type;
use probe_dump::element_count;

/// Says why an array is not one.
const UNKNOWN: &str =
    "an array of NumPy is not described as NumPy writes it; save it with numpy.save or as a tensor";

impl<'a> Heap<'a> {
    /// Returns the value of a step in the making of an array.
    pub(super) fn array(&mut self, part: ArrayPart, arguments: Span) -> Item<'a> {
        match (part, self.tuple(arguments)) {
            (ArrayPart::DType, [Item::Text(text), ..]) => {
                let known =
                    element_type(text).map_or(Element::Other("of this kind in an array"), Element::Known);
                self.array_types.push(known);
                Item::ArrayType(index(self.array_types.len() - 1))
            }
            (ArrayPart::Empty, [Item::Class(super::Class::Array(ArrayPart::Class)), ..]) => {
                self.new_tensor(Rebuilt {
                    storage: None,
                    inline: None,
                    element: Element::Other("array"),
                    offset: 0,
                    shape: Box::default(),
                    strides: Box::default(),
                    requires_grad: false,
                    fault: Some(UNKNOWN),
                })
            }
            _ => Item::Opaque,
        }
    }

    /// Returns the bytes that a text stands for.
    pub(super) fn encoded(&self, arguments: Span, code: &Code<'a>) -> Item<'a> {
        match self.tuple(arguments) {
            [Item::Text(text), Item::Text("latin1"), ..] => match code.place_of(text) {
                Some(at) => Item::Bytes(Inline { at: index(at), length: index(text.len()), is_text: true }),
                None => Item::Opaque,
            },
            _ => Item::Opaque,
        }
    }

    /// Sets the byte order of a type: `(version, order, ...)`.
    pub(super) fn set_order(&mut self, place: u32, state: Item<'a>) {
        if let Item::Tuple(span) = state
            && let [_, Item::Text(">"), ..] = self.tuple(span)
            && let Some(element) = self.array_types.get_mut(place as usize)
        {
            *element = Element::Other("big-endian");
        }
    }

    /// Sets what an array holds: `(version, sizes, type, by columns, bytes)`. A tensor of torch has its content already.
    pub(super) fn set_array(&mut self, array: u32, state: Item<'a>) {
        let Some(Rebuilt { fault: Some(UNKNOWN), .. }) = self.tensors.get(array as usize) else { return };
        let Item::Tuple(span) = state else { return };
        let &[_, sizes, Item::ArrayType(of), Item::Bool(by_columns), Item::Bytes(inline)] = self.tuple(span)
        else {
            return;
        };
        let (Ok(shape), Some(element)) = (self.sizes(sizes), self.array_types.get(of as usize).copied())
        else {
            return;
        };
        let mut strides = vec![1_usize; shape.len()];
        let mut next = 1_usize;
        let mut set = |at: usize| {
            strides[at] = next;
            next = next.saturating_mul(shape[at].max(1));
        };
        if by_columns {
            (0..shape.len()).for_each(&mut set);
        } else {
            (0..shape.len()).rev().for_each(&mut set);
        }
        if element_count(&shape).is_none() {
            return;
        }
        if let Some(tensor) = self.tensors.get_mut(array as usize) {
            *tensor = Rebuilt {
                storage: None,
                inline: Some(inline),
                element,
                offset: 0,
                shape,
                strides: strides.into(),
                requires_grad: false,
                fault: None,
            };
        }
    }
}
