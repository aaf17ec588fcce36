"""Numbers that the device measures, against the host's of the same tensors, in whole trainings and at sizes that tests do not reach."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

import probe
import programs
from checks import NotHere, Run, Unwell, run
from probe.recorder.device import Device
from programs import Program

COLUMNS = ["order", "op", "slot", "dtype", "shape", "elements", "zeros", "nan", "mean", "norm", "min", "max", "sum_error", "sketch"]


def rows(dump: Path) -> dict[tuple[int, str, str], dict[str, Any]]:
    (file,) = dump.glob("step1/rank0/ops.parquet")
    table = pq.read_table(file)
    found = table.select([name for name in COLUMNS if name in table.column_names]).to_pylist()
    return {(row["order"], row["op"], row["slot"]): row for row in found}


def trained(given: Run, program: Program) -> dict[str, Any]:
    """One deterministic training recorded twice: measured by the device, and stored and measured by the host."""
    if program.special == "streams" and given.kind != "cuda":
        raise NotHere("one stream alone")
    dumps = {}
    for task in ("sketch", "tensor"):
        folder = given.folder / task
        programs.train(
            program, given.device, given.size, 2,
            lambda model, task=task, folder=folder: probe.Capture(folder, level="mix", task=task, steps=[1], quiet=True, step_on="program"),
        )  # fmt: skip
        dumps[task] = rows(folder)
        shutil.rmtree(folder)
    device, host = dumps["sketch"], dumps["tensor"]
    if device.keys() != host.keys():
        raise Unwell(f"{len(device)} slots of one dump, {len(host)} of the other")
    compared, worst = 0, 0.0
    for key, one in device.items():
        other = host[key]
        if other["norm"] is None or one["norm"] is None:
            continue
        bound = max(one.get("sum_error") or 0.0, 1e-6)
        compared += 1
        if any(one[name] != other[name] for name in ("elements", "zeros", "nan", "dtype", "shape")):
            raise Unwell(f"{key}: {one} on the device, {other} on the host")
        gap = abs(one["norm"] - other["norm"]) / max(other["norm"], 1e-30)
        worst = max(worst, gap)
        if gap > bound and abs(one["norm"] - other["norm"]) > 1e-30:
            raise Unwell(f"{key}: norm {one['norm']!r} on the device, {other['norm']!r} on the host, off by {gap:.1e} of {bound:.1e}")
    return {"slots": compared, "largest error of a norm": worst}


def large(given: Run) -> dict[str, Any]:
    """A tensor of 4 GiB, whose numbers are known."""
    count = (1 << 30) if not given.reduced else (1 << 22)
    values = torch.ones(count, device=given.device)
    values[::1024] = -3.0
    values[7] = math.nan
    figures: dict[str, Any] = {"bytes": 4 * count}
    for name, fused in (("operations", False), ("fused", True)):
        meter = Device(sketch=True, fused=fused)
        (row,) = meter.fetch(meter.observe([values]))
        if isinstance(row, (str, type(None))):
            raise Unwell(f"{name}: {row}")
        negative = -(-count // 1024)
        mean = (count - 1 - negative - 3.0 * negative) / count
        norm = math.sqrt(count - 1 - negative + 9.0 * negative)
        if row[1][:3] != [count, 0, 1] or row[2][:2] != [-3.0, 1.0]:
            raise Unwell(f"{name}: counts {row[1]}, extremes {row[2][:2]}")
        figures[f"{name}: error of the norm"] = abs(row[2][3] - norm) / norm
        figures[f"{name}: error of the mean"] = abs(row[2][2] - mean)
        if figures[f"{name}: error of the norm"] > 1e-6 or figures[f"{name}: error of the mean"] > 1e-6 * norm / math.sqrt(count):
            raise Unwell(str(figures))
        if not np.isfinite(np.frombuffer(row[5], "<f4")).all():
            raise Unwell(f"{name}: lanes are not finite")
    return figures


def main(given: Run) -> None:
    chosen = [
        Program("mlp", special="streams"), Program("resnet", optimizer="sgd"), Program("gpt", "bfloat16"), Program("gpt", "scaler"),
        Program("gpt", special="checkpointed"), Program("llama"), Program("moe"),
    ]  # fmt: skip
    for program in chosen[1::3] if given.reduced else chosen:
        given.checks.check(f"device against host: {program.name}", lambda program=program: trained(given, program))
    given.checks.check("4 GiB", lambda: large(given))


if __name__ == "__main__":
    run("measured", main)
