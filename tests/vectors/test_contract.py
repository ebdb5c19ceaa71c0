"""The contract: all of it on the kinds of index that differ in code, a smoke test on the others."""

from __future__ import annotations

from typing import Any

import pytest
from contract import Case, LoadedContract, VectorContract, VectorSmoke

Kind = tuple[str, str, str]  # recipe, metric, form

# Without codes, with codes, the paper's recipe, memory-mapped, in shards,
# changed: and every metric.
FULL: list[Kind] = [
    ("default", "cosine", "memory"),
    ("codes", "l2", "memory"),
    ("paper", "ip", "memory"),
    ("codes", "ip", "mapped"),
    ("default", "l2", "shards"),
    ("codes", "cosine", "grown"),
    ("codes", "l2", "reader"),
]
# Every recipe with every metric; the same read into memory, in shards, served by Ray, and
# changed.
OTHERS: list[Kind] = [
    ("default", "ip", "memory"),
    ("codes", "cosine", "memory"),
    ("paper", "l2", "memory"),
    ("paper", "cosine", "memory"),
    ("two repetitions", "l2", "mapped"),
    ("two repetitions", "cosine", "shards"),
    ("two repetitions", "cosine", "ray"),
    ("paper", "ip", "shards"),
    ("default", "l2", "read"),
    ("default", "ip", "grown"),
    ("two repetitions", "l2", "grown"),
    ("paper", "cosine", "living"),
    ("codes", "l2", "living"),
]
LOADED = [kind for kind in (*FULL, *OTHERS) if kind[2] in ("mapped", "read", "ray")]


def over(kinds: list[Kind]) -> pytest.MarkDecorator:
    """Run a class of tests on some kinds of index."""
    return pytest.mark.parametrize("case", kinds, indirect=True, scope="module", ids="-".join)


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, cases: Any) -> Case:
    if request.param[2] == "ray":
        request.getfixturevalue("on_ray")
    made: Case = cases(*request.param)
    return made


@over(FULL)
class TestContract(VectorContract):
    pass


@over(OTHERS)
class TestSmoke(VectorSmoke):
    pass


@over(LOADED)
class TestLoaded(LoadedContract):
    pass
