"""Modules that compiled steps train exactly like torch, and modules that they leave to torch."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch import nn

import ftnn
from ftnn.errors import FtnnError, ShapeError
from ftnn.nn._feed_forward import FeedForward
from ftnn.training import _engine_choice, fit
from tests.training.problems import blobs, network


def sequential(*modules: nn.Module) -> nn.Sequential:
    return nn.Sequential(*modules).double()


def partial(seed: int) -> ftnn.nn.Partial:
    torch.manual_seed(seed)
    connections = torch.rand(6, 5).gt(0.5).nonzero()
    return ftnn.nn.Partial(5, 6, "F12", connections)


MODULES = {
    "linear": lambda: sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)),
    "silu": lambda: sequential(ftnn.nn.Transfer(5, 6, "F12"), nn.SiLU(), nn.Linear(6, 3)),
    "gelu": lambda: sequential(ftnn.nn.Transfer(5, 6, "F16"), nn.GELU(), nn.Linear(6, 3)),
    "tanh gelu": lambda: sequential(nn.Linear(5, 6), nn.GELU(approximate="tanh"), nn.Linear(6, 3)),
    "elu": lambda: sequential(nn.Flatten(), nn.Linear(5, 6), nn.ELU(0.7), nn.Linear(6, 3)),
    "leaky": lambda: sequential(nn.Linear(5, 6), nn.LeakyReLU(0.2), ftnn.nn.Transfer(6, 3, "F03")),
    "softsign": lambda: sequential(nn.Linear(5, 6), nn.Softsign(), nn.Linear(6, 3)),
    "no bias": lambda: sequential(
        nn.Linear(5, 6, bias=False), nn.ReLU(), ftnn.nn.Transfer(6, 3, "F03", bias=False)
    ),
    "no activation": lambda: sequential(nn.Linear(5, 6), ftnn.nn.Transfer(6, 3, "F12")),
    "nested": lambda: sequential(sequential(nn.Linear(5, 6), nn.Sigmoid()), sequential(nn.Linear(6, 3))),
    "partial": lambda: sequential(partial(0), nn.Tanh(), nn.Linear(6, 3)),
    "network": lambda: ftnn.nn.Network(5, [6, 4], 3, "F09", ["relu", "x*logistic(x)"], dtype=torch.float64),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_module_trains_equally_in_both_engines(name: str, optimizer: str):
    x, y = blobs(samples=96)
    torch.manual_seed(1)
    compiled = MODULES[name]()
    torch.manual_seed(1)
    reference = MODULES[name]()
    losses = [
        fit(net, x, y, optimizer=optimizer, learning_rate=0.02, epochs=2, batch_size=20, engine=engine).loss  # pyright: ignore[reportArgumentType]
        for net, engine in ((compiled, "compiled"), (reference, "torch"))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    for one, other in zip(compiled.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_modules_without_a_compiled_form_are_trained_by_torch_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    # Another test, in the same process, may have logged it already.
    monkeypatch.setattr(_engine_choice, "_logged_reasons", set())
    x, y = blobs(samples=60)
    net = sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.1), nn.Linear(6, 3))
    with caplog.at_level(logging.INFO, "ftnn"):
        for _ in range(2):
            assert fit(net, x, y, epochs=1).engine == "torch"
    assert [record.getMessage() for record in caplog.records] == [
        "no compiled form for nn.Dropout; training with PyTorch instead"
    ]
    with pytest.raises(FtnnError, match=r"no compiled form for nn\.Dropout"):
        fit(net, x, y, epochs=1, engine="compiled")
    assert net.training


def frozen() -> nn.Sequential:
    net = sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    net[0].bias.requires_grad_(False)
    return net


def parametrised() -> nn.Sequential:
    return sequential(nn.Linear(5, 6), nn.Tanh(), nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)))


@pytest.mark.parametrize(
    ("make", "what"), [(frozen, "frozen parameters"), (parametrised, "parametrised modules")]
)
def test_frozen_and_parametrised_networks_are_trained_by_torch_and_logged(
    make: Callable[[], nn.Sequential],
    what: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(_engine_choice, "_logged_reasons", set())
    x, y = blobs(samples=60)
    with caplog.at_level(logging.INFO, "ftnn"):
        assert fit(make(), x, y, epochs=1).engine == "torch"
    assert caplog.messages == [f"no compiled form for {what}; training with PyTorch instead"]
    with pytest.raises(FtnnError, match=f"no compiled form for {what}"):
        fit(make(), x, y, epochs=1, engine="compiled")


@pytest.mark.parametrize(
    "layer", [ftnn.nn.Transfer(5, 3, "F03", scale=True), ftnn.nn.Partial(5, 3, "F03", [(0, 0)], scale=True)]
)
def test_layers_with_a_scale_are_trained_by_torch(layer: FeedForward):
    x, y = blobs(samples=60)
    module = sequential(layer)
    with pytest.raises(FtnnError, match="no compiled form for a layer with a scale"):
        fit(module, x, y, epochs=1, engine="compiled")
    assert layer.scale is not None
    before = layer.scale.detach().clone()
    assert fit(module, x, y, epochs=1).engine == "torch"
    assert not torch.equal(layer.scale, before)


@pytest.mark.parametrize("features", [1, 7])
def test_a_normalisation_of_another_width_than_its_layer_is_refused(features: int):
    x, y = blobs(samples=60)
    net = sequential(nn.Linear(5, 6), nn.BatchNorm1d(features), nn.Tanh(), nn.Linear(6, 3))
    with pytest.raises(ShapeError, match=rf"nn\.BatchNorm1d\({features}\) follows a layer with 6 outputs"):
        fit(net, x, y, epochs=1)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ([nn.Linear(5, 3), nn.Tanh(), nn.Sigmoid()], "no compiled form for two activations in a row"),
        ([nn.Tanh(), nn.Linear(5, 3)], "no compiled form for an activation that does not follow a layer"),
        (
            [nn.Linear(5, 3), nn.Tanh(), nn.BatchNorm1d(3)],
            "no compiled form for a normalisation that does not follow a layer",
        ),
        (
            [nn.Linear(5, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3)],
            "no compiled form for a normalisation that does not follow a layer",
        ),
    ],
)
def test_what_has_no_compiled_form_is_named(modules: list[nn.Module], message: str):
    x, y = blobs(samples=60)
    with pytest.raises(FtnnError, match=message):
        fit(sequential(*modules), x, y, epochs=1, engine="compiled", solver="joint")


def test_layerwise_training_needs_a_network():
    x, y = blobs(samples=60)
    with pytest.raises(FtnnError, match=r"trains an ftnn\.nn\.Network"):
        fit(MODULES["linear"](), x, y, gamma=-2)


def test_gamma_selects_the_papers_training_and_learning_rate_the_direct_one():
    x, y = blobs(samples=60)
    stages = {record.stage for record in fit(network(), x, y, gamma=-2, epochs=1).epochs}
    assert stages == {"lwt", "ft"}
    assert {record.stage for record in fit(network(), x, y, epochs=1).epochs} == {"direct"}
    with pytest.raises(FtnnError, match="set only one of them"):
        fit(network(), x, y, gamma=-2, learning_rate=0.1)


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        ("gelu", "unknown activation 'gelu'; expected one of logistic, relu, tanh"),
        ("x*p", "a formula in x; 'p' is unknown"),
        ("5", r"does not depend on x\n  5\n  \^"),
        ("log(x)", "must be finite at -1, 0 and 1"),
        ("x +", "not a formula"),
        (["relu"], "activation has length 1; expected one activation, or a sequence of length 2"),
        (["relu", 3], "expected an activation"),
        (3, "expected an activation"),
    ],
)
def test_an_unusable_activation_is_refused(activation: object, message: str):
    with pytest.raises(FtnnError, match=message):
        ftnn.nn.Network(5, [4, 4], 3, "F03", activation)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("hinge", "unknown loss 'hinge'; expected one of softmax, squared"),
        ("(y - z)**2", "a formula in y and t; 'z' is unknown"),
        ("t**2", "does not depend on the output y"),
        ("t", "does not depend on the output y"),
        (3, "expected a loss"),
    ],
)
def test_an_unusable_loss_is_refused(loss: object, message: str):
    x, _ = blobs(samples=60)
    with pytest.raises(FtnnError, match=message):
        fit(network(), x, torch.randn(60, 3), loss=loss)  # pyright: ignore[reportArgumentType]


def test_several_outputs_can_be_learned_with_any_loss():
    x, y = blobs(samples=120)
    targets = torch.nn.functional.one_hot(torch.from_numpy(y), 3).double()
    for loss in ("squared", "absolute", "huber", "logistic", "log(cosh(y - t))"):
        history = fit(network(), x, targets, loss=loss, epochs=20, learning_rate=0.02)
        assert history.failed is None
        assert history.epochs[-1].loss < 0.6 * history.epochs[0].loss
