"""Activations whose slope is not their derivative."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ftnn
from ftnn.nn._activations import activation_formula
from ftnn.training import fit, initialise


def test_relu20_ends_at_20_but_errors_pass_through() -> None:
    x = torch.tensor([-1.0, 0.0, 3.0, 20.0, 1e9, torch.inf], requires_grad=True)
    y = activation_formula("relu20")(x)
    y.sum().backward()
    assert y.tolist() == [0, 0, 3, 20, 20, 20]
    assert x.grad is not None
    assert x.grad.tolist() == [0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("activation", ["relu20", "relu"])
def test_both_engines_agree_on_relu20_beyond_20(activation: str) -> None:
    """With inputs of 100, most units are beyond 20; then relu20 and relu differ."""
    rng = np.random.default_rng(0)
    x, y = 100 * rng.random((40, 5)), rng.integers(0, 3, 40)
    trained: list[torch.Tensor] = []
    for engine in ("compiled", "torch"):
        net = ftnn.nn.Network(5, [6, 4], 3, "p*x", activation, dtype=torch.float64)
        initialise(net, 0)
        fit(net, x, y, solver="joint", gamma=-9, epochs=3, engine=engine)  # pyright: ignore[reportArgumentType]
        trained.append(torch.cat([p.detach().reshape(-1) for p in net.parameters()]))
    torch.testing.assert_close(*trained, rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        sums = ftnn.nn.Network(5, [6, 4], 3, "p*x", activation, dtype=torch.float64).layers[0](
            torch.from_numpy(x)
        )
    assert sums.max() > 20
