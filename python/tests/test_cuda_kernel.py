"""The kernel that measures tensors of CUDA devices, compiled for the host and launched as on a device; on a GPU where there is one."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
pytest.importorskip("ml_dtypes")

from test_device import DTYPES, LAYOUTS, PLACE, as_numpy, oracle, placed, random, sparse  # noqa: E402

import probe  # noqa: E402
from probe._core import Kernel  # noqa: E402
from probe.recorder import core, device_cuda  # noqa: E402
from probe.recorder.device import Device  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
MEASURED = (torch.float32, torch.bfloat16, torch.float16)

#: Makes a kernel: with the sketch, or without.
Make = Callable[[bool], Any]


def _allocate(_: int, size: int) -> tuple[Any, int]:
    memory = torch.zeros(size, dtype=torch.uint8)
    return memory, memory.data_ptr()


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's functions on the host, with the kernel in them."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler: the kernel is not tried")
    library = tmp_path_factory.mktemp("driver") / "libcuda-host.so"
    source = ROOT / "tests" / "cuda" / "host_driver.cpp"
    command = [compiler, "-std=c++20", "-O2", "-Wall", "-Werror", "-Wno-unused-function", "-Wno-unknown-pragmas", "-shared", "-fPIC"]
    subprocess.run([*command, f'-DKERNEL="{device_cuda.SOURCE}"', source, "-o", library], check=True)
    return library


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Make:
    if PLACE != "cpu":
        return lambda sketch: device_cuda.kernel(PLACE, sketch)
    path = request.getfixturevalue("driver")
    loaded = ctypes.CDLL(str(path))
    loaded.host_driver_fails_after(-1)
    return lambda sketch: Kernel(str(path), b"", sketch, _allocate, lambda index: 0, lambda: False)


def assert_like_numpy(row: Any, tensor: Any, sketch: bool = True) -> None:
    """Sums are binary64: as good as NumPy's, to the rounding of another order. Extremes and counts are exact."""
    array = as_numpy(tensor)
    counts, known = oracle.statistics(array)
    kind, found_counts, floats, integers, error, lanes = row
    assert (kind, integers, error) == (0, None, None)
    assert found_counts == [counts[key] for key in ("elements", "zeros", "nan", "positive", "negative", "sentinels")]
    if known is None:
        assert floats == [None] * 4
    else:
        assert [repr(floats[0]), repr(floats[1])] == [known["min"], known["max"]]
        norm = float(known["norm"])
        assert floats[3] == norm or math.isclose(floats[3], norm, rel_tol=1e-12)
        if known["mean"] is None:
            assert floats[2] is None
        else:
            mean = float(known["mean"])
            assert abs(floats[2] - mean) <= 1e-12 * max(abs(mean), norm / math.sqrt(counts["elements"]))
    if not sketch:
        assert lanes is None
        return
    expected, found = oracle.sketch(array), np.frombuffer(lanes, "<f4")
    with np.errstate(all="ignore"):
        allowed = np.spacing(np.abs(expected)) + 1e-12 * (float(known["norm"]) if known else 0.0)
        assert ((np.abs(found.astype("f8") - expected) <= allowed) | (np.isnan(found) & np.isnan(expected))).all()


@pytest.mark.parametrize("dtype", MEASURED, ids=str)
@pytest.mark.parametrize("sketch", [True, False], ids=["sketch", "statistics"])
def test_every_size_and_layout(make: Make, dtype: Any, sketch: bool) -> None:
    tensors = [random(dtype, *shape, seed=seed) for seed, shape in enumerate([(), (1,), (7,), (250,), (251,), (252,), (257,), (40, 90)])]
    tensors += [layout(random(dtype, 60, 70)) for layout in LAYOUTS.values()]
    # More than one launch takes, all at once.
    tensors += [random(dtype, 300 + seed, seed=seed) for seed in range(40)]
    tensors += [torch.full((300,), number, dtype=dtype) for number in (0.0, -0.0, torch.finfo(dtype).min, torch.inf, torch.nan)]
    for row, tensor in zip(make(sketch).rows([placed(tensor) for tensor in tensors], False), tensors):
        assert_like_numpy(row, tensor, sketch)


def test_tensors_that_many_blocks_share(make: Make) -> None:
    kernel = make(True)
    # One block, some that are joined at once, those joined in two turns, and as many as share a tensor at most.
    tensors = [random(torch.float32, size, seed=size) for size in (8032, 8033, 128_600)]
    tensors += [random(torch.bfloat16, 3, 100, 301).transpose(0, 2)]
    for _ in range(2):
        for row, tensor in zip(kernel.rows([placed(tensor) for tensor in tensors], False), tensors):
            assert_like_numpy(row, tensor)
    tensor, lanes = sparse(torch.float32, (1 << 24) + 5)
    (row,) = kernel.rows([placed(tensor)], False)
    assert np.array_equal(np.frombuffer(row[5], "<f4"), lanes) and row[1][1] == int((tensor == 0).sum())


