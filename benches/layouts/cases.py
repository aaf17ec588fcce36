"""Sound pairs, and pairs with a planted fault: what is spread how, and what the answer has to say."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of a batch. `padding` is the number of rows behind the vocabulary on ranks that split it."""

    width: int = 32
    heads: int = 4
    inner: int = 3
    vocabulary: int = 48
    padding: int = 0
    tokens: int = 16
    batch: int = 4
    experts: int = 4


@dataclass(frozen=True)
class Case:
    """One run on several ranks, and the same on one, or on other ones."""

    name: str
    sizes: dict[str, int] = field(hash=False)
    baseline: dict[str, int] = field(default_factory=dict, hash=False)
    style: str = "hand"
    llama: bool = False
    moe: bool = False
    dispatch: bool = False
    fsdp: bool = False
    sequence: bool = False
    ring: bool = False
    named: bool = True
    schedule: str = "1f1b"
    bounds: tuple[int, ...] = ()
    shape: Shape = Shape()
    layers: int = 2
    chunks: int = 1
    baseline_chunks: int = 1
    tied: bool = False
    documents: tuple[int, ...] = ()
    planted: int = 1
    micro: int = 0
    dtype: str = "float32"
    optimizer: str = "sgd"
    dropout: float = 0.0
    clip: float = 0.0
    split_loss: bool = False
    steps: int = 1
    level: str = "mix"
    task: str = "tensor"
    fault: str = ""
    seed: int = 0

    @property
    def ranks(self) -> int:
        return prod(self.sizes.values())


# Layouts without a fault: each with GPT or Llama, or both, in float32 and bfloat16.
LAYOUTS = [
    Case("tp2-torch", {"tp": 2}, style="torch"),
    Case("tp2-torch-llama", {"tp": 2}, style="torch", llama=True),
    Case("tp2-sp-torch", {"tp": 2}, style="torch", sequence=True),
    Case("tp2-sp-torch-llama", {"tp": 2}, style="torch", llama=True, sequence=True),
    Case("tp4-torch", {"tp": 4}, style="torch"),
    Case("tp2", {"tp": 2}, named=False, optimizer="adamw"),
    Case("tp2-llama", {"tp": 2}, llama=True),
    Case("tp2-sp", {"tp": 2}, sequence=True, named=False),
    Case("tp2-sp-llama", {"tp": 2}, llama=True, sequence=True),
    Case("tp2-dropout", {"tp": 2}, dropout=0.1),
    Case("tp2-clip", {"tp": 2}, clip=0.1),
    Case("tp2-dp2", {"dp": 2, "tp": 2}, named=False),
    Case("fsdp2", {"dp": 2}, fsdp=True, optimizer="adamw"),
    Case("fsdp4-llama", {"dp": 4}, fsdp=True, llama=True),
    Case("fsdp2-tp2", {"dp": 2, "tp": 2}, style="torch", fsdp=True),
    Case("dp2-llama", {"dp": 2}, llama=True, optimizer="adamw"),
    Case("pp2", {"pp": 2}, schedule="gpipe"),
    Case("pp2-llama", {"pp": 2}, llama=True, layers=4, optimizer="adamw"),
    Case("pp2-uneven", {"pp": 2}, layers=3, bounds=(0, 1, 3)),
    Case("pp4", {"pp": 4}, layers=4, llama=True),
    Case("pp2-tp2", {"pp": 2, "tp": 2}, layers=4, named=False),
    Case("pp2-dp2", {"pp": 2, "dp": 2}, llama=True),
    Case("cp2", {"cp": 2}),
    Case("cp2-llama", {"cp": 2}, llama=True, named=False),
    Case("cp2-ring", {"cp": 2}, ring=True, llama=True),
    Case("cp4", {"cp": 4}, optimizer="adamw"),
    Case("cp2-tp2", {"cp": 2, "tp": 2}, llama=True),
    Case("ep2", {"ep": 2}, moe=True),
    Case("ep4-llama", {"ep": 4}, moe=True, llama=True),
    Case("ep2-dispatch", {"ep": 2}, moe=True, dispatch=True, llama=True),
    Case("ep4-dispatch", {"ep": 4}, moe=True, dispatch=True),
    Case("tp2-loss", {"tp": 2}, split_loss=True),
    Case("tp2-loss-llama", {"tp": 2}, llama=True, split_loss=True),
    # Both runs are spread.
    Case("tp2-tp4", {"tp": 4}, {"tp": 2}),
    Case("tp4-tp2", {"tp": 2}, {"tp": 4}, sequence=True),
    Case("tp2-tp4-torch", {"tp": 4}, {"tp": 2}, style="torch"),
    Case("tp2-pp2", {"pp": 2}, {"tp": 2, "pp": 1}),
    Case("pp2-tp2-llama", {"tp": 2, "pp": 1}, {"pp": 2}, llama=True),
    Case("pp2tp2-pp4", {"pp": 4}, {"pp": 2, "tp": 2}, layers=4, micro=4),
    Case("pp4-pp2tp2-llama", {"pp": 2, "tp": 2}, {"pp": 4}, llama=True, layers=4, micro=4),
    Case("ep2-ep4", {"ep": 4}, {"ep": 2}, moe=True),
]

