"""How far two dumps are apart, operator by operator: a plain reading to check the corpus with, not a judge.

usage: python errors.py BASELINE CANDIDATE        prints the first operators whose results differ and what they had read
"""
import json
import math
import pathlib
import sys

import torch

ORDER = ("input_args", "input_kwargs", "input", "parameters", "output")


def leaves(node, path):
    """(path, leaf) of every recorded value below `node`."""
    if isinstance(node, dict):
        if isinstance(node.get("type"), str):
            yield path, node
            return
        for k, v in node.items():
            yield from leaves(v, f"{path}.{k}")
    elif isinstance(node, list):
        for i, v in enumerate(node):
            yield from leaves(v, f"{path}.{i}")
    else:
        yield path, node


def slots(op, block):
    """(is a result, path, leaf) of every slot of an operator."""
    if ".parameters_grad" in op:
        for path, leaf in leaves(block, "grad"):
            yield True, path, leaf
        return
    for key in ORDER:
        if key in block:
            for path, leaf in leaves(block[key], key):
                yield key == "output", path, leaf


def load(folder, leaf):
    return torch.load(folder / "dump_tensor_data" / leaf["data_name"]).double()


def number(x):
    return x if isinstance(x, (int, float)) and not isinstance(x, bool) else None


def exact(a, b, fa, fb):
    """Relative l2 error of a tensor pair read from the data; inf if it cannot be put in a number."""
    x, y = load(fa, a), load(fb, b)
    if x.shape != y.shape:
        return math.inf
    if not torch.equal(torch.isnan(x), torch.isnan(y)) or not torch.equal(torch.isinf(x) * x.sign(), torch.isinf(y) * y.sign()):
        return math.inf
    keep = torch.isfinite(x)
    x, y = x[keep], y[keep]
    d, n = (x - y).norm().item(), x.norm().item()
    return 0.0 if d == 0 else d / n if n else math.inf


def coarse(a, b):
    """The same read from statistics: (norm, mean, extremes), each on the scale of the norm or of the largest value."""
    n = math.prod(a["shape"]) if a.get("shape") else 1
    out = []
    norm = number(a.get("Norm"))
    for key in ("Norm", "Mean", "Max", "Min"):
        p, q = a.get(key), b.get(key)
        if p == q or (p != p and q != q):
            out.append(0.0)
            continue
        p, q = number(p), number(q)
        if p is None or q is None or not math.isfinite(p) or not math.isfinite(q):
            out.append(math.inf)
            continue
        if key == "Mean":
            scale = norm / math.sqrt(n) if norm else abs(p)
        elif key == "Norm":
            scale = abs(p)
        else:
            scale = max(abs(number(a["Max"])), abs(number(a["Min"])))
        out.append(abs(p - q) / abs(scale) if scale else math.inf)
    return out[0], out[1], max(out[2:])


def pairs(base, cand):
    """Yields (op, [(is a result, path, baseline leaf, candidate leaf)]) in the order of the baseline."""
    a, b = (json.load(open(f / "dump.json"))["data"] for f in (base, cand))
    for op, block in a.items():
        other = b.get(op)
        if other is None:
            yield op, None
            continue
        theirs = {path: leaf for _, path, leaf in slots(op, other)}
        yield op, [(out, path, leaf, theirs.get(path)) for out, path, leaf in slots(op, block)]
    for op in b:
        if op not in a:
            yield op, None


def folders(root):
    """{(step, rank): folder}; a process counts as rank 0."""
    found = {}
    for f in sorted(pathlib.Path(root).glob("step*/*/dump.json")):
        rank = f.parent.name
        found[int(f.parent.parent.name[4:]), int(rank[4:]) if rank.startswith("rank") else 0] = f.parent
    return found


def leaf_error(a, b, fa, fb):
    """(error, word) of two leaves; word says what kind of difference it is."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return (0.0, "") if a == b else (math.inf, "value")
    if "dtype" not in a or "dtype" not in b:
        same = a == b or a.get("value") != a.get("value") and b.get("value") != b.get("value")
        return (0.0, "") if same else (math.inf, f"argument {a.get('value')} | {b.get('value')}")
    if a["dtype"] != b["dtype"]:
        return math.inf, f"dtype {a['dtype']} | {b['dtype']}"
    if a["shape"] != b["shape"]:
        return math.inf, "shape"
    if "data_name" in a and "data_name" in b:
        return exact(a, b, fa, fb), ""
    if "md5" in a and "md5" in b:
        return (0.0, "") if a["md5"] == b["md5"] else (max(*coarse(a, b), 1e-9), "md5")
    return max(coarse(a, b)), ""


def report(base, cand, floor=0.0, limit=6):
    """Lines about the first operators with an error above `floor`."""
    mine, theirs = folders(base), folders(cand)
    lines = []
    for key in sorted(mine):
        if key not in theirs:
            lines.append(f"step {key[0]} rank {key[1]}: only in the baseline")
            continue
        shown = 0
        for op, found in pairs(mine[key], theirs[key]):
            if found is None:
                lines.append(f"step {key[0]} rank {key[1]} {op}: on one side only")
                shown += 1
            else:
                errors = [(out, path, *leaf_error(a, b, mine[key], theirs[key])) for out, path, a, b in found]
                bad = [e for e in errors if e[2] > floor]
                if bad:
                    text = ", ".join(f"{'*' if out else ''}{path} {err:.1e} {word}".strip() for out, path, err, word in bad)
                    lines.append(f"step {key[0]} rank {key[1]} {op}: {text}")
                    shown += 1
            if shown >= limit:
                break
    return lines


if __name__ == "__main__":
    print("\n".join(report(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])) or ["no difference"]))
