"""The private side of MindSpore: its autograd graph, and where it compiles. Tried with 2.10.

A node has `next_functions`, pairs of a node and the number of its output, and takes hooks, as in torch. Leaves are nodes too.
"""

from __future__ import annotations

from typing import Any

import mindspore
from mindspore.graph.api import _pynative_executor as _executor

#: Leaves have a number beyond all others.
_NO_SEQUENCE = 1 << 62

#: A leaf of which a view is taken to learn the number of the next node.
_marker: Any = None
# Kept before the recording replaces methods of tensors.
_view = mindspore.Tensor.view
sum_of = mindspore.Tensor.__add__


def next_sequence() -> int | None:
    """Returns the number above which nodes are that are created from now on; None where no gradients are computed."""
    global _marker
    if not _executor.grad_flag():
        return None
    if _marker is None:
        _marker = mindspore.Parameter(mindspore.Tensor([0.0], mindspore.float32), name="probe_marker")
    node = _view(_marker, 1)._grad_node
    return None if node is None else int(node._sequence_nr())


def node_of(tensor: Any) -> Any:
    """Returns the node that computed a tensor, or the one of a leaf; None without gradients."""
    return tensor._grad_node if getattr(tensor, "_requires_grad", False) else None


def is_differentiable(tensor: Any) -> bool:
    """Returns true for floating-point and complex tensors. Others have a node too, to which no gradient comes."""
    return str(tensor.dtype).lstrip("B").startswith(("Float", "Complex"))


def key_of(node: Any, number: int) -> tuple[int, int]:
    """Returns the identity of an output of a node: the objects that stand for a node differ from one call to the next."""
    return int(node._unique_id()), number


def number_of(tensor: Any) -> int:
    """Returns which output of its node a tensor is."""
    return int(tensor._output_index)


def sequence_of(node: Any) -> int | None:
    """Returns the number of a node, in the order of creation; None for a leaf."""
    number = int(node._sequence_nr())
    return None if number >= _NO_SEQUENCE else number


def is_eager() -> bool:
    """Returns true in PYNATIVE mode."""
    return bool(mindspore.get_context("mode") == mindspore.PYNATIVE_MODE)


def device() -> dict[str, Any]:
    """Returns kind, name and number of the devices that this process computes on."""
    target = str(mindspore.get_context("device_target"))
    kinds = {"Ascend": "npu", "GPU": "cuda"}
    return {"kind": kinds.get(target, target.lower()), "name": "", "count": 1}


def compilers() -> list[tuple[Any, str]]:
    """Returns the methods by which compiled functions are called, each as its class and name."""
    from mindspore.graph import api

    return [(kind, "__call__") for name in ("_JitExecutor", "JitExecutor") if isinstance(kind := getattr(api, name, None), type)]
