"""Final message of a capture: one line on what was recorded, where it is and what to do next, or why there is
nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from probe.iterations import Iterations
from probe.settings import STEP_ON, Settings
from probe.steps import Steps

if TYPE_CHECKING:
    from probe.recorder.keeping import Keeping


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of one rank's recording."""

    settings: Settings
    rank: int
    #: Number of ranks in the run.
    world: int
    #: True if this rank was to record.
    selected: bool
    #: Selected steps that have begun, in order.
    begun: Sequence[int]
    #: The iteration under way at the end, which equals the number of ended ones.
    reached: int
    ops: int
    #: Tensors among the values of the ops, how many of them could not be measured, and the first of these with the
    #: reason.
    tensors: int
    unmeasured: int
    first_unmeasured: str | None
    #: Time spent measuring and writing.
    seconds: float
    #: Kind of device: `cpu`, `cuda`, `npu`.
    device: str
    #: Counter of iterations; None if only the program marked them.
    iterations: Iterations | None
    #: Outermost calls, in the recorded steps, of modules with parameters.
    outermost: int
    #: A line for each listed name that matched nothing.
    unused: Sequence[str]
    #: Decides which steps stay; None if all do.
    keeping: Keeping | None = None
    #: Description of the requested changes to the run, if any.
    perturbed: str | None = None
    injected: str | None = None
    #: Result of the checks of memory, if they were requested.
    integrity: str | None = None

    def lines(self) -> Iterator[str]:
        """Yields the messages, one line each."""
        yield from (f"{line} on rank {self.rank}" if self.world > 1 else line for line in self.unused)
        advice = self.iterations.advice() if self.iterations is not None else None
        folders = [folder for step in self.begun if (folder := self._folder(step)).is_dir()]
        if not folders:
            yield f"nothing was recorded: {self._reason(advice)}"
            return
        if self.keeping is not None:
            yield from self.keeping.lines()
        if not self.settings.quiet:
            yield self._recorded(folders)
        if self.unmeasured:
            yield self._unmeasured()
        for change in (self.perturbed, self.injected):
            if change is not None:
                yield f"this was not an ordinary run: {change}"
        if self.integrity is not None:
            yield self.integrity
        late = self.settings.steps.beyond(self.reached + self._folder(self.reached).is_dir())
        if self.keeping is not None and self.keeping.full:
            # The recording has ended with what it was to find.
            return
        if late is not None:
            missed = f"step {late} was" if late.first == late.last else f"steps {late} were"
            yield f"{missed} not reached: {self._ended()}{_attached(advice)}"
        elif advice is not None and (self._named() or (self.outermost > 1 and not self.settings.quiet)):
            yield advice

    def _named(self) -> bool:
        """Returns true if iterations were to end at something named by the user."""
        return self.settings.step_on is not None and self.settings.step_on not in STEP_ON

    def _folder(self, step: int) -> Path:
        return Path(self.settings.output, f"step{step}", f"rank{self.rank}")

    def _reason(self, advice: str | None) -> str:
        settings = self.settings
        if not self.selected:
            there = f"this single process is rank {self.rank}" if self.world == 1 else f"there are {self.world} ranks, from 0"
            return f"{there}, and ranks {settings.ranks} were to record"
        # One more iteration begins after the last one, with nothing running in it.
        if not self.begun or (self.reached > 0 and list(self.begun) == [self.reached] and not self.unused):
            if not self.begun and self.reached in settings.steps:
                return "recording was never started"
            return f"{self._ended()}, and steps {settings.steps} were to be recorded{_attached(advice)}"
        # The last one may have begun without an iteration to follow.
        ended = [step for step in self.begun if step < self.reached]
        steps = _numbers("step", ended or self.begun)
        if self.keeping is not None:
            return self.keeping.nothing(steps)
        if settings.level == "save":
            return f"probe.save() was not called in {steps}"
        if settings.include or settings.exclude or settings.scope:
            return f"no op of {steps} was selected"
        return f"no op ran in {steps}"

    def _ended(self) -> str:
        counted = f" {self.iterations.describe()}" if self.iterations is not None else ""
        return f"recording ended after {self.reached} iteration{'' if self.reached == 1 else 's'}, counted from 0{counted}"

    def _unmeasured(self) -> str:
        """Returns a line that is printed even if the rest is suppressed: whoever compares this dump must not take
        missing tensors for equal ones."""
        some = f"{self.unmeasured:,} of {self.tensors:,} tensors" if self.unmeasured < self.tensors else f"none of {self.tensors:,} tensors"
        could = "could not be measured" if self.unmeasured < self.tensors else "could be measured"
        return f"{some} {could}, so comparisons will be incomplete; first {self.first_unmeasured}"

    def _recorded(self, folders: Sequence[Path]) -> str:
        settings = self.settings
        steps = _numbers("step", [int(folder.parent.name.removeprefix("step")) for folder in folders])
        rank = f"rank {self.rank} of {self.world}" if self.world > 1 else f"rank {self.rank}"
        facts = [f"{self.ops:,} op{'' if self.ops == 1 else 's'}"]
        facts += [_size(sum(_bytes(folder) for folder in folders)), f"{_seconds(self.seconds)} spent measuring and writing"]
        output = _short(settings.output)
        dump = shlex.quote(output)
        sides = f"-b OTHER -c {dump}" if self.device == "npu" else f"-b {dump} -c OTHER"
        if settings.perturb is not None:
            sides = f"-b BASELINE -c OTHER --noise {dump}"
        return f"recorded {steps}, {rank}: {', '.join(facts)}; in {output}; next: probe compare {sides}"


def _attached(advice: str | None) -> str:
    return f"; {advice}" if advice else ""


def _numbers(word: str, numbers: Sequence[int]) -> str:
    """Formats numbers as `step 3` or `steps 0-9,20`."""
    return f"{word}{'' if len(numbers) == 1 else 's'} {Steps((number, number) for number in numbers)}"


def _bytes(folder: Path) -> int:
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def _size(size: float) -> str:
    """Formats a size in the units of the reports."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            break
    return f"{size:.1f} {unit}"


def _short(path: str) -> str:
    """Returns a path as one would type it here."""
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):
        return path
    return path if relative.startswith(os.pardir) else relative
