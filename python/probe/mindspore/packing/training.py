"""Parts `optimizer`, `schedule`, `scaler` and `dataloader`, in the words of packs of PyTorch."""

from __future__ import annotations

from typing import Any

import mindspore
from mindspore.experimental.optim.optimizer import Optimizer as ExperimentalOptimizer
from probe.config_check import secrets
from probe.config_check.schedule import STEPS
from probe.mindspore.packing import model

#: Options of MindSpore's optimizers by PyTorch's names.
_OPTIONS = {
    "momentum": "momentum",
    "dampening": "dampening",
    "nesterov": "nesterov",
    "use_nesterov": "nesterov",
    "eps": "eps",
    "epsilon": "eps",
    "decay": "alpha",
    "centered": "centered",
    "use_amsgrad": "amsgrad",
    "loss_scale": "loss_scale",
}


def optimizer(found: Any, net: Any) -> dict[str, Any]:
    """Returns an optimizer as in `optimizer.json`."""
    names = {id(item.tensor): item.name for item in reversed(list(model.tensors(net)))}
    if isinstance(found, ExperimentalOptimizer):
        groups = [(dict(group), group["params"]) for group in found.param_groups]
        groups = [({name: value for name, value in options.items() if name != "params"}, params) for options, params in groups]
    else:
        groups = _groups(found)
    return {
        "class": type(found).__name__,
        "groups": [
            {
                "options": {name: secrets.clean(_plain(value)) for name, value in options.items()},
                "parameters": [names.get(id(parameter), "?") for parameter in parameters],
            }
            for options, parameters in groups
        ],
        "state_dtypes": _states(found),
    }


def trains(found: Any, net: Any) -> bool:
    """Returns true if the optimizer has a parameter of the network."""
    own = {id(parameter) for parameter in net.get_parameters()}
    return any(id(parameter) in own for parameter in found.parameters)


def _groups(found: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    """Returns options and parameters of an `nn.Optimizer`: neighbours with one rate and one decay are a group."""
    common = {torch: getattr(found, own) for own, torch in _OPTIONS.items() if hasattr(found, own)}
    if hasattr(found, "beta1") and hasattr(found, "beta2"):
        common["betas"] = [_plain(found.beta1), _plain(found.beta2)]
    groups: list[tuple[dict[str, Any], list[Any]]] = []
    for number, parameter in enumerate(found.parameters):
        rates = found.learning_rate
        rate = rates[number] if found.is_group_lr else rates
        decay = found.weight_decay[number] if found.is_group else found.weight_decay
        options = {"lr": _rate(rate, 0), "weight_decay": _plain(decay), **common}
        if not groups or (groups[-1][0]["lr"], groups[-1][0]["weight_decay"]) != (options["lr"], options["weight_decay"]):
            groups.append((options, []))
        groups[-1][1].append(parameter)
    return groups


def _states(found: Any) -> dict[str, str]:
    kinds = {name: value for name, value in vars(found).items() if isinstance(value, mindspore.ParameterTuple)}
    kinds.pop("parameters", None)
    kinds.pop("_parameters", None)
    types = {name: sorted({model.dtype_of(state) for state in value}) for name, value in kinds.items()}
    return {name: ", ".join(value) for name, value in types.items() if value}


def _rate(rate: Any, step: int) -> float:
    """Returns a learning rate at a step: of a number, or of a schedule, which is a cell."""
    return float(_plain(rate(mindspore.Tensor(step, mindspore.int32)) if callable(rate) else rate))


def _plain(value: Any) -> Any:
    """Returns an option as a number. float32 has about seven digits: 0.999 is kept as 0.9990000128746033."""
    if isinstance(value, mindspore.Tensor):
        if value.size != 1:
            return [_plain(item) for item in value.asnumpy().ravel().tolist()]
        value = value.asnumpy().item()
        return float(f"{value:.7g}") if isinstance(value, float) else value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def schedule(found: Any) -> dict[str, Any] | None:
    """Returns the learning rates to come as in `schedule.json`; None if an optimizer has one rate."""
    if isinstance(found, ExperimentalOptimizer) or not found.dynamic_lr:
        return None
    rates = found.learning_rate if isinstance(found.learning_rate, (list, tuple, mindspore.nn.CellList)) else [found.learning_rate]
    distinct = list({id(rate): rate for rate in rates}.values())
    start = int(found.global_step.asnumpy().item())
    return {
        "class": type(distinct[0]).__name__.lstrip("_"),
        "rates": [[_rate(rate, start + step) for rate in distinct] for step in range(STEPS)],
    }


def scaler(found: Any) -> dict[str, Any]:
    """Returns a loss scaler as in `scaler.json`."""
    values = {"scale": "scale_value", "growth_factor": "scale_factor", "growth_interval": "scale_window"}
    kept = {name: _plain(getattr(found, own)) for name, own in values.items() if hasattr(found, own)}
    return {"class": type(found).__name__, "enabled": True, **kept}


def loader(found: Any) -> dict[str, Any]:
    """Returns a data set of `mindspore.dataset`, at the end of its pipeline, as in `dataloader.json`."""
    chain = [found]
    while getattr(chain[-1], "children", None):
        chain.append(chain[-1].children[0])
    described: dict[str, Any] = {"class": type(found).__name__, "dataset": type(chain[-1]).__name__}
    described["batch_size"] = found.get_batch_size()
    described["batches"] = found.get_dataset_size()
    for stage in chain:
        if hasattr(stage, "drop_remainder"):
            described["drop_last"] = bool(stage.drop_remainder)
            described["samples"] = stage.children[0].get_dataset_size()
            break
    workers = getattr(found, "num_parallel_workers", None)
    return {**described, "num_workers": workers} if workers is not None else described


