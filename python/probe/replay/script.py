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
from probe.replay import errors, evaluate, fault, functions
from probe.replay.errors import UNIT
from probe.replay.one import Outcome
from probe.replay.recorded import Call, NotReplayed, leaves
from probe.replay.shrink import shrunk

#: Names of types in safetensors files.
_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip

_TEMPLATE = '''"""{title} against float64. Needs torch alone; torch_npu is used where it is there.

python repro.py [DEVICE]   exit code 1: further from float64 than {bound:g} times what it may be
"""
import json, os, sys
import torch
try:
    import torch_npu
except ImportError:
    torch_npu = None
DEVICE = sys.argv[1] if len(sys.argv) > 1 else {device}
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
KINDS = {kinds}

def read(path):
    """Tensors of a safetensors file."""
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    found = {{}}
    for name, of in json.loads(data[8:8 + size]).items():
        first, last = of["data_offsets"]
        found[name] = torch.frombuffer(bytearray(data[8 + size + first:8 + size + last]), dtype=KINDS[of["dtype"]]).reshape(of["shape"])
    return found

def strided(tensor, strides, device):
    """The tensor in memory of its own with these strides."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=device).copy_(tensor)

def call(t):
{body}

def wide(tensor):
    return tensor.double() if tensor.dtype in FLOATS else tensor.clone()

torch.manual_seed(1)
T = read(os.path.join(os.path.dirname(os.path.abspath(__file__)), "inputs.safetensors"))
given = {{name: tensor for name, tensor in T.items() if not name.startswith("recorded.")}}
exact = call({{name: wide(tensor) for name, tensor in given.items()}})
tiny = 2.0 ** -30
shaken = [call({{n: wide(t) * (1 + tiny * torch.randn(t.shape, dtype=torch.float64)) if t.dtype in FLOATS else t.clone() for n, t in given.items()}}) for _ in range(2)]
STRIDES = {strides}
runs = {{"here on " + DEVICE: call({{n: strided(t, STRIDES[n], DEVICE) if n in STRIDES else t.to(DEVICE, copy=True) for n, t in given.items()}})}}
runs["as recorded"] = {{path: T["recorded." + path] for path in exact if "recorded." + path in T}}
worst = {{}}
for label, results in runs.items():
    for path, (l2, peak) in {allowed}.items():
        if path not in results:
            continue
        h = exact[path]
        y = results[path].detach().cpu()
        scale = (h ** 2 + sum(((s[path] - h) / tiny) ** 2 for s in shaken) / 2).sqrt()
        off = (y.double() - h).abs()
        least = torch.finfo(y.dtype).tiny * 2 ** 24
        ratio = max(float(off.norm() / (scale.norm() + least)) / l2, float((off / (scale + scale.square().mean().sqrt() / 8 + least)).max()) / peak)
        print(f"{{label}}, output.{{path}}: {{ratio:.3g}} times as far from float64 as it may be (torch {{torch.__version__}})")
        worst[label] = max(worst.get(label, 0.0), ratio if ratio == ratio else float("inf"))
sys.exit(worst["here on " + DEVICE] > {bound:g})
'''


def write(outcome: Outcome, folder: Path, environment: dict[str, str]) -> list[str]:
    """Writes the three files into a new folder; returns what to tell the user. Raises NotReplayed, OSError."""
    call = outcome.candidate.call
    if call.is_module:
        raise NotReplayed("a script is written of functions: choose one that the module calls")
    if call.of_last_node:
        call = _by_autograd(call)
    allowed = _allowed(outcome)
    fails = outcome.candidate.replays and _fails(call, outcome.device, allowed)
    small = shrunk(call, lambda each: _fails(each, outcome.device, allowed)) if fails else call
    tensors = {**small.tensors(), **({f"recorded.{path}": result for path, result in call.results.items()} if small is call else {})}
    folder.mkdir(parents=True)
    (folder / "inputs.safetensors").write_bytes(_stored(tensors))
    (folder / "repro.py").write_text(_text(small, allowed, outcome), encoding="utf-8")
    (folder / "ISSUE.md").write_text(_issue(outcome, small, environment), encoding="utf-8")
    shown = f"fails here on {outcome.device}" if fails else f"does not fail here on {outcome.device}: run it where the dump was made"
    return [f"written: {folder}/repro.py, inputs.safetensors, ISSUE.md; it {shown}"]


def _by_autograd(call: Call) -> Call:
    """Returns a backward call of the older tool as one of autograd. Raises NotReplayed where its gradients are not those of arguments."""
    if call.gradients is None:
        return replace(call, of_last_node=False)
    plain = replace(call, of_last_node=False)
    expected, found = evaluate.reference(call), evaluate.reference(plain)
    if not all(path in found and found[path].shape == expected[path].shape and torch.allclose(found[path], expected[path], rtol=1e-9) for path in call.results):
        raise NotReplayed("what was recorded are gradients inside the function; record it with probe for those of its arguments")
    return plain


