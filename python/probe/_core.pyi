"""The part of the package that is written in Rust."""

from typing import Any

def main(arguments: list[str]) -> int:
    """Run the command line; the first argument is the program's name. Returns the exit code."""

def check_folder(output: str) -> None:
    """Raises OSError if a run must not record into the folder: it holds a dump of another one, or something else."""

def build_id() -> str:
    """The program, as plans know it: shards of another one are refused."""

def plan(
    baseline: str, candidate: str, run: str, options: str, seen: list[tuple[str, str]]
) -> tuple[str, int, int, int]:
    """Writes the plan of a comparison into the folder `run`; `options` is a JSON object. What `seen` names is listed at the place beside
    its name. Returns its path, groups, parts and bytes."""

def shard_ranks(plan: str, count: int) -> list[list[int]]:
    """Ranks of each of `count` shards of a plan."""

def compare_shard(plan: str, index: int, count: int, threads: int) -> tuple[int, bool, str | None]:
    """Compares a shard. Returns its number of parts, whether it was done before, and its first op at fault."""

def merge(run: str) -> tuple[str, list[int]]:
    """Folds the shards and writes the reports. Returns `report.json` and the shards that are missing."""

class Dump:
    """An opened dump, of any format that `probe` reads."""

    def __init__(self, path: str) -> None:
        """Raises ValueError if nothing at `path` can be read as a dump."""
    @property
    def format(self) -> str:
        """Name of the format."""
    @property
    def parts(self) -> list[tuple[int, int]]:
        """Step and rank of each part, in order."""
    @property
    def faults(self) -> list[str]:
        """What could not be read at all, a line each."""
    @property
    def environment(self) -> list[tuple[str, str]]:
        """Facts about the set-up of the run, as far as the format has them."""
    def read(self, index: int) -> Part:
        """Reads a part. Raises ValueError if nothing of it can be used."""

class Part:
    """The ops of one rank in one step."""

    @property
    def ops(self) -> list[str]:
        """Names of the ops in execution order."""
    @property
    def level(self) -> str:
        """Level as the capture tool names it."""
    @property
    def faults(self) -> list[str]:
        """What of this part could not be read, a line each."""
    def slots(self, op: int) -> list[dict[str, Any]]:
        """Slots of an op: `path`, `side` and `kind`; of a tensor `dtype`, `shape`, `strides`, `device`, `requires_grad`, `placement`,
        `key` of its data, `identity` and `range`; of other values `value`, and `type` where that is only a printed form."""
    def facts(self, op: int) -> tuple[str | None, bool, bool]:
        """The module call that an op ran in, whether it ended in an exception, and whether it sums products."""
    def stack(self, op: int) -> list[str]:
        """Call stack of an op, or of its forward call; innermost frame first."""
    def tensor(self, key: str) -> tuple[str, list[int], bytearray]:
        """Dtype, shape and row-major bytes of a tensor. Raises KeyError with the reason if it cannot be read."""

class Digester:
    """Digests tensors in host memory, for packs of config-check: those of torch, or of a module that has torch's classes and
    element types under their names (`probe.mindspore.arrays`)."""

    def __init__(self, *, sketch: bool = True, unordered: bool = True, casts: bool = True, arrays: Any = None) -> None: ...
    def tensors(self, tensors: list[Any]) -> list[dict[str, Any] | str]:
        """A dict for each tensor, with the keys of `weights.json`; for one that cannot be read a text that says why."""
    def samples(self, tensor: Any) -> list[str] | None:
        """Hash of each slice along the first dimension; nothing for a scalar or more than 65,536 slices."""
    def stream(self, dtype: str) -> DigestStream:
        """A digest to which pieces of a tensor of element type `dtype` are pushed."""

class DigestStream:
    """A tensor that arrives in pieces, from a device."""

    def push(self, tensor: Any) -> None:
        """Adds the elements of `tensor`, in host memory. Every piece but the last has a multiple of 262,144 elements."""
    def finish(self) -> dict[str, Any]:
        """The digest, once."""

