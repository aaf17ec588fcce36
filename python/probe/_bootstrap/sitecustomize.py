"""Loaded by every Python interpreter below `probe capture` or `probe config-check --collect`, before the user's program.

It waits for the program to import torch or mindspore, and only then loads the package. An interpreter that never imports either
pays for this file and a few more module finders. No failure of this file reaches the program.
"""

import os
import sys

# Frameworks; for each the environment variable of each request, and the module whose `install` carries it out.
_ORDERS = {
    "torch": {"PROBE_CAPTURE": "probe.launch", "PROBE_CONFIG_CHECK": "probe.config_check.collect"},
    "mindspore": {"PROBE_CAPTURE": "probe.mindspore.launch"},
}


def _other_sitecustomize():
    """Run the sitecustomize that this one shadows, as if this one were not there."""
    from importlib.machinery import PathFinder
    from importlib._bootstrap import module_from_spec

    own = os.path.dirname(os.path.abspath(__file__))
    # Only child processes should find this folder, through PYTHONPATH.
    sys.path[:] = [entry for entry in sys.path if not isinstance(entry, str) or os.path.abspath(entry) != own]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


class _WaitForFramework:
    """A finder that finds nothing, but sees when a framework is imported."""

    def __init__(self, name):
        self._name = name

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        try:
            sys.meta_path.remove(self)
            spec = _find(name, path, target)
            if spec is None or not hasattr(spec.loader, "exec_module"):
                sys.meta_path.insert(0, self)
            else:
                self._announce(spec.loader)
            return spec
        except Exception as error:
            _say("%s is imported in an unknown way (%s: %s); nothing is recorded" % (name, type(error).__name__, error))
            return None

    def _announce(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            try:
                execute(module)
            except BaseException:
                # The program may catch this and try again.
                sys.meta_path.insert(0, self)
                raise
            _framework_is_there(self._name)

        loader.exec_module = exec_module


class _AnswerOlderTool:
    """A finder that finds nothing, but sees when the older tool is imported, and then lets probe answer."""

    def find_spec(self, name, path=None, target=None):
        if name != "msprobe":
            return None
        try:
            sys.meta_path.remove(self)
            from probe.dropin.alias import as_msprobe

            as_msprobe()
            return _find(name, path, target)
        except Exception as error:
            _say("import msprobe is not answered by probe: %s: %s" % (type(error).__name__, error))
            return None


def _find(name, path, target):
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


def _framework_is_there(name):
    from importlib import import_module

    for variable, carries_out in _ORDERS[name].items():
        if not os.environ.get(variable):
            continue
        try:
            install = import_module(carries_out).install
        except Exception as error:
            _say("nothing is recorded, because %s has no working package probe (%s); install it with: %s -m pip install probe-precision"
                 % (sys.executable, error, sys.executable))
            return
        try:
            install()
        except Exception as error:
            _say("nothing is recorded: %s: %s" % (type(error).__name__, error))


def _say(text):
    try:
        sys.stderr.write("probe: " + " ".join(text.split()) + "\n")
    except Exception:
        pass


def _framework_never_came():
    # After Ctrl-C there is nothing to explain, and the code run by a late import would make the interpreter forget
    # that it was interrupted and exit with another code.
    if not any(name in sys.modules for name in _ORDERS) and getattr(sys, "last_type", None) is not KeyboardInterrupt:
        try:
            from probe.launch import framework_never_came
        except Exception:
            return
        framework_never_came()


if os.environ.get("PROBE_CAPTURE"):
    sys.meta_path.insert(0, _AnswerOlderTool())
for _name in _ORDERS:
    if not any(os.environ.get(variable) for variable in _ORDERS[_name]):
        continue
    if _name in sys.modules:
        _framework_is_there(_name)
    else:
        sys.meta_path.insert(0, _WaitForFramework(_name))
if os.environ.get("PROBE_CAPTURE_PID") == str(os.getpid()) and os.environ.get("PROBE_CAPTURE"):
    import atexit

    atexit.register(_framework_never_came)

# Runs last, so that Python reports a failure in the user's file as it always does.
_other_sitecustomize()
