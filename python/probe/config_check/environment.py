"""Part `env`: environment variables. Values for those on an allow list, names only for all others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from probe.config_check import secrets

# Variables that can change numerics, execution or communication. All others are recorded by name only.
_ALLOWED = re.compile(
    r"""
    (CUDA|CUBLAS|CUBLASLT|CUDNN|NVIDIA|NCCL|NVTE|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|TRITON|XLA|AOT)_\w+
    | (ASCEND|HCCL|LCCL|ACL|ATB|NPU|MINDSPEED|CANN|ACLNN|INF_NAN|TASK_QUEUE|COMBINED|CPU_AFFINITY|MULTI_STREAM)_\w+
    | CLOSE_MATMUL_K_SHIFT | AUTOCLOSE_MATMUL_K_SHIFT | INF_NAN_MODE_(ENABLE|FORCE_DISABLE) | STREAMS_PER_DEVICE
    | (OMP|MKL|KMP|GOMP|OPENBLAS|BLIS|VECLIB|NUMEXPR|ONEDNN|DNNL|BLAS)_\w+ | GOTO_NUM_THREADS
    | PYTHONHASHSEED | PYTHONOPTIMIZE | PYTHONUNBUFFERED | PYTHONMALLOC | PL_GLOBAL_SEED
    | FLASH_ATTENTION_\w+ | FLASH_ATTN_\w+ | XFORMERS_\w+ | TE_\w+ | APEX_\w+ | DS_\w+ | DEEPSPEED_\w+
    | ACCELERATE_\w+ | FSDP_\w+ | MEGATRON_\w+ | VLLM_\w+ | TF32_\w+ | HF32_\w+
    | WORLD_SIZE | LOCAL_WORLD_SIZE | RANK | LOCAL_RANK | GROUP_RANK | NNODES | NODE_RANK | NPROC_PER_NODE
    | TOKENIZERS_PARALLELISM | LD_PRELOAD | LD_LIBRARY_PATH | PYTHONPATH | GLIBC_TUNABLES | MALLOC_\w+ | LD_BIND_NOW
    | TZ | LANG | LC_ALL | LC_NUMERIC
    """,
    re.VERBOSE,
)


def is_allowed(name: str) -> bool:
    """Returns true if the value of variable `name` may enter a pack."""
    return _ALLOWED.fullmatch(name) is not None and not secrets.is_secret(name)


def collect(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the environment of this process as in `env.json`."""
    environment = os.environ if environment is None else environment
    values = {name: secrets.text(value) for name, value in sorted(environment.items()) if is_allowed(name)}
    return {"values": values, "names": sorted(name for name in environment if name not in values)}
