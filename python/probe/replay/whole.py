"""All calls of a dump: `probe verify`, and the replays of `probe compare --confirm`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from probe.replay import fault
from probe.replay.fault import Fault, Measured, Statement
from probe.replay.recorded import Part, Recording

#: Version of the text that a comparison reads (`replayed.rs` of the judge).
REPLAY_VERSION = 1
#: Calls between two lines of progress.
_TOLD_EVERY = 64


@dataclass
class Verified:
    """One part held against float64."""

    step: int
    rank: int
    measured: Measured
    faults: list[Fault]
    statements: list[Statement]


@dataclass
class Run:
    """A whole dump held against float64."""

    parts: list[Verified] = field(default_factory=list)
    #: What could not be read, a line each.
    faults: list[str] = field(default_factory=list)

    @property
    def replayed(self) -> int:
        return sum(len(part.measured.errors) for part in self.parts)

    @property
    def gaps(self) -> Counter[str]:
        return sum((part.measured.gaps for part in self.parts), Counter())


def verify(dump: Recording, steps: Sequence[range], ranks: Sequence[range], told: Callable[[str], None]) -> Run:
    """Holds every call against float64, without another run."""
    run = Run()
    for part in dump.parts(steps, ranks):
        measured = fault.measure(part, done=_progress(part, told))
        run.parts.append(Verified(part.step, part.rank, measured, fault.judge(measured), fault.statements(measured)))
    run.faults = dump.faults
    return run


def confirm(baseline: Recording, candidate: Recording, steps: Sequence[range], ranks: Sequence[range], told: Callable[[str], None]) -> str:
    """Replays the calls of both dumps. Returns what a comparison reads, in TOML."""
    lines = [f"replay_version = {REPLAY_VERSION}"]
    others = {(part.step, part.rank): part for part in baseline.parts(steps, ranks)}
    for part in candidate.parts(steps, ranks):
        other = others.pop((part.step, part.rank), None)
        if other is None:
            continue
        mine, theirs = fault.measure(part, done=_progress(part, told)), fault.measure(other)
        lines.extend(_entries(part, mine, theirs))
    return "\n".join(lines) + "\n"


def _entries(part: Part, mine: Measured, theirs: Measured) -> list[str]:
    place = f"step = {part.step}\nrank = {part.rank}\n"
    lines = []
    own, other = _worst(fault.weigh(mine, theirs)), _worst(fault.weigh(theirs, mine, fault.BITS_ALONE))
    kinds = {op: statement for statement in fault.statements(mine, theirs) if not statement.precision for op in statement.calls}
    wrong, wrong_there = _wrong(own), _wrong(other)
    unknown = [op for op, reason in mine.skipped.items() if fault.is_gap(reason)]
    for op, found in own.items():
        kind = kinds.get(op) if op not in wrong else None
        if kind.calls[0] != op if kind is not None else op not in other and op not in wrong:
            # The first call stands for its kind. What the baseline has no data of clears nobody either.
            unknown.append(op)
            continue
        text = _said(found, other.get(op), op in wrong, op in wrong_there)
        if kind is not None:
            wrong, text = wrong | {op}, told_of(kind)
        lines.append(
            f"[[op]]\n{place}name = {json.dumps(op)}\noutput = {json.dumps(found.path)}\n"
            f"wrong = {_word(op in wrong)}\nbaseline_wrong = {_word(op in wrong_there)}\ntext = {json.dumps(text)}"
        )
    lines.extend(f"[[gap]]\n{place}name = {json.dumps(op)}" for op in unknown)
    return lines


def told_of(statement: Statement) -> str:
    """Describes a kind whose calls are all off."""
    calls = f"all {len(statement.calls)} calls of {statement.kind}" if len(statement.calls) > 1 else f"the only call of {statement.kind}"
    explained = f", as products in {statement.precision} are" if statement.precision else ", which no precision explains"
    return f"{calls} ({str(statement.dtype).removeprefix('torch.')}) {'are' if len(statement.calls) > 1 else 'is'} off by {statement.level:.1e}{explained}"


def _said(mine: Fault, theirs: Fault | None, wrong: bool, wrong_there: bool) -> str:
    if wrong:
        return f"replayed in float64, {described(mine)}"
    if theirs is not None and wrong_there:
        return f"replayed in float64, the candidate is right and the baseline's {described(theirs)}"
    return "replayed in float64, both sides are as right as rounding allows"


def described(found: Fault) -> str:
    """Describes a result at fault."""
    if found.remark:
        return f"output.{found.path} is wrong: {found.remark}"
    return f"output.{found.path} is {2**found.bits:.3g} times as far off as it may be ({found.error:.1e} against {found.allowed:.1e}, {found.source})"


def _worst(weighed: list[Fault]) -> dict[str, Fault]:
    found: dict[str, Fault] = {}
    for each in weighed:
        if each.op not in found or each.bits > found[each.op].bits:
            found[each.op] = each
    return found


def _wrong(worst: dict[str, Fault]) -> set[str]:
    """Returns the calls at fault. A backward reads what its forward call made: if that is wrong, the backward is not to blame."""
    wrong = {op for op, found in worst.items() if found.is_wrong}
    return {op for op in wrong if not fault.is_behind(op, wrong)}


def _word(truth: bool) -> str:
    return "true" if truth else "false"


def _progress(part: Part, told: Callable[[str], None]) -> Callable[[], None]:
    count = 0

    def done() -> None:
        nonlocal count
        count += 1
        if count % _TOLD_EVERY == 0:
            told(f"step {part.step} rank {part.rank}: {count} of {len(part.names)} ops")

    return done


def on_terminal(text: str) -> None:
    """Shows progress where somebody sees it."""
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)
