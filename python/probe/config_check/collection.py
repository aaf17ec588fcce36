"""Collects one pack in this process: observes the first steps of a model, removes every hook, and writes.

None of our exceptions reaches the training; a failure costs its part, and the manifest says why. Nothing here draws a
random number or writes to a tensor.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from probe.config_check import (
    datafiles,
    distributed,
    environment,
    flags,
    generators,
    host,
    optimizer,
    packages,
    scaler,
    schedule,
    source,
    structure,
)
from probe.config_check import loader as loaders
from probe.config_check.batch import Batches
from probe.config_check.calls import CallWatch, untraced
from probe.config_check.draft import Draft, Request, reason_of
from probe.config_check.loader import LoaderWatch
from probe.patches import Patches
from probe.config_check.seeds import watch
from probe.config_check.steps import StepWatch
from probe.config_check.weights import Weights
from probe.messages import say


class Collection(Draft):
    """One pack of a program of PyTorch."""

    def __init__(self, request: Request, on_finish: Callable[[], None] | None = None) -> None:
        super().__init__(request)
        self._on_finish = on_finish
        self._patches = Patches()
        self._steps = StepWatch()
        self._loaders = LoaderWatch(max(request.steps, 1))
        self._marks: list[tuple[str, generators.Snapshot]] = []
        self._batches: Batches | None = None
        self._weights: Weights | None = None
        self._calls = CallWatch(self._called)
        #: True once a call was seen.
        self._is_called = False
        #: True if the model is not trained; it is replaced once a trained one comes.
        self.provisional = False
        #: Optimizers that have stepped.
        self._stepped: dict[int, Any] = {}
        #: True once all steps were seen.
        self._over = False

    def watch(self) -> None:
        """Starts watching what a training uses: loaders, clipping, backward passes, seeds."""
        watch.start()
        with self._guard("dataloader"):
            self._batches = Batches()
            self._loaders.on_batch = self._loaded
            self._loaders.start(self._patches)
        with self._guard("model"):
            self._calls.start(self._patches)
        with self._guard("optimizer"):
            self._steps.on_optimizer = self._stepping
            self._steps.on_backward = self._between
            self._steps.start(self._patches)
        atexit.register(self.finish)

    def attach(self, model: Any, called: Any = None, provisional: bool = False) -> None:
        """Takes the model and waits for its forward calls, or those of its part `called`; if there are none, for the
        steps of its optimizer. A `provisional` model may be replaced until the program ends."""
        with self._lock:
            if self.provisional:
                self._restart()
            self.provisional = provisional
            self._begin(model)
            with self._guard("model"):
                self._calls.watch(model, model if called is None else called)

    def finish(self) -> None:
        """Removes every hook and writes the pack. Does nothing the second time, or in a child process."""
        if self.finished or os.getpid() != self._process:
            return
        self.finished = True
        with self._lock:
            atexit.unregister(self.finish)
            self._release()
            if self._on_finish is not None:
                with self._guard(""):
                    self._on_finish()
            if self._model is None and self.request.is_bystander is not None and self.request.is_bystander():
                self._loaders.close()
                return
            try:
                if self._step == 0 and self._model is not None:
                    self._stand()
                with _undisturbed():
                    self._close()
                    world_size = distributed.world_size()
                    run = self.request.run or distributed.run_name(self.request.output.name)
                    self._write(distributed.rank(), world_size, run, {"device": host.device(self._model)})
            except Exception as error:
                say(f"config-check: no pack was written to {self.request.output}: {reason_of(error)}")
            self._model = None
            self._stepped = {}

    def _begin(self, model: Any) -> None:
        """Records the state at the moment the model is handed over."""
        self._model = model
        with self._guard("random"):
            if watch.seeded is not None:
                self._marks.append(("seeded", watch.seeded))
            self._marks.append(("model", generators.snapshot()))
        if self.request.optimizer is not None:
            self._found_optimizer(self.request.optimizer, handed=True)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Runs before each forward call of the model."""
        if self.finished or os.getpid() != self._process:
            return
        self._is_called = True
        if self._step < self.request.steps:
            self._look(args, kwargs)
        elif self.provisional and not self.request.stop:
            # A trained model may still come.
            self._calls.stop()
        else:
            self._end()

    def _restart(self) -> None:
        """Forgets a model that was taken for want of a better one."""
        self._calls.stop()
        self._stop_autocast()
        self._model, self._step, self._is_called = None, 0, False
        self._weights, self._frame = None, None
        self._marks.clear()
        if self._batches is not None:
            self._batches.steps.clear()
        for part in ("flags", "model", "optimizer", "schedule", "scaler", "weights", "dataset", "random", "hyperparameters"):
            self.parts.pop(part, None)
            self.absent.pop(part, None)

    def _stepping(self, stepping: Any) -> None:
        """Runs before each optimizer step. Observes models whose methods are called but never the model itself."""
        self._stepped[id(stepping)] = stepping
        self._found_optimizer(stepping)
        if self.finished or self._is_called or self._model is None or not optimizer.trains(stepping, self._model):
            return
        if self._step < self.request.steps:
            self._look((), {})
        else:
            # Torch is iterating over its hooks now, so none can be removed.
            self._over, self._steps.step = True, None

    def _loaded(self, batch: Any) -> None:
        """Runs after each batch of any loader, in the thread that asked for it."""
        if self.finished or os.getpid() != self._process:
            return
        self._between()
        with self._lock, self._guard("dataset"), _undisturbed():
            if self._batches is not None and not self.finished:
                self._batches.offer(batch)

    def _between(self) -> None:
        """Runs where the program does something other than call the model or step."""
        if self._over and not self.finished:
            self._end()

    def _end(self) -> None:
        self.finish()
        if self.request.stop:
            raise SystemExit(0)

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Records the state at the beginning of step number `_step`."""
        step = self._step
        with self._guard("random"):
            self._marks.append((f"step {step}", generators.snapshot()))
        if step == 0:
            with self._guard("flags"):
                self.parts["flags"] = flags.collect(self._model)
                if self._calls.compiler:
                    self.parts["flags"]["compiler"] = self._calls.compiler
                self._watch_autocast(self._model)
        with _undisturbed():
            if step == 0:
                self._settle()
            with self._guard("dataset"):
                if self._batches is not None:
                    self._batches.add(step, args, kwargs, keep=self.provisional)
            with self._guard("weights"):
                self._weights = self._weights or Weights()
                self._weights.add(step, self._model)
        if not self.provisional:
            self._steps.step = step
        self._step = step + 1

    def _stand(self) -> None:
        """Records the state where no step came: everything except what only a step shows."""
        with self._guard("flags"):
            self.parts["flags"] = flags.collect(self._model)
            for name in flags.OF_A_STEP:
                self.parts["flags"].pop(name, None)
        with _undisturbed():
            self._settle()
            with self._guard("weights"):
                if self._steps.early_backward:
                    self.absent["weights"] = "gradients were computed, but neither was the model called nor its optimizer"
                else:
                    self._weights = Weights()
                    self._weights.add(0, self._model)

    def _settle(self) -> None:
        """Records what is recorded once, at the first step."""
        request = self.request
        with self._guard("model"):
            self.parts["model"] = structure.collect(self._model)
            if self._calls.compiler:
                self.parts["model"]["compiled"] = self._calls.compiler
        if self._steps.optimizer is not None and "optimizer" not in self.parts:
            self._found_optimizer(self._steps.optimizer)
        if request.scheduler is not None:
            with self._guard("schedule"):
                self.parts["schedule"] = schedule.collect(request.scheduler)
        if request.scaler is not None:
            with self._guard("scaler"):
                self.parts["scaler"] = scaler.collect(request.scaler)

    def _found_optimizer(self, found: Any, *, handed: bool = False) -> None:
        """Records an optimizer in its current state. One that was handed over is recorded again at the first forward
        call."""
        if self.request.optimizer is None:
            self.request.optimizer = found
        with self._guard("optimizer"):
            if found is self.request.optimizer and self._model is not None and "optimizer" not in self.parts:
                self.parts["optimizer"] = optimizer.collect(found, self._model)
        if handed:
            self._steps.optimizer = found

    def _watch_autocast(self, model: Any) -> None:
        """Autocast may be off outside the model but on inside: the first innermost module that runs shows it."""
        if self.parts["flags"].get("autocast", {}).get("enabled"):
            return
        leaf = next((module for module in model.modules() if not any(True for _ in module.children())), None)
        if leaf is None or leaf is model:
            return

        def see(*_: Any) -> None:
            handle.remove()
            with self._guard("flags"):
                self.parts["flags"]["autocast"] = flags.autocast(model)

        handle = leaf.register_forward_pre_hook(untraced(see))
        self._autocast = handle

    _autocast: Any = None

    def _stop_autocast(self) -> None:
        if self._autocast is not None:
            self._autocast.remove()
            self._autocast = None

    def abandon(self) -> None:
        """Removes every hook and packs nothing."""
        self.finished = True
        self._release()

    def _release(self) -> None:
        """Removes every hook and replacement."""
        self._calls.stop()
        self._stop_autocast()
        self._steps.stop()
        self._patches.undo()
        watch.stop()

    def _close(self) -> None:
        """Completes the parts after the last step."""
        model, parts, request = self._model, self.parts, self.request
        self._collect(
            {
                "platform": host.collect,
                "env": environment.collect,
                "pip": packages.collect,
                "source": source.collect,
                "distributed": lambda: distributed.collect(model),
                "random": self._random,
            }
        )
        if self._batches is not None:
            self._batches.close()
            if self._batches.steps:
                parts["dataset"] = {"steps": self._batches.steps}
        if request.data_files:
            with self._guard("dataset"):
                parts.setdefault("dataset", {"steps": []})["files"] = datafiles.collect(request.data_files)
        if self._weights is not None and self._weights.steps:
            parts["weights"] = {"steps": self._weights.steps}
        with self._guard("dataloader"):
            loader = request.dataloader if request.dataloader is not None else self._loaders.loader()
            if loader is not None:
                parts["dataloader"] = loaders.collect(loader)
                seed = self._loaders.seed(loader)
                if seed is not None:
                    parts["dataloader"]["worker_seed"] = seed
            elif request.dataset is not None:
                samples = loaders.length(request.dataset)
                parts["dataloader"] = {"dataset": type(request.dataset).__name__, "samples": samples}
        with self._guard("optimizer"):
            self._close_optimizer()
        with self._guard("schedule"):
            if "schedule" not in parts and self._steps.schedule:
                parts["schedule"] = self._steps.schedule
        with self._guard("scaler"):
            if "scaler" not in parts:
                # Every loss of the steps was seen, so it is known whether it was scaled.
                parts["scaler"] = self._steps.scaler or (dict(scaler.NONE) if self._step else None)
        if self._steps.loss_reduction is not None and "flags" in parts:
            parts["flags"]["loss_reduction"] = self._steps.loss_reduction
        self._loaders.close()
        self._explain_absent("no loader was given, and none of torch was used")

    def _close_optimizer(self) -> None:
        found = self.parts.get("optimizer")
        if found is None:
            return
        # The first step creates the states.
        found["state_dtypes"] = optimizer.collect(self.request.optimizer, None)["state_dtypes"]
        if self._step:
            found["clipping"] = self._steps.clipping
            found["accumulation"] = self._steps.accumulation(self._step)
            outside = optimizer.outside(self._stepped.values(), self._model)
            if outside:
                found["outside"] = outside

    def _random(self) -> dict[str, Any]:
        torch = sys.modules["torch"]
        seed = int(torch.initial_seed())
        origins = {**watch.origins, "torch": generators.seeded(seed)}
        marks = [{"mark": mark, "generators": generators.describe(state, origins)} for mark, state in self._marks]
        by_name = {mark["mark"]: mark["generators"] for mark in marks}
        for batch, states in self._loaders.worker_states().items():
            if f"step {batch}" in by_name:
                by_name[f"step {batch}"].update(states)
        found = {"seeds": {**watch.values, "torch": seed}, "calls": watch.calls(), "marks": marks}
        built = {name: state for name, state in by_name.get("model", {}).items() if name.startswith("device.")}
        if built:
            found["seeds"].update({name: state["seed"] for name, state in built.items()})
            found["device_init"] = any(state.get("offset", 0) > 0 for state in built.values())
        return found


def _undisturbed() -> contextlib.AbstractContextManager[None]:
    """Reads tensors without gradients and outside any modes that others have put on operators."""
    from probe.private.guards import without_modes

    return without_modes()