def write_tokens(
    path: str,
    step: int,
    samples: list[tuple[str, int, int | None, int | None]],
    positions: bytes,
    ids: bytes,
    rollout: bytes,
    trainer: bytes,
    mask: bytes,
    rollout_experts: tuple[int, int, bytes, bytes] | None = None,
    trainer_experts: tuple[int, int, bytes, bytes] | None = None,
) -> None:
    """Writes a table of tokens. Of each sample: name, number of tokens, padding, version of the weights. Columns hold a value a token: 32-bit
    positions and ids, 32-bit floats, a byte a mask; a column that is empty was not recorded. Experts are layers, experts of each,
    16-bit experts of all tokens, and 32-bit margins by layer or nothing. Raises ValueError for columns of other lengths
    and OSError if the file cannot be written."""

def hash_bytes(data: bytes) -> str:
    """xxh3-128 of `data` as 32 hexadecimal digits."""

def mersenne_draws(
    start: bytes, start_position: int, end: bytes, end_position: int, limit: int
) -> int | None:
    """32-bit words drawn between a state and a later one; nothing if the later one is not reached within `limit` words."""

class Kernel:
    """Measures tensors of CUDA devices."""

    def __init__(self, driver: str, image: bytes, sketch: bool, allocate: Any, stream: Any, capturing: Any) -> None:
        """`driver` names the driver's library, which is loaded; `image` is the compiled module. `allocate(index, bytes)` gives a tensor of
        zeros on a device and its address, `stream(index)` the address of a device's current stream, and `capturing()` whether that is being
        recorded into a graph. Raises RuntimeError where the library is not the driver's."""
    def rows(self, tensors: list[Any], copied: bool) -> list[Any]:
        """A row for each tensor, as `probe.recorder.device_rows` has it, or its elements if they are `copied`; None of those that the kernel
        does not measure. Waits for the device."""
    def start(self, tensor: Any) -> bool:
        """Starts to measure a tensor, without waiting; False where the kernel does not measure it."""

class Call:
    """The record of a call that is not complete yet."""

    @property
    def name(self) -> str:
        """Full name of the op."""
    @property
    def scope(self) -> str | None:
        """The module call it runs in."""
    @property
    def stack(self) -> int | None:
        """Number of its call stack."""
    @property
    def recomputed(self) -> bool:
        """Whether activation checkpointing runs it again."""
    def remark(self, note: str) -> None:
        """Adds a remark to the record."""

