"""Several processes, one pack."""

from __future__ import annotations

import os
import socket
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from probe.config_check import digests, structure
from probe.config_check.weights import Weights

from .conftest import Checked, Hanging, Pack, Packed, changed, differences, start

GROUP = (
    "# MODEL",
    'torch.distributed.init_process_group("gloo")\nmodel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)',
)
LEAVE = ("# END", "torch.distributed.destroy_process_group()")
RANK_DATA = ("manual_seed(5)", "manual_seed(5 + torch.distributed.get_rank())")


def run(tmp_path: Path, *changes: tuple[str, str], ranks: int = 2, environments: dict[int, dict[str, str]] | None = None) -> Pack:
    script = tmp_path / "train.py"
    script.write_text(changed(*changes))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
        "PACK": str(tmp_path / "pack.zip"), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
    }
    waits = [
        start(script, {**common, "RANK": str(rank), **(environments or {}).get(rank, {})})
        for rank in range(ranks)
    ]
    for wait in waits:
        try:
            wait()
        except Hanging:
            # Once in hundreds of runs torch waits for a thread of gloo's for good when it takes the group apart, after all is done.
            assert (tmp_path / "pack.zip").exists()
    return Pack(tmp_path / "pack.zip")


def test_two_ranks_make_one_pack(tmp_path: Path, packed: Packed) -> None:
    pack = run(tmp_path, GROUP, LEAVE, RANK_DATA)
    assert pack.manifest["ranks"] == [0, 1] and pack.manifest["world_size"] == 2
    distributed = pack.part("distributed", 1)
    assert (distributed["backend"], distributed["world_size"], distributed["local_ranks"]) == ("gloo", 2, 2)
    assert distributed["wrapper"]["kind"] == "DDP" and distributed["wrapper"]["gradient_as_bucket_view"] is True
    assert pack.part("dataset", 0)["steps"] != pack.part("dataset", 1)["steps"]
    assert pack.part("weights", 0)["steps"][0] == pack.part("weights", 1)["steps"][0]
    assert sorted(os.listdir(tmp_path)) == ["pack.zip", "train.py"]
    found = differences(packed(), pack)
    assert {"distributed:world_size", "distributed:initialized", "env:values.WORLD_SIZE"} <= found


SHARDED = {
    "FSDP2": "from torch.distributed.fsdp import fully_shard\n"
    "mesh = torch.distributed.device_mesh.init_device_mesh('cpu', (2,))\n"
    "[fully_shard(part, mesh=mesh) for part in (model.proj, model.head, model)]",
    "FSDP": "from torch.distributed.fsdp import FullyShardedDataParallel\n"
    "model = FullyShardedDataParallel(model, device_id=torch.device('cpu'), use_orig_params=True)",
}
# Neither can unscale gradients on a CPU.
UNSCALED = ('GradScaler("cpu", init_scale=1024.0)', 'GradScaler("cpu", enabled=False)')
NUDGED = "with torch.no_grad():\n    model.head.weight[3, 2] += 1e-7\n"


@pytest.mark.parametrize("kind", SHARDED)
def test_shards_are_packed_by_the_ranks_that_hold_them(
    kind: str, tmp_path: Path, checked: Callable[[Pack, Pack], Checked]
) -> None:
    def sharded(name: str, first: str = "") -> Pack:
        (tmp_path / name).mkdir()
        wrap = ("# MODEL", f'{first}torch.distributed.init_process_group("gloo")\n{SHARDED[kind]}')
        return run(tmp_path / name, wrap, LEAVE, RANK_DATA, UNSCALED)

    pack, again, nudged = sharded("a"), sharded("b"), sharded("c", NUDGED)
    assert pack.part("distributed")["wrapper"]["kind"] == kind
    for name in ("proj.weight", "head.weight"):
        parts = [
            item["statistics"]["count"]
            for rank in (0, 1)
            for item in pack.part("weights", rank)["steps"][0]["tensors"]
            if item["name"].endswith(name)
        ]
        assert sum(parts) == {"proj.weight": 64, "head.weight": 32}[name]
    assert (checked(pack, again).code, checked(pack, again).rows) == (0, [])
    told = checked(pack, nudged)
    # The last row of the last matrix: the second rank has it.
    assert told.code == 1 and [row for row in told.rows if "head.weight" in row] == told.rows, told.rows


def test_under_zero_3_the_shard_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.arange(10.0).bfloat16()
    found = []
    for rank in range(3):
        # As DeepSpeed leaves a parameter: empty, its elements in equal parts of which the last have too many.
        parameter = torch.nn.Parameter(torch.empty(0, dtype=torch.bfloat16))
        part = torch.full((4,), float("nan"), dtype=torch.bfloat16)
        own = whole[4 * rank : 4 * rank + 4]
        part[: len(own)] = own
        part.ds_numel, part.status = 4, types.SimpleNamespace(name="AVAILABLE")
        parameter.ds_tensor, parameter.ds_numel = part, 10
        parameter.ds_shape, parameter.ds_process_group = torch.Size([2, 5]), "the group"
        monkeypatch.setattr(torch.distributed, "get_rank", lambda group, rank=rank: rank)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: 3)
        model = torch.nn.Module()
        model.weight = parameter
        weights = Weights()
        weights.add(0, model)
        found += weights.steps[0]["tensors"]
        assert structure.collect(model)["tensors"][0]["shape"] == [2, 5]
    assert [item["shape"] for item in found] == [[4], [4], [2]]
    assert {item["shard"] for item in found} == {"mesh=zero:3 placement=flat"}
    for item, own in zip(found, whole.split(4)):
        assert item["hash"] == digests.of_bytes(own.view(torch.uint8).numpy().tobytes())
    part.status.name = "NOT_AVAILABLE"
    weights.add(1, model)
    assert "disk" in weights.steps[1]["tensors"][0]["note"] and "hash" not in weights.steps[1]["tensors"][0]


def test_a_rank_that_packs_nothing_does_not_hold_up_the_others(tmp_path: Path) -> None:
    skip = (
        '    pack(model, os.environ["PACK"], steps=2)\n',
        '    if torch.distributed.get_rank() == 0:\n        pack(model, os.environ["PACK"], steps=2)\n',
    )
    pack = run(tmp_path, GROUP, LEAVE, skip)
    assert pack.manifest["ranks"] == [0] and pack.manifest["world_size"] == 2


def test_parts_of_a_run_that_died_are_not_mixed_in(tmp_path: Path) -> None:
    from probe.config_check import archive

    archive.write_rank(tmp_path / "pack.zip", "0123456789ab", 1, 2, {"steps": [9]}, {"env": {"values": {}, "names": ["OLD"]}})
    pack = run(tmp_path, GROUP, LEAVE)
    assert pack.manifest["steps"] == [0, 1] and "OLD" not in pack.part("env", 1)["names"]
