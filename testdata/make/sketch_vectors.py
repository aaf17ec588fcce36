"""Writes ../sketch/vectors.json: what capture must record of small tensors, from plain NumPy.

    python sketch_vectors.py          # needs numpy, ml_dtypes, xxhash

Nothing here is shared with the tool: `docs/formats.md` is enough to write it. Only the expectations are stored. The
tensors are drawn by the rules of `testdata/golden/make.py`, whose `pattern` is imported, and are laid out by `layout`.
"""

import importlib.util
import json
import math
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np

np.seterr(all="ignore")

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("golden", HERE.parent / "golden" / "make.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

NUMPY = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
UNIT = 1 << 1074
PARTS = {"complex64": "float32", "complex128": "float64"}
DTYPES = [*golden.FLOATS, *INTEGERS, "bool", *PARTS]


def numpy_dtype(name):
    return np.dtype(NUMPY.get(name, name))


def mix(z):
    """Output function of splitmix64, on arrays of uint64."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def sentinels(array):
    """Which elements stand for the absence of a number."""
    name = array.dtype.name
    if name == "float16":
        return np.abs(array) == np.finfo(np.float16).max
    if name not in ("float64", "float32", "bfloat16"):
        return np.zeros(array.shape, bool)
    wide = array.astype(np.float64)
    return np.isfinite(wide) & (np.abs(wide) >= 2.0**100)


def sketch(array, version=2):
    """The lanes of a NumPy array, in its row-major order; those behind the last are 0."""
    lanes_of = {1: 256, 2: 251}[version]
    flat = np.ascontiguousarray(array).reshape(-1)
    absent = sentinels(flat)
    segment = 65536 // 256
    if np.iscomplexobj(flat):
        flat = flat.view(flat.real.dtype)
        segment *= 2
    else:
        flat = np.where(absent, flat.dtype.type(0), flat)
    flat = flat.astype(np.float64)
    flat[~np.isfinite(flat)] = 0.0
    rows = -(-flat.size // 256)
    padded = np.zeros(rows * 256)
    padded[: flat.size] = flat
    row = np.arange(rows, dtype=np.uint64)
    of_signs = row if version == 1 else row % np.uint64(1 << 16)
    words = np.stack([mix(np.uint64(4) * of_signs + np.uint64(k)) for k in range(4)], axis=1)
    bits = (words[:, :, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    signed = np.where(bits.reshape(rows, 256) == 1, -1.0, 1.0) * padded.reshape(rows, 256)
    rotation = mix(row ^ np.uint64(0xABCDEF)) if version == 1 else row * np.uint64(256)
    rotation = (rotation % np.uint64(lanes_of)).astype(int)
    total = np.zeros(256)
    for first in range(0, rows, segment):
        # Elements that pass the last lane are summed by themselves and added once, at the end of a segment.
        lanes = np.zeros(512)
        for r in range(first, min(rows, first + segment)):
            lanes[rotation[r] : rotation[r] + 256] += signed[r]
        again, third = lanes[lanes_of : 2 * lanes_of], np.zeros(lanes_of)
        third[: 512 - 2 * lanes_of] = lanes[2 * lanes_of :]
        total[:lanes_of] += lanes[:lanes_of] + (again + third)
    stored = total.astype(np.float32)
    stored[~np.isfinite(stored)] = np.float32("nan")
    return stored


def statistics(array):
    """Statistics and counts; sums are exact, rounded once."""
    flat = array.reshape(-1)
    kind = "c" if np.iscomplexobj(flat) else "b" if flat.dtype == bool else "i" if flat.dtype.kind in "iu" else "f"
    counts = {"elements": flat.size, "zeros": int((flat == 0).sum()), "nan": 0, "positive": 0, "negative": 0}
    absent = sentinels(flat)
    counts["sentinels"] = int(absent.sum())
    if kind in "fc":
        parts = flat.view(flat.real.dtype).reshape(flat.size, 2) if kind == "c" else flat.reshape(-1, 1)
        parts = parts.astype(np.float64)
        nan, infinite = np.isnan(parts).any(1), np.isinf(parts).any(1)
        counts["nan"] = int(nan.sum())
        infinite &= ~nan
        negative = infinite & (parts[:, 0] < 0) & (kind == "f")
        counts["negative"], counts["positive"] = int(negative.sum()), int((infinite & ~negative).sum())
        extremes = [math.hypot(*row) if kind == "c" else row[0] for row in parts[~(nan | infinite)].tolist()]
        summed = parts[~(nan | infinite | absent)]
        values = [math.hypot(*row) if kind == "c" else row[0] for row in summed.tolist()]
        terms = summed.reshape(-1).tolist()
    else:
        extremes = values = terms = [int(value) for value in flat.tolist()]
    if not extremes:
        return counts, None
    if kind == "b":
        least, most = bool(min(extremes)), bool(max(extremes))
    else:
        least, most = min(extremes), max(extremes)
    total = Fraction(sum(map(units, values)), UNIT) if all(map(math.isfinite, values)) else math.inf
    squares = Fraction(sum(units(term) ** 2 for term in terms), UNIT**2)
    text = (lambda value: value + 0.0) if kind in "fc" else (lambda value: value)
    return counts, {
        "min": repr(text(least)),
        "max": repr(text(most)),
        "mean": None if not values else repr(float(total / len(values)) if total != math.inf else math.inf),
        "norm": repr(root(squares)),
    }


def units(value):
    """A finite number as an integer multiple of 2^-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (UNIT // denominator)


def root(squares):
    """Square root of a fraction as a float."""
    if squares == 0:
        return 0.0
    shift = 400 - (squares.numerator.bit_length() - squares.denominator.bit_length()) // 2
    scaled = squares * Fraction(2) ** (2 * shift)
    value = Fraction(math.isqrt(scaled.numerator // scaled.denominator)) / Fraction(2) ** shift
    try:
        return float(value)
    except OverflowError:
        return math.inf


def flat_tensor(dtype, mode, seed, count):
    """The candidate's side of a golden pair is not used."""
    part = PARTS.get(dtype, dtype)
    parts = 2 if dtype in PARTS else 1
    size = numpy_dtype(part).itemsize
    data = bytearray()
    for p in range(count * parts):
        r1, r2 = golden.mix((seed << 32) + 2 * p), golden.mix((seed << 32) + 2 * p + 1)
        data += golden.pattern(part, mode, r1, r2)[0].to_bytes(size, "little")
    if dtype == "bool":
        return bytes(data), np.frombuffer(data, np.uint8) != 0
    return bytes(data), np.frombuffer(bytes(data), numpy_dtype(dtype))


def layout(array, name):
    """Shape, strides and offset in elements, and the array they show."""
    n = array.size
    views = {
        "flat": lambda: ([n], [1], 0),
        "scalar": lambda: ([], [], n // 2),
        "transposed": lambda: ([n // 40, 40], [1, n // 40], 0),
        "every_third": lambda: ([(n - 2) // 3], [3], 1),
        "expanded": lambda: ([7, n], [0, 1], 0),
        "permuted": lambda: ([4, n // 40, 10], [n // 4, 1, n // 40], 0),
        "empty": lambda: ([3, 0, 2], [1, 1, 1], 0),
    }
    shape, strides, offset = views[name]()
    places = np.arange(n)
    places = np.lib.stride_tricks.as_strided(places[offset:], shape, [s * places.itemsize for s in strides])
    return shape, strides, offset, array[places]


def case(dtype, mode, seed, count, name):
    import xxhash

    storage, array = flat_tensor(dtype, mode, seed, count)
    shape, strides, offset, view = layout(array, name)
    raw = np.frombuffer(storage, np.dtype((np.void, numpy_dtype(dtype).itemsize)))
    _, _, _, raw = layout(raw, name)
    view = np.ascontiguousarray(view)
    counts, known = statistics(view)
    return {
        "tensor": {"dtype": dtype, "mode": mode, "seed": seed, "count": count, "layout": name},
        "shape": shape,
        "strides": strides,
        "offset": offset,
        "counts": counts,
        "statistics": known,
        "sketch": sketch(view).astype(">f4").tobytes().hex(),
        "sketch_1": sketch(view, version=1).astype(">f4").tobytes().hex(),
        "hash": xxhash.xxh3_128(np.ascontiguousarray(raw).tobytes()).hexdigest(),
    }


def main():
    cases = []
    for index, dtype in enumerate(DTYPES):
        for mode in ["near", "special", "wild"]:
            cases.append(case(dtype, mode, 100 + index, 700, "flat"))
        cases.append(case(dtype, "zeros", 200 + index, 2400, "transposed"))
        cases.append(case(dtype, "near", 300 + index, 1, "scalar"))
    for count in [1, 2, 3, 255, 256, 257, 511, 513, 1024, 2048, 2049, 4500]:
        cases.append(case("float32", "near", 400 + count, count, "flat"))
    for count in [65536, 65537, 150000]:
        cases.append(case("float32", "near", 400 + count, count, "flat"))
    cases.append(case("complex64", "near", 600, 70000, "flat"))
    for dtype in ["float32", "bfloat16", "float64", "int8", "complex128"]:
        for name in ["every_third", "expanded", "permuted", "empty"]:
            cases.append(case(dtype, "special", 500, 800, name))
    out = HERE.parent / "sketch" / "vectors.json"
    out.write_text("[\n" + ",\n".join(json.dumps(one) for one in cases) + "\n]\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
