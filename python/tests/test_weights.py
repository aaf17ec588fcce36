"""``probe weights`` on checkpoints as converters write them, and on such with a planted mistake.

The model is a small Llama with grouped queries and experts, in the names of Hugging Face. The other side is fused and sharded as Megatron does
it, fused as inference engines do it, stacked, transposed, cast, or distributed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HEADS, GROUPS, HEAD, WIDTH, INNER, LAYERS, EXPERTS, WORDS = 8, 4, 8, 64, 96, 4, 6, 120

Weights = dict[str, torch.Tensor]


def probe(*args: object) -> tuple[int, str, str]:
    command = [os.environ["PROBE_BIN"]] if "PROBE_BIN" in os.environ else [sys.executable, "-m", "probe"]
    done = subprocess.run([*command, "weights", *map(str, args)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def llama(seed: int = 0) -> Weights:
    """Weights in the names of Hugging Face; layers 0 and 1 have one MLP, the others experts."""
    random = torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random) * 0.05

    weights = {"model.embed_tokens.weight": matrix(WORDS, WIDTH), "lm_head.weight": matrix(WORDS, WIDTH)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, rows in (("q", HEADS * HEAD), ("k", GROUPS * HEAD), ("v", GROUPS * HEAD)):
            weights[f"{at}self_attn.{name}_proj.weight"] = matrix(rows, WIDTH)
            weights[f"{at}self_attn.{name}_proj.bias"] = matrix(rows)
        weights[f"{at}self_attn.o_proj.weight"] = matrix(WIDTH, HEADS * HEAD)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{norm}.weight"] = 1 + matrix(WIDTH)
        stems = [f"{at}mlp."] if layer < 2 else [f"{at}mlp.experts.{expert}." for expert in range(EXPERTS)]
        for stem in stems:
            weights[f"{stem}gate_proj.weight"] = matrix(INNER, WIDTH)
            weights[f"{stem}up_proj.weight"] = matrix(INNER, WIDTH)
            weights[f"{stem}down_proj.weight"] = matrix(WIDTH, INNER)
    weights["model.norm.weight"] = 1 + matrix(WIDTH)
    return weights


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Q, K and V of each group of heads together, as Megatron fuses them."""
    parts = [part.reshape(GROUPS, -1, *part.shape[1:]) for part in (q, k, v)]
    return torch.cat(parts, 1).flatten(0, 1)


def megatron(weights: Weights, tensor: int = 1, rank: int = 0, layers: range = range(LAYERS)) -> Weights:
    """The weights of one rank of `tensor`, of a stage with `layers`, in the names of Megatron."""

    def rows(value: torch.Tensor) -> torch.Tensor:
        return value.chunk(tensor, 0)[rank].clone()

    def columns(value: torch.Tensor) -> torch.Tensor:
        return value.chunk(tensor, 1)[rank].clone()

    def padded(value: torch.Tensor) -> torch.Tensor:
        return torch.cat([value, torch.zeros(8, WIDTH)])

    made = {}
    if 0 in layers:
        made["embedding.word_embeddings.weight"] = rows(padded(weights["model.embed_tokens.weight"]))
    for local, layer in enumerate(layers):
        theirs, own = f"model.layers.{layer}.", f"decoder.layers.{local}."
        for kind in ("weight", "bias"):
            parts = [weights[f"{theirs}self_attn.{name}_proj.{kind}"] for name in "qkv"]
            made[f"{own}self_attention.linear_qkv.{kind}"] = rows(grouped(*parts))
        made[f"{own}self_attention.linear_proj.weight"] = columns(weights[f"{theirs}self_attn.o_proj.weight"])
        made[f"{own}input_layernorm.weight"] = weights[f"{theirs}input_layernorm.weight"].clone()
        made[f"{own}pre_mlp_layernorm.weight"] = weights[f"{theirs}post_attention_layernorm.weight"].clone()
        stems = [("mlp.", "mlp.")] if layer < 2 else []
        stems += [] if layer < 2 else [(f"mlp.experts.{e}.", f"mlp.experts.local_experts.{e}.") for e in range(EXPERTS)]
        for their_stem, stem in stems:
            gate, up, down = (weights[f"{theirs}{their_stem}{name}_proj.weight"] for name in ("gate", "up", "down"))
            made[f"{own}{stem}linear_fc1.weight"] = torch.cat([rows(gate), rows(up)])
            made[f"{own}{stem}linear_fc2.weight"] = columns(down)
    if LAYERS - 1 in layers:
        made["decoder.final_layernorm.weight"] = weights["model.norm.weight"].clone()
        made["output_layer.weight"] = rows(padded(weights["lm_head.weight"]))
    return made


