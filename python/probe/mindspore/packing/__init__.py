"""Packs of programs of MindSpore: what `probe.config_check.pack(net, "npu.zip", fmk="mindspore")` collects.

Parts and keys are those of packs of PyTorch, so that the two can be compared; names of parameters stay MindSpore's.
"""
