"""A physics-informed network: solve u'' = f on [0, 1] with u(0) = u(1) = 0, using second derivatives.

f = -π² sin(πx) + 9π² · 0.3 · -sin(3πx), so the solution is u = sin(πx) + 0.3 sin(3πx).
Training never sees it.
"""

import json
from math import pi

import torch
from torch import Tensor, nn

import ftnn


def u_true(x: Tensor) -> Tensor:
    return torch.sin(pi * x) + 0.3 * torch.sin(3 * pi * x)


def f(x: Tensor) -> Tensor:
    return -(pi**2) * torch.sin(pi * x) - 2.7 * pi**2 * torch.sin(3 * pi * x)


torch.manual_seed(0)
wave = ftnn.Function("p*sin(q*x + r)", init={"p": (-0.5, 0.5), "q": (-8, 8), "r": (-2, 2)})
net = nn.Sequential(
    ftnn.nn.Transfer(1, 24, wave, dtype=torch.float64), nn.Tanh(), nn.Linear(24, 1, dtype=torch.float64)
)


def u(x: Tensor) -> Tensor:
    """The network, forced to zero at both ends."""
    return x * (1 - x) * net(x)


x = torch.linspace(0, 1, 64, dtype=torch.float64)[:, None].requires_grad_()
optimiser = torch.optim.LBFGS(net.parameters(), max_iter=300, line_search_fn="strong_wolfe")


def closure() -> Tensor:
    optimiser.zero_grad()
    value = u(x)
    (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    loss = (curvature - f(x)).square().mean()
    loss.backward()
    return loss


optimiser.step(closure)
with torch.no_grad():
    grid = torch.linspace(0, 1, 501, dtype=torch.float64)[:, None]
    error = float((u(grid) - u_true(grid)).abs().max() / u_true(grid).abs().max())
print(json.dumps({"relative_error": error}))
