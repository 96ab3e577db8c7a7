"""Levenberg-Marquardt and L-BFGS: exact Jacobians, minima, starts, bounds, standard errors."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import nn

import ftnn
from ftnn.errors import FtnnError
from ftnn.nn import Network, Partial, Transfer
from ftnn.training import History, digest, fit
from ftnn.training._jacobian import VectorForm
from ftnn.training._lbfgs import Descent, descend
from ftnn.training._least_squares import Bounds, Search, System, step
from ftnn.training._objective import check_memory
from ftnn.training._problem import make_problem
from ftnn.training._searches import starting_networks

DAMPED = "p*exp(-q*x)*sin(w*x + r)"
FLOAT64 = torch.float64
RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0, 4, (300, 1))
Y = 2 * np.exp(-0.5 * X) * np.sin(3 * X + 0.4) + 0.01 * RANDOM.normal(size=X.shape)


def damped(bias: bool = False) -> nn.Sequential:
    """The true formula, near the truth."""
    layer = Transfer(1, 1, DAMPED, bias=bias, dtype=FLOAT64)
    with torch.no_grad():
        for name, value in {"p": 1.5, "q": 0.4, "w": 2.8, "r": 0.5}.items():
            layer.matrix(name).fill_(value)
    return nn.Sequential(layer)


def found(net: nn.Sequential) -> list[float]:
    layer = net[0]
    assert isinstance(layer, Transfer)
    return [float(layer.matrix(name).detach()) for name in ("p", "q", "w", "r")]


# --- Jacobians ---


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    mixed = ftnn.Mixed(["F12", "p*x*exp(-(q*x)**2)"])
    connections = [(0, 0), (2, 1), (1, 1), (4, 0)]
    frozen = Network(2, [5], 2, "F16", dtype=FLOAT64)
    frozen.layers[0].theta["q"].requires_grad_(False)
    scaled = Transfer(2, 3, "F05", scale=True, dtype=FLOAT64)
    nn.init.uniform_(scaled.scale, 0.5, 2.0)  # pyright: ignore[reportArgumentType]
    return {
        "deep": Network(2, [5, 4], 3, "p*tanh(q*x + r)", activation="logistic", dtype=FLOAT64),
        "mixed": nn.Sequential(Transfer(2, 5, mixed, dtype=FLOAT64), nn.SiLU(), nn.Linear(5, 1).double()),
        "partial": nn.Sequential(
            nn.Linear(2, 2, bias=False).double(),
            Partial(2, 5, "F07", connections, dtype=FLOAT64),
            nn.Tanh(),
            Partial(5, 2, "F12", [(0, 1), (1, 4), (1, 2)], bias=False, dtype=FLOAT64),
        ),
        "scaled": nn.Sequential(scaled, nn.Identity(), Transfer(3, 1, "F12", dtype=FLOAT64)),
        "frozen": frozen,
    }


@pytest.mark.parametrize("name", networks())
def test_jacobians_are_those_of_automatic_differentiation(name: str):
    net = networks()[name]
    x = torch.randn(7, 2, dtype=FLOAT64, generator=torch.Generator().manual_seed(1))
    form = VectorForm(net)
    done = form.forward(form.theta(), x.T)
    outputs, jacobian = done.outputs.T, form.jacobian(done).movedim(0, 2).movedim(1, 0)
    trained = {n: p for n, p in net.named_parameters() if p.requires_grad}

    def of(parameters: dict[str, Any]) -> Any:
        return torch.func.functional_call(net, parameters, (x,))

    expected = torch.func.jacrev(of)(trained)
    flat = torch.cat([expected[n].flatten(2) for n in trained], 2)
    assert jacobian.shape == (7, outputs.shape[1], sum(p.numel() for p in trained.values()))
    torch.testing.assert_close(outputs, net(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(jacobian, flat, rtol=1e-12, atol=1e-12)


# --- the algorithms alone ---


class Rosenbrock:
    """Residuals 10(y - x²) and 1 - x: a curved valley with its minimum at (1, 1)."""

    def _parts(self, theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = theta.tolist()
        residuals = torch.tensor([10 * (y - x**2), 1 - x], dtype=FLOAT64)
        return residuals, torch.tensor([[-20 * x, 10.0], [-1.0, 0.0]], dtype=FLOAT64)

    def loss(self, theta: torch.Tensor) -> float:
        return 0.5 * float(self._parts(theta)[0].square().sum())

    def system(self, theta: torch.Tensor) -> System:
        residuals, jacobian = self._parts(theta)
        return System(self.loss(theta), jacobian.T @ residuals, jacobian.T @ jacobian)

    def loss_and_gradient(self, theta: Any) -> tuple[float, Any]:
        system = self.system(torch.from_numpy(theta))
        return system.loss, system.gradient.numpy()


def test_levenberg_marquardt_follows_a_curved_valley_and_the_loss_never_grows():
    search, losses = Search(torch.tensor([-1.2, 1.0], dtype=FLOAT64)), list[float]()
    while not search.converged and len(losses) < 100:
        search = step(Rosenbrock(), search)
        losses.append(search.loss)
    assert search.converged
    assert losses == sorted(losses, reverse=True)
    torch.testing.assert_close(search.theta, torch.ones(2, dtype=FLOAT64), rtol=1e-9, atol=0)


def test_a_bounded_minimum_is_scipys():
    low, high = torch.tensor([-2.0, -2.0], dtype=FLOAT64), torch.tensor([0.5, 2.0], dtype=FLOAT64)
    search = Search(torch.tensor([-1.2, 1.0], dtype=FLOAT64))
    for _ in range(100):
        search = step(Rosenbrock(), search, Bounds(low, high))
    torch.testing.assert_close(search.theta, torch.tensor([0.5, 0.25], dtype=FLOAT64), rtol=1e-8, atol=0)


def test_lbfgs_follows_the_valley_too():
    descent = Descent(np.array([-1.2, 1.0]))
    for _ in range(100):
        if not descent.converged:
            descent = descend(Rosenbrock(), descent)
    assert descent.converged
    np.testing.assert_allclose(descent.theta, 1, rtol=1e-6)


# --- fit ---


def test_the_minimum_and_its_standard_errors_are_those_of_scipy():
    net = damped()
    history = fit(net, X, Y, solver="lm")

    def formula(x: Any, p: float, q: float, w: float, r: float) -> Any:
        return p * np.exp(-q * x) * np.sin(w * x + r)

    values, covariance = scipy.optimize.curve_fit(formula, X[:, 0], Y[:, 0], found(net))
    np.testing.assert_allclose(found(net), values, rtol=1e-7)
    assert history.converged
    assert history.notes == []
    assert history.covariance is not None
    errors = [history.covariance.errors[f"0.theta.{name}"][0, 0] for name in ("p", "q", "w", "r")]
    np.testing.assert_allclose(errors, np.sqrt(np.diag(covariance)), rtol=1e-4)  # its Jacobian is numerical
    assert history.covariance.names[0] == "0.theta.p[0, 0]"
    assert np.diag(history.covariance.correlation) == pytest.approx([1, 1, 1, 1])
    assert history.covariance.deviation == pytest.approx(0.01, rel=0.1)


def test_weights_count_as_repeated_samples_for_the_minimum():
    weighted, repeated = damped(), damped()
    weights = np.arange(len(X)) % 3
    fit(weighted, X, Y, solver="lm", sample_weight=weights)
    rows = np.repeat(np.arange(len(X)), weights)
    fit(repeated, X[rows], Y[rows], solver="lm")
    np.testing.assert_allclose(found(weighted), found(repeated), rtol=1e-7)


@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
@pytest.mark.parametrize("loss", ["huber", "absolute", "log(cosh(3*(y - t)))"])
def test_robust_losses_ignore_outliers(solver: Any, loss: str):
    y = Y.copy()
    y[::10] += 50
    net = damped()
    fit(net, X, y, solver=solver, loss=loss)
    distance = np.abs(np.subtract(found(net), [2, 0.5, 3, 0.4])).max()
    assert distance < {"huber": 0.7, "absolute": 0.02}.get(loss, 0.2)
    plain = damped()
    fit(plain, X, y, solver=solver)
    assert np.abs(np.subtract(found(plain), [2, 0.5, 3, 0.4])).max() > 2 * distance


@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
def test_classes_are_learnt(solver: Any):
    x = RANDOM.normal(size=(200, 2))
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    net = Network(2, [6], 3, "F16")
    history = fit(net, x, y, solver=solver, epochs=60, test=(x, y))
    assert history.accuracy is not None
    assert history.accuracy > 95
    assert history.epochs[-1].train_accuracy == history.accuracy
    assert history.covariance is None


def test_starts_find_what_one_alone_may_miss():
    histories = [fit(nn.Sequential(Transfer(1, 1, DAMPED, bias=False)), X, Y, solver="lm", starts=16)
                 for _ in range(2)]  # fmt: skip
    assert [h.loss for h in histories] == [histories[0].loss] * 2
    assert histories[0].loss == pytest.approx(0.5e-4, rel=0.2)


def test_starts_vary_what_is_not_frozen():
    net = damped()
    layer: Any = net[0]
    with torch.no_grad():
        layer.matrix("q").fill_(0.5)
        layer.matrix("w").fill_(15.0)
    layer.theta["q"].requires_grad_(False)
    assert fit(copy.deepcopy(net), X, Y, solver="lm", starts=1).failed is not None
    assert fit(net, X, Y, solver="lm", starts=16).loss == pytest.approx(0.5e-4, rel=0.2)
    assert float(layer.matrix("q")) == 0.5


def test_what_belongs_to_the_constants_of_a_start_is_drawn_with_them():
    layer = Transfer(3, 4, ftnn.Mixed(["p*x", "sin(q*x)"]), dtype=FLOAT64)
    layer.theta["p"].requires_grad_(False)
    kept, x = copy.deepcopy(layer.state_dict()), RANDOM.normal(size=(50, 3))
    for start in starting_networks(nn.Sequential(layer), x, 0, 3, calibrate=True):
        found = start.state_dict()
        for name in ("theta.p", "constants.kind"):
            torch.testing.assert_close(found[f"0.{name}"], kept[name], rtol=0, atol=0)


def test_results_do_not_depend_on_the_number_of_threads():
    digests: list[str] = []
    before = torch.get_num_threads()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            net = Network(1, [6], 1, "F16", dtype=FLOAT64)
            ftnn.training.initialise(net, 0)
            fit(net, X, Y, solver="lm", starts=5, epochs=25)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        digests.append(digest(net))
    assert digests[0] == digests[1]


def test_a_trained_network_continues_from_its_parameters():
    net = damped()
    fit(net, X, Y, solver="lm")
    before = found(net)
    history = fit(net, X, Y, solver="lm")
    assert len(history.epochs) <= 2
    np.testing.assert_allclose(found(net), before, rtol=1e-6)


def test_bounds_hold_and_have_no_standard_error():
    net = damped()
    history = fit(net, X, Y, solver="lm", bounds={"q": (0.6, None), "0.theta.w": (None, 10)})
    assert found(net)[1] == 0.6
    assert history.covariance is not None
    assert np.isnan(history.covariance.errors["0.theta.q"]).all()
    assert np.isfinite(history.covariance.errors["0.theta.p"]).all()
    assert "at a bound, so without a standard error: 0.theta.q[0, 0]" in history.notes[0]
    with pytest.raises(FtnnError, match="bounds has 'z', which is not a trained parameter"):
        fit(damped(), X, Y, solver="lm", bounds={"z": (0, 1)})


def test_searches_in_threads_leave_the_filters_of_warnings_as_they_are():
    before = list(warnings.filters)
    for seed in range(5):
        fit(network(), X, Y, solver="lbfgs", starts=8, epochs=6, seed=seed)
    assert warnings.filters == before


# --- interruption ---


def network() -> Network:
    net = Network(1, [6], 1, "F16", dtype=FLOAT64)
    ftnn.training.initialise(net, 0)
    return net


@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
def test_an_interrupted_run_keeps_the_best_and_resumes_with_the_same_result(solver: Any, tmp_path: Path):
    options: Any = {"solver": solver, "starts": 3, "epochs": 30}
    whole, net = network(), network()
    expected = fit(whole, X, Y, **options)

    def interrupt(epoch: Any, _: Any) -> None:
        if epoch.epoch == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(net, X, Y, **options, checkpoint=tmp_path / "c", callbacks=[interrupt])
    errors = net(torch.from_numpy(X)).detach().numpy() - Y
    assert float((errors**2).mean() / 2) == pytest.approx(expected.epochs[11].loss, rel=1e-9)
    resumed = fit(network(), X, Y, **options, checkpoint=tmp_path / "c")
    assert [epoch.loss for epoch in resumed.epochs] == [epoch.loss for epoch in expected.epochs]


@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
def test_more_epochs_continue_from_the_checkpoint(solver: Any, tmp_path: Path):
    options: Any = {"solver": solver, "starts": 3}
    expected = fit(network(), X, Y, **options, epochs=14)
    for epochs in (6, 6, 14, 14):
        net = network()
        history = fit(net, X, Y, **options, epochs=epochs, checkpoint=tmp_path / "c")
        losses = [epoch.loss for epoch in expected.epochs[:epochs]]
        assert [epoch.loss for epoch in history.epochs] == losses
        assert history.converged is False
        errors = net(torch.from_numpy(X)).detach().numpy() - Y
        assert float((errors**2).mean() / 2) == pytest.approx(losses[-1], rel=1e-9)
    with pytest.raises(FtnnError, match=r"has 14 epochs, more than epochs=6: allow more, choose another"):
        fit(network(), X, Y, **options, epochs=6, checkpoint=tmp_path / "c")


# --- refusals and bad input ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 4}, "batch_size=4 has no meaning for solver='lm'"),
        ({"optimizer": "adam"}, "optimizer='adam' has no meaning"),
        ({"optimizer": torch.optim.Adam}, "optimizer=.*Adam.* has no meaning"),
        ({"gamma": 0}, "gamma=0 has no meaning"),
        ({"weight_decay": np.ones(2)}, "weight_decay=.* has no meaning"),
        ({"schedule": "cosine"}, "schedule='cosine' has no meaning"),
        ({"learning_rate": 0.1}, "learning_rate=0.1 has no meaning"),
        ({"engine": "torch"}, "engine='torch' has no meaning"),
        ({"starts": 0}, "starts=0 must be a whole number of 1 or more"),
        ({"bounds": {"q": (2, 1)}}, r"'q' has \(2, 1\); expected low < high"),
        ({"bounds": "q"}, "^bounds='q' must map names of parameters to .low, high., such as"),
        ({"bounds": {"q": ("a", 6)}}, r"^bounds=\{'q': \('a', 6\)\} must map names of parameters to "),
        ({"bounds": {"q": (float("nan"), 6)}}, r"^bounds=\{'q': \(nan, 6\)\} must map names of"),
        ({"bounds": {"q": (0, 10**400)}}, r"^bounds=\{'q': \(0, 1000.* must map names of"),
        ({"solver": "direct", "starts": 2}, "starts=2 is for the solvers lm and lbfgs"),
        ({"solver": "lbfgs", "bounds": {"q": (0, 1)}}, "needs solver='lm'"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: Any, message: str):
    with pytest.raises(FtnnError, match=message):
        fit(damped(), X, Y, **dict[str, Any]({"solver": "lm", **settings}))


def test_modules_without_a_jacobian_are_refused_by_lm_and_trained_by_lbfgs():
    net = nn.Sequential(Transfer(1, 4, "F16"), nn.LayerNorm(4), nn.Linear(4, 1))
    with pytest.raises(FtnnError, match="has no Jacobian for a LayerNorm"):
        fit(net, X, Y, solver="lm")
    history = fit(net, X, Y, solver="lbfgs", epochs=20)
    assert history.epochs[-1].loss < history.epochs[0].loss


def test_networks_that_are_too_large_for_lm_are_refused():
    y = np.arange(20) % 10
    with pytest.raises(FtnnError, match=r'5,\d{3} GB .* 472,610 parameters and 20 samples; .*"lbfgs"'):
        fit(Network(784, [200], 10, "F16"), RANDOM.normal(size=(20, 784)), y, solver="lm")
    fit(Network(784, [200], 10, "F16"), RANDOM.normal(size=(20, 784)), y, solver="lbfgs", epochs=1, starts=1)
    check_memory(
        Network(2, [500], 1, "F16"),
        make_problem(X.repeat(2, 1), Y, inputs=2, outputs=1, dtype="float64", loss=None),
    )


def test_fewer_samples_than_parameters_give_a_fit_and_a_note():
    history = fit(Network(1, [8], 1, "F16", dtype=FLOAT64), X[:10], Y[:10], solver="lm", epochs=50)
    assert history.failed is None
    assert history.covariance is None
    assert "10 observations for 41 parameters leave no degrees of freedom" in history.notes[0]


def test_constant_targets_give_a_fit_and_a_note():
    history = fit(damped(bias=True), X, np.full_like(Y, 3.0), solver="lm")
    assert history.failed is None
    assert any("targets are constant" in note for note in history.notes)


def test_parameters_that_the_data_cannot_determine_have_infinite_errors_and_a_note():
    layer = Transfer(1, 1, "p*q*x + r", bias=False, dtype=FLOAT64)
    history = fit(nn.Sequential(layer), X, Y, solver="lm")
    assert history.covariance is not None
    errors = history.covariance.errors
    assert np.isinf(errors["0.theta.p"]).all()
    assert np.isinf(errors["0.theta.q"]).all()
    line = np.polynomial.polynomial.Polynomial.fit(X[:, 0], Y[:, 0], 1)
    residuals = Y[:, 0] - line(X[:, 0])
    variance = residuals @ residuals / (len(X) - 3)
    design = np.stack([np.ones(len(X)), X[:, 0]], 1)
    expected = np.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0])
    assert errors["0.theta.r"][0, 0] == pytest.approx(expected, rel=1e-9)
    assert "do not determine 2 of 3 parameters" in history.notes[0]


@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
def test_a_note_says_that_float32_cannot_hold_the_digits(solver: Any):
    exact = 2 * np.exp(-0.5 * X) * np.sin(3 * X + 0.4)
    for y, dtype, is_noted in ((exact, "float", True), (exact, "double", False), (Y, "float", False)):
        net = getattr(damped(), dtype)()
        history = fit(net, X, y, solver=solver)
        about = [note for note in history.notes if "stored in float32" in note]
        assert bool(about) == is_noted
        if is_noted:
            with torch.no_grad():
                residuals = net.double()(torch.from_numpy(X.astype("f")).double()).numpy() - y.astype("f")
            assert f"the loss is {(residuals**2).mean() / 2:.2g} instead of {history.loss:.2g}" in about[0]
            assert "dtype=torch.float64" in about[0]


def test_a_history_reads_its_own_json_without_the_covariance():
    history = fit(damped(), X, Y, solver="lm")
    again = History.from_json(history.to_json())
    assert again == history
    assert again.covariance is None


@pytest.mark.filterwarnings("ignore:FTNNRegressor. solver='lm' did not converge")
def test_estimators_take_the_solvers():
    model = ftnn.FTNNRegressor(
        function="F16", hidden_layer_sizes=6, solver="lm", starts=2, dtype="float64", random_state=0
    )
    assert model.fit(X, Y[:, 0]).score(X, Y[:, 0]) > 0.95
    assert model.history_.engine == "lm"
    with pytest.raises(ValueError, match="batch_size=8 has no meaning"):
        model.set_params(batch_size=8).fit(X, Y[:, 0])
