"""Cost of capture for a training step on the device: time, launches, waits and memory, by level and task; and the older tool beside it.

Plain and recorded steps take turns, and the median of their ratios is told. The time of a recorded step includes all that its end waits for.
"""

from __future__ import annotations

import cProfile
import io
import json
import pstats
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import probe
import programs
from checks import NotHere, Run, Unwell, run
from programs import Program, Size, Training

#: A GPT of 354 million parameters, and 2,048 tokens.
LARGE = Size(width=1024, heads=16, layers=24, batch=2, length=1024, words=50257)

#: Functions of CUDA's in which the host waits for the device.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize")


def synchronize(kind: str) -> None:
    if kind == "cuda":
        torch.cuda.synchronize()


class Bench:
    """A training whose steps are timed, plain and recorded."""

    def __init__(self, given: Run, program: Program, size: Size) -> None:
        self.given, self.kind = given, given.kind
        self.settings = programs.settings(program, deterministic=False)
        self.settings.__enter__()
        self.training = Training(program, given.device, size)
        for number in range(3):
            self.training.step(number)
        synchronize(self.kind)

    def close(self) -> None:
        self.settings.__exit__(None, None, None)

    def plain(self) -> None:
        self.training.step(1)

    def timed(self, *calls: Callable[[], object]) -> tuple[float, float]:
        """Seconds until all is done on the device, and those of CUDA's events around it."""
        synchronize(self.kind)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if self.kind == "cuda" else []
        start = time.perf_counter()
        if events:
            events[0].record()
        for call in calls:
            call()
        if events:
            events[1].record()
        synchronize(self.kind)
        wall = time.perf_counter() - start
        return wall, events[0].elapsed_time(events[1]) / 1e3 if events else wall

    def memory(self, work: Callable[[], object]) -> int:
        if self.kind != "cuda":
            return 0
        synchronize(self.kind)
        torch.cuda.reset_peak_memory_stats()
        work()
        synchronize(self.kind)
        return torch.cuda.max_memory_allocated()

    def traced(self, train: Callable[[], object], end: Callable[[], object]) -> dict[str, int]:
        """Launches and copies of a step, and how often the host waits before its end."""
        from torch.profiler import ProfilerActivity, profile, record_function

        kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if self.kind == "cuda" else [])
        with profile(activities=kinds) as found:
            with record_function("the step"):
                train()
            end()
            synchronize(self.kind)
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            found.export_chrome_trace(file.name)
            events = json.loads(Path(file.name).read_text())["traceEvents"]
        spans = [event for event in events if event.get("name") == "the step" and event.get("cat") == "user_annotation"]
        start, stop = (spans[0]["ts"], spans[0]["ts"] + spans[0]["dur"]) if spans else (0, 0)
        inside = [event for event in events if start <= event.get("ts", -1) <= stop and event.get("cat") in ("cuda_runtime", "cuda_driver")]
        kernels = sum(event.get("cat") == "kernel" for event in events)
        copies = sum(event.get("cat") in ("gpu_memcpy", "gpu_memset") for event in events)
        return {"kernels": kernels, "copies": copies, "waits": sum(event["name"] in WAITS for event in inside)}


def ours(given: Run, program: Program, size: Size, level: str, task: str, pairs: int, fused: bool, profiled: bool = False) -> dict[str, Any]:
    """One level and task: medians over pairs of steps."""
    bench = Bench(given, program, size)
    folder = Path(tempfile.mkdtemp(dir=given.folder))
    # All steps are the first of the dump's, so that the disk does not fill.
    capture = probe.Capture(folder / "dump", model=bench.training.model, level=level, task=task, quiet=True, step_on="program", fused=fused)

    def train() -> None:
        capture.start()
        bench.plain()
        capture.stop()

    bench.timed(train, capture.step)
    bench.timed(train, capture.step)
    times = []
    for _ in range(pairs):
        plain = bench.timed(bench.plain)
        times.append((plain, bench.timed(train, capture.step)))
        for old in sorted((folder / "dump").glob("step*"), key=lambda path: int(path.name[4:]))[:-2]:
            shutil.rmtree(old, ignore_errors=True)
    before, after = bench.memory(bench.plain), bench.memory(lambda: (train(), capture.step()))
    launched = {} if given.kind != "cuda" else {"plain": bench.traced(bench.plain, lambda: None), "recorded": bench.traced(train, capture.step)}
    if profiled:
        watch = cProfile.Profile()
        watch.runcall(train)
        watch.runcall(capture.step)
        text = io.StringIO()
        pstats.Stats(watch, stream=text).sort_stats("tottime").print_stats(60)
        (given.output / f"profile-{level}-{task}{'-fused' if fused else ''}.txt").write_text(text.getvalue())
    capture.close()
    ops, (tensors, missing, reason), _ = capture.tally()
    bench.close()
    shutil.rmtree(folder)
    steps = pairs + 3 + (given.kind == "cuda") + profiled
    wall = statistics.median(recorded[0] / plain[0] for plain, recorded in times)
    figures: dict[str, Any] = {
        "ratio": round(wall, 3),
        "ratio by events": round(statistics.median(recorded[1] / plain[1] for plain, recorded in times), 3),
        "plain ms": round(statistics.median(plain[0] for plain, _ in times) * 1e3, 2),
        "recorded ms": round(statistics.median(recorded[0] for _, recorded in times) * 1e3, 2),
        "tensors": round(tensors / steps),
        "ops": round(ops / steps),
        "more MiB": (after - before) >> 20,
    }
    if launched:
        figures["launches a tensor"] = round((launched["recorded"]["kernels"] - launched["plain"]["kernels"]) * steps / max(tensors, 1), 2)
        figures["waits before the end"] = launched["recorded"]["waits"] - launched["plain"]["waits"]
    if missing:
        raise Unwell(f"{missing} of {tensors} tensors could not be measured; first {reason}; {figures}")
    # Copies of whole tensors are written as soon as there are 256 MiB of them.
    if task in ("statistics", "sketch") and figures.get("waits before the end", 0) > 0:
        raise Unwell(f"the host waits for the device before the step ends: {figures}")
    return figures


