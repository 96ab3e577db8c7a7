"""Standard errors beyond the covariance: bands in plots, model files, `ftnn inspect`, cautions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch
from torch import nn
from typer.testing import CliRunner

import ftnn
from ftnn.cli import app
from ftnn.errors import FtnnError
from ftnn.nn import Transfer
from ftnn.training import History, fit
from ftnn.training._jacobian import VectorForm

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0, 4, (200, 1))
Y = 2 * np.exp(-0.5 * X) + 0.05 * RANDOM.normal(size=X.shape)


def decay(text: str = "p*exp(-q*x)", **values: float) -> nn.Sequential:
    layer = Transfer(1, 1, text, bias=False, dtype=torch.float64)
    with torch.no_grad():
        for name, value in (values or {"p": 1.0, "q": 1.0}).items():
            layer.matrix(name).fill_(value)
    return nn.Sequential(layer)


def fitted(**options: Any) -> tuple[nn.Sequential, History]:
    net = decay()
    return net, fit(net, X, Y, solver="lm", **options)


def formula(x: Any, p: float, q: float) -> Any:
    return p * np.exp(-q * x)


def test_weighted_standard_errors_are_those_of_curve_fit():
    sigma = RANDOM.uniform(0.5, 2, len(X))
    _, history = fitted(sample_weight=1 / sigma**2)
    _, covariance = scipy.optimize.curve_fit(
        formula, X[:, 0], Y[:, 0], (1, 1), sigma=sigma, ftol=1e-13, xtol=1e-13
    )
    assert history.covariance is not None
    np.testing.assert_allclose(history.covariance.matrix, covariance, rtol=1e-5)


@pytest.mark.parametrize("bounds", [None, {"q": (None, 0)}])
def test_what_kinds_do_not_use_is_no_parameter(bounds: Any):
    random = np.random.default_rng(1)
    x = random.uniform(0.5, 1.5, (4, 2))
    y = 2 * x[:, :1] * np.exp(-x[:, 1:]) + 0.01 * random.normal(size=(4, 1))
    kinds = ftnn.Mixed(["p*x", "exp(q*x)"], [[0, 1]])
    layer = Transfer(2, 1, kinds, bias=False, reduce="product", dtype=torch.float64)
    history = fit(nn.Sequential(layer), x, y, solver="lm", bounds=bounds)

    def product(x: Any, p: float, q: float) -> Any:
        return p * x[:, 0] * np.exp(q * x[:, 1])

    _, expected = scipy.optimize.curve_fit(product, x, y[:, 0], (1, -1), ftol=1e-13, xtol=1e-13)
    assert history.notes == []
    assert history.covariance is not None
    assert history.covariance.names[1:3] == ("0.theta.p[1, 0]", "0.theta.q[0, 0]")
    np.testing.assert_allclose(history.covariance.matrix[np.ix_([0, 3], [0, 3])], expected, rtol=1e-5)
    assert np.isnan(history.covariance.matrix[1:3]).all()
    figure = ftnn.inspect.plot(layer, x=(0.5, 1.5), covariance=history.covariance)
    bands = [band for axes in figure.axes for band in axes.collections]
    assert len(bands) == 2
    assert all(np.isfinite(np.asarray(band.get_paths()[0].vertices)).all() for band in bands)


def test_standard_errors_need_no_other_pass_over_the_data(monkeypatch: pytest.MonkeyPatch):
    passes: list[torch.Tensor] = []
    at_the_end: list[int] = []
    forward = VectorForm.forward

    def counted(form: VectorForm, theta: torch.Tensor, x: torch.Tensor) -> Any:
        passes.append(theta)
        return forward(form, theta, x)

    def count(*_: Any) -> None:
        at_the_end[:] = [len(passes)]

    monkeypatch.setattr(VectorForm, "forward", counted)
    fitted(callbacks=[count])
    assert at_the_end == [len(passes)]


def test_bands_are_those_of_error_propagation():
    net, history = fitted()
    layer: Any = net[0]
    figure = ftnn.inspect.plot(layer, x=(0, 4), covariance=history.covariance)
    (band,) = figure.axes[0].collections
    vertices = np.asarray(band.get_paths()[0].vertices)
    values, covariance = scipy.optimize.curve_fit(formula, X[:, 0], Y[:, 0], (1, 1))
    for x in (0.0, 1.0, 4.0):
        drawn = np.ptp(vertices[np.isclose(vertices[:, 0], x), 1]) / 2
        slope = np.array([np.exp(-values[1] * x), -values[0] * x * np.exp(-values[1] * x)])
        assert drawn == pytest.approx(1.96 * np.sqrt(slope @ covariance @ slope), rel=1e-3)
    assert not ftnn.inspect.plot(layer, x=(0, 4)).axes[0].collections


def test_a_band_needs_the_covariance_of_its_own_layer():
    _, history = fitted()
    with pytest.raises(FtnnError, match="the covariance is of no layer with this layer's parameters"):
        ftnn.inspect.plot(Transfer(1, 1, "F12"), covariance=history.covariance)
    with pytest.raises(FtnnError, match="must be a history's covariance"):
        ftnn.inspect.plot(Transfer(1, 1, "F12"), covariance=history)  # pyright: ignore[reportArgumentType]


def test_inspect_shows_the_errors_that_a_model_was_saved_with(tmp_path: Path):
    net, history = fitted()
    assert history.covariance is not None
    ftnn.save(net, tmp_path / "m", notes=history.covariance.as_notes())
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "m")])
    assert shown.exit_code == 0
    error = history.covariance.errors["0.theta.q"].item()
    assert f"{error:.2g}" in next(line for line in shown.output.splitlines() if "0.theta.q[0, 0]" in line)
    document = json.loads(CliRunner().invoke(app, ["inspect", str(tmp_path / "m"), "--json"]).stdout)
    entry = document["standard_errors"]["parameters"][1]
    assert entry["name"] == "0.theta.q[0, 0]"
    assert entry["error"] == pytest.approx(error)
    assert entry["value"] == pytest.approx(float(net[0].theta["q"].detach()))  # pyright: ignore


def test_inspect_shows_what_is_not_determined_and_what_is_at_a_bound(tmp_path: Path):
    net = decay("p*q*x + s*exp(-r*x)", p=1, q=1, s=1, r=1)
    history = fit(net, X, Y, solver="lm", bounds={"r": (0.9, None)})
    assert history.covariance is not None
    ftnn.save(net, tmp_path / "m", notes=history.covariance.as_notes())
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "m")]).output
    rows = {line.split()[0]: line for line in shown.splitlines() if line.startswith("0.theta")}
    assert rows["0.theta.p[0,"].endswith("infinite")
    assert rows["0.theta.r[0,"].endswith("none")
    assert "the data do not determine 2 of 4 parameters" in shown.replace("\n", " ")


def test_inspect_omits_what_kinds_do_not_use(tmp_path: Path):
    kinds = ftnn.Mixed(["p*x", "exp(q*x)"], [[0, 1]])
    net = nn.Sequential(Transfer(2, 1, kinds, bias=False, dtype=torch.float64))
    x = np.random.default_rng(0).normal(size=(20, 2))
    history = fit(net, x, x[:, :1] + np.exp(-x[:, 1:]), solver="lm")
    assert history.covariance is not None
    ftnn.save(net, tmp_path / "m", notes=history.covariance.as_notes())
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "m"), "--json"]).stdout
    names = [entry["name"] for entry in json.loads(shown)["standard_errors"]["parameters"]]
    assert names == ["0.theta.p[0, 0]", "0.theta.q[1, 0]"]


def test_a_fit_that_is_no_better_than_the_mean_still_has_errors_and_notes():
    noise = RANDOM.normal(size=X.shape)
    history = fit(decay("a*x + b", a=0, b=0), X, noise, solver="lm")
    assert history.failed is not None
    assert history.covariance is not None
    line: Any = scipy.stats.linregress(X[:, 0], noise[:, 0])
    assert history.covariance.errors["0.theta.a"][0, 0] == pytest.approx(line.stderr, rel=1e-9)
    same = np.full_like(X, 2.0)
    history = fit(decay("a*x + b", a=0, b=0), same, noise, solver="lm")
    assert "the data do not determine 2 of 2 parameters" in history.notes[0]


@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
def test_a_network_that_is_frozen_as_a_whole_is_refused(solver: Any):
    net = decay()
    net.requires_grad_(False)
    with pytest.raises(FtnnError, match="all parameters are frozen"):
        fit(net, X, Y, solver=solver)


def test_nearly_dependent_parameters_have_accurate_errors():
    """κ = 1e5: the inverse of JᵀJ would keep only six digits."""
    net = decay("a*x + b*(x + 1e-5*x**2)", a=1, b=1)
    history = fit(net, X, Y, solver="lm")
    design = np.stack([X[:, 0], X[:, 0] + 1e-5 * X[:, 0] ** 2], 1)
    inverse = np.linalg.pinv(design)
    residuals = Y[:, 0] - design @ (inverse @ Y[:, 0])
    expected = np.sqrt(np.diag(inverse @ inverse.T) * (residuals @ residuals) / (len(X) - 2))
    assert history.covariance is not None
    found = [history.covariance.errors[f"0.theta.{name}"].item() for name in "ab"]
    np.testing.assert_allclose(found, expected, rtol=1e-8)
