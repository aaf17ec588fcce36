"""Numbers computed by tensor operations, held against NumPy and against the sketches in `testdata`."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from probe.recorder import device as device_module  # noqa: E402
from probe.recorder import device_chunks, device_sketch  # noqa: E402
from probe.recorder.device import Device  # noqa: E402

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"

#: Of statistics relative to themselves, of lanes relative to the norm.
STATISTICS = {"wide": 1e-12, "pairs": 1e-10}
LANES = {"wide": 2.0**-50, "pairs": 2.0**-42}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


oracle = load(TESTDATA / "make" / "sketch_vectors.py")


@pytest.fixture(scope="module", params=["wide", "pairs"])
def sums(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def device(sums: str) -> Device:
    return Device(sketch=True, pairs=sums == "pairs")


def measured(device: Device, tensor: Any) -> Any:
    (row,) = device.fetch([device.observe(tensor)])
    assert row is not None
    return row


def lanes_of(row: Any) -> Any:
    return np.frombuffer(row[4], "<f4")


def as_numpy(tensor: Any) -> Any:
    tensor = tensor.detach().contiguous().resolve_conj()
    name = str(tensor.dtype).removeprefix("torch.")
    bits = {"bfloat16": torch.int16, "float8_e4m3fn": torch.uint8, "float8_e5m2": torch.uint8}.get(name)
    return tensor.numpy() if bits is None else tensor.view(bits).numpy().view(getattr(ml_dtypes, name))


def assert_statistics(row: Any, counts: dict[str, int], known: dict[str, str] | None, tolerance: float) -> None:
    kind, found_counts, floats, integers, _ = row
    assert list(found_counts) == [counts[key] for key in ("elements", "zeros", "nan", "positive", "negative", "sentinels")]
    if known is None:
        assert floats is None and integers is None
        return
    assert floats is not None
    limits = [known["min"], known["max"]]
    if kind == 0:
        found = [repr(value) for value in floats[:2]]
        # Moduli are rounded; of pairs, the least beside a greatest that is 70 orders of magnitude larger.
        assert all(a == b or math.isclose(float(a), float(b), rel_tol=tolerance) for a, b in zip(found, limits)), (found, limits)
    elif kind == 2:
        assert [str(bool(value)) for value in integers] == limits
    else:
        assert [str(value % (1 << 64) if kind == 3 else value) for value in integers] == limits
    norm = float(known["norm"])
    assert floats[3] == norm or math.isclose(floats[3], norm, rel_tol=tolerance)
    if known["mean"] is None:
        assert math.isnan(floats[2])
        return
    mean = float(known["mean"])
    scale = max(abs(mean), norm / math.sqrt(counts["elements"]))
    assert floats[2] == mean or abs(floats[2] - mean) <= tolerance * scale


def assert_sketch(row: Any, expected: Any, norm: float, tolerance: float) -> None:
    found = lanes_of(row)
    if not tolerance * norm < 1e30:
        # Rounding alone may take lanes beyond binary32, or bring them back.
        return
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    known = ~np.isnan(expected)
    found, expected = found[known].astype(np.float64), expected[known]
    allowed = np.spacing(np.abs(expected)).astype(np.float64) + tolerance * norm
    assert (np.abs(found - expected) <= allowed).all()


def assert_like_numpy(device: Device, tensor: Any, sums: str) -> None:
    row, array = measured(device, tensor), as_numpy(tensor)
    counts, known = oracle.statistics(array)
    assert_statistics(row, counts, known, STATISTICS[sums])
    assert_sketch(row, oracle.sketch(array), float(known["norm"]) if known else 0.0, LANES[sums])


VECTORS = json.loads((TESTDATA / "sketch" / "vectors.json").read_text())


def test_the_vectors_of_the_sketch(device: Device, sums: str) -> None:
    exact = 0
    for case in VECTORS:
        about = case["tensor"]
        storage, _ = oracle.flat_tensor(about["dtype"], about["mode"], about["seed"], about["count"])
        flat = torch.frombuffer(bytearray(storage), dtype=getattr(torch, about["dtype"]))
        row = measured(device, flat.as_strided(case["shape"], case["strides"], case["offset"]))
        known = case["statistics"]
        assert_statistics(row, case["counts"], known, STATISTICS[sums])
        expected = np.frombuffer(bytes.fromhex(case["sketch"]), ">f4").astype("<f4")
        assert_sketch(row, expected, float(known["norm"]) if known else 0.0, LANES[sums])
        exact += np.array_equal(lanes_of(row), expected, equal_nan=True)
    # Few numbers are added to a lane of these, so that the order hardly shows but where huge numbers cancel.
    assert exact >= len(VECTORS) * (0.9 if sums == "wide" else 0.7), exact


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.bool, torch.complex64, torch.complex128),
]


def random(dtype: Any, *shape: int, seed: int = 0) -> Any:
    """Any bits for integers, and for floats some magnitudes with all special values among them."""
    source = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        size = (*shape, 2) if dtype.is_complex else shape
        values = torch.randn(size, generator=source, dtype=torch.float64).exp2() - 1
        special = torch.tensor([0.0, -0.0, math.nan, math.inf, -math.inf], dtype=torch.float64)
        which = torch.randint(0, 100, size, generator=source)
        values = torch.where(which < 5, special[which.clamp_max(4)], values)
        return torch.view_as_complex(values).to(dtype) if dtype.is_complex else values.to(dtype)
    bits = torch.randint(0, 256, (*shape, dtype.itemsize), generator=source, dtype=torch.uint8)
    return bits.view(dtype)[..., 0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7,), (255,), (256,), (257,), (40, 90)], ids=str)
def test_every_type_and_size(device: Device, sums: str, dtype: Any, shape: tuple[int, ...]) -> None:
    assert_like_numpy(device, random(dtype, *shape), sums)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda tensor: tensor.t(),
    "every third": lambda tensor: tensor[:, ::3],
    "expanded": lambda tensor: tensor[:, :1].expand(-1, 50),
    "permuted": lambda tensor: tensor.view(10, 6, 70).permute(2, 0, 1),
    "channels last": lambda tensor: tensor.view(5, 12, 7, 10).to(memory_format=torch.channels_last),
    "flipped": lambda tensor: tensor.flip(0)[3:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_order_is_that_of_rows(device: Device, sums: str, layout: str) -> None:
    for dtype in (torch.float32, torch.complex64, torch.bool, torch.uint64):
        assert_like_numpy(device, LAYOUTS[layout](random(dtype, 60, 70)), sums)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_chunks, "CHUNK", 2048)
    monkeypatch.setattr(device_sketch, "ROWS", 8)
    monkeypatch.setattr(device_sketch, "_KEPT", 2)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64, torch.bool], ids=str)
def test_large_tensors_are_cut(sums: str, dtype: Any) -> None:
    device = Device(sketch=True, pairs=sums == "pairs")
    tensor = random(dtype, 60, 70, seed=3)
    for layout in ("transposed", "permuted"):
        assert_like_numpy(device, LAYOUTS[layout](tensor), sums)
    assert_like_numpy(device, random(dtype, 2048 * 3), sums)


@pytest.mark.usefixtures("small_chunks")
def test_pieces_of_any_shape_make_even_chunks() -> None:
    for shape in [(5000,), (3, 5000), (5000, 3), (1, 7, 1500), (2, 3, 4, 500), (4097, 1)]:
        tensor = torch.arange(math.prod(shape)).view(shape)
        for view in (tensor, tensor.transpose(0, -1), tensor.flip(0).transpose(0, -1)[1:]):
            found = list(device_chunks.chunks(view, device_chunks.Kind.INTEGER))
            assert view.numel() == 0 or torch.equal(torch.cat([chunk.values for chunk in found]), view.reshape(-1))
            assert [chunk.index for chunk in found] == list(range(len(found)))
            assert all(chunk.values.numel() == 2048 for chunk in found[:-1])


def test_a_full_chunk_and_more(device: Device, sums: str) -> None:
    tensor = random(torch.float32, 1100, 1000, seed=5)
    row = measured(device, tensor)
    array = as_numpy(tensor)
    finite = array[np.isfinite(array)].astype(np.float64)
    assert row[1][0] == array.size and row[1][2] == np.isnan(array).sum()
    assert row[2][:2] == [finite.min(), finite.max()]
    assert math.isclose(row[2][3], math.sqrt(math.fsum(finite * finite)), rel_tol=STATISTICS[sums])
    assert math.isclose(row[2][2], math.fsum(finite) / finite.size, rel_tol=STATISTICS[sums])
    assert_sketch(row, oracle.sketch(array), row[2][3], LANES[sums])


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-44, 1e-38, 1e-30, 1.0, 1e30, 1e36, 1e160, 1e300])
def test_magnitudes_near_the_ends_of_the_range(device: Device, sums: str, scale: float) -> None:
    values = torch.randn(3000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * scale
    for tensor in (values, torch.complex(values[:1500], values[1500:])):
        narrow = tensor.to(torch.complex64 if tensor.is_complex() else torch.float32)
        assert_like_numpy(device, tensor, sums)
        assert_like_numpy(device, narrow, sums)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_numbers_beside_the_fill_of_a_mask(device: Device, sums: str, dtype: Any) -> None:
    tensor = torch.randn(4096, generator=torch.Generator().manual_seed(2)).to(dtype)
    rest = tensor.clone()
    for place in (7, 8, 4000):
        tensor[place], rest[place] = torch.finfo(dtype).min, 0.0
    assert_like_numpy(device, tensor, sums)
    found, alone = measured(device, tensor), measured(device, rest)
    assert found[1][5] == 3 and alone[1][5] == 0
    assert found[2][0] == torch.finfo(dtype).min and found[2][3] == alone[2][3]
    assert found[4] == alone[4]
    assert math.isnan(measured(device, torch.full((300,), torch.finfo(dtype).min, dtype=dtype))[2][2])


def test_where_sentinels_begin(device: Device) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        first = torch.tensor(2.0**100, dtype=dtype)
        below = torch.tensor(2.0**100 * (1 - torch.finfo(dtype).eps / 2), dtype=dtype)
        values = torch.stack([first, -first, below, -below, torch.tensor(torch.inf, dtype=dtype), torch.tensor(torch.nan, dtype=dtype)])
        assert measured(device, values)[1] == [6, 0, 1, 1, 0, 2]
    half = torch.tensor([-65504.0, 65504.0, -65472.0, -torch.inf], dtype=torch.float16)
    assert measured(device, half)[1] == [4, 0, 0, 0, 1, 1]


def test_unsigned_integers_keep_every_digit(device: Device) -> None:
    largest = torch.tensor([5, -1, -2]).view(torch.uint64)
    kind, _, floats, integers, _ = measured(device, largest)
    assert (kind, integers) == (3, [5, -1])
    assert floats[:2] == [5.0, 2.0**64]
    assert measured(device, largest[:1])[0::3] == (1, [5, 5])


def test_negated_and_conjugated_views(device: Device, sums: str) -> None:
    tensor = torch.complex(torch.randn(300), torch.randn(300))
    assert_like_numpy(device, tensor.conj(), sums)
    found = lanes_of(measured(device, tensor.conj().imag))
    assert np.array_equal(found, lanes_of(measured(device, -tensor.imag)))


def test_rows_come_in_the_order_of_tokens(device: Device) -> None:
    tensors = [torch.full((n % 5, 3), float(n)).to(dtype) for n, dtype in enumerate([torch.float32, torch.int8, torch.bfloat16, torch.bool, torch.complex64] * 9)]
    rows = device.fetch([device.observe(tensor) for tensor in tensors])
    assert len(rows) == len(tensors)
    assert rows == [measured(device, tensor) for tensor in tensors]
    assert device.fetch([]) == []


def test_the_same_numbers_every_time(device: Device) -> None:
    tensor = random(torch.float32, 500, 300)
    assert measured(device, tensor) == measured(device, tensor.clone())


def test_what_was_observed_may_change_afterwards(device: Device) -> None:
    tensor = torch.ones(10)
    token = device.observe(tensor)
    tensor.zero_()
    assert device.fetch([token])[0][2] == [1.0, 1.0, 1.0, math.sqrt(10)]  # type: ignore[index]


def test_statistics_alone(sums: str) -> None:
    device = Device(sketch=False, pairs=sums == "pairs")
    for dtype in DTYPES:
        tensor = random(dtype, 40, 9)
        row = measured(device, tensor)
        assert row[4] is None
        assert_statistics(row, *oracle.statistics(as_numpy(tensor)), STATISTICS[sums])


def test_types_without_numbers_are_left_out(device: Device) -> None:
    assert device.observe(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)) is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_small_tensors_are_copied(device: Device, dtype: Any) -> None:
    tensors = [random(dtype), random(dtype, 0), random(dtype, 3, 0, 2), random(dtype, 7, 9), random(dtype, 7, 9).t(), random(dtype, 1, 5).expand(4, 5)]
    if dtype is torch.bool:
        # To copy any other byte is to make 1 of it, now and then.
        tensors = [tensor.logical_not() for tensor in tensors]
    if dtype.is_complex:
        tensors += [tensors[3].conj(), tensors[4].conj()]
    found = device.fetch([device.copy(tensor) for tensor in tensors])
    assert found == [as_numpy(tensor).tobytes() for tensor in tensors]


def test_copies_and_numbers_come_in_the_order_of_their_tokens(device: Device) -> None:
    tensors = [torch.full((3,), float(n)) for n in range(9)]
    tokens = [device.copy(tensor) if n % 2 else device.observe(tensor) for n, tensor in enumerate(tensors)]
    for tensor in tensors:
        # What was copied is what the tensor was then.
        tensor.fill_(-1.0)
    for n, found in enumerate(device.fetch(tokens)):
        if n % 2:
            assert found == torch.full((3,), float(n)).numpy().tobytes()
        else:
            assert found is not None and found[2][:2] == [float(n)] * 2


class Watch(TorchDispatchMode):
    """Fails on what makes the host wait for a device, or a shape depend on data."""

    WAITS = ("_local_scalar_dense", "nonzero", "item", "is_nonzero", "masked_select", "unique", "equal", "bincount")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket).removeprefix("aten.")
        self.seen.append(name)
        assert not any(name == waits or name.startswith("unique") for waits in self.WAITS), name
        if name in ("index", "index_put_"):
            assert all(index is None or index.dtype != torch.bool for index in args[1])
        if name in ("_to_copy", "copy_"):
            assert (kwargs or {}).get("device") is None
        return func(*args, **(kwargs or {}))


def test_nothing_waits(device: Device, sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def seen() -> Iterator[None]:
        with torch.no_grad():
            yield

    monkeypatch.setattr(device_module, "undisturbed", seen)
    for dtype in DTYPES:
        for shape in [(), (0,), (300,), (40, 90)]:
            with Watch() as watch:
                device.observe(random_outside(dtype, shape))
            assert len(watch.seen) < (130 if sums == "wide" else 260), watch.seen
            with Watch() as watch:
                device.copy(random_outside(dtype, shape))
            # Those beside the copy only name its memory otherwise.
            assert watch.seen.count("clone") == 1 and set(watch.seen) <= {"detach", "clone", "view"}, watch.seen


def random_outside(dtype: Any, shape: tuple[int, ...]) -> Any:
    """A tensor whose making is not watched."""
    with torch.utils._python_dispatch._disable_current_modes():
        return random(dtype, *shape).t() if len(shape) == 2 else random(dtype, *shape)


def test_the_program_does_not_see_it(device: Device) -> None:
    tensor = torch.randn(20, 30, requires_grad=True)
    state = torch.get_rng_state()
    expected = measured(device, tensor)
    with Watch() as watch, torch.autocast("cpu", torch.bfloat16):
        assert measured(device, tensor) == expected
    assert watch.seen == []
    with torch.inference_mode():
        assert measured(device, tensor) == expected
    rows: list[Any] = []

    def inside(value: Any) -> Any:
        rows.append(measured(device, tensor))
        return value.sum()

    torch.func.grad(inside)(torch.ones(3))
    assert rows == [expected]
    assert torch.equal(torch.get_rng_state(), state)


def test_the_tables_are_those_of_the_definition() -> None:
    rows = np.arange(device_sketch.ROWS, 2 * device_sketch.ROWS, dtype=np.uint64)
    tables = device_sketch.Tables()
    tables.of(torch.device("cpu"), 0, 5, None)
    signs = tables.of(torch.device("cpu"), 1, device_sketch.ROWS, None)
    rotation = (oracle.mix(rows ^ np.uint64(0xABCDEF)) % np.uint64(256)).astype(np.int64)
    assert np.array_equal(signs.columns[:, 0].numpy(), -rotation % 256)
    words = np.stack([oracle.mix(np.uint64(4) * rows + np.uint64(k)) for k in range(4)], axis=1)
    bits = (words[:, :, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.array_equal(signs.signs.numpy(), 1 - 2 * bits.reshape(-1, 256).astype(np.int8))
