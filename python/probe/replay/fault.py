"""Which results are further from float64 than they may be.

A result may be off by the largest of: what the other side's result of the paired call is off by, the median of the other calls of its
kind and type on its own side, what this host is off by in the same types, and rounding. Beyond 3 bits above that, it is at fault. Calls at
fault are left out of that median, as long as enough others are there.

Gradients of a module's parameters are weighed against the other side alone: what else adds to them (a tensor that two modules share, a pass
before the first that was recorded) is in no dump.

The bound of 3 bits comes from 142 kernel faults and 40 sound pairs of 16 models: the worst sound op lay at 2.0 bits.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch

from probe.replay import errors, evaluate
from probe.replay.errors import UNIT, Error
from probe.replay.recorded import Call, NotReplayed, Part, forward_of, parameters_of

#: Bits above what it may be off by, from which on a result is at fault.
BITS = 3.0
#: The same for a result that has no other side and hardly any other calls, and for a whole kind that has no other side: 64 units, which the
#: field's ULP standard passes on average. GELU of torch on a CPU is off by 39 units where its formula cancels.
BITS_ALONE = 6.0
#: Fewest other calls that show what a kind is off by.
_FEWEST = 3
#: Precisions of products with the most that their results are off by, in units of the scale: of 142 runs in TF32, all lay from
#: 1.6e-4 to 1.9e-4.
_PRECISIONS = (("TF32", 2.0**-11.5), ("bfloat16", 2.0**-8))
#: A result that even the trusted side, or this host, has this far off is memory without a meaning.
_MEANINGLESS = 0.5
#: Says that a result has no right answer.
_NOTHING = "nothing to hold it against"
#: Words of reasons for which a call is no gap: it computes nothing that could be wrong.
_NOTHING_TO_SAY = ("it computes nothing", "it draws random numbers", "it returns memory", "no tensor was recorded as its result", "it ended in an exception")

#: Phase of gradients of parameters.
_OF_PARAMETERS = ".parameters_grad"

Kind = tuple[str, str, torch.dtype]


@dataclass
class Measured:
    """Distances of the results of a part's calls from float64."""

    errors: dict[str, list[Error]] = field(default_factory=dict)
    #: What this host is off by in the recorded types, of calls that are further off than rounding.
    host: dict[str, dict[str, Error]] = field(default_factory=dict)
    #: Calls that sum products.
    products: set[str] = field(default_factory=set)
    #: Calls that were not replayed, with the reason.
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def gaps(self) -> Counter[str]:
        """Reasons why calls that compute something were not replayed, each with the number of calls."""
        return Counter(reason for reason in self.skipped.values() if is_gap(reason))


def is_gap(reason: str) -> bool:
    """Returns true if a call that was not replayed computes something."""
    return not reason.startswith(_NOTHING_TO_SAY)


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
    #: Bits from which on it is at fault.
    bound: float = BITS

    @property
    def is_wrong(self) -> bool:
        return self.bits > self.bound


@dataclass(frozen=True)
class Statement:
    """A kind of which all calls are further off than they may be."""

    #: Function, and phase: `mm`, `layer_norm.backward`.
    kind: str
    dtype: torch.dtype
    calls: list[str]
    #: Median distance, and bits above what it may be.
    level: float
    bits: float
    #: The precision that explains it: `TF32`; empty where none does.
    precision: str


def measure(part: Part, names: Iterable[str] | None = None, done: Callable[[], None] = lambda: None) -> Measured:
    """Replays the calls `names` of a part; by default all, and modules only where their functions were not recorded."""
    found = Measured()
    if names is None:
        functions = [name for name in part.names if not name.startswith("Module.")]
        names = functions if any(name.endswith(".forward") for name in functions) else part.names
    for name in dict.fromkeys(names):
        try:
            call = part.call(name)
            if call.multiplies:
                found.products.add(name)
            reference = errors.reference(call)
            found.errors[name] = errors.errors(call.results, reference)
            if any(error.exceeds_rounding(2**BITS) for error in found.errors[name]):
                found.host[name] = _on_host(call, reference)
        except NotReplayed as reason:
            found.skipped[name] = str(reason)
        done()
    return found


