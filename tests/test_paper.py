"""What the paper's section 4 says its functions do."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ftnn

# ---- ellipses (section 4.2)

P = [[0.50, 1.41], [1.33, 0.67], [1.00, 1.00]]
Q = [[2.00, 3.00], [2.50, 2.00], [3.00, 4.00]]


def step(u: Tensor) -> Tensor:
    """The paper's ξ: 1 where u ≥ 0, else 0."""
    return (u >= 0).to(u.dtype)


def three_ellipses(function: str, backend: Any) -> tuple[ftnn.nn.Transfer, torch.nn.Linear]:
    """The paper's network: hidden units are 1 outside of an ellipse each, the output is 1 inside of any."""
    hidden = ftnn.nn.Transfer(2, 3, function, dtype=torch.float64, backend=backend)
    output = torch.nn.Linear(3, 1, dtype=torch.float64)
    with torch.no_grad():
        hidden.matrix("p").copy_(torch.tensor(P, dtype=torch.float64))
        hidden.matrix("q").copy_(torch.tensor(Q, dtype=torch.float64))
        assert hidden.bias is not None
        hidden.bias.fill_(-1.0)
        output.weight.fill_(-1.0)
        output.bias.fill_(2.5)
    return hidden, output


def inside_any(points: Any) -> Any:
    """Whether each point lies in one of the ellipses, by their semi-axes 1/p and centres q."""
    axes, centres = 1 / np.array(P), np.array(Q)
    return ((((points[:, None] - centres) / axes) ** 2).sum(-1) < 1).any(1)


@pytest.mark.parametrize("backend", ["auto", "reference", "cpu"])
@pytest.mark.parametrize("function", ["F19", "p**2*(x-q)**2"])
def test_the_three_ellipse_network_says_what_lies_inside(function: str, backend: Any):
    hidden, output = three_ellipses(function, backend)
    along = np.linspace(-0.487, 5.521, 61)  # no point lies on a boundary
    points = np.stack(np.meshgrid(along, along), -1).reshape(-1, 2)
    z = step(output(step(hidden(torch.from_numpy(points)))))[:, 0]
    expected = inside_any(points)
    assert set(z.tolist()) == {0.0, 1.0}
    assert np.array_equal(z.numpy() == 1, expected)
    assert 300 < expected.sum() < 1500


@pytest.mark.parametrize(
    ("point", "hidden_units", "answer"),
    [
        ((2.0, 3.0), (0, 0, 1), 1),  # the centres; the first lies in the second ellipse too
        ((2.5, 2.0), (1, 0, 1), 1),
        ((3.0, 4.0), (1, 1, 0), 1),
        ((3.9, 3.0), (0, 1, 1), 1),  # near the end of the long axis of the first
        ((2.5, 3.4), (0, 0, 0), 1),  # in all three
        ((0.0, 0.0), (1, 1, 1), 0),
        ((4.1, 3.0), (1, 1, 1), 0),
        ((1.0, 1.0), (1, 1, 1), 0),
        ((5.0, 5.0), (1, 1, 1), 0),
    ],
)
def test_its_hidden_units_are_outside_of_one_ellipse_each(
    point: tuple[float, float], hidden_units: tuple[int, int, int], answer: int
):
    hidden, output = three_ellipses("F19", "auto")
    y = step(hidden(torch.tensor([point], dtype=torch.float64)))
    assert y[0].tolist() == list(hidden_units)
    assert step(output(y)).item() == answer


def test_with_a_sign_the_boundary_is_a_hyperbola():
    layer = ftnn.nn.Transfer(2, 1, "F20", dtype=torch.float64)
    with torch.no_grad():
        for name, values in (("p", [1.0, 0.5]), ("q", [1.0, -1.0]), ("u", [1.0, -1.0])):
            layer.matrix(name).copy_(torch.tensor([values], dtype=torch.float64))
        assert layer.bias is not None
        layer.bias.fill_(-1.0)
    # Points on (x1 - 1)² - ((x2 + 1)/2)² = 1, on both branches.
    t = torch.linspace(-2, 2, 9, dtype=torch.float64)
    for side in (1, -1):
        points = torch.stack([1 + side * torch.cosh(t), -1 + 2 * torch.sinh(t)], 1)
        torch.testing.assert_close(layer(points), torch.zeros(9, 1, dtype=torch.float64), atol=1e-12, rtol=0)


# ---- sleeping and dead connections (section 4.3)


def trained(function: str, start: float, backend: Any, steps: int = 40) -> list[float]:
    """How p moves by gradient descent towards a connection that sends x, from `start`, with u = 1."""
    layer = ftnn.nn.Transfer(1, 1, function, bias=False, dtype=torch.float64, backend=backend)
    with torch.no_grad():
        layer.matrix("p").fill_(start)
        layer.matrix("u").fill_(1.0)
    x = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    path = [start]
    for _ in range(steps):
        optimizer.zero_grad()
        ((layer(x) - x) ** 2).mean().backward()
        optimizer.step()
        path.append(layer.matrix("p").item())
    return path


@pytest.mark.parametrize("backend", ["auto", "reference", "cpu"])
def test_a_negative_p_of_f06_never_moves(backend: Any):
    assert set(trained("F06", -0.3, backend)) == {-0.3}


@pytest.mark.parametrize("backend", ["auto", "reference", "cpu"])
def test_one_of_f07_moves_and_revives(backend: Any):
    path = trained("F07", -0.3, backend)
    assert path[0] < 0
    assert all(after > before for before, after in pairwise(path[:10]))
    assert path[-1] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("backend", ["auto", "reference", "cpu"])
def test_alive_both_learn_alike(backend: Any):
    assert trained("F06", 0.3, backend) == trained("F07", 0.3, backend)
    assert trained("F06", 0.3, backend)[-1] == pytest.approx(1, abs=1e-3)


def test_a_dead_connection_sends_nothing_whatever_its_input_and_a_sleeping_one_for_some():
    x = torch.linspace(-5, 5, 11)[:, None]
    dead = ftnn.nn.Transfer(1, 1, "F06", bias=False)
    sleeping = ftnn.nn.Transfer(1, 1, "F08", bias=False)
    with torch.no_grad():
        dead.matrix("p").fill_(-0.1)
        sleeping.matrix("p").fill_(0.1)
        sleeping.matrix("q").fill_(-0.2)
    assert (dead(x) == 0).all()
    assert (sleeping(x)[x <= 2] == 0).all()
    assert (sleeping(x)[x > 2] != 0).all()


# ---- memory (section 4.4)


def test_a_memory_function_follows_the_papers_recursion():
    cell = ftnn.nn.Memory(2, 3, "memory", dtype=torch.float64, bias=False)
    x = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(4, 1, 2)
    out, state = cell(x)
    p, q, r = (cell.matrix(name).detach() for name in "pqr")
    memory = torch.zeros(3, 2, dtype=torch.float64)
    for t in range(4):
        memory = torch.tanh(p * x[t, 0] + q * memory + r)
        torch.testing.assert_close(out[t, 0], memory.sum(1))
    torch.testing.assert_close(state[0], memory)
