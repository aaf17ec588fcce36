"""The definitions of docs/metrics.md in plain NumPy, written without a look at the tool's own code."""

import numpy as np

FLOAT_BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16, "float8_e4m3fn": 8, "float8_e5m2": 8}
EPS32 = np.float32(2.0**-23)
EPS64 = 2.0**-52


def is_complex(x):
    return np.issubdtype(x.dtype, np.complexfloating)


def is_whole(x):
    return x.dtype.kind in "iub"


def is_narrow(x):
    """A float of up to 32 bits."""
    return FLOAT_BITS.get(x.dtype.name, 64) <= 32


def wide(x):
    """As float64, or complex128."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return x.astype(np.complex128 if is_complex(x) else np.float64)


def finite(x):
    return np.ones(x.shape, bool) if is_whole(x) else np.isfinite(wide(x))


def classes(x):
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf, for one real tensor."""
    w = wide(x)
    return np.select([np.isnan(w), w == np.inf, w == -np.inf], [1, 2, 3], 0)


def root_of_squares(x):
    """Norm that neither overflows nor vanishes, as mantissa and power of two."""
    x = np.abs(x)
    if x.size == 0 or x.max() == 0:
        return 0.0, 0
    _, exponent = np.frexp(x.max())
    return float(np.sqrt(np.sum(np.ldexp(x, -exponent) ** 2))), int(exponent)


def norm(x):
    return float(np.ldexp(*root_of_squares(x)))


def parts(x):
    return np.concatenate([x.real, x.imag]) if is_complex(x) else x


def scaled(x):
    """With a largest magnitude near 1, by a power of two."""
    _, exponent = np.frexp(np.abs(x).max())
    return np.ldexp(x, -exponent)


def cosine(b, c):
    """Returns the cosine of two real vectors of norms other than 0; complex ones are given as their parts."""
    with np.errstate(under="ignore"):
        b, c = scaled(b), scaled(c)
        return float(np.sum(b * c) / (norm(b) * norm(c)))


def summary(x):
    """Statistics of one tensor over its own finite elements."""
    w = wide(x)
    good = w[finite(x)]
    values = np.abs(good) if is_complex(x) else good
    if is_complex(x):
        nan = np.isnan(w.real) | np.isnan(w.imag)
        inf = (np.isinf(w.real) | np.isinf(w.imag)) & ~nan
        counts = (int(nan.sum()), int(inf.sum()), 0)
    else:
        counts = tuple(int((classes(x) == kind).sum()) for kind in (1, 2, 3))
    some = values.size > 0
    return {
        "max": float(values.max()) if some else None,
        "min": float(values.min()) if some else None,
        "mean": float(values.sum() / values.size) if some else None,
        "mean_scale": float(np.abs(values).sum() / values.size) if some else 0.0,
        "norm": norm(parts(good)),
        "nan": counts[0],
        "pos_inf": counts[1],
        "neg_inf": counts[2],
        "zeros": int((w == 0).sum()),
    }


def difference(b, c):
    """abs(c - b) as float64: the exact difference, rounded once."""
    if is_whole(b) and is_whole(c):
        if np.uint64 in (b.dtype, c.dtype) and b.dtype != c.dtype:
            exact = [abs(int(y) - int(x)) for x, y in zip(b, c)]
            return np.array([float(d) for d in exact]), exact
        kind = np.uint64 if b.dtype == np.uint64 else np.int64
        x, y = b.astype(kind), c.astype(kind)
        low, high = np.minimum(x, y).view(np.uint64), np.maximum(x, y).view(np.uint64)
        exact = high - low  # modulo 2^64, which the distance never reaches
        return exact.astype(np.float64), exact
    d = np.abs(wide(c) - wide(b))
    return d, d


