"""Output of `probe replay`: one table, the field's standard, and one sentence."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace

import torch

from probe.replay import fault, precisions, standards
from probe.replay.errors import UNIT, errors
from probe.replay.one import Outcome, Side
from probe.replay.recorded import parameters_of
from probe.replay.whole import Run, described, told_of


def text(outcome: Outcome) -> str:
    """Returns the answer for people."""
    step, rank = outcome.place
    lines = [f"{outcome.op}, step {step} rank {rank}, against float64"]
    for path in _paths(outcome):
        lines.extend(["", *_table(outcome, path)])
    lines.append("")
    if outcome.candidate.differing:
        lines.append(f"{outcome.candidate.differing} of {len(outcome.candidate.replays)} replays differ from the first: the kernel is not deterministic")
    lines.append(sentence(outcome))
    equal = equal_to(outcome)
    if equal is not None:
        lines.append(equal)
    return "\n".join(lines) + "\n"


def equal_to(outcome: Outcome) -> str | None:
    """Returns the lower precision that the worst result of the candidate is equal to; None if no known one explains it."""
    coarse = _coarse(outcome)
    path = outcome.faults[0].path if outcome.faults else coarse[0] if coarse is not None else None
    if path is None or path not in outcome.candidate.reference.scales:
        return None
    found = precisions.explanation(outcome.candidate.call, path, outcome.candidate.reference)
    return None if found is None else f"output.{path} of the candidate is equal to {found}"


def _coarse(outcome: Outcome) -> tuple[str, float] | None:
    """Returns the result that is furthest beyond what the other side or rounding has, and how far, if that is as much as a fault."""
    trusted = {error.path: error for error in (outcome.baseline.measured.errors[outcome.op] if outcome.baseline is not None else [])}
    ratios = {}
    for error in outcome.candidate.measured.errors[outcome.op]:
        own = trusted.get(error.path)
        if error.dtype in UNIT:
            ratios[error.path] = error.l2 / max(UNIT[error.dtype], own.l2 if own is not None else 0.0)
    path = max(ratios, key=lambda each: ratios[each], default=None)
    return (path, ratios[path]) if path is not None and ratios[path] > 2.0**fault.BITS else None


def sentence(outcome: Outcome) -> str:
    """Returns the answer in one sentence."""
    worst = outcome.faults[0] if outcome.faults else None
    if worst is None and not outcome.baseline_faults:
        coarse = _coarse(outcome)
        if coarse is not None and outcome.baseline is None and parameters_of(outcome.op) is not None:
            return f"{coarse[1]:.3g} times as far from float64 as rounding: a fault, or something that the dump lacks was added as well; --against another run tells"
        if coarse is not None:
            return f"{coarse[1]:.3g} times as far from float64 as {'the baseline' if outcome.baseline is not None else 'rounding'}, as all calls of this kind are: a precision of the run"
        return "both are as far: rounding" if outcome.baseline is not None else "as far as rounding allows: nothing is wrong with this call"
    if worst is None:
        return f"the baseline is {_times(outcome.baseline_faults[0], outcome.candidate)} as far from float64 as the candidate: the baseline's kernel"
    if outcome.guilty == "both":
        return f"both are further off than they may be ({_short(worst)}): neither kernel can be trusted here"
    right = _right_replays(outcome)
    if right:
        return (
            f"{_short(worst)}, but replayed here it is right ({right} of {len(outcome.candidate.replays)} replays): "
            "what it was given changed under it, or the fault is not deterministic"
        )
    against = outcome.baseline
    blame = "the candidate's kernel" if against is not None else "the kernel"
    if against is None:
        return f"{_short(worst)}: {blame}"
    return f"the candidate is {_times(worst, against)} as far from float64 as the baseline: {blame}"


def _times(worst: fault.Fault, other: Side) -> str:
    own = {error.path: error for error in other.measured.errors.get(other.call.name, [])}.get(worst.path)
    unit = UNIT.get(own.dtype, 2.0**-24) / 2 if own is not None else 2.0**-25
    times = worst.error / max(own.l2 if own is not None else 0.0, unit)
    return f"{times:.3g} times" if math.isfinite(times) else "infinitely"


def _short(worst: fault.Fault) -> str:
    if worst.remark:
        return f"output.{worst.path}: {worst.remark}"
    return f"output.{worst.path} is {2**worst.bits:.3g} times as far from float64 as it may be ({worst.error:.1e} against {worst.allowed:.1e}, {worst.source})"


def _right_replays(outcome: Outcome) -> int:
    """Returns how many replays on the candidate's kind of device are right, although what was recorded is not."""
    side = outcome.candidate
    return sum(not wrong(side, results) for results in side.replays) if outcome.same_device else 0


def wrong(side: Side, results: dict[str, torch.Tensor]) -> bool:
    """Returns true if the results of a replay are further off than those of the call's kind may be."""
    measured = replace(side.measured, errors=dict(side.measured.errors))
    measured.errors[side.call.name] = errors({path: results[path] for path in side.call.results if path in results}, side.reference)
    return any(found.op == side.call.name and found.is_wrong for found in fault.weigh(measured))


def _paths(outcome: Outcome) -> list[str]:
    return [error.path for error in outcome.candidate.measured.errors[outcome.op]]


@dataclass(frozen=True)
class _Row:
    """A result against float64."""

    label: str
    distance: standards.Distance
    #: Error in units of what a relative error of 1 in the inputs does.
    l2: float


def _rows(outcome: Outcome, path: str) -> tuple[list[_Row], str]:
    """Returns what each side has of a result, and what the field's standard says of the candidate's."""
    sides = [side for side in (outcome.baseline, outcome.candidate) if side is not None]
    rows: list[tuple[str, torch.Tensor, Side]] = [
        (f"{side.name}, recorded", side.call.results[path], side) for side in sides if path in side.call.results
    ]
    if outcome.candidate.replays and path in outcome.candidate.replays[0]:
        rows.append((f"replayed here, {outcome.device}", outcome.candidate.replays[0][path], outcome.candidate))
    found = [_Row(label, standards.distance(result, side.reference.values[path]), errors({path: result}, side.reference)[0].l2) for label, result, side in rows]
    distances = {row.label: row.distance for row in found}
    call = outcome.candidate.call
    met, words = standards.verdict(
        call.base, call.results[path].dtype, distances["candidate, recorded"], distances.get("baseline, recorded"), path in outcome.candidate.reference.moved
    )
    return found, f"{'passes' if met else 'fails'} {words}; {standards.PROFILE}"


def _table(outcome: Outcome, path: str) -> list[str]:
    rows, verdict = _rows(outcome, path)
    lines = [f"output.{path}  {_type(outcome, path)} {_shape(outcome, path)}", f"  {'':<24} {'rmse':>9} {'max rel':>9} {'max ulp':>9} {'beyond':>8} {'l2':>9}"]
    for row in rows:
        of = row.distance
        lines.append(f"  {row.label:<24} {of.rmse:>9.2e} {of.largest_relative:>9.2e} {of.largest_ulp:>9.3g} {of.beyond:>8.2%} {row.l2:>9.2e}")
    if outcome.candidate.refused:
        lines.append(f"  not replayed here in its own types: {outcome.candidate.refused}")
    return [*lines, f"  {verdict}"]


def _type(outcome: Outcome, path: str) -> str:
    return str(outcome.candidate.call.results[path].dtype).removeprefix("torch.")


def _shape(outcome: Outcome, path: str) -> list[int]:
    return list(outcome.candidate.call.results[path].shape)


