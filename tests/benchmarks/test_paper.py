"""Parts of the reproduction on planted data, and the page that collects them."""

from __future__ import annotations

import dataclasses
import doctest
import json
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import DOCS, ROOT, section, table

pytest.importorskip("bench", reason="the benchmarks are not part of this distribution")
pytest.importorskip("faiss")
pytest.importorskip("h5py")
pytest.importorskip("torch")

import h5py
from bench.paper import (
    affinity,
    candidates,
    distributed,
    epochs,
    labels,
    loads,
    part,
    report,
    trial,
)
from bench.paper.baselines.methods import Planned
from bench.paper.baselines.partition import Asked
from bench.paper.loads import bound_load, draw_largest
from bench.paper.report import fill_page, list_parts, read_claims
from bench.paper.trial import Probed, Sample, draw_sample, find_best_buckets, recall_by_candidates

import irli
from irli.labels.files.rows import read_rows, write_rows
from irli.learning.partition import Partition

RESULTS = ROOT / "benchmarks" / "results" / "paper"
CLAIM = {
    "claim": "a | b",
    "paper": "1",
    "ours": "2",
    "verdict": "holds",
    "command": "benchmarks/paper.py loads",
}


@pytest.mark.parametrize("module", [epochs, loads, part, report, trial])
def test_examples(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


# --- searching by votes --------------------------------------------------------------------------


def make_sample(items: int = 40) -> Sample:
    """Items on a half circle, and a query at its start: item i is the i-th nearest."""
    angle = np.linspace(0, np.pi, items, endpoint=False)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    return Sample(points, points[:1])


def probe(buckets: list[int], assignment: np.ndarray) -> Probed:
    return Probed(np.array([buckets]), np.ones((1, len(buckets)), np.float32), assignment)


def test_the_true_neighbours_are_the_nearest() -> None:
    [truth] = make_sample().truth
    assert sorted(truth[truth >= 0]) == list(range(10))


def write_glove(data: Path) -> None:
    """Write GloVe-100, tiny, where the page says that it should be."""
    rng = np.random.default_rng(0)
    (data / "glove-100").mkdir()
    with h5py.File(data / "glove-100" / "glove-100-angular.hdf5", "w") as file:
        file.attrs["distance"] = "angular"
        file["train"] = rng.normal(size=(30, 4)).astype(np.float32)
        file["test"] = rng.normal(size=(5, 4)).astype(np.float32)
        file["neighbors"] = np.zeros((5, 10), dtype=np.int32)
        file["distances"] = np.zeros((5, 10), dtype=np.float32)


def test_the_full_scale_reads_the_files_of_the_paper(tmp_path: Path) -> None:
    write_glove(tmp_path)
    options = Namespace(scale="full", data=tmp_path, smoke=False)
    sample = draw_sample(options, count=30)
    assert (sample.items.shape, sample.queries.shape) == ((30, 4), (5, 4))
    size = dataclasses.replace(candidates.SIZES["full"], held=2, asked=3)
    data, asked = candidates.read_data(options, size)
    assert (data.items.shape, data.held.vectors.shape) == ((30, 4), (2, 4))
    assert (asked.vectors.shape, data.metric) == ((3, 4), "cosine")


def test_candidates_are_learned_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both recipes; a device without memory stands in for a GPU, and says who uses it."""
    monkeypatch.setattr(candidates, "choose_device", lambda: "meta")
    options = Namespace(results=tmp_path, scale="small", smoke=True, workers=1)
    items = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    asked = Asked(items[:5], np.zeros((5, 20), np.int64), np.ones((5, 20), bool))
    data = Planned(items, asked, "l2", 4, 1, (8,))
    paper = irli.recipe("paper", repetitions=1, buckets=8, choices=4, hidden=8, neighbors=5)
    cells = part.Cells(tmp_path / "cells.json")
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        candidates.measure_ours(options, "candidates", cells, data, asked, paper, [0])


def test_at_the_full_scale_ray_runs_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side, on the device, and queries are read by those who learn from them."""
    made = {}

    class Sharded:
        def __init__(self, **settings: Any) -> None:
            made.update(settings)
            self.recipe = settings["recipe"]

        def fit(self, path: str, **given: Any) -> None:
            made.update(given)
            given["checkpoint"].mkdir()

        def explain(self, queries: np.ndarray, k: int, **_: Any) -> Namespace:
            return Namespace(candidates=np.ones(len(queries)))

        def search(self, queries: np.ndarray, k: int, **_: Any) -> Namespace:
            return Namespace(ids=np.zeros((len(queries), k), np.int64))

        def close(self) -> None: ...

    monkeypatch.setattr(distributed, "ShardedIndex", Sharded)
    monkeypatch.setattr(distributed, "choose_device", lambda: "cuda")
    queries, truth = np.zeros((3, 2), np.float32), np.zeros((3, 10), np.int64)
    learn, recipe = str(tmp_path / "learn.fbin"), irli.recipe("paper-deep")
    given = tmp_path / "base.fbin", learn, queries, truth, recipe, 8, tmp_path / "kept"
    points = distributed._measure_irli(*given, ray="auto")
    assert len(points) == len(distributed.PROBES)
    assert (made["ray"], made["shards"], made["device"]) == ("auto", 8, "cuda")
    assert made["queries"] == learn


def test_ties_are_true_neighbours() -> None:
    sample = make_sample()
    doubled = Sample(np.concatenate([sample.items, sample.items[9:10]]), sample.queries)
    [truth] = doubled.truth
    assert sorted(truth[truth >= 0]) == [*range(10), 40]
    everything = probe([0], np.zeros(41, dtype=np.int64))
    assert recall_by_candidates(doubled, [everything], 1, [41]) == [1.0]


def test_items_with_more_votes_are_compared_first() -> None:
    sample = make_sample()
    tens = np.arange(40) // 10  # bucket 0 holds the ten nearest
    votes = [probe([0, 1], tens), probe([0, 2], tens)]
    assert recall_by_candidates(sample, votes, 4, [5, 10, 20]) == [0.5, 1.0, 1.0]


def test_chance_decides_between_equal_votes() -> None:
    sample = make_sample()
    halves = np.arange(40) // 20  # twenty items with one vote each, ten of them true
    assert recall_by_candidates(sample, [probe([0], halves)], 2, [10, 20]) == [0.5, 1.0]


def test_an_item_in_no_probed_bucket_is_never_compared() -> None:
    fives = np.arange(40) // 5
    assert recall_by_candidates(make_sample(), [probe([0], fives)], 8, [40]) == [0.5]


SAMPLE = make_sample()  # its true neighbours are computed once


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), repetitions=st.integers(1, 4), probes=st.integers(1, 5))
def test_recall_grows_up_to_what_was_probed(seed: int, repetitions: int, probes: int) -> None:
    rng = np.random.default_rng(seed)
    named = [list(rng.permutation(5)[:probes]) for _ in range(repetitions)]
    votes = [probe(buckets, rng.integers(5, size=40)) for buckets in named]
    recalls = recall_by_candidates(SAMPLE, votes, 5, range(41))
    found = np.any([np.isin(each.assignment[:10], each.buckets) for each in votes], axis=0)
    assert recalls[0] == 0
    assert recalls[-1] == pytest.approx(found.mean())
    assert (np.diff(recalls) >= -1e-12).all()


