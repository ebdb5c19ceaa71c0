"""What stands beside the rooms: `irli.load` and `irli.show_versions`."""

from __future__ import annotations

import platform
import re
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import irli
from irli import _native, versions
from irli.base.folder import Folder, write_folder

FOLDERS = Path(__file__).parents[1] / "data" / "format-1"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("codes", "irli.vectors.index.VectorIndex"),
        ("texts", "irli.labels.index.LabelIndex"),
        ("shards", "irli.cluster.index.ShardedIndex"),
        ("label-shards", "irli.cluster.label_index.ShardedLabelIndex"),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_load_opens_every_kind(name: str, kind: str, as_text: bool) -> None:
    path = FOLDERS / name
    index = irli.load(str(path) if as_text else path)
    assert f"{type(index).__module__}.{type(index).__name__}" == kind


def test_load_refuses_kinds_of_the_future(tmp_path: Path) -> None:
    write_folder(tmp_path, Folder("graphs", {}, {"ids": np.arange(3)}, {}))
    with pytest.raises(irli.FormatError, match=r"of kind 'graphs' instead\. Install a newer irli"):
        irli.load(tmp_path)


def test_load_says_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(irli.FormatError, match="There is no index at"):
        irli.load(tmp_path / "nowhere")


def test_show_versions_prints_what_a_bug_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    irli.show_versions()
    printed = capsys.readouterr().out
    shown = dict(re.split(r"  +", line, maxsplit=1) for line in printed.splitlines())
    assert shown["irli"] == irli.__version__
    assert shown["python"] == platform.python_version()
    assert shown["numpy"] == metadata.version("numpy")
    assert shown["simd"] == _native.simd()
    assert {"system", "processor", "cores", "threads", "simd", "torch", "ray"} <= set(shown)
    assert all(shown.values())


def test_packages_that_are_missing_are_said_to_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_PACKAGES", ("numpy", "a-package-of-nobody"))
    irli.show_versions()
    assert re.search(r"^a-package-of-nobody  not installed$", capsys.readouterr().out, re.MULTILINE)
