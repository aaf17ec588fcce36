"""Random tensors of every dtype, and files to put them into."""

import json
import struct

import ml_dtypes
import numpy as np

# Name in safetensors, NumPy type. NumPy's own file formats do not know the last three.
DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "U64": np.uint64,
    "BOOL": np.bool_,
    "C64": np.complex64,
    "C128": np.complex128,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}
FLOATS = ["F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"]
NUMPY_ONLY = [name for name in DTYPES if name not in ("BF16", "F8_E4M3", "F8_E5M2")]
PARTS = {"C64": np.float32, "C128": np.float64}
SIZES = [0, 1, 7, 2049, 300_001]
MIXED = [
    ("F32", "BF16"),
    ("F16", "F32"),
    ("F64", "F32"),
    ("BF16", "F8_E5M2"),
    ("I64", "I32"),
    ("I64", "U64"),
    ("U64", "I8"),
    ("I64", "F64"),
    ("BOOL", "F32"),
    ("I32", "BOOL"),
    ("C64", "F32"),
    ("F64", "C128"),
]


def patterns(name):
    """The patterns that make sense for a dtype."""
    if name == "BOOL":
        return ["equal", "noisy", "zeros"]
    if name in FLOATS or name in PARTS:
        return ["equal", "noisy", "scaled", "zeros", "special", "denormal", "bits"]
    return ["equal", "noisy", "zeros", "bits"]


def cases():
    """Every pair: its name is `baseline dtype, candidate dtype, pattern, size`."""
    for name in DTYPES:
        for pattern in patterns(name):
            for size in SIZES:
                # The largest size spans several chunks of the sums; a few patterns show what can go wrong there.
                if size > 100_000 and pattern not in ("noisy", "special"):
                    continue
                yield name, name, pattern, size
    for baseline, candidate in MIXED:
        for size in (1, 2049):
            yield baseline, candidate, "mixed", size


def label(case):
    return "-".join(map(str, case))


def make(case):
    """Baseline and candidate of a case, always the same."""
    baseline, candidate, pattern, size = case
    random = np.random.default_rng(np.frombuffer(label(case).encode(), np.uint8))
    if pattern == "mixed":
        b = _values(baseline, size, random)
        c = _cast(np.asarray(b).astype(np.complex128 if baseline in PARTS else object), candidate)
        return b, _replace(c, random, _values(candidate, size, random), 0.3)
    if baseline in PARTS:
        part = "F32" if baseline == "C64" else "F64"
        real, imaginary = (_pair(part, pattern, size, random) for _ in range(2))
        return tuple(_complex(r, i, DTYPES[baseline]) for r, i in zip(real, imaginary))
    return _pair(baseline, pattern, size, random)


def _complex(real, imaginary, dtype):
    out = np.empty(real.shape, dtype)
    out.real, out.imag = real, imaginary
    return out


def _values(name, size, random):
    dtype = DTYPES[name]
    if name == "BOOL":
        return random.random(size) < 0.5
    if name in PARTS:
        return (random.standard_normal(size) + 1j * random.standard_normal(size)).astype(dtype)
    if name in FLOATS:
        return random.standard_normal(size).astype(dtype)
    return random.integers(0, 100, size).astype(dtype)


def _cast(values, name):
    if name in PARTS:
        return values.astype(DTYPES[name])
    if values.dtype == np.complex128:
        values = values.real
    with np.errstate(all="ignore"):
        return values.astype(np.float64).astype(DTYPES[name])


def _replace(values, random, by, share):
    """A share of the elements replaced."""
    return np.where(random.random(values.shape) < share, by, values).astype(values.dtype)


def _bits(name, size, random):
    """Random bits, so every exponent; those of float64 are kept where squares neither overflow nor vanish."""
    dtype = np.dtype(DTYPES[name])
    if name == "F64":
        exponents = random.integers(-450, 450, size)
        return np.ldexp(random.uniform(0.5, 1, size) * random.choice([-1, 1], size), exponents)
    return np.frombuffer(random.bytes(size * dtype.itemsize), dtype)


def _pair(name, pattern, size, random):
    """Baseline and candidate of one real dtype."""
    dtype = DTYPES[name]
    if pattern == "bits":
        return _bits(name, size, random), _bits(name, size, random)
    b = _values(name, size, random)
    if pattern == "equal":
        return b, b.copy()
    if name == "BOOL":
        return _replace(b, random, False, 0.5 if pattern == "zeros" else 0), _replace(b, random, ~b, 0.1)
    if name not in FLOATS:
        c = (b.astype(np.int64) + random.integers(-2, 3, size)).astype(dtype)
        if pattern == "zeros":
            b, c = _replace(b, random, 0, 0.3), _replace(c, random, 0, 0.3)
        return b, c
    with np.errstate(all="ignore"):
        noise = 0.1 if np.dtype(dtype).itemsize == 1 else 1e-3
        c = (b.astype(np.float64) * (1 + noise * random.standard_normal(size))).astype(dtype)
        if pattern == "scaled":
            c = (b.astype(np.float64) * 1.01).astype(dtype)
        if pattern == "zeros":
            b, c = (_replace(x, random, random.choice([0.0, -0.0], size), 0.4) for x in (b, c))
        if pattern == "denormal":
            tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
            b, c = (np.round(random.uniform(-4, 4, size)) * tiny for _ in range(2))
            return b.astype(dtype), c.astype(dtype)
        if pattern == "special":
            largest = float(ml_dtypes.finfo(dtype).max)
            # The squares of the largest float64 would overflow in plain sums.
            largest = 1e140 if name == "F64" else largest
            smallest = float(ml_dtypes.finfo(dtype).smallest_subnormal)
            odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, largest, -largest, smallest]).astype(dtype)
            same = random.random(size) < 0.1
            chosen = random.choice(odd, size)
            b, c = np.where(same, chosen, b), np.where(same, chosen, c)
            b, c = (_replace(x, random, random.choice(odd, size), 0.1) for x in (b, c))
    return b.astype(dtype), c.astype(dtype)


def write_safetensors(path, arrays):
    """`arrays` by name, each with the name of its dtype."""
    header, offset = {}, 0
    for name, (dtype, array) in arrays.items():
        end = offset + array.nbytes
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in arrays.values():
            file.write(array.tobytes())
