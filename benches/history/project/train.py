"""A few steps of training; the loss and the gradient's norm of each go to losses.jsonl."""

import json
import os
import sys

import torch

import machine
from data import batches
from model import Model

STEPS = 4


def main():
    machine.prepare()
    torch.manual_seed(7)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    with open(os.environ.get("LOSSES", "losses.jsonl"), "w") as log:
        for step, tokens in enumerate(batches(STEPS)):
            optimizer.zero_grad()
            loss = model(tokens)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            log.write(json.dumps({"step": step, "loss": loss.item(), "grad_norm": norm.item()}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
