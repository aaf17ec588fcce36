"""Sets the random numbers back before every draw, so that what one function draws does not depend on what was drawn before it."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from probe.patches import Patches

_repeated = Patches()


def repeat_draws(torch: Any) -> None:
    """Replaces the functions of Python, NumPy and torch that draw random numbers: from now on each of their calls draws
    what a first call behind this one would draw, on the host and on CUDA and NPU devices.

    Two runs then agree although one of them draws more often than the other. Weights of one shape begin equal.
    Generators of the program's own keep their numbers, and so do recurrent layers, which draw below Python.
    """
    from probe.private.dispatcher import names_that_draw

    _repeated.undo()
    names = names_that_draw()
    wrap = functools.partial(_wrapped, _states(torch))
    _repeated.everywhere([(owner, name, wrap) for owner, name in _functions(torch, names)])
    for name in names:
        if not name.startswith("_") and callable(getattr(torch.Tensor, name, None)):
            _repeated.attribute(torch.Tensor, name, wrap)


#: Functions of `torch.nn.functional` that draw under another name than that of their operator.
_FUNCTIONAL = ("dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", "gumbel_softmax")


def _functions(torch: Any, names: list[str]) -> Iterator[tuple[Any, str]]:
    """Yields the functions that draw, and where they are found; `names` are torch's operators that do."""
    yield from ((random, name) for name in random.__all__ if _draws(getattr(random, name), random._inst))  # type: ignore[attr-defined]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        whole = numpy.random
        yield from ((whole, name) for name in whole.__all__ if _draws(getattr(whole, name), numpy.random.mtrand._rand))
    for owner in (torch, torch.nn.functional):
        for name in {*names, *_FUNCTIONAL}:
            if not name.startswith("_") and callable(getattr(owner, name, None)):
                yield owner, name


def _draws(function: Any, source: Any) -> bool:
    """Returns true for a function that is a method of the module's one generator, and neither seeds it nor has to do with its state."""
    name = getattr(function, "__name__", "")
    return getattr(function, "__self__", None) is source and "seed" not in name and "state" not in name


def _states(torch: Any) -> Callable[[], Callable[[], None]]:
    """Returns a function that sets every generator back to where it stands now."""
    held: list[Callable[[], None]] = [functools.partial(random.setstate, random.getstate())]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        held.append(functools.partial(numpy.random.set_state, numpy.random.get_state()))
    held.append(functools.partial(torch.default_generator.set_state, torch.default_generator.get_state()))
    for name in ("cuda", "npu"):
        device = getattr(torch, name, None)
        if device is not None and device.is_available():
            held.append(functools.partial(device.set_rng_state_all, device.get_rng_state_all()))

    def set_back() -> None:
        for one in held:
            one()

    return set_back


def _wrapped(set_back: Callable[[], None], original: Any) -> Any:
    @functools.wraps(original)
    def repeated(*args: Any, **kwargs: Any) -> Any:
        # A generator of the program's own has its own numbers.
        if kwargs.get("generator") is None:
            set_back()
        return original(*args, **kwargs)

    return repeated
