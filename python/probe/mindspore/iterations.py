"""Events of MindSpore that count iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mindspore import nn
from probe.dropin.marks import Marks
from probe.iterations import Iterations, Torch
from probe.mindspore import calls


class MindSpore(Torch):
    """Answers what the counting asks of a framework, for MindSpore."""

    module_name = "nn.Cell"

    @staticmethod
    def optimizer_steps(after: Callable[[Any], None]) -> Any:
        """Calls `after(optimizer)` after every optimizer step."""
        return calls.listen(stepped=after)

    @staticmethod
    def module_calls(began: Callable[[Any], None]) -> Any:
        """Calls `began(cell)` before every call of a cell."""
        return calls.listen(began=began)

    @staticmethod
    def parts(module: Any) -> Iterable[tuple[str, Any]]:
        """Returns a cell and those inside it, with their paths."""
        found: Iterable[tuple[str, Any]] = module.cells_and_names()
        return found

    @staticmethod
    def has_parameters(module: Any) -> bool:
        """Returns true if the cell, or one inside it, has parameters."""
        return next(iter(module.get_parameters()), None) is not None

    @staticmethod
    def is_module(value: Any) -> bool:
        """Returns true for a cell."""
        return isinstance(value, nn.Cell)

    @staticmethod
    def trains(module: Any) -> bool:
        """Returns true if a call of the cell now is part of a training."""
        return bool(module.training)

    @staticmethod
    def has_explained() -> bool:
        """Returns true if a call in graph mode was passed by."""
        return calls.has_passed_by()


class CellIterations(Iterations):
    """Counts the iterations of a program of MindSpore."""

    framework = MindSpore


class CellMarks(Marks):
    """Counts those of a script for the older tool."""

    framework = MindSpore
