"""Classify points with conic boundaries: F20 is p²·(x - q)²·u, so each unit defines one conic.

A unit's sum over both inputs, ±p²(x - a)² ± q²(y - b)² + bias, is zero on an ellipse or a hyperbola. Two
units can separate the region between two ellipses. A linear layer of the same size has straight boundaries.
"""

import json

import torch
from torch import Tensor, nn

import ftnn


def rings(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points in a square, (count, 2), and whether each lies between two ellipses, (count,)."""
    points = 4 * torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) - 2
    x, y = points.T
    inner = (x - 0.2) ** 2 / 0.5 + (y + 0.1) ** 2 / 0.2
    outer = x**2 / 3.0 + y**2 / 1.5
    return points, ((inner > 1) & (outer < 1)).long()


def accuracy(first: nn.Module) -> float:
    """Train two hidden units and a linear layer on 2000 points; return the accuracy on new points."""
    net = nn.Sequential(first, nn.Tanh(), nn.Linear(2, 2))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.03)
    x, y = rings(2000, seed=1)
    for _ in range(800):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    x, y = rings(2000, seed=2)
    return float((net(x).argmax(1) == y).float().mean())


torch.manual_seed(0)
# F20 with u = 1, because both boundaries are ellipses, and with wider initial ranges.
wide = ftnn.Function("p**2*(x - q)**2*u", init={"p": (0.5, 1.5), "q": (-0.5, 0.5)}, constants={"u": (1.0,)})
print(json.dumps({"conic": accuracy(ftnn.nn.Transfer(2, 2, wide)), "linear": accuracy(nn.Linear(2, 2))}))
