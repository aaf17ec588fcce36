"""Writes testdata/edge: a pair of dumps with one op for every special value, its statistics twin, the older tool's own
tables of both, and metrics of some pairs by NumPy.

    python edge.py          (torch 2.7.1, mindstudio-probe 26.2.0; see requirements.txt)

The files are made by hand, in the form in which mindstudio-probe 26.2.0 writes them: no run would bring all these values
together. Op `Torch.<case>.0.forward` reads `ones(3)` unless the case says otherwise, and returns what the case is about.
"""
import csv
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent / "edge"
NAN, INF = math.nan, math.inf
ABSENT = object()
SCALARS = {bool: "bool", int: "int", float: "float", str: "str"}


class Leaf(dict):
    """A value given as the older tool writes it."""


def t(values, dtype="float32", grad=False):
    return torch.tensor(values, dtype=getattr(torch, dtype), requires_grad=grad)


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


ONES = torch.ones(3)
WAVE = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
CASES = {}


def case(name, baseline, candidate, inputs=([ONES], [ONES]), kwargs=({}, {})):
    """One op; `baseline` and `candidate` are its results, or lists of them."""
    sides = [side if isinstance(side, list) else [side] for side in (baseline, candidate)]
    CASES[name] = list(zip(sides, inputs, kwargs))


# Zeros.
case("equal", WAVE, WAVE)
case("zeros_both", torch.zeros(4), torch.zeros(4))
case("zeros_candidate", torch.ones(4), torch.zeros(4))
case("zeros_baseline", torch.zeros(4), torch.ones(4))
case("zeros_signed", t([0.0, -0.0, 1.0]), t([-0.0, 0.0, 1.0]))
case("tiny_against_zero", torch.zeros(4), t([0.0, 1e-30, 0.0, 0.0]))
case("one_zero_same", t([0.0, 1.0, 2.0, 3.0]), t([0.0, 1.0, 2.0, 3.0]))
case("one_zero_off", t([0.0, 1.0, 2.0, 3.0]), t([1e-3, 1.0, 2.0, 3.0]))

# NaN and infinities.
case("nan_same_places", t([1.0, NAN, 3.0]), t([1.0, NAN, 3.0000002]))
case("nan_same_places_rest_off", t([1.0, NAN, 3.0]), t([1.0, NAN, 3.1]))
case("nan_other_places", t([NAN, 1.0, 2.0]), t([0.0, NAN, 2.0]))
case("nan_candidate_only", t([0.0, 1.0, 2.0]), t([0.0, NAN, 2.0]))
case("nan_baseline_only", t([0.0, NAN, 2.0]), t([0.0, 1.0, 2.0]))
case("nan_all", t([NAN, NAN]), t([NAN, NAN]))
case("inf_same", t([1.0, INF, -INF]), t([1.0, INF, -INF]))
case("inf_other_sign", t([1.0, INF, 2.0]), t([1.0, -INF, 2.0]))
case("inf_against_nan", t([1.0, INF, 2.0]), t([1.0, NAN, 2.0]))
case("f16_overflow", t([60000.0, -2.0], "float16"), t([INF, -2.0], "float16"))

# Tensors of one element.
case("scalar_float", t(1.0), t(1.5))
case("scalar_equal", t(0.25), t(0.25))
case("scalar_int", t(2, "int64"), t(3, "int64"))
case("scalar_bool", t(False, "bool"), t(True, "bool"))
case("scalar_nan", t(1.0), t(NAN))
case("scalar_nan_both", t(NAN), t(NAN))
case("shape_1", t([1.0]), t([1.5]))
case("shape_1_1", t([[1.0]]), t([[1.5]]))

# Shapes.
case("shape_5_against_1_5", torch.arange(5.0), torch.arange(5.0).reshape(1, 5))
case("shape_other", torch.ones(4, 3), torch.ones(3, 4))
case("shape_flat", torch.ones(2, 3), torch.ones(6))
case("empty_both", torch.zeros(0, 3), torch.zeros(0, 3))
case("empty_baseline", torch.zeros(0), torch.ones(3))

