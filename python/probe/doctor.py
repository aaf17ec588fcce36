"""`probe doctor`: tries on this machine what recording rests on, and prints a report to send back. A minute at most; nothing is kept.

Each check is one line: what was tried, how it went, and the reason where it did not go well.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

#: Exit codes: all is well, something is not, torch cannot be loaded.
WELL, UNWELL, NO_TORCH = 0, 1, 2

#: Version of the document that `--format json` prints: raised when a field changes its meaning or goes away, not for new ones.
SCHEMA_VERSION = 1

#: Launches of which the median is told.
LAUNCHES = 200

Check = tuple[str, Callable[[Any, Any], str]]


class Unwell(Exception):
    """A check found something wrong; the text says what."""


def main(arguments: list[str]) -> int:
    """Prints the report for the device that is named, or the one there is."""
    try:
        arguments, as_json = _form(arguments)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return NO_TORCH
    if arguments[:1] == ["--runtime"] and len(arguments) <= 2 and arguments[1:2] not in (["-h"], ["--help"]):
        from probe import runtime_doctor

        return runtime_doctor.main(arguments[1:], as_json)
    if arguments[:1] in (["-h"], ["--help"]) or len(arguments) > 1:
        print(
            "usage: probe doctor [--runtime] [--format text|json] [DEVICE]\n\nTries what recording needs on DEVICE (npu:0, cuda:0, cpu; default: the accelerator); "
            "with --runtime, what `probe capture --runtime acl` needs on an NPU."
        )
        return WELL if arguments and arguments[0] in ("-h", "--help") else NO_TORCH
    try:
        import torch
    except Exception as error:
        print(f"error: torch cannot be loaded: {_short(error)}{_autoload(str(error))}", file=sys.stderr)
        return NO_TORCH
    try:
        device = torch.device(arguments[0] if arguments else _accelerator(torch))
        torch.ones(1, device=device)
    except Exception as error:
        print(f"error: {' '.join(arguments) or 'the device'} cannot be used: {_short(error)}", file=sys.stderr)
        return NO_TORCH
    # A line as soon as it is known, unless all of it is one document.
    tell: Callable[[str], None] = (lambda line: None) if as_json else (lambda line: print(line, flush=True))
    facts = dict(_facts(torch, device))
    for name, fact in facts.items():
        tell(f"{name:<10} {fact}")
    checks = []
    for name, check in CHECKS:
        try:
            well, said = True, check(torch, device)
        except Exception as error:
            well, said = False, _short(error)
        checks.append({"name": name, "well": well, "said": said})
        tell(f"{'ok' if well else 'BAD':<10} {name}: {said}")
    bad = sum(not check["well"] for check in checks)
    tell(f"{len(CHECKS)} checks, {bad} failed" if bad else f"{len(CHECKS)} checks, all passed")
    if as_json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "facts": facts, "checks": checks, "bad": bad}, indent=2))
    return UNWELL if bad else WELL


def _form(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments without `--format`, and whether it asks for JSON."""
    rest, given = [], "text"
    words = iter(arguments)
    for word in words:
        if word == "--format":
            given = next(words, "")
        elif word.startswith("--format="):
            given = word.removeprefix("--format=")
        else:
            rest.append(word)
    if given not in ("text", "json"):
        raise ValueError(f"--format {given}: text or json")
    return rest, given == "json"


def _autoload(reason: str) -> str:
    """Returns what to do where torch fails because an extension of it does."""
    if "autoload" not in reason.lower() and "backend extension" not in reason:
        return ""
    return "; source set_env.sh of CANN, or export TORCH_DEVICE_BACKEND_AUTOLOAD=0 where there is no NPU"


def _short(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text and not isinstance(error, Unwell) else (text[0] if text else type(error).__name__)


def _accelerator(torch: Any) -> str:
    from probe.recorder.device import Device

    kind = Device.present()["kind"]
    return kind if kind == "cpu" else f"{kind}:0"


def _facts(torch: Any, device: Any) -> Iterator[tuple[str, str]]:
    from importlib.metadata import PackageNotFoundError, version

    from probe.private import safe
    from probe.recorder.device import Device

    for name, package in (("probe", "probe-precision"), ("torch_npu", "torch_npu")):
        try:
            yield name, version(package)
        except PackageNotFoundError:
            continue
    yield "torch", f"{torch.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    present = Device.present()
    yield "device", f"{device}, {present['name'] or 'host'}, {present['count']} of kind {present['kind']}"
    below = ", ".join(f"{name} {version}" for name, version in _below(device))
    if below:
        yield "below", below
    yield "ways", f"the safe ones: {reason}" if (reason := safe()) else "the quick ones past torch's attributes"
    names = ("PROBE_SAFE", "ASCEND_HOME_PATH", "TORCH_DEVICE_BACKEND_AUTOLOAD", "TASK_QUEUE_ENABLE", "CUDA_LAUNCH_BLOCKING", "ASCEND_LAUNCH_BLOCKING")
    yield "set", ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ) or "nothing that matters"


def _below(device: Any) -> Iterator[tuple[str, str]]:
    """Versions of CANN, its driver and the like, as far as they can be found out."""
    from probe.config_check.host import npu

    if device.type == "npu":
        yield from npu().items()


def _wait(torch: Any, device: Any) -> None:
    getattr(torch, device.type).synchronize()


