# pyright: reportUnknownLambdaType=false
"""Learning-rate schedules: the share of the learning rate that each step uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ftnn.errors import FtnnError
from ftnn.training import fit
from ftnn.training._schedules import NAMES, factors
from tests.training.problems import blobs, network


def test_one_cycle_matches_torch():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=2000)
    rates: list[float] = []
    for _ in range(2000):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    # torch rounds the turning point to whole steps.
    np.testing.assert_allclose(factors("one-cycle", 0, 2000, 2000), rates, atol=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_computed_in_parts_equals_the_whole(name: str):
    whole = factors(name, 0, 40, 40)
    assert ((whole >= 0) & (whole <= 1)).all()
    assert np.array_equal(np.concatenate([factors(name, n, 8, 40) for n in range(0, 40, 8)]), whole)


def test_cosine_falls_from_one_to_zero_and_warm_up_rises():
    cosine, warm = factors("cosine", 0, 101, 101), factors("warm-up", 0, 101, 101)
    assert (cosine[0], cosine[-1]) == (1, pytest.approx(0))
    assert cosine[50] == pytest.approx(0.5)
    assert warm[0] == 0
    assert warm[2] == pytest.approx(0.4)
    assert (warm[5:] == 1).all()


def test_each_schedule_gives_a_different_result():
    x, y = blobs()
    losses = {
        name: fit(network(), x, y, learning_rate=0.01, epochs=4, schedule=name).loss  # pyright: ignore[reportArgumentType]
        for name in ("constant", "one-cycle", "cosine", lambda done: 1 - done)
    }
    assert len(set(losses.values())) == 4


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("two-cycle", "schedule='two-cycle' is unknown; expected one of constant"),
        (3, "schedule=3 is unknown"),
        (lambda done: -1.0, "returned -1 at 0; expected a finite number of 0 or more"),
        (lambda done: float("nan"), "returned nan at 0"),
        (lambda done: done.nothing, "schedule=.* failed"),
        (lambda done: 1 / (1 - done), "schedule=.* failed at 1: float division by zero"),
        (lambda done: float("inf") if 0.95 < done < 0.98 else 1, r"returned inf at 0\.9[567]"),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"solver": "joint"}, {"gamma": -2}])
def test_an_unusable_schedule_is_refused_before_the_first_epoch(
    schedule: Any, message: str, settings: dict[str, Any], tmp_path: Path
):
    x, y = blobs()
    path, seen = tmp_path / "run", list[int]()
    callbacks = [lambda record, _: seen.append(record.epoch)]
    with pytest.raises(FtnnError, match=message):
        fit(network(), x, y, schedule=schedule, epochs=10, checkpoint=path, callbacks=callbacks, **settings)
    assert not seen
    assert not path.exists()
