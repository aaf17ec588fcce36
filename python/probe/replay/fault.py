"""Which results are further from float64 than they may be.

A result may be off by the largest of: what the other side's result of the paired call is off by, the median of the other calls of its
kind and type on its own side, and rounding (u/2 over all elements, u in one). Beyond 3 bits above that, it is at fault.

The bound of 3 bits comes from 142 kernel faults and 40 sound pairs of 16 models: the worst sound op lay at 2.0 bits.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from probe.replay import errors
from probe.replay.errors import UNIT, Error
from probe.replay.recorded import Call, NotReplayed, Part

#: Bits above what it may be off by, from which on a result is at fault.
BITS = 3.0
#: A result that even the trusted side has this far off is memory without a meaning.
_MEANINGLESS = 0.5
#: Words of reasons for which a call is no gap: it computes nothing that could be wrong.
_NOTHING_TO_SAY = ("it computes nothing", "it draws random numbers", "no tensor was recorded as its result", "it ended in an exception")

Kind = tuple[str, str, torch.dtype]


@dataclass
class Measured:
    """Distances of the results of a part's calls from float64."""

    errors: dict[str, list[Error]] = field(default_factory=dict)
    #: Calls that sum products.
    products: set[str] = field(default_factory=set)
    #: Calls that were not replayed, with the reason.
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def gaps(self) -> Counter[str]:
        """Reasons why calls that compute something were not replayed, each with the number of calls."""
        return Counter(reason for reason in self.skipped.values() if not reason.startswith(_NOTHING_TO_SAY))


@dataclass(frozen=True)
class Fault:
    """A result that is further off than it may be."""

    op: str
    path: str
    #: Bits above what it may be off by.
    bits: float
    error: float
    allowed: float
    #: What the allowance comes from.
    source: str
    remark: str


def measure(part: Part, names: Iterable[str] | None = None, done: Callable[[], None] = lambda: None) -> Measured:
    """Replays the calls `names` of a part, all by default."""
    found = Measured()
    for name in part.names if names is None else names:
        try:
            call = part.call(name)
            if call.multiplies:
                found.products.add(name)
            found.errors[name] = errors.errors(call.results, errors.reference(call))
        except NotReplayed as reason:
            found.skipped[name] = str(reason)
        done()
    return found


def judge(candidate: Measured, baseline: Measured | None = None, pairs: dict[str, str] | None = None) -> list[Fault]:
    """Returns the results at fault, the worst first. `pairs` names the baseline's call of each of the candidate's; by default the same."""
    kinds = _by_kind(candidate)
    found = []
    for name, results in candidate.errors.items():
        paired = (baseline.errors if baseline is not None else {}).get(name if pairs is None else pairs.get(name, ""), [])
        trusted = {error.path: error for error in paired}
        for error in results:
            fault = _worst(name, error, trusted.get(error.path), kinds[_kind(candidate, name, error)])
            if fault is not None and fault.bits > BITS:
                found.append(fault)
    return sorted(found, key=lambda fault: -fault.bits)


def levels(measured: Measured) -> dict[Kind, list[float]]:
    """Returns distances over all elements by kind and type; for statements about a whole kind."""
    return {kind: [error.l2 for _, error in found] for kind, found in _by_kind(measured).items()}


def _kind(measured: Measured, name: str, error: Error) -> Kind:
    """All products are one kind; other functions have one for each result and phase."""
    if name in measured.products:
        return ("product", "", error.dtype)
    parts = name.split(".")
    base = parts[-3] if name.startswith("Module.") else parts[-3] if len(parts) > 2 else name
    phase = ".backward" if "backward" in parts[-2:] and not name.startswith("Aten.") else ""
    return (base.strip("_") + phase, error.path.split(".")[0], error.dtype)


def _by_kind(measured: Measured) -> dict[Kind, list[tuple[str, Error]]]:
    found: dict[Kind, list[tuple[str, Error]]] = defaultdict(list)
    for name, results in measured.errors.items():
        for error in results:
            found[_kind(measured, name, error)].append((name, error))
    return found


def _worst(name: str, error: Error, trusted: Error | None, peers: list[tuple[str, Error]]) -> Fault | None:
    """Returns how far a result is beyond what it may be off by, in the worse of the two measures."""
    if error.peak == 0 or (trusted is not None and not trusted.l2 < _MEANINGLESS):
        return None
    unit = UNIT.get(error.dtype, 2.0**-24)
    others = [other for call, other in peers if (call, other.path) != (name, error.path)]
    same_type = trusted is not None and trusted.dtype == error.dtype
    found = []
    for mine, own, like, floor in (
        (error.l2, trusted.l2 if trusted is not None and same_type else 0.0, [other.l2 for other in others], unit / 2),
        (error.peak, trusted.peak if trusted is not None and same_type else 0.0, [other.peak for other in others], unit),
    ):
        sources = {
            "rounding": floor,
            "the baseline's own error": own if math.isfinite(own) else 0.0,
            f"the median of {len(others)} other calls": _middle(like),
        }
        source = max(sources, key=lambda each: sources[each])
        bits = math.log2(mine / sources[source]) if mine > 0 else -math.inf
        found.append(Fault(name, error.path, bits, mine, sources[source], source, error.remark))
    return max(found, key=lambda fault: fault.bits)


def _middle(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else 0.0
