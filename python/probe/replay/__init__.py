"""Runs recorded calls again, from the data of a dump, and holds what was recorded against float64.

```text
recorded   a dump's calls: arguments, results and arriving gradients as they were
functions  the function behind an op's name, from a closed list
modules    modules of torch, rebuilt from their recorded parameters
evaluate   a call in float64, or as it was, on any device
errors     how far a result is off, in units of what the rounding of its inputs would do
fault      which results are further off than they may be
standards  the field's standards for one op
```

Needs torch. A dump names functions and holds data; nothing of it is executed, and `functions` refuses whatever is no function of tensors.
"""
