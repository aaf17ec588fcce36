//! Results of the functions and classes named in a checkpoint, derived without running them.

use super::classes::Rebuild;
use super::{Class, Element, Heap, Item, Rebuilt, Span};
use probe_dump::MAX_DIMS;

impl<'a> Heap<'a> {
    /// Returns the number of values that a call copies out of its arguments.
    pub(super) fn copied_by(&self, class: Class, arguments: Span) -> usize {
        match (class, self.tuple(arguments)) {
            (Class::Map, [Item::List(list)]) => self.list(*list).len().saturating_mul(2),
            _ => 0,
        }
    }

    /// Returns the cost of a value beyond its stack slot: the sizes and strides of a tensor.
    pub(super) fn weight(&self, item: Item<'a>) -> usize {
        match item {
            Item::Tensor(at) => self.tensors.get(at as usize).map_or(0, |tensor| 4 + 2 * tensor.shape.len()),
            _ => 0,
        }
    }

    /// Returns the value that calling `class` with `arguments` stands for.
    pub(super) fn call(&mut self, class: Class, arguments: Span) -> Result<Item<'a>, String> {
        match class {
            Class::Rebuild(function) => self.rebuild(function, arguments),
            Class::Map => Ok(self.new_map(arguments)),
            Class::Record => match self.new_dict() {
                Item::Dict(fields) => Ok(Item::Record(fields)),
                other => Ok(other),
            },
            Class::Size => match self.tuple(arguments) {
                [Item::Tuple(sizes)] => Ok(Item::Size(*sizes)),
                _ => Err("torch.Size is not made from a tuple".into()),
            },
            Class::Device => Ok(Item::Device(arguments)),
            Class::Array(part) => Ok(self.array(part, arguments)),
            Class::Opaque => Ok(Item::Opaque),
            Class::Storage(_) | Class::DType(_) | Class::TensorType => {
                Err("the program calls a class that torch checkpoints only name".into())
            }
        }
    }

    /// Builds a map from `OrderedDict()`, or the older `OrderedDict([[key, value], ...])`.
    fn new_map(&mut self, arguments: Span) -> Item<'a> {
        let pairs: Vec<(Item<'a>, Item<'a>)> = match self.tuple(arguments) {
            [Item::List(list)] => self.list(*list).iter().filter_map(|item| self.pair(*item)).collect(),
            _ => Vec::new(),
        };
        let made = self.new_dict();
        if let Item::Dict(dict) = made {
            self.extend_dict(dict, pairs.into_iter().flat_map(|(key, value)| [key, value]));
        }
        made
    }

    fn pair(&self, item: Item<'a>) -> Option<(Item<'a>, Item<'a>)> {
        let items = match item {
            Item::Tuple(span) => self.tuple(span),
            Item::List(list) => self.list(list),
            _ => return None,
        };
        match *items {
            [key, value] => Some((key, value)),
            _ => None,
        }
    }

    fn rebuild(&mut self, function: Rebuild, arguments: Span) -> Result<Item<'a>, String> {
        let odd = || Err("a tensor is not described by the arguments that torch writes".to_string());
        let tensor = match (function, self.tuple(arguments)) {
            (Rebuild::V2, [storage, offset, size, stride, rest @ ..]) => {
                self.strided(*storage, *offset, *size, *stride, None, rest.first(), rest.get(2))?
            }
            (
                Rebuild::V3,
                [storage, offset, size, stride, grad, _, Item::Class(Class::DType(element)), rest @ ..],
            ) => self.strided(*storage, *offset, *size, *stride, Some(*element), Some(grad), rest.first())?,
            (Rebuild::Quantized, [storage, offset, size, stride, _, grad, ..]) => {
                let tensor = self.strided(*storage, *offset, *size, *stride, None, Some(grad), None)?;
                Rebuilt {
                    fault: Some("quantised tensors are not supported; save tensor.dequantize()"),
                    ..tensor
                }
            }
            (Rebuild::Parameter, [Item::Tensor(at), grad, ..]) => match self.tensors.get(*at as usize) {
                Some(tensor) => Rebuilt { requires_grad: *grad == Item::Bool(true), ..tensor.clone() },
                None => return odd(),
            },
            (Rebuild::Device, [tensor @ Item::Tensor(_), ..]) => return Ok(*tensor),
            (
                Rebuild::FromType,
                [Item::Class(inner), Item::Class(Class::TensorType), Item::Tuple(inner_arguments), ..],
            ) => {
                return match inner {
                    // One level only, as torch writes it: no program controls our recursion depth.
                    Class::Rebuild(function) if *function != Rebuild::FromType => {
                        self.rebuild(*function, *inner_arguments)
                    }
                    _ => odd(),
                };
            }
            (Rebuild::Sparse, [_, Item::Tuple(parts), ..]) => self.sparse(*parts),
            (Rebuild::Meta, [Item::Class(Class::DType(element)), size, stride, ..]) => Rebuilt {
                storage: None,
                inline: None,
                element: *element,
                offset: 0,
                shape: self.sizes(*size)?,
                strides: self.sizes(*stride)?,
                requires_grad: false,
                fault: Some("a tensor on the meta device has no data"),
            },
            _ => return odd(),
        };
        Ok(self.new_tensor(tensor))
    }

    #[expect(clippy::too_many_arguments, reason = "these are the arguments of torch's function")]
    fn strided(
        &self,
        storage: Item<'a>,
        offset: Item<'a>,
        size: Item<'a>,
        stride: Item<'a>,
        element: Option<Element>,
        requires_grad: Option<&Item<'a>>,
        metadata: Option<&Item<'a>>,
    ) -> Result<Rebuilt, String> {
        let Item::Storage(storage) = storage else {
            return Err("a tensor has no storage".into());
        };
        let of_storage = self.storages.get(storage as usize).and_then(|id| id.element);
        let element =
            element.or(of_storage).ok_or("a tensor has neither an element type nor a typed storage")?;
        let Item::Int(offset) = offset else {
            return Err("the offset of a tensor is not a number".into());
        };
        let offset = usize::try_from(offset).map_err(|_| format!("a tensor begins at element {offset}"))?;
        let (shape, strides) = (self.sizes(size)?, self.sizes(stride)?);
        if shape.len() != strides.len() {
            return Err(format!("a tensor has {} sizes but {} strides", shape.len(), strides.len()));
        }
        Ok(Rebuilt {
            storage: Some(storage),
            inline: None,
            element,
            offset,
            shape,
            strides,
            requires_grad: requires_grad == Some(&Item::Bool(true)),
            fault: metadata.and_then(|metadata| self.view_fault(*metadata)),
        })
    }

    /// Returns a fault if a tensor is a lazy view whose numbers differ from those in the storage.
    fn view_fault(&self, metadata: Item<'a>) -> Option<&'static str> {
        let Item::Dict(dict) = metadata else { return None };
        self.dict(dict).iter().find_map(|entry| match entry {
            (Item::Text("conj"), Item::Bool(true)) => {
                Some("the tensor is a lazy conjugate; save tensor.resolve_conj()")
            }
            (Item::Text("neg"), Item::Bool(true)) => {
                Some("the tensor is a lazy negation; save tensor.resolve_neg()")
            }
            _ => None,
        })
    }

    fn sparse(&self, parts: Span) -> Rebuilt {
        let parts = self.tuple(parts);
        let element = parts.iter().rev().find_map(|part| match part {
            Item::Tensor(at) => self.tensors.get(*at as usize).map(|tensor| tensor.element),
            _ => None,
        });
        let shape = parts.iter().find_map(|part| match part {
            Item::Size(_) | Item::Tuple(_) => self.sizes(*part).ok(),
            _ => None,
        });
        Rebuilt {
            storage: None,
            inline: None,
            element: element.unwrap_or(Element::Other("sparse")),
            offset: 0,
            shape: shape.unwrap_or_default(),
            strides: Box::default(),
            requires_grad: false,
            fault: Some("sparse tensors are not supported; save tensor.to_dense()"),
        }
    }

    pub(super) fn sizes(&self, item: Item<'a>) -> Result<Box<[usize]>, String> {
        let (Item::Tuple(span) | Item::Size(span)) = item else {
            return Err("the shape of a tensor is not a tuple".into());
        };
        let items = self.tuple(span);
        if items.len() > MAX_DIMS {
            return Err(format!("a tensor has {} dimensions, at most {MAX_DIMS} are supported", items.len()));
        }
        let size = |item: &Item<'_>| match item {
            Item::Int(size) => {
                usize::try_from(*size).map_err(|_| format!("the shape or strides of a tensor contain {size}"))
            }
            _ => Err("the shape of a tensor contains something that is not a number".into()),
        };
        items.iter().map(size).collect()
    }
}
