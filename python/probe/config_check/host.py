"""Part `platform`: machine, operating system, driver and native library versions; also the kind of device."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

_ASCEND_HOME = "/usr/local/Ascend"


def collect() -> dict[str, Any]:
    """Returns the machine as in `platform.json`."""
    import torch

    found: dict[str, Any] = {
        **of_python(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": _blas(torch.__config__.show()),
        "threads": {"intra_op": torch.get_num_threads(), "inter_op": torch.get_num_interop_threads()},
        "torch": {"git": torch.version.git_version},
    }
    if torch.version.cuda is not None:
        found["gpu"] = _gpu()
    elif getattr(torch.version, "hip", None):
        found["gpu"] = {"rocm": torch.version.hip}
    below = npu()
    if below:
        found["npu"] = below
    return _without_none(found)


def of_python() -> dict[str, Any]:
    """Returns what does not depend on a framework."""
    found = {
        "python": platform.python_version(),
        "os": platform.system(),
        "os_release": platform.release(),
        "arch": platform.machine(),
        "libc": " ".join(filter(None, platform.libc_ver())) or None,
        "cpu": _processor(),
    }
    return _without_none(found)


def device(model: Any) -> dict[str, Any]:
    """Kind, product names and number of the devices, for the manifest. The kind is that of the model's device, if it
    has one."""
    import torch

    kind = next((tensor.device.type for tensor in _tensors(model)), "cpu")
    kind = {"cuda": "gpu", "npu": "npu", "privateuseone": "npu"}.get(kind, "cpu")
    library = {"gpu": torch.cuda, "npu": getattr(torch, "npu", None)}.get(kind)
    if library is None:
        return {"kind": "cpu", "names": [], "count": 0}
    count = int(library.device_count())
    names = [str(library.get_device_name(index)) for index in range(count)]
    return {"kind": kind, "names": list(dict.fromkeys(names)), "count": count}


def _tensors(model: Any) -> Any:
    if model is None:
        return
    yield from model.parameters()
    yield from model.buffers()


def _processor() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.lower().startswith(("model name", "hardware", "cpu model")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


def _blas(configuration: str) -> str | None:
    """Extracts, for example, `Intel(R) oneAPI Math Kernel Library Version 2024.2, oneDNN v3.7.1` from torch's build
    description."""
    found = re.findall(
        r"^\s*- ((?:Intel\(R\) (?:oneAPI )?Math Kernel Library Version \S+)|(?:OpenBLAS[^\n]*)|(?:Intel\(R\) MKL-DNN v\S+))",
        configuration,
        re.M,
    )
    used = re.search(r"BLAS_INFO=(\w+)", configuration)
    return ", ".join([*found, *([f"BLAS_INFO={used[1]}"] if used else [])]) or None


def _gpu() -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {"cuda": torch.version.cuda}
    version = torch.backends.cudnn.version()
    found["cudnn"] = str(version) if version else None
    if torch.cuda.is_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        text = _first_line("/proc/driver/nvidia/version")
        match = re.search(r"\s(\d{3,}\.\d[\d.]*)\s", text or "")
        found["driver"] = match[1] if match else None
    return found


def npu() -> dict[str, Any]:
    """Versions of the software below an NPU, as far as files tell. Not tested on one."""
    home = os.environ.get("ASCEND_TOOLKIT_HOME") or os.environ.get("ASCEND_HOME_PATH")
    toolkits = [Path(home)] if home else [Path(_ASCEND_HOME, "ascend-toolkit", "latest")]
    found = {
        "driver": _version(Path(_ASCEND_HOME, "driver", "version.info")),
        "firmware": _version(Path(_ASCEND_HOME, "firmware", "version.info")),
    }
    for toolkit in toolkits:
        found["cann"] = next(filter(None, map(_version, [toolkit / "version.info", toolkit / "version.cfg"])), None)
        found["cann"] = found["cann"] or next(
            filter(None, map(_version, sorted(toolkit.glob("*/ascend_toolkit_install.info")))), None
        )
        found["hccl"] = next(filter(None, map(_version, sorted(toolkit.glob("hccl/version.info")))), None)
    return {name: value for name, value in found.items() if value}


def _version(path: Path) -> str | None:
    try:
        text = path.read_text("utf-8", "replace")[:65536]
    except OSError:
        return None
    match = re.search(r"^\s*version\s*=\s*\"?\[?([\w.+-]+)", text, re.M | re.I)
    return match[1] if match else None


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline()
    except OSError:
        return None


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(item) for name, item in value.items() if item is not None}
    return value
