"""Records calls of cells, and keeps track of which cell other calls run in."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mindspore import nn
from probe.mindspore import arrays, calls
from probe.patterns import path_of

if TYPE_CHECKING:
    from probe._core import Recorder
    from probe.mindspore.functions import Functions
    from probe.mindspore.gradients import Gradients


def _stem(path: str, cell: Any) -> str:
    """Returns a stem such as `Cell.layers.0.mlp.Mlp`, to which phase and number are added."""
    kind = type(cell).__name__
    return f"Cell.{path}.{kind}" if path else f"Cell.{kind}.{kind}"


class Cells:
    """Watches the calls of cells of one recording."""

    def __init__(
        self, core: Recorder, record: bool, functions: Functions, gradients: Gradients | None, parameter_gradients: Gradients | None
    ) -> None:
        self._core = core
        self._record = record
        self._functions = functions
        self._gradients = gradients
        self._parameter_gradients = parameter_gradients
        #: identity of a cell -> (reference, stem of its name, whether its calls are recorded); cells are compared by value.
        self._stems: dict[int, tuple[weakref.ref[Any], str, bool]] = {}
        self._roots: list[weakref.ref[Any]] = []
        self._local = threading.local()
        self._handle: calls.Handle | None = None
        #: Outermost calls so far, of cells with parameters.
        self.outermost = 0

    @property
    def attached(self) -> bool:
        """True if calls are being watched."""
        return self._handle is not None

    @property
    def paths(self) -> list[str]:
        """Paths of all known cells."""
        return [path_of(f"{stem}.forward.0") or "" for _, stem, _ in self._stems.values()]

    def attach(self) -> None:
        """Starts watching."""
        if self._handle is None:
            self._handle = calls.listen(around=self._around)
            self._watch_parameters(cell for reference, _, _ in list(self._stems.values()) if (cell := reference()) is not None)

    def detach(self) -> None:
        """Stops watching; calls under way are finished unseen."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def add(self, models: Any) -> None:
        """Registers models, so that their cells have the paths that the user knows."""
        for index, model in enumerate(models if isinstance(models, (list, tuple)) else [models]):
            self._name(model, f"{index}." if isinstance(models, (list, tuple)) else "")

    def _name(self, root: Any, prefix: str) -> None:
        if self._found(root) is None:
            self._roots.append(weakref.ref(root))
        parts = list(root.cells_and_names())
        added = []
        for path, cell in parts:
            if self._found(cell) is None:
                # The root's call is the whole run; comparable tools do not list it.
                recorded = self._record and (bool(path) or len(parts) == 1)
                self._stems[id(cell)] = (weakref.ref(cell), _stem(f"{prefix}{path}".rstrip("."), cell), recorded)
                added.append(cell)
        if self.attached:
            self._watch_parameters(added)

    def _watch_parameters(self, cells: Iterable[Any]) -> None:
        if self._parameter_gradients is not None:
            for cell in cells:
                self._parameter_gradients.watch_parameters(self._stems[id(cell)][1], _own_parameters(cell))

    def _found(self, cell: Any) -> tuple[str, bool] | None:
        found = self._stems.get(id(cell))
        # A cell that is gone may have left its identity to another.
        return (found[1], found[2]) if found is not None and found[0]() is cell else None

    def _known(self, cell: Any, depth: int) -> tuple[str, bool]:
        found = self._found(cell)
        if found is None and depth:
            # The model has grown since it was named.
            for reference in self._roots:
                root = reference()
                if root is not None and any(part is cell for _, part in root.cells_and_names()):
                    self._name(root, "")
            found = self._found(cell)
        if found is None:
            alone = not any(True for _ in cell.cells())
            self._name(cell, "" if not self._roots or alone else f"{type(cell).__name__}.")
            found = self._found(cell)
        assert found is not None, "it was named"
        return found

    def _around(self, original: Callable[..., Any], cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(cell, calls.OPTIMIZERS):
            # An optimizer is compiled, so its ops are not recorded.
            with self._functions.aside():
                return original(cell, *args, **kwargs)
        local = self._local
        depth = getattr(local, "depth", 0)
        call, edges, entered = None, None, False
        try:
            if not depth:
                self.outermost += next(iter(cell.get_parameters()), None) is not None
            stem, recorded = self._known(cell, depth)
            given = dict(arrays.of(_own_parameters(cell))) if recorded else {}
            call = self._core.enter_module(stem, recorded, *arrays.of((args, kwargs) if recorded else ((), {})), given)
            entered = call is not None
            if call is not None and recorded and self._gradients is not None:
                edges = self._gradients.before(args, kwargs, module=True)
        except Exception as error:
            self._core.fault(f"call of {type(cell).__name__}: {error}")
        local.depth = depth + 1
        try:
            with self._functions.inside(cell):
                result = original(cell, *args, **kwargs)
        except BaseException as error:
            if entered:
                self._core.leave_module()
            if call is not None:
                self._core.raised(call, error)
            raise
        finally:
            local.depth = depth
        if entered:
            self._core.leave_module()
        try:
            if call is not None:
                self._core.after(call, arrays.of(result) if recorded else None)
                if edges is not None and self._gradients is not None:
                    self._gradients.after(call, edges, result)
        except Exception as error:
            self._core.fault(f"call of {type(cell).__name__}: {error}")
        return result


def _own_parameters(cell: nn.Cell) -> dict[str, Any]:
    """Returns the parameters of a cell that are not those of a cell inside it."""
    return {name: parameter for name, parameter in cell._params.items() if parameter is not None}
