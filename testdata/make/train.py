"""A small training run, captured with msprobe's PrecisionDebugger: the user's script of every dump in this corpus.

usage: python train.py MODEL --dump DIR [--task statistics|md5|tensor] [--level L0|L1|mix] [--steps N]
                       [--set key=json ...]      what this run does otherwise: see the `o.get(...)` calls below
                       [--device JSON]           the arithmetic of the device it pretends to run on: see device.py
"""
import argparse
import contextlib
import json
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

o = {}  # options of this run, from --set; both sides of a pair differ in one of them at most


class Attention(nn.Module):
    def __init__(self, width, heads, layer):
        super().__init__()
        self.heads, self.layer = heads, layer
        self.scale = o.get("attn_div", {}).get(str(layer), math.sqrt(width // heads))
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        if o.get("fused_attention"):
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = torch.matmul(q, k.transpose(-2, -1)) / self.scale
            diagonal = 1 + o.get("mask_shift", {}).get(str(self.layer), 0)
            mask = torch.full((t, t), float("-inf"), device=x.device, dtype=x.dtype).triu(diagonal)
            scores = scores + mask
            a = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.proj(a.transpose(1, 2).reshape(b, t, d))


class MLP(nn.Module):
    def __init__(self, width, layer):
        super().__init__()
        self.layer, self.approximate = layer, o.get("gelu", {}).get(str(layer), "none")
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(o.get("dropout", {}).get(str(layer), 0.0))

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=o.get("autocast_mlp") == self.layer):
            h = self.fc1(x)
        h = F.gelu(h, approximate=self.approximate)
        if o.get("extra_relu") == self.layer:
            h = F.relu(h)
        h = self.fc2(h.to(x.dtype))
        if o.get("no_dropout") == self.layer:
            return h
        return self.drop(h)


class Block(nn.Module):
    def __init__(self, width, heads, layer):
        super().__init__()
        eps = o.get("ln_eps", {}).get(str(layer), 1e-5)
        self.ln1 = nn.LayerNorm(width, eps=eps)
        self.attn = Attention(width, heads, layer)
        self.ln2 = nn.LayerNorm(width)
        self.mlp = MLP(width, layer)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """Pre-LN decoder with learned positions and a real causal mask of -inf."""

    def __init__(self, vocab=61, width=32, heads=2, layers=2, seq=8, batch=2):
        super().__init__()
        self.vocab, self.seq, self.batch = vocab, seq, batch
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(seq, width)
        self.layers = nn.ModuleList([Block(width, heads, i) for i in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def data(self, g):
        ids = torch.randint(0, self.vocab, (self.batch, self.seq + 1), generator=g)
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.layers:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, out, target):
        return F.cross_entropy(out.view(-1, self.vocab), target.view(-1), label_smoothing=o.get("label_smoothing", 0.0))


class ConvNet(nn.Module):
    """Convolution, batch norm, pooling, and a 2-D linear head."""

    def __init__(self, width=8, size=8, batch=4, classes=10, stages=2):
        super().__init__()
        self.batch, self.size, self.classes = batch, size, classes
        channels = [3] + [width * 2**i for i in range(stages)]
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in zip(channels, channels[1:])])
        self.bns = nn.ModuleList(
            [
                nn.BatchNorm2d(
                    c,
                    eps=o.get("bn_eps", {}).get(str(i), 1e-5),
                    momentum=o.get("bn_momentum", {}).get(str(i), 0.1),
                )
                for i, c in enumerate(channels[1:])
            ]
        )
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(channels[-1] * (size >> stages) ** 2, classes)

    def data(self, g):
        return torch.randn(self.batch, 3, self.size, self.size, generator=g), torch.randint(0, self.classes, (self.batch,), generator=g)

    def forward(self, x):
        for i, (conv, bn) in enumerate(zip(self.convs, self.bns)):
            x = self.pool(F.relu(bn(conv(x))))
            if o.get("extra_relu") == i:
                x = F.relu(x)
        return self.fc(F.dropout(x.flatten(1), p=o.get("p", 0.1), training=False))

    def loss(self, out, target):
        return F.cross_entropy(out, target, label_smoothing=o.get("label_smoothing", 0.0))


