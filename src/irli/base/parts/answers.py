"""Answers of parts, and the errors for parts that must answer and do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from irli.errors import DeadlineExceeded, ShardUnavailable


class Answers(NamedTuple):
    """The results of the shards, in their order, and the shards that did not answer."""

    values: list[Any]
    missing: tuple[int, ...]


def collect(
    found: dict[int, Any],
    lost: dict[int, str],
    late: Sequence[int],
    deadline: float | None,
    partial: bool,
) -> Answers:
    """Return the answers, or raise if shards are missing that must answer.

    Parameters
    ----------
    found : dict
        The result of each shard that has answered.
    lost : dict
        Why each shard that is down has not.
    late : sequence of int
        The shards that work and have not answered in time.
    """
    missing = tuple(sorted([*lost, *late]))
    if missing and (not partial or not found):
        names = ", ".join(map(str, missing))
        count = len(found) + len(missing)
        advice = "Pass partial=True to do without them." if found else "No shard has answered."
        if lost:
            shard, reason = next(iter(lost.items()))
            raise ShardUnavailable(
                f"All shards must answer, and {names} of {count} did not: lost and not back in "
                f"time. Shard {shard}: {reason}. {advice}"
            )
        raise DeadlineExceeded(
            f"All shards must answer within {deadline:g} s, and {names} of {count} did not. Give a "
            f"longer deadline. {advice}"
        )
    return Answers([found[shard] for shard in sorted(found)], missing)