def relative(b, c, distance):
    """Relative error of every element, by the table in docs/metrics.md."""
    with np.errstate(all="ignore"):
        if is_complex(b) or is_complex(c):
            single = all(x.dtype == np.complex64 or (is_narrow(x) and not is_whole(x)) for x in (b, c))
            eps = float(EPS32) if single else EPS64
            return np.where(wide(b) == 0, np.abs(wide(c)) / eps, distance / np.abs(wide(b)))
        if is_narrow(b) and is_narrow(c) and not (is_whole(b) or is_whole(c)):
            x, y = b.astype(np.float32), c.astype(np.float32)
            zero = x == 0
            x, y = np.where(zero, x + EPS32, x), np.where(zero, y + EPS32, y)
            return np.abs((y - x) / x)
        x, y = wide(b), wide(c)
        plain = distance if is_whole(b) and is_whole(c) else np.abs(y - x)
        return np.where(x == 0, np.abs(((y + EPS64) - EPS64) / EPS64), plain / np.abs(x))


def ulp_distance(b, c):
    """Largest number of steps through the representable numbers."""
    bits = FLOAT_BITS[b.dtype.name]
    sign = 1 << (bits - 1)

    def ordered(x):
        raw = x.view(f"u{bits // 8}").astype(np.uint64)
        magnitude = (raw & np.uint64(sign - 1)).astype(np.int64)
        return np.where(raw & np.uint64(sign), -magnitude, magnitude)

    x, y = ordered(b), ordered(c)
    steps = np.maximum(x, y).view(np.uint64) - np.minimum(x, y).view(np.uint64)
    return int(steps.max())


def metrics(b, c):
    """Every metric of a pair, with `scale` for those whose tolerance is not relative to themselves."""
    good = finite(b) & finite(c)
    n = int(good.sum())
    out = {"bit_equal": b.dtype == c.dtype and b.tobytes() == c.tobytes()}
    names = "cosine max_abs_err mean_abs_err max_rel_err mean_rel_err rmse euclidean rel_l2 within_1e3 within_5e3 max_ulp"
    out |= dict.fromkeys([*names.split(), "max_abs_index"])
    if n == 0:
        return out
    x, y = b[good], c[good]
    distance, exact = difference(x, y)
    with np.errstate(all="ignore"):
        r = relative(x, y, distance)
        limit = np.float32 if r.dtype == np.float32 else np.float64
        kind = np.complex128 if is_complex(x) or is_complex(y) else np.float64
        wx, wy = x.astype(kind), y.astype(kind)
        apart = root_of_squares(parts(wy - wx) if kind is np.complex128 else distance)
        lengths = root_of_squares(parts(wx)), root_of_squares(parts(wy))
        empty = [mantissa == 0 for mantissa, _ in lengths]
        if all(empty) or (out["bit_equal"] and not any(empty)):
            angle = 1.0
        else:
            angle = None if any(empty) else cosine(parts(wx), parts(wy))
        if apart[0] == 0:
            ratio = 0.0
        elif empty[0]:
            ratio = np.inf
        else:
            ratio = float(np.ldexp(apart[0] / lengths[0][0], apart[1] - lengths[0][1]))
        place = int(np.argmax(exact)) if not isinstance(exact, list) else exact.index(max(exact))
        out |= {
            "cosine": angle,
            "max_abs_err": float(distance.max()),
            "mean_abs_err": float(distance.sum() / n),
            "max_rel_err": float(r.max()),
            "mean_rel_err": float(r.astype(np.float64).sum() / n),
            "rmse": float(np.ldexp(apart[0] / np.sqrt(n), apart[1])),
            "euclidean": float(np.ldexp(*apart)),
            "rel_l2": ratio,
            "within_1e3": float((r < limit(1e-3)).sum() / n),
            "within_5e3": float((r < limit(5e-3)).sum() / n),
            "max_abs_index": int(np.flatnonzero(good)[place]),
        }
        if b.dtype == c.dtype and b.dtype.name in FLOAT_BITS:
            out["max_ulp"] = float(ulp_distance(x, y))
    return out
