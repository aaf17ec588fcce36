"""Records an unmodified program: the part of `probe capture -- python train.py` that runs inside the program.

The command sets `PROBE_CAPTURE` (a JSON object: see `Order`) and puts a `sitecustomize` on the path, which calls
`install` once the program has imported torch. Recording begins with the first call of an `nn.Module`;
`probe.iterations` decides where iterations end. When the interpreter ends, so does the dump.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe import current, injected
from probe.control import Control
from probe.iterations import Iterations, Torch
from probe.messages import say, say_once, warn
from probe.ranks import current_rank, is_child, is_rank_of_its_own, world_size
from probe.settings import Settings, SettingsError, read_toml

#: Holds the order for every process below the command.
VARIABLE = "PROBE_CAPTURE"
#: Process id of the program that replaced the command.
PID_VARIABLE = "PROBE_CAPTURE_PID"
#: Process and rank of the current recorder, for the processes below it: two must not write one rank.
OWNER_VARIABLE = "PROBE_CAPTURE_OWNER"


@dataclass(frozen=True)
class Order:
    """Request of the command."""

    #: Path of a probe.toml, absolute.
    config: str | None
    #: Settings given on the command line, as `Settings.from_arguments` takes them.
    arguments: dict[str, Any]
    #: Working directory of the command; relative paths are resolved against it.
    directory: str | None
    #: Identity of the run, the same in every process below the command.
    run: str = ""
    #: Mode in which the agent records operators below Python: `only` those, `beside` the ops of torch, or `alone`, where it
    #: detects steps by itself; None if it does not.
    runtime: str | None = None
    #: True if the program ends with its last recorded step.
    stop: bool = False

    @classmethod
    def from_environment(cls) -> Order | None:
        """Returns the order of the command above this process; None if there is none. Raises SettingsError if it
        cannot be read."""
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        try:
            values = json.loads(text)
            arguments = dict(values.get("arguments") or {})
            run, stop = str(values.get("run") or ""), bool(values.get("stop"))
            return cls(values.get("config"), arguments, values.get("directory"), run, values.get("runtime"), stop)
        except (ValueError, TypeError, AttributeError) as error:
            raise SettingsError(f"{VARIABLE} in the environment cannot be read: {error}") from None

    def settings(self) -> Settings:
        """Returns the requested settings. Raises SettingsError."""
        return Settings.gathered(self.config, self.arguments, self.directory)

    def over(self, settings: Settings) -> Settings:
        """Returns `settings` with everything that the command names replaced by it. Raises SettingsError."""
        named = {*({} if self.config is None else read_toml(self.config)), *(key for key, value in self.arguments.items() if value is not None)}
        mine = self.settings()
        return replace(settings, **{key: getattr(mine, key) for key in named})


class Launch:
    """One program's recording. `session` creates the recorder; it is called when recording begins, not before."""

    def __init__(self, settings: Settings, session: Callable[[Settings], current.Recording], counter: type[Iterations] = Iterations) -> None:
        #: Requests of iterations while the program runs, if they come from a file.
        self._control = Control(settings.control) if settings.control is not None else None
        self.settings = settings if self._control is None else replace(settings, steps=self._control.steps)
        #: Number of ended iterations.
        self.iterations = 0
        #: Creates a recording.
        self.recording = session
        self._session: current.Recording | None = None
        #: True if there ever was a session: it then reports the outcome itself.
        self._made = False
        self._counted = counter(settings.step_on or "optimizer", self._iteration_ended, self._recount)
        self._first_call: Any = None
        self._begun = False
        self._dismissed = False
        #: True once the last requested step has ended.
        self._over = False
        #: True if the program ends then.
        self.stops = False
        self._pid = os.getpid()
        self._closed = False

    @property
    def framework(self) -> type[Torch]:
        """The framework whose calls are waited for."""
        return self._counted.framework

    def install(self) -> None:
        """Wait for the first module call, count iterations, and finish when the interpreter ends."""
        self._first_call = self._counted.framework.module_calls(self._module_called)
        self._counted.listen()
        current.count_by(self._step)
        atexit.register(self.finish)
        os.register_at_fork(after_in_child=self._forked)

    def hand_over(self) -> current.Recording | None:
        """Leaves the recording to the program's own calls. Returns the recording if it has begun already."""
        if self._session is None and not self._begun:
            self._dismiss(None)
        return self._session

    def finish(self) -> None:
        """Finish the dump, or say why there is none. Calling it twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._leave()
        with _harmless("finish"):
            self._close()
            if self._pid == os.getpid():
                self._explain()

    def _module_called(self, module: Any) -> None:
        """Runs before the first module call."""
        # If two threads arrive at once, only one begins.
        if self._first_call is not None and self._first_call.remove():
            self._counted.modules = True
            with _harmless("start", self._give_up):
                self._begin()

    def _begin(self) -> None:
        """Create the recorder, if this process records."""
        if self._begun or self._dismissed or self._closed:
            return
        self._begun = True
        for other in _launches:
            if other is not self:
                other._dismiss(None)
        if self._is_worker():
            self._dismiss(None)
            return
        self._pid = os.getpid()
        rank = current_rank(self.settings.rank)
        if rank not in self.settings.ranks:
            self._dismiss(self._unselected(rank))
            return
        owner, _, owned = os.environ.get(OWNER_VARIABLE, "").partition(":")
        if owner and owner != str(os.getpid()) and owned == str(rank):
            self._dismiss(f"process {owner}, which started this one, already records rank {rank}")
            return
        os.environ[OWNER_VARIABLE] = f"{os.getpid()}:{rank}"
        self._session = self.recording(self.settings)
        self._made = True
        self._session.iterations = self._counted
        current.begin(self._session)
        if self.iterations:
            self._session.set_step(self.iterations)
        self._session.start(None)
        at_end_of_child(self.finish)

    def _unselected(self, rank: int) -> str | None:
        """Returns why this rank records nothing, if no other rank says it."""
        ranks = self.settings.ranks
        if not is_rank_of_its_own():
            return f"this single process is rank {rank}, which is not among ranks {ranks}"
        # If there are several ranks, others record, provided they exist.
        return f"there are {world_size()} ranks, counted from 0, and ranks {ranks} were to record" if rank == 0 and ranks.first >= world_size() else None

    def _iteration_ended(self) -> None:
        with _harmless("step", self._give_up):
            self.iterations += 1
            self._look()
            last = self.settings.steps.last if self._control is None else None
            if self._session is not None:
                self._session.step()
            elif last is None or self.iterations <= last:
                # The program calls no module: it uses functions on bare parameters, or a compiled function.
                self._begin()
            if last is not None and self.iterations > last:
                self._done()

    def _look(self) -> None:
        """Takes requests of iterations from the control file."""
        if self._control is not None and self._control.look(self.iterations):
            self.settings = replace(self.settings, steps=self._control.steps)
            if self._session is not None:
                self._session.select(self.settings.steps)

    def _step(self) -> None:
        """Records that the program marked the end of an iteration."""
        if self._closed or self._dismissed:
            return
        if self._over and not self._counted.told:
            say_once(
                f"recording ended {self._counted.describe()} before the program called probe.step() for the first time; if its "
                "iterations are longer, record again with step_on 'program' (--step-on program)"
            )
        elif not self._over:
            self._counted.step()

    def _recount(self, guessed: int) -> None:
        """The `guessed` iterations counted so far were really the first one."""
        with _harmless("step", self._give_up):
            self.iterations = 1
            if self._session is not None:
                if 0 in self.settings.steps and self._counted.split:
                    say_once(
                        "step 0 was recorded in part: its end was counted before the program called probe.step() for the first "
                        "time; with step_on 'program' (--step-on program) nothing else ends an iteration"
                    )
                self._session.recount(1)
            elif self.settings.steps.last is None or self.settings.steps.last >= 1:
                self._begin()

    def _done(self) -> None:
        """The last requested step is over: from here on the program runs as if nothing had been loaded."""
        self._over = True
        self._leave()
        self._close()
        if self.stops:
            raise SystemExit(0)

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            current.end(session)
            session.close()

    def _dismiss(self, reason: str | None) -> None:
        """Record nothing in this process, and give the reason at once if there is one."""
        self._dismissed = True
        self._leave()
        if reason is not None:
            say(f"nothing is recorded: {reason}")

    def _give_up(self, error: BaseException) -> None:
        self._dismissed = True
        self._leave()
        say(f"recording has stopped: {type(error).__name__}: {error}")
        with _harmless("stop"):
            self._close()

    def _leave(self) -> None:
        """Remove everything from torch."""
        self._counted.remove()
        if self._first_call is not None:
            self._first_call.remove()

    def _forked(self) -> None:
        """Runs in a forked child: its parent records, unless it has not begun and the child turns out to be a
        rank."""
        if self._begun or self._closed:
            # The session's process id tells it not to write here.
            self._session = None
            self._closed = True
            with _harmless("fork"):
                self._leave()

    def _is_worker(self) -> bool:
        """Returns true if this process only serves another: it loads data, or was forked and is not a rank of its
        own."""
        data = sys.modules.get("torch.utils.data")
        if data is not None and data.get_worker_info() is not None:
            return True
        return os.getpid() != self._pid and not is_rank_of_its_own()

    def _explain(self) -> None:
        """Say why there is no record, if this process should have one and no session said so."""
        if self._made or self._dismissed:
            return
        if self.iterations > self.settings.steps.first:
            say(f"nothing was recorded: without a call of an {self.framework.module_name}, recording begins at the end of iteration 0; choose later steps")
        elif self.iterations:
            say(
                f"nothing was recorded: the program ended after {self.iterations} iterations, counted from 0 "
                f"{self._counted.describe()}, and steps {self.settings.steps} were to be recorded"
            )
        elif _is_expected_to_record() and not self.framework.has_explained() and not _written_since_start(self.settings.output, "step*/*"):
            # A launcher of other processes calls no module; those that do have written by now.
            say_once(f"nothing was recorded: no {self.framework.module_name} was called and no optimizer stepped")


def install() -> None:
    """Carry out the command's order in this process; do nothing without one."""
    order, settings = _ordered()
    if order is None or settings is None or any(launch.framework is Torch for launch in _launches):
        return
    launch = Launch(settings, _session if order.runtime is None else _with_runtime(order.runtime == "only"))
    # Ranks that record nothing do not know when the others have ended, and would wait for them.
    launch.stops = order.stop and settings.ranks.all
    begin(launch)
    if settings.pack:
        _pack(settings, order)
    from probe.names import check_apis

    for warning in check_apis(settings):
        warn(warning)


