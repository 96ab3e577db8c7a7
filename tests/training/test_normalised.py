"""Normalised training: the training form, its folding into the network, and runs that use it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ftnn
from ftnn.errors import FtnnError
from ftnn.nn import Memory, Partial, Transfer
from ftnn.nn._feed_forward import FeedForward
from ftnn.training import Epoch, _checkpoint, _engine_choice, _normalised, fit, measure
from ftnn.training._engine_choice import make_engine
from ftnn.training._normalised import Normalise, TrainingForm, training_form
from ftnn.training._problem import make_problem
from ftnn.training._settings import Settings
from tests.training.problems import blobs, network

X, Y = blobs(samples=97)
DTYPE = torch.float64


def partial(dtype: torch.dtype) -> Partial:
    connections = torch.rand(6, 5).gt(0.4).nonzero()
    return Partial(5, 6, "F16", connections, dtype=dtype)


MODULES: dict[str, Callable[[torch.dtype], Any]] = {
    "network": lambda d: network("F12", (7, 6), ["tanh", "x*logistic(x)"], dtype=d),
    "relu": lambda d: network("F03", (9, 8), "relu", dtype=d),
    "no amplitude": lambda d: network("F10", (7, 6), dtype=d),
    "positive amplitude": lambda d: network("F06", (7, 6), dtype=d),
    "root of the amplitude": lambda d: network("F20", (7,), dtype=d),
    "mixed": lambda d: network(ftnn.Mixed(["F10", "F12", "p**2*x"]), (7, 6), dtype=d),
    "partial": lambda d: nn.Sequential(partial(d), nn.ReLU(), nn.Linear(6, 3, dtype=d)),
    "no bias": lambda d: nn.Sequential(
        Transfer(5, 6, "F12", bias=False, dtype=d), nn.Tanh(), nn.Linear(6, 3, bias=False, dtype=d)
    ),
    "no activation": lambda d: nn.Sequential(
        Transfer(5, 6, "F12", dtype=d), Transfer(6, 4, "F10", scale=True, dtype=d), nn.Linear(4, 3, dtype=d)
    ),
    "nested": lambda d: nn.Sequential(
        nn.Flatten(),
        nn.Sequential(nn.Linear(5, 6, dtype=d), nn.SiLU(), Transfer(6, 6, "F09", dtype=d), nn.GELU()),
        nn.Identity(),
        Transfer(6, 3, "F03", dtype=d),
    ),
}  # fmt: skip


def make(name: str, dtype: torch.dtype = DTYPE) -> Any:
    torch.manual_seed(3)
    return MODULES[name](dtype)


def hidden_layers(net: nn.Module) -> list[FeedForward]:
    return [
        pair.layer
        for pair in form_of(net).pairs
        if pair.norm is not None and isinstance(pair.layer, FeedForward)
    ]


def form_of(net: nn.Module, x: Any = X) -> TrainingForm:
    like = next(net.parameters())
    form = training_form(net, np.asarray(x, str(like.dtype).removeprefix("torch.")))
    assert form is not None
    return form


def norms_of(form: TrainingForm) -> list[Normalise]:
    return [part for part in form.module if isinstance(part, Normalise)]


def outputs(module: nn.Module, x: Any = X) -> Tensor:
    module = copy.deepcopy(module).eval()
    with torch.no_grad():
        return module(torch.tensor(x).to(next(module.parameters()).dtype))


def disturb(form: TrainingForm) -> None:
    """Change everything that training changes; some of the scales become negative, and one 0."""
    with torch.no_grad():
        for parameter in form.module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for norm in norms_of(form):
            norm.weight.copy_(torch.randn_like(norm.weight))
            norm.weight[1] = 0
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.running_mean.add_(torch.randn_like(norm.bias))
            norm.running_var.mul_(torch.rand_like(norm.bias) + 0.5)


# --- the form ---


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("dtype", "accuracy"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_the_written_network_computes_what_the_form_computes(name: str, dtype: torch.dtype, accuracy: float):
    net = make(name, dtype)
    form = form_of(net)
    disturb(form)
    before = copy.deepcopy(form.module.state_dict())
    form.write()
    expected = outputs(form.module)
    assert (outputs(net) - expected).abs().max() <= accuracy * expected.abs().max()
    for key, tensor in form.module.state_dict().items():  # and the form has not changed
        assert torch.equal(tensor, before[key])


def test_scales_appear_only_where_the_function_cannot_take_them():
    for name, positive, has_scale in (
        ("network", False, False),
        ("no amplitude", True, True),
        ("positive amplitude", True, False),
        ("positive amplitude", False, True),
    ):
        net = make(name)
        form = form_of(net)
        with torch.no_grad():
            for norm in norms_of(form):
                norm.weight.uniform_(0.5, 2) if positive else norm.weight.uniform_(-2, -0.5)
        form.write()
        assert [layer.scale is not None for layer in net.layers] == [has_scale] * 2


def test_a_scale_that_is_no_longer_needed_goes_unless_the_layer_had_one_before():
    for had_scale in (False, True):
        net = nn.Sequential(
            Transfer(5, 6, "F06", scale=had_scale, dtype=DTYPE), nn.Tanh(), nn.Linear(6, 3, dtype=DTYPE)
        )
        layer, form = net[0], form_of(net)
        assert isinstance(layer, Transfer)
        (norm,) = norms_of(form)
        for sign in (-1.0, 1.0):
            with torch.no_grad():
                norm.weight.fill_(sign)
            form.write()
            torch.testing.assert_close(outputs(net), outputs(form.module), rtol=1e-12, atol=1e-13)
        assert (layer.scale is not None) == had_scale
        assert layer.scale is None or bool((layer.scale == 1).all())


@pytest.mark.parametrize("name", MODULES)
def test_the_form_of_a_trained_network_computes_what_the_network_computes(name: str):
    net = make(name)
    for layer in hidden_layers(net):
        with torch.no_grad():
            if layer.bias is None:
                layer.bias = nn.Parameter(torch.zeros(layer.out_features, dtype=DTYPE))
            layer.bias.normal_()
            if layer.out_features == 6:
                layer.scale = nn.Parameter(torch.randn(6, dtype=DTYPE))
    form, expected = form_of(net), outputs(net)
    torch.testing.assert_close(outputs(form.module), expected, rtol=1e-12, atol=1e-13)
    sums = torch.tensor(X)
    for part in form.module.eval():
        if isinstance(part, Normalise):  # the statistics are those of the data
            torch.testing.assert_close(part.running_mean, sums.mean(0), rtol=1e-12, atol=1e-13)
            torch.testing.assert_close(part.running_var, sums.var(0), rtol=1e-12, atol=1e-13)
        sums = part(sums)


def test_a_trained_layer_without_a_bias_keeps_its_function():
    layer = Transfer(5, 4, "F12", bias=False, dtype=DTYPE)
    net = nn.Sequential(layer, nn.Tanh(), nn.Linear(4, 3, dtype=DTYPE))
    with torch.no_grad():
        layer.matrix("p").mul_(3)  # as if trained
    torch.testing.assert_close(outputs(form_of(net).module), outputs(net), rtol=1e-12, atol=1e-13)


def test_sums_of_a_fresh_network_start_with_mean_0_and_variance_1():
    form = form_of(network("F12", (7, 6)), np.repeat(X, 30, 0))  # more than are measured, and sorted
    x = torch.tensor(X)
    for part in form.module.eval():
        x = part(x)
        if isinstance(part, Normalise):
            torch.testing.assert_close(x.mean(0), torch.zeros_like(part.bias), rtol=0, atol=0.03)
            torch.testing.assert_close(x.var(0), torch.ones_like(part.bias), rtol=0.05, atol=0)


def test_statistics_that_are_not_finite_are_replaced():
    net = nn.Sequential(Transfer(5, 4, "p/x", dtype=DTYPE), nn.Tanh(), nn.Linear(4, 3, dtype=DTYPE))
    assert (X == 0).any()
    (norm,) = norms_of(form_of(net))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert not norm.running_mean.any()
    assert bool((norm.running_var == 1).all())


def shared() -> nn.Sequential:
    layer = Transfer(5, 5, "F12")
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(5, 3))


def frozen() -> nn.Sequential:
    net = nn.Sequential(Transfer(5, 5, "F12"), nn.Tanh(), nn.Linear(5, 3))
    net[0].requires_grad_(False)
    return net


def parametrised() -> nn.Sequential:
    net = nn.Sequential(Transfer(5, 5, "F12"), nn.Tanh(), nn.Linear(5, 3))
    nn.utils.parametrize.register_parametrization(net[0].theta, "p", nn.Tanh())  # pyright: ignore[reportArgumentType]
    return net


class Own(Transfer):
    pass


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(Transfer(5, 3, "F12")),
        nn.Sequential(nn.Linear(5, 4), nn.Tanh(), Transfer(4, 3, "F12")),
        nn.Sequential(Transfer(5, 4, "F12"), nn.BatchNorm1d(4), nn.Linear(4, 3)),
        nn.Sequential(Transfer(5, 4, "F12"), nn.LayerNorm(4), nn.Linear(4, 3)),
        nn.Sequential(Memory(5, 4), Transfer(4, 4, "F12"), nn.Linear(4, 3)),
        nn.Sequential(Own(5, 4, "F12"), nn.Linear(4, 3)),
        ftnn.nn.Network(5, [], 3),
        shared(),
        frozen(),
        parametrised(),
    ],
    ids=lambda net: "-".join(type(part).__name__ for part in net.children()),
)
def test_some_networks_have_no_training_form(net: nn.Module):
    assert training_form(net, X.astype(np.float32)) is None


def test_a_module_without_a_training_form_is_trained_itself():
    torch.manual_seed(0)
    net = nn.Sequential(
        Transfer(5, 4, "F12"), nn.BatchNorm1d(4), nn.ReLU(), Transfer(4, 4, "F12"), nn.Linear(4, 3)
    ).double()
    names = set(net.state_dict())
    history = fit(net, X[:96], Y[:96], epochs=2, batch_size=24)
    assert history.engine == "compiled"
    assert int(net[1].num_batches_tracked) == 8  # pyright: ignore[reportArgumentType]
    assert set(net.state_dict()) == names


# --- one sample, and both engines ---


def test_a_single_sample_is_normalised_by_the_running_statistics_which_follow_it():
    norm = Normalise(3, momentum=0.25, dtype=DTYPE)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    with torch.no_grad():
        norm.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
        norm.running_var.copy_(torch.tensor([1.0, 4.0, 9.0]))
        norm.weight.copy_(torch.tensor([1.0, -2.0, 3.0]))
    x = torch.tensor([[3.0, 2.0, 0.0]], dtype=DTYPE, requires_grad=True)
    y = norm(x)
    inverse = 1 / (torch.tensor([1.0, 4.0, 9.0], dtype=DTYPE) + 1e-5).sqrt()
    torch.testing.assert_close(y.detach()[0], torch.tensor([2.0, 0.0, -9.0], dtype=DTYPE) * inverse)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad[0], inverse * norm.weight.detach())
    torch.testing.assert_close(norm.running_mean, torch.tensor([1.5, 2.0, 2.25], dtype=DTYPE))
    torch.testing.assert_close(norm.running_var, torch.tensor([1.75, 3.0, 9.0], dtype=DTYPE))
    assert int(norm.num_batches_tracked or 0) == 1
    several = torch.randn(4, 3, dtype=DTYPE)
    other = nn.BatchNorm1d(3, momentum=0.25, dtype=DTYPE)
    other.load_state_dict(norm.state_dict())
    assert torch.equal(norm(several), other(several))


def batch_norm(momentum: float = 0.3, eps: float = 0.01) -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(
        *(Transfer(5, 6, "F12", bias=False), nn.BatchNorm1d(6, eps=eps, momentum=momentum), nn.Tanh()),
        *(nn.Linear(6, 4), nn.BatchNorm1d(4, eps=eps), nn.Linear(4, 3)),
    ).double()


CASES: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    **{name: (lambda name=name: form_of(make(name)).module, {}) for name in MODULES},
    "nested": (lambda: form_of(make("nested")).module, {"optimizer": "momentum"}),  # Adam amplifies rounding
    "one sample": (lambda: form_of(make("network")).module, {"batch_size": 1}),
    "one left over": (lambda: form_of(make("network")).module, {"batch_size": 16}),
    "whole batch": (lambda: form_of(make("network")).module, {"batch_size": 300}),
    "sgd": (lambda: form_of(make("network")).module, {"optimizer": "sgd", "clip_norm": 0.05}),
    "both limits": (lambda: form_of(make("network")).module, {"clip": 0.1, "clip_norm": 0.01}),
    "no limit": (lambda: form_of(make("mixed")).module, {"clip_norm": np.inf, "clip": 0.3}),
    "decay": (lambda: form_of(make("partial")).module, {"optimizer": "adamw", "weight_decay": 0.1}),
    "batch norm": (batch_norm, {"clip_norm": np.inf}),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_both_engines_make_the_same_steps(name: str, weighted: bool):
    make_module, more = CASES[name]
    arguments: dict[str, Any] = {"batch_size": 12, "learning_rate": 0.02, **more}
    settings = Settings(**arguments)
    x, y = blobs(samples=600 if name == "whole batch" else 97)
    weights = np.random.default_rng(0).random(len(x)) if weighted else None
    problem = make_problem(x, y, inputs=5, outputs=3, dtype="float64", loss=None, weights=weights)
    modules = [make_module() for _ in range(2)]
    engines = [
        make_engine(engine, module, problem, settings, None)
        for engine, module in zip(("compiled", "torch"), modules, strict=True)
    ]
    order, size = np.random.default_rng(1).permutation(len(x)), settings.batch_size or 1
    steps = 2 if name == "batch norm" else 8  # the last step has one sample, which torch's own refuses
    for first in range(0, min(len(order), steps * size + 1), size):
        rows = order[first : min(first + size, steps * size + 1)]
        if len(rows) == 1 and name == "batch norm":
            break
        losses = [next(iter(engine.epoch(rows, np.array([0.02])))).losses for engine in engines]
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-9)
        engines[0].write_back()
        for (key, one), other in zip(
            modules[0].state_dict().items(), modules[1].state_dict().values(), strict=True
        ):
            if not (name == "batch norm" and key == "3.bias"):  # without effect: torch moves it by rounding
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=f"{name}: {key}")
    np.testing.assert_allclose(engines[0].outputs(x), engines[1].outputs(x), rtol=1e-8, atol=1e-8)


def test_large_mini_batches_are_normalised_by_torch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_engine_choice, "MOST_NORMALISED", 20)
    assert fit(network(), X, Y, epochs=1, batch_size=20).engine == "compiled"
    assert fit(network(), X, Y, epochs=1, batch_size=21).engine == "torch"
    assert fit(network(), X, Y, epochs=1, batch_size=21, normalise=False).engine == "compiled"
    with pytest.raises(FtnnError, match="normalised mini-batches of more than 20 samples"):
        fit(network(), X, Y, epochs=1, batch_size=21, engine="compiled")


# --- runs ---


def test_normalised_sums_train_a_deep_network_that_does_not_train_without():
    x, y = blobs(samples=600)
    accuracies: list[float] = []
    for normalise in (True, False):
        net = network("F03", (16,) * 8, "logistic", dtype=torch.float32)
        history = fit(net, x, y, batch_size=32, normalise=normalise, calibrate=False, test=(x, y))
        accuracies.append(history.accuracy or 0)
    assert accuracies[0] > 85
    assert accuracies[1] < 45


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("name", ["network", "no amplitude", "no bias", "nested"])
def test_callbacks_and_the_end_see_an_ordinary_network(engine: Any, name: str):
    net, seen = make(name), []

    def look(epoch: Epoch, module: nn.Module) -> None:
        assert module is net
        assert not any(isinstance(part, nn.BatchNorm1d) for part in module.modules())
        loss = measure(outputs(module).numpy(), Y, "softmax")[1]
        assert loss == pytest.approx(epoch.test_loss, rel=1e-9)
        seen.append(loss)

    history = fit(net, X, Y, epochs=3, batch_size=16, engine=engine, test=(X, Y), callbacks=[look])
    assert len(seen) == 3
    assert len(set(seen)) == 3
    assert measure(outputs(net).numpy(), Y, "softmax")[1] == pytest.approx(history.epochs[-1].test_loss)


def test_training_continues_from_the_trained_function():
    net = network("F10", (7,))
    fit(net, X, Y, epochs=3, batch_size=16)
    before = outputs(net)
    # With all samples in one mini-batch, its statistics are those that the form starts with.
    fit(net, X, Y, epochs=1, batch_size=97, learning_rate=1e-300, schedule="constant")
    torch.testing.assert_close(outputs(net), before, rtol=1e-9, atol=1e-9)


def test_no_epochs_leave_the_network_as_it_is():
    net = network("F12", (7, 6))
    before = copy.deepcopy(net.state_dict())
    fit(net, X, Y, epochs=0)
    assert all(torch.equal(tensor, before[key]) for key, tensor in net.state_dict().items())


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_a_run_that_fails_keeps_the_network_of_its_last_good_epoch(engine: Any):
    states: list[Any] = []

    def keep(epoch: Epoch, net: nn.Module) -> None:
        states.append(copy.deepcopy(net.state_dict()))

    def rate(done: float) -> float:
        return 1e-9 if done < 0.1 else 1.0

    net = network("F05", (7, 6))
    states.append(copy.deepcopy(net.state_dict()))
    wild: dict[str, Any] = {
        "optimizer": "sgd", "clip": None, "clip_norm": np.inf, "engine": engine, "callbacks": [keep],
        "batch_size": 16, "epochs": 40, "schedule": rate,
    }  # fmt: skip
    history = fit(net, X, Y, learning_rate=1e6, **wild)
    assert history.failed is not None
    assert "not finite" in history.failed
    assert len(states) == len(history.epochs) + 1 > 1
    for key, tensor in net.state_dict().items():
        assert torch.equal(tensor, states[-1][key])
    untouched = network("F05", (7, 6))
    wild["schedule"] = "constant"
    history = fit(untouched, X, Y, learning_rate=1e6, **wild)
    assert not history.epochs
    assert all(torch.equal(tensor, states[0][key]) for key, tensor in untouched.state_dict().items())


def test_an_interrupt_while_writing_leaves_a_whole_network(monkeypatch: pytest.MonkeyPatch):
    net = make("no amplitude")
    form = form_of(net)
    disturb(form)
    real, calls = _normalised._set, 0

    def interrupted(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(_normalised, "_set", interrupted)
    with pytest.raises(KeyboardInterrupt):
        form.write()
    torch.testing.assert_close(outputs(net), outputs(form.module), rtol=1e-12, atol=1e-13)


# --- resuming ---


class Interrupt:
    """A callback that interrupts a run after some epochs."""

    def __init__(self, after: int):
        self.after = after

    def __call__(self, epoch: Epoch, net: nn.Module) -> None:
        if epoch.epoch == self.after:
            raise KeyboardInterrupt


def norm_network() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(Transfer(5, 6, "F12"), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()


RESUMED: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: make(name) for name in ("network", "no amplitude", "no bias", "mixed")},
    "own batch norm": norm_network,
}


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("name", RESUMED)
def test_an_interrupted_run_resumes_to_the_same_bits(
    name: str, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_checkpoint, "SECONDS_BETWEEN", 0.0)
    settings: dict[str, Any] = {
        "epochs": 4, "batch_size": 16, "optimizer": "adam", "schedule": "one-cycle", "engine": engine,
        "test": (X[48:], Y[48:]),
    }  # fmt: skip
    x, y = X[:48], Y[:48]
    whole = RESUMED[name]()
    expected = fit(whole, x, y, **settings)
    for moment in np.random.default_rng(0).permutation(3)[:2] + 2:
        path = tmp_path / f"run {moment}"
        broken = RESUMED[name]()
        with pytest.raises(KeyboardInterrupt):
            fit(broken, x, y, checkpoint=path, callbacks=[Interrupt(int(moment))], **settings)
        resumed = RESUMED[name]()
        history = fit(resumed, x, y, checkpoint=path, **settings)
        again = RESUMED[name]()
        fit(again, x, y, checkpoint=path, **settings)  # only loads the finished run
        assert [epoch.loss for epoch in history.epochs] == [epoch.loss for epoch in expected.epochs]
        for net in (resumed, again):
            assert set(net.state_dict()) == set(whole.state_dict())
            for key, tensor in net.state_dict().items():
                assert torch.equal(tensor, whole.state_dict()[key]), key


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_snapshots_hold_the_running_statistics(engine: str):
    problem = make_problem(X[:96], Y[:96], inputs=5, outputs=3, dtype="float64", loss=None)
    module = norm_network()
    trained = make_engine(engine, module, problem, Settings(batch_size=16, optimizer="sgd"))
    rows, rates = np.arange(96), np.full(6, 0.1)
    list(trained.epoch(rows, rates))
    trained.write_back()
    snapshot, state = trained.snapshot(), copy.deepcopy(module.state_dict())
    assert int(state["1.num_batches_tracked"]) == 6
    list(trained.epoch(rows, rates))
    trained.restore(snapshot)
    trained.write_back()
    for key, tensor in module.state_dict().items():
        assert torch.equal(tensor, state[key]), key


def test_a_damaged_checkpoint_with_a_missing_bias_is_refused(tmp_path: Path):
    net, path = network("F12", (7,)), tmp_path / "run"
    fit(net, X, Y, epochs=1, checkpoint=path)
    real = _checkpoint.Checkpoint.load

    def without_bias(self: _checkpoint.Checkpoint) -> Any:
        state = real(self)
        assert state is not None
        del state.net["hidden.0.bias"]
        return state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_checkpoint.Checkpoint, "load", without_bias)
        with pytest.raises(_checkpoint.CheckpointError, match=r"'hidden\.0\.bias' is missing"):
            fit(network("F12", (7,)), X, Y, epochs=1, checkpoint=path)


def test_an_estimator_that_normalises_can_learn_more_by_the_joint_solver():
    x, y = blobs(samples=150)
    model = ftnn.FTNNClassifier(
        function="F06", hidden_layer_sizes=8, solver="direct", normalise=True, epochs=5
    )
    model.fit(x, y)
    before = model.score(x, y)
    assert before > 0.5
    model.partial_fit(x, y)
    assert [epoch.stage for epoch in model.history_.epochs] == ["direct"] * 5 + ["joint"]
    assert model.score(x, y) > before - 0.2
