"""Switches that versions of torch give in different ways."""

from __future__ import annotations

import pytest
import torch

from probe.config_check import flags


class Newer:
    """Switches of torch from 2.9 on, after a program has set the newer ones: reading the older ones is an error."""

    def __init__(self, **switches: object) -> None:
        vars(self).update(switches)

    @property
    def allow_tf32(self) -> bool:
        raise RuntimeError("a mix of the legacy and new APIs")


@pytest.mark.parametrize(
    ("precision", "tf32", "word"), [("tf32", True, "high"), ("ieee", False, "highest"), ("none", False, "highest")]
)
def test_tf32_is_read_under_the_name_that_was_set(
    precision: str, tf32: bool, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matmul = Newer(fp32_precision=precision)
    monkeypatch.setattr(torch.backends.cuda, "matmul", matmul)
    monkeypatch.setattr(torch.backends, "cudnn", Newer(conv=Newer(fp32_precision=precision)))
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: matmul.allow_tf32)
    found = flags.collect(torch.nn.Linear(1, 1))
    assert (found["cuda"]["matmul"]["allow_tf32"], found["cudnn"]["allow_tf32"]) == (tf32, tf32)
    assert found["float32_matmul_precision"] == word
