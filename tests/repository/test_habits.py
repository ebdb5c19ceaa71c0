"""The files beside the code: workflows, templates, citation, contact."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
SCRIPTS = GITHUB / "scripts"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = ["bug", "feature", "question"]
FILES = [
    ".pre-commit-config.yaml",
    "CITATION.cff",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    ".github/PULL_REQUEST_TEMPLATE.md",
    ".github/actions/setup/action.yml",
    ".github/dependabot.yml",
    ".github/scripts/make_wheels.py",
    ".github/scripts/release_notes.py",
    ".github/scripts/smoke.py",
    *(f".github/ISSUE_TEMPLATE/{name}.yml" for name in [*FORMS, "config"]),
    *(f".github/workflows/{name}.yml" for name in ["docs", "release", "test", "wheels"]),
]
# Registries have settings of their own; an address in a file would overrule them.
REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|pytorch\.org|npmjs\.|anaconda\.|golang\.org|docker\.io|ghcr\.io"
)
MACHINE = re.compile(r"(?<![\w.~$}])/(work|tmp|root|home|Users|opt)/")

pytestmark = pytest.mark.skipif(not GITHUB.is_dir(), reason="an sdist has no .github")
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path: Path | str) -> Any:
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def tracked() -> list[Path]:
    """Return the files that git knows, or skip the test where there is no repository."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git repository")
    names = subprocess.run(
        [git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def places(text: str) -> list[str]:
    """Return the tracked files that hold a text, once for each time."""
    found = [(path, path.read_bytes().count(text.encode())) for path in tracked()]
    return [path.relative_to(ROOT).as_posix() for path, times in found for _ in range(times)]


def test_every_file_is_there_and_committed() -> None:
    assert [name for name in FILES if not (ROOT / name).is_file()] == []
    assert set(FILES) <= {path.relative_to(ROOT).as_posix() for path in tracked()}


@each_workflow
def test_a_workflow_limits_its_rights_and_its_time(path: Path) -> None:
    workflow = read(path)
    assert "permissions" in workflow
    assert "write" not in (workflow["permissions"] or {}).values()
    assert "concurrency" in workflow
    for name, job in workflow["jobs"].items():
        # A job that calls another workflow has the limits of that one.
        limited = "timeout-minutes" in job or (ROOT / job.get("uses", "-")).is_file()
        assert limited, f"{name} has no timeout-minutes"


@each_workflow
def test_actions_are_pinned_to_a_major_version(path: Path) -> None:
    used = re.findall(r"uses: (\S+)", path.read_text("utf-8"))
    outside = [action for action in used if not action.startswith("./")]
    assert [action for action in outside if not re.search(r"@(release/)?v\d+$", action)] == []
    assert [action for action in set(used) - set(outside) if not (ROOT / action).exists()] == []


@pytest.mark.parametrize("name", FILES)
def test_no_address_of_a_registry_or_a_machine(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert REGISTRY.findall(text) == []
    assert MACHINE.findall(text) == []


def test_every_python_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    listed = {
        entry.rpartition(" ")[2]
        for entry in project["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", entry)
    }
    matrix = read(".github/workflows/test.yml")["jobs"]["platforms"]["strategy"]["matrix"]
    tested = {*matrix["python"], *(more["python"] for more in matrix["include"])}
    lowest = project["requires-python"].removeprefix(">=")
    assert lowest in listed
    assert listed <= tested
    assert min(tested, key=as_numbers) == lowest


def as_numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_every_platform_is_tested() -> None:
    jobs = read(".github/workflows/test.yml")["jobs"]
    systems = jobs["platforms"]["strategy"]["matrix"]["os"]
    for system in ["ubuntu-24.04", "ubuntu-24.04-arm", "macos-15", "windows-2025"]:
        assert system in systems
    ends = [more["resolution"] for more in jobs["dependencies"]["strategy"]["matrix"]["include"]]
    assert ends == ["lowest-direct", "highest"]


@pytest.mark.parametrize("name", FORMS)
def test_an_issue_form_asks_for_something(name: str) -> None:
    form = read(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= set(form)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert any(field.get("validations", {}).get("required") for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)


def test_a_bug_report_asks_for_the_versions() -> None:
    assert "irli.show_versions()" in (GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text("utf-8")


def test_the_citation_names_the_software_and_the_paper() -> None:
    citation = read("CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "repository-code"} <= set(citation)
    [paper] = citation["references"]
    assert paper["title"] == "IRLI: Iterative Re-partitioning for Learning to Index"
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Gupta", "Medini", "Shrivastava", "Smola"]
    assert paper["url"].endswith("/2103.09944")


def test_the_address_of_the_repository_is_in_one_place() -> None:
    assert places(read("CITATION.cff")["repository-code"]) == ["CITATION.cff"]


def test_the_contact_is_in_one_place() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    [contact] = re.findall(r"[\w.+-]+@[\w-]+\.\w[\w.]*\w", text)
    assert places(contact) == ["SECURITY.md"]


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text("utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_hooks_and_workflows_call_targets_that_there_are() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE)
    callers = [ROOT / ".pre-commit-config.yaml", *WORKFLOWS]
    text = "".join(path.read_text("utf-8") for path in callers)
    called = re.findall(r"(?:run|entry): make (\S+)", text)
    assert called
    assert set(called) <= set(targets)


def test_actionlint_finds_nothing() -> None:
    actionlint = shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("actionlint is not installed")
    run = subprocess.run(
        [actionlint, "-no-color", *map(str, WORKFLOWS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def script(name: str) -> dict[str, Callable[..., Any]]:
    return runpy.run_path(str(SCRIPTS / f"{name}.py"))


def test_the_smoke_test_learns_and_searches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script("smoke")["main"]("learn", tmp_path)
    script("smoke")["main"]("search", tmp_path)
    assert capsys.readouterr().out.count("are right") == 4


CHANGELOG = """# Changelog

## [Unreleased]

Soon.

## [1.10.0] - 2031-02-03

### Added

- Much.

## [1.1.0] - 2030-01-02

Little.

[1.1.0]: ../../releases
"""


@pytest.mark.parametrize(
    ("version", "notes"), [("1.10.0", "### Added\n\n- Much."), ("1.1.0", "Little."), ("1.1", "")]
)
def test_release_notes_are_the_section_of_the_version(version: str, notes: str) -> None:
    assert script("release_notes")["find_notes"](CHANGELOG, version) == notes


def test_a_release_needs_the_tag_of_the_package() -> None:
    with pytest.raises(SystemExit, match=r"must be v\d+\.\d+.* Got v99\.0\.0 instead"):
        script("release_notes")["main"]("v99.0.0")
