"""Losses, gradients, weights and generators of trainings, recorded and not: the same bits."""

from __future__ import annotations

import shutil
from typing import Any

import torch

import probe
import programs
from checks import NotHere, Run, Unwell, run
from programs import Program, differing

STEPS = 3
LEVELS = ("module", "mix", "api", "op")
TASKS = ("statistics", "sketch", "hash", "tensor")

#: Programs whose own runs differ: a recorded one may be as far from the first as the others of so many are, times this.
APART, PLAIN = 4.0, 8


def held(given: Run, program: Program, pairs: list[tuple[str, str]], deterministic: bool) -> dict[str, Any]:
    """One program without a recording, twice, and with each of `pairs` of level and task."""
    if program.special == "graph" and given.kind != "cuda":
        raise NotHere("graphs are of CUDA")
    if program.special == "compiled" and given.reduced:
        raise NotHere("takes most of a minute to compile; the tests of the recorder have compiled programs")
    if program.attention in ("flash", "efficient") and given.kind != "cuda":
        raise NotHere("the kernel is of CUDA")
    first, *others = (programs.train(program, given.device, given.size, STEPS, deterministic=deterministic) for _ in range(2 if deterministic else PLAIN))
    own = max(differing(first, other) for other in others)
    worst, ops, tensors = 0.0, 0, 0
    for level, task in pairs:
        made: list[Any] = []

        def capture(model: torch.nn.Module, level: str = level, task: str = task) -> Any:
            made.append(probe.Capture(given.folder / "dump", level=level, task=task, quiet=True, step_on="program"))
            return made[-1]

        seen = programs.train(program, given.device, given.size, STEPS, capture, deterministic)
        apart = differing(first, seen)
        recorded, (measured, missing, reason), _ = made[-1].tally()
        shutil.rmtree(given.folder / "dump")
        if apart > APART * own:
            raise Unwell(f"level {level}, task {task}: results differ by {apart:.2e}; two plain runs by {own:.2e}")
        if missing and not (program.special == "graph" and "recording a graph" in (reason or "")):
            raise Unwell(f"level {level}, task {task}: {missing} of {measured} tensors could not be measured; first {reason}")
        worst, ops, tensors = max(worst, apart), ops + recorded, tensors + measured
    return {"captures": len(pairs), "ops": ops, "tensors": tensors, "plain runs apart": own, "recorded run apart": worst}


def main(given: Run) -> None:
    every = [(level, task) for level in LEVELS for task in TASKS]
    for place, program in enumerate(programs.PROGRAMS):
        # Each level once, with each task in turn.
        some = [(level, TASKS[(place + number) % 4]) for number, level in enumerate(LEVELS)]
        whole = not given.reduced and (program.model == "mlp" or program.name in ("gpt-bfloat16-adamw", "gpt-float32-fused"))
        pairs = every if whole else some[place % 2 :: 2] if given.reduced else some
        given.checks.check(program.name, lambda program=program, pairs=pairs: held(given, program, pairs, True))
    for program in (Program("resnet", optimizer="sgd"), Program("gpt", "bfloat16", attention="flash"), Program("moe", "bfloat16")):
        pairs = [("mix", "sketch"), ("module", "statistics"), ("op", "sketch")]
        given.checks.check(f"{program.name}, kernels as torch chooses them", lambda program=program, pairs=pairs: held(given, program, pairs, False))


if __name__ == "__main__":
    run("identical", main)
