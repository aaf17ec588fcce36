"""Writes metrics.json: metrics of generated tensor pairs, from exact integer arithmetic and NumPy.

    python make.py          # needs numpy and ml_dtypes

Only the expectations are stored. The tensors are generated, here and in `crates/measure/src/golden.rs`, by the same rules:

* `mix` is the output function of splitmix64; part p of a tensor with seed s draws r1 = mix(s * 2^32 + 2p) and
  r2 = mix(s * 2^32 + 2p + 1). Real element i is part i; complex element i is parts 2i and 2i + 1.
* `pattern` turns (r1, r2) into the bits of both sides, by element type and mode.

Sums are exact: a finite float is an integer multiple of 2^-1074, and Python's integers do not overflow. Relative errors
are NumPy's own, in the type that the definition names.
"""

import json
import math
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np

np.seterr(all="ignore")

M64 = (1 << 64) - 1
UNIT = 1074

FLOATS = {  # bits, mantissa, bias, infinity, largest finite, NaN
    "float64": (64, 52, 1023, 0x7FF0 << 48, (0x7FF0 << 48) - 1, 0x7FF8 << 48),
    "float32": (32, 23, 127, 0x7F800000, 0x7F7FFFFF, 0x7FC00000),
    "float16": (16, 10, 15, 0x7C00, 0x7BFF, 0x7E00),
    "bfloat16": (16, 7, 127, 0x7F80, 0x7F7F, 0x7FC0),
    "float8_e4m3fn": (8, 3, 7, 0x7F, 0x7E, 0x7F),
    "float8_e5m2": (8, 2, 15, 0x7C, 0x7B, 0x7E),
}
COMPLEX = {"complex64": "float32", "complex128": "float64"}
INTEGERS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}
NUMPY = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
NARROW = {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}
MODES = ["near", "zeros", "special", "wild"]


def mix(z):
    z = (z + 0x9E3779B97F4A7C15) & M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def pattern(dtype, mode, r1, r2):
    """Bits of one part of both sides."""
    if dtype == "bool":
        return r1 % 3, r2 % 3
    if dtype in INTEGERS:
        mask = (1 << INTEGERS[dtype]) - 1
        b = r1 & mask
        c = (b + r2 % 5 - 2) & mask if mode in ("near", "zeros") else r2 & mask
        if mode == "zeros" and (r2 >> 8) % 4 == 0:
            b = 0
        if mode == "zeros" and (r2 >> 16) % 4 == 0:
            c = 0
        return b, c
    bits, mantissa, bias, inf, largest, nan = FLOATS[dtype]
    mask, sign = (1 << bits) - 1, 1 << (bits - 1)
    if mode == "wild":
        return r1 & mask, r2 & mask
    exponent = bias - 4 + (r1 >> 52) % 8
    b = (r1 >> 63) * sign | exponent << mantissa | r1 & ((1 << mantissa) - 1)
    c = (b + r2 % 5 - 2) & mask
    if mode == "zeros":
        if (r2 >> 8) % 4 == 0:
            b = (r2 >> 63) * sign
        if (r2 >> 16) % 4 == 0:
            c = (r2 >> 62 & 1) * sign
    if mode == "special":
        table = [0, sign, inf, inf | sign, nan, 1, largest, largest | sign]
        if (r2 >> 8) % 4 == 0:
            b = table[(r2 >> 16) % 8]
        if (r2 >> 24) % 4 == 0:
            c = table[(r2 >> 32) % 8]
    return b, c


def tensors(dtypes, mode, seed, count):
    sides = []
    for side, dtype in enumerate(dtypes):
        part = COMPLEX.get(dtype, dtype)
        size = FLOATS[part][0] // 8 if part in FLOATS else INTEGERS.get(part, 8) // 8
        raw = bytearray()
        for p in range(count * (2 if dtype in COMPLEX else 1)):
            r1, r2 = mix((seed << 32) + 2 * p), mix((seed << 32) + 2 * p + 1)
            raw += pattern(part, mode, r1, r2)[side].to_bytes(size, "little")
        sides.append(bytes(raw))
    return sides


def array(dtype, raw):
    if dtype == "bool":
        return np.frombuffer(raw, np.uint8) != 0
    return np.frombuffer(raw, NUMPY.get(dtype, dtype))


def exact(x):
    """An integer, in units of 2^-1074."""
    if isinstance(x, (int, bool)):
        return int(x) << UNIT
    numerator, denominator = x.as_integer_ratio()
    return (numerator << UNIT) // denominator


def real(numerator, power=1):
    """numerator * 2^(-1074 * power), rounded once; infinite when it does not fit."""
    try:
        return float(Fraction(numerator, 1 << (UNIT * power)))
    except OverflowError:
        return math.copysign(math.inf, numerator)


