"""Networks that kernels train: they learn what torch learns, with the same bits on any threads."""

from __future__ import annotations

import dataclasses
import signal
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import small_default, small_paper
from lessons import LEARNERS, Taught, make_network, teach
from numpy.typing import NDArray
from plantedlabels import small_labels
from problems import Task, label_task, learn_task, vector_task

from irli import _native
from irli.base.types import Arrays
from irli.learning.network import LOSSES, NativeNetwork, Rates, log_scores
from irli.learning.threads import use_threads
from irli.learning.weights import read_routers

# What a step may depend on, besides the loss.
LESSONS: dict[str, dict[str, Any]] = {
    "dense": {},
    "no linear part": {"linear": 0},
    "sparse": {"sparse": True},
    "heads": {"heads": 3},
    "sparse heads": {"heads": 3, "sparse": True},
    "two buckets": {"copies": 2},
    "two buckets and heads": {"copies": 2, "heads": 2},
    "softened": {"soften": True},
    "softened heads": {"soften": True, "heads": 2, "copies": 2},
    "many buckets": {"buckets": 70},
}


def make_pair(taught: Taught, loss: str, rates: Rates | None = None) -> list[Any]:
    """Return the same network by the kernels and by torch."""
    sparse = not isinstance(taught.lesson.queries, np.ndarray)
    given = {"sparse": sparse, "loss": loss, "rates": rates}
    return [make_network(taught.weights, device, **given) for device in LEARNERS]


def read_gradients(network: Any) -> dict[str, NDArray]:
    """Return the gradients of the last step of torch, as `Weights` has them."""
    hidden, linear, gain = network.hidden.grad, network.linear.grad, network.weights.gain
    hidden = hidden.to_dense() if hidden.is_sparse else hidden
    parts = [] if linear is None else [linear.numpy().T]
    shift = np.zeros(network.weights.linear, dtype=np.float32)
    return {
        "project": np.concatenate([*parts, hidden.numpy() / gain], axis=1),
        "shift": np.concatenate([shift, network.shift.grad.numpy()]),
        "out": network.out.grad.numpy().reshape(network.weights.out.shape),
        "bias": network.bias.grad.numpy().reshape(network.weights.bias.shape),
    }


