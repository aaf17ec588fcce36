"""Tensors of MindSpore as `probe._core.Recorder` reads tensors: host arrays with the attributes of torch's tensors.

The core looks the classes and element types of this module up by the names that torch gives them.
"""

from __future__ import annotations

import types
from typing import Any

import mindspore
import numpy


class dtype:
    """An element type, by MindSpore's name: `Float32`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return self._name


# The core records arguments of this class under its full name.
dtype.__module__ = "mindspore"


class device:
    """No argument of MindSpore is of this class."""


class Size(tuple):  # type: ignore[type-arg]
    """No argument of MindSpore is of this class."""


#: The layout of every array.
strided = object()

_NAMES = ("Float64", "Float32", "Float16", "BFloat16", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64",
          "Bool", "Complex64", "Complex128")  # fmt: skip
_TYPES = {name: dtype(name) for name in _NAMES}
# The core finds them in the module.
globals().update(_TYPES)


class UntypedStorage:
    """Memory of an array."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def data_ptr(self) -> int:
        """Returns the address."""
        return int(self._array.__array_interface__["data"][0])

    def nbytes(self) -> int:
        """Returns the size in bytes."""
        return int(self._array.nbytes)

    @staticmethod
    def _free_weak_ref(reference: int) -> None:
        """Does nothing: these have no weak references."""


class Tensor:
    """Elements of a tensor, row by row in host memory."""

    __slots__ = ("_array", "dtype", "requires_grad", "shape")

    layout = strided
    is_cpu = True
    is_meta = False
    is_quantized = False

    def __init__(self, tensor: Any) -> None:
        """Waits until `tensor` is computed."""
        self._array = numpy.ascontiguousarray(tensor.asnumpy())
        #: A type that is not known has no size, and the core records it without numbers.
        self.dtype = _TYPES.get(str(tensor.dtype)) or dtype(str(tensor.dtype))
        self.shape = tuple(tensor.shape)
        # Every tensor that a differentiated function is given counts as one that needs a gradient: of leaves only parameters do.
        asked = tensor.requires_grad if isinstance(tensor, mindspore.Parameter) else not tensor._is_leaf and tensor._requires_grad
        self.requires_grad = bool(asked) and str(self.dtype).lstrip("B").startswith(("Float", "Complex"))

    def stride(self) -> tuple[int, ...]:
        """Returns the distance between neighbours of each dimension, in elements."""
        return tuple(step // self._array.itemsize for step in self._array.strides) if self.shape else ()

    def storage_offset(self) -> int:
        """Returns the place of the first element."""
        return 0

    def untyped_storage(self) -> UntypedStorage:
        """Returns the memory."""
        return UntypedStorage(self._array)

    def is_neg(self) -> bool:
        """Returns false: values are stored as they are read."""
        return False

    is_conj = is_neg


class Parameter(Tensor):
    """No array is of this class."""


#: Where the core looks for `Parameter`.
nn = types.SimpleNamespace(Parameter=Parameter)


def of(value: Any, depth: int = 12) -> Any:
    """Returns an argument or a result with the tensors in it as arrays; a text in place of one that has no elements yet."""
    if isinstance(value, mindspore.Tensor):
        try:
            return Tensor(value)
        except Exception as error:  # noqa: BLE001  (a tensor that cannot be read costs this value, not the record)
            return f"tensor without elements: {str(error).splitlines()[0][:120] if str(error) else type(error).__name__}"
    if depth and isinstance(value, (list, tuple)):
        return [of(item, depth - 1) for item in value] if isinstance(value, list) else tuple(of(item, depth - 1) for item in value)
    if depth and isinstance(value, dict):
        return {key: of(item, depth - 1) for key, item in value.items()}
    if isinstance(value, mindspore.Type):
        return _TYPES.get(str(value), value)
    return value


def tensors(value: Any, path: str = "", depth: int = 5) -> list[tuple[str, Any]]:
    """Returns the tensors in an argument or a result with their slot paths."""
    if isinstance(value, mindspore.Tensor):
        return [(path, value)]
    if not depth or not isinstance(value, (list, tuple, dict)):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [found for key, item in items for found in tensors(item, f"{path}.{key}" if path else str(key), depth - 1)]
