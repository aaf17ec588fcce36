"""Writes `signatures.txt`: parameters of torch's functions in order, with their defaults. `python signatures.py > signatures.txt`"""

from __future__ import annotations

import inspect
import re

import torch
import torch.nn.functional as F

#: Names of parameters that are dimensions; as `DIMENSIONS` in signatures.rs has them.
DIMENSION = re.compile(r"^(dim|dims|dim0|dim1|dim2|axis|axis0|axis1|start_dim|end_dim|source|destination)(=|$)")


def shown(value: object) -> str | None:
    """A default as the judge reads it; `None` for one that is no scalar."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return str(value)
    return None


def of_python() -> dict[str, list[str]]:
    """Functions of torch.nn.functional that are written in Python."""
    found = {}
    for name in dir(F):
        function = getattr(F, name)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        parameters = inspect.signature(function).parameters.values()
        pairs = [(p.name, None if p.default is p.empty else shown(p.default)) for p in parameters]
        found[name] = [name if default is None else f"{name}={default}" for name, default in pairs]
    return found


def of_schemas() -> dict[str, list[str]]:
    """Operators of aten under their public names: the overload with the most arguments that does not write to `out`."""
    found: dict[str, list[str]] = {}
    public = {*dir(torch), *dir(torch.Tensor), *dir(F)}
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        # Of internal operators, which autograd calls, the dimensions are wanted, and the options of attention.
        has_dimension = any(DIMENSION.search(argument.name) for argument in schema.arguments)
        is_attention = name.startswith("_scaled_dot_product") and "backward" not in name
        is_public = name in public and not name.startswith("_")
        if not schema.name.startswith("aten::") or not (is_public or has_dimension or is_attention):
            continue
        # Under its public name an operator has the public function's parameters.
        if not is_public and (name := name.strip("_")) in public:
            continue
        if not any("Tensor" in str(result.type) for result in schema.returns):
            continue
        arguments = [a for a in schema.arguments if not a.is_out]
        if len(arguments) < len(schema.arguments):
            continue
        with_default = {a.name: shown(a.default_value) for a in arguments if a.has_default_value()}
        pairs = [(a.name, with_default.get(a.name)) for a in arguments]
        made = [name if default is None else f"{name}={default}" for name, default in pairs]
        if len(made) > len(found.get(name, [])):
            found[name] = made
    return found


if __name__ == "__main__":
    for function, parameters in sorted({**of_schemas(), **of_python()}.items()):
        has_default = any("=" in parameter and not parameter.endswith("=None") for parameter in parameters)
        if has_default or any(DIMENSION.search(parameter) for parameter in parameters):
            print(function, *parameters)
