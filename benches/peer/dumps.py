"""Dumps to time comparison tools on: python dumps.py FOLDER [tensor] [stat] [json]

FOLDER/tensor/{baseline,candidate}/step0/rank0   one L1 step of a 4-layer GPT with its data, over 500 MB a side
FOLDER/stat/{baseline,candidate}/step0/rank0     one mix step of a 88-layer GPT, statistics, over 13 000 rows
FOLDER/json/{baseline,candidate}/step0/rank0     the entries of `stat` over and over until dump.json has 90 MB

The candidate rounds otherwise, and one operator is wrong: GELU 1 of 4, or 45 of 88, returns its output times 1.01.
"""
import json
import os
import pathlib
import socket
import subprocess
import sys

MAKE = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "make"
TENSOR = {"width": 256, "heads": 8, "layers": 4, "seq": 128, "batch": 7, "vocab": 1000}
DEEP = {"width": 64, "heads": 4, "layers": 88, "seq": 32, "batch": 2, "vocab": 500}


def train(folder, shape, task, level, gelu):
    device = {"compute": "float64", "fault": [{"op": "gelu", "call": gelu, "what": "scale", "by": 1.01}]}
    for side in ("baseline", "candidate"):
        command = [sys.executable, "train.py", "gpt", "--dump", str(folder / side), "--task", task, "--level", level]
        command += ["--set", f"shape={json.dumps(shape)}"] + (["--device", json.dumps(device)] if side == "candidate" else [])
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]), RANK="0", WORLD_SIZE="1")
        subprocess.run(command, cwd=MAKE, env=env, check=True, stdout=subprocess.DEVNULL)


def again(op, copy, calls):
    """The name of an operator in the `copy`-th repetition of a step: its call number moves on by what one step has."""
    parts = op.split(".")
    at = -1 if parts[0] == "Module" else -2
    kind = ".".join(parts[:at]) if at == -2 else op[: op.rindex(".")]
    parts[at] = str(int(parts[at]) + copy * calls[kind])
    return ".".join(parts)


def swell(source, target, size):
    """dump.json with the steps of `source` one after the other, as if step() had never been called."""
    dump = json.loads((source / "dump.json").read_text())
    calls = {}
    for op in dump["data"]:
        parts = op.split(".")
        at = -1 if parts[0] == "Module" else -2
        kind = ".".join(parts[:at]) if at == -2 else op[: op.rindex(".")]
        calls[kind] = max(calls.get(kind, 0), int(parts[at]) + 1)
    for kind in calls:  # backward calls carry the numbers of their forward
        calls[kind] = max(calls[kind], calls.get(kind.replace(".backward", ".forward"), 0))
    copies = -(-size // (source / "dump.json").stat().st_size)
    data = {again(op, copy, calls): block for copy in range(copies) for op, block in dump["data"].items()}
    target.mkdir(parents=True, exist_ok=True)
    (target / "dump.json").write_text(json.dumps(dict(dump, data=data), indent=1))


def main():
    root, wanted = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or ["tensor", "stat", "json"]
    if "tensor" in wanted:
        train(root / "tensor", TENSOR, "tensor", "L1", 1)
    if "stat" in wanted:
        train(root / "stat", DEEP, "statistics", "mix", 44)
    if "json" in wanted:
        for side in ("baseline", "candidate"):
            where = pathlib.Path("step0", "rank0")
            swell(root / "stat" / side / where, root / "json" / side / where, 90_000_000)


if __name__ == "__main__":
    main()
