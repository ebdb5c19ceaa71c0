"""Importing irli costs nothing, and searching imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import pytest_make_collect_report

import irli
from irli import errors

FOLDERS = Path(__file__).parents[1] / "data" / "format-1"
HEAVY = {"torch", "ray", "h5py", "faiss", "sklearn", "matplotlib", "pandas"}
# What is imported when it is used, and a search uses none of it.
SLOW = {"scipy", "typer", "rich", "tqdm", "filelock", "threadpoolctl", "irli.learning"}
ROOMS = ("base", "cluster", "engine", "labels", "learning", "vectors")


def run(code: str) -> tuple[str, set[str]]:
    """Run code in a process of its own; return what it prints and the modules it imported."""
    code += "\nimport sys\nprint('modules:', *sys.modules)\n"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    printed, _, modules = done.stdout.rpartition("modules:")
    return printed, set(modules.split())


# --- what an import costs -----------------------------------------------------------------------


def test_importing_irli_imports_no_other_package() -> None:
    _, modules = run("import irli")
    assert "irli" in modules
    assert not {"numpy", "scipy", "typer", "tqdm", *HEAVY} & modules


def test_errors_need_no_numpy() -> None:
    printed, modules = run("import irli\nprint(irli.NotFitted.__name__, irli.errors.__name__)")
    assert printed == "NotFitted irli.errors\n"
    assert "numpy" not in modules


def test_no_module_imports_anything_heavy() -> None:
    """Every one of them but those that learn or need another program, in one process."""
    source = Path(irli.__file__).parent
    names = [
        ".".join(["irli", *path.relative_to(source).with_suffix("").parts])
        for path in sorted(source.rglob("*.py"))
        if path.stem not in ("__init__", "__main__")
        and path.parent.name not in ("learning", "integrations")
    ]
    assert "irli.vectors.searcher" in names
    assert "irli.cluster.shards.ray_client" in names
    _, modules = run("\n".join(f"import {name}" for name in [*names, "irli.learning"]))
    assert not HEAVY & modules


def test_vectors_are_searched_without_torch() -> None:
    printed, modules = run(f"""
import irli, numpy
for name in "codes", "shards":
    index = irli.load({str(FOLDERS)!r} + "/" + name)
    print(index.search(numpy.ones((3, 8)), k=2).ids.shape)
    print(index.explain(numpy.ones((3, 8)), k=2).scanned.shape)
""")
    assert printed == "(3, 2)\n(3,)\n" * 2
    assert not HEAVY & modules


def test_naming_the_vector_index_imports_nothing_slow() -> None:
    _, modules = run("import irli\nirli.VectorIndex, irli.load, irli.SearchParameters")
    assert "irli.vectors.index" in modules
    assert not (HEAVY | SLOW) & modules


@pytest.mark.parametrize("name", ["codes", "int8"])
def test_the_first_answer_imports_nothing_slow(name: str) -> None:
    printed, modules = run(f"""
import irli, numpy
index = irli.load({str(FOLDERS / name)!r})
dim = index.vectors.shape[1]
print(index.search(numpy.ones(dim, dtype=numpy.float32), k=2).ids.shape)
print(index.search([[1.0] * dim] * 3, k=2, threads=1).ids.shape)
""")
    assert printed == "(2,)\n(3, 2)\n"
    assert not (HEAVY | SLOW) & modules


def test_labels_are_predicted_and_added_without_torch() -> None:
    printed, modules = run(f"""
import irli, numpy
index = irli.load({str(FOLDERS / "features")!r})
rows = numpy.ones((3, index.dim))
print(index.predict(rows, k=2).labels.shape)
print(len(index.add_labels(rows, numpy.ones((3, 1)), names=["new"])))
""")
    assert printed == "(3, 2)\n10\n"
    assert not HEAVY & modules


def test_learning_on_a_cpu_needs_no_torch() -> None:
    """Here it cannot even be imported."""
    printed, modules = run("""
import sys
sys.modules["torch"] = None
import irli, numpy
X = numpy.random.default_rng(0).normal(size=(300, 4))
for recipe in "default", "paper":
    index = irli.VectorIndex(recipe=irli.recipe(recipe, buckets=4, epochs=2, repetitions=2)).fit(X)
    print(index.search(X[:3], k=2).ids.shape)
