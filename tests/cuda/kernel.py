"""The kernel of the setting `fused`: right on every type that it measures, and how much of the memory's bandwidth it reaches."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from checks import NotHere, Run, Unwell, run
from probe.recorder.device import Device
from probe.recorder.device_chunks import Kind, Piece
from probe.recorder.device_streams import current_stream
from probe.recorder.device_sums import Sums

#: Share of a copy's bandwidth that is asked for. An H200 reaches twice as much.
SHARE = 0.2

BYTES = 64 << 20


def kernel(given: Run, sketch: bool = True) -> Any:
    found = Device(sketch, fused=True).kernel(given.device)
    if found is None:
        raise NotHere("the kernel is of CUDA" if given.kind != "cuda" else "the kernel cannot be used")
    return found


def right(given: Run, dtype: torch.dtype, layout: str) -> dict[str, Any]:
    """Against the operations, which tests hold against NumPy."""
    source = torch.Generator().manual_seed(4)
    shape = (70, 600) if given.reduced else (3000, 4001)
    values = torch.randn(shape, generator=source).exp2() - 1
    for place, number in enumerate((float("nan"), float("inf"), -float("inf"), 0.0, 1e-45, 3e38, -3e38, 2.0**100, 65504.0, -65504.0)):
        values[place, place * 3] = number
    values = values.to(dtype).to(given.device)
    values = {"plain": values, "transposed": values.t(), "strided": values[:, ::3], "broken": values[:, : shape[1] // 20 * 20].unflatten(1, (4, -1)).permute(1, 0, 2)}[layout]
    operations = Device(True)
    (found,), (expected,) = kernel(given).rows([values], False), operations.fetch([operations.measure(values)])
    if found[1] != expected[1]:
        raise Unwell(f"counts {found[1]}, not {expected[1]}")
    norm = found[2][3]
    lanes = [torch.frombuffer(bytearray(row[5]), dtype=torch.float32).double() for row in (found, expected)]
    gaps = {"norm": abs(norm - expected[2][3]) / norm, "mean": abs(found[2][2] - expected[2][2]) * values.numel() ** 0.5 / norm, "lanes": (lanes[0] - lanes[1]).norm().item() / norm}
    if max(gaps.values()) > 2e-6:
        raise Unwell(str(gaps))
    return gaps


def median_of(work: Any, times: int) -> float:
    """Seconds of one of so many that are in the queue at once, so that the device does not wait for the host; over several buffers, so that no
    cache holds them. The median of five."""
    found = []
    for _ in range(6):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        # Something to do while the host fills the queue.
        torch.cuda._sleep(20_000_000)
        start.record()
        for place in range(times):
            work(place)
        stop.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(stop) / 1e3 / times)
    return statistics.median(found[1:])


def bandwidth(given: Run, dtype: torch.dtype) -> dict[str, Any]:
    if given.kind != "cuda":
        raise NotHere("no memory of its own")
    buffers = [torch.randn(BYTES // dtype.itemsize, device=given.device).to(dtype) for _ in range(8)]
    target = torch.empty_like(buffers[0])
    copied = 2 * BYTES / median_of(lambda place: target.copy_(buffers[place % 8]), 30)
    stream = current_stream(buffers[0].device)
    figures: dict[str, Any] = {"copy GB/s": round(copied / 1e9)}
    sketches, statistics_, operations = kernel(given), kernel(given, sketch=False), Sums(True)
    ways = {
        "sketch": lambda place: sketches.start(buffers[place % 8]),
        "statistics": lambda place: statistics_.start(buffers[place % 8]),
        "operations": lambda place: operations.of(Kind.FLOAT, Piece(buffers[place % 8], 0), stream),
    }
    for name, work in ways.items():
        for place in range(3):
            work(place)
        seconds = median_of(work, 30)
        figures[f"{name} us"] = round(seconds * 1e6, 1)
        figures[f"{name} of the copy's"] = round(BYTES / seconds / copied, 3)
    if figures["sketch of the copy's"] < SHARE:
        raise Unwell(", ".join(f"{key} {value}" for key, value in figures.items()))
    return figures


def main(given: Run) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for layout in ("plain", "transposed", "strided", "broken"):
            given.checks.check(f"right: {dtype}, {layout}", lambda dtype=dtype, layout=layout: right(given, dtype, layout))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        given.checks.check(f"bandwidth: {dtype}", lambda dtype=dtype: bandwidth(given, dtype))


if __name__ == "__main__":
    run("kernel", main)
