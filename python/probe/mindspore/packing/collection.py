"""Collects one pack of a program of MindSpore: observes the first calls of a network, and writes."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable
from typing import Any

import mindspore
import mindspore.dataset
from mindspore import nn
from probe.config_check import datafiles, distributed, environment, generators, packages, source
from probe.config_check.draft import Draft, Request, reason_of
from probe.config_check.seeds import watch
from probe.messages import say
from probe.mindspore.calls import OPTIMIZERS
from probe.mindspore.packing import context, model, training
from probe.patches import Patches

#: Functions that clip gradients, the argument that is the limit, and what PyTorch calls the like.
_CLIPS = {"clip_by_global_norm": ("clip_norm", "clip_grad_norm_"), "clip_by_norm": ("max_norm", "clip_grad_norm_")}


class Collection(Draft):
    """One pack of a program of MindSpore, in PYNATIVE or graph mode."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._patches = Patches()
        self._marks: list[tuple[str, generators.Snapshot, dict[str, dict[str, Any]]]] = []
        self._batches: list[dict[str, Any]] = []
        self._weights: list[dict[str, Any]] = []
        self._clipping: list[dict[str, Any]] = []
        #: The network and the cells that hold it.
        self._holders: dict[int, bool] = {}
        #: True once the network was seen at work.
        self._is_called = False
        self._inside = False

    def watch(self) -> None:
        """Watches calls of cells, which steps of optimizers are too, data sets, clipping and seeds."""
        watch.start()
        self._patches.attribute(nn.Cell, "__call__", self._call)
        for name in ("create_dict_iterator", "create_tuple_iterator"):
            self._patches.attribute(mindspore.dataset.Dataset, name, self._iterated)
        for scaler in (mindspore.amp.DynamicLossScaler, mindspore.amp.StaticLossScaler):
            self._patches.attribute(scaler, "scale", self._scaled)
        self._patches.everywhere([(mindspore.ops, name, functools.partial(self._clip, name)) for name in _CLIPS])
        atexit.register(self.finish)

    def attach(self, net: Any) -> None:
        """Takes the network and waits for its calls."""
        self._model = net
        with self._guard("random"):
            if watch.seeded is not None:
                # MindSpore's generators keep no more than their seeds.
                self._marks.append(("seeded", watch.seeded, context.own_generators()))
            self._mark("model")

    def finish(self) -> None:
        """Restores what was replaced and writes the pack. Does nothing the second time, or in a child process."""
        if self.finished or os.getpid() != self._process:
            return
        self.finished = True
        with self._lock:
            atexit.unregister(self.finish)
            self._release()
            try:
                if self._model is not None and not self._is_called:
                    self._stand()
                self._close()
                rank, world_size = context.place()
                run = self.request.run or distributed.run_name(self.request.output.name)
                self._write(rank, world_size, run, {"framework": "mindspore", "device": context.device()})
            except Exception as error:
                say(f"config-check: no pack was written to {self.request.output}: {reason_of(error)}")
            self._model = None

    def abandon(self) -> None:
        """Restores what was replaced and packs nothing."""
        self.finished = True
        self._release()

    def _release(self) -> None:
        self._patches.undo()
        watch.stop()

    def _mark(self, name: str) -> None:
        self._marks.append((name, generators.snapshot(), context.own_generators()))

    def _call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(cell: Any, *args: Any, **kwargs: Any) -> Any:
            # A call inside one that was seen is part of it.
            if not self._inside and not self.finished and os.getpid() == self._process:
                try:
                    is_seen = self._begins(cell, args, kwargs)
                except Exception as error:
                    is_seen = False
                    self.absent.setdefault("model", f"failed: {reason_of(error)}")
                if is_seen:
                    self._inside = True
                    try:
                        return original(cell, *args, **kwargs)
                    finally:
                        self._inside = False
            return original(cell, *args, **kwargs)

        return call

    def _begins(self, cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Observes a call of the network, or of a cell that holds it. Returns true if it was one."""
        if isinstance(cell, OPTIMIZERS):
            self._stepping(cell)
            return False
        net = self._model
        if net is None:
            return False
        if cell is not net:
            if id(cell) not in self._holders:
                self._holders[id(cell)] = any(part is net for _, part in cell.cells_and_names())
            # In PYNATIVE mode the network's own call comes, with its own arguments.
            if not self._holders[id(cell)] or mindspore.get_context("mode") == mindspore.PYNATIVE_MODE:
                return False
        self._is_called = True
        if self._step >= self.request.steps:
            self.finish()
        else:
            self._look(args, kwargs, is_own=cell is net)
        return True

    def _stepping(self, stepping: Any) -> None:
        """Takes the first optimizer that trains the network; observes a network whose calls are compiled."""
        if self._model is None or not training.trains(stepping, self._model):
            return
        if self.request.optimizer is None:
            self.request.optimizer = stepping
        self._found_optimizer()
        if not self._is_called and self._step < self.request.steps:
            self._look((), {}, is_own=False)

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any], is_own: bool) -> None:
        """Records the state at the beginning of step number `_step`. `is_own`: the arguments are the network's."""
        step, net = self._step, self._model
        with self._guard("random"):
            self._mark(f"step {step}")
        if step == 0:
            self._settle()
        if is_own:
            with self._guard("dataset"):
                self._batches.append({"step": step, "arguments": model.arguments(args, kwargs)})
        with self._guard("weights"):
            self._weights.append(model.weights(net, step))
        self._step = step + 1

    def _stand(self) -> None:
        """Records the state where no step came."""
        self._settle()
        if self.request.steps:
            # Training may have gone on unseen, in one compiled function.
            self.absent["weights"] = "neither the network nor its optimizer was called; pack with steps=0 before the loop begins"
        else:
            with self._guard("weights"):
                self._weights.append(model.weights(self._model, 0))

    def _settle(self) -> None:
        with self._guard("model"):
            self.parts["model"] = model.collect(self._model)
        with self._guard("flags"):
            self.parts["flags"] = context.flags(self._model)
        self._found_optimizer()

    def _found_optimizer(self) -> None:
        found = self.request.optimizer
        if found is not None and "optimizer" not in self.parts:
            with self._guard("optimizer"):
                self.parts["optimizer"] = training.optimizer(found, self._model)
            with self._guard("schedule"):
                self.parts["schedule"] = training.schedule(found)

    def _close(self) -> None:
        request, parts = self.request, self.parts
        self._collect(
            {
                "platform": context.machine,
                "env": environment.collect,
                "pip": packages.collect,
                "source": source.collect,
                "distributed": context.distributed,
                "random": lambda: context.random(self._marks),
            }
        )
        if self._batches:
            parts["dataset"] = {"steps": self._batches}
        elif self._step:
            self.absent["dataset"] = "the network was called inside a compiled one"
        if request.data_files:
            with self._guard("dataset"):
                parts.setdefault("dataset", {"steps": []})["files"] = datafiles.collect(request.data_files)
        if self._weights:
            parts["weights"] = {"steps": self._weights}
        with self._guard("dataloader"):
            data = request.dataloader if request.dataloader is not None else request.dataset
            if data is not None:
                parts["dataloader"] = training.loader(data)
        with self._guard("scaler"):
            if request.scaler is not None:
                parts["scaler"] = training.scaler(request.scaler)
            elif self._step:
                parts["scaler"] = {"class": None}
        if self._step and "optimizer" in parts:
            parts["optimizer"]["clipping"] = self._clipping
        self._explain_absent("no data set was given, and none of mindspore.dataset was used")

    def _iterated(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def iterate(data: Any, *args: Any, **kwargs: Any) -> Any:
            if self.request.dataloader is None and self.request.dataset is None:
                self.request.dataloader = data
            return original(data, *args, **kwargs)

        return iterate

    def _scaled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def scale(found: Any, *args: Any, **kwargs: Any) -> Any:
            self.request.scaler = self.request.scaler or found
            return original(found, *args, **kwargs)

        return scale

    def _clip(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        limit, torch = _CLIPS[name]

        @functools.wraps(original)
        def clip(x: Any, *args: Any, **kwargs: Any) -> Any:
            # One tensor that is clipped need not be a gradient.
            if self._step and isinstance(x, (list, tuple)) and len(self._clipping) < 1000:
                with self._guard("optimizer"):
                    value = float(kwargs.get(limit, args[0] if args else 1.0))
                    self._clipping.append({"step": self._step - 1, "function": torch, "limit": value, "norm_type": 2.0})
            return original(x, *args, **kwargs)

        return clip
