"""No damage to the folder of a label index makes a kernel leave the bounds of an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from damage import Array, change, change_meta, edits, put, read
from hypothesis import given, settings
from hypothesis import strategies as st

from irli import FormatError, LabelIndex
from irli.base.folder import Folder
from irli.labels.contents import pack_labels
from irli.labels.parameters import SCORES

NAMES = ("features", "texts", "near")
PLAIN = {"by_margin": 0.0, "by_score": 1.0, "threshold": 0.0, "curve": []}
BAD_CURVES = (
    [[0.0, 0.0]],
    [[0.0, 0.0], [1.0, 0.0]],
    [[1.0, 0.0], [0.0, 1.0]],
    [[0.0, 0.0], [1e-320, 1.0]],
    [[0.0, 0.0], [1.0, 1e400]],
    [[0.0, 0.0], [1.0, "steep"]],
    [[0.0, 0.0], [1.0]],
    "straight",
    1,
)
ARRAYS = sorted({name for kind in NAMES for name in (*read(kind).arrays, *read(kind).tensors)})


def predict_in_every_way(index: LabelIndex) -> None:
    """Run all kernels of a prediction; what they answer does not matter."""
    rng = np.random.default_rng(0)
    rows = rng.random((9, index.stats()["dim"])).astype(np.float32)
    for score in SCORES:
        for ranker in (None, False):
            for probes in (1, 3, 10**6):
                found = index.predict(rows, 4, ranker=ranker, probes=probes, score=score, threads=1)
                assert found.labels.shape == (9, 4)
                assert found.labels.max() < len(index)
    assert index.predict(rows[0], len(index) + 2).labels.shape == (len(index) + 2,)
    for near in (0, 1, 10**6) if index.calibration.by_votes > 0 else (0,):
        assert index.predict(rows, 4, near=near).labels.max() < len(index)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_damaged_opens(name: str) -> None:
    predict_in_every_way(LabelIndex.from_folder(read(name)))


def test_they_have_every_source() -> None:
    ranked = [read(name).meta["calibration"]["by_margin"] > 0 for name in NAMES]
    assert ranked == [True, False, True]
    votes = [read(name).meta["calibration"].get("by_votes", 0) > 0 for name in NAMES]
    assert votes == [True, False, True]
    written = pack_labels(LabelIndex.from_folder(read("near"))._fitted().contents)
    assert {*written.arrays, *written.tensors} - {"names", "names_offsets"} <= set(ARRAYS)


def widen(array: Array) -> Array:
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, 1)])


def drop(array: Array) -> Array:
    return array[:-1]


# The folder, the array, what is done to it, and the array that the error names.
DAMAGE: list[tuple[str, str, Callable[[Array], Array], str]] = [
    ("features", "items", put(0, -1), "items"),
    ("features", "items", put(0, 10**6), "items"),
    ("features", "items", drop, "offsets"),
    ("features", "offsets", put((0, 1), -1), "offsets"),
    ("features", "offsets", put((0, 0), 1), "offsets"),
    ("features", "offsets", put((-1, -1), 10**9), "offsets"),
    ("features", "offsets", widen, "offsets"),
    ("features", "share", drop, "share"),
    ("features", "prior", drop, "items"),
    ("features", "prior", widen, "scale"),
    ("features", "bias", widen, "offsets"),
    ("features", "shift", widen, "project"),
    ("features", "shift", lambda a: np.concatenate([a] * 7), "shift"),
    ("features", "project", widen, "project"),
    ("features", "project", lambda a: a[:, :-1], "project_scale"),
    ("features", "project", lambda a: a.view(np.uint8), "project"),
    ("features", "project_scale", widen, "project_scale"),
    ("features", "out", lambda a: a[:, :0], "out"),
    ("features", "out", widen, "out"),
    ("features", "out_scale", widen, "out_scale"),
    ("features", "starts", drop, "starts"),
    ("features", "starts", put(1, -1), "starts"),
    ("features", "starts", put(-1, 10**9), "starts"),
    ("features", "starts", lambda a: a[-1:] * 0, "starts"),
    ("features", "gaps", put(0, 60_000), "gaps"),
    ("features", "gaps", put(slice(None), 60_000), "gaps"),
    ("features", "gaps", drop, "weights"),
    ("features", "weights", drop, "weights"),
    ("features", "scale", drop, "scale"),
    ("features", "constant", drop, "constant"),
    ("features", "counts", drop, "counts"),
    ("features", "trained", lambda a: a.astype(np.int64), "trained"),
    ("near", "near_starts", drop, "near_starts"),
    ("near", "near_starts", put(1, -1), "near_starts"),
    ("near", "near_starts", put(-1, 10**9), "near_starts"),
    ("near", "near_starts", lambda a: a[-1:] * 0, "near_starts"),
    ("near", "near_starts", lambda a: a.astype(np.int32), "near_starts"),
    ("near", "near_gaps", put(0, 60_000), "near_gaps"),
    ("near", "near_gaps", drop, "near_weights"),
    ("near", "near_weights", drop, "near_weights"),
    ("near", "near_scale", drop, "near_gaps"),
    ("near", "near_scale", lambda a: a[:0], "near_gaps"),
    ("near", "near_scale", widen, "near_label_starts"),
    ("near", "near_label_starts", drop, "near_label_starts"),
    ("near", "near_label_starts", put(3, -1), "near_label_starts"),
    ("near", "near_label_starts", put(-1, 10**9), "near_label_starts"),
    ("near", "near_labels", put(0, -1), "near_labels"),
    ("near", "near_labels", put(0, 10**6), "near_labels"),
    ("near", "near_labels", drop, "near_label_starts"),
    ("near", "near_labels", lambda a: a.astype(np.int64), "near_labels"),
    ("near", "factors", drop, "factors"),
    ("near", "factors", lambda a: a.astype(np.float64), "factors"),
    ("near", "means", widen, "means"),
    ("near", "means", lambda a: a[:0], "means"),
    ("texts", "scale", lambda a: np.zeros(3, a.dtype), "scale"),
    ("texts", "gaps", lambda a: np.zeros(3, a.dtype), "weights"),
]


@pytest.mark.parametrize(("name", "array", "edit", "named"), DAMAGE)
def test_an_array_that_does_not_fit_is_named(
    name: str, array: str, edit: Callable[[Array], Array], named: str
) -> None:
    with pytest.raises(FormatError, match=rf"^The array '{named}' of the index must .* Got .*"):
        LabelIndex.from_folder(change(read(name), array, edit))


def test_labels_of_a_feature_stay_below_their_number() -> None:
    """The last weight of a feature may be that of the last label, and no further."""
    folder = read("features")
    starts, gaps = folder.arrays["starts"], folder.arrays["gaps"]
    labels = len(folder.arrays["prior"])
    feature = int(np.argmax(np.diff(starts) > 0))
    last, total = starts[feature + 1] - 1, gaps[starts[feature] : starts[feature + 1]].sum()
    fits = gaps[last] + labels - 1 - total
    predict_in_every_way(LabelIndex.from_folder(change(folder, "gaps", put(last, fits))))
    with pytest.raises(FormatError, match=rf"range \[0, {labels - 1}\]\. Got {labels}"):
        LabelIndex.from_folder(change(folder, "gaps", put(last, fits + 1)))


@pytest.mark.parametrize("name", NAMES)
def test_every_array_must_be_there(name: str) -> None:
    folder = read(name)
    for missing in {*folder.arrays, *folder.tensors} - {"names"}:
        arrays = {key: value for key, value in folder.arrays.items() if key != missing}
        tensors = {key: value for key, value in folder.tensors.items() if key != missing}
        with pytest.raises(FormatError, match=missing):
            LabelIndex.from_folder(Folder(folder.kind, folder.meta, arrays, tensors))


@pytest.mark.parametrize(
    "changes",
    [
        {"dim": 3},
        {"dim": 10**6},
        {"dim": 0},
        {"dim": "wide"},
        {"rows": -1},
        {"ranker": "yes"},
        {"defaults": {"probes": 0.5}},
        {"defaults": {"probes": -1}},
        {"defaults": {"candidates": -1}},
        {"defaults": {"score": "best"}},
        {"calibration": PLAIN | {"by_margin": -1.0}},
        {"calibration": PLAIN | {"by_margin": "much"}},
        {"calibration": PLAIN | {"by_score": None}},
        {"calibration": {"by_margin": 0.0, "curve": []}},
        {"calibration": PLAIN | {"by_votes": -1.0}},
        {"calibration": PLAIN | {"own": "yes"}},
        {"alone": PLAIN | {"by_score": "much"}},
        {"alone": {"by_margin": 0.0, "curve": []}},
        {"alone": PLAIN | {"by_margin": 0.5}},
        {"alone": PLAIN | {"by_votes": 0.5}},
        *({"alone": {**PLAIN, "curve": curve}} for curve in BAD_CURVES),
        {"defaults": {"near": -1}},
        {"defaults": {"near": 0.5}},
        {"scaling": "best"},
        {"scaling": "unit"},
        {"scaling": "tf-idf"},
        {"scaling": ["standard"]},
        {"scaling": None},
        {"prune": None},
        {"objective": "recall"},
        {"recipe": {"features": 2}},
        {"recipe": {"affinity": "both"}},
        {"text": {"ngrams": 0, "min_df": 1, "max_df": 1.0}},
        {"text": {"ngrams": 2**62, "min_df": 1, "max_df": 1.0}},
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    folder = read("near")
    LabelIndex.from_folder(folder)
    if "recipe" in changes:
        changes = {"recipe": folder.meta["recipe"] | changes["recipe"]}
    with pytest.raises(FormatError):
        LabelIndex.from_folder(change_meta(folder, **changes))


def test_a_ranker_must_be_there_to_be_used() -> None:
    calibration = PLAIN | {"by_margin": 1.0}
    with pytest.raises(FormatError, match="array 'starts' of the index must be int64 of shape"):
        LabelIndex.from_folder(change_meta(read("texts"), calibration=calibration))


def test_near_rows_must_be_there_to_be_used() -> None:
    calibration = PLAIN | {"by_votes": 1.0}
    with pytest.raises(
        FormatError, match="array 'near_starts' of the index must be int64 of shape"
    ):
        LabelIndex.from_folder(change_meta(read("texts"), calibration=calibration))


@pytest.mark.parametrize(("name", "parts"), [("texts", "words"), ("texts", "names")])
def test_there_is_a_string_for_each_word_and_label(name: str, parts: str) -> None:
    folder = read(name)
    end = int(folder.arrays[f"{parts}_offsets"][-2])
    folder = change(folder, parts, lambda array: array[:end])
    folder = change(folder, f"{parts}_offsets", drop)
    if parts == "words":
        folder = change(folder, "idf", drop)
    with pytest.raises(FormatError, match=f"The array '{parts}' of the index must"):
        LabelIndex.from_folder(folder)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.tuples(st.sampled_from(ARRAYS), edits()), max_size=3))
def test_any_damage_is_refused_or_harmless(name: str, damage: list[tuple[str, Any]]) -> None:
    folder = read(name)
    for array, edit in damage:
        if array in folder.arrays or array in folder.tensors:
            folder = change(folder, array, edit)
    try:
        index = LabelIndex.from_folder(folder)
    except FormatError:
        return
    predict_in_every_way(index)
