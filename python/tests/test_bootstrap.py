"""The sitecustomize that every interpreter below `probe capture` loads. A stand-in for torch keeps the tests short."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BOOTSTRAP = Path(__import__("probe").__file__).resolve().parent / "_bootstrap"
PACKAGE = BOOTSTRAP.parents[1]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder on the module path with a `torch` that does nothing and a package `probe` that says when it is asked."""
    for name, text in {
        "torch/__init__.py": "import torch.nn\nready = True",
        "torch/nn.py": "",
        "probe/__init__.py": "",
        "probe/launch.py": "def install():\n    import torch\n    print('installed', torch.ready)\ndef framework_never_came():\n    print('never')",
    }.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "site"


def run(code: str, *path: Path, capture: bool = True, main: bool = False, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PROBE_", "PYTHON"))}
    environment["PYTHONPATH"] = os.pathsep.join(str(folder) for folder in (BOOTSTRAP, *path))
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    if capture:
        environment["PROBE_CAPTURE"] = "{}"
    become = "import os, sys; os.environ['PROBE_CAPTURE_PID'] = str(os.getpid()); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, *options, "-c", code]
    if main:
        command = [sys.executable, "-I", "-c", become, *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_package_is_loaded_once_torch_is_complete(place: Path) -> None:
    code = "import sys; print('probe' in sys.modules); import torch; import torch.nn; print(torch.__spec__.loader.__dict__.keys())"
    assert run(code, place) == (0, "False\ninstalled True\ndict_keys(['name', 'path'])\n", "")


def test_an_interpreter_without_torch_loads_nothing(place: Path) -> None:
    heavy = "[name for name in ('probe', 'json', 're', 'importlib.util', 'torch', 'typing') if name in sys.modules]"
    plain = run(f"import sys; print({heavy}, len(sys.modules))", place, capture=False)
    loaded = run(f"import sys; print({heavy}, len(sys.modules))", place)
    assert loaded[0] == 0 and loaded[2] == ""
    assert loaded[1].split("]")[0] == plain[1].split("]")[0]


def test_without_an_order_it_stays_out(place: Path) -> None:
    code = "import sys; print(any(type(finder).__name__ == '_WaitForFramework' for finder in sys.meta_path)); import torch"
    assert run(code, place, capture=False)[1] == "False\n"


def test_the_users_own_sitecustomize_is_loaded_and_takes_the_name(place: Path) -> None:
    (place / "sitecustomize.py").write_text("value = 5")
    code = f"import sys, sitecustomize; print(sitecustomize.value, {str(BOOTSTRAP)!r} in sys.path); import torch"
    assert run(code, place) == (0, "5 False\ninstalled True\n", "")


@pytest.mark.parametrize(("fault", "shown"), [("1 / 0", "ZeroDivisionError"), ("import no_such_module", "no_such_module")])
def test_a_fault_of_the_users_sitecustomize_is_reported_as_ever(place: Path, fault: str, shown: str) -> None:
    (place / "sitecustomize.py").write_text(fault)
    code, out, err = run("import torch; print('ran')", place)
    assert (code, out) == (0, "installed True\nran\n") and shown in err and "Error in sitecustomize" in err


def test_children_find_the_bootstrap_too(place: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import torch'], check=True)"
    assert run(code, place) == (0, "installed True\n", "")


def test_an_interpreter_without_the_package_says_so_and_goes_on(place: Path) -> None:
    (place / "probe" / "launch.py").unlink()
    code, out, err = run("import torch; print('ran')", place)
    assert (code, out) == (0, "ran\n") and err.count("\n") == 1 and "has no working package probe" in err
    assert f"{sys.executable} -m pip install probe-precision" in err


def test_a_fault_of_the_package_is_one_line(place: Path) -> None:
    (place / "probe" / "launch.py").write_text("def install():\n    raise RuntimeError('two\\nlines')")
    code, out, err = run("import torch; print('ran')", place)
    assert (code, out, err) == (0, "ran\n", "probe: nothing is recorded: RuntimeError: two lines\n")


def test_a_torch_that_fails_to_import_fails_as_ever_and_may_be_tried_again(place: Path) -> None:
    (place / "torch" / "__init__.py").write_text("import os\nif not os.environ.get('OK'):\n    raise OSError('no library')\nready = True")
    code = "import os\ntry:\n    import torch\nexcept OSError as error:\n    print(error)\nos.environ['OK'] = '1'\nimport torch"
    assert run(code, place) == (0, "no library\ninstalled True\n", "")


def test_a_missing_torch_is_missing_as_ever(place: Path) -> None:
    for path in (place / "torch").iterdir():
        path.unlink()
    (place / "torch").rmdir()
    code = "import sys\nsys.path = [entry for entry in sys.path if 'site-packages' not in entry]\n"
    code += "try:\n    import torch\nexcept ModuleNotFoundError as error:\n    print(error)"
    assert run(code, place) == (0, "No module named 'torch'\n", "")


def test_only_the_program_itself_is_told_that_torch_never_came(place: Path) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'], check=True)"
    assert run(child, place, main=True) == (0, "never\n", "")
    assert run(child, place) == (0, "", "")


def test_options_that_shut_out_the_recorder(place: Path) -> None:
    for option in ("-S", "-I", "-E"):
        code = "import sys; print(any(type(finder).__name__ == '_WaitForFramework' for finder in sys.meta_path))"
        assert run(code, place, options=(option,))[:2] == (0, "False\n"), option


def test_the_cost_of_a_start_is_small(place: Path) -> None:
    # The work of the file itself, without the start of the interpreter, which varies far more.
    code = f"""
import sys, time
source = compile(open({str(BOOTSTRAP / 'sitecustomize.py')!r}).read(), {str(BOOTSTRAP / 'sitecustomize.py')!r}, "exec")
best = 1.0
for _ in range(5):
    began = time.process_time()
    exec(source, {{"__file__": {str(BOOTSTRAP / 'sitecustomize.py')!r}, "__name__": "sitecustomize"}})
    best = min(best, time.process_time() - began)
print(best)
"""
    assert float(run(code, place)[1]) < 0.005
