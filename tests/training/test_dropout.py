"""Modules that draw random numbers themselves draw them from the seed of `fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ftnn.nn import Transfer
from ftnn.training import Epoch, History, digest, fit

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(96, 5)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


def trained(x: Any = X, y: Any = Y, **settings: Any) -> tuple[str, History]:
    """The digest of a network with dropout after training, whatever was drawn before."""
    torch.manual_seed(0)
    net = nn.Sequential(Transfer(5, 6, "F12"), nn.Dropout(0.3), nn.Linear(6, 2))
    torch.seed()
    settings = {"epochs": 6} | settings
    history = fit(net, x, y, **settings)
    return digest(net), history


def test_a_seed_reproduces_dropout() -> None:
    one, history = trained(seed=1)
    assert history.engine == "torch"
    assert trained(seed=1)[0] == one
    assert trained(seed=2)[0] != one


def test_a_seed_reproduces_dropout_on_mini_batches_of_an_iterable() -> None:
    batches = [(X[n : n + 1], Y[n : n + 1]) for n in range(96)]  # more than are fetched at once
    one, _ = trained(batches, None, epochs=2)
    assert trained(batches, None, epochs=2)[0] == one


@pytest.mark.parametrize("solver", ["direct", "joint"])
def test_a_resumed_run_drops_the_same_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solver: str
) -> None:
    monkeypatch.setattr("ftnn.training._checkpoint.SECONDS_BETWEEN", 0.0)

    def stop(epoch: Epoch, _: Any) -> None:
        if epoch.epoch == 2:
            raise KeyboardInterrupt

    expected, _ = trained(solver=solver)
    with pytest.raises(KeyboardInterrupt):
        trained(solver=solver, checkpoint=tmp_path / "c", callbacks=[stop])
    assert trained(solver=solver, checkpoint=tmp_path / "c")[0] == expected


def test_each_epoch_drops_other_units() -> None:
    class Seen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.masks: list[torch.Tensor] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.masks.append(nn.functional.dropout(torch.ones_like(x)))
            return x

    seen = Seen()
    fit(nn.Sequential(Transfer(5, 6, "F12"), seen, nn.Linear(6, 2)), X, Y, epochs=3, normalise=False)
    masks = torch.stack(seen.masks)
    assert len(masks) == 9
    assert len(masks.unique(dim=0)) == 9


def test_the_callers_random_numbers_are_left_as_they_were() -> None:
    before = torch.get_rng_state()
    net = nn.Sequential(Transfer(5, 6, "F12"), nn.Dropout(0.3), nn.Linear(6, 2))
    state = torch.get_rng_state()
    assert not torch.equal(before, state)
    fit(net, X, Y, epochs=2)
    assert torch.equal(torch.get_rng_state(), state)
