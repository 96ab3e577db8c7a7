"""Calibration: initial ranges from data, and networks that are as they were drawn."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import ftnn
from ftnn.errors import DataError, DTypeError, FormulaError, ShapeError
from ftnn.nn import Memory, MemoryNetwork, Network, Partial, Transfer
from ftnn.training import digest


def data(scale: float = 1.0, features: int = 12) -> torch.Tensor:
    return scale * torch.randn(400, features, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("formula", ["p*sin(q*x + r)", "p*gauss(q*x + r)", "p*x**2 + q*x", "p**2*x"])
def test_a_calibrated_layer_has_centred_sums_of_variance_1(formula: str, scale: float):
    torch.manual_seed(0)
    layer, x = Transfer(12, 50, formula), data(scale)
    layer.calibrate(x)
    sums = layer(x).detach()
    assert sums.var(0).mean() == pytest.approx(1, rel=0.05)
    assert sums.mean(0).abs().max() < 1e-3
    for name, (low, high) in layer.ranges.items():
        assert low <= layer.matrix(name).min() <= layer.matrix(name).max() <= high


def test_calibration_keeps_given_ranges_and_uses_the_generator():
    layer = Transfer(12, 5, ftnn.Function("p*sin(q*x + r)", init={"q": (2, 3)}))
    results = []
    for _ in range(2):
        layer.calibrate(data(), torch.Generator().manual_seed(7))
        results.append(layer.matrix("p").clone())
    assert torch.equal(*results)
    assert layer.ranges["q"] == (2, 3)
    assert 2 <= layer.matrix("q").min() <= layer.matrix("q").max() <= 3


def test_a_network_is_calibrated_layer_by_layer():
    torch.manual_seed(0)
    net, x = Network(12, [40, 30, 20], 3, function="p*gauss(q*x + r)", activation="tanh"), 5 * data()
    net.calibrate(x)
    for layer in net.layers:
        sums = layer(x).detach()
        assert sums.var(0).mean() == pytest.approx(1, rel=0.05)
        x = torch.tanh(sums)
    assert all(layer.is_untouched for layer in net.layers)


def test_layers_of_a_network_expect_what_the_activation_sends():
    relu = Network(12, [40, 30], 3, function="p*sin(q*x + r)", activation="relu")
    narrow = Network(12, [40, 30], 3, function="p*sin(q*x + r)", activation="tanh(x)/100")
    assert narrow.layers[1].ranges["q"][1] > 4 * relu.layers[1].ranges["q"][1]


def test_networks_of_catalogue_functions_draw_the_papers_ranges_bit_for_bit():
    """Constructing layers without drawing first must not consume random numbers."""
    torch.manual_seed(5)
    net = Network(4, [3], 2, function="F12")
    torch.manual_seed(5)
    layer = Transfer(4, 3, "F12")
    assert torch.equal(net.layers[0].matrix("q"), layer.matrix("q"))
    assert layer.ranges == ftnn.catalogue["F12"].init


def test_mixed_and_partial_layers_are_calibrated_kind_by_kind():
    torch.manual_seed(0)
    mixed = Transfer(12, 50, ftnn.Mixed(["p*sin(q*x)", "F03"]))
    mixed.calibrate(data())
    assert [set(ranges) for ranges in mixed.ranges] == [{"p", "q"}, {"p", "q"}]
    assert mixed.ranges[1] == ftnn.catalogue["F03"].init
    partial = Partial(12, 50, "p*sin(q*x)", torch.rand(50, 12).gt(0.5).nonzero())
    partial.calibrate(data())
    assert partial(data()).detach().var(0).mean() == pytest.approx(1, rel=0.1)


def test_a_layer_is_untouched_until_its_parameters_change():
    layer = Transfer(4, 3, "p*sin(q*x + r)")
    assert layer.is_untouched
    assert copy.deepcopy(layer).is_untouched
    assert copy.deepcopy(layer).double().is_untouched
    with torch.no_grad():
        layer.theta["p"][0, 0] += 1
    assert not layer.is_untouched
    layer.reset_parameters()
    assert layer.is_untouched
    layer.load_state_dict(Transfer(4, 3, "p*sin(q*x + r)").state_dict())
    assert not layer.is_untouched


def test_a_loaded_layer_is_not_untouched(tmp_path):  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
    ftnn.save(Transfer(4, 3, "F12"), tmp_path / "layer")
    assert not ftnn.load(tmp_path / "layer").is_untouched  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Transfer(4, 3, "p*sin(q*x)"),
        lambda: Partial(4, 3, "p*sin(q*x)", [[0, 1], [2, 2]]),
        lambda: Network(4, [5], 2, "F12"),
        lambda: Memory(4, 3),
        lambda: MemoryNetwork(4, 3, 2),
    ],
)
def test_calibration_refuses_data_that_are_empty_or_not_finite(make: Callable[[], Any]):
    module = make()
    before = digest(module)
    with pytest.raises(DataError, match=r"x has shape \(0, 4\); calibrate needs at least one sample"):
        module.calibrate(torch.ones(0, 4))
    for bad in (torch.nan, torch.inf):
        x = torch.ones(3, 5, 4)
        x[1, 2, 3] = bad
        with pytest.raises(DataError, match=rf"x\[1, 2, 3\] is {bad}; calibrate expects finite numbers"):
            module.calibrate(x)
    assert digest(module) == before


def test_a_network_with_a_pole_in_its_first_layer_can_be_calibrated():
    net = Network(4, [5, 5], 2, ftnn.Function("log(p*x)", init={"p": (1, 2)}))
    net.calibrate(data(features=4))
    assert net(torch.ones(1, 4)).shape == (1, 2)


def test_calibration_refuses_wrong_inputs():
    layer = Transfer(12, 5, "p*log(q*x)")
    with pytest.raises(ShapeError):
        layer.calibrate(torch.ones(5, 11))
    with pytest.raises(DTypeError):
        layer.calibrate(torch.ones(5, 12, dtype=torch.int64))
    for bad in (0, 1.5, "2"):
        with pytest.raises(ShapeError, match="layers must be a positive integer, not"):
            layer.calibrate(torch.ones(5, 12), layers=bad)  # pyright: ignore[reportArgumentType]
    with pytest.raises(FormulaError, match="no initial ranges that keep the function finite"):
        layer.calibrate(data())


def test_a_seed_is_no_generator():
    for module in (Transfer(4, 3, "p*x"), Network(4, [], 2), Memory(4, 3)):
        wrong: Any = 4
        with pytest.raises(ftnn.FtnnError, match=r"torch\.Generator\(\)\.manual_seed\(0\), not 4"):
            module.reset_parameters(wrong)
        with pytest.raises(ftnn.FtnnError, match="generator must be a torch"):
            module.calibrate(torch.ones(5, 4), wrong)


def test_a_layer_whose_ranges_need_negative_inputs_can_be_built_and_calibrated():
    given = ftnn.Function("p*sqrt(q*x)", init={"q": (-2, -1)})
    layer = Transfer(4, 3, given)
    layer.calibrate(-1 - torch.rand(50, 4))
    assert layer.ranges["q"] == (-2, -1)
    layer = Transfer(4, 3, "p*sqrt(q*x)")
    layer.calibrate(-1 - torch.rand(50, 4))
    assert layer.ranges["q"][1] < 0
    assert bool(layer(-1 - torch.rand(50, 4)).isfinite().all())
