"""One training of a model, on a device, recorded or not."""

from __future__ import annotations

import json
import os
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

import device as devices
import edits
import models
import probe

#: How the numbers of a training are kept. `autocast` keeps float32 and computes in bfloat16.
PRECISIONS = ("float32", "bfloat16", "autocast", "autocast float16")
#: A loss computed in float16 is multiplied by this, as a scaler of gradients does, or its gradients would vanish.
SCALE = 1024.0


class Recorder:
    """probe's own capture of some steps."""

    def __init__(self, output: Path, level: str, task: str, steps: list[int]) -> None:
        self.output, self.level, self.task, self.steps = output, level, task, steps

    @contextmanager
    def around(self, model: nn.Module) -> Iterator[None]:
        """The whole training."""
        with probe.capture(self.output, model=model, steps=self.steps, level=self.level, task=self.task, stacks=False):
            yield

    def begin(self) -> None:
        """Forward and backward of a step follow."""

    def end(self) -> None:
        """They are done; the optimizer's step follows."""

    def aside(self) -> AbstractContextManager[None]:
        """Calls of a kernel in here are not recorded."""
        return nullcontext()


class OlderRecorder(Recorder):
    """msprobe's. It cannot begin anew in a process: see `forked`."""

    LEVELS = {"module": "L0", "api": "L1", "mix": "mix"}

    @contextmanager
    def around(self, model: nn.Module) -> Iterator[None]:
        from msprobe.pytorch import PrecisionDebugger

        config = {
            "task": self.task, "level": self.LEVELS[self.level], "dump_path": str(self.output), "step": self.steps, self.task: {},
        }  # fmt: skip
        self.output.mkdir(parents=True)
        file = self.output / "config.json"
        file.write_text(json.dumps(config))
        self.model, self.debugger = model, PrecisionDebugger(config_path=str(file))
        file.unlink()
        yield

    def begin(self) -> None:
        self.debugger.start(model=self.model)

    def end(self) -> None:
        self.debugger.stop()
        self.debugger.step()

    @contextmanager
    def aside(self) -> Iterator[None]:
        from msprobe.core.dump.hook_manager import BaseHookManager

        # It puts its own functions into torch.Tensor, and knows by this whether it is itself that calls them.
        thread = threading.get_ident()
        before = BaseHookManager.inner_switch[thread]
        BaseHookManager.inner_switch[thread] = True
        try:
            yield
        finally:
            BaseHookManager.inner_switch[thread] = before


RECORDERS = {"probe": Recorder, "msprobe": OlderRecorder}


class Training:
    """A model or a program with its optimizers, and one step of it after another."""

    def __init__(self, kind: str, precision: str, edit: dict[str, Any] | None, optimizer: str | None) -> None:
        chosen = models.kind(kind)
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self.precision, self.program = precision, None
        if chosen.program:
            self.model = self.program = chosen.program((edit or {}).get("variant", "")).to(dtype).train()
            options = zip(self.program.optimizers, self.program.groups(), strict=True)
            self.steppers = [models.optimizer(name, group, **self.program.options()) for name, group in options]
        else:
            self.model, self.loss_of = chosen.make(dtype)
            self.model = self.model.to(dtype).train()
            if edit:
                edits.apply(self.model, edit)
            self.steppers = [models.optimizer(optimizer or chosen.optimizer, self.model.parameters())]
        self.factor = SCALE if precision == "autocast float16" else 1.0

    def losses(self, step: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        """The losses of a step, each with the optimizer that steps behind its backward pass."""
        short = torch.float16 if self.precision == "autocast float16" else torch.bfloat16
        made = self.program.losses(step) if self.program else iter([])
        while True:
            with torch.autocast("cpu", short, enabled=self.precision.startswith("autocast")):
                found = next(made, None) if self.program else (self.loss_of(self.model), 0)
            if found is None:
                return
            yield found
            if not self.program:
                return

    def update(self, which: int) -> None:
        """One step of an optimizer, and what the program does around it."""
        if self.factor != 1.0:
            for p in self.model.parameters():
                if p.grad is not None:
                    p.grad.div_(self.factor)
        if self.program:
            self.program.before_update()
        self.steppers[which].step()
        if self.program:
            self.program.after_update()

    def step(self, step: int, device: devices.Device, recorder: Recorder | None) -> list[torch.Tensor]:
        """One step; returns its losses."""
        found = []
        for stepper in self.steppers:
            stepper.zero_grad(set_to_none=True)
        device.phase = "forward"
        if recorder:
            recorder.begin()
        for loss, which in self.losses(step):
            found.append(loss)
            device.phase = "backward"
            (loss * self.factor if self.factor != 1.0 else loss).backward()
            device.phase = "optimizer"
            if which is not None:
                if recorder and which == len(self.steppers) - 1:
                    recorder.end()
                self.update(which)
                if len(self.steppers) > 1:
                    self.model.zero_grad(set_to_none=True)
            device.phase = "forward"
        return found


def train(
    kind: str, precision: str, device: devices.Device, steps: int, recorder: Recorder | None = None,
    edit: dict[str, Any] | None = None, optimizer: str | None = None,
) -> list[float]:  # fmt: skip
    """Trains for `steps` steps, the same in every run, and returns the losses."""
    torch.manual_seed(20)
    training = Training(kind, precision, edit, optimizer)
    if recorder:
        device.aside = recorder.aside
    losses = []
    # A whole LSTM is one op of oneDNN, which has no other arithmetic to offer; without it, it is made of products.
    recurrent = any(isinstance(module, torch.nn.LSTM) for module in training.model.modules())
    fused = torch.backends.mkldnn.flags(enabled=False) if recurrent else nullcontext()
    with fused, devices.computing(device), recorder.around(training.model) if recorder else nullcontext():
        for step in range(steps):
            device.step = step
            losses.append(training.step(step, device, recorder))
    return [sum(float(loss) for loss in step) for step in losses]


def forked(run: Callable[[], Any]) -> Any:
    """Returns what `run` returns, from a process of its own that starts with all that is loaded here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            with os.fdopen(writer, "wb") as out:
                pickle.dump(run(), out)
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        answer = told.read()
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("a recorded run failed; what went wrong is above")
    return pickle.loads(answer)
