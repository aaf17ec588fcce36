"""Identities of tensors, held against what torch and NumPy say."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from probe.config_check import digests, generators

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


def one(tensor: torch.Tensor) -> dict:
    (found,) = digests.TensorDigests().tensors([tensor])
    return found


def unordered(tensor: torch.Tensor) -> str:
    """The definition, in NumPy."""
    raw = tensor.contiguous().view(-1).view(torch.uint8).numpy()
    z = raw.view({1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}[tensor.element_size()]).astype(np.uint64)
    with np.errstate(over="ignore"):
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        return f"{int(z.sum(dtype=np.uint64)):016x}"


def sample(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return (torch.randn(*shape, generator=generator) * 50).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_digest_has_the_numbers_of_the_tensor(dtype: torch.dtype) -> None:
    tensor = sample(dtype, 70, 90)
    found = one(tensor)
    exact = tensor.double()
    assert found["hash"] == digests.of_bytes(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    assert found["unordered_hash"] == unordered(tensor)
    statistics = found["statistics"]
    assert statistics["count"] == 6300 and statistics["nan"] == statistics["infinite"] == 0
    assert (statistics["min"], statistics["max"]) == (exact.min().item(), exact.max().item())
    assert statistics["mean"] == pytest.approx(exact.mean().item(), rel=1e-12)
    assert statistics["norm"] == pytest.approx(exact.norm().item(), rel=1e-12)
    assert len(found["sketch"]) == 2048


def test_the_documented_example() -> None:
    assert one(torch.tensor([3, 1, 2], dtype=torch.int32))["unordered_hash"] == "456d78af809b437c"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_hash_of_a_cast_is_that_of_the_cast_tensor(dtype: torch.dtype) -> None:
    tensor = sample(dtype, 1000)
    for name, value in one(tensor)["cast_hashes"].items():
        assert value == one(tensor.to(getattr(torch, name)))["hash"], name


def test_layout_does_not_count() -> None:
    tensor = sample(torch.float32, 4, 6, 8, 10)
    for other in (
        tensor.contiguous(memory_format=torch.channels_last), tensor.transpose(1, 2).contiguous().transpose(1, 2),
        torch.cat([tensor, tensor])[4:], tensor.clone().requires_grad_(), torch.nn.Parameter(tensor),
    ):
        assert one(other) == one(tensor)
        assert digests.TensorDigests().samples(other) == digests.TensorDigests().samples(tensor)


def test_pieces_make_the_same_digest() -> None:
    tensor = sample(torch.float32, 262_144 * 2 + 17)
    stream = digests._core.Digester().stream("torch.float32")
    for start in range(0, tensor.numel(), 262_144):
        stream.push(tensor[start : start + 262_144])
    assert stream.finish() == one(tensor)


def test_many_tensors_of_all_sizes_keep_their_order() -> None:
    tensors = [sample(torch.float32, size) for size in (3, 2_000_000, 0, 70_000, 1_500_000, 1)]
    found = digests.TensorDigests().tensors(tensors)
    assert [item["statistics"]["count"] for item in found] == [3, 2_000_000, 0, 70_000, 1_500_000, 1]
    assert found == [one(tensor) for tensor in tensors]


def test_samples_are_the_slices_of_the_first_dimension() -> None:
    tensor = sample(torch.int64, 5, 3)
    found = digests.TensorDigests().samples(tensor)
    assert found == [one(row)["hash"] for row in tensor]
    assert digests.TensorDigests().samples(torch.tensor(1.0)) is None


def test_what_is_no_plain_memory_says_so() -> None:
    found = digests.TensorDigests().tensors([torch.eye(3).to_sparse(), torch.empty(3, device="meta"), torch.ones(2)])
    assert "note" in found[0] and "note" in found[1] and "hash" in found[2]


@pytest.mark.parametrize("count", [0, 1, 623, 624, 625, 5000])
def test_draws_are_counted(count: int) -> None:
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
        start = generators.snapshot()
        origins = {name: generators.twister(start, name) for name in ("python", "numpy", "torch")}
        for _ in range(count):
            random.getrandbits(32)
        np.random.randint(0, 2**32, size=count, dtype=np.uint32)
        torch.rand(count)
        found = generators.describe(generators.snapshot(), origins)
        assert [found[name]["draws"] for name in ("python", "numpy", "torch")] == [count] * 3
        assert generators.seeded(5) == origins["torch"]
    finally:
        random.setstate(before[0]), np.random.set_state(before[1]), torch.set_rng_state(before[2])
