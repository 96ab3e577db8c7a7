"""A loss that no training could make finite is refused at the user's own targets, before training."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from ftnn.errors import FormulaError
from ftnn.nn import MemoryNetwork
from ftnn.training import digest, fit, fit_sequence
from tests.training.problems import Array, blobs, network

X, _ = blobs(samples=120)


def targets(low: float = 0.5) -> Array:
    """(samples, 1), at least `low`, which the inputs determine."""
    return low + np.abs(X[:, :1])


SETTINGS: dict[str, dict[str, Any]] = {
    "compiled": {"engine": "compiled"},
    "torch": {"engine": "torch"},
    "layerwise": {"gamma": -2},
    "lm": {"solver": "lm"},
    "lbfgs": {"solver": "lbfgs"},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("log(y)", r"the loss is nan at y = -\S+, an output before training, and its target t = "),
        ("exp(1000*abs(y - t) + 700)", r"the loss is inf at y = "),
    ],
)
def test_a_loss_that_is_not_finite_at_first_is_refused_before_anything_is_written(
    loss: str, message: str, settings: dict[str, Any], tmp_path: Path
):
    net, path = network(outputs=1), tmp_path / "run"
    before = digest(net)
    with pytest.raises(FormulaError, match=message) as caught:
        fit(net, X, targets(), loss=loss, epochs=1, checkpoint=path, **settings)
    assert (caught.value.text, caught.value.start, caught.value.end) == (loss, 0, len(loss))
    assert not path.exists()
    assert digest(net) == before


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_so_is_one_for_an_iterable_and_for_a_sequence(engine: Any):
    with pytest.raises(FormulaError, match="the loss is nan at y = "):
        fit(network(outputs=1), [(X, targets())], loss="log(y)", epochs=1, engine=engine)
    with pytest.raises(FormulaError, match="the loss is nan at y = "):
        fit_sequence(MemoryNetwork(5, 4, 1), X, targets(), loss="log(-abs(y))", epochs=1, engine=engine)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("loss", ["abs(y - t)/t", "(y - log(t))**2", "(y - t)**2/t"])
def test_a_loss_may_be_undefined_for_targets_that_do_not_occur(loss: str, engine: Any):
    history = fit(network(outputs=1), X, targets(), loss=loss, epochs=20, engine=engine)
    assert history.failed is None
    assert history.epochs[-1].loss < 0.7 * history.epochs[0].loss
    history = fit(network(outputs=1), [(X, targets())], loss=loss, epochs=2, engine=engine)
    assert len(history.epochs) == 2
    with pytest.raises(FormulaError, match=r"its target t = 0; expected a finite number for every target"):
        fit(network(outputs=1), X, targets() * (np.arange(120) != 77)[:, None], loss=loss, epochs=1)


@pytest.mark.parametrize("loss", ["log(y)", "abs(y - t)"])
def test_trying_a_loss_keeps_the_mode_of_every_module(loss: str):
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4).eval(), nn.Dropout(), nn.Linear(4, 1)).double()
    modes = [module.training for module in net.modules()]
    with suppress(FormulaError):
        fit(net, X, targets(), loss=loss, epochs=1, engine="torch")
    assert [module.training for module in net.modules()] == modes


def test_outputs_that_are_not_finite_are_not_blamed_on_the_loss():
    history = fit(network("1e200**(p*x)", outputs=1), 1e4 * X, targets(), loss="abs(y - t)", calibrate=False)
    assert history.failed is not None
