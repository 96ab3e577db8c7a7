"""Product units: `y_i = Π_j F_ij(x_j) + b_i`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ftnn
from ftnn.errors import FtnnError, ModelFileError
from ftnn.kernels import connection_values
from ftnn.nn import Network, Partial, Transfer
from ftnn.training import fit
from ftnn.training._jacobian import VectorForm

FLOAT64 = torch.float64
FORMULA = "p*sin(q*x + r) + s"


def layer(**options: Any) -> Transfer:
    torch.manual_seed(0)
    return Transfer(3, 4, FORMULA, reduce="product", dtype=FLOAT64, **options)


def samples(count: int = 7) -> Tensor:
    return torch.randn(count, 3, dtype=FLOAT64, generator=torch.Generator().manual_seed(1))


def written_out(net: Transfer, x: Tensor) -> Tensor:
    p, q, r, s = (net.matrix(name)[None] for name in "pqrs")
    factors = p * torch.sin(q * x[:, None, :] + r) + s
    return factors[:, :, 0] * factors[:, :, 1] * factors[:, :, 2] + (0 if net.bias is None else net.bias)


def test_units_are_products_of_their_connections():
    net = layer()
    nn.init.normal_(net.bias)  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(net(samples()), written_out(net, samples()), rtol=1e-13, atol=1e-13)
    assert "reduce='product'" in repr(net)
    assert net(samples().reshape(7, 1, 3)).shape == (7, 1, 4)


def functional(net: nn.Module) -> Any:
    names = [name for name, _ in net.named_parameters()]

    def call(x: Tensor, *parameters: Tensor) -> Any:
        return torch.func.functional_call(net, dict(zip(names, parameters, strict=True)), (x,))

    return call


def test_first_and_second_derivatives_are_exact_where_factors_are_zero():
    torch.manual_seed(0)
    net = Transfer(3, 2, "p*x + q", reduce="product", dtype=FLOAT64)
    with torch.no_grad():
        net.matrix("q").zero_()
    x = samples(4)
    x[0, 0] = x[1, 0] = x[1, 1] = 0  # one and two factors of 0
    x[2] = 0
    arguments = (x.requires_grad_(), *net.parameters())
    assert torch.autograd.gradcheck(functional(net), arguments)
    assert torch.autograd.gradgradcheck(functional(net), arguments)


def test_missing_connections_are_factors_of_one():
    whole = layer(bias=False)
    places = [(0, 1), (1, 0), (1, 2), (3, 0), (3, 1), (3, 2)]
    part = Partial(3, 4, FORMULA, places, bias=False, reduce="product", dtype=FLOAT64)
    with torch.no_grad():
        for name in "pqrs":
            part.theta[name].copy_(torch.stack([whole.matrix(name)[o, i] for o, i in places]))
    p, q, r, s = (whole.matrix(name)[None] for name in "pqrs")
    factors = p * torch.sin(q * samples()[:, None, :] + r) + s
    exists = torch.zeros(4, 3, dtype=torch.bool)
    exists[tuple(zip(*places, strict=True))] = True
    expected = torch.where(exists, factors, 1.0).prod(2)
    torch.testing.assert_close(part(samples()), expected, rtol=1e-13, atol=1e-13)
    assert torch.autograd.gradcheck(functional(part), (samples(3).requires_grad_(), *part.parameters()))


def test_pruning_keeps_the_outputs():
    torch.manual_seed(0)
    net = Transfer(3, 4, ftnn.Function("2 + rect(p)*x"), reduce="product", dtype=FLOAT64)
    with torch.no_grad():
        net.matrix("p").copy_(torch.tensor([[1.0, -1, 2], [-1, -1, -1], [1, 1, 1], [-2, 1, -3]]))
    pruned = ftnn.inspect.prune(net)
    assert isinstance(pruned, Partial)
    assert pruned.reduce == "product"
    torch.testing.assert_close(pruned(samples()), net(samples()), rtol=1e-13, atol=1e-13)


def factors_of(net: Transfer, x: Tensor) -> Tensor:
    return connection_values(net.function, x, net.matrices()).detach()


HARD = ("p*sin(q*x + r)", "p*gauss(q*x + r)", "p*tanh(q*x + r)")
"""Drawn as for sums, many of these have a mean near 0, or would have to change their sign."""


@pytest.mark.parametrize("formula", [FORMULA, "exp(p*x)", "a + b*x + c*x**2", *HARD])
def test_calibrated_factors_start_near_one(formula: str):
    torch.manual_seed(0)
    net, x = Transfer(8, 50, formula, reduce="product", dtype=FLOAT64), torch.randn(1000, 8, dtype=FLOAT64)
    net.calibrate(3 * x + 1)
    factors = factors_of(net, 3 * x + 1)
    far = (factors.mean(0) - 1).abs() > 0.5
    assert far.double().mean() < 0.01
    assert factors.std(0).median() > 0.1
    assert 0.3 < float(net(3 * x + 1).std(0).median().detach()) < 3


def test_calibration_leaves_no_factor_that_is_not_finite():
    torch.manual_seed(0)
    x = torch.randn(1000, 5)
    net = Transfer(5, 50, "p*log(1 + q*x**2)", reduce="product")
    assert net(x).isfinite().all()
    net.calibrate(x)
    assert net(x).isfinite().all()
    assert net(torch.randn(10_000, 5)).isfinite().all()
    far = (factors_of(net, x).mean(0) - 1).abs() > 0.5
    assert far.double().mean() < 0.05


@pytest.mark.parametrize("formula", HARD)
def test_new_product_units_are_alive_for_inputs_of_unit_variance(formula: str):
    torch.manual_seed(0)
    net = Transfer(100, 40, formula, reduce="product", dtype=FLOAT64)
    outputs = net(torch.randn(1000, 100, dtype=FLOAT64))
    assert 0.3 < float(outputs.std(0).median().detach()) < 3
    assert net.is_untouched


@pytest.mark.parametrize(("inputs", "outputs"), [(784, 128), (2, 5000)])
def test_units_of_large_layers_start_near_one_and_differ(inputs: int, outputs: int):
    torch.manual_seed(0)
    net = Transfer(inputs, outputs, "1 + p*tanh(q*x + r)", reduce="product", dtype=FLOAT64)
    x = torch.randn(200, inputs, dtype=FLOAT64)
    assert ((factors_of(net, x).mean(0) - 1).abs() > 0.5).double().mean() < 0.01
    assert 0.1 < float(net(x).std(0).median().detach()) < 3
    assert len({tuple(unit) for unit in net.matrix("q")[:, :2].tolist()}) == outputs


def test_given_ranges_of_factors_are_kept_but_not_those_of_the_catalogue():
    torch.manual_seed(0)
    net = Transfer(8, 20, ftnn.Function("a + b*x", init={"b": (0.5, 0.6)}), reduce="product", dtype=FLOAT64)
    for _ in range(2):
        assert float(net.matrix("b").min().detach()) >= 0.5
        assert float(net.matrix("b").max().detach()) <= 0.6
        net.calibrate(samples(100).repeat(1, 3)[:, :8])
    paper = Transfer(3, 20, "F16", reduce="product", dtype=FLOAT64)  # ±0.1 for all
    assert (factors_of(paper, samples(100)).mean(0) - 1).abs().median() < 0.5


def test_models_keep_what_they_multiply(tmp_path: Path):
    net = nn.Sequential(layer(scale=True), nn.Linear(4, 1, dtype=FLOAT64))
    ftnn.save(net, tmp_path / "m")
    loaded = ftnn.load(tmp_path / "m")
    torch.testing.assert_close(loaded(samples()), net(samples()), rtol=0, atol=0)
    network = Network(3, [4], 1, "F12", dtype=FLOAT64)
    network.hidden[0] = layer()
    with pytest.raises(ModelFileError, match="product units"):
        ftnn.save(network, tmp_path / "n")


def test_formulas_are_products():
    net = nn.Sequential(layer(), nn.Tanh(), nn.Linear(4, 2, dtype=FLOAT64))
    expected = net(samples()).detach().numpy()
    np.testing.assert_allclose(ftnn.inspect.numpy(net)(samples().numpy()), expected, rtol=1e-12)
    one = Transfer(2, 1, "p*x", bias=False, reduce="product")
    nn.init.constant_(one.theta["p"], 2.0)
    assert str(ftnn.inspect.sympy(one)[0]) == "4*x0*x1"


def test_normalisations_fold_into_the_scale():
    net = nn.Sequential(layer(bias=False), nn.BatchNorm1d(4, dtype=FLOAT64))
    net(samples(50))
    net.eval()
    torch.testing.assert_close(ftnn.nn.folded(net)(samples()), net(samples()), rtol=1e-12, atol=1e-12)


def test_they_are_compiled_and_exported_by_torch():
    net = layer()
    compiled: Any = torch.compile(net, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(samples()), net(samples()))
    exported = torch.export.export(net, (samples(),)).module()
    torch.testing.assert_close(exported(samples()), net(samples()))


def test_direct_training_and_levenberg_marquardt_learn_a_product():
    x = samples(300)[:, :2]
    y = (x[:, :1] * torch.exp(-x[:, 1:]) / 3).numpy()
    torch.manual_seed(0)
    net = nn.Sequential(Transfer(2, 3, "a + b*x", reduce="product"), nn.Linear(3, 1))
    assert fit(net, x.numpy(), y, epochs=20).failed is None
    exact = nn.Sequential(Transfer(2, 1, "a + b*x + c*exp(d*x)", reduce="product", bias=False, dtype=FLOAT64))
    history = fit(exact, x.numpy(), y, solver="lm", starts=8)
    assert history.loss is not None
    assert history.loss < 1e-20


def test_jacobians_of_products_are_those_of_automatic_differentiation():
    net = nn.Sequential(layer(), nn.Tanh(), Transfer(4, 2, FORMULA, reduce="product", dtype=FLOAT64))
    form, x = VectorForm(net), samples()
    done = form.forward(form.theta(), x.T)
    outputs, jacobian = done.outputs.T, form.jacobian(done).movedim(0, 2).movedim(1, 0)
    trained = dict(net.named_parameters())
    expected = torch.func.jacrev(lambda p: torch.func.functional_call(net, p, (x,)))(trained)  # pyright: ignore
    flat = torch.cat([expected[name].flatten(2) for name in trained], 2)
    torch.testing.assert_close(outputs, net(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(jacobian, flat, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("solver", ["direct", "lm", "lbfgs"])
def test_lists_of_factors_are_calibrated_and_fitted(solver: Any):
    places = [(0, 0), (0, 1), (1, 1)]
    net = nn.Sequential(
        Partial(2, 2, "a + b*x", places, reduce="product", dtype=FLOAT64), nn.Linear(2, 1, dtype=FLOAT64)
    )
    x = samples(300)[:, :2].numpy()
    y = (2 + x[:, :1]) * (1 - 3 * x[:, 1:]) - x[:, 1:]
    history = fit(net, x, y, solver=solver, epochs=60)
    assert history.loss is not None
    assert history.loss < (0.1 if solver == "direct" else 1e-12) * float(y.var())


@pytest.mark.parametrize("count", [3, 19])
def test_jacobians_of_lists_of_factors_and_of_zeros_are_exact(count: int):
    """With fewer samples than a vector has lanes, and with more; with factors that are exactly 0."""
    torch.manual_seed(0)
    net = nn.Sequential(
        Transfer(3, 3, "p*x", reduce="product", dtype=FLOAT64),
        Partial(3, 2, FORMULA, [(0, 1), (1, 0), (1, 2)], reduce="product", dtype=FLOAT64),
    )
    x = samples(count)
    x[0, 0] = x[1, 0] = x[1, 1] = 0
    x[2] = 0
    form = VectorForm(net)
    jacobian = form.jacobian(form.forward(form.theta(), x.T)).movedim(0, 2).movedim(1, 0)
    trained = dict(net.named_parameters())
    expected = torch.func.jacrev(lambda p: torch.func.functional_call(net, p, (x,)))(trained)  # pyright: ignore
    flat = torch.cat([expected[name].flatten(2) for name in trained], 2)
    torch.testing.assert_close(jacobian, flat, rtol=1e-12, atol=1e-14)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(FtnnError, match=r"unknown reduce 'max'; expected one of 'sum', 'product'"):
        Transfer(2, 2, "F12", reduce="max")  # pyright: ignore[reportArgumentType]
    with pytest.raises(FtnnError, match="is grounded, so as a factor"):
        Transfer(2, 2, ftnn.Function("p*cos(q*x)").grounded(), reduce="product")
    with pytest.raises(FtnnError, match="does not support backend='cpu'"):
        Transfer(2, 2, "F12", reduce="product", backend="cpu")