def _ordered() -> tuple[Order | None, Settings | None]:
    """Returns the command's order in this process and its settings; None without one, or if it cannot be carried out."""
    try:
        order = Order.from_environment()
        if order is None or order.runtime == "alone":
            return None, None
        return order, order.settings()
    except SettingsError as error:
        warn(f"nothing is recorded: {error}")
        return None, None


def ordered_settings() -> Settings | None:
    """Returns the settings of the command's order in this process; None without one, or if it cannot be carried out."""
    return _ordered()[1]


def begin(launch: Launch) -> None:
    """Waits for the first call of a module in a framework that the program has imported. Of several frameworks, the one
    whose modules are called first is recorded."""
    _launches.append(launch)
    launch.install()


def hand_over(settings: Settings, framework: type[Torch] = Torch) -> tuple[Settings, current.Recording | None]:
    """Lets a program that brings the older tool's calls decide what is recorded when, with `settings` from its file.

    Returns the settings, in which those that the command names win, and the command's recording if that has begun: then
    there is no other. Raises SettingsError.
    """
    own = next((launch for launch in _launches if launch.framework is framework), None)
    order = Order.from_environment() if own is not None else None
    if own is None or order is None:
        return settings, None
    for launch in _launches:
        if launch is not own:
            launch._dismiss(None)
    begun = own.hand_over()
    if begun is None:
        settings = order.over(settings)
        if settings.pack:
            _pack(settings, order)
        return settings, None
    say_once("the recording began before the program's own debugger was made: the settings of the command hold, not those of its file")
    return own.settings, begun


