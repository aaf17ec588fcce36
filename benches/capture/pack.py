"""Cost of packing for the steps it looks at, beyond hashing: a GPT, processor time, plain and packed steps by turns.

usage: pack.py [--pairs N]

Needs the package installed with its release core. Results: benches/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cost import make

from probe.config_check import digests, pack


def processor(call: Callable[[], object]) -> float:
    """Seconds."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    """Prints the share of a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model, step = make("gpt")
    for _ in range(3):
        step()
    hashing = 0.0
    inner = digests.TensorDigests.tensors

    def tensors(*arguments: Any, **keywords: Any) -> Any:
        nonlocal hashing
        start = time.process_time()
        try:
            return inner(*arguments, **keywords)
        finally:
            hashing += time.process_time() - start

    digests.TensorDigests.tensors = tensors
    shares, hashed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(given.pairs):
            plain = processor(step)
            collection = pack(model, Path(folder) / f"{pair}.zip", steps=1)
            hashing = 0.0
            packed = processor(step)
            shares.append((packed - hashing - plain) / plain)
            hashed.append(hashing / plain)
            collection.finish()
    print(f"beyond hashing {statistics.median(shares):+.3f} of a step, hashing itself {statistics.median(hashed):.3f}")


if __name__ == "__main__":
    main()
