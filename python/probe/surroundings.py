"""Facts about a run's setup stored in a dump: a gate uses them to tell environment drift from code regressions."""

from __future__ import annotations

import gc
import sys
from typing import Any


def facts() -> dict[str, str]:
    """Returns names and values. Facts that cannot be determined are left out: recording goes on without them."""
    found: dict[str, str] = {}
    for collect in (packages, _machine, _flags, _groups):
        try:
            found.update(collect())
        except Exception:  # noqa: BLE001  (a package with broken metadata is no reason to record nothing)
            continue
    return found


def packages(framework: str = "torch") -> dict[str, str]:
    """Versions of the packages that affect numerics, without that of the framework."""
    from importlib import metadata

    from probe.config_check.packages import NUMERIC

    found = {}
    for name in sorted(NUMERIC - {framework}):
        try:
            found[name.replace("-", "_")] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _machine() -> dict[str, str]:
    """System, processor, drivers and toolkits, under the names of config-check's part `platform`."""
    from probe.config_check import host

    return dict(_leaves("", host.collect()))


def _flags() -> dict[str, str]:
    """Torch switches that change what it computes."""
    import torch

    return {
        "flags.deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "flags.float32_matmul_precision": torch.get_float32_matmul_precision(),
        "flags.cudnn_allow_tf32": str(torch.backends.cudnn.allow_tf32),
        "flags.cudnn_benchmark": str(torch.backends.cudnn.benchmark),
        "flags.mkldnn": str(torch.backends.mkldnn.enabled),  # type: ignore[attr-defined]
        "flags.default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
    }


#: Names of Megatron's groups.
_MEGATRON = {"TENSOR_MODEL_PARALLEL": "tp", "PIPELINE_MODEL_PARALLEL": "pp", "DATA_PARALLEL": "dp", "CONTEXT_PARALLEL": "cp", "EXPERT_MODEL_PARALLEL": "ep"}


def _groups() -> dict[str, str]:
    """Process groups with a name of their own, and the ranks in them: those of meshes, and of Megatron. A mesh of one dimension over all ranks has
    no group of its own."""
    import torch.distributed as distributed

    if not distributed.is_available() or not distributed.is_initialized():
        return {}
    found = {}
    for group, ranks in distributed.distributed_c10d._world.pg_group_ranks.items():
        described = getattr(group, "group_desc", "")
        name = _MEGATRON.get(described.removesuffix("_GROUP"), described.removeprefix("mesh_"))
        if len(ranks) > 1 and name not in ("", "undefined", "default_pg", "default"):
            found[f"groups.{name}"] = ",".join(str(rank) for rank in sorted(ranks))
    world = ",".join(str(rank) for rank in range(distributed.get_world_size()))
    meshes = sys.modules.get("torch.distributed.device_mesh")
    kind = getattr(meshes, "DeviceMesh", None)
    if kind is not None and len(world) > 1 and world not in found.values():
        for mesh in (held for held in gc.get_objects() if type(held) is kind):
            names = mesh.mesh_dim_names
            if names and mesh.ndim == 1 and mesh.size() == distributed.get_world_size():
                found.setdefault(f"groups.{names[0]}", world)
    return found


def _leaves(prefix: str, value: Any) -> Any:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(f"{prefix}.{name}" if prefix else str(name), inner)
    elif value is not None:
        yield prefix, str(value)
