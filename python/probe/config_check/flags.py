"""Part `flags`: torch switches that change what an operator computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe.private.compiling import backend_of

#: Switches that are set around a forward call and mean nothing elsewhere.
OF_A_STEP = ("autocast", "grad_enabled", "inference_mode")
#: Functions that read a switch, by its key.
_Reads = dict[str, Callable[[], Any]]


def collect(model: Any) -> dict[str, Any]:
    """Returns the current switches, at a forward call of `model`."""
    import torch

    npu = getattr(torch, "npu", None)
    reads = _of_torch(torch, model) | (_of_cuda(torch) if npu is None else _of_npu(npu))
    found: dict[str, Any] = {}
    for name, read in reads.items():
        # A switch unknown to this version of torch is left out.
        try:
            value = read()
        except Exception:
            continue
        if value is not None:
            _put(found, name, value)
    try:
        found["autocast"] = autocast(model)
    except Exception:
        # The device's library has different functions for this.
        pass
    return found


def _of_torch(torch: Any, model: Any) -> _Reads:
    cuda, matmul = torch.backends.cuda, torch.backends.cuda.matmul
    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled,
        "fill_uninitialized_memory": lambda: torch.utils.deterministic.fill_uninitialized_memory,
        "float32_matmul_precision": lambda: _by_either(
            torch.get_float32_matmul_precision, lambda: "high" if matmul.fp32_precision == "tf32" else "highest"
        ),
        "default_dtype": lambda: _name(torch.get_default_dtype()),
        "compute_dtype": lambda: compute_dtype(model),
        "compiler": lambda: compiler(model),
        "sdp.flash": cuda.flash_sdp_enabled,
        "sdp.mem_efficient": cuda.mem_efficient_sdp_enabled,
        "sdp.math": cuda.math_sdp_enabled,
        "sdp.cudnn": lambda: cuda.cudnn_sdp_enabled(),
        "mkldnn.enabled": lambda: torch.backends.mkldnn.enabled,
        "mkldnn.deterministic": lambda: torch.backends.mkldnn.deterministic,
        "flush_denormal": flush_denormal,
        "grad_enabled": torch.is_grad_enabled,
        "inference_mode": torch.is_inference_mode_enabled,
        "anomaly_detection": torch.is_anomaly_enabled,
    }


def _of_cuda(torch: Any) -> _Reads:
    """The switches of CUDA exist on every build; on a CPU they only tell what was set with a GPU in mind."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return {
        "cudnn.enabled": lambda: cudnn.enabled,
        "cudnn.benchmark": lambda: cudnn.benchmark,
        "cudnn.deterministic": lambda: cudnn.deterministic,
        "cudnn.allow_tf32": lambda: _by_either(
            lambda: cudnn.allow_tf32, lambda: cudnn.conv.fp32_precision == "tf32"
        ),
        "cuda.matmul.allow_tf32": lambda: _by_either(
            lambda: matmul.allow_tf32, lambda: matmul.fp32_precision == "tf32"
        ),
        "cuda.matmul.allow_fp16_reduced_precision_reduction": lambda: (
            matmul.allow_fp16_reduced_precision_reduction
        ),
        "cuda.matmul.allow_bf16_reduced_precision_reduction": lambda: (
            matmul.allow_bf16_reduced_precision_reduction
        ),
    }


def _of_npu(npu: Any) -> _Reads:
    return {
        "npu.matmul.allow_hf32": lambda: npu.matmul.allow_hf32,
        "npu.conv.allow_hf32": lambda: npu.conv.allow_hf32,
        "npu.jit_compile": lambda: not npu.is_jit_compile_false(),
        "npu.internal_format": lambda: npu.config.allow_internal_format,
    }


def autocast(model: Any = None) -> dict[str, Any]:
    """Autocast of the model's device, in this thread."""
    import torch

    kind = next((parameter.device.type for parameter in model.parameters()), "cpu") if model is not None else "cpu"
    enabled, dtype = _autocast_of(kind)
    cache = torch.is_autocast_cache_enabled()
    if not enabled:
        return {"enabled": False, "cache": cache}
    return {"enabled": True, "dtype": _name(dtype), "device": kind, "cache": cache}


def _autocast_of(kind: str) -> tuple[bool, Any]:
    import torch

    if hasattr(torch, "get_autocast_dtype"):
        return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    # Before torch 2.4 each kind of device had its own functions.
    if kind == "cpu":
        return torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()
    if kind == "cuda":
        return torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()
    device = getattr(torch, kind)
    return device.is_autocast_enabled(), device.get_autocast_dtype()


def compute_dtype(model: Any) -> str | None:
    """Dtypes of the floating-point parameters."""
    if model is None:
        return None
    names = {_name(parameter.dtype) for parameter in model.parameters() if parameter.is_floating_point()}
    return ", ".join(sorted(names)) or None


def compiler(model: Any) -> str | None:
    """`torch.compile inductor` for a compiled model, None in eager mode."""
    if model is None:
        return None
    if type(model).__name__ == "OptimizedModule":
        return f"torch.compile {backend_of(getattr(getattr(model, 'dynamo_ctx', None), 'callback', None))}".strip()
    if getattr(model, "_compiled_call_impl", None) is not None:
        return "torch.compile"
    return None


def flush_denormal() -> bool:
    """Returns true if subnormal numbers are flushed to zero; there is no getter, so this halves the smallest normal
    number."""
    import torch

    from probe.private.guards import without_modes

    # Else a recording of the run would take it for an op of the program.
    with without_modes():
        return bool((torch.tensor(2.0**-126, dtype=torch.float32, device="cpu") * 0.5).item() == 0.0)


def _by_either(older: Callable[[], Any], newer: Callable[[], Any]) -> Any:
    """Reads a switch that has two names since torch 2.9. Once the newer one was set, reading the older one raises."""
    try:
        return older()
    except RuntimeError:
        return newer()


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _put(found: dict[str, Any], name: str, value: Any) -> None:
    *groups, last = name.split(".")
    for group in groups:
        found = found.setdefault(group, {})
    found[last] = value
