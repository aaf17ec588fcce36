"""Which ops a user would accept as the answer: read off the record itself.

A fault is put into a run that is otherwise equal to the bit. Then every value that differs owes it to the fault, and the op at
fault is the first whose results differ while all that it read is equal. No name is guessed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

#: Results of these are memory that nobody wrote: it differs from run to run.
UNWRITTEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
FLOATING = ("torch.float", "torch.bfloat", "torch.complex")
COLUMNS = ["order", "op", "phase", "scope", "slot", "side", "kind", "value", "dtype", "shape", "hash"]


@dataclass
class Op:
    """One recorded op, with what tells its values apart: hashes of tensors, other values as text."""

    order: int
    name: str
    phase: str
    scope: str | None
    reads: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)

    def path(self) -> str:
        """Module path: the same in forward, backward and parameter gradients."""
        for word in (".forward.", ".backward.", ".parameters_grad."):
            self_name = self.name.partition(word)[0]
            if self_name != self.name:
                return self_name
        return self.name


def table(dump: Path, step: int) -> dict[tuple[str, int], Op]:
    """The ops of one step in the order of the record; a name that occurs again is told apart by its place."""
    ops: dict[tuple[str, int], Op] = {}
    for file in sorted((dump / f"step{step}").glob("rank*/ops.parquet")):
        for row in pq.read_table(file, columns=COLUMNS).to_pylist():
            op = ops.setdefault((row["op"], row["order"]), Op(row["order"], row["op"], row["phase"], row["scope"]))
            what = (row["kind"], row["value"], row["dtype"], row["shape"], row["hash"])
            (op.results if row["side"] in ("output", "gradient") else op.reads)[row["slot"]] = what
    unwritten = set[str]()
    for op in ops.values():
        name = op.name.split(".")[1]
        # Whoever reads such memory, as `scatter_` does that writes all of it, reads nothing.
        op.reads = {slot: value for slot, value in op.reads.items() if str(value) not in unwritten}
        if name in UNWRITTEN:
            unwritten |= set(map(str, op.results.values()))
            op.results = {}
        elif name == "_ctc_loss":  # beyond the length of a target, what it keeps for its backward is not written
            op.results.pop("output.1", None)
        elif name == "_ctc_loss_backward":
            op.reads.pop("input.6", None)
        elif name == "copy_":  # what it is about to overwrite is nothing that it reads
            op.reads.pop("input.0", None)
    return ops


def recorded_names(dump: Path, step: int) -> set[str]:
    """The ops in a step of a dump of msprobe. Its checksums cannot say which differ: it takes them later, after ops in place."""
    found: set[str] = set()
    for file in (dump / f"step{step}").glob("*/dump.json"):
        found |= json.loads(file.read_text())["data"].keys()
    return found


def differing(a: dict[str, Any], b: dict[str, Any]) -> set[str]:
    return {slot for slot in a.keys() | b.keys() if a.get(slot) != b.get(slot)}


class OtherOps(ValueError):
    """The fault changed what the program does."""


@dataclass
class Answer:
    """Names that are right, each with its step."""

    names: list[tuple[int, str]]
    #: How the op was found: `origin`, `arrival` (nobody who made the value is recorded), `weights`, or `hidden` (no value differs).
    how: str


def answer(baseline: Path, marked: Path, steps: list[int], fault: dict[str, Any], level: str) -> Answer:
    """Returns the name of the fault that the run `marked` has and `baseline` has not; they are equal to the bit otherwise."""
    found: list[tuple[int, str]] = []
    for step in steps:
        mine, theirs = table(baseline, step), table(marked, step)
        if mine.keys() != theirs.keys():
            raise OtherOps(
                f"{marked}: step {step} has other ops than {baseline}: the fault changed what the program does"
            )
        changed = {
            key: (differing(op.reads, theirs[key].reads), differing(op.results, theirs[key].results))
            for key, op in mine.items()
        }
        if found:
            # The optimizer's fault was found; those who name the weight in the step after are right as well.
            return Answer(list(dict.fromkeys(found + weights(step, mine, changed))), "origin")
        sources = [key for key in changed if is_source(key, mine, changed)] if step == fault["step"] else []
        if sources:
            found = related(step, mine, theirs, sources, changed, fault["phase"])
            if fault["phase"] != "optimizer" or level == "op":
                break
        elif any(reads for reads, _ in changed.values()):
            read = weights(step, mine, changed)
            if fault["phase"] == "optimizer":
                return Answer(list(dict.fromkeys(read)), "weights")
            return Answer(list(dict.fromkeys(read + maker(step, mine, changed))), "arrival")
    return Answer(list(dict.fromkeys(found)), "origin" if found else "hidden")


def is_source(key: Any, ops: dict[Any, Op], changed: dict[Any, Any]) -> bool:
    """Results differ, and nothing that was read does. What a gradient of a parameter was made from, its module alone knows."""
    if changed[key][0] or not changed[key][1]:
        return False
    op = ops[key]
    if op.phase != "parameters_grad":
        return True
    backward = [other for other, that in ops.items() if that.phase == "backward" and that.path() == op.path()]
    if backward:
        return any(not changed[other][0] for other in backward)
    return not any(
        any(changed[other]) for other, that in ops.items() if that.order < op.order and that.phase == "backward"
    )


def related(
    step: int, mine: dict[Any, Op], theirs: dict[Any, Op], sources: list[Any], changed: dict[Any, Any], phase: str
) -> list[tuple[int, str]]:
    """The innermost op that made the first wrong value, the module right around it if it hands on the same, and the other half
    of a backward op.
    """

    def wrong(key: Any) -> set[Any]:
        return {theirs[key].results.get(slot) for slot in changed[key][1]}

    first = sources[0]
    same = [key for key in sources if wrong(key) & wrong(first)]
    inner = max(
        same, key=lambda key: (not mine[key].name.startswith("Module."), mine[key].path().count("."), -mine[key].order)
    )
    around = (mine[inner].scope or "").replace(".forward.", f".{mine[inner].phase or 'forward'}.")
    names = [mine[inner].name]
    if not names[0].startswith("Module."):
        names += [mine[key].name for key in same if mine[key].name == around]
    if names[0].startswith("Module.") and mine[inner].phase == "parameters_grad":
        # A weight that a function of the module around read: its own module never ran backward.
        inside = [
            key
            for key in sources
            if mine[key].phase == "backward"
            and mine[inner].path().startswith(mine[key].path().rpartition(".")[0] + ".")
        ]
        names += [mine[key].name for key in sorted(inside, key=lambda key: -mine[key].path().count("."))[:1]]
    for key in sources[1:]:
        op = mine[key]
        same_module = op.phase != "forward" and mine[first].phase != "forward" and op.path() == mine[inner].path()
        if same_module or op.name.startswith("Optimizer."):
            names.append(op.name)
    if mine[first].phase == "backward":
        # A gradient of a parameter has one op of its own, beside the op that computed it.
        names += [op.name for key, op in mine.items() if op.phase == "parameters_grad" and wrong(first) & wrong(key)]
        if phase == "forward":  # a wrong value that only the backward pass reads
            names += [name.replace(".backward", ".forward") for name in names if ".backward" in name]
    return [(step, name) for name in names]


def weights(step: int, ops: dict[Any, Op], changed: dict[Any, Any]) -> list[tuple[int, str]]:
    """The first op that reads a value that differs, the modules that read the same one as theirs, or the module around."""
    first = next((key for key, (reads, _) in changed.items() if reads), None)
    if first is None:
        return []
    values = {ops[first].reads.get(slot) for slot in changed[first][0]}
    owners = [
        op.name for key, op in ops.items()
        if op.name.startswith("Module.") and op.phase == "forward" and values & {op.reads.get(slot) for slot in changed[key][0]}
    ]  # fmt: skip
    scope = None if ops[first].name.startswith("Module.") and owners else ops[first].scope
    return [(step, name) for name in [ops[first].name, *owners, *([scope] if scope else [])]]


def maker(step: int, ops: dict[Any, Op], changed: dict[Any, Any]) -> list[tuple[int, str]]:
    """The module around the first op that reads a value that differs, if the module did not read it as well: it made it then."""
    first = next(key for key, (reads, _) in changed.items() if reads)
    values = {ops[first].reads.get(slot) for slot in changed[first][0]}
    around = [op for op in ops.values() if op.name == ops[first].scope]
    return [(step, op.name) for op in around if not values & set(op.reads.values())]


def structure(steps: list[int], baseline: Path, edited: Path, module: str) -> Answer:
    """An edit of a program: ops that one side alone has, and those of the module that was edited."""
    names: list[tuple[int, str]] = []
    for step in steps[:1]:
        mine, theirs = list(table(baseline, step).values()), list(table(edited, step).values())
        if next(arising(mine, theirs), None) is None:
            # The module is not used.
            continue
        sides = [[kind(op.name) for op in ops if op.phase == "forward"] for ops in (mine, theirs)]
        for tag, a, b, c, d in SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
            if tag != "equal":
                names += [(step, op.name) for op in [*mine[a:b], *theirs[c:d]]]
                break
        scope = f"Module.{module}."
        if not names:
            # Of modules alone: an op that a hook adds behind a module shows in the one around it.
            around = f"Module.{module.rpartition('.')[0]}."
            names += [(step, op.name) for op in theirs if op.phase == "forward" and op.name.startswith(around) and op.name.count(".") == around.count(".") + 2]
        for op in [*mine, *theirs]:
            if op.phase == "forward" and (op.name.startswith(scope) or (op.scope or "").startswith(scope)):
                names.append((step, op.name))
    return Answer(list(dict.fromkeys(names)), "edit" if names else "hidden")


def mistake(steps: list[int], baseline: Path, edited: Path) -> Answer:
    """Two programs that differ in one thing: the first op in which the difference arises, and those that show the same one.

    A difference arises in an op of one side alone, in one whose arguments differ, in one that reads a value that differs and that
    no recorded op made, and in one whose results differ although all that it read is equal.
    """
    for step in steps:
        mine, theirs = list(table(baseline, step).values()), list(table(edited, step).values())
        for block in arising(mine, theirs):
            first = block[0]
            values = set(map(str, first.reads.values()))
            unequal = values - {str(value) for op in mine for value in op.reads.values()}
            owners = [op for op in [*theirs, *mine] if op.name.startswith("Module.") and unequal & set(map(str, op.reads.values()))]
            around = [first.scope] if first.scope and not owners else []
            # Where a module was called otherwise, several of its functions show it.
            beside = [op for other in arising(mine, theirs) for op in other if first.scope and op.scope == first.scope]
            # Where the forward pass shows nothing, the gradient that arrives first says as much as that of a parameter.
            backward = [op for other in arising(mine, theirs) for op in other if ".backward." in op.name]
            arrives = backward[:2] if ".parameters_grad." in first.name else []
            names = [op.name for op in [*block, *owners, *beside, *arrives, *users(block, mine), *users(block, theirs)]] + around
            return Answer([(step, name) for name in dict.fromkeys(names)], "mistake")
    return Answer([], "hidden")


def users(block: list[Op], ops: list[Op]) -> list[Op]:
    """The first op of a side that computes with what a block makes of masks, indices and constants alone. These compute nothing
    themselves: that attention lacks its mask is seen at the attention. None if the block computes.
    """
    inside, made = {id(op) for op in block}, set[str]()
    for op in ops:
        reads = {str(value): value for value in op.reads.values()}
        computes = any(str(value[2]).startswith(FLOATING) for name, value in reads.items() if name not in made)
        if id(op) in inside or made & reads.keys():
            if computes:
                return [] if id(op) in inside else [op]
            made |= set(map(str, op.results.values()))
    return []


def arising(mine: list[Op], theirs: list[Op]) -> Iterator[list[Op]]:
    """Every place where a difference arises, in order: ops of both sides that belong to it."""
    # The results of pairs that are each value: those of one op are told apart.
    made_mine, made_theirs = defaultdict[str, set[tuple[int, str]]](set), defaultdict[str, set[tuple[int, str]]](set)
    number = 0
    for tag, a, b, c, d in aligned(mine, theirs):
        if tag != "equal":
            yield [*mine[a:b], *theirs[c:d]]
            continue
        for ours, other in zip(mine[a:b], theirs[c:d], strict=True):
            changed = differing(ours.reads, other.reads)
            makers = [(made_mine.get(str(ours.reads.get(slot))), made_theirs.get(str(other.reads.get(slot)))) for slot in changed]
            arrived = any(not one or not two for one, two in makers)
            # It reads the result of another op.
            rewired = any(one and two and not one & two for one, two in makers)
            if arrived or rewired or (differing(ours.results, other.results) and not changed):
                yield [ours, other]
            for made, results in ((made_mine, ours.results), (made_theirs, other.results)):
                for slot, value in results.items():
                    made[str(value)].add((number, slot))
            number += 1


def aligned(mine: list[Op], theirs: list[Op]) -> Iterator[tuple[str, int, int, int, int]]:
    """Which ops belong together, as `get_opcodes` says it. What is equal to the bit comes first: of two products in a row it is the
    second that the other side lacks, where the first is the same.
    """
    sides = [[kind(op.name) for op in ops] for ops in (mine, theirs)]
    pairs = zip(mine, theirs, *sides, strict=False)
    same = (one == other and not differing(a.reads, b.reads) and not differing(a.results, b.results) for a, b, one, other in pairs)
    begins = next((at for at, is_same in enumerate(same) if not is_same), min(map(len, sides)))
    yield "equal", 0, begins, 0, begins
    rest = [side[begins:] for side in sides]
    for tag, *bounds in SequenceMatcher(None, *rest, autojunk=False).get_opcodes():
        a, b, c, d = (begins + bound for bound in bounds)
        yield tag, a, b, c, d


def kind(name: str) -> str:
    """A name without the number of its call."""
    return ".".join(part for part in name.split(".") if not part.isdigit()) if not name.startswith("Module.") else name
