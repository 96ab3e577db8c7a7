import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ftnn
from ftnn.errors import FtnnError, ShapeError
from ftnn.nn import Memory, MemoryNetwork, Network, Transfer

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


def by_hand(net: Network, x: Tensor) -> Any:
    """Layer by layer in NumPy."""
    now = x.double().numpy()
    for layer in net.layers:
        function = layer.function
        names = (*function.parameters, *function.constants)
        values = {n: layer.matrix(n).detach().double().numpy() for n in names}
        now = function(now[..., None, :], **values).sum(-1) + layer.bias.detach().double().numpy()  # pyright: ignore
        now = ACTIVATIONS[str(net.activation)](now)
    weight, bias = (t.detach().double().numpy() for t in (net.output.weight, net.output.bias))
    return now @ weight.T + bias


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("function", ["F12", ["F12", "F03", "p*tanh(x) + q"], ftnn.Mixed(["F07", "F09"])])
def test_a_network_computes_layers_activations_and_a_linear_output(activation: Any, function: Any):
    net = Network(5, [4, 6, 3], 2, function, activation, dtype=torch.float64)
    for layer in net.layers:
        nn.init.normal_(layer.bias)  # pyright: ignore[reportArgumentType]
    x = torch.randn(7, 5, dtype=torch.float64)
    np.testing.assert_allclose(net(x).detach().numpy(), by_hand(net, x), rtol=1e-11, atol=1e-12)
    assert net(x.reshape(7, 1, 5)).shape == (7, 1, 2)
    assert net(x[:0]).shape == (0, 2)


def test_network_layers_have_the_requested_widths_and_functions():
    net = Network(784, [128] * 10, 10, function="F12", activation="tanh", device="meta")
    assert [(layer.in_features, layer.out_features) for layer in net.layers] == [(784, 128)] + [
        (128, 128)
    ] * 9
    assert all(layer.function == ftnn.catalogue["F12"] for layer in net.layers)
    assert (net.output.in_features, net.output.out_features) == (128, 10)
    assert (net.in_features, net.out_features, net.activation) == (784, 10, "tanh")
    each = Network(3, (4, 5), 2, ["F12", ftnn.catalogue["F03"]])
    assert [layer.function for layer in each.layers] == [ftnn.catalogue["F12"], ftnn.catalogue["F03"]]
    assert isinstance(each.layers[0], Transfer)


def test_a_network_without_hidden_layers_is_linear():
    net = Network(3, [], 2)
    x = torch.randn(4, 3)
    torch.testing.assert_close(net(x), x @ net.output.weight.T + net.output.bias)
    with pytest.raises(ShapeError, match="in_features=3"):
        net(torch.randn(4, 5))


def test_gradients_reach_every_parameter_of_a_deep_network():
    net = Network(5, [6] * 6, 3, "F16", dtype=torch.float64)
    x = torch.randn(4, 5, dtype=torch.float64)
    loss = nn.functional.cross_entropy(net(x), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())
    # A small step along the gradient lowers the loss by the gradient's square.
    step = 1e-6
    expected = sum(float(p.grad.square().sum()) for p in net.parameters())  # pyright: ignore
    with torch.no_grad():
        for p in net.parameters():
            p -= step * p.grad  # pyright: ignore
        after = nn.functional.cross_entropy(net(x), torch.tensor([0, 1, 2, 0]))
    assert (loss - after).item() / step == pytest.approx(expected, rel=1e-3)


def test_a_network_starts_as_in_the_paper_and_reproducibly():
    net = Network(50, [40], 30, "F12")
    net.reset_parameters(torch.Generator().manual_seed(0))
    assert 0.099 < net.output.weight.abs().max() <= 0.1
    assert net.output.bias.abs().sum() == 0
    assert net.layers[0].matrix("q").abs().max() > 9
    first = copy.deepcopy(net.state_dict())
    net.reset_parameters(torch.Generator().manual_seed(1))
    assert not torch.equal(net.output.weight, first["output.weight"])
    assert not torch.equal(net.layers[0].theta["p"], first["hidden.0.theta.p"])
    state = torch.get_rng_state()
    net.reset_parameters(torch.Generator().manual_seed(0))
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in first.items())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_output_layer_can_be_reset_alone():
    net = Network(5, [4], 3, "F12")
    before = copy.deepcopy(net.state_dict())
    net.reset_output()
    changed = {name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"output.weight"}