def test_the_best_buckets_come_first() -> None:
    scores = np.random.default_rng(0).random((5, 20))
    best = find_best_buckets(scores, 20)
    assert (np.diff(np.take_along_axis(scores, best, axis=1)) <= 0).all()


# --- loads ---------------------------------------------------------------------------------------


def test_more_choices_lower_the_largest_load() -> None:
    largest = [draw_largest(6000, 100, choices, seed=0) for choices in (1, 2, 10)]
    assert largest[0] > largest[1] >= largest[2] >= 60
    assert largest[2] < bound_load(6000, 100, 10)


def test_the_bound_falls_with_the_choices() -> None:
    bounds = [bound_load(60_000, 1000, choices) for choices in (7, 10, 25, 100)]
    assert bounds == sorted(bounds, reverse=True)


# --- recall against candidates -------------------------------------------------------------------


class Scripted:
    """An index that reads more the lower the threshold is. Codes find all answers that it read."""

    def explain(self, queries: np.ndarray, k: int, threshold: float, **_: Any) -> Namespace:
        read = round(1 / threshold)
        return Namespace(
            ids=np.arange(min(read, k))[None, :],
            candidates=np.array([20]),
            scanned=np.array([read]),
            router_multiplications=7,
        )


def test_with_codes_what_is_read_counts() -> None:
    asked = Asked(np.zeros((1, 2), np.float32), np.arange(10)[None, :], np.ones((1, 10), bool))
    sweep = [{"threshold": cut, "score": "codes"} for cut in (0.01, 0.1, 0.125, 0.2)]
    points = candidates.draw_index(Scripted(), asked, asked, [sweep])  # type: ignore[arg-type]
    assert [(point["recall"], point["read"]) for point in points] == [(0.5, 5), (0.8, 8), (1.0, 10)]