class ResBlock(nn.Module):
    def __init__(self, a, b, emb):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, a), nn.Conv2d(a, b, 3, padding=1)
        self.emb = nn.Linear(emb, b)
        self.norm2, self.conv2 = nn.GroupNorm(4, b), nn.Conv2d(b, b, 3, padding=1)
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x))) + self.emb(F.silu(e))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    """One down and one up level of a diffusion network that predicts the noise of an image."""

    def __init__(self, width=8, size=8, batch=2):
        super().__init__()
        self.batch, self.size, self.width = batch, size, width
        self.time = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, 2 * width))
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down = ResBlock(width, width, 2 * width)
        self.pool = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.mid = ResBlock(2 * width, 2 * width, 2 * width)
        self.up = ResBlock(3 * width, width, 2 * width)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def data(self, g):
        image = torch.randn(self.batch, 3, self.size, self.size, generator=g)
        noise = torch.randn(image.shape, generator=g)
        t = torch.randint(1, 1000, (self.batch,), generator=g).float()
        return (image, noise, t), noise

    def forward(self, batch):
        image, noise, t = batch
        alpha = torch.cos(t / 1000 * math.pi / 2).view(-1, 1, 1, 1)
        x = alpha * image + torch.sqrt(1 - alpha**2) * noise
        freq = torch.exp(-math.log(1e4) * torch.arange(self.width // 2, dtype=t.dtype, device=t.device) / (self.width // 2))
        e = self.time(torch.cat([torch.sin(t[:, None] * freq), torch.cos(t[:, None] * freq)], dim=1))
        h0 = self.down(self.stem(x), e)
        h1 = self.mid(self.pool(h0), e)
        h1 = F.interpolate(h1, scale_factor=2, mode=o.get("interpolate", "nearest"))
        return self.out(F.silu(self.up(torch.cat([h0, h1], dim=1), e)))

    def loss(self, out, noise):
        return F.mse_loss(out, noise)


class Recommender(nn.Module):
    """Embedding bags, dot-product interaction, sigmoid and binary cross entropy."""

    def __init__(self, items=97, width=16, batch=4, bags=3, per_bag=5):
        super().__init__()
        self.items, self.batch, self.n, self.per = items, batch, bags, per_bag
        self.bags = nn.ModuleList([nn.EmbeddingBag(items, width, mode="mean") for _ in range(bags)])
        self.bottom = nn.Linear(7, width)
        pairs = (bags + 1) * bags // 2
        self.top1 = nn.Linear(width + pairs, 2 * width)
        self.top2 = nn.Linear(2 * width, 1)

    def data(self, g):
        dense = torch.randn(self.batch, 7, generator=g)
        ids = torch.randint(0, self.items, (self.n, self.batch, self.per), generator=g)
        return (dense, ids), torch.randint(0, 2, (self.batch, 1), generator=g).float()

    def forward(self, batch):
        dense, ids = batch
        d = F.relu(self.bottom(dense))
        z = torch.stack([d] + [bag(ids[i]) for i, bag in enumerate(self.bags)], dim=1)
        if o.get("normalize"):
            z = F.normalize(z, dim=-1)
        dots = torch.bmm(z, z.transpose(1, 2))
        i, j = torch.tril_indices(self.n + 1, self.n + 1, -1)
        h = torch.cat([d, dots[:, i, j]], dim=1)
        return torch.sigmoid(self.top2(F.relu(self.top1(h))))

    def loss(self, out, target):
        return F.binary_cross_entropy(out, target)


class Density(nn.Module):
    """A mixture-density head: exp, log, sqrt, softplus and logsumexp, where NaN and Inf are born."""

    def __init__(self, width=16, batch=4, parts=3):
        super().__init__()
        self.batch, self.parts = batch, parts
        self.fc1, self.fc2 = nn.Linear(5, width), nn.Linear(width, width)
        self.logit, self.mean, self.scale = nn.Linear(width, parts), nn.Linear(width, parts), nn.Linear(width, parts)

    def data(self, g):
        return torch.randn(self.batch, 5, generator=g), torch.randn(self.batch, 1, generator=g)

    def forward(self, x):
        h = torch.tanh(self.fc2(torch.tanh(self.fc1(x))))
        var = (h - h.mean(dim=1, keepdim=True)).pow(2).mean(dim=1, keepdim=True)
        h = (h - h.mean(dim=1, keepdim=True)) / torch.sqrt(var + o.get("eps", 1e-6))
        return torch.log_softmax(self.logit(h), dim=1), self.mean(h), F.softplus(self.scale(h))

    def loss(self, out, y):
        logw, mean, sigma = out
        logp = logw - torch.log(sigma) - 0.5 * ((y - mean) / sigma) ** 2
        return -torch.logsumexp(logp, dim=1).mean()


class Mixer(nn.Module):
    """MLP-mixer over patches, with a fused activation written as an autograd.Function."""

    def __init__(self, width=16, patches=8, batch=2, classes=10, layers=2):
        super().__init__()
        self.batch, self.patches, self.classes = batch, patches, classes
        self.embed = nn.Linear(12, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers)])
        self.token = nn.ModuleList([nn.Linear(patches, patches) for _ in range(layers)])
        self.channel = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.head = nn.Linear(width, classes)

    def data(self, g):
        return torch.randn(self.batch, self.patches, 12, generator=g), torch.randint(0, self.classes, (self.batch,), generator=g)

    def forward(self, x):
        x = self.embed(x)
        for i, (token, channel) in enumerate(zip(self.token, self.channel)):
            x = x + F.hardswish(token(self.norms[2 * i](x).transpose(1, 2))).transpose(1, 2)
            x = x + Swish.apply(channel(self.norms[2 * i + 1](x)))
        return self.head(x.mean(dim=1))

    def loss(self, out, target):
        return F.cross_entropy(out, target)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s))) * o.get("swish_backward", 1.0)


