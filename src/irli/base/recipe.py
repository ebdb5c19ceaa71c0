"""Recipes: the build settings (R, B, epochs, loss, ...), by name, checked, and chosen by size."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Recipe:
    """The settings of a build. Make one with `recipe(name, **changes)`.

    Attributes
    ----------
    repetitions : int
        R, the number of routers. Each has its own partition.
    buckets : int
        B, the buckets of a partition. 0: chosen for the fastest search (see `choose_buckets`).
    start : {"kmeans", "hash", "one-per-item"}
        The first partition: bounded k-means, a 2-universal hash (section 3.1), or one bucket for
        each item. The last is never re-partitioned.
    trunk : {"own", "shared"}
        Whether each repetition has its own network, or all are heads on one network.
    router : {"warm", "network"}
        Centroid scores plus a learned correction, or the paper's network with one hidden layer.
    linear : int
        The width of a warm router's linear part, at most.
    hidden : int
        The width of the hidden layer (ReLU). With the recipe "labels", `fit` may choose half or
        twice as many on held-out rows. A width that you set stays.
    features : int
        Sparse queries with more features than this are hashed down to this many. 0: never.
    standardize : bool
        Centre dense queries, and scale all queries to unit length on average, so that one learning
        rate suits pixels as well as unit vectors. False: the network gets them as they are.
    scoring : {"int8", "full"}
        How a router scores buckets (see `irli.engine.router`). "int8": with 8-bit weights.
        "full": in float32.
    pieces : int or None
        M, the pieces of an item's 4-bit code (see `irli.engine.pq`). 0: no codes. None: chosen
        from the data, and 0 for few items.
    loss : {"softmax", "sigmoid-bce", "softmax-bce"}
        "softmax": cross-entropy on the buckets of the relevant items. The others are the paper's
        binary cross-entropy over "the bucket holds a relevant item", with a sigmoid (the authors'
        code) or a softmax (the paper's text).
    neighbors : int
        How many exact nearest neighbours are relevant to a query where no relevance is given.
    training_points : int
        The most base vectors that serve as training queries. 0: chosen by the number of items.
    query_share : float
        The share of given queries among the training queries. The rest are base vectors. 1: the
        queries are the learning set, and base vectors serve for validation and tuning only.
    mixed_queries : int
        Training queries made between given ones, where no relevance is given.
    noise : float
        How far training queries are moved at random, relative to the distance to their nearest
        relevant item, or to two thirds of their length if that is less. With inner products always
        the latter.
    affinity : {"item", "queries", "both"}
        "item": Definition 2, f(item). "queries": Definition 1, the sum of f over the queries to
        which the item is relevant. "both": a mix of them.
    probe_cut : float
        Affinity counts a probability p as p / (p + probe_cut), the chance that the bucket is
        probed. 0: as p.
    normalize_affinity : bool
        Divide the affinity by the bucket's mean over all queries. Early in training, the network
        prefers the same few buckets for all items.
    exact_affinity : bool
        Sum f over all B buckets, each query counted once, where f is what the loss trains: a
        sigmoid or a softmax. False: a softmax, of which the best 32 to 64 buckets count.
    repartition : {"bounded", "least-loaded"}
        "bounded": the bucket of highest affinity that has room. "least-loaded": the least loaded
        of the best `choices` buckets (section 3.2).
    choices : int
        K, how many of its best buckets an item tries first.
    slack : float
        A bucket holds at most ceil(slack * entries / B) items. Only with "bounded".
    buckets_per_item : int
        1, or 2: each item gets a second bucket that complements the first.
    self_hits : bool
        Give an item that its own query would miss one more bucket.
    boost : bool
        Give pairs that earlier repetitions miss a larger weight in later ones.
    epochs : int
        Training epochs of each repetition.
    repartition_every : int
        Epochs between two re-partitions. 0: two, or half of all epochs from 2 million items on,
        where a re-partition takes longer than the training.
    epoch_size : int
        Training queries drawn in an epoch, but at most half of many. 0: every query once.
    stop_moved : float
        Stop re-partitioning once a smaller share of the items moves, or none.
    until_converged : bool
        End training, too, once re-partitioning has stopped and the routers were trained on the last
        partition. `epochs` is then the most.
    accept : {"validated", "always"}
        "validated": keep a re-partition only if the validation recall at equal work does not
        fall. "always": keep every one.
    batch_size, learning_rate, seed
        As usual in training. The optimiser is Adam.
    schedule : {"one-cycle", "constant"}
        "one-cycle": the learning rate rises in the first steps and then falls. It is higher for
        rare features of sparse queries. "constant": one rate for all steps and features.
    search : {"threshold", "votes"}
        How `tune` makes the index be searched. "threshold": probe every bucket above a probability,
        and choose candidates by codes or scores. "votes": the paper's way (Algorithm 2). Probe the
        best m buckets of each repetition; the candidates are the items in at least t of them.
        Labels are then ordered by votes, and have a ranker only if one is asked for.

    Examples
    --------
    >>> recipe("paper", repetitions=4).buckets
    5000
    """

    name: str = "default"
    repetitions: int = 1
    buckets: int = 0
    start: str = "kmeans"
    trunk: str = "own"
    router: str = "warm"
    linear: int = 128
    hidden: int = 32
    features: int = 0
    standardize: bool = True
    scoring: str = "int8"
    pieces: int | None = None
    loss: str = "softmax"
    neighbors: int = 20
    training_points: int = 0
    query_share: float = 0.4
    mixed_queries: int = 20_000
    noise: float = 0.12
    affinity: str = "both"
    probe_cut: float = 0.005
    normalize_affinity: bool = False
    exact_affinity: bool = False
    repartition: str = "bounded"
    choices: int = 32
    slack: float = 1.3
    buckets_per_item: int = 2
    self_hits: bool = True
    boost: bool = True
    epochs: int = 10
    repartition_every: int = 0
    epoch_size: int = 65_536
    stop_moved: float = 0.02
    until_converged: bool = False
    accept: str = "validated"
    batch_size: int = 512
    learning_rate: float = 2e-3
    schedule: str = "one-cycle"
    search: str = "threshold"
    seed: int = 0

    def __post_init__(self) -> None:
        for field in _COUNTS:
            check_int(field, getattr(self, field), at_least=1, owner=_OWNER)
        if self.pieces is not None:
            check_int("pieces", self.pieces, at_least=0, at_most=MOST_PIECES, owner=_OWNER)
        for field in _COUNTS_OR_ZERO:
            check_int(field, getattr(self, field), at_least=0, owner=_OWNER)
        check_int("buckets_per_item", self.buckets_per_item, at_least=1, at_most=2, owner=_OWNER)
        check_int("seed", self.seed, at_least=0, at_most=2**31 - 1, owner=_OWNER)
        check_float("slack", self.slack, at_least=1.0, owner=_OWNER)
        for field in ("query_share", "stop_moved"):
            check_float(field, getattr(self, field), at_least=0.0, at_most=1.0, owner=_OWNER)
        for field in ("noise", "probe_cut", "learning_rate"):
            check_float(field, getattr(self, field), at_least=0.0, owner=_OWNER)
        for field, allowed in _CHOICES.items():
            check_choice(field, getattr(self, field), allowed, owner=_OWNER)
        for field in _SWITCHES:
            check_bool(field, getattr(self, field), owner=_OWNER)
        if self.start != "kmeans" and self.router == "warm":
            raise InvalidParameter(
                f"The 'router' parameter of the recipe must be 'network' with start='{self.start}'."
                " Got 'warm' instead: centroid scores need centroids. Use start='kmeans' with it."
            )
        if self.trunk == "shared" and (self.router == "warm" or self.boost):
            raise InvalidParameter(
                "A recipe with trunk='shared' must have router='network' and boost=False. Got "
                f"router={self.router!r} and boost={self.boost}. Use trunk='own' with these."
            )
        if self.repartition == "least-loaded" and self.buckets_per_item > 1:
            raise InvalidParameter(
                "The 'buckets_per_item' parameter of the recipe must be 1 with "
                "repartition='least-loaded'. Got 2 instead. Use repartition='bounded'."
            )
        if self.until_converged and self.start == "one-per-item":
            raise InvalidParameter(
                "The 'until_converged' parameter of the recipe must be False with "
                "start='one-per-item', where no item moves. Got True instead. Set 'epochs'."
            )
        adjusted = self.affinity == "both" or self.probe_cut > 0 or self.normalize_affinity
        if self.exact_affinity and (adjusted or self.buckets_per_item > 1):
            raise InvalidParameter(
                "A recipe with exact_affinity=True must have affinity='item' or 'queries', "
                "probe_cut=0, normalize_affinity=False and buckets_per_item=1. Got "
                f"affinity={self.affinity!r}, probe_cut={self.probe_cut}, normalize_affinity="
                f"{self.normalize_affinity}, buckets_per_item={self.buckets_per_item}. "
                "Use exact_affinity=False with these."
            )

    def check_for_vectors(self) -> None:
        """Raise if the recipe is one for labels."""
        if self.name in _FOR_LABELS:
            others = ", ".join(repr(name) for name in RECIPES if name not in _FOR_LABELS)
            raise InvalidParameter(
                f"The 'recipe' parameter of an index of vectors must be one for vectors: {others}. "
                f"Got '{self.name}' instead. Use it with LabelIndex or irli labels fit."
            )

    def check_for_labels(self) -> None:
        """Raise unless labels, which have no vectors, can be learned with the recipe."""
        plain = self.scoring == "full" and self.router == "network" and not self.boost
        if not plain or self.affinity != "queries":
            raise InvalidParameter(
                "The 'recipe' parameter of an index of labels must have scoring='full', "
                "router='network', boost=False and affinity='queries': labels have no vectors. "
                f"Got '{self.name}' with scoring={self.scoring!r}, router={self.router!r}, "
                f"boost={self.boost}, affinity={self.affinity!r} instead. "
                "Start from recipe('labels') or recipe('paper-labels')."
            )

    def resolve(self, items: int, dim: int) -> Recipe:
        """Fill in the settings that depend on the data, and check that the others fit it.

        Examples
        --------
        >>> recipe("default").resolve(items=68_728, dim=384).buckets
        2048
        """
        self.check_for_vectors()
        if self.name == AUTO:
            chosen = RECIPES["exact" if is_exact_cheap(items, dim) else "default"]
            return dataclasses.replace(self, **_differences(chosen)).resolve(items, dim)
        buckets = self.buckets or choose_buckets(items)
        owner = f"a recipe for {items} items"
        check_int("buckets", buckets, at_most=items, owner=owner)
        named = RECIPES.get(self.name)
        if named is None or self.choices != named.choices:  # set by the user, so it must fit
            check_int("choices", self.choices, at_most=buckets, owner=f"{owner}, {buckets} buckets")
        return dataclasses.replace(
            self,
            buckets=buckets,
            training_points=self.training_points or choose_training_points(items),
            repartition_every=self.repartition_every
            or (_REPARTITION_EVERY if items < _HUGE else max(1, self.epochs // 2)),
            linear=0 if self.router == "network" else min(self.linear, dim),
            scoring="full" if self.scoring == "int8" and dim < _LEAST_ROUNDED else self.scoring,
            choices=min(self.choices, buckets),
            buckets_per_item=min(self.buckets_per_item, buckets),
            pieces=0 if self.pieces is None and items < _LEAST_CODED else self.pieces,
        )

    def resolve_for_labels(self, labels: int) -> Recipe:
        """Fill in the settings that depend on the number of labels.

        Examples
        --------
        >>> recipe("labels").resolve_for_labels(15_031).buckets
        613
        >>> recipe("labels").resolve_for_labels(983).start
        'one-per-item'
        """
        self.check_for_labels()
        chosen = self
        if self.start == "kmeans" and self.buckets == 0 and labels <= _MOST_ONE_PER_LABEL:
            named = RECIPES.get(self.name, self)
            few = {"repetitions": 1, "hidden": 2048, "loss": "sigmoid-bce", "epochs": 20}
            few |= {"batch_size": 256, "learning_rate": 4e-3}
            unchanged: dict[str, Any] = {
                key: few[key] for key in few if getattr(self, key) == getattr(named, key)
            }
            chosen = dataclasses.replace(self, start="one-per-item", **unchanged)
        if chosen.start == "one-per-item":
            chosen = dataclasses.replace(chosen, buckets=labels)
        buckets = chosen.buckets or choose_label_buckets(labels)
        check_int("buckets", buckets, at_most=labels, owner=f"a recipe for {labels} labels")
        return dataclasses.replace(
            chosen,
            buckets=buckets,
            repartition_every=self.repartition_every or 1,
            linear=0,
            choices=min(self.choices, buckets),
            buckets_per_item=min(self.buckets_per_item, buckets),
        )


_OWNER = "the recipe"
_FOR_LABELS = ("labels", "paper-labels")
_COUNTS = (
    "repetitions",
    "hidden",
    "neighbors",
    "choices",
    "epochs",
    "batch_size",
)
_COUNTS_OR_ZERO = (
    "buckets",
    "epoch_size",
    "mixed_queries",
    "linear",
    "features",
    "training_points",
    "repartition_every",
)
_SWITCHES = (
    "boost",
    "exact_affinity",
    "normalize_affinity",
    "self_hits",
    "standardize",
    "until_converged",
)
_CHOICES = {
    "start": ("kmeans", "hash", "one-per-item"),
    "scoring": ("int8", "full"),
    "trunk": ("own", "shared"),
    "router": ("warm", "network"),
    "loss": ("softmax", "sigmoid-bce", "softmax-bce"),
    "affinity": ("item", "queries", "both"),
    "repartition": ("bounded", "least-loaded"),
    "accept": ("validated", "always"),
    "schedule": ("one-cycle", "constant"),
    "search": ("threshold", "votes"),
}

AUTO = "auto"

RECIPES = {
    # Becomes "exact" or "default", by the size of the data (see `is_exact_cheap`).
    AUTO: Recipe(name=AUTO),
    "default": Recipe(),
    # For given relevance, which distances may not explain: several repetitions, whose scores
    # together tell the items of a bucket apart.
    "relevance": Recipe(name="relevance", repetitions=4, boost=False),
    # All items in one bucket, and nothing to learn.
    "exact": Recipe(name="exact", buckets=1, pieces=0, self_hits=False),
    # Section 5.2 and the authors' code: start from a hash, least loaded of 10 buckets.
    "paper": Recipe(
        name="paper",
        repetitions=32,
        buckets=5000,
        start="hash",
        router="network",
        hidden=1024,
        standardize=False,
        scoring="full",
        pieces=0,
        self_hits=False,
        loss="sigmoid-bce",
        neighbors=100,
        training_points=10_000_000,
        mixed_queries=0,
        noise=0.0,
        affinity="item",
        probe_cut=0.0,
        exact_affinity=True,
        repartition="least-loaded",
        choices=10,
        buckets_per_item=1,
        boost=False,
        epochs=30,
        repartition_every=5,
        epoch_size=0,
        stop_moved=0.0,
        accept="always",
        batch_size=256,
        learning_rate=1e-3,
        schedule="constant",
        search="votes",
    ),
    # Labels have no vectors, so the router cannot score them: affinity comes from the queries.
    "labels": Recipe(
        name="labels",
        repetitions=4,
        trunk="shared",
        router="network",
        linear=0,
        hidden=192,
        features=1 << 20,
        scoring="full",
        pieces=0,
        mixed_queries=0,
        noise=0.0,
        affinity="queries",
        probe_cut=0.0,
        normalize_affinity=True,
        self_hits=False,
        buckets_per_item=1,
        boost=False,
        epochs=5,
        repartition_every=1,
        epoch_size=0,
        batch_size=128,
    ),
}
# The paper's settings for labels (section 5.1). Affinity comes from the rows that have the label.
RECIPES["paper-labels"] = dataclasses.replace(
    RECIPES["paper"], name="paper-labels", buckets=20_000, affinity="queries"
)
# The paper's settings for each of the 8 nodes with 12.5 million vectors of Deep-1B (section 5.3).
# It learns from given queries alone: there, 10 million vectors of the learning set.
RECIPES["paper-deep"] = dataclasses.replace(
    RECIPES["paper"],
    name="paper-deep",
    repetitions=4,
    buckets=20_000,
    query_share=1.0,
    epochs=20,
)


def recipe(name: str = "default", /, **changes: Any) -> Recipe:
    """Return a named recipe with some of its settings changed.

    Examples
    --------
    >>> recipe("paper", repetition=4)
    Traceback (most recent call last):
    irli.errors.InvalidParameter: The recipe has no setting 'repetition'. Did you mean
    'repetitions'?
    """
    base = RECIPES[check_choice("recipe", name, RECIPES)]
    if name == AUTO and changes.keys() - {"seed"}:
        base = RECIPES["default"]  # who sets how to learn wants to learn
    known = [field.name for field in dataclasses.fields(Recipe) if field.name != "name"]
    for key in changes:
        if key not in known:
            advice = suggest(key, known, otherwise=f"It has: {', '.join(known)}.")
            raise InvalidParameter(f"The recipe has no setting '{key}'. {advice}")
    return dataclasses.replace(base, **changes)


def as_recipe(given: str | Recipe) -> Recipe:
    """Return a recipe. It may be given by its name."""
    return given if isinstance(given, Recipe) else recipe(given)


def _differences(chosen: Recipe) -> dict[str, Any]:
    """Return the settings in which a recipe differs from the default one, and its name."""
    fields = [field.name for field in dataclasses.fields(Recipe)]
    changed = {key: getattr(chosen, key) for key in fields}
    return {key: changed[key] for key in fields if changed[key] != getattr(Recipe(), key)} | {
        "name": chosen.name
    }


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
