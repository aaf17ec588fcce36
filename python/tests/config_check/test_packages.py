"""Which copy of a package counts; and that the package is light to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from probe.config_check import environment, packages

REPOSITORY = Path(__file__).resolve().parents[3]


def distribution(folder: Path, name: str, version: str) -> None:
    (folder / f"{name}-{version}.dist-info").mkdir(parents=True)


def test_versions_names_and_shadowed_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path / "a", "Some_Pkg.x", "1.0+cu126")
    distribution(tmp_path / "b", "some_pkg_x", "2.0")
    distribution(tmp_path / "b", "transformers", "9.9")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "a")])
    module = ModuleType("transformers")
    module.__version__ = "9.8"
    module.__file__ = "/elsewhere/transformers/__init__.py"
    monkeypatch.setitem(sys.modules, "transformers", module)
    assert packages.collect()["packages"] == [
        {"name": "some-pkg-x", "version": "1.0+cu126", "shadowed": ["2.0"]},
        {"name": "transformers", "version": "9.9", "imported": "9.8", "origin": "/elsewhere/transformers/__init__.py"},
    ]


def test_the_commit_of_a_git_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "megatron_core", "0.1")
    direct = tmp_path / "megatron_core-0.1.dist-info" / "direct_url.json"
    direct.write_text('{"url": "https://t:o@host/x.git", "vcs_info": {"vcs": "git", "commit_id": "0123abcd"}}')
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert packages.collect()["packages"][0]["commit"] == "0123abcd"


def test_names_are_those_of_the_metadata() -> None:
    import importlib.metadata

    listed = {package["name"]: package["version"] for package in packages.collect()["packages"]}
    for name in ("torch", "numpy"):
        assert listed[name] == importlib.metadata.version(name)


def test_the_allow_list_covers_the_table_of_the_check() -> None:
    table = REPOSITORY / "crates" / "config-check" / "src" / "expectations.toml"
    if not table.exists() or sys.version_info < (3, 11):
        pytest.skip("no table here")
    import tomllib

    content = tomllib.loads(table.read_text())
    names = list(content.get("allow", []))
    for setting in content.get("setting", []):
        if setting.get("part") == "env":
            names += [setting[key] for key in ("key", "gpu", "npu") if key in setting]
    missing = [name for name in names if not environment.is_allowed(name.strip("*").rstrip("_") + "_X" if "*" in name else name)]
    assert missing == []


def test_importing_loads_neither_torch_nor_the_core() -> None:
    program = "import sys, probe.config_check as c; c.__all__; assert not {'torch', 'numpy', 'probe._core'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