class Recorder:
    """Records the ops of one process. What goes wrong in its methods, but for the constructor, is counted and not raised."""

    def __init__(self, output: str, rank: int, manifest: str, options: str, hooks: dict[str, Any]) -> None:
        """Creates the dump folder. Raises OSError where that is not possible, ValueError for settings that are none."""
    def quick_ways(self) -> tuple[bool, bool]:
        """Which quick ways past torch's attributes are taken: to tensors in host memory, and to the interpreter's frames."""
    def begin_step(self, step: int) -> None:
        """Begins a step; numbers start at 0."""
    def finish_step(self) -> None:
        """Ends the step."""
    def forget_steps(self, first: int) -> None:
        """Takes back what was recorded of step `first` and of those that began after it: they were counted wrongly."""
    def tally(self) -> tuple[int, tuple[int, int, str | None], float]:
        """Ops recorded so far, tensors among their values that were not measured, and seconds that recording took."""
    def nonfinite(self) -> str | None:
        """The first op of the step that made a NaN or an infinity of inputs without one, which result, and how many."""
    def cut_step(self, op: str | None, error: str) -> None:
        """Ends the step that the program has ended inside of: what ended it, and in which call if that is known."""
    def last_raised(self) -> tuple[str, int, str, bool] | None:
        """The exception that ended a call of this step last: the call, the identity of the exception, its type and text, and
        whether any call has returned since."""
    def close(self, notes: list[str]) -> None:
        """Ends the dump; the notes go into its manifest."""
    def abandon(self, reason: str) -> None:
        """Stops recording for good and says why in the dump."""
    def failed(self) -> str | None:
        """Why recording ended early."""
    def faults(self) -> tuple[int, str | None]:
        """How many calls could not be recorded, and the first reason."""
    def fault(self, reason: str) -> None:
        """Counts a fault of the recorder's Python part."""
    def run_op(
        self, mode: Any, func: Any, types: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs a dispatcher op for the mode and records it. Raises what the op raises, and nothing else."""
    def run_api(
        self, mode: Any, func: Any, types: Any, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls a torch function for the mode, which does so itself unless the function is one of its `questions`. Raises what that raises."""
    def open_op(self, func: Any) -> Call | None:
        """Opens the record of a dispatcher op that a handler in Python runs, without its arguments."""
    def read_op(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Adds the arguments of such an op."""
    def close_op(self, call: Call, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Adds the result of such an op and files its record."""
    def before_api(
        self, name: str, operator: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call | None:
        """Opens the record of a torch function: its name when called, and when used as an operator."""
    def enter_module(
        self,
        stem: str,
        record: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        parameters: dict[str, Any],
    ) -> Call | None:
        """Opens the record of a module call; what follows runs in it, until `leave_module`."""
    def leave_module(self) -> None:
        """Ends the innermost module call or scope."""
    def enter_scope(self, name: str) -> None:
        """Names what follows, until `leave_module`, as done by `name`."""
    def number(self, key: str) -> int:
        """Number of this call of `key` in the step, from 0."""
    def after(self, call: Call, result: Any) -> None:
        """Adds what the call returned and files its record."""
    def raised(self, call: Call, error: BaseException | None = None) -> None:
        """Files the record of a call that ended in an exception."""
    def withdraw(self, call: Call) -> None:
        """Drops a call that computed nothing; its number is given to the next."""
    def open(
        self, name: str, scope: str | None = None, stack: int | None = None, recomputed: bool = False
    ) -> Call | None:
        """Opens a record without arguments: a gradient, or a value that the user saves."""
    def add(self, call: Call, side: str, values: list[tuple[str, Any]]) -> None:
        """Adds values to an open record, each under its path; `side` is input, output, parameter or gradient. Together they cost less."""
    def finish(self, call: Call) -> None:
        """Files a record that was opened with `open`."""
    def forget(self, value: Any) -> None:
        """Forgets what was measured of the memory of a tensor, or of the tensors in a list."""

class Edges:
    """Positions of a call's inputs in the autograd graph before it runs."""

class Gradients:
    """Watches the backward passes of recorded calls. What goes wrong in its methods, but for the constructor, is counted and not raised."""

    def __init__(self, core: Recorder, functions: dict[str, Any]) -> None:
        """`functions` are those of torch that are called: `is_grad_enabled`, `next_sequence`, `current_pass`, `at_end_of_pass`, `sum_of`
        and `without_functions`. Raises ValueError where one is missing."""
    def before(self, call: Call, args: Any, kwargs: dict[str, Any], module: bool = False) -> Edges | None:
        """Notes where the inputs of a call come from. None if nothing can flow back through it. A module may contain parameters, so
        gradients flow into it even if none leave it."""
    def after(self, call: Call, edges: Edges, result: Any) -> None:
        """Watches the gradients that flow into a call's outputs and out of its inputs."""
    def flush(self, cut: bool = False) -> None:
        """Files the gradients of calls that will not receive all of theirs; with `cut`, because the program has ended."""
    def parameters(self, stem: str, names: list[str]) -> list[ParameterHook]:
        """A hook for each of a module's own parameters, which runs when the gradient has been added."""

class ParameterHook:
    """Runs when a gradient has been added to a parameter. Copies of the parameter carry an inert one."""

    def __init__(self, name: str) -> None:
        """An inert one."""
    def __call__(self, parameter: Any) -> None:
        """Records the gradient of the parameter."""
