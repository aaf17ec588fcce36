"""Several processes, one pack."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from .conftest import Pack, Packed, changed, differences, in_child, run_script

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
        in_child(lambda: run_script(script), {**common, "RANK": str(rank), **(environments or {}).get(rank, {})})
        for rank in range(ranks)
    ]
    for wait in waits:
        wait()
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
