"""Networks of random formulas make the same steps in compiled code as in torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import ftnn
from ftnn.errors import FtnnError
from ftnn.formula._catalogue import with_paper_ranges
from ftnn.training import fit
from tests.fuzz.formulas import formula

BATCHES = 10
"""Groups of formulas, so that a failure names a few."""


def trained(source: str, engine: str) -> tuple[list[np.ndarray], list[float]] | None:
    torch.manual_seed(0)
    function = with_paper_ranges(ftnn.Function(source, constants={"u": (-1, 1)} if "u" in source else {}))
    net = torch.nn.Sequential(
        ftnn.nn.Transfer(5, 6, function), torch.nn.Tanh(), ftnn.nn.Transfer(6, 3, function)
    ).double()
    random = np.random.default_rng(1)
    x = random.normal(size=(21, 5)) * (random.random((21, 5)) < 0.6)
    y, plain = random.integers(3, size=21), {"normalise": False, "learning_rate": 1e-3, "clip_norm": math.inf}
    history = fit(net, x, y, epochs=1, batch_size=8, engine=engine, optimizer="sgd", **plain)  # pyright: ignore[reportArgumentType]
    if history.epochs == [] or not np.isfinite(history.epochs[0].loss):
        return None
    return [p.detach().numpy() for p in net.parameters()], [e.loss for e in history.epochs]


@pytest.mark.slow
@pytest.mark.parametrize("group", range(BATCHES))
def test_generated_formulas_train_alike_in_both_engines(group: int):
    random = np.random.default_rng([7, group])
    compared = 0
    while compared < 100 // BATCHES:
        source = str(formula(random).tree)
        try:
            results = [trained(source, engine) for engine in ("compiled", "torch")]
        except FtnnError:  # such as a formula without parameters
            continue
        compared += 1
        actual, expected = results
        assert (actual is None) == (expected is None), source
        if actual is None or expected is None:
            continue
        assert actual[1] == pytest.approx(expected[1], rel=1e-7), source
        for one, other in zip(actual[0], expected[0], strict=True):
            np.testing.assert_allclose(
                one, other, rtol=1e-6, atol=1e-8 * max(1, np.abs(other).max()), err_msg=source
            )
