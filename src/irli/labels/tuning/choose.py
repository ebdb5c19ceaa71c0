"""choose: try options on held-out rows, and take the first of those that are about the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from irli.base.logs import get_logger

Option = TypeVar("Option")
Made = TypeVar("Made")

log = get_logger(__name__)

TIE = 0.001  # share of the best quality that an option before it may lose


class Trials(list[dict[str, Any]]):
    """What was tried for each choice, and its quality on held-out rows. It goes into the history.

    Examples
    --------
    >>> trials = Trials()
    >>> options = {"few": 4, "some": 8, "many": 16}
    >>> trials.choose("probes", options, lambda probes: (min(probes, 8) / 10, probes))
    8
    >>> trials[0]
    {'choice': 'probes', 'tried': 'few', 'quality': 0.4}
    """

    def choose(
        self,
        name: str,
        options: Mapping[Any, Option],
        measure: Callable[[Option], tuple[float, Made]],
        tie: float = TIE,
    ) -> Made:
        """Return what was made of the first option whose quality is within `tie` of the best.

        Parameters
        ----------
        name : str
            What is chosen, for the history.
        options : dict
            By how the history calls them. What is cheaper, or usual, comes first.
        measure : callable
            Returns the quality of an option, and what was made to measure it.
        tie : float
            A share of the best quality.
        """
        tried = []
        for shown, option in options.items():
            quality, made = measure(option)
            log.info("%s %s: quality %.4f", name, shown, quality)
            self.append({"choice": name, "tried": shown, "quality": quality})
            tried.append((quality, made))
        least = max(quality for quality, _ in tried) * (1 - tie)
        return next(made for quality, made in tried if quality >= least)
