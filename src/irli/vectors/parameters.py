"""SearchParameters: the arguments of a search (probes, candidates, ...), checked and resolved."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TypedDict, Unpack, cast

from irli.base.checks import check_choice, check_float, check_int, check_keywords
from irli.engine.vector_layout import CODES, LOG_PROBABILITY, MOST_CANDIDATES, SearchPlan
from irli.errors import InvalidParameter

SCORES = ("votes", "probability", "log-probability", "codes")  # the kernels use the position

_CANDIDATES_PER_RESULT = 8  # with codes, if `candidates` is not set


class SearchArguments(TypedDict, total=False):
    """The keyword arguments of every `search`; `SearchParameters` says what they mean."""

    probes: int | None
    threshold: float | None
    min_votes: int | None
    candidates: int | None
    score: str | None


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

    Examples
    --------
    >>> SearchParameters(probes=8).replace(candidates=100)
    SearchParameters(probes=8, threshold=None, min_votes=1, candidates=100, score='log-probability')
    """

    probes: int | None = None
    threshold: float | None = None
    min_votes: int = 1
    candidates: int | None = None
    score: str = "log-probability"

    def replace(self, **given: Unpack[SearchArguments]) -> SearchParameters:
        """Return the parameters of one call: the given ones, and these where none is given."""
        check_keywords(given, SearchArguments.__annotations__, owner="search")
        probes, threshold = given.get("probes"), given.get("threshold")
        if probes is not None and threshold is not None:
            raise InvalidParameter(
                "Only one of the 'probes' and 'threshold' parameters of search may be given. "
                f"Got probes={probes!r} and threshold={threshold!r}. Leave out one of them."
            )
        if probes is not None:
            probes = _check_count("probes", probes)
        elif threshold is not None:
            threshold = check_float("threshold", threshold, at_least=0.0, at_most=1.0)
        else:
            probes, threshold = self.probes, self.threshold
        min_votes, candidates = given.get("min_votes"), given.get("candidates")
        score = given.get("score")
        if min_votes is not None:
            min_votes = _check_count("min_votes", min_votes)
        if candidates is not None:
            candidates = _check_count("candidates", candidates)
        if score is not None:
            check_choice("score", score, SCORES, owner="search")
        chosen = SearchParameters(
            probes=probes,
            threshold=threshold,
            min_votes=min_votes or self.min_votes,
            candidates=candidates or self.candidates,
            score=score or self._choose_score(min_votes),
        )
        if chosen.score == "codes" and chosen.min_votes > 1:
            raise InvalidParameter(
                "The 'min_votes' parameter of search must be 1 with score='codes', which counts no "
                f"votes. Got {chosen.min_votes} instead. Use another score, such as 'votes'."
            )
        return chosen

    def _choose_score(self, min_votes: int | None) -> str:
        """Return the default score, or one that counts votes if `min_votes` needs them."""
        votes = min_votes is not None and min_votes > 1
        return "log-probability" if votes and self.score == "codes" else self.score

    def to_arguments(self) -> SearchArguments:
        """Return the parameters as keyword arguments of `search`."""
        return cast("SearchArguments", dataclasses.asdict(self))

    def to_plan(self, k: int) -> SearchPlan:
        """Return the parameters in the form that the kernels take."""
        threshold = self.threshold or 0.0
        candidates = max(self.candidates, k) if self.candidates else 0
        score = SCORES.index(self.score)
        if score == CODES:
            candidates = candidates or _CANDIDATES_PER_RESULT * k
            if candidates > MOST_CANDIDATES:  # beyond this, codes cost more than they save
                score = LOG_PROBABILITY
        return SearchPlan(
            k=k,
            probes=self.probes or 0,
            threshold=math.log(threshold) if threshold > 0 else -math.inf,
            min_votes=self.min_votes,
            candidates=candidates,
            score=score,
        )


def _check_count(name: str, value: int) -> int:
    """Check a count and cap it at 2^31 - 1, the largest number that the kernels take."""
    return min(check_int(name, value, at_least=1, owner="search"), 2**31 - 1)