def _measures(torch: Any, device: Any) -> str:
    """Every type, against NumPy's arithmetic on the host."""
    from probe.recorder.device import Device

    meter = Device(sketch=True)
    source = torch.Generator().manual_seed(1)
    values = torch.randn(300, 500, generator=source)
    kinds = ["float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"]
    bad = []
    for kind in kinds:
        try:
            host = (values * 50).to(getattr(torch, kind))
            (row,) = meter.fetch([meter.measure(host.to(device))])
            norm = row[2][3]
            expected = host.double().norm().item()
            if not math.isclose(norm, expected, rel_tol=1e-4):
                bad.append(f"{kind} has norm {norm:.6g}, not {expected:.6g}")
        except Exception as error:
            bad.append(f"{kind}: {_short(error)}")
    if bad:
        raise Unwell("; ".join(bad))
    return ", ".join(kinds)


def _streams(torch: Any, device: Any) -> str:
    """Computes on one stream and reads on another."""
    if device.type == "cpu":
        return "none on the host"
    accelerator = getattr(torch, device.type)
    other, event = accelerator.Stream(), accelerator.Event()
    numbers = torch.zeros(1 << 20, device=device)
    other.wait_stream(accelerator.current_stream())
    with accelerator.stream(other):
        for _ in range(20):
            numbers = numbers + 1
        event.record()
    accelerator.current_stream().wait_event(event)
    found = (numbers * 2).cpu().unique().tolist()
    if found != [40.0]:
        raise Unwell(f"after an event the value is {found[:3]}, not 40")
    return "work in another stream is waited for"


def _times(torch: Any, device: Any) -> str:
    from probe.recorder.device import Device

    numbers = torch.ones(256, 256, device=device)

    def median(work: Callable[[], Any], times: int) -> float:
        spent = []
        for _ in range(times):
            start = time.perf_counter()
            work()
            spent.append(time.perf_counter() - start)
        if device.type != "cpu":
            _wait(torch, device)
        return statistics.median(spent) * 1e6

    launch = median(lambda: numbers.add(1), LAUNCHES)
    meter = Device(sketch=True)
    kept: list[Any] = []
    observe = median(lambda: kept.append(meter.measure(numbers)), LAUNCHES // 10)
    start = time.perf_counter()
    meter.fetch(kept)
    return f"{launch:.0f} us on the host per op, {observe:.0f} to measure a tensor, {(time.perf_counter() - start) * 1e3:.1f} ms to fetch {len(kept)}"


def _identical(torch: Any, device: Any) -> str:
    """A training with and without a recording, at each level."""
    import probe

    folder = tempfile.mkdtemp(prefix="probe-doctor-")
    try:
        plain, _ = _train(torch, device, None)
        recorded = []
        for level in ("module", "mix", "op"):
            losses, tally = _train(torch, device, probe.capture(os.path.join(folder, level), steps=[0, 1], level=level, quiet=True, step_on="program"))
            if losses != plain:
                raise Unwell(f"level {level} changes the training: losses and weights {losses} instead of {plain}")
            ops, (tensors, unmeasured, first), seconds = tally
            if unmeasured:
                raise Unwell(f"level {level}: {unmeasured} of {tensors} tensors could not be measured; first {first}")
            recorded.append(f"{level} {ops} ops in {seconds:.2f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return "losses and weights bit-identical; " + ", ".join(recorded)


def _train(torch: Any, device: Any, capture: Any) -> tuple[list[str], Any]:
    torch.manual_seed(5)
    layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)).to(device)
    optimizer = torch.optim.AdamW(layers.parameters(), 1e-3)
    inputs = torch.randn(16, 32, generator=torch.Generator().manual_seed(6)).to(device)
    found = []
    tally = None
    if capture is not None:
        capture.start(layers)
    for _ in range(2):
        optimizer.zero_grad()
        loss = layers(inputs).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss)
        if capture is not None:
            capture.step()
    if capture is not None:
        capture.close()
        tally = capture.tally()
    weights = torch.cat([parameter.detach().flatten() for parameter in layers.parameters()]).cpu().double().norm()
    return [number.item().hex() for number in (*found, weights)], tally


def _fused(torch: Any, device: Any) -> str:
    """The kernel of the setting `fused`, against torch's operations."""
    if device.type != "cuda":
        return "of CUDA devices alone"
    from probe.recorder.device import Device

    operations = Device(sketch=True)
    kernel = Device(sketch=True, fused=True).kernel(str(device))
    if kernel is None:
        return "cannot be used here, so torch's operations measure"
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        values = torch.randn(1000, 1003, generator=torch.Generator().manual_seed(3)).to(device, kind)
        (found,), (expected,) = kernel.rows([values], False), operations.fetch([operations.measure(values)])
        (_, counts, numbers, _, _, lanes), (_, *others) = found, expected
        lanes, other = (torch.frombuffer(bytearray(each), dtype=torch.float32).double() for each in (lanes, others[4]))
        same = counts == others[0] and all(math.isclose(one, two, rel_tol=1e-5, abs_tol=1e-6) for one, two in zip(numbers, others[1]))
        if not same or (lanes - other).norm() > 1e-5 * numbers[3]:
            raise Unwell(f"gives {counts} and {numbers} of {kind} for {others[0]} and {others[1]}; set `fused` to false")
    return "as torch's operations"


CHECKS: tuple[Check, ...] = (
    ("numbers of tensors", _measures),
    ("streams and events", _streams),
    ("host time", _times),
    ("the kernel of `fused`", _fused),
    ("a small training", _identical),
)
