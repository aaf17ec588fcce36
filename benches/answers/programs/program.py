"""A training program: a model, its data, its losses, and the ways in which a user may have written it otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import torch
from torch import nn


class Program(nn.Module):
    """`variant` is empty for the program as it is, else one of `mistakes` or `alike`."""

    #: Name of the optimizer of each group of parameters.
    optimizers: tuple[str, ...] = ("adamw",)
    #: Mistakes of a user, each with the causes that are right for it.
    mistakes: dict[str, tuple[str, ...]] = {}
    #: The same program, written in another way.
    alike: tuple[str, ...] = ()
    #: True if all mistakes and rewrites are dealt, not only the three and the one that most programs have.
    broad = False

    def __init__(self, variant: str = "") -> None:
        super().__init__()
        self.variant = variant
        self.build()
        if variant == "unloaded":
            self.unload()

    def build(self) -> None:
        """Makes the modules."""
        raise NotImplementedError

    def choose(self, variant: str, other: object, usual: object) -> object:
        """`other` in that variant, else `usual`."""
        return other if self.variant == variant else usual

    def forgotten(self) -> nn.Parameter:
        """The parameter that the variant `unloaded` leaves at a random start of its own."""
        raise NotImplementedError

    def unload(self) -> None:
        with torch.no_grad():
            other = torch.randn(self.forgotten().shape, generator=torch.Generator().manual_seed(77))
            self.forgotten().copy_(other * self.forgotten().std())

    def groups(self) -> list[list[nn.Parameter]]:
        """The parameters of each optimizer."""
        return [[p for p in self.parameters() if p.requires_grad]]

    def options(self) -> dict[str, float]:
        """Options of the optimizers beside their usual ones."""
        return {}

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        """The losses of a step in order, each with the optimizer that steps behind its backward pass."""
        yield self.loss(step), 0

    def loss(self, step: int) -> torch.Tensor:
        """The loss of a program that has one."""
        raise NotImplementedError

    def before_update(self) -> None:
        """Runs between a backward pass and the optimizer."""

    def after_update(self) -> None:
        """Runs behind the optimizer."""

    def normal(self, step: int, *shape: int, stream: int = 0) -> torch.Tensor:
        """Data of a step in the type of the model; no recorded op draws it."""
        values = numpy.random.default_rng(1000 * stream + step).standard_normal(shape, numpy.float32)
        return torch.from_numpy(values).to(next(self.parameters()).dtype)

    def numbers(self, step: int, end: int, *shape: int, stream: int = 0) -> torch.Tensor:
        """Integers of a step, from 0 to `end`, which is not among them."""
        return torch.from_numpy(numpy.random.default_rng(1000 * stream + step).integers(end, size=shape))


def wide(x: torch.Tensor) -> torch.Tensor:
    """In float32, if it is shorter."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class RootNorm(nn.Module):
    """A root mean square norm of plain functions."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight
