"""Steps whose records stay: of a run that is watched, only those that show what it is watched for.

A step is kept whole, so that it can be compared with the same step of another run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe.settings import Settings

if TYPE_CHECKING:
    from probe._core import Recorder


class Keeping:
    """Decides at the end of each step whether its record stays."""

    def __init__(self, settings: Settings) -> None:
        self._reason = settings.keep
        self._most = settings.keep_steps
        #: Steps that are kept, with what they show.
        self.found: list[tuple[int, str]] = []

    @property
    def full(self) -> bool:
        """True if no further step is to be kept."""
        return self._most is not None and len(self.found) >= self._most

    def keeps(self, core: Recorder, step: int, cut: tuple[str | None, str] | None) -> bool:
        """Returns true if the step that has just ended stays; `cut` says how the program ended inside it, if it
        did. Such a step stays whatever is looked for: there is no later one."""
        shown = None
        if cut is not None:
            op, error = cut
            shown = f"the program ended in step {step}{f', in {op}' if op else ''}: {error}"
        elif self._reason == "non-finite" and (first := core.nonfinite()) is not None:
            shown = f"first NaN or infinity of step {step}: {first}"
        if shown is None:
            return False
        self.found.append((step, shown))
        return True

    def forget(self, first: int) -> None:
        """Forgets step `first` and later ones, which were miscounted."""
        self.found = [(step, shown) for step, shown in self.found if step < first]

    def lines(self) -> list[str]:
        """Returns what the kept steps show, a line each."""
        return [shown for _, shown in self.found]

    def nothing(self, steps: str) -> str:
        """Returns why nothing is kept of `steps`."""
        return f"no op of {steps} made a NaN or an infinity" if self._reason == "non-finite" else f"no exception ended {steps}"