# --- the kernels and torch -------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", LESSONS)
def test_a_step_is_that_of_torch(name: str, loss: str) -> None:
    """Gradients, and weights wherever a gradient is more than the error of its sum."""
    taught = teach(**LESSONS[name])
    rates = Rates(linear=0.5, sparse=3.0 if "sparse" in name else 1.0)
    native, reference = make_pair(taught, loss, rates)
    rows = np.random.default_rng(1).integers(60, size=50)
    losses = [taught.learn(network, rows, steps=1, rate=0.01) for network in (native, reference)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    state, right = native.state(), read_gradients(reference)
    found, expected = native.read(), reference.read()
    for part, gradient in right.items():
        large = np.abs(gradient).max()
        moment = state[f"{part}.first"] / 0.1
        linear = taught.weights.linear
        if part == "shift":  # that of the linear columns is not learned
            moment[:linear] = 0
        np.testing.assert_allclose(moment, gradient, rtol=1e-3, atol=1e-5 * large, err_msg=part)
        old = getattr(taught.weights, part)
        clear = np.abs(gradient) > 1e-2 * large
        assert clear.mean() > 0.3
        one, other = (getattr(weights, part) - old for weights in (found, expected))
        assert (np.abs(one)[clear] > 1e-3).all()
        np.testing.assert_allclose(one[clear], other[clear], rtol=1e-2, err_msg=part)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", LESSONS)
def test_many_steps_are_those_of_torch(name: str, loss: str) -> None:
    taught = teach(**LESSONS[name])
    networks = make_pair(taught, loss)
    rng = np.random.default_rng(2)
    curves = []
    rows = [rng.integers(60, size=100) for _ in range(12)]
    for network in networks:
        curves.append([taught.learn(network, part, steps=4) for part in rows])
    np.testing.assert_allclose(*curves, rtol=2e-3)
    assert curves[0][-1] < 0.97 * curves[0][0]
    for head in range(networks[0].heads):
        one, other = (network.score(taught.lesson.queries, head) for network in networks)
        np.testing.assert_allclose(one, other, rtol=0.05, atol=0.05)


def test_rows_that_want_nothing_teach_nothing() -> None:
    """Where the loss is of all buckets, they teach that these hold nothing."""
    for loss in LOSSES:
        taught = teach()
        rows = np.arange(5)  # of no relevant item
        network, _ = make_pair(taught, loss)
        found = taught.learn(network, rows, steps=1)
        assert np.isfinite(found)
        same = np.array_equal(network.read().out, taught.weights.out)
        assert same == (loss == "softmax") == (found == 0)


@pytest.mark.parametrize(
    "task",
    [
        vector_task(small_default(epochs=4, epoch_size=0, batch_size=32)),
        vector_task(small_paper(repetitions=1, buckets=8)),
        label_task(small_labels(epochs=6)),
        label_task(small_labels(epochs=6), dense=True),
    ],
    ids=["default", "paper", "labels", "dense labels"],
)
def test_learning_follows_the_same_curve_as_with_torch(task: Task) -> None:
    """On the mean of three seeds. Noise and partitions differ."""
    curves = []
    for device in LEARNERS:
        runs = []
        for seed in range(3):
            seeded = task._replace(recipe=dataclasses.replace(task.recipe, seed=seed))
            history = learn_task(seeded, device=device)[0].history
            runs.append([(entry["loss"], entry["recall"]) for entry in history])
        curves.append(np.mean(runs, axis=0))
    np.testing.assert_allclose(curves[0][:, 0], curves[1][:, 0], rtol=0.15)
    np.testing.assert_allclose(curves[0][:, 1], curves[1][:, 1], atol=0.1)


@pytest.mark.parametrize("device", LEARNERS)
def test_the_best_buckets_and_what_all_add_up_to(device: str) -> None:
    taught = teach(heads=2, buckets=20)
    network = make_network(taught.weights, device)
    likely = log_scores(network.score(taught.lesson.queries, 1), "softmax")
    marginal = np.zeros(20)
    places, values = network.rank(taught.lesson.queries, 1, 4, marginal)
    np.testing.assert_allclose(values, -np.sort(-likely, axis=1)[:, :4], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(likely, places, axis=1), values, atol=1e-5)
    np.testing.assert_allclose(marginal, np.exp(likely).sum(axis=0), rtol=1e-4)


@pytest.mark.parametrize("device", LEARNERS)
def test_noise_moves_queries_by_about_its_length(device: str) -> None:
    still, moved = teach(noise=0.0), teach(noise=1.0)
    rows = np.arange(10, 60)
    states = []
    for taught in (still, moved, moved):
        network = make_network(taught.weights, device)
        states.append(taught.learn(network, rows, steps=1))
    assert states[1] == states[2] != states[0]
    assert states[1] == pytest.approx(states[0], rel=0.5)


def test_noise_is_as_long_as_said() -> None:
    """The loss tells: the only weights are a bias, which is softened by the squared length."""
    dim, count = 400, 4000
    queries = np.zeros((count, dim), dtype=np.float32)
    starts = np.arange(count + 1)
    pairs = _native.TrainingPairs(starts, np.zeros(count, np.int64), np.ones(count, np.float32), 1)
    wrapped = _native.TrainingQueries(queries, None, None, None, dim)
    for length in (0.5, 2.0):
        losses = np.empty(1)
        noise = np.full(count, length, dtype=np.float32)
        owner = np.zeros((1, 1), dtype=np.int32)
        trainer = _native.Trainer(dim, 1, 2, 1, 2, False)
        trainer.write("bias", np.array([1, 0], dtype=np.float32))
        trainer.soften(1.0, 1e9, 0.0)
        rows = np.arange(count)
        steps = rows, 0, count, np.ones(1), 0, 1, losses
        trainer.train(wrapped, pairs, [owner], noise, 5, 0, *steps)
        assert losses[0] == pytest.approx(np.log1p(np.exp(-1 / (1 + length**2))), rel=0.01)


# --- the same bits ---------------------------------------------------------------------------


def assert_same_state(one: Arrays, other: Arrays) -> None:
    assert set(one) == set(other)
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", LESSONS)
def test_threads_change_no_bit(name: str, loss: str) -> None:
    taught = teach(noise=0.3 * (name == "dense"), **LESSONS[name])
    rows = np.random.default_rng(3).integers(60, size=400)
    states, losses = [], []
    for threads in (1, 2, 3):
        network = make_pair(taught, loss)[0]
        with use_threads(threads):
            losses.append(taught.learn(network, rows, steps=3))
            states.append(network.state())
            logits = network.score(taught.lesson.queries, 0)
        if threads == 1:
            right = logits
        np.testing.assert_array_equal(logits, right)
        assert_same_state(states[-1], states[0])
    assert losses == losses[:1] * 3


@pytest.mark.parametrize("device", LEARNERS)
@pytest.mark.parametrize("name", LESSONS)
def test_a_network_goes_on_from_its_state(name: str, device: str) -> None:
    """Noise included: it is that of the place of a row among all."""
    taught = teach(noise=0.0 if "sparse" in name else 0.3, **LESSONS[name])
    sparse = not isinstance(taught.lesson.queries, np.ndarray)
    rows = np.random.default_rng(4).integers(60, size=(3, 80))

    def begin() -> Any:
        return make_network(taught.weights, device, sparse=sparse)

    whole, first = begin(), begin()
    for part in rows:
        taught.learn(whole, part, steps=4)
    for part in rows[:2]:
        taught.learn(first, part, steps=4)
    kept = deepcopy(first.state())
    taught.learn(first, rows[2], steps=4)  # changes nothing of what was kept
    second = begin()
    second.restore(kept)
    taught.learn(second, rows[2], steps=4)
    for network in (first, second):
        assert_same_state(network.state(), whole.state())


@pytest.mark.parametrize("device", LEARNERS)
@pytest.mark.parametrize("heads", [1, 2])
def test_what_goes_on_from_routers_is_read_again(heads: int, device: str) -> None:
    """Their weights are in another order in memory."""
    taught = teach(linear=0, heads=heads)
    begun = read_routers(taught.weights.to_routers())
    network = make_network(begun, device)
    taught.learn(network, np.arange(60), steps=2)
    found = network.read()
    for name in ("project", "shift", "out", "bias"):
        assert not np.array_equal(getattr(found, name), getattr(begun, name)), name
    again = make_network(found, device)
    logits = network.score(taught.lesson.queries, 0)
    np.testing.assert_allclose(again.score(taught.lesson.queries, 0), logits, rtol=1e-5, atol=1e-5)


def test_one_call_or_many_take_the_same_steps() -> None:
    """Kernels come back now and then."""
    taught = teach(noise=0.3)
    rows = np.random.default_rng(5).integers(60, size=90)
    whole, parts = (make_network(taught.weights) for _ in range(2))
    taught.learn(whole, rows, steps=9)
    for start in range(0, 90, 30):
        taught.learn(parts, rows[start : start + 30], steps=3)
    assert_same_state(whole.state(), parts.state())


# --- interrupts ------------------------------------------------------------------------------


def test_kernels_come_back_after_a_while() -> None:
    """These steps would take many seconds on any machine."""
    taught = teach(buckets=70)
    network = make_network(taught.weights)
    count = 5_000_000
    queries, pairs = taught.lesson.native
    done = network.trainer.train(
        queries,
        pairs,
        taught.assignments,
        None,
        0,
        0,
        np.zeros(count, dtype=np.int64),
        0,
        100,
        np.zeros(count // 100),
        0,
        2,
        np.empty(count // 100),
    )
    assert 0 < done < count
    assert done % 100 == 0


def test_an_interrupt_ends_learning() -> None:
    taught = teach(buckets=70)
    network = make_network(taught.weights)
    rows = np.zeros(5_000_000, dtype=np.int64)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            taught.learn(network, rows, steps=50_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert network.steps == 0


# --- wrong arrays ----------------------------------------------------------------------------


def floats(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, dtype=np.float32)


@pytest.mark.parametrize(
    "given",
    [
        (floats(3, 4), None, None, None, 5),
        (floats(3), None, None, None, 3),
        (np.zeros((3, 4)), None, None, None, 4),
        (floats(4, 3).T, None, None, None, 4),
        (None, None, None, None, 4),
        (None, np.array([0, 1]), None, floats(1), 4),
        (None, np.empty(0, np.int64), np.empty(0, np.int32), floats(0), 4),
        (None, np.array([0, 2]), np.array([1], np.int32), floats(1), 4),
        (None, np.array([1, 1]), np.array([1], np.int32), floats(1), 4),
        (None, np.array([0, 2, 1]), np.array([1], np.int32), floats(1), 4),
        (None, np.array([0, -1, 1]), np.array([1], np.int32), floats(1), 4),
        (None, np.array([0, 1]), np.array([4], np.int32), floats(1), 4),
        (None, np.array([0, 1]), np.array([-1], np.int32), floats(1), 4),
        (None, np.array([0, 1]), np.array([1], np.int32), floats(2), 4),
        (None, np.array([0, 1]), np.array([1]), floats(1), 4),
        (None, np.array([0, 1], np.int32), np.array([1], np.int32), floats(1), 4),
    ],
)
def test_wrong_queries_are_refused(given: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        _native.TrainingQueries(*given)


@pytest.mark.parametrize(
    "given",
    [
        (np.empty(0, np.int64), np.empty(0, np.int32), floats(0), 3),
        (np.array([0, 2]), np.array([1], np.int32), floats(1), 3),
        (np.array([0, 2, 1]), np.array([1], np.int32), floats(1), 3),
        (np.array([0, 1]), np.array([3], np.int32), floats(1), 3),
        (np.array([0, 1]), np.array([3]), floats(1), 3),
        (np.array([0, 1]), np.array([-1]), floats(1), 3),
        (np.array([0, 1]), np.array([1, 1]), floats(1), 3),
        (np.array([0, 1]), np.array([1.0]), floats(1), 3),
        (np.array([0, 1]), [1], floats(1), 3),
        (np.array([0, 1]), None, floats(1), 3),
        (np.array([0, 1]), np.array([0], np.int32), floats(1), 0),
        (np.array([0, 1]), np.array([1], np.int32), np.zeros(1), 3),
    ],
)
def test_wrong_pairs_are_refused(given: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        _native.TrainingPairs(*given)


@pytest.mark.parametrize(
    "shape",
    [
        (0, 0, 1, 1, 1),
        (1, -1, 1, 1, 1),
        (1, 1, 1, 1, 1),
        (1, 0, 1, 0, 1),
        (1, 0, 1, 1, 0),
        (1, 0, 1, 1, -5),
        (2**62, 0, 2**62, 1, 1),
        (1, 0, 2**40, 2**40, 2**40),
    ],
)
def test_wrong_sizes_are_refused(shape: Any) -> None:
    with pytest.raises(ValueError, match="a size"):
        _native.Trainer(*shape, False)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("nothing", floats(3)),
        ("", floats(0)),
        ("project.third", floats(27)),
        ("centre.first", floats(9)),
        ("project", floats(26)),
        ("project", floats(9, 3)),
        ("project", np.zeros(27)),
        ("bias", floats(1)),
    ],
)
def test_wrong_weights_are_refused(name: str, values: Any) -> None:
    trainer = _native.Trainer(9, 0, 3, 1, 2, False)
    for call in (trainer.write, trainer.read):
        with pytest.raises((ValueError, TypeError)):
            call(name, values)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queries", lambda: _native.TrainingQueries(floats(60, 8), None, None, None, 8)),
        ("queries", lambda: _native.TrainingQueries(floats(59, 9), None, None, None, 9)),
        ("queries", None),
        (
            "pairs",
            lambda: _native.TrainingPairs(
                np.zeros(60, np.int64), np.empty(0, np.int32), floats(0), 28
            ),
        ),
        (
            "pairs",
            lambda: _native.TrainingPairs(
                np.zeros(61, np.int64), np.empty(0, np.int32), floats(0), 29
            ),
        ),
        ("assignments", []),
        ("assignments", [np.zeros((28, 1), np.int32)] * 2),
        ("assignments", [np.zeros((27, 1), np.int32)]),
        ("assignments", [np.zeros(28, np.int32)]),
        ("assignments", [np.full((28, 1), 7, np.int32)]),
        ("assignments", [np.full((28, 1), -2, np.int32)]),
        ("noise", floats(59)),
        ("noise", np.zeros(60)),
        ("seed", -1),
        ("loss", 3),
        ("loss", -1),
        ("rows", np.array([60])),
        ("rows", np.array([-1])),
        ("rows", np.array([1], np.int32)),
        ("first", -1),
        ("batch", 0),
        ("batch", 3),
        ("rates", np.zeros(0)),
        ("rates", floats(1)),
        ("steps_before", -1),
        ("threads", 0),
        ("losses", np.zeros(0)),
    ],
)
def test_wrong_lessons_are_refused(name: str, value: Any, sparse: bool) -> None:
    taught = teach(sparse=sparse)
    network = make_network(taught.weights, sparse=sparse)
    before = network.state()
    queries, pairs = taught.lesson.native
    right: dict[str, Any] = {
        "queries": queries,
        "pairs": pairs,
        "assignments": taught.assignments,
        "noise": None,
        "seed": 0,
        "loss": 0,
        "rows": np.arange(10),
        "first": 0,
        "batch": 10,
        "rates": np.ones(1),
        "steps_before": 0,
        "threads": 1,
        "losses": np.empty(1),
    }
    wrong = value() if callable(value) else value
    with pytest.raises((ValueError, TypeError)):
        network.trainer.train(**right | {name: wrong})
    assert_same_state(network.state(), before)
    assert network.trainer.train(**right) == 10


def test_wrong_scores_are_refused() -> None:
    taught = teach(heads=2)
    network = make_network(taught.weights)
    queries, _ = taught.lesson.native
    rows = np.arange(10)
    for head, some, logits in (
        (2, rows, floats(10, 7)),
        (-1, rows, floats(10, 7)),
        (0, rows + 55, floats(10, 7)),
        (0, rows - 1, floats(10, 7)),
        (0, rows, floats(9, 7)),
        (0, rows, floats(10, 8)),
        (0, rows, np.zeros((10, 7))),
    ):
        with pytest.raises((ValueError, TypeError)):
            network.trainer.score(queries, head, some, logits)


@pytest.mark.parametrize("sparse", [False, True])
def test_no_rows_are_nothing_to_learn_or_to_score(sparse: bool) -> None:
    taught = teach(sparse=sparse)
    network = make_network(taught.weights, sparse=sparse)
    before = network.state()
    queries, pairs = taught.lesson.native
    none, no_steps = np.empty(0, np.int64), np.empty(0)
    given = queries, pairs, taught.assignments, None, 0, 0, none, 0, 1, no_steps, 0, 2, no_steps
    assert network.trainer.train(*given) == 0
    assert_same_state(network.state(), before)
    assert network.score(taught.lesson.queries[:0], 0).shape == (0, 7)


def test_empty_rows_and_no_pairs_at_all_are_learned_from() -> None:
    """Sparse rows without a feature, items without a bucket, and queries that want nothing."""
    empty = sp.csr_array((4, 9), dtype=np.float32)
    taught = teach(sparse=True)
    network = NativeNetwork(taught.weights, True, "sigmoid-bce", Rates(), 0)
    queries = _native.TrainingQueries(
        None, np.zeros(5, np.int64), np.empty(0, np.int32), floats(0), 9
    )
    starts = np.array([0, 1, 2, 2, 2])
    pairs = _native.TrainingPairs(starts, np.zeros(2, np.int32), np.ones(2, np.float32), 1)
    for assignment in (np.full((1, 2), -1, np.int32), np.empty((1, 0), np.int32)):
        for loss in range(3):
            losses = np.empty(1)
            steps = np.arange(4), 0, 4, np.ones(1), 0, 2, losses
            network.trainer.train(queries, pairs, [assignment], None, 0, loss, *steps)
            assert np.isfinite(losses).all()
    assert np.isfinite(network.score(empty, 0)).all()


def test_softening_needs_dense_queries() -> None:
    """Sparse ones have no place among centroids, so it does nothing there: as with torch."""
    taught = teach(sparse=True)
    network = make_network(taught.weights, sparse=True)
    before = network.score(taught.lesson.queries, 0)
    network.trainer.soften(1.0, 1.0, 1.0)
    np.testing.assert_array_equal(network.score(taught.lesson.queries, 0), before)


def test_what_is_no_number_never_crashes() -> None:
    for bad in (np.nan, np.inf, -np.inf, 3e38):
        for loss in range(3):
            taught = teach(soften=True, copies=2)
            queries: Any = taught.lesson.queries
            queries[::3] = bad
            network = make_network(taught.weights, loss=LOSSES[loss])
            taught.learn(network, np.arange(60), steps=3)
            network.score(queries, 0)
            with np.errstate(invalid="ignore"):
                network.rank(queries, 0, 3)
