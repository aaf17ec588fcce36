"""`probe doctor --runtime`: tests the agent below Python on this machine, and writes a report to send back, without
user data or names.

The trial runs in separate processes with the agent preloaded: this file, run as a program.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

AGENT = "libprobe_agent.so"
REPORT = "probe-runtime-report.json"
#: Number of timed calls, and of alternating runs with and without the agent.
CALLS, ROUNDS = 2000, 3
#: Calls of one operator whose executor torch_npu would cache.
REPEATED = 5


def main(arguments: list[str], as_json: bool = False) -> int:
    """Prints the findings for the named device and writes the report; `as_json` prints the report instead of both.
    Returns 0 if all is well, 1 if something is not, 2 if the trial could not run."""
    device = arguments[0] if arguments else "npu:0"
    agent = find_agent()
    if agent is None:
        print(f"error: {AGENT} not found; build it with `cargo build --release --locked -p probe-agent` and set PROBE_AGENT to its path", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        found = _run(device, "check", agent, Path(folder))
        if "error" in found:
            print(f"error: the trial did not run: {found['error']}", file=sys.stderr)
            return 2
        # Runs separately: a device may fail in any way when it refuses a capture.
        found["graphs"] = _run(device, "graph", agent, Path(folder))
        if why := found["graphs"].pop("error", None):
            # The reason may name a user's file, which must not be in the report.
            print(f"note: the trial of graphs did not run: {why}", file=sys.stderr)
        found["idle"] = _idle(device, agent, Path(folder))
    lines = list(judge(found))
    bad = sum(not well for well, _, _ in lines)
    found["checks"] = {name: [well, text] for well, name, text in lines}
    found["machine"] = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    report = json.dumps(found, indent=1, sort_keys=True)
    if as_json:
        print(report)
        return 1 if bad else 0
    Path(REPORT).write_text(report + "\n")
    for well, name, text in lines:
        print(f"{'ok' if well else 'BAD':<10} {name}: {text}")
    print(f"{len(lines)} checks, {f'{bad} failed' if bad else 'all passed'}; the report to send back is {REPORT}: counts, versions and times, none of your data")
    return 1 if bad else 0


def find_agent() -> Path | None:
    """Returns the agent's path: as the variable says, or in the package."""
    places = [os.environ.get("PROBE_AGENT"), str(Path(__file__).parent / AGENT)]
    return next((Path(place).resolve() for place in places if place and Path(place).is_file()), None)


def judge(found: dict[str, Any]) -> list[tuple[bool, str, str]]:
    """Yields the checks: whether each passed, its name, and the finding."""
    agent, counts = found["agent"], found["agent"].get("counts", {})
    lost = counts.get("unknown_executor", 0) + counts.get("unscanned", 0) + counts.get("dropped", 0)
    recorded = {name: found["ops"].count(name) for name in set(found["ops"])}
    idle = found["idle"]
    spread = f"{idle['without']:.2f} us without the agent, {idle['with']:.2f} us with it idle, {idle['recording']:.0f} us while recording (medians of {ROUNDS} runs)"
    return [
        (agent.get("cann", False) and not agent.get("missing"), "symbols", agent.get("missing") or f"the functions of CANN are there; {agent.get('soc')}"),
        (agent.get("operators_found", 0) > 0, "trampolines", f"{agent.get('operators_found', 0)} operators were looked up, {agent.get('launches', 0)} launches recorded"),
        (lost == 0, "arguments", f"{lost} launches have unknown arguments" if lost else "the arguments of every launch are known"),
        (counts.get("other_layout", 0) == 0, "roles", f"{agent.get('operators_with_roles', 0)} of {agent.get('operators_found', 0)} in the table; {counts.get('other_layout', 0)} calls did not fit it"),
        (recorded.get("Muls", 0) >= REPEATED or recorded.get("Mul", 0) >= REPEATED, "cache", f"{max(recorded.get('Muls', 0), recorded.get('Mul', 0))} of {REPEATED} calls with a reused executor were recorded"),
        (found["streams"], "streams", "values of a second stream are right" if found["streams"] else "values recorded in a second stream differ from those it computed"),
        (counts.get("unknown_format", 0) == 0, "formats", f"{counts.get('unknown_format', 0)} tensors in formats or types that are not measured"),
        _judge_graphs(found["graphs"]),
        (found["same"], "results", "bit-identical with and without recording" if found["same"] else "recording changed the results"),
        (idle["with"] - idle["without"] <= 1.0, "cost", spread),
    ]


def _judge_graphs(found: dict[str, Any]) -> tuple[bool, str, str]:
    if not found:
        return False, "graphs", "the trial did not run"
    if found["without"]:
        return True, "graphs", "this torch_npu captures no graphs"
    if not found["same"]:
        return False, "graphs", "recording a graph changes its results"
    text = "the values of every replay are recorded" if found["recorded"] else "replays are NOT RECORDED; the device accepts no copies in graphs, or does not run them with each replay"
    return found["recorded"], "graphs", text


