"""Statistics and sketch of a piece in two launches, by a kernel that is compiled with Triton where there is one.

The numbers are those of `device_sums`, and so is what they are called: a piece that this measures and one that the operations measure may
belong to one tensor. Only floats of 32 and 16 bits are measured here, which is what trainings are made of. The setting
`fused` asks for it.

Run in Triton's interpreter in the tests, and compiled for a GPU there; not yet run on one.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from probe.recorder.device_sketch import PERIOD

#: Types that are measured here.
DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16})

#: Dimensions of a tensor, after those that follow one another in memory are joined, that are walked here.
_DIMENSIONS = 4

#: Programs of the first launch at most: each goes through its rows and leaves one row of results.
_PROGRAMS = 512

#: Rows of lanes that a program reads at once.
_ROWS = 16

#: Lanes as a power of two, as Triton has it, and behind them least, greatest, sum and sum of squares.
_WIDTH = 256
_ROW = 264

#: Lanes that a program of the second launch joins.
_SOME = 32

#: Beyond this number of elements places would not fit into 32 bits; pieces are smaller.
MOST = 1 << 30


@triton.jit
def _measure(
    values, limits, signs, sums, counts,
    count, first, period,
    size1, size2, size3, stride0, stride1, stride2, stride3,
    large,
    SHORT: tl.constexpr, SKETCH: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr,
    LANES: tl.constexpr, WIDTH: tl.constexpr, ROW: tl.constexpr,
):  # fmt: skip
    """Each program goes through blocks of rows of lanes, as far apart as there are programs, `STEPS` of them or fewer."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    lane = tl.arange(0, WIDTH)
    lanes = tl.zeros([WIDTH], tl.float32)
    least = tl.full([WIDTH], float("inf"), tl.float32)
    greatest = tl.full([WIDTH], float("-inf"), tl.float32)
    total = tl.zeros([WIDTH], tl.float32)
    squares = tl.zeros([WIDTH], tl.float32)
    which = tl.arange(0, 8)
    reached = tl.zeros([8], tl.int32)
    for step in range(STEPS):
        row = (program + step * programs) * ROWS + tl.arange(0, ROWS)
        place = row[:, None] * LANES + lane[None, :]
        there = (lane[None, :] < LANES) & (place < count)
        rest = place
        last = rest % size3
        rest = rest // size3
        third = rest % size2
        rest = rest // size2
        second = rest % size1
        at = (rest // size1).to(tl.int64) * stride0 + second.to(tl.int64) * stride1 + third.to(tl.int64) * stride2 + last.to(tl.int64) * stride3
        value = tl.load(values + at, mask=there, other=0.0).to(tl.float32)
        for number in tl.static_range(8):
            limit = tl.load(limits + number)
            found = tl.sum(tl.sum(((value >= limit) & there).to(tl.int32), 1), 0)
            reached += tl.where(which == number, found, 0)
        # What is no number, infinite or a sentinel is 0, as everywhere.
        size = tl.abs(value)
        if SHORT:
            summed = tl.where(size < large, value, 0.0)
        else:
            # Multiplied as in `device_sums`, so that squares have the same room.
            summed = tl.where(size < large, value, 0.0) * 268435456.0
        summed = tl.where(there, summed, 0.0)
        least = tl.minimum(least, tl.min(tl.where(there, summed, float("inf")), 0))
        greatest = tl.maximum(greatest, tl.max(tl.where(there, summed, float("-inf")), 0))
        total += tl.sum(summed, 0)
        squares += tl.sum(summed * summed, 0)
        if SKETCH:
            sign = tl.load(signs + (first + place) % period, mask=there, other=0).to(tl.float32)
            lanes += tl.sum(summed * sign, 0)
    out = sums + program * ROW
    tl.store(out + lane, lanes)
    tl.store(out + WIDTH, tl.min(least, 0))
    tl.store(out + WIDTH + 1, tl.max(greatest, 0))
    tl.store(out + WIDTH + 2, tl.sum(total, 0))
    tl.store(out + WIDTH + 3, tl.sum(squares, 0))
    tl.store(counts + program * 8 + which, reached)


@triton.jit
def _join(
    sums, counts, numbers, joined_counts, joined_lanes, programs, elements,
    PROGRAMS: tl.constexpr, LANES: tl.constexpr, ROW: tl.constexpr, WIDTH: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """The results of all programs as one: each program joins some of the lanes, and the first one the numbers."""
    block = tl.program_id(0)
    program = tl.arange(0, PROGRAMS)
    lane = block * SOME + tl.arange(0, SOME)
    there, behind = program < programs, block == 0
    found = tl.load(sums + program[:, None] * ROW + lane[None, :], mask=there[:, None] & (lane[None, :] < LANES), other=0.0)
    tl.store(joined_lanes + lane, tl.sum(found, 0), mask=lane < LANES)
    own = sums + program * ROW + WIDTH
    least = tl.min(tl.load(own, mask=there & behind, other=float("inf")), 0)
    greatest = tl.max(tl.load(own + 1, mask=there & behind, other=float("-inf")), 0)
    mean = tl.sum(tl.load(own + 2, mask=there & behind, other=0.0), 0) / elements
    square = tl.sum(tl.load(own + 3, mask=there & behind, other=0.0), 0) / elements
    tl.store(numbers, least, mask=behind)
    tl.store(numbers + 1, greatest, mask=behind)
    tl.store(numbers + 2, square - mean * mean, mask=behind)
    tl.store(numbers + 3, mean, mask=behind)
    for number in tl.static_range(8):
        reached = tl.load(counts + program * 8 + number, mask=there & behind, other=0)
        tl.store(joined_counts + number, tl.sum(reached, 0), mask=behind)


def can_measure(values: torch.Tensor) -> bool:
    """Whether a piece is measured here."""
    return values.dtype in DTYPES and 0 < values.numel() < MOST and len(_joined(values)) <= _DIMENSIONS


def measured(
    values: torch.Tensor, limits: torch.Tensor, signs: Any, first: int, lanes: int
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], torch.Tensor | None]:
    """Counts, numbers and lanes of a piece as [`device_sums.Part`] has them. `signs` is a table of a whole period, or of as many
    elements as the piece reaches to, and None without a sketch; `first` says how many elements come before."""
    count, device = values.numel(), values.device
    sizes, strides = zip(*([(1, 0)] * (_DIMENSIONS - len(_joined(values))) + _joined(values)))
    blocks = -(-count // (lanes * _ROWS))
    programs = min(blocks, _PROGRAMS)
    sums = torch.empty(programs, _ROW, dtype=torch.float32, device=device)
    counts = torch.empty(programs, 8, dtype=torch.int32, device=device)
    numbers = torch.empty(4, dtype=torch.float32, device=device)
    joined_counts = torch.empty(8, dtype=torch.int32, device=device)
    joined_lanes = torch.empty(lanes, dtype=torch.float32, device=device)
    large = 65504.0 if values.dtype is torch.float16 else 2.0**100
    _measure[(programs,)](
        values, limits, signs if signs is not None else limits, sums, counts,
        count, first % PERIOD, signs.numel() if signs is not None else 1,
        *sizes[1:], *strides, large,
        SHORT=values.dtype is torch.float16, SKETCH=signs is not None, ROWS=_ROWS,
        STEPS=triton.next_power_of_2(-(-blocks // programs)), LANES=lanes, WIDTH=_WIDTH, ROW=_ROW,
    )  # fmt: skip
    _join[(_WIDTH // _SOME,)](
        sums, counts, numbers, joined_counts, joined_lanes, programs, count,
        PROGRAMS=triton.next_power_of_2(programs), LANES=lanes, ROW=_ROW, WIDTH=_WIDTH, SOME=_SOME,
    )  # fmt: skip
    return joined_counts, tuple(numbers[place : place + 1] for place in range(4)), joined_lanes if signs is not None else None


def _joined(values: torch.Tensor) -> list[tuple[int, int]]:
    """Sizes and strides, with dimensions joined where one goes on where the other ends; at least one."""
    found: list[tuple[int, int]] = []
    for size, stride in zip(values.shape, values.stride()):
        if size == 1:
            continue
        if found and found[-1][1] == stride * size:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return found or [(1, 1)]
