"""`probe check-ops`: every distinct call of a dump on one device, against float64 on the host.

Results are appended to `results.jsonl` as they come, so a run that ended early goes on where it stopped, and the file of one device is the
benchmark of another.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import multiprocessing
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree

import torch

from probe.replay import errors, evaluate, fault, standards
from probe.replay.recorded import Call, NotReplayed, Recording
from probe.replay.standards import Distance

#: File of results in the output folder; its first line says what it is.
RESULTS = "results.jsonl"
_HEAD = {"format": "probe check-ops", "format_version": 1}
#: Longest line of a results file that is read: a call has a few dozen results.
_LONGEST_LINE = 1 << 20


class NotResults(Exception):
    """A file holds no results of `probe check-ops`; the text says what to do."""


class NothingRun(Exception):
    """No call of a dump can be run; the text says why."""


@dataclass(frozen=True)
class Checked:
    """One distinct call that was run."""

    key: str
    op: str
    #: Why it was not run; empty if it was.
    skipped: str
    #: By path: type, whether values were only moved, and the distance from float64.
    results: dict[str, tuple[str, bool, Distance]]
    #: Its inputs were drawn within the recorded ranges, as their elements were not recorded.
    drawn: bool
    #: Paths of results that are as near to float64 as rounding allows where terms cancel: 3 bits above it in types that are summed in themselves.
    rounding: frozenset[str] = frozenset()


def signature(call: Call) -> str:
    """Returns what makes a call distinct: function, phase, types, shapes and plain arguments."""

    def told(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(told(each) for each in value) + "]"
        return repr(value)

    parts = [told(each) for each in call.args] + [f"{name}={told(each)}" for name, each in sorted(call.kwargs.items())]
    parts += [f"{name}={told(each)}" for name, each in sorted(call.parameters.items())]
    return f"{call.api}{'.backward' if call.is_backward else ''}({', '.join(parts)})"


def check(call: Call, device: str, drawn: bool) -> Checked:
    """Runs a call on the device in its own types, and holds the result against float64."""
    key = signature(call)
    op = key.partition("(")[0]
    if call.of_last_node:
        # What the older tool recorded is what the last node of the function passes on. Another device has other nodes, and that of a product
        # without bias is a view of it; nothing recorded is compared here, so the gradients of the arguments are asked for.
        call = replace(call, of_last_node=False, results={})
    if call.gradients is not None:
        call.gradients = {path: _varied(gradient) for path, gradient in call.gradients.items()}
    try:
        results = evaluate.here(call, device)
        call.results = {path: result for path, result in results.items() if path in call.results} or results
        reference = errors.reference(call)
    except NotReplayed as reason:
        return Checked(key, op, str(reason), {}, drawn)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        return Checked(key, op, f"{device} refuses it: {type(error).__name__}: {first[:120]}", {}, drawn)
    found = {}
    for path, result in call.results.items():
        value = reference.values.get(path)
        if value is not None and value.shape == result.shape:
            found[path] = (str(result.dtype).removeprefix("torch."), path in reference.moved, standards.distance(result, value))
    known = errors.known_errors(call.results, reference)
    rounding = {error.path for error in known if not error.exceeds_rounding(2**fault.BITS if error.dtype.itemsize > 2 else 1.0)}
    return Checked(key, op, "" if found else "it has no result that float64 has", found, drawn, frozenset(rounding))


def _varied(gradient: torch.Tensor) -> torch.Tensor:
    """Returns drawn numbers of the size of a gradient that is one number throughout, as the sum of a result makes it.

    What normalises has the gradient zero by construction then, and comes out as rounding, of which no standard tells anything.
    """
    if gradient.numel() < 2 or not gradient.is_floating_point() or not bool((gradient == gradient.flatten()[0]).all()):
        return gradient
    random = torch.Generator().manual_seed(gradient.numel() % 1000003)
    size = gradient.flatten()[0].double().item()
    return (torch.randn(gradient.shape, generator=random, dtype=torch.float64) * (size or 1.0)).to(gradient.dtype)


#: Steps and ranks; none stands for all.
Places = tuple[Sequence[range], Sequence[range]]


def run(dump: Recording, places: Places, device: str, output: Path, jobs: int, wanted: Callable[[str], bool], told: Callable[[str], None]) -> list[Checked]:
    """Checks every distinct call whose name is `wanted`; returns their results. Raises NotResults, NothingRun before a folder is made, OSError."""
    path = output / RESULTS
    head = json.dumps({**_HEAD, "device": device, "torch": torch.__version__, "dump": _identity(dump)}) + "\n"
    before = _continued(path, head) if path.exists() else {}
    found: list[Checked] = []
    calls = _fresh(_distinct(dump, places, wanted), before, found)
    first = next(calls, None)
    if first is None and not found:
        raise NothingRun(_why_none(dump, places, wanted))
    output.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        if path.stat().st_size == 0:
            file.write(head)
        for checked in _checked(itertools.chain([first] if first is not None else [], calls), device, jobs):
            found.append(checked)
            _append(file, checked)
            told(f"{len(found)} calls checked")
    return found


def _identity(dump: Recording) -> str:
    """Returns what tells a dump from another in a file that may be handed on: a digest, since a path names a machine."""
    return hashlib.sha256(os.path.abspath(dump.path).encode()).hexdigest()[:16]


def _continued(path: Path, head: str) -> dict[str, Checked]:
    """Returns the results of a run that ended early by key. A last line that broke off is taken out of the file, so that the next one begins a line.

    Raises NotResults if they are not of this dump on this device.
    """
    done = read(path)
    with path.open("rb+") as file:
        data = file.read()
        if not data.startswith(head.encode()[:len(data)]):
            raise NotResults(f"{path}: holds results of another dump, device or torch than this run's; choose another folder with -o")
        file.truncate(data.rfind(b"\n") + 1)
    return done


def _fresh(calls: Iterator[tuple[str, Call, bool]], before: dict[str, Checked], found: list[Checked]) -> Iterator[tuple[Call, bool]]:
    """Yields the calls that were not run before; the results of the others are added to `found`."""
    for key, call, drawn in calls:
        if key in before:
            found.append(before[key])
        else:
            yield call, drawn


def _checked(calls: Iterator[tuple[Call, bool]], device: str, jobs: int) -> Iterator[Checked]:
    if jobs == 1:
        yield from (check(call, device, drawn) for call, drawn in calls)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.imap_unordered(_check, ((call, device, drawn) for call, drawn in calls))


def _check(work: tuple[Call, str, bool]) -> Checked:
    return check(*work)


def _distinct(dump: Recording, places: Places, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Call, bool]]:
    """Rebuilds one call of each signature; with drawn inputs where the recorded ones have no elements."""
    seen: set[str] = set()
    for part in dump.parts(*places):
        for name in part.names:
            if not wanted(name):
                continue
            for drawn in (False, True):
                try:
                    call = part.call(name, drawn=drawn)
                except NotReplayed:
                    continue
                if not call.is_module and evaluate.why_not(call) is None and (key := signature(call)) not in seen:
                    seen.add(key)
                    yield key, call, drawn
                break


def _why_none(dump: Recording, places: Places, wanted: Callable[[str], bool]) -> str:
    """Returns why no call of a dump is run."""
    reasons: Counter[str] = Counter()
    for part in dump.parts(*places):
        for name in filter(wanted, part.names):
            try:
                reasons[evaluate.why_not(part.call(name, drawn=True)) or "modules are left out: record level mix, api or op"] += 1
            except NotReplayed as reason:
                reasons[str(reason)] += 1
    if not reasons:
        return f"part of it cannot be read: {dump.faults[0]}" if dump.faults else "no op matches --op and --not"
    return f"none of its {reasons.total()} calls can be run; most: {reasons.most_common(1)[0][0]}"


def _append(file: TextIO, checked: Checked) -> None:
    results = {path: [dtype, moved, _numbers(found)] for path, (dtype, moved, found) in checked.results.items()}
    file.write(json.dumps({"key": checked.key, "op": checked.op, "skipped": checked.skipped, "drawn": checked.drawn, "results": results, "rounding": sorted(checked.rounding)}) + "\n")
    file.flush()


def _numbers(found: Distance) -> dict[str, float | str]:
    """Returns a distance with words for numbers that JSON has not."""
    return {name: value if math.isfinite(value) else "inf" for name, value in asdict(found).items()}


def read(path: Path) -> dict[str, Checked]:
    """Reads a file of results by key; a last line that broke off is left out. Raises NotResults, OSError."""
    found: dict[str, Checked] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), ""), 1):
            try:
                row = json.loads(line)
                if number == 1:
                    if {name: row.get(name) for name in _HEAD} != _HEAD:
                        raise NotResults(f"{path}: line 1: no results of `probe check-ops` of version 1; run it again into a new folder")
                    continue
                results = {
                    str(place): (str(dtype), bool(moved), Distance(**{name: float(value) for name, value in numbers.items()}))
                    for place, (dtype, moved, numbers) in row["results"].items()
                }
                rounding = frozenset(map(str, row.get("rounding", [])))
                found[row["key"]] = Checked(str(row["key"]), str(row["op"]), str(row["skipped"]), results, bool(row["drawn"]), rounding)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                if line.endswith("\n"):
                    raise NotResults(f"{path}: line {number}: {type(error).__name__}: {error}; remove the line and run again") from None
    return found


@dataclass(frozen=True)
class Verdict:
    """One result by the standard of its function."""

    checked: Checked
    path: str
    met: bool
    words: str


def verdicts(checked: Sequence[Checked], benchmark: dict[str, Checked]) -> list[Verdict]:
    """Judges every result by the standard of its function and type; against the benchmark's result of the same call if there is one. What is as
    near to float64 as rounding allows passes."""
    found = []
    for each in checked:
        other = benchmark.get(each.key)
        for path, (dtype, moved, distance) in each.results.items():
            against = other.results[path][2] if other is not None and path in other.results else None
            base = each.op.split(".")[1] if "." in each.op else each.op
            met, words = standards.verdict(base, getattr(torch, dtype), distance, against, moved)
            if not met and path in each.rounding:
                # Units in the last place of what cancels, and a ratio to an error of nothing, say nothing of a kernel.
                met, words = True, f"{words}; its error is rounding of terms that cancel"
            found.append(Verdict(each, path, met, words))
    return found


def table(judged: Sequence[Verdict], checked: Sequence[Checked], device: str) -> str:
    """Returns the answer as a table by op."""
    ops: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in judged:
        ops[verdict.checked.op].append(verdict)
    failed = {op: [each for each in found if not each.met] for op, found in ops.items()}
    failed = {op: found for op, found in failed.items() if found}
    calls = len({each.checked.key for each in judged})
    counted = f"{calls} distinct call{'s' * (calls != 1)} of {len(ops)} op{'s' * (len(ops) != 1)} on {device}"
    lines = [f"{counted}: {len(failed) or 'none'} of the ops fail{'s' * (len(failed) == 1)}; {standards.PROFILE}"]
    for op, found in sorted(failed.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {op}: {len(found)} of {len(ops[op])} results; {found[0].words} at {found[0].checked.key.removeprefix(op)}")
    skipped = [each for each in checked if each.skipped]
    if skipped:
        lines.append(f"not run: {len(skipped)} call{'s' * (len(skipped) != 1)}")
        lines.extend(f"  {count:5}  {reason}" for reason, count in Counter(each.skipped for each in skipped).most_common(5))
    drawn = sum(each.drawn for each in checked)
    if drawn:
        lines.append(f"inputs of {drawn} call{'s were' if drawn != 1 else ' was'} drawn within the recorded ranges: their elements were not recorded")
    return "\n".join(lines) + "\n"


def document(judged: Sequence[Verdict], checked: Sequence[Checked], device: str) -> dict[str, Any]:
    """Returns the answer for programs."""
    return {
        "schema_version": 1,
        "device": device,
        "standard": standards.PROFILE,
        "results": [
            {"op": each.checked.op, "call": each.checked.key, "output": each.path, "passes": each.met, "text": each.words, **_numbers(each.checked.results[each.path][2])}
            for each in judged
        ],
        "not_run": [{"call": each.key, "reason": each.skipped} for each in checked if each.skipped],
    }


def junit(judged: Sequence[Verdict]) -> bytes:
    """Returns the answer as JUnit XML: a case for each result."""
    suite = ElementTree.Element("testsuite", name="probe check-ops", tests=str(len(judged)), failures=str(sum(not each.met for each in judged)))
    for each in judged:
        case = ElementTree.SubElement(suite, "testcase", classname=each.checked.op, name=f"{each.checked.key} output.{each.path}")
        if not each.met:
            ElementTree.SubElement(case, "failure", message=each.words)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