MODELS = {"gpt": GPT, "conv": ConvNet, "unet": UNet, "rec": Recommender, "density": Density, "mixer": Mixer}


def cast(value, dtype):
    if isinstance(value, tuple):
        return tuple(cast(v, dtype) for v in value)
    return value.to(dtype) if value.is_floating_point() else value


def change(model):
    """Makes a candidate start wrong, with other weights."""
    if "weight" in o:
        w = o["weight"]
        with torch.no_grad():
            model.get_parameter(w["name"]).view(-1)[: w.get("count")].mul_(w["factor"])


def debugger(a, rank):
    from msprobe.pytorch import PrecisionDebugger

    task, block = a.task, {}
    if task == "md5":
        task, block = "statistics", {"summary_mode": "md5"}
    config = {"task": task, "level": a.level, "dump_path": a.dump, "extra_info": o.get("extra_info", True), task: block}
    if o.get("risk_level"):
        config["risk_level"] = o["risk_level"]
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as f:
        json.dump(config, f)
    return PrecisionDebugger(config_path=f.name)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model", choices=MODELS)
    p.add_argument("--dump", required=True)
    p.add_argument("--task", default="statistics")
    p.add_argument("--level", default="L1")
    p.add_argument("--steps", type=int, default=1)
    p.add_argument("--set", nargs="*", default=[], metavar="key=json")
    p.add_argument("--device", type=json.loads, default={})
    a = p.parse_args()
    o.update({k: json.loads(v) for k, v in (s.split("=", 1) for s in a.set)})

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(o.get("threads", 1))
    torch.backends.mkldnn.set_flags(o.get("mkldnn", True))
    if "MASTER_ADDR" in os.environ:
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(o.get("seed", 0))
    model = MODELS[a.model](**o.get("shape", {}))
    change(model)
    dtype = getattr(torch, o.get("dtype", "float32"))
    model.to(dtype)
    net = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    if o.get("optimizer") == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=o.get("lr", 1e-3))
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=o.get("lr", 0.05))

    if a.device:
        from device import Device

        device = Device(a.device, rank)
    else:
        device = contextlib.nullcontext()
    probe = debugger(a, rank)
    for step in range(a.steps):
        batch = o.get("batch", {}).get(str(step), step)
        if o.get("batch_rank", rank) != rank:
            batch = step
        g = torch.Generator().manual_seed(1000 * (rank + 1) + batch)
        x, y = cast(model.data(g), dtype)
        if o.get("nudge") and step == o["nudge"].get("step", 0):
            x.view(-1)[o["nudge"]["index"]] += o["nudge"]["by"]
        optimizer.zero_grad(set_to_none=True)
        if a.device:
            device.begin(step)
        probe.start(model=net)
        with device:
            loss = model.loss(net(x), y)
            loss.backward()
        probe.stop()
        probe.step()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f}")
    if "MASTER_ADDR" in os.environ:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
