"""Other people's converters, imported from unpacked wheels: only their modules of conversion run, not what their packages import besides."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock


def bare(name: str, folder: Path) -> None:
    """Registers a package without running its `__init__`, which imports the whole library."""
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package


def stubbed(*names: str) -> None:
    """Registers modules of which nothing is called."""
    for name in names:
        sys.modules[name] = MagicMock()


class Sources:
    """The folder with one unpacked wheel in each subfolder: `torchtune`, `litgpt`, `mbridge`, `megatron_core`, `timm`, `transformers-4.46.3`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def script(self, path: str) -> ModuleType:
        """A conversion script of transformers, which the wheels hold until 4.46; it imports the installed transformers."""
        file = self.folder / "transformers-4.46.3" / "transformers" / "models" / path
        spec = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def torchtune(self, module: str) -> ModuleType:
        root = self.folder / "torchtune" / "torchtune"
        if "torchtune" not in sys.modules:
            for name in ("", "models", "models.phi3", "models.qwen2", "models.gemma2"):
                bare(".".join(filter(None, ("torchtune", name))), root / name.replace(".", "/"))
        return importlib.import_module(f"torchtune.models.{module}")

    def litgpt(self, script: str) -> tuple[ModuleType, type]:
        """A script of litgpt, and its class of configurations."""
        if "litgpt" not in sys.modules:
            stubbed("lightning", "lightning.fabric", "lightning.fabric.utilities", "lightning.fabric.utilities.load", "litgpt.utils")
            root = self.folder / "litgpt" / "litgpt"
            bare("litgpt", root)
            bare("litgpt.scripts", root / "scripts")
            sys.modules["litgpt"].Config = importlib.import_module("litgpt.config").Config
        return importlib.import_module(f"litgpt.scripts.{script}"), sys.modules["litgpt"].Config

    def timm(self) -> ModuleType:
        self.on_path("timm")
        return importlib.import_module("timm")

    def megatron(self) -> None:
        """Makes `megatron.core` importable."""
        self.on_path("megatron_core")

    def mbridge(self, module: str) -> ModuleType:
        self.megatron()
        if "mbridge" not in sys.modules:
            root = self.folder / "mbridge" / "mbridge"
            bare("mbridge", root)
            bare("mbridge.models", root / "models")
        return importlib.import_module(f"mbridge.models.{module}")

    def on_path(self, name: str) -> None:
        place = str(self.folder / name)
        if place not in sys.path:
            sys.path.append(place)
