"""A training of a model on a device: `python trained.py MODEL [DEVICE [STEPS]]`, one step by default. DEVICE is JSON with the fields of `device.Device`.
`two_faults.py` has `probe narrow` run it.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "answers"))

import torch  # noqa: E402

import device  # noqa: E402
import runs  # noqa: E402

torch.set_num_threads(1)
if "RUNS" in os.environ:
    with open(os.environ["RUNS"], "a", encoding="utf-8") as file:
        file.write("run\n")
runs.train(sys.argv[1], "float32", device.Device(**json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}")), int(sys.argv[3]) if len(sys.argv) > 3 else 1)