def session(settings: Settings) -> current.Recording:
    """Returns a new recording of torch, of operators below Python too if the command asks for them."""
    torchs = next((launch for launch in _launches if launch.framework is Torch), None)
    return torchs.recording(settings) if torchs is not None else _session(settings)


def is_below_python() -> bool:
    """Returns true if operators below Python are recorded. Raises SettingsError if the command's order cannot be read."""
    order = Order.from_environment()
    return order is not None and order.runtime in ("only", "beside")


def framework_never_came() -> None:
    """Runs at the end of the command's own process if it never imported a framework: says so, unless its children
    recorded."""
    with _harmless("finish"):
        order = Order.from_environment()
        if order is not None and order.runtime != "alone" and not _written_since_start(order.settings().output, "step*/*"):
            say("nothing was recorded: the program never imported torch or mindspore")


def check() -> str:
    """Answers the command before it hands over to the program's interpreter: returns the bootstrap folder.

    Raises SettingsError if the settings are unusable.
    """
    order = Order.from_environment()
    if order is not None:
        settings = order.settings()
        if settings.inject is not None:
            injected.check(settings)
    return str(Path(__file__).resolve().parent / "_bootstrap")


#: The recordings that wait, one for each framework that the program has imported.
_launches: list[Launch] = []


def _session(settings: Settings) -> current.Recording:
    from probe.recorder._session import Session

    return Session(settings)


