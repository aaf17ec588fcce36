"""Rewrites the JSON of a dump of version 26 to what version 1.3.0 wrote of the same run."""
import json
import re

import torch


def leaf(node, folder):
    """Non-finite extremes carried two more keys; integers and float64 had all four statistics, as floats."""
    if isinstance(node, list):
        return [leaf(v, folder) for v in node]
    if not isinstance(node, dict):
        return node
    if "dtype" not in node or "Max" not in node:
        return {k: leaf(v, folder) for k, v in node.items()}
    out = dict(node)
    name = node.get("data_name")
    data = torch.load(folder / "dump_tensor_data" / name) if name else None
    if data is not None and data.numel() and data.dtype != torch.bool and not data.is_complex() and data.dtype != torch.bfloat16:
        x = data.float()
        if node["Mean"] is None:
            out.update(Max=x.max().item(), Min=x.min().item(), Mean=x.mean().item(), Norm=x.norm().item())
        finite = x[torch.isfinite(x)]
        for key, f in (("Max", torch.max), ("Min", torch.min)):
            if isinstance(out[key], float) and not abs(out[key]) < float("inf") and finite.numel():
                out[f"{key}_except_inf_nan"] = f(finite).item()
    elif data is None and node["Mean"] is None and isinstance(node["Max"], int) and not isinstance(node["Max"], bool):
        out.update(Max=float(node["Max"]), Min=float(node["Min"]))
    return out


def rewrite(folder):
    file = folder / "dump.json"
    dump = json.loads(file.read_text())
    dump["data"] = {re.sub(r"(\.parameters_grad)\.\d+$", r"\1", op): leaf(block, folder) for op, block in dump["data"].items()}
    file.write_text(json.dumps(dump, indent=1))
    for file in folder.glob("dump_tensor_data/*.parameters_grad.*.pt"):
        raise SystemExit(f"{file}: parameter gradients in a tensor dump are not rewritten, since files carry their own names")
    file = folder / "stack.json"
    if file.exists():
        stacks = json.loads(file.read_text())
        flat = {op: frames for names, frames in stacks.values() for op in names}
        file.write_text(json.dumps({op: flat[op] for op in dump["data"] if op in flat}, indent=1))
