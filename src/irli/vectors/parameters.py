"""SearchParameters: the arguments of a search (probes, candidates, ...), checked and resolved."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict, Unpack, cast

from irli._native import CODES, LEVELS, LOG_PROBABILITY, MOST_CANDIDATES, SearchPlan
from irli.base.checks import check_bool, check_choice, check_float, check_int, check_keywords
from irli.errors import InvalidParameter

SCORES = ("votes", "probability", "log-probability", "codes")  # the kernels use the position
RANKS = ("distance", "score")
# The parameters that `tune` alone sets.
TUNED = ("points", "strange", "length")

_LONGEST = 1e29  # length at which queries may be routed: kernels take its square

_CANDIDATES_PER_RESULT = 8  # with codes, if `candidates` is not set
_TINY = 5e-324  # stands for a threshold of 0, whose logarithm is infinite
_MOST = 2**26  # buckets
_MOST_ITEMS = 2**31 - 1  # the largest number that the kernels take
_HIGHEST = 700.0  # logarithm; beyond it, a float overflows


class OperatingPoint(NamedTuple):
    """The least work that reaches the recall at one k, as `tune` found it.

    Attributes
    ----------
    k : int
    threshold : float
    candidates : int or None
    centroids : int
        Buckets to probe besides, those with the nearest centroids.
    wide : int or None
        Buckets that a strange query probes in all, and the most that any query does. None: it is
        compared with all items.
    picked : int
        Candidates that codes choose for a strange query, or 0 if they are chosen as for others.
    work : float
        What a query costs: see `irli.vectors.cost`.
    """

    k: int
    threshold: float
    candidates: int | None
    centroids: int = 0
    wide: int | None = None
    picked: int = 0
    work: float = 0.0


class Strange(NamedTuple):
    """Which queries are strange to the routers: they read more, the buckets near them.

    Attributes
    ----------
    likely : float
        The probability of a likely bucket: one that a search for the fewest items probes, and of
        which nearly every query has one.
    unsure : float
        Those whose likely buckets have less than this probability together.
    far : float
        Those whose nearest item is this many times as far as the items of their best bucket are
        from each other.
    """

    likely: float
    unsure: float
    far: float


class FilterPlan(NamedTuple):
    """How a search begins under a filter: see `SearchPlan` in `native/layout.h`."""

    start: float = 0.0
    exact_from: float = math.inf


class SearchArguments(TypedDict, total=False):
    """The keyword arguments of every `search`; `SearchParameters` says what they mean."""

    probes: int | None
    threshold: float | None
    min_votes: int | None
    candidates: int | None
    score: str | None
    rank: str | None
    exact: bool | None


@dataclass(frozen=True)
class SearchParameters:
    """How to search. The defaults of an index are of this class; `tune` finds them.

    Attributes
    ----------
    probes : int, optional
        Buckets to probe in each repetition: m in the paper, nprobe in FAISS. If None, `threshold`
        decides.
    threshold : float, optional
        Probe every bucket of at least this probability. Easy queries then probe few buckets and
        hard ones many.
    min_votes : int
        The number of probed buckets that must hold an item for it to become a candidate.
    candidates : int, optional
        The number of items, best score first, whose exact distance is computed. If None, that is
        every item found.
    score : {"votes", "probability", "log-probability", "codes"}
        How candidates are chosen. "codes" compares the 4-bit codes of the items with the query.
        The others score an item by the probed buckets that hold it: by their number, their
        probabilities or their log-probabilities.
    rank : {"distance", "score"}
        How results are ordered. "score" is the learned score, for relevance that distances do not
        explain: the log-probabilities of the item's buckets, and of equal ones the nearest first.
    exact : bool
        Compare all items with the query, without routing. With another `rank` or with `min_votes`,
        every bucket is probed, since scores and votes come from buckets.
    points : tuple of OperatingPoint
        What `tune` found for several k. A search for k items takes the threshold and the candidates
        between those of the next points. Empty if `probes` or `threshold` is given: then they hold
        for every k.
    strange : Strange, optional
        Which queries are strange to the routers. None are if it is None.
    length : float, optional
        The length at which queries are routed, whatever their own is: under inner products, it does
        not change which items are near. If None, they are routed as they are.

    Examples
    --------
    >>> SearchParameters(probes=8).replace(candidates=100)
    SearchParameters(probes=8, threshold=None, min_votes=1, candidates=100, score='log-probability',
    rank='distance', exact=False)
    """

    probes: int | None = None
    threshold: float | None = None
    min_votes: int = 1
    candidates: int | None = None
    score: str = "log-probability"
    rank: str = "distance"
    exact: bool = False
    points: tuple[OperatingPoint, ...] = field(default=(), repr=False)
    strange: Strange | None = field(default=None, repr=False)
    length: float | None = field(default=None, repr=False)

    def replace(self, **given: Unpack[SearchArguments]) -> SearchParameters:
        """Return the parameters of one call: the given ones, and these where none is given."""
        check_keywords(given, SearchArguments.__annotations__, owner="search")
        probes, threshold = given.get("probes"), given.get("threshold")
        if probes is not None and threshold is not None:
            raise InvalidParameter(
                "Only one of the 'probes' and 'threshold' parameters of search may be given. "
                f"Got probes={probes!r} and threshold={threshold!r}. Leave out one of them."
            )
        points, strange = self.points, self.strange
        if probes is not None:
            probes, points, strange = _check_count("probes", probes), (), None
        elif threshold is not None:
            threshold = check_float("threshold", threshold, at_least=0.0, at_most=1.0)
            points, strange = (), None
        else:
            probes, threshold = self.probes, self.threshold
        min_votes, candidates = given.get("min_votes"), given.get("candidates")
        score, rank = given.get("score"), given.get("rank") or self.rank
        if min_votes is not None:
            min_votes = _check_count("min_votes", min_votes)
        check_choice("rank", rank, RANKS, owner="search")
        if score is not None:
            check_choice("score", score, SCORES, owner="search")
            points = tuple(point._replace(picked=0) for point in points)  # it holds for all queries
        score = score or self._choose_score(min_votes, rank)
        if candidates is not None:
            candidates = _check_count("candidates", candidates)
            picked = candidates if candidates <= MOST_CANDIDATES else 0
            points = tuple(  # it holds for all queries, too
                each._replace(candidates=candidates, picked=each.picked and picked)
                for each in points
            )
        elif not self.points:
            candidates = self.candidates
        elif score == self.score:
            candidates = self.candidates if points else None
        else:  # they are enough only if chosen by what `tune` chose
            points = tuple(point._replace(candidates=None) for point in points)
        exact = given.get("exact")
        if exact is not None:
            check_bool("exact", exact, owner="search")
        elif given.get("probes") is None and given.get("threshold") is None:
            exact = self.exact
        chosen = SearchParameters(
            probes=probes,
            threshold=threshold,
            min_votes=min_votes or self.min_votes,
            candidates=candidates,
            score=score,
            rank=rank,
            exact=bool(exact),
            points=points,
            strange=strange,
            length=self.length,
        )
        if chosen.score == "codes" and chosen.min_votes > 1:
            raise InvalidParameter(
                "The 'min_votes' parameter of search must be 1 with score='codes', which counts no "
                f"votes. Got {chosen.min_votes} instead. Use another score, such as 'votes'."
            )
        if chosen.score == "codes" and chosen.rank != "distance":
            raise InvalidParameter(
                "The 'score' parameter of search must be a learned one to rank by it. Got 'codes' "
                f"with rank={chosen.rank!r} instead. Leave out the score, or use 'log-probability'."
            )
        return chosen

    def _choose_score(self, min_votes: int | None, rank: str) -> str:
        """Return the default score, or a learned one if `min_votes` or the ranking needs it."""
        votes = (min_votes is not None and min_votes > 1) or rank != "distance"
        return "log-probability" if votes and self.score == "codes" else self.score

    def to_arguments(self) -> SearchArguments:
        """Return the parameters as keyword arguments of `search`."""
        given = {name: getattr(self, name) for name in SearchArguments.__annotations__}
        return cast("SearchArguments", given)

    def to_json(self) -> dict[str, Any]:
        """Return the parameters as plain values."""
        points = [point._asdict() for point in self.points]
        strange = self.strange and self.strange._asdict()
        return dataclasses.asdict(self) | {"points": points, "strange": strange}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SearchParameters:
        """Return the parameters that `to_json` turned into plain values, checked.

        Examples
        --------
        >>> SearchParameters.from_json(SearchParameters(probes=3).to_json()).probes
        3
        """
        check_keywords(values, [each.name for each in dataclasses.fields(cls)], owner=cls.__name__)
        given = {name: values.get(name) for name in SearchArguments.__annotations__}
        strange, length = values.get("strange"), values.get("length")
        points = tuple(_read_point(point) for point in values.get("points", ()))
        chosen = cls().replace(**cast("SearchArguments", given))
        return dataclasses.replace(
            chosen,
            points=points,
            strange=None if strange is None else _read_strange(strange),
            length=None
            if length is None
            else check_float("length", length, at_least=0.0, at_most=_LONGEST),
        )

    @property
    def by_distance(self) -> bool:
        """Whether results are ordered by distance alone, so that comparing all items is exact."""
        return self.rank == "distance" and self.min_votes == 1

    def at(self, k: int) -> SearchParameters:
        """Return the parameters for k items, between those of the next operating points.

        Examples
        --------
        >>> few = OperatingPoint(10, 0.1, 40, 0, wide=5, picked=80, work=1)
        >>> many = few._replace(k=90, candidates=360)
        >>> SearchParameters(points=(few, many)).at(30).candidates
        120
        """
        if not self.points:
            return self
        candidates = _interpolate(self.points, "candidates", k)
        return dataclasses.replace(
            self,
            threshold=min(_interpolate(self.points, "threshold", k), 1.0),
            candidates=None if math.isinf(candidates) else _round_up(candidates),
        )

    def work_at(self, k: float) -> float:
        """Return the work of a query for k items."""
        return _interpolate(self.points, "work", k)

    def find_level(self, k: int, above: float, work: float) -> float:
        """Return the first level, of those above another one, that takes more than so much work."""
        levels = _list_work(self.points, k) if self.points else []
        found = (step / 2 for step, each in enumerate(levels) if step / 2 > above and each > work)
        return next(found, math.inf)

    def to_plan(self, k: int, filtered: FilterPlan | None = None, fill: bool = True) -> SearchPlan:
        """Return the parameters for k items in the form that the kernels take.

        Without `fill`, a search that finds fewer than k items does not look further.
        """
        chosen = self.at(k)
        plan = SearchPlan()
        plan.k, plan.fill, plan.length = k, fill, self.length or 0.0
        plan.min_votes, plan.by_score = self.min_votes, self.rank == "score"
        plan.score = SCORES.index(self.score)
        if self.exact:
            plan.exact = self.by_distance  # else every bucket is probed
            plan.score = min(plan.score, LOG_PROBABILITY)
            return plan
        plan.candidates = max(chosen.candidates, k) if chosen.candidates else 0
        if plan.score == CODES and not (self.points or plan.candidates):
            plan.candidates = _CANDIDATES_PER_RESULT * k
        if plan.score == CODES and not 0 < plan.candidates <= MOST_CANDIDATES:
            plan.score = LOG_PROBABILITY  # so many are not worth choosing by codes
        plan.probes = self.probes or 0
        plan.thresholds = [math.log(chosen.threshold) if chosen.threshold else -math.inf]
        if self.points:
            plan.thresholds, plan.centroids = _widen(self.points, k)
            if filtered is not None:
                plan.start, plan.exact_from = filtered.start, filtered.exact_from
        if self.points and self.strange is not None:
            self._look_out(plan, self.strange)
        return plan

    def _look_out(self, plan: SearchPlan, strange: Strange) -> None:
        """Set which queries are strange, and what they do."""
        wide, picked = (_interpolate(self.points, name, plan.k) for name in ("wide", "picked"))
        plan.likely, plan.unsure, plan.far = math.log(strange.likely or _TINY), *strange[1:]
        plan.wide = plan.probes = round(min(wide, _MOST))
        if picked > 0 and self.by_distance:
            plan.picked = round(min(max(picked, plan.candidates, plan.k), MOST_CANDIDATES))


def _interpolate(points: tuple[OperatingPoint, ...], name: str, k: float) -> float:
    """Return a value for k items: a straight line through the next two points, in logarithms.

    A threshold of 0, or no limit on the candidates, holds from the smaller point on. Buckets
    are counted, not their logarithms: each holds about as many items.
    """
    first = next((i for i in range(1, len(points) - 1) if k <= points[i].k), len(points) - 1)
    before = max(0, first - 1)
    if k > points[first].k:  # beyond the last point; the next one may be too close for a line
        before = max((i for i in range(first) if 2 * points[i].k <= points[first].k), default=0)
    pair = points[before], points[first]
    low, high = (math.inf if (v := getattr(p, name)) is None else v for p in pair)
    if pair[0].k == pair[1].k or low == high or k <= pair[0].k:
        return float(low)
    if name in ("centroids", "wide", "picked") and max(low, high) < math.inf:
        return max(0.0, low + (high - low) * (k - pair[0].k) / (pair[1].k - pair[0].k))
    if not (0 < low < math.inf and 0 < high < math.inf):
        return float(high)
    part = math.log(k / pair[0].k) / math.log(pair[1].k / pair[0].k)
    return math.exp(min(math.log(low) + part * (math.log(high) - math.log(low)), _HIGHEST))


# A search with a filter looks at many widths. The next one mostly looks at the same.
@lru_cache(maxsize=256)
def _widen(points: tuple[OperatingPoint, ...], k: int) -> tuple[list[float], list[float]]:
    """Return the logarithm of the threshold, and the centroids, at each level."""
    widths = [k * 2**level for level in range(LEVELS)]
    thresholds = [math.log(_interpolate(points, "threshold", width) or _TINY) for width in widths]
    centroids = [min(_interpolate(points, "centroids", width), _MOST) for width in widths]
    return thresholds, centroids


@lru_cache(maxsize=256)
def _list_work(points: tuple[OperatingPoint, ...], k: int) -> list[float]:
    """Return the work at each level, in steps of half a level."""
    return [_interpolate(points, "work", k * 2 ** (step / 2)) for step in range(2 * LEVELS)]


def _read_point(values: dict[str, Any]) -> OperatingPoint:
    candidates, wide = values["candidates"], values["wide"]
    return OperatingPoint(
        k=check_int("k", values["k"], at_least=1),
        threshold=check_float("threshold", values["threshold"], at_least=0.0, at_most=1.0),
        candidates=None if candidates is None else _check_count("candidates", candidates),
        centroids=check_int("centroids", values["centroids"], at_least=0),
        wide=None if wide is None else _check_count("wide", wide),
        picked=check_int("picked", values["picked"], at_least=0),
        work=check_float("work", values["work"], at_least=0.0),
    )


def _read_strange(values: dict[str, Any]) -> Strange:
    shares = ("likely", "unsure")
    likely, unsure = (check_float(n, values[n], at_least=0.0, at_most=1.0) for n in shares)
    return Strange(likely, unsure, float(values["far"]))


def _round_up(value: float) -> int:
    return max(1, math.ceil(min(value, _MOST_ITEMS)))


def _check_count(name: str, value: int) -> int:
    """Check a count and cap it at 2^31 - 1, the largest number that the kernels take."""
    return min(check_int(name, value, at_least=1, owner="search"), _MOST_ITEMS)