def _pack(settings: Settings, order: Order) -> None:
    """Packs the run of this process beside its dump."""
    from probe.config_check import collect

    collect.beside(settings.output, order.run.replace("-", ""), collect.process(PID_VARIABLE))


def _with_runtime(only: bool) -> Callable[[Settings], current.Recording]:
    from probe import runtime

    runtime.hold()

    def session(settings: Settings) -> current.Recording:
        from probe.recorder.runtime import RuntimeSession

        return RuntimeSession(settings, only)

    return session


def at_end_of_child(finish: Callable[[], None]) -> None:
    """Registers `finish` in multiprocessing children, which skip the interpreter's own exit handlers but have one of
    their own."""
    if not is_child():
        return
    from multiprocessing.util import Finalize

    Finalize(None, finish, exitpriority=0)


def _is_expected_to_record() -> bool:
    """Returns true if this process is the program itself or one of its ranks, not some helper that happens to import
    torch."""
    return os.environ.get(PID_VARIABLE) == str(os.getpid()) or os.environ.get("RANK", "").isdigit()


def _written_since_start(output: str, pattern: str) -> bool:
    """Returns true if the dump has a part written since this process began."""
    began = time.time() - _age()
    try:
        return any(part.stat().st_mtime >= began - 1 for part in Path(output).glob(pattern))
    except OSError:
        return False


def _age() -> float:
    """Seconds since this process began."""
    try:
        # Field 22 is the start in clock ticks since boot; the name before it may hold spaces.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.process_time()


@contextmanager
def _harmless(where: str, otherwise: Callable[[BaseException], None] | None = None) -> Iterator[None]:
    """Keep our exceptions out of the user's program. Ctrl-C belongs to the user and passes through."""
    try:
        yield
    except Exception as error:
        if otherwise is None:
            say(f"{where}: {type(error).__name__}: {error}")
        else:
            otherwise(error)


def main() -> None:
    """Answer the command: the folder on standard output, or one line on standard error and code 2."""
    try:
        print(check())
    except SettingsError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
