"""Forty commits of a project, as they are pushed: what each changes, and what a gate has to say of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Edit:
    """One text that takes the place of another in a file."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Commit:
    """A push, and the answer that is right."""

    #: Short, as in a log.
    name: str
    #: `no-op`, `forward`, `backward`, `optimizer`, `replacement`, `dtype`, `environment`, `noise`.
    kind: str
    edits: tuple[Edit, ...] = ()
    #: `pass`, `regression`, `drift`, `flaky`; `unverified` where the commit takes away values that the baseline has.
    expected: str = "pass"
    #: Accepted names of the op at fault; empty where none is at fault.
    ops: tuple[str, ...] = ()
    #: Size of the change, relative to what is changed.
    size: float | None = None
    #: Environment variables of the machine from here on. None: as before.
    machine: dict[str, str] | None = None
    #: True if the machine's Python is another one from here on (`--other-python`).
    other_python: bool = False
    #: True if `pass` is right as well: the numbers may move by less than the bounds allow.
    may_pass: bool = False


def edit(file: str, old: str, new: str) -> Edit:
    return Edit(file, old, new)


#: The machine that the baseline was made on.
ONE = {"OMP_NUM_THREADS": "1"}

BLOCK = "        return self.down(y)\n"
GELU = '        y = F.gelu(y, approximate="tanh")\n'
LOSS = "        return F.cross_entropy(logits, tokens[:, 1:].reshape(-1))\n"
UP = "        y = self.up(x)\n"
STEP = "            optimizer.step()\n"
BACKWARD = "            loss.backward()\n"
ADAMW = "torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)"
#: The optimizer, and what it calls for one parameter.
UPDATE = ("AdamW", "addcdiv", "addcmul", "lerp", "mul_", "add_")
#: Functions that clip gradients.
CLIP = ("clip", "clamp", "mul", "div")
CLASS = "\n\nclass FeedForward(nn.Module):\n"

SCALED_GRADIENT = """

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * {factor}
"""


def scaled_gradient(factor: str) -> tuple[Edit, ...]:
    return (
        edit("model.py", CLASS, SCALED_GRADIENT.format(factor=factor) + CLASS),
        edit("model.py", BLOCK, "        return Scaled.apply(self.down(y))\n"),
    )


def adamw(old: str, new: str) -> tuple[Edit, ...]:
    return (edit("train.py", ADAMW, ADAMW.replace(old, new)),)


