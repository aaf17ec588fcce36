"""Calls the functions of torch's own test database, records the calls, and lists what `probe check-ops` finds on the CPU: `python database.py FOLDER`.

The database (`torch.testing._internal`) needs the package `expecttest`. Of each function, the first samples that run in float32 are called. What
arrives at a result is drawn, so that no gradient is zero by construction; `--sums` takes the sum of the result as the loss instead.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree

import probe
from probe.replay import command, functions

#: Samples of each function.
SAMPLES = 2


def tensors(value: Any) -> list[torch.Tensor]:
    return [each for each in _pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]


def called(op: Any, sample: Any) -> list[torch.Tensor]:
    """Calls a function; returns the results that have gradients."""
    made = tensors(op.op(sample.input, *sample.args, **sample.kwargs))
    return [each for each in made if each.requires_grad and each.is_floating_point() and each.numel() and each.layout == torch.strided]


def runs(op: Any, sums: bool) -> list[tuple[Any, list[torch.Tensor]]]:
    """Returns the samples that run here, with what arrives at their results."""
    found: list[tuple[Any, list[torch.Tensor]]] = []
    if torch.float32 not in op.supported_dtypes("cpu"):
        return found
    for sample in islice(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd), 4 * SAMPLES):
        try:
            made = called(op, sample)
            random = torch.Generator().manual_seed(len(found))
            arriving = [torch.ones(each.shape) if sums else torch.randn(each.shape, generator=random) for each in made]
            torch.autograd.backward(made, arriving)
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
            continue
        for each in tensors((sample.input, sample.args, sample.kwargs)):
            each.grad = None
        found.append((sample, arriving))
        if len(found) == SAMPLES:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sums", action="store_true", help="the loss is the sum of a result")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    ops = [op for op in op_db if not op.variant_test_name and not op.name.startswith(("_refs", "torch.ops")) and not functions.draws(f"Torch.{op.name}")]
    chosen = [(op, samples) for op in ops if (samples := runs(op, options.sums))]
    print(f"{len(chosen)} functions of the database run here", flush=True)
    with probe.capture(options.folder / "dump", task="tensor", level="api", step_on="program"):
        for op, samples in chosen:
            for sample, arriving in samples:
                torch.autograd.backward(called(op, sample), arriving)
    command.main("check-ops", [str(options.folder / "dump"), "-o", str(options.folder / "checked")])


if __name__ == "__main__":
    main()
