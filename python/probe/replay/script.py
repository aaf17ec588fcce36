"""A script that shows a fault without probe: `repro.py`, `inputs.safetensors` and `ISSUE.md`. Holds no path, host or user of this machine."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from probe.patterns import torch_spelling
from probe.replay import errors, evaluate, fault, functions, modules
from probe.replay.errors import UNIT
from probe.replay.one import Outcome
from probe.replay.recorded import Call, NotReplayed, leaves
from probe.replay.shrink import shrunk

#: Names of types in safetensors files.
_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL", torch.complex64: "C64", torch.complex128: "C128",
}  # fmt: skip

#: What a result may be off by: over all elements, in one, and the least scale.
Allowed = dict[str, tuple[float, float, float]]
#: Times what a result may be off by, from which on it is wrong.
_LIMIT = 2.0**fault.BITS
#: A call is made smaller while it fails by as much, up to this factor.
_STAYS = 8.0
#: Bytes of inputs up to which a call that does not fail here is left as it is.
_SMALL = 56 << 10

_TEMPLATE = '''"""{title} against float64. Needs torch alone; torch_npu is used where it is there.

python repro.py [DEVICE]   exit code 1: further from float64 than {bound:g} times what it may be
"""
import contextlib, json, math, os, sys
import torch
with contextlib.suppress(ImportError):
    import torch_npu
DEVICE = sys.argv[1] if len(sys.argv) > 1 else {device}
KINDS = {kinds}
STRIDES = {strides}
ALLOWED = {allowed}  # over all elements, in one, and the least scale
TINY = 2.0 ** -30

def read(path):
    data, found = open(path, "rb").read(), {{}}
    size = 8 + int.from_bytes(data[:8], "little")
    for name, of in json.loads(data[8:size]).items():
        first, last = of["data_offsets"]
        flat = torch.frombuffer(bytearray(data[size + first:size + last] or bytes(16)), dtype=KINDS[of["dtype"]])
        found[name] = flat[:math.prod(of["shape"])].reshape(of["shape"])
    return found

def call(t):
{body}

def wide(tensor, shake=0.0):
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor.clone()
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64) * (1 + shake * torch.randn(tensor.shape, dtype=torch.float64))

def ratio(y, h, shaken, l2, peak, least):
    if not (y.is_floating_point() or y.is_complex()):
        return math.inf if bool((y != h.to(y.dtype)).any()) else 0.0
    finite = torch.isfinite(h.to(y.dtype))
    if bool((torch.isfinite(y) != finite).any()):
        return math.inf
    scale = torch.where(finite, (h.abs() ** 2 + sum(((s - h).abs() / TINY) ** 2 for s in shaken) / 2).sqrt(), 0.0)
    off = torch.where(finite, (y.to(h.dtype) - h).abs(), 0.0)
    return max(float(off.norm() / (scale.norm() + least)) / l2, float((off / (scale + scale.square().mean().sqrt() / 8 + least)).max()) / peak)

torch.manual_seed(1)
T = read(os.path.join(os.path.dirname(os.path.abspath(__file__)), "inputs.safetensors"))
given = {{n: t for n, t in T.items() if not n.startswith("recorded.")}}
exact, *shaken = [call({{n: wide(t, shake) for n, t in given.items()}}) for shake in (0.0, TINY, TINY)]
laid = {{n: torch.empty_strided(t.shape, STRIDES.get(n, t.stride()), dtype=t.dtype, device=DEVICE) for n, t in given.items()}}
here = call({{n: laid[n].copy_(t) for n, t in given.items()}})
failed = False
for path in ALLOWED:
    for label, result in (("here on " + DEVICE, here[path].detach().cpu()), ("as recorded", T.get("recorded." + path))):
        if result is not None:
            times = ratio(result, exact[path], [each[path] for each in shaken], *ALLOWED[path])
            print(f"{{label}}, output.{{path}}: {{times:.3g}} times as far from float64 as is usual, and beyond 8 is wrong (torch {{torch.__version__}})")
            failed |= label != "as recorded" and not times <= {bound:g}
sys.exit(failed)
'''


def write(outcome: Outcome, folder: Path, environment: dict[str, str]) -> list[str]:
    """Writes the three files into a new folder; returns what to tell the user. Raises NotReplayed, OSError."""
    call = as_written(outcome.candidate.call)
    paths = dict(zip(outcome.candidate.call.results, call.results))
    allowed = {paths[path]: bounds for path, bounds in _allowed(outcome).items()}
    ratio = _ratio(call, outcome.device, allowed) if outcome.candidate.replays else 0.0
    fails = ratio > _LIMIT
    if fails:
        small = shrunk(call, lambda each: _still_fails(each, outcome.device, allowed, ratio))
        recorded = call.results if small is call else {}
    else:
        small = _by_record(call, allowed)
        recorded = small.results
    tensors = {**_given(small), **{f"recorded.{path}": result for path, result in recorded.items()}}
    folder.mkdir(parents=True)
    (folder / "inputs.safetensors").write_bytes(_stored(tensors))
    (folder / "repro.py").write_text(_text(small, allowed, outcome), encoding="utf-8")
    (folder / "ISSUE.md").write_text(_issue(outcome, small, environment), encoding="utf-8")
    shown = f"fails here on {outcome.device}" if fails else f"does not fail here on {outcome.device}: run it where the dump was made"
    told = [f"written: {folder}/repro.py, inputs.safetensors, ISSUE.md; it {shown}"]
    if not fails and small is not call:
        told.append(f"the inputs were cut to {_bytes(small) // 1024} KiB, which the recorded result shows to be enough")
    return told


def as_written(call: Call) -> Call:
    """Returns a call as the script makes it: a call of a function. Raises NotReplayed where there is no such script, before anything is judged."""
    if call.is_module:
        call = modules.as_function(call)
    if call.of_last_node:
        call = _by_autograd(call)
    for tensor in (*call.tensors().values(), *call.results.values()):
        if tensor.dtype not in _NAMES:
            raise NotReplayed(f"safetensors files have no type {tensor.dtype}")
    return call


def _by_record(call: Call, allowed: Allowed) -> Call:
    """Cuts a call that does not fail on this machine until its file is small: to rows of which the recorded result is still wrong."""
    exact = {f"exact.{path}": value for path, value in evaluate.reference(call).items()}
    plain = replace(call, results={path: call.results[path] for path in allowed})
    if _beyond(plain, plain.results, allowed) <= _LIMIT:
        return call

    def shows(each: Call) -> bool:
        results = {path: each.results[path] for path in allowed}
        small = evaluate.reference(each)
        alone = all(_is_same(small[path], each.results[f"exact.{path}"]) for path in allowed)
        return alone and _beyond(replace(each, results=results), results, allowed) > _LIMIT

    found = shrunk(replace(plain, results={**plain.results, **exact}), shows, lambda each: _bytes(each) <= _SMALL)
    return call if found.results.keys() == call.results.keys() else replace(found, results={path: found.results[path] for path in allowed})


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or not (one.is_floating_point() or one.is_complex()):
        return one.shape == other.shape and torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-9, atol=1e-9 * float(torch.nan_to_num(other.abs(), 0.0, 0.0).max()), equal_nan=True)


def _bytes(call: Call) -> int:
    tensors = {id(each): each for each in (*call.tensors().values(), *(value for path, value in call.results.items() if not path.startswith("exact.")))}
    return sum(each.numel() * each.element_size() for each in tensors.values())


def _given(call: Call) -> dict[str, torch.Tensor]:
    """Returns everything the call read, by path; a tensor that occurs twice by the first."""
    return {path: tensor for path, tensor in call.tensors().items() if _names_of(call)[id(tensor)] == path}


def _names_of(call: Call) -> dict[int, str]:
    """Returns the first path of each tensor that the call read, by identity."""
    found: dict[int, str] = {}
    for path, tensor in call.tensors().items():
        found.setdefault(id(tensor), path)
    return found


def _by_autograd(call: Call) -> Call:
    """Returns a backward call of the older tool as one of autograd. Raises NotReplayed where its gradients are not those of arguments."""
    if call.gradients is None:
        return replace(call, of_last_node=False)
    plain = replace(call, of_last_node=False)
    expected, found = evaluate.reference(call), evaluate.reference(plain)
    if not all(path in found and found[path].shape == expected[path].shape and torch.allclose(found[path], expected[path], rtol=1e-9) for path in call.results):
        raise NotReplayed("what was recorded are gradients inside the function; record it with probe for those of its arguments")
    return plain


def _allowed(outcome: Outcome) -> Allowed:
    """Returns what each result may be off by. Integers must be equal."""
    found = {}
    trusted = {each.path: each for each in (outcome.baseline.measured.errors[outcome.op] if outcome.baseline is not None else [])}
    for error in outcome.candidate.measured.errors[outcome.op]:
        known = error.dtype in UNIT
        bounds = fault.allowed(outcome.candidate.measured, outcome.op, error, trusted.get(error.path)) if known else (0.0, 0.0)
        found[error.path] = (*bounds, errors.least(error.dtype) if known else 0.0)
    return found


def _ratio(call: Call, device: str, allowed: Allowed) -> float:
    """Returns how many times further off than it may be the call is on this device; 0 if it does not run."""
    try:
        results = evaluate.here(call, device)
        kept = {path: results[path] for path in allowed}
        return _beyond(replace(call, results=kept), kept, allowed)
    except Exception:
        return 0.0


def _still_fails(call: Call, device: str, allowed: Allowed, ratio: float) -> bool:
    """Returns true if the call fails on the device by as much as before, and not on the host: one that normalises over few elements fails on
    any device."""
    here = _ratio(call, device, allowed)
    # Near the limit, the script's own draws of the scale must not decide.
    least = max(ratio / _STAYS, min(0.9 * ratio, 2 * _LIMIT))
    # A result that is not finite is infinitely far off.
    return (here == ratio or least < here < ratio * _STAYS) and (device == "cpu" or _ratio(call, "cpu", allowed) < _LIMIT / 2)


def _beyond(call: Call, results: dict[str, torch.Tensor], allowed: Allowed) -> float:
    """Returns how many times further off than they may be the results of a call are."""
    ratios = [0.0]
    for error in errors.errors(results, errors.reference(call)):
        l2, peak, _ = allowed[error.path]
        ratios.append(max(error.l2 / l2, error.peak / peak) if l2 else math.inf if error.l2 else 0.0)
    return max(ratios)


def _text(call: Call, allowed: Allowed, outcome: Outcome) -> str:
    kind = (outcome.candidate.call.device or outcome.device).partition(":")[0]
    strides = {path: list(tensor.stride()) for path, tensor in _given(call).items() if not tensor.is_contiguous() and 0 not in tensor.stride()}
    used = {each.dtype for each in (*call.tensors().values(), *outcome.candidate.call.results.values())}
    kinds = "{" + ", ".join(f'"{_NAMES[each]}": {each}' for each in _NAMES if each in used) + "}"
    return _TEMPLATE.format(
        kinds=kinds,
        title=torch_spelling(call.api), bound=_LIMIT, device=json.dumps(kind), body=_body(call), strides=strides,
        allowed={path: tuple(float(f"{bound:.4g}") for bound in bounds) for path, bounds in allowed.items()},
    )  # fmt: skip


def _body(call: Call) -> str:
    """Returns the lines of the function that makes the call and returns its results by path."""
    functions.resolve(call.api)
    names = _names_of(call)
    copied = " * 1" if call.gradients is not None and call.base.endswith("_") else ""
    given = [_code(each, names, copied) for each in call.args]
    given += [f"{name}={_code(each, names)}" for name, each in call.kwargs.items() if name not in ("out", "device", "pin_memory", "layout")]
    if call.base in ("_softmax", "_log_softmax") and len(given) == 3:
        given[2] = f"{call.args[2]} and t['input.0'].dtype != torch.float64"
    made, written = _made(call)
    lines = []
    if call.gradients is not None:
        paths = [names[id(_argument(call, path))] for path in sorted(call.results)]
        lines.append(f"    inputs = [t[name].requires_grad_() for name in {paths}]")
    lines.append(f"    r = {torch_spelling(call.api)}({', '.join(given)})")
    if written:
        lines.append(f"    r = {{{', '.join(f'{path!r}: t[{names[id(tensor)]!r}]' for path, tensor in made.items())}}}")
    else:
        lines.append("    r = {'0': r}" if list(made) == [""] or not made else "    r = {str(place): each for place, each in enumerate(r)}")
    if call.gradients is None:
        return "\n".join([*lines, "    return r"])
    outputs = [f"r[{path!r}]" for path in call.gradients]
    gradients = [f"t[{names[id(each)]!r}]" for each in call.gradients.values()]
    lines.append(f"    found = torch.autograd.grad([{', '.join(outputs)}], inputs, [{', '.join(gradients)}])")
    lines.append(f"    return dict(zip({sorted(call.results)}, found))")
    return "\n".join(lines)


def _argument(call: Call, path: str) -> torch.Tensor:
    tensors = call.tensors()
    return tensors.get(f"input.{path}", tensors.get(f"kwarg.{path}", torch.empty(0)))


def _made(call: Call) -> tuple[dict[str, torch.Tensor], bool]:
    """Returns the results of the function, by path; and true if it returns none and they are the arguments that it writes to."""
    seen: dict[int, torch.Tensor] = {}
    args, kwargs = evaluate.mapped(evaluate.widened, call.args, seen), evaluate.mapped(evaluate.widened, call.kwargs, seen)
    with torch.no_grad():
        returned = functions.resolve(call.api)(*args, **{name: value for name, value in kwargs.items() if name not in ("device", "out")})
    if found := leaves(returned):
        return found, False
    return evaluate.written(call, call.args, call.kwargs), True


def _code(value: Any, names: dict[int, str], copied: str = "") -> str:
    """Returns an argument as Python has it."""
    if isinstance(value, torch.Tensor):
        return f"t[{names[id(value)]!r}]{copied}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_code(each, names) for each in value)
        return f"({inner},)" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {_code(each, names)}" for name, each in value.items()) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, torch.device):
        return "next((each.device for each in t.values()), DEVICE)"
    if value in (torch.float32, torch.float16, torch.bfloat16) and isinstance(value, torch.dtype):
        # The argument that says how to compute says float64 for the reference.
        return f"(torch.float64 if any(each.dtype == torch.float64 for each in t.values()) else {value})"
    return repr(value)


def _stored(tensors: dict[str, torch.Tensor]) -> bytes:
    """Returns a safetensors file. Raises NotReplayed for a type that the format lacks."""
    header: dict[str, Any] = {}
    body = bytearray()
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise NotReplayed(f"safetensors files have no type {tensor.dtype}")
        data = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(body)


def _issue(outcome: Outcome, small: Call, environment: dict[str, str]) -> str:
    """Returns the text of a report, in the order that issue templates ask for."""
    function = torch_spelling(small.api)
    found = outcome.faults[0] if outcome.faults else None
    phase = ", backward" if small.is_backward else ""
    lines = [f"# {function}{phase}: {_headline(outcome)}", "", "## Describe the bug", ""]
    if found is not None:
        times = found.error / found.allowed
        lines.append(f"Output {found.path} is {times:.3g} times as far from a float64 reference as it may be: {found.error:.1e} against {found.allowed:.1e} ({found.source}).")
    lines += [
        "Errors are in units of what a relative error of 1 in the inputs does to the result, so cancellation in the function is allowed for.", "",
        "## To reproduce", "", "`python repro.py [DEVICE]` beside `inputs.safetensors`; it needs torch alone and exits with code 1 where the result is wrong.", "",
        "| argument | type | shape | strides |", "|---|---|---|---|",
    ]  # fmt: skip
    lines += [f"| {path} | {str(each.dtype).removeprefix('torch.')} | {list(each.shape)} | {list(each.stride())} |" for path, each in small.tensors().items()]
    plain = [f"{place}: {each!r}" for place, each in enumerate(small.args) if not leaves(each)] + [f"{name}={each!r}" for name, each in small.kwargs.items() if not leaves(each)]
    lines += ["", f"Other arguments: {', '.join(plain) or 'none'}.", "", "## Expected and seen", "", "```", *_numbers(outcome), "```", "", "## Versions", ""]
    lines += [f"- recorded with: {_recorded_with(environment)}", f"- device of the recording: {outcome.candidate.call.device or 'not recorded'}", f"- replayed with: torch {torch.__version__} on {outcome.device}"]
    return "\n".join(lines) + "\n"


def _headline(outcome: Outcome) -> str:
    return "wrong result" if outcome.guilty in ("candidate", "both") else "results against float64"


def _numbers(outcome: Outcome) -> list[str]:
    from probe.replay import answer

    return answer.text(outcome).splitlines()[2:]


def _recorded_with(environment: dict[str, str]) -> str:
    """Returns versions alone: an environment may name hosts and users."""
    kept = [f"{name} {environment[name]}" for name in ("torch", "torch_npu", "cann", "cuda", "python") if name in environment]
    return ", ".join(kept) or "not recorded"
