"""Small tensors that are measured together on their device, held against NumPy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")
pytest.importorskip("ml_dtypes")

from test_device import LAYOUTS, Device, as_numpy, assert_sketch, assert_statistics, on_the_host, one, oracle, random  # noqa: E402
from test_device_launches import LAUNCHES, Watch, outside_of_modes  # noqa: E402

from probe.recorder import device as device_module  # noqa: E402
from probe.recorder import device_groups  # noqa: E402
from probe.recorder.device import Copy, Token  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def assert_like_numpy(row: Any, tensor: Any, sketch: bool = True) -> None:
    array = as_numpy(tensor)
    counts, known = oracle.statistics(array)
    assert_statistics(row, counts, known, tensor.dtype)
    if sketch:
        assert_sketch(row, oracle.sketch(array), float(known["norm"]) if known else 0.0)
    else:
        assert row[5] is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sketch", [False, True], ids=["statistics", "sketch"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "in one call"])
def test_each_has_its_own_numbers(dtype: Any, sketch: bool, at_once: bool) -> None:
    device = Device(sketch)
    tensors = [random(dtype, 60, 70, seed=seed) for seed in range(5)]
    tensors += [LAYOUTS[name](tensors[0]) for name in ("transposed", "permuted", "channels last")]
    # Other sizes in between: less than a row of lanes, a whole number of rows, and one.
    tensors += [random(dtype, *shape, seed=seed) for seed in range(3) for shape in [(7,), (502,), (1,), ()]]
    tensors += [torch.full((300,), number, dtype=dtype) for number in (0.0, torch.finfo(dtype).min, torch.nan)]
    # Some of a call are copied as rows of one tensor, some by themselves, as they lie in memory.
    tokens = device.observe(tensors) if at_once else [one(device.observe([tensor])) for tensor in tensors]
    rows = device.fetch(tokens)
    for row, tensor in zip(rows, tensors):
        assert_like_numpy(row, tensor, sketch)


def test_what_is_alone_is_fetched_as_it_is() -> None:
    device = Device(sketch=True)
    tensors = [random(torch.float32, 9, size).t() for size in range(1, 5)]
    tokens = device.observe(tensors)
    assert device.fetch(tokens) == [as_numpy(tensor).tobytes() for tensor in tensors]
    assert all(queue.held == 0 and not queue.open for queue in device._groups._queues.values())


def test_large_tensors_and_other_types_are_measured_at_once() -> None:
    device = Device(sketch=True)
    for tensor in (torch.ones(device_groups.LARGEST + 1), torch.ones(9, dtype=torch.int64), torch.ones(9, dtype=torch.float64), torch.ones(0)):
        for token in device.observe([tensor, tensor.clone()]):
            assert isinstance(token, Token) and token.group is None
    token = one(device.observe([torch.ones(9)]))
    assert isinstance(token, Token) and token.group is not None


def test_groups_that_were_fetched_take_no_more() -> None:
    device = Device(sketch=False)
    first = device.observe([torch.full((9,), float(n)) for n in range(3)])
    assert [row[2][0] for row in device.fetch(first[:1])] == [0.0]  # type: ignore[index]
    second = device.observe([torch.full((9,), float(n)) for n in range(3, 6)])
    assert [row[2][0] for row in device.fetch([*first, *second])] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]  # type: ignore[index]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations of the device are seen by modes."""
    monkeypatch.setattr(device_module, "Undisturbed", torch.no_grad)
    # Copies of results to the host are counted elsewhere.
    monkeypatch.setattr(device_module, "fetched", outside_of_modes(device_module.fetched))


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("sketch", [False, True], ids=["statistics", "sketch"])
def test_no_number_of_tensors_takes_more_launches_than_each_by_itself(sketch: bool) -> None:
    for dtype in DTYPES:
        for number in (1, 2, 3, 20):
            device = Device(sketch)
            device.measure(torch.ones(300, dtype=dtype))
            tensors = [torch.ones(300, dtype=dtype) for _ in range(number)]
            with Watch() as watch:
                tokens = [one(device.observe([tensor])) for tensor in tensors]
                assert watch.seen == ["clone"] * number
                for token in tokens:
                    device._closed(token)
            assert len(watch.seen) <= number * LAUNCHES[dtype][sketch], watch.seen
            assert number < 20 or len(watch.seen) <= 1.6 * number, watch.seen


