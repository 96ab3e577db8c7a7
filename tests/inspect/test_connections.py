from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ftnn
from ftnn.errors import DataError, FtnnError, ShapeError
from ftnn.inspect import Counts, connections, prune
from ftnn.inspect._layers import connection_list, fate
from ftnn.nn import Memory, MemoryNetwork, Network, Partial, Transfer
from ftnn.nn._feed_forward import FeedForward
from tests.inspect import oracle

RNG = np.random.default_rng(0)
NAMES = [name for name in ftnn.catalogue if name != "memory"]


def layer_of(function: Any, n: int = 7, m: int = 5, **values: Any) -> Transfer:
    """A layer in float64 with the given parameters; others are normal, and some of them exactly 0."""
    layer = Transfer(n, m, function, dtype=torch.float64)
    with torch.no_grad():
        for name in layer.theta:
            random_values = RNG.normal(size=(n, m)) * (RNG.random((n, m)) > 0.3)
            layer.theta[name].copy_(torch.as_tensor(values.get(name, random_values)))
    return layer


def counted(layer: FeedForward, x: Any) -> Counts:
    return connections(layer, x)[0]


# ---- against brute force


@pytest.mark.parametrize("function", [*NAMES, ftnn.Mixed(["F06", "F08", "F12"])])
def test_sleeping_and_awake_match_brute_force(function: Any):
    layer = layer_of(function)
    x = np.abs(RNG.normal(size=(50, 7)))
    x[:, 3] = 0
    counts = counted(layer, x)
    quiet, moves = oracle.asleep(layer, x)
    assert counts.awake == (~quiet).sum()
    assert counts.dead + (counts.sleeping or 0) == quiet.sum()
    if counts.dead == counts.revivable:
        assert counts.reviving == (quiet & moves).sum()
    assert counts.dead + (counts.sleeping or 0) + (counts.awake or 0) == counts.connections == 35


@pytest.mark.parametrize("function", [*NAMES, "rect(p)*sin(q*x + r)", "exp(rect(p)*x)", "p*x/(1 + q**2)"])
def test_dead_connections_match_brute_force(function: Any):
    layer = layer_of(function)
    x = np.concatenate([np.linspace(-9, 9, 99), [0, 1e3, -1e3]])
    quiet, moves = oracle.asleep(layer, np.repeat(x[:, None], 7, 1))
    dead = fate(layer, connection_list(layer)).dead.reshape(7, 5).T
    assert not (dead & (~quiet | moves)).any()
    assert (dead == (quiet & ~moves)).all()


# ---- dead, sleeping and awake, as in the paper


def test_f06_is_dead_forever_for_negative_p_but_not_for_zero():
    layer = layer_of("F06", 3, 1, p=[[-0.5], [0.0], [0.5]])
    counts = counted(layer, np.ones((4, 3)))
    assert (counts.dead, counts.revivable, counts.sleeping, counts.reviving, counts.awake) == (2, 1, 0, 1, 1)


def test_f07_is_dead_for_negative_p_but_can_be_revived():
    layer = layer_of("F07", 3, 1, p=[[-0.5], [0.0], [0.5]])
    counts = counted(layer, np.array([[0.0, 2.0, 1.0]]))
    # The input of the first is silent, so nothing moves it on this data.
    assert (counts.dead, counts.revivable, counts.sleeping, counts.reviving, counts.awake) == (2, 2, 0, 1, 1)


def test_f08_sleeps_or_wakes_depending_on_the_data():
    layer = layer_of("F08", 2, 1, p=[[1.0], [-1.0]], q=[[-2.0], [0.5]])
    assert counted(layer, [[1.0, 1.0], [-5.0, 0.6]]).sleeping == 2
    assert counted(layer, [[1.0, 1.0], [2.5, 0.6]]).sleeping == 1
    assert counted(layer, [[1.0, 1.0], [2.0, 0.4]]).awake == 2  # at 0 the rectifier's slope is 1
    assert counted(layer, [[1.0, 1.0]]).dead == 0
    assert counted(layer_of("F08", 1, 1, p=[[0.0]], q=[[-0.1]]), [[1.0]]).dead == 1


def test_f09_is_dead_only_if_neither_factor_can_move():
    layer = layer_of("F09", 3, 1, p=[[1.0], [1.0], [0.0]], q=[[0.0], [1.0], [1.0]], r=[[-1.0], [-9.0], [0.0]])
    counts = counted(layer, np.ones((2, 3)))
    assert (counts.dead, counts.revivable, counts.sleeping, counts.reviving, counts.awake) == (2, 1, 1, 1, 0)


def test_a_silent_input_does_not_make_a_connection_sleep():
    assert counted(layer_of("F06", 1, 1, p=[[0.5]]), np.zeros((3, 1))).awake == 1


def test_a_step_crossed_by_the_data_is_awake_despite_zero_slope():
    layer = layer_of("p*step(x - q)", 1, 1, p=[[1.0]], q=[[0.5]])
    assert counted(layer, [[0.0], [1.0]]).awake == 1
    assert counted(layer, [[0.0], [0.2]]).sleeping == 1


def test_a_bump_between_the_samples_sleeps():
    """Bounds over the range of the data cannot decide this."""
    layer = layer_of("p*rect(1 - 10*abs(x - q))", 1, 1, p=[[1.0]], q=[[0.5]])
    assert counted(layer, [[0.0], [1.0]]).sleeping == 1
    assert counted(layer, [[0.0], [1.0], [0.5]]).awake == 1


