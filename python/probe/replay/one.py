"""`probe replay`: one call on all sides, against float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from probe.replay import errors, evaluate, fault
from probe.replay.errors import Reference
from probe.replay.fault import Fault, Measured
from probe.replay.recorded import Call, NotReplayed, Part

#: Other calls of the kind that are replayed, for the level they share.
_PEERS = 24


@dataclass
class Side:
    """A recorded call beside its reference."""

    name: str
    call: Call
    reference: Reference
    measured: Measured
    #: Results of the call on this machine, a dict for each replay.
    replays: list[dict[str, torch.Tensor]]
    #: Why it could not be run here in its own types.
    refused: str = ""

    @property
    def differing(self) -> int:
        """Number of replays whose bits are not those of the first."""
        return sum(not _equal(self.replays[0], results) for results in self.replays[1:])


@dataclass
class Outcome:
    """Result of replaying one call."""

    op: str
    place: tuple[int, int]
    candidate: Side
    baseline: Side | None
    #: Results of the candidate at fault, the worst first, and of the baseline.
    faults: list[Fault]
    baseline_faults: list[Fault]
    #: Where the call was replayed, and true if the candidate ran on such a device.
    device: str
    same_device: bool

    @property
    def guilty(self) -> str | None:
        """Whose result is wrong: `candidate`, `baseline`, `both` or nobody's."""
        sides = [name for name, found in (("candidate", self.faults), ("baseline", self.baseline_faults)) if found]
        return "both" if len(sides) == 2 else sides[0] if sides else None


def replay(candidate: Part, op: str, baseline: Part | None, device: str, times: int) -> Outcome:
    """Replays `op` of both sides. Raises NotReplayed."""
    mine = _side("candidate", candidate, op, device, times)
    other = _side("baseline", baseline, op, device, 0) if baseline is not None else None
    trusted = other.measured if other is not None else None
    found = _of(op, fault.weigh(mine.measured, trusted))
    if not found and any(op in kind.calls and not kind.precision for kind in fault.statements(mine.measured, trusted)):
        # The kernel is wrong wherever it runs: its other calls are no excuse.
        mine.measured.errors = {op: mine.measured.errors[op]}
        found = _of(op, fault.weigh(mine.measured, trusted))
    theirs = _of(op, fault.weigh(other.measured, mine.measured, fault.BITS_ALONE)) if other is not None else []
    same = mine.call.device is not None and mine.call.device.partition(":")[0] == device.partition(":")[0]
    return Outcome(op, (candidate.step, candidate.rank), mine, other, found, theirs, device, same)


def _side(name: str, part: Part, op: str, device: str, times: int) -> Side:
    call = part.call(op)
    reference = errors.reference(call)
    peers = [each for each in part.names if each != op and (_alike(each, op) or (call.multiplies and part.multiplies(each)))][:_PEERS]
    measured = fault.measure(part, [op, *peers])
    if op not in measured.errors:
        raise NotReplayed(measured.skipped[op])
    side = Side(name, call, reference, measured, [])
    for _ in range(times):
        try:
            _poison(call, device)
            side.replays.append(evaluate.here(call, device))
        except Exception as error:
            side.refused = (str(error).strip().splitlines() or [type(error).__name__])[0]
            break
    return side


def _alike(one: str, other: str) -> bool:
    return not one.startswith("Module.") and one.split(".")[:2] == other.split(".")[:2] and one.endswith("backward") == other.endswith("backward")


def _of(op: str, weighed: list[Fault]) -> list[Fault]:
    return sorted((each for each in weighed if each.op == op and each.is_wrong), key=lambda each: -each.bits)


def _poison(call: Call, device: str) -> None:
    """Fills memory of the size of each result with NaN and gives it back, so that a kernel that reads what it did not write shows it."""
    for result in call.results.values():
        if result.is_floating_point():
            for _ in range(2):
                torch.full(result.shape, torch.nan, dtype=result.dtype, device=device)


def _equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(torch.nan_to_num(one[path]), torch.nan_to_num(other[path])) and torch.equal(one[path].isnan(), other[path].isnan()) for path in one)
