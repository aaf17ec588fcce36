"""Checks the programs in float64: `python same.py [NAME,...]`. What is written otherwise gives the same numbers, a mistake gives others.

Prints, for each mistake, by how much losses, gradients and weights differ after three steps, relative to their size.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

#: A program that is written otherwise may differ by this, in float64. Weights whose gradient is nought may differ by more, since
#: optimizers divide it by its size.
SAME = (1e-10, 1e-10, 1e-8)
#: A mistake differs by more than this: in losses or gradients, or in weights where the optimizer has it.
OTHER = 1e-4


def trained(program: type, variant: str, dtype: torch.dtype = torch.float64, steps: int = 3) -> list[list[torch.Tensor]]:
    """Losses, gradients before each update, and the changes of weights and buffers in all steps, without any recorder."""
    import models

    torch.manual_seed(20)
    made = program(variant).to(dtype).train()
    start = [t.detach().clone() for t in made.state_dict().values()]
    steppers = [models.optimizer(n, g, **made.options()) for n, g in zip(made.optimizers, made.groups(), strict=True)]
    losses, grads = [], []
    for step in range(steps):
        made.zero_grad(set_to_none=True)
        for loss, which in made.losses(step):
            losses.append(loss.detach())
            loss.backward()
            if which is None:
                continue
            made.before_update()
            grads += [p.grad.detach().clone().flatten() for p in made.parameters() if p.grad is not None]
            steppers[which].step()
            made.after_update()
            if len(steppers) > 1:
                made.zero_grad(set_to_none=True)
    moved = [(b.detach() - a).flatten() for a, b in zip(start, made.state_dict().values(), strict=True) if a.is_floating_point()]
    return [losses, grads, moved]


def distance(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Norm of the difference over the norm; infinite where the shapes do not agree."""
    if [t.shape for t in mine] != [t.shape for t in theirs]:
        return float("inf")
    a, b = (torch.cat([t.double().flatten() for t in side]) for side in (mine, theirs))
    return float((a - b).norm() / a.norm())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="?", default="")
    chosen = arguments.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from programs import PROGRAMS

    torch.set_num_threads(1)
    wrong = []
    for name in chosen.names.split(",") if chosen.names else [n for n, made in PROGRAMS.items() if made.broad]:
        program = PROGRAMS[name]
        plain = trained(program, "")
        print(f"{name}: losses {', '.join(f'{float(loss):.4f}' for loss in plain[0])}")
        for variant in (*program.alike, *program.mistakes):
            other = trained(program, variant)
            # A part of the losses is accumulated: what counts are the gradients and weights.
            gaps = [distance(a, b) for a, b in zip(plain, other, strict=True)]
            gaps[0] = 0.0 if len(plain[0]) != len(other[0]) else gaps[0]
            same = variant in program.alike
            if same:
                void = any(gap > most for gap, most in zip(gaps, SAME, strict=True))
            else:
                void = max(gaps if "optimizer" in program.mistakes[variant] else gaps[:2]) < OTHER
            if void:
                wrong.append(f"{name}: {variant}")
            print(f"  {'alike  ' if same else 'mistake'} {variant:18} {' '.join(f'{gap:8.1e}' for gap in gaps)}{'  WRONG' if void else ''}")
    if wrong:
        raise SystemExit(f"wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
