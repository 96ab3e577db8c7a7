"""Normalisation after a layer, folded into the layer."""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import ftnn
from ftnn import Mixed
from ftnn.errors import FtnnError, ShapeError
from ftnn.nn import Memory, Network, Partial, Transfer, folded
from ftnn.nn._folding import fold_into

NAMES = [name for name in ftnn.catalogue if name != "memory"]
PLACES = [(0, 0), (0, 2), (1, 4), (3, 1), (3, 0), (4, 3), (6, 2), (6, 6)]
whole, some = partial(Transfer, 7, 9, backend="reference"), partial(Partial, 7, 9, backend="reference")
LAYERS: dict[str, Callable[..., Any]] = {
    **{name: partial(whole, name) for name in NAMES},
    "a sum": partial(whole, "p*sin(q*x + r) + s*x"),
    "not homogeneous": partial(whole, "p*x + 1"),
    "a quotient": partial(whole, "x/(q + r)"),
    "one unit": partial(Transfer, 1, 1, "F12"),
    "mixed": partial(whole, Mixed(["F12", "F03", "F18"])),
    "mixed by rows": partial(whole, Mixed(["F12", "F10", "F02"], "rows")),
    "with a scale": partial(whole, "F10", scale=True),
    "partial": partial(some, "F04", PLACES),
    "partial mixed": partial(some, Mixed(["F12", "F19", "F10"]), PLACES),
    "linear": partial(nn.Linear, 7, 9),
}


def normalised(make: Any, dtype: torch.dtype = torch.float64, **options: Any) -> tuple[nn.Sequential, Tensor]:
    """A layer with a normalisation that has seen data and has scales of either sign, and an input."""
    torch.manual_seed(0)
    layer = make(dtype=dtype, **options)
    norm = nn.BatchNorm1d(layer.out_features, dtype=dtype)
    module = nn.Sequential(layer, norm)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "theta" not in name:
                parameter.normal_()
        norm.weight[:1] = 0  # the unit is switched off
        for _ in range(20):
            module(torch.randn(30, layer.in_features, dtype=dtype) + 0.5)
    return module.eval(), torch.randn(40, layer.in_features, dtype=dtype)


def error(module: nn.Sequential, x: Tensor, result: nn.Module) -> float:
    """The largest difference, relative to the size of the parts that add up to the output."""
    layer, norm = module
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_var is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    size = (scale * layer(x)).abs() + norm.bias.abs() + 1
    return float(((result(x) - module(x)).abs() / size).detach().max())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_a_folded_layer_computes_what_it_did_with_its_normalisation(name: str, bias: bool):
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        module, x = normalised(LAYERS[name], dtype, bias=bias)
        before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
        result = folded(module)
        assert isinstance(result, nn.Sequential)
        assert [type(child) for child in result] == [type(module[0])]
        assert error(module, x, result) < tolerance
        assert all(torch.equal(tensor, before[key]) for key, tensor in module.state_dict().items())


@pytest.mark.parametrize(
    ("name", "scaled"),
    [("F12", []), ("F03", []), ("F02", [0]), ("F08", [1, 4]), ("F01", [0, 1, 4]), ("F10", [0, 1, 2, 3, 4])],
)
def test_only_outputs_whose_functions_cannot_take_a_scale_get_one(name: str, scaled: list[int]):
    layer = Transfer(3, 5, name, dtype=torch.float64)
    before = layer.state_dict()["theta.p"].clone()
    scale = torch.tensor([0.0, -2.0, 3.0, 0.5, -1.0], dtype=torch.float64)
    fold_into(layer, scale, torch.zeros(5))
    expected = [float(s) if n in scaled else 1 for n, s in enumerate(scale)]
    assert (layer.scale is None) == (not scaled)
    if layer.scale is not None:
        assert layer.scale.tolist() == expected
    assert (layer.theta["p"] == before)[:, scaled].all()


def test_kinds_are_scaled_by_their_own_amplitudes():
    kinds = torch.tensor([[0, 1, 2], [0, 0, 1], [2, 0, 0]])
    layer = Transfer(3, 3, Mixed(["p*x", "p**2*x*q", "logistic(p*x)"], kinds.numpy()), dtype=torch.float64)
    with torch.no_grad():
        for tensor in layer.theta.tensors():
            tensor.fill_(1)
    fold_into(layer, torch.tensor([4.0, 9.0, -2.0]), torch.zeros(3))
    assert layer.scale is not None
    assert layer.scale.tolist() == [4, 1, -2]  # outputs 0 and 2 have connections that nothing scales
    assert layer.matrix("p").tolist() == [[1, 1, 1], [9, 9, 1], [1, 1, 1]]
    assert layer.matrix("q").tolist() == [[1, 1, 1], [1, 1, 9], [1, 1, 1]]


