"""The command `probe`."""

import os
import signal
import sys


def main() -> None:
    """Run the command line with the arguments of the process and leave with its exit code."""
    if sys.argv[1:2] == ["doctor"]:
        # `doctor` tests the device of this very interpreter, which the rest of the command knows nothing about.
        from probe import doctor

        sys.exit(doctor.main(sys.argv[2:]))

    if sys.argv[1:2] in (["replay"], ["verify"], ["check-ops"], ["invariant"]):
        # Commands that run torch's functions live in this interpreter too.
        from probe.replay import command

        sys.exit(command.main(sys.argv[1], sys.argv[2:]))

    from probe import _core

    # For `probe capture`, which puts this package's bootstrap in front of the program.
    os.environ["PROBE_PACKAGE"] = os.path.dirname(os.path.abspath(__file__))
    # For comparisons on Ray and for replays, which run in this interpreter.
    os.environ["PROBE_PYTHON"] = sys.executable

    # The work runs outside the interpreter, whose Ctrl-C handler would never get a turn.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_core.main(["probe", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
