"""Another device, put under PyTorch: kernels at the dispatch key BackendSelect, below modes, autograd and autocast, above CPU.

A recorder sees the same ops in the same order; only their results are another device's. It rounds otherwise, computes products
from inputs with a shorter mantissa, or computes single calls wrongly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

import faults
import rounding
from rounding import aten, cpu

#: Ops that round as the device does. All of them sum up, or approximate a function.
ROUNDED = """
mm addmm bmm baddbmm convolution convolution_backward native_layer_norm native_layer_norm_backward
native_group_norm native_group_norm_backward native_batch_norm native_batch_norm_backward _softmax
_softmax_backward_data _log_softmax _log_softmax_backward_data _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward gelu gelu_backward silu silu_backward tanh tanh_backward
sigmoid sigmoid_backward exp log sin cos erf softplus softplus_backward rsqrt pow.Tensor_Scalar sum
sum.dim_IntList mean mean.dim var.correction linalg_vector_norm nll_loss_forward embedding_dense_backward
_adaptive_avg_pool2d _adaptive_avg_pool2d_backward avg_pool2d avg_pool2d_backward hardswish hardswish_backward
hardsigmoid hardsigmoid_backward elu elu_backward index_add index_add_ index_put_ _index_put_impl_ cumsum
logsumexp lerp_.Scalar addcmul_ addcdiv_ _fused_adamw_ _thnn_fused_lstm_cell upsample_bilinear2d
upsample_bilinear2d_backward cumprod lgamma digamma log1p atan _ctc_loss _ctc_loss_backward
""".split()
#: Ops whose results are the same on every device, but which may be at fault.
EXACT = """
add.Tensor mul.Tensor sub.Tensor div.Tensor add_.Tensor mul_.Tensor mul.Scalar embedding relu relu_
threshold_backward max_pool2d_with_indices max_pool2d_with_indices_backward index_select gather scatter.src
scatter.value scatter_.src nll_loss_backward cat masked_fill.Scalar masked_fill_.Scalar where.self
index.Tensor upsample_nearest2d upsample_nearest2d_backward roll sqrt div_.Tensor sqrt_ addcdiv copy_
""".split()

rounded = frozenset(ROUNDED)

#: The device that computes at the moment; None is the CPU as it is.
current: Device | None = None
registered: list[torch.library.Library] = []


#: Op, phase, step, and the number of the call in that phase of that step.
Key = tuple[str, str, int, int]


@dataclass
class Call:
    """One call of a kernel."""

    op: str
    phase: str
    step: int
    call: int
    shapes: list[tuple[int, ...]]
    dtypes: list[str]
    #: Places of arguments that are not contiguous and fill their memory.
    transposed: list[int]
    integers: bool

    @property
    def key(self) -> Key:
        return self.op, self.phase, self.step, self.call


@dataclass
class Device:
    """`style`: None, or one of `rounding.STYLES`. `products`: bits of mantissa that inputs of products keep; None is all of them."""

    style: str | None = None
    products: int | None = None
    faults: list[dict[str, Any]] = field(default_factory=list)
    #: Results of the baseline by call, to measure against.
    reference: dict[Key, list[torch.Tensor]] | None = None
    #: Keep the results of these calls.
    tape: dict[Key, list[torch.Tensor]] | None = None
    #: List every call.
    listing: bool = False
    step: int = 0
    phase: str = "forward"
    counts: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    calls: list[Call] = field(default_factory=list)
    #: Effects of each fault, in the order of the calls: see `measured`.
    hits: list[dict[str, Any]] = field(default_factory=list)
    #: Own rounding of each call, relative to the norm of the result, by op and type.
    levels: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    busy: bool = False
    #: Entered while this device computes: see `runs.Recorder.aside`.
    aside: Callable[[], AbstractContextManager[None]] = nullcontext

    def run(self, name: str, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call: the CPU's result, rounded as this device does, with the fault that this call has."""
        key = (name, self.phase, self.step)
        call = self.counts[key]
        self.counts[key] += 1
        wrong = [f for f in self.faults if (f["op"], f["phase"], f["step"], f["call"]) == (*key, call)]
        before = faults.written(op, args) if wrong else []
        noisy = self.style is not None and name in rounded
        kept = rounding.inputs_kept(op, args) if noisy or wrong else args
        result = cpu(op, *args, **kwargs)
        parts = rounding.tensors(op, args, result)
        own = 0.0
        if noisy and parts:
            plain = [rounding.clone(part) for part in parts]
            rounding.round_otherwise(self.style, self.products, name, op, kept, kwargs, parts)
            own = max((rounding.distance(a, b) for a, b in zip(plain, parts, strict=True)), default=0.0)
            self.levels.setdefault((name, str(parts[0].dtype)), []).append(own)
        if wrong:
            good = [rounding.clone(part) for part in parts]
            for fault in wrong:
                faults.spoil(fault, name, op, kept, kwargs, before, parts)
            self.hits.append(self.measured((*key, call), good, parts, own, name))
        if self.tape is not None and (*key, call) in self.tape:
            self.tape[(*key, call)] = [rounding.clone(part) for part in parts]
        if self.listing:
            transposed = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and faults.fits_memory(a)]
            shapes, dtypes = [tuple(p.shape) for p in parts], [str(p.dtype).removeprefix("torch.") for p in parts]
            self.calls.append(Call(*key, call, shapes, dtypes, transposed, faults.holds_integers(args)))
        return result

    def measured(
        self, key: Key, good: list[torch.Tensor], wrong: list[torch.Tensor], own: float, name: str
    ) -> dict[str, Any]:
        """Sizes relative to the norm of the result, the largest of all results:

        `fault` that of the fault; `own` the rounding of this very call; `total` the distance from the baseline without the fault.
        """
        total = 0.0
        if self.reference is not None and key in self.reference and len(self.reference[key]) == len(good):
            pairs = zip(self.reference[key], good, strict=True)
            total = max((rounding.distance(a, b) for a, b in pairs if a.shape == b.shape), default=0.0)
        size = max((rounding.distance(a, b) for a, b in zip(good, wrong, strict=True)), default=0.0)
        kind = str(good[0].dtype) if good else ""
        return {"key": key, "fault": size, "own": own, "total": total, "kind": (name, kind)}


def kernel(name: str, op: Any) -> Callable[..., Any]:
    places = [i for i, a in enumerate(op._schema.arguments) if str(a.type) == "Tensor" and not a.kwarg_only]

    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        device = current
        if any(isinstance(args[i], (int, float)) for i in places if i < len(args)):
            args = tuple(rounding.number(a, args[0]) if i in places else a for i, a in enumerate(args))
        if device is None or device.busy:
            return cpu(op, *args, **kwargs)
        device.busy = True
        try:
            with torch._C.DisableTorchFunction(), device.aside():
                return device.run(name, op, args, kwargs)
        finally:
            device.busy = False

    return run


def register() -> None:
    """Puts the kernels under every op that may round otherwise or be at fault. Once a process."""
    if registered:
        return
    library = torch.library.Library("aten", "IMPL")
    registered.append(library)
    for name in [*ROUNDED, *EXACT]:
        base, _, overload = name.partition(".")
        op = getattr(getattr(aten, base), overload or "default")
        library.impl(op, kernel(name, op), "BackendSelect", with_keyset=True)


@contextmanager
def computing(device: Device) -> Iterator[Device]:
    """`device` computes what follows."""
    global current
    register()
    current = device
    try:
        yield device
    finally:
        current = None