def _allowed(outcome: Outcome) -> dict[str, tuple[float, float]]:
    """Returns what each result may be off by, over all elements and in one."""
    found = {}
    trusted = {each.path: each for each in (outcome.baseline.measured.errors[outcome.op] if outcome.baseline is not None else [])}
    for error in outcome.candidate.measured.errors[outcome.op]:
        if error.dtype not in UNIT:
            continue
        found[error.path] = fault.allowed(outcome.candidate.measured, outcome.op, error, trusted.get(error.path))
    if not found:
        raise NotReplayed("its results are integers: compare them as they are")
    return found


def _fails(call: Call, device: str, allowed: dict[str, tuple[float, float]]) -> bool:
    """Returns true if the call is beyond the bound on this device."""
    try:
        results = evaluate.here(call, device)
        kept = {path: results[path] for path in allowed}
        reference = errors.reference(replace(call, results=kept))
        found = errors.errors(kept, reference)
    except Exception:
        return False
    limit = 2.0**fault.BITS
    return any(error.l2 > limit * allowed[error.path][0] or error.peak > limit * allowed[error.path][1] for error in found)


def _text(call: Call, allowed: dict[str, tuple[float, float]], outcome: Outcome) -> str:
    kind = (outcome.candidate.call.device or outcome.device).partition(":")[0]
    strides = {path: list(tensor.stride()) for path, tensor in call.tensors().items() if not tensor.is_contiguous() and 0 not in tensor.stride()}
    used = {each.dtype for each in (*call.tensors().values(), *outcome.candidate.call.results.values())}
    kinds = "{" + ", ".join(f'"{_NAMES[each]}": {each}' for each in _NAMES if each in used) + "}"
    return _TEMPLATE.format(
        kinds=kinds,
        title=torch_spelling(call.api), bound=2.0**fault.BITS, device=json.dumps(kind), body=_body(call), strides=strides,
        allowed={path: (float(f"{l2:.4g}"), float(f"{peak:.4g}")) for path, (l2, peak) in allowed.items()},
    )  # fmt: skip


def _body(call: Call) -> str:
    """Returns the lines of the function that makes the call and returns its results by path."""
    function = torch_spelling(call.api)
    functions.resolve(call.api)
    if call.base in ("__getitem__", "__setitem__"):
        raise NotReplayed("a script is written of functions that compute")
    given = [_code(each, f"input.{place}") for place, each in enumerate(call.args)]
    given += [f"{name}={_code(each, f'kwarg.{name}')}" for name, each in call.kwargs.items() if name not in ("out", "device", "pin_memory", "layout")]
    returned = leaves(_shape_of_results(call))
    lines = []
    if call.gradients is not None:
        names = sorted(call.results)
        paths = {path: f"input.{path}" if f"input.{path}" in call.tensors() else f"kwarg.{path}" for path in names}
        lines.append(f"    inputs = [t[name].requires_grad_() for name in {list(paths.values())}]")
    lines.append(f"    r = {function}({', '.join(given)})")
    single = list(returned) == [""]
    lines.append("    r = {'0': r}" if single or not returned else "    r = {str(place): each for place, each in enumerate(r)}")
    if call.gradients is not None:
        outputs = [f"r[{path!r}]" for path in call.gradients]
        gradients = [f"t['gradient.{path}']" for path in call.gradients]
        lines.append(f"    found = torch.autograd.grad([{', '.join(outputs)}], inputs, [{', '.join(gradients)}])")
        lines.append(f"    return dict(zip({sorted(call.results)}, found))")
    else:
        lines.append("    return r")
    return "\n".join(lines)


def _shape_of_results(call: Call) -> Any:
    """Returns what the function returns in float64, to know whether that is one tensor or several."""
    args, kwargs = evaluate.mapped(evaluate.widened, call.args, {}), evaluate.mapped(evaluate.widened, call.kwargs, {})
    with torch.no_grad():
        return functions.resolve(call.api)(*args, **{name: value for name, value in kwargs.items() if name != "device"})


def _code(value: Any, path: str) -> str:
    """Returns an argument as Python has it."""
    if isinstance(value, torch.Tensor):
        return f"t[{path!r}]"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_code(each, f"{path}.{place}") for place, each in enumerate(value))
        return f"({inner},)" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {_code(each, f'{path}.{name}')}" for name, each in value.items()) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, torch.device):
        return "DEVICE"
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
        data = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
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
