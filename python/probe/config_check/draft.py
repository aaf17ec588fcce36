"""A pack in the making, of any framework: its parts, what is absent and why, and how it is written."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from probe import __version__
from probe.config_check import archive, hyperparameters, secrets
from probe.messages import say

_MAX_REASON = 300


@dataclass
class Request:
    """Contents and destination of a pack."""

    output: Path
    #: Number of forward calls to observe.
    steps: int = 1
    #: True if the run ends once it is packed.
    stop: bool = False
    dataloader: Any = None
    dataset: Any = None
    optimizer: Any = None
    scheduler: Any = None
    scaler: Any = None
    extra: Mapping[str, Any] | None = None
    #: Launch scripts and configuration files.
    files: list[str | Path] = field(default_factory=list)
    #: Files that the data comes from.
    data_files: list[str | Path] = field(default_factory=list)
    #: Name shared by all ranks of this run; determined automatically if not given.
    run: str | None = None
    #: Results of argument parsers so far; may grow.
    namespaces: list[Any] = field(default_factory=list)
    #: Called if no model was found; returns true if this process then packs nothing.
    is_bystander: Callable[[], bool] | None = None


class Draft:
    """Parts of one pack. None of our exceptions reaches the training: a failure costs its part."""

    def __init__(self, request: Request) -> None:
        if request.steps < 0:
            raise ValueError("steps counts forward calls and cannot be negative")
        request.output = Path(os.path.abspath(request.output))
        archive.check_writable(request.output)
        self.request = request
        self.parts: dict[str, Any] = {}
        self.absent: dict[str, str] = {}
        self.finished = False
        self._process = os.getpid()
        self._model: Any = None
        #: Number of the step that is observed next.
        self._step = 0
        self._frame: dict[str, Any] | None = None
        self._lock = threading.RLock()

    @property
    def model(self) -> Any:
        """The chosen model; None until there is one."""
        return self._model

    def settings(self, frame: FrameType | None) -> None:
        """Looks for settings among the variables of the calling script."""
        with self._guard("hyperparameters"):
            request = self.request
            self._frame = hyperparameters.collect(
                extra=request.extra,
                files=request.files,
                namespaces=request.namespaces,
                frame=frame,
                model=self._model,
            )

    def _collect(self, parts: Mapping[str, Callable[[], Any]]) -> None:
        """Completes the parts that are the same whenever they are read, and the settings."""
        for part, collect in parts.items():
            with self._guard(part):
                self.parts[part] = collect()
        if self._frame is None:
            self.settings(None)
        if self._frame is not None:
            self.parts["hyperparameters"] = self._frame

    def _explain_absent(self, loader: str) -> None:
        """Says why parts are not there; `loader` is the reason for that one."""
        model = "the model was not called" if self._model is not None else "no model was given"
        reasons = {
            "dataset": "the model was not called",
            "weights": model,
            "model": model,
            "flags": "the model was not called",
            "dataloader": loader,
            "optimizer": "no optimizer was given, and none stepped",
            "schedule": "no scheduler was given, and none stepped",
            "scaler": "no scaler was given, and none was used",
        }
        for part in [part for part, content in self.parts.items() if content is None]:
            del self.parts[part]
        for part, reason in reasons.items():
            if part not in self.parts:
                self.absent.setdefault(part, reason)

    def _write(self, rank: int, world_size: int, run: str, facts: dict[str, Any]) -> None:
        """Writes the pack of this rank. `facts` are the manifest keys of the framework."""
        request = self.request
        facts = {
            "tool": {"name": "probe", "version": __version__},
            "steps": list(range(self._step)),
            "absent": self.absent,
            **facts,
        }
        archive.sweep(request.output)
        complete = archive.write_rank(request.output, run, rank, world_size, facts, self.parts)
        if complete:
            say(f"config-check: {self._content()} of {_ranks(world_size)} packed into {request.output}")
        elif rank == 0 or world_size > 1:
            # Ranks still to come merge when they arrive; if one never does, the parts present are merged at exit.
            atexit.register(_merge_rest, request.output, run, world_size, os.getpid())
        for part, reason in self.absent.items():
            if reason.startswith("failed: "):
                say(f"config-check: {part} is not in the pack: {reason.removeprefix('failed: ')}")

    def _content(self) -> str:
        if self._step:
            return f"{self._step} step{'' if self._step == 1 else 's'}"
        return "the state before the first step" if self._model is not None else "no model, only the environment"

    @contextlib.contextmanager
    def _guard(self, part: str) -> Iterator[None]:
        """Keeps our exceptions out of the training; a failure costs `part`."""
        try:
            yield
        except Exception as error:
            if part:
                self.absent.setdefault(part, f"failed: {reason_of(error)}")


def reason_of(error: BaseException) -> str:
    """Returns an error on one line, without secrets."""
    return secrets.text(f"{type(error).__name__}: {error}".splitlines()[0])[:_MAX_REASON]


def _merge_rest(output: Path, run: str, world_size: int, process: int) -> None:
    """Runs at process exit: merges what the ranks have left if some are still missing."""
    if os.getpid() != process:
        return
    try:
        folder = archive.parts_folder(output, run)
        if folder.exists() and not archive.merge(output, run, world_size, complete_only=False) and folder.exists():
            say(f"config-check: not all {world_size} ranks are in {output} yet")
    except Exception as error:
        say(f"config-check: the ranks were not merged into {output}: {reason_of(error)}")


def _ranks(world_size: int) -> str:
    return "1 rank" if world_size == 1 else f"{world_size} ranks"
