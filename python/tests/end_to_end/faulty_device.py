"""A program on a device whose kernels are wrong where its arguments say so."""

#: Four layers on a device whose kernels are wrong in the calls that the arguments name: `gelu 1 0.01`.
PROGRAM = """
import sys
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

class Wrong(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        words = sys.argv[1:]
        self.faults = {(op, int(call)): float(size) for op, call, size in zip(words[::3], words[1::3], words[2::3])}
        self.calls = {}
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        call = self.calls[name] = self.calls.get(name, -1) + 1
        if (name, call) in self.faults:
            result.mul_(1 + self.faults[name, call] * torch.linspace(-1, 1, result.numel()).reshape(result.shape))
        return result

torch.manual_seed(0)
layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
model = nn.Sequential(*(nn.Sequential(layer, nn.GELU(), nn.Softmax(-1), nn.LayerNorm(16)) for layer in layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with Wrong():
    F.mse_loss(model(torch.randn(8, 16)), torch.zeros(8, 16)).backward()
    optimizer.step()
"""