# Element types.
EXACT = torch.arange(-4.0, 4.0).reshape(2, 4) / 4
case("bf16_against_f32", EXACT.bfloat16(), EXACT)
case("f64_against_f32", EXACT.double(), EXACT)
case("int32_against_int64", t([1, 2, 3], "int32"), t([1, 2, 3], "int64"))
case("float_against_int", t([1.0, 2.0, 3.0]), t([1, 2, 3], "int64"))
case("float_against_bool", t([1.0, 0.0]), t([True, False], "bool"))
case("int64_quarter", t([1, 2, 3, 5, 8, 13, 21, 34], "int64"), t([1, 2, 3, 4, 8, 13, 20, 34], "int64"))
case("int64_beyond_2_53", t([2**53, 7], "int64"), t([2**53 + 1, 7], "int64"))
case("uint8_wrapped", t([1, 255], "uint8"), t([1, 0], "uint8"))
case("bool_flips", t([True, True, False, True], "bool"), t([True, False, False, False], "bool"))
case("complex_imaginary", torch.complex(WAVE, WAVE + 2.0), torch.complex(WAVE, (WAVE + 2.0) * 1.01))
case("fp8_equal", t([0.5, 1.0, -2.0, 4.0], "float8_e4m3fn"), t([0.5, 1.0, -2.0, 4.0], "float8_e4m3fn"))
case("fp8_twice", t([0.5, 1.0, -2.0, 4.0], "float8_e4m3fn"), t([1.0, 2.0, -4.0, 8.0], "float8_e4m3fn"))
case("f64_last_digits", WAVE.double(), WAVE.double() * (1 + 1e-15))

# Rounding, and what is not.
NEAR = draw(1, 96).double()
STEP = torch.where(draw(2, 96) > 0, 1, -1).short()
case("bf16_one_step", NEAR.bfloat16(), (NEAR.bfloat16().view(torch.int16) + STEP).view(torch.bfloat16))
case("f16_one_step", NEAR.half(), (NEAR.half().view(torch.int16) + STEP).view(torch.float16))
case("f32_one_step", NEAR.float(), (NEAR.float().view(torch.int32) + STEP.int()).view(torch.float32))
case("denormal", t([1e-40, 1.0]), t([2e-40, 1.0]))
case("third_off", draw(3, 90), draw(3, 90) * torch.where(torch.arange(90) % 3 == 0, 1.005, 1.0))
case("one_huge", torch.cat([torch.zeros(1), draw(4, 63)]), torch.cat([t([5.0]), draw(4, 63)]))
case("sign_flip", t([1.0, -1.0, 2.0, -2.0]), t([-1.0, 1.0, 2.0, -2.0]))
case("permuted", draw(5, 16), draw(5, 16).flip(0))
SCALE = draw(6, 64, 64)
case("bf16_scaled", SCALE.bfloat16(), (SCALE.bfloat16().double() * 1.004).bfloat16())
case("limit_1_in_1000", torch.ones(4), t([1.001, 0.999, 1.0005, 1.0]))
case("opposite", WAVE, -WAVE)
case("orthogonal", t([1.0, 0.0]), t([0.0, 1.0]))
case("huge", t([1e30, 1.1e30]), t([1e30, 1.2e30]))

