"""Nodes of the autograd graph, and passes through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Returns the node running on this thread, or None.
current_node: Callable[[], Any] = torch._C._current_autograd_node

#: Code of the functions that start a backward pass; the first exists since torch 2.3.
ENGINE = [
    function.__code__
    for function in ([torch.autograd.graph._engine_run_backward] if hasattr(torch.autograd.graph, "_engine_run_backward")
                     else [torch.autograd.backward, torch.autograd.grad])
]

#: Returns the number that the next node on this thread gets: nodes are created in this order.
next_sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr


def sequence_of(node: Any) -> int:
    """Returns the number of a node; larger than all others for nodes created without one."""
    number: int = node._sequence_nr()
    return number


#: Returns an identifier of the backward pass running on this thread; -1 without one.
current_pass: Callable[[], int] = torch._C._current_graph_task_id


def at_end_of_pass(act: Callable[[], None]) -> None:
    """Calls `act` when the backward pass ends. Raises RuntimeError outside one."""
    torch.autograd.Variable._execution_engine.queue_callback(act)
