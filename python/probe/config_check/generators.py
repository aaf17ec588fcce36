"""Positions of a process's random generators: fingerprints of their states and the number of draws so far.

Reads only: no generator is advanced, and none is created on an unused device.
"""

from __future__ import annotations

import random
import struct
import sys
from array import array
from typing import Any, NamedTuple

from probe.config_check import digests

_WORDS = 624
# First word of a twister seeded with more than one number, as libraries do when they seed themselves, until the words
# are regenerated for the first time.
_FRESH = b"\x00\x00\x00\x80"
# Most words to step through when counting draws: a few hundredths of a second.
_MAX_DRAWS = 20_000_000


class Twister(NamedTuple):
    """State of a Mersenne twister: its 624 words, and the position of the next one."""

    words: bytes
    position: int


class Snapshot(NamedTuple):
    """States of the generators at one moment, as returned by their libraries."""

    python: Any
    numpy: Any
    torch: bytes | None
    devices: dict[str, dict[str, Any]]


def snapshot() -> Snapshot:
    """Returns the current states. Cheap; `describe` does the work later."""
    numpy = sys.modules.get("numpy")
    torch = sys.modules.get("torch")
    legacy = getattr(numpy, "random", None)
    cpu: bytes | None = None
    devices: dict[str, dict[str, Any]] = {}
    if torch is not None and hasattr(torch, "default_generator"):
        cpu = _tensor_bytes(torch.get_rng_state())
        devices = _device_states(torch)
    return Snapshot(
        random.getstate(), legacy.get_state(legacy=False) if hasattr(legacy, "get_state") else None, cpu, devices
    )


def describe(now: Snapshot, origins: dict[str, Twister | None]) -> dict[str, dict[str, Any]]:
    """Returns the generators as a mark of `random.json`. `origins` are the states right after seeding."""
    found = {"python": {"state": digests.of_bytes(repr(now.python).encode())}}
    _add_draws(found["python"], "python", origins, twister(now, "python"))
    if now.numpy is not None:
        state = now.numpy
        key, position = state["state"], state["bit_generator"]
        if position == "MT19937":
            content = key["key"].astype("<u4", copy=False).tobytes() + struct.pack("<Q", int(key["pos"]))
            found["numpy"] = {"state": digests.of_bytes(content)}
            _add_draws(found["numpy"], "numpy", origins, twister(now, "numpy"))
        else:
            found["numpy"] = {"state": digests.of_bytes(repr(state).encode())}
    if now.torch is not None:
        found["torch"] = {"state": digests.of_bytes(now.torch)}
        _add_draws(found["torch"], "torch", origins, twister(now, "torch"))
    found.update(now.devices)
    return found


def twister(now: Snapshot, generator: str) -> Twister | None:
    """Returns the state of one generator if it is a Mersenne twister."""
    if generator == "python":
        words = now.python[1]
        return Twister(_little(words[:_WORDS]), int(words[_WORDS])) if len(words) == _WORDS + 1 else None
    if generator == "numpy" and now.numpy is not None and now.numpy["bit_generator"] == "MT19937":
        state = now.numpy["state"]
        return Twister(state["key"].astype("<u4", copy=False).tobytes(), int(state["pos"]))
    if generator == "torch" and now.torch is not None:
        return torch_twister(now.torch)
    return None


def torch_twister(state: bytes) -> Twister | None:
    """Words and position from the state of torch's CPU generator: seed, words left, seeded, next, 624 words of 8
    bytes."""
    if len(state) < 24 + 8 * _WORDS:
        return None
    _, left, _, _ = struct.unpack_from("<QiiQ", state)
    wide = array("Q")
    wide.frombytes(state[24 : 24 + 8 * _WORDS])
    if sys.byteorder != "little" or not 1 <= left <= _WORDS:
        return None
    return Twister(_little(wide), _WORDS - left + 1)


def seeded(seed: int) -> Twister | None:
    """State of torch's CPU generator right after `seed` was set, taken from a temporary generator."""
    torch = sys.modules["torch"]
    generator = torch.Generator("cpu")
    generator.manual_seed(seed)
    return torch_twister(_tensor_bytes(generator.get_state()))


def _add_draws(state: dict[str, Any], generator: str, origins: dict[str, Twister | None], now: Twister | None) -> None:
    if now is None:
        return
    if generator not in origins:
        # Nothing seeded it. An unseeded twister begins with all words used up; NumPy's with all but one.
        if now.words[:4] == _FRESH and now.position == (_WORDS - 1 if generator == "numpy" else _WORDS):
            state["untouched"] = True
        return
    origin = origins[generator]
    if origin is None:
        return
    draws = digests.mersenne_draws(origin.words, origin.position, now.words, now.position, _MAX_DRAWS)
    if draws is not None:
        state["draws"] = draws


def _little(words: Any) -> bytes:
    return struct.pack(f"<{_WORDS}I", *words)


def _tensor_bytes(tensor: Any) -> bytes:
    return bytes(tensor.untyped_storage()) if tensor.numel() < 64 else tensor.numpy().tobytes()


def _device_states(torch: Any) -> dict[str, dict[str, Any]]:
    """Seed and offset of the device generators, if the device is already in use."""
    found: dict[str, dict[str, Any]] = {}
    for library in (torch.cuda, getattr(torch, "npu", None)):
        if library is None or not getattr(library, "is_initialized", bool)():
            continue
        for index, generator in enumerate(getattr(library, "default_generators", ())):
            state: dict[str, Any] = {"seed": int(generator.initial_seed())}
            try:
                raw = _tensor_bytes(generator.get_state().cpu())
                state["state"] = digests.of_bytes(raw)
                if len(raw) >= 16:
                    state["offset"] = struct.unpack("<Q", raw[-8:])[0]
            except RuntimeError:
                # The state cannot be read during graph capture.
                pass
            found[f"device.{index}"] = state
    return found
