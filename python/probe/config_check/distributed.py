"""Part `distributed`: the process group, how the model is spread over it, and the place of this process in it."""

from __future__ import annotations

import os
import sys
from typing import Any

from probe.config_check import secrets

_DDP_OPTIONS = (
    "broadcast_buffers",
    "bucket_bytes_cap",
    "find_unused_parameters",
    "gradient_as_bucket_view",
    "static_graph",
    "require_forward_param_sync",
)


def rank() -> int:
    """Rank of this process, 0 outside a group."""
    return _group_number("get_rank", "RANK", 0)


def world_size() -> int:
    """Number of processes in the run."""
    return max(_group_number("get_world_size", "WORLD_SIZE", 1), 1)


def collect(model: Any) -> dict[str, Any]:
    """Returns the group as in `distributed.json`."""
    group = _group()
    found: dict[str, Any] = {"initialized": group is not None, "world_size": world_size()}
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    if local.isdigit():
        found["local_ranks"] = int(local)
    if group is not None:
        found["backend"] = str(group.get_backend())
    groups = _megatron_groups()
    if groups:
        found["groups"] = groups
    wrapper, dtype = _wrapper(model)
    found["wrapper"] = wrapper
    if dtype:
        found["reduce_dtype"] = dtype
    return found


def run_name(name: str) -> str:
    """Returns a name for this run that all ranks agree on without waiting for one another, and that no earlier run
    had."""
    group = _group()
    if group is not None:
        try:
            from torch.distributed import distributed_c10d

            # The first rank to get here names the run.
            agreed = distributed_c10d._get_default_store().compare_set(
                f"probe_config_check/{name}", "", os.urandom(6).hex()
            )
            agreed = agreed.decode() if isinstance(agreed, bytes) else str(agreed)
            if agreed.isalnum():
                return agreed
        except Exception:
            # The store does not support this; the launcher's name is the next best.
            pass
    from probe.config_check import digests

    variables = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
    parts = [os.environ.get(variable, "") for variable in variables]
    if world_size() > 1:
        parts += [str(os.getppid()), _started(os.getppid())]
    else:
        parts += [str(os.getpid()), os.urandom(6).hex()]
    return digests.of_bytes("\0".join(parts).encode())[:12]


def _group() -> Any:
    """Returns `torch.distributed` if a group exists."""
    torch = sys.modules.get("torch")
    group = getattr(torch, "distributed", None)
    return group if group is not None and group.is_available() and group.is_initialized() else None


def _group_number(function: str, variable: str, otherwise: int) -> int:
    group = _group()
    if group is not None:
        return int(getattr(group, function)())
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else otherwise


def _started(process: int) -> str:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _megatron_groups() -> dict[str, int]:
    state = sys.modules.get("megatron.core.parallel_state")
    found: dict[str, int] = {}
    for name, function in (
        ("tensor", "get_tensor_model_parallel_world_size"),
        ("pipeline", "get_pipeline_model_parallel_world_size"),
        ("data", "get_data_parallel_world_size"),
        ("expert", "get_expert_model_parallel_world_size"),
        ("context", "get_context_parallel_world_size"),
    ):
        try:
            found[name] = int(getattr(state, function)())
        except Exception:
            # No Megatron, a different version, or no such group.
            continue
    return found


def _wrapper(model: Any) -> tuple[dict[str, Any], str | None]:
    """Kind and options of the wrapper, and the dtype of the gradient reduction."""
    inner, depth = model, 0
    while inner is not None and depth < 8:
        found = _known_wrapper(inner)
        if found is not None:
            return found
        inner, depth = getattr(inner, "module", getattr(inner, "_orig_mod", None)), depth + 1
    return {"kind": None}, None


def _known_wrapper(model: Any) -> tuple[dict[str, Any], str | None] | None:
    name, module = type(model).__name__, type(model).__module__
    if name == "DistributedDataParallel" and module.startswith("megatron"):
        options = secrets.clean(vars(getattr(model, "ddp_config", None) or object())) if hasattr(model, "ddp_config") else {}
        return {"kind": "Megatron DDP", **options}, None
    if name == "DistributedDataParallel":
        options = {option: secrets.clean(getattr(model, option)) for option in _DDP_OPTIONS if hasattr(model, option)}
        if "bucket_bytes_cap" in options:
            options["bucket_cap_mb"] = options.pop("bucket_bytes_cap") / 1048576
        options["mixed_precision"] = _precision(getattr(model, "mixed_precision", None))
        return {"kind": "DDP", **options}, (options["mixed_precision"] or {}).get("reduce_dtype")
    if name == "FullyShardedDataParallel":
        strategy = getattr(model, "sharding_strategy", None)
        precision = _precision(getattr(model, "mixed_precision", None))
        options = {
            "sharding_strategy": getattr(strategy, "name", None),
            "mixed_precision": precision,
            "backward_prefetch": getattr(getattr(model, "backward_prefetch", None), "name", None),
            "use_orig_params": bool(getattr(model, "_use_orig_params", False)),
        }
        return {"kind": "FSDP", **options}, (precision or {}).get("reduce_dtype")
    if name.startswith("FSDP") and hasattr(model, "_get_fsdp_state"):
        precision = _precision(getattr(model._get_fsdp_state(), "_mp_policy", None))
        return {"kind": "FSDP2", "mixed_precision": precision}, (precision or {}).get("reduce_dtype")
    if name.endswith("DeepSpeedEngine") or module.startswith("deepspeed.runtime"):
        stage = getattr(model, "zero_optimization_stage", lambda: 0)()
        accumulation = getattr(model, "gradient_accumulation_steps", lambda: None)()
        return {"kind": f"ZeRO-{stage}", "gradient_accumulation_steps": accumulation}, None
    return None


def _precision(policy: Any) -> dict[str, Any] | None:
    if policy is None:
        return None
    names = ("param_dtype", "reduce_dtype", "buffer_dtype", "output_dtype")
    return {
        name: str(getattr(policy, name)).removeprefix("torch.") for name in names if getattr(policy, name, None) is not None
    }