def test_costs_at_a_recall_where_candidates_are_equal() -> None:
    points = [{"recall": r, "candidates": 20.0, "read": 1000 * r} for r in (0.5, 0.8, 1.0)]
    assert candidates._cost(points, 0.9, "read") == pytest.approx(900)
    assert candidates._cost(points, 0.9, "candidates") == pytest.approx(20)


def test_shards_compare_all_that_the_probed_buckets_hold() -> None:
    """Whatever `tune` chose: it may leave out what only one repetition finds."""
    rows = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    recipe = irli.recipe("paper", repetitions=3, buckets=10, hidden=16, neighbors=10, epochs=2)
    index = irli.VectorIndex(recipe=recipe).fit(rows, threads=1)
    index.defaults = dataclasses.replace(index.defaults, min_votes=2)
    told = index.explain(rows[:20], 10, **distributed._search_all(index.recipe, 4))
    wide = index.explain(rows[:20], 10, probes=4, score="votes", min_votes=1)
    np.testing.assert_array_equal(told.candidates, wide.candidates)
    assert (told.candidates > 100).all()


# --- what is kept, and verdicts ------------------------------------------------------------------


def test_a_part_that_was_stopped_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "loads.json"
    cells = part.Cells(path, {"items": 10})
    cells.measure("first", lambda: {"std": 3.0})
    with pytest.raises(KeyboardInterrupt):
        cells.measure("second", _interrupt)
    again = part.Cells(path, {"items": 10})
    assert again.measure("first", _interrupt) == {"std": 3.0}
    assert again.measure("second", lambda: [1, 2]) == [1, 2]
    assert set(again.seconds) == {"first", "second"}
    assert part.Cells(path, {"items": 11}).measured == {}


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_cells_without_their_time_are_read(tmp_path: Path) -> None:
    path = tmp_path / "loads.json"
    path.write_text(json.dumps({"settings": {}, "cells": {"first": 1}}))
    assert part.Cells(path).measure("first", _interrupt) == 1


def test_the_page_says_how_long_a_part_took(tmp_path: Path) -> None:
    """Not if some of its cells have no time: the sum would be too small."""
    folder = tmp_path / "small"
    folder.mkdir()
    for name, seconds in {"loads": {"a": 60.0, "b": 120.0}, "sift": {"a": 60.0}}.items():
        (folder / f"{name}.md").write_text("text")
        (folder / f"{name}.claims.json").write_text("[]")
        kept = {"settings": {}, "cells": {"a": 1, "b": 1}, "cpu_seconds": seconds}
        (folder / f"{name}.json").write_text(json.dumps(kept))
    page = fill_page("", tmp_path)
    assert "| loads | 3 |" in page
    assert "| sift |" not in page


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        ((0.9, 0.81, 0.9**4, 0.9**8), "holds"),
        ((0.84, 0.7, 0.52, 0.35), "holds in part"),
        ((0.8, 0.4, 0.2, 0.1), "does not hold here"),
    ],
)
def test_an_error_that_falls_exponentially(errors: tuple[float, ...], verdict: str) -> None:
    missed = {str(2**i): [error] for i, error in enumerate(errors)}
    assert epochs.judge_union(missed).verdict == verdict


