"""Identities of bytes and tensors, computed by the compiled core; device tensors are copied to the host in bounded
pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from probe import _core
from probe.config_check import shards

# Most bytes of a device tensor in host memory at a time.
PIECE_BYTES = 64 << 20
# The core requires pieces of a multiple of this many elements.
_PIECE_ELEMENTS = 262_144

mersenne_draws = _core.mersenne_draws


def of_bytes(data: bytes) -> str:
    """xxh3-128 of `data` as 32 hexadecimal digits."""
    return _core.hash_bytes(data)


class TensorDigests:
    """Digests tensors of any device and layout."""

    def __init__(self, *, sketch: bool = True, unordered: bool = True, casts: bool = True) -> None:
        self._core = _core.Digester(sketch=sketch, unordered=unordered, casts=casts)

    def tensors(self, tensors: Iterable[Any]) -> list[dict[str, Any]]:
        """Returns `hash`, `statistics` and so on for each tensor; for an unreadable one, a `note` with the reason."""
        plain = [_plain(tensor) for tensor in tensors]
        results: list[dict[str, Any]] = [{} for _ in plain]
        on_host = [index for index, tensor in enumerate(plain) if not isinstance(tensor, str) and tensor.is_cpu]
        for index, found in zip(on_host, self._core.tensors([plain[index] for index in on_host])):
            results[index] = found if isinstance(found, dict) else {"note": found}
        for index, tensor in enumerate(plain):
            if isinstance(tensor, str):
                results[index] = {"note": tensor}
            elif not tensor.is_cpu:
                results[index] = self._fetched(tensor)
        return results

    def samples(self, tensor: Any) -> list[str] | None:
        """Hash of each slice along the first dimension."""
        plain = _plain(tensor)
        if isinstance(plain, str) or plain.dim() == 0:
            return None
        return self._core.samples(plain if plain.is_cpu else plain.cpu())

    def _fetched(self, tensor: Any) -> dict[str, Any]:
        """Digests a device tensor piece by piece."""
        if tensor.is_meta:
            return {"note": "no data"}
        if tensor.nbytes <= PIECE_BYTES:
            (found,) = self._core.tensors([tensor.cpu()])
            return found if isinstance(found, dict) else {"note": found}
        try:
            stream = self._core.stream(str(tensor.dtype))
        except ValueError as error:
            return {"note": str(error)}
        flat = tensor.contiguous().view(-1)
        step = max(PIECE_BYTES // tensor.element_size() // _PIECE_ELEMENTS, 1) * _PIECE_ELEMENTS
        for start in range(0, flat.numel(), step):
            stream.push(flat[start : start + step].cpu())
        return stream.finish()


def _plain(tensor: Any) -> Any:
    """Returns `tensor` as plain strided memory held by this process, or a text that says why there is none."""
    import torch

    tensor = shards.held(tensor)
    if isinstance(tensor, str):
        return tensor
    tensor = tensor.detach()
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return f"a {type(tensor).__name__}, which is not plain memory"
    if tensor.layout is not torch.strided:
        return f"{str(tensor.layout).removeprefix('torch.')}, not strided"
    if tensor.is_quantized:
        return "quantized"
    return tensor.resolve_conj().resolve_neg()
