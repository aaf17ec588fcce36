"""Elements of small tensors: copied where they are, and brought to the host many at once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from probe.recorder.device_streams import current_stream, wait_for


class Copy:
    """Stands for the elements of one small tensor until they are fetched."""

    __slots__ = ("bytes", "device", "stream")

    def __init__(self, tensor: torch.Tensor, stream: Any) -> None:
        #: In row-major order, on the device.
        self.bytes = tensor
        self.device = tensor.device
        #: Queue of the device in which they are copied.
        self.stream = stream


def copied(tensor: torch.Tensor) -> Copy:
    """A copy of `tensor` as it is now."""
    same = tensor.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    return Copy(same.view(-1).view(torch.uint8), current_stream(tensor.device))


def elements(device: torch.device, copies: Sequence[Copy]) -> list[bytes]:
    """The bytes of `copies`, which are on `device`; waits for it."""
    wait_for(device, (copy.stream for copy in copies))
    everything = torch.cat([copy.bytes for copy in copies]).cpu()
    found, start = [], everything.data_ptr()
    for copy in copies:
        size = copy.bytes.numel()
        found.append(ctypes.string_at(start, size))
        start += size
    return found
