"""Pairs that are drawn: sizes of models, layouts and faults are combined at random, so that none was looked at when the layouts were worked out.

Besides what `cases.py` has: stages in several chunks (interleaved 1F1B), stages on both sides, packed sequences, padded vocabularies, accumulated
gradients, and weights that are tied across stages.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from cases import FAULTS, TWICE, Case, Shape, seed_of

PAIRS = 72

# Of how many pairs one is sound.
SOUND = 3

# Spread of the candidate, and of the baseline if that is spread too.
SPREADS: list[tuple[dict[str, int], dict[str, int]]] = [
    ({"tp": 2}, {}),
    ({"tp": 4}, {}),
    ({"dp": 2, "tp": 2}, {}),
    ({"dp": 2}, {}),
    ({"dp": 4}, {}),
    ({"cp": 2}, {}),
    ({"cp": 2, "tp": 2}, {}),
    ({"pp": 2}, {}),
    ({"pp": 2}, {}),
    ({"pp": 4}, {}),
    ({"pp": 2, "tp": 2}, {}),
    ({"pp": 2, "dp": 2}, {}),
    ({"ep": 2}, {}),
    ({"tp": 4}, {"tp": 2}),
    ({"pp": 4}, {"pp": 2}),
    ({"pp": 2}, {"pp": 4}),
    ({"pp": 2, "tp": 2}, {"pp": 2}),
    ({"pp": 2}, {"pp": 2, "tp": 2}),
    ({"pp": 2, "tp": 2}, {"tp": 2, "pp": 1}),
]


def shape_of(draw: random.Random, split: int) -> Shape:
    """Sizes that `split` ranks can share."""
    heads = draw.choice([size for size in (4, 6, 8) if size // 2 % split == 0])
    vocabulary = draw.choice([40, 56, 61, 75])
    padded = -vocabulary % (4 * split) if split > 1 else 0
    return Shape(
        width=heads * draw.choice([4, 6, 8]),
        heads=heads,
        inner=draw.choice([2, 4]),
        vocabulary=vocabulary,
        padding=padded,
        tokens=draw.choice([16, 24, 32]),
        batch=draw.choice([4, 8]),
        experts=draw.choice([4, 6]),
    )


def layout(draw: random.Random) -> Case:
    """A sound pair."""
    sizes, baseline = draw.choice(SPREADS)
    tp, pp = (max(of.get(axis, 1) for of in (sizes, baseline)) for axis in ("tp", "pp"))
    shape, llama = shape_of(draw, tp), draw.random() < 0.5
    chunks = 2 if pp > 1 and sizes.get("pp", 1) == 2 and draw.random() < 0.6 else 1
    baseline_chunks = 2 if baseline.get("pp", 1) == 2 and draw.random() < 0.5 else 1
    most = max(pp, sizes.get("pp", 1) * chunks, baseline.get("pp", 1) * baseline_chunks)
    layers = most * draw.choice([1, 2]) if pp > 1 else draw.choice([2, 3])
    alone = set(sizes) <= {"dp"} or set(sizes) <= {"tp", "dp"}
    micro = max(pp, draw.choice([2, 4])) if pp > 1 else draw.choice([0, 0, 2]) if alone and not baseline else 0
    shape = replace(shape, batch=max(shape.batch, micro * sizes.get("dp", 1)))
    documents: tuple[int, ...] = ()
    if "cp" in sizes and draw.random() < 0.6:
        documents = {16: (8, 4, 4), 24: (12, 8, 4), 32: (16, 4, 12)}[shape.tokens]
    return Case(
        "",
        sizes,
        baseline,
        llama=llama,
        moe="ep" in sizes,
        sequence="tp" in sizes and not baseline and "cp" not in sizes and draw.random() < 0.3,
        ring="cp" in sizes and not documents and draw.random() < 0.4,
        named=draw.random() < 0.5,
        schedule="hand" if pp > 1 else "",
        shape=shape,
        layers=layers,
        chunks=chunks,
        baseline_chunks=baseline_chunks,
        tied=draw.random() < 0.3 and "cp" not in sizes,
        documents=documents,
        planted=draw.randrange(layers),
        micro=micro,
        dtype=draw.choice(["float32", "bfloat16"]),
        optimizer=draw.choice(["sgd", "adamw"]),
        clip=0.1 if draw.random() < 0.2 and set(sizes) <= {"tp", "pp"} and not baseline else 0.0,
    )


def faults_of(case: Case) -> list[str]:
    """The faults that a layout can have."""
    size = {axis: count for axis, count in case.sizes.items() if count > 1}
    found = []
    if "tp" in size:
        found += ["kernel", "stale", "shard-order"]
        if not case.sequence:
            found += ["drop", "double", "mean", "backward-drop", *([] if case.llama else ["bias-twice"])]
        elif case.planted == 1 or case.layers > 1:
            found += ["sequence-gradient"]
        if case.shape.padding and not case.sequence and "pp" not in size:
            found.append("vocabulary")
        if "dp" in size and not case.sequence:
            found.append("wrong-group")
    if "dp" in size:
        found += ["replica", "unreduced", "gradient-twice", "gradient-sum"]
    if "cp" in size:
        found += ["labels", "unreduced", "gradient-twice", *([] if case.ring else ["zigzag"])]
        if case.documents:
            found.append("leak")
    if "pp" in size:
        # Clipping undoes a common factor.
        found += ["stage", *([] if case.clip else ["unscaled"]), *(["tied", "tied"] if case.tied else [])]
    if "ep" in size:
        found += ["experts", "router", "expert-drop"]
    if case.clip:
        found.append("local-norm")
    if case.micro and "pp" not in size and not case.clip:
        found.append("unscaled")
    return found


def cases(half: str) -> Iterator[Case]:
    """The pairs of a half, of which `drawn` may be looked at and `drawn-sealed` is counted only."""
    for number in range(PAIRS):
        draw = random.Random(f"{half} {number}")
        case = layout(draw)
        while number % SOUND and not faults_of(case):
            case = layout(draw)
        fault = draw.choice(faults_of(case)) if number % SOUND else ""
        axes = "".join(f"{axis}{count}" for axis, count in case.sizes.items()) + f"v{case.chunks}" * (case.chunks > 1)
        against = "".join(f"{axis}{count}" for axis, count in case.baseline.items()) + f"v{case.baseline_chunks}" * (case.baseline_chunks > 1)
        marks = [axes, against, "llama" if case.llama else "gpt", fault, case.dtype]
        name = f"{number:02}-" + "-".join(mark for mark in marks if mark)
        yield replace(case, name=name, fault=fault, seed=seed_of(half, name))


def ranks_at(case: Case, **places: int) -> list[int]:
    """Ranks that have these places in the axes."""
    spots = product(*(range(size) for size in case.sizes.values()))
    at = [dict(zip(case.sizes, spot)) for spot in spots]
    return [rank for rank, spot in enumerate(at) if all(spot[axis] == place for axis, place in places.items())]


def expected(case: Case) -> tuple[str, str]:
    """The op or ops that may be named, and the words."""
    layer, tp = rf"layers\.{case.planted}", case.sizes.get("tp", 1)
    out = rf"{layer}\.attention\.out|linear|Optimizer|lerp_|add_"
    gradient = rf"gradient of {layer}\.attention\.out\.weight: "
    table = {
        "drop": (rf"{layer}\.mlp\.(down|Mlp)|linear", FAULTS["drop"][2]),
        "double": (rf"{layer}\.mlp\.(down|Mlp)", TWICE.format(rf"({tp - 0.01:.2f}|{tp}\.0)\d*")),
        "mean": (rf"{layer}\.mlp\.(down|Mlp)", rf"averaged where a sum is due, or a term is missing: 0\.({'49|50' if tp == 2 else '24|25'})\d* times"),
        "wrong-group": (rf"{layer}\.mlp\.(down|Mlp)", FAULTS["wrong-group"][2]),
        "backward-drop": (rf"{layer}\.(mlp|second)|linear|norm", FAULTS["backward-drop"][2]),
        "sequence-gradient": (rf"{layer}\.second|norm", rf"grad.*: each of ranks [\d, -]+ holds a partial sum; the all-reduce over tp is missing"),
        "kernel": (rf"mul|{layer}\.mlp|linear", r"shards? (of ranks)?"),
        "stale": (rf"{layer}\.mlp\.down|linear", r"shards? (of ranks)?"),
        "shard-order": (rf"{layer}\.mlp\.(up|down)|linear|mul|gelu", r"rank \d holds shard \d, expected \d"),
        "bias-twice": (rf"{layer}\.mlp\.down|linear", rf"bias is added on each of .*({tp - 0.01:.2f}|{tp}\.0)\d* times"),
        "vocabulary": FAULTS["vocabulary"][1:],
        "replica": (rf"{layer}\.attention\.out|linear", r"rank \d's replica differs|replicas? of"),
        "unreduced": (out, r"(term of a mean|partial sum); the all-reduce over (dp|cp) is missing"),
        "gradient-twice": (out, gradient + r"reduced twice, or a sum where a mean is due: (1\.99|2\.0|3\.9|4\.0)\d* times"),
        "gradient-sum": (out, gradient + r"reduced twice, or a sum where a mean is due: (1\.99|2\.0|3\.9|4\.0)\d* times"),
        "labels": (r"cross_entropy|flatten|view", FAULTS["labels"][2]),
        "zigzag": (rf"getitem|{layer}\.attention|scaled_dot_product", r"zigzag"),
        "leak": (rf"scaled_dot_product|{layer}\.attention|bitwise_and|and", r"."),
        "stage": (r"layers\.\d", r"stage \d \(ranks? [\d, -]+\) holds? layers? .*expected"),
        "unscaled": (r".", r"reduced twice, or a sum where a mean is due: (1\.99|2\.0|3\.9|4\.0)\d* times|input\.1 [24] against 1\b"),
        "tied": (r"embed|head|Optimizer|lerp_|add_", r"(partial sum|term)"),
        "local-norm": FAULTS["local-norm"][1:],
        "experts": (rf"{layer}\.mlp\.experts", r"holds experts? [\d-]+, expected [\d-]+"),
        "router": (rf"router|linear|{layer}\.mlp", r"rank 1's replica differs"),
        "expert-drop": (rf"index_add|view_as|{layer}\.mlp", FAULTS["expert-drop"][2]),
    }
    place, words = table[case.fault]
    if case.fault == "replica":
        # Of two ranks that hold shards of one replica, these may be said to differ.
        words += "|the shards of ranks " + "(, |-)".join(map(str, ranks_at(case, dp=1)))
    if case.fault in ("kernel", "stale"):
        ranks = ranks_at(case, tp=tp - 1 if case.fault == "kernel" else 1)
        words = "(shards? of ranks? |rank )[\\d, -]*" + rf"\b({'|'.join(map(str, ranks))})\b"
    return place, words
