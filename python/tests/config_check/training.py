"""A small training, as text: the tests change one thing in it and look for what the pack says of that."""

SCRIPT = '''
import argparse
import os
import random

import numpy as np
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from probe.config_check import pack


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 8)
        self.proj = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(8, 4)
        self.register_buffer("gain", torch.ones(8), persistent=False)

    def forward(self, tokens, temperature=1.0):
        x = self.embed(tokens).mean(1)
        x = self.norm(torch.relu(self.proj(x)) * self.gain)
        return self.head(self.drop(x)) / temperature


class Samples(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(11)
        self.tokens = torch.randint(0, 32, (24, 6), generator=generator)
        self.labels = torch.randint(0, 4, (24,), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index], self.labels[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=8)
    args = parser.parse_args([])
    seed_everything(7)
    model = Net()
    # MODEL
    loader = torch.utils.data.DataLoader(
        Samples(), batch_size=4, shuffle=True, num_workers=0, generator=torch.Generator().manual_seed(5)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    accumulate = 1
    # PACK
    pack(model, os.environ["PACK"], steps=2)
    # LOOP
    record = []
    for index, (tokens, labels) in enumerate(loader):
        # BATCH
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            logits = model(tokens, temperature=1.0)
            loss = nn.functional.cross_entropy(logits, labels) / accumulate
        scaler.scale(loss).backward()
        record += [loss.item(), *[p.grad.double().sum().item() for p in model.parameters() if p.grad is not None]]
        if (index + 1) % accumulate == 0:
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
        if index == 3:
            break
    # END


if __name__ == "__main__":
    main()
'''