for recipe in "labels", "paper-labels":
    Y = numpy.eye(5)[numpy.arange(300) % 5]
    index = irli.LabelIndex(recipe=irli.recipe(recipe, buckets=4, epochs=2)).fit(X, Y)
    print(index.predict(X[:3], k=2).labels.shape)
""")
    assert printed == "(3, 2)\n" * 4
    assert not (HEAVY - {"torch"}) & modules


# --- what is exported ---------------------------------------------------------------------------


def test_every_exported_name_resolves() -> None:
    found = {name: getattr(irli, name).__name__.rpartition(".")[2] for name in irli.__all__}
    assert found == {name: name for name in irli.__all__}
    assert list(found) == sorted(found)


def test_every_error_is_exported() -> None:
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.IrliError)
    }
    assert raised <= set(irli.__all__)
    assert all(getattr(irli, name) is getattr(errors, name) for name in raised)
    assert irli.errors is errors
    assert issubclass(irli.NotFitted, irli.IrliError)
    assert issubclass(irli.NotFitted, RuntimeError)


def test_dir_lists_what_there_is() -> None:
    listed = dir(irli)
    assert {*irli.__all__, *ROOMS, "__version__"} <= set(listed)
    assert listed == sorted(set(listed))
    assert all(hasattr(irli, name) for name in listed)


def test_rooms_and_exports_are_there_without_another_import() -> None:
    printed, _ = run("""
import irli
print(irli.base.__name__, irli.engine.__name__, irli.learning.__name__)
print(irli.vectors.__name__, irli.labels.Names.__module__, irli.cluster.ShardedIndex.__module__)
from irli import *
print(VectorIndex.__module__, load.__module__, NotFitted.__module__, errors.__name__)
""")
    assert printed.splitlines() == [
        "irli.base irli.engine irli.learning",
        "irli.vectors irli.labels.text.vectorizer irli.cluster.index",
        "irli.vectors.index irli.loading irli.errors irli.errors",
    ]


def test_the_names_of_vectors_resolve() -> None:
    found = {name: getattr(irli.vectors, name).__name__ for name in irli.vectors.__all__}
    assert found == {name: name for name in irli.vectors.__all__}
    assert set(found) <= set(dir(irli.vectors))
    with pytest.raises(AttributeError, match=r"module 'irli\.vectors' has no attribute 'nothing'"):
        irli.vectors.nothing  # noqa: B018


def test_other_names_are_not_there() -> None:
    assert not hasattr(irli, "nothing")
    with pytest.raises(AttributeError, match="module 'irli' has no attribute 'VectorIndexes'"):
        irli.VectorIndexes  # noqa: B018


# --- packages that are not installed ------------------------------------------------------------


def read_hdf5(folder: Path) -> Any:
    path = folder / "x.hdf5"
    path.write_bytes(b"")
    return irli.vectors.read_vectors(path)


def fit_on_a_gpu(folder: Path) -> Any:
    return irli.VectorIndex(recipe="default").fit(np.eye(20), device="cuda")


def fit_on_ray(folder: Path) -> Any:
    return irli.cluster.ShardedIndex(shards=2, ray="auto").fit(np.eye(20))


def read_from_a_store(folder: Path) -> Any:
    return irli.cluster.ShardedIndex(shards=2).fit("s3://nowhere/x.npy")


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("h5py", "hdf5", read_hdf5),
        ("torch", "torch", fit_on_a_gpu),
        ("ray", "cluster", fit_on_ray),
        ("fsspec", "cluster", read_from_a_store),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, extra: str, use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(irli.MissingDependency) as caught:
        use(tmp_path)
    assert package in str(caught.value)
    assert f"pip install 'irli[{extra}]'" in str(caught.value)
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize(
    ("told", "outcome"), [("unable to import module x", "failed"), ("", "skipped")]
)
def test_a_test_module_that_cannot_be_imported_fails(told: str, outcome: str) -> None:
    """It would vanish otherwise: looking for examples in docstrings passes it over."""
    hook = pytest_make_collect_report()
    next(hook)
    report = pytest.CollectReport("tests/test_x.py", "skipped", ("test_x.py", 1, told), [])
    with pytest.raises(StopIteration) as ended:
        hook.send(report)
    assert ended.value.value.outcome == outcome
