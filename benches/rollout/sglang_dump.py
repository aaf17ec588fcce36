"""Records an engine with SGLang's own dumper and a trainer with probe: sglang_dump.py SGLANG FOLDER [FAULT].

SGLANG is an unpacked wheel of sglang (0.5.23 was used). Its dumper runs without a GPU; what it imports of the server is stubbed, and the model that it hooks is the
small engine of this folder. FAULT is one of activations.py.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import probe
import torch
from activations import forced, plant
from dumper import ForwardBatch, dumper_of
from engine import Engine, Request, Sampler
from models import Batch, Config, Language, engine_of
from torch import Tensor
from trainer import scores


class Served(torch.nn.Module):
    """The engine's model as a server calls it. The head's table is padded to a multiple of 64, as servers do."""

    def __init__(self, inner: Language) -> None:
        super().__init__()
        self.model, self.lm_head, self.cap = inner.model, inner.lm_head, inner.config.cap
        words, width = self.lm_head.weight.shape
        padded = torch.nn.Linear(width, -(-words // 64) * 64, bias=False)
        padded.weight.data = torch.cat([self.lm_head.weight.data, torch.zeros(padded.out_features - words, width)]).to(self.lm_head.weight.dtype)
        self.lm_head, self.words = padded, words

    def forward(self, input_ids: Tensor, positions: Tensor, forward_batch: ForwardBatch) -> Tensor:
        return self.lm_head(self.model(input_ids, forward_batch.batch)).float()


def main(wheel: Path, folder: Path, fault: str) -> None:
    torch.manual_seed(3)
    chance = random.Random(3)
    config = Config(layers=1, width=32, heads=2, groups=1, inner=48)
    trainer = Language(config).eval()
    engine = engine_of(trainer, torch.float32)
    requests = [Request([chance.randrange(4, 260) for _ in range(length)], 3) for length in (7, 5)]
    Engine(engine_of(trainer, torch.float32), 4096).generate(requests, Sampler(), 1)
    longest = max(len(r.prompt) + len(r.output) for r in requests)
    with probe.capture(str(folder / "trainer"), model=trainer, steps=[0], level="module", task="tensor", stacks=False, overwrite=True):
        scores(trainer, requests, left=[longest - len(r.prompt) - len(r.output) for r in requests])
    if fault:
        plant(engine, fault, 0)
    again = [Request(r.prompt, r.most) for r in requests]
    os.environ |= {"DUMPER_ENABLE": "1", "DUMPER_DIR": str(folder), "DUMPER_EXP_NAME": fault or "sound", "DUMPER_NON_INTRUSIVE_MODE": "all", "DUMPER_ENABLE_OUTPUT_CONSOLE": "0"}
    dumper = dumper_of(wheel).dumper
    served = Served(engine)
    dumper.register_non_intrusive_dumper(served)

    class Model:
        """Calls the served model and ends a step of the dumper behind each pass."""

        config = engine.config
        model = engine.model

        @staticmethod
        def parameters() -> object:
            return engine.parameters()

        def __call__(self, ids: Tensor, batch: Batch) -> Tensor:
            # The place of its first token in the cache tells a request.
            pools, counts = batch.context[:, 0].unique_consecutive(return_counts=True)
            lengths = batch.positions[counts.cumsum(0) - 1] + 1
            out = served(ids, batch.positions, ForwardBatch(ids, lengths, batch.positions, pools, [f"r{pool}" for pool in pools.tolist()], batch))
            dumper.step()
            return out[:, : served.words]

    forced(Engine(Model(), 4096), again, requests)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