COMMITS: tuple[Commit, ...] = (
    Commit("rename a variable", "no-op", (edit("model.py", UP + GELU + BLOCK, UP + GELU.replace("y = F", "z = F") + BLOCK.replace("(y)", "(z)")),)),
    Commit("back to one name", "no-op", (edit("model.py", GELU.replace("y = F", "z = F") + BLOCK.replace("(y)", "(z)"), GELU + BLOCK),)),
    Commit("two threads", "no-op", machine={"OMP_NUM_THREADS": "2"}),
    Commit("scale of the block off by 1e-5, on two threads", "forward", (edit("model.py", BLOCK, "        return self.down(y) * (1 + 1e-5)\n"),), "regression", ("__mul__",), 1e-5),
    Commit("scale of the block off by 1e-5", "forward", (edit("model.py", BLOCK, "        return self.down(y) * (1 + 1e-5)\n"),), "regression", ("__mul__",), 1e-5, machine=ONE),
    Commit("scale of the block off by 1e-4", "forward", (edit("model.py", BLOCK, "        return self.down(y) * (1 + 1e-4)\n"),), "regression", ("__mul__",), 1e-4),
    Commit("load batches lazily", "no-op", (
        edit("data.py", "    drawn = []\n", ""),
        edit("data.py", "        drawn.append(tokens.reshape(BATCH, CONTEXT))\n    return drawn\n", "        yield tokens.reshape(BATCH, CONTEXT)\n"),
    )),
    Commit("exact GELU in place of tanh", "replacement", (edit("model.py", GELU, "        y = F.gelu(y)\n"),), "regression", ("gelu",), 1e-3),
    Commit("label smoothing", "forward", (edit("model.py", LOSS, LOSS.replace("reshape(-1))", "reshape(-1), label_smoothing=1e-2)")),), "regression", ("cross_entropy",), 1e-2),
    Commit("gradients of the block off by 1e-5", "backward", scaled_gradient("(1 + 1e-5)"), "regression", ("Scaled", "FeedForward", "__mul__"), 1e-5),
    Commit("gradients of the block off by 1e-3", "backward", scaled_gradient("(1 + 1e-3)"), "regression", ("Scaled", "FeedForward", "__mul__"), 1e-3),
    Commit("gradients of the block off by 1e-1", "backward", scaled_gradient("1.1"), "regression", ("Scaled", "FeedForward", "__mul__"), 1e-1),
    Commit("learning rate off by 1e-5", "optimizer", adamw("lr=1e-3", "lr=1e-3 * (1 + 1e-5)"), "regression", UPDATE, 1e-5),
    Commit("learning rate off by 1e-2", "optimizer", adamw("lr=1e-3", "lr=1.01e-3"), "regression", UPDATE, 1e-2),
    Commit("one loop for all parameters", "no-op", adamw("weight_decay=0.1", "weight_decay=0.1, foreach=False")),
    Commit("several parameters at once", "no-op", (edit("train.py", "weight_decay=0.1, foreach=False", "weight_decay=0.1"),)),
    Commit("epsilon of Adam 1e-6", "optimizer", adamw("eps=1e-8", "eps=1e-6"), "regression", UPDATE, 1e-3),
    Commit("another decay of the second moment", "optimizer", adamw("(0.9, 0.95)", "(0.9, 0.951)"), "regression", UPDATE, 1e-3),
    Commit("no weight decay", "optimizer", adamw("weight_decay=0.1", "weight_decay=0.0"), "regression", UPDATE, 1e-3),
    Commit("feed-forward in bfloat16", "dtype", (
        edit("model.py", UP, "        with torch.autocast('cpu', torch.bfloat16):\n            y = self.up(x)\n        y = y.float()\n"),
    ), "regression", ("linear", "up", "to", "float"), 4e-3),
    Commit("log how many tokens were seen", "no-op", (edit("train.py", 'norm.item()}) + "\\n")', 'norm.item(), "tokens": (step + 1) * tokens.numel()}) + "\\n")'),)),
    Commit("residual in place", "no-op", (edit("model.py", LOSS, "        flat = tokens[:, 1:].reshape(-1)\n        return F.cross_entropy(logits, flat)\n"),)),
    Commit("deterministic algorithms", "environment", machine={"OMP_NUM_THREADS": "1", "MACHINE": "deterministic=on"}),
    Commit("loss from log_softmax and nll_loss", "no-op", (
        edit("model.py", "        return F.cross_entropy(logits, flat)\n", "        return F.nll_loss(F.log_softmax(logits, -1), flat)\n"),
    ), machine=ONE),
    Commit("epsilon of the last norm", "forward", (edit("model.py", "        self.loss = Loss()\n", "        self.gpt.transformer.ln_f.eps = 1e-3\n        self.loss = Loss()\n"),), "regression", ("layer_norm", "ln_f"), 1e-3),
    Commit("attention not scaled", "forward", (edit("model.py", "            use_cache=False,\n", "            use_cache=False,\n            scale_attn_weights=False,\n"),), "regression", ("attn", "matmul", "softmax", "full", "__truediv__", "where"), 1e-1),
    Commit("positions off by one", "forward", (edit("model.py", "self.gpt(tokens).logits", "self.gpt(tokens, position_ids=(torch.arange(CONTEXT) + 1).remainder(CONTEXT)[None]).logits"),), "regression", ("wpe", "embedding", "arange"), 1e-1),
    Commit("clip gradients at 0.9", "optimizer", (edit("train.py", "model.parameters(), 1.0)", "model.parameters(), 0.9)"),), "regression", CLIP, 1e-1),
    Commit("gradient of the residual cut", "backward", (edit("model.py", UP, "        y = self.up(x.detach())\n"),), "unverified", ("ln_2", "FeedForward", "detach", "linear", "up"), 1e-1),
    Commit("relu in place of GELU", "replacement", (edit("model.py", GELU, "        y = F.relu(y)\n"),), "regression", ("relu", "gelu"), 1e-1),
    Commit("norm by hand", "replacement", (
        edit("model.py", "        self.loss = Loss()\n", "        self.gpt.transformer.ln_f = Norm(WIDTH)\n        self.loss = Loss()\n"),
        edit("model.py", CLASS, "\n\nclass Norm(nn.LayerNorm):\n    def forward(self, x):\n        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)\n        return x * self.weight + self.bias\n" + CLASS),
    ), "unverified", ("ln_f", "rsqrt", "mean", "pow", "__mul__", "layer_norm"), 1e-2),
    Commit("reload the weights before training", "no-op", (edit("train.py", "    optimizer = ", "    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})\n    optimizer = "),)),
    Commit("evaluate after each step", "no-op", (edit("train.py", STEP, STEP + "            with torch.no_grad():\n                model(tokens)\n"),)),
    Commit("logits in half precision", "dtype", (edit("model.py", "        return self.loss(logits, tokens)\n", "        return self.loss(logits.half().float(), tokens)\n"),), "regression", ("half", "float", "loss", "Loss", "nll_loss", "log_softmax"), 1e-4),
    Commit("batches in the order in which workers finish", "noise", (
        edit("train.py", "enumerate(batches(STEPS))", "enumerate(shuffled(list(batches(STEPS))))"),
        edit("train.py", "\n\ndef main():\n", "\n\ndef shuffled(items):\n    if random.SystemRandom().random() < 0.5:\n        items[1], items[2] = items[2], items[1]\n    return items\n\n\ndef main():\n"),
        edit("train.py", "import os\nimport sys\n", "import os\nimport random\nimport sys\n"),
    ), "flaky", (), 1.0),
    Commit("sums in the order in which workers finish", "noise", (
        edit("model.py", "        logits = logits[:, :-1].reshape(-1, VOCABULARY)\n", "        logits = in_any_order(logits[:, :-1].reshape(-1, VOCABULARY))\n"),
        edit("model.py", CLASS, "\n\ndef in_any_order(x):\n    parts = (x * 0.3, x * 0.5, x * 0.2)\n    order = random.SystemRandom().sample(parts, 3)\n    return order[0] + order[1] + order[2]\n" + CLASS),
        edit("model.py", "import torch\nfrom torch import nn\n", "import random\n\nimport torch\nfrom torch import nn\n"),
    )),
    # Rounds otherwise, but by less than the bounds that runs on one and two threads gave.
    Commit("no oneDNN", "environment", machine={"OMP_NUM_THREADS": "1", "MACHINE": "deterministic=on mkldnn=off"}),
    Commit("older instructions", "environment", expected="drift", machine={"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "MACHINE": "mkldnn=off"}),
    Commit("scale of the block off by 1e-3, on the new machine", "forward", (edit("model.py", BLOCK, "        return self.down(y) * (1 + 1e-3)\n"),), "regression", ("__mul__",), 1e-3),
    Commit("another torch", "environment", expected="drift", other_python=True, may_pass=True),
)
