"""MACH, the baseline, on planted rows: a feature for each label."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not part of this distribution", allow_module_level=True)
torch = pytest.importorskip("torch")


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from bench.labels.mach import Mach

    return Mach


def test_it_learns_planted_labels(make: Any) -> None:
    rng = np.random.default_rng(0)
    wanted = rng.integers(40, size=400)
    features = sp.csr_array((np.ones(400), (np.arange(400), wanted)), shape=(400, 40))
    labels = sp.csr_array((np.ones(400), (np.arange(400), wanted)), shape=(400, 40))
    model = make(repetitions=4, buckets=12, hidden=32, epochs=250).fit(features, labels)
    found = model.predict(features, 3)
    assert found.shape == (400, 3)
    # 40 labels share 12 buckets: only the mean over hashes tells them apart.
    assert (found[:, 0] == wanted).mean() > 0.95


def test_a_score_is_the_mean_over_independent_networks(make: Any) -> None:
    rng = np.random.default_rng(0)
    features = sp.csr_array(rng.random((20, 9)))
    labels = sp.csr_array((rng.random((20, 15)) < 0.2).astype(float))
    model = make(repetitions=3, buckets=4, hidden=5, epochs=1, seed=1).fit(features, labels)
    weights = [network.first.weight for network in model.networks]
    assert len({id(weight) for weight in weights}) == 3
    assert not torch.equal(weights[0], weights[1])
    assert any((a != b).any() for a, b in pairwise(model.hashes))
    rows = features.toarray() / np.linalg.norm(features.toarray(), axis=1, keepdims=True)
    mean = np.zeros((20, 15))
    for network, hashed in zip(model.networks, model.hashes, strict=True):
        first, bias, last = (
            value.detach().numpy()
            for value in (network.first.weight, network.bias, network.last.weight)
        )
        logits = np.maximum(rows @ first + bias, 0) @ last.T + network.last.bias.detach().numpy()
        mean += (1 / (1 + np.exp(-logits)))[:, hashed] / 3
    found = model.predict(features, 15)
    ranked = np.take_along_axis(mean, found, axis=1)
    assert (np.diff(ranked, axis=1) <= 1e-6).all()  # labels of equal scores may come in any order