def _table_document(outcome: Outcome, path: str) -> dict[str, object]:
    rows, verdict = _rows(outcome, path)
    return {
        "output": path,
        "dtype": _type(outcome, path),
        "shape": _shape(outcome, path),
        "standard": verdict,
        "rows": [
            {
                "of": row.label,
                "rmse": _finite(row.distance.rmse),
                "largest_relative": _finite(row.distance.largest_relative),
                "largest_ulp": _finite(row.distance.largest_ulp),
                "beyond": _finite(row.distance.beyond),
                "l2": _finite(row.l2),
            }
            for row in rows
        ],
    }


def document(outcome: Outcome) -> dict[str, object]:
    """Returns the answer for programs."""
    step, rank = outcome.place

    def side(of: Side) -> list[dict[str, object]]:
        return [
            {"output": error.path, "l2": _finite(error.l2), "peak": _finite(error.peak), "remark": error.remark}
            for error in of.measured.errors[of.call.name]
        ]

    return {
        "schema_version": 1,
        "op": outcome.op,
        "step": step,
        "rank": rank,
        "guilty": outcome.guilty,
        "answer": sentence(outcome),
        "equal_to": equal_to(outcome),
        "replays": len(outcome.candidate.replays),
        "replays_that_differ": outcome.candidate.differing,
        "standard": standards.PROFILE,
        "candidate": side(outcome.candidate),
        "baseline": side(outcome.baseline) if outcome.baseline is not None else None,
        "results": [_table_document(outcome, path) for path in _paths(outcome)],
        "faults": [
            {"output": found.path, "bits": _finite(found.bits), "error": _finite(found.error), "allowed": found.allowed, "source": found.source}
            for found in outcome.faults
        ],
    }


def verified(run: Run, dump: str, top: int) -> str:
    """Returns the answer of `probe verify` about the dump at this path for people."""
    faults = [(part, found) for part in run.parts for found in part.faults]
    faults.sort(key=lambda each: (each[0].step, each[0].rank, -each[1].bits))
    kinds = [(part, statement) for part in run.parts for statement in part.statements]
    wrong = len({(part.step, part.rank, found.op) for part, found in faults}) + sum(not statement.precision for _, statement in kinds)
    lines = [f"{run.replayed} calls held against float64: " + (f"{wrong} wrong" if wrong else "none is further off than rounding allows")]
    for part, found in faults[:top]:
        lines.append(f"  step {part.step} rank {part.rank}  {found.op}: {described(found)}")
    if len(faults) > top:
        lines.append(f"  and {len(faults) - top} more; --top lists them")
    lines.extend(f"  step {part.step} rank {part.rank}  {told_of(statement)}" for part, statement in kinds)
    if run.gaps:
        count = sum(run.gaps.values())
        lines.append(f"not replayed: {count} call{'s that compute' if count > 1 else ' that computes'} something")
        lines.extend(f"  {count:>5}  {reason}" for reason, count in run.gaps.most_common(5))
    if faults:
        part, found = faults[0]
        where = f" --step {part.step} --rank {part.rank}" if len(run.parts) > 1 else ""
        lines.append(f"next: probe replay {shlex.quote(dump)} --op {found.op}{where} -o repro")
    return "\n".join(lines) + "\n"


def verified_document(run: Run) -> dict[str, object]:
    """Returns the answer of `probe verify` for programs."""
    return {
        "schema_version": 1,
        "replayed": run.replayed,
        "faults": [
            {
                "step": part.step,
                "rank": part.rank,
                "op": found.op,
                "output": found.path,
                "bits": _finite(found.bits),
                "error": _finite(found.error),
                "allowed": found.allowed,
                "text": described(found),
            }
            for part in run.parts
            for found in part.faults
        ],
        "kinds": [
            {"step": part.step, "rank": part.rank, "text": told_of(each), "precision": each.precision or None, "calls": each.calls}
            for part in run.parts
            for each in part.statements
        ],
        "gaps": [{"reason": reason, "calls": count} for reason, count in run.gaps.most_common()],
        "incomplete": run.faults,
    }


def _finite(number: float) -> float | str:
    return number if math.isfinite(number) else "inf" if number > 0 else "nan"
