"""Watches training between forward calls: backward passes, clipping, steps of optimizer, scheduler and scaler."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable
from typing import Any

from probe.private.compiling import compiling
from probe.config_check import scaler, schedule, secrets
from probe.patches import Patches

_MAX_CLIPS = 1000


class StepWatch:
    """Counts per forward call, and the objects met on the way."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.backward: dict[int, int] = {}
        # True if gradients were computed before the first step.
        self.early_backward = False
        self.optimizer_steps: dict[int, int] = {}
        self.clipping: list[dict[str, Any]] = []
        self.optimizer: Any = None
        self.on_optimizer: Callable[[Any], None] | None = None
        self.on_backward: Callable[[], None] | None = None
        # Settings of the first scheduler, scaler and loss met, as they were then.
        self.schedule: dict[str, Any] | None = None
        self.scaler: dict[str, Any] | None = None
        self.loss_reduction: str | None = None
        self._hook: Any = None
        self._inside = False
        self._process = os.getpid()

    def start(self, patches: Patches) -> None:
        """Watches until `stop`, and until `patches` are undone."""
        import torch
        from torch.nn.utils import clip_grad
        from torch.optim import lr_scheduler
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        patches.everywhere(
            [
                (torch.autograd, "backward", self._counted_backward),
                (clip_grad, "clip_grad_norm_", functools.partial(self._clip, "clip_grad_norm_", "max_norm")),
                (clip_grad, "clip_grad_value_", functools.partial(self._clip, "clip_grad_value_", "clip_value")),
            ]
        )
        fsdp = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
        if fsdp is not None:
            clip = functools.partial(self._clip, "clip_grad_norm_", "max_norm")
            patches.attribute(fsdp.FullyShardedDataParallel, "clip_grad_norm_", clip)
        for owner in (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau):
            if "step" in vars(owner):
                patches.attribute(owner, "step", self._scheduler_step)
        for owner in _scalers(torch):
            if "scale" in vars(owner):
                patches.attribute(owner, "scale", self._scale)
        patches.attribute(torch.nn.modules.loss._Loss, "__call__", self._loss)
        self._hook = register_optimizer_step_pre_hook(self._optimizer_step)

    def stop(self) -> None:
        """Removes the hook."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def accumulation(self, steps: int) -> list[dict[str, int]]:
        """Returns the calls between one forward call and the next, as in `optimizer.json`."""
        return [
            {"step": step, "backward": self.backward.get(step, 0), "optimizer": self.optimizer_steps.get(step, 0)}
            for step in range(steps)
        ]

    def _counted_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(*arguments: Any, **keywords: Any) -> Any:
            if os.getpid() == self._process:
                if self.on_backward is not None:
                    self.on_backward()
                if self.step is not None:
                    self.backward[self.step] = self.backward.get(self.step, 0) + 1
                else:
                    self.early_backward = True
            return original(*arguments, **keywords)

        return backward

    def _optimizer_step(self, optimizer: Any, *_: Any) -> None:
        try:
            if os.getpid() != self._process:
                return
            if self.optimizer is None:
                self.optimizer = optimizer
            if self.on_optimizer is not None:
                self.on_optimizer(optimizer)
            if self.step is not None:
                self.optimizer_steps[self.step] = self.optimizer_steps.get(self.step, 0) + 1
        except Exception:
            pass

    def _clip(self, function: str, limit: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def clip(*arguments: Any, **keywords: Any) -> Any:
            # One clipping function may call another.
            if self._inside:
                return original(*arguments, **keywords)
            self._inside = True
            try:
                self._note_clip(function, limit, arguments, keywords)
                return original(*arguments, **keywords)
            finally:
                self._inside = False

        return clip

    def _note_clip(self, function: str, limit: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        try:
            if len(self.clipping) >= _MAX_CLIPS:
                return
            entry: dict[str, Any] = {"function": function, "limit": _number(keywords.get(limit, *arguments[1:2]))}
            if self.step is not None:
                entry["step"] = self.step
            if function == "clip_grad_norm_":
                entry["norm_type"] = _number(keywords.get("norm_type", arguments[2] if len(arguments) > 2 else 2.0))
            self.clipping.append(entry)
        except Exception:
            pass

    def _scheduler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(scheduler: Any, *arguments: Any, **keywords: Any) -> Any:
            # Schedulers step once during construction, half built.
            if self.step is not None and self.schedule is None and type(getattr(scheduler, "optimizer", None)) is not schedule._Stand:
                # Set first, because collecting steps a clone.
                self.schedule = {}
                try:
                    self.schedule = schedule.collect(scheduler)
                except Exception:
                    self.schedule = None
            return original(scheduler, *arguments, **keywords)

        return step

    def _scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def scale(scaler_: Any, *arguments: Any, **keywords: Any) -> Any:
            if self.scaler is None:
                try:
                    self.scaler = scaler.collect(scaler_)
                except Exception:
                    self.scaler = None
            return original(scaler_, *arguments, **keywords)

        return scale

    def _loss(self, original: Callable[..., Any]) -> Callable[..., Any]:
        is_compiling = compiling()

        @functools.wraps(original)
        def call(loss: Any, *arguments: Any, **keywords: Any) -> Any:
            # A graph being traced must contain only torch's own call.
            if self.loss_reduction is None and not is_compiling():
                reduction = getattr(loss, "reduction", None)
                if isinstance(reduction, str):
                    self.loss_reduction = secrets.text(reduction)
            return original(loss, *arguments, **keywords)

        return call


def _scalers(torch: Any) -> list[Any]:
    """The gradient scaler classes: one for all devices since torch 2.3, before that one for each."""
    places = (torch.amp, torch.cuda.amp, getattr(getattr(torch, "npu", None), "amp", None))
    return list(dict.fromkeys(place.GradScaler for place in places if hasattr(place, "GradScaler")))


def _number(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number).replace("inf", "Infinity").replace("nan", "NaN")
