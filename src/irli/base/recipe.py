"""Recipes: the settings of a build, in groups, by name, checked, and chosen by size.

None means not given. `resolve` fills in what depends on the data, and keeps what was given.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from irli.base.arrays import damage_error
from irli.base.checks import check_bool, check_choice, check_float, check_int, suggest
from irli.errors import InvalidParameter

MOST_PIECES = 512  # the sum of this many table values fits into 16 bits
_LEAST_CODED = 4096  # codes pay from this many items on
_LEAST_POINTS, _MOST_POINTS = 50_000, 200_000  # bounds on the base vectors to train on
_DISTANCES = 10**11  # exact distances to compute for them, within these bounds
_REPARTITION_EVERY = 2  # epochs
_HUGE = 2_000_000  # from this many items on, a re-partition takes longer than the training
_EXACT_ITEM, _EXACT_NUMBER, _EXACT_MOST = 4.0, 0.08, 200_000.0  # nanoseconds
_LEAST_ROUNDED = 5  # dimensions; the bytes of fewer cannot tell thousands of buckets apart
_MOST_ONE_PER_LABEL = 2048  # up to this many labels, one bucket for each label is best
_FOR_LABELS = ("labels", "paper-labels", "paper-labels-sigmoid")

_OWNER = "the recipe"
_BY_DATA: Any = None  # the value of a setting that `resolve` fills in


def _int(default: int | None, at_least: int = 0, at_most: int | None = None) -> Any:
    return _setting(default, check_int, at_least=at_least, at_most=at_most)


def _float(default: float, at_least: float = 0.0, at_most: float | None = None) -> Any:
    return _setting(default, check_float, at_least=at_least, at_most=at_most)


def _switch(default: bool) -> Any:
    return _setting(default, check_bool)


def _choice(*allowed: str) -> Any:
    """Return a setting that is one of these strings, by default the first."""
    return _setting(allowed[0], check_choice, allowed=allowed)


def _setting(default: Any, check: Any, **limits: Any) -> Any:
    return field(default=default, metadata={"check": partial(check, owner=_OWNER, **limits)})


@dataclass(frozen=True)
class Training:
    """Settings of learning, for vectors and labels.

    Attributes
    ----------
    name : str
        The recipe that this one started from.
    repetitions : int
        R, the number of routers. Each has its own partition.
    buckets : int
        B, the buckets of a partition. By data: for the fastest search (see `choose_buckets`).
    hidden : int
        The width of the hidden layer (ReLU).
    choices : int
        K, how many of its best buckets an item tries first. By data: 32, or 10 of which the least
        loaded one is taken, and B at most.
    slack : float
        A bucket holds at most ceil(slack * entries / B) items. Not with "least-loaded".
    buckets_per_item : int
        1, or 2: each item gets a second bucket that complements the first.
    epochs : int
        Training epochs of each repetition.
    repartition_every : int
        Epochs between two re-partitions. By data: two, or half of all epochs from 2 million items
        on, where a re-partition takes longer than the training.
    epoch_size : int
        Training queries drawn in an epoch, but at most half of many. 0: every query once.
    stop_moved : float
        Stop re-partitioning once a smaller share of the items moves, or none.
    until_converged : bool
        End training, too, once re-partitioning has stopped and the routers were trained on the last
        partition. `epochs` is then the most.
    mixed_precision : bool
        Whether the network multiplies in bfloat16 and keeps its weights in float32, which is faster
        on GPUs that can. False: all in float32.
    batch_size, learning_rate, seed
        As usual in training. The optimiser is Adam.
    """

    name: str = "default"
    repetitions: int = _int(1, at_least=1)
    buckets: int = _int(_BY_DATA, at_least=1)
    hidden: int = _int(32, at_least=1)
    choices: int = _int(_BY_DATA, at_least=1)
    slack: float = _float(1.3, at_least=1.0)
    buckets_per_item: int = _int(2, at_least=1, at_most=2)
    epochs: int = _int(10, at_least=1)
    repartition_every: int = _int(_BY_DATA, at_least=1)
    epoch_size: int = _int(65_536)
    stop_moved: float = _float(0.02, at_most=1.0)
    until_converged: bool = _switch(False)
    mixed_precision: bool = _switch(False)
    batch_size: int = _int(512, at_least=1)
    learning_rate: float = _float(2e-3)
    seed: int = _int(0, at_most=2**31 - 1)


@dataclass(frozen=True)
class VectorSettings:
    """Settings of indexes of vectors only.

    Attributes
    ----------
    scoring : {"int8", "full"}
        Whether a router scores buckets with 8-bit weights or in float32.
    pieces : int or None
        M, the pieces of an item's 4-bit code (see `irli.engine.pq`). 0: no codes. By data: what
        fits them, and 0 for few items.
    neighbors : int
        How many exact nearest neighbours are relevant to a query where no relevance is given.
    neighbor_recall : float
        The recall of these neighbours. 1: all items are compared. Less: only those of the nearest
        clusters, which takes a small part of the time.
    training_points : int
        The most base vectors that serve as training queries.
    query_share : float
        The share of given queries among the training queries. The rest are base vectors. 1: the
        queries are the learning set, and base vectors serve for validation and tuning only.
    mixed_queries : int
        Training queries made between given ones, where no relevance is given.
    noise : float
        How far training queries are moved at random, relative to the distance to their nearest
        relevant item, or to two thirds of their length if that is less. With inner products always
        the latter.
    self_hits : bool
        Give an item that its own query would miss one more bucket.
    boost : bool
        Give pairs that earlier repetitions miss a larger weight in later ones.
    """

    scoring: str = _choice("int8", "full")
    pieces: int | None = _int(_BY_DATA, at_most=MOST_PIECES)
    neighbors: int = _int(20, at_least=1)
    neighbor_recall: float = _float(0.97, at_least=0.5, at_most=1.0)
    training_points: int = _int(_BY_DATA, at_least=1)
    query_share: float = _float(0.4, at_most=1.0)
    mixed_queries: int = _int(20_000)
    noise: float = _float(0.12)
    self_hits: bool = _switch(True)
    boost: bool = _switch(True)


@dataclass(frozen=True)
class LabelSettings:
    """Settings of indexes of labels only.

    Attributes
    ----------
    features : int
        Sparse rows with more features than this are hashed down to this many. 0: never.
    trunk : {"own", "shared"}
        Whether each repetition has its own network, or all are heads on one network.
    """

    features: int = _int(None)
    trunk: str = _setting(None, check_choice, allowed=("own", "shared"))


@dataclass(frozen=True)
class PaperSwitches:
    """Where a build may follow the paper or do better, with the paper's way last.

    Attributes
    ----------
    start : {"kmeans", "one-per-item", "hash"}
        The first partition: bounded k-means, one bucket for each item, which never changes, or a
        2-universal hash (section 3.1).
    router : {"warm", "network"}
        Centroid scores plus a learned correction, or the paper's network with one hidden layer.
    standardize : bool
        Centre dense queries, and scale all queries to unit length on average, so that one learning
        rate suits pixels as well as unit vectors. False: the network gets them as they are.
    loss : {"softmax", "softmax-bce", "sigmoid-bce"}
        "softmax": cross-entropy on the buckets of the relevant items. The others are the paper's
        binary cross-entropy over "the bucket holds a relevant item", with a softmax (the paper's
        text) or a sigmoid (the authors' code).
    affinity : {"both", "queries", "sum", "item"}
        How an item judges buckets. "item": by f(item), Definition 2. "sum": by the sum of f over
        the queries to which it is relevant, Definition 1, where f is what the loss trains.
        "queries": the same with a softmax, of which the best 32 to 64 buckets count, each divided
        by its mean over all queries: early in training, a network prefers the same few buckets for
        all items. "both": a mix of item and queries, by the chance that a bucket is probed.
    repartition : {"bounded", "least-loaded"}
        "bounded": the bucket of highest affinity that has room. "least-loaded": the least loaded
        of the best `choices` buckets (section 3.2).
    accept : {"validated", "always"}
        "validated": keep a re-partition only if the validation recall at equal work does not
        fall. "always": keep every one.
    schedule : {"one-cycle", "constant"}
        "one-cycle": the learning rate rises in the first steps and then falls. It is higher for
        rare features of sparse queries. "constant": one rate for all steps and features.
    search : {"threshold", "votes"}
        How `tune` makes the index be searched. "threshold": probe every bucket above a probability,
        and choose candidates by codes or scores. "votes": the paper's way (Algorithm 2). Probe the
        best m buckets of each repetition; the candidates are the items in at least t of them.
        Labels are then ordered by the sum of the scores of their buckets, as in the paper's
        figure 2, with m = 10, and have a ranker only if one is asked for.
    """

    start: str = _choice("kmeans", "one-per-item", "hash")
    router: str = _choice("warm", "network")
    standardize: bool = _switch(True)
    loss: str = _choice("softmax", "softmax-bce", "sigmoid-bce")
    affinity: str = _choice("both", "queries", "sum", "item")
    repartition: str = _choice("bounded", "least-loaded")
    accept: str = _choice("validated", "always")
    schedule: str = _choice("one-cycle", "constant")
    search: str = _choice("threshold", "votes")


@dataclass(frozen=True)
class Recipe(PaperSwitches, LabelSettings, VectorSettings, Training):
    """The settings of a build. Make one with `recipe(name, **changes)`.

    They come in four groups: `Training`, `VectorSettings`, `LabelSettings`, `PaperSwitches`. None
    stands for what the data will decide, and for settings of the other kind of index. The types
    are those of a recipe that `resolve` or `resolve_for_labels` has returned.

    Examples
    --------
    >>> recipe("paper", repetitions=4).buckets
    5000
    """

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):
            value = getattr(self, setting.name)
            if value is not None and setting.name != "name":
                setting.metadata["check"](setting.name, value)
        other, kind = (
            (VectorSettings, "vectors") if self.is_for_labels else (LabelSettings, "labels")
        )
        for name in _names(other):
            if getattr(self, name) is not None:
                raise InvalidParameter(
                    f"The recipe '{self.name}' has no setting '{name}': it is one of {kind}. Got "
                    f"{getattr(self, name)!r}. Leave it out."
                )
        self._check_switches()

    def _check_switches(self) -> None:
        """Raise if settings contradict each other."""
        if self.is_for_labels and (self.router != "network" or self.affinity in ("both", "item")):
            raise InvalidParameter(
                "A recipe for labels must have router='network', and affinity='queries' or 'sum': "
                f"labels have no vectors. Got router={self.router!r} and "
                f"affinity={self.affinity!r}. Leave them out."
            )
        if self.start in ("hash", "one-per-item") and self.router == "warm":
            raise InvalidParameter(
                f"The 'router' parameter of the recipe must be 'network' with start='{self.start}'."
                " Got 'warm' instead: centroid scores need centroids. Use start='kmeans' with it."
            )
        if self.buckets_per_item > 1:
            for name, value in (("repartition", "least-loaded"), ("affinity", "sum")):
                if getattr(self, name) == value:
                    raise InvalidParameter(
                        "The 'buckets_per_item' parameter of the recipe must be 1 with "
                        f"{name}='{value}'. Got 2 instead. Set it to 1."
                    )
        if self.until_converged and self.start == "one-per-item":
            raise InvalidParameter(
                "The 'until_converged' parameter of the recipe must be False with "
                "start='one-per-item', where no item moves. Got True instead. Set 'epochs'."
            )

    @property
    def is_for_labels(self) -> bool:
        """Whether the recipe is one for labels."""
        return self.name in _FOR_LABELS

    def check_kind(self, labels: bool) -> None:
        """Raise unless the recipe is one for labels, or for vectors."""
        if labels != self.is_for_labels:
            kind, use = "vectors", "LabelIndex, or with irli labels fit"
            if labels:
                kind, use = "labels", "VectorIndex, or with irli build"
            names = ", ".join(repr(name) for name in RECIPES if (name in _FOR_LABELS) == labels)
            raise InvalidParameter(
                f"The 'recipe' parameter of an index of {kind} must be one for {kind}: {names}. "
                f"Got '{self.name}' instead. Use it with {use}."
            )

    def resolve(self, items: int, dim: int) -> Recipe:
        """Fill in the settings that depend on the data, and check that the others fit it.

        Examples
        --------
        >>> recipe("default").resolve(items=68_728, dim=384).buckets
        2048
        """
        self.check_kind(labels=False)
        chosen = self
        if self.name == AUTO:
            exact = is_exact_cheap(items, dim)
            changes = _EXACT if exact else {"name": "default"}
            chosen = dataclasses.replace(self, **changes)
        every = _REPARTITION_EVERY if items < _HUGE else max(1, chosen.epochs // 2)
        filled = chosen._fill(
            training_points=choose_training_points(items),
            repartition_every=every,
            pieces=0 if items < _LEAST_CODED else None,
        )
        if dim < _LEAST_ROUNDED:
            filled = dataclasses.replace(filled, scoring="full")
        return filled._fit_buckets(choose_buckets(items), items, "items")

    def resolve_for_labels(self, labels: int) -> Recipe:
        """Fill in the settings that depend on the number of labels.

        Examples
        --------
        >>> recipe("labels").resolve_for_labels(15_031).buckets
        613
        >>> recipe("labels").resolve_for_labels(983).start
        'one-per-item'
        """
        self.check_kind(labels=True)
        few = self.start is None and self.buckets is None and labels <= _MOST_ONE_PER_LABEL
        filled = self._fill(
            **(_FEW_LABELS if few or self.start == "one-per-item" else _MANY_LABELS)
        )
        if filled.start == "one-per-item":
            filled = dataclasses.replace(filled, buckets=labels)
        return filled._fit_buckets(choose_label_buckets(labels), labels, "labels")

    def _fill(self, **values: Any) -> Recipe:
        """Return the recipe with values for what is None."""
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    def _fit_buckets(self, wanted: int, count: int, what: str) -> Recipe:
        """Return the recipe with `wanted` buckets if none are given. All must fit the data."""
        buckets = wanted if self.buckets is None else self.buckets
        owner = f"a recipe for {count} {what}"
        check_int("buckets", buckets, at_most=count, owner=owner)
        choices = min(10 if self.repartition == "least-loaded" else 32, buckets)
        filled = self._fill(buckets=buckets, choices=choices)
        check_int("choices", filled.choices, at_most=buckets, owner=f"{owner}, {buckets} buckets")
        return dataclasses.replace(filled, buckets_per_item=min(self.buckets_per_item, buckets))


def _names(group: Any) -> list[str]:
    return [setting.name for setting in dataclasses.fields(group)]


AUTO = "auto"
_EXACT: dict[str, Any] = {"name": "exact", "buckets": 1, "pieces": 0, "self_hits": False}
_NOT_FOR_LABELS: dict[str, Any] = dict.fromkeys(_names(VectorSettings))

# Section 5.2 and the authors' code: start from a hash, least loaded of 10 buckets.
_PAPER: dict[str, Any] = {
    "repetitions": 32,
    "buckets": 5000,
    "hidden": 1024,
    "buckets_per_item": 1,
    "epochs": 30,
    "repartition_every": 5,
    "epoch_size": 0,
    "stop_moved": 0.0,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "start": "hash",
    "router": "network",
    "standardize": False,
    "loss": "sigmoid-bce",
    "affinity": "item",
    "repartition": "least-loaded",
    "accept": "always",
    "schedule": "constant",
    "search": "votes",
}
_PAPER_VECTORS: dict[str, Any] = _PAPER | {
    "scoring": "full",
    "pieces": 0,
    "neighbors": 100,
    "neighbor_recall": 1.0,
    "training_points": 10_000_000,
    "mixed_queries": 0,
    "noise": 0.0,
    "self_hits": False,
    "boost": False,
}
# The paper's settings for labels (section 5.1).
_PAPER_LABELS: dict[str, Any] = _PAPER | {
    **_NOT_FOR_LABELS,
    "buckets": 20_000,
    "affinity": "sum",
    "features": 0,
    "trunk": "own",
}
# What the recipe "labels" leaves to the number of labels.
_MANY_LABELS: dict[str, Any] = {
    "start": "kmeans",
    "repetitions": 4,
    "hidden": 192,
    "loss": "softmax",
    "epochs": 5,
    "batch_size": 128,
    "learning_rate": 2e-3,
}
_FEW_LABELS: dict[str, Any] = {
    "start": "one-per-item",
    "repetitions": 1,
    "hidden": 1024,
    "loss": "sigmoid-bce",
    "epochs": 16,
    "batch_size": 128,
    "learning_rate": 4e-3,
}
_LEFT_OPEN: dict[str, Any] = dict.fromkeys(_FEW_LABELS)

RECIPES = {
    # Becomes "exact" or "default", by the size of the data (see `is_exact_cheap`).
    AUTO: Recipe(name=AUTO),
    "default": Recipe(),
    # For given relevance, which distances may not explain: several repetitions, whose scores
    # together tell the items of a bucket apart.
    "relevance": Recipe(name="relevance", repetitions=4, boost=False),
    # All items in one bucket, and nothing to learn.
    "exact": Recipe(**_EXACT),
    "paper": Recipe(name="paper", **_PAPER_VECTORS),
    # Labels have no vectors, so the router cannot score them: affinity comes from the queries.
    "labels": Recipe(
        name="labels",
        **_NOT_FOR_LABELS,
        **_LEFT_OPEN,
        buckets_per_item=1,
        repartition_every=1,
        epoch_size=0,
        features=1 << 20,
        trunk="shared",
        router="network",
        affinity="queries",
    ),
    # The loss of the text (section 3.2), and that of the authors' code.
    "paper-labels": Recipe(name="paper-labels", **_PAPER_LABELS | {"loss": "softmax-bce"}),
    "paper-labels-sigmoid": Recipe(name="paper-labels-sigmoid", **_PAPER_LABELS),
    # The paper's settings for each of the 8 nodes with 12.5 million vectors of Deep-1B (section
    # 5.3). It learns from given queries alone: there, 10 million vectors of the learning set.
    "paper-deep": Recipe(
        name="paper-deep",
        **_PAPER_VECTORS | {"repetitions": 4, "buckets": 20_000, "epochs": 20, "query_share": 1.0},
    ),
}


def recipe(name: str = "default", /, **changes: Any) -> Recipe:
    """Return a named recipe with some of its settings changed. None leaves a setting as it is.

    Examples
    --------
    >>> recipe("paper", repetition=4)
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The recipe has no setting 'repetition'. Did you mean
    'repetitions'?
    """
    base = RECIPES[check_choice("recipe", name, RECIPES)]
    given = {key: value for key, value in changes.items() if value is not None}
    if name == AUTO and given.keys() - {"seed"}:
        base = RECIPES["default"]  # who sets how to learn wants to learn
    known = [name for name in _names(Recipe) if name != "name"]
    for key in changes:
        if key not in known:
            advice = suggest(key, known, otherwise=f"It has: {', '.join(known)}.")
            raise InvalidParameter(f"The recipe has no setting '{key}'. {advice}")
    return dataclasses.replace(base, **given)


def as_recipe(given: str | Recipe) -> Recipe:
    """Return a recipe. It may be given by its name."""
    return given if isinstance(given, Recipe) else recipe(given)


def read_recipe(values: dict[str, Any], *, labels: bool = False) -> Recipe:
    """Return the recipe of a saved index. Raise unless it is resolved."""
    read = Recipe(**values)
    read.check_kind(labels)
    others = _names(VectorSettings if labels else LabelSettings)
    for name in _names(Recipe):
        if getattr(read, name) is None and name not in ("pieces", *others):
            raise damage_error(f"setting '{name}' of the recipe", "have a value", "null")
    return read


def is_exact_cheap(items: int, dim: int) -> bool:
    """Whether comparing all items is so fast that learning is not worth its time.

    A query is compared with an item of d dimensions in about 4 + 0.08 d nanoseconds. Up to 200
    microseconds a query, learning would save less than it costs, unless there are millions of them.

    Examples
    --------
    >>> is_exact_cheap(5000, 64), is_exact_cheap(20_000, 64), is_exact_cheap(50_000, 32)
    (True, True, False)
    """
    return items * (_EXACT_ITEM + _EXACT_NUMBER * dim) <= _EXACT_MOST


def choose_training_points(items: int) -> int:
    """Choose how many base vectors to train on. Finding the neighbours of n takes n N distances.

    Examples
    --------
    >>> [choose_training_points(items) for items in (390_000, 1_000_000, 100_000_000)]
    [200000, 100000, 50000]
    """
    return max(_LEAST_POINTS, min(_MOST_POINTS, _DISTANCES // items))


def choose_label_buckets(labels: int) -> int:
    """Choose B for labels.

    Examples
    --------
    >>> choose_label_buckets(15_031), choose_label_buckets(10)
    (613, 10)
    """
    return min(labels, int(5 * labels**0.5))


def choose_buckets(items: int) -> int:
    """Choose B, rounded down to a power of two, for the fastest search.

    Scoring a bucket takes about as long as reading the code of an item. With p probes, routing
    costs c B and scanning costs p N / B. Their sum is smallest where both are equal, so B grows as
    sqrt(N). With fewer than 16 items in a bucket, the router has too few examples of each bucket.
    Measured on 60k to 390k items of 50 to 784 dimensions.

    Examples
    --------
    >>> choose_buckets(68_728), choose_buckets(390_000), choose_buckets(10)
    (2048, 4096, 1)
    """
    wanted = int(min(8 * math.sqrt(items), items / 16))
    return 1 << max(0, wanted.bit_length() - 1)
