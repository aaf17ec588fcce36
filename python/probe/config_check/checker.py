"""`ConfigChecker`, for scripts written for the older tool."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from probe.config_check.draft import Draft
from probe.config_check import hyperparameters
from probe.config_check.packing import collection_of, pack
from probe.config_check.seeds import watch
from probe.messages import say


class ConfigChecker:
    """Packs a training setup as the older tool's class of this name did: creating it starts the collection.

    It observes one forward call and then removes its hooks; the older one collected at every call. `shell_path` names
    launch scripts and YAML files.
    """

    def __init__(
        self,
        model: Any = None,
        shell_path: str | list[str] | None = None,
        output_zip_path: str = "./config_check_pack.zip",
        fmk: str = "pytorch",
        **options: Any,
    ) -> None:
        collection_of(fmk)
        files: list[str | Path] = [shell_path] if isinstance(shell_path, (str, os.PathLike)) else list(shell_path or [])
        if model is None:
            self.collection = _static(Path(output_zip_path), files, fmk)
        else:
            self.collection = pack(model, output_zip_path, files=files, fmk=fmk, **options)

    @staticmethod
    def apply_patches(fmk: str = "pytorch") -> None:
        """Start watching for calls that set seeds. Call it first in the script."""
        collection_of(fmk)
        watch.start()

    @staticmethod
    def compare(bench_zip_path: str, cmp_zip_path: str, output_path: str) -> int:
        """Check two packs and write the reports to `output_path`. Returns the exit code of `probe config-check`."""
        from probe import _core

        return _core.main(["probe", "config-check", str(bench_zip_path), str(cmp_zip_path), "-o", str(output_path)])


def _static(output: Path, files: list[str | Path], fmk: str) -> Draft | None:
    """Packs what is available without a model: settings, environment, packages."""
    if fmk == "pytorch" and importlib.util.find_spec("torch") is None:
        return _without_torch(output, files)
    return pack(None, output, files=files, fmk=fmk)


def _without_torch(output: Path, files: list[str | Path]) -> None:
    from probe import __version__
    from probe.config_check import archive, environment, packages, source

    parts = {
        "env": environment.collect(),
        "pip": packages.collect(),
        "source": source.collect(),
        "hyperparameters": hyperparameters.collect(files=files),
    }
    facts = {"tool": {"name": "probe", "version": __version__}, "device": {"kind": "cpu"}, "steps": []}
    archive.write_rank(Path(os.path.abspath(output)), "", 0, 1, facts, parts)
    say(f"config-check: packed into {output}")