# Several results, arguments, and what one side lacks.
case("second_of_two", [WAVE, WAVE + 1.0], [WAVE, WAVE + 1.1])
case("slice", WAVE, WAVE, ([ONES, Leaf(type="slice", value=[0, 1, None])], [ONES, Leaf(type="slice", value=[0, 2, None])]))
case("size", WAVE, WAVE, ([ONES, torch.Size([2, 3])], [ONES, torch.Size([3, 2])]))
case("text", WAVE, WAVE, ([ONES, "none"], [ONES, "tanh"]))
case("flag", WAVE, WAVE, kwargs=({"training": True}, {"training": False}))
case("eps", WAVE, WAVE * 1.01, ([ONES, 1e-5], [ONES, 1e-3]))
case("none", WAVE, WAVE, ([ONES, None], [ONES, None]))
case("device", WAVE, WAVE, kwargs=({"device": Leaf(type="torch.device", value="cuda:0")}, {"device": Leaf(type="torch.device", value="cpu:None")}))
case("dtype_by_place", WAVE, WAVE, ([ONES, Leaf()], [ONES, Leaf()]))
NESTED = [{"config": {"a": 1, "b": [1.5, None, ONES * scale]}, "sizes": [torch.Size([2]), "sum"]} for scale in (1.0, 2.0)]
case("nested", WAVE, WAVE, kwargs=(NESTED[0], NESTED[0]))
case("nested_off", WAVE, WAVE, kwargs=NESTED)
case("requires_grad", WAVE, WAVE.clone().requires_grad_())
case("slot_baseline_only", [WAVE, ONES], [WAVE])
case("slot_candidate_only", [WAVE], [WAVE, ONES])
case("missing_file", WAVE, WAVE)
case("op_baseline_only", WAVE, ABSENT)
case("op_candidate_only", ABSENT, WAVE)

MEASURED = ["one_zero_off", "nan_same_places_rest_off", "complex_imaginary", "bf16_one_step", "third_off", "bf16_scaled", "f64_last_digits", "int64_quarter"]


def statistics(x):
    """Max, Min, Mean, Norm as the older tool computes them: in the tensor's own type, and not for all types."""
    if not x.numel() or x.dtype == torch.float8_e4m3fn:
        return None, None, None, None
    if x.is_complex():
        modulus = np.abs(x.numpy())
        return modulus.max().item(), modulus.min().item(), modulus.mean().item(), None
    if x.dtype == torch.bool:
        return x.any().item(), x.all().item(), None, None
    if not x.shape:
        return (x.item(),) * 4
    narrow = x.is_floating_point() and x.dtype != torch.float64
    return x.max().item(), x.min().item(), x.mean().item() if narrow else None, x.norm().item() if narrow else None


class Side:
    """One of the two dumps, with its twin without data."""

    def __init__(self, name):
        self.folders = [ROOT / name / "step0" / "rank0", ROOT / "statistics" / name / "step0" / "rank0"]
        self.ops = [{}, {}]
        self.files = self.folders[0] / "dump_tensor_data"
        self.files.mkdir(parents=True)
        self.folders[1].mkdir(parents=True)

    def leaf(self, value, name, data):
        if isinstance(value, list):
            return [self.leaf(item, f"{name}.{index}", data) for index, item in enumerate(value)]
        if isinstance(value, Leaf):
            return dict(value)
        if isinstance(value, dict):
            return {key: self.leaf(item, f"{name}.{key}", data) for key, item in value.items()}
        if isinstance(value, torch.Size):
            return {"type": "torch.Size", "value": list(value)}
        if value is None:
            return None
        if not isinstance(value, torch.Tensor):
            return {"type": SCALARS[type(value)], "value": value}
        x = value.detach()
        leaf = {"type": "torch.Tensor", "dtype": str(x.dtype), "shape": list(x.shape)}
        leaf |= dict(zip(("Max", "Min", "Mean", "Norm"), statistics(x)))
        leaf["requires_grad"] = value.requires_grad
        if data and x.numel():
            leaf["data_name"] = f"{name}.pt"
            torch.save(x.clone().contiguous(), self.files / leaf["data_name"])
        return leaf

    def add(self, op, outputs, inputs, kwargs):
        for ops, data in zip(self.ops, (True, False)):
            ops[op] = {
                "input_args": self.leaf(inputs, f"{op}.input", data),
                "input_kwargs": self.leaf(kwargs, f"{op}.kwargs", data),
                "output": self.leaf(outputs, f"{op}.output", data),
            }

    def write(self):
        for folder, ops, task in zip(self.folders, self.ops, ("tensor", "statistics")):
            data = "dump_tensor_data" if task == "tensor" else None
            index = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": data, "data": ops}
            text = re.sub(r'([{,])"Torch\.', r'\1\n"Torch.', json.dumps(index, separators=(",", ":")))
            (folder / "dump.json").write_text(text + "\n")


