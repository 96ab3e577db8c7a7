"""Small problems and networks for tests."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

import ftnn

Array = np.ndarray[Any, Any]
fit = partial(ftnn.training.fit, gamma=-2)
"""Training as in the paper, by default."""


def blobs(samples: int = 240, classes: int = 3, features: int = 5, seed: int = 0) -> tuple[Array, Array]:
    """Clouds of points, one per class, with a fifth of the numbers zero."""
    random = np.random.default_rng(seed)
    centres = random.normal(0, 2, (classes, features))
    y = random.integers(classes, size=samples)
    x = centres[y] + random.normal(0, 0.7, (samples, features))
    x[random.random(x.shape) < 0.2] = 0
    return x, y


def network(
    function: Any = "F03",
    hidden: tuple[int, ...] = (7,),
    activation: Any = "tanh",
    inputs: int = 5,
    outputs: int = 3,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> ftnn.nn.Network:
    net = ftnn.nn.Network(inputs, hidden, outputs, function=function, activation=activation, dtype=dtype)
    ftnn.training.initialise(net, seed)
    return net
