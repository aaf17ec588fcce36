"""Two plain Parquet files of one step with many tokens: large.py FOLDER [TOKENS]. The engine's values are exponential, the trainer's have noise of 0.02.

Time the program on them: probe rollout FOLDER/rollout FOLDER/trainer -o FOLDER/out -q --threads 2
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from probe import _core

LENGTH = 1000


def main(folder: Path, tokens: int) -> None:
    chance = np.random.default_rng(0)
    rows = tokens // LENGTH
    tokens = rows * LENGTH
    rollout = -chance.exponential(1, tokens).astype("f4")
    noise = chance.normal(0, 0.02, tokens).astype("f4")
    trainer = np.minimum(rollout + noise * -np.expm1(rollout), 0).astype("f4")
    ids = chance.integers(0, 150_000, tokens, dtype="u4")
    positions = np.tile(np.arange(LENGTH, dtype="u4"), rows)
    samples = [(f"sample-{row}", LENGTH, None, None) for row in range(rows)]
    for side, values in (("rollout", [rollout.tobytes(), b""]), ("trainer", [b"", trainer.tobytes()])):
        (folder / side).mkdir(parents=True, exist_ok=True)
        _core.write_tokens(str(folder / side / "step1-rank0.parquet"), 1, samples, positions.tobytes(), ids.tobytes(), *values, b"\1" * tokens)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000)