def make_figures(p: float, batch: float, single: float) -> list[dict[str, float]]:
    each = {"batch_ms": batch, "single_ms": single}
    return [each | {f"{name}@{k}": p for name in ("P", "of possible") for k in (1, 3, 5)}]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (((1.0, 1.0), (0.5, 1.0)), "holds"),
        (((1.0, 9.0), (0.5, 1.0)), "holds in part"),
        (((1.0, 1.0), (6.0, 6.0)), "does not hold here"),
    ],
)
def test_five_times_faster_than_parabel(
    ours: tuple[tuple[float, float], ...], verdict: str
) -> None:
    found = {
        name: {labels.PARABEL: make_figures(0.5, 5.0, 5.0), "ours": make_figures(0.5, *times)}
        for name, times in zip("ab", ours, strict=True)
    }
    assert labels._compare_speed(found, "ours").verdict == verdict


@pytest.mark.parametrize(
    ("route", "verdict"), [(0.5, "holds"), (2.0, "holds in part"), (46.0, "does not hold here")]
)
def test_small_networks_do_not_speak_for_those_of_the_paper(route: float, verdict: str) -> None:
    """Its Parabel takes 2.94 milliseconds at most."""
    found = {
        name: {labels.PARABEL: make_figures(0.5, 5.0, 5.0), "ours": make_figures(0.5, 1.0, 1.0)}
        for name in "ab"
    }
    assert labels._compare_speed(found, "ours", route).verdict == verdict


def test_loads_of_labels_stand_beside_k() -> None:
    even = {"load_std": 0.5, "load_mean": 25.0, "load_max_over_mean": 1.04, "P@1": 66.0}
    uneven = even | {"load_std": 20.0, "load_max_over_mean": 2.4}
    found = {"paper-labels": {"10": [even]}, "paper-labels-sigmoid": {"10": [uneven]}}
    lines = labels._tabulate_balance("a", found)
    assert "| IRLI | 10 | 0.5 | 2% | 1.04 | 66.0 |" in lines
    assert "| IRLI with sigmoids | 10 | 20.0 | 80% | 2.40 | 66.0 |" in lines
    assert "deviation of about 5.0" in lines[0]
    assert labels._tabulate_balance("a", {}) == []


def test_lemma_1_is_judged_by_what_it_says() -> None:
    assert loads.judge_lemma({"1": (2.0, 2.0), "5": (1.0, 1.05)}).verdict == "holds"
    assert loads.judge_lemma({"1": (2.0, 4.0), "5": (1.0, 1.0)}).verdict == "holds in part"
    assert loads.judge_lemma({"1": (1.0, 4.0), "5": (2.0, 1.0)}).verdict == "does not hold here"
    same = loads.measure_lemma(loads.LEMMA_BUCKETS, draws=50)  # all buckets, each time
    assert same[0] == pytest.approx(0, abs=1e-12)


def test_what_was_not_measured_is_planned() -> None:
    points = [{"probes": m, "recall": 0.9, "ms": 1.0, "read": 3600.0 * m} for m in (1, 5, 20)]
    answer = distributed._plan_candidates([points], items=200_000, buckets=200)
    assert answer.verdict == "planned"
    assert "20K entries, of which 90% are distinct here; 400K" in answer.ours
    assert "659 million" in distributed._count_parameters().ours


