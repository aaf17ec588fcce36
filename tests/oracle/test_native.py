"""probe's own dumps, read by the libraries of others: pyarrow for the tables, safetensors for the data."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
from safetensors import safe_open

NATIVE = Path(__file__).parents[2] / "testdata/native"
PART = NATIVE / "version1/step7/rank0"


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


@pytest.fixture(scope="module")
def newer():
    """Rows of what version 2 has and version 1 has not."""
    rows = parquet.read_table(NATIVE / "version2/step7/rank0/ops.parquet").to_pylist()
    return {row["slot"]: row | {"all": rows} for row in rows if row["op"] == "Functional.version2.0.forward"}


def test_small_tensors_are_stored_as_they_are(newer):
    expected = {
        "input.1": np.array([[0xFBFF, 0x3C00], [0x7BFF, 0x7C00]], np.uint16).view(np.float16),
        "input.2": np.array([np.nan, -0.0, 5e-324, np.finfo(np.float64).min]),
        "input.4": np.array(True),
        "input.5": np.zeros(0, np.int64),
    }
    for slot, array in expected.items():
        row = newer[slot]
        assert row["data"] == array.tobytes() and row["sketch"] is None and row["offset"] is None
        assert json.loads(row["shape"]) == list(array.shape)
    # The same bytes in another shape.
    again = newer["input.3"]
    assert again["data"] is None and again["all"][again["same_as"]]["data"] == expected["input.2"].tobytes()


def test_sentinels_are_in_no_sum(newer):
    mask = newer["input.0"]
    assert (mask["elements"], mask["sentinels"]) == (64 * 96, sum(95 - row for row in range(64)))
    assert mask["min"] == np.finfo(np.float32).min and 0 < mask["max"] < 2 and 10 < mask["norm"] < 100
    lanes = np.frombuffer(mask["sketch"], "<f4").astype(np.float64)
    # The norm of a sketch is an estimate of that of the tensor.
    assert abs(np.linalg.norm(lanes) / mask["norm"] - 1) < 0.2
    half = newer["input.1"]
    assert (half["sentinels"], half["pos_inf"], half["min"], half["max"]) == (1, 1, -65504, 65504)
    np.testing.assert_allclose((half["norm"], half["mean"]), (np.hypot(1, 65504), 65505 / 2), rtol=1e-15)
    double = newer["input.2"]
    assert (double["sentinels"], double["nan"], double["zeros"]) == (1, 1, 1)
    assert double["min"] == np.finfo(np.float64).min and double["norm"] == 5e-324