def test_a_network_is_a_torch_module():
    net = Network(5, [4, 3], 2, ["F08", "F12"], "relu")
    x = torch.randn(6, 5)
    assert {"hidden.0.theta.p", "hidden.0.constants.u", "hidden.1.bias", "output.weight"} <= set(
        net.state_dict()
    )
    fresh = Network(5, [4, 3], 2, ["F08", "F12"], "relu")
    fresh.load_state_dict(net.state_dict())
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), fresh):
        assert torch.equal(other(x), net(x))
    assert "activation=relu" in repr(net)
    assert net.double()(x.double()).dtype == torch.float64
    assert nn.Sequential(nn.Flatten(), net)(x.double().reshape(6, 5, 1)).shape == (6, 2)


def test_the_backend_applies_to_every_layer():
    net = Network(5, [4, 3], 2, "F12", backend="reference")
    assert [layer.backend for layer in net.layers] == ["reference"] * 2
    x = torch.randn(6, 5)
    other = Network(5, [4, 3], 2, "F12")
    other.load_state_dict(net.state_dict())
    torch.testing.assert_close(net(x), other(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            (5, [4], 3, "F12", "gelu"),
            FtnnError,
            r"'gelu'; expected one of logistic, relu, tanh, relu20, or a formula in x such as 'x\*\(1 \+ erf",
        ),
        (
            (5, [4, 4], 3, ["F12"]),
            ShapeError,
            "function has length 1; expected one function, or a sequence of length 2",
        ),
        (
            (5, [4], 3, ["F12", "F03"]),
            ShapeError,
            "function has length 2; .* of length 1, one for each hidden layer",
        ),
        ((5, 128, 3, "F12"), ShapeError, r"hidden must be the width of each hidden layer.*not 128"),
        ((5, [4, 0], 3, "F12"), ShapeError, "hidden must be a positive integer, not 0"),
        ((5, "44", 3, "F12"), ShapeError, "hidden must be a positive integer, not '4'"),
        ((0, [4], 3, "F12"), ShapeError, "in_features must be"),
        ((5, [4], 0, "F12"), ShapeError, "out_features must be"),
        ((5, [4], 3, "memory"), FtnnError, r"use ftnn\.nn\.Memory"),
    ],
)
def test_invalid_arguments_of_a_network_are_refused(arguments: Any, kind: Any, message: str):
    with pytest.raises(kind, match=message):
        Network(*arguments)


# ---- memory networks


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_memory_network_computes_memory_activation_and_a_linear_output(activation: Any):
    net = MemoryNetwork(3, 5, 2, "p*x + q*C", activation, through_time=True, dtype=torch.float64)
    alone = Memory(3, 5, "p*x + q*C", through_time=True, dtype=torch.float64)
    alone.load_state_dict(net.memory.state_dict())
    x, start = torch.randn(6, 4, 3, dtype=torch.float64), torch.randn(4, 5, 3, dtype=torch.float64)
    for state in (None, start):
        sums, expected_state = alone(x, state)
        weight, bias = net.output.weight.detach().numpy(), net.output.bias.detach().numpy()
        expected = ACTIVATIONS[activation](sums.detach().numpy()) @ weight.T + bias
        y, end = net(x, state)
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12)
        torch.testing.assert_close(end, expected_state)


def test_a_memory_network_starts_reproducibly_and_is_a_torch_module():
    net = MemoryNetwork(10, 20, 10)
    net.reset_parameters(torch.Generator().manual_seed(0))
    first = copy.deepcopy(net.state_dict())
    assert 0.09 < net.output.weight.abs().max() <= 0.1
    assert net.output.bias.abs().sum() == 0
    net.reset_parameters()
    assert not torch.equal(net.state_dict()["memory.theta.q"], first["memory.theta.q"])
    net.reset_parameters(torch.Generator().manual_seed(0))
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in first.items())
    x = torch.randn(4, 2, 10)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.testing.assert_close(other(x), net(x), rtol=0, atol=0)
    assert "activation=logistic" in repr(net)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((3, 5, 2, "F12"), FtnnError, r"has no C.*use ftnn\.nn\.Transfer"),
        ((3, 5, 2, "memory", "gelu"), FtnnError, "unknown activation 'gelu'"),
        ((3, 0, 2), ShapeError, "hidden must be a positive integer"),
        ((3, [5], 2), ShapeError, "hidden must be a positive integer"),
        ((3, 5, 0), ShapeError, "out_features must be a positive integer"),
    ],
)
def test_invalid_arguments_of_a_memory_network_are_refused(arguments: Any, kind: Any, message: str):
    with pytest.raises(kind, match=message):
        MemoryNetwork(*arguments)
