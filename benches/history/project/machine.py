"""Set-up of the machine of the job, not of the commit."""

import os

import torch


def prepare():
    for switch in os.environ.get("MACHINE", "").split():
        name, value = switch.split("=")
        if name == "deterministic":
            torch.use_deterministic_algorithms(value == "on")
        elif name == "mkldnn":
            torch.backends.mkldnn.enabled = value == "on"
        elif name == "matmul_precision":
            torch.set_float32_matmul_precision(value)
        else:
            raise ValueError(switch)
