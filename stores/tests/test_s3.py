"""`probe-stores` against an S3 server in this machine: the answers, files and exit codes of the same comparison on a disk.

Run by `stores/test.sh`, which sets PROBE_STORES to the program.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "testdata" / "faults" / "gpt_rank1_linear_L1_statistics"
PROGRAM = os.environ["PROBE_STORES"]
ACCESS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class Store:
    """One bucket, and the program with access to it."""

    def __init__(self, endpoint: str, bucket: str, scratch: Path) -> None:
        self.client: Any = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
        )
        self.bucket = bucket
        self.client.create_bucket(Bucket=bucket)
        self.scratch = scratch
        scratch.mkdir()
        self.environment = {**os.environ, **ACCESS, "AWS_ENDPOINT_URL": endpoint, "TMPDIR": str(scratch)}

    def upload(self, folder: Path, prefix: str) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.client.upload_file(str(path), self.bucket, f"{prefix}/{path.relative_to(folder).as_posix()}")

    def keys(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def read(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def probe(self, *arguments: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**self.environment, **(environment or {})}, timeout=300
        )
        # Copies go with the command, whatever came of it.
        assert list(self.scratch.iterdir()) == []
        return done


@pytest.fixture
def store(server: str, tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name).lower().strip("-")
    return Store(server, name[:60].strip("-"), tmp_path / "scratch")


def _report(text: bytes, store: Store) -> dict[str, Any]:
    """A report without what a clock says, and with the names that dumps have on the disk."""
    report = json.loads(text.replace(f"s3://{store.bucket}/runs".encode(), str(FAULTS).encode()))
    del report["seconds"]
    return report


def test_a_comparison_and_its_shards_are_those_of_a_disk(store: Store, tmp_path: Path) -> None:
    store.upload(FAULTS, "runs")
    s3 = f"s3://{store.bucket}"
    on_disk = store.probe("compare", FAULTS / "baseline", FAULTS / "candidate", "-o", tmp_path / "out")
    assert on_disk.returncode == 1
    wanted = (tmp_path / "out" / "report.json").read_bytes()

    found = store.probe("compare", f"{s3}/runs/baseline", f"{s3}/runs/candidate", "-o", f"{s3}/out")
    assert found.returncode == 1, found.stderr
    assert f"{s3}/out/report.json" in found.stdout
    assert _report(store.read("out/report.json"), store) == _report(wanted, store)
    # The table's metadata holds the report, with its time and paths; rows alone are compared with those of the shards below.
    assert store.read("out/result.parquet")[:4] == b"PAR1"
    names = ["report.json", "report.txt", "result.html", "result.parquet", "result.xlsx"]
    assert sorted(store.keys("out/")) == [f"out/{name}" for name in names]

    planned = store.probe("plan", "-q", f"{s3}/runs/baseline", f"{s3}/runs/candidate", "-o", f"{s3}/run")
    assert (planned.returncode, planned.stdout) == (0, f"{s3}/run/plan.json\n"), planned.stderr
    nothing = store.probe("merge", f"{s3}/run")
    assert nothing.returncode == 2
    assert f"error: {s3}/run/plan.json: no shard of it is done" in nothing.stderr
    for index, missing in ((2, True), (1, False)):
        done = store.probe("compare", "--plan", f"{s3}/run/plan.json", "--shard", f"{index}/2")
        assert done.returncode == 0, done.stderr
        merged = store.probe("merge", f"{s3}/run")
        assert merged.returncode == (3 if missing else 1)
        assert (f"--plan {s3}/run/plan.json --shard 1/2" in " ".join(merged.stdout.split())) == missing
    assert _report(store.read("run/report.json"), store) == _report(wanted, store)
    again = store.probe("compare", "--plan", f"{s3}/run/plan.json", "--shard", "2/2")
    assert (again.returncode, "was already done" in again.stdout) == (0, True)

    # The rows of the shards are those of a plan on a disk.
    disk = tmp_path / "run"
    store.probe("plan", "-q", FAULTS / "baseline", FAULTS / "candidate", "-o", disk)
    for index in (1, 2):
        store.probe("compare", "-q", "--plan", disk / "plan.json", "--shard", f"{index}/2")
        rows = next(disk.glob(f"*/2/{index}/result.parquet")).read_bytes()
        [key] = [key for key in store.keys("run/") if key.endswith(f"/2/{index}/result.parquet")]
        assert store.read(key) == rows


def test_inspect_and_config_check_read_from_a_store(store: Store) -> None:
    store.upload(FAULTS, "runs")
    s3 = f"s3://{store.bucket}"
    for arguments in (["--op", "*linear*"], ["--rank", "1", "--format", "json"]):
        there = store.probe("inspect", f"{s3}/runs/baseline", *arguments)
        here = store.probe("inspect", FAULTS / "baseline", *arguments)
        assert there.returncode == here.returncode == 0, there.stderr
        assert there.stdout.replace(f"{s3}/runs", str(FAULTS)) == here.stdout
    packs = sorted((ROOT / "testdata").glob("**/*.zip"))
    pack = next(path for path in packs if store.probe("config-check", path, path, "-o", "-").returncode == 0)
    store.client.upload_file(str(pack), store.bucket, "packs/gpu.zip")
    there = store.probe("config-check", f"{s3}/packs/gpu.zip", f"{s3}/packs/gpu.zip", "-o", f"{s3}/checked")
    assert there.returncode == 0, there.stderr
    assert len(store.keys("checked/")) == 4


def test_tensors_are_read_converted_and_measured_in_a_store(store: Store, tmp_path: Path) -> None:
    """A file for each tensor becomes shards in the store, of which single tensors are read."""
    data = ROOT / "testdata"
    s3 = f"s3://{store.bucket}"
    store.upload(data / "gpu_dump", "runs/gpu_dump")
    converted = store.probe("convert", f"{s3}/runs/gpu_dump", "-o", f"{s3}/gpu")
    assert converted.returncode == 0, converted.stderr
    shards = [key for key in store.keys("gpu/") if key.endswith(".safetensors")]
    assert shards and "gpu/manifest.json" in store.keys("gpu/")
    again = store.probe("convert", f"{s3}/runs/gpu_dump", "-o", f"{s3}/gpu")
    assert (again.returncode, f"{s3}/gpu: is not empty" in again.stderr) == (2, True)

    disk = tmp_path / "gpu"
    assert store.probe("convert", data / "gpu_dump", "-o", disk).returncode == 0
    tensor = ["--tensor", "Functional.gelu.0.forward output.0"]
    there, here = (store.probe("inspect", place, *tensor) for place in (f"{s3}/gpu", disk))
    assert there.returncode == here.returncode == 0, there.stderr
    assert there.stdout.replace(f"{s3}/gpu", str(disk)) == here.stdout
    reports = [store.probe("compare", place, data / "npu_dump", "-o", "-", "--format", "json") for place in (f"{s3}/gpu", disk)]
    assert [done.returncode for done in reports] == [1, 1], reports[0].stderr
    found, wanted = (json.loads(done.stdout.replace(f"{s3}/gpu", str(disk))) for done in reports)
    assert {**found, "seconds": 0} == {**wanted, "seconds": 0}

    # Without a shard, its tensors cannot be read; nothing else is taken for them.
    store.client.delete_object(Bucket=store.bucket, Key=shards[0])
    assert store.probe("compare", f"{s3}/gpu", data / "npu_dump", "-o", "-").returncode == 3

    measured = store.probe("calibrate", f"{s3}/runs/gpu_dump", data / "npu_dump", "-o", f"{s3}/kept/noise.toml")
    assert (measured.returncode, measured.stdout.startswith(f"{s3}/kept/noise.toml: ")) == (0, True), measured.stderr
    assert store.probe("calibrate", data / "gpu_dump", data / "npu_dump", "-o", tmp_path / "noise.toml").returncode == 0
    assert store.read("kept/noise.toml").decode().replace(f"{s3}/runs", str(data)) == (tmp_path / "noise.toml").read_text()

    store.upload(FAULTS, "runs")
    there, here = store.probe("peers", f"{s3}/runs/candidate"), store.probe("peers", FAULTS / "candidate")
    assert there.returncode == here.returncode != 2, there.stderr
    assert there.stdout.replace(f"{s3}/runs", str(FAULTS)) == here.stdout


def test_many_and_large_objects_are_copied_whole(store: Store, tmp_path: Path) -> None:
    # Beyond a page of a listing, and beyond a request each.
    many = tmp_path / "many"
    for rank in range(1100):
        (many / "step0" / f"rank{rank}").mkdir(parents=True)
        shutil.copy(FAULTS / "baseline" / "step0" / f"rank{rank % 2}" / "dump.json", many / "step0" / f"rank{rank}")
    store.upload(many, "many")
    s3 = f"s3://{store.bucket}"
    found = store.probe("compare", f"{s3}/many", many, "-q", "-o", "-")
    assert found.returncode == 0, found.stderr
    import struct

    count = 10_000_000
    header = json.dumps({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
    large = tmp_path / "large.safetensors"
    content = struct.pack("<Q", len(header)) + header + bytes(range(250)) * (4 * count // 250)
    large.write_bytes(content)
    store.client.upload_file(str(large), store.bucket, "w/large.safetensors")
    same = store.probe("compare", f"{s3}/w/large.safetensors", large, "-q", "-o", "-")
    assert same.returncode == 0, same.stderr


def test_what_goes_wrong_is_one_line_that_names_the_object(store: Store, tmp_path: Path) -> None:
    store.upload(FAULTS, "runs")
    s3 = f"s3://{store.bucket}"
    sides = [f"{s3}/runs/baseline", f"{s3}/runs/candidate"]
    for arguments, environment, message in (
        ([f"{s3}/none", sides[1]], {}, f"{s3}/none: no such object, and nothing below it"),
        (["s3://no-such-bucket/a", sides[1]], {}, "s3://no-such-bucket/a: "),
        ([*sides, "--scratch-bytes", "1KB"], {}, f"{sides[0]}: "),
        ([*sides, "--scratch", str(tmp_path / "nowhere")], {}, "give another folder with --scratch"),
        ([sides[0], "obs://bucket/a"], {}, "obs://bucket/a: obs:// is not supported: probe reads s3://"),
        (sides, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, f"{s3}/"),
    ):
        done = store.probe("compare", *arguments, "-o", tmp_path / "out", environment=environment)
        assert done.returncode == 2, arguments
        assert message in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stdout == ""
        assert not (tmp_path / "out").exists()
    # A part that is damaged is a part that could not be read, called by its URL.
    store.client.put_object(Bucket=store.bucket, Key="runs/candidate/step0/rank1/dump.json", Body=b'{"task": "statistics", "data": {')
    done = store.probe("compare", *sides, "-o", "-", "-v")
    assert done.returncode == 3
    assert f"{s3}/runs/candidate/step0/rank1/dump.json" in done.stdout


def test_an_interrupted_copy_leaves_nothing(store: Store, tmp_path: Path) -> None:
    large = tmp_path / "large"
    for rank in range(40):
        folder = large / "step0" / f"rank{rank}"
        folder.mkdir(parents=True)
        # Files of tensors come as they are read; this one is copied whole.
        dump = (FAULTS / "baseline" / "step0" / "rank0" / "dump.json").read_bytes()
        (folder / "dump.json").write_bytes(dump + b" " * 8_000_000)
    store.upload(large, "large")
    source = f"s3://{store.bucket}/large"
    # Where everything was done before the signal came, nothing was interrupted: once more.
    for _ in range(5):
        running = subprocess.Popen(
            [PROGRAM, "compare", source, source, "-o", str(tmp_path / "out")],
            env=store.environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        deadline = time.monotonic() + 60
        while not list(store.scratch.glob("*/s3/*/large/step0/*/dump.json")) and time.monotonic() < deadline:
            time.sleep(0.005)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
        if running.returncode != 0:
            break
        shutil.rmtree(tmp_path / "out")
    assert running.returncode == -signal.SIGINT
    assert list(store.scratch.iterdir()) == []
    assert not (tmp_path / "out").exists()
