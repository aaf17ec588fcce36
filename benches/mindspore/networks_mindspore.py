"""The six networks in MindSpore. Names of cells are those of the modules in `networks_torch.py`."""

from __future__ import annotations

from mindspore import mint, nn, ops
from runs import changed


class Cnn(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm, self.conv2, self.head = nn.Conv2d(3, 6, 3, pad_mode="pad", padding=1, has_bias=True), nn.BatchNorm2d(6, eps=changed.get("eps", 1e-5), momentum=changed.get("momentum", 0.9)), nn.Conv2d(6, 8, 3, pad_mode="pad", padding=1, has_bias=True), nn.Dense(32, 5)

    def construct(self, x):
        x = ops.max_pool2d(ops.relu(self.norm(self.conv1(x))), 2, 2)
        x = ops.avg_pool2d(ops.gelu(self.conv2(x), **changed.get("gelu", {})), 2, 2)
        return self.head(x.reshape((x.shape[0], -1)))


class Layer(nn.Cell):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((width,), epsilon=changed.get("eps", 1e-5)), nn.LayerNorm((width,), epsilon=changed.get("eps", 1e-5))
        self.query, self.key, self.value, self.out = (nn.Dense(width, width) for _ in range(4))
        self.up, self.down = nn.Dense(width, 2 * width), nn.Dense(2 * width, width)

    def construct(self, x):
        y = self.norm1(x)
        scores = mint.matmul(self.query(y), mint.transpose(self.key(y), -1, -2)) * 0.25
        x = x + self.out(mint.matmul(mint.nn.functional.softmax(scores, dim=changed.get("axis", -1)), self.value(y)))
        return x + self.down(ops.gelu(self.up(self.norm2(x)), **changed.get("gelu", {})))


class Transformer(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layers = nn.Embedding(24, 16), nn.CellList([Layer(16) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm((16,), epsilon=changed.get("eps", 1e-5)), nn.Dense(16, 24)

    def construct(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))[:, -1]


class Recurrent(nn.Cell):
    """An LSTM written out, as the kernels of the two frameworks record different parts of theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.given, self.kept, self.head = nn.Embedding(24, 12), nn.Dense(12, 48), nn.Dense(12, 48), nn.Dense(12, 24)

    def construct(self, x):
        x = self.embed(x)
        hidden = cell = x[:, 0] * 0.0
        for at in range(4):
            gates = self.given(x[:, at]) + self.kept(hidden)
            forget, take, new, show = gates[:, :12], gates[:, 12:24], gates[:, 24:36], gates[:, 36:]
            cell = mint.sigmoid(forget) * cell + mint.sigmoid(take) * mint.tanh(new)
            hidden = mint.sigmoid(show) * mint.tanh(cell)
        return self.head(hidden)


class Experts(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.inlet, self.gate = nn.Dense(10, 16), nn.Dense(16, 3)
        self.experts, self.norm, self.head = nn.CellList([nn.Dense(16, 16) for _ in range(3)]), nn.LayerNorm((16,), epsilon=changed.get("eps", 1e-5)), nn.Dense(16, 5)

    def construct(self, x):
        x = mint.tanh(self.inlet(x))
        weights = mint.nn.functional.softmax(self.gate(x), dim=changed.get("axis", -1))
        mixed = x
        for number, expert in enumerate(self.experts):
            mixed = mixed + ops.silu(expert(x)) * weights[:, number : number + 1]
        return self.head(self.norm(mixed))


class Unet(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.down, self.middle = nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1, has_bias=True), nn.Conv2d(4, 8, 3, pad_mode="pad", padding=1, has_bias=True), nn.Conv2d(8, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.up, self.leave, self.head = nn.Conv2dTranspose(8, 4, 2, stride=2, pad_mode="valid", has_bias=True), nn.Conv2d(8, 4, 3, pad_mode="pad", padding=1, has_bias=True), nn.Dense(4, 5)

    def construct(self, x):
        first = ops.relu(self.enter(x))
        low = ops.silu(self.middle(ops.relu(self.down(ops.max_pool2d(first, 2, 2)))))
        joined = ops.cat([self.up(low), first], axis=1)
        return self.head(ops.mean(ops.relu(self.leave(joined)), axis=(2, 3)))


class Gan(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.make1, self.make2 = nn.Dense(10, 16), nn.Dense(16, 10)
        self.judge1, self.judge2, self.head = nn.Dense(10, 16), nn.Dense(16, 16), nn.Dense(16, 5)

    def construct(self, x):
        made = mint.tanh(self.make2(ops.relu(self.make1(x))))
        real, false = ops.leaky_relu(self.judge1(x), changed.get("slope", 0.2)), ops.leaky_relu(self.judge1(made), changed.get("slope", 0.2))
        return self.head(mint.sigmoid(self.judge2(real)) - mint.sigmoid(self.judge2(false)))