def _on_host(call: Call, reference: errors.Reference) -> dict[str, Error]:
    """Returns what this host is off by in the recorded types. A function that sums its own results is further off on any device than its condition
    tells; elements that it leaves unwritten are NaN."""
    try:
        with _filled():
            results = evaluate.here(call)
        return {error.path: error for error in errors.errors({path: results[path] for path in call.results if path in results}, reference)}
    except Exception:  # noqa: BLE001
        # The host has no kernel for this type.
        return {}


@contextlib.contextmanager
def _filled() -> Iterator[None]:
    """Fills memory that torch hands out unwritten with NaN."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def judge(candidate: Measured, baseline: Measured | None = None) -> list[Fault]:
    """Returns the results at fault, the worst first. Those of a backward whose forward call is at fault are not: it read what that made."""
    found = [fault for fault in weigh(candidate, baseline) if fault.is_wrong]
    wrong = {fault.op for fault in found}
    found = [fault for fault in found if not is_behind(fault.op, wrong)]
    return sorted(found, key=lambda fault: -fault.bits)


def weigh(candidate: Measured, baseline: Measured | None = None, bits: float = BITS) -> list[Fault]:
    """Returns every replayed result with what it is off by and what it may be, in execution order. Calls pair by name.

    The trusted side is weighed with `BITS_ALONE`: one that rounds as usual is many times as far off as one that computed in float64.
    """
    kinds, convicted = _by_kind(candidate), dict[str, list[Fault]]()
    while True:
        found, wrong = dict[str, list[Fault]](), set(convicted)
        for name, results in candidate.errors.items():
            # A call stays at fault, though the calls that showed it are found to be at fault themselves.
            if name in convicted:
                found[name] = convicted[name]
                continue
            trusted = {error.path: error for error in (baseline.errors.get(name, []) if baseline is not None else [])}
            host = candidate.host.get(name, {})
            others = (_others(name, kinds[_kind(candidate, name, error)], wrong) for error in results)
            found[name] = [_worst(name, error, trusted.get(error.path), host.get(error.path), like, bits) for error, like in zip(results, others)]
        convicted = {name: faults for name, faults in found.items() if any(fault.is_wrong for fault in faults)}
        if len(convicted) == len(wrong):
            return [fault for faults in found.values() for fault in faults]


def is_behind(op: str, wrong: set[str]) -> bool:
    """Returns true for a backward call, or gradients of parameters, whose forward call is among those that are wrong: it read what that made."""
    module = parameters_of(op)
    return forward_of(op) in wrong or (module is not None and any(each.startswith(f"{module}.forward.") for each in wrong))


def statements(candidate: Measured, baseline: Measured | None = None) -> list[Statement]:
    """Returns the kinds whose calls are all further off than the baseline's, or than rounding without one; the worst first.

    Results are held apart: attention in TF32 returns the logarithm of its sums more exactly than their products.
    """
    weighed = weigh(candidate, baseline)
    wrong = {fault.op for fault in weighed if fault.is_wrong}
    wrong |= {fault.op for fault in weighed if fault.source == _NOTHING}
    mine, other = _levels(candidate), _levels(baseline) if baseline is not None else {}
    found = []
    for kind, every in mine.items():
        if baseline is None and kind[0].endswith(_OF_PARAMETERS):
            continue
        calls = [(name, distance) for name, distance in every if name not in wrong]
        if not calls:
            continue
        dtype, distances = kind[2], sorted(distance for _, distance in calls)
        if dtype not in UNIT:
            continue
        level = statistics.median(distances)
        here = [error.l2 for name, _ in calls for error in candidate.host.get(name, {}).values() if error.dtype == dtype]
        allowed = max(UNIT[dtype], _middle([distance for _, distance in other.get(kind, [])]), _middle(here))
        bits = math.log2(level / allowed) if level > 0 else -math.inf
        if bits > (BITS if baseline is not None else BITS_ALONE):
            even = distances[int(0.9 * len(distances))] < 4 * level
            product = all(name in candidate.products for name, _ in calls)
            precision = next((name for name, most in _PRECISIONS if level < most), "") if even and product else ""
            found.append(Statement(kind[0], dtype, [name for name, _ in calls], level, bits, precision))
    found.sort(key=lambda statement: -statement.bits)
    # One statement for all results of a function.
    return list({(each.kind, each.dtype, each.precision): each for each in reversed(found)}.values())[::-1]


def _levels(measured: Measured) -> dict[Kind, list[tuple[str, float]]]:
    """Returns distances over all elements by function, result and type."""
    found: dict[Kind, list[tuple[str, float]]] = defaultdict(list)
    for name, results in measured.errors.items():
        base, phase = _function(name)
        for error in results:
            if error.count:
                found[base + phase, error.path.split(".")[0], error.dtype].append((name, error.l2))
    return found


def _kind(measured: Measured, name: str, error: Error) -> Kind:
    """All products are one kind; other functions have one for each result and phase."""
    if name in measured.products:
        return ("product", "", error.dtype)
    base, phase = _function(name)
    return (base + phase, error.path.split(".")[0], error.dtype)


def _function(name: str) -> tuple[str, str]:
    """Returns the function or class of a call, and the word of its phase."""
    if (module := parameters_of(name)) is not None:
        return module.rpartition(".")[2], _OF_PARAMETERS
    parts = name.split(".")
    base = parts[-3] if len(parts) > 2 else name
    return base.strip("_"), ".backward" if "backward" in parts[-2:] and not name.startswith("Aten.") else ""


def _by_kind(measured: Measured) -> dict[Kind, list[tuple[str, Error]]]:
    """Returns results by kind. What gradients of parameters are off by excuses no product: something else may have been added to them. Nor does a
    result that is zero or NaN throughout show what its kind is off by."""
    found: dict[Kind, list[tuple[str, Error]]] = defaultdict(list)
    for name, results in measured.errors.items():
        if name in measured.products and parameters_of(name) is not None:
            continue
        for error in results:
            if error.count:
                found[_kind(measured, name, error)].append((name, error))
    return found


def _worst(name: str, error: Error, trusted: Error | None, host: Error | None, others: list[Error], bits: float) -> Fault:
    """Returns how far a result is beyond what it may be off by, in the worse of the two measures."""
    alone = trusted is None and parameters_of(name) is not None
    if error.peak == 0 or alone or any(other is not None and not other.l2 < _MEANINGLESS for other in (trusted, host)):
        return Fault(name, error.path, -math.inf, error.l2, error.l2, _NOTHING if error.peak else "equal", error.remark)
    found = []
    bound = bits if trusted is not None or len(others) >= _FEWEST else BITS_ALONE
    for mine, sources in zip((error.l2, error.peak), _allowances(error, trusted, host, others)):
        source = max(sources, key=lambda each: sources[each])
        excess = math.log2(mine / sources[source]) if mine > 0 else -math.inf
        found.append(Fault(name, error.path, excess, mine, sources[source], source, error.remark, bound))
    return max(found, key=lambda fault: fault.bits)


def allowed(measured: Measured, name: str, error: Error, trusted: Error | None) -> tuple[float, float]:
    """Returns what a result may be off by, over all elements and in one."""
    wrong = {fault.op for fault in weigh(measured) if fault.is_wrong}
    others = _others(name, _by_kind(measured)[_kind(measured, name, error)], wrong)
    l2, peak = (max(sources.values()) for sources in _allowances(error, trusted, measured.host.get(name, {}).get(error.path), others))
    return l2, peak


def _allowances(error: Error, trusted: Error | None, host: Error | None, others: list[Error]) -> tuple[dict[str, float], dict[str, float]]:
    """Returns what a result may be off by, over all elements and in one, by where that comes from."""
    own = trusted if trusted is not None and trusted.dtype == error.dtype else None

    def sources(floor: float, own: float, host: float, like: list[float]) -> dict[str, float]:
        return {
            "rounding": floor,
            "the other side's own error": own if math.isfinite(own) else 0.0,
            "this machine's own error": host if math.isfinite(host) else 0.0,
            f"the median of {len(like)} other calls": _middle(like),
        }

    least_l2, least_peak = error.rounding()
    return (
        sources(least_l2, own.l2 if own is not None else 0.0, host.l2 if host is not None else 0.0, [other.l2 for other in others]),
        sources(least_peak, own.peak if own is not None else 0.0, host.peak if host is not None else 0.0, [other.peak for other in others]),
    )


def _others(name: str, peers: list[tuple[str, Error]], wrong: set[str]) -> list[Error]:
    """Returns the results of other calls. Those of the call itself share its fault; those at fault, and what reads them, show what their kind is off
    by only where few others do."""
    others = [(call, other) for call, other in peers if call != name]
    sound = [other for call, other in others if call not in wrong and not is_behind(call, wrong)]
    return sound if len(sound) >= _FEWEST else [other for _, other in others]


def _middle(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else 0.0
