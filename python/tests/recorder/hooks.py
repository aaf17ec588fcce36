"""Hooks that hang in torch."""

from __future__ import annotations

from torch import overrides
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.utils import _python_dispatch


def hooks() -> dict[str, int]:
    """How many modes and hooks torch has at the moment."""
    return {
        "function modes": len(overrides._get_current_function_mode_stack()),
        "dispatch modes": len(_python_dispatch._get_current_dispatch_mode_stack()),
        "forward pre-hooks": len(torch_module._global_forward_pre_hooks),
        "forward hooks": len(torch_module._global_forward_hooks),
        "forward hooks with kwargs": len(getattr(torch_module, "_global_forward_hooks_with_kwargs", ())),  # since torch 2.3
        "forward hooks always called": len(torch_module._global_forward_hooks_always_called),
        "backward hooks": len(torch_module._global_backward_hooks),
        "optimizer pre-hooks": len(torch_optimizer._global_optimizer_pre_hooks),
        "optimizer post-hooks": len(torch_optimizer._global_optimizer_post_hooks),
    }
