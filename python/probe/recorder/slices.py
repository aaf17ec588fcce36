"""Parts of tensors that are recorded in their place."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from probe.private.guards import without_dispatch
from probe.settings import Slice


class Slices:
    """Applies rules to each tensor: a rule concerns tensors of which one dimension has its size."""

    def __init__(self, rules: Iterable[Slice]) -> None:
        self._rules = tuple(rules)
        #: A further rule, which may change from one call of the model to the next.
        self.request: Slice | None = None

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Returns a view of the part of the tensor that is recorded; None if no rule concerns it."""
        part = tensor
        with without_dispatch():
            for rule in (*self._rules, *(() if self.request is None else (self.request,))):
                if part.dim() > rule.dim and part.shape[rule.dim] == rule.size:
                    part = part.narrow(rule.dim, rule.begin, rule.end - rule.begin)
        return None if part is tensor else part