def turned(weight: torch.Tensor) -> torch.Tensor:
    """Rows of every head in turns from its halves: rotary embeddings of pairs instead of halves."""
    return weight.reshape(-1, 2, HEAD // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def engine(weights: Weights) -> Weights:
    """Q, K and V one after the other, gate before up, experts stacked: the weights of an inference engine."""
    made = {name: value for name, value in weights.items() if not any(part in name for part in ("attn.", "mlp."))}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for kind in ("weight", "bias"):
            made[f"{at}self_attn.qkv_proj.{kind}"] = torch.cat([weights[f"{at}self_attn.{n}_proj.{kind}"] for n in "qkv"])
        made[f"{at}self_attn.o_proj.weight"] = weights[f"{at}self_attn.o_proj.weight"]
        stems = [f"{at}mlp."] if layer < 2 else [f"{at}mlp.experts.{expert}." for expert in range(EXPERTS)]
        joined = [torch.cat([weights[f"{s}gate_proj.weight"], weights[f"{s}up_proj.weight"]]) for s in stems]
        down = [weights[f"{s}down_proj.weight"] for s in stems]
        name = "mlp.gate_up_proj.weight" if layer < 2 else "mlp.experts.w13_weight"
        made[f"{at}{name}"] = joined[0] if layer < 2 else torch.stack(joined)
        made[f"{at}mlp.down_proj.weight" if layer < 2 else f"{at}mlp.experts.w2_weight"] = (
            down[0] if layer < 2 else torch.stack(down)
        )
    return made


def ranks(weights: Weights, folder: Path, tensor: int, stages: int) -> Path:
    """A checkpoint of Megatron in files of ranks."""
    each = LAYERS // stages
    for rank in range(tensor):
        for stage in range(stages):
            place = folder / f"mp_rank_{rank:02d}_{stage:03d}"
            place.mkdir(parents=True)
            model = megatron(weights, tensor, rank, range(stage * each, (stage + 1) * each))
            torch.save({"model": model, "iteration": 10, "optimizer": {"step": torch.ones(3)}}, place / "model_optim_rng.pt")
    return folder


def distributed(weights: Weights, folder: Path) -> Path:
    from torch.distributed import checkpoint

    checkpoint.save(weights, checkpoint_id=folder, no_dist=True)
    return folder


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("baseline") / "baseline.pt"
    torch.save(llama(), path)
    return path


CONVERSIONS = {
    "names": lambda w: {name.replace("model.layers.", "blocks.").replace("self_attn", "attn"): v for name, v in w.items()},
    "bfloat16": lambda w: {name: value.bfloat16() for name, value in w.items()},
    "float16": lambda w: {name: value.half() for name, value in w.items()},
    "wider": lambda w: {name: value.double() for name, value in w.items()},
    "pairs": lambda w: list(w.items()),
    "megatron": megatron,
    "megatron_bfloat16": lambda w: {name: value.bfloat16() for name, value in megatron(w).items()},
    "engine": engine,
    "stacked": lambda w: {
        "experts.w1": torch.stack([w[f"model.layers.{i}.mlp.experts.{e}.gate_proj.weight"] for i in (2, 3) for e in range(EXPERTS)]),
        **{name: value for name, value in w.items() if "experts" not in name or "gate_proj" not in name},
    },
    "transposed": lambda w: {
        (f"t.{name}" if value.ndim == 2 else name): (value.t() if value.ndim == 2 else value) for name, value in w.items()
    },
    "transposed_under_the_same_names": lambda w: {n: v.t() if v.ndim == 2 and "layers" in n else v for n, v in w.items()},
    "pairs_of_rotary": lambda w: {
        f"m.{name}": turned(value) if "q_proj" in name or "k_proj" in name else value for name, value in w.items()
    },
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_conversion_is_equal_up_to_the_mapping(name: str, baseline: Path, tmp_path: Path) -> None:
    torch.save(CONVERSIONS[name](llama()), tmp_path / "candidate.pt")
    code, said, err = probe(baseline, tmp_path / "candidate.pt")
    assert (code, err) == (0, ""), said


@pytest.mark.parametrize(("tensor", "stages"), [(1, 2), (2, 1), (4, 2)])
def test_ranks_of_megatron_are_equal(tensor: int, stages: int, baseline: Path, tmp_path: Path) -> None:
    code, said, err = probe(baseline, ranks(llama(), tmp_path / "ranks", tensor, stages))
    assert (code, err) == (0, ""), said


def test_the_other_way_round_padding_is_a_note(baseline: Path, tmp_path: Path) -> None:
    code, said, err = probe(ranks(llama(), tmp_path / "ranks", 2, 2), baseline)
    assert (code, err) == (0, ""), said
    assert "mp_rank_01_000/embedding.word_embeddings.weight: the rows from 56 on are padding" in said


def test_rows_that_are_missing_are_an_error(baseline: Path, tmp_path: Path) -> None:
    weights = llama()
    weights["lm_head.weight"] = weights["lm_head.weight"][:100]
    torch.save({f"m.{name}": value for name, value in weights.items()}, tmp_path / "candidate.pt")
    code, said, _ = probe(baseline, tmp_path / "candidate.pt")
    assert code == 1
    assert "lm_head.weight: rows from 100 on: nothing in the candidate" in said


def test_a_distributed_checkpoint_is_equal(baseline: Path, tmp_path: Path) -> None:
    code, said, err = probe(baseline, distributed(llama(), tmp_path / "dcp"))
    assert (code, err) == (0, ""), said


def swap(weights: Weights, a: str, b: str) -> None:
    """Exchanges all tensors whose names contain `a` with those that contain `b`."""
    for name in [name for name in weights if a in name]:
        other = name.replace(a, b)
        weights[name], weights[other] = weights[other], weights[name]


def edit(name: str, change):
    def apply(weights: Weights) -> Weights:
        weights[name] = change(weights[name])
        return weights

    return apply


def exchanged(a: str, b: str, convert=megatron):
    def apply(weights: Weights) -> Weights:
        made = dict(convert(weights))
        swap(made, a, b)
        return made

    return apply


def then(convert, change):
    return lambda weights: change(dict(convert(weights)))


def before(change, convert):
    return lambda weights: convert(change(dict(weights)))


def noisy(value: torch.Tensor) -> torch.Tensor:
    return value * (1 + 1e-2 * torch.randn(value.shape, generator=torch.Generator().manual_seed(9)))


def cut(value: torch.Tensor) -> torch.Tensor:
    return (value.view(torch.int32) & -65536).view(torch.float32).bfloat16()


def heads(value: torch.Tensor) -> torch.Tensor:
    order = [0, 1, 5, 3, 4, 2, 6, 7]
    return value.reshape(8, HEAD, -1)[order].reshape(value.shape)


def row(value: torch.Tensor) -> torch.Tensor:
    value = value.clone()
    value[17] += 0.01 * torch.arange(value.shape[1])
    return value


def nan(value: torch.Tensor) -> torch.Tensor:
    value = value.clone()
    value[3, 4] = float("nan")
    return value


def concatenated(weights: Weights) -> Weights:
    made = megatron(weights)
    parts = [weights[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qkv"]
    made["decoder.layers.1.self_attention.linear_qkv.weight"] = torch.cat(parts)
    return made


def lost(weights: Weights) -> Weights:
    del weights["model.layers.2.self_attn.o_proj.weight"]
    return weights


Q7, O2 = "model.layers.3.self_attn.q_proj.weight", "model.layers.2.self_attn.o_proj.weight"
FC1, QKV = "decoder.layers.1.mlp.linear_fc1.weight", "decoder.layers.2.self_attention.linear_qkv.weight"

MISTAKES = {
    "rotary": (edit(Q7, turned), "layers.3.self_attn.q_proj", "interleaved rotary against halves"),
    "rotary_fused": (before(edit(Q7, turned), megatron), "layers.3.self_attention.linear_qkv", "interleaved rotary against halves"),
    "heads": (edit(Q7, heads), "layers.3.self_attn.q_proj", "blocks 2 and 5 of 8 swapped"),
    "scale": (edit(Q7, lambda v: v * 0.125), "layers.3.self_attn.q_proj", "scale of 0.1250"),
    "scale_fused": (then(megatron, edit(FC1, lambda v: v * 0.125)), "layers.1.mlp.linear_fc1", "scale of 0.1250"),
    "negative": (edit(O2, lambda v: -v), "layers.2.self_attn.o_proj", "scale of -1.0000"),
    "offset": (edit("model.norm.weight", lambda v: v - 1), "model.norm.weight", "offset of -1.0000"),
    "cut_off": (then(megatron, lambda w: {n: cut(v) if n == QKV else v.bfloat16() for n, v in w.items()}), "layers.2.self_attention", "cut off by the cast"),
    "through": (edit(O2, lambda v: v.bfloat16().float()), "layers.2.self_attn.o_proj", "gone through bfloat16"),
    "zero": (then(megatron, edit(FC1, torch.zeros_like)), "layers.1.mlp.linear_fc1", "is zero"),
    "nan": (edit(O2, nan), "layers.2.self_attn.o_proj", "NaN or infinity"),
    "noise": (then(megatron, edit(QKV, noisy)), "layers.2.self_attention.linear_qkv", "other values"),
    "row": (edit("model.embed_tokens.weight", row), "embed_tokens", "1 of 120 rows, first 17"),
    "shifted": (edit("model.embed_tokens.weight", lambda v: v.roll(1, 0)), "embed_tokens", "shifted by 119"),
    "transposed": (edit(O2, lambda v: v.t().contiguous()), "layers.2.self_attn.o_proj", "transposed"),
    "gate_and_up": (then(megatron, edit(FC1, lambda v: v.roll(INNER, 0))), "layers.1.mlp", "up_proj, gate_proj, unlike"),
    "concatenated": (concatenated, "layers.1.self_attention.linear_qkv", "instead of 4 groups of 16+8+8 rows"),
    "experts": (exchanged("layers.2.mlp.experts.local_experts.4.", "layers.2.mlp.experts.local_experts.5."), "local_experts 4 and 5 swapped", ""),
    "layers": (exchanged("layers.2.", "layers.3."), "layers 2 and 3 swapped", ""),
    "stacked_experts": (
        then(engine, edit("model.layers.3.mlp.experts.w2_weight", lambda v: v[[0, 1, 3, 2, 4, 5]])),
        "layers.3.mlp.experts.w2_weight",
        "experts.3.down_proj.weight comes before model.layers.3.mlp.experts.2.down_proj.weight",
    ),
    "two_of_three_layers": (
        lambda w: {n.replace("model.layers.", "blocks."): v for n, v in exchanged("layers.0.", "layers.1.", dict)(w).items() if "layers.3" not in n},
        "blocks 0 and 1 swapped",
        "",
    ),
    "k_and_v": (exchanged("1.self_attn.k_proj", "1.self_attn.v_proj", dict), "k_proj", "v_proj"),
    "lost": (lost, "layers.2.self_attn.o_proj", "nothing in the candidate"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str, baseline: Path, tmp_path: Path) -> None:
    make, where, words = MISTAKES[name]
    torch.save(make(llama()), tmp_path / "candidate.pt")
    left_out = ["--skip", "model.layers.3.*"] if name == "two_of_three_layers" else []
    code, said, _ = probe(baseline, tmp_path / "candidate.pt", "--format", "json", *left_out)
    findings = json.loads(said)["findings"]
    texts = [finding["text"] for finding in findings]
    assert code == 1
    assert len(texts) == 1, texts
    assert where in texts[0], texts
    assert words in texts[0], texts


def test_weights_that_were_not_updated_are_those_of_a_snapshot(baseline: Path, tmp_path: Path) -> None:
    older = llama(1)
    torch.save(older, tmp_path / "older.pt")
    synced = {name: older[name] if "layers.2." in name else value for name, value in llama().items()}
    torch.save(megatron(synced), tmp_path / "candidate.pt")
    code, said, _ = probe(baseline, tmp_path / "candidate.pt", "--snapshot", tmp_path / "older.pt")
    assert code == 1
    assert "decoder.layers.2.* (17 tensors): equal to the snapshot" in said, said
    assert "not updated" in said


@pytest.mark.parametrize("wrong", ["shards", "stage"])
def test_ranks_in_the_wrong_place_are_named(wrong: str, baseline: Path, tmp_path: Path) -> None:
    folder = ranks(llama(), tmp_path / "ranks", 2, 2)
    if wrong == "shards":
        names = [folder / f"mp_rank_{rank:02d}_001" for rank in (0, 1)]
        names[0].rename(folder / "aside")
        names[1].rename(names[0])
        (folder / "aside").rename(names[1])
    else:
        for rank in (0, 1):
            model = megatron(llama(), 2, rank, range(2))
            path = folder / f"mp_rank_{rank:02d}_001" / "model_optim_rng.pt"
            torch.save({"model": {n: v for n, v in model.items() if "embedding" not in n}, "iteration": 10}, path)
    code, said, _ = probe(baseline, folder)
    assert code == 1, said
    assert ("mp_rank 0 and 1 swapped" if wrong == "shards" else "model.layers.") in said, said


def test_the_mapping_pairs_the_tensors(baseline: Path, tmp_path: Path) -> None:
    torch.save(CONVERSIONS["names"](llama()), tmp_path / "candidate.pt")
    code, _, _ = probe(baseline, tmp_path / "candidate.pt", "-o", tmp_path / "names.toml")
    assert code == 0
    command = [os.environ["PROBE_BIN"]] if "PROBE_BIN" in os.environ else [sys.executable, "-m", "probe"]
    arguments = ["compare", baseline, tmp_path / "candidate.pt", "--mapping", tmp_path / "names.toml", "-o", "-", "--format", "json"]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "agree"


def test_a_file_that_is_cut_short_is_incomplete(baseline: Path, tmp_path: Path) -> None:
    folder = distributed(llama(), tmp_path / "dcp")
    file = folder / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    code, said, err = probe(baseline, folder)
    assert code == 3, said
    assert "__0_0.distcp" in err
    assert "copy it again; nor can" in err and len(err.splitlines()) == 1, "one line for one file"
    file.unlink()
    code, said, err = probe(baseline, folder)
    assert code == 3, said
    assert "the index names this file, and it is not there" in err and len(err.splitlines()) == 1
    file.write_bytes(b"")
    (folder / ".metadata").unlink()
    code, said, err = probe(baseline, folder)
    assert (code, said) == (2, "")
    assert "holds .distcp files without .metadata" in err


def test_of_equal_tensors_one_has_to_be_there(tmp_path: Path) -> None:
    table, other = torch.randn(40, 16), torch.randn(16, 16)
    torch.save({"embed.weight": table, "head.weight": table.clone(), "up.weight": other}, tmp_path / "tied.pt")
    torch.save({"embed.weight": table, "up.weight": other}, tmp_path / "one.pt")
    torch.save({"up.weight": other}, tmp_path / "none.pt")
    code, said, _ = probe(tmp_path / "tied.pt", tmp_path / "one.pt")
    assert code == 0 and "head.weight is not in the candidate; it equals embed.weight" in said
    code, said, _ = probe(tmp_path / "tied.pt", tmp_path / "none.pt")
    assert code == 1, said
    assert "embed.weight, head.weight: nothing in the candidate has these values" in said


def test_heads_that_are_not_permuted_as_those_of_other_layers_are_named(baseline: Path, tmp_path: Path) -> None:
    weights = {f"m.{name}": turned(value) if "k_proj.weight" in name else value for name, value in llama().items()}
    wrong = "m.model.layers.1.self_attn.k_proj.weight"
    weights[wrong] = llama()[wrong.removeprefix("m.")]
    torch.save(weights, tmp_path / "k.pt")
    code, said, _ = probe(baseline, tmp_path / "k.pt")
    assert code == 1, said
    assert f"{wrong}: in order instead of heads of {HEAD} permuted (interleaved rotary against halves)" in said


def test_what_a_program_numbers_from_the_end_is_a_mapping(tmp_path: Path) -> None:
    blocks = {f"up.{block}.conv{part}.weight": torch.randn(32, 32) for block in range(5) for part in (1, 2)}
    last = {f"up.{block}.upsample.weight": torch.randn(32, 32) for block in (1, 2)}
    torch.save(blocks | last, tmp_path / "ldm.pt")
    made = {f"up_blocks.{4 - int(name.split('.')[1])}.{name.split('.', 2)[2]}": value for name, value in (blocks | last).items()}
    torch.save(made, tmp_path / "diffusers.pt")
    code, said, _ = probe(tmp_path / "ldm.pt", tmp_path / "diffusers.pt")
    assert code == 0, said
    swap(made, "blocks.0.", "blocks.1.")
    torch.save(made, tmp_path / "wrong.pt")
    code, said, _ = probe(tmp_path / "ldm.pt", tmp_path / "wrong.pt")
    assert code == 1 and "up_blocks 1 and 0 swapped (4 tensors)" in said, said


def test_the_first_and_the_last_layer_exchanged_are_not_a_numbering_from_the_end(tmp_path: Path) -> None:
    layers = {f"layers.{layer}.up.weight": torch.randn(32, 32) for layer in range(6)}
    torch.save(layers, tmp_path / "one.pt")
    made = {name.replace("layers", "blocks"): value for name, value in layers.items()}
    swap(made, "blocks.0.", "blocks.5.")
    torch.save(made, tmp_path / "other.pt")
    code, said, _ = probe(tmp_path / "one.pt", tmp_path / "other.pt")
    assert code == 1 and "blocks 0 and 5 swapped" in said and said.count("swapped") == 1, said


def test_halves_of_one_tensor_may_be_exchanged_but_not_of_one_of_its_kind(tmp_path: Path) -> None:
    weights = {f"blocks.{block}.modulation.weight": torch.randn(64, 32) for block in range(3)}
    weights |= {"last.modulation.weight": torch.randn(32, 32), "last.modulation.bias": torch.randn(32)}
    torch.save(weights, tmp_path / "one.pt")
    made = {f"m.{name.replace('modulation', 'linear')}": v.roll(len(v) // 2, 0) if "last" in name else v for name, v in weights.items()}
    torch.save(made, tmp_path / "other.pt")
    code, said, _ = probe(tmp_path / "one.pt", tmp_path / "other.pt")
    assert code == 0 and "halves exchanged" in said, said
    made["m.blocks.1.linear.weight"] = made["m.blocks.1.linear.weight"].roll(32, 0)
    torch.save(made, tmp_path / "wrong.pt")
    code, said, _ = probe(tmp_path / "one.pt", tmp_path / "wrong.pt")
    assert code == 1 and "m.blocks.1.linear.weight: rows: halves exchanged" in said, said


def test_heads_under_a_rotary_embedding_are_named_when_two_are_exchanged(baseline: Path, tmp_path: Path) -> None:
    made = CONVERSIONS["pairs_of_rotary"](llama())
    name = "m.model.layers.2.self_attn.q_proj.weight"
    made[name] = heads(made[name])
    torch.save(made, tmp_path / "candidate.pt")
    code, said, _ = probe(baseline, tmp_path / "candidate.pt")
    assert code == 1 and f"{name}: " in said and "blocks 2 and 5 of 8 swapped" in said, said


def test_parts_of_one_tensor_in_each_others_place_are_swapped(tmp_path: Path) -> None:
    joined = {f"layers.{layer}.gate_up.weight": torch.randn(64, 32) for layer in range(4)}
    torch.save(joined, tmp_path / "joined.pt")
    apart = {f"blocks.{layer}.w{part}.weight": joined[f"layers.{layer}.gate_up.weight"].chunk(2)[part // 2] for layer in range(4) for part in (1, 3)}
    swap(apart, "2.w1", "2.w3")
    torch.save(apart, tmp_path / "apart.pt")
    code, said, _ = probe(tmp_path / "joined.pt", tmp_path / "apart.pt")
    assert code == 1 and "blocks.2.w1 and blocks.2.w3 swapped" in said, said


@pytest.mark.parametrize("form", ["local_experts.{}.linear_fc2.weight", "linear_fc2.weight{}"])
def test_a_copy_of_another_expert_is_named(form: str, baseline: Path, tmp_path: Path) -> None:
    old = "local_experts.{}.linear_fc2.weight"
    made = megatron(llama())
    for layer in (2, 3):
        for expert in range(EXPERTS):
            at = f"decoder.layers.{layer}.mlp.experts."
            made[at + form.format(expert)] = made.pop(at + old.format(expert))
    at = "decoder.layers.3.mlp.experts."
    made[at + form.format(4)] = made[at + form.format(1)].clone()
    torch.save(made, tmp_path / "candidate.pt")
    code, said, _ = probe(baseline, tmp_path / "candidate.pt", "--format", "json")
    findings = [finding["text"] for finding in json.loads(said)["findings"]]
    assert code == 1 and len(findings) == 1, findings
    assert f"{at}{form.format(4)}: holds model.layers.3.mlp.experts.1.down_proj.weight instead of" in findings[0]


def test_a_norm_that_differs_on_one_rank_is_named(baseline: Path, tmp_path: Path) -> None:
    folder = ranks(llama(), tmp_path / "ranks", 2, 2)
    path = folder / "mp_rank_01_001" / "model_optim_rng.pt"
    state = torch.load(path)
    state["model"]["decoder.layers.1.input_layernorm.weight"] *= 1 + 0.1 * torch.rand(WIDTH)
    torch.save(state, path)
    code, said, _ = probe(baseline, folder)
    assert code == 1 and "mp_rank_01_001/decoder.layers.1.input_layernorm.weight: other values" in said, said


def test_a_causal_mask_is_no_weight(baseline: Path, tmp_path: Path) -> None:
    masks = {f"model.layers.{layer}.attn.bias": torch.tril(torch.ones(40, 40)).view(1, 1, 40, 40).half() for layer in range(2)}
    torch.save(llama() | masks, tmp_path / "candidate.pt")
    code, said, _ = probe(baseline, tmp_path / "candidate.pt")
    assert code == 0, said
    masks["model.layers.1.attn.bias"][0, 0, 3, 9] = 1
    torch.save(llama() | masks, tmp_path / "candidate.pt")
    assert probe(baseline, tmp_path / "candidate.pt")[0] == 1


def test_a_shard_of_a_padded_table_that_is_another_ranks_is_named(baseline: Path, tmp_path: Path) -> None:
    folder = ranks(llama(), tmp_path / "ranks", 4, 1)
    states = [torch.load(folder / f"mp_rank_{rank:02d}_000" / "model_optim_rng.pt") for rank in (1, 3)]
    states[1]["model"]["output_layer.weight"] = states[0]["model"]["output_layer.weight"]
    torch.save(states[1], folder / "mp_rank_03_000" / "model_optim_rng.pt")
    code, said, _ = probe(baseline, folder)
    assert code == 1 and "mp_rank_03_000/output_layer.weight: " in said, said


def test_a_plan_of_writing_in_the_index_is_passed_over(baseline: Path, tmp_path: Path) -> None:
    """As megatron-core leaves it in its distributed checkpoints. It stacks layers, in each of which Q, K and V are in groups."""
    import pickle

    from torch.distributed.checkpoint.planner import SavePlan

    stack = {"layers.qkv.weight": torch.stack([grouped(*(llama()[f"model.layers.{layer}.self_attn.{n}_proj.weight"] for n in "qkv")) for layer in range(LAYERS)])}
    folder = distributed(stack, tmp_path / "dcp")
    index = pickle.loads((folder / ".metadata").read_bytes())
    index.all_local_plans = [SavePlan([])]
    (folder / ".metadata").write_bytes(pickle.dumps(index))
    code, said, err = probe(baseline, folder, "--skip", "*norm*", "--skip", "*bias", "--skip", "*mlp*", "--skip", "*o_proj*", "--skip", "*embed*", "--skip", "lm_head*")
    assert (code, err) == (0, ""), said + err
    assert "16 groups of 16+8+8 rows" in said


def test_an_index_is_not_trusted(baseline: Path, tmp_path: Path) -> None:
    """An index that names a class with effects, a file elsewhere, or places outside the tensor."""
    import pickle

    from torch.distributed.checkpoint.metadata import MetadataIndex

    folder = distributed(llama(), tmp_path / "dcp")
    place = folder / ".metadata"
    sound = place.read_bytes()
    name = "model.norm.weight"

    class Harm:
        def __reduce__(self):
            return (os.system, ("touch harmed",))

    place.write_bytes(pickle.dumps(Harm()))
    code, said, err = probe(baseline, folder)
    assert (code, said) == (2, "")
    assert "nothing in this file was executed" in err
    for change, words in (
        (lambda m: setattr(m.storage_data[MetadataIndex(name, torch.Size([0]))], "relative_path", "../x"), "not the name of a file"),
        (lambda m: setattr(m.state_dict_metadata[name], "size", torch.Size([WIDTH + 1])), "a file of a rank may be missing"),
        (lambda m: setattr(m.state_dict_metadata[name].chunks[0], "sizes", torch.Size([1 << 60])), "does not lie inside"),
        (lambda m: setattr(m.storage_data[MetadataIndex(name, torch.Size([0]))], "length", 1 << 62), "__0_0.distcp"),
    ):
        index = pickle.loads(sound)
        change(index)
        place.write_bytes(pickle.dumps(index))
        code, _, err = probe(baseline, folder)
        assert code == 3
        assert words in err
    place.write_bytes(sound[: len(sound) // 2])
    assert probe(baseline, folder)[0] == 2


@pytest.mark.parametrize("wrong", ["pointer", "page", "gone", "gone without an index"])
def test_a_shard_that_is_not_one_is_named_and_the_rest_compared(wrong: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weights = {f"layers.{layer}.up.weight": torch.randn(16, 16) for layer in range(2)}
    names = [f"model-0000{place}-of-00002.safetensors" for place in (1, 2)]
    for side in ("sound", "wrong"):
        (tmp_path / side).mkdir()
        for name, (tensor, value) in zip(names, weights.items()):
            save_file({tensor: value}, tmp_path / side / name)
        index = {"weight_map": dict(zip(weights, names))}
        (tmp_path / side / "model.safetensors.index.json").write_text(json.dumps(index))
    shard = tmp_path / "wrong" / names[1]
    if wrong == "pointer":
        shard.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 4976698672\n")
        words = f"{names[1]}: is a Git LFS pointer to a file of 4976698672 bytes"
    elif wrong == "page":
        shard.write_text("<!DOCTYPE html><title>Sign in</title>")
        words = f"{names[1]}: is a web page"
    else:
        shard.unlink()
        words = f"{names[1]}: the index names this file, and it is not there"
        if wrong == "gone without an index":
            (tmp_path / "wrong" / "model.safetensors.index.json").unlink()
            words = "lacks 1 of the 2 shards model-*-of-00002.safetensors, first number 00002"
    code, said, err = probe(tmp_path / "sound", tmp_path / "wrong")
    assert code == 3 and words in err, err
    assert "incomplete: 1 of 1 tensor that could be read of the candidate are equal" in said
    assert "layers.1.up.weight: nothing in the candidate that could be read has these values" in said
    code, said, err = probe(tmp_path / "wrong", tmp_path / "sound")
    assert code == 3 and words in err, err
    assert "layers.1.up.weight: nothing in the baseline that could be read has these values" in said


def test_an_array_that_is_damaged_names_its_file(tmp_path: Path) -> None:
    import numpy

    for name in ("sound", "bad"):
        numpy.savez(tmp_path / f"{name}.npz", a=numpy.ones((16, 16)), b=numpy.arange(256.0).reshape(16, 16))
    content = bytearray((tmp_path / "bad.npz").read_bytes())
    at = content.index(b"\x93NUMPY", content.index(b"b.npy"))
    content[at : at + 6] = b"??????"
    (tmp_path / "bad.npz").write_bytes(content)
    code, _, err = probe(tmp_path / "sound.npz", tmp_path / "bad.npz")
    assert code == 3 and "bad.npz: array 'b.npy': " in err, err
