"""Recording a program that knows nothing of it: what `probe capture -- python train.py` does inside the program.

The command sets `PROBE_CAPTURE` (a JSON object: see `Order`) and puts a `sitecustomize` on the path, which calls `install`
once the program has imported torch. Recording begins with the first call of an `nn.Module`; `probe.iterations` says where
iterations end. When the interpreter ends, so does the dump.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe import current, module_calls
from probe.iterations import Iterations
from probe.messages import say, say_once, warn
from probe.ranks import current_rank, is_child, is_rank_of_its_own, world_size
from probe.settings import Settings, SettingsError

#: Holds the order, for every process below the command.
VARIABLE = "PROBE_CAPTURE"
#: The process that the command became.
PID_VARIABLE = "PROBE_CAPTURE_PID"
#: Process and rank of whoever records already, for the processes below it: two must not write one rank.
OWNER_VARIABLE = "PROBE_CAPTURE_OWNER"


@dataclass(frozen=True)
class Order:
    """What the command was asked for."""

    #: Path of a probe.toml, absolute.
    config: str | None
    #: Settings given on the command line, as `Settings.from_arguments` takes them.
    arguments: dict[str, Any]
    #: Where the command ran: relative paths are meant from there.
    directory: str | None
    #: Identity of the run, the same in every process below the command.
    run: str = ""
    #: Whether operators below Python are recorded by the agent: `only`, or `beside` the ops of torch, or `alone`: it knows by itself where steps end; None
    #: where they are not.
    runtime: str | None = None

    @classmethod
    def from_environment(cls) -> Order | None:
        """The order of the command above this process; None if there is none. Raises SettingsError if it cannot be read."""
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        try:
            values = json.loads(text)
            arguments = dict(values.get("arguments") or {})
            return cls(values.get("config"), arguments, values.get("directory"), str(values.get("run") or ""), values.get("runtime"))
        except (ValueError, TypeError, AttributeError) as error:
            raise SettingsError(f"{VARIABLE} in the environment cannot be read: {error}") from None

    def settings(self) -> Settings:
        """The settings that were asked for. Raises SettingsError."""
        return Settings.gathered(self.config, self.arguments, self.directory)


class Launch:
    """One program's recording. `session` makes the recorder; it is called when recording begins, not before."""

    def __init__(self, settings: Settings, session: Callable[[Settings], current.Recording]) -> None:
        self.settings = settings
        #: Iterations that have ended.
        self.iterations = 0
        self._make = session
        self._session: current.Recording | None = None
        #: Whether there ever was one: it then says itself how it went.
        self._made = False
        self._counted = Iterations(settings.step_on or "optimizer", self._iteration_ended, self._recount)
        self._first_call: module_calls.Handle | None = None
        self._begun = False
        self._dismissed = False
        #: Whether the last step that was asked for has ended.
        self._over = False
        self._pid = os.getpid()
        self._closed = False

    def install(self) -> None:
        """Wait for the first call of a module, count iterations, and finish when the interpreter ends."""
        self._first_call = module_calls.listen(self._module_called)
        self._counted.listen()
        current.count_by(self._step)
        atexit.register(self.finish)
        os.register_at_fork(after_in_child=self._forked)

    def finish(self) -> None:
        """Finish the dump, and say why if there is none. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._leave()
        with _harmless("finish"):
            self._close()
            if self._pid == os.getpid():
                self._explain()

    def _module_called(self, module: Any) -> None:
        """The first call of a module begins."""
        # Of two threads that come at once, one begins.
        if self._first_call is not None and self._first_call.remove():
            self._counted.modules = True
            with _harmless("start", self._give_up):
                self._begin()

    def _begin(self) -> None:
        """Make the recorder, if this is a process that records."""
        if self._begun or self._dismissed or self._closed:
            return
        self._begun = True
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
        self._session = self._make(self.settings)
        self._made = True
        self._session.iterations = self._counted
        current.begin(self._session)
        if self.iterations:
            self._session.set_step(self.iterations)
        self._session.start(None)
        _at_end_of_child(self.finish)

    def _unselected(self, rank: int) -> str | None:
        """Why this rank records nothing, where no other says it."""
        ranks = self.settings.ranks
        if not is_rank_of_its_own():
            return f"this single process is rank {rank}, which is not among ranks {ranks}"
        # Of several ranks others record, if they exist.
        return f"there are {world_size()} ranks, counted from 0, and ranks {ranks} were to record" if rank == 0 and ranks.first >= world_size() else None

    def _iteration_ended(self) -> None:
        with _harmless("step", self._give_up):
            self.iterations += 1
            last = self.settings.steps.last
            if self._session is not None:
                self._session.step()
            elif last is None or self.iterations <= last:
                # A program that calls no module: functions on bare parameters, or a compiled function.
                self._begin()
            if last is not None and self.iterations > last:
                self._done()

    def _step(self) -> None:
        """The program says that an iteration has ended."""
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
        """What was taken for so many iterations was the first."""
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
        """The last step that was asked for is over: from here on the program runs as if nothing had been loaded."""
        self._over = True
        self._leave()
        self._close()

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            current.end(session)
            session.close()

    def _dismiss(self, reason: str | None) -> None:
        """Record nothing in this process, and say why at once if there is anything to say."""
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
        """Take everything out of torch."""
        self._counted.remove()
        if self._first_call is not None:
            self._first_call.remove()

    def _forked(self) -> None:
        """In a child that was forked: its parent records, unless it has not begun and the child turns out to be a rank."""
        if self._begun or self._closed:
            # The session knows by its process id that it is not to write here.
            self._session = None
            self._closed = True
            with _harmless("fork"):
                self._leave()

    def _is_worker(self) -> bool:
        """Whether this process only serves another: it loads data, or was forked and is no rank of its own."""
        data = sys.modules.get("torch.utils.data")
        if data is not None and data.get_worker_info() is not None:
            return True
        return os.getpid() != self._pid and not is_rank_of_its_own()

    def _explain(self) -> None:
        """Say why there is no record, if this process should have one and no session said it."""
        if self._made or self._dismissed:
            return
        if self.iterations > self.settings.steps.first:
            say("nothing was recorded: without a call of an nn.Module, recording begins at the end of iteration 0; choose later steps")
        elif self.iterations:
            say(
                f"nothing was recorded: the program ended after {self.iterations} iterations, counted from 0 "
                f"{self._counted.describe()}, and steps {self.settings.steps} were to be recorded"
            )
        elif _is_expected_to_record() and not _written_since_start(self.settings.output, "step*/*"):
            # A launcher of other processes calls no module; those that do have written by now.
            say("nothing was recorded: no nn.Module was called and no optimizer stepped")


def install() -> None:
    """Prepare this process for what the command was asked for; without a command above, do nothing."""
    global _launch
    if _launch is not None:
        return
    try:
        order = Order.from_environment()
        if order is None or order.runtime == "alone":
            return
        settings = order.settings()
    except SettingsError as error:
        warn(f"nothing is recorded: {error}")
        return
    _launch = Launch(settings, _session if order.runtime is None else _with_runtime(order.runtime == "only"))
    _launch.install()
    from probe.names import check_apis

    for warning in check_apis(settings):
        warn(warning)


def torch_never_came() -> None:
    """At the end of the command's own process, if it never imported torch: say so, unless its children recorded."""
    with _harmless("finish"):
        order = Order.from_environment()
        if order is not None and order.runtime != "alone" and not _written_since_start(order.settings().output, "step*/*"):
            say("nothing was recorded: the program never imported torch")