TWICE = r"reduced twice, or a sum where a mean is due: {0} times"
ABOUT_2 = r"(1\.99|2\.0)\d+"
LESS = r"averaged where a sum is due, or a term is missing: 0\.{0}\d* times"

# Fault: layouts that have it, the op or ops that may be named, the words.
FAULTS: dict[str, tuple[list[str], str, str]] = {
    "drop": (["pp4-pp2tp2-llama", "tp2-tp4", "pp2-tp2-llama", "tp2-torch", "tp2-torch-llama", "tp2", "tp2-llama", "tp2-dp2", "pp2-tp2", "cp2-tp2"], r"layers\.1\.mlp\.down|layers\.1\.mlp\.Mlp|linear", r"holds a partial sum; the all-reduce over tp is missing"),
    "double": (["pp4-pp2tp2-llama", "tp2", "tp2-llama"], r"layers\.1\.mlp\.down", TWICE.format(ABOUT_2)),
    "mean": (["tp2-tp4", "tp2", "tp2-llama", "pp2-tp2"], r"layers\.1\.mlp\.down", LESS.format(r"(5|25)")),
    "wrong-group": (["tp2-dp2"], r"layers\.1\.mlp\.down", r"partial sum; the all-reduce over tp is missing|another group"),
    "backward-drop": (["tp2", "tp2-llama"], r"layers\.1\.mlp\.(up|Mlp)|layers\.1\.second|linear|(layer|rms)_norm\.3", r"gradient .*partial sum; the all-reduce over tp is missing"),
    "sequence-gradient": (["tp2-sp", "tp2-sp-llama"], r"layers\.1\.second|(layer|rms)_norm\.3", r"gradient (of layers\.1\.second\.weight|output\.weight): each of ranks 0-1 holds a partial sum; the all-reduce over tp is missing"),
    "kernel": (["tp4-tp2", "tp2-torch", "tp2", "tp2-llama", "tp2-sp", "tp2-dp2"], r"mul|layers\.1\.mlp|linear", r"(rank 1's shard|shards of ranks 1, 3)"),
    "not-causal": (["tp2", "tp2-sp-llama"], r"scaled_dot_product|layers\.1\.attention", r"(rank 1's shard|differs)"),
    "stale": (["tp2-tp4", "tp2-torch", "tp2", "tp2-llama", "tp2-sp", "tp2-torch-llama"], r"layers\.1\.mlp\.down|linear", r"rank 1's shard"),
    "shard-order": (["tp2", "tp2-llama"], r"layers\.1\.mlp\.(up|down)|linear|mul|gelu", r"rank 0 holds shard 1, expected 0"),
    "bias-twice": (["tp2", "tp2-dp2"], r"layers\.1\.mlp\.down|linear", r"bias is added on each of .*(1\.99|2\.0)\d* times"),
    "dropout": (["tp2-dropout"], r"dropout|drop", r"dropout differs between"),
    "local-norm": (["tp2-clip"], r"sum|mul|Optimizer|step|sqrt|add", r"each rank clips by its own norm|clipped by [\d.]+ times the norm"),
    "max-drop": (["tp2-loss", "tp2-loss-llama"], r"max|sub|loss", r"holds the maximum of its own part; the all-reduce \(of maxima\) over tp is missing"),
    "vocabulary": (["tp2", "tp2-llama"], r"head|cross_entropy|float|flatten", r"padd"),
    "stage": (["tp2-pp2", "pp2tp2-pp4", "pp2", "pp2-llama", "pp2-dp2"], r"layers\.[123]", r"stage [13] \(ranks? [\d-]+\) holds? layers? .*expected"),
    "unscaled": (["pp2", "pp2-llama"], r".", TWICE.format(ABOUT_2)),
    "replica": (["dp2-llama", "pp2-dp2"], r"layers\.1\.attention\.out|linear", r"rank (1|3)'s replica differs|replicas? of"),
    "unreduced": (["dp2-llama", "cp2", "cp2-llama", "pp2-dp2"], r"layers\.1\.attention\.out|linear\.(9|10)\.backward", r"(term of a mean|partial sum); the all-reduce over (dp|cp) is missing"),
    "gradient-twice": (["dp2-llama", "cp2"], r"layers\.1\.attention\.out|Optimizer|lerp_|add_", r"gradient of layers\.1\.attention\.out\.weight: " + TWICE.format(ABOUT_2)),
    "gradient-sum": (["dp2-llama", "cp2-ring"], r"layers\.1\.attention\.out|Optimizer|lerp_|add_", r"gradient of layers\.1\.attention\.out\.weight: " + TWICE.format(ABOUT_2)),
    "fsdp-sum": (["fsdp2", "fsdp4-llama"], r"embedding|layers|Optimizer|step|lerp_|add_", TWICE.format(r"(1\.99|2\.0|3\.9|4\.0)\d+")),
    "zigzag": (["cp2", "cp2-llama"], r"getitem|layers\.1\.attention|scaled_dot_product", r"zigzag"),
    "labels": (["cp2", "cp2-ring"], r"cross_entropy|flatten|view", r"contiguous shards, expected zigzag"),
    "experts": (["ep2", "ep2-dispatch"], r"layers\.1\.mlp\.experts", r"holds experts 2-3, expected 0-1|holds experts 0-1, expected 2-3"),
    "router": (["ep2", "ep4-llama"], r"router|linear|layers\.1\.mlp", r"rank 1's replica differs"),
    "expert-drop": (["ep2", "ep4-llama"], r"index_add|view_as|layers\.1\.mlp", r"partial sum; the all-reduce over ep is missing"),
    "unsorted": (["ep2-dispatch"], r"layers\.1\.mlp|cat|index_add|mul", r"rows|order"),
}  # fmt: skip


def seed_of(half: str, name: str) -> int:
    return zlib.crc32(f"{half} {name}".encode()) % 100_000


def cases(half: str) -> Iterator[Case]:
    """All cases of a half, which differ by seed."""
    by_name = {case.name: case for case in LAYOUTS}
    for case in LAYOUTS:
        for dtype in ("float32", "bfloat16"):
            name = f"{case.name}-{dtype}"
            yield replace(case, name=name, dtype=dtype, seed=seed_of(half, name))
    for task, level in (("sketch", "mix"), ("statistics", "mix"), ("tensor", "module")):
        for case in (by_name["tp2"], by_name["fsdp2"], by_name["pp2-llama"], by_name["cp2"]):
            name = f"{case.name}-{task}-{level}"
            yield replace(case, name=name, task=task, level=level, seed=seed_of(half, name))
    for fault, (layouts, _, _) in FAULTS.items():
        for layout in layouts:
            for dtype in ("float32", "bfloat16"):
                name = f"{layout}-{fault}-{dtype}"
                yield replace(by_name[layout], name=name, dtype=dtype, fault=fault, seed=seed_of(half, name))