def test_the_same_numbers_every_time(make: Make) -> None:
    tensor = placed(torch.randn(700_001, generator=torch.Generator().manual_seed(1)))
    kernel = make(True)
    first = kernel.rows([tensor], False)
    assert all(kernel.rows([tensor, tensor.clone()], False) == first * 2 for _ in range(2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_small_tensors_are_copied(make: Make, dtype: Any) -> None:
    tensors = [random(dtype), random(dtype, 7, 9), random(dtype, 7, 9).t(), random(dtype, 1, 5).expand(4, 5), random(dtype, 2, 3, 4)[:, 1:, ::2]]
    if dtype is torch.bool:
        tensors = [tensor.logical_not() for tensor in tensors]
    found = make(True).rows([placed(tensor) for tensor in tensors], True)
    assert found == [as_numpy(tensor).tobytes() for tensor in tensors]


def test_what_the_kernel_does_not_measure_is_left_to_others(make: Make) -> None:
    kernel = make(True)
    for tensor in (torch.ones(9, dtype=torch.int64), torch.ones(9, dtype=torch.float64), torch.ones(0), torch.ones(4, 4, 4, 4, 4, 4)[::2, ::2, ::2, ::2, ::2, ::2]):
        assert kernel.rows([placed(tensor)], False) == [None]
    released = placed(torch.ones(9))
    released.untyped_storage().resize_(0)
    assert kernel.rows([released], False) == [None]


def _record(folder: Path, on_device: bool, kernel: Make | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Rows of a training that is measured by the host, or as on a device."""
    import pyarrow.parquet as pq

    monkeypatch.setattr(core, "_AS_ON_DEVICE", on_device)
    monkeypatch.setattr(Device, "host_kernel", staticmethod(kernel) if kernel is not None else None)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 40))
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    data = torch.randn(48, 40, generator=torch.Generator().manual_seed(1))
    with probe.capture(folder, model=net, level="mix", quiet=True):
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(data), data).backward()
            optimizer.step()
    return [pq.read_table(file).to_pylist() for file in sorted(folder.glob("step*/rank0/ops.parquet"))]


def _assert_same_rows(host: Any, found: Any) -> None:
    for one, other in zip(host, found, strict=True):
        assert [row["op"] + row["slot"] for row in one] == [row["op"] + row["slot"] for row in other]
        for a, b in zip(one, other):
            assert b["sum_error"] is None and (a["elements"], a["min"], a["max"], a["dtype"]) == (b["elements"], b["min"], b["max"], b["dtype"])
            assert a["norm"] == b["norm"] or math.isclose(a["norm"], b["norm"], rel_tol=1e-12)


@pytest.fixture
def counted(driver: Path) -> Iterator[tuple[Make, list[Any], Any]]:
    """A maker of kernels on the host, those that were made, and the driver."""
    loaded, made = ctypes.CDLL(str(driver)), []

    def kernel(sketch: bool) -> Any:
        made.append(Kernel(str(driver), b"", sketch, _allocate, lambda index: 0, lambda: False))
        return made[-1]

    yield kernel, made, loaded
    loaded.host_driver_fails_after(-1)


def test_a_recording_has_the_hosts_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Any) -> None:
    kernel, made, _ = counted
    host = _record(tmp_path / "host", False, None, monkeypatch)
    found = _record(tmp_path / "device", True, kernel, monkeypatch)
    assert len(made) == 1
    _assert_same_rows(host, found)


@pytest.mark.parametrize("calls", [0, 1, 5])
def test_where_the_kernel_fails_operations_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Any, said: Any, calls: int) -> None:
    kernel, _, loaded = counted
    loaded.host_driver_fails_after(calls)
    found = _record(tmp_path / "device", True, kernel, monkeypatch)
    assert all(row["elements"] is not None for step in found for row in step if row["dtype"])
    assert said().splitlines()[0].startswith("probe: fused: the kernel cannot be used, so torch's operations measure: cuLaunchKernel: ")


def test_it_is_not_used_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch, counted: Any) -> None:
    kernel, made, _ = counted
    monkeypatch.setattr(Device, "host_kernel", staticmethod(kernel))
    assert Device(True).kernel("cpu") is None and Device(True, fused=True).kernel("npu:0") is None and made == []


def test_graphs_are_not_disturbed(driver: Path) -> None:
    captures = True
    kernel = Kernel(str(driver), b"", True, _allocate, lambda index: 0, lambda: captures)
    with pytest.raises(RuntimeError, match="the device is recording a graph"):
        kernel.rows([torch.ones(300)], False)
    captures = False
    assert kernel.rows([torch.ones(300)], False)[0][1][0] == 300


def test_a_library_that_is_not_the_drivers() -> None:
    with pytest.raises(RuntimeError, match="is not loaded, or lacks a function"):
        Kernel("libnothing.so.7", b"", True, _allocate, lambda index: 0, lambda: False)


def test_threads_share_it(make: Make) -> None:
    kernel = make(False)
    found: dict[int, Any] = {}

    def work(first: int) -> None:
        for number in range(first, 24, 4):
            found[number] = kernel.rows([placed(torch.full((300,), float(number)))], False)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number][0][2][:2] for number in range(24)] == [[float(number)] * 2 for number in range(24)]


def test_it_compiles_for_a_gpu() -> None:
    """Where the compiler is installed beside torch, as it is with every build for CUDA."""
    if torch.version.cuda is None:
        pytest.skip("torch is not built for CUDA")
    assert device_cuda.compiled("sm_80")[:4] == b"\x7fELF" and device_cuda.compiled("sm_90")[:4] == b"\x7fELF"
