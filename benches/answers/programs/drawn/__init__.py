"""Programs drawn from a seed: blocks, norms, residuals, a loss, an optimizer and how they are put together.

A seed that nobody has used is a program that nobody has tuned a judge on, and there is no end of them: `drawn-7` is the seventh.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from programs.drawn.aims import AIMS
from programs.drawn.block import Block, Norm
from programs.drawn.grids import GRIDS
from programs.drawn.maps import MAPS
from programs.drawn.mixers import MIXERS
from programs.drawn.rarities import RARITIES
from programs.program import Program
from torch import nn
from torch.utils.checkpoint import checkpoint

OPTIMIZERS = (
    "adamw", "adamw", "adamw", "sgd", "sgd", "rmsprop", "adafactor", "adagrad", "lion", "adam", "nadam", "radam", "lamb", "adan",
    "schedule_free", "fused", "adamax",
)  # fmt: skip
#: Those whose decay of weights is an option.
DECAYING = ("adamw", "sgd", "rmsprop", "adafactor", "adagrad", "adam", "nadam", "radam", "fused", "adamax")
#: Mistakes and other ways of writing of a program: a few of the many that its blocks have.
MISTAKES, WAYS = 4, 4
#: Seeds from here on have the blocks of `rarities` as well.
RARE = 1000
#: A name of a program, followed by its seed.
NAME = "drawn-"


class Residual(nn.Module):
    """A block with a norm and what goes around it."""

    def __init__(self, draw: random.Random, width: int, kind: type[Block], ways: dict[str, str], grid: bool, at: str) -> None:
        super().__init__()
        self.way = ways.get(at, "")
        self.place = draw.choice(("before", "before", "after", "none"))
        self.share = draw.choice((None, None, 0.5))
        self.norm = None if grid or self.place == "none" else Norm(draw, width, ways.get(f"{at} norm", ""))
        self.block = kind(draw, width, ways.get(at, ""))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.norm(x) if self.norm and self.place == "before" else x
        new = self.block(before)
        new = new if self.share is None or self.way == "unshared" else new * self.share
        if self.way == "no residual":
            return new
        new = (before if self.way == "normed residual" else x) + new
        return self.norm(new) if self.norm and self.place == "after" else new

    def mistakes(self) -> dict[str, tuple[str, ...]]:
        """Those of what goes around the block."""
        found = {"no residual": ("structure",)}
        if self.norm and self.place == "before":
            found["normed residual"] = ("structure", "input")
        if self.share is not None:
            found["unshared"] = ("structure",)
        return found


class Drawn(Program):
    """The program of a seed."""

    broad = True
    seed = 0

    def build(self) -> None:
        draw = random.Random(f"program {self.seed}")
        at, _, way = self.variant.partition(": ")
        ways = {at: way}
        self.optimizers = (draw.choice(OPTIMIZERS),)
        self.grid, width = draw.random() < 0.3, draw.choice((16, 24, 32))
        self.parts, self.clipped = draw.choice((1, 1, 2)), draw.random() < 0.5
        self.averaged, self.length = draw.random() < 0.15, draw.choice((10, 12, 16))
        self.entry = draw.choice(("words", "words and places", "numbers"))
        if self.grid:
            self.stem = nn.Conv2d(3, width, 3, padding=1)
        elif self.entry == "numbers":
            self.stem = nn.Linear(8, width)
        else:
            self.stem = nn.Embedding(40, width)
        placed = self.entry == "words and places" and not self.grid
        self.places = nn.Parameter(torch.randn(self.length, width) * 0.3) if placed else None
        kinds = GRIDS if self.grid else MIXERS + MAPS if self.seed < RARE else MIXERS + MAPS + RARITIES + RARITIES
        self.layers = nn.ModuleList(
            Residual(draw, width, draw.choice(kinds), ways, self.grid, str(i)) for i in range(draw.choice((2, 3, 4, 5)))
        )
        self.last = Norm(draw, width, ways.get("last", ""))
        self.aim = draw.choice(AIMS)(draw, width, ways.get("aim", ""))
        if self.averaged:
            self.slow = nn.Parameter(torch.zeros_like(self.stem.weight), requires_grad=False)

    def forgotten(self) -> nn.Parameter:
        return max(self.layers[0].block.parameters(), key=torch.Tensor.numel)

    def options(self) -> dict[str, float]:
        return {"weight_decay": 0.5} if self.variant == "decay" else {}

    def entered(self, step: int, rows: slice) -> torch.Tensor:
        if self.grid:
            return self.stem(self.normal(step, 4, 3, 8, 8)[rows])
        if self.entry == "numbers":
            return self.stem(self.normal(step, 4, self.length, 8)[rows])
        x = self.stem(self.numbers(step, 40, 4, self.length)[rows])
        return x if self.places is None or self.variant == "no places" else x + self.places

    def loss_of(self, step: int, rows: slice) -> torch.Tensor:
        x = self.entered(step, rows)
        for i, layer in enumerate(self.layers):
            again = self.variant == "again" and i == len(self.layers) - 1
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        if self.grid:
            x = F.avg_pool2d(x, 2).flatten(2).mT
        x = self.last(x)
        classes = self.numbers(step, 24, 4, x.shape[1], stream=1)[rows]
        return self.aim.loss(x, classes, self.normal(step, 4, x.shape[1], 6, stream=2)[rows])

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        size = 4 // self.parts
        for part in range(self.parts):
            last = part == self.parts - 1
            factor = 1 if self.variant == "undivided" else self.parts
            yield self.loss_of(step, slice(part * size, (part + 1) * size)) / factor, 0 if last else None
            if self.variant == "cleared" and not last:
                self.zero_grad()

    def before_update(self) -> None:
        if self.clipped and self.variant != "unclipped":
            nn.utils.clip_grad_norm_(self.parameters(), 0.25)

    def after_update(self) -> None:
        if self.averaged:
            with torch.no_grad():
                self.slow.lerp_(self.stem.weight, 0.1)


def variants(made: Drawn) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """All mistakes and other ways of writing that a program has."""
    mistakes: dict[str, tuple[str, ...]] = {"unloaded": ("input",)}
    if made.optimizers[0] in DECAYING:
        mistakes["decay"] = ("optimizer", "argument")
    ways = ["again"]
    if made.parts > 1:
        mistakes |= {"undivided": ("structure", "argument"), "cleared": ("gradient", "optimizer", "structure")}
    if made.places is not None:
        mistakes["no places"] = ("structure",)
    if made.clipped:
        mistakes["unclipped"] = ("structure", "gradient", "optimizer")
    for at, layer in enumerate(made.layers):
        mistakes |= {f"{at}: {name}": causes for name, causes in {**layer.block.mistakes, **layer.mistakes()}.items()}
        ways += [f"{at}: {name}" for name in layer.block.ways]
        if layer.norm:
            mistakes |= {f"{at} norm: {name}": causes for name, causes in Norm.mistakes.items()}
            ways += [f"{at} norm: {name}" for name in Norm.ways]
    mistakes |= {f"aim: {name}": causes for name, causes in made.aim.mistakes.items()}
    ways += [f"aim: {name}" for name in made.aim.ways] + [f"last: {name}" for name in Norm.ways]
    return mistakes, ways


def drawn(name: str) -> type[Drawn]:
    """The program of this name."""
    seed = int(name.removeprefix(NAME))
    with torch.random.fork_rng():
        made = type("Drawn", (Drawn,), {"seed": seed})()
    mistakes, ways = variants(made)
    draw = random.Random(f"variants {seed}")
    chosen = draw.sample(sorted(mistakes), min(MISTAKES, len(mistakes)))
    return type("Drawn", (Drawn,), {
        "seed": seed, "optimizers": made.optimizers, "mistakes": {name: mistakes[name] for name in chosen},
        "alike": tuple(draw.sample(ways, min(WAYS, len(ways)))),
    })  # fmt: skip
