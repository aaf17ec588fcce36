"""The arithmetic of another device, put under PyTorch: below autograd and below capture, so that a dump sees only its results.

    Device({"compute": "float64", "fault": [{"op": "gelu", "call": 1, "what": "scale", "by": 1.01}]})

`compute`: every operator reads its floats in this type and rounds its results back: another device's rounding.
`fault`: one operator computes wrongly. Keys: `op` (aten name), `call` (its number within a step and phase), `phase`
(forward or backward), `output` (which of its results), `step`, `rank` (absent = every one), `what` and its numbers (see `spoil`).
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

# Only the library itself is called below: capture has replaced the public functions and would record them.
aten = torch.ops.aten
KEEP = {"_to_copy", "detach", "lift_fresh", "clone", "copy_", "_local_scalar_dense", "alias"}


def spoil(out, f):
    """One wrong result: a copy of `out` with the fault `f` in it."""
    out = aten.clone(out, memory_format=torch.contiguous_format)
    flat, what, at = aten.view(out, [-1]), f["what"], f.get("at", 0)
    if what == "scale":
        aten.mul_(out, f["by"])
    elif what == "element":
        one = aten.slice(flat, 0, at, at + 1)
        aten.mul_(one, f["by"]) if "by" in f else aten.fill_(one, float(f["value"]))
    elif what == "negate":
        aten.neg_(aten.slice(flat, 0, at, at + f["count"]))
    elif what in ("row", "swap"):
        rows = aten.view(out, [-1, out.shape[-1]])
        one = aten.select(rows, 0, at)
        if what == "row":
            aten.mul_(one, f["by"])
        else:
            other = aten.select(rows, 0, f["with"])
            kept = aten.clone(one)
            aten.copy_(one, other)
            aten.copy_(other, kept)
    else:
        raise ValueError(what)
    return out


def wrong_gelu(x):
    """The tanh form with 0.8 where sqrt(2/pi) = 0.79788 belongs."""
    inner = aten.mul(aten.add(x, aten.pow(x, 3), alpha=0.044715), 0.8)
    return aten.mul(aten.mul(x, 0.5), aten.add(aten.tanh(inner), 1))


class Device(TorchDispatchMode):
    def __init__(self, spec, rank=0):
        super().__init__()
        self.compute = getattr(torch, spec["compute"]) if "compute" in spec else None
        self.matmul = spec.get("matmul")
        self.faults = [f for f in spec.get("fault", []) if f.get("rank", rank) == rank]
        self.hits = 0
        self.begin(0)

    def begin(self, step):
        self.step, self.calls = step, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        backward = torch._C._current_graph_task_id() != -1
        key = (name, backward)
        call = self.calls.get(key, 0)
        self.calls[key] = call + 1
        faults = [
            f
            for f in self.faults
            if f["op"] == name
            and f.get("call", 0) == call
            and (f.get("phase", "forward") == "backward") == backward
            and f.get("step", self.step) == self.step
        ]
        for f in faults:
            if f["what"] == "compute":
                return self.through(func, args, kwargs, getattr(torch, f["dtype"]))
            if f["what"] == "wrong_gelu":
                return wrong_gelu(args[0])
        if self.matmul and name in ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"):
            args = tree_map_only(torch.Tensor, self.short, args)
        out = self.through(func, args, kwargs, self.compute) if self.compute else func(*args, **kwargs)
        for f in faults:
            if isinstance(out, (tuple, list)):
                i = f.get("output", 0)
                out = type(out)(spoil(t, f) if j == i else t for j, t in enumerate(out))
            else:
                out = spoil(out, f)
        return out

    def short(self, t):
        """A float32 operand as a TF32 unit reads it: 10 bits of mantissa, rounded to nearest."""
        if t.dtype != torch.float32:
            return t
        bits = aten.view(aten.contiguous(t), torch.int32)
        odd = aten.bitwise_and(aten.bitwise_right_shift(bits, 13), 1)
        return aten.view(aten.bitwise_and(aten.add(aten.add(bits, 0xFFF), odd), ~0x1FFF), torch.float32)

    def through(self, func, args, kwargs, dtype):
        name, schema = func.overloadpacket.__name__, func._schema
        aliases = any(r.alias_info is not None for r in schema.returns)
        random = torch.Tag.nondeterministic_seeded in func.tags
        floats = []

        def up(t):
            if t.dtype.is_floating_point and t.dtype != dtype:
                floats.append(t)
                return aten._to_copy(t, dtype=dtype)
            return aten.clone(t) if name == "native_batch_norm" else t

        if name in KEEP or aliases or random or schema.is_mutable:
            return func(*args, **kwargs)
        a, k = tree_map_only(torch.Tensor, up, args), tree_map_only(torch.Tensor, up, kwargs)
        if not floats or "dtype" in kwargs and kwargs["dtype"] is not None:
            return func(*args, **kwargs)
        plain = func(*args, **kwargs)  # gives the types of the results, and updates running statistics
        other = func(*a, **k)

        def down(p, t):
            return aten._to_copy(t, dtype=p.dtype) if isinstance(t, torch.Tensor) and isinstance(p, torch.Tensor) else p

        if isinstance(plain, (tuple, list)):
            return type(plain)(down(p, t) for p, t in zip(plain, other))
        return down(plain, other)
