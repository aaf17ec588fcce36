"""Every metric and statistic of result.parquet against plain NumPy."""

import math

import numpy as np
import pytest

import formulas
import tensors

CASES = {tensors.label(case): case for case in tensors.cases()}
SAME_IN_NUMPY = [name for name, case in CASES.items() if {case[0], case[1]} <= set(tensors.NUMPY_ONLY)]
# Sums: 1e-12 of the terms' magnitudes. A modulus is rounded more than once, everything else here is exact.
SUM = 1e-12
MODULUS = 1e-15
SUMS = ["mean_abs_err", "mean_rel_err", "rmse", "euclidean", "rel_l2"]
EXACT = ["max_abs_err", "max_rel_err", "within_1e3", "within_5e3", "max_ulp"]


@pytest.fixture(scope="session")
def rows(compare, tmp_path_factory):
    """Rows by kind of file and case. One run of the tool for each kind."""
    folder = tmp_path_factory.mktemp("tensors")
    pairs = {name: tensors.make(case) for name, case in CASES.items()}
    found = {}
    for side, which in (("baseline", 0), ("candidate", 1)):
        tagged = {name: (CASES[name][which], pair[which]) for name, pair in pairs.items()}
        tensors.write_safetensors(folder / f"{side}.safetensors", tagged)
        np.savez(folder / f"{side}.npz", **{name: pairs[name][which] for name in SAME_IN_NUMPY})
        (folder / side).mkdir()
        for name in SAME_IN_NUMPY[::7]:
            np.save(folder / side / f"{name}.npy", pairs[name][which])
    for kind, ending in (("safetensors", ".safetensors"), ("npz", ".npz"), ("npy", "")):
        sides = [folder / f"{side}{ending}" for side in ("baseline", "candidate")]
        code, table = compare(*sides, folder / f"out-{kind}")
        assert code == 1
        found |= {(kind, op): row for (op, _), row in table.items()}
    return found


def near(found, expected, tolerance, scale=0.0, floor=0.0):
    if found is None or expected is None or math.isnan(expected):
        return found is expected or (found is not None and math.isnan(found) and math.isnan(expected))
    if found == expected:
        return True
    return abs(found - expected) <= max(tolerance * max(abs(expected), scale), floor)


def differing(row, case):
    """Returns what in a row is not what NumPy says."""
    b, c = tensors.make(case)
    expected = formulas.metrics(b, c)
    modulus = formulas.is_complex(b) or formulas.is_complex(c)
    exact = MODULUS if modulus else 0.0
    wrong = []

    def check(name, wanted, tolerance, scale=0.0):
        # Beneath the smallest normal number of binary64, the last digit is all there is.
        if not near(row[name], wanted, tolerance, scale, floor=5e-324):
            wrong.append(f"{name} {row[name]!r}, NumPy says {wanted!r}")

    check("cosine", expected["cosine"], SUM, 1.0)
    for name in SUMS:
        check(name, expected[name], SUM)
    for name in EXACT:
        check(name, expected[name], exact)
    if modulus:
        # Several elements may be the largest but for rounding.
        index = row["max_abs_index"]
        if index is not None:
            check("max_abs_err", float(abs(formulas.wide(c)[index] - formulas.wide(b)[index])), exact)
    elif row["max_abs_index"] != expected["max_abs_index"]:
        wrong.append(f"max_abs_index {row['max_abs_index']}, NumPy says {expected['max_abs_index']}")
    if (index := row["max_abs_index"]) is not None:
        assert row["max_abs_position"] == f"[{index}]"
        for side, tensor in (("baseline", b), ("candidate", c)):
            check(f"{side}_at_max_abs", float(formulas.wide(tensor)[index].real), 0.0)
    for side, tensor in (("baseline", b), ("candidate", c)):
        wanted = formulas.summary(tensor)
        complex_side = formulas.is_complex(tensor)
        for name in ("max", "min"):
            check(f"{side}_{name}", wanted[name], MODULUS if complex_side else 0.0)
        check(f"{side}_mean", wanted["mean"], SUM, wanted["mean_scale"])
        check(f"{side}_norm", wanted["norm"], SUM)
        for name in ("nan", "pos_inf", "neg_inf", "zeros"):
            check(f"{side}_{name}", wanted[name], 0.0)
    return wrong


@pytest.mark.parametrize("name", CASES)
def test_safetensors(rows, name):
    assert differing(rows["safetensors", name], CASES[name]) == []


def test_other_files_give_the_same_numbers(rows):
    """NumPy's own files hold the same tensors, so every number is the same; what is judged may depend on the neighbours."""
    judged = {"order", "verdict", "role", "cause", "tolerance", "reason", "op_reason"}
    others = [(kind, name) for kind, name in rows if kind != "safetensors"]
    assert len(others) > len(SAME_IN_NUMPY)
    for kind, name in others:
        mine, theirs = rows[kind, name], rows["safetensors", name]
        unlike = [key for key in mine if key not in judged and repr(mine[key]) != repr(theirs[key])]
        assert unlike == [], (kind, name)


@pytest.mark.parametrize("name", CASES)
def test_what_is_equal_is_called_so(rows, name):
    row = rows["safetensors", name]
    b, c = tensors.make(CASES[name])
    equal = formulas.metrics(b, c)["bit_equal"]
    if row["verdict"] != "bit-equal":
        assert not equal
    elif not equal:
        assert b.dtype.kind in "iub" and np.array_equal(b, c)
    assert row["baseline_dtype"] == b.dtype.name
    assert row["candidate_dtype"] == c.dtype.name


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] == "special" and case[3] > 100])
def test_non_finite_values_on_one_side_are_named(rows, name):
    assert rows["safetensors", name]["verdict"] == "non-finite"
