"""Records single tokens of a generation: some of the calls of a model after `start`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from probe import module_calls
from probe.settings import SettingsError


class Tokens:
    """Calls `begin` before the first of the chosen calls of a model, and `end` before the first call behind them."""

    def __init__(self, model: Any, chosen: Sequence[int], begin: Callable[[], None], end: Callable[[], None]) -> None:
        """`chosen` is the first and the last call, counted from 0, both included. Raises SettingsError for anything
        else, and without a model."""
        numbers = list(chosen) if isinstance(chosen, (list, tuple)) else []
        if len(numbers) != 2 or not all(type(number) is int for number in numbers) or not 0 <= numbers[0] <= numbers[1]:
            raise SettingsError(f"start: token_range: {chosen!r} is not a pair of the first and the last token, counted from 0, such as [0, 3]")
        self._model = model[0] if isinstance(model, (list, tuple)) and model else model
        if self._model is None or isinstance(self._model, (list, tuple)):
            raise SettingsError("start: token_range needs the model whose calls are the tokens: start(model, token_range=[0, 3])")
        self._first, self._last = numbers
        self._begin, self._end = begin, end
        self._calls = 0
        self._handle = module_calls.listen(self._called)

    def remove(self) -> None:
        """Stops counting."""
        self._handle.remove()

    def _called(self, module: Any) -> None:
        if module is not self._model:
            return
        number = self._calls
        self._calls += 1
        if number == self._first:
            self._begin()
        elif number == self._last + 1:
            self.remove()
            self._end()