# ---- networks


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic"])
def test_each_layer_of_a_network_is_counted_on_its_own_inputs(
    activation: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ftnn.inspect._census.SAMPLES", 16)  # several blocks
    monkeypatch.setattr("ftnn.inspect._census.VALUES", 50)
    monkeypatch.setattr("ftnn.inspect._layers.BLOCK", 11)
    net = Network(6, [9, 5], 3, ["F08", "F09"], activation, dtype=torch.float64)
    x = RNG.normal(size=(70, 6)) * (RNG.random((70, 6)) > 0.3)
    census = connections(net, x)
    assert [c.name for c in census] == ["hidden.0", "hidden.1"]
    here = x
    for layer, counts in zip(net.layers, census, strict=True):
        quiet, moves = oracle.asleep(layer, here)
        assert counts.dead == counts.revivable
        assert (counts.dead + (counts.sleeping or 0), counts.reviving) == (quiet.sum(), (quiet & moves).sum())
        assert counts.awake == (~quiet).sum()
        with torch.no_grad():
            sums = torch.from_numpy(oracle.sums(layer, here))
            here = {"relu": torch.relu, "tanh": torch.tanh, "logistic": torch.sigmoid}[activation](
                sums
            ).numpy()
    assert census.awake == sum(c.awake or 0 for c in census)
    wrapped = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), net)
    same = connections(wrapped, x.reshape(70, 2, 3))
    assert [c.name for c in same] == ["2.hidden.0", "2.hidden.1"]
    assert [c.awake for c in same] == [c.awake for c in census]
    assert wrapped.training
    assert all(part.training for part in wrapped.modules())
    assert not any(part._forward_pre_hooks for part in wrapped.modules())


def test_layers_after_a_normalisation_are_counted_on_what_it_gives_in_evaluation_mode():
    torch.manual_seed(0)
    first, norm, second = Transfer(4, 5, "F12", scale=True), nn.BatchNorm1d(5), Transfer(5, 3, "F08")
    module = nn.Sequential(first, norm, nn.Tanh(), nn.Dropout(0.9), second).double()
    module(torch.randn(50, 4, dtype=torch.float64))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    x = torch.randn(1, 4, dtype=torch.float64)  # a single sample: no statistics of its own
    counts = connections(module, x)[1]
    assert norm.running_mean is not None
    assert norm.running_var is not None
    normal = (torch.from_numpy(oracle.sums(first, x.numpy())) - norm.running_mean) / (
        norm.running_var + norm.eps
    ).sqrt()
    quiet, _ = oracle.asleep(second, np.tanh(normal.detach().numpy()))
    assert 0 < quiet.sum() < quiet.size
    assert counts.awake == (~quiet).sum()
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_without_data_only_dead_and_revivable_are_counted():
    net = Network(4, [3], 2, "F06")
    with torch.no_grad():
        net.layers[0].theta["p"].copy_(torch.tensor([[-1.0, 1, 1]]).expand(4, 3))
    census = connections(net)
    assert (census.dead, census.sleeping, census.awake, census[0].sleeping) == (4, None, None, None)
    assert str(census).splitlines()[1].split() == [
        *("hidden.0", "F06:", "rect(p)*u*x", "4→3", "12", "4", "(33", "%)", "0")
    ]


def test_a_partial_layer_counts_its_existing_connections():
    layer = layer_of("F06", 4, 3)
    with torch.no_grad():
        layer.theta["p"].copy_(torch.tensor([[-1.0, 1, 1]]).expand(4, 3))
    part = prune(layer)
    assert isinstance(part, Partial)
    counts = counted(part, np.ones((2, 4)))
    assert (counts.connections, counts.dead, counts.awake) == (8, 0, 8)


# ---- bad input


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((3, 5)), ShapeError, r"\(samples, 4\).*\(3, 5\)"),
        (np.zeros(4), ShapeError, r"\(samples, 4\).*\(4,\)"),
        (np.zeros((0, 4)), DataError, "no samples"),
        ([[1, 2, float("nan"), 4]], DataError, r"x is nan at \[0, 2\]"),
        ([[1, 2, 3, float("-inf")]], DataError, r"x is -inf at \[0, 3\]"),
        ("abc", DataError, "array of numbers, not str"),
        ([["a", "b"]], DataError, "array of numbers"),
    ],
)
def test_invalid_data_are_refused(x: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        connections(Network(4, [3], 2), x)


def test_unsupported_modules_are_refused():
    with pytest.raises(FtnnError, match=r"memory of this MemoryNetwork is a Memory layer.*Transfer, Partial"):
        connections(MemoryNetwork(3, 4, 2))
    with pytest.raises(FtnnError, match="this is a Memory layer"):
        prune(Memory(3, 4))
    with pytest.raises(FtnnError, match="this Linear has no layer of functions"):
        connections(nn.Linear(3, 2))
    with pytest.raises(FtnnError, match="got str"):
        connections("model.ftnn")  # pyright: ignore[reportArgumentType]

    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = Transfer(3, 3, "F06"), Transfer(3, 3, "F06")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    with pytest.raises(FtnnError, match="no data reached layer 'idle'"):
        connections(Idle(), np.ones((2, 3)))
    with pytest.raises(ShapeError, match=r"does not accept samples of shape \(5,\)"):
        connections(nn.Sequential(nn.Linear(3, 4), Transfer(4, 2, "F06")), np.ones((2, 5)))


def test_the_error_for_overflow_names_the_layer():
    net = Network(2, [3, 3], 1, "F04", "relu")
    with torch.no_grad():
        net.layers[0].theta["p"].fill_(1e30)
    with pytest.raises(DataError, match=r"'hidden\.1' gets inputs that are not finite"):
        connections(net, np.full((2, 2), 1e20))