def idle(given: Run, program: Program, size: Size, pairs: int) -> dict[str, Any]:
    """A capture that is armed for a step that never comes."""
    bench = Bench(given, program, size)
    folder = Path(tempfile.mkdtemp(dir=given.folder))
    plain, armed = [], []
    for _ in range(pairs):
        plain.append(bench.timed(bench.plain)[0])
        capture = probe.Capture(folder / "dump", model=bench.training.model, steps=10**9, quiet=True, step_on="program")
        capture.start()
        armed.append(bench.timed(bench.plain, capture.step)[0])
        capture.close()
    bench.close()
    shutil.rmtree(folder)
    return {"ratio": round(statistics.median(b / a for a, b in zip(plain, armed)), 4), "plain ms": round(statistics.median(plain) * 1e3, 2)}


def older(given: Run, program: Program, size: Size, level: str, task: str, pairs: int) -> dict[str, Any]:
    """The older tool on the same step."""
    try:
        from msprobe.pytorch import PrecisionDebugger
    except ImportError as error:
        raise NotHere(f"the older tool is not installed: {error}") from None
    bench = Bench(given, program, size)
    folder = Path(tempfile.mkdtemp(dir=given.folder))
    debugger = PrecisionDebugger(task=task, dump_path=str(folder / "dump"), level=level)

    def recorded() -> None:
        debugger.start(bench.training.model)
        bench.plain()
        debugger.stop()
        debugger.step()

    plain = [bench.timed(bench.plain)[0] for _ in range(pairs)]
    recorded()
    times = [bench.timed(recorded)[0] for _ in range(pairs)]
    bench.close()
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "ratio": round(statistics.median(times) / statistics.median(plain), 3),
        "plain ms": round(statistics.median(plain) * 1e3, 2), "recorded ms": round(statistics.median(times) * 1e3, 2),
    }  # fmt: skip


def main(given: Run) -> None:
    size, small = (given.size, given.size) if given.reduced else (LARGE, programs.FULL)
    pairs, few = (2, 1) if given.reduced else (20, 8)
    check = given.checks.check
    large = Program("gpt", "tf32", "fused")
    fusable = given.kind == "cuda"
    for fused in (True, False) if fusable else (False,):
        word = ", fused" if fused else ""
        check(f"large GPT, mix, sketch{word}", lambda fused=fused: ours(given, large, size, "mix", "sketch", pairs, fused, True))
    check("large GPT, module, sketch", lambda: ours(given, large, size, "module", "sketch", pairs, fusable, True))
    check("large GPT, armed for another step", lambda: idle(given, large, size, pairs))
    for level in ("L0", "L1", "mix"):
        check(f"large GPT, the older tool, {level}, statistics", lambda level=level: older(given, large, size, level, "statistics", few))
    for level, task in [("mix", "statistics"), ("module", "statistics"), ("api", "sketch"), ("op", "sketch"), ("op", "statistics")][: 1 if given.reduced else 5]:
        check(f"large GPT, {level}, {task}", lambda level=level, task=task: ours(given, large, size, level, task, few, fusable))
    short = Program("gpt", "autocast", "fused")
    check("large GPT in autocast, mix, sketch", lambda: ours(given, short, size, "mix", "sketch", few, fusable))
    for level, task in [("mix", "hash"), ("mix", "tensor"), ("module", "tensor"), ("mix", "sketch"), ("module", "sketch")][: 2 if given.reduced else 5]:
        check(f"small GPT, {level}, {task}", lambda level=level, task=task: ours(given, Program("gpt"), small, level, task, few, fusable))


if __name__ == "__main__":
    run("cost", main)
