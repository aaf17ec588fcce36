"""Captures graphs and replays them, step by step, with `probe.step()` between. The last line is JSON: what each replay wrote, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

import probe

DEVICE = "npu:0"
STEPS, REPLAYS, PASSING = 3, 3, 2


def bits(tensor: torch.Tensor) -> list[str]:
    return [value.hex() for value in tensor.cpu().flatten().tolist()]


def capture(function: Callable[[], torch.Tensor], *, changed: bool = False) -> tuple[Any, torch.Tensor, Any]:
    """A graph of a function without arguments, with what it writes. With `changed`, its operators are a group that can be given other arguments."""
    graph, group = torch.npu.NPUGraph(), None
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        if changed:
            torch.npu.graph_task_group_begin(stream)
        result = function()
        if changed:
            group = torch.npu.graph_task_group_end(stream)
    return graph, result, group


def training() -> tuple[Any, torch.Tensor]:
    """A graph of a whole step: forward, backward and the optimizer."""
    torch.manual_seed(1)
    net = torch.nn.Linear(8, 2).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batch = torch.linspace(-1, 1, 24).view(3, 8).to(DEVICE)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        step()
    torch.npu.current_stream().wait_stream(side)
    graph, loss, _ = capture(step)
    return graph, loss


def main() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to(DEVICE)
    x, base = torch.zeros(3, 8, device=DEVICE), torch.linspace(-1, 1, 24).view(3, 8).to(DEVICE)
    # 16 KiB, and as much for a result.
    wide = torch.ones(64, 64, device=DEVICE)
    training_graph, loss = training()
    with torch.no_grad():
        for _ in range(2):
            net(x)
        graph, y, _ = capture(lambda: net(x))
        grouped, scaled, group = capture(lambda: y * 2, changed=True)
    steps = []
    for step in range(STEPS):
        shown: dict[str, list[Any]] = {"model": [], "passing": [], "grouped": [], "losses": []}
        for replay in range(REPLAYS):
            # Nothing here waits for the device.
            x.copy_(base * (step + 1) + replay)
            graph.replay()
            shown["model"].append(y.clone())
        for number in range(PASSING):
            passing, total, _ = capture(lambda number=10 * step + number: wide + number)  # type: ignore[misc]
            passing.replay()
            shown["passing"].append(total[0, :4].clone())
            passing.reset()
        stream = torch.npu.current_stream()
        torch.npu.graph_task_update_begin(stream, group)
        torch.mul(y, step + 2, out=scaled)
        torch.npu.graph_task_update_end(stream)
        grouped.replay()
        shown["grouped"].append(scaled.clone())
        training_graph.replay()
        shown["losses"].append(loss.detach().clone())
        steps.append(shown)
        probe.step()
    print(json.dumps({"steps": [{kind: [bits(value) for value in values] for kind, values in shown.items()} for shown in steps]}))


if __name__ == "__main__":
    main()
