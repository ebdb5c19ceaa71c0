"""LabelContents: the parts of a label index, packed into an index folder and unpacked again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irli.base.arrays import array_error, check_array, check_history, damage_error
from irli.base.checks import check_bool, check_choice, check_float, check_int
from irli.base.folder import LABELS, Folder, check_kind, reading
from irli.base.recipe import Recipe, read_recipe
from irli.engine.label_layout import LabelLayout, check_label_layout
from irli.labels.build.features import count_features
from irli.labels.build.scaling import SCALINGS, Scaling
from irli.labels.parameters import LabelParameters
from irli.labels.text.vectorizer import Names, Vectorizer
from irli.labels.tuning.calibration import EVERY, Calibration
from irli.labels.tuning.curve import Curve
from irli.labels.tuning.objective import OBJECTIVES
from irli.labels.tuning.tune import LabelModel, LabelTuneResult, RankingOptions
from irli.learning.repetition import History

_TENSORS = ("project", "project_scale", "shift", "out", "out_scale", "bias")
_ARRAYS = tuple(name for name in LabelLayout._fields if name not in _TENSORS)
_USUAL = RankingOptions()


@dataclass(frozen=True, eq=False)
class LabelContents:
    """All parts of a label index.

    Attributes
    ----------
    recipe : Recipe
        Resolved.
    model : LabelModel
        Layout, parameters and calibration: all that prediction needs.
    history : list of dict
        One entry for each re-partition of each repetition.
    rows, dim : int
        The number of rows it has learned from, and of their features.
    counts : int64 array of shape (L,)
        The number of these rows that carry each label.
    trained : uint64 array
        Keys (`row_keys`) of the rows that the routers have learned from.
    seen : uint64 array
        Keys (`pair_keys`) of the rows, with their labels, that the ranker has learned from.
    names : Names or None
    vectorizer : Vectorizer or None
    ranking : RankingOptions
        What the user wants of ranking.
    titled : pairs of int
        Which near rows are titles of labels: the first one, and the one after the last.
    """

    recipe: Recipe
    model: LabelModel
    history: History
    rows: int
    dim: int
    counts: NDArray[np.int64]
    trained: NDArray[np.uint64]
    seen: NDArray[np.uint64]
    names: Names | None = None
    vectorizer: Vectorizer | None = None
    ranking: RankingOptions = _USUAL
    titled: Sequence[tuple[int, int]] = ()


def pack_labels(contents: LabelContents) -> Folder:
    """Return the contents as an index folder in memory: arrays and plain values."""
    model = contents.model
    layout = model.layout._asdict()
    names = {} if contents.names is None else contents.names.state()
    vectorizer = contents.vectorizer
    text, words = (None, {}) if vectorizer is None else vectorizer.state()
    meta = {
        "recipe": dataclasses.asdict(contents.recipe),
        "defaults": dataclasses.asdict(model.parameters),
        "calibration": model.calibration.state(),
        "alone": model.alone.state(),
        "scaling": model.scaling.name,
        "prune": model.prune,
        "objective": contents.ranking.objective,
        "history": contents.history,
        "rows": contents.rows,
        "dim": contents.dim,
        "text": text,
        "ranker": contents.ranking.ranker,
        "titled": [list(pair) for pair in contents.titled],
        "tuned": None if model.tuned is None else _pack_tuned(model.tuned),
    }
    arrays = {name: layout[name] for name in _ARRAYS} | {
        "counts": contents.counts,
        "trained": contents.trained,
        "seen": contents.seen,
        "factors": model.scaling.factors,
        "means": model.scaling.means,
    }
    tensors = {name: layout[name] for name in _TENSORS}
    return Folder(LABELS, meta, arrays | names | words, tensors)


def unpack_labels(folder: Folder) -> LabelContents:
    """Return the contents that `pack_labels` put into a folder, or raise `FormatError`."""
    check_kind(folder, LABELS)
    meta, arrays = folder.meta, folder.arrays
    with reading():
        contents = LabelContents(
            recipe=read_recipe(meta["recipe"], labels=True),
            model=LabelModel(
                LabelLayout(**folder.tensors, **{name: arrays[name] for name in _ARRAYS}),
                LabelParameters.from_json(meta["defaults"]),
                unpack_calibration(meta["calibration"]),
                unpack_calibration(meta["alone"]),
                _unpack_tuned(meta["tuned"]),
                scaling=Scaling(
                    check_choice("scaling", meta["scaling"], SCALINGS),
                    arrays["factors"],
                    arrays["means"],
                ),
                prune=check_float("prune", meta["prune"], at_least=0.0),
            ),
            history=check_history(meta["history"]),
            rows=check_int("rows", meta["rows"], at_least=0),
            dim=check_int("dim", meta["dim"], at_least=1),
            counts=arrays["counts"],
            trained=arrays["trained"],
            seen=arrays["seen"],
            names=Names.from_state(arrays) if "names" in arrays else None,
            vectorizer=(
                None if meta["text"] is None else Vectorizer.from_state(meta["text"], arrays)
            ),
            ranking=RankingOptions(
                None if meta["ranker"] is None else check_bool("ranker", meta["ranker"]),
                check_choice("objective", meta["objective"], OBJECTIVES),
            ),
            titled=_unpack_ranges(meta["titled"]),
        )
        _check_contents(contents)
        return contents


def _pack_tuned(tuned: LabelTuneResult) -> dict[str, Any]:
    return tuned._asdict() | {"parameters": dataclasses.asdict(tuned.parameters)}


def _unpack_tuned(values: Any) -> LabelTuneResult | None:
    """Return what `fit` measured."""
    if values is None:
        return None
    return LabelTuneResult(
        parameters=LabelParameters.from_json(values["parameters"]),
        ranker=check_bool("ranker", values["ranker"]),
        precision=check_float("precision", values["precision"]),
        precision_without_ranker=check_float(
            "precision_without_ranker", values["precision_without_ranker"]
        ),
        rows=check_int("rows", values["rows"], at_least=0),
    )


def unpack_calibration(values: dict[str, Any]) -> Calibration:
    """Return the calibration that `state` turned into plain values."""
    curve = tuple((check_float("curve", x), check_float("curve", y)) for x, y in values["curve"])
    return Calibration(**values | {"curve": curve})


def check_calibration(one: Calibration) -> None:
    """Raise unless all numbers of a calibration that was read can be used."""
    check_float("by_margin", one.by_margin, at_least=0.0)
    check_float("by_votes", one.by_votes, at_least=0.0)
    check_float("by_score", one.by_score)
    check_float("threshold", one.threshold)
    check_bool("own", one.own)
    check_int("complete", one.complete, at_least=0, at_most=EVERY)
    _check_curve(one.curve)


def _check_curve(curve: Curve) -> None:
    """Raise unless the scores and the log-odds of the points ascend."""
    x, y = np.array(curve).reshape(-1, 2).T
    with np.errstate(all="ignore"):
        slopes = np.diff(y) / np.diff(x)
    ascends = (np.diff(x) > 0).all() and (slopes > 0).all() and np.isfinite(slopes).all()
    if len(x) == 1 or not ascends:
        raise damage_error("curve", "have two or more points that ascend, or none", str(curve))


def _unpack_ranges(ranges: Any) -> list[tuple[int, int]]:
    """Return which near rows are titles: pairs of the first one and the one after the last."""
    found = [(check_int("titled", first), check_int("titled", last)) for first, last in ranges]
    bounds = [0, *(bound for pair in found for bound in pair)]
    if bounds != sorted(bounds):
        raise damage_error("field 'titled'", "be pairs of numbers that rise from 0", str(ranges))
    return found


def _check_scaling(scaling: Scaling, dim: int) -> None:
    factors = dim if scaling.name in ("tf-idf", "standard") else 0
    check_array("factors", scaling.factors, np.float32, factors)
    check_array("means", scaling.means, np.float32, dim if scaling.name == "standard" else 0)


def _check_contents(contents: LabelContents) -> None:
    """Raise unless the parts agree: then no kernel leaves the bounds of an array."""
    layout, calibration = contents.model.layout, contents.model.calibration
    check_label_layout(layout)
    labels, features = len(layout.prior), contents.dim
    check_array("counts", contents.counts, np.int64, labels)
    check_array("trained", contents.trained, np.uint64, None)
    check_array("seen", contents.seen, np.uint64, None)
    if contents.names is not None and len(contents.names) != labels:
        raise array_error("names", f"name {labels} labels", str(len(contents.names)))
    if contents.vectorizer is not None and len(contents.vectorizer.words) != features:
        raise array_error("words", f"have {features} words", str(len(contents.vectorizer.words)))
    width = count_features(features, contents.recipe)
    check_array("project", layout.project, np.int8, None, width, None)
    alone = contents.model.alone
    for one in (calibration, alone):
        check_calibration(one)
    if alone.by_margin or alone.by_votes:
        weights = f"by_margin={alone.by_margin}, by_votes={alone.by_votes}"
        raise damage_error("field 'alone'", "weigh neither the ranker nor near rows", weights)
    if len(layout.starts) > 1 or calibration.by_margin > 0:  # there is a ranker
        check_array("starts", layout.starts, np.int64, features + 1)
    if len(layout.near_starts) > 1 or calibration.by_votes > 0:  # there are near rows
        check_array("near_starts", layout.near_starts, np.int64, features + 1)
    _check_scaling(contents.model.scaling, features)