def root(numerator, denominator=1):
    """sqrt(numerator * 2^-2148 / denominator)."""
    shift = 2 * 140
    return real_root(math.isqrt((numerator << (2 * shift)) // denominator), shift)


def real_root(value, shift):
    try:
        return float(Fraction(value, 1 << (UNIT + shift)))
    except OverflowError:
        return math.inf


def parts(value):
    return (value.real, value.imag) if isinstance(value, complex) else (value,)


def kind(part):
    if isinstance(part, int) or math.isfinite(part):
        return "finite"
    return "nan" if math.isnan(part) else ("pos_inf" if part > 0 else "neg_inf")


def element_class(value):
    kinds = [kind(part) for part in parts(value)]
    if "nan" in kinds:
        return "nan"
    if isinstance(value, complex):
        return "pos_inf" if set(kinds) != {"finite"} else "finite"
    return kinds[0]


def modulus(value):
    if isinstance(value, complex):
        return math.hypot(value.real, value.imag)
    return abs(value)


def summary(values):
    classes = [element_class(value) for value in values]
    finite = [value for value, c in zip(values, classes) if c == "finite"]
    result = {name: classes.count(name) for name in ("nan", "pos_inf", "neg_inf")}
    result["zeros"] = sum(all(part == 0 for part in parts(value)) for value in values)
    squares = sum(exact(part) ** 2 for value in finite for part in parts(value))
    result["norm"] = root(squares)
    if finite:
        shown = [modulus(v) if isinstance(v, complex) else v for v in finite]
        overflow = [v for v in shown if isinstance(v, float) and math.isinf(v)]
        result["min"], result["max"] = float(min(shown)), float(max(shown))
        result["mean"] = math.inf if overflow else real(Fraction(sum(map(exact, shown)), len(shown)))
    return result


def ordered(bits, width):
    sign = 1 << (width - 1)
    return sign - bits if bits & sign else bits


def relative(dtypes, b, c):
    """Relative errors as NumPy divides."""
    if any(dtype in COMPLEX for dtype in dtypes):
        single = all(dtype in NARROW or dtype == "complex64" for dtype in dtypes)
        eps = float(np.finfo(np.float32 if single else np.float64).eps)

        def quotient(x, y):
            if not x:
                return modulus(y) / eps
            # A quarter where a modulus could overflow although the quotient does not.
            scale = 0.25 if max(abs(x.real), abs(x.imag), abs(y.real), abs(y.imag)) > 1e300 else 1.0
            divisor = modulus(x * scale)
            return modulus(y * scale - x * scale) / divisor if divisor else math.inf

        return [quotient(x, y) for x, y in zip(map(complex, b), map(complex, c))]
    if all(dtype in INTEGERS or dtype == "bool" for dtype in dtypes):
        eps = 2.220446049250313e-16
        return [float(abs(y - x)) / abs(float(x)) if x else abs((float(y) + eps) - eps) / eps for x, y in zip(b, c)]
    kind_ = np.float32 if all(dtype in NARROW for dtype in dtypes) else np.float64
    x, y = np.array(b, kind_), np.array(c, kind_)
    zero = x == 0
    eps = np.finfo(kind_).eps
    x[zero] += eps
    y[zero] += eps
    return list(np.abs((y - x) / x))


def thresholds(dtypes):
    if all(dtype in NARROW for dtype in dtypes):
        return np.float32(0.001), np.float32(0.005)
    return 0.001, 0.005


def expected(dtypes, raw):
    arrays = [array(dtype, side) for dtype, side in zip(dtypes, raw)]

    def as_python(values):
        if values.dtype.kind == "c":
            return [complex(value) for value in values]
        if values.dtype.kind in "iub":
            return [int(value) for value in values]
        return [float(value) for value in values.astype(np.float64)]

    b, c = map(as_python, arrays)
    result = {"baseline": summary(b), "candidate": summary(c), "bit_equal": dtypes[0] == dtypes[1] and raw[0] == raw[1]}
    # An integer beside a float is the float nearest to it.
    whole = [dtype in INTEGERS or dtype == "bool" for dtype in dtypes]
    if any(whole) and not all(whole):
        b, c = [[float(v) if isinstance(v, int) else v for v in side] for side in (b, c)]
    if any(dtype in COMPLEX for dtype in dtypes):
        b, c = [complex(v) for v in b], [complex(v) for v in c]

    def unlike(x, y):
        return any(kind(p) != kind(q) for p, q in zip(parts(x), parts(y)))

    def differs(x, y):
        return any(kind(p) != kind(q) or (kind(p) == "finite" and p != q) for p, q in zip(parts(x), parts(y)))

    result["different"] = sum(map(differs, b, c))
    result["non_finite_mismatch"] = sum(map(unlike, b, c))
    at = [i for i, (x, y) in enumerate(zip(b, c)) if element_class(x) == element_class(y) == "finite"]
    result["both_finite"] = len(at)
    x, y = [b[i] for i in at], [c[i] for i in at]
    result["zero_baseline"] = sum(p == 0 and q != 0 for p, q in zip(x, y))
    if not at:
        return result
    xs = [[exact(part) for part in parts(value)] for value in x]
    ys = [[exact(part) for part in parts(value)] for value in y]
    bb = sum(p * p for value in xs for p in value)
    cc = sum(p * p for value in ys for p in value)
    dd = sum((q - p) ** 2 for u, v in zip(xs, ys) for p, q in zip(u, v))
    dot = sum(p * q for u, v in zip(xs, ys) for p, q in zip(u, v))
    if (bb == 0) == (cc == 0):
        if bb == 0 or result["bit_equal"]:
            result["cosine"] = 1.0
        else:
            scale = math.isqrt((bb * cc) << 400)
            result["cosine"] = max(-1.0, min(1.0, float(Fraction(dot << 200, scale))))

    def error(p, q):
        if isinstance(p, complex):
            return modulus(complex(q.real - p.real, q.imag - p.imag))
        return abs(q - p)

    errors = [error(p, q) for p, q in zip(x, y)]
    largest = max(errors)
    where = errors.index(largest)
    result["max_abs_err"] = float(largest)
    result["max_abs_index"] = at[where]
    result["max_abs_values"] = [float(x[where].real), float(y[where].real)]
    if isinstance(x[0], complex):
        exact_abs = None if any(map(math.isinf, errors)) else sum(map(exact, errors))
    else:
        exact_abs = sum(abs(q[0] - p[0]) for p, q in zip(xs, ys))
    result["mean_abs_err"] = math.inf if exact_abs is None else real(Fraction(exact_abs, len(at)))
    result["euclidean"] = root(dd)
    result["rmse"] = root(dd, len(at))
    result["rel_l2"] = 0.0 if dd == 0 else math.inf if bb == 0 else ratio_root(dd, bb)
    rel = relative(dtypes, x, y)
    result["max_rel_err"] = float(max(rel))
    result["mean_rel_err"] = math.inf if any(map(math.isinf, rel)) else float(sum(map(Fraction, map(float, rel))) / len(rel))
    for name, limit in zip(("within_1e3", "within_5e3"), thresholds(dtypes)):
        result[name] = sum(bool(r < limit) for r in rel)
    if dtypes[0] == dtypes[1] and dtypes[0] in FLOATS:
        width = FLOATS[dtypes[0]][0]
        bits = [np.frombuffer(side, f"u{width // 8}") for side in raw]
        result["max_ulp"] = max(abs(ordered(int(bits[0][i]), width) - ordered(int(bits[1][i]), width)) for i in at)
    return result


def ratio_root(dd, bb):
    try:
        return float(Fraction(math.isqrt((dd << 400) * (1 << 4600) // bb), 1 << 2500))
    except OverflowError:
        return math.inf


def text(value):
    """Floats as Python writes them: shortest digits that read back to the same bits."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: text(item) for key, item in value.items()}
    return [text(item) for item in value] if isinstance(value, list) else value


def main():
    every = [*FLOATS, *INTEGERS, "bool", *COMPLEX]
    lengths = [0, 1, 7, 8, 15, 16, 17, 2047, 2048, 2049, 5000]
    plan = [((d, d), "special", n) for d in every for n in lengths]
    plan += [((d, d), mode, n) for d in every for mode in ("near", "zeros", "wild") for n in (17, 2048, 5000)]
    mixed = [("float32", "float64"), ("float64", "float32"), ("float16", "float32"), ("bfloat16", "float32"),
             ("float16", "bfloat16"), ("float8_e4m3fn", "float8_e5m2"), ("float8_e5m2", "float32"),
             ("int64", "int32"), ("int64", "uint64"), ("uint64", "int8"), ("int32", "uint32"), ("int8", "bool"),
             ("bool", "int64"), ("int64", "float64"), ("float32", "int32"), ("bool", "float16"),
             ("uint64", "float32"), ("complex64", "complex128"), ("float32", "complex64"), ("complex64", "int64")]
    plan += [(pair, mode, 2064) for pair in mixed for mode in ("near", "zeros", "special")]
    cases = []
    for seed, (dtypes, mode, count) in enumerate(plan, 1):
        raw = tensors(dtypes, mode, seed, count)
        case = {"baseline": dtypes[0], "candidate": dtypes[1], "mode": mode, "seed": seed, "count": count}
        cases.append({"tensors": case, "metrics": text(expected(dtypes, raw))})
    path = Path(__file__).with_name("metrics.json")
    path.write_text("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


main()
