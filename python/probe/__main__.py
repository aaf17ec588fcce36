"""The command `probe`."""

import os
import signal
import sys


def main() -> None:
    """Run the command line with the arguments of the process and leave with its exit code."""
    if sys.argv[1:2] == ["doctor"]:
        # It tries the device of this very interpreter, which the rest of the command knows nothing of.
        from probe import doctor

        sys.exit(doctor.main(sys.argv[2:]))

    from probe import _core

    # For `probe capture`, which puts the bootstrap of this package in front of the program.
    os.environ["PROBE_PACKAGE"] = os.path.dirname(os.path.abspath(__file__))
    # For `probe compare --ray`, which this interpreter drives.
    os.environ["PROBE_PYTHON"] = sys.executable

    # The work is done outside the interpreter, where its handler of Ctrl-C would never run.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_core.main(["probe", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
