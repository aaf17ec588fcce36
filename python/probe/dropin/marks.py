"""Where iterations end in a script of the older tool: at its own marks, or else at steps of the optimizer.

The same calls are written in two ways. In the loop, `start`, `stop` and `save` (or `step`) surround each iteration, and
`save` ends one. Around the loop, they are called once, and `save` only ends the recording. Which of the two it is shows
in what follows a call, so the first end of each kind is held back until the program goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe import module_calls
from probe.iterations import Iterations
from probe.messages import say_once


class Marks(Iterations):
    """Counts as `Iterations` does, but loses nothing of iteration 0 if the script marks its end, and nothing of later
    ones if the script marks only the end of the whole."""

    def __init__(self, step_on: str, ended: Callable[[], None], recount: Callable[[int], None]) -> None:
        super().__init__(step_on, ended, recount)
        #: True between `stop` and `start`: what the program does then says nothing about iterations.
        self.paused = False
        #: End that is held back, and the listener that sees the program go on.
        self._held: Callable[[], None] | None = None
        self._next_call: module_calls.Handle | None = None

    @property
    def split(self) -> bool:
        """True if the first iteration certainly went on after its end was counted, as every counted one did here."""
        return self._guessed > 0

    def step(self) -> None:
        """Records that the script marked an end: of an iteration, unless it has let others pass and ends here."""
        if not self._guessed:
            self._release()
            super().step()
        elif self.told:
            super().step()
        elif self._held is None:
            self._hold(self._believe, needs_training=True)

    def go_on(self) -> None:
        """Notes that the program goes on: what was held back was the end of an iteration."""
        held = self._held
        self._release()
        if held is not None:
            held()

    def remove(self) -> None:
        """Stops counting, except for the program's own marks."""
        super().remove()
        self._release()

    def _guess(self) -> None:
        if self.told:
            return
        if self.step_on == "optimizer" and not self._guessed and self._held is None:
            self._hold(super()._guess)
            return
        self.go_on()
        super()._guess()

    def _believe(self) -> None:
        """The script marks iterations, each of which has several steps of the optimizer."""
        say_once(
            f"iterations end where the script says so: the {self._guessed} that were counted {self.describe()} were one; "
            "steps recorded of them are dropped"
        )
        super().step()

    def _hold(self, end: Callable[[], None], needs_training: bool = False) -> None:
        self._held = end

        def called(module: Any) -> None:
            # An evaluation behind the loop is no further iteration.
            if not self.paused and (not needs_training or self.framework.trains(module)):
                self.go_on()

        self._next_call = self.framework.module_calls(called)

    def _release(self) -> None:
        self._held = None
        if self._next_call is not None:
            self._next_call.remove()
            self._next_call = None
