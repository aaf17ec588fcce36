"""SGLang's dumper, out of an unpacked wheel of sglang (0.5.23 was used), without the server around it."""

from __future__ import annotations

import importlib.util
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass
class ForwardBatch:
    """The batch that a server passes to its model beside the tokens."""

    input_ids: Tensor
    seq_lens: Tensor
    positions: Tensor
    req_pool_indices: Tensor
    rids: list[str] | None
    batch: Any


class Unused:
    """Stands for a class of the server that is not met here."""


def dumper_of(folder: Path) -> types.ModuleType:
    """The dumper of the wheel, which is imported alone."""
    stubs = {
        "sglang.srt.distributed": (),
        "sglang.srt.layers.dp_attention": ("get_moe_cp_size", "is_dp_attention_enabled"),
        "sglang.srt.layers.logits_processor": ("LogitsProcessorOutput",),
        "sglang.srt.layers.layer_boundary.output": ("UnreducedOutput",),
        "sglang.srt.layers.layer_boundary.residual.stream": ("OwedOutput",),
        "sglang.srt.managers.io_struct": ("sock_recv", "sock_send", "wrap_as_pickle"),
        "sglang.srt.model_executor.forward_batch_info": ("PPProxyTensors",),
        "sglang.srt.runtime_context": ("get_parallel", "get_server_args", "get_serving"),
        "sglang.srt.utils": ("get_device",),
        "zmq": (),
    }
    for name, members in stubs.items():
        for parent in [name[: at if at > 0 else None] for at in [*(i for i, c in enumerate(name) if c == "."), -1]]:
            sys.modules.setdefault(parent, types.ModuleType(parent))
        for member in members:
            setattr(sys.modules[name], member, Unused if member[0].isupper() else (lambda *_: None))
    sys.modules["sglang.srt.model_executor.forward_batch_info"].ForwardBatch = ForwardBatch
    for parent, child in (("sglang.srt", "distributed"), ("sglang.srt.layers", "dp_attention")):
        setattr(sys.modules[parent], child, sys.modules[f"{parent}.{child}"])
    spec = importlib.util.spec_from_file_location("sglang.srt.debug_utils.dumper", folder / "sglang/srt/debug_utils/dumper.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