@pytest.mark.usefixtures("watched")
def test_what_a_call_has_of_one_shape_is_copied_by_one_launch() -> None:
    device = Device(sketch=True)
    tensors = [torch.ones(shape) for shape in ((9, 3), (27,), (9, 3), (), (), (9, 3), (4, 9, 3))]
    transposed, truths = torch.ones(3, 9).t(), [torch.ones(2, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)]
    with Watch() as watch:
        assert all(isinstance(token, Token) for token in device.observe([*tensors, transposed]))
        # Those of one shape; each of those of another, of which one does not lie in row-major order; and two that are alone.
        assert sorted(watch.seen) == ["clone"] * 6 + ["stack"]
    with Watch() as watch:
        copies = device.copy([*tensors, *truths])
        assert sorted(watch.seen) == ["clone"] * 2 + ["stack"] * 3
    expected = [torch.ones(tensor.shape).numpy().tobytes() for tensor in tensors]
    assert device.fetch(copies) == [*expected, b"\1\1", b"\0\0"]


@on_the_host
def test_a_fault_of_one_is_not_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(sketch=True)
    tensors = [random(torch.float32, 60, 70, seed=seed) for seed in range(3)]
    clone = torch.Tensor.clone

    def full(tensor: Any, **options: Any) -> Any:
        if tensor is tensors[1]:
            raise torch.OutOfMemoryError("out of memory")
        return clone(tensor, **options)

    def no_room(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no room for all")

    monkeypatch.setattr(torch.Tensor, "clone", full)
    monkeypatch.setattr(torch, "stack", no_room)
    first, second, third = device.copy(tensors)
    assert second == "OutOfMemoryError: out of memory"
    assert device.fetch([first, third]) == [as_numpy(tensors[place]).tobytes() for place in (0, 2)]  # type: ignore[list-item]
    tokens = device.observe(tensors)
    assert all(isinstance(token, Token) and token.group is None for token in tokens)
    for row, tensor in zip(device.fetch(tokens), tensors):
        assert_like_numpy(row, tensor)


def test_copies_take_so_much_memory_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_groups, "_HELD", 1250)
    device = Device(sketch=True)
    tensors, tokens = [], []
    for number in range(60):
        # Every third is of a size of its own.
        tensors.append(random(torch.float32, 100 + (number if number % 3 == 0 else 0), seed=number))
        tokens.append(one(device.observe([tensors[-1]])))
        (queue,) = device._groups._queues.values()
        groups = dict.fromkeys(token.group for token in tokens if isinstance(token, Token) and token.group)
        assert queue.held <= 1250 and sum(block.numel() for group in groups for block in group.blocks) == queue.held
    # More at once than there is room for.
    many = [random(torch.float32, 100, seed=seed) for seed in range(40)]
    tensors += many
    tokens += device.observe(many)
    assert queue.held <= 1250
    for row, tensor in zip(device.fetch(tokens), tensors):
        if isinstance(row, bytes):
            assert row == as_numpy(tensor).tobytes()
        else:
            assert_like_numpy(row, tensor)
    device.begin_step()
    assert not device._groups._queues


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError], ids=["out of memory", "missing"])
def test_each_by_itself_where_that_fails(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    device = Device(sketch=True)

    def fail(rows: Any, stream: Any) -> None:
        raise error("not so many at once")

    monkeypatch.setattr(device._sums, "of_rows", fail)
    tensors = [random(torch.float32, 60, 70, seed=seed) for seed in range(4)]
    for row, tensor in zip(device.fetch(device.observe(tensors)), tensors):
        assert_like_numpy(row, tensor)


@on_the_host
def test_the_host_measures_copies_of_what_the_device_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(sketch=True, host_bytes=1 << 20)

    def fail(*_: Any) -> None:
        raise RuntimeError("aclnnGeTensor is missing")

    monkeypatch.setattr(device._sums, "of_rows", fail)
    monkeypatch.setattr(device._sums, "of", fail)
    tensors = [random(torch.float32, 60, 70, seed=seed) for seed in range(4)]
    assert device.fetch(device.observe(tensors)) == [as_numpy(tensor).tobytes() for tensor in tensors]
    assert device.missing() == ["cpu cannot measure float32, so the host did: RuntimeError: aclnnGeTensor is missing"]
    # It is not tried again.
    assert isinstance(one(device.observe(tensors[:1])), Copy)


def test_threads_share_groups() -> None:
    device = Device(sketch=True)
    found: dict[int, Any] = {}

    def work(first: int) -> None:
        for number in range(first, 400, 4):
            one_more = [torch.full((2000,), float(number))] * (1 + number % 2)
            found[number] = device.observe(one_more)[-1]

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows: Iterator[Any] = iter(device.fetch([found[number] for number in range(400)]))
    assert [row[2][:2] for row in rows] == [[float(number)] * 2 for number in range(400)]