def _run(device: str, what: str, agent: Path | None, folder: Path) -> dict[str, Any]:
    output = folder / f"dump-{what}-{time.monotonic_ns()}"
    variables = {**os.environ, "PROBE_DOCTOR_DUMP": str(output)}
    if agent is not None:
        variables["LD_PRELOAD"] = os.pathsep.join(filter(None, [str(agent), os.environ.get("LD_PRELOAD")]))
        variables["PROBE_RUNTIME"] = json.dumps({"output": str(output), "steps": "1", "task": "statistics", "quiet": True})
    done = subprocess.run([sys.executable, "-m", "probe.runtime_doctor", device, what], env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _idle(device: str, agent: Path, folder: Path) -> dict[str, float]:
    """Returns the median time of a call, with runs alternating."""
    times: dict[str, list[float]] = {"without": [], "with": [], "recording": []}
    for _ in range(ROUNDS):
        for what in times:
            found = _run(device, "time-recording" if what == "recording" else "time", None if what == "without" else agent, folder)
            times[what].append(found.get("microseconds", float("nan")))
    return {what: statistics.median(values) for what, values in times.items()}


def trial(device: str, what: str) -> dict[str, Any]:
    """Runs in a process with the agent preloaded."""
    import torch

    torch.manual_seed(0)
    host = torch.randn(64, 64)
    tensor = host.to(device)
    if what.startswith("time"):
        return _times(torch, tensor, what)
    if what == "graph":
        return _trial_of_graphs(torch, tensor)
    return _trial_of_ops(torch, tensor)


def _times(torch: Any, tensor: Any, what: str) -> dict[str, Any]:
    """Measures a call: without recording for `time`, else inside a recorded step."""
    from probe import runtime

    if "PROBE_RUNTIME" in os.environ:
        runtime.hold()
    calls = CALLS if what == "time" else CALLS // 20
    for _ in range(200):
        tensor + tensor
    if what != "time":
        runtime.begin_step(1)
    torch.npu.synchronize()
    spent = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        tensor + tensor
        spent.append((time.perf_counter_ns() - began) / 1000)
    torch.npu.synchronize()
    if "PROBE_RUNTIME" in os.environ:
        runtime.close()
    return {"microseconds": statistics.median(spent)}


def _trial_of_ops(torch: Any, tensor: Any) -> dict[str, Any]:
    """Records a step of a few ops on two streams, and computes the same without and after it."""
    from importlib.metadata import version

    from probe import runtime

    def compute() -> tuple[Any, Any]:
        for _ in range(REPEATED):
            scaled = tensor * 3
        layer = torch.nn.functional.layer_norm(scaled @ tensor, (64,))
        other = torch.npu.Stream()
        torch.npu.synchronize()
        with torch.npu.stream(other):
            beside = torch.nn.functional.gelu(layer)
        torch.npu.synchronize()
        return layer, beside

    runtime.hold()
    before = [each.cpu() for each in compute()]
    runtime.begin_step(1)
    after_step = compute()
    runtime.end_step()
    after = [each.cpu() for each in after_step]
    report = runtime.report()
    runtime.close()

    shown = json.loads(_inspected(os.environ["PROBE_DOCTOR_DUMP"]))
    ops = [op for part in shown["parts"] for op in part["ops"]]
    gelu = [op for op in ops if op["name"].startswith("Aclnn.Gelu")]
    outputs = [slot["tensor"]["statistics"]["norm"] for op in gelu for slot in op["slots"] if slot["side"] == "output"]
    norm = float(after[1].double().norm())
    return {
        "agent": {**report, "launches": len(ops)},
        "ops": [op["name"].split(".")[1] for op in ops],
        "streams": any(abs(output - norm) <= 1e-5 * norm for output in outputs),
        "same": all(torch.equal(one, other) for one, other in zip(before, after, strict=True)),
        "versions": {"torch": torch.__version__, "torch_npu": version("torch_npu") if "torch_npu" in sys.modules else None, "probe": version("probe-precision")},
    }


def _trial_of_graphs(torch: Any, tensor: Any) -> dict[str, Any]:
    """Captures a graph before the recorded step, and replays it in the step with two inputs."""
    from probe import runtime

    if not hasattr(torch.npu, "NPUGraph"):
        return {"without": True}
    runtime.hold()
    tensor.exp()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = tensor.exp()
    runtime.begin_step(1)
    results = []
    for _ in range(2):
        graph.replay()
        results.append(result.cpu())
        tensor.copy_(torch.randn(64, 64))
    runtime.end_step()
    graph.replay()
    same = torch.equal(result.cpu(), tensor.exp().cpu()) and not torch.equal(*results)
    runtime.close()
    ops = [op for part in json.loads(_inspected(os.environ["PROBE_DOCTOR_DUMP"]))["parts"] for op in part["ops"] if op["name"].startswith("Aclnn.Exp.")]
    norms = [slot["tensor"]["statistics"]["norm"] for op in ops for slot in op["slots"] if slot["side"] == "output" and slot["tensor"].get("statistics")]
    expected = [float(each.double().norm()) for each in results]
    recorded = len(norms) == len(expected) and all(abs(norm - wanted) <= 1e-5 * wanted for norm, wanted in zip(norms, expected, strict=True))
    return {"without": False, "same": same, "recorded": recorded}


def _inspected(dump: str) -> str:
    variables = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "PROBE_RUNTIME")}
    return subprocess.run([sys.executable, "-m", "probe", "inspect", dump, "--format", "json"], env=variables, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    print(json.dumps(trial(*sys.argv[1:3])))
