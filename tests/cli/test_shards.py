"""The commands on an index in shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import Runner, refused
from contract import same
from planted import clusters

import irli
from irli.cli.console import keep_checkpoint
from irli.cluster import ShardedIndex, ShardedLabelIndex

QUICK = ("--set", "epochs=1", "--set", "epoch_size=256", "--threads", "1", "--quiet")
X = clusters(n_per=12, centres=10, dim=6, spread=0.5, seed=1).points
IDS = 1000 + np.arange(len(X))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.save(tmp_path / "ids.npy", IDS)
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


def test_build_and_use(run: Runner, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    ids = tmp_path / "ids.npy"
    told = run("build", data, out, "--shards", 3, "--ids", ids, "--json", *QUICK).json
    assert (told["shards"], told["items"]) == (3, 120)
    assert not Path(f"{out}.partial").exists()
    index = irli.load(out)
    assert isinstance(index, ShardedIndex)
    np.testing.assert_array_equal(index.ids, IDS)

    found = run("search", out, data, "-k", 3, "--threads", -1, "--json").json
    assert found["ids"] == index.search(X, k=3).ids.tolist()
    np.save(tmp_path / "truth.npy", np.arange(120, dtype=np.int32)[:, None])
    rows = run(
        "eval", out, "--queries-file", data, "--truth", tmp_path / "truth.npy", "-k", 1,
        "--threshold", "0.0", "--json",
    ).json["results"]  # fmt: skip
    assert rows[0]["recall"] == 1.0
    computed = run("eval", out, "--queries-file", data, "--threshold", "0.0", "--json").json
    assert computed["truth_computed"]
    assert computed["results"][0]["recall"] == 1.0
    before = sorted(path.name for path in out.glob("part.*"))
    tuned = run("tune", out, "--recall", 0.8, "--json").json
    assert tuned["reached"]
    assert sorted(path.name for path in out.glob("part.*")) == before
    again = irli.load(out)
    assert again.defaults.threshold == tuned["parameters"]["threshold"]
    shown = run("info", out)
    assert "120 of 6 dimensions, l2, in 3 shards" in shown.out
    assert run("info", out, "--json").json["shards"] == 3


def test_a_part_of_a_file(run: Runner, data: Path, tmp_path: Path) -> None:
    run("build", data, tmp_path / "part", "--shards", 2, "--limit", 60, *QUICK)
    whole = irli.load(tmp_path / "part")
    local = ShardedIndex(recipe=irli.recipe(epochs=1, epoch_size=256), shards=2).fit(
        X[:60], threads=1
    )
    same(whole.search(X, k=3, probes=2), local.search(X, k=3, probes=2))


def test_refusals(run: Runner, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    refused(run("build", data, out, "--shards", 121, *QUICK), "'shards'", "120 items")
    zero = run("build", data, out, "--shards", 0, *QUICK)
    assert zero.code == 2
    assert "--shards" in zero.err
    refused(run("build", data, out, "--ray", "nowhere", *QUICK), "'ray' parameter")
    refused(run("build", data, out, "--shards", 2, "--workers", 2, *QUICK), "'workers'")
    near = tmp_path / "near.npy"
    np.save(near, np.zeros((120, 3), dtype=np.int64))
    for sharded in (["--shards", 2], ["--ray", "auto"]):
        ran = run("build", data, out, *sharded, "--neighbors", near, *QUICK)
        refused(ran, "--neighbors", "--shards or --ray", "near.npy")
    assert not out.exists()
    assert not Path(f"{out}.partial").exists()


def test_two_commands_cannot_build_one_index(run: Runner, data: Path, tmp_path: Path) -> None:
    with keep_checkpoint(tmp_path / "index"):
        refused(run("build", data, tmp_path / "index", *QUICK), "another command", "Wait until")
        assert run("build", data, tmp_path / "other", *QUICK).code == 0
    assert run("build", data, tmp_path / "index", *QUICK).code == 0
    assert not Path(f"{tmp_path / 'index'}.partial").exists()


LABEL_SHARDS = Path(__file__).parents[1] / "data" / "format-1" / "label-shards"


def test_info_of_labels_in_shards(run: Runner) -> None:
    shown = run("info", LABEL_SHARDS).out
    assert "9 labels with names, in 2 shards, from 120 rows of 67 features" in shown
    said = run("info", LABEL_SHARDS, "--json").json
    assert (said["kind"], said["shards"], said["items"]) == ("label-shards", 2, 9)


def test_label_shards_predict_and_are_judged(run: Runner, tmp_path: Path) -> None:
    rows, carried = np.eye(67, dtype=np.float32)[:12], np.arange(12)[:, None] % 9
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "labels.npy", carried)
    found = run("labels", "predict", LABEL_SHARDS, tmp_path / "rows.npy", "--json").json
    assert found["rows"] == 12
    files = (tmp_path / "rows.npy", tmp_path / "labels.npy")
    assert 0 <= run("labels", "eval", LABEL_SHARDS, *files, "--json").json["PSP@1"] <= 1
    refused(run("search", LABEL_SHARDS, files[0]), "kind 'label-shards'", "irli labels predict")


TEXTS = [f"the {pet} {verb}" for pet in ("cat", "dog", "cow") for verb in ("eats", "naps")] * 4


def test_labels_in_shards(run: Runner, tmp_path: Path) -> None:
    lines = [f"{text}\t<http://pets.org/{text.split()[1]}>\n" for text in TEXTS]
    texts, out = tmp_path / "texts.tsv", tmp_path / "index"
    texts.write_text("".join(lines))
    (tmp_path / "pets.tsv").write_text("<http://pets.org/cat>\tFelis catus\n")
    more = ("--shards", 2, "--titles", tmp_path / "pets.tsv", "--json", "--threads", 1)
    told = run("labels", "fit", texts, "--out", out, *more).json
    assert (told["shards"], told["items"], told["rows"], told["text"]) == (2, 3, 24, True)
    assert not Path(f"{out}.partial").exists()
    index = irli.load(out)
    assert isinstance(index, ShardedLabelIndex)

    found = run("labels", "predict", out, texts, "-k", 1, "--json").json
    wanted = [[name for name, _ in row] for row in index.predict_text(TEXTS, 1)]
    assert found["labels"] == wanted
    assert found["titles"][0] == ["Felis catus"]
    assert run("labels", "eval", out, texts, "--json").json["P@1"] == 1.0
    shown = run("labels", "explain", out, "the cat", "-k", 1).out
    assert "Felis catus" in shown
    assert "cat +" in shown
    assert "3 labels with names, in 2 shards, from 24 texts" in run("info", out).out
    refused(
        run("labels", "predict", out, texts, "--no-ranker"), "--no-ranker", "an index in shards"
    )
    refused(
        run("labels", "fit", texts, "--out", out, *more, "--ranker"), "--ranker", "with --shards"
    )


def test_queries_in_a_file_are_read_by_the_steps(
    run: Runner, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten million of them need not pass through the process that asks for the build."""
    given = []
    fit = ShardedIndex.fit

    def watch(self: ShardedIndex, X: object, **options: object) -> ShardedIndex:
        given.append((X, options["queries"]))
        return fit(self, X, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ShardedIndex, "fit", watch)
    queries = tmp_path / "queries.npy"
    np.save(queries, X[:40] + 0.1)
    out = tmp_path / "index"
    run("build", data, out, "--shards", 2, "--queries", queries, *QUICK)
    assert given == [(str(data), str(queries))]
    assert irli.load(out).stats()["items"] == 120
