"""Networks as formulas and NumPy code match the networks."""

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
from ftnn.nn._activations import Activate

NAMES = [name for name in ftnn.catalogue if name != "memory"]
FUNCTIONS = [
    *NAMES,
    "p*softplus(q*x)",
    "where(x > p, q*x, r*erf(x))",
    "p*gauss(x - q)",
    Mixed(["F12", "F03"]),
]
X = np.random.default_rng(0).normal(size=(5, 3))


def with_random_biases(net: nn.Module) -> nn.Module:
    """`net` in float64, with random biases, scales and statistics."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith(("bias", "scale")):
                parameter.uniform_(-1, 1)
        for part in net.modules():
            if isinstance(part, nn.BatchNorm1d | nn.LayerNorm) and part.weight is not None:  # pyright: ignore[reportUnnecessaryComparison]
                part.weight.uniform_(-1, 1)
            if isinstance(part, nn.BatchNorm1d) and part.running_mean is not None:
                part.running_mean.uniform_(-1, 1)
                assert part.running_var is not None
                part.running_var.uniform_(0.1, 2)
    return net.double()


def outputs_of(net: nn.Module, x: Any = X) -> Any:
    with torch.no_grad():
        return net(torch.from_numpy(x)).numpy()


def substituted(expressions: list[Any], x: Any = X) -> Any:
    """Each expression at each sample, by SymPy."""
    values = [{f"x{n}": value for n, value in enumerate(row)} for row in x]
    return np.array([[float(expr.subs(row).evalf(17)) for expr in expressions] for row in values])


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_networks_of_any_function_convert_to_sympy_and_numpy(function: Any):
    torch.manual_seed(1)
    net = with_random_biases(Network(3, [2], 2, function, "tanh"))
    expected = outputs_of(net)
    np.testing.assert_allclose(numpy(net)(X), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(substituted(sympy(net)), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(from_source(net)(X), expected, rtol=1e-13, atol=1e-14)


def from_source(net: nn.Module) -> Any:
    """The function defined by the source code."""
    namespace: dict[str, Any] = {}
    exec(numpy(net).source, namespace)
    return namespace["network"]


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["logistic", "relu", "tanh"])
def test_deep_networks_with_several_outputs_convert(activation: Any):
    torch.manual_seed(0)
    net = with_random_biases(Network(3, [2, 3, 2], 4, ["F09", "F12", "F16"], activation))
    np.testing.assert_allclose(numpy(net)(X), outputs_of(net), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(substituted(sympy(net)), outputs_of(net), rtol=1e-11, atol=1e-13)
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
        lambda: Transfer(3, 2, "F10", scale=True),
        lambda: Partial(3, 2, "F12", [(0, 1), (1, 2)], bias=False, scale=True),
        lambda: nn.Sequential(
            *(Transfer(3, 2, "F12", bias=False), nn.BatchNorm1d(2), nn.GELU(), nn.Dropout()),
            *(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False), nn.SiLU(), nn.BatchNorm1d(2, 0.1)),
        ).eval(),
        lambda: nn.Sequential(nn.BatchNorm1d(3), Transfer(3, 2, "F10"), nn.BatchNorm1d(2)).eval(),
        lambda: nn.Sequential(Transfer(3, 2, "F16"), nn.LayerNorm(2, 0.2), nn.Linear(2, 1)),
        lambda: nn.Sequential(nn.LayerNorm(3, elementwise_affine=False), Transfer(3, 2, "F03")),
        lambda: nn.Sequential(nn.Softsign(), Transfer(3, 2, "F03"), nn.LayerNorm(2, bias=False)),
        lambda: nn.Sequential(Transfer(3, 2, "F03"), nn.LeakyReLU(0.3), nn.ELU(0.7), nn.GELU("tanh")),
        lambda: nn.Sequential(Transfer(3, 2, "F03"), Activate("x/(1 + exp(x))"), nn.Sigmoid()),
    ],
)
def test_layers_and_sequences_convert(make: Any):
    torch.manual_seed(0)
    net = with_random_biases(make())
    np.testing.assert_allclose(numpy(net)(X), outputs_of(net), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(from_source(net)(X), outputs_of(net), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(substituted(sympy(net)), outputs_of(net), rtol=1e-12, atol=1e-14)


def test_float32_parameters_are_exact():
    net = Network(3, [2], 1, "F12")
    np.testing.assert_allclose(numpy(net)(X), outputs_of(net.double()), rtol=1e-14)


def test_dead_connections_are_omitted():
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
    for number in sympy(net, digits=2)[0].atoms(library.Float):
        assert float(f"{float(number):.1e}") == float(number)  # also numbers that SymPy computed
    for wrong in (0, 18):
        with pytest.raises(FtnnError, match=f"digits must be from 1 to 17, or None for all, not {wrong}"):
            sympy(layer, digits=wrong)


def test_numbers_are_rounded_after_they_are_combined():
    layer = Transfer(1, 1, "p*q*x", dtype=torch.float64, scale=True)
    assert layer.scale is not None
    with torch.no_grad():
        for tensor, value in ((layer.theta["p"], 1.149), (layer.theta["q"], 1.149), (layer.scale, 1000.0)):
            tensor.fill_(value)
    (expr,) = sympy(layer, digits=2)
    assert expr == 1300 * library.Symbol("x0")  # 1.149² is 1.32; 1.1² is 1.21
    assert latex(layer, digits=2) == ["1300 x_{0}"]
    power = Transfer(1, 1, "p*x**12", dtype=torch.float64, bias=False)
    with torch.no_grad():
        power.theta["p"].fill_(12.3)
    assert str(sympy(power, digits=1)[0]) == "10*x0**12"


def test_a_numpy_network_takes_any_batch_shape(monkeypatch: pytest.MonkeyPatch):
    net = with_random_biases(Network(3, [2], 2, "F12"))
    converted = numpy(net)
    monkeypatch.setitem(converted._network.__globals__, "ROWS", 4)
    x = np.random.default_rng(1).normal(size=(3, 5, 3))
    np.testing.assert_allclose(converted(x), outputs_of(net, x), rtol=1e-12)
    assert converted(x[0, 0]).shape == (2,)
    assert converted(np.zeros((0, 3))).shape == (0, 2)
    with pytest.raises(ShapeError, match=r"\(…, 3\), not \(2, 4\)"):
        converted(np.zeros((2, 4)))


def test_networks_too_large_to_convert_are_refused_quickly():
    with pytest.raises(FtnnError, match=r"this Network would have [0-9,]+ operations.*the limit is 5,000"):
        sympy(Network(784, [128, 128], 10, "F12"))
    with pytest.raises(FtnnError, match=r"about \de\+\d+ operations"):
        latex(Network(20, [20] * 9, 1, "F04"))
    with pytest.raises(FtnnError, match="the limit is 5,000"):
        sympy(nn.Sequential(Transfer(9, 9, "F03"), nn.LayerNorm(9)))
    deep = with_random_biases(Network(3, [6] * 4, 2, "F03"))
    with pytest.raises(FtnnError, match="the limit is 5,000"):
        sympy(deep)
    np.testing.assert_allclose(numpy(deep)(X), outputs_of(deep), rtol=1e-11, atol=1e-14)


def test_normalisations_are_folded_into_formulas():
    layer = Transfer(1, 1, "p*sin(q*x + r)", dtype=torch.float64)
    norm = nn.BatchNorm1d(1, eps=0.0, dtype=torch.float64)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    with torch.no_grad():
        for name, value in (("p", 2.0), ("q", 3.0), ("r", 1.0)):
            layer.theta[name].fill_(value)
        norm.running_mean.fill_(0.5)
        norm.running_var.fill_(4)
        norm.weight.fill_(6)
        norm.bias.fill_(0.25)
    assert str(sympy(nn.Sequential(layer, norm))) == "[6*sin(3*x0 + 1) - 1.25]"


def test_modules_that_cannot_be_converted_are_refused():
    for module, message in (
        (
            nn.BatchNorm1d(2, track_running_stats=False),
            "a BatchNorm1d with 2 features after 2 units; .* stat",
        ),
        (nn.BatchNorm1d(3), "a BatchNorm1d with 3 features after 2 units"),
        (nn.LayerNorm(3), "a LayerNorm over 3 units cannot follow 2"),
        (nn.LayerNorm([1, 2]), r"cannot convert a LayerNorm over \(1, 2\); expected one size"),
    ):
        with pytest.raises(FtnnError, match=message):
            numpy(nn.Sequential(Transfer(2, 2, "F12"), module))
    with pytest.raises(FtnnError, match="cannot convert a Softmax; expected one of Transfer, Partial"):
        sympy(nn.Sequential(Transfer(2, 2, "F12"), nn.Softmax(-1)))
    with pytest.raises(FtnnError, match="Memory layer"):
        numpy(MemoryNetwork(2, 2, 2))
    broken = Transfer(2, 2, "F12")
    with torch.no_grad():
        broken.theta["p"][0, 0] = float("nan")
    with pytest.raises(FtnnError, match=r"a parameter of F12: p\*sin\(q\*x \+ r\) is nan"):
        sympy(broken)
