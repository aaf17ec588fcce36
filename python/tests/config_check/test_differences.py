"""One thing differs between two trainings: its part says so, and no other part that need not follow from it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import NamedTuple

import pytest

from .conftest import Checked, Pack, Packed, differences

# A training differs in these from its first step on, once anything in it differs.
TRAINED = ["weights:steps.1.*"]
STARTED = ["weights:steps.0.*", *TRAINED]
DRAWN = ["random:marks.model.*", "random:marks.step ?.*"]


class Case(NamedTuple):
    change: tuple[str, str]
    # Keys that must differ, as patterns; each is met by at least one.
    found: list[str]
    # Keys that may differ too.
    follows: list[str] = []
    # The answer of the check for the parts of `found`.
    verdict: str = "diff"


CASES = {
    "seed of torch": Case(
        ("torch.manual_seed(seed)", "torch.manual_seed(seed + 1)"),
        ["random:seeds.torch", "random:calls.torch.manual_seed.value", "random:marks.seeded.generators.torch.state"],
        [*DRAWN, *STARTED],
    ),
    "seed of numpy": Case(
        ("np.random.seed(seed)", "np.random.seed(seed + 1)"),
        ["random:seeds.numpy", "random:calls.numpy.random.seed.value"],
        ["random:marks.*.numpy.*"],
    ),
    "seed of python": Case(
        ("random.seed(seed)\n    np", "random.seed(seed + 1)\n    np"),
        ["random:seeds.python", "random:calls.random.seed.value"],
        ["random:marks.*.python.*"],
    ),
    "no seed": Case(
        ("    torch.manual_seed(seed)\n", ""),
        ["random:seeds.torch", "random:calls.torch.manual_seed.value"],
        ["random:*", *STARTED],
    ),
    "a second seed call": Case(
        ("    model = Net()", "    torch.manual_seed(7)\n    model = Net()"),
        ["random:calls.torch.manual_seed#2.value"],
        ["random:calls.torch.manual_seed#2.*"],
        # The generator stands where it stood.
        "note",
    ),
    "draw before the model": Case(
        ("    model = Net()", "    torch.rand(3)\n    model = Net()"),
        ["random:marks.model.generators.torch.draws", "random:marks.model.generators.torch.state"],
        [*DRAWN, *STARTED],
    ),
    "draw before the loop": Case(
        ("# LOOP", "np.random.rand()"),
        ["random:marks.step 0.generators.numpy.draws"],
        ["random:marks.step ?.generators.numpy.*"],
    ),
    "draw in the loop": Case(
        ("# BATCH", "random.random()"),
        ["random:marks.step 0.generators.python.draws", "random:marks.step 1.generators.python.state"],
        ["random:marks.step ?.generators.python.*"],
    ),
    "samples of a batch in another order": Case(
        ("# BATCH", "tokens, labels = tokens.flip(0), labels.flip(0)"),
        ["dataset:steps.0.arguments.args.0.samples", "dataset:steps.0.arguments.args.0.hash"],
        ["dataset:steps.?.arguments.*.samples", "dataset:steps.?.arguments.*.hash",
         "dataset:steps.?.arguments.*.statistics.*", "dataset:*", *TRAINED],
    ),
    "labels changed": Case(
        ("self.labels = torch.randint(0, 4, (24,), generator=generator)",
         "self.labels = torch.randint(0, 4, (24,), generator=generator) * 0"),
        ["dataset:steps.0.arguments.loader.1.hash"],
        ["dataset:steps.?.arguments.loader.1.*", *TRAINED],
    ),
    "dropped sample": Case(
        ("return len(self.tokens)", "return len(self.tokens) - 1"),
        ["dataloader:samples", "dataset:steps.0.arguments.args.0.hash"],
        ["dataset:*", *TRAINED],
    ),
    "batch size": Case(
        ("batch_size=4", "batch_size=3"),
        ["dataloader:batch_size", "dataset:steps.0.arguments.args.0.shape"],
        ["dataloader:batches", "dataset:*", "random:marks.step 1.*", *TRAINED],
    ),
    "no shuffling": Case(
        ("shuffle=True", "shuffle=False"),
        ["dataloader:shuffle", "dataloader:sampler", "dataset:steps.0.arguments.args.0.hash"],
        ["dataset:*", *TRAINED],
    ),
    "seed of the loader": Case(
        ("manual_seed(5)", "manual_seed(6)"),
        ["dataloader:generator_seed", "dataset:steps.0.arguments.args.0.hash"],
        ["dataset:*", "dataloader:worker_seed", *TRAINED],
    ),
    "scalar argument": Case(
        ("model(tokens, temperature=1.0)", "model(tokens, temperature=2.0)"),
        ["dataset:steps.0.arguments.kwargs.temperature.value", "dataset:steps.1.arguments.kwargs.temperature.value"],
        TRAINED,
    ),
    "weight nudged": Case(
        ("# MODEL", "model.proj.weight.data[2, 3] += 1e-7"),
        ["weights:steps.0.tensors.proj.weight.hash", "weights:steps.0.tensors.proj.weight.unordered_hash",
         "weights:steps.0.tensors.proj.weight.sketch"],
        ["weights:steps.0.tensors.proj.weight.*", *TRAINED],
    ),
    "rows permuted": Case(
        ("# MODEL", "model.proj.weight.data = model.proj.weight.data.flip(0)"),
        ["weights:steps.0.tensors.proj.weight.hash"],
        ["weights:steps.0.tensors.proj.weight.sketch", "weights:steps.0.tensors.proj.weight.cast_hashes.*",
         "weights:steps.0.tensors.proj.weight.statistics.mean", "weights:steps.0.tensors.proj.weight.statistics.norm", *TRAINED],
    ),
    "buffer changed": Case(
        ("# MODEL", "model.norm.running_mean += 1"),
        ["weights:steps.0.tensors.norm.running_mean.hash"],
        ["weights:steps.0.tensors.norm.running_mean.*", *TRAINED],
    ),
    "temporary buffer changed": Case(
        ("torch.ones(8), persistent", "torch.ones(8) * 2, persistent"),
        ["weights:steps.0.tensors.gain.hash"],
        ["weights:steps.0.tensors.gain.*", *TRAINED],
    ),
    "parameter renamed": Case(
        ("self.proj = nn.Linear(8, 8)", "self.fc = nn.Linear(8, 8)\n        self.__dict__['proj'] = self.fc"),
        ["model:tensors.fc.weight.kind", "model:tensors.proj.weight.kind", "weights:steps.0.tensors.fc.weight.hash",
         "optimizer:groups.0.parameters"],
        ["model:*", "weights:steps.?.tensors.fc.*", "weights:steps.?.tensors.proj.*"],
    ),
    "module type": Case(
        ("self.drop = nn.Dropout(0.1)", "self.drop = nn.Dropout(0.2)"), ["model:modules.drop.extra"], TRAINED
    ),
    "evaluation mode": Case(("# MODEL", "model.eval()"), ["model:modules.*.training"], [*TRAINED, "random:marks.step 1.*"]),
    "frozen parameter": Case(
        ("# MODEL", "model.embed.weight.requires_grad_(False)"),
        ["model:tensors.embed.weight.requires_grad"], TRAINED,
    ),
    "dtype": Case(
        ("# MODEL", "model.double()"),
        ["model:tensors.proj.weight.dtype", "weights:steps.0.tensors.proj.weight.dtype", "flags:compute_dtype"],
        ["model:tensors.*.dtype", "optimizer:state_dtypes.*", *STARTED],
    ),
    "learning rate": Case(
        ("lr=1e-3", "lr=2e-3"),
        ["optimizer:groups.0.options.lr", "schedule:rates"],
        ["optimizer:groups.0.options.initial_lr", "schedule:state.base_lrs", "schedule:state._last_lr", *TRAINED],
    ),
    "betas": Case(("(0.9, 0.999)", "(0.9, 0.99)"), ["optimizer:groups.0.options.betas"], TRAINED),
    "weight decay": Case(("weight_decay=0.01", "weight_decay=0.1"), ["optimizer:groups.0.options.weight_decay"], TRAINED),
    "optimizer": Case(
        ("torch.optim.AdamW(", "torch.optim.Adam("),
        ["optimizer:class"],
        ["optimizer:groups.0.options.decoupled_weight_decay", *TRAINED],
    ),
    "schedule": Case(("gamma=0.5", "gamma=0.25"), ["schedule:rates", "schedule:state.gamma"]),
    "other schedule": Case(
        ("StepLR(optimizer, 2, gamma=0.5)", "LambdaLR(optimizer, lambda step: 1 / (1 + step))"),
        ["schedule:class", "schedule:rates"],
        ["schedule:state.*"],
    ),
    "clip norm": Case(
        ("clip_grad_norm_(model.parameters(), 1.0)", "clip_grad_norm_(model.parameters(), 0.5)"),
        ["optimizer:clipping.0.limit"],
        ["optimizer:clipping.*.limit", *TRAINED],
    ),
    "no clipping": Case(
        ("            clip_grad_norm_(model.parameters(), 1.0)\n", ""), ["optimizer:clipping*"], ["optimizer:clipping*", *TRAINED]
    ),
    "accumulation": Case(
        ("accumulate = 1", "accumulate = 2"),
        ["optimizer:accumulation.0.optimizer"],
        ["optimizer:clipping*", "optimizer:accumulation*", "dataloader:global batch", *TRAINED],
    ),
    "loss scale": Case(("init_scale=1024.0", "init_scale=512.0"), ["scaler:scale"], TRAINED),
    "growth interval": Case(
        ("init_scale=1024.0", "init_scale=1024.0, growth_interval=7"), ["scaler:growth_interval"], TRAINED
    ),
    "no scaler": Case(
        ('GradScaler("cpu", init_scale=1024.0)', 'GradScaler("cpu", enabled=False)'),
        ["scaler:enabled"],
        ["scaler:*", *TRAINED],
    ),
    "autocast": Case(
        ("enabled=False", "enabled=True"), ["flags:autocast.enabled", "flags:autocast.dtype"], ["flags:autocast.device", *TRAINED]
    ),
    "TF32 of matmul": Case(
        ("# PACK", "torch.backends.cuda.matmul.allow_tf32 = True"),
        ["flags:cuda.matmul.allow_tf32"],
        ["flags:float32_matmul_precision"],
    ),
    "TF32 of cudnn": Case(("# PACK", "torch.backends.cudnn.allow_tf32 = False"), ["flags:cudnn.allow_tf32"]),
    "matmul precision": Case(
        ("# PACK", "torch.set_float32_matmul_precision('high')"), ["flags:float32_matmul_precision"],
        ["flags:cuda.matmul.allow_tf32", *TRAINED],
    ),
    "deterministic algorithms": Case(
        ("# PACK", "torch.use_deterministic_algorithms(True, warn_only=True)"),
        ["flags:deterministic_algorithms", "flags:deterministic_warn_only"],
        TRAINED,
    ),
    "cudnn benchmark": Case(("# PACK", "torch.backends.cudnn.benchmark = True"), ["flags:cudnn.benchmark"]),
    "cudnn deterministic": Case(("# PACK", "torch.backends.cudnn.deterministic = True"), ["flags:cudnn.deterministic"]),
    "flash attention": Case(
        ("# PACK", "torch.backends.cuda.enable_flash_sdp(False)"), ["flags:sdp.flash"], verdict="note"
    ),
    "argument": Case(
        ("parse_args([])", "parse_args(['--hidden', '16'])"), ["hyperparameters:sources.Namespace.values.hidden"]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_difference_is_found_in_its_part(name: str, packed: Packed, checked: Callable[[Pack, Pack], Checked]) -> None:
    case = CASES[name]
    found = differences(packed(), packed(case.change))
    for pattern in case.found:
        assert any(fnmatch.fnmatch(key, pattern) for key in found), f"{pattern} is not among {sorted(found)}"
    rest = {key for key in found if not any(fnmatch.fnmatch(key, pattern) for pattern in [*case.found, *case.follows])}
    assert not rest

    told = checked(packed(), packed(case.change))
    own = {pattern.partition(":")[0] for pattern in case.found}
    assert case.verdict in {told.verdicts[part] for part in own}, told.rows
    others = own | {pattern.partition(":")[0] for pattern in case.follows}
    assert all(row.partition(":")[0] in others for row in told.rows), told.rows
    assert told.code == (1 if told.rows else 0)


def test_the_same_script_gives_the_same_pack(packed: Packed, checked: Callable[[Pack, Pack], Checked]) -> None:
    again = packed(("# END", "pass"))
    assert differences(packed(), again) == set()
    assert (checked(packed(), again).code, checked(packed(), again).rows) == (0, [])


def test_generators_that_nobody_seeds_or_uses_are_no_difference(
    packed: Packed, checked: Callable[[Pack, Pack], Checked]
) -> None:
    # Children of one process would begin with the same NumPy.
    own = "np.random.set_state(np.random.RandomState().get_state())\n"
    unseeded = ("random.seed(seed)\n    np.random.seed(seed)\n", own)
    first, second = packed(unseeded), packed(unseeded, ("# END", "pass"))
    for generator in ("python", "numpy"):
        assert any(key.endswith(f"{generator}.state") for key in differences(first, second))
    assert (checked(first, second).code, checked(first, second).rows) == (0, [])
    for generator, draw in (("python", "random.random()"), ("numpy", "np.random.rand()")):
        told = checked(packed(unseeded, ("# LOOP", draw)), packed(unseeded, ("# LOOP", draw), ("# END", "pass")))
        assert told.code == 1 and told.rows and all(row.startswith(f"random: {generator}") for row in told.rows), told.rows


def test_a_permuted_weight_keeps_its_unordered_hash_and_a_cast_one_has_the_hash_of_the_cast(packed: Packed) -> None:
    def weight(pack: object) -> dict[str, object]:
        (found,) = [item for item in pack.part("weights")["steps"][0]["tensors"] if item["name"] == "proj.weight"]
        return found

    base = weight(packed())
    permuted = weight(packed(("# MODEL", "model.proj.weight.data = model.proj.weight.data.flip(0)")))
    assert permuted["hash"] != base["hash"] and permuted["unordered_hash"] == base["unordered_hash"]
    cast = weight(packed(("# MODEL", "model.proj.weight.data = model.proj.weight.data.half().float()")))
    half = weight(packed(("# MODEL", "model.half().float(); model.proj.half()"), ("model(tokens, temperature=1.0)", "model.float()(tokens, temperature=1.0)")))
    assert cast["hash"] != base["hash"] and cast["cast_hashes"]["float16"] == base["cast_hashes"]["float16"]
    assert half["dtype"] == "float32" or half["hash"] == base["cast_hashes"]["float16"]


# As frameworks do: a batch is asked for before the one that came is used, and labels do not go through the model.
AHEAD = (
    "    for index, (tokens, labels) in enumerate(loader):\n",
    "    def ahead(batches, count):\n"
    "        held = []\n"
    "        for batch in batches:\n"
    "            held.append(batch)\n"
    "            if len(held) > count:\n"
    "                yield held.pop(0)\n"
    "    for index, (tokens, labels) in enumerate(ahead(loader, 1)):\n",
)


def test_batches_that_are_asked_for_ahead_belong_to_the_calls_that_read_them(packed: Packed) -> None:
    base = packed()
    for count in (1, 3):
        ahead = packed((AHEAD[0], AHEAD[1].replace("ahead(loader, 1)", f"ahead(loader, {count})")))
        assert {key for key in differences(base, ahead) if key.startswith("dataset:")} == set()


def test_batches_that_nobody_uses_belong_to_no_call(packed: Packed) -> None:
    paths = [argument["path"] for argument in packed().part("dataset")["steps"][0]["arguments"]]
    assert "loader.1" in paths
    # More than are looked at while no call comes.
    skipped = packed(("# LOOP", "long = [0 for _ in range(30) for _ in torch.utils.data.DataLoader(Samples(), batch_size=4)]"))
    assert {key for key in differences(packed(), skipped) if key.startswith("dataset:")} == set()


def test_parameters_of_another_model_that_is_trained_are_counted(packed: Packed) -> None:
    made = ("# LOOP", "critic = nn.Linear(4, 1)\nsecond = torch.optim.SGD(critic.parameters(), 0.1)")
    trained = ("# BATCH", "critic(torch.ones(2, 4)).sum().backward(); second.step()")
    pack = packed(made, trained)
    assert pack.part("optimizer")["outside"] == 2 and "outside" not in packed().part("optimizer")


WORKERS = ("num_workers=0", "num_workers=2")


def test_a_draw_in_a_worker_is_found_in_that_worker(packed: Packed) -> None:
    draw = ("return self.tokens[index], self.labels[index]", "torch.rand(1); return self.tokens[index], self.labels[index]")
    found = differences(packed(WORKERS), packed(WORKERS, draw))
    assert "random:marks.step 0.generators.worker.0.torch.draws" in found
    assert all(key.startswith("random:marks.step ") and ".worker." in key and ".torch." in key for key in found)


def test_the_number_of_workers_is_found(packed: Packed) -> None:
    found = differences(packed(), packed(WORKERS))
    assert "dataloader:num_workers" in found
    assert all(key.startswith(("dataloader:", "random:marks.step ")) and "weights" not in key for key in found)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        ("PYTHONHASHSEED", "3"),
        ("NVIDIA_TF32_OVERRIDE", "0"),
        ("NCCL_ALGO", "Ring"),
        ("HCCL_DETERMINISTIC", "true"),
        ("CUDA_LAUNCH_BLOCKING", "1"),
        ("LD_LIBRARY_PATH", "/opt/lib"),
        ("CLOSE_MATMUL_K_SHIFT", "1"),
        ("INF_NAN_MODE_ENABLE", "0"),
    ],
)
def test_a_variable_is_found_by_its_value(variable: str, value: str, packed: Packed) -> None:
    other = packed(environment={variable: value})
    assert f"env:values.{variable}" in differences(packed(), other)
    assert other.part("env")["values"][variable] == value


def test_an_unknown_variable_is_found_by_its_name_alone(packed: Packed) -> None:
    other = packed(environment={"SITE_SPECIFIC_SWITCH": "do-not-show"})
    assert differences(packed(), other) == {"env:names"}
    assert "do-not-show" not in "".join(other.text.values())