def check() -> str:
    """What the command asks of the program's interpreter before it hands over to it: the folder of the bootstrap.

    Raises SettingsError if the settings cannot be used.
    """
    order = Order.from_environment()
    if order is not None:
        order.settings()
    return str(Path(__file__).resolve().parent / "_bootstrap")


_launch: Launch | None = None


def _session(settings: Settings) -> current.Recording:
    from probe.recorder._session import Session

    return Session(settings)


def _with_runtime(only: bool) -> Callable[[Settings], current.Recording]:
    from probe import runtime

    runtime.hold()

    def session(settings: Settings) -> current.Recording:
        from probe.recorder.runtime import RuntimeSession

        return RuntimeSession(settings, only)

    return session


def _at_end_of_child(finish: Callable[[], None]) -> None:
    """Processes of multiprocessing leave without the interpreter's own end; they have one of theirs."""
    if not is_child():
        return
    from multiprocessing.util import Finalize

    Finalize(None, finish, exitpriority=0)


def _is_expected_to_record() -> bool:
    """Whether this process is the program itself or one of its ranks, not some helper that happens to import torch."""
    return os.environ.get(PID_VARIABLE) == str(os.getpid()) or os.environ.get("RANK", "").isdigit()


def _written_since_start(output: str, pattern: str) -> bool:
    """Whether the dump has a part that was written since this process began."""
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
    """Keep every fault of ours from the user's program. A Ctrl-C is the user's and goes through."""
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
