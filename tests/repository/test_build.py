"""How irli is built and installed: compiler, wheels, versions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def configure(folder: Path, **variables: str) -> str:
    """Run CMake on native/ and return what it says; skip the test where CMake is not installed."""
    scripts = sysconfig.get_path("scripts")
    cmake = shutil.which("cmake", path=f"{scripts}{os.pathsep}{os.environ['PATH']}")
    if cmake is None:
        pytest.skip("CMake is not installed")
    command = [cmake, "-S", str(NATIVE), "-B", str(folder), f"-DPython_EXECUTABLE={sys.executable}"]
    run = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    return " ".join(run.stderr.split())


@pytest.mark.skipif(sys.platform == "win32", reason="CMake finds Visual Studio by itself")
def test_a_missing_compiler_gets_a_message_that_says_what_to_install(tmp_path: Path) -> None:
    said = configure(tmp_path, CXX="a-compiler-of-nobody")
    assert "This needs a C++20 compiler (GCC 11, Clang 14, Visual Studio 2022 or newer)" in said
    assert "The C++ compiler 'a-compiler-of-nobody' is not there, or does not work." in said
    assert "apt install g++ python3-dev" in said


@pytest.mark.skipif(sys.platform == "win32", reason="CMake finds Visual Studio by itself")
def test_an_old_compiler_gets_a_message_that_says_its_version(tmp_path: Path) -> None:
    found = shutil.which("c++")
    if found is None:
        pytest.skip("there is no C++ compiler")
    old = tmp_path / "old-c++"
    old.write_text(
        "#!/bin/bash\nexec " + found + ' "${@/#-std=c++20/-std=c++14}" # knows no C++20\n'
    )
    old.chmod(0o755)
    said = configure(tmp_path / "build", CXX=str(old))
    assert re.search(r"old-c\+\+ is \w+ [\d.]+, which does not compile C\+\+20", said), said
    assert "xcode-select --install" in said


def test_pythonpath_wins_over_the_installed_irli(tmp_path: Path) -> None:
    (tmp_path / "irli.py").write_text("where = 'another clone'\n")
    run = subprocess.run(
        [sys.executable, "-c", "import irli; print(irli.where)"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "another clone"


def test_the_tools_that_build_are_pinned() -> None:
    path = ROOT / "constraints.txt"
    if not path.exists():
        pytest.skip("an sdist has no constraints.txt")
    pinned = {
        line.partition("==")[0].lower().replace("_", "-") for line in path.read_text().splitlines()
    }
    needed = {re.split(r"[^\w-]", entry)[0] for entry in PROJECT["build-system"]["requires"]}
    assert needed | {"cmake", "ninja", "build", "auditwheel", "abi3audit", "cibuildwheel"} <= pinned


def test_every_python_has_a_wheel() -> None:
    lowest = PROJECT["project"]["requires-python"].removeprefix(">=").replace(".", "")
    stable = PROJECT["tool"]["scikit-build"]["wheel"]["py-api"]
    built = [name.removesuffix("-*") for name in PROJECT["tool"]["cibuildwheel"]["build"]]
    assert f"cp{lowest}" in built
    assert stable in built
    # Between the lowest Python and the first with a stable ABI, none may be left out.
    assert int(stable.removeprefix("cp")) == int(lowest) + 1
