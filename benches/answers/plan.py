"""The cases of one model: which noise, which faults, at which level and task. The same on every machine."""

from __future__ import annotations

import math
import itertools
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from device import Call
from faults import FORMULAS
from programs.program import Program

#: name: (precision, style, bits of mantissa that products keep); the style is chosen by case where it is None here.
NOISES = {
    "R0": ("float32", "none", None),
    "R1": ("float32", None, None),
    "R2": ("float32", None, 10),
    "R3": ("bfloat16", None, None),
    "R4": ("autocast", None, None),
    "R5": ("autocast float16", None, None),
}
#: Sizes of relative errors that faults have beside each noise.
SIZES = {
    "R0": (1e-2, 1e-3, 1e-4, 1e-5), "R1": (1e-2, 1e-3, 1e-4, 1e-5), "R2": (3e-2, 1e-2, 3e-3),
    "R3": (0.2, 0.1, 0.05), "R4": (0.2, 0.1, 0.05), "R5": (0.1, 0.05, 0.02),
}  # fmt: skip
PRODUCTS = ("mm", "addmm", "bmm", "convolution", "_scaled_dot_product_flash_attention_for_cpu")
FORWARD = (
    *PRODUCTS, "native_layer_norm", "native_group_norm", "native_batch_norm", "_softmax", "gelu", "silu", "tanh",
    "sigmoid", "rsqrt", "mean.dim", "mul.Tensor", "add.Tensor", "hardswish", "embedding", "_log_softmax",
    "pow.Tensor_Scalar", "cat", "relu", "relu_", "max_pool2d_with_indices",
)  # fmt: skip
BACKWARD = (
    "mm", "bmm", "convolution_backward", "native_layer_norm_backward", "native_group_norm_backward",
    "native_batch_norm_backward", "_softmax_backward_data", "gelu_backward", "silu_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward", "sum.dim_IntList", "embedding_dense_backward",
    "threshold_backward", "mul.Tensor", "hardswish_backward", "tanh_backward", "sigmoid_backward",
)  # fmt: skip
UPDATES = {
    "adamw": ("addcdiv_", "lerp_.Scalar"),
    "fused": ("_fused_adamw_",),
    "sgd": ("add_.Tensor",),
    "rmsprop": ("addcdiv_",),
    "adafactor": ("add_.Tensor",),
    "adagrad": ("addcdiv_",),
    "lion": ("add_.Tensor",),
    "adam": ("addcdiv_", "lerp_.Scalar"),
    "adamax": ("addcdiv_", "lerp_.Scalar"),
    "nadam": ("addcdiv_", "lerp_.Scalar"),
    "radam": ("add_.Tensor", "lerp_.Scalar"),
    "muon": ("add_.Tensor",),
    "lamb": ("add_.Tensor",),
    "lars": ("add_.Tensor",),
    "adan": ("add_.Tensor",),
    "schedule_free": ("add_.Tensor",),
    "shampoo": ("add_.Tensor",),
}
#: Faults by phase, in the order in which they are dealt out.
MENU = {
    "forward": (
        "scale", "row", "formula", "element", "tail", "accumulation", "channel", "scale", "swap", "nan", "index",
        "memory", "shift", "scale", "inf", "epsilon",
    ),
    "backward": ("scale", "tail", "row", "element", "accumulation", "scale", "swap", "nan", "memory", "channel"),
    "optimizer": ("update", "update tail", "skip", "double"),
}  # fmt: skip
LEVELS = ("mix", "op", "api", "module", "op", "mix")
TASKS = ("sketch", "tensor", "statistics", "sketch")


