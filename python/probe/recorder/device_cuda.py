"""The kernel that measures tensors of CUDA devices, compiled when it is first wanted.

`device_cuda.cu` is CUDA C++ without headers; NVRTC, which every build of torch for CUDA brings, compiles it for the device in about a second.
What comes of it is launched by the core (`probe._core.Kernel`), which takes a tenth of the time that a launch from Python takes.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from probe._core import Kernel
from probe.private.guards import Undisturbed
from probe.private.streams import cuda_queue

SOURCE = Path(__file__).with_name("device_cuda.cu")

#: The driver's library, which torch has loaded.
DRIVER = "libcuda.so.1"


def kernel(device: str, sketch: bool) -> Kernel:
    """The kernel for devices like this one. Raises RuntimeError or OSError with why there is none."""
    major, minor = torch.cuda.get_device_capability(device)
    return Kernel(DRIVER, compiled(f"sm_{major}{minor}"), sketch, _allocate, *cuda_queue())


def _allocate(index: int, size: int) -> tuple[torch.Tensor, int]:
    with Undisturbed():
        memory = torch.zeros(size, dtype=torch.uint8, device=torch.device("cuda", index))
    return memory, memory.data_ptr()


@lru_cache
def compiled(architecture: str) -> bytes:
    """Code for an architecture such as `sm_90`. Raises RuntimeError with what the compiler says."""
    library = _nvrtc()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = SOURCE.read_bytes()
    _checked(library, "nvrtcCreateProgram", ctypes.byref(program), source, SOURCE.name.encode(), 0, None, None)
    try:
        options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--std=c++17")
        try:
            _checked(library, "nvrtcCompileProgram", program, len(options), options)
        except RuntimeError as error:
            _checked(library, "nvrtcGetProgramLogSize", program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            _checked(library, "nvrtcGetProgramLog", program, log)
            raise RuntimeError(f"{error}: {log.value.decode(errors='replace')[:500]}") from None
        _checked(library, "nvrtcGetCUBINSize", program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        _checked(library, "nvrtcGetCUBIN", program, image)
        return image.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _checked(library: Any, name: str, *arguments: Any) -> None:
    status = getattr(library, name)(*arguments)
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"{name}: {library.nvrtcGetErrorString(status).decode()}")


def _nvrtc() -> Any:
    """The compiler's library, of the version that torch was built with."""
    reason = None
    for path in _places(str(torch.version.cuda).partition(".")[0]):
        try:
            return _loaded(path)
        except OSError as error:
            reason = error
    raise OSError(f"NVRTC is not found: {reason}")


def _places(major: str) -> Iterator[str]:
    name = f"libnvrtc.so.{major}"
    # Packages of NVIDIA's lie beside torch, or inside of it.
    packages = Path(torch.__file__).resolve().parents[1] / "nvidia"
    found = [*packages.glob(f"*/lib/{name}*"), *(Path(torch.__file__).resolve().parent / "lib").glob("libnvrtc*.so*")]
    yield from (str(path) for path in sorted(found) if ".alt." not in path.name and "builtins" not in path.name)
    # The library of an installed toolkit.
    yield name


def _loaded(path: str) -> Any:
    if "/" in path:
        # It asks for its other half by name.
        for other in sorted(Path(path).parent.glob("libnvrtc-builtins*.so*")):
            if ".alt." not in other.name:
                ctypes.CDLL(str(other), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(path)
