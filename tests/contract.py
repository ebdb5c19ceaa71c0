"""What every vector index promises, however it was made and wherever its arrays lie."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from planted import exact_distances, nearness

import irli
from irli import Deny, VectorIndex
from irli.cluster import ShardedIndex
from irli.vectors.parameters import SearchParameters
from irli.vectors.results import SearchResult

FEW = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


class Case(NamedTuple):
    """A fitted index with all that is needed to know its right answers."""

    index: VectorIndex | ShardedIndex
    original: VectorIndex | ShardedIndex | None  # of a loaded index: as it came out of fit
    X: NDArray[np.float32]
    ids: NDArray[np.int64]
    queries: NDArray[np.float32]
    metric: str
    bounded: bool  # whether the recipe promises a largest load
    shards: int = 1  # each of them has as many buckets as the recipe says
    changed: bool = False  # since it learned; then searches read removed entries, and skip them

    def everything(self) -> dict[str, Any]:
        """Arguments of a search that looks at every item."""
        return {"threshold": 0.0, "candidates": len(self.X), "min_votes": 1}

    def means(self, plan: dict[str, Any]) -> SearchParameters:
        """The parameters of a call. `tune` may have chosen the least votes."""
        return self.index.defaults.replace(**plan)

    def check_allowed(self, found: SearchResult, mask: NDArray[np.bool_]) -> None:
        """Only allowed items are found, and k of them unless they lack votes."""
        there = found.ids >= 0
        assert np.isin(found.ids[there], self.ids[mask]).all()
        assert there.all() or self.index.defaults.min_votes > 1

    def distances_of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """The exact distances of found ids (n, k), with padding as a search pads."""
        row_of = {int(id): row for row, id in enumerate(self.ids)}
        rows = np.array([[row_of.get(int(id), -1) for id in line] for line in ids])
        assert ((rows >= 0) == (ids >= 0)).all(), "an id came back that no item has"
        exact = exact_distances(self.queries[: len(ids)], self.X, self.metric)
        values = np.take_along_axis(exact, np.maximum(rows, 0), axis=1)
        return np.where(rows >= 0, values, -np.inf if self.metric == "ip" else np.inf)

    def true_distances(self, k: int, allowed: NDArray[np.bool_] | None = None) -> NDArray:
        """The distances of the right answer, nearest first, without padding."""
        exact = exact_distances(self.queries, self.X, self.metric)
        if allowed is not None:
            exact = exact[:, allowed]
        order = np.argsort(nearness(exact, self.metric), axis=1)[:, :k]
        return np.take_along_axis(exact, order, axis=1)

    def check_exact(self, found: Any, k: int, allowed: NDArray[np.bool_] | None = None) -> None:
        """The answer is the right one, whichever of equally near items it names."""
        right = self.true_distances(k, allowed)
        width = right.shape[1]
        close(found.distances[:, :width], right)
        close(self.distances_of(found.ids)[:, :width], right)
        assert (found.ids[:, width:] == -1).all()
        assert no_duplicates(found.ids)
        if allowed is not None:
            assert np.isin(found.ids[found.ids >= 0], self.ids[allowed]).all()

    def recall(self, found: Any, k: int) -> float:
        """Share of answers that are no farther than the true k-th."""
        last = nearness(self.true_distances(k), self.metric)[:, -1:]
        return float(
            (nearness(found.distances, self.metric) <= last + 1e-5 + 1e-5 * abs(last)).mean()
        )


def close(found: NDArray, right: NDArray) -> None:
    """Equal up to float32 sums."""
    np.testing.assert_allclose(found, right, rtol=2e-4, atol=2e-4)


def no_duplicates(ids: NDArray[np.int64]) -> bool:
    """Whether no row names an item twice."""
    return all(len(set(line[line >= 0])) == (line >= 0).sum() for line in ids)


def same(one: Any, other: Any) -> None:
    """Identical answers, to the bit."""
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.distances, other.distances)


PLANS: list[dict[str, Any]] = [
    {},
    {"probes": 1},
    {"probes": 5, "candidates": 12},
    {"threshold": 0.01},
    {"threshold": 1.0},
    {"probes": 4, "min_votes": 2},
    {"probes": 6, "candidates": 15, "score": "votes"},
    {"probes": 6, "candidates": 15, "score": "probability"},
    {"probes": 6, "candidates": 15, "score": "log-probability"},
    {"probes": 10_000},
    {"exact": True},
]


class VectorSmoke:
    """The least that any index does. Inherit, and provide a fixture `case`."""

    @pytest.mark.parametrize("k", [1, 10])
    def test_exhaustive_search_is_brute_force(self, case: Case, k: int) -> None:
        found = case.index.search(case.queries, k=k, **case.everything())
        case.check_exact(found, k)
        assert case.recall(found, k) == 1.0

    def test_default_parameters_find_nearly_all(self, case: Case) -> None:
        assert case.recall(case.index.search(case.queries, k=10), 10) >= 0.8

    def test_a_filter_lets_only_what_it_allows_through(self, case: Case) -> None:
        mask = np.random.default_rng(0).random(len(case.X)) < 0.5
        by_mask = case.index.search(case.queries, k=10, filter=mask)
        case.check_allowed(by_mask, mask)
        same(case.index.search(case.queries, k=10, filter=case.ids[mask]), by_mask)
        same(case.index.search(case.queries, k=10, filter=Deny(case.ids[~mask])), by_mask)
        whole = case.index.search(case.queries, k=10, filter=mask, **case.everything())
        case.check_exact(whole, 10, mask)

    def test_range_search_is_brute_force(self, case: Case) -> None:
        exact = exact_distances(case.queries, case.X, case.metric)
        radius = float(np.median(case.true_distances(30)[:, -1]))
        margin = 1e-3 * abs(radius)  # float32 may take either side
        turned, limit = nearness(exact, case.metric), nearness(np.float64(radius), case.metric)
        found = case.index.search_range(case.queries, radius, exact=True)
        assert found.lims.shape == (len(case.queries) + 1,)
        assert (found.counts >= (turned < limit - margin).sum(axis=1)).all()
        assert (found.counts <= (turned < limit + margin).sum(axis=1)).all()
        row_of = {int(id): row for row, id in enumerate(case.ids)}
        rows = [row_of[int(id)] for id in found.ids]
        query = np.repeat(np.arange(len(case.queries)), found.counts)
        close(found.distances, exact[query, rows])
        assert len({*zip(query, rows, strict=True)}) == len(rows)
        for part in found.split():
            assert (np.diff(nearness(part.distances, case.metric)) >= 0).all()
        usual = case.index.search_range(case.queries, radius)
        assert (usual.counts <= found.counts).all()
        if case.index.defaults.points:  # parameters for every k
            assert usual.counts.sum() >= 0.8 * found.counts.sum()

    def test_each_query_may_have_a_filter(self, case: Case) -> None:
        some, mask = case.ids[::3], np.arange(len(case.X)) % 2 == 0
        filters = [None, some, Deny(some), set(some.tolist()), mask, Deny(mask), range(10**7)]
        found = case.index.search(case.queries[:7], k=5, filter=filters)
        for query, filter in enumerate(filters):
            alone = case.index.search(case.queries[query], k=5, filter=filter)
            np.testing.assert_array_equal(found.ids[query], alone.ids)
            np.testing.assert_array_equal(found.distances[query], alone.distances)

    def test_each_query_may_have_any_parameters(self, case: Case) -> None:
        """Whatever else is asked for, each query has its own filter."""
        some, k = case.ids[::3], len(case.X) + 2
        filters = [None, some, Deny(some), [], case.index.allow(some)]
        for plan in ({"exact": True}, {"probes": 3, "min_votes": 2}, {"min_votes": 2}):
            found = case.index.search(case.queries[:5], k=k, filter=filters, **plan)
            assert found.ids.shape == (5, k)
            for query, filter in enumerate(filters):
                alone = case.index.search(case.queries[query], k=k, filter=filter, **plan)
                np.testing.assert_array_equal(found.ids[query], alone.ids)
            told = case.index.explain(case.queries[:5], k=k, filter=filters, **plan)
            np.testing.assert_array_equal(told.ids, found.ids)
        none = np.empty((0, len(case.X)), dtype=bool)
        assert case.index.search(case.queries[:0], k=3, filter=none).ids.shape == (0, 3)
        assert case.index.explain(case.queries[:0], k=3, filter=none).ids.shape == (0, 3)

    def test_a_prepared_filter_is_for_this_index_alone(self, case: Case) -> None:
        prepared = case.index.allow(case.ids[::2])
        found = case.index.search(case.queries, k=4, filter=prepared)
        same(found, case.index.search(case.queries, k=4, filter=case.ids[::2]))
        same(found, copy.copy(case.index).search(case.queries, k=4, filter=prepared))
        for X in (case.X[:-1], case.X):
            other = VectorIndex(case.metric, recipe="exact").fit(X).allow([1])
            for filter in (other, Deny(other), [other] * len(case.queries)):
                with pytest.raises(irli.InvalidParameter, match="prepared for this index of"):
                    case.index.search(case.queries, k=4, filter=filter)
                with pytest.raises(irli.InvalidParameter, match="prepared for this index of"):
                    case.index.search_range(case.queries, 1.0, filter=filter)

    def test_a_mask_of_integers_is_refused(self, case: Case) -> None:
        mask = (np.arange(len(case.X)) % 2).astype(np.uint8)
        for filter in (mask, mask.tolist(), Deny(mask), [mask] * len(case.queries)):
            with pytest.raises(irli.InvalidParameter, match=r"mask as filter.astype\(bool\)"):
                case.index.search(case.queries, k=4, filter=filter)

    def test_items_and_their_sizes(self, case: Case) -> None:
        index = case.index
        assert (index.ntotal, index.dim) == case.X.shape
        assert index.dtype == np.float32
        stored = case.X
        if case.metric == "cosine":
            stored = stored / np.linalg.norm(stored, axis=1, keepdims=True)
        close(index.vector(case.ids), stored)
        close(index.vector(int(case.ids[3])), stored[3])
        with pytest.raises(irli.InvalidParameter, match=f"Got {2**62}, which it does not have"):
            index.vector([case.ids[0], 2**62])

    def test_settings_are_cloned(self, case: Case) -> None:
        index = case.index
        copied = type(index)(**index.get_params())
        assert copied.get_params() == index.get_params()
        assert copied.metric == index.metric
        nothing = "0 items" if index.get_params().get("dim") else "not fitted"
        assert nothing in repr(copied)
        assert nothing in copied._repr_html_() or case.changed
        assert case.metric in index._repr_html_()

    def test_explain_names_what_search_finds(self, case: Case) -> None:
        found = case.index.search(case.queries, k=6)
        told = case.index.explain(case.queries, k=6)
        np.testing.assert_array_equal(told.ids, found.ids)
        assert (told.candidates >= found.counts).all()
        assert list(told.seconds) == ["route", "scan", "select", "rerank"]

    def test_save_again_and_load(self, case: Case, tmp_path: Path) -> None:
        case.index.save(tmp_path / "again")
        for mmap in (True, False):
            again = irli.load(tmp_path / "again", mmap=mmap)
            same(again.search(case.queries, k=8), case.index.search(case.queries, k=8))
            stats, others = case.index.stats(), again.stats()
            if case.changed:  # then it is packed
                for name in ("entries", "bytes", "bytes_vectors", "bytes_codes"):
                    assert others.pop(name) <= stats.pop(name)
            assert others == stats
            assert again.history == case.index.history

    def test_len_contains_repr(self, case: Case) -> None:
        assert len(case.index) == len(case.X)
        assert bool(case.index)
        np.testing.assert_array_equal(case.index.ids, case.ids)
        assert int(case.ids[0]) in case.index
        assert case.ids[-1] in case.index
        for stranger in (-1, 2**62, 2**70, "a", None, 0.5):
            assert stranger not in case.index
        text = repr(case.index)
        assert text.startswith(f"{type(case.index).__name__}(metric={case.metric!r}")
        assert f"{len(case.X)} items" in text


class LoadedContract:
    """A loaded index is the one that was saved. Inherit, and provide a fixture `case`."""

    def test_answers_are_those_of_the_original(self, case: Case) -> None:
        assert case.original is not None
        assert case.index is not case.original
        for plan in PLANS:
            same(
                case.index.search(case.queries, k=8, **plan),
                case.original.search(case.queries, k=8, **plan),
            )

    def test_it_is_told_of_as_the_original(self, case: Case) -> None:
        assert case.original is not None
        assert case.index is not case.original
        assert case.index.defaults == case.original.defaults
        assert case.index.recipe == case.original.recipe
        assert case.index.history == case.original.history
        assert case.index.stats() == case.original.stats()
        for part, right in zip(case.index.loads(), case.original.loads(), strict=True):
            np.testing.assert_array_equal(part, right)


class VectorContract(VectorSmoke):
    """All that an index promises. Inherit, and provide a fixture `case`."""

    # --- shapes and values -----------------------------------------------------------------------

    @pytest.mark.parametrize("plan", PLANS, ids=str)
    def test_batch_equals_one_by_one(self, case: Case, plan: dict[str, Any]) -> None:
        batch = case.index.search(case.queries, k=7, **plan)
        for i, query in enumerate(case.queries[:11]):
            alone = case.index.search(query, k=7, **plan)
            assert alone.ids.shape == alone.distances.shape == (7,)
            np.testing.assert_array_equal(alone.ids, batch.ids[i])
            np.testing.assert_array_equal(alone.distances, batch.distances[i])
            row = case.index.search(query[None], k=7, **plan)
            np.testing.assert_array_equal(row.ids, alone.ids[None])
            np.testing.assert_array_equal(row.distances, alone.distances[None])

    @pytest.mark.parametrize(("count", "k"), [(0, 10), (1, 1), (7, 10), (8, 1), (9, 10), (37, 1)])
    def test_shapes_and_types(self, case: Case, count: int, k: int) -> None:
        found = case.index.search(case.queries[:count], k=k)
        assert found.ids.shape == found.distances.shape == (count, k)
        assert found.ids.dtype == np.int64
        assert found.distances.dtype == np.float32
        assert found.counts.shape == (count,)
        distances, ids = found
        assert distances is found.distances
        assert ids is found.ids

    @pytest.mark.parametrize("plan", PLANS, ids=str)
    def test_answers_are_sorted_exact_and_distinct(self, case: Case, plan: dict[str, Any]) -> None:
        found = case.index.search(case.queries, k=9, **plan)
        assert (found.counts >= 1).all() or case.means(plan).min_votes > 1
        assert no_duplicates(found.ids)
        turned = nearness(found.distances, case.metric)
        assert (turned[:, 1:] >= turned[:, :-1]).all()
        close(found.distances, case.distances_of(found.ids))

    def test_exact_search_is_brute_force(self, case: Case) -> None:
        for k in (1, 10, len(case.X), len(case.X) + 3):
            found = case.index.search(case.queries, k=k, exact=True)
            assert found.ids.shape == found.distances.shape == (len(case.queries), k)
            case.check_exact(found, k)
            worst = -np.inf if case.metric == "ip" else np.inf
            assert (found.distances[:, len(case.X) :] == worst).all()

    def test_more_k_than_items(self, case: Case) -> None:
        items = len(case.X)
        found = case.index.search(case.queries, k=items + 5)
        assert found.ids.shape == (len(case.queries), items + 5)
        assert (found.ids[:, items:] == -1).all()
        worst = -np.inf if case.metric == "ip" else np.inf
        assert (found.distances[:, items:] == worst).all()
        whole = case.index.search(case.queries, k=items + 5, **case.everything())
        assert (whole.counts == items).all()
        case.check_exact(whole, items)

    def test_more_probes_never_find_less(self, case: Case) -> None:
        buckets = case.index.stats()["buckets"]
        recalls = [
            case.recall(
                case.index.search(case.queries, k=10, probes=probes, candidates=len(case.X)), 10
            )
            for probes in [1, 2, 3, 5, 8, 12, buckets]
        ]
        assert recalls == sorted(recalls)
        assert recalls[-1] == 1.0

    def test_lower_threshold_never_finds_less(self, case: Case) -> None:
        recalls = [
            case.recall(
                case.index.search(case.queries, k=10, threshold=p, candidates=len(case.X)), 10
            )
            for p in [1.0, 0.3, 0.1, 0.01, 1e-4, 0.0]
        ]
        assert recalls == sorted(recalls)
        assert recalls[-1] == 1.0

    def test_min_votes_beyond_reach_is_an_empty_answer(self, case: Case) -> None:
        found = case.index.search(case.queries, k=3, min_votes=1000)
        assert (found.ids == -1).all()
        assert not np.isfinite(found.distances).any()

    # --- filters ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("plan", [{}, {"probes": 1}, {"threshold": 0.5}], ids=str)
    def test_filter_forms_agree(self, case: Case, plan: dict[str, Any]) -> None:
        rng = np.random.default_rng(0)
        mask = rng.random(len(case.X)) < 0.5
        by_mask = case.index.search(case.queries, k=10, filter=mask, **plan)
        case.check_allowed(by_mask, mask)
        close(by_mask.distances, case.distances_of(by_mask.ids))
        for other in (
            rng.permutation(case.ids[mask]),
            case.ids[mask].tolist(),
            np.concatenate([case.ids[mask]] * 2),
            np.append(case.ids[mask], [-1, -7, 2**62]),
            case.ids[mask].astype(np.uint64),
            mask.tolist(),
            Deny(case.ids[~mask]),
            Deny(np.append(case.ids[~mask], [-1, 2**62])),
            Deny(case.ids[~mask].tolist()),
        ):
            same(case.index.search(case.queries, k=10, filter=other, **plan), by_mask)

    @pytest.mark.parametrize("empty", [[], np.empty(0, dtype=np.int64), [-1], [2**62]], ids=str)
    def test_filter_without_items(self, case: Case, empty: Any) -> None:
        found = case.index.search(case.queries, k=4, filter=empty)
        assert (found.ids == -1).all()
        worst = -np.inf if case.metric == "ip" else np.inf
        assert (found.distances == worst).all()

    def test_filter_of_nothing(self, case: Case) -> None:
        plain = case.index.search(case.queries, k=4)
        every = case.index.search(case.queries, k=4, filter=Deny([]))
        same(case.index.search(case.queries, k=4, filter=case.ids), every)
        same(case.index.search(case.queries, k=4, filter=Deny([-1, 2**62])), every)
        # Few items are compared, so that nothing is missed.
        gained = nearness(every.distances, case.metric) <= nearness(plain.distances, case.metric)
        assert gained.all()
        none = case.index.search(case.queries, k=4, filter=Deny(case.ids))
        assert (none.ids == -1).all()

    @pytest.mark.parametrize("plan", [{}, {"probes": 1}, {"threshold": 1.0}], ids=str)
    @pytest.mark.parametrize("count", [1, 2, 7])
    def test_narrow_filter_returns_all_that_it_allows(
        self, case: Case, plan: dict[str, Any], count: int
    ) -> None:
        rows = np.random.default_rng(count).choice(len(case.X), count, replace=False)
        found = case.index.search(case.queries, k=10, filter=case.ids[rows], **plan)
        assert (found.counts == count).all()
        allowed = np.zeros(len(case.X), dtype=bool)
        allowed[rows] = True
        case.check_exact(found, 10, allowed)

    @FEW
    @given(seed=st.integers(0, 2**32 - 1), share=st.floats(0, 1), k=st.integers(1, 30))
    def test_exhaustive_search_with_any_filter(
        self, case: Case, seed: int, share: float, k: int
    ) -> None:
        mask = np.random.default_rng(seed).random(len(case.X)) < share
        found = case.index.search(case.queries, k=k, filter=mask, **case.everything())
        assert (found.counts == min(k, mask.sum())).all()
        case.check_exact(found, k, mask)

    @FEW
    @given(seed=st.integers(0, 2**32 - 1), share=st.floats(0, 1), k=st.integers(1, 30))
    def test_exact_search_with_any_filter(
        self, case: Case, seed: int, share: float, k: int
    ) -> None:
        mask = np.random.default_rng(seed).random(len(case.X)) < share
        found = case.index.search(case.queries, k=k, filter=mask, exact=True)
        assert (found.counts == min(k, mask.sum())).all()
        case.check_exact(found, k, mask)

    # --- threads ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("plan", PLANS[:4], ids=str)
    def test_threads_change_nothing(self, case: Case, plan: dict[str, Any]) -> None:
        many = np.tile(case.queries, (5, 1))
        one = case.index.search(many, k=5, threads=1, **plan)
        for threads in (2, 3, -1, None):
            same(case.index.search(many, k=5, threads=threads, **plan), one)

    def test_many_threads_at_once(self, case: Case) -> None:
        rng = np.random.default_rng(1)
        jobs: list[tuple[NDArray[np.float32], dict[str, Any]]] = []
        for j in range(64):
            rows = rng.choice(len(case.queries), int(rng.integers(1, 30)))
            filter = rng.random(len(case.X)) < 0.3 if j % 3 == 0 else None
            plan = {**PLANS[j % len(PLANS)], "filter": filter, "threads": 1 + j % 3}
            jobs.append((case.queries[rows], plan))
        alone = [case.index.search(q, k=6, **plan) for q, plan in jobs]
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda job: case.index.search(job[0], k=6, **job[1]), jobs))
        for one, other in zip(alone, together, strict=True):
            same(one, other)

    def test_explain_beside_searches(self, case: Case) -> None:
        alone = case.index.search(case.queries, k=6)
        with ThreadPoolExecutor(8) as pool:
            searches = [pool.submit(case.index.search, case.queries, 6) for _ in range(8)]
            reports = [pool.submit(case.index.explain, case.queries, 6) for _ in range(8)]
        for search in searches:
            same(search.result(), alone)
        for report in reports:
            np.testing.assert_array_equal(report.result().ids, alone.ids)

    # --- explain ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("plan", PLANS, ids=str)
    def test_explain_tells_what_search_does(self, case: Case, plan: dict[str, Any]) -> None:
        mask = np.random.default_rng(5).random(len(case.X)) < 0.6
        stats = case.index.stats()
        total = stats["repetitions"] * stats["buckets"]
        for filter in (None, mask):
            arguments = {**plan, "filter": filter}
            found = case.index.search(case.queries, k=6, threads=1, **arguments)
            told = case.index.explain(case.queries, k=6, **arguments)
            np.testing.assert_array_equal(told.ids, found.ids)
            assert told.probed.shape == told.scanned.shape == (len(case.queries),)
            assert told.votes.shape == found.ids.shape
            assert (((told.probed >= 1) | told.exact) & (told.probed <= total)).all()
            assert (told.candidates <= told.scanned).all()
            assert (told.scanned <= stats["entries"]).all()
            assert (told.candidates >= found.counts).all()
            if plan.get("candidates"):
                few = told.candidates <= case.shards * plan["candidates"]
                assert (few | told.exact).all()
            there = told.ids >= 0
            routed = there & ~told.exact[:, None]
            if case.shards == 1:  # or else some of them may have compared their few items
                assert (told.votes[routed] >= case.means(plan).min_votes).all()
            assert (told.votes[~routed] == 0).all()
            if plan.get("exact") and case.means(plan).by_distance:
                allowed = len(case.X) if filter is None else int(mask.sum())
                assert told.exact.all()
                assert (told.candidates == allowed).all()
            assert told.router_multiplications == stats["router_multiplications"] > 0
            assert set(told.seconds) == {"route", "scan", "select", "rerank"}
            for seconds in told.seconds.values():
                assert seconds.shape == (len(case.queries),)
                assert (seconds >= 0).all()

    def test_explain_of_an_exhaustive_search(self, case: Case) -> None:
        stats = case.index.stats()
        told = case.index.explain(case.queries, k=6, **case.everything())
        assert (told.probed == stats["repetitions"] * stats["buckets"]).all()
        assert (told.scanned == stats["entries"]).all()
        assert (told.candidates == len(case.X)).all()
        # Each entry is one vote; here all are read.
        per_item = stats["entries"] / len(case.X)
        if per_item == int(per_item):
            assert (told.votes == per_item).all()

    @pytest.mark.parametrize("probes", [1, 3])
    def test_explain_counts_the_loads_of_probed_buckets(self, case: Case, probes: int) -> None:
        # With k = 1 nothing is widened unless all probed buckets are empty.
        told = case.index.explain(case.queries, k=1, probes=probes)
        loads = case.index.loads()
        each = case.shards * probes
        read = case.index.stats()["entries"] - sum(int(part.sum()) for part in loads)
        most = sum(np.sort(part)[-each:].sum() for part in loads) + read
        least = sum(np.sort(part)[:each].sum() for part in loads)
        usual = told.probed == each * len(loads)
        assert usual.mean() > 0.9
        assert (told.scanned[usual] <= most).all()
        assert (told.scanned[usual] >= least).all()

    def test_explain_pads_like_search(self, case: Case) -> None:
        k = len(case.X) + 3
        told = case.index.explain(case.queries[:2], k=k)
        np.testing.assert_array_equal(told.ids, case.index.search(case.queries[:2], k=k).ids)

    # --- looking ---------------------------------------------------------------------------------

    def test_ids_come_back(self, case: Case) -> None:
        found = case.index.search(case.X, k=1, **case.everything())
        if case.metric != "ip":  # of itself an item is the nearest, or as near as its twin
            case_of_items = case._replace(queries=case.X)
            close(case_of_items.distances_of(found.ids), np.zeros((len(case.X), 1)))
            assert (found.ids[:, 0] == case.ids).mean() > 0.95
        assert np.isin(found.ids, case.ids).all()

    def test_stats_and_loads(self, case: Case) -> None:
        stats, loads = case.index.stats(), case.index.loads()
        recipe = case.index.recipe
        assert stats["items"] == len(case.X)
        assert stats["dim"] == case.X.shape[1]
        assert stats["metric"] == case.metric
        assert stats["repetitions"] == recipe.repetitions == len(loads)
        assert stats["buckets"] == case.shards * recipe.buckets
        assert all(len(part) == stats["buckets"] for part in loads)
        entries = sum(int(part.sum()) for part in loads)
        assert entries == stats["entries"] or (case.changed and entries < stats["entries"])
        assert stats["bytes"] > stats["bytes_vectors"] >= 4 * case.X.size
        for part, summary in zip(loads, stats["loads"], strict=True):
            assert summary["max"] == part.max()
            # Every item is in each repetition, and in no bucket twice. In the first repetition, an
            # item that missed itself has one bucket more.
            usual = len(case.X) * recipe.buckets_per_item
            mended = max(0, int(part.sum()) - usual) if recipe.self_hits else 0
            assert len(case.X) <= part.sum() <= usual + mended
            assert mended <= 0.1 * len(case.X)
            if case.bounded:
                entries = -(-len(case.X) // case.shards) * recipe.buckets_per_item
                assert part.max() <= np.ceil(recipe.slack * entries / recipe.buckets) + mended

    def test_history(self, case: Case) -> None:
        history = case.index.history
        repetitions = set(range(case.index.recipe.repetitions))
        assert {entry["repetition"] for entry in history} == repetitions
        for entry in history:
            assert 0 <= entry["recall"] <= 1
            assert np.isfinite(entry["loss"])

    # --- files, and what stays untouched ---------------------------------------------------------

    def test_tuning_sets_the_defaults(self, case: Case) -> None:
        index = copy.copy(case.index)  # shares the arrays, has its own defaults
        tuned = index.tune(recall=0.8)
        assert tuned.reached
        assert index.defaults == tuned.parameters

    def test_searching_changes_no_argument(self, case: Case) -> None:
        queries, mask = case.queries.copy(), np.ones(len(case.X), dtype=bool)
        ids = case.ids.copy()
        case.index.search(queries, k=5, filter=mask)
        case.index.search(queries, k=5, filter=ids)
        np.testing.assert_array_equal(queries, case.queries)
        np.testing.assert_array_equal(ids, case.ids)
        assert mask.all()

    def test_answers_belong_to_the_caller(self, case: Case) -> None:
        found = case.index.search(case.queries, k=5)
        before = found.ids.copy(), found.distances.copy()
        found.ids[:] = 0
        found.distances[:] = 0
        again = case.index.search(case.queries, k=5)
        np.testing.assert_array_equal(again.ids, before[0])
        np.testing.assert_array_equal(again.distances, before[1])
