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
        """What a kernel calls in here is not recorded."""
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


def train(
    kind: str, precision: str, device: devices.Device, steps: int, recorder: Recorder | None = None,
    edit: dict[str, Any] | None = None, optimizer: str | None = None,
) -> list[float]:  # fmt: skip
    """Trains for `steps` steps, the same in every run, and returns the losses."""
    torch.manual_seed(20)
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    short = torch.float16 if precision == "autocast float16" else torch.bfloat16
    model, loss_of = models.kinds()[kind].make(dtype)
    model = model.to(dtype).train()
    if edit:
        edits.apply(model, edit)
    stepper = models.optimizer(optimizer or models.kinds()[kind].optimizer, model.parameters())
    factor = SCALE if precision == "autocast float16" else 1.0
    losses = []
    if recorder:
        device.aside = recorder.aside
    # A whole LSTM is one op of oneDNN, which has no other arithmetic to offer; without it, it is made of products.
    fused = torch.backends.mkldnn.flags(enabled=False) if kind == "lstm" else nullcontext()
    with fused, devices.computing(device), recorder.around(model) if recorder else nullcontext():
        for step in range(steps):
            device.step = step
            stepper.zero_grad(set_to_none=True)
            device.phase = "forward"
            if recorder:
                recorder.begin()
            with torch.autocast("cpu", short, enabled=precision.startswith("autocast")):
                loss = loss_of(model)
            scaled = loss * factor if factor != 1.0 else loss
            device.phase = "backward"
            scaled.backward()
            device.phase = "optimizer"
            if recorder:
                recorder.end()
            if factor != 1.0:
                for p in model.parameters():
                    if p.grad is not None:
                        p.grad.div_(factor)
            stepper.step()
            losses.append(loss)
    return [float(loss) for loss in losses]


def forked(run: Callable[[], Any]) -> Any:
    """What `run` returns, from a process of its own that starts with all that is loaded here."""
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