def test_the_affinity_of_an_item_is_that_of_its_own_bucket() -> None:
    """A network whose logits are the inputs themselves."""
    items = np.array([[2.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    learner = Namespace(
        device="cpu",
        recipe=Namespace(loss="sigmoid-bce"),
        network=Namespace(score=lambda queries, head: queries),
    )
    own, other = (Partition(2, np.array(each, np.int32)[:, None]) for each in ([0, 1], [1, 0]))
    found = [affinity.measure_own(learner, items, each) for each in (own, other)]  # type: ignore[arg-type]
    assert found == pytest.approx([(0.880797 + 0.731059) / 2, 0.5])


def test_a_learning_rate_is_chosen_on_training_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row has its number as its label, and as a feature."""
    numbers = sp.csr_array(np.diag(np.arange(1.0, 41.0)))
    write_rows(tmp_path / "train.txt", numbers, numbers)

    def run(rest: Path, held: Path, threads: int, recipe: dict[str, Any], ways: Any) -> Any:
        known, asked = (read_rows(path).labels for path in (rest, held))
        assert (known.shape[0], asked.shape[0]) == (36, 4)
        assert not set(known.nonzero()[1]) & set(asked.nonzero()[1])
        right = asked.nonzero()[1][:, None]
        return [{"predictions": right if recipe["learning_rate"] == 0.01 else right + 1}]

    monkeypatch.setattr(labels, "run_ours", run)
    found = labels._try_rates(tmp_path / "train.txt", {"repetitions": 8})
    assert found["0.01"] == 1 > found["0.001"]


@pytest.mark.parametrize(
    ("seconds", "shown"), [((4.0, 8.0), "6"), ((None, 8.0), "8"), ((None, None), "")]
)
def test_training_that_went_on_has_no_time(seconds: tuple[float | None, ...], shown: str) -> None:
    [figures] = make_figures(30.0, 1.0, 1.0)
    runs = [{**figures, "train_cpu_seconds": each} for each in seconds]
    lines = labels._write_lines({"a": {"ours": runs}}, {"a": {}}, {"a": {}}, {"a": labels.SMOKE})
    [row] = [line for line in lines if line.startswith("| ours ")]
    assert row.strip("|").split("|")[-1].strip() == shown


def test_a_method_may_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured of it before is shown."""
    write_rows(tmp_path / "train.txt", sp.eye_array(4).tocsr(), sp.eye_array(4).tocsr())
    options = Namespace(smoke=True, scale="small", without=["default"], results=tmp_path)
    calls = []

    def run(method: str, *_: Any) -> list[dict[str, Any]]:
        calls.append(method)
        taken = {"train_cpu_seconds": 1.0, "batch_ms": 1.0, "single_ms": 1.0}
        return [{"method": method, "predictions": np.zeros((4, 5), np.int64), **taken}]

    @contextmanager
    def prepare(*_: Any) -> Iterator[tuple[Path, Path]]:
        yield tmp_path / "train.txt", tmp_path / "train.txt"

    monkeypatch.setattr(labels, "_prepare", prepare)
    monkeypatch.setattr(labels, "_learn_on", lambda *given: run("paper", *given))
    monkeypatch.setattr(labels, "_run_irli", lambda *given: run("default", *given))
    monkeypatch.setattr(labels, "_run_mach", lambda *given: run("MACH", *given))
    monkeypatch.setattr(labels, "PEERS", {})
    monkeypatch.setattr(labels, "list_packages", lambda python: {})
    cells = part.Cells(tmp_path / "labels.json")
    assert list(labels._measure_set(options, cells, "a", range(1))) == ["paper", "MACH"]
    options.without = []
    assert list(labels._measure_set(options, cells, "a", range(1))) == ["paper", "default", "MACH"]
    options.without = ["default"]
    found = labels._measure_set(options, cells, "a", range(2))
    assert {method: len(runs) for method, runs in found.items()} == {
        "paper": 4,  # two losses
        "default": 1,
        "MACH": 2,
    }
    assert calls == ["paper", "paper", "MACH", "default", "paper", "paper", "MACH"]
    monkeypatch.setattr(labels, "PEERS", {"omikuji-parabel": labels.PARABEL})
    assert labels.PARABEL not in labels._measure_set(options, cells, "a", range(2))
    cells.measure("a, omikuji-parabel", lambda: [{"method": labels.PARABEL}])
    assert labels.PARABEL in labels._measure_set(options, cells, "a", range(2))


def test_precision_is_compared_by_one_definition() -> None:
    ours = [{"P@5": 20.0, "of possible@5": 40.0}]
    found = {"a": {"ours": ours, labels.PARABEL: make_figures(30.0, 1.0, 1.0)}}
    answer = labels._compare_definitions(found, "ours")
    assert answer.verdict == "does not hold here"
    assert "ours would read 40.0" in answer.ours


@pytest.mark.parametrize(
    ("ms", "exact", "verdict"),
    [
        (0.4, 1.0, "holds"),  # FAISS takes .5 ms for its best recall
        (0.4, 0.3, "does not hold here"),  # comparing all items is faster than both
        (0.2, 0.3, "holds"),
        (0.7, 1.0, "holds in part"),
    ],
)
def test_no_time_counts_in_which_all_items_can_be_compared(
    ms: float, exact: float, verdict: str
) -> None:
    ours = [[{"recall": 0.5, "ms": 0.1, "read": 10}, {"recall": 0.99, "ms": ms, "read": 50}]]
    claim = distributed._compare_faiss("ours", ours, 0.8, 0.5, exact, 1000)
    assert claim.verdict == verdict


# --- the page ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "loads.md").write_text("Some loads.\n")
    (tmp_path / "small" / "loads.png").touch()
    (tmp_path / "small" / "loads.claims.json").write_text(json.dumps([CLAIM]))
    return tmp_path


def test_text_outside_of_the_places_is_kept(folder: Path) -> None:
    written = "# The paper\n\nBefore.\n\n<!-- loads -->\nstale\n<!-- end of loads -->\n\nAfter.\n"
    page = fill_page(written, folder)
    assert page.startswith("# The paper\n\nBefore.\n\n<!-- loads -->\n\nSome loads.\n")
    assert "![Plot of loads](pictures/paper-loads.png)\n\n<!-- end of loads -->\n\nAfter.\n" in page
    assert "stale" not in page
    assert fill_page(page, folder) == page


def test_a_part_without_a_place_gets_a_section(folder: Path) -> None:
    page = fill_page("# The paper\n", folder)
    assert "\n## Loads\n" in page
    assert r"| a \| b | 1 | 2 | **holds** | `benchmarks/paper.py loads` |" in page


def test_a_place_without_an_end_is_an_error(folder: Path) -> None:
    with pytest.raises(SystemExit, match="must have a line '<!-- end of loads -->'"):
        fill_page("# The paper\n\n<!-- loads -->\n\nBy hand.\n", folder)


def test_the_page_shows_the_results_that_are_kept() -> None:
    page = (DOCS / "paper.md").read_text(encoding="utf-8")
    assert page == fill_page(page, RESULTS), "Run: python benchmarks/paper.py report"


def test_every_claim_on_the_page_was_measured() -> None:
    rows = table(
        section(DOCS / "paper.md", "## Its claims"), "claim", "paper", "here", "verdict", "command"
    )
    measured = {(claim.claim, claim.ours, claim.verdict) for claim in read_claims(RESULTS)}
    shown = {(cells[0].replace(r"\|", "|"), cells[2], cells[3].strip("*")) for cells in rows}
    assert shown == measured


def test_every_plot_on_the_page_is_the_one_that_was_drawn() -> None:
    for scale, name in list_parts(RESULTS):
        drawn = RESULTS / scale / f"{name}.png"
        suffix = "" if scale == "small" else f"-{scale}"
        shown = DOCS / "pictures" / f"paper-{name}{suffix}.png"
        assert shown.read_bytes() == drawn.read_bytes(), "Run: python benchmarks/paper.py report"
