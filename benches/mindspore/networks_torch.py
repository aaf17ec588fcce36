"""The six networks in PyTorch. Names of modules and parameters are those of `networks_mindspore.py`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from runs import changed
from torch import nn


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm, self.conv2, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6, eps=changed.get("eps", 1e-5), momentum=changed.get("momentum", 0.1)), nn.Conv2d(6, 8, 3, padding=1), nn.Linear(32, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2, 2)
        x = F.avg_pool2d(F.gelu(self.conv2(x), **changed.get("gelu", {})), 2, 2)
        return self.head(x.reshape(x.shape[0], -1))


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=changed.get("eps", 1e-5)), nn.LayerNorm(width, eps=changed.get("eps", 1e-5))
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        y = self.norm1(x)
        scores = torch.matmul(self.query(y), torch.transpose(self.key(y), -1, -2)) * 0.25
        x = x + self.out(torch.matmul(F.softmax(scores, dim=changed.get("axis", -1)), self.value(y)))
        return x + self.down(F.gelu(self.up(self.norm2(x)), **changed.get("gelu", {})))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layers = nn.Embedding(24, 16), nn.ModuleList([Layer(16) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(16, eps=changed.get("eps", 1e-5)), nn.Linear(16, 24)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))[:, -1]


class Recurrent(nn.Module):
    """An LSTM written out, as the kernels of the two frameworks record different parts of theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.given, self.kept, self.head = nn.Embedding(24, 12), nn.Linear(12, 48), nn.Linear(12, 48), nn.Linear(12, 24)

    def forward(self, x):
        x = self.embed(x)
        hidden = cell = x[:, 0] * 0.0
        for at in range(4):
            gates = self.given(x[:, at]) + self.kept(hidden)
            forget, take, new, show = gates[:, :12], gates[:, 12:24], gates[:, 24:36], gates[:, 36:]
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(take) * torch.tanh(new)
            hidden = torch.sigmoid(show) * torch.tanh(cell)
        return self.head(hidden)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inlet, self.gate = nn.Linear(10, 16), nn.Linear(16, 3)
        self.experts, self.norm, self.head = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)]), nn.LayerNorm(16, eps=changed.get("eps", 1e-5)), nn.Linear(16, 5)

    def forward(self, x):
        x = torch.tanh(self.inlet(x))
        weights = F.softmax(self.gate(x), dim=changed.get("axis", -1))
        mixed = x
        for number, expert in enumerate(self.experts):
            mixed = mixed + F.silu(expert(x)) * weights[:, number : number + 1]
        return self.head(self.norm(mixed))


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.down, self.middle = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.leave, self.head = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, x):
        first = F.relu(self.enter(x))
        low = F.silu(self.middle(F.relu(self.down(F.max_pool2d(first, 2, 2)))))
        joined = torch.cat([self.up(low), first], dim=1)
        return self.head(torch.mean(F.relu(self.leave(joined)), dim=(2, 3)))


class Gan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.make1, self.make2 = nn.Linear(10, 16), nn.Linear(16, 10)
        self.judge1, self.judge2, self.head = nn.Linear(10, 16), nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, x):
        made = torch.tanh(self.make2(F.relu(self.make1(x))))
        real, false = F.leaky_relu(self.judge1(x), changed.get("slope", 0.2)), F.leaky_relu(self.judge1(made), changed.get("slope", 0.2))
        return self.head(torch.sigmoid(self.judge2(real)) - torch.sigmoid(self.judge2(false)))
