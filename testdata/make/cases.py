"""The cases: how the two runs of a pair differ, and the answer that is right.

baseline, candidate, both: options of train.py. baseline_device, candidate_device: see device.py. ops empty: the pair agrees.
"""
CASES = []
F64 = {"compute": "float64"}


def case(name, model, task, level, what, ops=(), causes=(), fault=None, **more):
    if fault:
        device = more.setdefault("candidate_device", {})
        more["candidate_device"] = {**device, "fault": fault if isinstance(fault, list) else [fault]}
    CASES.append({"name": name, "model": model, "task": task, "level": level, "what": what, "ops": list(ops), "causes": list(causes), **more})


case(
    "main", "gpt", "tensor", "mix", "the second GELU uses a tanh form with 0.8 for sqrt(2/pi); everything else differs by rounding only",
    ["Functional.gelu.1.forward"], ["numerics"], {"op": "gelu", "call": 1, "what": "wrong_gelu"}, candidate_device=F64,
)  # fmt: skip
