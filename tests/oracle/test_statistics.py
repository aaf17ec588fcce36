"""Answers from recorded statistics alone: differences as they are, and bounds that the data never falls below."""

import json

import numpy as np
import pytest

import formulas

SIZES = [1, 7, 2049]
KINDS = ["noisy", "scaled", "shifted", "permuted", "one element", "sign", "unrelated"]


def pair(kind, size):
    random = np.random.default_rng([len(kind), size])
    b = random.standard_normal(size)
    changed = {
        "noisy": lambda: b + 1e-3 * random.standard_normal(size),
        "scaled": lambda: 1.01 * b,
        "shifted": lambda: b + 0.1,
        "permuted": lambda: random.permutation(b),
        "one element": lambda: np.where(np.arange(size) == size // 2, 50.0, b),
        "sign": lambda: -b,
        "unrelated": lambda: random.standard_normal(size),
    }
    return b, changed[kind]()


def leaf(x):
    norm = float(np.sqrt(np.sum(x * x)))
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float64",
        "shape": list(x.shape),
        "Max": float(x.max()),
        "Min": float(x.min()),
        "Mean": float(x.mean()),
        "Norm": norm,
        "requires_grad": False,
    }


def dump(folder, which):
    data = {}
    for kind in KINDS:
        for size in SIZES:
            same, other = pair(kind, size)[0], pair(kind, size)[which]
            op = {"input_args": [leaf(same)], "input_kwargs": {}, "output": [leaf(other)]}
            data[f"Functional.{kind.replace(' ', '_')}.{size}.forward"] = op
    place = folder / "step0" / "rank0"
    place.mkdir(parents=True)
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (place / "dump.json").write_text(json.dumps(header | {"data": data}))
    return folder


@pytest.fixture(scope="module")
def rows(compare, tmp_path_factory):
    folder = tmp_path_factory.mktemp("statistics")
    code, table = compare(dump(folder / "b", 0), dump(folder / "c", 1), folder / "out")
    assert code == 1
    return table


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_differences_and_bounds(rows, kind, size):
    b, c = pair(kind, size)
    row = rows[f"Functional.{kind.replace(' ', '_')}.{size}.forward", "output.0"]
    x, y = leaf(b), leaf(c)
    magnitude, norm = np.abs(b).max(), x["Norm"]
    scales = {"max": magnitude, "min": magnitude, "mean": norm / np.sqrt(size), "norm": norm}
    for name, scale in scales.items():
        difference = y[name.capitalize()] - x[name.capitalize()]
        assert row[f"{name}_difference"] == difference
        assert row[f"{name}_relative_difference"] == pytest.approx(abs(difference) / scale, rel=1e-15)
    truth = formulas.metrics(b, c)
    assert row["estimated"] is True
    assert row["rel_l2"] <= truth["rel_l2"] * (1 + 1e-12)
    assert row["max_abs_err"] <= truth["max_abs_err"] * (1 + 1e-12)
    if kind != "permuted":
        assert row["rel_l2"] > 0 or truth["rel_l2"] == 0 or kind == "sign"
    assert row["cosine"] is None
