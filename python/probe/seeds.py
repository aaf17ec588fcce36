"""Seeds and determinism, which make two runs of one script comparable."""

from __future__ import annotations

import functools
import os
import random
import sys
from typing import Any

from probe.messages import say_once, warn
from probe.patches import Patches

#: Variables that a library reads when it starts on a device; effective only if set before that.
_DETERMINISTIC_ENVIRONMENT = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "HCCL_DETERMINISTIC": "true",
    "LCCL_DETERMINISTIC": "1",
    "CLOSE_MATMUL_K_SHIFT": "1",
    "ATB_LLM_LCOC_ENABLE": "0",
}

#: NumPy takes 32 bits, torch 64.
_LARGEST = 2**32 - 1


def seed_all(
    seed: int = 1234,
    deterministic: bool = False,
    *,
    warn_only: bool = False,
    mode: bool | None = None,
    rm_dropout: bool = False,
    is_enhanced: bool = False,
) -> None:
    """Seed every source of random numbers: Python, NumPy if it is installed, torch on the host and on CUDA and NPU devices.

    `deterministic` also asks torch, cuDNN, cuBLAS and HCCL for deterministic kernels; an op without one then raises,
    or, with `warn_only`, warns. It never switches determinism off: that is left as the script has it. Call it first
    in the script.

    `mode` is the older tool's name for `deterministic`. `rm_dropout` sets the probability of every dropout to 0, by
    replacing the functions of torch that drop. `is_enhanced` also comes from the older tool: every call of a function
    of torch, NumPy or Python that draws then draws as if it were the first, whatever was drawn before it.

    Anything that a running process cannot do is reported: Python's hash seed is fixed when the interpreter starts,
    and variables that a device library has already read have no effect.

    Raises ValueError for a seed outside 0 to 4294967295.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= _LARGEST:
        raise ValueError(f"seed_all: {seed!r} is not a seed; choose a whole number from 0 to {_LARGEST}")
    deterministic = deterministic if mode is None else mode
    _seed_hashes(seed)
    random.seed(seed)
    _seed_numpy(seed)
    if deterministic:
        # Set before torch touches a device: the libraries read these when they start.
        _set_environment()
    torch = _torch()
    if torch is not None:
        _seed_torch(torch, seed)
        if rm_dropout:
            _remove_dropout(torch)
        if is_enhanced:
            from probe.draws import repeat_draws

            repeat_draws(torch)
        if deterministic:
            _make_deterministic(torch, warn_only)


def _seed_hashes(seed: int) -> None:
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = str(seed)
    if sys.flags.hash_randomization and before != str(seed):
        say_once(f"seed_all: PYTHONHASHSEED={seed} holds for child processes only; to fix the order of sets and hashes in this "
                 "one, set it before Python starts")


def _seed_numpy(seed: int) -> None:
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed)


def _set_environment() -> None:
    for variable, value in _DETERMINISTIC_ENVIRONMENT.items():
        # The user's own value may be a different deterministic one.
        os.environ.setdefault(variable, value)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _seed_torch(torch: Any, seed: int) -> None:
    # Covers CUDA and, if its extension is loaded, every other device; uninitialised ones are seeded when they start.
    torch.manual_seed(seed)
    for device in ("cuda", "npu"):
        module = getattr(torch, device, None)
        if module is not None and hasattr(module, "manual_seed_all"):
            module.manual_seed_all(seed)


#: Functions with the probability as their second argument.
_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_removed = Patches()


def _remove_dropout(torch: Any) -> None:
    functional = torch.nn.functional
    _removed.undo()
    _removed.everywhere(
        [(functional, name, _never_drops) for name in _DROPOUTS] + [(functional, "scaled_dot_product_attention", _attends_to_all)]
    )


def _never_drops(original: Any) -> Any:
    @functools.wraps(original)
    def without(input: Any, p: float = 0.5, *args: Any, **kwargs: Any) -> Any:
        return original(input, 0.0, *args, **kwargs)

    return without


def _attends_to_all(original: Any) -> Any:
    @functools.wraps(original)
    def without(*args: Any, **kwargs: Any) -> Any:
        # The probability is the fifth argument.
        return original(*args[:4], *((0.0, *args[5:]) if len(args) > 4 else ()), **{**kwargs, **({"dropout_p": 0.0} if "dropout_p" in kwargs else {})})

    return without


def _make_deterministic(torch: Any, warn_only: bool) -> None:
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    for device, variable in (("cuda", "CUBLAS_WORKSPACE_CONFIG"), ("npu", "HCCL_DETERMINISTIC")):
        module = getattr(torch, device, None)
        if module is not None and getattr(module, "is_initialized", lambda: False)():
            warn(f"seed_all: {device} was used before, so {variable} may come too late; call seed_all first in the script")
