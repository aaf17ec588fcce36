"""probe's own dumps, read by the libraries of others: pyarrow for the tables, safetensors for the data."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
from safetensors import safe_open

PART = Path(__file__).parents[2] / "testdata/native/version1/step7/rank0"


@pytest.fixture(scope="module")
def rows():
    return parquet.read_table(PART / "ops.parquet").to_pylist()


@pytest.fixture(scope="module")
def shard():
    with safe_open(PART / "tensors-00000.safetensors", "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def tensor_of(row, shard):
    """The tensor of a row: types that safetensors does not know are stored as bytes."""
    stored = shard[row["tensor"]]
    if row["dtype"] == "torch.complex128":
        stored = stored.view(np.complex128)
    return stored.reshape(json.loads(row["shape"]))


def test_every_tensor_is_where_its_row_says(rows, shard):
    raw = (PART / "tensors-00000.safetensors").read_bytes()
    tensors = [row for row in rows if row["kind"] == "tensor"]
    assert len(tensors) == len(shard) == 12
    for row in tensors:
        bytes_ = raw[row["offset"] : row["offset"] + row["bytes"]]
        assert bytes_ == shard[row["tensor"]].tobytes(), row["tensor"]
        assert row["tensor"] == f"{row['op']}/{row['slot']}"


def test_statistics_are_those_of_the_finite_elements(rows, shard):
    for row in rows:
        if row["kind"] != "tensor":
            continue
        tensor = tensor_of(row, shard)
        finite = tensor[np.isfinite(tensor)]
        assert row["elements"] == tensor.size
        assert row["nan"] == np.isnan(tensor).sum()
        assert row["zeros"] == (tensor == 0).sum()
        assert row["pos_inf"] == np.isposinf(tensor.real).sum()
        if finite.size == 0:
            assert row["min"] is None and row["norm"] is None
            continue
        values = np.abs(finite) if np.iscomplexobj(finite) else finite
        wide = values.astype(np.float64)
        np.testing.assert_allclose(row["norm"], np.sqrt((wide**2).sum()), rtol=1e-12)
        np.testing.assert_allclose(row["mean"], wide.mean(), rtol=1e-9, atol=1e-15)
        assert row["min"] == float(values.min()) and row["max"] == float(values.max())
        if tensor.dtype == np.int64:
            assert (row["min_integer"], row["max_integer"]) == (values.min(), values.max())


def test_sketches_estimate_differences(rows, shard):
    by_name = {row["tensor"]: row for row in rows if row["kind"] == "tensor"}
    a = by_name["Functional.linear.0.forward/input.0"]
    b = by_name["Functional.linear.0.forward/output.0"]
    lanes = [np.frombuffer(row["sketch"], "<f4").astype(np.float64) for row in (a, b)]
    true = np.linalg.norm((shard[a["tensor"]] - shard[b["tensor"]]).astype(np.float64))
    assert abs(np.linalg.norm(lanes[0] - lanes[1]) / true - 1) < 0.2


def test_scalars_and_stacks(rows):
    values = {row["slot"]: (row["kind"], row["value"]) for row in rows if row["op"] == "Functional.mixed.0.forward"}
    assert values["kwarg.count"] == ("int", "18446744073709551615")
    assert values["kwarg.eps"] == ("float", "1e-5")
    assert values["kwarg.train"] == ("bool", "true")
    assert values["kwarg.slice"] == ("printed", "slice(0, 1)")
    assert values["output.0"] == ("none", None)
    stacks = parquet.read_table(PART / "stacks.parquet").to_pylist()
    assert stacks[1] == {"stack": 1, "frame": "File /home/user/train.py, line 11, in forward"}
