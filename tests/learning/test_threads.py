"""Threads that wait must not spin: beside other programs, they would cost more than they gain."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from conftest import small_default
from problems import learn_task, vector_task

from irli.learning import torch_network
from irli.learning.threads import current_threads, threads_for_step, use_threads

POLICY = "OMP_WAIT_POLICY"
LARGE, SMALL = 1 << 30, 1 << 20  # multiplications of a step


@pytest.fixture(params=["PASSIVE", "ACTIVE", None])
def sleeping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the threads of torch are said to sleep while they wait."""
    monkeypatch.delenv(POLICY, raising=False)
    if request.param:
        monkeypatch.setenv(POLICY, request.param)
    return bool(request.param == "PASSIVE")


def test_torch_gets_only_threads_that_sleep(sleeping: bool) -> None:
    before = torch.get_num_threads()
    with use_threads(3):
        assert torch.get_num_threads() == before
        assert current_threads() == 3
        with threads_for_step(LARGE):
            assert torch.get_num_threads() == (3 if sleeping else 1)
        assert torch.get_num_threads() == before
        with threads_for_step(SMALL):
            assert torch.get_num_threads() == 1
        assert current_threads() == 3
    assert torch.get_num_threads() == before


def test_a_small_network_is_trained_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POLICY, "PASSIVE")
    seen = set()

    def watched(*given: Any) -> Any:
        seen.add(torch.get_num_threads())
        return softmax_loss(*given)

    softmax_loss = torch_network.LOSS["softmax"]
    monkeypatch.setitem(torch_network.LOSS, "softmax", watched)
    learn_task(vector_task(small_default(epochs=1)), threads=2, device="torch")
    assert seen == {1}


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_the_policy_is_set_before_torch_is_loaded(given: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != POLICY}
    code = f"import irli.learning as l, os; l.check_device('torch'); print(os.environ[{POLICY!r}])"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | ({POLICY: given} if given else {}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == (given or "PASSIVE")
