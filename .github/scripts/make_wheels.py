"""Make the sdist and wheels for this machine, audit them, and try them where no compiler is.

    python make_wheels.py PYTHON ...    # one wheel for each interpreter

`make wheels` calls this with the tools of .venv-wheels. The results are in dist/.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "wheels"
CONSTRAINTS = ROOT / "constraints.txt"
# What runs without torch: every kernel, and saved indexes whose answers are known.
TESTS = ("tests/engine", "tests/base/test_format_1.py")
TEST_TOOLS = ("pytest", "pytest-timeout", "hypothesis")
SHOW = "import irli, sys; assert irli.__file__.startswith(sys.prefix); irli.show_versions()"


def run(program: str | Path, *arguments: str | Path, **variables: str) -> None:
    command = [str(part) for part in (program, *arguments)]
    print("$", *command, flush=True)
    subprocess.run(command, cwd=ROOT, env=os.environ | variables, check=True)


def use(tool: str, *arguments: str | Path, **variables: str) -> None:
    """Run a tool of .venv-wheels."""
    run(sys.executable, "-m", tool, *arguments, **variables)


def make_sdist() -> Path:
    use("build", "--sdist", "--outdir", DIST, "--dependency-constraints-txt", CONSTRAINTS)
    [sdist] = DIST.glob("*.tar.gz")
    return sdist


def make_environment(python: str, folder: Path) -> Path:
    """Return the Python of a new environment that holds nothing."""
    run(python, "-m", "venv", "--without-pip", folder)
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def make_wheel(python: Path, sdist: Path, folder: Path) -> Path:
    """Return the wheel in dist/ that a Python makes of the sdist."""
    options = ("--quiet", "--no-deps", "--build-constraint", CONSTRAINTS)
    use("pip", "--python", python, "wheel", *options, "--wheel-dir", folder / "made", sdist)
    [wheel] = (folder / "made").glob("*.whl")
    if "abi3" in wheel.name:
        use("abi3audit", "--strict", "--report", wheel)
    if sys.platform == "linux":
        use("auditwheel", "repair", "--wheel-dir", folder / "repaired", wheel)
        [wheel] = (folder / "repaired").glob("*.whl")
        use("auditwheel", "show", wheel)
    return Path(shutil.copy(wheel, DIST))


def try_wheel(python: Path, wheel: Path) -> None:
    """Install a wheel with no compiler in reach, and run the tests without src/."""
    alone = {"PATH": str(python.parent), "CC": "no-compiler", "CXX": "no-compiler"}
    install = ("--python", python, "install", "--quiet", "--only-binary", ":all:")
    use("pip", *install, wheel, **alone)
    run(python, "-c", SHOW, **alone)
    use("pip", *install, "--constraint", CONSTRAINTS, *TEST_TOOLS, **alone)
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, **alone)


def main(pythons: list[str]) -> None:
    for folder in (DIST, WORK):
        shutil.rmtree(folder, ignore_errors=True)
    sdist = make_sdist()
    for number, name in enumerate(pythons):
        folder = WORK / str(number)
        python = make_environment(name, folder / "environment")
        try_wheel(python, make_wheel(python, sdist, folder))
    print("Made and tried:", *sorted(path.name for path in DIST.iterdir()), sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
