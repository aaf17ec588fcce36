"""How many operations a device is given to measure a tensor, and that nothing waits for them or sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")
pytest.importorskip("ml_dtypes")

from test_device import DTYPES, Device, device, measured, one, random  # noqa: E402, F401
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from probe.recorder import device as device_module  # noqa: E402
from probe.recorder import device_rows  # noqa: E402

#: Operations that only name memory, or take it without writing to it.
VIEWS = ("empty", "detach", "view", "split", "select", "unbind", "as_strided", "slice", "alias", "_unsafe_view", "view_as_real", "expand", "t")

#: Launches for a tensor of up to 64 MiB: statistics, sketch. Those of other types are few as well, but they are not promised.
LAUNCHES = {torch.float32: (6, 9), torch.bfloat16: (6, 9), torch.float16: (6, 9), torch.int64: (5, 8), torch.bool: (2, 6), torch.float64: (7, 10)}


class Watch(TorchDispatchMode):
    """Counts what a device would be given to do. Fails on what makes the host wait for it, or a shape depend on data."""

    WAITS = ("_local_scalar_dense", "nonzero", "item", "is_nonzero", "masked_select", "unique", "equal", "bincount")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        #: Bytes of the largest result.
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket).removeprefix("aten.")
        assert not any(name == waits or name.startswith("unique") for waits in self.WAITS), name
        if name in ("index", "index_put_"):
            assert all(index is None or index.dtype != torch.bool for index in args[1])
        if name in ("_to_copy", "copy_"):
            assert (kwargs or {}).get("device") is None, name
        result = func(*args, **(kwargs or {}))
        if name not in VIEWS:
            self.seen.append(name)
        if name == "empty" or name not in VIEWS:
            found = result if isinstance(result, (tuple, list)) else [result]
            self.largest = max(self.largest, *(tensor.numel() * tensor.dtype.itemsize for tensor in found))
        return result


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations of the device are seen by modes."""
    monkeypatch.setattr(device_module, "Undisturbed", torch.no_grad)


def outside(make: Callable[[], Any]) -> Any:
    """A tensor whose making is not watched."""
    with torch.utils._python_dispatch._disable_current_modes():
        return make()


def outside_of_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of whose operations no mode hears."""
    return lambda *arguments: outside(lambda: function(*arguments))


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("sketch", [False, True], ids=["statistics", "sketch"])
@pytest.mark.parametrize("dtype", LAUNCHES, ids=str)
def test_few_launches_whatever_the_size(dtype: Any, sketch: bool) -> None:
    device = Device(sketch)
    made = torch.zeros(2048, 1027, dtype=dtype, device="meta")
    # Tables are made once.
    device.measure(made)
    for tensor in (made[:1, :1], made[0, :300], made[:251], made, made.t(), made[:, ::3], made[:7, 0].expand(900, 7), made.view(2, 1024, 1027).transpose(0, 2)):
        with Watch() as watch:
            device.measure(tensor)
        assert len(watch.seen) <= LAUNCHES[dtype][sketch], watch.seen


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(
    ("dtype", "shape", "launches"),
    [
        (torch.float32, (4096, 4096), (6, 9)),
        (torch.float32, (8192, 4096), (12, 18)),
        (torch.bfloat16, (4096, 4096), (6, 9)),
        # Comparisons of more than 2^24 elements are made in two parts: they take a byte of memory each.
        (torch.bfloat16, (8192, 4096), (8, 11)),
    ],
    ids=str,
)
def test_few_launches_for_large_tensors(dtype: Any, shape: tuple[int, int], launches: tuple[int, int]) -> None:
    tensor = torch.zeros(shape, dtype=dtype, device="meta")
    for sketch in (False, True):
        device = Device(sketch)
        device.observe([tensor[: shape[0] // 2]])
        for view in (tensor, tensor.t()):
            with Watch() as watch:
                device.observe([view])
            assert len(watch.seen) <= launches[sketch], watch.seen
            # And the room behind the last row.
            assert watch.largest <= (128 << 20) + 4096


@pytest.mark.usefixtures("watched")
def test_a_thousand_tensors_are_fetched_in_one_copy() -> None:
    device = Device(sketch=True)
    tensors = [torch.full((3, 100 + number % 7), 1.5) for number in range(1000)]
    tokens = [one(device.copy([tensor]) if number % 2 else device.observe([tensor])) for number, tensor in enumerate(tensors)]

    class Copies(TorchDispatchMode):
        seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func.overloadpacket).removeprefix("aten."))
            return func(*args, **(kwargs or {}))

    with Copies() as copies:
        data = device_rows.fetched([token.bytes for token in tokens if isinstance(token, device_module.Copy)])
        assert len(data) == sum(4 * tensor.numel() for tensor in tensors[1::2])
    assert sum(name not in VIEWS for name in copies.seen) <= 30
    assert [row for row in device.fetch(tokens) if row is None] == []


@pytest.mark.usefixtures("watched")
def test_nothing_waits(device: Device) -> None:
    for dtype in DTYPES:
        for shape in [(), (0,), (300,), (40, 90)]:
            for start in (lambda tensor: device.observe([tensor, tensor]), device.measure):
                with Watch():
                    start(outside(lambda: random(dtype, *shape).t() if len(shape) == 2 else random(dtype, *shape)))  # noqa: B023
            with Watch() as watch:
                device.copy([outside(lambda: random(dtype, *shape))])  # noqa: B023
            # Those beside the copy only name its memory otherwise.
            assert watch.seen == ["clone"], watch.seen


def test_the_program_does_not_see_it(device: Device) -> None:
    tensor = torch.randn(20, 30, requires_grad=True)
    state = torch.get_rng_state()
    expected = measured(device, tensor)
    with Watch() as watch, torch.autocast("cpu", torch.bfloat16):
        assert measured(device, tensor) == expected
        together = device.fetch([*device.observe([tensor]), *device.observe([tensor])])
    assert watch.seen == [] and all(isinstance(row, tuple) and row[:2] == expected[:2] for row in together)
    with torch.inference_mode():
        assert measured(device, tensor) == expected
    rows: list[Any] = []

    def inside(value: Any) -> Any:
        rows.append(measured(device, tensor))
        return value.sum()

    torch.func.grad(inside)(torch.ones(3))
    assert rows == [expected]
    assert torch.equal(torch.get_rng_state(), state)
