"""Part `pip`: the distributions on the import path, and which copy of a package is really in use."""

from __future__ import annotations

import json
import os
import re
import sys
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from probe.config_check import repository, secrets

# Distribution -> module, where the names differ.
_MODULES = {
    "pillow": "PIL",
    "pillow-simd": "PIL",
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    "opencv-contrib-python": "cv2",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "flash-attn": "flash_attn",
    "transformer-engine": "transformer_engine",
    "megatron-core": "megatron.core",
    "protobuf": "google.protobuf",
    "probe-precision": "probe",
}
# Packages whose file path is worth recording.
NUMERIC = frozenset(
    "torch torch-npu torchvision torchaudio numpy scipy pillow pillow-simd opencv-python opencv-python-headless transformers "
    "tokenizers datasets peft accelerate deepspeed megatron-core apex mindspeed mindspeed-llm flash-attn triton "
    "transformer-engine xformers vllm vllm-ascend safetensors sentencepiece einops lightning pytorch-lightning timm".split()
)


def collect() -> dict[str, Any]:
    """Returns every distribution as in `pip.json`, in the order of the import path."""
    packages: dict[str, dict[str, Any]] = {}
    for folder in dict.fromkeys(os.path.realpath(entry or os.getcwd()) for entry in sys.path):
        for name, version, metadata in _distributions(folder):
            known = packages.get(name)
            if known is not None:
                if metadata not in known["_copies"]:
                    known["_copies"].append(metadata)
                    known.setdefault("shadowed", []).append(version)
                continue
            packages[name] = {"name": name, "version": version, "_copies": [metadata]}
    for package in packages.values():
        commit = _commit(Path(package.pop("_copies")[0]))
        if commit:
            package["commit"] = commit
        _add_module(package)
    return {"packages": list(packages.values())}


def normalised(name: str) -> str:
    """`name` as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _distributions(folder: str) -> list[tuple[str, str, str]]:
    """Name, version and metadata path of each distribution in `folder`."""
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return []
    found = []
    for entry in entries:
        if not entry.endswith((".dist-info", ".egg-info")):
            continue
        path = os.path.join(folder, entry)
        name, _, version = entry.rsplit(".", 1)[0].partition("-")
        if entry.endswith(".egg-info"):
            version = re.sub(r"-py\d.*$", "", version)
        if not version or "-" in version:
            name, version = _headers(path) or (name, version)
        if name and version:
            found.append((normalised(name), version, path))
    return found


def _headers(path: str) -> tuple[str, str] | None:
    for candidate in (os.path.join(path, "METADATA"), os.path.join(path, "PKG-INFO"), path):
        try:
            with open(candidate, encoding="utf-8", errors="replace") as file:
                headers = HeaderParser().parse(file, headersonly=True)
        except OSError:
            continue
        if headers["Name"] and headers["Version"]:
            return headers["Name"], headers["Version"]
    return None


def _commit(metadata: Path) -> str | None:
    """Commit of a distribution that was installed from a repository."""
    try:
        origin = json.loads((metadata / "direct_url.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    commit = origin.get("vcs_info", {}).get("commit_id")
    if isinstance(commit, str):
        return secrets.text(commit)
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return repository.commit_of(Path(unquote(urlsplit(str(origin.get("url", ""))).path)))


def _add_module(package: dict[str, Any]) -> None:
    """Adds the version and file of the imported module, which matter if it is not the copy that the metadata
    describes."""
    name = package["name"]
    module = sys.modules.get(_MODULES.get(name, name.replace("-", "_")))
    contents = getattr(module, "__dict__", None)
    if not isinstance(contents, dict):
        return
    version = contents.get("__version__")
    if isinstance(version, str):
        package["imported"] = secrets.text(version)
    file = contents.get("__file__")
    if name in NUMERIC and isinstance(file, str):
        package["origin"] = secrets.text(file)