def test_folding_into_a_layer_adds_a_scale_and_a_bias_once():
    layer = Transfer(3, 2, "F10", bias=False, dtype=torch.float64)
    x = torch.randn(4, 3, dtype=torch.float64)
    before = layer(x)
    for _ in range(2):
        fold_into(layer, torch.tensor([2.0, -3.0]), torch.tensor([1.0, 0.5]))
    expected = before * torch.tensor([4.0, 9.0]) + torch.tensor([3.0, -1.0])
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)
    assert set(dict(layer.named_parameters(recurse=False))) == {"bias", "scale"}
    assert layer(x).requires_grad


def test_folding_refuses_what_it_cannot_fold():
    layer = Transfer(3, 2, "F12")
    with pytest.raises(ShapeError, match=r"scale must have shape \(2,\), not \(3,\)"):
        fold_into(layer, torch.ones(3), torch.ones(2))
    with pytest.raises(FtnnError, match="shift must be finite"):
        fold_into(layer, torch.ones(2), torch.tensor([1.0, float("nan")]))
    parametrize.register_parametrization(layer.theta, "p", nn.Tanh(), unsafe=True)
    with pytest.raises(FtnnError, match="remove_parametrizations"):
        fold_into(layer, torch.ones(2), torch.ones(2))


# ---- whole networks


def trained(module: nn.Sequential) -> nn.Sequential:
    """In float64, after some batches of data."""
    torch.manual_seed(0)
    module.double()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d) and part.affine:
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    for _ in range(30):
        module(torch.randn(30, 4, dtype=torch.float64))
    return module


def kinds_of(module: nn.Sequential) -> list[Any]:
    return [kinds_of(child) if isinstance(child, nn.Sequential) else type(child) for child in module]


def layer(n: int = 4, m: int = 4) -> Transfer:
    return Transfer(n, m, "F12", bias=False)


@pytest.mark.parametrize(
    ("make", "kinds"),
    [
        (
            lambda: nn.Sequential(
                *(layer(), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.3)),
                *(nn.Linear(4, 5), nn.BatchNorm1d(5, eps=0.1, affine=False), nn.ReLU(), nn.Linear(5, 2)),
            ),
            [Transfer, nn.Tanh, nn.Linear, nn.ReLU, nn.Linear],
        ),
        (
            lambda: nn.Sequential(
                nn.Sequential(nn.Sequential(layer()), nn.Dropout()),
                nn.BatchNorm1d(4),
                nn.Sequential(nn.Tanh()),
            ),
            [[[Transfer]], [nn.Tanh]],
        ),
        (lambda: nn.Sequential(layer(), nn.BatchNorm1d(4), nn.BatchNorm1d(4)), [Transfer]),
        (lambda: nn.Sequential(layer(), nn.Sequential(nn.BatchNorm1d(4), nn.GELU())), [Transfer, [nn.GELU]]),
        # What must stay: after an activation, at the start, with the statistics of each batch, shared.
        (lambda: nn.Sequential(layer(), nn.Tanh(), nn.BatchNorm1d(4)), [Transfer, nn.Tanh, nn.BatchNorm1d]),
        (lambda: nn.Sequential(nn.BatchNorm1d(4), layer()), [nn.BatchNorm1d, Transfer]),
        (
            lambda: nn.Sequential(layer(), nn.BatchNorm1d(4, track_running_stats=False)),
            [Transfer, nn.BatchNorm1d],
        ),
        (
            lambda: (lambda one: nn.Sequential(one, nn.BatchNorm1d(4), one))(layer()),
            [Transfer, nn.BatchNorm1d, Transfer],
        ),
        (
            lambda: (lambda one: nn.Sequential(layer(), one, nn.Sigmoid(), one))(
                nn.Sequential(nn.BatchNorm1d(4), nn.Dropout())
            ),
            [Transfer, [nn.BatchNorm1d, nn.Dropout], nn.Sigmoid, [nn.BatchNorm1d, nn.Dropout]],
        ),
        (
            lambda: (lambda one: nn.Sequential(layer(), one, nn.Tanh(), layer(), one))(nn.BatchNorm1d(4)),
            [Transfer, nn.Tanh, Transfer],
        ),
        (lambda: nn.Sequential(Network(4, [3], 2, "F12")), [Network]),
    ],
)
def test_a_folded_network_computes_what_the_network_does_in_evaluation_mode(make: Any, kinds: list[Any]):
    module = trained(make())
    result = folded(module)
    assert isinstance(result, nn.Sequential)
    assert kinds_of(result) == kinds
    x = torch.randn(20, 4, dtype=torch.float64)
    torch.testing.assert_close(result.eval()(x), module.eval()(x), rtol=1e-12, atol=1e-12)


def test_modules_are_renumbered_unless_they_have_names():
    plain = folded(nn.Sequential(layer(), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)))
    assert [name for name, _ in plain.named_children()] == ["0", "1", "2"]
    names: OrderedDict[str, nn.Module] = OrderedDict(first=layer(), norm=nn.BatchNorm1d(4), last=nn.Tanh())
    assert [name for name, _ in folded(nn.Sequential(names)).named_children()] == ["first", "last"]


def test_other_modules_are_copied():
    for module in (Network(3, [2], 1), layer(), Memory(3, 2), nn.Linear(2, 2)):
        result = folded(module)
        assert result is not module
        assert repr(result) == repr(module)
