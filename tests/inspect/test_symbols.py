"""Networks written out agree with the networks."""

from typing import Any

import numpy as np
import pytest
import sympy as library
import torch
from torch import nn

import ftnn
from ftnn import Mixed
from ftnn.errors import FtnnError, ShapeError
from ftnn.inspect import latex, numpy, prune, sympy
from ftnn.nn import MemoryNetwork, Network, Partial, Transfer

NAMES = [name for name in ftnn.catalogue if name != "memory"]
FUNCTIONS = [
    *NAMES,
    "p*softplus(q*x)",
    "where(x > p, q*x, r*erf(x))",
    "p*gauss(x - q)",
    Mixed(["F12", "F03"]),
]
X = np.random.default_rng(0).normal(size=(5, 3))


def drawn(net: nn.Module) -> nn.Module:
    """With biases too, so that none can be forgotten."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(-1, 1)
    return net.double()


def answers(net: nn.Module, x: Any = X) -> Any:
    with torch.no_grad():
        return net(torch.from_numpy(x)).numpy()


def substituted(expressions: list[Any], x: Any = X) -> Any:
    """Each expression at each sample, by SymPy itself."""
    values = [{f"x{n}": value for n, value in enumerate(row)} for row in x]
    return np.array([[float(expr.subs(row).evalf(17)) for expr in expressions] for row in values])


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_every_function_is_written_out(function: Any):
    torch.manual_seed(1)
    net = drawn(Network(3, [2], 2, function, "tanh"))
    wanted = answers(net)
    np.testing.assert_allclose(numpy(net)(X), wanted, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(substituted(sympy(net)), wanted, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(from_source(net)(X), wanted, rtol=1e-13, atol=1e-14)


def from_source(net: nn.Module) -> Any:
    """The function that a reader gets by running the text."""
    namespace: dict[str, Any] = {}
    exec(numpy(net).source, namespace)
    return namespace["network"]


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["logistic", "relu", "tanh"])
def test_depth_activations_and_several_outputs(activation: Any):
    torch.manual_seed(0)
    net = drawn(Network(3, [2, 3, 2], 4, ["F09", "F12", "F16"], activation))
    np.testing.assert_allclose(numpy(net)(X), answers(net), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(substituted(sympy(net)), answers(net), rtol=1e-11, atol=1e-13)
    assert len(latex(net)) == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: Transfer(3, 2, "F12"),
        lambda: Transfer(3, 1, "F06", bias=False),
        lambda: Partial(3, 2, "F12", [(0, 1), (1, 2)]),
        lambda: Partial(3, 2, "F12", []),
        lambda: nn.Sequential(
            nn.Linear(3, 2), nn.Sigmoid(), nn.Dropout(), Transfer(2, 2, "F19"), nn.ReLU()
        ).eval(),
        lambda: nn.Sequential(nn.Flatten(), Network(3, [2], 1, "F08"), nn.Identity(), nn.Tanh()),
    ],
)
def test_layers_and_sequences_are_written_out(make: Any):
    torch.manual_seed(0)
    net = drawn(make())
    np.testing.assert_allclose(numpy(net)(X), answers(net), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(from_source(net)(X), answers(net), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(substituted(sympy(net)), answers(net), rtol=1e-12, atol=1e-14)


def test_parameters_of_float32_are_kept_exactly():
    net = Network(3, [2], 1, "F12")
    np.testing.assert_allclose(numpy(net)(X), answers(net.double()), rtol=1e-14)


def test_what_is_dead_is_not_written():
    layer = Transfer(3, 1, "F06")
    with torch.no_grad():
        layer.theta["p"].copy_(torch.tensor([[-1.0], [0.5], [-1.0]]))
        layer.constants["u"].fill_(1)
    assert str(sympy(layer)) == "[0.5*x1]"
    assert str(sympy(prune(layer))) == "[0.5*x1]"


def test_digits_round_every_number():
    layer = Transfer(2, 1, "p*sin(q*x + r)", dtype=torch.float64)
    with torch.no_grad():
        for name, values in (("p", [1.23456, -2]), ("q", [0.0345678, 12345.6]), ("r", [1, -2.5])):
            layer.theta[name].copy_(torch.tensor(values)[:, None])
    (expr,) = sympy(layer, digits=3)
    assert expr == library.sympify("1.23*sin(0.0346*x0 + 1) - 2*sin(12300*x1 - 2.5)")
    assert latex(layer)[0] == library.latex(expr)
    assert r"\sin" in latex(layer)[0]
    assert "x_{1}" in latex(layer)[0]
    assert "1.23456" in str(sympy(layer)[0])
    net = Network(2, [3], 1, "F10", "logistic")
    for found in sympy(net, digits=2)[0].atoms(library.Float):
        assert float(f"{float(found):.1e}") == float(found)  # also what SymPy computed on the way
    for wrong in (0, 18):
        with pytest.raises(FtnnError, match=f"digits={wrong} must be from 1 to 17"):
            sympy(layer, digits=wrong)


def test_samples_come_in_any_shape_and_number(monkeypatch: pytest.MonkeyPatch):
    net = drawn(Network(3, [2], 2, "F12"))
    written = numpy(net)
    monkeypatch.setattr("ftnn.inspect._symbols.ROWS", 4)
    x = np.random.default_rng(1).normal(size=(3, 5, 3))
    np.testing.assert_allclose(written(x), answers(net, x), rtol=1e-12)
    assert written(x[0, 0]).shape == (2,)
    assert written(np.zeros((0, 3))).shape == (0, 2)
    with pytest.raises(ShapeError, match=r"\(…, 3\); it has \(2, 4\)"):
        written(np.zeros((2, 4)))


def test_what_no_reader_could_take_is_refused_before_it_is_written():
    with pytest.raises(
        FtnnError, match=r"this Network would have [0-9,]+ operations.*at most 5,000 are allowed"
    ):
        sympy(Network(784, [128, 128], 10, "F12"))
    with pytest.raises(FtnnError, match=r"about \de\+\d+ operations"):
        latex(Network(20, [20] * 9, 1, "F04"))
    with pytest.raises(FtnnError, match="at most 200,000 are allowed"):
        numpy(Network(784, [128], 10, "F12"))
    deep = drawn(Network(3, [6] * 4, 2, "F03"))  # far too long without sharing, short with it
    with pytest.raises(FtnnError, match="at most 5,000 are allowed"):
        sympy(deep)
    np.testing.assert_allclose(numpy(deep)(X), answers(deep), rtol=1e-11, atol=1e-14)


def test_what_cannot_be_written_is_refused_by_name():
    with pytest.raises(FtnnError, match="a Softmax cannot be written out; expected one of Transfer, Partial"):
        sympy(nn.Sequential(Transfer(2, 2, "F12"), nn.Softmax(-1)))
    with pytest.raises(FtnnError, match="Memory layer"):
        numpy(MemoryNetwork(2, 2, 2))
    broken = Transfer(2, 2, "F12")
    with torch.no_grad():
        broken.theta["p"][0, 0] = float("nan")
    with pytest.raises(FtnnError, match=r"a parameter of F12: p\*sin\(q\*x \+ r\) is nan"):
        sympy(broken)