@dataclass
class Case:
    """One pair of dumps."""

    name: str
    model: str
    split: str
    noise: str
    level: str
    task: str
    style: str | None
    products: int | None
    precision: str
    optimizer: str
    #: Steps that are trained, and those that are recorded.
    trained: int = 2
    steps: list[int] = field(default_factory=lambda: [0, 1])
    faults: list[dict[str, Any]] = field(default_factory=list)
    edit: dict[str, Any] | None = None
    phase: str = ""
    what: str = ""
    #: Causes that are right for a mistake of a program; empty where any is.
    causes: tuple[str, ...] = ()
    tool: str = "probe"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Planner:
    """Deals out levels, tasks, styles and faults in turns, so that every combination has its share."""

    def __init__(
        self, model: str, split: str, optimizer: str, calls: dict[str, list[Call]], edits: list[dict[str, Any]], deal: int = 1
    ) -> None:
        self.model, self.split, self.optimizer, self.calls = model, split, optimizer, calls
        self.edits, self.tool = edits, "probe"
        self.variants: dict[str, Iterator[tuple[str, tuple[str, ...]]]] = {}
        self.draw = random.Random(f"answers {model}" if deal == 1 else f"answers {model} {deal}")
        self.count = {"level": self.draw.randrange(6), "task": self.draw.randrange(4), "style": self.draw.randrange(2)}
        self.menus = {phase: self.draw.randrange(len(menu)) for phase, menu in MENU.items()}
        self.used: set[Any] = set()
        self.cases: list[Case] = []

    def turn(self, name: str, values: tuple[Any, ...]) -> Any:
        self.count[name] += 1
        return values[self.count[name] % len(values)]

    def case(self, noise: str, **more: Any) -> Case:
        precision, style, bits = NOISES[noise]
        level, task = self.turn("level", LEVELS), self.turn("task", TASKS)
        if noise == "R0" and len(self.cases) % 3 == 0:
            task = "hash"
        chosen = None if style == "none" else self.turn("style", ("chunks", "double"))
        if self.tool != "probe":
            level, task = self.turn("level", OLDER_LEVELS), self.turn("task", ("statistics", "statistics", "tensor"))
        name = f"{self.model}_{noise}_{'' if self.tool == 'probe' else self.tool + '_'}{len(self.cases):03}"
        case = Case(
            name,
            self.model,
            self.split,
            noise,
            level,
            task,
            chosen,
            bits,
            precision,
            self.optimizer,
            tool=self.tool,
            **more,
        )
        self.cases.append(case)
        return case

    def fault(
        self, noise: str, phase: str, step: int | None = None, skip: tuple[str, ...] = ()
    ) -> dict[str, Any] | None:
        """The next fault of the menu that fits an op of this model."""
        menu = MENU[phase]
        for _ in menu:
            self.menus[phase] += 1
            what = menu[self.menus[phase] % len(menu)]
            if what in skip:
                continue
            at = self.draw.choice((0, 0, 1)) if step is None else step
            if phase == "optimizer":
                at = 0 if step is None else step
            fits = [
                call
                for call in self.calls[NOISES[noise][0]]
                if call.phase == phase and call.step == at and self.suits(call, what)
            ]
            if fits:
                kinds = sorted({call.op for call in fits})
                fresh = [kind for kind in kinds if (kind, what) not in self.used] or kinds
                kind = self.draw.choice(fresh)
                call = self.draw.choice([call for call in fits if call.op == kind])
                self.used.add((kind, what))
                return self.sized(call, what, noise)
        return None

    def edit(self, noise: str, what: tuple[str, ...]) -> dict[str, Any] | None:
        """One of these edits, of a kind that was not used yet if there is one."""
        # In a run of bfloat16, a module in bfloat16 is no edit.
        what = tuple(kind for kind in what if kind != "dtype" or NOISES[noise][0] != "bfloat16")
        fits = [edit for edit in self.edits if edit["what"] in what]
        fresh = [edit for edit in fits if edit["what"] not in self.used] or fits
        if not fresh:
            return None
        chosen = self.draw.choice(fresh)
        self.used.add(chosen["what"])
        return chosen

    def suits(self, call: Call, what: str) -> bool:
        if call.phase == "optimizer":
            return call.op in UPDATES[self.optimizer] and any(math.prod(shape) >= 1000 for shape in call.shapes)
        if call.op not in (FORWARD if call.phase == "forward" else BACKWARD) or not call.shapes:
            return False
        shape = call.shapes[0]
        if math.prod(shape) < 500:
            return False
        if what == "formula":
            return call.op in FORMULAS
        if what == "epsilon":
            return call.op in ("native_layer_norm", "native_group_norm", "native_batch_norm")
        if what == "index":
            return call.op == "embedding"
        if what == "memory":
            return bool(call.transposed) and call.op in ("mm", "bmm", "addmm", "mul.Tensor", "add.Tensor", "cat")
        if what == "accumulation":
            return call.dtypes[0] == "float32" and call.op in (
                *PRODUCTS[:3],
                "_softmax",
                "native_layer_norm",
                "mean.dim",
                "sum.dim_IntList",
                "convolution",
                "gelu",
                "silu",
            )
        if what == "shift":
            return call.op in ("convolution", "cat", "embedding", "max_pool2d_with_indices")
        if what in ("row", "swap", "channel"):
            return len(shape) > 1 and math.prod(shape[:-1]) >= 4 and shape[-1] >= 4
        return True

    def sized(self, call: Call, what: str, noise: str) -> dict[str, Any]:
        fault: dict[str, Any] = {"op": call.op, "phase": call.phase, "step": call.step, "call": call.call, "what": what}
        size, loud = self.draw.choice(SIZES[noise]), noise not in ("R0", "R1")
        fault["place"] = round(self.draw.uniform(0.05, 0.95), 3)
        large = [i for i, shape in enumerate(call.shapes) if math.prod(shape) >= 200]
        if call.phase == "optimizer":
            if call.op == "_fused_adamw_":
                # Weights come first among what the op writes: a quarter of it, with gradients, means and squares.
                large = [i for i in large if i < len(call.shapes) // 4] or large
            fault["output"] = self.draw.choice(large)
            fault["by"] = {"update": 1.1 if loud else 1.01, "double": 2.0, "skip": 0.0}.get(what)
            fault["what"] = "update tail" if what == "update tail" else "update"
            return {k: v for k, v in fault.items() if v is not None}
        fault["output"] = self.draw.choice(large) if call.phase == "backward" and large else 0
        if what == "scale":
            fault["by"] = 1 + size
        elif what in ("row", "channel"):
            fault["by"] = 1 + max(0.05, min(1.0, size * 20))
        elif what == "tail":
            fault["by"] = self.draw.choice((0.0, 1 + max(0.01, size * 3)))
        elif what == "element":
            fault["times"] = 20.0 if noise in ("R3", "R4", "R5") else 5.0 if loud else self.draw.choice((1.0, 0.3))
        elif what == "accumulation":
            fault["dtype"] = "bfloat16" if noise != "R5" else "float16"
        elif what == "memory":
            fault["argument"] = call.transposed[0]
        elif what == "epsilon":
            fault["value"] = 1e-2 if loud else 1e-3
        return fault


def variants(program: type[Program]) -> dict[str, Iterator[tuple[str, tuple[str, ...]]]]:
    """Mistakes with their causes, and other ways of writing, in turns."""
    return {
        "m": itertools.cycle(program.mistakes.items()),
        "a": itertools.cycle((name, ()) for name in program.alike),
    }


def of_program(planner: Planner, program: type[Program]) -> list[Case]:
    """All cases of a program."""
    planner.variants = variants(program)
    if program.broad:
        return plan(planner, dealt_broad(program), dealt_older(program))
    return plan(planner, DEALT_PROGRAM, {})


def of_late_steps(planner: Planner, program: type[Program]) -> list[Case]:
    """Sound pairs, mistakes and other ways of writing of a program, of each one late step alone: the weights have moved before it."""
    planner.variants = variants(program)
    every = "m" * len(program.mistakes) + "a" * len(program.alike)
    planned = plan(planner, {"R1": "ss" + every, "R2": "sssmmmaa", "R3": "sssma", "R4": "sssma"}, {})
    for case, step in zip(planned, itertools.cycle(LATE), strict=False):
        case.trained, case.steps = step + 1, [step]
    return planned


def dealt_broad(program: type[Program]) -> dict[str, str]:
    """Every mistake and every other way of writing once beside rounding, and some of them on the very same device."""
    return {**DEALT_BROAD, "R1": "bo" + "m" * len(program.mistakes) + "a" * len(program.alike) + "sL"}


def dealt_older(program: type[Program]) -> dict[str, str]:
    """Every mistake and every other way of writing once as msprobe records it."""
    return {**DEALT_OLDER_BROAD, "R1": DEALT_OLDER_BROAD["R1"] + "m" * len(program.mistakes) + "a" * len(program.alike)}


def with_data(planner: Planner) -> list[Case]:
    """Cases for replay: level op, task tensor, and of each the one step that matters."""
    for number, case in enumerate(plan(planner, DEALT_DATA)):
        case.level, case.task = "op", "tensor"
        if len(case.steps) > 1:
            case.steps = [case.faults[0]["step"] if case.faults else number % 2]
    return planner.cases


def describe(fault: dict[str, Any]) -> str:
    rest = ", ".join(
        f"{k} {v}" for k, v in fault.items() if k in ("by", "times", "dtype", "output", "value", "argument", "place")
    )
    return f"{fault['what']} in {fault['phase']} of step {fault['step']}: aten::{fault['op']} call {fault['call']} ({rest})"


#: Cases of each model in the reduced set.
DEALT_SMALL = {"R0": "fs", "R1": "fbos", "R2": "fs"}
#: Cases of each noise: one letter a case. f, b, o: a fault in forward, backward, optimizer; t: two at once; l: one seen in a
#: late step; e: an edit of the program; E: another argument seen in a late step; s: sound; L: sound, a late step.
DEALT = {
    "R0": "ffbo" "s",
    "R1": "fffffffbbbbbootleeE" "ssssL",
    "R2": "ffffbbbotee" "ssL",
    "R3": "ffbboe" "s",
    "R4": "ffbb" "s",
    "R5": "fb" "s",
}  # fmt: skip
#: Cases of a program. m: a mistake of its user; a: the same program, written in another way.
DEALT_PROGRAM = {"R0": "f", "R1": "ffbommasL", "R2": "fbmas", "R3": "fbs", "R4": "fs", "R5": "s"}
#: Cases of a broad program; those of R1 follow from what it has. Every third case of R0 has hashes alone, which a program that is
#: written otherwise cannot keep.
DEALT_BROAD = {"R0": "fmafma", "R1": "", "R2": "mmmaas", "R3": "fs", "R4": "fs", "R5": "s"}
#: Cases with data, for replay.
DEALT_DATA = {"R0": "f", "R1": "fblsL", "R2": "fbsL", "R3": "fs", "R4": "bls", "R5": "s"}
#: Cases recorded by msprobe, which has no level `op` and does not see the optimizer.
DEALT_OLDER = {"R0": "f", "R1": "ffbss", "R2": "fs", "R4": "fs"}
#: What it records of a broad program; mistakes and other ways of writing follow from what the program has.
DEALT_OLDER_BROAD = {"R0": "f", "R1": "fbs", "R2": "fs", "R4": "s"}
#: Steps that are recorded alone.
LATE = (1, 2, 3, 5, 8)
#: A short deal, mostly of sound pairs, and what msprobe records of it.
DEALT_SHORT = (
    {"R1": "ffbb" "ssssL", "R2": "ffb" "sssL", "R3": "ffbb" "sssL", "R4": "fb" "sssL", "R5": "f" "ss"},
    {"R1": "s", "R2": "s", "R4": "s"},
)  # fmt: skip
#: A deal of every letter, for models that nobody has seen.
DEALT_LATER = (
    {"R0": "fe", "R1": "ffbboeesssL", "R2": "ffbessL", "R3": "fbes", "R4": "fbess", "R5": "fs"},
    {"R0": "f", "R1": "fbs", "R2": "s", "R4": "s"},
)
#: A deal for architectures by the hundred.
DEALT_ANY = ({"R1": "fbesL", "R2": "fs", "R3": "s", "R4": "s"}, {"R1": "s"})
OLDER_LEVELS = ("mix", "api", "module")


def plan(planner: Planner, dealt: dict[str, str] = DEALT, older: dict[str, str] = DEALT_OLDER) -> list[Case]:
    """All cases of a model."""
    hands = [("probe", noise, letter) for noise, letters in dealt.items() for letter in letters]
    hands += [("msprobe", noise, letter) for noise, letters in older.items() for letter in letters]
    for planner.tool, noise, letter in hands:
        if NOISES[noise][0] in planner.calls:
            deal(planner, noise, letter)
    return planner.cases


def deal(planner: Planner, noise: str, letter: str) -> None:
    """One case, if this model has what it takes."""
    late: dict[str, Any] = {"trained": 5, "steps": [4]} if letter in "lLE" else {}
    if letter in "sL":
        planner.case(noise, phase="sound", what="sound", **late)
    elif letter in "ma":
        name, causes = next(planner.variants[letter])
        phase = "mistake" if letter == "m" else "alike"
        planner.case(noise, phase=phase, what=f"{phase}: {name}", edit={"variant": name}, causes=causes)
    elif letter in "eE":
        edit = planner.edit(noise, ("argument",) if letter == "E" else ("argument", "dtype", "extra op", "missing op"))
        if edit:
            case = planner.case(noise, phase="certain", edit=edit, **late)
            case.what = ", ".join(f"{k} {v}" for k, v in edit.items())
            # Another argument leaves no trace but its numbers at level module.
            case.level = "api" if case.level == "module" and (late or noise != "R1") else case.level
    elif letter == "l":
        fault = planner.fault(noise, "forward", step=0, skip=("nan", "inf"))
        if fault:
            case = planner.case(noise, phase="forward", **late)
            case.faults = [{**fault, "step": step} for step in range(case.trained)]
            case.what = "in every step, the last alone is recorded: " + describe(case.faults[-1])
    else:
        phase = {"b": "backward", "o": "optimizer"}.get(letter, "forward")
        chosen = [planner.fault(noise, phase), *([planner.fault(noise, "backward")] if letter == "t" else [])]
        if None not in chosen:
            case = planner.case(noise, phase=phase)
            case.faults = [f for f in chosen if f]
            case.what = "; ".join(map(describe, case.faults))
