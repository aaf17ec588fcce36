"""Nodes of the graph of gradients, and passes through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: The node that runs on this thread, or None.
current_node: Callable[[], Any] = torch._C._current_autograd_node

#: The number that the next node gets on this thread: they are made in this order.
next_sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr


def sequence_of(node: Any) -> int:
    """The number of a node; beyond all others for those that were made without one."""
    number: int = node._sequence_nr()
    return number


def current_pass() -> int:
    """What stands for the backward pass that runs on this thread; -1 without one."""
    number: int = torch._C._current_graph_task_id()
    return number


def at_end_of_pass(act: Callable[[], None]) -> None:
    """Calls `act` when the backward pass ends. Raises RuntimeError outside of one."""
    torch.autograd.Variable._execution_engine.queue_callback(act)