def table(folder, target):
    """The older tool's own table of a pair."""
    with tempfile.TemporaryDirectory() as out:
        paths = [str(folder / side / "step0" / "rank0" / "dump.json") for side in ("candidate", "baseline")]
        tool = pathlib.Path(sys.executable).with_name("msprobe")
        subprocess.run([tool, "compare", "-tp", paths[0], "-gp", paths[1], "-o", out], check=True, stdout=subprocess.DEVNULL)
        (found,) = pathlib.Path(out).rglob("*.csv")
        with found.open(newline="") as source, target.open("w", newline="") as sink:
            rows = list(csv.reader(source))
            keep = [i for i, name in enumerate(rows[0]) if name != "Data_name"]
            csv.writer(sink, lineterminator="\n").writerows([row[i] for i in keep] for row in rows)


def measured(b, c):
    """Metrics in binary64, relative errors in the type that divides: see docs/metrics.md."""
    narrow = b.dtype in (torch.float32, torch.bfloat16, torch.float16)
    complex_ = b.is_complex()
    kind = np.float32 if narrow else np.complex128 if complex_ else np.float64
    wide = np.complex128 if complex_ else np.float64
    x, y = (side.to(torch.float32).numpy() if narrow else side.numpy() for side in (b.detach().flatten(), c.detach().flatten()))
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite].astype(kind), y[finite].astype(kind)
    u, v = x.astype(wide), y.astype(wide)
    error = np.abs(v - u)
    eps = np.finfo(np.float32 if complex_ and b.dtype == torch.complex64 else kind).eps
    zero = x == 0
    divisor, moved = np.where(zero, x + kind(eps), x), np.where(zero, y + kind(eps), y)
    # A complex quotient is taken by modulus.
    relative = np.abs(moved - divisor) / np.abs(divisor) if complex_ else np.abs((moved - divisor) / divisor)
    limit = np.float32 if narrow else np.float64
    norm = math.sqrt(math.fsum(np.abs(u) ** 2))
    other = math.sqrt(math.fsum(np.abs(v) ** 2))
    distance = math.sqrt(math.fsum(error**2))
    return {
        "cosine": math.fsum((u * np.conj(v)).real) / (norm * other),
        "max_abs_err": float(error.max()),
        "mean_abs_err": math.fsum(error) / len(error),
        "max_rel_err": float(relative.max()),
        "mean_rel_err": math.fsum(relative.astype(np.float64)) / len(error),
        "rmse": math.sqrt(math.fsum(error**2) / len(error)),
        "euclidean": distance,
        "rel_l2": distance / norm,
        "within_1e3": float(np.mean(relative < limit(0.001))),
        "within_5e3": float(np.mean(relative < limit(0.005))),
    }


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    for position, name in enumerate(("baseline", "candidate")):
        side = Side(name)
        for op, sides in CASES.items():
            outputs, inputs, kwargs = sides[position]
            if outputs != [ABSENT]:
                side.add(f"Torch.{op}.0.forward", outputs, inputs, kwargs)
        if name == "candidate":
            (side.files / "Torch.missing_file.0.forward.output.0.pt").unlink()
        side.write()
    table(ROOT, ROOT / "older_tool_tensor.csv")
    table(ROOT / "statistics", ROOT / "older_tool_statistics.csv")
    metrics = {f"Torch.{name}.0.forward": measured(CASES[name][0][0][0], CASES[name][1][0][0]) for name in MEASURED}
    (ROOT / "numpy.json").write_text(json.dumps(metrics, indent=1) + "\n")


if __name__ == "__main__":
    main()
