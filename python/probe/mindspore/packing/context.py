"""Parts `flags`, `platform`, `distributed` and `random`: how MindSpore is set up, and on what it runs."""

from __future__ import annotations

from typing import Any

import mindspore
from mindspore.communication import GlobalComm
from probe.config_check import generators, host
from probe.config_check.seeds import watch
from probe.mindspore.packing.model import dtype_of
from probe.ranks import current_rank, world_size


def flags(net: Any) -> dict[str, Any]:
    """Returns the switches that change what an operator computes, as in `flags.json`."""
    get = mindspore.get_context
    ascend = get("ascend_config") or {}
    jit = get("jit_config") or {}
    own = {
        "mode": "PYNATIVE" if get("mode") == mindspore.PYNATIVE_MODE else "GRAPH",
        "jit_level": get("jit_level") or jit.get("jit_level"),
        "precision_mode": ascend.get("precision_mode"),
        "amp": _casts(net),
    }
    found: dict[str, Any] = {
        "deterministic_algorithms": get("deterministic") == "ON",
        "mindspore": {name: value for name, value in own.items() if value},
    }
    lower = {name for name in ("fp16", "bf16") if f"{name} in" in own["amp"]}
    found["autocast"] = {"enabled": bool(lower)}
    if lower:
        found["autocast"]["dtype"] = ", ".join(sorted({"fp16": "float16", "bf16": "bfloat16"}[name] for name in lower))
    types = {dtype_of(item) for item in net.get_parameters() if "float" in dtype_of(item)}
    if types:
        found["compute_dtype"] = ", ".join(sorted(types))
    hf32 = {"matmul": ascend.get("matmul_allow_hf32"), "conv": ascend.get("conv_allow_hf32")}
    if any(value is not None for value in hf32.values()):
        found["npu"] = {name: {"allow_hf32": value} for name, value in hf32.items() if value is not None}
    return found


def _casts(net: Any) -> str:
    """Element types that `to_float` gave to cells: `fp16 in 3 cells`."""
    counts: dict[str, int] = {}
    for _, cell in net.cells_and_names():
        for name, is_on in cell.get_flags().items():
            if name in ("fp16", "bf16", "fp32") and is_on:
                counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{name} in {count} cell{'' if count == 1 else 's'}" for name, count in sorted(counts.items()))


def machine() -> dict[str, Any]:
    """Returns the machine as in `platform.json`."""
    found = host.of_python()
    below = host.npu()
    return {**found, "npu": below} if below else found


def device() -> dict[str, Any]:
    """Returns kind, names and number of the devices, for the manifest."""
    target = str(mindspore.get_context("device_target"))
    kind = {"Ascend": "npu", "GPU": "gpu"}.get(target, "cpu")
    names: list[str] = []
    count = 0
    if kind != "cpu":
        hal = mindspore.hal
        count = int(hal.device_count(target))
        names = list(dict.fromkeys(str(hal.get_device_name(index, target)) for index in range(count)))
    return {"kind": kind, "names": names, "count": count}


def distributed() -> dict[str, Any]:
    """Returns the group as in `distributed.json`."""
    found: dict[str, Any] = {"initialized": bool(GlobalComm.INITED), "world_size": world_size(), "wrapper": {"kind": None}}
    if GlobalComm.INITED:
        found["backend"] = str(GlobalComm.BACKEND)
    return found


def place() -> tuple[int, int]:
    """Returns the rank of this process and the number of processes."""
    return current_rank(), world_size()


def own_generators() -> dict[str, dict[str, Any]]:
    """Returns the seeds of MindSpore's generators, which keep them. Draws nothing."""
    seed = mindspore.get_seed()
    generator = int(mindspore.default_generator.initial_seed())
    return {
        "mindspore": {"seed": generator if seed is None else int(seed)},
        "mindspore.generator": {"seed": generator},
    }


def random(marks: list[tuple[str, generators.Snapshot, dict[str, dict[str, Any]]]]) -> dict[str, Any]:
    """Returns the generators as in `random.json`, at the moments of `marks`."""
    own = own_generators()
    return {
        "seeds": {**watch.values, **{name: state["seed"] for name, state in own.items()}},
        "calls": watch.calls(),
        "marks": [{"mark": mark, "generators": {**generators.describe(now, watch.origins), **states}} for mark, now, states in marks],
    }
