"""Numbers computed by tensor operations, held against NumPy and against the sketches in `testdata`."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

from probe.recorder import device as device_module  # noqa: E402
from probe.recorder import device_chunks, device_classes, device_rows, device_sketch  # noqa: E402
from probe.recorder.device_rows import SUM_ERROR  # noqa: E402

#: Where the tensors of these tests are measured; tests/cuda asks for a GPU.
PLACE = os.environ.get("PROBE_TEST_DEVICE", "cpu")

#: Tests that take a tensor of theirs for the one that is measured, or name the device.
on_the_host = pytest.mark.skipif(PLACE != "cpu", reason="of tensors in host memory")

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"


def placed(tensor: Any) -> Any:
    """The tensor on the device of the tests, with the strides, the offset and the bits that it has on the host."""
    if PLACE == "cpu" or tensor.device.type != "cpu":
        return tensor
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        is_conj, is_neg = tensor.is_conj(), tensor.is_neg()
        data = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        there = data.to(PLACE).view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        there = there.conj() if is_conj else there
        return torch._neg_view(there) if is_neg else there


class Device(device_module.Device):
    """Measures tensors of the host where [`PLACE`] says."""

    def measure(self, tensor: Any) -> Any:
        return super().measure(placed(tensor))

    def observe(self, tensors: Sequence[Any]) -> Any:
        return super().observe([placed(tensor) for tensor in tensors])

    def copy(self, tensors: Sequence[Any]) -> Any:
        return super().copy([placed(tensor) for tensor in tensors])


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


oracle = load(TESTDATA / "make" / "sketch_vectors.py")

#: How far sums in binary64 may be off.
WIDE = 1e-12

COUNTS = ("elements", "zeros", "nan", "positive", "negative", "sentinels")


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(sketch=True)


def measured(device: Device, tensor: Any) -> Any:
    """Returns the numbers of a tensor that is measured alone."""
    (row,) = device.fetch([device.measure(tensor)])
    assert row is not None
    return row


def one(found: Any) -> Any:
    """Numbers of one tensor."""
    (only,) = found
    return only


def lanes_of(row: Any) -> Any:
    return np.frombuffer(row[5], "<f4")


def as_numpy(tensor: Any) -> Any:
    tensor = tensor.detach().contiguous().resolve_conj()
    name = str(tensor.dtype).removeprefix("torch.")
    bits = {"bfloat16": torch.int16, "float8_e4m3fn": torch.uint8, "float8_e5m2": torch.uint8}.get(name)
    return tensor.numpy() if bits is None else tensor.view(bits).numpy().view(getattr(ml_dtypes, name))


def is_unknown(row: Any, known: dict[str, str], dtype: Any) -> bool:
    """Returns true if squares of numbers like these are beyond what binary32 holds, or nearly."""
    if dtype in (torch.float64, torch.complex128):
        return not 1e-140 < float(known["norm"]) < 1e150
    scaled = float(known["norm"]) / math.sqrt(row[1][0]) * (2.0**28 if dtype in (torch.float32, torch.bfloat16) else 1.0)
    return not 2.0**-50 < scaled < 2.0**55


def assert_statistics(row: Any, counts: dict[str, int], known: dict[str, str] | None, dtype: Any) -> None:
    kind, found_counts, floats, integers, error, _ = row
    assert found_counts == [counts[key] for key in COUNTS]
    if known is None:
        assert floats == [None] * 4 and integers is None
        return
    limits = [known["min"], known["max"]]
    if kind == 0:
        # A sentinel that zeros stand in for hides an extreme beside it; the least number of sentinels is known.
        hidden = counts["elements"] - sum(counts[key] for key in COUNTS[2:]) < counts["elements"]
        wide = 1e-6 if dtype is torch.complex64 else WIDE
        for found, limit in zip(floats[:2], limits):
            close = found is not None and (repr(found) == limit or dtype.is_complex and math.isclose(found, float(limit), rel_tol=wide))
            assert close or found is None and (hidden or dtype.is_complex), (found, limit)
    elif kind == 2:
        assert [str(bool(value)) for value in integers] == limits
    else:
        assert [str(value % (1 << 64) if kind == 3 else value) for value in integers] == limits
    tolerance = error or WIDE
    norm = float(known["norm"])
    if floats[3] is None:
        assert is_unknown(row, known, dtype), norm
        return
    assert floats[3] == norm or math.isclose(floats[3], norm, rel_tol=tolerance)
    if known["mean"] is None:
        assert floats[2] is None
        return
    mean = float(known["mean"])
    scale = max(abs(mean), norm / math.sqrt(counts["elements"]))
    assert floats[2] is not None and abs(floats[2] - mean) <= tolerance * scale


def assert_sketch(row: Any, expected: Any, norm: float) -> None:
    found = lanes_of(row)
    tolerance = row[4] or WIDE
    if not tolerance * norm < 1e18:
        # Rounding alone may take lanes beyond binary32, or bring them back.
        return
    assert np.isfinite(found).all() and np.isfinite(expected).all()
    allowed = np.spacing(np.abs(expected)).astype(np.float64) + tolerance * norm
    assert (np.abs(found.astype(np.float64) - expected) <= allowed).all()


def assert_like_numpy(device: Device, tensor: Any) -> None:
    row, array = measured(device, tensor), as_numpy(tensor)
    counts, known = oracle.statistics(array)
    assert_statistics(row, counts, known, tensor.dtype)
    assert_sketch(row, oracle.sketch(array), float(known["norm"]) if known else 0.0)


VECTORS = json.loads((TESTDATA / "sketch" / "vectors.json").read_text())


def test_the_vectors_of_the_sketch(device: Device) -> None:
    for case in VECTORS:
        about = case["tensor"]
        storage, _ = oracle.flat_tensor(about["dtype"], about["mode"], about["seed"], about["count"])
        flat = torch.frombuffer(bytearray(storage), dtype=getattr(torch, about["dtype"]))
        row = measured(device, flat.as_strided(case["shape"], case["strides"], case["offset"]))
        known = case["statistics"]
        assert_statistics(row, case["counts"], known, flat.dtype)
        expected = np.frombuffer(bytes.fromhex(case["sketch"]), ">f4").astype("<f4")
        assert_sketch(row, expected, float(known["norm"]) if known else 0.0)


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
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7,), (250,), (251,), (252,), (257,), (40, 90)], ids=str)
def test_every_type_and_size(device: Device, dtype: Any, shape: tuple[int, ...]) -> None:
    assert_like_numpy(device, random(dtype, *shape))


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda tensor: tensor.t(),
    "every third": lambda tensor: tensor[:, ::3],
    "expanded": lambda tensor: tensor[:, :1].expand(-1, 50),
    "permuted": lambda tensor: tensor.view(10, 6, 70).permute(2, 0, 1),
    "channels last": lambda tensor: tensor.view(5, 12, 7, 10).to(memory_format=torch.channels_last),
    "flipped": lambda tensor: tensor.flip(0)[3:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_order_is_that_of_rows(device: Device, layout: str) -> None:
    for dtype in (torch.float32, torch.float16, torch.complex64, torch.bool, torch.uint64):
        assert_like_numpy(device, LAYOUTS[layout](random(dtype, 60, 70)))


def test_truth_values_have_the_numbers_of_the_host_to_the_bit(device: Device) -> None:
    for true in (0, 1, 26, 70, 96):
        tensor = torch.arange(96).lt(true).view(4, 24)
        [row] = device.fetch(device.observe([tensor]))
        assert row[2][2:] == [true / 96, math.sqrt(true)]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_chunks, "_COPY", 4 * 700)
    monkeypatch.setattr(device_chunks, "_COPY_OF_SHORT", 8 * 700)
    monkeypatch.setattr(device_classes, "COMPARED", 600)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64, torch.bool], ids=str)
def test_large_tensors_are_cut(device: Device, dtype: Any) -> None:
    tensor = random(dtype, 60, 70, seed=3)
    for layout in ("transposed", "permuted"):
        assert_like_numpy(device, LAYOUTS[layout](tensor))
    assert_like_numpy(device, random(dtype, 700 * 3))


@pytest.mark.usefixtures("small_pieces")
def test_pieces_of_any_shape_follow_one_another() -> None:
    for shape in [(5000,), (3, 5000), (5000, 3), (1, 7, 1500), (2, 3, 4, 500), (4097, 1)]:
        tensor = torch.arange(math.prod(shape)).view(shape)
        for view in (tensor, tensor.transpose(0, -1), tensor.flip(0).transpose(0, -1)[1:]):
            found = list(device_chunks.pieces(view, 700)) if view.numel() else []
            assert view.numel() == 0 or torch.equal(torch.cat([piece.values.reshape(-1) for piece in found]), view.reshape(-1))
            sizes = [piece.values.numel() for piece in found]
            assert [piece.first for piece in found] == [sum(sizes[:place]) for place in range(len(found))]
            assert all(size <= 700 for size in sizes)


def sparse(dtype: Any, size: int) -> tuple[Any, Any]:
    """A large tensor of zeros with numbers about the places where tables and pieces end, and its lanes."""
    tensor = torch.zeros(size, dtype=dtype)
    middles = (0, 1 << 20, 1 << 24, 1 << 25, size)
    places = sorted({place for middle in middles for place in range(middle - 3, middle + 3) if 0 <= place < size})
    lanes = np.zeros(256)
    for number, place in enumerate(places):
        tensor[place] = number % 7 + 1
        row, column = place // 256 % (1 << 16), place % 256
        word = int(oracle.mix(np.array([4 * row + column // 64], np.uint64))[0])
        lanes[place % 251] += (-1 if word >> (column % 64) & 1 else 1) * (number % 7 + 1)
    return tensor, lanes


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, (1 << 24) + 5), (torch.bfloat16, (1 << 24) + 5), (torch.int8, (1 << 25) + 5)], ids=str)
def test_signs_come_again_where_the_table_ends(device: Device, dtype: Any, size: int) -> None:
    tensor, lanes = sparse(dtype, size)
    row = measured(device, tensor)
    assert np.array_equal(lanes_of(row), lanes)
    assert row[1][1] == size - int((tensor != 0).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_sums_of_many_numbers_are_within_their_bound(device: Device, dtype: Any) -> None:
    source = torch.Generator().manual_seed(5)
    # One sign, so that sums are as large as they get; and many magnitudes.
    for tensor in (torch.rand(1100, 1000, generator=source) + 1.0, torch.randn(1100, 1000, generator=source).exp2()):
        tensor = tensor.to(dtype)
        row, array = measured(device, tensor), as_numpy(tensor).astype(np.float64).reshape(-1)
        norm = math.sqrt(math.fsum(array * array))
        assert row[2][:2] == [array.min(), array.max()]
        assert math.isclose(row[2][3], norm, rel_tol=SUM_ERROR)
        assert abs(row[2][2] - math.fsum(array) / array.size) <= SUM_ERROR * norm / math.sqrt(array.size)
        assert np.linalg.norm(lanes_of(row) - oracle.sketch(array).astype(np.float64)) <= SUM_ERROR * norm


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-44, 1e-38, 1e-30, 1e-24, 1.0, 1e8, 1e12, 1e30, 1e36, 1e160, 1e300])
def test_magnitudes_near_the_ends_of_the_range(device: Device, scale: float) -> None:
    values = torch.randn(3000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * scale
    for tensor in (values, torch.complex(values[:1500], values[1500:])):
        narrow = tensor.to(torch.complex64 if tensor.is_complex() else torch.float32)
        assert_like_numpy(device, tensor)
        assert_like_numpy(device, narrow)
    assert_like_numpy(device, values.to(torch.bfloat16))


def test_a_norm_that_is_not_known_is_none(device: Device) -> None:
    huge, tiny = measured(device, torch.tensor([2.0**60, -(2.0**60)] * 150)), measured(device, torch.full((300,), 2.0**-100))
    assert huge[2][3] is None and huge[2][:2] == [-(2.0**60), 2.0**60]
    assert tiny[2][3] is None and tiny[2][2] == 2.0**-100
    assert measured(device, torch.zeros(300))[2] == [0.0] * 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_numbers_beside_the_fill_of_a_mask(device: Device, dtype: Any) -> None:
    tensor = torch.randn(4096, generator=torch.Generator().manual_seed(2)).to(dtype)
    rest = tensor.clone()
    for place in (7, 8, 4000):
        tensor[place], rest[place] = torch.finfo(dtype).min, 0.0
    assert_like_numpy(device, tensor)
    found, alone = measured(device, tensor), measured(device, rest)
    assert found[1][5] == 3 and alone[1][5] == 0
    assert found[2][0] == torch.finfo(dtype).min and found[2][3] == alone[2][3]
    assert found[5] == alone[5]
    least = torch.finfo(dtype).min
    assert measured(device, torch.full((300,), least, dtype=dtype))[2] == [least, least, None, 0.0]


def test_where_sentinels_begin(device: Device) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        first = torch.tensor(2.0**100, dtype=dtype)
        below = torch.tensor(2.0**100 * (1 - torch.finfo(dtype).eps / 2), dtype=dtype)
        values = torch.stack([first, -first, below, -below, torch.tensor(torch.inf, dtype=dtype), torch.tensor(torch.nan, dtype=dtype)])
        assert measured(device, values)[1] == [6, 0, 1, 1, 0, 2]
    half = torch.tensor([-65504.0, 65504.0, -65472.0, 65472.0, -torch.inf], dtype=torch.float16)
    row = measured(device, half)
    assert row[1] == [5, 0, 0, 0, 1, 2] and row[2][:2] == [-65504.0, 65504.0]
    assert row[2][3] == pytest.approx(65472.0 * math.sqrt(2.0), rel=SUM_ERROR)


def test_extremes_that_fillings_hide_are_none(device: Device) -> None:
    nan, infinite = math.nan, math.inf
    for values, limits in [
        ([1.0, 2.0, nan], [None, 2.0]),
        ([-1.0, -2.0, nan], [-2.0, None]),
        ([-1.0, 2.0, nan, -infinite], [-1.0, 2.0]),
        ([0.0, 2.0, infinite], [0.0, 2.0]),
        ([1.0, -1e35], [None, 1.0]),
        ([nan, infinite], [None, None]),
    ]:
        assert measured(device, torch.tensor(values))[2][:2] == limits, values


def test_unsigned_integers_keep_every_digit(device: Device) -> None:
    largest = torch.tensor([5, -1, -2]).view(torch.uint64)
    kind, _, floats, integers, _, _ = measured(device, largest)
    assert (kind, integers) == (3, [5, -1])
    assert floats[:2] == [5.0, 2.0**64]
    row = measured(device, largest[:1])
    assert (row[0], row[3]) == (1, [5, 5]) and row[2][3] == pytest.approx(5.0, rel=SUM_ERROR)


def test_sums_of_small_integers_are_exact(device: Device) -> None:
    tensor = torch.randint(0, 30000, (64, 1024), generator=torch.Generator().manual_seed(4))
    for dtype in (torch.int64, torch.int32, torch.int16):
        assert np.array_equal(lanes_of(measured(device, tensor.to(dtype))), oracle.sketch(tensor.numpy()))


def test_negated_and_conjugated_views(device: Device) -> None:
    tensor = torch.complex(torch.randn(300), torch.randn(300))
    assert_like_numpy(device, tensor.conj())
    found = lanes_of(measured(device, tensor.conj().imag))
    assert np.array_equal(found, lanes_of(measured(device, -tensor.imag)))


def test_rows_come_in_the_order_of_tokens(device: Device) -> None:
    tensors = [torch.full((n % 5, 3), float(n)).to(dtype) for n, dtype in enumerate([torch.float32, torch.int8, torch.bfloat16, torch.bool, torch.complex64] * 9)]
    tokens = [device.measure(tensor) for tensor in tensors]
    # One may stand for several slots.
    rows = device.fetch([*tokens, tokens[3]])
    assert len(rows) == len(tensors) + 1 and rows[3] is rows[-1]
    assert rows[:-1] == [measured(device, tensor) for tensor in tensors]
    assert device.fetch([]) == []


def test_the_same_numbers_every_time(device: Device) -> None:
    tensor = random(torch.float32, 500, 300)
    assert measured(device, tensor) == measured(device, tensor.clone())


def test_what_was_observed_may_change_afterwards(device: Device) -> None:
    for start in (lambda tensor: one(device.observe([tensor])), device.measure):
        tensor = torch.ones(10)
        tokens = [start(tensor), start(tensor)]
        tensor.zero_()
        assert [row[2][:3] for row in device.fetch(tokens)] == [[1.0, 1.0, 1.0]] * 2  # type: ignore[index, arg-type]


def test_statistics_alone() -> None:
    device = Device(sketch=False)
    for dtype in DTYPES:
        tensor = random(dtype, 40, 9)
        row = measured(device, tensor)
        assert row[5] is None
        assert_statistics(row, *oracle.statistics(as_numpy(tensor)), dtype)


def test_types_without_numbers_are_left_out(device: Device) -> None:
    tensors = [torch.ones(3), torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)]
    assert device.observe(tensors)[1] == f"torch.qint8 is not measured on {PLACE}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_small_tensors_are_copied(device: Device, dtype: Any) -> None:
    tensors = [random(dtype), random(dtype, 0), random(dtype, 3, 0, 2), random(dtype, 7, 9), random(dtype, 7, 9).t(), random(dtype, 1, 5).expand(4, 5)]
    if dtype is torch.bool:
        # To copy any other byte is to make 1 of it, now and then.
        tensors = [tensor.logical_not() for tensor in tensors]
    if dtype.is_complex:
        # A device may negate the bits of a NaN or not.
        whole = tensors[3].nan_to_num()
        tensors += [whole.conj(), whole.t().conj()]
    expected = [as_numpy(tensor).tobytes() for tensor in tensors]
    assert device.fetch([one(device.copy([tensor])) for tensor in tensors]) == expected
    assert device.fetch(device.copy([*tensors, *tensors])) == expected * 2


def test_copies_and_numbers_come_in_the_order_of_their_tokens(device: Device) -> None:
    tensors = [torch.full((3,), float(n)) for n in range(9)]
    tokens = [one(device.copy([tensor]) if n % 2 else device.observe([tensor])) for n, tensor in enumerate(tensors)]
    for tensor in tensors:
        # The copy is the tensor as it was then.
        tensor.fill_(-1.0)
    for n, found in enumerate(device.fetch(tokens)):
        if n % 2:
            assert found == torch.full((3,), float(n)).numpy().tobytes()
        else:
            assert isinstance(found, tuple) and found[2][:2] == [float(n)] * 2


def test_the_table_is_that_of_the_definition() -> None:
    numbers = torch.ones(3000)
    device_sketch.Signs().apply(numbers, numbers, (1 << 24) - 700, None)
    words = oracle.mix(np.arange(1 << 18, dtype=np.uint64))
    bits = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    signs = 1 - 2 * bits.reshape(-1).astype(np.int8)
    assert np.array_equal(numbers.numpy(), np.concatenate([signs[-700:], signs[:2300]]))
